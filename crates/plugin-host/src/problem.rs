//! The mistakes that a plugin can make.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::catch::Left;

/// A mistake of a plugin. In the descriptions below, *it* is the plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// It could not be loaded, for this reason.
    NotLoaded(String),
    /// It has no `KinetoPlugin_register`.
    NoRegister,
    /// `KinetoPlugin_register` failed.
    RegisterFailed {
        /// The result.
        code: i32,
        /// The number of profilers that were registered before the error.
        registered: usize,
    },
    /// It registered nothing and returned success.
    NothingRegistered,
    /// `CounterpointPlugin_extend` returned this error.
    ExtendFailed(i32),
    /// It registered a null pointer.
    NullInterface,
    /// Its interface is smaller than the published one.
    SmallInterface(usize),
    /// Its interface lacks a function that it must have.
    MissingFunction(&'static str),
    /// One of its functions returned an error.
    Failed {
        function: &'static str,
        /// The result.
        code: i32,
    },
    /// A function did not return.
    Left {
        function: &'static str,
        /// How the call ended.
        how: Left,
    },
    /// It has no name.
    NoName,
    /// Its name fills the host's buffer, without a zero byte at the end.
    LongName,
    /// It supports a type that is neither published nor declared.
    UnknownSupported(u32),
    /// It supports no type, so it is not started.
    SupportsNothing,
    /// It passed a null argument.
    Null {
        /// The call.
        call: &'static str,
    },
    /// It passed a struct that is smaller than the published one.
    SmallStruct {
        /// The call.
        call: &'static str,
        /// The size that the struct states.
        size: usize,
        /// The smallest allowed size.
        least: usize,
    },
    /// It made a call about the last event before it had added any event.
    NoEvent {
        /// The call.
        call: &'static str,
    },
    /// It used a trace builder, or `registerProfiler`, outside of the call for which it was valid.
    Late {
        /// The call.
        call: &'static str,
    },
    /// It called the trace builder in a signal handler that interrupted a call of the builder, or
    /// after it had left such a call by a jump.
    Inside {
        /// The call.
        call: &'static str,
    },
    /// It added an event of a type that is neither published nor declared. The event is kept.
    UnknownType(u32),
    /// It added an event of a type that was not requested. The event is left out.
    NotAsked(u32),
    /// It set a flow of an unknown type. The flow is left out.
    UnknownFlow(u32),
    /// It set a flow with the id 0. The flow is left out.
    ZeroFlow,
    /// It added an event that ends before it begins. The event is kept with a duration of 0.
    Backwards,
    /// It added an event without a name. The event is kept.
    Unnamed,
    /// It added too much metadata. The part above the limit is left out.
    MuchMetadata,
    /// It added a counter value that is not finite. The value is left out.
    NotFinite,
    /// A function of the host panicked, which is an error in Counterpoint.
    Panicked {
        /// The call.
        call: &'static str,
    },
}

impl Problem {
    /// Returns whether data is missing because of this problem.
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
            Self::SmallInterface(size) => {
                let least = abi::kineto::ProfilerInterface::SIZE;
                write!(
                    f,
                    "registered an interface of {size} bytes, the published one has {least}"
                )?;
                match abi::kineto::OLDER.iter().find(|older| older.interface_bytes == *size) {
                    Some(older) => write!(
                        f,
                        "; it was built for state {} of Kineto's pull request {}, in which {}; build it \
                         for state {}",
                        older.commit,
                        abi::kineto::PULL_REQUEST,
                        older.differs,
                        abi::kineto::REVISION.commit
                    ),
                    None => Ok(()),
                }
            }
            Self::MissingFunction(name) => write!(f, "its interface has no {name}"),
            Self::Failed { function, code } => write!(f, "{function} returned {code}"),
            Self::Left { function, how } => write!(f, "{function} {how}"),
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
            Self::Inside { call } => {
                write!(f, "called {call} inside of another call of the trace builder")
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

/// The different problems of one file, each with how often it occurred.
#[derive(Debug)]
pub struct Problems {
    file: PathBuf,
    seen: Mutex<Vec<(Problem, u64)>>,
    /// Set after a fault: the plugin must not be called again.
    crashed: AtomicBool,
}

/// The largest number of different problems. When the list is full, a new problem is counted as
/// another occurrence of the last one in the list.
const MOST: usize = 256;

impl Problems {
    /// Creates an empty list.
    pub fn of(file: &Path) -> Self {
        Self { file: file.to_owned(), seen: Mutex::default(), crashed: AtomicBool::new(false) }
    }

    /// Notes that a call ended with a fault, so the plugin must not be called again.
    pub fn note_crash(&self) {
        self.crashed.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call ended with a fault.
    pub fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::Relaxed)
    }

    /// Returns the plugin's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Adds an occurrence of a problem. Any thread may call this.
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

    /// Returns the problems that have occurred since `before`, an earlier result of
    /// [`Problems::all`]. Each comes with how often it has occurred since then.
    pub fn since(&self, before: &[(Problem, u64)]) -> Vec<(Problem, u64)> {
        let mut all = self.all();
        // New problems are added at the end, so both lists begin with the same problems.
        for ((_, count), (_, earlier)) in all.iter_mut().zip(before) {
            *count = count.saturating_sub(*earlier);
        }
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// Returns all problems, in the order in which they first occurred.
    pub fn all(&self) -> Vec<(Problem, u64)> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
