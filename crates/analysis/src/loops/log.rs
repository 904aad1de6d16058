//! Matches the starts and ends of hits (entries into loops and functions). In mode `log`, the
//! starts and ends of the first hits of each loop or function are recorded, with their times.
//!
//! Events are ordered only within one thread and module, so there is one stack of open hits for
//! each module in each thread. An end belongs to the latest start of the same id that has no end
//! yet. If hits that began after this start have no end yet, the program left them by an exception
//! or `longjmp`. An end without a recorded start is counted, but belongs to no hit.

use std::collections::HashMap;

use profile::loops::{LoopEvent, LoopModule, LoopRow};

/// A hit whose start was recorded in mode `log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedHit {
    /// Index of the module.
    pub module: usize,
    /// The thread's number in the operating system.
    pub tid: u32,
    pub id: u32,
    /// Start of the hit, in ticks.
    pub begin: u64,
    /// End of the hit; `None` if no end was recorded, or if the recorded end is earlier than the
    /// start.
    pub end: Option<u64>,
    /// The return address of the call to the runtime's handler that reported the start, as in
    /// [`LoopEvent::address`].
    pub begin_address: u64,
    /// The return address of the call that reported the end.
    pub end_address: Option<u64>,
}

/// Returns the hits, in the order of their starts in `events`, and the number of ends without a
/// start. Events that belong to none of `modules` are skipped.
pub fn hits(modules: &[LoopModule], events: &[LoopEvent]) -> (Vec<LoggedHit>, u64) {
    let mut open: HashMap<(usize, u32), Vec<usize>> = HashMap::new();
    let (mut hits, mut lonely) = (Vec::new(), 0);
    for event in events {
        if event.module >= modules.len() {
            continue;
        }
        let open = open.entry((event.module, event.tid)).or_default();
        if !event.end {
            open.push(hits.len());
            hits.push(LoggedHit {
                module: event.module,
                tid: event.tid,
                id: event.id,
                begin: event.ticks,
                end: None,
                begin_address: event.address,
                end_address: None,
            });
            continue;
        }
        match open.iter().rposition(|at| hits[*at].id == event.id) {
            Some(place) => {
                let hit: &mut LoggedHit = &mut hits[open[place]];
                // If the clock went back, the end may be earlier than the start. In this case, the
                // hit gets no end.
                hit.end = (event.ticks >= hit.begin).then_some(event.ticks);
                hit.end_address = Some(event.address);
                open.truncate(place);
            }
            None => lonely += 1,
        }
    }
    (hits, lonely)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Logged {
    sums: HashMap<(usize, u32, u32), LoopRow>,
}

impl Logged {
    pub(super) fn new(modules: &[LoopModule], events: &[LoopEvent]) -> Self {
        let mut sums: HashMap<(usize, u32, u32), LoopRow> = HashMap::new();
        for hit in hits(modules, events).0 {
            let sum = sums.entry((hit.module, hit.tid, hit.id)).or_default();
            sum.begun += 1;
            if let Some(end) = hit.end {
                let ticks = end - hit.begin;
                sum.ended += 1;
                sum.ticks = sum.ticks.saturating_add(ticks);
                sum.squares = sum.squares.saturating_add(u128::from(ticks).pow(2));
            }
        }
        Self { sums }
    }

    /// Returns a copy of the row whose counts and times are computed from its recorded hits.
    pub(super) fn row(&self, row: &LoopRow) -> LoopRow {
        let none = LoopRow::default();
        let sum = self.sums.get(&(row.module, row.tid, row.id)).unwrap_or(&none);
        LoopRow {
            begun: sum.begun,
            ended: sum.ended,
            ticks: sum.ticks,
            squares: sum.squares,
            ..row.clone()
        }
    }
}

/// Returns, for each id that has hits, where its loop or function is in the machine code. The range
/// reaches from the lowest `begin_address` to the highest `end_address` of the hits with this id.
/// Copies of a loop (from unrolling or inlining) have the same id and different addresses.
/// Addresses in different shared objects cannot be compared, so only hits of the registration with
/// index `module` are used.
pub fn places(hits: &[LoggedHit], module: usize) -> HashMap<u32, (u64, Option<u64>)> {
    let mut places: HashMap<u32, (u64, Option<u64>)> = HashMap::new();
    for hit in hits.iter().filter(|hit| hit.module == module) {
        let place = places.entry(hit.id).or_insert((hit.begin_address, hit.end_address));
        place.0 = place.0.min(hit.begin_address);
        place.1 = place.1.max(hit.end_address);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(tid: u32, id: u32, end: bool, ticks: u64) -> LoopEvent {
        LoopEvent { module: 0, tid, id, end, address: 0x100 + ticks, ticks }
    }

    #[test]
    fn ends_belong_to_the_innermost_begin() {
        let modules = [LoopModule::default()];
        let (begin, end) = (false, true);
        let events = [
            event(1, 7, end, 1), // begun before anything was written down
            event(1, 0, begin, 10),
            event(2, 0, begin, 11),
            event(1, 1, begin, 20),
            event(1, 0, begin, 30), // recursion
            event(1, 0, end, 40),
            event(1, 2, begin, 50), // left by an exception
            event(1, 1, end, 60),
            event(1, 0, end, 70),
            event(2, 0, end, 71),
        ];
        let (hits, lonely) = hits(&modules, &events);
        assert_eq!(lonely, 1);
        let spans: Vec<_> = hits.iter().map(|hit| (hit.tid, hit.id, hit.begin, hit.end)).collect();
        let expected = [
            (1, 0, 10, Some(70)),
            (2, 0, 11, Some(71)),
            (1, 1, 20, Some(60)),
            (1, 0, 30, Some(40)),
            (1, 2, 50, None),
        ];
        assert_eq!(spans, expected);
        let places = places(&hits, 0);
        assert_eq!(places[&0], (0x100 + 10, Some(0x100 + 71)));
        assert_eq!(places[&2], (0x100 + 50, None));
        let row = LoopRow { tid: 1, hits: 5, begun: 3, ended: 2, ..LoopRow::default() };
        let filled = Logged::new(&modules, &events).row(&row);
        assert_eq!((filled.hits, filled.begun, filled.ended, filled.ticks), (5, 2, 2, 70));
        assert_eq!(filled.squares, 60 * 60 + 10 * 10);
    }
}
