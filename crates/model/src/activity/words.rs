//! Defines further types for a timeline: devices, streams, flows, correlation ids and metadata
//! values.

use std::fmt;

/// The number of a device, which the producer of the activity chose; −1 if there is no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub i64);

/// The number of a stream or queue of a device, which the producer of the activity chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub i64);

/// Links a request of the host to the work that a device does for this request. All 64 bits are
/// significant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CorrelationId(pub u64);

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The kind of a flow, which is an arrow from one activity to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// From an operator's forward call to its backward call.
    ForwardBackward,
    /// From a call on the host to the work that it started on a device.
    HostToDevice,
    /// Another flow, with the name that its producer gave it.
    Named(String),
}

impl FlowKind {
    /// Returns the kind of flow with this name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "fwdbwd" => Self::ForwardBackward,
            "ac2g" => Self::HostToDevice,
            other => Self::Named(other.to_owned()),
        }
    }

    /// Returns the name that viewers show: Kineto's name or, for `Named`, the producer's.
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
