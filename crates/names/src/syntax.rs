//! Represents a counter list as it was typed, before the names are resolved.

/// A whole list, such as `a,b:u,{c,d}:k`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// In the order in which they were typed.
    pub entries: Vec<Entries>,
}

/// One counter, or a group in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// A counter outside of braces.
    Single(Item),
    /// A group in braces, such as `{c,d}:k`.
    Group {
        /// At least one.
        items: Vec<Item>,
        /// The modifiers after the closing brace, which apply to each item.
        modifiers: Modifiers,
    },
}

/// One counter: its name and modifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Byte offset in the list.
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
        /// The condition: `/filter="count > 100"/`.
        filter: Option<Filter>,
    },
    /// A breakpoint, such as `mem:0x401000/8:rw`.
    Breakpoint {
        /// Virtual address.
        address: u64,
        /// Number of bytes; `None` if it was not typed.
        len: Option<u64>,
        /// Kinds of access; `None` if they were not typed.
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
        /// The function. `None` if only an offset was typed.
        symbol: Option<String>,
        /// Bytes after the start of the function, or of the file.
        offset: u64,
    },
    /// A name in the spelling of libpfm4 and PAPI, such as `perf::CYCLES:u=1`.
    Papi {
        /// The text before the two colons.
        pmu: String,
        /// The text after the two colons.
        name: String,
        /// `:attribute` and `:attribute=value`.
        attributes: Vec<Term>,
    },
    /// A counter of a device in PAPI's spelling, such as `cuda:::event:elapsed_cycles_sm:device=0`.
    Device {
        /// PAPI's component, before the three colons.
        component: String,
        /// The text after the three colons.
        name: String,
    },
}

/// A condition on a tracepoint's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Byte offset of the `filter=` term in the list.
    pub at: usize,
    /// In the kernel's filter language, without quotes.
    pub text: String,
}

/// A term between slashes: `name` or `name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Byte offset in the list.
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
    /// `D`: pin the counter to the PMU, so that it is not multiplexed. If the PMU has no place for
    /// the pinned counter, reading the counter fails.
    pub pinned: bool,
    /// `e`: give the group exclusive use of the PMU.
    pub exclusive: bool,
}

impl Modifiers {
    /// Whether no modifier is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Combines an item's modifiers with those of its group: as in perf, both apply.
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
