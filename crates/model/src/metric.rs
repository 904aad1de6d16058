//! Defines metrics: values that are computed from counters (`ipc = instructions / cycles`).
//!
//! ```text
//!  "ipc = instructions / cycles"
//!      │ Metric::parse    syntax only: positions, quotes, numbers with units       ──► Metric
//!      ▼
//!  Metric::bind           names to counters of one group, units to one unit        ──► Bound
//!      ▼
//!  Bound::value           the sums (or one call's values), the duration  ──► value or missing
//! ```
//!
//! ```text
//!  definition := name "=" expression [ "in" unit ]
//!  expression := term { ("+" | "-") term }
//!  term       := factor { ("*" | "×" | "/") factor }
//!  factor     := "-" factor | "(" expression ")" | ("min" | "max") "(" expression { "," expression } ")"
//!              | number | "duration" | "calls" | "dispatches" | counter
//!  number     := digits [ "." digits ] [ "e" [sign] digits ] [ prefix ] [ unit ]     64B, 1.5e9, 4Ki
//!  counter    := word | '"' anything else than '"' '"' | "'" anything else than "'" "'"
//!  word       := letter { letter | digit | "_" | "." | ":" | "-" before one of these }
//! ```
//!
//! A dash inside a word belongs to the word: `cache-misses` is a counter, `a - b` is a difference.
//! Names with slashes, commas or other special characters must be quoted: `"msr/tsc/" / duration`.
//!
//! # Invariants
//! - All counters of a metric belong to one group, so their values were read together. `duration`
//!   is the time of the calls over which the counters' values are summed, `calls` is the number of
//!   these calls, and `dispatches` is the number of IREE's dispatches to which these calls belong.
//!   These three can be combined with any group.
//! - A number that is combined with a sum applies to each call: in `64B / duration` each call moved
//!   64 bytes, and in `duration - 5us` 5 µs are subtracted from each call.
//! - An undefined value is missing, and not replaced by 0: a division by zero, or an overflow.
//! - An expression has at most [`MOST_BYTES`] bytes and [`MOST_DEPTH`] levels, which bounds the
//!   parser's recursion.

mod bind;
mod builtin;
mod error;
mod names;
mod parse;
mod unit;

use std::fmt;

pub use bind::{Bound, Operand};
pub use builtin::{
    BUILTINS, Builtin, TOP_DOWN, all as all_builtins, named as named_builtin, offered,
};
pub use error::{MetricCause, MetricError, MetricErrorKind};
pub use unit::MetricUnit;

/// Maximum length of an expression in bytes.
pub const MOST_BYTES: usize = 1024;

/// Maximum nesting depth of parentheses, functions and signs.
pub const MOST_DEPTH: usize = 64;

/// A parsed metric that refers to its counters by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name that views show.
    pub name: String,
    /// The text after the equals sign, including the unit.
    pub expression: String,
    root: Node<Name>,
    declared: Option<MetricUnit>,
    /// Byte offset of the expression in the text that was parsed.
    offset: usize,
}

impl Metric {
    /// Parses `name = expression [in unit]`.
    ///
    /// # Errors
    /// Returns an error with the byte offset of the problem in `text`.
    pub fn parse(text: &str) -> Result<Self, MetricError> {
        let Some((name, expression)) = text.split_once('=') else {
            return Err(MetricError::expected("NAME=EXPRESSION", text, text.len()));
        };
        let offset = text.len() - expression.len();
        let at = name.len() - name.trim_start().len();
        parse::name(name.trim(), at)?;
        Self::at(name.trim(), expression, offset)
    }

    /// Creates a metric from its name and its expression.
    ///
    /// # Errors
    /// Returns an error with the byte offset of the problem in `expression` or, if the name is not
    /// valid, in `name`.
    pub fn of(name: &str, expression: &str) -> Result<Self, MetricError> {
        parse::name(name, 0)?;
        Self::at(name, expression, 0)
    }

    fn at(name: &str, expression: &str, offset: usize) -> Result<Self, MetricError> {
        let (root, declared) = parse::expression(expression).map_err(|e| e.moved(offset))?;
        let (name, expression) = (name.to_owned(), expression.trim().to_owned());
        Ok(Self { name, expression, root, declared, offset })
    }
}

/// Writes the metric in a canonical form.
impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.root)?;
        match &self.declared {
            Some(unit) => write!(f, " in {}", unit.name),
            None => Ok(()),
        }
    }
}

/// The name of a counter in an expression, and the byte offset of the name there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    text: String,
    at: usize,
}

/// An expression whose counters are represented by `C`.
#[derive(Clone, Debug, PartialEq)]
enum Node<C> {
    Number(unit::Quantity),
    Duration,
    Calls,
    Dispatches,
    Counter(C),
    Negative(Box<Node<C>>),
    /// The operator, its byte offset, and the operands.
    Binary(Operator, usize, Box<Node<C>>, Box<Node<C>>),
    /// `max` if true, otherwise `min`; its byte offset; and at least one operand.
    Extreme(bool, usize, Vec<Node<C>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }
}

impl fmt::Display for Node<Name> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(quantity) => write!(f, "{quantity}"),
            Self::Duration => f.write_str("duration"),
            Self::Calls => f.write_str("calls"),
            Self::Dispatches => f.write_str("dispatches"),
            Self::Counter(name) => match name.text.contains('"') {
                true => write!(f, "'{}'", name.text),
                false => write!(f, "\"{}\"", name.text),
            },
            Self::Negative(of) => write!(f, "(-{of})"),
            Self::Binary(op, _, a, b) => write!(f, "({a} {} {b})", op.sign()),
            Self::Extreme(max, _, of) => {
                f.write_str(if *max { "max(" } else { "min(" })?;
                for (i, one) in of.iter().enumerate() {
                    write!(f, "{}{one}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}
