//! Which workgroup calls make up a dispatch.
//!
//! A record says which workgroup of how many a call was, not of which dispatch. Taken in the
//! order of their begins, the calls of one export belong to one dispatch until each of its
//! workgroups was seen once:
//!
//! ```text
//!  count 4,1,1:   0 1 2 3 | 1 0 3 2 | 0 2 …
//! ```
//!
//! That is exact as long as dispatches of one export follow one another. Where two run at the
//! same time, a workgroup appears a second time before the first dispatch is whole: a second one
//! is opened beside it, and both are marked *not exact*, since a workgroup may have been given to
//! the other one. In a process that lost calls, the same sight means that a call is missing:
//! there the first dispatch is closed as *incomplete*.

use crate::hash::FastMap;

/// Most workgroups of a dispatch that are followed; larger grids have calls only.
const MOST_WORKGROUPS: u64 = 1 << 24;
/// Most dispatches of one export at the same time.
const MOST_OPEN: usize = 64;

/// Numbers dispatches, from 1.
pub type DispatchId = u64;

/// One dispatch, whole or as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Its number.
    pub id: DispatchId,
    /// The export.
    pub export: u32,
    /// Workgroups: x, y, z.
    pub count: [u32; 3],
    /// How many of them were seen.
    pub seen: u64,
    /// Begin of the first, ns.
    pub start_ns: i64,
    /// End of the last, ns.
    pub end_ns: i64,
    /// No other dispatch of the export ran at the same time.
    pub exact: bool,
    /// What it added to each counter; `None` if some call has no whole value.
    pub counters: Vec<Option<u64>>,
    /// A row to draw it in: dispatches of one lane do not overlap.
    pub lane: usize,
    workgroups: Vec<u64>,
}

impl Dispatch {
    /// How many workgroups it has.
    pub fn of(&self) -> u64 {
        self.count.iter().map(|n| u64::from(*n)).product()
    }

    fn has(&self, linear: u64) -> bool {
        let word = self.workgroups.get((linear / 64) as usize);
        word.is_some_and(|word| word >> (linear % 64) & 1 == 1)
    }
}

/// One workgroup call, as the assembler needs it.
#[derive(Clone, Copy, Debug)]
pub struct Workgroup<'a> {
    /// The export.
    pub export: u32,
    /// Which workgroup.
    pub id: [u32; 3],
    /// Of how many.
    pub count: [u32; 3],
    /// Begin, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// What it added to each counter.
    pub counters: &'a [Option<u64>],
}

/// What a call did.
#[derive(Debug)]
pub struct Placed {
    /// The dispatch it belongs to.
    pub id: DispatchId,
    /// It began that dispatch.
    pub first: bool,
    /// Dispatches that are over because of it.
    pub over: Vec<Dispatch>,
}

/// Puts the calls of one process together.
#[derive(Debug)]
pub struct Assembler {
    open: FastMap<u32, Vec<Dispatch>>,
    last: DispatchId,
    lost_calls: bool,
    /// For each lane, when the dispatch in it was over; `None` while it is not.
    lanes: Vec<Option<i64>>,
}

impl Assembler {
    /// `lost_calls`: some calls of this process were not recorded. `last`: the highest number
    /// in use already.
    pub fn new(lost_calls: bool, last: DispatchId) -> Self {
        Self { open: FastMap::default(), last, lost_calls, lanes: Vec::new() }
    }

    /// The highest number given.
    pub fn last(&self) -> DispatchId {
        self.last
    }

    /// Takes the next call. `None` if nothing is known of its workgroup, or nothing that can be.
    pub fn add(&mut self, call: &Workgroup<'_>) -> Option<Placed> {
        let [nx, ny, nz] = call.count.map(u64::from);
        let of = nx.checked_mul(ny)?.checked_mul(nz)?;
        let inside = call.id.iter().zip(&call.count).all(|(id, count)| id < count);
        if !inside || of == 0 || of > MOST_WORKGROUPS {
            return None;
        }
        let [x, y, z] = call.id.map(u64::from);
        let linear = (z * ny + y) * nx + x;
        let mut over = Vec::new();
        let open = self.open.entry(call.export).or_default();
        let fits = |d: &Dispatch| d.count == call.count && !d.has(linear);
        let found = open.iter().position(fits);
        let at = match found {
            Some(at) => at,
            None => {
                if self.lost_calls {
                    over.append(open);
                } else if open.len() >= MOST_OPEN {
                    over.push(open.remove(0));
                }
                for dispatch in &over {
                    free(&mut self.lanes, dispatch);
                }
                open.iter_mut().for_each(|other| other.exact = false);
                self.last += 1;
                open.push(Dispatch {
                    id: self.last,
                    export: call.export,
                    count: call.count,
                    seen: 0,
                    start_ns: call.start_ns,
                    end_ns: call.end_ns,
                    exact: open.is_empty(),
                    counters: vec![Some(0); call.counters.len()],
                    lane: take(&mut self.lanes, call.start_ns),
                    workgroups: Vec::new(),
                });
                open.len() - 1
            }
        };
        let dispatch = &mut open[at];
        let first = dispatch.seen == 0;
        let word = (linear / 64) as usize;
        if dispatch.workgroups.len() <= word {
            dispatch.workgroups.resize(word + 1, 0);
        }
        dispatch.workgroups[word] |= 1 << (linear % 64);
        dispatch.seen += 1;
        dispatch.start_ns = dispatch.start_ns.min(call.start_ns);
        dispatch.end_ns = dispatch.end_ns.max(call.end_ns);
        for (sum, value) in dispatch.counters.iter_mut().zip(call.counters) {
            *sum = sum.zip(*value).map(|(sum, value)| sum.saturating_add(value));
        }
        let id = dispatch.id;
        if dispatch.seen == of {
            let whole = open.remove(at);
            free(&mut self.lanes, &whole);
            over.push(whole);
        }
        Some(Placed { id, first, over })
    }

