//! Counts values in bins whose width grows with the values: 16 bins for each doubling.

use std::collections::HashMap;

/// Number of bins for each doubling of a value.
pub const PER_OCTAVE: f64 = 16.0;
/// The bin of all values below 1.
pub const ZERO: u16 = 0;

/// Returns the bin of a value. For k above 0, bin `k` contains the values from 2^((k-1)/16) up to,
/// but not including, 2^(k/16).
pub fn bin(value: f64) -> u16 {
    if value < 1.0 {
        return ZERO;
    }
    1 + (value.log2() * PER_OCTAVE).floor() as u16
}

/// Returns the smallest value of a bin.
pub fn low(bin: u16) -> f64 {
    match bin {
        ZERO => 0.0,
        bin => (f64::from(bin - 1) / PER_OCTAVE).exp2(),
    }
}

/// The number of values in each bin.
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

    /// Returns the first bin that is not empty, and the counts from there to the last bin that is
    /// not empty. `None` without values.
    pub fn counts(&self) -> Option<(u16, &[u64])> {
        let first = self.counts.iter().position(|count| *count > 0)?;
        let last = self.counts.iter().rposition(|count| *count > 0)?;
        Some((first as u16, &self.counts[first..=last]))
    }

    /// Returns the sum of the counts.
    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the middle of the bin that contains the quantile `part`. `None` without values.
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

/// Returns the geometric middle of a bin; 0 for the bin of values below 1.
pub fn middle(bin: u16) -> f64 {
    match bin {
        ZERO => 0.0,
        bin => ((f64::from(bin) - 0.5) / PER_OCTAVE).exp2(),
    }
}

/// The largest number of cells in the rectangle of a [`Joint`].
const CELLS: usize = 1 << 15;
/// When the rectangle grows, it gets this many bins beyond the new value, so that it need not grow
/// again for the next values.
const AROUND: u16 = 24;

/// Counts how often each bin of one value occurred together with each bin of another value.
///
/// A joint is updated for each counter of each call, so the update must be fast. Most cells (pairs
/// of bins) that occur in an op are near each other. They are in one rectangle of counts, which
/// grows to at most `CELLS` cells. A map contains the other cells, and counts that are too large
/// for the rectangle. With a map alone, counting took a seventh of the whole time for a page (block
/// of recorded calls).
#[derive(Clone, Debug, Default)]
pub struct Joint {
    /// The first bin of the rectangle on each axis. `size` is the number of bins on each axis.
    first: [u16; 2],
    size: [u16; 2],
    /// The counts of the rectangle, column by column.
    cells: Vec<u32>,
    others: HashMap<(u16, u16), u64>,
}

impl Joint {
    pub(super) fn add(&mut self, x: u16, y: u16, count: u64) {
        let place = self.place(x, y).or_else(|| self.grow(x, y));
        let cell = place.and_then(|place| self.cells.get_mut(place));
        let sum = cell.as_ref().and_then(|cell| cell.checked_add(u32::try_from(count).ok()?));
        match cell.zip(sum) {
            Some((cell, sum)) => *cell = sum,
            None => *self.others.entry((x, y)).or_default() += count,
        }
    }

    fn place(&self, x: u16, y: u16) -> Option<usize> {
        let [x, y] = [x.wrapping_sub(self.first[0]), y.wrapping_sub(self.first[1])];
        let is_inside = x < self.size[0] && y < self.size[1];
        is_inside.then(|| usize::from(x) * usize::from(self.size[1]) + usize::from(y))
    }

