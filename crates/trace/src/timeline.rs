//! Defines the parts of a timeline, and the trait that receives one. All moments are nanoseconds
//! since 1970-01-01 UTC. All names are written as their producer wrote them.

use std::io;

use model::activity::{FlowKind, Value};

/// A number or a text that identifies a process or a thread. Traces have both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id<'a> {
    /// A process or thread id, or a device's number.
    Number(i64),
    /// The text of a made-up row.
    Text(&'a str),
}

/// A row of the timeline, in which viewers draw slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row<'a> {
    /// The process, or the number or text that represents a device.
    pub process: Id<'a>,
    /// The thread in the row, or the number or text that represents a stream.
    pub thread: Id<'a>,
}

/// Names the rows of a process or device.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow<'a> {
    /// The process or device.
    pub id: Id<'a>,
    /// The process's name in viewers.
    pub name: &'a str,
    /// More text about the row: `CPU`, or the device.
    pub labels: &'a str,
    /// The number by which viewers sort, smallest first.
    pub sort_index: i64,
    /// The moment from which the name holds.
    pub at_ns: i64,
}

/// Names the row of a thread or stream.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow<'a> {
    pub row: Row<'a>,
    /// The thread's name in viewers.
    pub name: &'a str,
    /// The number by which viewers sort, smallest first.
    pub sort_index: i64,
    /// The moment from which the name holds.
    pub at_ns: i64,
}

/// One argument of a slice, or one series of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arg<'a> {
    /// The argument's name.
    pub key: &'a str,
    /// The argument's value.
    pub value: ArgValue<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgValue<'a> {
    Plain(Value<'a>),
    /// Three numbers: x, y, z.
    Triple([u32; 3]),
}

impl<'a> Arg<'a> {
    /// Creates an argument with an unsigned number.
    pub fn uint(key: &'a str, value: u64) -> Self {
        Self { key, value: ArgValue::Plain(Value::Uint(value)) }
    }

    /// Creates an argument with a text.
    pub fn text(key: &'a str, value: &'a str) -> Self {
        Self { key, value: ArgValue::Plain(Value::Text(value)) }
    }

    /// Creates an argument with x, y and z.
    pub fn triple(key: &'a str, value: [u32; 3]) -> Self {
        Self { key, value: ArgValue::Triple(value) }
    }
}

/// Identifies a list of arguments by its keys: while a timeline is written, all lists with the same
/// number (below [`KeysId::MOST`]) have the same keys in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysId(pub u8);

impl KeysId {
    /// The number of possible shapes.
    pub const MOST: u8 = 64;
}

/// Identifies a text, or a list of texts, of a row: while a timeline is written, the same number in
/// the same row means the same texts. Writers that number texts themselves then need not search for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextId(pub u32);

impl TextId {
    /// The limit of the numbers that are used; higher numbers are ignored.
    pub const MOST: u32 = 1 << 12;

    /// Returns the number as an index; `None` if it is too high.
    pub(crate) fn index(self) -> Option<usize> {
        (self.0 < Self::MOST).then_some(self.0 as usize)
    }
}

/// Work with a start and an end.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    pub row: Row<'a>,
    /// The kind of activity, in the vocabulary of the output.
    pub category: &'a str,
    pub name: &'a str,
    /// The start of the slice.
    pub start_ns: i64,
    pub duration_ns: u64,
    /// The slice's arguments.
    pub args: &'a [Arg<'a>],
    /// Identifies the keys of the slice's arguments, for writers that remember them.
    pub shape: Option<KeysId>,
    /// Identifies the slice's category and name among the slices of its row.
    pub label: Option<TextId>,
    /// The arrows that begin or end at the slice's start.
    pub flows: &'a [Flow<'a>],
    /// Points of time series at the slice's start, in its row. A point may have no series.
    pub counters: &'a [SeriesPoint<'a>],
}

/// An end of an arrow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// The meaning of the arrow.
    pub kind: &'a FlowKind,
    /// Both ends of an arrow have the same id.
    pub id: u64,
    pub end: FlowEnd,
}

/// The end of an arrow that a [`Flow`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// The arrow starts here.
    Start,
    /// The arrow points here.
    Finish,
}

/// A moment with a name.
#[derive(Clone, Copy, Debug)]
pub struct Instant<'a> {
    pub row: Row<'a>,
    /// The kind of activity.
    pub category: &'a str,
    pub name: &'a str,
    /// The moment.
    pub at_ns: i64,
    /// The instant's arguments.
    pub args: &'a [Arg<'a>],
    /// The arrows that begin or end here.
    pub flows: &'a [Flow<'a>],
}

/// A point of one or more time series.
#[derive(Clone, Copy, Debug)]
pub struct SeriesPoint<'a> {
    pub row: Row<'a>,
    /// The kind of activity.
    pub category: &'a str,
    /// The name that the series have in common.
    pub name: &'a str,
    /// The moment.
    pub at_ns: i64,
    /// Name and value of each series. A series without a known value at this point is left out.
    pub series: &'a [Arg<'a>],
    /// Identifies the counter's name and its series' names among the counters of its row.
    pub label: Option<TextId>,
    /// The unit of each series, by the series' name. A unit that is unknown is left out or empty.
    pub units: &'a [(&'a str, &'a str)],
}

/// Receives a timeline. Rows are named before the first event in them. Activities of one row come
/// in the order of their starts if their source has that order.
pub trait TimelineSink {
    /// Names a process or device.
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()>;
    /// Names a thread or stream.
    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()>;
    /// Receives a slice.
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    /// Receives a moment.
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()>;
    /// Receives a point of a time series.
    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()>;
}
