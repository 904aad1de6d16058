//! A counter list as it was typed, before anything is known about what the names mean.

/// `a,b:u,{c,d}:k`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The entries in the order in which they were typed.
    pub entries: Vec<Entries>,
}

/// One counter, or a group in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// A counter outside of braces.
    Single(Item),
    /// `{c,d}:k`
    Group {
        /// The group's counters; at least one.
        items: Vec<Item>,
        /// The modifiers after the closing brace, which apply to every item.
        modifiers: Modifiers,
    },
}

/// One counter: what is counted, and in which modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Byte offset of the item's first character in the list.
    pub at: usize,
    /// What is counted.
    pub head: Head,
    /// The modifiers after the item itself.
    pub modifiers: Modifiers,
}

/// The part of an item before its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// `page-faults`, `L1-dcache-load-misses`, `r01c2`
    Word(String),
    /// `cpu/event=0x3c,umask=0x1/`, `sim/NAME,readings=0:5/`
    Pmu {
        /// The text before the first slash.
        pmu: String,
        /// Between the slashes.
        terms: Vec<Term>,
    },
    /// `syscalls:sys_enter_openat`
    Tracepoint {
        /// The text before the colon.
        system: String,
        /// The text after the colon.
        name: String,
        /// `/filter="count > 100"/`: the condition under which a hit counts.
        filter: Option<Filter>,
    },
    /// `mem:0x401000/8:rw`
    Breakpoint {
        /// Virtual address of the first byte that is watched.
        address: u64,
        /// Number of bytes that are watched.
        len: Option<u64>,
        /// Which kinds of access count.
        access: Option<Access>,
    },
    /// `uprobe:/usr/lib/libm.so.6:expf+4`, `uretprobe:…`
    Uprobe {
        /// Counts returns instead of entries.
        returns: bool,
        /// The file, as typed.
        path: String,
        /// Byte offset in the list of the text after the path and its colon.
        at: usize,
        /// The function. `None`: only an offset was typed, which is from the beginning of the file.
        symbol: Option<String>,
        /// Number of bytes after the start of the function, or after the start of the file.
        offset: u64,
    },
    /// `perf::CYCLES:u=1`, as libpfm4 and PAPI spell it
    Papi {
        /// The text before the two colons.
        pmu: String,
        /// The text after the two colons.
        name: String,
        /// `:attribute` and `:attribute=value`.
        attributes: Vec<Term>,
    },
    /// `cuda:::event:elapsed_cycles_sm:device=0`, as PAPI spells it
    Device {
        /// The text before the three colons: PAPI's component.
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
    /// The condition in the kernel's filter language, without quotes.
    pub text: String,
}

/// `name` or `name=value` between slashes. A value that holds commas, slashes or quotes is typed
/// in double quotes, with a backslash before a quote or a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Byte offset in the list.
    pub at: usize,
    /// The text before the equals sign.
    pub name: String,
    /// The text after the equals sign.
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

/// Letters after the colon, as in perf. Letters that only matter to sampling are not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `u`: count in user mode. Without any of `u`, `k` and `h`, all modes count.
    pub user: bool,
    /// `k`: count in the kernel.
    pub kernel: bool,
    /// `h`: count in a hypervisor.
    pub hypervisor: bool,
    /// `G`: count in guests. Without `G` and `H`, both guests and the host count.
    pub guest: bool,
    /// `H`: count in the host.
    pub host: bool,
    /// `I`: do not count while the processor is idle.
    pub not_idle: bool,
    /// `D`: pinned to the PMU. If it loses its place, reading fails, and it does not take turns.
    pub pinned: bool,
    /// `e`: the group has the PMU to itself.
    pub exclusive: bool,
}

impl Modifiers {
    /// Whether there is no letter at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The modifiers of an item in a group: as in perf, the letters of the item and of the group.
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
