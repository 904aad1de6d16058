//! The description of a benchmark: a [`Plan`] and the types of which it consists.

use std::collections::BTreeMap;
use std::process::Command;

use super::stats::{Estimate, mean_estimate, median_estimate};

/// The commands of a benchmark, and what is computed from their readings.
pub struct Plan {
    pub cases: Vec<Case>,
    pub figures: Vec<Figure>,
    /// The default number of rounds.
    pub rounds: usize,
    /// Notes for people who read the result. They are printed with it.
    pub notes: Vec<String>,
}

/// The number of rounds for programs that run for a large part of a second.
pub const USUAL_ROUNDS: usize = 15;

pub struct Case {
    pub label: &'static str,
    pub command: Box<dyn Fn() -> Command>,
    pub observe: Observe,
}

impl Case {
    pub fn new(
        label: &'static str,
        observe: Observe,
        command: impl Fn() -> Command + 'static,
    ) -> Self {
        Self { label, command: Box::new(command), observe }
    }
}

/// Says which readings are taken from the command of a case. Every variant includes the resource
/// usage of the command's process: `wall`, `user`, `sys` and `cpu-total` (user and sys together) in
/// milliseconds, and `max-rss` in KiB. All of these but `wall` include child processes for which
/// the process has waited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Observe {
    /// Only the process itself.
    Process,
    /// The usage of the process, and its lines `NAME VALUE UNIT` on stdout. Other lines are
    /// ignored.
    Lines,
    /// The usage of the process, and two values from Google Benchmark's JSON on its stdout: `real`
    /// and `cpu`, in nanoseconds per iteration.
    GoogleBenchmark,
    /// The usage of the process, and `private`: its highest private memory in KiB, sampled from
    /// `/proc/PID/smaps_rollup`. Unlike `max-rss`, `private` leaves out memory that the process
    /// shares with other processes.
    PrivateMemory,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    pub value: f64,
    pub unit: String,
}

pub type Readings = BTreeMap<String, Reading>;

/// The readings of one round, by case.
#[derive(Default)]
pub struct Round {
    cases: BTreeMap<&'static str, Readings>,
}

impl Round {
    pub fn insert(&mut self, case: &'static str, readings: Readings) {
        self.cases.insert(case, readings);
    }

    pub fn get(&self, of: &Of) -> Option<&Reading> {
        self.cases.get(of.case)?.get(&of.name)
    }

    pub fn cases(&self) -> impl Iterator<Item = (&'static str, &Readings)> {
        self.cases.iter().map(|(label, readings)| (*label, readings))
    }
}

#[derive(Clone)]
pub struct Of {
    pub case: &'static str,
    pub name: String,
}

impl Of {
    pub fn new(case: &'static str, name: impl Into<String>) -> Of {
        Of { case, name: name.into() }
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.case, self.name)
    }
}

#[derive(Clone)]
pub enum Formula {
    /// `over / under`.
    Ratio { over: Of, under: Of },
    /// `(of - minus) / divide`.
    Difference { of: Of, minus: Of, divide: f64 },
    /// `(of - minus) / under`.
    Share { of: Of, minus: Of, under: Of },
    /// The reading itself.
    Value(Of),
    /// The reading itself. The figure's result is the mean over the rounds instead of the median.
    Rate(Of),
}

pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub formula: Formula,
    /// The target. With `None`, there is no verdict.
    pub at_most: Option<f64>,
}

impl Figure {
    fn new(
        name: impl Into<String>,
        unit: &'static str,
        formula: Formula,
        at_most: impl Into<Option<f64>>,
    ) -> Self {
        Self { name: name.into(), unit, formula, at_most: at_most.into() }
    }

    pub fn ratio(
        name: impl Into<String>,
        unit: &'static str,
        over: Of,
        under: Of,
        at_most: impl Into<Option<f64>>,
    ) -> Self {
        Self::new(name, unit, Formula::Ratio { over, under }, at_most)
    }

    pub fn difference(
        name: impl Into<String>,
        unit: &'static str,
        of: Of,
        minus: Of,
        at_most: impl Into<Option<f64>>,
    ) -> Self {
        Self::mean_difference(name, unit, of, minus, 1.0, at_most)
    }

    pub fn mean_difference(
        name: impl Into<String>,
        unit: &'static str,
        of: Of,
        minus: Of,
        divide: f64,
        at_most: impl Into<Option<f64>>,
    ) -> Self {
        Self::new(name, unit, Formula::Difference { of, minus, divide }, at_most)
    }

    pub fn value(
        name: impl Into<String>,
        unit: &'static str,
        of: Of,
        at_most: impl Into<Option<f64>>,
    ) -> Self {
        Self::new(name, unit, Formula::Value(of), at_most)
    }
}

impl Formula {
    /// Returns `None`, not 0, if a reading is missing or a divisor is zero.
    pub fn of(&self, round: &Round) -> Option<f64> {
        let value = |of: &Of| round.get(of).map(|reading| reading.value);
        let result = match self {
            Formula::Ratio { over, under } => value(over)? / value(under)?,
            Formula::Difference { of, minus, divide } => (value(of)? - value(minus)?) / divide,
            Formula::Share { of, minus, under } => (value(of)? - value(minus)?) / value(under)?,
            Formula::Value(of) | Formula::Rate(of) => value(of)?,
        };
        result.is_finite().then_some(result)
    }

    pub fn estimate(&self, values: &[f64]) -> Option<Estimate> {
        match self {
            Formula::Rate(_) => mean_estimate(values),
            _ => median_estimate(values),
        }
    }
}

impl std::fmt::Display for Formula {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Formula::Ratio { over, under } => write!(f, "{over} / {under}"),
            Formula::Difference { of, minus, divide } if *divide == 1.0 => {
                write!(f, "{of} - {minus}")
            }
            Formula::Difference { of, minus, divide } => write!(f, "({of} - {minus}) / {divide}"),
            Formula::Share { of, minus, under } => write!(f, "({of} - {minus}) / {under}"),
            Formula::Value(of) => write!(f, "{of}"),
            Formula::Rate(of) => write!(f, "mean of {of}"),
        }
    }
}
