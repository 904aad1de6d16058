//! Reads and writes the manifest: a small JSON file that describes a profile directory.
//!
//! ```text
//!  written ──► "recording", pool = path ──► program runs ──► "finished", exit, notes
//!                                                          │ collect
//!                           pool = null ◄── pool_collected ┘
//! ```
//!
//! `env` and `session` write it themselves. Under `run`, the child writes it before it becomes the
//! program (`announce.rs`), and `run` writes it again at the end.
//!
//! The manifest is always replaced as a whole (temporary file, then rename), so a reader sees
//! either the old or the new one. `docs/schema.md` describes every field.

mod announce;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::Unit;
use record::job::Job;
use record::{ClockKind, Snapshot};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::live::ProcessId;
use crate::safe_dir::Dir;

pub use announce::Announcement;

/// Name of the manifest in a profile directory.
pub const MANIFEST_NAME: &str = "manifest.json";
/// Maximum size of a manifest that is read, in bytes; ours take a few KiB.
const MOST_BYTES: u64 = 1 << 24;
/// The version of the manifest that this program writes and reads.
pub const MANIFEST_SCHEMA: &str = "counterpoint.manifest/1";

/// The content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The schema of the file: [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// The profile's random id, 32 hexadecimal digits; its pool contains the same id. Empty in
    /// imports, which have no pool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Version of the program that recorded.
    pub program_version: String,
    /// The command that made the profile.
    pub origin: Origin,
    /// Whether the recording is over.
    pub state: State,
    /// The time at which the recording was prepared, in ns since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// Name of the machine.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`). Process ids and pools are only
    /// meaningful within one boot. Empty if unknown.
    pub boot_id: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Number of logical CPUs that are online.
    pub logical_cpus: u32,
    /// Arguments of the program that was started, beginning with its name; empty for `env`.
    pub command: Vec<String>,
    /// Directory in which the program was started.
    pub working_directory: String,
    /// A description of the environment for people (a container, a virtual machine).
    pub environment: Option<String>,
    /// The clock of all ticks: `tsc` or `monotonic`.
    pub clock: Clock,
    /// The counters in the order of the run; the counters of a group are adjacent.
    pub counters: Vec<CounterInfo>,
    /// Metrics that were requested for the recording, each checked against the counters.
    pub metrics: Vec<MetricInfo>,
    /// Number of passes. Each pass is a recording of one run of the program with other counters,
    /// stored as a separate profile in `passes/1`, `passes/2` and so on. 0 if this profile is a
    /// single recording.
    pub passes: u32,
    /// The names of the profiles that were merged into this one. Each of these is a whole profile
    /// in `merged/1`, `merged/2` and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
    /// Whether the counters may be multiplexed on the PMU (`run --multiplex`). Views then scale the
    /// values of counters that counted for part of the time, and mark them as estimates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multiplex: bool,
    /// The part of each thread's processor time that recording was allowed to take (`run
    /// --budget`), from 0 to 1. Every call was then counted, but only some were timed; with 0, none.
    /// Absent if every call was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Whether numbers of calls had to be exact (`run --exact-counts`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact_counts: bool,
    /// The time that the counters add to each context switch of a thread with counters, measured
    /// before the program started. Absent without counters, or if it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_cost: Option<SwitchCost>,
    /// Processor time that `run` itself had used when its program ended, in ns. It ran beside the
    /// program, in a process of its own. Absent if `run` did not see the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cpu_ns: Option<u64>,
    /// The rank of the processes in a distributed job, if `run --rank` or the launcher of `run`
    /// itself gave it. A process whose own launcher gives a rank has that rank instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The number of ranks of that job; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// What the launcher of `run` itself calls the job. If a process's own launcher gives a name, the process has
    /// that name instead. Absent if the job has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The labels that the user gave the run (`run --label`), by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The place of the run in a series (`run --repeat`). Absent if the run is not part of a
    /// series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Place>,
    /// Patterns of the exported functions that were recorded; an empty list means all.
    pub filters: Vec<String>,
    /// Whether counters were also read for bookkeeping ops of virtual machines (`run
    /// --bookkeeping`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bookkeeping: bool,
    /// Files of the profiler plugins that programs were to load (`--plugin`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// Whether these plugins got an id for each op (`--plugin-ids`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plugin_ids: bool,
    /// The pool with the data that is not in the profile yet; `null` once it was collected.
    pub pool: Option<PathBuf>,
    /// Whether everything in the pool is in the profile, so that the pool only has to be removed.
    pub pool_collected: bool,
    /// Processes that keep the recording open while they are alive, whether or not they have
    /// recorded anything: `run` itself and the program that it started.
    pub watch: Vec<ProcessId>,
    /// The way in which the program ended; `null` while it runs and for `env`.
    pub exit: Option<Exit>,
    /// Readings of all clocks at the same moments, taken by `run` at the start and at the end.
    pub snapshots: Vec<Moment>,
    /// Notes for the reader, for example that default counters were left out.
    pub notes: Vec<String>,
}

