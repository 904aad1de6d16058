//! Defines the tables of a dataset. docs/datasets.md describes the columns.
//!
//! Files of a table have the same columns, except for the counters in `calls`. The columns have
//! types that all query engines have: whole numbers, texts, and decimals of 38 digits for sums that
//! are too large for 64 bits. There are no floats, because their sums would depend on the order of
//! adding.

use std::fmt;
#[cfg(feature = "write")]
use std::sync::Arc;

#[cfg(feature = "write")]
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row per process and op, with calls and times.
    Stats,
    /// One row per process, op and counter.
    Counters,
    /// One row per process, op and bucket of durations.
    Hist,
    /// One row per process and op: what the op is.
    Ops,
    /// One row per process.
    Processes,
    /// One row per loss.
    Losses,
    /// One row per call, if calls were exported.
    Calls,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text in UTF-8.
    Text,
    /// A signed number of 32 bits.
    Small,
    /// A signed number of 64 bits.
    Whole,
    /// An unsigned number of 64 bits.
    Counter,
    /// A whole number of up to 38 digits.
    Wide,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Column {
    pub name: &'static str,
    /// The type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether values may be missing.
    pub nullable: bool,
}

impl Kind {
    /// Returns the name in `dataset.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Small => "int32",
            Self::Whole => "int64",
            Self::Counter => "uint64",
            Self::Wide => "decimal(38,0)",
        }
    }

    /// Returns the Arrow type of a column of this kind.
    #[cfg(feature = "write")]
    pub fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Small => DataType::Int32,
            Self::Whole => DataType::Int64,
            Self::Counter => DataType::UInt64,
            Self::Wide => DataType::Decimal128(38, 0),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

const fn is(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, nullable: false }
}

const fn may(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, nullable: true }
}

/// The columns that every table begins with.
pub const COMMON: [Column; 4] = [
    is("run", Kind::Text),
    is("rank", Kind::Small),
    is("part", Kind::Text),
    may("process", Kind::Small),
];

const STATS: &[Column] = &[
    is("op_key", Kind::Text),
    is("op", Kind::Text),
    is("known", Kind::Text),
    may("calls", Kind::Whole),
    is("inner_calls", Kind::Whole),
    is("timed_calls", Kind::Whole),
    is("threads", Kind::Whole),
    may("total_ns", Kind::Whole),
    may("total_low_ns", Kind::Whole),
    may("total_high_ns", Kind::Whole),
    may("self_ns", Kind::Whole),
    may("min_ns", Kind::Whole),
    may("p50_ns", Kind::Whole),
    may("p99_ns", Kind::Whole),
    may("max_ns", Kind::Whole),
    is("first_calls", Kind::Whole),
    may("first_ns", Kind::Whole),
    may("calls_low", Kind::Whole),
    may("calls_high", Kind::Whole),
];

const COUNTERS: &[Column] = &[
    is("op_key", Kind::Text),
    is("counter", Kind::Text),
    is("unit", Kind::Text),
    is("calls", Kind::Whole),
    may("value", Kind::Wide),
    may("value_low", Kind::Wide),
    may("value_high", Kind::Wide),
    may("sum_ns", Kind::Wide),
    may("sum_value", Kind::Wide),
    may("sum_ns_ns", Kind::Wide),
    may("sum_ns_value", Kind::Wide),
    may("sum_value_value", Kind::Wide),
];

const HIST: &[Column] =
    &[is("op_key", Kind::Text), is("bucket", Kind::Small), is("calls", Kind::Whole)];

const OPS: &[Column] = &[
    is("op_key", Kind::Text),
    is("op", Kind::Text),
    is("role", Kind::Text),
    may("library", Kind::Text),
    may("arguments", Kind::Text),
    may("device", Kind::Text),
    may("source", Kind::Text),
];

const PROCESSES: &[Column] = &[
    is("pid", Kind::Whole),
    may("program", Kind::Text),
    is("host", Kind::Text),
    may("world_size", Kind::Small),
    is("created_unix_ns", Kind::Whole),
    is("threads", Kind::Whole),
    is("calls", Kind::Whole),
    is("clock", Kind::Text),
    may("clock_uncertainty_ns", Kind::Whole),
    may("labels", Kind::Text),
];

const LOSSES: &[Column] =
    &[is("loss", Kind::Text), may("severity", Kind::Text), is("count", Kind::Whole)];

const CALLS: &[Column] = &[
    is("thread", Kind::Small),
    is("op_key", Kind::Text),
    is("start_unix_ns", Kind::Whole),
    is("duration_ns", Kind::Whole),
    is("cpu", Kind::Small),
];

impl Table {
    /// All tables.
    pub const ALL: [Self; 7] = [
        Self::Stats,
        Self::Counters,
        Self::Hist,
        Self::Ops,
        Self::Processes,
        Self::Losses,
        Self::Calls,
    ];

    /// Returns the name of the table and of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Counters => "counters",
            Self::Hist => "hist",
            Self::Ops => "ops",
            Self::Processes => "processes",
            Self::Losses => "losses",
            Self::Calls => "calls",
        }
    }

    /// Returns the table with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// Returns the columns, without the counters in `calls`.
    pub fn columns(self) -> impl Iterator<Item = Column> + Clone {
        let own = match self {
            Self::Stats => STATS,
            Self::Counters => COUNTERS,
            Self::Hist => HIST,
            Self::Ops => OPS,
            Self::Processes => PROCESSES,
            Self::Losses => LOSSES,
            Self::Calls => CALLS,
        };
        COMMON.into_iter().chain(own.iter().copied())
    }

    #[cfg(feature = "write")]
    /// Returns the Arrow schema of the table. For `calls`, each of these counters is a further
    /// column.
    pub fn schema(self, counters: &[String]) -> SchemaRef {
        let own = self.columns().map(|c| Field::new(c.name, c.kind.data_type(), c.nullable));
        let counters = counters.iter().filter(|_| self == Self::Calls);
        let counters = counters.map(|name| Field::new(name, Kind::Counter.data_type(), true));
        Arc::new(Schema::new(own.chain(counters).collect::<Vec<_>>()))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
