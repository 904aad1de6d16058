//! The weight of each timed call: for how many calls it stands.
//!
//! A call that was drawn with probability 1/w stands for about w calls. How many there really were is
//! known, because all were counted. So the weights of a class of [`Strata`] are multiplied by a factor
//! that makes them add up to the class's number of calls (*calibration*; Deville and Särndal, *Calibration
//! Estimators in Survey Sampling*, 1992):
//!
//! ```text
//!   weight 1       1: the call stands for itself
//!   class h        w · N_h / Σ w
//! ```
//!
//! Then Σ weight · value is the total that [`Strata`] estimates. Sums, means, quantiles, buckets,
//! correlations and metrics all use these weights, so they are about the same calls, whichever view
//! shows them.

use std::collections::HashMap;

use profile::Columns;

use super::strata::Strata;

/// Weights are whole numbers of these parts, so that sums of them are exact.
pub(crate) const SCALE: u64 = 1 << 20;

/// What the weights of the calls of one thread and op are multiplied by, for each class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factors {
    timed: Vec<(u32, f64)>,
    counted: Vec<(u32, f64)>,
}

impl Factors {
    /// `counted`: the first counter of which some calls were drawn says which calls had counters read.
    pub fn new<'a>(
        calls: u64,
        timed: &Strata,
        mut counted: impl Iterator<Item = &'a Strata>,
    ) -> Self {
        let counted = counted.find(|strata| strata.any_drawn());
        Self {
            timed: timed.factors(calls),
            counted: counted.map(|strata| strata.factors(calls)).unwrap_or_default(),
        }
    }

    /// For how many parts of a call a timed call of this weight stands.
    pub fn timed(&self, weight: u64) -> u64 {
        scaled(&self.timed, weight)
    }

    /// The same for a call whose counters were read.
    pub fn counted(&self, weight: u64) -> u64 {
        scaled(&self.counted, weight)
    }
}

fn scaled(factors: &[(u32, f64)], weight: u64) -> u64 {
    if weight <= 1 {
        return SCALE;
    }
    let number = weight.ilog2();
    let factor = factors.iter().find(|(of, _)| *of == number).map_or(1.0, |(_, factor)| *factor);
    (weight as f64 * factor * SCALE as f64).round() as u64
}

/// The weights of all calls of a profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weights {
    /// By process, thread and export. Empty without a budget.
    factors: HashMap<(usize, usize, u32), Factors>,
}

impl Weights {
    pub fn new(factors: HashMap<(usize, usize, u32), Factors>) -> Self {
        Self { factors }
    }

    /// The factors of a call. `None` without a budget.
    pub fn of(&self, columns: &Columns, i: usize) -> Option<&Factors> {
        if self.factors.is_empty() {
            return None;
        }
        self.factors.get(&(columns.process, columns.thread, *columns.export.get(i)?))
    }

    /// For how many parts of a call a timed call stands.
    pub fn timed(&self, columns: &Columns, i: usize) -> u64 {
        self.of(columns, i).map_or(SCALE, |factors| factors.timed(columns.weight(i)))
    }

    /// The same for a call whose counters were read.
    pub fn counted(&self, columns: &Columns, i: usize) -> u64 {
        self.of(columns, i).map_or(SCALE, |factors| factors.counted(columns.counter_weight(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights 4 and 6 of a class with 20 calls: 10 is to be 20, so they count twice.
    #[test]
    fn weights_add_up_to_the_number_of_calls() {
        let mut strata = Strata::default();
        strata.add(1, 5.0);
        strata.skip(9);
        [4, 6].into_iter().for_each(|weight| strata.add(weight, 7.0));
        let factors = Factors::new(21, &strata, std::iter::empty());
        let parts = [1, 4, 6].map(|weight| factors.timed(weight) / SCALE);
        assert_eq!(parts, [1, 8, 12]);
    }
}
