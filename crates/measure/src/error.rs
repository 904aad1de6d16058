//! Why counters could not be opened or read.

use std::fmt;

use counters::{OpenError, PlanError};
use machine::check::Problem;
use names::NameError;

/// Why a reading gave not all values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// A group is in error state (a pinned one, `:D`, that lost its place on the PMU). Later
    /// readings may work.
    Group,
    /// The program closed our descriptors. Open the counters again.
    Lost,
    /// The measurement was begun with other counters; it is as it was.
    OtherCounters,
    /// This process is a forked child; the counters are its parent's. Open them again here.
    Forked,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "read counters: a group is in error state (pinned, and not on the PMU)",
            Self::Lost => "read counters: their descriptors were closed by the program",
            Self::OtherCounters => "read counters: the measurement was begun with other counters",
            Self::Forked => "read counters: opened before a fork, they count the parent",
        })
    }
}

impl std::error::Error for ReadError {}

/// Counters that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Told>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    message: String,
    hint: Option<String>,
    kind: ErrorKind,
}

/// What kind of trouble an [`Error`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is no list of counters that this machine knows.
    Name(NameError),
    /// The counters are no plan.
    Plan(PlanError),
    /// The kernel refused a counter, or memory.
    Open(OpenError),
    /// They open but do not count, or not all at once.
    DoesNotCount,
}

impl Error {
    /// What kind of trouble it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What to type or change, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub(crate) fn new(message: String, hint: Option<String>, kind: ErrorKind) -> Self {
        Self(Box::new(Told { message, hint, kind }))
    }

    pub(crate) fn name(error: NameError, text: &str) -> Self {
        Self::new(format!("{text}: {error}"), error.hint.clone(), ErrorKind::Name(error))
    }

    pub(crate) fn plan(error: PlanError) -> Self {
        Self::new(error.to_string(), None, ErrorKind::Plan(error))
    }

    pub(crate) fn memory(error: &std::io::Error) -> Self {
        let error = OpenError::from_errno(error.raw_os_error().unwrap_or(0));
        let message = format!("map memory that a fork wipes: {error}");
        Self::new(message, None, ErrorKind::Open(error))
    }

    pub(crate) fn problem(problem: Problem) -> Self {
        let kind = problem.error.map_or(ErrorKind::DoesNotCount, ErrorKind::Open);
        Self::new(problem.message, problem.remedy, kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}
