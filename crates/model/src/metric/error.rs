//! Defines the error type of metrics.

use std::fmt;

/// The reason why a metric cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricError {
    /// The kind of the error.
    pub kind: MetricErrorKind,
    /// Byte offset in the text that was parsed.
    pub at: usize,
    /// The probable cause, from which the command line derives advice for the user.
    pub cause: Option<MetricCause>,
}

/// The probable cause of a [`MetricError`], with the names or units that the advice mentions. The
/// enum is not `#[non_exhaustive]`, so the compiler reports a variant for which the command line
/// has no advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricCause {
    /// A name with slashes, commas or spaces is not in quotes.
    UnquotedName,
    /// A unit is missing or unknown. The string lists the units that can be typed.
    Units(&'static str),
    /// A minus without spaces around it was read as a part of the name.
    Minus {
        /// The text to the left of the minus.
        left: String,
        /// The text to the right of the minus.
        right: String,
    },
    /// Up to three counters of the recording with similar names; names that only contain the typed
    /// text come last.
    Near(Vec<String>),
    /// All counters of the recording, if none has a similar spelling.
    Counters(Vec<String>),
    /// The counters of the metric, which must be in one group.
    OneGroup(Vec<String>),
    /// One of the two operands is a number without a unit.
    PlainNumber,
}

/// The kind of a [`MetricError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricErrorKind {
    /// The text does not follow the syntax of metrics.
    Syntax {
        /// The text after "expected".
        expected: &'static str,
        /// The character that was found, or `None` at the end of the text.
        found: Option<char>,
    },
    /// The text is not a number.
    Number {
        /// The text as typed.
        text: String,
    },
    /// The text is not a known unit.
    Unit {
        /// The text as typed.
        text: String,
    },
    /// There is no such function.
    Function {
        /// The name as typed.
        name: String,
    },
    /// The expression is longer than [`super::MOST_BYTES`].
    TooLong {
        /// The length in bytes.
        bytes: usize,
    },
    /// Parentheses, functions and signs are nested more than [`super::MOST_DEPTH`] deep.
    TooDeep,
    /// The text is not a valid name for a metric.
    Name {
        /// The name as typed.
        name: String,
    },
    /// The expression contains no counter, and neither the duration, `calls` nor `dispatches`.
    Constant,
    /// The recording has no counter with this name.
    UnknownCounter {
        /// The name as typed.
        name: String,
    },
    /// The name matches several counters of the recording.
    Ambiguous {
        /// The name as typed.
        name: String,
        /// The counters that match.
        counters: Vec<String>,
    },
    /// Two of the metric's counters were not read together.
    Groups {
        /// The metric's first counter.
        one: String,
        /// A counter of another group.
        other: String,
    },
    /// A name without modifiers matches a counter with modifiers, but another counter of the metric
    /// counts in other modes.
    Modes {
        /// A counter.
        one: String,
        /// A counter that counts in other modes.
        other: String,
    },
    /// Two values cannot be added or compared.
    Mismatch {
        /// The unit of the left operand, or of the earlier arguments of `min` or `max`.
        left: String,
        /// The unit of the right operand, or of the argument of `min` or `max` that does not fit.
        right: String,
    },
    /// The requested unit does not fit the metric's values.
    Declared {
        /// The requested unit.
        asked: String,
        /// The actual unit.
        is: String,
    },
}

impl MetricError {
    pub(super) fn new(kind: MetricErrorKind, at: usize) -> Self {
        Self { kind, at, cause: None }
    }

    pub(super) fn expected(expected: &'static str, text: &str, at: usize) -> Self {
        let found = text.get(at..).and_then(|rest| rest.chars().next());
        Self::new(MetricErrorKind::Syntax { expected, found }, at)
    }

    pub(super) fn because(mut self, cause: MetricCause) -> Self {
        self.cause = Some(cause);
        self
    }

    pub(super) fn moved(mut self, by: usize) -> Self {
        self.at += by;
        self
    }
}

impl fmt::Display for MetricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.at)?;
        match &self.kind {
            MetricErrorKind::Syntax { expected, found: Some(c) } => {
                write!(f, "expected {expected}, found {c:?}")
            }
            MetricErrorKind::Syntax { expected, found: None } => {
                write!(f, "expected {expected}, found the end")
            }
            MetricErrorKind::Number { text } => write!(f, "{text:?} is not a number"),
            MetricErrorKind::Unit { text } => write!(f, "unknown unit {text:?}"),
            MetricErrorKind::Function { name } => write!(f, "unknown function {name:?}"),
            MetricErrorKind::TooLong { bytes } => {
                write!(
                    f,
                    "the expression has {bytes} bytes, but at most {} are allowed",
                    super::MOST_BYTES
                )
            }
            MetricErrorKind::TooDeep => {
                write!(f, "more than {} parentheses or signs within one another", super::MOST_DEPTH)
            }
            MetricErrorKind::Name { name } => write!(
                f,
                "{name:?} cannot name a metric: use letters, digits, \"_\", \"-\" and \".\", \
                 starting with a letter"
            ),
            MetricErrorKind::Constant => {
                f.write_str("the expression has neither a counter nor the duration")
            }
            MetricErrorKind::UnknownCounter { name } => {
                write!(f, "{name:?} is not counted in this recording")
            }
            MetricErrorKind::Ambiguous { name, counters } => {
                write!(f, "{name:?} can be {}", counters.join(" or "))
            }
            MetricErrorKind::Groups { one, other } => {
                write!(f, "{one} and {other} are not in one group, so they were not read together")
            }
            MetricErrorKind::Modes { one, other } => {
                write!(f, "{one} and {other} count in different modes")
            }
            MetricErrorKind::Mismatch { left, right } => {
                write!(f, "{left} and {right} cannot be combined")
            }
            MetricErrorKind::Declared { asked, is } => {
                write!(f, "its value is in {is}, not in {asked}")
            }
        }
    }
}

impl std::error::Error for MetricError {}
