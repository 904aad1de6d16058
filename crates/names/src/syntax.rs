//! Represents a counter list as it was typed, before the names are resolved.

/// A whole list, such as `a,b:u,{c,d}:k`.
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
    /// A group in braces, such as `{c,d}:k`.
    Group {
        /// The counters of the group; at least one.
        items: Vec<Item>,
        /// The modifiers after the closing brace, which apply to every item.
        modifiers: Modifiers,
    },
}

/// One counter: its name, and the modes in which it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Byte offset of the item's first character in the list.
    pub at: usize,
    /// The part before the modifiers.
    pub head: Head,
    /// The modifiers after the item itself.
    pub modifiers: Modifiers,
}

/// The part of an item before its modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A single word, such as `page-faults`, `L1-dcache-load-misses` or `r01c2`.
    Word(String),
    /// A PMU with terms, such as `cpu/event=0x3c,umask=0x1/` or `sim/NAME,readings=0:5/`.
    Pmu {
        /// The text before the first slash.
        pmu: String,
        /// The terms between the slashes.
        terms: Vec<Term>,
    },
    /// A tracepoint, such as `syscalls:sys_enter_openat`.
    Tracepoint {
        /// The text before the colon.
        system: String,
        /// The text after the colon.
        name: String,
        /// The condition under which a hit of the tracepoint is counted: `/filter="count > 100"/`.
        filter: Option<Filter>,
    },
    /// A breakpoint, such as `mem:0x401000/8:rw`.
    Breakpoint {
        /// Virtual address of the first byte that is watched.
        address: u64,
        /// Number of bytes that are watched. `None` if it was not typed.
        len: Option<u64>,
        /// The kinds of access that are counted. `None` if they were not typed.
        access: Option<Access>,
    },
    /// A uprobe, such as `uprobe:/usr/lib/libm.so.6:expf+4`, or `uretprobe:…`.
    Uprobe {
        /// Whether returns are counted instead of entries.
        returns: bool,
        /// The file, as it was typed.
        path: String,
        /// Byte offset, in the list, of the text after the path and its colon.
        at: usize,
        /// The function. `None` if only an offset was typed, which is counted from the beginning of
        /// the file.
        symbol: Option<String>,
        /// Number of bytes after the start of the function, or after the start of the file.
        offset: u64,
    },
    /// A name in the spelling of libpfm4 and PAPI, such as `perf::CYCLES:u=1`.
    Papi {
        /// The text before the two colons.
        pmu: String,
        /// The text after the two colons.
        name: String,
        /// The attributes: `:attribute` and `:attribute=value`.
        attributes: Vec<Term>,
    },
    /// A counter of a device in PAPI's spelling, such as `cuda:::event:elapsed_cycles_sm:device=0`.
    Device {
        /// The text before the three colons: PAPI's component.
        component: String,
        /// The text after the three colons.
        name: String,
    },
}

/// A condition on a tracepoint's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Byte offset of the filter's term in the list.
    pub at: usize,
    /// The condition in the kernel's filter language, without quotes.
    pub text: String,
}

/// A term between slashes: `name` or `name=value`. A value with commas, slashes or quotes is typed
/// in double quotes, with a backslash before a quote or a backslash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Byte offset of the term in the list.
    pub at: usize,
    /// The text before the equals sign.
    pub name: String,
    /// The text after the equals sign.
    pub value: Option<String>,
}

/// The kinds of access that a breakpoint counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `r`: reads are counted.
    pub read: bool,
    /// `w`: writes are counted.
    pub write: bool,
    /// `x`: executions are counted.
    pub execute: bool,
}

/// The letters after a colon, as in perf, without those that mean nothing when counting threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `u`: count in user mode. Without any of `u`, `k` and `h`, the counter counts in all modes.
    pub user: bool,
    /// `k`: count in the kernel.
    pub kernel: bool,
    /// `h`: count in a hypervisor.
    pub hypervisor: bool,
    /// `G`: count in guests. Without `G` and `H`, the counter counts both in guests and in the
    /// host.
    pub guest: bool,
    /// `H`: count in the host.
    pub host: bool,
    /// `I`: do not count while the processor is idle.
    pub not_idle: bool,
    /// `D`: pin the counter to the PMU. A pinned counter is not multiplexed. If the PMU has no free
    /// counter for it, reading the counter fails.
    pub pinned: bool,
    /// `e`: give the group exclusive use of the PMU.
    pub exclusive: bool,
}

impl Modifiers {
    /// Whether there is no letter at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the modifiers of an item in a group. As in perf, they are the letters of the item
    /// together with the letters of the group.
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
