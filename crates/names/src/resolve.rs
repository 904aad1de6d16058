//! Finds the counters that a parsed list stands for on this machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use model::{Counter, MAX_COUNTERS, PerfAttr, Source};

use crate::amd::Amd;
use crate::cause::NameCause;
use crate::devices::Devices;
use crate::error::{NameError, NameErrorKind};
use crate::generic::Generic;
use crate::memory::Breakpoints;
use crate::near;
use crate::papi::Papi;
use crate::parse::{is_perfs, parse};
use crate::script::Scripts;
use crate::source::{Called, Entry, NameSource, Resolved};
use crate::syntax::{Entries, Head, Item, List, Modifiers};
use crate::sysfs::Pmus;
use crate::tables::{PerfList, Tables};
use crate::tracefs::Tracepoints;
use crate::uprobe::Uprobes;
use crate::vendor::Vendor;
use machine::Machine;

/// A counter, with its place in the list.
struct Placed {
    at: usize,
    counter: Counter,
    /// Whether the user chose the name (`cpu/…,name=mine/`).
    named: bool,
}

type Group = Vec<Placed>;

/// The sources of names of one machine.
pub struct Resolver {
    sources: Vec<Box<dyn NameSource>>,
    vendor: Rc<Vendor>,
}

impl Resolver {
    /// Makes a resolver with all sources of names. This reads nothing yet.
    pub fn new(machine: &Machine) -> Self {
        Self::with_tables(machine, None)
    }

    /// Makes a resolver that reads a vendor's names from a directory of JSON tables, in one of the
    /// layouts that `vendor.rs` describes. Without a directory, it asks an installed perf. This
    /// reads nothing yet.
    pub fn with_tables(machine: &Machine, directory: Option<&Path>) -> Self {
        let vendor = Rc::new(Vendor::new(machine, directory));
        Self {
            sources: vec![
                Box::new(Generic(machine.clone())),
                Box::new(Papi(machine.clone())),
                Box::new(Tables(machine.clone(), vendor.clone())),
                Box::new(Amd(machine.clone())),
                Box::new(Scripts),
                Box::new(Breakpoints),
                Box::new(Uprobes(machine.clone())),
                Box::new(Pmus(machine.clone(), vendor.clone())),
                Box::new(Tracepoints(machine.clone())),
                Box::new(Devices::known()),
                Box::new(PerfList(machine.clone(), vendor.clone())),
            ],
            vendor,
        }
    }

    /// Adds a source of names, which is asked after all others.
    pub fn with(mut self, source: Box<dyn NameSource>) -> Self {
        self.sources.push(source);
        self
    }

    /// Returns the names that the sources know, without those of [`Resolver::bulk`].
    pub fn catalogue(&self) -> Vec<Entry> {
        self.sources.iter().flat_map(|s| s.entries()).collect()
    }

    /// Returns the names that exist in thousands: tracepoints, and a vendor's names. The method
    /// reads files, and may run perf.
    pub fn bulk(&self) -> Vec<Entry> {
        self.sources.iter().flat_map(|s| s.bulk()).collect()
    }

    /// Returns why a vendor's names are missing: a problem with the directory of tables, or a perf
    /// that hangs. Reads the tables if that was not done yet.
    pub fn tables_problem(&self) -> Option<&str> {
        self.vendor.problem()
    }

    /// Returns the counters that the text stands for, ready to be opened. There are no counters if
    /// the text is `none`: only times are recorded then.
    ///
    /// Outside of braces, perf's counters form one group, and simulated counters another. If a name
    /// stands for counters of several PMUs, there is also a group for each of these PMUs. A pinned
    /// or exclusive counter outside of braces, or one that counts CPUs, is a group of its own. Each
    /// pair of braces is a group, or one group for each PMU. The counters of a group are next to
    /// each other.
    ///
    /// # Errors
    /// Returns an error about the first problem in the list.
    pub fn resolve(&self, text: &str) -> Result<Vec<Counter>, NameError> {
        self.read(text, false).map(|(counters, _)| counters)
    }

    /// Like [`Resolver::resolve`], but leaves out a counter that its group contains under another
    /// name (`page-faults,faults`), unless the user chose the counter's name. The second list has a
    /// note about each such counter.
    pub fn resolve_once(&self, text: &str) -> Result<(Vec<Counter>, Vec<String>), NameError> {
        self.read(text, true)
    }

