//! Assigns lanes (tracks of one row) to slices. This is needed for rows whose whole slices (`X`)
//! are not in the order of their starts, and for rows that contain both whole slices and starts and
//! ends (`B`, `E`).
//!
//! Perfetto combines starts and ends to slices by their order in time, so the slices in one track
//! must be nested. If the slices of a row are in the order of their starts, the writer can choose a
//! track for each slice when it reads the slice. Otherwise, all slices of the row must be known
//! first (torch, for example, writes Python's calls after the operators that they called). This
//! takes about 50 bytes for each slice while the lanes are assigned, and then one byte for each
//! whole slice, start or end.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;

use profile::activities::{Activities, Activity, RowId};

use super::keep::{Keep, visit_kept};
use crate::perfetto::write::MOST_LANES;

/// For each row that needs lanes: the lanes of its whole slices, starts and ends, in the order of
/// the file.
#[derive(Debug, Default)]
pub struct Lanes {
    rows: HashMap<u32, Row>,
}

#[derive(Debug, Default)]
struct Row {
    lanes: Vec<u8>,
    next: usize,
}

/// An end that has no start, and therefore no lane.
const NO_LANE: u8 = u8::MAX;
const _: () = assert!(MOST_LANES <= NO_LANE as usize);

/// What is known about a row before it is clear whether it needs lanes.
#[derive(Debug, Default)]
struct Seen {
    last: Option<i64>,
    unordered: bool,
    whole: bool,
    halves: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole(i64, i64),
    Begin(i64),
    End(i64),
}

/// A slice: its times, and the places of its start and its end in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: i64,
    end: i64,
    first: usize,
    last: usize,
}

impl Lanes {
    /// Reads the part of the trace that is kept, and reads it again if rows need lanes. `same`
    /// returns the row in which the events of a row are written.
    pub fn of(
        trace: &Activities,
        keep: Option<&Keep>,
        same: impl Fn(RowId) -> RowId,
    ) -> io::Result<Self> {
        let mut seen = HashMap::<u32, Seen>::new();
        visit_kept(trace, keep, |event| {
            let Some(part) = part(event) else { return Ok(()) };
            let row = seen.entry(same(event.row).0).or_default();
            match part {
                Part::Whole(start, _) => {
                    row.whole = true;
                    row.unordered |= row.last.is_some_and(|last| start < last);
                    row.last = row.last.max(Some(start));
                }
                Part::Begin(_) | Part::End(_) => row.halves = true,
            }
            Ok(())
        })?;
        seen.retain(|_, row| row.unordered || row.whole && row.halves);
        if seen.is_empty() {
            return Ok(Self::default());
        }
        let mut parts = HashMap::<u32, Vec<Part>>::new();
        visit_kept(trace, keep, |event| {
            let row = same(event.row).0;
            if let Some(part) = part(event).filter(|_| seen.contains_key(&row)) {
                parts.entry(row).or_default().push(part);
            }
            Ok(())
        })?;
        let rows = parts.into_iter();
        let rows = rows.map(|(row, parts)| (row, Row { lanes: lanes(&parts), next: 0 }));
        Ok(Self { rows: rows.collect() })
    }

    /// Returns the lane of the row's next whole slice, start or end. Returns `None` if the row
    /// needs no lanes, and `Some(None)` for an end without a start.
    pub fn next(&mut self, row: RowId) -> Option<Option<usize>> {
        let row = self.rows.get_mut(&row.0)?;
        row.next += 1;
        let lane = row.lanes.get(row.next - 1)?;
        Some((*lane != NO_LANE).then_some(usize::from(*lane)))
    }
}

fn part(event: &Activity<'_>) -> Option<Part> {
    let at = event.time_ns?;
    match event.form {
        b'X' => {
            let duration = event.duration_ns.filter(|ns| *ns >= 0)?;
            Some(Part::Whole(at, at.saturating_add(duration)))
        }
        b'B' => Some(Part::Begin(at)),
        b'E' => Some(Part::End(at)),
        _ => None,
    }
}

