//! Reads a vendor's names of counters from JSON tables of the user, or from an installed perf. No
//! tables are built in, because those in the kernel's sources have the kernel's licence.
//!
//! ```text
//!  DIR/mapfile.csv  ──► row of this processor ──► a folder (as in the kernel) or files
//!  DIR/x86/…, DIR/arch/x86/…                      (Intel's perfmon)
//!  DIR/*.json       all of them, if there is no mapfile
//!      │ json
//!      ▼
//!  VendorEvent { pmu, terms "event=0xc0,umask=0x1" }
//! ```
//!
//! Nothing is read until it is needed. Sources: the kernel's tools/perf/pmu-events/README and
//! jevents.py (Linux 6.12), github.com/intel/perfmon.

mod json;
mod mapfile;
mod perf_list;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use model::{Scale, Unit};

use machine::Machine;

/// One event of a vendor's tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VendorEvent {
    pub(crate) name: String,
    /// The PMU's name in sysfs, possibly without the number at its end. `cpu` is the PMU of the
    /// cores.
    pub(crate) pmu: String,
    /// As in sysfs: `event=0xc0,umask=0x1`.
    pub(crate) terms: String,
    pub(crate) unit: Unit,
    pub(crate) scale: Scale,
    pub(crate) description: String,
    pub(crate) deprecated: bool,
}

/// The events, with an index by name.
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

/// The vendor's names, from a directory or else from an installed perf.
pub(crate) struct Vendor {
    machine: Machine,
    directory: Option<PathBuf>,
    names: OnceCell<Names>,
}

impl Vendor {
    pub(crate) fn new(machine: &Machine, directory: Option<&Path>) -> Self {
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

    /// Returns the events with this name, one for each kind of core or unit. Upper and lower case
    /// are the same.
    pub(crate) fn find(&self, name: &str) -> Vec<&VendorEvent> {
        let names = self.names();
        let found = names.by_name.get(&name.to_ascii_lowercase());
        found.into_iter().flatten().filter_map(|&i| names.events.get(i)).collect()
    }

    /// Returns why names are missing: a problem with the directory, or a perf that hangs.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.names().problem.as_deref()
    }

    pub(crate) fn has_directory(&self) -> bool {
        self.directory.is_some()
    }

    pub(crate) fn events(&self) -> &[VendorEvent] {
        &self.names().events
    }
}

/// Reads this processor's tables. Returns their events, and the reasons why parts of the tables
/// cannot be used.
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
