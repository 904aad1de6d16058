//! Compares the ranks of a run, from the sums of each op on each rank.

use super::{About, DEVIATIONS, FEWEST_RANKS, LEAST_PART, Place, Run, Sums};
use crate::diff::ranks::median;
use crate::exact::Histogram;

/// In a normal distribution, the standard deviation is this many times the median distance from the
/// median.
const OF_NORMAL: f64 = 1.4826;

/// The comparison of the ranks of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAcross {
    pub run: String,
    /// Sums over all ranks.
    pub sums: Sums,
    /// The ranks, sorted by number.
    pub ranks: Vec<RankAcross>,
    /// The ops, sorted by self time (by total time, if the self time is not known). The largest is
    /// first.
    pub ops: Vec<OpAcross>,
    /// The largest self time of a rank, as a multiple of the mean over the ranks.
    pub imbalance: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RankAcross {
    pub rank: u32,
    pub place: Place,
    /// Sums over all of the rank's ops.
    pub sums: Sums,
    /// The rank's self time as a multiple of the mean over the ranks.
    pub of_mean: Option<f64>,
    /// The op in which the rank's self time is farthest above the median over the ranks. An op in
    /// which the rank stands out has priority. `None` if the rank exceeds the median in no op for
    /// which its self time is known.
    pub slow: Option<Excess>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OpAcross {
    /// The identity of the op.
    pub key: String,
    pub name: String,
    pub about: About,
    pub ranks: usize,
    /// Sums over all ranks.
    pub sums: Sums,
    /// The largest total time of a rank, as a multiple of the mean over the ranks that called the
    /// op.
    pub imbalance: Option<f64>,
    /// The rank with the largest total time; of equal ranks, the first.
    pub most: Option<u32>,
    /// 10th percentile of the duration of a call, with a relative error of at most 1/128. `None` if
    /// the durations of some calls are not known.
    pub p10_ns: Option<u64>,
    /// Median of the duration of a call, with the same largest error as `p10_ns`.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the duration of a call, with the same largest error as `p10_ns`.
    pub p99_ns: Option<u64>,
}

/// How much the self time of an op on a rank exceeds the median over the ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excess {
    /// The index of the op in [`RunAcross::ops`].
    pub op: usize,
    /// The op's self time on the rank, in ns.
    pub own_ns: f64,
    /// The median of the op's self time over the ranks, in ns.
    pub median_ns: f64,
    /// Whether the excess is far larger than the usual differences between ranks (see
    /// [`DEVIATIONS`]). False if the self times of fewer than [`FEWEST_RANKS`] ranks are known.
    pub stands_out: bool,
    /// Whether the self time is an estimate.
    pub is_estimate: bool,
}

impl Excess {
    /// Returns the excess in ns.
    pub fn ns(&self) -> f64 {
        self.own_ns - self.median_ns
    }

    /// Returns the excess divided by the median. `None` if the median is 0.
    pub fn part(&self) -> Option<f64> {
        (self.median_ns > 0.0).then(|| self.ns() / self.median_ns)
    }
}

impl RunAcross {
    /// Returns the op's part of the self time of all ops, from 0 to 1. `None` if a time is not
    /// known, or if no op took any time.
    pub fn share(&self, op: &OpAcross) -> Option<f64> {
        let (own, all) = (op.sums.own_ns?, self.sums.own_ns.filter(|ns| *ns > 0)?);
        Some(own as f64 / all as f64)
    }

    /// Returns the ranks that stand out. The rank with the largest excess is first.
    pub fn slow(&self) -> Vec<(&RankAcross, Excess)> {
        let mut found = self.by_excess();
        found.retain(|(_, excess)| excess.stands_out);
        found
    }

    /// Returns the ranks that are above the median in an op, each with its [`RankAcross::slow`],
    /// the largest excess first.
    pub fn by_excess(&self) -> Vec<(&RankAcross, Excess)> {
        let all = self.ranks.iter().filter_map(|rank| Some((rank, rank.slow?)));
        let mut all: Vec<(&RankAcross, Excess)> = all.collect();
        all.sort_by(|a, b| b.1.ns().total_cmp(&a.1.ns()).then(a.0.rank.cmp(&b.0.rank)));
        all
    }
}

