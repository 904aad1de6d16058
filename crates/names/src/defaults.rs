//! What is counted when no list was typed: a set for each kind of device, or what its
//! environment variable says.
//!
//! ```text
//!  -e LIST                         beats everything (not handled here)
//!  COUNTERPOINT_CPU_METRICS=a;b    or TVM_PAPI_CPU_METRICS: as typed, or an error
//!  the device's default set        what of it works here; for a processor, none where hardware
//!                                  counters are missing or every reading is a system call
//! ```

use model::Counter;

use crate::devices::{CountedBy, DeviceKind, Devices, KINDS, Missing};
use crate::{NameError, Resolver};
use counters::plan::Plan;
use counters::thread::ThreadCounters;
use machine::Machine;
use machine::check::{Opens, Problem, all_at_once, check, opens, user_only};

/// What is counted when nobody asked for anything in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Empty if the machine lets us count nothing.
    pub counters: Vec<Counter>,
    /// A sentence for what is left out or narrowed.
    pub notes: Vec<String>,
    /// The devices that cannot be counted.
    pub skipped: Vec<Skipped>,
}

/// A device that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no counters of {device}: {}", missing.what)]
pub struct Skipped {
    /// [`DeviceKind::name`]
    pub device: &'static str,
    /// PAPI's name of the component that would count it.
    pub component: &'static str,
    /// Why it cannot.
    pub missing: Missing,
}

/// A variable whose list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={text}: {problem}")]
pub struct VariableError {
    /// Its name.
    pub variable: String,
    /// Its value.
    pub text: String,
    /// What is wrong with the value.
    #[source]
    pub problem: Box<VariableProblem>,
}

/// What is wrong with the value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableProblem {
    /// It is not a list of counters that this machine knows.
    #[error("{0}")]
    Name(NameError),
    /// The counters do not work here.
    #[error("{}", .0.message)]
    Counter(Problem),
}

/// What can be counted almost everywhere, for those who ask. Not counted by default: two system
/// calls for each call of a dispatch, and dearer context switches, made programs up to 1.9 times
/// as slow (measured: a small transformer on IREE's `local-task`).
pub const SOFTWARE_COUNTERS: &str = "page-faults,task-clock";

/// The kinds of devices of a run that names none: the processor, and those whose variable is set.
pub fn asked(variable: &dyn Fn(&str) -> Option<String>) -> Vec<&'static DeviceKind> {
    let set = |kind: &&DeviceKind| kind.variables().iter().any(|name| variable(name).is_some());
    KINDS.iter().filter(|kind| kind.name == "cpu" || set(kind)).collect()
}

/// What is counted for these kinds of devices. `variable` is the environment.
///
/// A device without a source is skipped with exactly one note. What is only a default is left out
/// or narrowed to user mode where it has to be, with a note; what a variable asks for is not.
///
/// # Errors
/// A variable whose list is wrong, or whose counters do not work here.
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
                // Several kinds run on the same processor.
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

/// Of the processor alone, as if no variable were set.
pub fn defaults(machine: &Machine) -> Defaults {
    processor(crate::devices::PROCESSOR_DEFAULTS, &Resolver::new(machine), machine)
}

/// Semicolons part the counters, as in TVM; each may also be a list of its own.
fn typed(text: &str, resolver: &Resolver) -> Result<Vec<Counter>, NameError> {
    // A semicolon at the end parts nothing. The others keep the places of errors.
    let text = text.trim_end().trim_end_matches(';').replace(';', ",");
    match text.trim() {
        "" => Ok(Vec::new()),
        _ => resolver.resolve(&text),
    }
}

/// Adds the counters that are not there yet, as groups of their own.
fn join(set: &mut Defaults, more: Defaults) {
    let first = set.counters.iter().map(|c| c.group + 1).max().unwrap_or(0);
    let mut number = None;
    for mut counter in more.counters {
        if set.counters.iter().any(|c| c.name == counter.name) {
            continue;
        }
        // Groups that lost all of their counters leave no gap.
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

/// What of the processor's set works here. None where that would be dear: without hardware
/// counters, and where they cannot be read without a system call.
fn processor(names: &[&str], resolver: &Resolver, machine: &Machine) -> Defaults {
    let (mut set, at_once) = alone(names, resolver, machine);
    if set.counters.is_empty() {
        // One reason instead of five.
        let first = names.first().and_then(|name| resolver.resolve(name).ok()?.pop());
        let why = match first.map(|counter| opens(&counter, machine)) {
            Some(Opens::No(problem)) => problem.message,
            _ => "none opens".to_owned(),
        };
        let notes =
            vec![format!("only times are recorded, because hardware counters are missing: {why}")];
        return Defaults { notes, ..Defaults::default() };
    }
    // Fewer, until they fit the machine at once.
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

/// Whether a thread can read these counters without the kernel.
fn is_read_in_user_mode(counters: &[Counter]) -> bool {
    let Ok(plan) = Plan::new(counters.to_vec()) else { return false };
    let mut open = ThreadCounters::closed();
    let groups = plan.groups().len();
    let in_user = open.open(&plan).is_ok() && open.user_reads().count_ones() as usize == groups;
    open.close();
    in_user
}

/// What of a set works here, each for itself, with notes; and whether all of it is known to work at
/// once.
fn alone(names: &[&str], resolver: &Resolver, machine: &Machine) -> (Defaults, bool) {
    let mut set = Defaults::default();
    let mut narrowed = Vec::new();
    // In one list, so that they share a group.
    let list = resolver.resolve(&names.join(",")).unwrap_or_default();
    // Mostly all of them work, and then they need not be tried one by one.
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
