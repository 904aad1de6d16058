//! Simulates chance: puts the calls' durations into another order, while other variables keep
//! theirs.
//!
//! Neighbouring calls are similar (because of a busy machine, a frequency, a cache), so durations
//! are not moved one by one. Their sequence is cut into blocks of random lengths, and the blocks
//! are exchanged. The blocks are much longer than the distance over which neighbours are similar.
//! So durations keep their relation to neighbouring durations, and lose their relation to other
//! variables. Because the lengths are random, this also holds for variables that repeat
//! periodically (such as a workgroup or a thread).
//!
//! **The length.** τ is the factor by which the variance of a mean of neighbours is larger than if
//! they were independent. It is the largest value of B·Var(means of B calls)/Var(single calls) for
//! B = 1, 2, 4, … up to a twentieth of the calls. It is computed for the ranks of the durations,
//! for the distances of the ranks from the middle, and for whether each call is slow (1 or 0); the
//! largest value is used. A block has 4 (τ − 1) calls on average, but at least a 500th of all
//! calls, because fewer blocks can be moved faster. If this results in fewer than 16 blocks,
//! nothing is tested. If the similarity of neighbours decays exponentially, blocks of this length
//! underestimate the variance of a strength under chance by at most an eighth.
//!
//! **The time in the run** changes more slowly than any other variable, so the length of the blocks
//! matters most when the time is tested. If calls are similar over a long time, but most of their
//! variation is chance, τ is small although the similarity reaches far. So a block has on average 8
//! (τ − 1) calls, but at least twice the *reach*. The reach is the smallest B for which B·Var(means
//! of B calls)/Var(single calls) − 1 is at least three quarters of τ − 1. For this, τ is assumed to
//! be one standard deviation smaller than estimated.

use crate::diff::flips::split_mix;

/// With fewer blocks than this, too few different orders are possible for a test.
const LEAST_BLOCKS: usize = 16;
/// The variance of fewer means of neighbours than this is not used.
const LEAST_MEANS: usize = 20;
/// The length of a block as a multiple of τ − 1; twice as much to test the time in the run.
const TIMES_TAU: f64 = 4.0;
/// To test the time in the run, the mean length of a block is at least this many times [`reach`].
const TIMES_REACH: usize = 2;
/// [`reach`] is the smallest number of neighbours for which τ − 1 is at least this part of the
/// largest τ − 1.
const MOST_OF_TAU: f64 = 0.75;
/// The mean length of a block is at least the number of calls divided by this, because fewer blocks
/// can be moved faster.
const MANY_BLOCKS: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    calls: usize,
    /// The mean length of a block; 1 if single calls are moved.
    length: usize,
}

impl Blocks {
    /// Computes the blocks for calls with these series of values, each in the order of the calls.
    /// `None` if neighbours are so similar that there would be too few blocks.
    pub fn new(series: &[&[f32]]) -> Option<Self> {
        Self::longer_than(0, TIMES_TAU, series)
    }

    /// Computes the blocks for testing the time in the run. They are usually twice as long as those
    /// of [`Blocks::new`], and at least [`TIMES_REACH`] times as long as the largest [`reach`] in
    /// `level`.
    pub fn for_time(series: &[&[f32]], level: &[&[f32]]) -> Option<Self> {
        let reach = level.iter().map(|one| reach(one)).max().unwrap_or(0);
        Self::longer_than(TIMES_REACH * reach, 2.0 * TIMES_TAU, series)
    }

    fn longer_than(least: usize, times: f64, series: &[&[f32]]) -> Option<Self> {
        let calls = series.first().map_or(0, |one| one.len());
        let tau = series.iter().map(|one| tau(one)).fold(1.0, f64::max);
        let length = (times * (tau - 1.0)).round() as usize;
        let length = length.max(least).max(calls / MANY_BLOCKS).max(1);
        (length * LEAST_BLOCKS <= calls).then_some(Self { calls, length })
    }

    /// Computes another order of the calls, as pieces (from, to) of calls that stay together.
    /// Pieces can be copied faster than single calls.
    pub fn order(&self, seed: u64, pieces: &mut Vec<(usize, usize)>) {
        let mut state = seed ^ 0x6578_706c_6169_6e00;
        let mut below = |n: usize| ((u128::from(split_mix(&mut state)) * n as u128) >> 64) as usize;
        pieces.clear();
        if self.length == 1 {
            pieces.extend((0..self.calls).map(|at| (at, at + 1)));
            for at in (1..pieces.len()).rev() {
                pieces.swap(at, below(at + 1));
            }
            return;
        }
        let shift = below(self.calls);
        let mut blocks = Vec::with_capacity(2 * self.calls / self.length);
        let mut at = 0;
        while at < self.calls {
            let end = (at + self.length / 2 + 1 + below(self.length)).min(self.calls);
            blocks.push((at, end));
            at = end;
        }
        for at in (1..blocks.len()).rev() {
            blocks.swap(at, below(at + 1));
        }
        for (from, to) in blocks {
            let (begin, end) = (from + shift, to + shift);
            if begin >= self.calls {
                pieces.push((begin - self.calls, end - self.calls));
            } else {
                pieces.push((begin, end.min(self.calls)));
                // A block that extends beyond the last call continues with the first calls.
                if end > self.calls {
                    pieces.push((0, end - self.calls));
                }
            }
        }
    }
}

