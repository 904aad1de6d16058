//! The buffer for one reading of all counters of a plan. The kernel writes its words directly to
//! this buffer, so nothing is copied or parsed. A reading in user mode writes only the times and
//! values.
//!
//! Each group is a block in the format of `read(2)` (`PERF_FORMAT_GROUP|ID` and both times). The
//! blocks follow each other in the order of the plan:
//!
//! ```text
//!  word   0    1        2        3        4     5        6     …
//!        ┌────┬────────┬────────┬────────┬─────┬────────┬─────┬───┬────┬────────┬───
//!        │ nr │enabled │running │value 0 │id 0 │value 1 │id 1 │ … │ nr │enabled │ …
//!        └────┴────────┴────────┴────────┴─────┴────────┴─────┴───┴────┴────────┴───
//!         group 0: 3 + 2·nr words                                 group 1
//! ```
//!
//! A mask with one bit at the first counter of each group describes the whole layout. A block
//! starts 3 words later for each group before it, and 2 words later for each counter before it.

use model::MAX_COUNTERS;

/// The maximum number of words that a plan can need: each counter in its own group.
pub(crate) const WORDS: usize = 5 * MAX_COUNTERS;

/// One reading of all counters of a plan, with a fixed size of 1.3 kB. Creating a value fills it
/// with zeros, so keep it where it can be reused.
#[repr(C)]
#[derive(Clone)]
pub struct Readings {
    /// A mask with one bit at the first counter of each group.
    pub(crate) starts: u32,
    /// A mask with one bit for each counter number that has no value.
    pub(crate) missing: u32,
    pub(crate) words: [u64; WORDS],
}

impl Default for Readings {
    fn default() -> Self {
        Self::new()
    }
}

impl Readings {
    /// Creates a reading in which every value is missing.
    pub const fn new() -> Self {
        Self { starts: 0, missing: !0, words: [0; WORDS] }
    }

    /// Returns what the plan's counter `i` has counted since it was opened, or `None` if the
    /// counter could not be read. Only differences between two readings of the same thread are
    /// meaningful.
    #[inline]
    pub fn value(&self, i: usize) -> Option<u64> {
        if self.is_missing(i) {
            return None;
        }
        self.words.get(self.place(i)).copied()
    }

    /// Returns the index of the word with the value of counter `i`. `i` is below [`MAX_COUNTERS`].
    #[inline]
    fn place(&self, i: usize) -> usize {
        // The usual layout has one group. For this layout, counting bits would cost more than
        // everything else here.
        let groups = match self.starts {
            1 => 1,
            starts => (starts & upto(i)).count_ones() as usize,
        };
        3 * groups + 2 * i
    }

    /// Returns the nanoseconds for which the group of counter `i` was enabled; `None` if it was not
    /// read.
    #[inline]
    pub fn enabled(&self, i: usize) -> Option<u64> {
        self.time(i, 1)
    }

    /// Returns the nanoseconds for which the group of counter `i` was actually counting.
    #[inline]
    pub fn running(&self, i: usize) -> Option<u64> {
        self.time(i, 2)
    }

    #[inline]
    fn time(&self, i: usize, word: usize) -> Option<u64> {
        if self.is_missing(i) {
            return None;
        }
        let mine = self.starts & upto(i);
        let first = mine.checked_ilog2()? as usize;
        let groups = mine.count_ones() as usize;
        self.words.get(3 * (groups - 1) + 2 * first + word).copied()
    }

    #[inline]
    fn is_missing(&self, i: usize) -> bool {
        i >= MAX_COUNTERS || self.missing >> i & 1 != 0
    }

    /// Returns a mask of the counters without a value; all bits above the plan's counters are set.
    #[inline]
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// Returns what counter `i` counted between `begin` and this reading of the same thread, or
    /// `None` if the counter is missing from one of the two readings. The count is not scaled; see
    /// [`Readings::coverage`].
    #[inline]
    pub fn since(&self, begin: &Readings, i: usize) -> Option<u64> {
        if self.is_missing(i) || begin.is_missing(i) {
            return None;
        }
        let at = self.place(i);
        let from = if begin.starts == self.starts { at } else { begin.place(i) };
        Some(self.words.get(at)?.wrapping_sub(*begin.words.get(from)?))
    }