fn lanes(parts: &[Part]) -> Vec<u8> {
    // An end belongs to the last start before it in time that has no end yet. Of events at the same
    // time, the first in the file counts as the earlier one.
    let mut halves: Vec<(i64, usize)> = Vec::new();
    let mut spans = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        match *part {
            Part::Whole(start, end) => spans.push(Span { start, end, first: place, last: place }),
            Part::Begin(at) | Part::End(at) => halves.push((at, place)),
        }
    }
    halves.sort_unstable();
    let mut open = Vec::new();
    for (at, place) in halves {
        if matches!(parts[place], Part::Begin(_)) {
            open.push((at, place));
        } else if let Some((start, first)) = open.pop() {
            spans.push(Span { start, end: at, first, last: place });
        }
    }
    for (start, first) in open {
        spans.push(Span { start, end: i64::MAX, first, last: usize::MAX });
    }
    let mut result = vec![NO_LANE; parts.len()];
    for (span, lane) in spans.iter().zip(assign(&spans)) {
        result[span.first] = lane;
        if let Some(last) = result.get_mut(span.last) {
            *last = lane;
        }
    }
    result
}

/// The state of a lane while slices are assigned to lanes in the order of their starts.
#[derive(Debug, Default)]
struct Lane {
    /// The open slices, the outermost one first.
    open: Vec<Span>,
    /// The latest time at which a slice of this lane has ended, and the last place in the file of
    /// an end at this time.
    ended: Option<(i64, usize)>,
}

/// Assigns lanes such that a reader combines each start with the right end. Readers sort events by
/// time; events at the same time stay in the order of the file. If [`MOST_LANES`] lanes are not
/// enough, further slices share the last lane.
fn assign(spans: &[Span]) -> Vec<u8> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_unstable_by_key(|i| (spans[*i].start, Reverse(spans[*i].end), spans[*i].first));
    let mut lanes: Vec<Lane> = Vec::new();
    let mut result = vec![0; spans.len()];
    for place in places {
        let span = spans[place];
        let lane = lanes.iter_mut().position(|lane| lane.fits(&span));
        let lane = lane.unwrap_or_else(|| {
            if lanes.len() < MOST_LANES {
                lanes.push(Lane::default());
            }
            lanes.len() - 1
        });
        lanes[lane].open.push(span);
        result[place] = lane as u8;
    }
    result
}

