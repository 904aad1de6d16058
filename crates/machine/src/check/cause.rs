//! The causes of a [`Problem`](super::Problem), with the facts that advice needs. The command line
//! gives the advice (`crates/cli/src/advice`).

/// Why a counter or a set of counters does not work. The enum is exhaustive, so that the compiler
/// reports a variant without advice in the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The cause has no variant of its own, so only the problem's message describes it.
    Unknown,
    /// The counter counts only the kernel's work, but has a modifier that leaves out the kernel.
    AlwaysZero,
    /// The machine cannot count all of these counters at once.
    TooMany {
        /// Names of counters that can be counted at once.
        fits: Vec<String>,
        /// Names of counters that cannot be counted together with `fits`.
        refused: Vec<String>,
        /// Whether the kernel can let the counters take turns. Breakpoints cannot.
        can_take_turns: bool,
    },
    /// The counters fit the PMU, but something else uses it for part of the time.
    SharedPmu,
    /// The counters open, but the PMU never counts them.
    NeverScheduled,
    /// The counters open, but reading them fails.
    Unreadable,
    /// A seccomp filter does not let `perf_event_open` reach the kernel.
    Filtered,
    /// There is no PMU, so no hardware counter works.
    NoPmu {
        /// Whether this is a virtual machine, whose hypervisor could give it a PMU.
        is_virtual: bool,
    },
    /// The PMU or the kernel does not have this counter.
    NoSuchCounter,
    /// Counting in the kernel is forbidden.
    KernelForbidden {
        /// The name of the counter in user mode only, which works.
        user_only: String,
    },
    /// This user may not open the counter.
    Forbidden {
        /// The highest `perf_event_paranoid` at which every user may open the counter. `None` if
        /// the user needs CAP_PERFMON.
        paranoid: Option<i32>,
    },
    /// The kernel is built without perf.
    NoPerf,
    /// This process has as many open descriptors as its limit allows.
    ProcessDescriptors,
    /// The system has as many open descriptors as its limit allows.
    SystemDescriptors,
    /// All hardware breakpoints are in use.
    BreakpointsInUse,
    /// Another process has exclusive use of the PMU.
    ExclusivePmu,
    /// The kernel rejects the filter of a tracepoint.
    BadFilter,
    /// The kernel rejects the counter with these modifiers, or at this address.
    BadModifiers,
    /// The kernel cannot put a probe on this instruction.
    NotProbeable,
}