pub(super) fn of(name: String, run: Run) -> RunAcross {
    let numbers: Vec<u32> = run.places.keys().copied().collect();
    let mut of_ranks = vec![Sums::default(); numbers.len()];
    let mut ops: Vec<(OpAcross, Vec<Option<Sums>>)> = Vec::with_capacity(run.ops.len());
    for (number, op) in (0u32..).zip(run.ops) {
        let cells: Vec<Option<Sums>> =
            numbers.iter().map(|rank| run.cells.get(&(*rank, number)).copied()).collect();
        let mut sums = Sums::default();
        for (cell, of_rank) in cells.iter().zip(&mut of_ranks) {
            if let Some(cell) = cell {
                sums.add(cell);
                of_rank.add(cell);
            }
        }
        let totals = || cells.iter().map(|cell| cell.as_ref().and_then(|cell| cell.total_ns));
        let most = most(totals());
        let [p10_ns, p50_ns, p99_ns] = quantiles(&op.durations, &sums, [0.1, 0.5, 0.99]);
        let row = OpAcross {
            key: op.key,
            name: op.name,
            ranks: cells.iter().flatten().count(),
            imbalance: of_mean(most.map(|(_, total)| total), totals()),
            most: most.map(|(at, _)| numbers[at]),
            about: op.about.unwrap_or_default(),
            sums,
            p10_ns,
            p50_ns,
            p99_ns,
        };
        ops.push((row, cells));
    }
    // In a dataset, the table `hist` may contain an op that the table `stats` does not have.
    ops.retain(|(op, _)| op.ranks > 0);
    ops.sort_by(|(a, _), (b, _)| {
        let weight = |op: &OpAcross| op.sums.own_ns.or(op.sums.total_ns);
        weight(b).cmp(&weight(a)).then_with(|| (&a.name, &a.key).cmp(&(&b.name, &b.key)))
    });
    let owns = || of_ranks.iter().map(|sums| sums.own_ns);
    let usual = median(&owns().flatten().map(|ns| ns as f64).collect::<Vec<_>>()).unwrap_or(0.0);
    let mut slow: Vec<Option<Excess>> = vec![None; numbers.len()];
    for (number, (_, cells)) in ops.iter().enumerate() {
        for (found, new) in slow.iter_mut().zip(excesses(number, cells, usual)) {
            // An excess that stands out has priority over a larger one that does not. In the op of
            // the larger one, the ranks differ a lot anyway.
            let weight = |of: &Excess| (of.stands_out, of.ns());
            if let Some(new) = new
                && found.as_ref().is_none_or(|old| weight(&new) > weight(old))
            {
                *found = Some(new);
            }
        }
    }
    let mut sums = Sums::default();
    of_ranks.iter().for_each(|of| sums.add(of));
    let imbalance = of_mean(most(owns()).map(|(_, ns)| ns), owns());
    let ranks = numbers.iter().zip(run.places.into_values()).zip(&of_ranks).zip(slow);
    let ranks = ranks.map(|(((rank, place), sums), slow)| RankAcross {
        rank: *rank,
        place,
        sums: *sums,
        of_mean: of_mean(sums.own_ns, owns()),
        slow,
    });
    RunAcross {
        run: name,
        sums,
        ranks: ranks.collect(),
        ops: ops.iter().map(|(op, _)| op.clone()).collect(),
        imbalance,
    }
}

/// Computes by how much each rank exceeds the median in this op; `None` for a rank that does not.
/// `usual` is the self time that the median rank has in all ops.
fn excesses(op: usize, cells: &[Option<Sums>], usual: f64) -> Vec<Option<Excess>> {
    let own = |cell: &Option<Sums>| match cell {
        Some(cell) => cell.own_ns.map(|ns| ns as f64),
        None => Some(0.0),
    };
    let known: Vec<f64> = cells.iter().filter_map(own).collect();
    let Some(median_ns) = median(&known) else { return vec![None; cells.len()] };
    let distances: Vec<f64> = known.iter().map(|ns| (ns - median_ns).abs()).collect();
    let deviation = OF_NORMAL * median(&distances).unwrap_or(0.0);
    let limit = (DEVIATIONS * deviation).max(LEAST_PART * usual);
    let excess = |cell: &Option<Sums>| {
        let own_ns = own(cell)?;
        let is_estimate = cell.is_some_and(|cell| cell.is_estimate);
        // An estimate may be too large. So its possible error is subtracted from the excess that is
        // compared with the limit. Self times have no interval of their own, so the interval of the
        // total time is used.
        let too_large = match cell.as_ref().filter(|_| is_estimate) {
            None => Some(0),
            Some(cell) => cell.total_ns.zip(cell.total_range_ns).map(|(ns, (low, _))| ns - low),
        };
        let is_far = too_large.is_some_and(|by| own_ns - median_ns - by as f64 > limit);
        let stands_out = is_far && known.len() >= FEWEST_RANKS;
        let found = Excess { op, own_ns, median_ns, stands_out, is_estimate };
        (found.ns() > 0.0).then_some(found)
    };
    cells.iter().map(excess).collect()
}

/// Returns the index of the largest number, and this number. Of equal numbers, the first counts.
fn most(all: impl Iterator<Item = Option<i128>>) -> Option<(usize, i128)> {
    let known = all.enumerate().filter_map(|(at, ns)| Some((at, ns?)));
    known.reduce(|most, new| if new.1 > most.1 { new } else { most })
}

/// Returns `number` as a multiple of the mean of the known numbers of `all`.
fn of_mean(number: Option<i128>, all: impl Iterator<Item = Option<i128>>) -> Option<f64> {
    let (count, sum) =
        all.flatten().fold((0u32, 0i128), |(n, sum), ns| (n + 1, sum.saturating_add(ns)));
    let number = number.filter(|_| sum > 0)?;
    Some(number as f64 * f64::from(count) / sum as f64)
}

/// Returns quantiles of the durations. `None` if the histogram does not contain all calls.
fn quantiles<const N: usize>(of: &Histogram, sums: &Sums, parts: [f64; N]) -> [Option<u64>; N] {
    let is_whole = sums.calls.is_some_and(|calls| calls == i128::from(of.values()));
    parts.map(|part| of.quantile(part).filter(|_| is_whole))
}
