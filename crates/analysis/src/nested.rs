//! Self time over a whole profile: the second pass over those pages whose calls overlap.
//!
//! ```text
//!  a thread's pages over time   ├ 1 ┤ ├ 2 ┤   ├──── 5 ────┤   ├ 6 ┤
//!                                               ├ 3 ┤ ├ 4 ┤
//!                               flat  flat      one cluster   nested calls: a cluster, too
//! ```
//!
//! Most profiles have no nested calls. Then everything is known after one pass, because self time
//! is duration. Only clusters are read again: pages that overlap one another in time, or whose own
//! calls overlap. The calls of a cluster are needed in the order in which they begin, which is not
//! the order of the pages: calls are recorded when they end, and traces can have any order. So the
//! calls are collected in rounds. Each round takes as many of the earliest calls as fit into a
//! buffer, and decodes only the pages that may contain some of them. Memory is limited to the
//! buffer; pages that are badly out of order cost time instead.

use std::cell::RefCell;
use std::iter::repeat;
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Origin, PageDecoder, Profile, on_threads};

use crate::clusters::PageSpan;
use crate::empty::Brackets;
use crate::innermost::Innermost;
use crate::table::Table;

/// Number of calls that a round keeps. Up to twice as many, of 32 bytes each, are in memory.
const ROUND: usize = 1 << 18;

/// The result of the second pass.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// For each cluster, the time in some call.
    pub busy: Vec<u64>,
    /// Number of calls that overlap others without being nested in them.
    pub overlapping: u64,
}

/// Processes the clusters. The part of each duration that belongs to other calls is added to the
/// rows of the tables that `make` creates.
pub(crate) fn visit<'a>(
    profile: &'a Profile,
    clusters: &[Vec<PageSpan>],
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    make: impl Fn() -> Table<'a> + Sync,
) -> (Vec<Table<'a>>, Found) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut worker = Worker {
            profile,
            decoder: PageDecoder::new(profile),
            table: make(),
            brackets,
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

/// A call, in the order that [`Innermost`] needs: by begin, then the longest first, then the outer
/// one of two equal calls first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    begin: u64,
    not_end: u64,
    order: u64,
    row: u32,
    /// The number of its brackets.
    bracket: Option<u32>,
}

struct Worker<'a, 'b> {
    profile: &'a Profile,
    decoder: PageDecoder<'a>,
    table: Table<'a>,
    brackets: &'b Brackets,
    round: usize,
    calls: Vec<Begun>,
}

impl Worker<'_, '_> {
    fn cluster(&mut self, pages: &[PageSpan]) -> Innermost<Begun> {
        let mut inner = Innermost::default();
        let mut after: Option<Begun> = None;
        loop {
            let more = self.bring(pages, after);
            let table = RefCell::new(&mut self.table);
            let mut done = |call: Begun, own: u64| {
                let duration = (u64::MAX - call.not_end) - call.begin;
                table.borrow_mut().not_own(call.row, duration - own);
            };
            for call in &self.calls {
                inner.call(call.begin, u64::MAX - call.not_end, *call, &mut done);
                let Some(number) = call.bracket else { continue };
                let around = inner.around().zip(std::iter::once(true).chain(repeat(false)));
                for (outer, directly) in around {
                    table.borrow_mut().inside(outer.row, number, directly);
                }
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
        // The recorder writes calls when they end, so the outer one comes last; traces and plugins
        // name it first.
        let imported = self.profile.manifest.origin == Origin::Import;
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
            let of_plugins = self.profile.processes[page.key.process].id.is_of_plugins();
            let outer_is_first = imported || of_plugins;
            let mask = columns.header().map_or(0, |h| h.start.counters);
            let bracket = self.brackets.number(page.key.process, mask);
            for (i, row) in rows.iter().enumerate() {
                let begin = columns.start_ticks[i];
                let end = begin.saturating_add(columns.duration(i));
                let order = (page.key.page as u64) << 32 | i as u64;
                let order = if outer_is_first { order } else { !order };
                let call = Begun { begin, not_end: u64::MAX - end, order, row: *row, bracket };
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

/// Keeps the `n` smallest calls and returns the largest of them.
fn keep(calls: &mut Vec<Begun>, n: usize) -> Option<Begun> {
    if calls.len() > n {
        calls.select_nth_unstable(n - 1);
        calls.truncate(n);
    }
    calls.iter().max().copied()
}
