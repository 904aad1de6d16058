//! Defines further terms of a timeline: devices, streams, flows, correlation ids and metadata
//! values.

use std::fmt;

/// A device, numbered by its producer; −1 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub i64);

/// A stream or queue of a device, numbered by its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub i64);

/// Links a request of the host to a device's work for it. All 64 bits are significant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CorrelationId(pub u64);

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The meaning of an arrow from one activity to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// From an operator's forward call to its backward call.
    ForwardBackward,
    /// From a call on the host to the work that it started on a device.
    HostToDevice,
    /// Another flow, with its producer's name.
    Named(String),
}

impl FlowKind {
    /// Returns the flow with this name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "fwdbwd" => Self::ForwardBackward,
            "ac2g" => Self::HostToDevice,
            other => Self::Named(other.to_owned()),
        }
    }

    /// Returns Kineto's name, which viewers show.
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
    /// JSON's `null`: the key is there, but has no value.
    Null,
    /// A Boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    Text(&'a str),
    /// Valid JSON: a list or an object.
    Json(&'a str),
}
