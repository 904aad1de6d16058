//! Kinds of events.

use std::fmt;

/// A kind of events: published, or declared by the plugin ([`crate::Profiler::OWN_KINDS`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(u32);

/// Marks a kind that the plugin declared. Such a kind has an index instead of the host's number,
/// because the host gives the number only when it loads the plugin.
const OWN: u32 = 1 << 31;

macro_rules! kinds {
    ($( $(#[$doc:meta])* $name:ident $number:literal; )*) => {
        impl Kind {
            $( $(#[$doc])* pub const $name: Self = Self($number); )*
        }
    };
}

kinds! {
    /// An op, on the CPU.
    CPU_OP 1;
    /// A range that the program marked, on the CPU.
    USER_ANNOTATION 2;
    /// A range that the program marked, on the device.
    GPU_USER_ANNOTATION 3;
    /// A copy, on the device.
    MEMCPY 4;
    /// A fill, on the device.
    MEMSET 5;
    /// A kernel, on the device.
    KERNEL 6;
    /// An entry that relates a correlation id to the id of an op.
    EXTERNAL_CORRELATION 7;
    /// A call of a runtime library, on the CPU. The published name mentions one vendor, but the
    /// meaning is general.
    RUNTIME 8;
    /// A call of a driver, on the CPU.
    DRIVER 9;
    /// An event without a duration, on the CPU.
    INSTANT 10;
    /// A function of Python.
    PYTHON_FUNCTION 11;
    /// Time that profiling takes.
    OVERHEAD 12;
    /// Waiting for the device.
    SYNC 16;
    /// A range of work, with values of the device's counters.
    PROFILER_RANGE 18;
    /// A collective operation.
    COLLECTIVE 21;
    /// Values of counters. [`crate::Trace::counter`] makes these.
    COUNTER 22;
    /// A call of the runtime of a device that PyTorch calls PrivateUse1.
    PRIVATEUSE1_RUNTIME 23;
    /// A call of the driver of a device that PyTorch calls PrivateUse1.
    PRIVATEUSE1_DRIVER 24;
}

impl Kind {
    /// Returns the kind at this index of [`crate::Profiler::OWN_KINDS`].
    pub const fn own(index: usize) -> Self {
        Self(OWN | index as u32)
    }

    /// Returns the kind with this number: a published one, or one that a host has given.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the index in [`crate::Profiler::OWN_KINDS`], if the plugin declared the kind.
    pub(crate) fn own_index(self) -> Option<usize> {
        (self.0 & OWN != 0).then_some((self.0 & !OWN) as usize)
    }

    /// Returns the kind's published number; meaningless for a kind that the plugin declared.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.own_index(), abi::kineto::event_type(self.0)) {
            (Some(index), _) => write!(f, "own kind {index}"),
            (None, Some(known)) => f.write_str(known.name),
            (None, None) => write!(f, "kind {}", self.0),
        }
    }
}