    fn read(&self, text: &str, once: bool) -> Result<(Vec<Counter>, Vec<String>), NameError> {
        if text.trim() == "none" {
            return Ok((Vec::new(), Vec::new()));
        }
        let list = parse(text)?;
        let groups = self.groups(&list, text)?;
        let mut names = BTreeSet::new();
        let mut counters: Vec<Counter> = Vec::new();
        let mut notes = Vec::new();
        for (number, group) in groups.into_iter().enumerate() {
            let begun = counters.len();
            for Placed { at, mut counter, named } in group {
                let mut group = counters[begun..].iter();
                let same = group.find(|known| once && !named && is_same(known, &counter));
                if let Some(same) = same.filter(|same| same.name != counter.name) {
                    notes.push(format!(
                        "{} is another name of {}; it is counted once, as {}",
                        counter.name, same.name, same.name
                    ));
                    continue;
                }
                if !names.insert(counter.name.clone()) {
                    return Err(NameError::new(NameErrorKind::Twice { name: counter.name }, at));
                }
                if counters.len() == MAX_COUNTERS {
                    let problem = format!("more than {MAX_COUNTERS} counters");
                    return Err(NameError::new(NameErrorKind::Group { problem }, at)
                        .because(NameCause::TooMany));
                }
                counter.group = number as u16;
                counters.push(counter);
            }
        }
        Ok((counters, notes))
    }

    fn groups(&self, list: &List, text: &str) -> Result<Vec<Group>, NameError> {
        let mut groups: Vec<Group> = Vec::new();
        // The groups of counters outside of braces.
        let mut open: Vec<((bool, Option<String>), usize)> = Vec::new();
        for entry in &list.entries {
            match entry {
                Entries::Single(item) => {
                    for resolved in self.head(item, text)? {
                        let pmu = resolved.pmu.clone();
                        let placed = put(item, resolved, Modifiers::default())?;
                        let counter = &placed.counter;
                        let alone = must_lead(counter) || !counter.scope.is_thread();
                        let key = (is_sim(counter), pmu);
                        match open.iter().find(|(k, _)| *k == key && !alone) {
                            Some(&(_, group)) => groups[group].push(placed),
                            None => {
                                if !alone {
                                    open.push((key, groups.len()));
                                }
                                groups.push(vec![placed]);
                            }
                        }
                    }
                }
                Entries::Group { items, modifiers } => {
                    groups.extend(self.braces(items, *modifiers, text)?);
                }
            }
        }
        Ok(groups)
    }

    /// Makes the group of a pair of braces, or one group for each PMU.
    fn braces(
        &self,
        items: &[Item],
        modifiers: Modifiers,
        text: &str,
    ) -> Result<Vec<Group>, NameError> {
        let mut groups: Vec<(Option<String>, Group)> = Vec::new();
        for item in items {
            for resolved in self.head(item, text)? {
                let pmu = resolved.pmu.clone();
                // A counter for which no PMU is given joins the first group. If that group has no
                // PMU yet, the first PMU's counters also join it.
                let place = groups.iter().position(|(p, _)| match &pmu {
                    None => true,
                    Some(_) => *p == pmu || (p.is_none() && groups.len() == 1),
                });
                let place = place.unwrap_or_else(|| {
                    groups.push((pmu.clone(), Vec::new()));
                    groups.len() - 1
                });
                let (of, group) = &mut groups[place];
                *of = of.take().or(pmu);
                let mut shared = modifiers;
                shared.pinned &= group.is_empty();
                shared.exclusive &= group.is_empty();
                let placed = put(item, resolved, shared)?;
                let counter = &placed.counter;
                let first = group.first().map_or(counter, |placed| &placed.counter);
                let problem = if is_sim(counter) != is_sim(first) {
                    Some("a group cannot have both simulated and real counters")
                } else if counter.scope != first.scope {
                    Some("a group cannot count both threads and a whole package")
                } else if must_lead(counter) && !group.is_empty() {
                    Some("only the first counter of a group can be pinned or exclusive")
                } else {
                    None
                };
                if let Some(problem) = problem {
                    let problem = problem.into();
                    return Err(NameError::new(NameErrorKind::Group { problem }, item.at));
                }
                group.push(placed);
            }
        }
        Ok(groups.into_iter().map(|(_, group)| group).collect())
    }

