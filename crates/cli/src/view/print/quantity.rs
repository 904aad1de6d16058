//! Prints a value that has a confidence interval: `52.3 µs ±4 %`, or `<2.1 µs` if the interval
//! includes zero.

use analysis::Estimate;

use super::units;

/// The kind of an estimated value. It decides how the value is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Ns,
    Bytes,
    Count,
    Number,
}

/// An interval is printed only if half of its width is at least this part of the value.
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

    /// Returns the text of a value. If the interval includes zero, the text only says that the
    /// value is below the upper end of the interval.
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
