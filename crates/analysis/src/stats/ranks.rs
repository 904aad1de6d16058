//! Sorts the values of one variable. Computes their mean and squared deviations, the rank and the
//! bucket of each value, and the mean of each bucket. Ranks are stored doubled, so that the mean of
//! several ranks is an integer, too.
//!
//! Equal values form a *class*. Classes are visited from small to large. If the values are close
//! together, the calls with each value are counted in a table. Otherwise, the values are
//! distributed by their upper bits ([`PART_BITS`]) into parts. Each part is sorted by the lower
//! bits of the value and the index of the call. Lower bits and index together usually fit into 64
//! bits (with 10 million calls, if the values span less than 2⁵¹). If they do not fit, all values
//! are sorted at once, in 96 bits each.

use super::samples::{ColumnSlice, ValueSlice};
use super::{Number, Variable};

/// If the difference between the largest and the smallest value is less than this, the values are
/// counted in a table, however few there are.
const COUNTED: u64 = 1 << 12;
/// A value's part is chosen by this many upper bits of its difference from the smallest value.
/// There are up to 2^`PART_BITS` parts, so a part usually fits into a cache.
const PART_BITS: u32 = 11;
/// If an op has fewer calls than this, all values form one part.
const FEW: usize = 1 << 12;
/// Number of terms that are summed separately before their sum is added to the total, so that the
/// rounding errors of long sums stay small.
pub(super) const BLOCK: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ranked {
    pub calls: u64,
    pub min: u64,
    pub max: u64,
    /// Mean of the differences from `min`.
    pub mean_above_min: f64,
    mean: f64,
    /// Sum of the squared differences from the mean.
    pub squares: f64,
    /// Sum of the squared differences of the doubled ranks from their mean.
    pub rank_squares: i128,
    bucket_means: Vec<Option<f64>>,
}

impl From<&Ranked> for Variable {
    fn from(ranked: &Ranked) -> Self {
        let some = ranked.calls > 0;
        Self {
            calls: ranked.calls,
            mean: some.then_some(ranked.mean),
            standard_deviation: (ranked.calls > 1)
                .then(|| (ranked.squares / (ranked.calls - 1) as f64).sqrt()),
            min: some.then_some(Number::Whole(ranked.min)),
            max: some.then_some(Number::Whole(ranked.max)),
            bucket_means: ranked.bucket_means.clone(),
            effective: None,
        }
    }
}

/// Buffers that are used again for every variable.
#[derive(Debug, Default)]
pub(super) struct RankScratch {
    /// For each value: the index of its call, and, in the bits above the index, the lower bits of
    /// its difference from the smallest value.
    packed: Vec<u64>,
    other: Vec<u64>,
    wide: Vec<Wide>,
    counts: Vec<u32>,
    /// Doubled rank and bucket of each value, by its difference from the smallest.
    classes: Vec<(u32, u8)>,
}

/// A value of 64 bits and the index of its call, in twelve bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    high: u32,
    low: u32,
    place: u32,
}

impl RankScratch {
    /// Frees the buffers if a description of many calls has made them large.
    pub fn shrink(&mut self) {
        if self.packed.capacity() + self.wide.capacity() + self.counts.capacity() > super::SMALL * 4
        {
            *self = Self::default();
        }
    }
}

/// Returns `sum / n`. The sum is divided as an integer first, because a float cannot represent
/// every large sum exactly.
pub(super) fn mean(sum: u128, n: u64) -> f64 {
    let n = u128::from(n.max(1));
    (sum / n) as f64 + (sum % n) as f64 / n as f64
}

/// Ranks a variable. For each value that exists, `ranks` gets twice its rank, and `places` gets its
/// bucket. Ranks begin with 1; equal values get the mean of the ranks that they span. The entries
/// of missing values are undefined.
pub(super) fn rank(
    column: &ColumnSlice<'_>,
    buckets: usize,
    scratch: &mut RankScratch,
    ranks: &mut [u32],
    places: &mut [u8],
) -> Ranked {
    let (mut calls, mut sum, mut min, mut max) = (0u64, 0u128, u64::MAX, 0u64);
    match (column.values, column.missing) {
        // This is the most frequent case (32-bit values, none of them missing), in a form that the
        // compiler can vectorize.
        (ValueSlice::Narrow(values), None) => {
            for block in values.chunks(BLOCK) {
                sum += u128::from(block.iter().map(|v| u64::from(*v)).sum::<u64>());
            }
            calls = values.len() as u64;
            min = values.iter().min().map_or(min, |v| u64::from(*v));
            max = values.iter().max().map_or(max, |v| u64::from(*v));
        }
        _ => {
            for i in (0..ranks.len()).filter(|i| column.is_there(*i)) {
                let value = column.raw(i);
                (min, max) = (min.min(value), max.max(value));
                sum += u128::from(value);
                calls += 1;
            }
        }
    }
    if calls == 0 {
        return Ranked { bucket_means: vec![None; buckets], ..Ranked::default() };
    }
    let above = mean(sum - u128::from(min) * u128::from(calls), calls);
    let mut classes = Classes::new(calls, min, above, buckets);
    if max - min < COUNTED.max(calls / 2) {
        count(column, min, max, scratch, &mut classes, ranks, places);
    } else {
        sort(column, min, max, scratch, &mut classes, ranks, places);
    }
    Ranked {
        calls,
        min,
        max,
        mean_above_min: above,
        mean: mean(sum, calls),
        squares: classes.squares + classes.block,
        rank_squares: classes.rank_squares,
        bucket_means: classes.bucket_means(),
    }
}

