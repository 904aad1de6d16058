//! The one error of metrics: what is wrong, and where.

use std::fmt;

/// A metric that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricError {
    /// What is wrong.
    pub kind: MetricErrorKind,
    /// Byte offset in the text that was parsed.
    pub at: usize,
    /// What is known beyond `kind`, from which the command line makes advice.
    pub cause: Option<MetricCause>,
}

/// What led to a [`MetricError`], with values. A new variant needs advice in the command line; the
/// enum is exhaustive so that the compiler asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricCause {
    /// A name with slashes, commas or spaces is not in quotes.
    UnquotedName,
    /// A unit must be one of these, described in words.
    Units(&'static str),
    /// A minus without spaces is part of the name. These are the two sides of it.
    Minus {
        /// What stands on its left.
        left: String,
        /// What stands on its right.
        right: String,
    },
    /// Counters of the recording are spelled like this name. The nearest is first; never empty.
    Near(Vec<String>),
    /// These are all counters of the recording.
    Counters(Vec<String>),
    /// The counters of the metric, which must be in one group.
    OneGroup(Vec<String>),
    /// One side is a number without a unit.
    PlainNumber,
}

/// What is wrong with a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricErrorKind {
    /// Not a definition: what was expected, and what is there.
    Syntax {
        /// As in "expected …".
        expected: &'static str,
        /// The character there; `None` is the end.
        found: Option<char>,
    },
    /// Not a number.
    Number {
        /// As typed.
        text: String,
    },
    /// Not a unit that this version knows.
    Unit {
        /// As typed.
        text: String,
    },
    /// No such function.
    Function {
        /// As typed.
        name: String,
    },
    /// More than [`super::MOST_BYTES`].
    TooLong {
        /// Bytes.
        bytes: usize,
    },
    /// More than [`super::MOST_DEPTH`] parentheses, functions and signs within one another.
    TooDeep,
    /// No name for a metric.
    Name {
        /// As typed.
        name: String,
    },
    /// There is neither a counter nor the duration in it.
    Constant,
    /// The run does not count this.
    UnknownCounter {
        /// As typed.
        name: String,
    },
    /// Several counters of the run could be meant.
    Ambiguous {
        /// As typed.
        name: String,
        /// Which.
        counters: Vec<String>,
    },
    /// Two of its counters were not read together.
    Groups {
        /// One of the first group.
        one: String,
        /// One of another.
        other: String,
    },
    /// Names without modifiers that stand for counters with different ones.
    Modes {
        /// A counter.
        one: String,
        /// One that counts other occurrences.
        other: String,
    },
    /// Two values that cannot be added or compared.
    Mismatch {
        /// What stands on the left, or first.
        left: String,
        /// What stands on the right, or later.
        right: String,
    },
    /// The value has another unit than the one asked for.
    Declared {
        /// Asked for.
        asked: String,
        /// What it is in.
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
