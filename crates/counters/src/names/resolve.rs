//! What a parsed list means on this machine.

use std::collections::BTreeSet;

use model::{Counter, MAX_COUNTERS, PerfAttr, Scale, Scope, Source, Unit};

use super::amd::Amd;
use super::error::{NameError, NameErrorKind};
use super::generic::Generic;
use super::memory::Breakpoints;
use super::parse::{MODIFIERS_HINT, parse};
use super::script::Scripts;
use super::suggest;
use super::syntax::{Entries, Head, Item, List, Modifiers};
use super::sysfs::Pmus;
use super::tracefs::Tracepoints;
use crate::machine::Machine;

/// A kind of names: perf's own, a machine's PMUs, …
pub trait NameSource {
    /// What `head` means; `None` if it is not this source's kind of name, so that the next one
    /// is asked.
    fn resolve(&self, head: &Head) -> Option<Result<Resolved, Trouble>>;

    /// Everything this source can name, for `list` and for suggestions.
    fn entries(&self) -> Vec<Entry>;
}

/// What a name stands for, before modifiers and grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Where values come from.
    pub source: Source,
    /// What they are measured in, once multiplied by `scale`.
    pub unit: Unit,
    /// One step of a raw value, in `unit`.
    pub scale: Scale,
    /// Whose occurrences it counts.
    pub scope: Scope,
    /// The name for views, where it is not what was typed.
    pub name: Option<String>,
}

impl Resolved {
    /// A counter of threads that is called what was typed.
    pub fn new(source: Source, unit: Unit) -> Self {
        Self { source, unit, scale: Scale::ONE, scope: Scope::Thread, name: None }
    }
}

/// A [`NameError`] in the making: the resolver adds the place unless the source knows it better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    kind: NameErrorKind,
    at: Option<usize>,
    hint: Option<String>,
}

impl Trouble {
    /// At the beginning of the item.
    pub fn new(kind: NameErrorKind) -> Self {
        Self { kind, at: None, hint: None }
    }

    /// At this byte of the list.
    pub fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }

    /// With advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// One row of the catalogue of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What to type.
    pub name: String,
    /// What else can be typed.
    pub aliases: Vec<String>,
    /// `software`, `hardware`, `cache`, `AMD`, `raw`, `pmu msr`, `tracepoint`, `breakpoint`, `simulated`.
    pub source: String,
    /// Of its values.
    pub unit: Unit,
    /// One line.
    pub description: String,
    /// The name is a form to fill in, not a counter.
    pub is_pattern: bool,
}

/// All sources of names of one machine.
pub struct Resolver {
    sources: Vec<Box<dyn NameSource>>,
}

impl Resolver {
    /// With every source that this version has. Reads nothing yet.
    pub fn new(machine: &Machine) -> Self {
        Self {
            sources: vec![
                Box::new(Generic),
                Box::new(Amd(machine.clone())),
                Box::new(Scripts),
                Box::new(Breakpoints),
                Box::new(Pmus(machine.clone())),
                Box::new(Tracepoints(machine.clone())),
            ],
        }
    }

