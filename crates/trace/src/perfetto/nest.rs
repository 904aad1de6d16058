//! Which slices of a track are open, and whether another one fits between what was written.
//!
//! Readers take begins and ends by their times, equal times in the order of the file, and pair each
//! end with the last begin that is open. So a slice fits if every other one is within it, around it,
//! before or after it; and of those that share a moment with it, the one that was written first is
//! the outer or the earlier one.
//!
//! Slices come in the order of their begins, but for calls around other calls: a recorder writes
//! those when they end, maybe pages later. Such a one is *late*. Its begin goes to a moment that is
//! past, its end among those that wait:
//!
//! ```text
//!  written    ▐a▌ ▐──b──▌ ▐c▌ ▐──d─         d is open
//!  late          ▐─────────────────────▌    around b and c, which have ended, and d
//! ```
//!
//! For that, the last that ended are kept, without what was in them: [`KEPT`] to twice as many, and
//! [`KEPT_NESTED`] once slices were in one another. What is late by more fits no more, and comes onto
//! another track.

/// Many more would cost every slice of a timeline a miss of the cache, and most rows have no late
/// ones.
const KEPT: usize = 1 << 10;
/// A run of a model makes some thousand calls.
const KEPT_NESTED: usize = 1 << 14;

/// See the module's page. Times are nanoseconds.
#[derive(Debug)]
pub struct Nest {
    /// Begins and ends, by begin: of those that are open, and those that ended.
    slices: Vec<(i64, i64)>,
    /// Which are open, outermost first: each is within the one before it. What ended in one follows
    /// it, up to the next one.
    open: Vec<Open>,
    /// How many of those that ended are kept at least.
    kept: usize,
    /// How many `slices` are too many.
    limit: usize,
    /// The latest begin or end that was written.
    last_ns: i64,
    /// Before it, those that ended are not known any more.
    known_from_ns: i64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its place in `slices`.
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
    /// The end that has to be written next, if it comes no later than `until_ns`.
    #[inline]
    pub fn close(&mut self, until_ns: i64) -> Option<i64> {
        let Open { at, end } = self.open.pop_if(|open| open.end <= until_ns)?;
        self.slices.truncate(at + 1);
        // Everything else that was written is within it, or before.
        self.last_ns = end;
        Some(end)
    }

    /// Whether a slice is late.
    #[inline]
    pub fn is_late(&self, begin: i64) -> bool {
        begin < self.last_ns
    }

    /// Adds a slice that is not late, if it fits. What ends before it has been closed.
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
        // What was written after its end could stand at the same moment.
        if end < self.last_ns || begin < self.known_from_ns {
            return false;
        }
        let depth = self.open.partition_point(|open| self.slices[open.at].0 <= begin);
        let (outer, inner) = self.open.split_at(depth);
        let within = outer.last().is_none_or(|open| end <= open.end);
        let around = inner.first().is_none_or(|open| open.end <= end);
        let first = outer.last().map_or(0, |open| open.at + 1);
        let behind = inner.first().map_or(self.slices.len(), |open| open.at);
        let ended = &self.slices[first..behind];
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

    /// Keeps those that are open, and the last that ended.
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

    /// Adds a slice; whether it fits.
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
    fn late_ones_are_around_what_ended() {
        let slices = [(0, 10), (20, 30), (40, 50), (60, 70)];
        for (begin, end, fits) in [
            (15, 80, true),
            (10, 80, true),
            (15, 70, true),
            (0, 80, false),  // would be in the first
            (20, 80, false), // in the second
            (25, 80, false),
            (15, 65, false),
            (15, 25, false), // of which an end was written
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

    /// Slices of 5 ns, one each 10 ns.
    fn flat(nest: &mut Nest, numbers: std::ops::Range<usize>) {
        for at in numbers {
            assert!(add(nest, 10 * at as i64, 10 * at as i64 + 5));
        }
    }

    #[test]
    fn what_ended_long_ago_is_forgotten() {
        let mut nest = Nest::default();
        flat(&mut nest, 0..10 * KEPT);
        assert!(nest.slices.len() <= 2 * KEPT);
        let end = |slices: usize| 10 * slices as i64;
        assert!(!add(&mut nest, 7, end(10 * KEPT)));
        assert!(add(&mut nest, end(9 * KEPT) - 3, end(10 * KEPT)));
        // There may be more of that kind.
        flat(&mut nest, 10 * KEPT..10 * KEPT + 10 * KEPT_NESTED);
        assert!(nest.slices.len() <= 2 * KEPT_NESTED);
        let last = end(10 * KEPT + 10 * KEPT_NESTED);
        assert!(!add(&mut nest, end(9 * KEPT) - 4, last));
        assert!(add(&mut nest, last - end(KEPT_NESTED) - 3, last));
        // What is around many of them counts as one.
        assert!(add(&mut nest, last, last + 1));
        assert!(nest.slices.len() < KEPT_NESTED + 2);
    }

    #[test]
    fn what_is_open_is_not_forgotten() {
        let mut nest = Nest::default();
        let (count, end) = (5 * KEPT_NESTED as i64, 1_000 * KEPT_NESTED as i64);
        // Every hundredth is around all that follow.
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
