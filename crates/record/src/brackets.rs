//! Defines histograms of the times of brackets. A bracket is what the recorder does before and
//! after one call.
//!
//! ```text
//!            before                        after
//!  entry ├──────────────┤ start ··· end ├──────────────┤ exit
//!         read counters      the call     read counters, append the record
//! ```
//!
//! Calibration measures the brackets of empty calls, one after another, with warm caches. In the
//! program, the same code takes longer, by a factor that depends on the program. So the recorder
//! also measures the brackets of randomly chosen calls of the program. A part of a bracket's cost
//! is before `entry` or after `exit`. This part is the total cost of an empty call, which
//! calibration also measures, minus the two times of the empty call's bracket.

use crate::wire::wire;

/// Number of buckets for each doubling of the time. So the middle of a bucket differs by less than
/// 1/32 from the values in it, except in the last bucket.
const PER_OCTAVE: u64 = 16;
/// Number of buckets.
pub const BUCKETS: usize = 16 * 15 + 1;
/// The last bucket counts times from this many ticks on. Brackets with such times were probably
/// interrupted.
const LONGEST: u64 = 1 << 18;

/// Returns the index of the bucket that counts this many ticks.
#[inline(always)]
pub fn bucket_of(ticks: u64) -> usize {
    if ticks < PER_OCTAVE {
        return ticks as usize;
    }
    if ticks >= LONGEST {
        return BUCKETS - 1;
    }
    let octave = u64::from(ticks.ilog2()) - 4;
    (PER_OCTAVE * (octave + 1) + ((ticks >> octave) - PER_OCTAVE)) as usize
}

/// Returns the value in the middle of a bucket, in ticks.
pub fn middle_of(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < PER_OCTAVE {
        return bucket as f64;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let first = (PER_OCTAVE + bucket % PER_OCTAVE) << octave.min(48);
    first as f64 + ((1u64 << octave.min(48)) - 1) as f64 / 2.0
}

/// A histogram of times: the indices and counts of buckets that are not empty, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(pub Vec<(u16, u32)>);

impl Histogram {
    /// Creates the histogram from the counts of all buckets.
    pub fn new(counts: &[u32]) -> Self {
        let counts = counts.iter().enumerate().filter(|(_, n)| **n > 0);
        Self(counts.map(|(bucket, n)| (bucket as u16, *n)).collect())
    }

    /// Returns the number of measured times in the histogram.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, n)| u64::from(*n)).sum()
    }
}

/// The times of the brackets of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brackets {
    /// The thread: [`crate::page::PageStart::thread_uid`].
    pub thread_uid: u32,
    /// Bit mask of the counters that the brackets read; 0 if they read none.
    pub counters: u32,
    /// Whether these are the brackets of the calibration's empty calls.
    pub rehearsed: bool,
    /// The times from the entry into the recorder to the start of the recorded call, in ticks.
    pub before: Histogram,
    /// The times from the end of the recorded call to the return from the recorder, in ticks.
    pub after: Histogram,
}

wire!(Histogram { 0 });
wire!(Brackets { thread_uid, counters, rehearsed, before, after });

#[cfg(test)]
mod tests {
    use super::*;

    /// The buckets for 0 to 31 are one tick wide, the 16 buckets for 32 to 63 two ticks, and so on.
    #[test]
    fn buckets() {
        for (ticks, bucket, middle) in [
            (0, 0, 0.0),
            (15, 15, 15.0),
            (16, 16, 16.0),
            (31, 31, 31.0),
            (32, 32, 32.5),
            (33, 32, 32.5),
            (34, 33, 34.5),
            (63, 47, 62.5),
            (64, 48, 65.5),
            (100, 57, 101.5),
            (LONGEST - 1, BUCKETS - 2, 258_047.5),
            (LONGEST, BUCKETS - 1, 270_335.5),
            (u64::MAX, BUCKETS - 1, 270_335.5),
        ] {
            assert_eq!(
                (bucket_of(ticks), middle_of(bucket_of(ticks))),
                (bucket, middle),
                "{ticks}"
            );
        }
        // There are no gaps between buckets. From 16 ticks on, the values in a bucket of width w
        // are at least 16 w, and at most (w - 1) / 2 away from the bucket's middle.
        let all: Vec<usize> = (0..LONGEST).map(bucket_of).collect();
        assert!(all.windows(2).all(|two| two[1] == two[0] || two[1] == two[0] + 1));
        let far = (16..LONGEST).map(|t| (middle_of(bucket_of(t)) - t as f64).abs() / t as f64);
        assert!(far.fold(0.0, f64::max) < 1.0 / 32.0);
    }

    #[test]
    fn a_histogram_of_counts() {
        let histogram = Histogram::new(&[0, 3, 0, 0, 1]);
        assert_eq!((histogram.count(), histogram.0), (4, vec![(1, 3), (4, 1)]));
    }
}
