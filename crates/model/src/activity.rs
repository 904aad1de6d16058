//! Activities: timed work on devices and in runtimes, in words that no vendor owns.
//!
//! ```text
//!  a name in a trace or a configuration        what it means        what it was called
//!  "cuda_runtime", "runtime", …  ── parse ──►  Label ── kind() ──►  Kind::Runtime
//!                                                └──── name() ────►  "cuda_runtime"
//! ```
//!
//! A [`Kind`] is one of a fixed list of generic kinds, or registered at run time. A [`Label`] is
//! the word that an activity came with: it knows its kind and stays what it was called, so that
//! output can speak either [`Vocabulary`].
//!
//! | module | what |
//! |---|---|
//! | [`names`] | the published names: which kind each means, and where it was published |
//! | [`registry`] | kinds and names that are added at run time |
//! | [`words`] | devices, streams, flows, correlation ids, metadata values |

pub mod names;
pub mod registry;
pub mod words;

use std::fmt;

pub use names::{DefaultSet, Published};
pub use registry::{Label, Producer, RegisterError, Registry, UnknownKind};
pub use words::{CorrelationId, DeviceId, FlowKind, StreamId, Value};

/// What kind of work an activity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// One of the kinds that every producer shares.
    Generic(Generic),
    /// Registered at run time: `producer << 16 | number`, see [`Registry`].
    Registered(u32),
}

/// The generic kinds. Numbers are part of the file format: append, never reorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Generic {
    /// An operator call of a framework, on the host.
    CpuOp = 0,
    /// A stretch that a person named, on the host.
    UserAnnotation = 1,
    /// The same stretch as the device saw it.
    GpuUserAnnotation = 2,
    /// A copy, by or to a device.
    Memcpy = 3,
    /// A fill of device memory.
    Memset = 4,
    /// A compiled function that a device ran.
    Kernel = 5,
    /// Says which host operator caused other activities.
    ExternalCorrelation = 6,
    /// A call of an accelerator's runtime library, on the host.
    Runtime = 7,
    /// A call of an accelerator's driver, on the host.
    Driver = 8,
    /// A moment on the host.
    CpuInstant = 9,
    /// A function of the Python interpreter.
    PythonFunction = 10,
    /// What measuring itself took.
    Overhead = 11,
    /// Waiting for a device or a stream.
    Sync = 12,
    /// A marker or range on a device.
    DeviceEvent = 13,
    /// Communication among ranks.
    Collective = 14,
    /// What a tool concluded from other activities.
    Insight = 15,
    /// A point of a time series.
    Counter = 16,
}

macro_rules! generic {
    ($( $variant:ident $name:literal $kineto:literal; )*) => {
        impl Generic {
            /// Every generic kind, in the order of their numbers.
            pub const ALL: &'static [Generic] = &[ $( Generic::$variant, )* ];

            /// The generic name.
            pub fn name(self) -> &'static str {
                match self { $( Generic::$variant => $name, )* }
            }

            /// The name by which consumers of Kineto's traces know it best.
            pub fn kineto_name(self) -> &'static str {
                match self { $( Generic::$variant => $kineto, )* }
            }
        }
    };
}

generic! {
    CpuOp "cpu_op" "cpu_op";
    UserAnnotation "user_annotation" "user_annotation";
    GpuUserAnnotation "gpu_user_annotation" "gpu_user_annotation";
    Memcpy "memcpy" "gpu_memcpy";
    Memset "memset" "gpu_memset";
    Kernel "kernel" "kernel";
    ExternalCorrelation "external_correlation" "external_correlation";
    Runtime "runtime" "cuda_runtime";
    Driver "driver" "cuda_driver";
    CpuInstant "cpu_instant" "cpu_instant_event";
    PythonFunction "python_function" "python_function";
    Overhead "overhead" "overhead";
    Sync "sync" "cuda_sync";
    DeviceEvent "device_event" "cuda_event";
    Collective "collective" "collective_comm";
    Insight "insight" "mtia_insight";
    Counter "counter" "gpu_pm_counter";
}

impl Generic {
    /// The kind with this number, or `None` if this version knows no such kind.
    pub fn from_u8(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n)).copied()
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

/// Which names an output uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vocabulary {
    /// [`Generic::name`]: one word per kind, whoever produced it.
    Generic,
    /// The name that an activity came with; for one that came with a generic name,
    /// [`Generic::kineto_name`]. Tools that look for `cuda_runtime` need it.
    #[default]
    Kineto,
}
