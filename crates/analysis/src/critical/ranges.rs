//! The ranges that calls are inside of: parts of the program that somebody has named, with everything that was
//! called in them.

use std::collections::HashMap;

use profile::{OpId, Role};

use super::calls::Call;

/// Sets of ranges. Each set is another one with one more range.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The set without the last range, and that range. The set without a range is `NO`.
    sets: Vec<(u32, OpId)>,
    known: HashMap<(u32, OpId), u32>,
}

impl Ranges {
    /// The ranges of a call and of what is inside of it, if `outer` is the set around the call.
    pub fn around(&mut self, call: &Call, outer: u32) -> u32 {
        if call.role != Role::Range {
            return outer;
        }
        *self.known.entry((outer, call.op)).or_insert_with(|| {
            self.sets.push((outer, call.op));
            self.sets.len() as u32 - 1
        })
    }

    /// Gives each range the number of its row.
    pub fn renumber(&mut self, row_of: impl Fn(OpId) -> OpId) {
        self.sets.iter_mut().for_each(|(_, op)| *op = row_of(*op));
    }

    /// For each set, whether a range is in it.
    pub fn with(&self, range: OpId) -> Vec<bool> {
        let mut found: Vec<bool> = Vec::with_capacity(self.sets.len());
        for (outer, op) in &self.sets {
            let is_in = *op == range || found.get(*outer as usize) == Some(&true);
            found.push(is_in);
        }
        found
    }

    /// The ranges of a set, the innermost first.
    pub fn of(&self, set: u32) -> impl Iterator<Item = OpId> + '_ {
        let get = |set: u32| self.sets.get(set as usize).copied();
        std::iter::successors(get(set), move |(outer, _)| get(*outer)).map(|(_, op)| op)
    }
}
