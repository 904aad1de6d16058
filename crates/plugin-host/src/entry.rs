//! Defines an event of a trace in the form that trace files have, for profilers that write whole
//! traces, such as PyTorch's profiler.

/// The id of a process or of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    /// A number; for real processes and threads, it is the number of the operating system.
    Number(i64),
    /// A text, which Kineto uses for rows of its own.
    Text(&'a [u8]),
}

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A text, which may have any bytes.
    Text(&'a [u8]),
    /// The text of one JSON value. Nobody has checked yet whether it is JSON.
    Json(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The argument's name.
    pub key: &'a [u8],
    pub value: Value<'a>,
}

/// One event. Fields that events of this phase do not have are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The kind of the event: `X` a slice, `i` a moment, `C` values of a counter, `M` a fact about
    /// a row, `s` and `f` the ends of an arrow.
    pub phase: u8,
    pub name: &'a [u8],
    pub category: Option<&'a [u8]>,
    pub process: Id<'a>,
    pub thread: Id<'a>,
    /// Time at which the event happened or began, ns since 1970 UTC.
    pub time_ns: i64,
    /// Duration of a slice, ns.
    pub duration_ns: Option<u64>,
    /// Id of an arrow, which is the same at both ends.
    pub id: Option<i64>,
    /// Scope of a moment: `t` its thread, `p` its process, `g` everything.
    pub scope: Option<u8>,
    pub arguments: &'a [Argument<'a>],
}
