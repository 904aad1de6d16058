//! An event as trace files have it, for profilers that write whole traces, such as PyTorch's.

/// The id of a process or of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    /// A number. Real processes and threads have the number that the operating system gave them.
    Number(i64),
    /// A text, for Kineto's own rows.
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
    /// The text of a JSON value, which was not checked.
    Json(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The argument's name.
    pub key: &'a [u8],
    pub value: Value<'a>,
}

/// One event. A field is `None` if events of this phase do not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The kind of the event: `X` is a slice, `i` a moment, `C` stands for values of a counter, `M`
    /// for a fact about a row, `s` for the start of an arrow, `f` for its end.
    pub phase: u8,
    pub name: &'a [u8],
    pub category: Option<&'a [u8]>,
    pub process: Id<'a>,
    pub thread: Id<'a>,
    /// Begin, ns since 1970 UTC.
    pub time_ns: i64,
    /// Duration of a slice, ns.
    pub duration_ns: Option<u64>,
    /// Id of an arrow, the same at both ends.
    pub id: Option<i64>,
    /// Scope of a moment, which is what the moment concerns: `t` is its thread, `p` its process, and
    /// `g` the whole trace.
    pub scope: Option<u8>,
    pub arguments: &'a [Argument<'a>],
}
