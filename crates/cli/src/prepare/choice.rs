//! From what was asked to counters, each of which works here.

use counters::devices::Devices;
use counters::machine::Machine;
use counters::names::Resolver;
use counters::plan::by_scope;
use counters::{Plan, check, defaults, own};
use model::{Counter, Scope, Source};
use profile::manifest::{MetricInfo, Origin};

use super::options::Recording;
use crate::failure::Failure;
use crate::terminal::say;

/// What is counted, chosen and tried.
pub struct Choice {
    /// By the recorder.
    pub counters: Vec<Counter>,
    /// Beside the program.
    pub beside: Vec<Counter>,
    /// About defaults that do not work.
    pub notes: Vec<String>,
    /// What to compute of the counters.
    pub metrics: Vec<MetricInfo>,
}

/// Counters that work here.
pub struct Chosen {
    /// Of threads: for the recorder.
    pub threads: Vec<Counter>,
    /// Of whole packages.
    pub packages: Vec<Counter>,
    /// About defaults that do not work.
    pub notes: Vec<String>,
}

/// The counters asked for, each of which works here, or the default ones that do: those of threads,
/// those of whole packages, and notes about those that do not work.
pub fn counters_of(
    recording: &Recording,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Chosen, Failure> {
    if recording.events.is_empty() {
        return unasked(resolver, machine);
    }
    let typed = recording.events.join(",");
    let counters = resolve("-e", &typed, resolver)?;
    let (threads, packages) = by_scope(counters.clone());
    Plan::new(threads.clone()).map_err(|e| Failure::new(format!("-e {typed}: {e}")))?;
    if recording.multiplex {
        works(&packages, machine)?;
        let threads = check::split(&threads, machine).map_err(|problem| refused(&problem))?;
        let notes = turns(&threads).into_iter().chain(own_readings(&threads)).collect();
        return Ok(Chosen { threads, packages, notes });
    }
    works(&counters, machine)?;
    let notes = own_readings(&threads);
    Ok(Chosen { threads, packages, notes })
}

/// What of the counters counts the recorder itself: for the profile, and on stderr at once.
pub fn own_readings(threads: &[Counter]) -> Vec<String> {
    let notes = own::notes(threads);
    for note in &notes {
        say!("{note}");
    }
    notes
}

/// Counters for every CPU that is online, in groups from number `first` on. A simulated one
/// belongs to no CPU.
pub fn system_wide(
    lists: &[String],
    first: u16,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Vec<Counter>, Failure> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let mut counters = resolve("--system", &lists.join(","), resolver)?;
    for counter in &mut counters {
        if counter.scope.is_thread() && matches!(counter.source, Source::Perf(_)) {
            counter.scope = Scope::Cpus(machine.online_cpus());
        }
    }
    works(&counters, machine)?;
    counters.iter_mut().for_each(|counter| counter.group += first);
    Ok(counters)
}

/// The counters of a list. What of it is counted once only is said on stderr.
pub fn resolve(option: &str, typed: &str, resolver: &Resolver) -> Result<Vec<Counter>, Failure> {
    let (counters, notes) = resolver.resolve_once(typed).map_err(|e| {
        let failure = Failure::new(format!("{option} {typed}: {e}"));
        match e.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    for note in notes {
        say!("{option} {typed}: {note}");
    }
    Ok(counters)
}

/// Every counter that does not work is named at once, and every different way out.
fn works(counters: &[Counter], machine: &Machine) -> Result<(), Failure> {
    let report = check::check(counters, machine);
    let alone = report.counters.iter().filter_map(|counter| counter.as_ref().err());
    let problems: Vec<_> = alone.chain(report.together.as_ref().err()).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let mut remedies: Vec<&str> = Vec::new();
    for remedy in problems.iter().filter_map(|problem| problem.remedy.as_deref()) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let messages = problems.iter().map(|problem| &problem.message);
    Err(Failure::several(messages).hints(remedies))
}

fn refused(problem: &check::Problem) -> Failure {
    let failure = Failure::new(&problem.message);
    match &problem.remedy {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

/// Which counters are on the PMU together, if they take turns.
fn turns(counters: &[Counter]) -> Option<String> {
    let groups = counters.chunk_by(|a, b| a.group == b.group);
    let names = |group: &[Counter]| {
        format!("{{{}}}", group.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(","))
    };
    let groups: Vec<String> = groups.map(names).collect();
    (groups.len() > 1).then(|| format!("these groups may take turns: {}", groups.join(" ")))
}

/// What is counted without `-e`.
fn unasked(resolver: &Resolver, machine: &Machine) -> Result<Chosen, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let kinds = defaults::asked(&variable);
    let set = defaults::of_devices(&kinds, &variable, resolver, &Devices::known(), machine)
        .map_err(|error| {
            let failure = Failure::new(error.to_string());
            match error.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        })?;
    for skipped in &set.skipped {
        say!("{skipped}");
    }
    let (threads, packages) = by_scope(set.counters);
    let notes = set.notes.into_iter().chain(set.skipped).collect();
    Ok(Chosen { threads, packages, notes })
}

/// How to ask for what can be counted here all the same. `None` where nothing can, or where a
/// variable says that nothing shall be.
pub fn ask_for_counters(origin: Origin, resolver: &Resolver, machine: &Machine) -> Option<String> {
    let kinds = defaults::asked(&|_| None);
    let named =
        kinds.iter().flat_map(|kind| kind.variables()).any(|v| std::env::var_os(v).is_some());
    let list = defaults::SOFTWARE_COUNTERS;
    let works =
        || check::check(&resolver.resolve(list).ok()?, machine).problem().is_none().then_some(());
    (!named).then(works)??;
    Some(match origin {
        Origin::Session => format!(
            "to count in each call, at a price, name counters: counters={:?}",
            list.split(',').collect::<Vec<_>>()
        ),
        _ => format!("to count in each call, at a price, name counters: -e {list}"),
    })
}
