//! Resolves the names that a processor's vendor gives to events (`inst_retired.any`,
//! `ls_dispatch.ld_dispatch`). [`Vendor`] reads the tables. Sysfs or the processor's manual says
//! which bits of the counter's configuration a term such as `event=0xc0` sets.

use std::rc::Rc;

use crate::cause::NameCause;
use crate::error::NameErrorKind;
use crate::source::{Entry, NameSource, Resolved, Trouble};
use crate::syntax::Head;
use crate::sysfs::{Pmus, split_terms};
use crate::vendor::{Vendor, VendorEvent};
use machine::Machine;

/// A directory of tables.
pub(crate) struct Tables(pub Machine, pub Rc<Vendor>);

impl NameSource for Tables {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let (Head::Word(word), true) = (head, self.1.has_directory()) else { return None };
        look_up(&self.1, &self.0, word)
    }

    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn bulk(&self) -> Vec<Entry> {
        match self.1.has_directory() {
            true => entries(&self.1, "table"),
            false => Vec::new(),
        }
    }
}

/// The events that an installed perf lists.
pub(crate) struct PerfList(pub Machine, pub Rc<Vendor>);

impl NameSource for PerfList {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let (Head::Word(word), false) = (head, self.1.has_directory()) else { return None };
        look_up(&self.1, &self.0, word)
    }

    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn bulk(&self) -> Vec<Entry> {
        match self.1.has_directory() {
            true => Vec::new(),
            false => entries(&self.1, "perf list"),
        }
    }
}

fn look_up(
    vendor: &Rc<Vendor>,
    machine: &Machine,
    word: &str,
) -> Option<Result<Vec<Resolved>, Trouble>> {
    let events = vendor.find(word);
    if events.is_empty() {
        return None;
    }
    let pmus = Pmus(machine.clone(), vendor.clone());
    let several = events.len() > 1;
    let each = events.into_iter().map(|event| of_event(&pmus, event, several));
    // A table can have rows with this name for kinds of cores that this machine lacks, so an error
    // is returned only if no row can be used.
    let (good, bad): (Vec<_>, Vec<_>) = each.partition(Result::is_ok);
    let found: Vec<Resolved> = good.into_iter().flatten().flatten().collect();
    match bad.into_iter().next() {
        Some(trouble) if found.is_empty() => Some(trouble),
        _ => Some(Ok(found)),
    }
}

fn of_event(pmus: &Pmus, event: &VendorEvent, several: bool) -> Result<Vec<Resolved>, Trouble> {
    let terms = split_terms(&event.terms, 0);
    // A wrong term is an error in the table, so the error has no place in the typed text.
    let row = || NameCause::TableRow(format!("{}/{}/", event.pmu, event.terms));
    let anywhere = |trouble: Trouble| trouble.anywhere().because(row());
    let called = pmus.called(&event.pmu);
    let mut found = Vec::new();
    if called.is_empty() && event.pmu == "cpu" {
        found.push(pmus.documented(&terms).map_err(anywhere)?);
    } else if called.is_empty() {
        let problem =
            format!("this machine has no PMU {:?}, which counts {}", event.pmu, event.name);
        return Err(Trouble::new(NameErrorKind::Machine { problem }));
    }
    for pmu in &called {
        let mut resolved = pmus.one(pmu, &terms).map_err(anywhere)?;
        if !resolved.scope.is_thread() {
            (resolved.unit, resolved.scale) = (event.unit, event.scale);
        }
        let several = if several { 2 } else { called.len() };
        found.push(pmus.told_apart(pmu, &terms, several, resolved));
    }
    Ok(found)
}

fn entries(vendor: &Vendor, source: &str) -> Vec<Entry> {
    let mut seen = std::collections::BTreeSet::new();
    let events = vendor.events().iter().filter(|event| !event.deprecated);
    events
        .filter(|event| seen.insert(event.name.to_ascii_lowercase()))
        .map(|event| Entry {
            bulk: true,
            ..Entry::new(&*event.name, source, event.unit, &*event.description)
        })
        .collect()
}
