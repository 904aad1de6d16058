//! Processes eight bytes at a time: finds the end of a string or of digits, and converts digits to
//! a number.
//!
//! All operations are ordinary arithmetic on a 64-bit word.

/// Eight bytes of a document, the first one in the lowest byte.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

pub(super) const WIDTH: usize = 8;

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const HIGH: u64 = !LOW;

/// Returns a word whose bytes (lanes) are equal to `byte`.
const fn all(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// Returns the high bit of each lane that is not 0; all other bits are 0. No addition carries into
/// the next lane.
const fn not_zero(lanes: u64) -> u64 {
    (((lanes & LOW) + LOW) | lanes) & HIGH
}

impl Word {
    #[inline(always)]
    pub(super) fn of(bytes: [u8; WIDTH]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    #[inline(always)]
    fn are(self, byte: u8) -> u64 {
        !not_zero(self.0 ^ all(byte)) & HIGH
    }

    /// Returns the index of the first lane whose high bit is set; [`WIDTH`] if there is none.
    #[inline(always)]
    fn first(lanes: u64) -> usize {
        lanes.trailing_zeros() as usize / 8
    }

    /// Returns the index of the first byte that ends or interrupts a string: a quote, a backslash,
    /// or a control character.
    #[inline(always)]
    pub(super) fn string_stop(self) -> usize {
        let visible = ((self.0 & LOW) + all(0x80 - 0x20)) | self.0;
        Self::first(self.are(b'"') | self.are(b'\\') | !visible & HIGH)
    }

    /// Returns the index of the first byte that is not a digit.
    #[inline(always)]
    pub(super) fn past_digits(self) -> usize {
        let values = self.0 ^ all(b'0');
        Self::first((((values & LOW) + all(0x80 - 10)) | values) & HIGH)
    }

    /// Returns whether byte `count` (below [`WIDTH`]) is the first one that is not a digit.
    #[inline(always)]
    pub(super) fn digits_are(self, count: usize) -> bool {
        let values = self.0 ^ all(b'0');
        Self::first_is((((values & LOW) + all(0x80 - 10)) | values) & HIGH, count)
    }

    /// Returns whether byte `count` (below [`WIDTH`]) is a quote, and is the first byte at which
    /// [`Word::string_stop`] would stop.
    #[inline(always)]
    pub(super) fn quote_is(self, count: usize) -> bool {
        let visible = ((self.0 & LOW) + all(0x80 - 0x20)) | self.0;
        let stops = self.are(b'"') | self.are(b'\\') | !visible & HIGH;
        self.byte(count) == b'"' && Self::first_is(stops, count)
    }

    /// Returns whether lane `at` is the first one whose high bit is set. The expression is not
    /// `first(lanes) == at`, because a compiler could then use the computed index instead of `at`
    /// in the code that follows. [`shape`](super::shape) explains why this would be slower.
    #[inline(always)]
    fn first_is(lanes: u64, at: usize) -> bool {
        let bit = 0x80u64 << (8 * at as u32 % u64::BITS);
        lanes & (bit ^ (bit - 1)) == bit
    }

    /// `at` is below [`WIDTH`].
    #[inline(always)]
    pub(super) fn byte(self, at: usize) -> u8 {
        (self.0 >> (8 * at as u32 % u64::BITS)) as u8
    }

    #[inline(always)]
    pub(super) fn after(self) -> Self {
        Self(self.0 >> 8)
    }

    /// Returns the number that the first `count` bytes represent. These bytes must be digits.
    #[inline(always)]
    pub(super) fn number(self, count: usize) -> u64 {
        // The shift adds leading zeros, so that the number has eight digits, with the last digit in
        // the highest byte.
        let shift = 8 * (WIDTH - count.min(WIDTH)) as u32;
        let digits = (self.0 ^ all(b'0')).checked_shl(shift).unwrap_or(0);
        // Pairs of digits are combined into numbers of two digits, pairs of these into numbers of
        // four digits, and the last pair into one number of eight digits.
        let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
        let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
        fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{WIDTH, Word};

    proptest! {
        #[test]
        fn agrees_with_byte_by_byte(
            mut bytes in prop::array::uniform8(prop_oneof![
                any::<u8>(),
                prop::sample::select(b" \n\t\"\\a/09:\x1f\x20\x21\x7f\x80\xa0\xb0\xdc\xff".to_vec()),
            ]),
            digits in prop::collection::vec(b'0'..=b'9', 0..=WIDTH),
        ) {
            let first = |of: fn(u8) -> bool| bytes.iter().position(|b| of(*b)).unwrap_or(WIDTH);
            let stop = first(|b| b == b'"' || b == b'\\' || b < 0x20);
            prop_assert_eq!(Word::of(bytes).string_stop(), stop);
            for (at, byte) in bytes.iter().enumerate() {
                let quote = at == stop && *byte == b'"';
                prop_assert_eq!(Word::of(bytes).quote_is(at), quote);
                prop_assert_eq!(Word::of(bytes).byte(at), *byte);
            }

            bytes[..digits.len()].copy_from_slice(&digits);
            let lanes = Word::of(bytes);
            let past = bytes.iter().position(|b| !b.is_ascii_digit()).unwrap_or(WIDTH);
            prop_assert_eq!(lanes.past_digits(), past);
            for at in 0..WIDTH {
                prop_assert_eq!(lanes.digits_are(at), at == past);
            }
            for count in 0..=past {
                let text = std::str::from_utf8(&bytes[..count]).unwrap();
                prop_assert_eq!(lanes.number(count), text.parse().unwrap_or(0));
            }
        }
    }
}
