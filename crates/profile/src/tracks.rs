//! Defines tracks: time series of counters that belong to no thread of the program. The command
//! `run` samples counters that can only count for a whole machine or CPU. Imported traces and
//! profiler plugins contribute other tracks.
//!
//! ```text
//!  x.cpt/tracks/NAME/series.arrows    a row per series: what it is
//!                    samples.arrows   a row per sample: series, time, reading
//! ```
//!
//! A *track* contains the readings of one counter (`power/energy-pkg/`). Each of its *series* is
//! one curve, such as the counter on CPU 3. Both files are streams ([`crate::stream`]). A series is
//! stored before its first sample. The samples of one series are in the order in which they were
//! taken.
//!
//! All readings in one directory are of the same kind ([`Readings`]). If a reading failed, the
//! sample is not left out, and its reading is null instead of 0.
//!
//! A reader keeps one batch (at most [`BATCH_ROWS`] samples) and the descriptions of all series in
//! memory.

pub mod batches;
mod reader;
mod scopes;
mod writer;

pub use batches::TrackBatches;
pub use reader::{Samples, Tracks};
pub use scopes::ScopeNames;
pub use writer::TracksWriter;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use record::Timeline;

/// The directory of tracks in a profile.
pub const TRACKS_NAME: &str = "tracks";
/// The directory in `tracks` for samples that the command `run` takes.
pub const SAMPLED_NAME: &str = "run";
/// Maximum number of samples in a batch.
pub const BATCH_ROWS: usize = 65_536;

pub(crate) const SERIES_NAME: &str = "series.arrows";
pub(crate) const SAMPLES_NAME: &str = "samples.arrows";

/// The kind of the readings in one directory of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readings {
    /// Raw cumulative counts, and for how long each counter was enabled and counting, as the
    /// operating system returns them: [`Reading::Count`].
    Counts,
    /// Numbers that another program has computed: [`Reading::Value`].
    Values,
}

/// The description of one curve of a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the curve's track: the name of the counter, such as `power/energy-pkg/`.
    pub track: String,
    /// The name that distinguishes the series from others of the track; empty if track and scope
    /// identify it.
    pub name: String,
    /// The unit of a reading times [`Series::scale`], such as `J`; empty if unknown.
    pub unit: String,
    /// The factor that converts readings to [`Series::unit`]; usually 1.
    pub scale: f64,
    /// What the series is about.
    pub scope: Scope,
    /// The clock and the unit of the samples' times.
    pub times: Times,
    /// Whether readings only increase, so that their differences are meaningful. If not, a reading
    /// is valid until the next one.
    pub cumulative: bool,
    /// Planned time between two samples in ns; 0 if none was planned.
    pub interval_ns: u64,
    /// The source of the readings: `perf`, `sim`, `trace`, or the path of a plugin and the process
    /// that loaded it. Each source numbers its own devices.
    pub source: String,
}

/// The part of the machine or program that a series is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    Machine,
    /// A logical CPU.
    Cpu(u32),
    /// A NUMA node.
    Node(u32),
    /// A device, with its number in its source.
    Device(u32),
    /// A process, with its id.
    Process(u32),
}

impl Series {
    /// Returns the time of a sample in ns, on the clock of [`Times::Monotonic`].
    pub fn time_ns(&self, timeline: &Timeline, time: i64) -> i64 {
        match self.times {
            Times::Ticks => timeline.monotonic_ns(time as u64),
            Times::Monotonic => time,
        }
    }
}

impl Scope {
    /// Returns the kind of the scope, such as `cpu`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Cpu(_) => "cpu",
            Self::Node(_) => "node",
            Self::Device(_) => "device",
            Self::Process(_) => "process",
        }
    }

    /// Returns the number of the CPU, node, device or process; `None` for the machine.
    pub fn number(self) -> Option<u32> {
        match self {
            Self::Machine => None,
            Self::Cpu(n) | Self::Node(n) | Self::Device(n) | Self::Process(n) => Some(n),
        }
    }

    /// Returns the scope with this kind and number.
    pub fn from_parts(kind: &str, number: Option<u32>) -> Option<Self> {
        Some(match (kind, number) {
            ("machine", None) => Self::Machine,
            ("cpu", Some(n)) => Self::Cpu(n),
            ("node", Some(n)) => Self::Node(n),
            ("device", Some(n)) => Self::Device(n),
            ("process", Some(n)) => Self::Process(n),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.number() {
            None => f.write_str(self.kind()),
            Some(n) => write!(f, "{} {n}", self.kind()),
        }
    }
}

model::named! {
    /// The clock and the unit of the times of a series.
    pub enum Times {
        /// Raw ticks of the profile's clock, as in records of calls.
        Ticks = "ticks",
        /// Nanoseconds on `CLOCK_MONOTONIC` of the recording machine, or on the clock that an
        /// imported profile has instead.
        Monotonic = "monotonic_ns",
    }
}

/// A reading of one series at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The number of the series, as [`TracksWriter::describe`] returned it.
    pub series: u32,
    /// The time, in the unit of the series' [`Times`].
    pub time: i64,
    /// The reading; `None` if it failed.
    pub reading: Option<Reading>,
}

/// The content of a reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A count as the operating system returned it.
    Count {
        raw: u64,
        /// How long the counter has been enabled, in ns.
        enabled_ns: u64,
        /// How long the counter was counting, in ns.
        running_ns: u64,
    },
    Value(f64),
}

fn series_schema() -> SchemaRef {
    let text = |name| Field::new(name, DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        Field::new("series", DataType::UInt32, false),
        text("track"),
        text("name"),
        text("unit"),
        Field::new("scale", DataType::Float64, false),
        text("scope"),
        Field::new("scope_number", DataType::UInt32, true),
        text("times"),
        Field::new("cumulative", DataType::Boolean, false),
        Field::new("interval_ns", DataType::UInt64, false),
        text("source"),
    ]))
}

fn samples_schema(readings: Readings) -> SchemaRef {
    let mut fields = vec![
        Field::new("series", DataType::UInt32, false),
        Field::new("time", DataType::Int64, false),
    ];
    match readings {
        Readings::Counts => fields.extend(
            ["raw", "enabled_ns", "running_ns"].map(|n| Field::new(n, DataType::UInt64, true)),
        ),
        Readings::Values => fields.push(Field::new("value", DataType::Float64, true)),
    }
    Arc::new(Schema::new(fields))
}