/// The time that the counters of a run add to a context switch, measured with two threads that wake
/// each other on one CPU, with and without the counters. CPU time in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchCost {
    /// Number of switches made with counters; the same number was made without.
    pub switches: u64,
    /// Cost of a switch without counters: median over the batches.
    pub bare_ns: f64,
    /// Cost that the counters add to a switch: median over the batches.
    pub added_ns: f64,
    /// The smallest and the largest added cost in any batch.
    pub added_range_ns: [f64; 2],
}

/// The command that made a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `counterpoint run`: over when the program and its children have ended.
    #[default]
    Run,
    /// `counterpoint env`: stays open for programs started by hand until it is closed.
    Env,
    /// The variables of IREE's original call hook (`docs/hook.md`): over when the process that had
    /// them and its children have ended. Users see such a profile only if that process did
    /// not end normally.
    Hook,
    /// A session that a program begins and ends itself (`counterpoint session`): over when the
    /// program says so or has ended.
    Session,
    /// `counterpoint trace import`: calls from another program's trace; over from the start.
    Import,
}

/// One of the two programs of a series.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program after `--`, or the only program.
    #[default]
    A,
    /// The program of `--against`.
    B,
}

impl Side {
    /// Returns the side's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// Returns the name of the side's directory in a round.
    pub fn directory(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// The place of a run in its series. The manifest of each run has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The series' random id, 32 hexadecimal digits.
    pub series: String,
    /// The program of the run.
    pub side: Side,
    /// The round, from 1.
    pub round: u32,
    /// The position in the round, from 1.
    pub position: u32,
    /// The random seed that determines the order of all rounds.
    pub seed: u64,
}

/// Whether a recording is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The recording is not over, or `run` was killed.
    #[default]
    Recording,
    /// `run` has seen the program end.
    Finished,
}

/// The way in which a program ended. Exactly one of `code` and `signal` is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exit {
    pub code: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
    /// Whether a core was dumped.
    pub core: bool,
}

/// [`ClockKind`] in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// The x86-64 time-stamp counter.
    Tsc,
}

impl From<ClockKind> for Clock {
    fn from(kind: ClockKind) -> Self {
        match kind {
            ClockKind::Monotonic => Self::Monotonic,
            ClockKind::Tsc => Self::Tsc,
        }
    }
}

impl From<Clock> for ClockKind {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Monotonic => Self::Monotonic,
            Clock::Tsc => Self::Tsc,
        }
    }
}

/// A counter as the manifest lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterInfo {
    /// The name as typed, including modifiers.
    pub name: String,
    /// `count`, `ns`, `bytes` or `cycles`.
    pub unit: String,
    /// The group of counters with which it was read, from 0.
    pub group: u16,
    /// Whether the counter's values come from a script, for tests; its times are then unrelated to
    /// CPUs.
    #[serde(default)]
    pub simulated: bool,
    /// The pass in which the counter was counted, from 1; `null` or absent in a profile without passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<u32>,
}

impl CounterInfo {
    /// Returns the unit; [`Unit::Count`] for a unit that this version does not know.
    pub fn unit(&self) -> Unit {
        (0..=u8::MAX)
            .map_while(Unit::from_u8)
            .find(|unit| unit.name() == self.unit)
            .unwrap_or(Unit::Count)
    }

    /// Returns the counter in the form that metrics use.
    pub fn operand(&self) -> model::metric::Operand<'_> {
        model::metric::Operand {
            name: &self.name,
            unit: self.unit(),
            scale: 1.0,
            group: self.group,
        }
    }
}

/// A metric as the manifest lists it. [`model::Metric::of`] parses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricInfo {
    /// The name that views show.
    pub name: String,
    /// The expression as typed, including the unit.
    pub expression: String,
}

impl From<&model::Metric> for MetricInfo {
    fn from(metric: &model::Metric) -> Self {
        Self { name: metric.name.clone(), expression: metric.expression.clone() }
    }
}

