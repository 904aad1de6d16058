//! The reasons why counters could not be opened or read.

use counters::{OpenError, PlanError};
use machine::check::{Cause, Problem};
use names::NameError;

/// The reason why some or all values of a reading are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A group of pinned counters (`:D`) lost its place on the PMU. Later readings may work.
    #[error("read counters: a group is in error state (pinned, and not on the PMU)")]
    Group,
    /// The program closed the file descriptors of the counters. Open the counters again.
    #[error("read counters: the program closed their descriptors")]
    Lost,
    /// The measurement was started with other counters. It has not changed.
    #[error("read counters: the measurement was started with other counters")]
    OtherCounters,
    /// This process is a forked child, and the counters count its parent. Open new counters.
    #[error("read counters: they were opened before a fork and count the parent")]
    Forked,
}

/// The error of opening counters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Error(Box<Told>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    message: String,
    kind: ErrorKind,
}

/// The kind of an [`Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not a list of counters that this machine knows.
    Name(NameError),
    /// The counters cannot be combined in one [`Plan`](crate::Plan).
    Plan(PlanError),
    /// The kernel refused to open a counter, or there was no memory.
    Open(OpenError),
    /// The counters can be opened, but do not count, or cannot all count at the same time.
    DoesNotCount,
}

impl Error {
    /// Returns the kind of this error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    pub(crate) fn new(message: String, kind: ErrorKind) -> Self {
        Self(Box::new(Told { message, kind }))
    }

    pub(crate) fn name(error: NameError, text: &str) -> Self {
        let known = match &error.cause {
            Some(names::NameCause::Near(near)) => format!(" (similar: {})", near.join(", ")),
            _ => String::new(),
        };
        Self::new(format!("{text}: {error}{known}"), ErrorKind::Name(error))
    }

    pub(crate) fn plan(error: PlanError) -> Self {
        Self::new(error.to_string(), ErrorKind::Plan(error))
    }

    pub(crate) fn memory(error: &std::io::Error) -> Self {
        let error = OpenError::from_errno(error.raw_os_error().unwrap_or(0));
        let message = format!("map memory that a fork wipes: {error}");
        Self::new(message, ErrorKind::Open(error))
    }

    pub(crate) fn problem(problem: Problem) -> Self {
        let known = match &problem.cause {
            Cause::TooMany { fits, .. } => format!("; {{{}}} fit together", fits.join(",")),
            Cause::KernelForbidden { user_only } => format!("; {user_only} is allowed"),
            Cause::Forbidden { paranoid: Some(level) } => {
                format!("; perf_event_paranoid={level} or CAP_PERFMON would allow it")
            }
            Cause::Forbidden { paranoid: None } => "; CAP_PERFMON would allow it".to_owned(),
            _ => String::new(),
        };
        let kind = match problem.error {
            Some(error) => ErrorKind::Open(error),
            None => ErrorKind::DoesNotCount,
        };
        Self::new(problem.message + &known, kind)
    }
}