    /// Extends the rectangle to this cell, and returns the cell's index. `None` if there would be
    /// too many cells.
    fn grow(&mut self, x: u16, y: u16) -> Option<usize> {
        let (mut first, mut size) = (self.first, self.size);
        for (axis, bin) in [x, y].into_iter().enumerate() {
            let is_empty = self.size[axis] == 0;
            let mut end = self.first[axis] + self.size[axis];
            if is_empty || bin < first[axis] {
                first[axis] = bin.saturating_sub(AROUND);
            }
            if is_empty || bin >= end {
                end = bin.saturating_add(AROUND + 1);
            }
            size[axis] = end - first[axis];
        }
        let [columns, rows] = size.map(usize::from);
        if columns * rows > CELLS {
            return None;
        }
        let mut cells = vec![0; columns * rows];
        let old = usize::from(self.size[1]);
        let [left, below] =
            [0, 1].map(|axis| usize::from(self.first[axis].saturating_sub(first[axis])));
        for (at, column) in self.cells.chunks(old.max(1)).enumerate() {
            let at = (at + left) * rows + below;
            cells[at..at + old].copy_from_slice(column);
        }
        (self.first, self.size, self.cells) = (first, size, cells);
        self.place(x, y)
    }

    /// Returns all cells with their counts. A cell occurs twice if both the rectangle and the map
    /// have it.
    fn all(&self) -> impl Iterator<Item = (u16, u16, u64)> {
        let rows = usize::from(self.size[1]).max(1);
        let counted = self.cells.iter().enumerate().filter(|(_, count)| **count > 0);
        let cells = counted.map(move |(at, count)| {
            let [x, y] = [at / rows, at % rows].map(|bins| bins as u16);
            (self.first[0] + x, self.first[1] + y, u64::from(*count))
        });
        cells.chain(self.others.iter().map(|((x, y), count)| (*x, *y, *count)))
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.all().for_each(|(x, y, count)| self.add(x, y, count));
    }

    /// Returns the counts in a grid of at most `most` columns and rows, each of which joins
    /// neighbouring bins. `None` without values.
    pub fn grid(&self, most: usize) -> Option<Grid> {
        let x = Axis::of(self.all().map(|(x, ..)| x), most)?;
        let y = Axis::of(self.all().map(|(_, y, _)| y), most)?;
        let mut counts = vec![0; x.cells * y.cells];
        for (at, value, count) in self.all() {
            counts[y.cell(value) * x.cells + x.cell(at)] += count;
        }
        Some(Grid { x: x.edges(), y: y.edges(), counts })
    }
}

/// A grid of counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The edges of the columns. There is one more edge than columns.
    pub x: Vec<f64>,
    /// The edges of the rows. There is one more edge than rows.
    pub y: Vec<f64>,
    /// The counts row by row, beginning with the smallest values.
    pub counts: Vec<u64>,
}

/// Groups the bins of one variable into cells of `bins` bins each.
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

    /// The test adds small and large counts to cells that are near each other and to cells that are
    /// far from each other.
    #[test]
    fn a_joint_has_every_count() {
        use std::collections::BTreeMap;
        let (mut joint, mut expected) = (Joint::default(), BTreeMap::new());
        let (mut near, mut x, mut y) = (Joint::default(), 0u32, 0u32);
        for n in 0..4_000u32 {
            (x, y) = ((x * 31 + 7 + n) % 997, (y * 17 + 3 + n) % 1_031);
            let far = n % 3 == 0;
            let at = if far { (x as u16, y as u16) } else { ((x % 90) as u16, (y % 80) as u16) };
            let count = if n % 500 == 0 { u64::from(u32::MAX) } else { u64::from(n % 7) };
            joint.add(at.0, at.1, count);
            near.add(at.0 % 100 + 300, at.1 % 100 + 200, count);
            *expected.entry(at).or_insert(0) += count;
        }
        let of = |joint: &Joint| {
            let mut all: BTreeMap<(u16, u16), u64> = BTreeMap::new();
            joint.all().for_each(|(x, y, count)| *all.entry((x, y)).or_default() += count);
            all.retain(|_, count| *count > 0);
            all
        };
        expected.retain(|_, count| *count > 0);
        assert!(joint.cells.len() <= CELLS && !joint.others.is_empty());
        assert_eq!(of(&joint), expected);
        let mut both = near.clone();
        both.merge(&joint);
        assert_eq!(of(&both).values().sum::<u64>(), 2 * expected.values().sum::<u64>());
        assert!(near.others.len() < 20, "{}", near.others.len());
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
