//! Resolves names of the form `pmu/term=value,…/`, which sysfs describes for the PMUs of this
//! machine.
//!
//! ```text
//!  /sys/bus/event_source/devices/<pmu>/type            perf_event_attr.type
//!                                     /format/<term>   "config:0-7,32-35": the place of its bits
//!                                     /events/<name>   "event=0x3c,umask=0x00": the terms of a name
//!                                     /events/<name>.scale, .unit
//!                                     /caps/<name>     what it can do; these are not terms
//!                                     /cpumask         exists if it counts whole packages, not threads
//! ```
//!
//! A name from `events` can also be typed without its PMU (`mem-loads`, `energy-pkg`). The
//! beginning `uncore_` and the number at the end of a PMU's name can be left out:
//! `uncore_imc/data_reads/` stands for the counters of `uncore_imc_0`, `uncore_imc_1` and so on.
//!
//! Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events}.

use std::rc::Rc;

use model::{PerfAttr, Scale, Scope, Source, Unit};

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::format::{self, Format};
use crate::generic;
use crate::parse::number;
use crate::source::{Called, Entry, NameSource, Resolved, Trouble};
use crate::syntax::{Head, Term};
use crate::units::unit_of;
use crate::vendor::Vendor;
use machine::Machine;
use machine::files::{DEVICES, parse_cpus};
use model::suggest;

pub(crate) struct Pmus(pub Machine, pub Rc<Vendor>);

/// PMUs whose counters have another syntax (`page-faults`, `system:name`, `mem:…`).
const NAMED_OTHERWISE: [&str; 5] = ["software", "tracepoint", "breakpoint", "uprobe", "kprobe"];

/// perf's terms about sampling.
const OF_SAMPLING: [&str; 15] = [
    "period",
    "freq",
    "call-graph",
    "stack-size",
    "max-stack",
    "nr",
    "time",
    "branch_type",
    "overwrite",
    "no-overwrite",
    "aux-output",
    "aux-sample-size",
    "inherit",
    "no-inherit",
    "percore",
];

impl NameSource for Pmus {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        match head {
            Head::Pmu { pmu, terms } => Some(self.look_up(pmu, terms)),
            Head::Word(word) => self.by_event(word),
            _ => None,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for pmu in self.0.list(DEVICES) {
            if NAMED_OTHERWISE.contains(&pmu.as_str()) {
                continue;
            }
            for event in self.events(&pmu) {
                let head = Term { at: 0, name: event.clone(), value: None };
                let Ok(resolved) = self.one(&pmu, &[head]) else { continue };
                let terms = self.event(&pmu, &event).unwrap_or_default();
                let source = format!("pmu {pmu}");
                entries.push(Entry::new(format!("{pmu}/{event}/"), source, resolved.unit, terms));
            }
        }
        let what = "any counter of a PMU by its terms, as in cpu/event=0x3c,umask=0x1/";
        entries.push(Entry::pattern("PMU/TERM=VALUE,…/", "pmu", what));
        entries
    }
}

struct Draft {
    attr: PerfAttr,
    unit: Unit,
    scale: Scale,
    name: Called,
}

impl Pmus {
    fn events(&self, pmu: &str) -> Vec<String> {
        let mut names = self.0.list(&format!("{DEVICES}/{pmu}/events"));
        names.retain(|n| !n.contains('.'));
        names
    }

    fn event(&self, pmu: &str, event: &str) -> Option<String> {
        let plain = !event.is_empty() && !event.contains(['/', '.']);
        plain.then(|| self.0.read_trimmed(&format!("{DEVICES}/{pmu}/events/{event}")))?
    }

    /// Returns the PMU with the typed name, or else the PMUs whose names, with or without
    /// `uncore_`, add only a number to the typed name or match its `*`. If there are none, `cpu`
    /// stands for the PMUs of the cores.
    pub(crate) fn called(&self, typed: &str) -> Vec<String> {
        let all = self.0.list(DEVICES);
        if all.iter().any(|p| p == typed) {
            return vec![typed.to_owned()];
        }
        let matches = |pmu: &String| {
            let short = pmu.strip_prefix("uncore_").unwrap_or(pmu);
            [pmu.as_str(), short].iter().any(|name| {
                let rest = name.strip_prefix(typed);
                let number = rest.map(|r| r.strip_prefix('_').unwrap_or(r));
                number.is_some_and(|n| n.chars().all(|c| c.is_ascii_digit()))
                    || (typed.contains('*') && model::glob::matches(typed, name))
            })
        };
        let found: Vec<String> = all.iter().filter(|p| matches(p)).cloned().collect();
        match typed == "cpu" && found.is_empty() {
            true => self.0.core_pmus(),
            false => found,
        }
    }

