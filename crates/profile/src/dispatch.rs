//! Finds the workgroup calls that make up each dispatch.
//!
//! The record of a call contains its workgroup id and the number of workgroups, but does not
//! identify the dispatch. The calls of one export (a function of an executable) are taken in the
//! order of their starts. They belong to one dispatch until each workgroup was seen once:
//!
//! ```text
//!  count 4,1,1:   0 1 2 3 | 1 0 3 2 | 0 2 …
//! ```
//!
//! This assignment is exact while the dispatches of one export run one after another. If two of
//! them overlap, a workgroup appears again before the first dispatch is complete. Then a new
//! dispatch is opened, and all open ones of the export are marked *not exact*, because a workgroup
//! may belong to any of them. If calls of the process were lost, a second appearance means instead
//! that a call is missing. The first dispatch is then closed as *incomplete*.

use hashbrown::HashMap;

/// Dispatches with more workgroups than this are not assembled; only their calls are shown.
const MOST_WORKGROUPS: u64 = 1 << 24;
/// Maximum number of dispatches of one export that are assembled at the same time.
const MOST_OPEN: usize = 64;

/// The number of a dispatch, from 1.
pub type DispatchId = u64;

/// What the calls added so far tell about a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    pub id: DispatchId,
    pub export: u32,
    /// Number of workgroups: x, y, z.
    pub count: [u32; 3],
    /// Number of workgroups that were seen.
    pub seen: u64,
    /// Start of the first workgroup, in ns.
    pub start_ns: i64,
    /// End of the last workgroup, in ns.
    pub end_ns: i64,
    /// Whether no other dispatch of the export was open (incomplete) at the same time.
    pub exact: bool,
    /// The sum of each counter over the workgroups; `None` if some workgroup has no complete value.
    pub counters: Vec<Option<u64>>,
    /// The number of the dispatch's row in a timeline, from 0. Dispatches in one row do not
    /// overlap.
    pub lane: usize,
    workgroups: Vec<u64>,
}

impl Dispatch {
    /// Returns the number of workgroups that the dispatch should have.
    pub fn of(&self) -> u64 {
        self.count.iter().map(|n| u64::from(*n)).product()
    }

    fn has(&self, linear: u64) -> bool {
        let word = self.workgroups.get((linear / 64) as usize);
        word.is_some_and(|word| word >> (linear % 64) & 1 == 1)
    }
}

/// The call of one workgroup.
#[derive(Clone, Copy, Debug)]
pub struct Workgroup<'a> {
    pub export: u32,
    pub id: [u32; 3],
    pub count: [u32; 3],
    /// Start of the call, in ns.
    pub start_ns: i64,
    /// End of the call, in ns.
    pub end_ns: i64,
    /// What the call added to each counter; `None` if there is no complete value.
    pub counters: &'a [Option<u64>],
}

/// What adding a call has changed.
#[derive(Debug)]
pub struct Placed {
    pub id: DispatchId,
    /// Whether the call is the first one of its dispatch.
    pub first: bool,
    /// The dispatches that this call completed or closed.
    pub over: Vec<Dispatch>,
}

/// Assembles the calls of one process into dispatches.
#[derive(Debug)]
pub struct Assembler {
    open: HashMap<u32, Vec<Dispatch>>,
    last: DispatchId,
    lost_calls: bool,
    /// For each row of the timeline: the end of its last dispatch; `None` while that dispatch is
    /// open.
    lanes: Vec<Option<i64>>,
}

impl Assembler {
    /// Creates an assembler. `lost_calls` says whether calls of this process may be missing, and
    /// `last` is the highest dispatch number in use.
    pub fn new(lost_calls: bool, last: DispatchId) -> Self {
        Self { open: HashMap::new(), last, lost_calls, lanes: Vec::new() }
    }

    /// Returns the highest dispatch number in use.
    pub fn last(&self) -> DispatchId {
        self.last
    }

    /// Adds the next call; calls must be added in the order of their starts. Returns `None` if its
    /// workgroup is unknown or impossible, or if the dispatch is too large.
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

    /// Returns the dispatches that are not complete, in the order of their starts.
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

    /// Returns the id, seen workgroups, start, end, exactness and lane of each dispatch; those that
    /// were still open at the end come last.
    fn run(lost: bool, calls: &[Workgroup<'_>]) -> Vec<(u64, u64, i64, i64, bool, usize)> {
        let mut assembler = Assembler::new(lost, 0);
        let mut over = Vec::new();
        for call in calls {
            over.extend(assembler.add(call).expect("the workgroup is possible").over);
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
        assert!(
            assembler.add(&call(0, 2, 0, 1)).expect("the workgroup is possible").over.is_empty()
        );
        let over = assembler.add(&without).expect("the workgroup is possible").over;
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