fn count(
    column: &ColumnSlice<'_>,
    min: u64,
    max: u64,
    scratch: &mut RankScratch,
    classes: &mut Classes,
    ranks: &mut [u32],
    places: &mut [u8],
) {
    let range = (max - min) as usize + 1;
    scratch.counts.clear();
    scratch.counts.resize(range, 0);
    column.each(|_, value| scratch.counts[(value - min) as usize] += 1);
    scratch.classes.clear();
    scratch.classes.resize(range, (0, 0));
    for (value, class) in scratch.classes.iter_mut().enumerate() {
        let calls = scratch.counts[value];
        if calls > 0 {
            *class = classes.add(min + value as u64, calls.into());
        }
    }
    column.each(|i, value| (ranks[i], places[i]) = scratch.classes[(value - min) as usize]);
}

#[allow(clippy::too_many_arguments, reason = "a step of `rank`, which owns all of these")]
fn sort(
    column: &ColumnSlice<'_>,
    min: u64,
    max: u64,
    scratch: &mut RankScratch,
    classes: &mut Classes,
    ranks: &mut [u32],
    places: &mut [u8],
) {
    let place_bits = u64::BITS - (ranks.len() as u64).leading_zeros();
    let bits = u64::BITS - (max - min).leading_zeros();
    let low = if ranks.len() < FEW { bits } else { bits.saturating_sub(PART_BITS) };
    if low + place_bits <= u64::BITS {
        sort_parts(column, min, (max, low, place_bits), scratch, classes, ranks, places);
        return;
    }
    let there = (0..ranks.len()).filter(|i| column.is_there(*i));
    scratch.wide.clear();
    scratch.wide.extend(there.map(|i| {
        let value = column.raw(i);
        Wide { high: (value >> 32) as u32, low: value as u32, place: i as u32 }
    }));
    scratch.wide.sort_unstable();
    for class in scratch.wide.chunk_by(|a, b| (a.high, a.low) == (b.high, b.low)) {
        let value = u64::from(class[0].high) << 32 | u64::from(class[0].low);
        let (rank, bucket) = classes.add(value, class.len() as u64);
        for item in class {
            (ranks[item.place as usize], places[item.place as usize]) = (rank, bucket);
        }
    }
}

/// Sorts values that fit into 64 bits together with their index: `low` bits of the value, and
/// `place_bits` of the index.
fn sort_parts(
    column: &ColumnSlice<'_>,
    min: u64,
    (max, low, place_bits): (u64, u32, u32),
    scratch: &mut RankScratch,
    classes: &mut Classes,
    ranks: &mut [u32],
    places: &mut [u8],
) {
    let RankScratch { packed, other, counts, .. } = scratch;
    let parts = ((max - min) >> low) as usize + 1;
    counts.clear();
    counts.resize(parts, 0);
    column.each(|_, value| counts[((value - min) >> low) as usize] += 1);
    let mut at = 0;
    for count in counts.iter_mut() {
        at += std::mem::replace(count, at);
    }
    packed.clear();
    packed.resize(at as usize, 0);
    let (mask, place_mask) = ((1u64 << low) - 1, (1u64 << place_bits) - 1);
    column.each(|i, value| {
        let next = &mut counts[((value - min) >> low) as usize];
        packed[*next as usize] = ((value - min) & mask) << place_bits | i as u64;
        *next += 1;
    });
    // Each element of `counts` is now the end of its part.
    let mut from = 0;
    for (part, end) in (0u64..).zip(counts.iter()) {
        let items = &mut packed[from..*end as usize];
        from = *end as usize;
        sort_by_value(items, other, low, place_bits);
        for class in items.chunk_by(|a, b| a >> place_bits == b >> place_bits) {
            let value = min + (part << low | class[0] >> place_bits);
            let (rank, bucket) = classes.add(value, class.len() as u64);
            for item in class {
                let place = (item & place_mask) as usize;
                (ranks[place], places[place]) = (rank, bucket);
            }
        }
    }
}