    /// Resolves an event without a PMU (`mem-loads`): an event of the cores, or else of any PMU.
    fn by_event(&self, word: &str) -> Option<Result<Vec<Resolved>, Trouble>> {
        let mut having = self.0.list(DEVICES);
        having.retain(|pmu| self.event(pmu, word).is_some());
        let cores = self.0.core_pmus();
        if having.iter().any(|pmu| cores.contains(pmu)) {
            having.retain(|pmu| cores.contains(pmu));
        }
        let term = [Term { at: 0, name: word.to_owned(), value: None }];
        let mut found: Vec<Resolved> = Vec::new();
        for pmu in &having {
            match self.one(pmu, &term) {
                Ok(resolved) => found.push(self.told_apart(pmu, &term, having.len(), resolved)),
                // The user typed no terms, so the error is about the whole item.
                Err(trouble) => return Some(Err(trouble.anywhere())),
            }
        }
        (!found.is_empty()).then_some(Ok(found))
    }

    fn look_up(&self, typed: &str, terms: &[Term]) -> Result<Vec<Resolved>, Trouble> {
        if typed == "uprobe" || typed == "kprobe" {
            let what = format!("{typed}/…/");
            let cause = if typed == "uprobe" { NameCause::UprobePmu } else { NameCause::KprobePmu };
            return Err(Trouble::new(NameErrorKind::Unsupported { what }).because(cause));
        }
        let pmus = self.called(typed);
        if pmus.is_empty() {
            let all = self.0.list(DEVICES);
            let near = suggest::closest(typed, all.iter().map(String::as_str));
            let near: Vec<String> = near.into_iter().map(str::to_owned).collect();
            let cause = match (all.is_empty(), near.is_empty()) {
                (true, _) => NameCause::NoPmus,
                (false, true) => NameCause::Pmus(all),
                (false, false) => NameCause::Near(near),
            };
            let problem = format!("this machine has no PMU {typed:?}");
            return Err(Trouble::new(NameErrorKind::Machine { problem }).because(cause));
        }
        let several = pmus.len();
        let each =
            pmus.iter().map(|pmu| Ok(self.told_apart(pmu, terms, several, self.one(pmu, terms)?)));
        each.collect()
    }

    /// Adds the PMU to the counter's name if the name stands for several PMUs.
    pub(crate) fn told_apart(
        &self,
        pmu: &str,
        terms: &[Term],
        several: usize,
        resolved: Resolved,
    ) -> Resolved {
        if several < 2 {
            return resolved;
        }
        let name = match resolved.name {
            Called::Exactly(name) => Called::Exactly(format!("{name} ({pmu})")),
            _ => {
                let head = Head::Pmu { pmu: pmu.to_owned(), terms: terms.to_vec() };
                Called::Instead(head.to_string())
            }
        };
        Resolved { name, pmu: Some(pmu.to_owned()), ..resolved }
    }

    /// Returns the counter that these terms describe on the PMU with this name.
    pub(crate) fn one(&self, pmu: &str, terms: &[Term]) -> Result<Resolved, Trouble> {
        let dir = format!("{DEVICES}/{pmu}");
        let machine = |problem: String| Trouble::new(NameErrorKind::Machine { problem });
        let kind = self
            .0
            .read_trimmed(&format!("{dir}/type"))
            .and_then(|t| t.parse().ok())
            .ok_or_else(|| machine(format!("/{dir}/type holds no number")))?;
        let scope =
            match self.0.read_trimmed(&format!("{dir}/cpumask")) {
                None => Scope::Thread,
                Some(cpus) => Scope::Cpus(parse_cpus(&cpus).ok_or_else(|| {
                    machine(format!("/{dir}/cpumask: {cpus:?} names no processors"))
                })?),
            };
        let draft = self.draft(pmu, kind, terms, &|term| {
            self.0.read_trimmed(&format!("{DEVICES}/{pmu}/format/{term}"))
        })?;
        if scope.is_thread() && draft.scale != Scale::ONE {
            let what = format!("{pmu}, a counter of threads whose values have a scale");
            return Err(Trouble::new(NameErrorKind::Unsupported { what }));
        }
        Ok(Resolved {
            scale: draft.scale,
            scope,
            name: draft.name,
            ..Resolved::new(Source::Perf(draft.attr), draft.unit)
        })
    }

