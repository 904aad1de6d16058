//! Resolves the names of counters, and checks that the counters work on this machine.

use counters::Plan;
use counters::plan::by_scope;
use machine::Machine;
use machine::check;
use model::{Counter, Scope, Source};
use names::Resolver;
use names::defaults;
use names::devices::Devices;
use profile::manifest::{MetricInfo, Origin};
use record::run_file::PluginOptions;

use super::options::Recording;
use crate::advice;
use crate::failure::Failure;
use crate::terminal::say;

pub struct Choice {
    /// The recorder reads these counters in each call.
    pub counters: Vec<Counter>,
    /// These counters are sampled at regular times while the program runs.
    pub beside: Vec<Counter>,
    /// Notes for the profile, such as those about default counters that do not work.
    pub notes: Vec<String>,
    pub metrics: Vec<MetricInfo>,
    pub plugins: Option<PluginOptions>,
}

pub struct Chosen {
    /// Counters of threads, which the recorder reads in each call.
    pub threads: Vec<Counter>,
    /// Counters of whole processor packages, which are sampled while the program runs.
    pub packages: Vec<Counter>,
    pub notes: Vec<String>,
}

/// Returns the counters of `-e`. It is an error if one of them does not work on this machine.
/// Without `-e`, returns the counters that environment variables name, or the default counters that
/// work.
pub fn counters_of(
    recording: &Recording,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Chosen, Failure> {
    if recording.events.is_empty() {
        return unasked(resolver, machine);
    }
    let typed = recording.events.join(",");
    let counters = resolve("-e", &typed, resolver, machine)?;
    let (threads, packages) = by_scope(counters.clone());
    Plan::new(threads.clone()).map_err(|e| Failure::new(format!("-e {typed}: {e}")))?;
    if recording.multiplex {
        works(&packages, machine)?;
        let threads =
            check::split(&threads, machine).map_err(|problem| refused(&problem, machine))?;
        let notes = multiplexing_note(&threads).into_iter().chain(own_readings(&threads)).collect();
        return Ok(Chosen { threads, packages, notes });
    }
    works(&counters, machine)?;
    let notes = own_readings(&threads);
    Ok(Chosen { threads, packages, notes })
}

/// Prints and returns notes about counters that also count the recorder's own work.
pub fn own_readings(threads: &[Counter]) -> Vec<String> {
    let notes = crate::own::notes(threads);
    for note in &notes {
        say!("{note}");
    }
    notes
}

/// Resolves counters to sample on every CPU. The numbers of their groups begin with `first`, so
/// that they differ from those of other counters. Counters of packages keep their scope; so do
/// simulated counters, because they do not count on CPUs.
pub fn system_wide(
    lists: &[String],
    first: u16,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Vec<Counter>, Failure> {
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let mut counters = resolve("--system", &lists.join(","), resolver, machine)?;
    for counter in &mut counters {
        if counter.scope.is_thread() && matches!(counter.source, Source::Perf(_)) {
            counter.scope = Scope::Cpus(machine.online_cpus());
        }
    }
    works(&counters, machine)?;
    counters.iter_mut().for_each(|counter| counter.group += first);
    Ok(counters)
}

/// Resolves a list of counters. A name that appears twice is counted once, with a note on stderr.
pub fn resolve(
    option: &str,
    typed: &str,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Vec<Counter>, Failure> {
    let (counters, notes) = resolver.resolve_once(typed).map_err(|e| {
        Failure::new(format!("{option} {typed}: {e}")).advise(advice::for_name(&e, machine))
    })?;
    for note in notes {
        say!("{option} {typed}: {note}");
    }
    Ok(counters)
}

/// Checks that the counters work. The error has a message for each counter that does not work, or
/// says that they do not work together, and has the remedies.
fn works(counters: &[Counter], machine: &Machine) -> Result<(), Failure> {
    let report = check::check(counters, machine);
    let alone = report.counters.iter().filter_map(|counter| counter.as_ref().err());
    let problems: Vec<_> = alone.chain(report.together.as_ref().err()).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let mut remedies: Vec<String> = Vec::new();
    for remedy in problems.iter().filter_map(|problem| advice::for_problem(problem, machine)) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let messages = problems.iter().map(|problem| &problem.message);
    Err(Failure::several(messages).hints(remedies))
}

pub fn refused(problem: &check::Problem, machine: &Machine) -> Failure {
    Failure::new(&problem.message).advise(advice::for_problem(problem, machine))
}

/// With `--multiplex`, returns a note that names the groups, because they may take turns on the
/// PMU. Returns `None` if there is only one group.
fn multiplexing_note(counters: &[Counter]) -> Option<String> {
    let groups = counters.chunk_by(|a, b| a.group == b.group);
    let names = |group: &[Counter]| {
        format!("{{{}}}", group.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(","))
    };
    let groups: Vec<String> = groups.map(names).collect();
    (groups.len() > 1).then(|| format!("these groups may take turns: {}", groups.join(" ")))
}

/// Returns the counters of a recording without `-e`.
fn unasked(resolver: &Resolver, machine: &Machine) -> Result<Chosen, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let kinds = defaults::asked(&variable);
    let set = defaults::of_devices(&kinds, &variable, resolver, &Devices::known(), machine)
        .map_err(|error| Failure::new(&error).advise(advice::for_variable(&error, machine)))?;
    let skipped: Vec<String> = set.skipped.iter().map(advice::skipped).collect();
    for skipped in &skipped {
        say!("{skipped}");
    }
    let (threads, packages) = by_scope(set.counters);
    let notes = set.notes.into_iter().chain(skipped).collect();
    Ok(Chosen { threads, packages, notes })
}

/// Returns a hint that says how to name counters. Returns `None` if this user has no right to use
/// software counters, or if an environment variable already names counters. No counter is opened
/// for this check: when the first software counter is opened, the kernel changes its own code and
/// stops every processor meanwhile.
pub fn ask_for_counters(origin: Origin, resolver: &Resolver) -> Option<String> {
    let kinds = defaults::asked(&|_| None);
    let named =
        kinds.iter().flat_map(|kind| kind.variables()).any(|v| std::env::var_os(v).is_some());
    let list = defaults::SOFTWARE_COUNTERS;
    let allowed = || resolver.resolve(list).is_ok_and(|all| all.iter().all(check::is_allowed));
    if named || !allowed() {
        return None;
    }
    Some(match origin {
        Origin::Session => format!(
            "to count in each call, which makes calls slower, name counters: counters={:?}",
            list.split(',').collect::<Vec<_>>()
        ),
        _ => format!("to count in each call, which makes calls slower, name counters: -e {list}"),
    })
}
