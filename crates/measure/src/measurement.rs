//! The counts between two readings.

use std::fmt;
use std::sync::Arc;

use model::{Scale, Unit, scaled};

use crate::error::ReadError;
use counters::{Coverage, Plan, Readings};

/// Two readings of the same counters. A value is found by the counter's name as it was typed, with
/// or without its modifiers (`page-faults:u` or `page-faults`).
#[derive(Clone)]
pub struct Measurement {
    plan: Arc<Plan>,
    pub(crate) begin: Readings,
    pub(crate) end: Readings,
    pub(crate) problem: Option<ReadError>,
}

/// One counter's part of a [`Measurement`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count<'m> {
    /// The counter's name.
    pub name: &'m str,
    /// The unit of the values after they were multiplied by `scale`.
    pub unit: Unit,
    /// The amount, in `unit`, for which one step of the raw value stands. It is 1 for all but a few
    /// PMUs.
    pub scale: Scale,
    /// Number of the counter's group, from 0. Only values of the same group may be divided by one
    /// another.
    pub group: u16,
    /// The number of steps by which the counter advanced; `None` if it could not be read.
    pub raw: Option<u64>,
    /// The part of the time between the two readings in which the counter ran.
    pub coverage: Coverage,
}

impl Measurement {
    pub(crate) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, begin: Readings::new(), end: Readings::new(), problem: None }
    }

    #[inline]
    pub(crate) fn is_of(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan)
    }

    /// Prepares the measurement for a new start, even if the measurement was made for another plan.
    #[inline]
    pub(crate) fn begin_anew(&mut self, plan: &Arc<Plan>) {
        if !Arc::ptr_eq(&self.plan, plan) {
            self.plan = Arc::clone(plan);
        }
        self.begin.clear();
        self.end.clear();
        self.problem = None;
    }

    /// Returns the count, or `None` if no counter has this name, if the counter could not be read,
    /// or if it ran for only a part of the time.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.count(name)?.exact()
    }

    /// Returns the count, or an estimate if the counter took turns with others on the hardware.
    pub fn estimate(&self, name: &str) -> Option<u64> {
        self.count(name)?.estimate()
    }

    /// Returns everything that is known about one counter. If no counter has this name, a name
    /// without modifiers also finds a counter with modifiers.
    pub fn count(&self, name: &str) -> Option<Count<'_>> {
        let whole = self.counts().find(|count| count.name == name);
        whole.or_else(|| self.counts().find(|count| without_modifiers(count.name) == name))
    }

    /// Iterates over all counters, in the order in which they were named.
    pub fn counts(&self) -> impl Iterator<Item = Count<'_>> {
        self.plan.counters().iter().enumerate().map(|(i, counter)| Count {
            name: &counter.name,
            unit: counter.unit,
            scale: counter.scale,
            group: counter.group,
            raw: self.end.since(&self.begin, i),
            coverage: self.end.coverage(&self.begin, i),
        })
    }

    /// Returns for how many nanoseconds the group was enabled: the time that the thread spent on a
    /// processor. `None` if there is no such group or it was not read.
    pub fn enabled_ns(&self, group: usize) -> Option<u64> {
        let first = usize::from(self.plan.groups().get(group)?.first);
        Some(self.end.enabled(first)?.wrapping_sub(self.begin.enabled(first)?))
    }

    /// Returns the error of [`Counters::measure`](crate::Counters::measure), if there was one.
    pub fn problem(&self) -> Option<ReadError> {
        self.problem
    }

    /// Returns the readings at the start and at the end, with their raw numbers.
    pub fn readings(&self) -> [&Readings; 2] {
        [&self.begin, &self.end]
    }
}

impl Count<'_> {
    /// Returns the count if the counter ran all the time.
    pub fn exact(&self) -> Option<u64> {
        self.raw.filter(|_| self.coverage == Coverage::Whole)
    }

    /// Returns the count, scaled to the whole time if the counter ran for only a part of it
    /// ([`model::scaled`]). The estimate is right only if events were equally frequent in the rest
    /// of the time. `None` if the counter never ran.
    pub fn estimate(&self) -> Option<u64> {
        match self.coverage {
            Coverage::Whole => self.raw,
            Coverage::Part { enabled_ns, running_ns } => scaled(self.raw?, enabled_ns, running_ns),
            Coverage::Nothing => None,
        }
    }

    /// Returns the part of the measured time in which the counter ran, from 0 to 1.
    pub fn covered(&self) -> f64 {
        match self.coverage {
            Coverage::Whole => 1.0,
            Coverage::Part { enabled_ns, running_ns } => running_ns as f64 / enabled_ns as f64,
            Coverage::Nothing => 0.0,
        }
    }
}

/// Writes a line for each counter: value (`–` if there is none), name, unit, and a note if the
/// value is missing or an estimate. If there was a problem, the last line describes it.
impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 3]> = self.counts().map(row).collect();
        let widest =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (value, name) = (widest(0), widest(1));
        for (i, row) in rows.iter().enumerate() {
            let line = format!("{:>value$}  {:<name$}  {}", row[0], row[1], row[2]);
            f.write_str(if i == 0 { "" } else { "\n" })?;
            f.write_str(line.trim_end())?;
        }
        match self.problem {
            Some(problem) => write!(f, "\n{problem}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counts()).finish()
    }
}

/// `cycles` for `cycles:uD`. Removes the modifiers, whose letters are those of `names::Modifiers`.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((head, letters)) if letters.chars().all(|c| "ukhGHIpD".contains(c)) => head,
        _ => name,
    }
}

fn row(count: Count<'_>) -> [String; 3] {
    let value = match count.estimate() {
        None => "–".to_owned(),
        Some(steps) if count.scale == Scale::ONE => grouped(steps),
        Some(steps) => (steps as f64 * count.scale.get()).to_string(),
    };
    let name = match count.unit {
        Unit::Count | Unit::Cycles | Unit::Other => count.name.to_owned(),
        unit => format!("{} ({unit})", count.name),
    };
    let note = match (count.coverage, count.raw) {
        (Coverage::Whole, _) => String::new(),
        (Coverage::Part { .. }, _) => {
            format!("estimate: counted {:.1} % of the time", count.covered() * 100.0)
        }
        (Coverage::Nothing, Some(_)) => "not counting during this time".to_owned(),
        (Coverage::Nothing, None) => "could not be read".to_owned(),
    };
    [value, name, note]
}

/// Returns `1,234,567` for 1234567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
