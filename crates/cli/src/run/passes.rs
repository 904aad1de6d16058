//! `run --passes`: runs the program several times, each time with different counters.
//!
//! ```text
//!  -e a,b,c,d,e   ──► {a,b,c,d} {e}        as many at once as work here, in the order typed
//!  --passes=N     ──► at most N sets of about the same size
//!  -e {a,b},{c}   ──► {a,b} {c}            one pass per group
//! ```
//!
//! Task-clock is added to each set that has room for one more counter, so that the passes have a
//! counter in common for comparisons. If the program does not end with status 0 in a pass, no
//! further pass is started. After a signal that ends a command (such as SIGINT), the current pass
//! is the last one. If the signal arrives between two passes, the next pass is the last one.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::Ordering;

use counters::plan::by_scope;
use machine::Machine;
use machine::check;
use model::{Counter, MAX_COUNTERS};
use names::Resolver;
use names::devices::{CountedBy, KINDS};
use profile::manifest::{CounterInfo, Manifest, MetricInfo, Origin};
use profile::passes::{PASSES_NAME, join_counters, pass_dir};
use record::Snapshot;

use super::{
    Args, SIGNALLED, Sampler, close, end_as, end_by, forward_signals, sampler, say, start,
};
use crate::failure::Failure;
use crate::inherited::Inherited;
use crate::metrics::before_run;
use crate::prepare::{
    Choice, DirectoryLock, Recording, make, make_directory, make_way, manifest, own_readings,
    place, refused, resolve, system_wide,
};

const ANCHOR: &str = "task-clock";

struct Work {
    sets: Vec<Vec<Counter>>,
    beside: Vec<Counter>,
    infos: Vec<CounterInfo>,
    metrics: Vec<MetricInfo>,
}

pub fn main(
    args: &Args,
    passes: u32,
    program: &Path,
    words: &[String],
    inherited: Inherited,
) -> Result<ExitCode, Failure> {
    let work = choose(args, passes)?;
    let directory = place(args.recording.output())?;
    let lock = DirectoryLock::wait(&directory);
    make_way(&directory, &lock)?;
    make_directory(&directory).map_err(|f| f.hint("choose another place with -o DIR"))?;
    let prepared = begin(&args.recording, &work, &directory, words);
    let undone = |failure| {
        let _ = fs::remove_dir_all(&directory);
        failure
    };
    let clock = prepared.map_err(undone)?;
    drop(lock);
    forward_signals();
    let wanted = (clock, work.beside.clone());
    let sampler =
        sampler::<true>(&directory, wanted, args.beside.sample_interval).map_err(undone)?;
    sampler.iter().for_each(Sampler::manifest_is_free);
    let mut last = None;
    for (number, counters) in (1u32..).zip(&work.sets) {
        let status =
            one(args, &directory, number, counters, program, &args.command, words, inherited);
        let status = match (status, last) {
            (Ok(status), _) => status,
            (Err(failure), None) => return Err(undone(failure)),
            // The earlier passes are kept.
            (Err(failure), Some(status)) => {
                say!("pass {number} of {}: could not be started", work.sets.len());
                finish(sampler, &directory, status, args);
                return Err(failure);
            }
        };
        last = Some(status);
        let names: Vec<&str> = counters.iter().map(|c| c.name.as_str()).collect();
        let of = work.sets.len();
        let here = format!("pass {number} of {of} ({})", names.join(","));
        let not_run = || {
            if number < of as u32 {
                say!("the remaining passes were not run");
            }
        };
        if !status.success() {
            say!("{here}: {status}");
            not_run();
            break;
        }
        // A signal is meant for the whole series, also if the program handled it and ended with
        // status 0.
        let told = SIGNALLED.load(Ordering::SeqCst);
        if told != 0 && number < of as u32 {
            say!("{here}: was the last one, because of signal {told}");
            not_run();
            finish(sampler, &directory, status, args);
            return Ok(end_by(told));
        }
    }
    let Some(status) = last else { return Err(undone(Failure::new("no counters, no passes"))) };
    finish(sampler, &directory, status, args);
    Ok(end_as(status))
}

fn finish(sampler: Option<Sampler>, directory: &Path, status: ExitStatus, args: &Args) {
    let trouble = sampler.and_then(Sampler::finish);
    let closed =
        Manifest::read(directory).and_then(|manifest| close(directory, manifest, status, trouble));
    say::<true>(closed, directory, args);
}

