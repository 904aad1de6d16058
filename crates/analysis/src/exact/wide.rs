//! Computes sums that never wrap around: they are either right or missing.

/// The smallest number with 39 digits. Query engines commonly support decimal columns of at most 38
/// digits.
pub const BEYOND: u128 = 10u128.pow(38);

/// A sum of numbers that are not negative. A sum that exceeds 38 digits loses its value for good.
/// Because no number is negative, this happens whatever the order of the numbers is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum(Option<u128>);

impl Default for Sum {
    fn default() -> Self {
        Self(Some(0))
    }
}

impl Sum {
    /// Returns the sum, or `None` if it has more than 38 digits.
    pub fn get(self) -> Option<u128> {
        self.0
    }

    /// Adds a number. `None` stands for a number that is too large to be stored.
    #[inline]
    pub fn add(&mut self, number: Option<u128>) {
        let sum = self.0.zip(number).and_then(|(a, b)| a.checked_add(b));
        self.0 = sum.filter(|sum| *sum < BEYOND);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: Self) {
        self.add(other.0);
    }
}

/// A number of 256 bits: its upper and its lower half. The derived comparison needs this order of
/// the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wide(u128, u128);

impl Wide {
    /// Returns the product of two numbers. It always fits into 256 bits.
    pub fn product(a: u128, b: u128) -> Self {
        const LOW: u128 = (1 << 64) - 1;
        let (a1, a0, b1, b0) = (a >> 64, a & LOW, b >> 64, b & LOW);
        let (low, middle, other, high) = (a0 * b0, a1 * b0, a0 * b1, a1 * b1);
        // The sum of three numbers below 2⁶⁴ fits into 128 bits.
        let carry = (low >> 64) + (middle & LOW) + (other & LOW);
        Self(high + (middle >> 64) + (other >> 64) + (carry >> 64), carry << 64 | low & LOW)
    }

    /// Subtracts a number that is not larger than this one.
    pub fn less(self, other: Self) -> Self {
        let (low, borrow) = self.1.overflowing_sub(other.1);
        Self(self.0 - other.0 - u128::from(borrow), low)
    }

    /// Returns the nearest float.
    pub fn to_f64(self) -> f64 {
        match self.0 {
            0 => self.1 as f64,
            high => {
                // If a bit that is cut off was set, the lowest bit of `digits` is set, too, so that
                // the conversion to a float rounds correctly.
                let shift = high.leading_zeros();
                let lower = self.1.checked_shr(128 - shift).unwrap_or(0);
                let cut = self.1.checked_shl(shift).unwrap_or(0) != 0;
                let digits = high << shift | lower | u128::from(cut);
                digits as f64 * 2f64.powi(128 - shift as i32)
            }
        }
    }
}
