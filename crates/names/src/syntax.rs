//! A counter list as it was typed, before anything is known about what the names mean.

/// `a,b:u,{c,d}:k`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// In the order typed.
    pub entries: Vec<Entries>,
}

/// One counter, or a group in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Not in braces.
    Single(Item),
    /// `{c,d}:k`
    Group {
        /// At least one.
        items: Vec<Item>,
        /// Behind the closing brace; they apply to every item.
        modifiers: Modifiers,
    },
}

/// One counter: what, and which of its occurrences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Byte offset of its first character in the list.
    pub at: usize,
    /// What is counted.
    pub head: Head,
    /// Its own modifiers.
    pub modifiers: Modifiers,
}

/// The part of an item before its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// `page-faults`, `L1-dcache-load-misses`, `r01c2`
    Word(String),
    /// `cpu/event=0x3c,umask=0x1/`, `sim/NAME,readings=0:5/`
    Pmu {
        /// Before the first slash.
        pmu: String,
        /// Between the slashes.
        terms: Vec<Term>,
    },
    /// `syscalls:sys_enter_openat`
    Tracepoint {
        /// Before the colon.
        system: String,
        /// Behind it.
        name: String,
        /// `/filter="count > 100"/`: which of its hits count.
        filter: Option<Filter>,
    },
    /// `mem:0x401000/8:rw`
    Breakpoint {
        /// Virtual address.
        address: u64,
        /// Bytes watched.
        len: Option<u64>,
        /// What kind of access counts.
        access: Option<Access>,
    },
    /// `uprobe:/usr/lib/libm.so.6:expf+4`, `uretprobe:…`
    Uprobe {
        /// Counts returns instead of entries.
        returns: bool,
        /// The file, as typed.
        path: String,
        /// Byte offset in the list of what follows the path.
        at: usize,
        /// The function; `None` if `offset` alone is typed, from the beginning of the file.
        symbol: Option<String>,
        /// Bytes after the symbol.
        offset: u64,
    },
    /// `perf::CYCLES:u=1`, as libpfm4 and PAPI spell it
    Papi {
        /// Before the two colons.
        pmu: String,
        /// Behind them.
        name: String,
        /// `:attribute` and `:attribute=value`.
        attributes: Vec<Term>,
    },
    /// `cuda:::event:elapsed_cycles_sm:device=0`, as PAPI spells it
    Device {
        /// Before the three colons: PAPI's component.
        component: String,
        /// Everything after them.
        name: String,
    },
}

/// A condition on a tracepoint's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Byte offset in the list of its term.
    pub at: usize,
    /// In the kernel's language, without quotes.
    pub text: String,
}

/// `name` or `name=value` between slashes. A value that holds commas, slashes or quotes is typed
/// in double quotes, with a backslash before a quote or a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Byte offset in the list.
    pub at: usize,
    /// Before the equals sign.
    pub name: String,
    /// Behind it.
    pub value: Option<String>,
}

/// Kinds of access that a breakpoint counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `r`
    pub read: bool,
    /// `w`
    pub write: bool,
    /// `x`
    pub execute: bool,
}

/// perf's letters after the colon, as far as they have a meaning when counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `u`: in user mode. With none of `u`, `k`, `h`, all modes count.
    pub user: bool,
    /// `k`: in the kernel.
    pub kernel: bool,
    /// `h`: in a hypervisor.
    pub hypervisor: bool,
    /// `G`: in guests. With neither of `G` and `H`, both count.
    pub guest: bool,
    /// `H`: outside guests.
    pub host: bool,
    /// `I`: not while idle.
    pub not_idle: bool,
    /// `D`: pinned to the PMU, in error rather than multiplexed.
    pub pinned: bool,
    /// `e`: alone on the PMU.
    pub exclusive: bool,
}

impl Modifiers {
    /// No letter at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What an item in a group with modifiers has: as in perf, the letters of both.
    pub fn and(self, group: Self) -> Self {
        Self {
            user: self.user | group.user,
            kernel: self.kernel | group.kernel,
            hypervisor: self.hypervisor | group.hypervisor,
            guest: self.guest | group.guest,
            host: self.host | group.host,
            not_idle: self.not_idle | group.not_idle,
            pinned: self.pinned | group.pinned,
            exclusive: self.exclusive | group.exclusive,
        }
    }
}
