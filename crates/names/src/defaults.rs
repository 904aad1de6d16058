//! Chooses the counters of a recording without `-e`. For each kind of device, these are the
//! counters that its environment variable names, or else its default set.
//!
//! ```text
//!  -e LIST                         comes first (not handled here)
//!  COUNTERPOINT_CPU_METRICS=a;b    or TVM_PAPI_CPU_METRICS: as typed, or an error
//!  the device's default set        those that work here. For a processor: none, if there are no
//!                                  hardware counters or if every reading is a system call
//! ```

use model::Counter;

use crate::devices::{CountedBy, DeviceKind, Devices, KINDS, Missing};
use crate::{NameError, Resolver};
use counters::plan::Plan;
use counters::thread::ThreadCounters;
use machine::Machine;
use machine::check::{Opens, Problem, all_at_once, check, opens, user_only};

/// The chosen counters, with notes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Empty if nothing can be counted here, or if every reading would be a system call.
    pub counters: Vec<Counter>,
    /// Sentences about counters that are left out, or that count only user mode.
    pub notes: Vec<String>,
    /// The devices whose counters cannot be counted.
    pub skipped: Vec<Skipped>,
}

/// A kind of device whose counters cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no counters of {device}: {}", missing.what)]
pub struct Skipped {
    /// As in [`DeviceKind::name`].
    pub device: &'static str,
    /// PAPI's name of the component.
    pub component: &'static str,
    /// The reason.
    pub missing: Missing,
}

/// An error in the value of an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: {problem}")]
pub struct VariableError {
    /// The name.
    pub variable: String,
    /// The value.
    pub text: String,
    #[source]
    pub problem: Box<VariableProblem>,
}

/// The problem with the value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableProblem {
    /// The value is not a list of counters that this machine knows.
    #[error("{0}")]
    Name(NameError),
    /// The counters do not work on this machine.
    #[error("{}", .0.message)]
    Counter(Problem),
}

/// Software counters, which the operating system's kernel counts, and which work almost everywhere.
/// They are not counted by default, because they take two system calls for each recorded call and
/// make context switches slower. A small transformer on IREE's `local-task` took up to 1.9 times as
/// long with them.
pub const SOFTWARE_COUNTERS: &str = "page-faults,task-clock";

/// Returns the kinds of devices to count if none was named: the processor, and the kinds whose
/// variable is set.
pub fn asked(variable: &dyn Fn(&str) -> Option<String>) -> Vec<&'static DeviceKind> {
    let set = |kind: &&DeviceKind| kind.variables().iter().any(|name| variable(name).is_some());
    KINDS.iter().filter(|kind| kind.name == "cpu" || set(kind)).collect()
}

/// Returns the counters for these kinds of devices. `variable` reads the environment.
///
/// A default counter that does not work unchanged is left out, or counts only user mode, and a note
/// says so. A counter that a variable names must work unchanged, unless the kind of device is in
/// [`Defaults::skipped`].
///
/// # Errors
/// Fails if the list in a variable is wrong, or if its counters do not work here.
pub fn of_devices(
    kinds: &[&DeviceKind],
    variable: &dyn Fn(&str) -> Option<String>,
    resolver: &Resolver,
    devices: &Devices,
    machine: &Machine,
) -> Result<Defaults, VariableError> {
    let mut set = Defaults::default();
    let mut processor_is_done = false;
    for kind in kinds {
        if let CountedBy::Component(component) = kind.counted_by
            && let Some(Err(missing)) = devices.source(component).map(|source| source.available())
        {
            set.skipped.push(Skipped { device: kind.name, component, missing });
            continue;
        }
        let named = kind.variables().into_iter().find_map(|name| Some((variable(&name)?, name)));
        let more = match named {
            Some((text, variable)) => {
                let error = |problem: VariableProblem| VariableError {
                    variable: variable.clone(),
                    text: text.clone(),
                    problem: Box::new(problem),
                };
                let counters =
                    typed(&text, resolver).map_err(|e| error(VariableProblem::Name(e)))?;
                if let Some(problem) = check(&counters, machine).problem() {
                    return Err(error(VariableProblem::Counter(problem.clone())));
                }
                Defaults { counters, ..Defaults::default() }
            }
            None if kind.counted_by == CountedBy::Processor => {
                // Several kinds of devices have the processor's default counters, which are added
                // only once.
                if std::mem::replace(&mut processor_is_done, true) {
                    continue;
                }
                processor(kind.defaults, resolver, machine)
            }
            None => alone(kind.defaults, resolver, machine).0,
        };
        join(&mut set, more);
    }
    Ok(set)
}

