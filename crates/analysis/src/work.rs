//! Computes the work of a call from the shapes of its arguments: its floating-point operations, and
//! the bytes that it has to move. A table contains rules for many kinds of ops, and users can add
//! rules of their own.
//!
//! ```text
//!  aten::addmm  [*], [m, k], [k, n]  flop = 2*m*k*n;  bytes = arguments + size*m*n
//!  ─ name ────  ─ shapes ──────────  ─ formulas of the dimensions ───────────────
//! ```
//!
//! The name is a glob. The shapes of a rule are compared with those of the op's first arguments
//! that are tensors. In a shape, a word stands for one dimension, a number for a dimension of that
//! size, and `*word` for any number of dimensions. The value of a word is the product of its
//! dimensions. A word that occurs twice must stand for the same dimensions both times. A single
//! shape without brackets, such as `mxnxk`, stands for the dimensions that an op's name contains.
//! IREE's dispatches have such names: `mlp_dispatch_0_matmul_64x256x784_f32`. If a rule has no
//! shape, its formulas can use only the variables below.
//!
//! | variable | value |
//! |---|---|
//! | `size` | bytes per number: of the first tensor, or without tensors, of the type in the name |
//! | `arguments` | bytes of all tensors together |
//! | `elements` | elements of the shape to which an elementwise op stretches all its tensors |
//! | `last` | number of elements of the last tensor |
//!
//! Formulas are written like [metrics](model::metric), with the words of the shapes and the
//! variables above. The first rule whose name and shapes fit is used. A rule such as `aten::*
//! unknown` makes the work of its ops unknown, even if later rules fit. If no rule fits, the work
//! is unknown, which is not the same as 0.

mod builtin;
mod shapes;

use std::collections::BTreeMap;

use model::Unit;
use model::metric::{Bound, Metric, Operand};

use shapes::{Dimensions, Pattern, in_name};
pub use shapes::{Number, Tensor, tensors};

/// The operations and bytes of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations. `None` if the number is not known.
    pub flop: Option<f64>,
    /// The least number of bytes that the op has to read and write: each input is read once, and
    /// each result of known size is written once. `None` if it is not known.
    pub bytes: Option<f64>,
    /// The type of the numbers that the op computes with. `None` if it is not known, for example if
    /// inputs have two different floating-point types.
    pub number: Option<Number>,
}

#[derive(Clone, Debug)]
struct Rule {
    glob: String,
    shapes: Shapes,
    flop: Option<Formula>,
    bytes: Option<Formula>,
}

#[derive(Clone, Debug)]
enum Shapes {
    Any,
    Arguments(Vec<Pattern>),
    /// The words for the dimensions in the op's name.
    Name(Vec<String>),
}

#[derive(Clone, Debug)]
struct Formula {
    bound: Bound,
    names: Vec<String>,
}

/// A table of rules.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// The reason why a line is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RuleError {
    /// The number of the line, from 1.
    pub line: usize,
    pub what: String,
}

/// The variables that formulas can always use.
const VARIABLES: [&str; 4] = ["size", "arguments", "elements", "last"];

/// A rule with this word makes the work of its ops unknown. Later rules are then not tried.
const UNKNOWN: &str = "unknown";

/// A table with more rules than this is refused.
const MOST_RULES: usize = 10_000;

impl Rules {
    /// Returns the rules that come with Counterpoint.
    pub fn builtin() -> Self {
        Self::parse(builtin::RULES).unwrap_or_default()
    }

