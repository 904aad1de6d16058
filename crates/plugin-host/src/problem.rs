//! Everything that a plugin can do wrong.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// One thing that a plugin did wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The dynamic linker refused it, for this reason.
    NotLoaded(String),
    /// It has no `KinetoPlugin_register`.
    NoRegister,
    /// Its register function failed.
    RegisterFailed {
        /// What it returned.
        code: i32,
        /// How many profilers it had registered.
        registered: usize,
    },
    /// It registered no profiler and returned success.
    NothingRegistered,
    /// Its extension function failed.
    ExtendFailed(i32),
    /// It registered a null pointer.
    NullInterface,
    /// Its interface is smaller than the published one.
    SmallInterface(usize),
    /// Its interface lacks a function that it must have.
    MissingFunction(&'static str),
    /// A function of it returned an error.
    Failed {
        /// Which function.
        function: &'static str,
        /// What it returned.
        code: i32,
    },
    /// It has no name.
    NoName,
    /// Its name fills the host's room to the last byte, without a zero byte.
    LongName,
    /// It supports a type that is neither published nor declared.
    UnknownSupported(u32),
    /// It supports nothing, so that nobody will start it.
    SupportsNothing,
    /// A null argument.
    Null {
        /// In which call.
        call: &'static str,
    },
    /// A struct smaller than the published one.
    SmallStruct {
        /// In which call.
        call: &'static str,
        /// The size that it states.
        size: usize,
        /// The least size.
        least: usize,
    },
    /// A call about the last event while there is none.
    NoEvent {
        /// Which call.
        call: &'static str,
    },
    /// A trace builder was used outside of the call that it was valid for.
    Late {
        /// Which call.
        call: &'static str,
    },
    /// An event has a type that is neither published nor declared; it is kept with that number.
    UnknownType(u32),
    /// An event of a type that was not asked for; it is left out.
    NotAsked(u32),
    /// A flow of an unknown type; it is left out.
    UnknownFlow(u32),
    /// A flow with the id 0; it is left out.
    ZeroFlow,
    /// An event ends before it begins; it is kept as a moment.
    Backwards,
    /// An event without a name; it is kept.
    Unnamed,
    /// An event has too much metadata; the rest is left out.
    MuchMetadata,
    /// A counter's value is infinite or not a number; it is left out.
    NotFinite,
    /// A call of ours panicked. This is our defect.
    Panicked {
        /// Which call.
        call: &'static str,
    },
}

impl Problem {
    /// Whether something that the plugin wanted to record is missing because of it.
    pub fn loses(&self) -> bool {
        !matches!(
            self,
            Self::NoRegister
                | Self::LongName
                | Self::UnknownSupported(_)
                | Self::UnknownType(_)
                | Self::Backwards
                | Self::Unnamed
                | Self::NothingRegistered
                | Self::SupportsNothing
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(why) => write!(f, "cannot be loaded: {why}"),
            Self::NoRegister => f.write_str("does not export KinetoPlugin_register"),
            Self::RegisterFailed { code, registered: 0 } => {
                write!(f, "KinetoPlugin_register returned {code}")
            }
            Self::RegisterFailed { code, registered } => write!(
                f,
                "KinetoPlugin_register returned {code} after it had registered {registered} \
                 profilers, which are not used"
            ),
            Self::NothingRegistered => f.write_str("registered no profiler"),
            Self::ExtendFailed(code) => {
                write!(f, "CounterpointPlugin_extend returned {code}; its extension is not used")
            }
            Self::NullInterface => f.write_str("registered a null interface"),
            Self::SmallInterface(size) => write!(
                f,
                "registered an interface of {size} bytes, the published one has {}",
                abi::kineto::ProfilerInterface::SIZE
            ),
            Self::MissingFunction(name) => write!(f, "its interface has no {name}"),
            Self::Failed { function, code } => write!(f, "{function} returned {code}"),
            Self::NoName => f.write_str("profilerQuery gave no name"),
            Self::LongName => write!(
                f,
                "profilerQuery wrote a name of more than {} bytes",
                abi::kineto::NAME_BYTES
            ),
            Self::UnknownSupported(number) => {
                write!(f, "profilerQuery listed event type {number}, which does not exist")
            }
            Self::SupportsNothing => f.write_str("supports no type of events"),
            Self::Null { call } => write!(f, "passed a null pointer to {call}"),
            Self::SmallStruct { call, size, least } => {
                write!(f, "passed a struct of {size} bytes to {call}, which needs {least}")
            }
            Self::NoEvent { call } => write!(f, "called {call} before any addEvent"),
            Self::Late { call } => {
                write!(f, "called {call} after the call that the trace builder was valid for")
            }
            Self::UnknownType(number) => {
                write!(f, "added an event of type {number}, which does not exist")
            }
            Self::NotAsked(number) => match abi::kineto::event_type(*number) {
                Some(known) => write!(f, "added a {} event, which was not requested", known.name),
                None => write!(f, "added an event of type {number}, which was not requested"),
            },
            Self::UnknownFlow(number) => {
                write!(f, "set a flow of type {number}, which does not exist")
            }
            Self::ZeroFlow => f.write_str("set a flow with the id 0"),
            Self::Backwards => f.write_str("added an event that ends before it begins"),
            Self::Unnamed => f.write_str("added an event without a name"),
            Self::MuchMetadata => write!(
                f,
                "added more than {} bytes of metadata to one event",
                crate::sink::MOST_METADATA
            ),
            Self::NotFinite => f.write_str("added a counter value that is not a finite number"),
            Self::Panicked { call } => write!(f, "{call} failed inside Counterpoint"),
        }
    }
}

/// The problems of one file, each once, with how often it came.
#[derive(Debug)]
pub struct Problems {
    file: PathBuf,
    seen: Mutex<Vec<(Problem, u64)>>,
}

/// Different problems that are kept apart; more are counted with the last.
const MOST: usize = 256;

impl Problems {
    /// None yet.
    pub fn of(file: &Path) -> Self {
        Self { file: file.to_owned(), seen: Mutex::new(Vec::new()) }
    }

    /// The plugin's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// One more. Any thread.
    pub fn add(&self, problem: Problem) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let full = seen.len() >= MOST;
        match seen.iter_mut().find(|(known, _)| *known == problem) {
            Some((_, count)) => *count += 1,
            None if full => {
                if let Some(last) = seen.last_mut() {
                    last.1 += 1;
                }
            }
            None => seen.push((problem, 1)),
        }
    }

    /// All of them, in the order in which they first came.
    pub fn all(&self) -> Vec<(Problem, u64)> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
