//! Reads and writes the manifest: a small JSON file that describes a profile directory.
//!
//! ```text
//!  written ──► "recording", pool = path ──► program runs ──► "finished", exit, notes
//!                                                          │ collect
//!                           pool = null ◄── pool_collected ┘
//! ```
//!
//! `env` and `session` write the manifest in their own process. Under `run`, the child process
//! writes it before it executes the program (`announce.rs`), and `run` writes it again at the end.
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
/// Maximum size in bytes of a manifest that is read. The manifests that we write take a few KiB.
const MOST_BYTES: u64 = 1 << 24;
/// The version of the manifest that this program writes and reads.
pub const MANIFEST_SCHEMA: &str = "counterpoint.manifest/1";

/// The content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The schema of the file: [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// The profile's random id: 32 hexadecimal digits. The profile's pool contains the same id.
    /// Empty in imported profiles, which have no pool.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Version of Counterpoint that made the profile.
    pub program_version: String,
    /// The command that made the profile.
    pub origin: Origin,
    /// Whether the recording is over.
    pub state: State,
    /// The time at which the recording was prepared, in ns since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// Name of the machine.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`). Process ids and pools have a
    /// meaning only within one boot. Empty if the id is unknown.
    pub boot_id: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Number of logical CPUs that are online.
    pub logical_cpus: u32,
    /// Arguments of the recorded program, beginning with its name; empty for `env`.
    pub command: Vec<String>,
    /// Directory in which the program was started.
    pub working_directory: String,
    /// A description of the environment for people, for example a container or a virtual machine.
    pub environment: Option<String>,
    /// The clock of all ticks: `tsc` or `monotonic`.
    pub clock: Clock,
    /// The counters in the order of the run. Counters of the same group are adjacent.
    pub counters: Vec<CounterInfo>,
    /// Metrics that the user requested for the recording. They have been checked against the
    /// counters.
    pub metrics: Vec<MetricInfo>,
    /// Number of passes. Each pass is one run of the program with other counters than the other
    /// passes, and is stored as a separate profile in `passes/1`, `passes/2` and so on. 0 if this
    /// profile is a single recording.
    pub passes: u32,
    /// The names of the profiles that were merged into this one. Each of them is stored as a
    /// complete profile in `merged/1`, `merged/2` and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
    /// Whether the counters may be multiplexed on the PMU (`run --multiplex`). If so, reports scale
    /// the values of counters that counted only part of the time, and mark them as estimates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multiplex: bool,
    /// The part of each thread's processor time that recording was allowed to take (`run
    /// --budget`), from 0 to 1. With a budget, only some calls are timed (with a budget of 0,
    /// none), and the others are counted or estimated (see `exact_counts`). Absent if every call
    /// was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Whether numbers of calls had to be exact (`run --exact-counts`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact_counts: bool,
    /// The time that the counters add to each context switch of a thread, which `run` measured
    /// before the program started. Absent without counters, in a run with a budget, or if it could
    /// not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_cost: Option<SwitchCost>,
    /// Processor time that the process of `counterpoint run` had used when the recorded program
    /// ended, in ns. The program runs in another process. Absent if `run` did not see the program
    /// end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cpu_ns: Option<u64>,
    /// The rank of the processes in a distributed job, if `run --rank` or the launcher of `run`
    /// gave one. A process whose own launcher gives a rank has that rank instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The number of ranks of the job; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// The name that the launcher of `run` gave the job. If a process's own launcher gives a name,
    /// the process has that name instead. Absent if the job has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The labels that the user gave the run (`run --label`), by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The place of the run in a series (`run --repeat`). Absent if the run is not part of a
    /// series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Place>,
    /// Patterns for the names of the exported functions that were recorded; an empty list means all
    /// of them.
    pub filters: Vec<String>,
    /// Whether counters were also read for bookkeeping ops of virtual machines (`run
    /// --bookkeeping`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bookkeeping: bool,
    /// Files of the profiler plugins that programs should load (`--plugin`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// Whether these plugins got an id for each op (`--plugin-ids`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plugin_ids: bool,
    /// The path of the pool with the data that is not in the profile yet; `null` after the pool was
    /// collected.
    pub pool: Option<PathBuf>,
    /// Whether everything in the pool is also in the profile, so that the pool only has to be
    /// deleted.
    pub pool_collected: bool,
    /// Processes that keep the recording open as long as they are alive, whether or not they have
    /// recorded anything, such as `run` itself and the program that it started.
    pub watch: Vec<ProcessId>,
    /// How the program ended; `null` while it runs, and if `run` did not start it.
    pub exit: Option<Exit>,
    /// Snapshots of all clocks. The command that made the profile took them, at the start and at
    /// the end of the recording if it could.
    pub snapshots: Vec<Moment>,
    /// Notes for the reader, for example that default counters were left out.
    pub notes: Vec<String>,
}