impl Lane {
    fn fits(&mut self, span: &Span) -> bool {
        while let Some(inner) = self.open.last() {
            // If an end and this start are at the same time, a reader sees first what is first in
            // the file.
            if inner.end > span.start || inner.end == span.start && inner.last > span.first {
                break;
            }
            let highest = self.ended.filter(|(at, _)| *at == inner.end);
            let highest = highest.map_or(inner.last, |(_, last)| last.max(inner.last));
            self.ended = Some((inner.end, highest));
            self.open.pop();
        }
        // If another slice ends when this slice begins, that end must be before this slice in the
        // file.
        let over = self.ended.is_none_or(|(at, highest)| at < span.start || highest < span.first);
        let inside = self.open.last().is_none_or(|outer| {
            span.end <= outer.end && (outer.start < span.start || outer.first < span.first)
        });
        over && inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Combines the starts and ends of each lane to slices, as Perfetto does.
    fn decoded(parts: &[Part], lanes: &[u8]) -> Vec<(i64, i64)> {
        let mut events: Vec<(i64, usize, u8, bool)> = Vec::new();
        for (place, (part, lane)) in parts.iter().zip(lanes).enumerate() {
            let mut add = |at, begins: bool| {
                events.push((at, 2 * place + usize::from(!begins), *lane, begins));
            };
            match *part {
                Part::Whole(start, end) => {
                    add(start, true);
                    add(end, false);
                }
                Part::Begin(at) => add(at, true),
                Part::End(_) if *lane == NO_LANE => {}
                Part::End(at) => add(at, false),
            }
        }
        events.sort_unstable();
        let (mut open, mut out) = (HashMap::<u8, Vec<i64>>::new(), Vec::new());
        for (at, _, lane, begins) in events {
            let stack = open.entry(lane).or_default();
            match begins {
                true => stack.push(at),
                false => out.push((stack.pop().expect("an end follows its begin"), at)),
            }
        }
        out.extend(open.into_values().flatten().map(|start| (start, i64::MAX)));
        out.sort_unstable();
        out
    }

    fn whole(slices: &[(i64, i64)]) -> Vec<Part> {
        slices.iter().map(|(start, end)| Part::Whole(*start, *end)).collect()
    }

    #[test]
    fn nested_ones_share_a_lane_and_others_do_not() {
        let slices = [(0, 10), (2, 4), (9, 12), (2, 4), (0, 10), (4, 9)];
        assert_eq!(lanes(&whole(&slices)), [0, 0, 1, 0, 0, 0]);
        // In the first two lists, the surrounding or earlier slice comes second in the file. In one
        // lane, a reader would confuse its start or end with the one at the same time.
        assert_eq!(lanes(&whole(&[(0, 5), (0, 10)])), [1, 0]);
        assert_eq!(lanes(&whole(&[(5, 9), (0, 5)])), [1, 0]);
        assert_eq!(lanes(&whole(&[(0, 5), (5, 9)])), [0, 0]);
    }

    #[test]
    fn begins_and_ends_share_a_lane_with_whole_ones() {
        use Part::{Begin, End, Whole};
        for (parts, expected) in [
            (&[Whole(0, 10), Begin(2), Whole(3, 4), End(5)][..], &[0, 0, 0, 0][..]),
            (&[Begin(2), Whole(3, 4), End(5), Whole(0, 10)], &[0, 0, 0, 0]),
            (&[Begin(2), Whole(3, 7), End(5)], &[0, 1, 0]),
            // A slice of length 0 is at the end of the surrounding slice: once before that end in
            // the file, and once after it.
            (&[Begin(2), Whole(5, 5), End(5)], &[0, 0, 0]),
            (&[Begin(2), End(5), Whole(5, 5)], &[0, 0, 0]),
            // Here, a slice never ends, or an end has no start.
            (&[Whole(0, 9), Begin(2), Whole(3, 4)], &[0, 1, 0]),
            (&[End(1), Whole(0, 9), Begin(2), End(3), End(4)], &[NO_LANE, 0, 0, 0, NO_LANE]),
            // These starts and ends are not in the order of their times.
            (&[Begin(10), Begin(0), End(20), End(5), Whole(1, 2)], &[0, 0, 0, 0, 0]),
        ] {
            assert_eq!(lanes(parts), expected, "{parts:?}");
        }
    }

    /// Uses random slices, many of which start or end at the same time.
    #[test]
    fn slices_are_paired_as_they_were_written() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for round in 0..4_000 {
            let span = 4 + round % 40;
            let mut expected = Vec::new();
            let mut parts: Vec<Part> = (0..random(30) + 1)
                .map(|_| {
                    let start = random(span) as i64;
                    let end = start + random(span / 2) as i64;
                    expected.push((start, end));
                    Part::Whole(start, end)
                })
                .collect();
            // Every second round also has slices that consist of a start and an end.
            let mut at = 0;
            for _ in 0..(round % 2) * random(8) {
                let (start, end) = (at + random(3) as i64, at + 3 + random(9) as i64);
                at = end + 1;
                expected.push((start, end));
                let first = random(parts.len() as u64 + 1) as usize;
                parts.insert(first, Part::Begin(start));
                let last = first + 1 + random((parts.len() - first) as u64) as usize;
                parts.insert(last, Part::End(end));
            }
            expected.sort_unstable();
            let lanes = lanes(&parts);
            assert_eq!(decoded(&parts, &lanes), expected, "{parts:?} {lanes:?}");
        }
    }
}
