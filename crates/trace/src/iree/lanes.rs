//! Divides rows into lanes, so that two slices in one lane are one after the other or one inside of
//! the other.

use std::collections::HashMap;

use super::{Row, Slice};

/// The submission of the outermost open slice, and the ends of the open slices.
#[derive(Default)]
struct Lane {
    submission: u64,
    open: Vec<i64>,
}

impl Lane {
    /// Adds a slice if it fits into the lane.
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

/// The slices must be in the order of their starts. A slice is not put inside of a slice of another
/// submission, even if it ran during that slice.
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