    fn head(&self, item: &Item, text: &str) -> Result<Vec<Resolved>, NameError> {
        let answer = self.sources.iter().find_map(|s| s.resolve(&item.head));
        let Some(answer) = answer else {
            return Err(self.unknown(&item.head.to_string(), item.at));
        };
        answer.map_err(|trouble| {
            // `page-faults:x` has the syntax of a tracepoint, but `x` was meant as a modifier.
            if let Head::Tracepoint { system, name, .. } = &item.head {
                let word = Head::Word(system.clone());
                if self.sources.iter().any(|s| s.resolve(&word).is_some()) {
                    return bad_modifier(name, item.at + system.len() + 1);
                }
            }
            let at = trouble.at.unwrap_or(item.at).min(text.len());
            match trouble.kind {
                NameErrorKind::Unknown { name } if trouble.cause.is_none() => {
                    self.unknown(&name, at)
                }
                kind => NameError { kind, at, cause: trouble.cause },
            }
        })
    }

    fn unknown(&self, name: &str, at: usize) -> NameError {
        if name == "none" {
            let problem = "none records only times and cannot be combined with counters".into();
            return NameError::new(NameErrorKind::Group { problem }, at);
        }
        let mut entries = self.catalogue();
        entries.extend(self.bulk());
        // The error must not suggest AMD's names if they would be refused on this processor.
        let amd = Head::Word("ex_ret_instr".into());
        if !self.sources.iter().any(|s| matches!(s.resolve(&amd), Some(Ok(_)))) {
            entries.retain(|entry| entry.source != "AMD");
        }
        let near = near::nearest(name, &entries);
        let problem = || Some(NameCause::Tables(self.vendor.problem()?.to_owned()));
        let cause = if near.is_empty() { problem() } else { Some(NameCause::Near(near)) };
        NameError { kind: NameErrorKind::Unknown { name: name.into() }, at, cause }
    }
}

fn bad_modifier(letters: &str, at: usize) -> NameError {
    let Some((offset, letter)) = letters.char_indices().find(|(_, c)| !is_perfs(*c)) else {
        let problem = "modifiers are written together".to_owned();
        let kind = NameErrorKind::Value { text: letters.into(), problem };
        return NameError::new(kind, at).because(NameCause::SeparatedModifiers);
    };
    NameError::new(NameErrorKind::UnknownModifier { letter }, at + offset)
}

/// Whether two counters of one group count the same events. Simulated counters with different names
/// are different counters.
fn is_same(a: &Counter, b: &Counter) -> bool {
    !is_sim(a) && a.source == b.source && a.scope == b.scope
}

fn is_sim(counter: &Counter) -> bool {
    matches!(counter.source, Source::Sim(_))
}

/// The kernel reads the flags `pinned` and `exclusive` from the first counter of a group.
fn must_lead(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.pinned || attr.exclusive)
}

fn put(item: &Item, resolved: Resolved, group: Modifiers) -> Result<Placed, NameError> {
    let named = matches!(resolved.name, Called::Exactly(_));
    let typed = item.modifiers.and(group);
    let name = match resolved.name {
        Called::AsTyped => format!("{}{typed}", item.head),
        Called::Instead(name) => format!("{name}{typed}"),
        Called::Exactly(name) => name,
    };
    let source = match resolved.source {
        Source::Perf(attr) => Source::Perf(modified(attr, typed.and(resolved.modifiers))),
        Source::Sim(_) if !typed.is_empty() => {
            let problem = "a simulated counter has no modifiers".into();
            return Err(NameError::new(NameErrorKind::Group { problem }, item.at));
        }
        sim @ Source::Sim(_) => sim,
    };
    let (unit, scale, scope) = (resolved.unit, resolved.scale, resolved.scope);
    let counter = Counter { name, unit, scale, scope, group: 0, source };
    Ok(Placed { at: item.at, counter, named })
}

/// As in perf, if at least one of the modes (`u`, `k`, `h`) is named, the other modes are not
/// counted.
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
        pinned: m.pinned,
        exclusive: m.exclusive,
        ..attr
    }
}
