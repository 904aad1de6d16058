//! Maps the values of metrics, which are floats, to integers, because the later steps need
//! integers.

use model::metric::Bound;
use profile::Profile;

use crate::metrics::PartOfTime;

use super::samples::{Column, Samples, Values};
use super::{Number, Variable};

/// Number of steps between the smallest and the largest value. An `f64` has a mantissa of 52 bits,
/// so more steps would hardly distinguish more values.
const STEPS: u64 = 1 << 52;

/// The range of values that is mapped to the grid.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grid {
    from: f64,
    to: f64,
}

impl Grid {
    /// Makes the grid for these values, which must be finite.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let fold = |range: Option<Self>, value: f64| match range {
            None => Some(Self { from: value, to: value }),
            Some(range) => Some(Self { from: range.from.min(value), to: range.to.max(value) }),
        };
        values.fold(None, fold).unwrap_or_default()
    }

    fn place(self, value: f64) -> u64 {
        if self.to <= self.from {
            return 0;
        }
        // The values are halved first, because the difference of two very large floats could be
        // infinite.
        let part = (value / 2.0 - self.from / 2.0) / (self.to / 2.0 - self.from / 2.0);
        ((part * STEPS as f64).round() as u64).min(STEPS)
    }

    fn step(self) -> f64 {
        (self.to / 2.0 - self.from / 2.0) / (STEPS / 2) as f64
    }

    fn value(self, place: f64) -> f64 {
        match place {
            p if p >= STEPS as f64 => self.to,
            p => self.from + p * self.step(),
        }
    }

    /// Maps the statistics of a variable from steps of the grid back to values of the metric.
    pub fn undo(self, variable: &mut Variable) {
        let value = |place: Option<f64>| place.map(|place| self.value(place));
        let number = |n: Option<Number>| n.map(|n| Number::Real(self.value(n.to_f64())));
        variable.mean = value(variable.mean);
        variable.standard_deviation = variable.standard_deviation.map(|s| s * self.step());
        (variable.min, variable.max) = (number(variable.min), number(variable.max));
        variable.bucket_means.iter_mut().for_each(|mean| *mean = value(*mean));
    }
}

impl Samples {
    /// Adds a column for each metric, computed from the recorded duration and from the counters,
    /// which are the columns after the first. `parts` contains a correction for each metric that is
    /// a part of the time (such as the part that calls spent on a CPU), and `None` for other
    /// metrics.
    pub(super) fn add_metrics(
        &mut self,
        profile: &Profile,
        metrics: &[Bound],
        parts: &[Option<PartOfTime>],
        recorded: Option<&Column>,
    ) -> Vec<Grid> {
        let ns_per_tick = profile.timeline.ns_per_tick();
        let mut grids = Vec::new();
        for (metric, bracket) in metrics.iter().zip(parts) {
            let all = self.slice(0, self.len());
            let mut operands = vec![0.0; metric.counters.len()];
            let values: Vec<Option<f64>> = (0..self.len())
                .map(|i| {
                    for (operand, counter) in operands.iter_mut().zip(&metric.counters) {
                        let column = all.columns.get(1 + counter)?;
                        *operand = column.is_there(i).then(|| column.raw(i) as f64)?;
                    }
                    let ticks = recorded.map_or(0, |column| column.values.at(i));
                    let ns = ticks as f64 * ns_per_tick;
                    match bracket {
                        None => metric.value(ns, &operands),
                        Some(bracket) => bracket.value(metric, ns, *operands.first()?),
                    }
                })
                .collect();
            let grid = Grid::of(values.iter().copied().flatten());
            let mut places = Values::default();
            values.iter().for_each(|v| places.push(v.map_or(0, |value| grid.place(value))));
            let missing: Vec<bool> = values.iter().map(Option::is_none).collect();
            let missing = missing.contains(&true).then_some(missing);
            self.columns.push(Column { values: places, missing });
            grids.push(grid);
        }
        grids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_grid_within_one_step() {
        for values in [
            vec![],
            vec![3.5],
            vec![-1.0, 0.0, 0.25, 7.0],
            vec![f64::MIN, 0.0, f64::MAX],
            vec![1e-300, 2e-300],
            vec![1.0, 1.0 + f64::EPSILON],
        ] {
            let grid = Grid::of(values.iter().copied());
            for value in &values {
                let back = grid.value(grid.place(*value) as f64);
                assert!((back - value).abs() <= grid.step(), "{values:?}: {value} {back}");
            }
            let places: Vec<u64> = values.iter().map(|v| grid.place(*v)).collect();
            assert!(places.is_sorted_by(|a, b| a < b), "{values:?}: {places:?}");
            if let (Some(first), Some(last)) = (values.first(), values.last()) {
                assert_eq!(grid.value(grid.place(*first) as f64), *first);
                assert_eq!(grid.value(grid.place(*last) as f64), *last);
            }
        }
    }
}
