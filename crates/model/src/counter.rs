//! Defines a resolved counter: its name, its unit, and the data that is needed to open it.
//!
//! The crate `names` builds [`Counter`]s from the names that people type. Counters with the same
//! `group` are read together, so a metric may combine only counters of one group.

use std::ffi::CString;
use std::fmt;

/// The maximum number of counters of a recording. So masks with one bit for each counter have 32
/// bits, and the buffers of the hot path have a fixed size.
pub const MAX_COUNTERS: usize = 32;

crate::numbered! {
    pub enum Unit {
        /// A number of occurrences.
        Count = 0 "count",
        /// Nanoseconds.
        Nanoseconds = 1 "ns",
        /// Bytes.
        Bytes = 2 "bytes",
        /// Processor cycles.
        Cycles = 3 "cycles",
        /// Joules.
        Joules = 4 "J",
        /// A unit that this version does not know.
        Other = 5 "other",
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The amount, in the counter's [`Unit`], for which one step of the raw value stands. It is finite
/// and above 0. Recordings contain raw values.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Scale(f64);

// A scale is never NaN, so it always equals itself, as `Eq` requires.
impl Eq for Scale {}

impl Scale {
    /// The scale of raw values that are already in the unit.
    pub const ONE: Self = Self(1.0);

    /// Creates a scale, if the factor is finite and above 0.
    pub fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    /// Returns the factor.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self::ONE
    }
}

/// Whether a counter counts the events of a thread, or those of some CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One thread. A counter with this scope may also be opened for a CPU, and then counts on that
    /// CPU.
    #[default]
    Thread,
    /// The CPUs on which to open a counter of a package, a die, a memory controller and so on. Such
    /// a counter can only be opened for all threads (pid −1), once on each of these CPUs (`cpumask`
    /// of its PMU). Its value is the sum over these CPUs.
    Cpus(Vec<u32>),
}

impl Scope {
    /// Whether the counter can count a single thread.
    pub fn is_thread(&self) -> bool {
        *self == Self::Thread
    }
}

/// One resolved counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name that views show: as it was typed, including modifiers (`page-faults:u`).
    pub name: String,
    /// The unit of the counter's values after multiplication by `scale`.
    pub unit: Unit,
    /// The amount, in `unit`, for which one step of the raw value stands.
    pub scale: Scale,
    /// Where occurrences are counted.
    pub scope: Scope,
    /// Number of the counter's group, from 0. Counters of a group are adjacent in the list of
    /// counters, and have the same kind of [`Source`].
    pub group: u16,
    /// Where the values come from.
    pub source: Source,
}

impl Counter {
    /// Creates a counter with the scope `Thread` and the scale 1, so its raw values are in `unit`.
    pub fn new(name: impl Into<String>, unit: Unit, group: u16, source: Source) -> Self {
        let (scale, scope) = (Scale::ONE, Scope::Thread);
        Self { name: name.into(), unit, scale, scope, group, source }
    }
}

/// The source of a counter's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's `perf_event_open`.
    Perf(PerfAttr),
    /// Scripted values, for tests of the code that processes readings.
    Sim(SimScript),
}

/// The part of the kernel's `struct perf_event_attr` that identifies a counting (not sampling)
/// counter; see perf_event_open(2) for each field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerfAttr {
    /// PMU type: `PERF_TYPE_*` or the number in sysfs `…/devices/<pmu>/type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`, also `bp_addr`. Unused if there is a `path`, because the address of the path is
    /// passed instead.
    pub config1: u64,
    /// `config2`: the length of a breakpoint (`bp_len`), or the offset of a uprobe in its file.
    pub config2: u64,
    /// `config3` (Linux 6.3).
    pub config3: u64,
    /// `bp_type` for breakpoints, 0 otherwise.
    pub bp_type: u32,
    /// `exclude_user`.
    pub exclude_user: bool,
    /// `exclude_kernel`.
    pub exclude_kernel: bool,
    /// `exclude_hv`.
    pub exclude_hv: bool,
    /// `exclude_idle`.
    pub exclude_idle: bool,
    /// `exclude_host`.
    pub exclude_host: bool,
    /// `exclude_guest`.
    pub exclude_guest: bool,
    /// `pinned`: only valid for a group's leader.
    pub pinned: bool,
    /// `exclusive`: only valid for a group's leader.
    pub exclusive: bool,
    /// The file that a uprobe probes. The address of this string is passed to the kernel in
    /// `config1`.
    pub path: Option<CString>,
    /// The condition of a tracepoint, in the kernel's filter language
    /// (Documentation/trace/events.rst). The condition is set after the counter was opened.
    pub filter: Option<CString>,
}

/// The readings of a simulated counter, in the order in which one thread takes them. Reading 0 is
/// taken at the start of the thread's first call, reading 1 at the end of this call (or at the
/// start of a call inside of it), and so on. After the last reading the script starts over, and the
/// values continue from where they were. For example, two readings that add 0 and 5 count 5 in each
/// call, if no call is inside another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimScript {
    /// The amounts that the readings *add* to the counter.
    pub readings: Vec<SimReading>,
}

/// One step of a [`SimScript`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimReading {
    /// The amount that is added to the value, wrapping at 2⁶⁴ like the kernel's 64-bit counts.
    pub add: u64,
    /// The time that is added to the group's time enabled, in ns.
    pub enabled: u64,
    /// The time that is added to the group's time running, in ns. A value below `enabled` imitates
    /// multiplexing.
    pub running: u64,
    /// Whether the reading fails, as with a counter in the error state.
    pub fails: bool,
}