    /// Returns how much of the time between `begin` and this reading the group of counter `i` was
    /// actually counting.
    #[inline]
    pub fn coverage(&self, begin: &Readings, i: usize) -> Coverage {
        let times = |from: &Self, to: &Self| {
            let enabled_ns = to.enabled(i)?.wrapping_sub(from.enabled(i)?);
            let running_ns = to.running(i)?.wrapping_sub(from.running(i)?);
            Some((enabled_ns, running_ns, to.running(i)?))
        };
        match times(begin, self) {
            Some((enabled_ns, running_ns, ever)) if enabled_ns == running_ns && ever > 0 => {
                Coverage::Whole
            }
            Some((enabled_ns, running_ns, _)) if running_ns > 0 => {
                Coverage::Part { enabled_ns, running_ns }
            }
            _ => Coverage::Nothing,
        }
    }

    /// Returns the blocks, for writers that copy whole groups. Words after the plan's last block,
    /// and the blocks of missing groups, are meaningless.
    #[inline]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Marks all values as missing.
    pub fn clear(&mut self) {
        self.missing = !0;
    }
}

/// Returns a mask of bits 0 to `i`. `i` is below 32.
#[inline]
fn upto(i: usize) -> u32 {
    u32::MAX >> (31 - (i & 31))
}

/// The part of an interval in which a group was actually counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The group was counting in the whole interval, so the difference of the two values is the
    /// count.
    Whole,
    /// The group was counting in a part of the interval, because of multiplexing, or because the
    /// thread also ran on other CPUs than the counter's. The difference of the two values can be
    /// too small.
    Part {
        /// Nanoseconds of the interval for which the group was enabled.
        enabled_ns: u64,
        /// Nanoseconds of that time during which the group was counting; more than 0.
        running_ns: u64,
    },
    /// The group was counting at no time, or was not read. The count is then unknown, and not 0.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes two groups: counters 0 and 1, then counter 2.
    fn two_groups() -> Readings {
        let mut r = Readings { starts: 0b101, missing: !0b111, words: [0; WORDS] };
        r.words[..7].copy_from_slice(&[2, 100, 90, 7, 1001, 8, 1002]);
        r.words[7..12].copy_from_slice(&[1, 50, 40, 9, 1003]);
        r
    }

    #[test]
    fn accessors_return_the_words_of_their_counter() {
        let r = two_groups();
        assert_eq!([0, 1, 2, 3].map(|i| r.value(i)), [Some(7), Some(8), Some(9), None]);
        assert_eq!([0, 1, 2, 3].map(|i| r.enabled(i)), [Some(100), Some(100), Some(50), None]);
        assert_eq!([0, 1, 2, 3].map(|i| r.running(i)), [Some(90), Some(90), Some(40), None]);
        assert_eq!(r.value(usize::MAX), None);
    }

    #[test]
    fn thirty_two_groups_of_one_and_one_group_of_thirty_two() {
        let mut r = Readings { starts: !0, missing: 0, words: [0; WORDS] };
        for i in 0..32 {
            r.words[5 * i..5 * i + 5].copy_from_slice(&[1, 10, 5, i as u64, 0]);
        }
        assert!((0..32).all(|i| r.value(i) == Some(i as u64) && r.running(i) == Some(5)));
        r.starts = 1;
        for i in 0..32 {
            r.words[3 + 2 * i] = i as u64;
        }
        assert!((0..32).all(|i| r.value(i) == Some(i as u64) && r.enabled(i) == Some(10)));
    }

    #[test]
    fn coverage_by_arithmetic() {
        let begin = two_groups();
        let mut end = two_groups();
        end.words[3] = 6; // wrapped
        assert_eq!(end.since(&begin, 0), Some(u64::MAX));
        (end.words[1], end.words[2]) = (120, 110);
        assert_eq!(end.coverage(&begin, 1), Coverage::Whole);
        (end.words[1], end.words[2]) = (120, 95);
        assert_eq!(end.coverage(&begin, 0), Coverage::Part { enabled_ns: 20, running_ns: 5 });
        end.words[2] = 90;
        assert_eq!(end.coverage(&begin, 0), Coverage::Nothing);
        end.missing = !0;
        assert_eq!(end.coverage(&begin, 2), Coverage::Nothing);
        assert_eq!(end.since(&begin, 2), None);
        // This group never ran, and was read twice within one tick of its clock.
        let zero = Readings { starts: 1, missing: !1, words: [0; WORDS] };
        assert_eq!(zero.coverage(&zero, 0), Coverage::Nothing);
    }
}