    /// Reads a table with one rule in each line. Empty lines and lines that begin with `#` are
    /// ignored.
    ///
    /// # Errors
    /// Fails if a line is not a rule, or if there are more than `MOST_RULES` rules.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut rules = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line_number = at + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let failed = |what: String| RuleError { line: line_number, what };
            if rules.len() == MOST_RULES {
                return Err(failed(format!("more than {MOST_RULES} rules")));
            }
            rules.push(rule(line).map_err(failed)?);
        }
        Ok(Self { rules })
    }

    /// Adds `others` after these rules, for ops to which none of these rules applies.
    pub fn before(mut self, others: Self) -> Self {
        self.rules.extend(others.rules);
        self
    }

    /// Returns the work of one call of the op `name`, or of one dispatch with this name.
    /// `arguments` has the form of [`profile::Op::arguments`]. `None` if no rule fits, or if the
    /// first rule that fits gives neither the operations nor the bytes.
    pub fn of(&self, name: &str, arguments: &str) -> Option<Work> {
        let tensors = tensors(arguments);
        let inner = in_name(name);
        let number = match (&tensors, &inner) {
            (Some(tensors), _) if !tensors.is_empty() => shapes::number_of(tensors),
            _ => inner.as_ref().and_then(|inner| inner.number),
        };
        let mut fitting =
            self.rules.iter().filter(|rule| profile::demangle::matches(&rule.glob, name));
        let found = fitting.find_map(|rule| {
            let known = match &rule.shapes {
                Shapes::Any => BTreeMap::new(),
                Shapes::Arguments(patterns) => {
                    Dimensions::of(patterns, tensors.as_deref()?)?.values()
                }
                Shapes::Name(names) => {
                    let dims = &inner.as_ref()?.dims;
                    if dims.len() != names.len() {
                        return None;
                    }
                    names.iter().cloned().zip(dims.iter().map(|dim| *dim as f64)).collect()
                }
            };
            let value = |name: &str| -> Option<f64> {
                if let Some(value) = known.get(name) {
                    return Some(*value);
                }
                let tensors = tensors.as_deref().filter(|tensors| !tensors.is_empty());
                match name {
                    "size" => match tensors {
                        Some(tensors) => tensors[0].bytes_each(),
                        None => inner.as_ref()?.number.map(Number::bytes),
                    },
                    "arguments" => tensors?.iter().map(|tensor| tensor.bytes()).sum(),
                    "elements" => shapes::stretched(tensors?),
                    "last" => tensors?.last()?.elements(),
                    _ => None,
                }
            };
            let of = |formula: &Option<Formula>| -> Option<f64> {
                let formula = formula.as_ref()?;
                let each = |at: &usize| value(&formula.names[*at]);
                let values: Vec<f64> =
                    formula.bound.counters.iter().map(each).collect::<Option<_>>()?;
                formula.bound.value(1.0, &values).filter(|value| *value >= 0.0)
            };
            Some(Work { flop: of(&rule.flop), bytes: of(&rule.bytes), number })
        });
        found.filter(|work| work.flop.is_some() || work.bytes.is_some())
    }
}

fn rule(line: &str) -> Result<Rule, String> {
    let (glob, rest) =
        line.split_once(char::is_whitespace).ok_or("expected formulas after the name")?;
    let rest = rest.trim();
    if rest == UNKNOWN {
        return Ok(Rule { glob: glob.to_owned(), shapes: Shapes::Any, flop: None, bytes: None });
    }
    // Formulas begin at the last word before the first equals sign.
    let equals = rest.find('=').ok_or("expected flop = … or bytes = …")?;
    let before = rest[..equals].trim_end();
    let at = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let (shapes, formulas) = (rest[..at].trim(), &rest[at..]);
    let shapes = match shapes {
        "" => Shapes::Any,
        text if text.starts_with('[') => Shapes::Arguments(Pattern::all(text)?),
        text => {
            let names: Vec<String> = text.split('x').map(str::to_owned).collect();
            let is_word = |name: &String| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() && c != 'x')
            };
            match names.iter().all(is_word) {
                true => Shapes::Name(names),
                false => return Err(format!("{text:?}: expected [m, k], [k, n] or mxnxk")),
            }
        }
    };
    let mut names: Vec<String> = VARIABLES.iter().map(|name| (*name).to_owned()).collect();
    match &shapes {
        Shapes::Any => {}
        Shapes::Arguments(patterns) => names.extend(patterns.iter().flat_map(Pattern::names)),
        Shapes::Name(more) => names.extend(more.iter().cloned()),
    }
    names.sort();
    names.dedup();
    let operand = |name| Operand { name, unit: Unit::Count, scale: 1.0, group: 0 };
    let operands: Vec<Operand<'_>> = names.iter().map(|name| operand(name.as_str())).collect();
    let (mut flop, mut bytes) = (None, None);
    for formula in formulas.split(';').map(str::trim).filter(|formula| !formula.is_empty()) {
        let metric = Metric::parse(formula).map_err(|error| error.to_string())?;
        let bound = metric.bind(&operands).map_err(|error| format!("{formula}: {error}"))?;
        if bound.uses_duration() {
            return Err(format!("{formula}: work does not depend on the duration"));
        }
        let place = match metric.name.as_str() {
            "flop" => &mut flop,
            "bytes" => &mut bytes,
            other => return Err(format!("{other}: expected flop or bytes")),
        };
        *place = Some(Formula { bound, names: names.clone() });
    }
    Ok(Rule { glob: glob.to_owned(), shapes, flop, bytes })
}

#[cfg(test)]
mod tests;
