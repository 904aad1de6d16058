//! Aligns the clocks of ranks by the calls of an op that no rank leaves before all ranks have
//! entered it, such as a barrier.
//!
//! ```text
//!  first rank   ├─ call k ─────┤              its start is not after the end of the other one,
//!  other rank        ├─ call k ────┤ + offset   and the other start is not after its end:
//!
//!  begin₀ − end ≤ offset ≤ end₀ − begin       for each k; the largest lower and the smallest upper limit
//! ```
//!
//! These limits do not assume that a message takes as long in one direction as in the other. The
//! result is the middle of the possible range, and half of that range is its uncertainty. The rank
//! that enters last has a short call, which brings one of the limits close to the true offset. So
//! the range is narrow if each of the two ranks was the last to enter some call. If clocks run at
//! different rates, the limits can contradict each other. In that case, there is no result.

use std::collections::BTreeMap;

/// The offset of a rank's clock: a time of the rank plus the offset is a time of the first rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The smallest possible offset, in ns.
    pub low_ns: i64,
    /// The largest possible offset, in ns.
    pub high_ns: i64,
}

impl Offset {
    /// Returns the middle of the possible offsets.
    pub fn ns(&self) -> f64 {
        (self.low_ns as f64 + self.high_ns as f64) / 2.0
    }

    /// Returns the largest possible error of [`Offset::ns`].
    pub fn uncertainty_ns(&self) -> f64 {
        (self.high_ns as f64 - self.low_ns as f64) / 2.0
    }
}

/// The reason why clocks cannot be aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAligned {
    /// The rank has no calls, or not as many as the first rank. So it is not known which calls of
    /// the two ranks correspond.
    OtherNumber {
        rank: u32,
        calls: usize,
        /// Number of calls of the first rank.
        first: usize,
    },
    /// No offset is possible: a rank left a call of the op before all ranks had entered it, or the
    /// clocks run at different rates.
    Impossible {
        rank: u32,
        /// By how many ns the lower limit is above the upper limit.
        by_ns: i64,
    },
}

/// Finds the offset of each rank. `calls` contains, for each rank, the begin and the end of each
/// call of the op on the rank's own clock, in the order of the calls.
///
/// # Errors
/// Returns the reason why clocks cannot be aligned.
pub fn align(calls: &BTreeMap<u32, Vec<(i64, i64)>>) -> Result<BTreeMap<u32, Offset>, NotAligned> {
    let Some((_, first)) = calls.first_key_value() else { return Ok(BTreeMap::new()) };
    let one = |(rank, own): (&u32, &Vec<(i64, i64)>)| {
        if own.len() != first.len() || own.is_empty() {
            let (calls, first) = (own.len(), first.len());
            return Err(NotAligned::OtherNumber { rank: *rank, calls, first });
        }
        if std::ptr::eq(own, first) {
            return Ok((*rank, Offset { low_ns: 0, high_ns: 0 }));
        }
        let both = || first.iter().zip(own);
        let low = both().map(|((begin, _), (_, end))| begin.saturating_sub(*end)).max();
        let high = both().map(|((_, end), (begin, _))| end.saturating_sub(*begin)).min();
        let (low_ns, high_ns) = (low.unwrap_or(0), high.unwrap_or(0));
        match low_ns <= high_ns {
            true => Ok((*rank, Offset { low_ns, high_ns })),
            false => {
                let by_ns = low_ns.saturating_sub(high_ns);
                Err(NotAligned::Impossible { rank: *rank, by_ns })
            }
        }
    };
    calls.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_by_hand() {
        // The clock of rank 4 is 1,000 ns ahead. Rank 4 enters the first call before rank 2, and
        // the second call after rank 2.
        let calls = [(2, vec![(100, 160), (200, 250)]), (4, vec![(1_050, 1_155), (1_240, 1_252)])];
        let found = align(&calls.into_iter().collect()).unwrap();
        assert_eq!(found[&2], Offset { low_ns: 0, high_ns: 0 });
        // The lower limit is the larger one of 200 − 1,252 and 100 − 1,155. The upper limit is the
        // smaller one of 160 − 1,050 and 250 − 1,240.
        assert_eq!(found[&4], Offset { low_ns: -1_052, high_ns: -990 });
        assert_eq!((found[&4].ns(), found[&4].uncertainty_ns()), (-1_021.0, 31.0));
    }

    /// The clocks and arrivals of the ranks are random.
    #[test]
    fn the_true_offset_is_inside() {
        let mut random = testkit::Random(0xc10c);
        for _ in 0..300 {
            let clocks: Vec<i64> =
                (0..8).map(|_| random.below(1 << 40) as i64 - (1 << 39)).collect();
            let mut calls: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
            let mut at = 1_000_000i64;
            for _ in 0..20 {
                let begins: Vec<i64> = (0..8).map(|_| at + random.below(10_000) as i64).collect();
                let last = *begins.iter().max().unwrap();
                for (rank, begin) in (0u32..).zip(&begins) {
                    let end = last + random.below(500) as i64;
                    let clock = clocks[rank as usize];
                    calls.entry(rank).or_default().push((begin + clock, end + clock));
                }
                at = last + 20_000;
            }
            for (rank, offset) in align(&calls).unwrap() {
                let truth = clocks[0] - clocks[rank as usize];
                assert!(
                    (offset.low_ns..=offset.high_ns).contains(&truth),
                    "{rank}: {offset:?} {truth}"
                );
                assert!(offset.uncertainty_ns() < 10_500.0);
            }
        }
    }

    #[test]
    fn what_does_not_wait_aligns_nothing() {
        let calls = |own| [(0, vec![(0, 10), (100, 110)]), (1, own)].into_iter().collect();
        let impossible = align(&calls(vec![(0, 10), (300, 310)])).unwrap_err();
        // The second call allows offsets from −210 to −190, and the first call allows offsets from
        // −10 to 10.
        assert_eq!(impossible, NotAligned::Impossible { rank: 1, by_ns: 180 });
        let other = align(&calls(vec![(0, 10)])).unwrap_err();
        assert_eq!(other, NotAligned::OtherNumber { rank: 1, calls: 1, first: 2 });
    }
}
