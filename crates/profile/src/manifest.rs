//! Reads and writes the manifest: a small JSON file that describes a profile directory.
//!
//! ```text
//!  written ──► "recording", pool = path ──► program runs ──► "finished", exit, notes
//!                                                          │ collect
//!                           pool = null ◄── pool_collected ┘
//! ```
//!
//! The commands `env` and `session` write the manifest themselves. Under `run`, the child process
//! writes it before it executes the program (`announce.rs`), and `run` writes it again at the end.
//!
//! The manifest is replaced as a whole (temporary file, then rename), so a reader sees either the
//! old or the new one. `docs/schema.md` describes the fields.

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
/// Maximum size of a manifest in bytes. The manifests that we write take a few KiB.
const MOST_BYTES: u64 = 1 << 24;
/// The version of the manifest.
pub const MANIFEST_SCHEMA: &str = "counterpoint.manifest/1";

/// The content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// The schema of the file: [`MANIFEST_SCHEMA`].
    pub schema: String,
    /// The profile's random id, as in its pool: 32 hexadecimal digits. Empty in imported profiles.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The version of Counterpoint that made the profile.
    pub program_version: String,
    /// How the recording was requested, or that the profile was imported.
    pub origin: Origin,
    /// Whether the recording is over.
    pub state: State,
    /// When the recording was prepared, in ns since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// Name of the machine.
    pub host: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`); empty if unknown. Process ids and
    /// pools have a meaning only within one boot.
    pub boot_id: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Number of logical CPUs that are online.
    pub logical_cpus: u32,
    /// Arguments of the recorded program, with its name; empty for `env`.
    pub command: Vec<String>,
    /// Directory in which the program was started.
    pub working_directory: String,
    /// A description of the environment for the reader, for example that it is a container or a
    /// virtual machine.
    pub environment: Option<String>,
    /// The clock from which the recorded ticks were read.
    pub clock: Clock,
    /// The counters of the recording, in the order of their indices. Counters of the same group are
    /// adjacent.
    pub counters: Vec<CounterInfo>,
    /// Metrics that the user requested, checked against the counters.
    pub metrics: Vec<MetricInfo>,
    /// Number of passes; 0 for a single recording. A pass is a run of the program with other
    /// counters, stored as a profile in `passes/1`, `passes/2` and so on.
    pub passes: u32,
    /// The names of the profiles that were merged into this one. The merged profiles are stored in
    /// `merged/1`, `merged/2` and so on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
    /// Whether the counters may be multiplexed on the PMU (`run --multiplex`). If so, reports show
    /// estimates for counters that counted only part of the time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multiplex: bool,
    /// The share of each thread's processor time that recording was allowed to take (`run
    /// --budget`), from 0 to 1. With a budget, only some calls are timed. Absent if every call was
    /// to be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Whether numbers of calls had to be exact (`run --exact-counts`, or a session with a budget).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact_counts: bool,
    /// The time that the counters add to each context switch of a thread, measured before the
    /// program started. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_cost: Option<SwitchCost>,
    /// Processor time that the process of `counterpoint run` had used when the recorded program
    /// ended, in ns. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_cpu_ns: Option<u64>,
    /// The rank of the processes in a distributed job, from `run --rank` or the launcher of `run`.
    /// A process whose own launcher gives it a rank has that rank instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The number of ranks of the job; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// The name that the launcher of `run` gave the job, if any. A process whose own launcher names
    /// the job has that name instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// The labels that the user gave the run (`run --label`), by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The place of the run in a series (`run --repeat`), if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Place>,
    /// Patterns for the names of the exported functions to record; empty for all.
    pub filters: Vec<String>,
    /// Whether counters were also read for bookkeeping ops (`run --bookkeeping`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bookkeeping: bool,
    /// Files of the profiler plugins that programs should load (`--plugin`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// Whether plugins got an id for each op (`--plugin-ids`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plugin_ids: bool,
    /// The path of the pool; `null` after it was collected.
    pub pool: Option<PathBuf>,
    /// Whether everything in the pool is also in the profile, so that the pool only has to be
    /// deleted.
    pub pool_collected: bool,
    /// Processes that keep the recording open while they are alive, such as `run` itself and the
    /// program that it started.
    pub watch: Vec<ProcessId>,
    /// How the program ended; `null` if unknown.
    pub exit: Option<Exit>,
    /// Snapshots of all clocks at the start and, if possible, at the end of the recording.
    pub snapshots: Vec<Moment>,
    /// Notes for the reader, for example that default counters were left out.
    pub notes: Vec<String>,
}