    /// Returns the counter that these terms describe, with the bits placed as in the processor's
    /// manual. The function is for machines whose sysfs does not show the processor's PMU.
    pub(crate) fn documented(&self, terms: &[Term]) -> Result<Resolved, Trouble> {
        const TYPE_RAW: u32 = 4;
        let layout = format::documented(&self.0);
        let draft = self.draft("cpu", TYPE_RAW, terms, &|term| {
            let row = layout.iter().find(|(name, _)| *name == term);
            row.map(|(_, format)| (*format).to_owned())
        })?;
        let name = draft.name;
        Ok(Resolved { name, ..Resolved::new(Source::Perf(draft.attr), draft.unit) })
    }

    fn draft(
        &self,
        pmu: &str,
        kind: u32,
        terms: &[Term],
        format: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Draft, Trouble> {
        let mut draft = Draft {
            attr: PerfAttr { kind, ..PerfAttr::default() },
            unit: Unit::Count,
            scale: Scale::ONE,
            name: Called::AsTyped,
        };
        for term in terms {
            self.apply(pmu, term, terms, format, &mut draft, true)?;
        }
        Ok(draft)
    }

    /// Applies one term. If the term is the name of an event, what the event stands for is applied
    /// in its place.
    fn apply(
        &self,
        pmu: &str,
        term: &Term,
        all: &[Term],
        format: &dyn Fn(&str) -> Option<String>,
        draft: &mut Draft,
        names_allowed: bool,
    ) -> Result<(), Trouble> {
        if let ("name", Some(name)) = (term.name.as_str(), &term.value) {
            draft.name = Called::Exactly(name.clone());
            return Ok(());
        }
        let found = match term.name.as_str() {
            whole @ ("config" | "config1" | "config2" | "config3") => Some(format!("{whole}:0-63")),
            name if name.contains(['/', '.']) => None,
            name => format(name),
        };
        let Some(text) = found else {
            return match (&term.value, names_allowed) {
                (None, true) => self.apply_name(pmu, term, all, format, draft),
                _ => Err(self.unknown(pmu, term)),
            };
        };
        let wrong = |text: &str, problem: String| {
            Trouble::new(NameErrorKind::Value { text: text.into(), problem }).at(term.at)
        };
        let format = Format::parse(&text).ok_or_else(|| {
            let problem = format!("/{DEVICES}/{pmu}/format/{}: {text:?}", term.name);
            Trouble::new(NameErrorKind::Machine { problem }).at(term.at)
        })?;
        let text = match term.value.as_deref().unwrap_or("1") {
            // `?` marks a parameter of an event. The user gives its value in another term with the
            // same name.
            "?" => {
                let given = all.iter().find(|t| t.name == term.name && t.value.is_some());
                let value = given.and_then(|t| t.value.as_deref()).filter(|v| *v != "?");
                value.ok_or_else(|| {
                    let text = all.first().map_or_else(String::new, Term::to_string);
                    wrong(&text, format!("needs a value for {}", term.name))
                        .because(NameCause::Instead(format!("{pmu}/{text},{}=…/", term.name)))
                })?
            }
            text => text,
        };
        let value =
            number(text).ok_or_else(|| wrong(text, "not a number (0x… or decimal)".into()))?;
        if format.bits() < 64 && value >> format.bits() != 0 {
            return Err(wrong(text, format!("{} has {} bits", term.name, format.bits())));
        }
        format.put(&mut draft.attr, value);
        Ok(())
    }

    /// Applies a term that is the name of an event. The name is looked up in sysfs, then (for a
    /// core's PMU) among generic hardware counters and `rNNNN`, then among the vendor's names.
    fn apply_name(
        &self,
        pmu: &str,
        term: &Term,
        all: &[Term],
        format: &dyn Fn(&str) -> Option<String>,
        draft: &mut Draft,
    ) -> Result<(), Trouble> {
        let mut terms = self.event(pmu, &term.name);
        if terms.is_some() {
            (draft.unit, draft.scale) = self.unit(pmu, term)?;
        }
        let cores = self.0.core_types();
        let is_core = pmu == "cpu" || cores.iter().any(|(core, _)| core == pmu);
        if terms.is_none() && is_core {
            if let Some(numbers) = generic::numbers(&term.name).filter(|n| n.is_hardware()) {
                draft.unit = numbers.unit;
                let pmu_type = if cores.len() > 1 { draft.attr.kind } else { 0 };
                draft.attr = numbers.of_pmu(pmu_type);
                return Ok(());
            }
            if let Some(config) = generic::raw(&term.name) {
                draft.attr.config = config.map_err(|trouble| trouble.at(term.at))?;
                return Ok(());
            }
        }
        if terms.is_none() {
            let known = self.1.find(&term.name).into_iter();
            let mut own = known.filter(|event| self.called(&event.pmu).iter().any(|p| p == pmu));
            if let Some(event) = own.next() {
                (draft.unit, draft.scale) = (event.unit, event.scale);
                terms = Some(event.terms.clone());
            }
        }
        let Some(terms) = terms else { return Err(self.unknown(pmu, term)) };
        for inner in split_terms(&terms, term.at) {
            self.apply(pmu, &inner, all, format, draft, false)?;
        }
        Ok(())
    }

    /// Returns the unit and the scale of a name from `events`.
    fn unit(&self, pmu: &str, term: &Term) -> Result<(Unit, Scale), Trouble> {
        let file = |ending| format!("{DEVICES}/{pmu}/events/{}.{ending}", term.name);
        let (unit, more) =
            self.0.read_trimmed(&file("unit")).map_or((Unit::Count, 1.0), |word| unit_of(&word));
        let text = self.0.read_trimmed(&file("scale"));
        let factor = text.as_deref().map_or(Some(1.0), |text| text.parse::<f64>().ok());
        let scale = factor.and_then(|factor| Scale::new(factor * more)).ok_or_else(|| {
            let problem =
                format!("/{}: {:?} is not a scale", file("scale"), text.unwrap_or_default());
            Trouble::new(NameErrorKind::Machine { problem }).at(term.at)
        })?;
        Ok((unit, scale))
    }

    fn unknown(&self, pmu: &str, term: &Term) -> Trouble {
        if OF_SAMPLING.contains(&term.name.as_str()) {
            let (text, problem) =
                (term.to_string(), "says how to sample, but this program counts".into());
            return Trouble::new(NameErrorKind::Value { text, problem }).at(term.at);
        }
        let kind = NameErrorKind::UnknownTerm { pmu: pmu.into(), term: term.name.clone() };
        let trouble = Trouble::new(kind).at(term.at);
        let capability = format!("{DEVICES}/{pmu}/caps/{}", term.name);
        let plain = !term.name.contains(['/', '.']);
        if let Some(value) = self.0.read_trimmed(&capability).filter(|_| plain) {
            let value = format!("{} = {value}", term.name);
            return trouble.because(NameCause::Capability(value));
        }
        let mut known = self.events(pmu);
        known.extend(self.0.list(&format!("{DEVICES}/{pmu}/format")));
        let near = suggest::closest(&term.name, known.iter().map(String::as_str));
        if near.is_empty() {
            known.truncate(12);
            return trouble.because(NameCause::Terms(known));
        }
        trouble.because(NameCause::Near(near.into_iter().map(str::to_owned).collect()))
    }
}

/// Returns the terms of a text like `event=0x3c,umask=0x1`. `at` is the byte in the typed text to
/// which errors about these terms point.
pub(crate) fn split_terms(terms: &str, at: usize) -> Vec<Term> {
    let pieces = terms.split(',').map(str::trim).filter(|piece| !piece.is_empty());
    pieces
        .map(|piece| match piece.split_once('=') {
            Some((name, value)) => Term { at, name: name.into(), value: Some(value.into()) },
            None => Term { at, name: piece.into(), value: None },
        })
        .collect()
}
