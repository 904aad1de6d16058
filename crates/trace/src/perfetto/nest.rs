//! Stores the open slices of a track, and decides whether another slice fits between those that
//! were already written.
//!
//! Readers sort starts and ends by time; those at the same time stay in the order of the file. An
//! end belongs to the last start that has no end yet. So a slice fits if each other slice is inside
//! of it, around it, before it or after it. Of two slices that begin or end at the same time, the
//! one that was written first is the outer or the earlier one.
//!
//! Slices come in the order of their starts, except for calls that surround other calls. A recorder
//! writes a surrounding call only when it ends, which may be many pages (blocks of calls) after its
//! start. Such a slice is *late*: its start is before times that were already written. Its end is
//! added to the ends that are not written yet:
//!
//! ```text
//!  written    ▐a▌ ▐──b──▌ ▐c▌ ▐──d─         d is open
//!  late          ▐─────────────────────▌    around b and c, which have ended, and d
//! ```
//!
//! To make this possible, at least the last [`KEPT`] ended slices are kept, or [`KEPT_NESTED`]
//! after slices were nested. Slices inside of an ended slice are not kept. A late slice that begins
//! before these slices does not fit, and is put onto another track.

/// How many ended slices are kept at least. Most rows have no late slices. If many more slices were
/// kept, each new slice of a timeline would cause a cache miss.
const KEPT: usize = 1 << 10;
/// How many ended slices are kept after slices were nested. The slice of a model's run surrounds
/// the slices of several thousand calls.
const KEPT_NESTED: usize = 1 << 14;

/// The state of one track. Times are in nanoseconds.
#[derive(Debug)]
pub struct Nest {
    /// Starts and ends of slices that are open or have ended, sorted by start.
    slices: Vec<(i64, i64)>,
    /// The open slices, the outermost one first. In `slices`, an open slice is followed by the
    /// slices that ended inside of it, and then by the next open slice.
    open: Vec<Open>,
    /// How many ended slices are kept at least.
    kept: usize,
    /// The length of `slices` at which older slices are removed.
    limit: usize,
    /// The latest start or end that was written.
    last_ns: i64,
    /// Slices that ended before this time may have been removed from `slices`.
    known_from_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Index in `slices`.
    at: usize,
    end: i64,
}

impl Default for Nest {
    fn default() -> Self {
        Self {
            slices: Vec::new(),
            open: Vec::new(),
            kept: KEPT,
            limit: 2 * KEPT,
            last_ns: i64::MIN,
            known_from_ns: i64::MIN,
        }
    }
}

impl Nest {
    /// Returns the end that must be written next, if it is not later than `until_ns`.
    #[inline]
    pub fn close(&mut self, until_ns: i64) -> Option<i64> {
        let Open { at, end } = self.open.pop_if(|open| open.end <= until_ns)?;
        self.slices.truncate(at + 1);
        // No later time was written: the other slices are before this slice, inside of it, or still
        // open around it.
        self.last_ns = end;
        Some(end)
    }

    /// Returns whether a slice that begins at this time is late.
    #[inline]
    pub fn is_late(&self, begin: i64) -> bool {
        begin < self.last_ns
    }

    /// Adds a slice that is not late, if it fits. The caller must have closed the slices that end
    /// before its start.
    #[inline]
    pub fn add(&mut self, begin: i64, end: i64) -> bool {
        if self.open.last().is_some_and(|outer| outer.end < end) {
            return false;
        }
        if self.slices.len() >= self.limit {
            self.forget();
        }
        self.open.push(Open { at: self.slices.len(), end });
        self.slices.push((begin, end));
        self.last_ns = begin;
        true
    }

    /// Adds a late slice, if it fits.
    #[cold]
    pub fn add_late(&mut self, begin: i64, end: i64) -> bool {
        // If a later time than this slice's end was already written, the slice is refused. Its end
        // would come after that time in the file. If another start or end had the same time as this
        // end, readers could pair them wrongly.
        if end < self.last_ns || begin < self.known_from_ns {
            return false;
        }
        let depth = self.open.partition_point(|open| self.slices[open.at].0 <= begin);
        let (outer, inner) = self.open.split_at(depth);
        let within = outer.last().is_none_or(|open| end <= open.end);
        let around = inner.first().is_none_or(|open| open.end <= end);
        let first = outer.last().map_or(0, |open| open.at + 1);
        let end_of_ended = inner.first().map_or(self.slices.len(), |open| open.at);
        let ended = &self.slices[first..end_of_ended];
        let before = ended.partition_point(|(_, ended)| *ended <= begin);
        let apart = ended.get(before).is_none_or(|(begun, _)| begin < *begun);
        let fits = within && around && apart;
        if fits {
            self.keep_more();
            self.slices.insert(first + before, (begin, end));
            self.open[depth..].iter_mut().for_each(|open| open.at += 1);
            self.open.insert(depth, Open { at: first + before, end });
        }
        fits
    }

