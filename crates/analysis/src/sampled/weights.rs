//! Computes the weight of each timed call, which is the number of calls that it represents.
//!
//! A call that was chosen to be timed with probability 1/w represents about w calls. The real
//! number of calls is known, because all calls were counted. In each class of [`Strata`], the
//! weights are therefore multiplied by a factor, so that their sum is the class's number of calls
//! (*calibration*; Deville and Särndal, *Calibration Estimators in Survey Sampling*, 1992):
//!
//! ```text
//!   weight 1       1: the call stands for itself
//!   class h        w · N_h / Σ w
//! ```
//!
//! Then Σ weight · value is the total that [`Strata`] estimates.

use std::collections::HashMap;

use profile::Columns;

use super::strata::Strata;

/// Weights are whole numbers in units of 1/`SCALE` call, so that sums of them are exact.
pub(crate) const SCALE: u64 = 1 << 20;

/// The factors of one op on one thread: one for each class. The weights of a class are multiplied
/// by its factor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factors {
    timed: Vec<(u32, f64)>,
    counted: Vec<(u32, f64)>,
}

impl Factors {
    /// `counted` contains the strata of each counter. The factors for calls whose counters were
    /// read come from the first counter with calls of weight above 1.
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

    /// Returns how many calls a timed call of this weight represents, in units of 1/[`SCALE`].
    pub fn timed(&self, weight: u64) -> u64 {
        scaled(&self.timed, weight)
    }

    /// Like [`Self::timed`], for a call whose counters were read.
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

#[derive(Clone, Debug, Default)]
pub(crate) struct Weights {
    /// The factors by process, thread and export (function of an executable). Empty without a
    /// budget.
    factors: HashMap<(usize, usize, u32), Factors>,
}

impl Weights {
    pub fn new(factors: HashMap<(usize, usize, u32), Factors>) -> Self {
        Self { factors }
    }

    /// Returns the factors for the `i`-th call of `columns`. `None` without a budget.
    pub fn of(&self, columns: &Columns, i: usize) -> Option<&Factors> {
        if self.factors.is_empty() {
            return None;
        }
        self.factors.get(&(columns.process, columns.thread, *columns.export.get(i)?))
    }

    /// Returns how many calls a timed call represents, in units of 1/[`SCALE`].
    pub fn timed(&self, columns: &Columns, i: usize) -> u64 {
        self.of(columns, i).map_or(SCALE, |factors| factors.timed(columns.weight(i)))
    }

    /// Returns how many calls a call whose counters were read represents, in units of 1/[`SCALE`].
    pub fn counted(&self, columns: &Columns, i: usize) -> u64 {
        self.of(columns, i).map_or(SCALE, |factors| factors.counted(columns.counter_weight(i)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a class of 20 calls, two were timed, with the weights 4 and 6. The weights add up to 10,
    /// so each one is doubled.
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
