//! The other words of a timeline: where an activity happened, what it belongs to, what is known
//! of it beyond its time.

use std::fmt;

/// A device as its producer numbers it; -1 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub i64);

/// A stream or queue of a device as its producer numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub i64);

/// Joins what the host asked for with what a device did. All 64 bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CorrelationId(pub u64);

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What an arrow from one activity to another says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// From an operator's forward call to its backward call.
    ForwardBackward,
    /// From a call on the host to the work that it started on a device.
    HostToDevice,
    /// Any other, by its producer's name.
    Named(String),
}

impl FlowKind {
    /// The flow of this name; Kineto's two names mean the first two.
    pub fn from_name(name: &str) -> Self {
        match name {
            "fwdbwd" => Self::ForwardBackward,
            "ac2g" => Self::HostToDevice,
            other => Self::Named(other.to_owned()),
        }
    }

    /// Kineto's name, which viewers show.
    pub fn name(&self) -> &str {
        match self {
            Self::ForwardBackward => "fwdbwd",
            Self::HostToDevice => "ac2g",
            Self::Named(name) => name,
        }
    }
}

/// A value of an activity's metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Absent: known to be unknown.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// Not finite is absent in JSON.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// JSON, known to be valid: lists and objects.
    Json(&'a str),
}