    fn keep_more(&mut self) {
        self.kept = KEPT_NESTED;
        self.limit = self.limit.max(2 * self.kept);
    }

    /// Removes slices except those that are open and those that ended last.
    #[cold]
    fn forget(&mut self) {
        if !self.open.is_empty() {
            self.keep_more();
        }
        if self.slices.len() < self.limit {
            return;
        }
        let cut = self.slices.len().saturating_sub(self.kept);
        let open = self.open.partition_point(|open| open.at < cut);
        let ended = (0..cut).rev().find(|at| self.open[..open].iter().all(|open| open.at != *at));
        self.known_from_ns = ended.map_or(self.known_from_ns, |at| self.slices[at].1);
        for (place, open) in self.open[..open].iter_mut().enumerate() {
            self.slices[place] = self.slices[open.at];
            open.at = place;
        }
        self.slices.drain(open..cut);
        self.open[open..].iter_mut().for_each(|after| after.at -= cut - open);
        self.limit = 2 * self.slices.len().max(self.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(nest: &mut Nest, begin: i64, end: i64) -> bool {
        if nest.is_late(begin) {
            return nest.add_late(begin, end);
        }
        while nest.close(begin).is_some() {}
        nest.add(begin, end)
    }

    fn of(slices: &[(i64, i64)]) -> Nest {
        let mut nest = Nest::default();
        slices.iter().for_each(|(begin, end)| assert!(add(&mut nest, *begin, *end)));
        nest
    }

    #[test]
    fn a_late_slice_may_surround_ended_ones() {
        let slices = [(0, 10), (20, 30), (40, 50), (60, 70)];
        for (begin, end, fits) in [
            (15, 80, true),
            (10, 80, true),
            (15, 70, true),
            (0, 80, false),  // it would be inside the first slice
            (20, 80, false), // it would be inside the second slice
            (25, 80, false),
            (15, 65, false),
            (15, 25, false), // its end is before one that was written
        ] {
            assert_eq!(add(&mut of(&slices), begin, end), fits, "{begin} {end}");
        }
        let mut nest = of(&slices);
        assert!(add(&mut nest, 35, 80) && add(&mut nest, 5 + 10, 90));
        assert!(!add(&mut nest, 35, 85));
        let ends: Vec<_> = std::iter::from_fn(|| nest.close(100)).collect();
        assert_eq!(ends, [70, 80, 90]);
        assert_eq!(nest.slices, [(0, 10), (15, 90)]);
    }

    /// Adds a slice of 5 ns every 10 ns.
    fn flat(nest: &mut Nest, numbers: std::ops::Range<usize>) {
        for at in numbers {
            assert!(add(nest, 10 * at as i64, 10 * at as i64 + 5));
        }
    }

    #[test]
    fn slices_that_ended_long_ago_are_forgotten() {
        let mut nest = Nest::default();
        flat(&mut nest, 0..10 * KEPT);
        assert!(nest.slices.len() <= 2 * KEPT);
        let end = |slices: usize| 10 * slices as i64;
        assert!(!add(&mut nest, 7, end(10 * KEPT)));
        assert!(add(&mut nest, end(9 * KEPT) - 3, end(10 * KEPT)));
        // More slices are kept after slices were nested.
        flat(&mut nest, 10 * KEPT..10 * KEPT + 10 * KEPT_NESTED);
        assert!(nest.slices.len() <= 2 * KEPT_NESTED);
        let last = end(10 * KEPT + 10 * KEPT_NESTED);
        assert!(!add(&mut nest, end(9 * KEPT) - 4, last));
        assert!(add(&mut nest, last - end(KEPT_NESTED) - 3, last));
        // A slice around many others is kept instead of them.
        assert!(add(&mut nest, last, last + 1));
        assert!(nest.slices.len() < KEPT_NESTED + 2);
    }

    #[test]
    fn open_slices_are_not_forgotten() {
        let mut nest = Nest::default();
        let (count, end) = (5 * KEPT_NESTED as i64, 1_000 * KEPT_NESTED as i64);
        // Every hundredth slice surrounds those that follow it.
        for at in 0..count {
            let until = if at % 100 == 0 { end - at } else { 10 * at + 5 };
            assert!(add(&mut nest, 10 * at, until), "{at}");
        }
        let outer = count as usize / 100 + 1;
        assert!(nest.slices.len() <= 2 * (outer + KEPT_NESTED) && nest.open.len() >= outer);
        let ends: Vec<i64> = std::iter::from_fn(|| nest.close(end)).collect();
        assert!(ends.is_sorted() && ends.len() >= outer);
        assert_eq!(nest.slices, [(0, end)]);
    }
}
