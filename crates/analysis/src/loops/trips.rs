//! Collects the numbers of iterations of a loop's hits (executions of the loop): the smallest, the
//! largest and their distribution. If iterations were not counted in all hits, their sum over all
//! hits is estimated.
//!
//! **Sampled hits.** In mode sampled, iterations are counted in timed hits. The counted hits of a
//! thread form two strata: the first hits, and random ones of the others. Times are estimated with
//! the same strata ([`super::estimate`]). The first hits of a loop are often unlike the others, for
//! example in a solver that begins far from its solution. So the mean of the random hits is not
//! used for the first hits:
//!
//! ```text
//!   first      I₁ iterations of n₁ hits, all of them counted
//!   others     N = hits − n₁ hits, of which m were drawn, with I₂ iterations
//!   all hits   ΣI₁ + ΣN · ΣI₂/Σm        the sums are over threads and registrations
//! ```
//!
//! There is no estimate, for example, if no hit of the second stratum was counted (m = 0) although
//! it has hits. Nor is there one if some hits did not end, so that their iterations are not known.

use profile::loops::LoopRow;

use super::Mode;

/// The numbers of iterations of the hits that were counted (`Numbers::iterated`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trips {
    /// The smallest number of iterations of a hit.
    pub least: u64,
    /// The largest number of iterations of a hit.
    pub most: u64,
    /// Number of hits by their number of iterations: element `b` is the number of hits in
    /// [`bucket`]`(b)`. Empty if the distribution was not requested, or is missing for some of the
    /// hits.
    pub buckets: Vec<u128>,
}