/// Returns the default counters of the processor, regardless of environment variables.
pub fn defaults(machine: &Machine) -> Defaults {
    processor(crate::devices::PROCESSOR_DEFAULTS, &Resolver::new(machine), machine)
}

/// Resolves the value of a variable. Semicolons separate counters, as in TVM; between them there
/// may be lists with commas.
fn typed(text: &str, resolver: &Resolver) -> Result<Vec<Counter>, NameError> {
    // A comma is as long as a semicolon, so the places of errors do not change.
    let text = text.trim_end().trim_end_matches(';').replace(';', ",");
    match text.trim() {
        "" => Ok(Vec::new()),
        _ => resolver.resolve(&text),
    }
}

/// Adds the counters that `set` does not have yet, in groups of their own.
fn join(set: &mut Defaults, more: Defaults) {
    let first = set.counters.iter().map(|c| c.group + 1).max().unwrap_or(0);
    let mut number = None;
    for mut counter in more.counters {
        if set.counters.iter().any(|c| c.name == counter.name) {
            continue;
        }
        // A group gets a number only if at least one of its counters is added.
        let (from, to) = match number {
            None => (counter.group, first),
            Some((from, to)) if from == counter.group => (from, to),
            Some((_, to)) => (counter.group, to + 1),
        };
        number = Some((from, to));
        counter.group = to;
        set.counters.push(counter);
    }
    set.notes.extend(more.notes);
}

/// Returns the counters of the processor's set that work here. There are none if reading them takes
/// a system call, because counting would then be slow.
fn processor(names: &[&str], resolver: &Resolver, machine: &Machine) -> Defaults {
    let (mut set, at_once) = alone(names, resolver, machine);
    if set.counters.is_empty() {
        // The reason why the first default counter does not open is assumed to hold for all of
        // them.
        let first = names.first().and_then(|name| resolver.resolve(name).ok()?.pop());
        let why = match first.map(|counter| opens(&counter, machine)) {
            Some(Opens::No(problem)) => problem.message,
            _ => "none opens".to_owned(),
        };
        let notes =
            vec![format!("only times are recorded, because hardware counters are missing: {why}")];
        return Defaults { notes, ..Defaults::default() };
    }
    while !at_once && let Some(problem) = check(&set.counters, machine).problem().cloned() {
        let Some(last) = set.counters.pop() else { break };
        set.notes.push(format!("without {}: {}", last.name, problem.message));
    }
    if !set.counters.is_empty() && !is_read_in_user_mode(&set.counters) {
        let names: Vec<&str> = set.counters.iter().map(|c| c.name.as_str()).collect();
        let note = format!(
            "only times are recorded, because each reading of {} would be a system call",
            names.join(", ")
        );
        return Defaults { notes: vec![note], ..Defaults::default() };
    }
    set
}

fn is_read_in_user_mode(counters: &[Counter]) -> bool {
    let Ok(plan) = Plan::new(counters.to_vec()) else { return false };
    let mut open = ThreadCounters::closed();
    let groups = plan.groups().len();
    let in_user = open.open(&plan).is_ok() && open.user_reads().count_ones() as usize == groups;
    open.close();
    in_user
}

/// Returns those counters of a set that work if no other one is open, and whether they are known to
/// work at the same time.
fn alone(names: &[&str], resolver: &Resolver, machine: &Machine) -> (Defaults, bool) {
    let mut set = Defaults::default();
    let mut narrowed = Vec::new();
    // The names are resolved as one list, so that the counters share a group.
    let list = resolver.resolve(&names.join(",")).unwrap_or_default();
    // Usually all counters of the list can be open at the same time, and then none is tried alone.
    if !list.is_empty() && all_at_once(&list) {
        let (threads, packages) = counters::plan::by_scope(list);
        set.counters = threads.into_iter().chain(packages).collect();
        return (set, true);
    }
    for counter in list {
        match opens(&counter, machine) {
            Opens::Yes => set.counters.push(counter),
            Opens::OnlyUser => match user_only(&counter) {
                Some(narrow) => {
                    narrowed.push(narrow.name.clone());
                    set.counters.push(narrow);
                }
                None => set.notes.push(format!("without {}: it counts the kernel", counter.name)),
            },
            Opens::No(problem) => {
                set.notes.push(format!("without {}: {}", counter.name, problem.message));
            }
        }
    }
    if !narrowed.is_empty() {
        let level = machine.paranoid().map_or("?".into(), |level| level.to_string());
        set.notes.push(format!(
            "{} only: perf_event_paranoid={level} forbids the kernel's part",
            narrowed.join(" and ")
        ));
    }
    let (threads, packages) = counters::plan::by_scope(set.counters);
    set.counters = threads.into_iter().chain(packages).collect();
    (set, false)
}