/// Divides the counters among the passes. This is done before anything is created, because it can
/// fail.
fn choose(args: &Args, passes: u32) -> Result<Work, Failure> {
    let machine = Machine::here();
    let (option, typed) = match args.recording.events.is_empty() {
        false => ("-e".to_owned(), args.recording.events.join(",")),
        true => of_variable().unwrap_or_default(),
    };
    if typed.is_empty() || typed.trim() == "none" {
        return Err(Failure::new("--passes: no counters to divide").hint("name some with -e"));
    }
    let resolver = args.recording.naming.resolver(&machine);
    let (counters, mut beside) = by_scope(resolve(&option, &typed, &resolver, &machine)?);
    beside.extend(system_wide(&args.beside.system, beside.len() as u16, &resolver, &machine)?);
    let mut sets = divide(&counters, passes, &machine)?;
    anchor(&mut sets, &resolver, &machine);
    let lists: Vec<Vec<CounterInfo>> =
        sets.iter().map(|set| set.iter().map(CounterInfo::from).collect()).collect();
    let infos = join_counters(&lists).ok_or_else(|| {
        Failure::new(format!("more than {MAX_COUNTERS} counters in all passes together"))
    })?;
    let metrics = before_run(&args.recording.metrics, &infos)?;
    Ok(Work { sets, beside, infos, metrics })
}

/// Returns the name and the value of the environment variable that lists the processor's counters.
/// The environment variables for other devices are not used: all counters of such a device are read
/// at once, so no passes are needed for them.
fn of_variable() -> Option<(String, String)> {
    let processor = KINDS.iter().find(|kind| kind.counted_by == CountedBy::Processor)?;
    let set = |name: String| Some((std::env::var(&name).ok()?, name));
    let (text, name) = processor.variables().into_iter().find_map(set)?;
    Some((name, text.trim_end().trim_end_matches(';').replace(';', ",")))
}

fn divide(
    counters: &[Counter],
    passes: u32,
    machine: &Machine,
) -> Result<Vec<Vec<Counter>>, Failure> {
    let groups: Vec<&[Counter]> = counters.chunk_by(|a, b| a.group == b.group).collect();
    if groups.len() > 1 && passes == 0 {
        let alone = |group: &[Counter]| {
            let set: Vec<Counter> =
                group.iter().map(|c| Counter { group: 0, ..c.clone() }).collect();
            check::check(&set, machine)
                .problem()
                .map_or(Ok(set), |problem| Err(refused(problem, machine)))
        };
        return groups.into_iter().map(alone).collect();
    }
    let most = match passes {
        0 => MAX_COUNTERS,
        n => counters.len().div_ceil(n as usize).max(1),
    };
    let sets =
        check::sets(counters, most, machine).map_err(|problem| refused(&problem, machine))?;
    if passes > 0 && sets.len() > passes as usize {
        let failure = format!("--passes={passes}: {} passes are needed here", sets.len());
        return Err(Failure::new(failure)
            .hint("use --passes without a number to run as many as are needed"));
    }
    Ok(sets)
}

/// Adds task-clock to each set that has room, within the limits on the number of counters.
fn anchor(sets: &mut [Vec<Counter>], resolver: &Resolver, machine: &Machine) {
    let Ok(anchor) = resolve("-e", ANCHOR, resolver, machine) else { return };
    let [anchor] = anchor.as_slice() else { return };
    let mut room = MAX_COUNTERS.saturating_sub(sets.iter().map(Vec::len).sum());
    for set in sets {
        let there = set.iter().any(|c| c.source == anchor.source);
        if !there
            && room > 0
            && let Some(grown) = check::with(set, anchor, machine)
        {
            *set = grown;
            room -= 1;
        }
    }
}

fn begin(
    recording: &Recording,
    work: &Work,
    directory: &Path,
    words: &[String],
) -> Result<record::ClockKind, Failure> {
    make_directory(&directory.join(PASSES_NAME))?;
    let about = manifest(recording, &Machine::here(), Origin::Run, words, &[]);
    let clock = about.clock.into();
    let snapshot = Snapshot::take(clock);
    let about = Manifest {
        created_unix_ns: snapshot.realtime_ns,
        snapshots: vec![snapshot.into()],
        counters: work.infos.clone(),
        metrics: work.metrics.clone(),
        passes: work.sets.len() as u32,
        ..about
    };
    about.write(directory).map_err(Failure::new)?;
    Ok(clock)
}

#[expect(clippy::too_many_arguments, reason = "all of them differ between passes")]
fn one(
    args: &Args,
    directory: &Path,
    number: u32,
    counters: &[Counter],
    program: &Path,
    command: &[OsString],
    words: &[String],
    inherited: Inherited,
) -> Result<ExitStatus, Failure> {
    let choice = Choice {
        counters: counters.to_vec(),
        beside: vec![],
        notes: own_readings(counters),
        metrics: vec![],
        plugins: None,
    };
    let place = pass_dir(directory, number);
    let machine = Machine::here();
    let prepared = make(&args.recording, choice, &machine, &place, Origin::Run, words)?;
    let running = start(program, command, prepared, inherited)?;
    let status = running.wait(program)?;
    let closed = close(&place, running.manifest, status, None);
    running.prepared.tidy();
    closed.map_err(Failure::new)?;
    Ok(status)
}
