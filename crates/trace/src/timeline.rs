//! Defines the parts of a timeline, and the trait for receivers of a timeline. Moments are
//! nanoseconds since 1970-01-01 UTC.

use std::io;

use model::activity::{FlowKind, Value};

/// Identifies a process or a thread. Traces may identify processes and threads by numbers or by
/// texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id<'a> {
    /// For example, the id of a process or thread, or the number of a device.
    Number(i64),
    /// For processes and threads without a number.
    Text(&'a str),
}

/// A row of the timeline, in which viewers draw slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row<'a> {
    /// The process or device.
    pub process: Id<'a>,
    /// The thread or stream.
    pub thread: Id<'a>,
}

/// Names the rows of a process or device.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow<'a> {
    /// The process or device.
    pub id: Id<'a>,
    /// For viewers.
    pub name: &'a str,
    /// What viewers show next to the name: for example `CPU`, or the name of the device.
    pub labels: &'a str,
    /// Viewers sort processes by this number.
    pub sort_index: i64,
    /// The time from which the name is valid.
    pub at_ns: i64,
}

/// Names the row of a thread or stream.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow<'a> {
    pub row: Row<'a>,
    /// For viewers.
    pub name: &'a str,
    /// Viewers sort threads by this number.
    pub sort_index: i64,
    /// The time from which the name is valid.
    pub at_ns: i64,
}

/// One argument of a slice, or one series of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arg<'a> {
    pub key: &'a str,
    pub value: ArgValue<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgValue<'a> {
    Plain(Value<'a>),
    /// x, y, z.
    Triple([u32; 3]),
}

impl<'a> Arg<'a> {
    pub fn uint(key: &'a str, value: u64) -> Self {
        Self { key, value: ArgValue::Plain(Value::Uint(value)) }
    }

    pub fn text(key: &'a str, value: &'a str) -> Self {
        Self { key, value: ArgValue::Plain(Value::Text(value)) }
    }

    pub fn triple(key: &'a str, value: [u32; 3]) -> Self {
        Self { key, value: ArgValue::Triple(value) }
    }
}

/// Identifies a list of arguments by its keys. In one timeline, lists with the same number (below
/// [`KeysId::MOST`]) have the same keys in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysId(pub u8);

impl KeysId {
    /// Numbers from this limit on are ignored.
    pub const MOST: u8 = 64;
}

/// Identifies a text, or a list of texts, in a row. In one timeline, slices of the same row with
/// the same number have the same texts, and so have counters. So a writer with its own table of
/// texts can remember, by this number, where a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextId(pub u32);

impl TextId {
    /// Numbers from this limit on are ignored.
    pub const MOST: u32 = 1 << 12;

    /// Returns the number as an index, if it is not too high.
    pub(crate) fn index(self) -> Option<usize> {
        (self.0 < Self::MOST).then_some(self.0 as usize)
    }
}

/// A piece of work with a start and a duration.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    pub row: Row<'a>,
    /// The kind of activity, in the vocabulary of the output.
    pub category: &'a str,
    pub name: &'a str,
    pub start_ns: i64,
    pub duration_ns: u64,
    pub args: &'a [Arg<'a>],
    /// Identifies the keys of the arguments.
    pub shape: Option<KeysId>,
    /// Identifies the category and name in the row.
    pub label: Option<TextId>,
    /// The ends of arrows at the slice's start.
    pub flows: &'a [Flow<'a>],
    /// Points of time series at the slice's start, in its row. The list of series of a point may be
    /// empty.
    pub counters: &'a [SeriesPoint<'a>],
}

/// An end of an arrow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    pub kind: &'a FlowKind,
    /// Both ends have the same id.
    pub id: u64,
    pub end: FlowEnd,
}

/// Which end of an arrow a [`Flow`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    Start,
    Finish,
}

/// A moment with a name.
#[derive(Clone, Copy, Debug)]
pub struct Instant<'a> {
    pub row: Row<'a>,
    pub category: &'a str,
    pub name: &'a str,
    pub at_ns: i64,
    pub args: &'a [Arg<'a>],
    /// The arrows that begin or end here.
    pub flows: &'a [Flow<'a>],
}

/// A point of the time series of a counter.
#[derive(Clone, Copy, Debug)]
pub struct SeriesPoint<'a> {
    pub row: Row<'a>,
    pub category: &'a str,
    /// The name of the counter to which the series belong.
    pub name: &'a str,
    pub at_ns: i64,
    /// Name and value of each series. A value that is not known is left out.
    pub series: &'a [Arg<'a>],
    /// Identifies, in the row, the counter's name with the names of its series.
    pub label: Option<TextId>,
    /// Name and unit of each series. A series without a known unit has an empty unit, or is missing
    /// in this list.
    pub units: &'a [(&'a str, &'a str)],
}

/// Receives a timeline. A row is usually named before its first event. The activities of a row come
/// in the order of their starts if the profile or trace has them in this order.
pub trait TimelineSink {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()>;
    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()>;
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()>;
    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()>;
}
