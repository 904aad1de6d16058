//! The limits of counting and recording, with the facts that advice needs. The command line gives
//! the advice (`crates/cli/src/advice`).

use crate::check::Cause;

/// The reason why a finding is a note or a problem. The enum is exhaustive, so that the compiler
/// reports a variant without advice in the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The kernel is older than the recorder needs.
    OldKernel,
    /// The kernel is built without perf.
    NoPerf,
    /// The processor's PMU is not visible.
    NoPmu {
        /// Whether this is a virtual machine, whose hypervisor could give it a PMU.
        is_virtual: bool,
    },
    /// The NMI watchdog uses a hardware counter.
    NmiWatchdog,
    /// The sysfs file `rdpmc` of an x86 PMU contains 0, so that programs cannot read counters in
    /// user mode.
    NoRdpmc {
        /// The file in sysfs, without its leading slash.
        file: String,
    },
    /// `perf_user_access` of an Arm kernel is 0.
    NoUserAccess,
    /// `perf_event_paranoid` cannot be read.
    ParanoidUnknown,
    /// `perf_event_paranoid` forbids every counter.
    NothingAllowed,
    /// `perf_event_paranoid` forbids counting in the kernel.
    KernelForbidden,
    /// The process has its capabilities only in a user namespace, where the kernel ignores them.
    NamespaceCapabilities,
    /// A seccomp filter is active, and it forbids or may forbid counting.
    Filter {
        /// Whether counting was tried and the filter does forbid it.
        forbids: bool,
    },
    /// This is a container, whose limits may forbid counting.
    Container,
    /// The simplest software counters do not work.
    NoCounting(Cause),
    /// The time-stamp counter changes its rate.
    VariableClock {
        /// Whether this is a virtual machine, whose hypervisor could give it a constant clock.
        is_virtual: bool,
    },
    /// The kernel does not use the time-stamp counter, although its rate is constant.
    DistrustedClock,
    /// There is no `/dev/shm`.
    NoSharedMemory,
    /// `/dev/shm` is nearly full.
    LittleSharedMemory,
    /// The limit of open descriptors is too low for counters in many threads.
    FewDescriptors,
    /// The size of files is limited.
    FileSize,
    /// The limits on locked memory are too low to map the counters of many threads for reading in
    /// user mode.
    LittleLockedMemory,
    /// The files of tracefs are closed to this user.
    ClosedTracefs,
    /// tracefs is not mounted.
    NoTracefs,
    /// glibc is older than the agent's library needs.
    OldGlibc,
    /// The agent's library is not where the program looks for it.
    NoAgent,
}