/// Returns the smallest and the largest number of iterations of a bucket.
pub fn bucket(index: usize) -> (u64, u64) {
    match index {
        0 => (0, 0),
        _ => {
            let first = 1_u64 << (index - 1).min(62);
            (first, if index < 63 { 2 * first - 1 } else { u64::MAX })
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct TripSum {
    /// `None` until a row is added that contains its smallest and largest number of iterations.
    trips: Option<Trips>,
    /// Whether a row with counted hits does not contain its smallest and largest number of
    /// iterations.
    missing: bool,
    strata: Strata,
}

/// The iterations of all hits, divided into two strata.
#[derive(Clone, Copy, Debug, Default)]
struct Strata {
    /// Sum of the iterations of the strata in which every hit was counted.
    exact: u128,
    /// Number of hits of the second stratum.
    others: u128,
    /// Number of hits of the second stratum whose iterations were counted.
    drawn: u128,
    /// Iterations of the hits in `drawn`.
    iterations: u128,
    /// Whether it is impossible to estimate the sum of the iterations of all hits. This is so if
    /// the strata of the counted hits are not known, or if hits were not counted for a reason other
    /// than sampling.
    missing: bool,
}

impl TripSum {
    pub fn of(row: &LoopRow, mode: Mode) -> Self {
        let known = row.trips.as_ref();
        let trips = known.map(|trips| Trips {
            least: trips.least,
            most: trips.most,
            buckets: trips.buckets.iter().map(|hits| (*hits).into()).collect(),
        });
        let missing = row.iterated > 0 && trips.is_none();
        Self { trips, missing, strata: Strata::of(row, mode) }
    }

    pub fn add(&mut self, other: &Self) {
        self.missing |= other.missing;
        self.trips = match (self.trips.take(), &other.trips) {
            (Some(mine), Some(theirs)) => Some(mine.and(theirs)),
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        let (mine, theirs) = (&mut self.strata, &other.strata);
        mine.exact += theirs.exact;
        mine.others += theirs.others;
        mine.drawn += theirs.drawn;
        mine.iterations += theirs.iterations;
        mine.missing |= theirs.missing;
    }

    /// Returns the numbers of iterations of single hits; `None` if they are missing for some
    /// counted hits, or if no hit was counted.
    pub fn trips(&self) -> Option<Trips> {
        self.trips.clone().filter(|_| !self.missing)
    }

    /// Returns the iterations of all hits; an estimate if not all hits were counted.
    pub fn iterations(&self) -> Option<f64> {
        let Strata { exact, others, drawn, iterations, missing } = self.strata;
        let of_others = match (others, drawn) {
            (0, _) => 0.0,
            (_, 0) => return None,
            _ => others as f64 * (iterations as f64 / drawn as f64),
        };
        (!missing).then_some(exact as f64 + of_others)
    }
}

impl Strata {
    fn of(row: &LoopRow, mode: Mode) -> Self {
        let none = Self { missing: true, ..Self::default() };
        let exact = Self { exact: row.iterations.into(), ..Self::default() };
        if row.iterated == row.hits {
            return exact;
        }
        // An estimate requires that every timed hit ended and that its iterations were counted. If
        // the iterations of no hit were counted, the loop has no counter of iterations.
        if mode != Mode::Sampled || row.begun != row.ended || row.iterated != row.ended {
            return none;
        }
        // `first_ended` is the number of hits that had ended when the thread's first random hit
        // began. If this number is 0, no random hit began, or all hits are random (`first=0`).
        let first = row.trips.as_ref().filter(|trips| trips.first <= row.iterations);
        let rest = |n: u64| row.hits.checked_sub(n).zip(row.iterated.checked_sub(n));
        let Some((first, (others, drawn))) = first.zip(rest(row.first_ended)) else { return none };
        let first = if row.first_ended == 0 { 0 } else { first.first };
        Self {
            exact: first.into(),
            others: others.into(),
            drawn: drawn.into(),
            iterations: (row.iterations - first).into(),
            missing: false,
        }
    }
}

impl Trips {
    fn and(self, other: &Self) -> Self {
        let mut buckets = self.buckets;
        if buckets.is_empty() || other.buckets.is_empty() {
            buckets.clear();
        } else {
            buckets.resize(buckets.len().max(other.buckets.len()), 0);
            buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        }
        Self { least: self.least.min(other.least), most: self.most.max(other.most), buckets }
    }
}

#[cfg(test)]
mod tests {
    use profile::loops::LoopTrips;

    use super::*;

    /// Makes a row of `hits` hits. `first` contains the iterations of the first hits, and `random`
    /// those of the random hits.
    fn row(hits: u64, first: &[u64], random: &[u64]) -> LoopRow {
        let all = || first.iter().chain(random).copied();
        let counted = (first.len() + random.len()) as u64;
        let mut buckets = vec![0; 64];
        all().for_each(|n| buckets[(64 - n.leading_zeros()) as usize] += 1);
        LoopRow {
            hits,
            begun: counted,
            ended: counted,
            iterations: all().sum(),
            iterated: counted,
            first_ended: if random.is_empty() { 0 } else { first.len() as u64 },
            trips: Some(LoopTrips {
                least: all().min().unwrap(),
                most: all().max().unwrap(),
                first: first.iter().sum(),
                buckets,
            }),
            ..LoopRow::default()
        }
    }

    fn of(rows: &[LoopRow], mode: Mode) -> TripSum {
        let mut sum = TripSum::default();
        rows.iter().for_each(|row| sum.add(&TripSum::of(row, mode)));
        sum
    }

    /// The estimate is 4,000 + 96 · 2. With the mean of all counted hits (4,008 / 8), it would be
    /// 50,100.
    #[test]
    fn the_first_hits_say_nothing_about_the_others() {
        let sum = of(&[row(100, &[1000; 4], &[1, 2, 2, 3])], Mode::Sampled);
        assert_eq!(sum.iterations(), Some(4192.0));
        let trips = sum.trips().unwrap();
        assert_eq!((trips.least, trips.most), (1, 1000));
        assert_eq!((trips.buckets[1], trips.buckets[2], trips.buckets[10]), (1, 3, 4));
    }

    /// The first hits of two threads had 10 + 20 iterations. Of the 90 + 30 other hits, 2 + 1 were
    /// counted, with 9 iterations.
    #[test]
    fn threads_add_up() {
        let sum = of(&[row(92, &[4, 6], &[2, 4]), row(31, &[20], &[3])], Mode::Sampled);
        assert_eq!(sum.iterations(), Some(30.0 + 120.0 * 3.0));
        let trips = sum.trips().unwrap();
        assert_eq!((trips.least, trips.most), (2, 20));
        assert_eq!(trips.buckets[..6], [0, 0, 2, 3, 0, 1]);
    }

    #[test]
    fn what_nobody_has_seen_is_not_estimated() {
        // Two of five hits were counted, but none of them is a random hit.
        assert_eq!(
            of(&[LoopRow { first_ended: 2, ..row(5, &[7, 7], &[]) }], Mode::Sampled).iterations(),
            None
        );
        // One hit did not end.
        assert_eq!(
            of(&[LoopRow { begun: 4, ..row(9, &[7, 7], &[1]) }], Mode::Sampled).iterations(),
            None
        );
        // A row recorded by an earlier version does not say how many iterations belong to the first
        // hits.
        let earlier = LoopRow { trips: None, ..row(9, &[7, 7], &[1]) };
        let sum = of(&[earlier, row(9, &[7, 7], &[1])], Mode::Sampled);
        assert_eq!((sum.iterations(), sum.trips()), (None, None));
        // If every hit was counted, the sum is exact in every mode, even for a row of an earlier
        // version.
        let all = LoopRow { trips: None, ..row(3, &[7, 7, 1], &[]) };
        for mode in [Mode::Sampled, Mode::Timed, Mode::Count, Mode::Log] {
            assert_eq!(of(std::slice::from_ref(&all), mode).iterations(), Some(15.0));
        }
        // One hit did not end.
        assert_eq!(of(&[row(4, &[7, 7, 1], &[])], Mode::Count).iterations(), None);
    }

    #[test]
    fn nonsense_is_missing() {
        let good = row(100, &[1000; 4], &[1, 2]);
        let trips = LoopTrips { first: u64::MAX, ..good.trips.clone().unwrap() };
        assert_eq!(
            of(&[LoopRow { trips: Some(trips), ..good.clone() }], Mode::Sampled).iterations(),
            None
        );
        assert_eq!(of(&[LoopRow { first_ended: 101, ..good }], Mode::Sampled).iterations(), None);
    }

    #[test]
    fn buckets_follow_one_another() {
        assert_eq!([bucket(0), bucket(1), bucket(2), bucket(4)], [(0, 0), (1, 1), (2, 3), (8, 15)]);
        for index in 1..64 {
            assert_eq!(bucket(index).0, bucket(index - 1).1 + 1);
        }
        assert_eq!(bucket(63), (1 << 62, u64::MAX));
    }
}