/// Sorts the items by the `bits` bits that begin at bit `from`. The items must be in the order of
/// the bits below `from`. Items that are equal in the sorted bits stay in this order.
fn sort_by_value(items: &mut [u64], other: &mut Vec<u64>, bits: u32, from: u32) {
    let digit = if items.len() < 1 << 14 { 8 } else { 11 };
    let passes = bits.div_ceil(digit);
    if items.len() < 64 * passes as usize {
        // A sort by all bits gives the same result, because the items already are in the order of
        // the bits below `from`.
        items.sort_unstable();
        return;
    }
    if passes == 0 {
        return;
    }
    other.clear();
    other.resize(items.len(), 0);
    let width = bits.div_ceil(passes);
    let (mut source, mut target) = (items, other.as_mut_slice());
    for pass in 0..passes {
        let shift = from + pass * width;
        let digit_of = |item: u64| (item >> shift & ((1 << width) - 1)) as usize;
        let mut starts = [0u32; 1 << 11];
        source.iter().for_each(|item| starts[digit_of(*item)] += 1);
        let mut at = 0;
        for count in &mut starts[..1 << width] {
            at += std::mem::replace(count, at);
        }
        for item in source.iter() {
            let next = &mut starts[digit_of(*item)];
            target[*next as usize] = *item;
            *next += 1;
        }
        std::mem::swap(&mut source, &mut target);
    }
    if passes % 2 == 1 {
        // The sorted values are in `other`.
        target.copy_from_slice(source);
    }
}

struct Classes {
    calls: u64,
    min: u64,
    mean_above_min: f64,
    /// Sorted position of the next class.
    at: u64,
    classes: usize,
    bucket: usize,
    /// The first sorted position after the current bucket.
    bucket_end: u64,
    sums: Vec<u128>,
    squares: f64,
    block: f64,
    rank_squares: i128,
}

impl Classes {
    fn new(calls: u64, min: u64, mean_above_min: f64, buckets: usize) -> Self {
        let mut classes = Self {
            calls,
            min,
            mean_above_min,
            at: 0,
            classes: 0,
            bucket: 0,
            bucket_end: 0,
            sums: vec![0; buckets],
            squares: 0.0,
            block: 0.0,
            rank_squares: 0,
        };
        classes.bucket_end = classes.start_of(1);
        classes
    }

    /// Returns the first sorted position of a bucket.
    fn start_of(&self, bucket: usize) -> u64 {
        (u128::from(self.calls) * bucket as u128 / self.sums.len() as u128) as u64
    }

    /// Adds the next class, given its value and its number of calls. Returns its doubled rank and
    /// its bucket.
    #[inline]
    fn add(&mut self, value: u64, calls: u64) -> (u32, u8) {
        let (start, end) = (self.at, self.at + calls);
        self.at = end;
        let doubled = start + 1 + end;
        let from_mean = doubled as i64 - (self.calls as i64 + 1);
        // There are at most `MOST_CALLS` calls, so the square has at most 62 bits.
        let square = from_mean.unsigned_abs() * from_mean.unsigned_abs();
        self.rank_squares += (u128::from(square) * u128::from(calls)) as i128;
        let difference = (value - self.min) as f64 - self.mean_above_min;
        self.block += difference * difference * calls as f64;
        self.classes += 1;
        if self.classes.is_multiple_of(BLOCK) {
            self.squares += std::mem::take(&mut self.block);
        }
        while self.bucket_end <= start {
            self.next_bucket();
        }
        let bucket = self.bucket as u8;
        let mut from = start;
        loop {
            let to = end.min(self.bucket_end);
            self.sums[self.bucket] += u128::from(value) * u128::from(to - from);
            from = to;
            if from == end {
                return (doubled as u32, bucket);
            }
            self.next_bucket();
        }
    }

    fn next_bucket(&mut self) {
        self.bucket += 1;
        self.bucket_end = self.start_of(self.bucket + 1);
    }

    fn bucket_means(&self) -> Vec<Option<f64>> {
        let means = self.sums.iter().enumerate().map(|(bucket, sum)| {
            let calls = self.start_of(bucket + 1) - self.start_of(bucket);
            (calls > 0).then(|| mean(*sum, calls))
        });
        means.collect()
    }
}
