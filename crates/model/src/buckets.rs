//! Assigns a number to each bucket of a histogram of durations. The files of datasets contain these
//! numbers.
//!
//! Values below 128 have a bucket each. From 128 on, the range from each power of two to the next
//! is divided into 64 buckets of equal width:
//!
//! ```text
//!  value v, shift e = max(0, ⌊log₂ v⌋ − 6)        bucket = 64·e + ⌊v / 2ᵉ⌋
//!
//!   0 … 127   128, 130, … 254    256, 260, … 508    …  2⁶³ … 2⁶⁴−1
//!   width 1   width 2            width 4               width 2⁵⁷
//!   0 … 127   128 … 191          192 … 255          …  3712 … 3775
//! ```
//!
//! A bucket is represented by its middle, which differs from a value in the bucket by at most half
//! of the width 2ᵉ. From 128 on, half of the width is at most 1/128 of the value, because the value
//! is at least 64·2ᵉ.
//!
//! The numbers of buckets are stored in files, so they must never change. Non-negative signed
//! numbers of 64 bits, which query engines use for durations, need the buckets below 3,712.

/// The number of buckets that values of 64 bits need.
pub const BUCKETS: u16 = 3776;

/// Returns the bucket of a value.
#[inline]
pub fn bucket_of(value: u64) -> u16 {
    // The shift is at most 57, and the bucket at most 3,775.
    let shift = 64 - 7 - (value | 64).leading_zeros();
    (64 * u64::from(shift) + (value >> shift)) as u16
}

/// Returns the value that a bucket stands for; `None` if there is no such bucket.
pub fn middle_of(bucket: u16) -> Option<u64> {
    match bucket {
        0..128 => Some(bucket.into()),
        128..BUCKETS => {
            let shift = u32::from(bucket) / 64 - 1;
            Some((u64::from(bucket) % 64 + 64) << shift | 1 << (shift - 1))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn buckets_by_hand() {
        let of = [(0, 0), (127, 127), (128, 128), (129, 128), (130, 129), (255, 191), (256, 192)];
        of.iter().for_each(|(value, bucket)| assert_eq!(bucket_of(*value), *bucket, "{value}"));
        assert_eq!(bucket_of(u64::MAX), 3775);
        assert_eq!(
            (middle_of(127), middle_of(128), middle_of(192)),
            (Some(127), Some(129), Some(258))
        );
        assert_eq!((middle_of(3775), middle_of(3776)), (Some(255 << 56), None));
        for bucket in 0..BUCKETS {
            assert_eq!(middle_of(bucket).map(bucket_of), Some(bucket));
        }
    }

    /// Checks the first and the last value of each bucket.
    #[test]
    fn buckets_have_all_values_of_64_bits() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let first = next;
            let width = if bucket < 128 { 1 } else { 1u64 << (bucket / 64 - 1) };
            let last = first + (width - 1);
            assert_eq!((bucket_of(first), bucket_of(last)), (bucket, bucket));
            let middle = middle_of(bucket).unwrap();
            assert!(middle - first <= first / 128 && last - middle <= first / 128, "{bucket}");
            next = last.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends at 2⁶⁴");
    }
}