    /// Asks `source` after all others.
    pub fn with(mut self, source: Box<dyn NameSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Every name of every source, in the order of the sources.
    pub fn catalogue(&self) -> Vec<Entry> {
        self.sources.iter().flat_map(|s| s.entries()).collect()
    }

    /// From text to counters that can be opened. `none` is the empty list: timing only.
    ///
    /// Counters outside of braces form one group together, as far as they have one kind of
    /// source; each pair of braces is a group of its own; a pinned counter outside of braces is
    /// alone. The counters of a group are neighbours in the result, groups in the order in which
    /// they were begun.
    pub fn resolve(&self, text: &str) -> Result<Vec<Counter>, NameError> {
        if text.trim() == "none" {
            return Ok(Vec::new());
        }
        let list = parse(text)?;
        let groups = self.groups(&list, text)?;
        let mut names = BTreeSet::new();
        let mut counters = Vec::new();
        for (number, group) in groups.into_iter().enumerate() {
            for (at, mut counter) in group {
                if !names.insert(counter.name.clone()) {
                    return Err(NameError::new(NameErrorKind::Twice { name: counter.name }, at));
                }
                if counters.len() == MAX_COUNTERS {
                    let problem = format!("more than {MAX_COUNTERS} counters");
                    return Err(NameError::new(NameErrorKind::Group { problem }, at));
                }
                counter.group = number as u16;
                counters.push(counter);
            }
        }
        Ok(counters)
    }

    fn groups(&self, list: &List, text: &str) -> Result<Vec<Vec<(usize, Counter)>>, NameError> {
        let mut groups: Vec<Vec<(usize, Counter)>> = Vec::new();
        // Where the counters outside of braces go, by kind.
        let mut open: [Option<usize>; 2] = [None, None];
        for entry in &list.entries {
            match entry {
                Entries::Single(item) => {
                    let counter = self.counter(item, Modifiers::default(), text)?;
                    let alone = is_pinned(&counter) || !counter.scope.is_thread();
                    let slot = &mut open[usize::from(is_sim(&counter))];
                    match slot.filter(|_| !alone) {
                        Some(group) => groups[group].push((item.at, counter)),
                        None => {
                            if !alone {
                                *slot = Some(groups.len());
                            }
                            groups.push(vec![(item.at, counter)]);
                        }
                    }
                }
                Entries::Group { items, modifiers } => {
                    let mut group: Vec<(usize, Counter)> = Vec::new();
                    for item in items {
                        let mut shared = *modifiers;
                        shared.pinned &= group.is_empty();
                        let counter = self.counter(item, shared, text)?;
                        let first = group.first().map_or(&counter, |(_, c)| c);
                        let problem = if is_sim(&counter) != is_sim(first) {
                            Some("a group has simulated counters or real ones, not both")
                        } else if counter.scope != first.scope {
                            Some("a group counts threads or a whole package, not both")
                        } else if is_pinned(&counter) && !group.is_empty() {
                            Some("only the first counter of a group can be pinned")
                        } else {
                            None
                        };
                        if let Some(problem) = problem {
                            let problem = problem.into();
                            return Err(NameError::new(NameErrorKind::Group { problem }, item.at));
                        }
                        group.push((item.at, counter));
                    }
                    groups.push(group);
                }
            }
        }
        Ok(groups)
    }

    fn counter(&self, item: &Item, group: Modifiers, text: &str) -> Result<Counter, NameError> {
        let resolved = self.head(item, text)?;
        let modifiers = item.modifiers.and(group);
        let name = match resolved.name {
            Some(name) => name,
            None => format!("{}{modifiers}", item.head),
        };
        let source = match resolved.source {
            Source::Perf(attr) => Source::Perf(modified(attr, modifiers)),
            Source::Sim(_) if !modifiers.is_empty() => {
                let problem = "a simulated counter has no modifiers".into();
                return Err(NameError::new(NameErrorKind::Group { problem }, item.at));
            }
            sim @ Source::Sim(_) => sim,
        };
        let (scale, scope) = (resolved.scale, resolved.scope);
        Ok(Counter { name, unit: resolved.unit, scale, scope, group: 0, source })
    }

    fn head(&self, item: &Item, text: &str) -> Result<Resolved, NameError> {
        let answer = self.sources.iter().find_map(|s| s.resolve(&item.head));
        let Some(answer) = answer else {
            return Err(self.unknown(&item.head.to_string(), item.at));
        };
        answer.map_err(|trouble| {
            // `page-faults:x` looks like a tracepoint; if its first half is a name, it is not.
            if let Head::Tracepoint { system, name } = &item.head {
                let word = Head::Word(system.clone());
                if self.sources.iter().any(|s| s.resolve(&word).is_some()) {
                    return bad_modifier(name, item.at + system.len() + 1);
                }
            }
            let at = trouble.at.unwrap_or(item.at).min(text.len());
            match trouble.kind {
                NameErrorKind::Unknown { name } => self.unknown(&name, at),
                kind => NameError { kind, at, hint: trouble.hint },
            }
        })
    }

    fn unknown(&self, name: &str, at: usize) -> NameError {
        if name == "none" {
            let problem = "none stands alone: nothing is counted, only timed".into();
            return NameError::new(NameErrorKind::Group { problem }, at);
        }
        let entries = self.catalogue();
        let known = entries
            .iter()
            .filter(|e| !e.is_pattern)
            .flat_map(|e| std::iter::once(&e.name).chain(&e.aliases));
        let near = suggest::closest(name, known.map(String::as_str));
        let error = NameError::new(NameErrorKind::Unknown { name: name.into() }, at);
        match near.as_slice() {
            [] => error.hint("counterpoint list shows every name"),
            near => error.hint(format!("did you mean {}?", near.join(", "))),
        }
    }
}

fn bad_modifier(letters: &str, at: usize) -> NameError {
    let (offset, letter) =
        letters.char_indices().find(|(_, c)| !"ukhGHIpD".contains(*c)).unwrap_or((0, '?'));
    NameError::new(NameErrorKind::UnknownModifier { letter }, at + offset).hint(MODIFIERS_HINT)
}

fn is_sim(counter: &Counter) -> bool {
    matches!(counter.source, Source::Sim(_))
}

fn is_pinned(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.pinned)
}

/// perf's meaning of the letters: naming a mode leaves the others out.
fn modified(attr: PerfAttr, m: Modifiers) -> PerfAttr {
    let modes = m.user | m.kernel | m.hypervisor;
    let machines = m.guest | m.host;
    PerfAttr {
        exclude_user: modes & !m.user,
        exclude_kernel: modes & !m.kernel,
        exclude_hv: modes & !m.hypervisor,
        exclude_host: machines & !m.host,
        exclude_guest: machines & !m.guest,
        exclude_idle: m.not_idle,
        precise_ip: m.precise,
        pinned: m.pinned,
        ..attr
    }
}
