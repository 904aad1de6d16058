//! Self time over a profile: the second way over those pages whose calls overlap.
//!
//! ```text
//!  a thread's pages over time   ├ 1 ┤ ├ 2 ┤   ├──── 5 ────┤   ├ 6 ┤
//!                                               ├ 3 ┤ ├ 4 ┤
//!                               flat  flat      one cluster   calls in calls: a cluster, too
//! ```
//!
//! Most profiles have no calls within calls, and then everything is known after one pass: self
//! time is duration. Only clusters are read again: pages that overlap one another in time, or
//! whose own calls do. A cluster's calls are needed in the order of their begins, which is not
//! that of the pages (calls are recorded when they end, traces have any order). So they are
//! brought in rounds, each time as many of the earliest as fit in a buffer, and only pages that
//! may hold some of them are decoded. Memory is the buffer; the price is time where pages are
//! badly out of order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Origin, PageDecoder, Profile, on_threads};

use crate::clusters::PageSpan;
use crate::empty::{EmptyCall, empty_call};
use crate::innermost::Innermost;
use crate::table::Table;

/// Calls that a round keeps; up to twice as many, of 32 bytes, are in memory.
const ROUND: usize = 1 << 18;

/// What the second way found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// For each cluster the time in some call.
    pub busy: Vec<u64>,
    /// Calls that overlap others without lying within them.
    pub overlapping: u64,
}

/// Goes through the clusters. What calls do not own of their durations is noted in the rows of
/// the tables that `make` makes.
pub(crate) fn visit<'a>(
    profile: &'a Profile,
    clusters: &[Vec<PageSpan>],
    workers: usize,
    subtract_probe: bool,
    round: Option<usize>,
    make: impl Fn() -> Table<'a> + Sync,
) -> (Vec<Table<'a>>, Found) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut worker = Worker {
            profile,
            decoder: PageDecoder::new(profile),
            table: make(),
            subtract_probe,
            empty: HashMap::new(),
            round: round.unwrap_or(ROUND).max(1),
            calls: Vec::new(),
        };
        let mut found: Vec<(usize, u64, u64)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(at) else { break };
            let inner = worker.cluster(cluster);
            found.push((at, inner.busy(), inner.overlapping()));
        }
        (worker.table, found)
    };
    let workers = workers.clamp(1, clusters.len().max(1));
    let mut found = Found { busy: vec![0; clusters.len()], overlapping: 0 };
    let tables = on_threads(workers, work).into_iter().map(|(table, some)| {
        for (at, busy, overlapping) in some {
            found.busy[at] = busy;
            found.overlapping += overlapping;
        }
        table
    });
    (tables.collect(), found)
}

/// A call in the order in which [`Innermost`] wants it: by begin, then the longest first, then
/// the outer one of equal ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    begin: u64,
    not_end: u64,
    order: u64,
    row: u32,
    inside: u32,
}

struct Worker<'a> {
    profile: &'a Profile,
    decoder: PageDecoder<'a>,
    table: Table<'a>,
    subtract_probe: bool,
    /// What an empty call takes, by process and set of counters.
    empty: HashMap<(usize, u32), u32>,
    round: usize,
    calls: Vec<Begun>,
}

impl Worker<'_> {
    fn cluster(&mut self, pages: &[PageSpan]) -> Innermost<Begun> {
        let mut inner = Innermost::default();
        let mut after: Option<Begun> = None;
        loop {
            let more = self.bring(pages, after);
            let table = &mut self.table;
            let mut done = |call: Begun, own: u64| {
                let less = |ticks: u64| ticks.saturating_sub(call.inside.into());
                let duration = (u64::MAX - call.not_end) - call.begin;
                table.not_own(call.row, less(duration) - less(own));
            };
            for call in &self.calls {
                inner.call(call.begin, u64::MAX - call.not_end, *call, &mut done);
            }
            after = self.calls.last().copied();
            if !more {
                inner.finish(done);
                return inner;
            }
        }
    }

    /// Collects the earliest calls after `after`, sorted. Returns whether there are more.
    fn bring(&mut self, pages: &[PageSpan], after: Option<Begun>) -> bool {
        // Recorded when they end, the outer one of two comes last; traces name it first.
        let outer_is_last = self.profile.manifest.origin != Origin::Import;
        let mut most: Option<Begun> = None;
        self.calls.clear();
        for page in pages {
            if after.is_some_and(|after| page.last_begin < after.begin) {
                continue;
            }
            if most.is_some_and(|most| page.first_begin > most.begin) {
                break;
            }
            let columns = self.decoder.decode(page.key);
            let rows = self.table.rows_of(columns);
            let mask = columns.header().map_or(0, |h| h.start.counters);
            let inside = match self.subtract_probe {
                false => 0,
                true => *self.empty.entry((page.key.process, mask)).or_insert_with(|| {
                    let empty = empty_call(self.profile, page.key.process, mask);
                    let ticks = empty.map_or(0, |e: EmptyCall| e.ticks);
                    u32::try_from(ticks).unwrap_or(u32::MAX)
                }),
            };
            for (i, row) in rows.iter().enumerate() {
                let begin = columns.start_ticks[i];
                let end = begin.saturating_add(columns.duration(i));
                let order = (page.key.page as u64) << 32 | i as u64;
                let order = if outer_is_last { !order } else { order };
                let call = Begun { begin, not_end: u64::MAX - end, order, row: *row, inside };
                if after.is_some_and(|a| call <= a) || most.is_some_and(|most| call > most) {
                    continue;
                }
                self.calls.push(call);
                if self.calls.len() >= 2 * self.round {
                    most = keep(&mut self.calls, self.round);
                }
            }
        }
        if most.is_some() {
            keep(&mut self.calls, self.round);
        }
        self.calls.sort_unstable();
        most.is_some()
    }
}

/// Keeps the `n` smallest and returns the largest of them.
fn keep(calls: &mut Vec<Begun>, n: usize) -> Option<Begun> {
    if calls.len() > n {
        calls.select_nth_unstable(n - 1);
        calls.truncate(n);
    }
    calls.iter().max().copied()
}
