//! What a timeline consists of, and what takes it. All moments are nanoseconds since 1970-01-01
//! UTC, all names whatever their producer called them.

use std::io;

use model::activity::{FlowKind, Value};

/// A number or a text that names a process or a thread: traces have both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id<'a> {
    /// A process or thread id, a device's number.
    Number(i64),
    /// A made-up row.
    Text(&'a str),
}

/// A row of the timeline: what viewers draw slices in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row<'a> {
    /// The process, or what stands for a device.
    pub process: Id<'a>,
    /// The thread in it, or what stands for a stream.
    pub thread: Id<'a>,
}

/// Names the rows of a process or device.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow<'a> {
    /// Which.
    pub id: Id<'a>,
    /// What viewers call it.
    pub name: &'a str,
    /// More about it: `CPU`, the device.
    pub labels: &'a str,
    /// Viewers sort by it, smallest first.
    pub sort_index: i64,
    /// Since when.
    pub at_ns: i64,
}

/// Names the row of a thread or stream.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow<'a> {
    /// Which.
    pub row: Row<'a>,
    /// What viewers call it.
    pub name: &'a str,
    /// Viewers sort by it, smallest first.
    pub sort_index: i64,
    /// Since when.
    pub at_ns: i64,
}

/// One argument of a slice, or one series of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arg<'a> {
    /// What it is called.
    pub key: &'a str,
    /// Its value.
    pub value: ArgValue<'a>,
}

/// See [`Arg`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgValue<'a> {
    /// Any value.
    Plain(Value<'a>),
    /// Three numbers: x, y, z.
    Triple([u32; 3]),
}

impl<'a> Arg<'a> {
    /// An unsigned number.
    pub fn uint(key: &'a str, value: u64) -> Self {
        Self { key, value: ArgValue::Plain(Value::Uint(value)) }
    }

    /// Text.
    pub fn text(key: &'a str, value: &'a str) -> Self {
        Self { key, value: ArgValue::Plain(Value::Text(value)) }
    }

    /// x, y, z.
    pub fn triple(key: &'a str, value: [u32; 3]) -> Self {
        Self { key, value: ArgValue::Triple(value) }
    }
}

/// Names a list of arguments by its keys: all that have one number (below [`KeysId::MOST`]) have
/// the same keys in the same order, as long as a timeline is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysId(pub u8);

impl KeysId {
    /// How many there are.
    pub const MOST: u8 = 64;
}

/// Names a text, or a list of texts, of a row: what has one number in one row has the same texts, as
/// long as a timeline is written. Writers that number texts themselves then need not look them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextId(pub u32);

impl TextId {
    /// Higher numbers are as good as none.
    pub const MOST: u32 = 1 << 12;

    /// The number as an index; `None` if it is too high.
    pub(crate) fn index(self) -> Option<usize> {
        (self.0 < Self::MOST).then_some(self.0 as usize)
    }
}

/// Work with a begin and an end.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Where.
    pub row: Row<'a>,
    /// Kind of activity, in the vocabulary of the output.
    pub category: &'a str,
    /// Name.
    pub name: &'a str,
    /// Begin.
    pub start_ns: i64,
    /// Length.
    pub duration_ns: u64,
    /// What else is known.
    pub args: &'a [Arg<'a>],
    /// More arguments, as members of a JSON object: what an import needs and viewers do not.
    /// Formats that are not imported leave them out.
    pub raw: &'a str,
    /// What the keys of its arguments are, for writers that remember them.
    pub shape: Option<KeysId>,
    /// Stands for its category and name among the slices of its row.
    pub label: Option<TextId>,
    /// The arrows that begin or end at its begin.
    pub flows: &'a [Flow<'a>],
    /// Points of time series at its begin, in its row; some may have no series.
    pub counters: &'a [SeriesPoint<'a>],
}

/// An end of an arrow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// What the arrow says.
    pub kind: &'a FlowKind,
    /// Both ends of an arrow have it.
    pub id: u64,
    /// Which end.
    pub end: FlowEnd,
}

/// See [`Flow`].
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
    /// Where.
    pub row: Row<'a>,
    /// Kind of activity.
    pub category: &'a str,
    /// Name.
    pub name: &'a str,
    /// When.
    pub at_ns: i64,
    /// What else is known.
    pub args: &'a [Arg<'a>],
    /// The arrows that begin or end here.
    pub flows: &'a [Flow<'a>],
}

/// A point of one or more time series.
#[derive(Clone, Copy, Debug)]
pub struct SeriesPoint<'a> {
    /// Where.
    pub row: Row<'a>,
    /// Kind of activity.
    pub category: &'a str,
    /// What the series have in common.
    pub name: &'a str,
    /// When.
    pub at_ns: i64,
    /// Name and value of each series. A series that is not known at this point is left out.
    pub series: &'a [Arg<'a>],
    /// Stands for its name and its series' names among the counters of its row.
    pub label: Option<TextId>,
    /// The unit of each series, by the series' name, left out or empty where it is not known.
    pub units: &'a [(&'a str, &'a str)],
}

/// Takes a timeline. Rows are named before anything happens in them; activities of one row come
/// in the order of their begins as far as their source has that order.
pub trait TimelineSink {
    /// Whether what is written is imported again, and so wants [`Slice::raw`] and
    /// [`TimelineSink::fact`].
    fn is_imported(&self) -> bool {
        false
    }
    /// Takes something that viewers do not show: a name, and a JSON object.
    ///
    /// # Errors
    /// Writing failed.
    fn fact(&mut self, _: Row<'_>, _name: &str, _at_ns: i64, _args: &str) -> io::Result<()> {
        Ok(())
    }
    /// Names a process or device.
    ///
    /// # Errors
    /// Writing failed.
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()>;
    /// Names a thread or stream.
    ///
    /// # Errors
    /// Writing failed.
    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()>;
    /// Takes a slice.
    ///
    /// # Errors
    /// Writing failed.
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()>;
    /// Takes a moment.
    ///
    /// # Errors
    /// Writing failed.
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()>;
    /// Takes a point of a time series.
    ///
    /// # Errors
    /// Writing failed.
    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()>;
}