/// The time that a run's counters add to a context switch, in ns of CPU time. It was measured with
/// two threads that wake each other on one CPU, with and without the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchCost {
    /// Number of switches that were measured with counters; as many were measured without counters.
    pub switches: u64,
    /// The median cost of a switch without counters.
    pub bare_ns: f64,
    /// The median cost that the counters add to a switch.
    pub added_ns: f64,
    /// The smallest and the largest additional cost per switch in a batch of switches.
    pub added_range_ns: [f64; 2],
}

/// How a recording was requested, or that the profile was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `counterpoint run`. The recording ends with the program and its children.
    #[default]
    Run,
    /// `counterpoint env`. The recording stays open for programs that are started by hand, until it
    /// is closed.
    Env,
    /// The recording was requested with the environment variables of IREE's original call hook
    /// (`docs/hook.md`). The recording ends when the process that had these variables and its
    /// children have ended.
    Hook,
    /// A session that a program begins and ends itself (`counterpoint session`). The recording also
    /// ends when the program ends.
    Session,
    /// `counterpoint trace import`: the calls come from another program's trace.
    Import,
}

/// A program of a series of runs. A series that compares two programs has A and B; any other series
/// has only A.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The program after `--`, which is the only program of a series without `--against`.
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

    /// Returns the name of the directory for this side's profile, in the directory of a round.
    pub fn directory(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// The place of a run in its series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The random id of the series: 32 hexadecimal digits.
    pub series: String,
    /// The program of the series that ran.
    pub side: Side,
    /// The number of the round, from 1.
    pub round: u32,
    /// The position of the run in its round, from 1.
    pub position: u32,
    /// The random seed of the order of the rounds.
    pub seed: u64,
}

/// Whether a recording is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The recording is not over, or the recording command was killed.
    #[default]
    Recording,
    /// The recording is over.
    Finished,
}

/// How a program ended. Either `code` or `signal` is present.
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
    /// The number, from 0, of the counter's group; the counters of a group are read together.
    pub group: u16,
    /// Whether a script that the user typed in gives the counter's values. The script then also
    /// gives the times for which the counter's group was enabled and running.
    #[serde(default)]
    pub simulated: bool,
    /// The pass in which the counter was counted, from 1; `null` or absent without passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<u32>,
}

impl CounterInfo {
    /// Returns the unit; [`Unit::Count`] if this version does not know it.
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

/// A metric as the manifest lists it; [`model::Metric::of`] parses the expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricInfo {
    /// The name that reports show.
    pub name: String,
    /// The expression as the user typed it, with the unit.
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

    /// Returns the rank and, if known, the number of ranks of the distributed job; `None` without a
    /// rank.
    pub fn job(&self) -> Option<Job> {
        let rank = self.rank?;
        Some(Job { rank, size: self.world_size.filter(|size| *size > rank) })
    }

    /// Reads the manifest of the profile in `dir`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a manifest of this schema version, or lists too
    /// many counters.
    pub fn read(dir: &Path) -> Result<Self> {
        match Dir::open(dir) {
            Ok(opened) => Self::read_in(&opened),
            Err(_) if dir.is_file() => {
                Err(Error::new("open", dir, ErrorKind::NotAProfile("it is a file")))
            }
            Err(e) => Err(e),
        }
    }

    /// [`Manifest::read`] for a directory that is already open.
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
        // The schema version is checked first, because the rest may differ in another version.
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
    /// Fails if the directory cannot be opened, or the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        self.write_in(&Dir::open(dir)?)
    }

    /// [`Manifest::write`] for a directory that is already open.
    ///
    /// # Errors
    /// Same as for [`Manifest::write`].
    pub fn write_in(&self, dir: &Dir) -> Result<()> {
        replace_json(dir, MANIFEST_NAME, self)
    }
}

/// Writes `value` as JSON to the file `name` in `dir`, and replaces an existing file.
pub(crate) fn replace_json(dir: &Dir, name: &str, value: &impl Serialize) -> Result<()> {
    dir.replace(name, &json_of(dir, name, value)?)
}

/// Returns the JSON text of `value`. `name` is for messages.
fn json_of(dir: &Dir, name: &str, value: &impl Serialize) -> Result<Vec<u8>> {
    let text = serde_json::to_vec_pretty(value);
    let mut text = text.map_err(Error::on("write", &dir.path_of(name)))?;
    text.push(b'\n');
    Ok(text)
}
