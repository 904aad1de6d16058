//! While the program runs, samples counters that belong to no thread of the program, such as those
//! of a whole CPU. The samples are written to `tracks/run`.
//!
//! A thread of `run` reads the counters before the program starts, then at fixed intervals, and
//! once more after the program has ended. The time of each reading is computed from the start of
//! the sampling, not from the previous reading, so delays do not add up. A missed sample is not
//! taken later. The difference between the first and the last sample is the count of the whole run.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use counters::{Plan, Readings, Target, ThreadCounters};
use model::{Counter, Scope as CounterScope, Source};
use profile::tracks::{Reading, Scope, Series, Times};
use profile::{Manifest, Sample, TracksWriter};
use record::{ClockKind, Snapshot};

use crate::failure::Failure;

/// Samples are written to the profile if the previous write was at least this long ago. If `run` is
/// killed, the samples since the last write are lost.
const FLUSH: Duration = Duration::from_secs(1);

pub struct Sampler {
    tell: Sender<Told>,
    thread: JoinHandle<Option<String>>,
}

enum Told {
    /// The manifest is complete, so the sampling thread may write it from now on.
    ManifestIsFree,
    Stop,
}

pub struct Wanted {
    /// The counters, sorted by group. A counter with the scope of a thread is a simulated one.
    pub counters: Vec<Counter>,
    pub interval: Duration,
    pub clock: ClockKind,
    pub directory: PathBuf,
}

impl Sampler {
    /// Opens the counters and takes the first samples before it returns.
    ///
    /// # Errors
    /// Returns an error if a counter cannot be opened, or if the thread cannot be started.
    pub fn start(wanted: Wanted, writer: TracksWriter) -> Result<Self, Failure> {
        let (tell, told) = channel();
        let (ready, is_ready) = channel();
        let builder = std::thread::Builder::new().name("cpt-sampler".to_owned());
        let thread = builder
            .spawn(move || {
                block_signals();
                let units = units(&wanted.counters);
                let mut open = match open(&units) {
                    Ok(open) => open,
                    Err(message) => {
                        let _ = ready.send(Err(message));
                        return None;
                    }
                };
                let mut writer = writer;
                describe(&mut writer, &mut open, &wanted);
                let result = sample(&mut writer, &mut open, &wanted, &ready, &told);
                open.iter_mut().for_each(|unit| unit.counters.close());
                result.and(writer.finish()).err().map(|e| e.to_string())
            })
            .map_err(|e| Failure::new(format!("start the sampler: {e}")))?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Self { tell, thread }),
            Ok(Err(message)) => Err(Failure::new(message)),
            Err(_) => Err(Failure::new("start the sampler: its thread has ended")),
        }
    }

    /// Allows the sampling thread to write the manifest until `finish` is called; no other thread
    /// may do so meanwhile. The thread adds a snapshot of the clocks, with which ticks can be
    /// converted to ns even if `run` is killed.
    pub fn manifest_is_free(&self) {
        let _ = self.tell.send(Told::ManifestIsFree);
    }

    /// Ends the sampling. Stops the sampling, and returns its first error, if any.
    pub fn finish(self) -> Option<String> {
        let _ = self.tell.send(Told::Stop);
        self.thread.join().unwrap_or_else(|_| Some("the sampler's thread has ended".to_owned()))
    }
}

/// Blocks all signals in this thread, because the main thread handles them. Returns the signals
/// that were blocked before.
pub(super) fn block_signals() -> libc::sigset_t {
    // SAFETY: zeros are valid sets of signals, and both sets outlive the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        before
    }
}

struct Unit {
    plan: Plan,
    /// The CPUs whose counters are read. `None` for simulated counters, which belong to the whole
    /// machine.
    cpus: Option<Vec<u32>>,
}

fn units(counters: &[Counter]) -> Vec<Unit> {
    let groups = counters.chunk_by(|a, b| a.group == b.group);
    let unit = |group: &[Counter]| {
        let cpus = match &group[0].scope {
            CounterScope::Cpus(cpus) => Some(cpus.clone()),
            CounterScope::Thread => None,
        };
        let alone = |c: &Counter| Counter { group: 0, scope: CounterScope::Thread, ..c.clone() };
        let plan = Plan::new(group.iter().map(alone).collect()).ok()?;
        Some(Unit { plan, cpus })
    };
    groups.filter_map(unit).collect()
}

struct Open<'a> {
    plan: &'a Plan,
    scope: Scope,
    counters: ThreadCounters<'a>,
    /// For each counter, the number that identifies the series of its samples in `tracks/run`.
    series: Vec<u32>,
}

