//! Defines the units of metrics. The unit of an expression follows from the units of its counters
//! and numbers. People write units after numbers and after `in`.

use std::fmt;

use crate::Unit;

/// The dimension of a value: the powers of the base units in it. Values can only be added if their
/// powers of nanoseconds, bytes and joules agree. `counts` and `cycles` only affect the name of the
/// unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dimension {
    pub ns: i32,
    pub bytes: i32,
    pub joules: i32,
    pub counts: i32,
    pub cycles: i32,
}

/// A factor, as exponents of ten and two. A negative exponent of ten becomes a division, because
/// `f64` has exact values of 10, 100, … 10²², but not of 0.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Factor {
    pub tens: i32,
    pub twos: i32,
}

/// The unit of a metric's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricUnit {
    /// For example `ratio`, `%`, `cycles`, `Hz`, `bytes/s`, or the unit that was requested
    /// (`GB/s`).
    pub name: String,
    /// Whether the unit was requested with `in`.
    pub declared: bool,
    pub(super) dimension: Dimension,
    pub(super) factor: Factor,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quantity {
    /// The value in the base units of `dimension` (ns, bytes, joules), without a prefix.
    pub value: f64,
    pub dimension: Dimension,
}

impl Dimension {
    pub fn of(unit: Unit) -> Self {
        match unit.name() {
            "ns" => Self { ns: 1, ..Self::default() },
            "bytes" => Self { bytes: 1, ..Self::default() },
            "J" => Self { joules: 1, ..Self::default() },
            "cycles" => Self { cycles: 1, ..Self::default() },
            "count" => Self { counts: 1, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// `sign` is 1 for a product and −1 for a quotient.
    pub fn times(self, other: Self, sign: i32) -> Self {
        Self {
            ns: self.ns + sign * other.ns,
            bytes: self.bytes + sign * other.bytes,
            joules: self.joules + sign * other.joules,
            counts: self.counts + sign * other.counts,
            cycles: self.cycles + sign * other.cycles,
        }
    }

    /// Returns the dimension of a sum, if the operands can be added. Counts and cycles can be added
    /// to each other and to a number without a unit.
    pub fn plus(self, other: Self) -> Option<Self> {
        if (self.ns, self.bytes, self.joules) != (other.ns, other.bytes, other.joules) {
            return None;
        }
        let names = |d: Self| (d.counts, d.cycles);
        Some(match (names(self), names(other)) {
            (a, b) if a == b => self,
            ((0, 0), _) => other,
            (_, (0, 0)) => self,
            _ => Self { counts: 0, cycles: 0, ..self },
        })
    }

    /// Returns the unit for values with this dimension if the metric requests none.
    pub fn unit(self) -> MetricUnit {
        let named = |name: &str, tens| MetricUnit {
            name: name.to_owned(),
            declared: false,
            dimension: self,
            factor: Factor { tens, twos: 0 },
        };
        match (self.ns, self.bytes, self.joules) {
            (0, 0, 0) => match (self.counts, self.cycles) {
                (1, 0) => named("count", 0),
                (0, 1) => named("cycles", 0),
                _ => named("ratio", 0),
            },
            (1, 0, 0) => named("ns", 0),
            (-1, 0, 0) if (self.counts, self.cycles) == (0, 1) => named("Hz", -9),
            (-1, 0, 0) => named("/s", -9),
            (0, 1, 0) => named("bytes", 0),
            (-1, 1, 0) => named("bytes/s", -9),
            (0, 0, 1) => named("J", 0),
            (-1, 0, 1) => named("W", -9),
            _ => named(&self.product(), 9 * self.ns),
        }
    }

    /// Names a unit with seconds instead of nanoseconds: `bytes^2/s`.
    fn product(self) -> String {
        let powers = [(self.bytes, "bytes"), (self.joules, "J"), (self.ns, "s")];
        let side = |sign: i32| -> Vec<String> {
            powers
                .iter()
                .filter(|(power, _)| power.signum() == sign)
                .map(|(power, name)| match power.abs() {
                    1 => (*name).to_owned(),
                    n => format!("{name}^{n}"),
                })
                .collect()
        };
        let (above, below) = (side(1).join("·"), side(-1));
        if below.is_empty() { above } else { format!("{above}/{}", below.join("/")) }
    }
}

impl MetricUnit {
    /// Converts `value` from the base units (ns, bytes, joules) to this unit. Returns `None` if the
    /// result is not finite.
    pub(super) fn convert(&self, value: f64) -> Option<f64> {
        let value = value * 2f64.powi(-self.factor.twos);
        let value = match self.factor.tens {
            0 => value,
            n if n > 0 => value / 10f64.powi(n),
            n => value * 10f64.powi(-n),
        };
        // Adding 0 turns −0 into 0.
        value.is_finite().then_some(value + 0.0)
    }

    /// Parses the name of a unit: `GB/s`, `%`, `/ms`.
    pub(super) fn named(text: &str) -> Option<Self> {
        let (above, below) = match text.split_once('/') {
            Some((above, below)) => (above.trim(), Some(below.trim())),
            None => (text, None),
        };
        let mut all = match (above, below) {
            ("", Some(_)) => (Dimension::default(), Factor::default()),
            (above, _) => atom(above)?,
        };
        if let Some(below) = below {
            let (dimension, factor) = atom(below)?;
            all.0 = all.0.times(dimension, -1);
            all.1.tens -= factor.tens;
            all.1.twos -= factor.twos;
        }
        let (dimension, factor) = all;
        Some(Self { name: text.to_owned(), declared: true, dimension, factor })
    }
}

/// Units that can be typed, for hints.
pub(super) const UNITS: &str = "%, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi \
                                Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s";

/// Parses a unit without a slash: `ms`, `KiB`, `%`.
fn atom(text: &str) -> Option<(Dimension, Factor)> {
    let none = Dimension::default();
    let tens = |tens| Factor { tens, twos: 0 };
    match text {
        "%" => return Some((none, tens(-2))),
        "ratio" => return Some((none, tens(0))),
        "count" => return Some((Dimension { counts: 1, ..none }, tens(0))),
        "cycles" => return Some((Dimension { cycles: 1, ..none }, tens(0))),
        "bytes" => return Some((Dimension { bytes: 1, ..none }, tens(0))),
        _ => {}
    }
    // A prefix alone is also a unit: `G/s`.
    if let Some(factor) = prefix(text).filter(|_| !text.is_empty()) {
        return Some((none, factor));
    }
    let base = ["Hz", "s", "B", "J", "W"].into_iter().find(|base| text.ends_with(base))?;
    let factor = prefix(text.strip_suffix(base)?)?;
    let (dimension, base_tens) = match base {
        "s" => (Dimension { ns: 1, ..none }, 9),
        "B" => (Dimension { bytes: 1, ..none }, 0),
        "Hz" => (Dimension { ns: -1, cycles: 1, ..none }, -9),
        "J" => (Dimension { joules: 1, ..none }, 0),
        _ => (Dimension { joules: 1, ns: -1, ..none }, -9),
    };
    Some((dimension, Factor { tens: factor.tens + base_tens, ..factor }))
}

fn prefix(text: &str) -> Option<Factor> {
    let (tens, twos) = match text {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" | "µ" | "μ" => (-6, 0),
        "m" => (-3, 0),
        "k" | "K" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        _ => return None,
    };
    Some(Factor { tens, twos })
}

impl Quantity {
    /// Combines a number and a suffix, such as `64` and `KiB`.
    pub fn new(number: f64, suffix: &str) -> Option<Self> {
        let (dimension, factor) = match prefix(suffix) {
            Some(factor) => (Dimension::default(), factor),
            None => atom(suffix)?,
        };
        let value = number * 2f64.powi(factor.twos);
        let value = match factor.tens {
            n if n < 0 => value / 10f64.powi(-n),
            n => value * 10f64.powi(n),
        };
        Some(Self { value, dimension })
    }
}

/// Writes the quantity in a form that can be typed.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.dimension;
        let unit = match (d.ns, d.bytes, d.joules, d.counts, d.cycles) {
            (1, 0, 0, 0, 0) => "ns",
            (0, 1, 0, 0, 0) => "B",
            (0, 0, 1, 0, 0) => "J",
            (0, 0, 0, 1, 0) => "count",
            (0, 0, 0, 0, 1) => "cycles",
            (-1, 0, 0, 0, 1) => return write!(f, "({} / 1ns * 1cycles)", self.value),
            (-1, 0, 1, 0, 0) => return write!(f, "({} / 1ns * 1J)", self.value),
            _ => "",
        };
        write!(f, "{}{unit}", self.value)
    }
}
