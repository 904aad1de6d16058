//! Stores the ranges around calls. A range is a stretch of time that the program named.

use std::collections::HashMap;

use profile::{OpId, Role};

use super::calls::{Call, NO};

/// A set of ranges, identified by a number from [`RangeSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RangeSet(u32);

impl RangeSet {
    /// The set that contains no range.
    pub const EMPTY: Self = Self(NO);
}

/// All sets of ranges. Each set but the empty one consists of another set and one more range.
#[derive(Debug, Default)]
pub(super) struct RangeSets {
    /// For each set, the set without its innermost range, and that range.
    sets: Vec<(RangeSet, OpId)>,
    known: HashMap<(RangeSet, OpId), RangeSet>,
}

impl RangeSets {
    /// Returns the set of ranges that applies to a call and to what is inside of it. `outer` is the
    /// set around the call.
    pub fn of_call(&mut self, call: &Call, outer: RangeSet) -> RangeSet {
        match call.role {
            Role::Range => self.with(outer, call.op),
            _ => outer,
        }
    }

    fn with(&mut self, outer: RangeSet, range: OpId) -> RangeSet {
        *self.known.entry((outer, range)).or_insert_with(|| {
            self.sets.push((outer, range));
            RangeSet(self.sets.len() as u32 - 1)
        })
    }

    /// Returns the set that contains the ranges of both sets. Those of `inner` are inside of those
    /// of `outer`.
    pub fn joined(&mut self, outer: RangeSet, inner: RangeSet) -> RangeSet {
        let inner: Vec<OpId> = self.members(inner).collect();
        inner.into_iter().rev().fold(outer, |set, range| self.with(set, range))
    }

    /// Replaces each range by the op whose row it belongs to. No set may be added after that.
    pub fn renumber(&mut self, row_of: impl Fn(OpId) -> OpId) {
        self.known.clear();
        self.sets.iter_mut().for_each(|(_, op)| *op = row_of(*op));
    }

    /// Finds the sets that contain this range.
    pub fn holders(&self, range: OpId) -> Holders {
        let mut holds: Vec<bool> = Vec::with_capacity(self.sets.len());
        for (outer, op) in &self.sets {
            let is_in = *op == range || holds.get(outer.0 as usize) == Some(&true);
            holds.push(is_in);
        }
        Holders(holds)
    }

    /// Returns the ranges of a set, beginning with the innermost one.
    pub fn members(&self, set: RangeSet) -> impl Iterator<Item = OpId> + '_ {
        let get = |set: RangeSet| self.sets.get(set.0 as usize).copied();
        std::iter::successors(get(set), move |(outer, _)| get(*outer)).map(|(_, op)| op)
    }
}

#[derive(Debug)]
pub(super) struct Holders(Vec<bool>);

impl Holders {
    pub fn contain(&self, set: RangeSet) -> bool {
        self.0.get(set.0 as usize) == Some(&true)
    }
}
