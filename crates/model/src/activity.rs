//! Defines activities: timed work on devices and in runtimes, independent of a vendor.
//!
//! ```text
//!  a name in a trace or a configuration        what it means        what it was called
//!  "cuda_runtime", "runtime", …  ── parse ──►  Label ── kind() ──►  Kind::Generic(Runtime)
//!                                                └──── name() ────►  "cuda_runtime"
//! ```
//!
//! A [`Kind`] is one of a fixed list of generic kinds, or is registered at run time. A [`Label`] is
//! the name that an activity came with. The label keeps the original name, so that output can use
//! either [`Vocabulary`].
//!
//! | module | content |
//! |---|---|
//! | [`names`] | the published names: the kind that each means, and where it was published |
//! | [`registry`] | kinds and names that are added at run time |
//! | [`words`] | devices, streams, flows, correlation ids, metadata values |

pub mod names;
pub mod registry;
pub mod words;

use std::fmt;

pub use names::{DefaultSet, Published};
pub use registry::{Label, Producer, RegisterError, Registry, UnknownKind};
pub use words::{CorrelationId, DeviceId, FlowKind, StreamId, Value};

/// The kind of work that an activity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A kind that all producers (plugins, importers of traces) share.
    Generic(Generic),
    /// A kind that was registered at run time: `producer << 16 | number`, see [`Registry`].
    Registered(u32),
}

crate::numbered! {
    /// The generic kinds. The numbers are part of the file format: append new kinds, and never
    /// reorder.
    #[non_exhaustive]
    pub enum Generic {
        /// An operator call of a framework, on the host.
        CpuOp = 0 "cpu_op",
        /// A section of the program that a person named, on the host.
        UserAnnotation = 1 "user_annotation",
        /// A section of the program that a person named, with the times of its work on the device.
        GpuUserAnnotation = 2 "gpu_user_annotation",
        /// A copy of data from or to a device.
        Memcpy = 3 "memcpy",
        /// A fill of device memory.
        Memset = 4 "memset",
        /// A compiled function that a device ran.
        Kernel = 5 "kernel",
        /// A link from a host operator to the activities that it caused.
        ExternalCorrelation = 6 "external_correlation",
        /// A call of an accelerator's runtime library, on the host.
        Runtime = 7 "runtime",
        /// A call of an accelerator's driver, on the host.
        Driver = 8 "driver",
        /// A point in time on the host, without a duration.
        CpuInstant = 9 "cpu_instant",
        /// A call of a function in Python.
        PythonFunction = 10 "python_function",
        /// Time that measuring itself took.
        Overhead = 11 "overhead",
        /// A wait for a device or a stream.
        Sync = 12 "sync",
        /// A marker or range on a device.
        DeviceEvent = 13 "device_event",
        /// Communication among ranks.
        Collective = 14 "collective",
        /// A conclusion that a tool drew from other activities.
        Insight = 15 "insight",
        /// A point of a time series.
        Counter = 16 "counter",
    }
}

impl Generic {
    /// Returns the name that readers of Kineto's traces probably expect for this kind.
    pub fn kineto_name(self) -> &'static str {
        match self {
            Self::Memcpy => "gpu_memcpy",
            Self::Memset => "gpu_memset",
            Self::Runtime => "cuda_runtime",
            Self::Driver => "cuda_driver",
            Self::CpuInstant => "cpu_instant_event",
            Self::Sync => "cuda_sync",
            Self::DeviceEvent => "cuda_event",
            Self::Collective => "collective_comm",
            Self::Insight => "mtia_insight",
            Self::Counter => "gpu_pm_counter",
            _ => self.name(),
        }
    }

    /// Whether activities of this kind run on a device rather than on the host.
    pub fn on_device(self) -> bool {
        matches!(
            self,
            Self::GpuUserAnnotation
                | Self::Memcpy
                | Self::Memset
                | Self::Kernel
                | Self::DeviceEvent
        )
    }
}

impl fmt::Display for Generic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Generic> for Kind {
    fn from(generic: Generic) -> Self {
        Self::Generic(generic)
    }
}

/// The set of names that an output uses for kinds of activities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    /// [`Generic::name`]: one name per kind.
    Generic,
    /// The name with which the activity was recorded. A generic name is replaced by
    /// [`Generic::kineto_name`]. Tools that look for `cuda_runtime` need this vocabulary.
    #[default]
    Kineto,
}
