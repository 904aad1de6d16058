//! Lanes for slices that do not come in the order of their begins.
//!
//! Perfetto pairs begins and ends by their order in time, so slices of one track must be nested.
//! While they come in order, the writer sees where there is room. Otherwise (torch writes Python's
//! calls behind the operators that they made) all slices of the row have to be known first: 16
//! bytes each, and one that stays.

use std::collections::{HashMap, HashSet};
use std::io;

use profile::activities::{Activities, Activity, RowId};

use super::visit;
use crate::perfetto::write::MOST_LANES;

/// For each row that is out of order, the lane of each of its slices.
#[derive(Debug, Default)]
pub struct Lanes {
    rows: HashMap<u32, Row>,
}

#[derive(Debug, Default)]
struct Row {
    lanes: Vec<u8>,
    next: usize,
}

const _: () = assert!(MOST_LANES <= 256);

impl Lanes {
    /// Looks through the trace, twice if there are such rows.
    ///
    /// # Errors
    /// Reading failed.
    pub fn of(trace: &Activities) -> io::Result<Self> {
        let (mut last, mut unordered) = (HashMap::<u32, i64>::new(), HashSet::<u32>::new());
        visit(trace, |event| {
            if let Some((start, _)) = slice(event) {
                let last = last.entry(event.row.0).or_insert(start);
                if start < *last {
                    unordered.insert(event.row.0);
                }
                *last = start.max(*last);
            }
            Ok(())
        })?;
        if unordered.is_empty() {
            return Ok(Self::default());
        }
        let mut slices = HashMap::<u32, Vec<(i64, i64)>>::new();
        visit(trace, |event| {
            if let Some(slice) = slice(event).filter(|_| unordered.contains(&event.row.0)) {
                slices.entry(event.row.0).or_default().push(slice);
            }
            Ok(())
        })?;
        let rows =
            slices.into_iter().map(|(row, slices)| (row, Row { lanes: assign(&slices), next: 0 }));
        Ok(Self { rows: rows.collect() })
    }

    /// The lane of the next slice of a row; `None` if the row is in order.
    pub fn next(&mut self, row: RowId) -> Option<usize> {
        let row = self.rows.get_mut(&row.0)?;
        row.next += 1;
        row.lanes.get(row.next - 1).map(|lane| usize::from(*lane))
    }
}

/// Begin and end of an event that is a slice.
pub fn slice(event: &Activity<'_>) -> Option<(i64, i64)> {
    let (start, duration) = event.time_ns.zip(event.duration_ns.filter(|ns| *ns >= 0))?;
    (event.form == b'X').then(|| (start, start.saturating_add(duration)))
}

/// What is known of a lane while slices come in the order of their begins.
#[derive(Debug, Default)]
struct Lane {
    /// What is open, outermost first: end, begin, number.
    open: Vec<(i64, i64, usize)>,
    /// When slices ended last, and the highest number of those.
    ended: Option<(i64, usize)>,
}

/// A lane for each slice, so that in each lane a reader that sorts by time, and equal times by their
/// order in the file, pairs each begin with its own end. Too many for [`MOST_LANES`] share the last.
fn assign(slices: &[(i64, i64)]) -> Vec<u8> {
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_unstable_by_key(|i| (slices[*i].0, std::cmp::Reverse(slices[*i].1), *i));
    let mut lanes: Vec<Lane> = Vec::new();
    let mut result = vec![0; slices.len()];
    for number in order {
        let (start, end) = slices[number];
        let lane = lanes.iter_mut().position(|lane| lane.fits(start, end, number));
        let lane = lane.unwrap_or_else(|| {
            if lanes.len() < MOST_LANES {
                lanes.push(Lane::default());
            }
            lanes.len() - 1
        });
        lanes[lane].open.push((end, start, number));
        result[number] = lane as u8;
    }
    result
}

impl Lane {
    fn fits(&mut self, start: i64, end: i64, number: usize) -> bool {
        while let Some((until, _, other)) = self.open.last().copied() {
            if until > start {
                break;
            }
            self.open.pop();
            let highest =
                self.ended.filter(|(at, _)| *at == until).map_or(other, |(_, n)| n.max(other));
            self.ended = Some((until, highest));
        }
        // What ends as this one begins has to stand before it in the file.
        let over = self.ended.is_none_or(|(at, highest)| at < start || highest < number);
        let inside = self.open.last().is_none_or(|(until, begun, other)| {
            end <= *until && (*begun < start || *other < number)
        });
        over && inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs as Perfetto does; the slices that come out, per lane.
    fn decoded(slices: &[(i64, i64)], lanes: &[u8]) -> Vec<(u8, i64, i64)> {
        let mut events: Vec<(i64, usize, u8, bool)> = Vec::new();
        for (i, ((start, end), lane)) in slices.iter().zip(lanes).enumerate() {
            events.push((*start, 2 * i, *lane, true));
            events.push((*end, 2 * i + 1, *lane, false));
        }
        events.sort();
        let (mut open, mut out) = (HashMap::<u8, Vec<i64>>::new(), Vec::new());
        for (at, _, lane, begins) in events {
            let stack = open.entry(lane).or_default();
            match begins {
                true => stack.push(at),
                false => out.push((lane, stack.pop().expect("begun"), at)),
            }
        }
        out.sort_unstable();
        out
    }

    #[test]
    fn nested_ones_share_a_lane_and_others_do_not() {
        let slices = [(0, 10), (2, 4), (9, 12), (2, 4), (0, 10), (4, 9)];
        assert_eq!(assign(&slices), [0, 0, 1, 0, 0, 0]);
        // Written in the other order, begins at one time would be taken for each other.
        assert_eq!(assign(&[(0, 5), (0, 10)]), [1, 0]);
        assert_eq!(assign(&[(5, 9), (0, 5)]), [1, 0]);
        assert_eq!(assign(&[(0, 5), (5, 9)]), [0, 0]);
    }

    /// Any slices, many with equal times: each comes out as it went in.
    #[test]
    fn what_is_paired_is_what_was_written() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..2_000 {
            let span = 4 + round % 40;
            let slices: Vec<(i64, i64)> = (0..random(30) + 1)
                .map(|_| {
                    let start = random(span) as i64;
                    (start, start + random(span / 2) as i64)
                })
                .collect();
            let lanes = assign(&slices);
            let mut expected: Vec<(u8, i64, i64)> = slices
                .iter()
                .zip(&lanes)
                .map(|((start, end), lane)| (*lane, *start, *end))
                .collect();
            expected.sort_unstable();
            assert_eq!(decoded(&slices, &lanes), expected, "{slices:?} {lanes:?}");
        }
    }
}
