//! Divides rows into lanes, so that any two slices in one lane either follow each other or are
//! nested.

use std::collections::HashMap;

use super::{Row, Slice};

/// The submission of the lane's outermost open slice, and the ends of its open slices. A slice is
/// open if it has not ended when the next slice starts.
#[derive(Default)]
struct Lane {
    submission: u64,
    open: Vec<i64>,
}

impl Lane {
    /// Adds a slice if it fits into the lane, and returns whether it does.
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

/// Sets the lane of each slice. The slices must be in the order of their starts. A slice is not put
/// inside of a slice of another submission, even if it ran during that slice.
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