/// Copies the values of `of` to `to`, in the order of `pieces`.
pub(super) fn moved<T: Copy>(of: &[T], pieces: &[(usize, usize)], to: &mut Vec<T>) {
    to.clear();
    pieces.iter().for_each(|(from, end)| to.extend_from_slice(&of[*from..*end]));
}

/// Returns τ, which is at least 1.
fn tau(values: &[f32]) -> f64 {
    taus(values).iter().fold(1.0, |most, (_, tau)| most.max(*tau))
}

/// Returns the smallest number of neighbours for which τ − 1 is at least the part [`MOST_OF_TAU`]
/// of the largest τ − 1; 0 if the largest τ may be chance.
fn reach(values: &[f32]) -> usize {
    let taus = taus(values);
    // The second factor is one minus the relative standard error of the variance of n / B means, if
    // these are normally distributed. Here, n is `values.len()`, and B is `batch`.
    let at_least = |(batch, tau): &(usize, f64)| {
        tau * (1.0 - (2.0 * *batch as f64 / values.len() as f64).sqrt())
    };
    let most = taus.iter().map(at_least).fold(1.0, f64::max);
    let shows_most = |(_, tau): &&(usize, f64)| tau - 1.0 >= MOST_OF_TAU * (most - 1.0);
    if most == 1.0 { 0 } else { taus.iter().find(shows_most).map_or(0, |(batch, _)| *batch) }
}

/// Returns pairs of a number of neighbours and the τ of their mean.
fn taus(values: &[f32]) -> Vec<(usize, f64)> {
    let n = values.len();
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n.max(1) as f64;
    let variance =
        values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / n.max(1) as f64;
    let mut all = Vec::new();
    let mut batch = 2;
    while variance > 0.0 && batch * LEAST_MEANS <= n {
        let means = values.chunks_exact(batch).map(|some| {
            let sum: f64 = some.iter().map(|v| f64::from(*v)).sum();
            (sum / batch as f64 - mean).powi(2)
        });
        let of_means = means.sum::<f64>() / (n / batch) as f64;
        all.push((batch, batch as f64 * of_means / variance));
        batch *= 2;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_call_once() {
        for (calls, length) in [(1_000, 1), (1_000, 7), (997, 50)] {
            let mut pieces = Vec::new();
            Blocks { calls, length }.order(3, &mut pieces);
            let (all, mut order): (Vec<u32>, _) = ((0..calls as u32).collect(), Vec::new());
            moved(&all, &pieces, &mut order);
            let stays = order.iter().enumerate().filter(|(at, of)| *at as u32 == **of).count();
            assert!(stays < 200, "{stays} of {calls} calls stay where they are");
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..calls as u32));
        }
    }

    /// In runs of 8 equal values, the variance of a mean of 8 is that of one value. Independent
    /// values would have an eighth of it.
    #[test]
    fn tau_of_runs() {
        let mut state = 5;
        let mut coin = || (split_mix(&mut state) % 1_000) as f32;
        let alone: Vec<f32> = (0..20_000).map(|_| coin()).collect();
        assert!(tau(&alone) < 2.0, "{}", tau(&alone));
        let runs: Vec<f32> = (0..2_500).flat_map(|_| [coin(); 8]).collect();
        assert!((7.0..12.0).contains(&tau(&runs)), "{}", tau(&runs));
        assert_eq!(tau(&[1.0; 100]), 1.0);
        // A twentieth of the variance is constant over 64 calls, so the mean of 64 calls has a τ of
        // about 4.
        let state = &mut 9;
        let mut noise = || (split_mix(state) % 1_000) as f32 - 499.5;
        let mixed: Vec<f32> = (0..400)
            .flat_map(|_| {
                let stays = noise() * 0.23;
                [(); 64].map(|()| stays + noise())
            })
            .collect();
        assert!((2.0..8.0).contains(&tau(&mixed)), "{}", tau(&mixed));
        assert!((32..=512).contains(&reach(&mixed)), "{}", reach(&mixed));
        // For independent values, `reach` should be 0. But if the variance of few means is large by
        // chance, `reach` is not 0, so the test allows up to 8.
        assert!(reach(&alone) <= 8, "{}", reach(&alone));
        let walk = (0..2_000).scan(0.0, |sum, _| {
            *sum += coin() - 499.5;
            Some(*sum)
        });
        let walk: Vec<f32> = walk.collect();
        assert_eq!(Blocks::new(&[&walk]), None, "all neighbours of a random walk are alike");
    }
}
