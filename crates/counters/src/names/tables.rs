//! A vendor's names (`inst_retired.any`, `ls_dispatch.ld_dispatch`) from the JSON tables that the
//! user has. None are built in: the kernel's are under its licence.
//!
//! ```text
//!  DIR/mapfile.csv  ──► row of this processor ──► a folder (the kernel's layout) or files
//!  DIR/x86/…, DIR/arch/x86/…                      (Intel's perfmon)
//!  DIR/*.json       without a mapfile: all of them
//!      │ json
//!      ▼
//!  VendorEvent { pmu, terms "event=0xc0,umask=0x1" } ──► sysfs formats, or the manual's layout
//! ```
//!
//! Nothing is read before a name is asked for that is not perf's own. Sources: the kernel's
//! tools/perf/pmu-events/README and jevents.py (Linux 6.12), github.com/intel/perfmon.

mod json;
mod mapfile;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use model::{Scale, Unit};

use super::error::NameErrorKind;
use super::perf_list;
use super::resolve::{Entry, NameSource, Resolved, Trouble};
use super::syntax::Head;
use super::sysfs::{Pmus, split_terms};
use crate::machine::Machine;

pub(super) use json::unit_and_scale;

/// One name of a vendor's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VendorEvent {
    pub(super) name: String,
    /// The PMU as sysfs calls it, possibly without its number; `cpu` is that of the cores.
    pub(super) pmu: String,
    /// As in sysfs: `event=0xc0,umask=0x1`.
    pub(super) terms: String,
    pub(super) unit: Unit,
    pub(super) scale: Scale,
    pub(super) description: String,
    pub(super) deprecated: bool,
}

/// Names that were read, and how to find them.
#[derive(Default)]
struct Names {
    events: Vec<VendorEvent>,
    by_name: HashMap<String, Vec<usize>>,
    problem: Option<String>,
}

impl Names {
    fn new(events: Vec<VendorEvent>, problem: Option<String>) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, event) in events.iter().enumerate() {
            by_name.entry(event.name.to_ascii_lowercase()).or_default().push(i);
        }
        Self { events, by_name, problem }
    }
}

/// Where a machine's vendor names come from: a directory, or else an installed perf.
pub(super) struct Vendor {
    machine: Machine,
    directory: Option<PathBuf>,
    names: OnceCell<Names>,
}

impl Vendor {
    pub(super) fn new(machine: &Machine, directory: Option<&Path>) -> Self {
        let directory = directory.map(Path::to_owned);
        Self { machine: machine.clone(), directory, names: OnceCell::new() }
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| match &self.directory {
            Some(directory) => {
                let (events, problems) = read(directory, &self.machine);
                Names::new(events, first_of(problems))
            }
            None if self.machine.is_here() => match perf_list::read() {
                Ok(events) => Names::new(events, None),
                Err(trouble) => Names::new(Vec::new(), trouble),
            },
            None => Names::default(),
        })
    }

    /// Everything of that name, without regard to case: one for each kind of core or unit.
    pub(super) fn find(&self, name: &str) -> Vec<&VendorEvent> {
        let names = self.names();
        let found = names.by_name.get(&name.to_ascii_lowercase());
        found.into_iter().flatten().filter_map(|&i| names.events.get(i)).collect()
    }

    /// Why the directory, or a perf that hangs, gave no names or not all.
    pub(super) fn problem(&self) -> Option<&str> {
        self.names().problem.as_deref()
    }

    fn look_up(
        self: &Rc<Self>,
        machine: &Machine,
        word: &str,
    ) -> Option<Result<Vec<Resolved>, Trouble>> {
        let events = self.find(word);
        if events.is_empty() {
            return None;
        }
        let pmus = Pmus(machine.clone(), self.clone());
        let several = events.len() > 1;
        let each = events.into_iter().map(|event| of_event(&pmus, event, several));
        // Of several kinds of cores this machine may have one.
        let (good, bad): (Vec<_>, Vec<_>) = each.partition(Result::is_ok);
        let found: Vec<Resolved> = good.into_iter().flatten().flatten().collect();
        match bad.into_iter().next() {
            Some(trouble) if found.is_empty() => Some(trouble),
            _ => Some(Ok(found)),
        }
    }

    fn entries(&self, source: &str) -> Vec<Entry> {
        let mut seen = std::collections::BTreeSet::new();
        let events = self.names().events.iter().filter(|event| !event.deprecated);
        events
            .filter(|event| seen.insert(event.name.to_ascii_lowercase()))
            .map(|event| Entry {
                bulk: true,
                ..Entry::new(&*event.name, source, event.unit, &*event.description)
            })
            .collect()
    }
}

fn of_event(pmus: &Pmus, event: &VendorEvent, several: bool) -> Result<Vec<Resolved>, Trouble> {
    let terms = split_terms(&event.terms, 0);
    // A term that does not fit is the table's fault, not at a place that was typed.
    let anywhere =
        |trouble: Trouble| trouble.anywhere().hint(format!("{}/{}/", event.pmu, event.terms));
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

/// What the tables of this processor have, and what of them cannot be used.
fn read(directory: &Path, machine: &Machine) -> (Vec<VendorEvent>, Vec<String>) {
    let chosen = match mapfile::choose(directory, machine) {
        Ok(chosen) => chosen,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    let (mut events, mut problems) = (Vec::new(), Vec::new());
    let standard = json::Standard::read(&chosen.standard, &mut problems);
    for (file, pmu) in &chosen.files {
        json::read(file, pmu, &standard, &mut events, &mut problems);
    }
    (events, problems)
}

fn first_of(problems: Vec<String>) -> Option<String> {
    let more = problems.len().saturating_sub(1);
    let first = problems.into_iter().next()?;
    Some(if more == 0 { first } else { format!("{first}; and {more} more like it") })
}

/// [`NameSource`] of a directory of tables.
pub(super) struct Tables(pub Machine, pub Rc<Vendor>);

impl NameSource for Tables {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let (Head::Word(word), Some(_)) = (head, &self.1.directory) else { return None };
        self.1.look_up(&self.0, word)
    }

    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn bulk(&self) -> Vec<Entry> {
        match &self.1.directory {
            Some(_) => self.1.entries("table"),
            None => Vec::new(),
        }
    }
}

/// [`NameSource`] of what an installed perf lists; asked last.
pub(super) struct PerfList(pub Machine, pub Rc<Vendor>);

impl NameSource for PerfList {
    fn resolve(&self, head: &Head) -> Option<Result<Vec<Resolved>, Trouble>> {
        let (Head::Word(word), None) = (head, &self.1.directory) else { return None };
        self.1.look_up(&self.0, word)
    }

    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn bulk(&self) -> Vec<Entry> {
        match &self.1.directory {
            Some(_) => Vec::new(),
            None => self.1.entries("perf list"),
        }
    }
}