fn open(units: &[Unit]) -> Result<Vec<Open<'_>>, String> {
    let mut all: Vec<Open<'_>> = Vec::new();
    for unit in units {
        let places = match &unit.cpus {
            Some(cpus) => cpus.iter().map(|cpu| Scope::Cpu(*cpu)).collect(),
            None => vec![Scope::Machine],
        };
        for scope in places {
            let cpu = scope.number().map_or(-1, u32::cast_signed);
            let mut counters = ThreadCounters::closed();
            if let Err(failure) = counters.open_for(&unit.plan, Target { pid: -1, cpu }) {
                all.iter_mut().for_each(|open| open.counters.close());
                let name = &unit.plan.counters()[failure.counter].name;
                return Err(format!("open {name} on {scope}: {}", failure.error));
            }
            all.push(Open { plan: &unit.plan, scope, counters, series: Vec::new() });
        }
    }
    Ok(all)
}

fn describe(writer: &mut TracksWriter, open: &mut [Open<'_>], wanted: &Wanted) {
    for unit in open {
        let series = unit.plan.counters().iter().map(|counter| {
            writer.describe(Series {
                track: counter.name.clone(),
                name: String::new(),
                unit: counter.unit.name().to_owned(),
                scale: counter.scale.get(),
                scope: unit.scope,
                times: Times::Ticks,
                cumulative: true,
                interval_ns: wanted.interval.as_nanos() as u64,
                source: match counter.source {
                    Source::Perf(_) => "perf",
                    Source::Sim(_) => "sim",
                }
                .to_owned(),
            })
        });
        unit.series = series.collect();
    }
}

/// Samples the counters until [`Sampler::finish`] is called. Returns the first error of writing;
/// sampling continues after such an error.
fn sample(
    writer: &mut TracksWriter,
    open: &mut [Open<'_>],
    wanted: &Wanted,
    ready: &Sender<Result<(), String>>,
    told: &Receiver<Told>,
) -> profile::Result<()> {
    let mut trouble = Ok(());
    let mut readings = Readings::new();
    let mut read = |writer: &mut TracksWriter, flush: bool| {
        let pushed = read_all(writer, open, wanted.clock, &mut readings);
        pushed.and(if flush { writer.flush() } else { Ok(()) })
    };
    let start = Instant::now();
    let first = read(writer, true);
    trouble = trouble.and(first);
    let _ = ready.send(Ok(()));
    let (mut next, mut flushed) = (start + wanted.interval, start);
    let mut snapshot_due = false;
    loop {
        let left = next.saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Told::ManifestIsFree) => {
                snapshot_due = true;
                continue;
            }
            Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        let flush = now.duration_since(flushed) >= FLUSH;
        if flush {
            flushed = now;
            if std::mem::take(&mut snapshot_due) {
                add_snapshot(wanted);
            }
        }
        trouble = trouble.and(read(writer, flush));
        let late = Instant::now().saturating_duration_since(next).as_nanos();
        let steps = late / wanted.interval.as_nanos() + 1;
        next += wanted.interval * u32::try_from(steps).unwrap_or(u32::MAX);
    }
    trouble.and(read(writer, true))
}

/// Adds a snapshot of the clocks to the manifest. Errors are ignored: `run` takes another snapshot
/// at its end, so this one matters only if `run` is killed.
fn add_snapshot(wanted: &Wanted) {
    let Ok(mut manifest) = Manifest::read(&wanted.directory) else { return };
    manifest.snapshots.push(Snapshot::take(wanted.clock).into());
    let _ = manifest.write(&wanted.directory);
}

fn read_all(
    writer: &mut TracksWriter,
    open: &mut [Open<'_>],
    clock: ClockKind,
    readings: &mut Readings,
) -> profile::Result<()> {
    let mut result = Ok(());
    for unit in open {
        let before = clock.begin();
        // If the reading fails, a sample without a value is written.
        let _ = unit.counters.read(readings);
        let after = clock.end().0;
        let time = (before + after.saturating_sub(before) / 2) as i64;
        for (i, series) in unit.series.iter().enumerate() {
            let reading = || {
                Some(Reading::Count {
                    raw: readings.value(i)?,
                    enabled_ns: readings.enabled(i)?,
                    running_ns: readings.running(i)?,
                })
            };
            let reading = reading();
            result = result.and(writer.push(Sample { series: *series, time, reading }));
        }
    }
    result
}