/// The time that a run's counters add to a context switch. It was measured with two threads that
/// wake each other on one CPU, with and without the counters. All times are CPU times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchCost {
    /// Number of switches that were made with counters. As many switches were made without
    /// counters.
    pub switches: u64,
    /// Cost of a switch without counters: the median over all batches.
    pub bare_ns: f64,
    /// Cost that the counters add to a switch: the median over all batches.
    pub added_ns: f64,
    /// The smallest and the largest additional cost of any batch.
    pub added_range_ns: [f64; 2],
}

/// The command that made a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `counterpoint run`. The recording is over when the program and its children have ended.
    #[default]
    Run,
    /// `counterpoint env`. The recording stays open for programs that are started by hand, until it
    /// is closed.
    Env,
    /// The variables of IREE's original call hook (`docs/hook.md`). The recording is over when the
    /// process that had these variables, and its children, have ended. Users see such a profile
    /// only if that process did not end normally.
    Hook,
    /// A session that a program begins and ends itself (`counterpoint session`). The recording is
    /// over when the program says so or has ended.
    Session,
    /// `counterpoint trace import`: the calls come from another program's trace. The recording is
    /// over from the start.
    Import,
}

/// One of the two programs of a series.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program after `--`. It is also the side of a series with one program.
    #[default]
    A,
    /// The program that `--against` names.
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

/// The place of a run in its series. The manifest of each run in a series has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The random id of the series: 32 hexadecimal digits.
    pub series: String,
    /// Which of the two programs of the series ran.
    pub side: Side,
    /// The number of the round, from 1.
    pub round: u32,
    /// The position of the run in its round, from 1.
    pub position: u32,
    /// The random seed that determines the order of all rounds.
    pub seed: u64,
}

/// Whether a recording is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The recording is not over, or the command that records was killed before it could say so.
    #[default]
    Recording,
    /// The recording is over: `run` has seen the program end, the session has ended, or the profile
    /// was imported.
    Finished,
}

/// How a program ended. Exactly one of `code` and `signal` is present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exit {
    pub code: Option<i32>,
    /// Number of the signal that ended the program.
    pub signal: Option<i32>,
    /// Whether the program left a core dump.
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
    /// The name of the counter as the user typed it, including modifiers.
    pub name: String,
    /// `count`, `ns`, `bytes`, `cycles`, `J` or `other`.
    pub unit: String,
    /// The number of the group with which the counter was read, from 0.
    pub group: u16,
    /// Whether the counter's values come from a test script; its times then have nothing to do with
    /// CPUs.
    #[serde(default)]
    pub simulated: bool,
    /// The pass in which the counter was counted, from 1; `null` or absent without passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<u32>,
}

impl CounterInfo {
    /// Returns the unit. A unit that this version does not know is returned as [`Unit::Count`].
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
    /// The name that reports show.
    pub name: String,
    /// The expression as the user typed it, including the unit.
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
    /// The true ticks of the moment are within `ticks ± uncertainty_ticks`.
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

    /// Returns the place in a distributed job that [`Manifest::rank`] and [`Manifest::world_size`]
    /// describe.
    pub fn job(&self) -> Option<Job> {
        let rank = self.rank?;
        Some(Job { rank, size: self.world_size.filter(|size| *size > rank) })
    }

    /// Reads the manifest of the profile in `dir`.
    ///
    /// # Errors
    /// Fails if the directory or the file does not exist, if the file is not a regular file
    /// ([`ErrorKind::Refused`]), is too long or is not JSON, or if it has another schema version or
    /// too many counters.
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
    /// Same as for [`Manifest::read`].
    pub fn read_in(dir: &Dir) -> Result<Self> {
        let path = dir.path_of(MANIFEST_NAME);
        let text = match dir.read(MANIFEST_NAME, MOST_BYTES) {
            Err(e) if e.is_not_found() => {
                let why = ErrorKind::NotAProfile("it has no manifest.json");
                return Err(Error::new("open", dir.path(), why));
            }
            other => other?,
        };
        // The schema version is checked first, because everything else may differ in another
        // version.
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

    /// Atomically replaces the manifest of the profile in `dir`. The directory must exist.
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

/// Writes `value` as JSON to the file with this name. An existing file is replaced.
pub(crate) fn replace_json(dir: &Dir, name: &str, value: &impl Serialize) -> Result<()> {
    dir.replace(name, &json_of(dir, name, value)?)
}

/// Returns the JSON text of `value`. `name` is the name of the file, for messages.
fn json_of(dir: &Dir, name: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_vec_pretty(value);
    let mut text = text.map_err(Error::on("write", &dir.path_of(name)))?;
    text.push(b'\n');
    Ok(text)
}
