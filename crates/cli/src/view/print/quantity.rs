//! Prints a value that has an interval: when people see `±4 %`, and when they see `<2.1 µs` because
//! the interval includes zero.

use analysis::Estimate;

use super::units;

/// Decides how an estimated value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Ns,
    Bytes,
    Count,
    Number,
}

/// People do not see an interval that is narrower than this part of its value.
const NARROW: f64 = 0.01;

impl Quantity {
    fn text(self, value: f64) -> String {
        match self {
            Self::Ns => units::time(value),
            Self::Bytes => units::bytes(value),
            Self::Count => units::count(value.round() as u128),
            Self::Number => units::number(value),
        }
    }

    /// Returns the text of a value. If the interval includes zero, the value is said to be below
    /// the upper end.
    pub fn text_of(self, of: Estimate, with_interval: bool) -> String {
        if !of.is_resolved() {
            // For a count, the upper end is rounded up to a whole number.
            let bound = if self == Self::Count { of.high.ceil() } else { of.high };
            return units::below(&self.text(bound.max(0.0)));
        }
        let text = self.text(of.value.max(0.0));
        match of.relative().filter(|part| with_interval && *part >= NARROW) {
            Some(part) => format!("{text} ±{:.0} %", 100.0 * part),
            None => text,
        }
    }
}
