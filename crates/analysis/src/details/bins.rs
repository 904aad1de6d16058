//! Counts by size, in bins that grow with the values: 16 for each doubling.

use std::collections::HashMap;

/// Number of bins for each doubling of a value.
pub const PER_OCTAVE: f64 = 16.0;
/// The bin of 0, and of everything below 1.
pub const ZERO: u16 = 0;

/// The bin of a value. Bin `k` has the values from 2^((k-1)/16) to before 2^(k/16).
pub fn bin(value: f64) -> u16 {
    if value < 1.0 {
        return ZERO;
    }
    1 + (value.log2() * PER_OCTAVE).floor() as u16
}

/// The smallest value of a bin.
pub fn low(bin: u16) -> f64 {
    match bin {
        ZERO => 0.0,
        bin => (f64::from(bin - 1) / PER_OCTAVE).exp2(),
    }
}

/// How many values there are in each bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    counts: Vec<u64>,
}

impl Bins {
    pub(super) fn add(&mut self, bin: u16, count: u64) {
        let bin = usize::from(bin);
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += count;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (bin, count) in (0..).zip(&other.counts) {
            if *count > 0 {
                self.add(bin, *count);
            }
        }
    }

    /// The first bin that is not empty, and the counts from there to the last one. `None` without
    /// values.
    pub fn counts(&self) -> Option<(u16, &[u64])> {
        let first = self.counts.iter().position(|count| *count > 0)?;
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        Some((first as u16, &self.counts[first..=last]))
    }

    /// Sum of the counts.
    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The middle of the bin below which this part of all values lies. `None` without values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let target = (self.all() as f64 * part).max(1.0);
        let mut sum = 0;
        for (bin, count) in (0..).zip(&self.counts) {
            sum += count;
            if sum as f64 >= target && *count > 0 {
                return Some(middle(bin));
            }
        }
        None
    }
}

/// A value that stands for a bin: the geometric middle.
pub fn middle(bin: u16) -> f64 {
    match bin {
        ZERO => 0.0,
        bin => ((f64::from(bin) - 0.5) / PER_OCTAVE).exp2(),
    }
}

/// How often bins of two values came together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joint {
    counts: HashMap<(u16, u16), u64>,
}

impl Joint {
    pub(super) fn add(&mut self, x: u16, y: u16, count: u64) {
        *self.counts.entry((x, y)).or_default() += count;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.counts.iter().for_each(|((x, y), count)| self.add(*x, *y, *count));
    }

    /// The same in at most `most` columns and rows; `None` without values.
    pub fn grid(&self, most: usize) -> Option<Grid> {
        let x = Axis::of(self.counts.keys().map(|(x, _)| *x), most)?;
        let y = Axis::of(self.counts.keys().map(|(_, y)| *y), most)?;
        let mut counts = vec![0; x.cells * y.cells];
        for ((at, value), count) in &self.counts {
            counts[y.cell(*value) * x.cells + x.cell(*at)] += count;
        }
        Some(Grid { x: x.edges(), y: y.edges(), counts })
    }
}

/// Counts in a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The edges of the columns, one more than there are.
    pub x: Vec<f64>,
    /// The edges of the rows.
    pub y: Vec<f64>,
    /// Row by row, from the smallest values on.
    pub counts: Vec<u64>,
}

/// So many bins make up one cell.
struct Axis {
    first: u16,
    bins: u16,
    cells: usize,
}

impl Axis {
    fn of(bins: impl Iterator<Item = u16>, most: usize) -> Option<Self> {
        let (first, last) = bins.fold(None, |range, bin| {
            let (first, last) = range.unwrap_or((bin, bin));
            Some((bin.min(first), bin.max(last)))
        })?;
        let all = usize::from(last - first) + 1;
        let bins = all.div_ceil(most.max(1));
        Some(Self { first, bins: bins as u16, cells: all.div_ceil(bins) })
    }

    fn cell(&self, bin: u16) -> usize {
        usize::from((bin - self.first) / self.bins)
    }

    fn edges(&self) -> Vec<f64> {
        (0..=self.cells as u16).map(|cell| low(self.first + cell * self.bins)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_bin_that_begins_below_it() {
        for value in [1.0, 1.01, 2.0, 3.0, 1_000.0, 1e9, 1.8e19] {
            let at = bin(value);
            assert!(low(at) <= value * (1.0 + 1e-12), "{value}: {}", low(at));
            assert!(value < low(at + 1) * (1.0 + 1e-12), "{value}: {}", low(at + 1));
        }
        assert_eq!([bin(0.0), bin(0.99), bin(1.0)], [0, 0, 1]);
    }

    #[test]
    fn quantiles_are_within_a_bin() {
        let mut bins = Bins::default();
        (1..=1_000).for_each(|value| bins.add(bin(f64::from(value)), 1));
        for (part, value) in [(0.1, 100.0), (0.5, 500.0), (0.9, 900.0), (1.0, 1_000.0)] {
            let found = bins.quantile(part).unwrap();
            assert!((found / value).log2().abs() <= 1.0 / PER_OCTAVE, "{part}: {found}");
        }
        assert_eq!(Bins::default().quantile(0.5), None);
        let (first, counts) = bins.counts().unwrap();
        assert_eq!((first, counts.iter().sum::<u64>()), (1, 1_000));
    }

    #[test]
    fn a_grid_has_all_values() {
        let mut joint = Joint::default();
        assert_eq!(joint.grid(4), None);
        joint.add(bin(100.0), bin(0.0), 3);
        joint.add(bin(100_000.0), bin(7.0), 2);
        let grid = joint.grid(4).unwrap();
        assert!(grid.x.len() <= 5 && grid.y.len() <= 5);
        assert_eq!(grid.counts.len(), (grid.x.len() - 1) * (grid.y.len() - 1));
        assert_eq!(grid.counts.first(), Some(&3));
        assert_eq!(grid.counts.iter().sum::<u64>(), 5);
    }
}
