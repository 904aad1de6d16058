//! Computes self times. At each moment, the innermost running call of a thread owns the time. The
//! self time of a call is the time that it owns.
//!
//! ```text
//!  a ├───────────────────────┤            owns
//!  b   ├───────┤                          a  2 + 5     b  3 + 2     c  3     d  15
//!  c      ├──┤
//!  d                ├─────────────┤       d begins in a and ends after it: the time that both
//!                                         have in common belongs to d, which began last
//! ```
//!
//! If several calls are running at one moment, the one that began last owns it. For properly nested
//! calls, the self time is the call's duration minus the durations of the calls directly inside.
//! Calls can also overlap in other ways (in rows of a trace that are not threads), but no moment is
//! counted twice. So the self times of a thread add up to the time in which any of its calls was
//! running.

/// Computes the self times of the calls of one thread. The calls must be added in the order in
/// which they begin. The needed memory grows with the depth of nesting.
#[derive(Clone, Debug)]
pub struct Innermost<T> {
    /// Calls that have begun and not ended. Each ends no later than the one before it in the list.
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
    /// Adds a call from `begin` to `end`. The call must not begin earlier than the previously added
    /// one. Of calls that begin together, the longest must be added first. `done` is called with
    /// the `of` and the self time of each call that cannot own any more time.
    #[inline]
    pub fn call(&mut self, begin: u64, end: u64, of: T, mut done: impl FnMut(T, u64)) {
        self.advance(begin, &mut done);
        let mut overlaps = false;
        // A call that ends together with the call around it is inside of that call.
        while let Some(top) = self.open.pop_if(|top| top.end < end) {
            overlaps = true;
            done(top.of, top.own);
        }
        self.overlapping += u64::from(overlaps);
        self.open.push(Open { end, own: 0, of });
    }

    /// Ends all calls that have not ended yet. Must be called after the last call was added.
    pub fn finish(&mut self, mut done: impl FnMut(T, u64)) {
        self.advance(u64::MAX, &mut done);
        while let Some(top) = self.open.pop() {
            done(top.of, top.own);
        }
    }

    /// Returns the total time so far in which any call was running.
    pub fn busy(&self) -> u64 {
        self.busy
    }

    /// Returns the number of calls that began inside of another call and ended after it. It is a
    /// lower bound: once a call has outlived the call around it, further calls that outlive the
    /// same outer call are not counted. 0 means that all calls are properly nested or disjoint.
    pub fn overlapping(&self) -> u64 {
        self.overlapping
    }

    /// Assigns the time until `to` to the calls that own it.
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
        // The example at the top of this file.
        assert_eq!(own(&[(10, 35), (12, 20), (15, 18), (25, 40)]), (vec![2 + 5, 5, 3, 15], 30, 1));
        assert_eq!(own(&[]), (vec![], 0, 0));
        assert_eq!(own(&[(0, 0), (0, u64::MAX)]).1, u64::MAX);
        // Of calls with the same begin and end, the last one in the list counts as the innermost.
        // Calls without duration own nothing.
        assert_eq!(own(&[(5, 9), (5, 9), (5, 5), (9, 9)]), (vec![0, 4, 0, 0], 4, 0));
        assert_eq!(own(&[(0, 10), (4, 10), (10, 12)]), (vec![4, 6, 2], 12, 0));
        assert_eq!(own(&[(0, 10), (5, 15), (12, 20)]), (vec![5, 7, 8], 20, 2));
        assert_eq!(own(&[(0, 10), (1, 9), (2, 12)]), (vec![1, 1, 10], 12, 1));
    }
}
