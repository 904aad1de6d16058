//! Who owns each moment of a thread: the innermost call. What a call owns is its self time.
//!
//! ```text
//!  a ├───────────────────────┤            begins  a b c d       owns
//!  b   ├───────┤                          a  2 + 3 + 4          b  2 + 3     c  3     d  5
//!  c      ├──┤
//!  d                ├─────────────┤       d begins in a and ends behind it: what both have in
//!                                         common is d's, which began last
//! ```
//!
//! Of several calls at one moment the one that began last owns it. Where calls lie within one
//! another, that is the usual self time: the duration less that of what was called. Where they
//! overlap otherwise (rows of a trace that are no threads), no moment counts twice all the same, so
//! the self times of a thread always add up to the time in which it was in some call.

/// Goes through the calls of one thread in the order of their begins. Memory: as many calls as
/// lie within one another.
#[derive(Clone, Debug)]
pub struct Innermost<T> {
    /// Begun, and to own something once more: each ends before the one below it.
    open: Vec<Open<T>>,
    now: u64,
    busy: u64,
    overlapping: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open<T> {
    end: u64,
    own: u64,
    of: T,
}

impl<T> Default for Innermost<T> {
    fn default() -> Self {
        Self { open: Vec::new(), now: 0, busy: 0, overlapping: 0 }
    }
}

impl<T> Innermost<T> {
    /// A call from `begin` to `end`. None may begin before the one given before it; of those that
    /// begin together the longest comes first. `done` gets each call that will own nothing more,
    /// with its self time.
    #[inline]
    pub fn call(&mut self, begin: u64, end: u64, of: T, mut done: impl FnMut(T, u64)) {
        self.advance(begin, &mut done);
        let mut overlaps = false;
        while let Some(top) = self.open.pop_if(|top| top.end <= end) {
            overlaps |= top.end < end;
            done(top.of, top.own);
        }
        self.overlapping += u64::from(overlaps);
        self.open.push(Open { end, own: 0, of });
    }

    /// No call follows.
    pub fn finish(&mut self, mut done: impl FnMut(T, u64)) {
        self.advance(u64::MAX, &mut done);
        while let Some(top) = self.open.pop() {
            done(top.of, top.own);
        }
    }

    /// Time in some call, so far.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Calls that ended behind one in which they began. 0 if and only if all calls lie properly
    /// in one another or side by side; else not each such call is counted: where one had outlived
    /// the call already, a second one does not.
    pub fn overlapping(&self) -> u64 {
        self.overlapping
    }

    /// Deals out the time until `to`.
    fn advance(&mut self, to: u64, done: &mut impl FnMut(T, u64)) {
        while let Some(top) = self.open.last_mut() {
            let until = top.end.min(to);
            let own = until.saturating_sub(self.now);
            top.own += own;
            self.busy += own;
            self.now = self.now.max(until);
            if top.end > to {
                break;
            }
            if let Some(top) = self.open.pop() {
                done(top.of, top.own);
            }
        }
        self.now = self.now.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(calls: &[(u64, u64)]) -> (Vec<u64>, u64, u64) {
        let mut own = vec![u64::MAX; calls.len()];
        let mut inner = Innermost::default();
        for (i, (begin, end)) in calls.iter().enumerate() {
            inner.call(*begin, *end, i, |of, ticks| own[of] = ticks);
        }
        inner.finish(|of, ticks| own[of] = ticks);
        (own, inner.busy(), inner.overlapping())
    }

    #[test]
    fn by_hand() {
        // The picture above.
        assert_eq!(own(&[(10, 35), (12, 20), (15, 18), (25, 40)]), (vec![2 + 5, 5, 3, 15], 30, 1));
        assert_eq!(own(&[]), (vec![], 0, 0));
        assert_eq!(own(&[(0, 0), (0, u64::MAX)]).1, u64::MAX);
        // Equal ones: the one that comes last is the inner one. Empty ones own nothing.
        assert_eq!(own(&[(5, 9), (5, 9), (5, 5), (9, 9)]), (vec![0, 4, 0, 0], 4, 0));
        // A child that ends with its parent.
        assert_eq!(own(&[(0, 10), (4, 10), (10, 12)]), (vec![4, 6, 2], 12, 0));
        // A staircase.
        assert_eq!(own(&[(0, 10), (5, 15), (12, 20)]), (vec![5, 7, 8], 20, 2));
        // One that outlives all that it began in.
        assert_eq!(own(&[(0, 10), (1, 9), (2, 12)]), (vec![1, 1, 10], 12, 1));
    }
}