impl From<&model::Counter> for CounterInfo {
    fn from(counter: &model::Counter) -> Self {
        Self {
            name: counter.name.clone(),
            unit: counter.unit.name().to_owned(),
            group: counter.group,
            simulated: matches!(counter.source, model::Source::Sim(_)),
            pass: None,
        }
    }
}

/// [`Snapshot`] in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Ticks of the run's clock.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, ns since 1970-01-01 UTC.
    pub realtime_ns: u64,
    /// The moment lies within `ticks ± uncertainty_ticks`.
    pub uncertainty_ticks: u64,
}

impl From<Snapshot> for Moment {
    fn from(s: Snapshot) -> Self {
        Self {
            ticks: s.ticks,
            monotonic_ns: s.monotonic_ns,
            realtime_ns: s.realtime_ns,
            uncertainty_ticks: s.uncertainty_ticks,
        }
    }
}

impl From<Moment> for Snapshot {
    fn from(m: Moment) -> Self {
        Self {
            ticks: m.ticks,
            monotonic_ns: m.monotonic_ns,
            realtime_ns: m.realtime_ns,
            uncertainty_ticks: m.uncertainty_ticks,
        }
    }
}

impl Manifest {
    /// Creates an empty manifest of this version.
    pub fn new() -> Self {
        Self { schema: MANIFEST_SCHEMA.to_owned(), ..Self::default() }
    }

    /// Returns the place in a distributed job that [`Manifest::rank`] names.
    pub fn job(&self) -> Option<Job> {
        let rank = self.rank?;
        Some(Job { rank, size: self.world_size.filter(|size| *size > rank) })
    }

    /// Reads the manifest of the profile in `dir`.
    ///
    /// # Errors
    /// Fails if the directory or the file does not exist, or if the file is not JSON or has another
    /// schema version.
    pub fn read(dir: &Path) -> Result<Self> {
        match Dir::open(dir) {
            Ok(opened) => Self::read_in(&opened),
            Err(_) if dir.is_file() => {
                Err(Error::new("open", dir, ErrorKind::NotAProfile("it is a file")))
            }
            Err(e) => Err(e),
        }
    }

    /// Does what [`Manifest::read`] does, for a directory that is already open.
    ///
    /// # Errors
    /// The same errors; also [`ErrorKind::Refused`] if the file is not a regular file.
    pub fn read_in(dir: &Dir) -> Result<Self> {
        let path = dir.path_of(MANIFEST_NAME);
        let text = match dir.read(MANIFEST_NAME, MOST_BYTES) {
            Err(e) if e.is_not_found() => {
                let why = ErrorKind::NotAProfile("it has no manifest.json");
                return Err(Error::new("open", dir.path(), why));
            }
            other => other?,
        };
        // The schema is checked first, because another version may differ in everything else.
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(Error::on("read", &path))?;
        let found = value.get("schema").and_then(|s| s.as_str()).unwrap_or_default();
        if found != MANIFEST_SCHEMA {
            let kind = ErrorKind::Schema { found: found.to_owned(), expected: MANIFEST_SCHEMA };
            return Err(Error::new("read", &path, kind));
        }
        let manifest: Self = serde_json::from_value(value).map_err(Error::on("read", &path))?;
        if manifest.counters.len() > model::MAX_COUNTERS {
            let why = ErrorKind::NotAProfile("it has more counters than a recording can have");
            return Err(Error::new("read", &path, why));
        }
        Ok(manifest)
    }

    /// Replaces the manifest of the profile in `dir`, which must exist, atomically.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full.
    pub fn write(&self, dir: &Path) -> Result<()> {
        self.write_in(&Dir::open(dir)?)
    }

    /// Writes the manifest into the profile `dir`: see [`Manifest::write`].
    ///
    /// # Errors
    /// Same as for [`Manifest::write`].
    pub fn write_in(&self, dir: &Dir) -> Result<()> {
        replace_json(dir, MANIFEST_NAME, self)
    }
}

/// Writes `value` as JSON to the file with this name, which it replaces.
pub(crate) fn replace_json(dir: &Dir, name: &str, value: &impl Serialize) -> Result<()> {
    dir.replace(name, &json_of(dir, name, value)?)
}

/// Returns `value` as JSON, for the file of this name.
fn json_of(dir: &Dir, name: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_vec_pretty(value);
    let mut text = text.map_err(Error::on("write", &dir.path_of(name)))?;
    text.push(b'\n');
    Ok(text)
}
