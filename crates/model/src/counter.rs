//! A counter after its name was resolved: everything that is needed to open it, nothing that a
//! person typed still to be parsed.
//!
//! `cli` builds [`Counter`]s with the name parser of `counters`; they travel in the run file;
//! the agent opens them. Counters of one `group` are opened as one kernel group and read
//! together, so only they may be divided by one another.

use std::ffi::CString;
use std::fmt;

/// The most counters that one run can record: what one bit mask per page can name, and a bound
/// for the fixed buffers of the hot path.
pub const MAX_COUNTERS: usize = 32;

/// What a counter's value is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unit {
    /// Plain occurrences.
    Count = 0,
    /// Nanoseconds.
    Nanoseconds = 1,
    /// Bytes.
    Bytes = 2,
    /// Processor cycles.
    Cycles = 3,
    /// Joules.
    Joules = 4,
    /// Something that this version has no word for.
    Other = 5,
}

impl Unit {
    /// The unit with this number in a run file, or `None` if this version knows no such unit.
    pub fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Count,
            1 => Self::Nanoseconds,
            2 => Self::Bytes,
            3 => Self::Cycles,
            4 => Self::Joules,
            5 => Self::Other,
            _ => return None,
        })
    }

    /// The word used in schemas: `count`, `ns`, `bytes`, `cycles`, `J`, `other`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Nanoseconds => "ns",
            Self::Bytes => "bytes",
            Self::Cycles => "cycles",
            Self::Joules => "J",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one step of a raw value is worth in the counter's [`Unit`]: finite and above 0. Records
/// keep raw values; whoever shows them multiplies.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Scale(f64);

// A scale is never NaN.
impl Eq for Scale {}

impl Scale {
    /// Raw values are in the unit already.
    pub const ONE: Self = Self(1.0);

    /// `None` if it is not finite and above 0.
    pub fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor > 0.0).then_some(Self(factor))
    }

    /// The factor.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Scale {
    fn default() -> Self {
        Self::ONE
    }
}

/// Whose occurrences a counter can count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// One thread's (or a processor's, if opened so).
    #[default]
    Thread,
    /// Those of a package, a die, a memory controller …: it opens only for every thread (pid −1),
    /// once on each of these processors (`cpumask` of its PMU), and the values add up. Never
    /// opened by the agent.
    Cpus(Vec<u32>),
}

impl Scope {
    /// Whether a thread can be counted.
    pub fn is_thread(&self) -> bool {
        *self == Self::Thread
    }
}

/// One resolved counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name as views show it: what was typed, modifiers included (`page-faults:u`).
    pub name: String,
    /// The unit of its values, once multiplied by `scale`.
    pub unit: Unit,
    /// One step of a raw value, in `unit`.
    pub scale: Scale,
    /// Whose occurrences it counts.
    pub scope: Scope,
    /// Which group of the run it belongs to, from 0. Counters of a group are neighbours in the
    /// run's list, and all have the same kind of [`Source`].
    pub group: u16,
    /// Where its values come from.
    pub source: Source,
}

impl Counter {
    /// Of threads, its raw values in `unit`.
    pub fn new(name: impl Into<String>, unit: Unit, group: u16, source: Source) -> Self {
        let (scale, scope) = (Scale::ONE, Scope::Thread);
        Self { name: name.into(), unit, scale, scope, group, source }
    }
}

/// Where a counter's values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's `perf_event_open`.
    Perf(PerfAttr),
    /// Values written down beforehand: for tests of everything after the reading.
    Sim(SimScript),
}

/// The part of the kernel's `struct perf_event_attr` that names a counting (not sampling)
/// counter; see perf_event_open(2) for each field. Read format, size and enabling are the
/// business of whoever opens it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerfAttr {
    /// PMU type: `PERF_TYPE_*` or the number in sysfs `…/devices/<pmu>/type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`, also `bp_addr`. Unused where there is a `path`.
    pub config1: u64,
    /// `config2`, also `bp_len`, and the offset in the file of a uprobe.
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
    /// `pinned`: legal on a group's leader only.
    pub pinned: bool,
    /// `exclusive`: legal on a group's leader only.
    pub exclusive: bool,
    /// Of a uprobe: the file that is probed. The kernel takes its address in `config1`.
    pub path: Option<CString>,
    /// Of a tracepoint: the condition, in the kernel's filter language
    /// (Documentation/trace/events.rst). Set once the counter is open: what it counted before
    /// its first reading is not filtered.
    pub filter: Option<CString>,
}

/// The readings of a simulated counter, in the order in which one thread takes them: reading 0
/// is the first begin of that thread, reading 1 its first end, and so on. After the last one
/// the script starts over, with the values continuing from where they stood (so a script of
/// `0,5` counts 5 in every call).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimScript {
    /// What each reading *adds* to the counter.
    pub readings: Vec<SimReading>,
}

/// One scripted step. See [`SimScript`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimReading {
    /// Added to the value, wrapping at 2⁶⁴ as the kernel's 64-bit counts would.
    pub add: u64,
    /// Added to the group's time enabled, in ns.
    pub enabled: u64,
    /// Added to the group's time running, in ns: less than `enabled` imitates multiplexing.
    pub running: u64,
    /// The reading fails, as a counter in error state does.
    pub fails: bool,
}
