//! A counter after its name was resolved: everything that is needed to open it, nothing that a
//! person typed still to be parsed.
//!
//! `cli` builds [`Counter`]s with the name parser of `counters`; they travel in the run file;
//! the agent opens them. Counters of one `group` are opened as one kernel group and read
//! together, so only they may be divided by one another.

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
}

impl Unit {
    /// The unit with this number in a run file, or `None` if this version knows no such unit.
    pub fn from_u8(n: u8) -> Option<Self> {
        Some(match n {
            0 => Self::Count,
            1 => Self::Nanoseconds,
            2 => Self::Bytes,
            3 => Self::Cycles,
            _ => return None,
        })
    }

    /// The word used in schemas: `count`, `ns`, `bytes`, `cycles`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Nanoseconds => "ns",
            Self::Bytes => "bytes",
            Self::Cycles => "cycles",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One resolved counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name as views show it: what was typed, modifiers included (`page-faults:u`).
    pub name: String,
    /// The unit of its values.
    pub unit: Unit,
    /// Which group of the run it belongs to, from 0. Counters of a group are neighbours in the
    /// run's list, and all have the same kind of [`Source`].
    pub group: u16,
    /// Where its values come from.
    pub source: Source,
}

/// Where a counter's values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The kernel's `perf_event_open`.
    Perf(PerfAttr),
    /// Values written down beforehand: for tests of everything behind the reading.
    Sim(SimScript),
}

/// The part of the kernel's `struct perf_event_attr` that names a counting (not sampling)
/// counter; see perf_event_open(2) for each field. Read format, size and enabling are the
/// business of whoever opens it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PerfAttr {
    /// PMU type: `PERF_TYPE_*` or the number in sysfs `…/devices/<pmu>/type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`, also `bp_addr`.
    pub config1: u64,
    /// `config2`, also `bp_len`.
    pub config2: u64,
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
    /// `precise_ip`, 0 to 3.
    pub precise_ip: u8,
    /// `pinned`: legal on a group's leader only.
    pub pinned: bool,
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
