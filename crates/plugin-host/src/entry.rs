//! An event of a trace as trace files have it, for profilers that write whole traces: PyTorch's.

/// The id of a process or of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    /// A number; the operating system's for real processes and threads.
    Number(i64),
    /// A text, as Kineto has for rows of its own.
    Text(&'a [u8]),
}

/// The value of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Integer(i64),
    /// An integer without a sign.
    Unsigned(u64),
    /// A text: any bytes.
    Text(&'a [u8]),
    /// One JSON value, which was not checked yet.
    Json(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The argument's name.
    pub key: &'a [u8],
    pub value: Value<'a>,
}

/// One event. Fields that an event of its phase does not have are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What the event is: `X` a slice, `i` a moment, `C` values of a counter, `M` about a row, `s` and `f`
    /// the ends of an arrow.
    pub phase: u8,
    pub name: &'a [u8],
    pub category: Option<&'a [u8]>,
    pub process: Id<'a>,
    pub thread: Id<'a>,
    /// When the event happened or began, ns since 1970 UTC.
    pub time_ns: i64,
    /// How long a slice took, ns.
    pub duration_ns: Option<u64>,
    /// The number of an arrow.
    pub id: Option<i64>,
    /// How far a moment reaches: `t` its thread, `p` its process, `g` everything.
    pub scope: Option<u8>,
    pub arguments: &'a [Argument<'a>],
}
