//! Finds rows in which slices either follow one another or are inside of each other.

use std::collections::HashMap;

use super::{Row, Slice};

/// A lane: the submission of its outermost open slice, and the ends of all open ones.
#[derive(Default)]
struct Lane {
    submission: u64,
    open: Vec<i64>,
}

impl Lane {
    /// Whether a slice fits into the lane. If it fits, it is added to the lane.
    fn takes(&mut self, slice: &Slice) -> bool {
        let end = slice.begin_ns.saturating_add(slice.duration_ns);
        while self.open.pop_if(|open| *open <= slice.begin_ns).is_some() {}
        let fits = match self.open.last() {
            None => true,
            Some(open) => *open >= end && self.submission == slice.submission,
        };
        if fits && self.open.is_empty() {
            self.submission = slice.submission;
        }
        if fits {
            self.open.push(end);
        }
        fits
    }
}

/// Finds the lane of each slice; the first one is 0. Slices come in the order of their starts. An
/// operation of one submission is never put inside of an operation of another one, even if it ran
/// during that operation.
pub(super) fn find(slices: &mut [Slice]) {
    let mut rows: HashMap<Row, Vec<Lane>> = HashMap::new();
    for slice in slices {
        let lanes = rows.entry(slice.row).or_default();
        let lane = lanes.iter_mut().position(|lane| lane.takes(slice)).unwrap_or_else(|| {
            let mut lane = Lane::default();
            lane.takes(slice);
            lanes.push(lane);
            lanes.len() - 1
        });
        slice.lane = lane;
    }
}
