//! A counter list as it was typed, before anything is known about what the names mean.

use std::fmt;

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
}

/// `name` or `name=value` between slashes.
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

/// perf's letters behind the colon, as far as they mean something when counting.
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
    /// `p`, `pp`, `ppp`: 1 to 3.
    pub precise: u8,
    /// `D`: pinned to the PMU, in error rather than multiplexed.
    pub pinned: bool,
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
            precise: self.precise.max(group.precise),
            pinned: self.pinned | group.pinned,
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, entry) in self.entries.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(item) => write!(f, "{item}"),
            Self::Group { items, modifiers } => {
                f.write_str("{")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{item}")?;
                }
                write!(f, "}}{modifiers}")
            }
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.head, self.modifiers)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Tracepoint { system, name } => write!(f, "{system}:{name}"),
            Self::Pmu { pmu, terms } => {
                write!(f, "{pmu}/")?;
                for (i, term) in terms.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{term}")?;
                }
                f.write_str("/")
            }
            Self::Breakpoint { address, len, access } => {
                write!(f, "mem:{address:#x}")?;
                if let Some(len) = len {
                    write!(f, "/{len}")?;
                }
                match access {
                    Some(access) => write!(f, ":{access}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.value {
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        letters(f, &[(self.read, "r"), (self.write, "w"), (self.execute, "x")])
    }
}

/// The colon included; nothing where there is no letter.
impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        f.write_str(":")?;
        letters(
            f,
            &[
                (self.user, "u"),
                (self.kernel, "k"),
                (self.hypervisor, "h"),
                (self.guest, "G"),
                (self.host, "H"),
                (self.not_idle, "I"),
                (self.precise > 0, "p"),
                (self.precise > 1, "p"),
                (self.precise > 2, "p"),
                (self.pinned, "D"),
            ],
        )
    }
}

fn letters(f: &mut fmt::Formatter<'_>, letters: &[(bool, &str)]) -> fmt::Result {
    letters.iter().filter(|(on, _)| *on).try_for_each(|(_, letter)| f.write_str(letter))
}
