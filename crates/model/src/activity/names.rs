//! Lists the published names of activity kinds.
//!
//! Sources: two pull requests of pytorch/kineto, one that made the list generic (#1212, commit
//! 93105fe) and one that added dynamic plugins (#1148, commit 92fa2ff), and Kineto's main branch
//! (commit 114171d, which torch 2.15 ships).

use super::Generic;

/// One published list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Published {
    /// The list of pull request #1212, which made the kinds generic.
    Pr1212,
    /// The list of pull request #1148, which added dynamic plugins.
    Pr1148,
    /// The list of the main branch, as shipped in torch 2.15.
    Main,
}

/// Bits of `Row::lists`: the lists ([`Published`]) that contain the row's name.
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 4;
const ALL: u8 = A | B | C;

pub(super) struct Row {
    pub name: &'static str,
    pub kind: Generic,
    lists: u8,
}

const fn row(name: &'static str, kind: Generic, lists: u8) -> Row {
    Row { name, kind, lists }
}

/// The generic names come first, in the order of their numbers. The [`super::Label`] of a name in
/// this table is the index of its row, so append new rows and never reorder.
pub(super) const ROWS: &[Row] = &[
    row("cpu_op", Generic::CpuOp, ALL),
    row("user_annotation", Generic::UserAnnotation, ALL),
    row("gpu_user_annotation", Generic::GpuUserAnnotation, ALL),
    row("memcpy", Generic::Memcpy, 0),
    row("memset", Generic::Memset, 0),
    row("kernel", Generic::Kernel, ALL),
    row("external_correlation", Generic::ExternalCorrelation, ALL),
    row("runtime", Generic::Runtime, A),
    row("driver", Generic::Driver, A),
    row("cpu_instant", Generic::CpuInstant, 0),
    row("python_function", Generic::PythonFunction, ALL),
    row("overhead", Generic::Overhead, ALL),
    row("sync", Generic::Sync, 0),
    row("device_event", Generic::DeviceEvent, 0),
    row("collective", Generic::Collective, 0),
    row("insight", Generic::Insight, 0),
    row("counter", Generic::Counter, 0),
    row("gpu_memcpy", Generic::Memcpy, ALL),
    row("gpu_memset", Generic::Memset, ALL),
    // In all three lists, the constant CONCURRENT_KERNEL has the text `kernel`. So both `kernel`
    // and `concurrent_kernel` have all bits.
    row("concurrent_kernel", Generic::Kernel, ALL),
    row("cuda_runtime", Generic::Runtime, ALL),
    row("cuda_driver", Generic::Driver, ALL),
    row("cpu_instant_event", Generic::CpuInstant, ALL),
    row("mtia_runtime", Generic::Runtime, ALL),
    row("mtia_ccp_events", Generic::Kernel, ALL),
    row("mtia_insight", Generic::Insight, ALL),
    row("cuda_sync", Generic::Sync, ALL),
    row("cuda_event", Generic::DeviceEvent, A | C),
    row("mtia_counters", Generic::Counter, C),
    row("glow_runtime", Generic::Runtime, ALL),
    // The activities of `cuda_profiler_range` are ranges of kernels that CUPTI measured, so they
    // are on a device.
    row("cuda_profiler_range", Generic::DeviceEvent, ALL),
    row("hpu_op", Generic::Runtime, ALL),
    row("xpu_runtime", Generic::Runtime, ALL),
    row("xpu_driver", Generic::Driver, C),
    row("collective_comm", Generic::Collective, ALL),
    row("gpu_pm_counter", Generic::Counter, A | B),
    row("privateuse1_runtime", Generic::Runtime, ALL),
    row("privateuse1_driver", Generic::Driver, ALL),
    row("xpu_scope_profiler", Generic::Counter, C),
    row("xpu_sync", Generic::Sync, C),
    row("hardware_counters", Generic::Counter, C),
];

/// Returns the names of one list.
pub fn names(of: Published) -> impl Iterator<Item = &'static str> {
    let bit = match of {
        Published::Pr1212 => A,
        Published::Pr1148 => B,
        Published::Main => C,
    };
    ROWS.iter().filter(move |row| row.lists & bit != 0).map(|row| row.name)
}

/// The set of kinds that a profiler records by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultSet {
    /// Pull request #1212: all kinds except counters and collectives.
    #[default]
    Generic,
    /// Pull request #1148: the kinds of the first seventeen names in its list.
    Pr1148,
    /// The main branch, whose set includes MTIA's counters: all kinds except collectives.
    Main,
}

impl DefaultSet {
    /// Returns the generic kinds of the set, in the order of their numbers.
    pub fn kinds(self) -> impl Iterator<Item = Generic> {
        Generic::ALL.iter().copied().filter(move |kind| match kind {
            Generic::Collective => false,
            Generic::Counter => self == Self::Main,
            Generic::DeviceEvent => self != Self::Pr1148,
            _ => true,
        })
    }
}