    /// Every dispatch that is not whole, in the order of their begins.
    pub fn finish(self) -> Vec<Dispatch> {
        let mut rest: Vec<Dispatch> = self.open.into_values().flatten().collect();
        rest.sort_by_key(|d| d.id);
        rest
    }
}

fn take(lanes: &mut Vec<Option<i64>>, start_ns: i64) -> usize {
    let is_free = |end: &Option<i64>| end.is_some_and(|end| end <= start_ns);
    match lanes.iter().position(is_free) {
        Some(lane) => {
            lanes[lane] = None;
            lane
        }
        None => {
            lanes.push(None);
            lanes.len() - 1
        }
    }
}

fn free(lanes: &mut [Option<i64>], dispatch: &Dispatch) {
    if let Some(lane) = lanes.get_mut(dispatch.lane) {
        *lane = Some(dispatch.end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(x: u32, of: u32, start: i64, end: i64) -> Workgroup<'static> {
        let counters = &[Some(1)];
        Workgroup {
            export: 0,
            id: [x, 0, 0],
            count: [of, 1, 1],
            start_ns: start,
            end_ns: end,
            counters,
        }
    }

    /// id, seen, begin, end, exact, lane of the dispatches that were over, and of the rest.
    fn run(lost: bool, calls: &[Workgroup<'_>]) -> Vec<(u64, u64, i64, i64, bool, usize)> {
        let mut assembler = Assembler::new(lost, 0);
        let mut over = Vec::new();
        for call in calls {
            over.extend(assembler.add(call).expect("placed").over);
        }
        over.extend(assembler.finish());
        over.iter().map(|d| (d.id, d.seen, d.start_ns, d.end_ns, d.exact, d.lane)).collect()
    }

    #[test]
    fn one_after_the_other() {
        let calls = [call(0, 2, 0, 10), call(1, 2, 5, 8), call(1, 2, 20, 25), call(0, 2, 21, 30)];
        assert_eq!(run(false, &calls), [(1, 2, 0, 10, true, 0), (2, 2, 20, 30, true, 0)]);
    }

    #[test]
    fn two_at_the_same_time_are_not_exact() {
        let calls = [call(0, 2, 0, 10), call(0, 2, 1, 9), call(1, 2, 11, 20), call(1, 2, 12, 18)];
        assert_eq!(run(false, &calls), [(1, 2, 0, 20, false, 0), (2, 2, 1, 18, false, 1)]);
    }

    #[test]
    fn a_lost_call_leaves_one_incomplete() {
        let calls = [call(0, 2, 0, 10), call(0, 2, 20, 30), call(1, 2, 21, 29)];
        assert_eq!(run(true, &calls), [(1, 1, 0, 10, true, 0), (2, 2, 20, 30, true, 0)]);
    }

    #[test]
    fn another_grid_is_another_dispatch() {
        let calls = [call(0, 3, 0, 10), call(0, 1, 20, 30)];
        assert_eq!(run(false, &calls), [(2, 1, 20, 30, false, 1), (1, 1, 0, 10, false, 0)]);
    }

    #[test]
    fn a_counter_that_some_call_lacks_has_no_sum() {
        let mut assembler = Assembler::new(false, 0);
        let without = Workgroup { counters: &[None], ..call(1, 2, 1, 2) };
        assert!(assembler.add(&call(0, 2, 0, 1)).expect("placed").over.is_empty());
        let over = assembler.add(&without).expect("placed").over;
        assert_eq!(over[0].counters, [None]);
    }

    #[test]
    fn impossible_workgroups_belong_to_none() {
        let mut assembler = Assembler::new(false, 0);
        for (id, count) in [
            ([0, 0, 0], [0, 0, 0]),
            ([1, 0, 0], [1, 1, 1]),
            ([0, 0, 0], [u32::MAX; 3]),
            ([0, 0, 0], [1 << 25, 1, 1]),
        ] {
            let call = Workgroup { id, count, ..call(0, 1, 0, 1) };
            assert!(assembler.add(&call).is_none(), "{count:?}");
        }
        assert!(assembler.finish().is_empty());
    }
}
