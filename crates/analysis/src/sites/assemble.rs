//! Assembles the dispatches of a process from their workgroups.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use model::Severity;
use profile::dispatch::{Assembler, DispatchId, Workgroup};
use profile::{Columns, OpId, PageDecoder, PageKey, Profile, Role};

use crate::amounts::{Brackets, parts};

/// One dispatch. `sum` and `busiest` are in units of 1/[`crate::amounts::PARTS`] tick.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub op: OpId,
    /// Start of the first workgroup, in ticks.
    pub begin: u64,
    /// End of the last workgroup, in ticks.
    pub end: u64,
    /// Sum of the durations of the workgroups, without the time that the recorder added.
    pub sum: u64,
    /// The part of `sum` that belongs to the busiest thread.
    pub busiest: u64,
    /// Number of recorded workgroups.
    pub workgroups: u64,
    /// Number of all workgroups, recorded or not.
    pub of: u64,
}

impl Dispatch {
    pub fn is_whole(&self) -> bool {
        self.workgroups == self.of
    }
}

#[derive(Debug, Default)]
pub(super) struct Assembled {
    /// Sorted by start.
    pub dispatches: Vec<Dispatch>,
    /// Number of threads that ran workgroups.
    pub threads: usize,
}

/// The next workgroup of a thread. Workgroups are processed in the order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    begin: u64,
    reader: usize,
}

/// Reads the workgroups of one thread, one page (a block of recorded calls) after the other. Within
/// a page, the workgroups are read in the order of their starts.
struct Reader<'a> {
    decoder: PageDecoder<'a>,
    pages: std::vec::IntoIter<PageKey>,
    /// The workgroups of the current page that are not processed yet, by their indices in the page.
    /// They are sorted from the latest start to the earliest.
    order: Vec<usize>,
}

impl Reader<'_> {
    /// Returns the start of the next workgroup. `None` at the end.
    fn peek(&mut self, profile: &Profile) -> Option<u64> {
        while self.order.is_empty() {
            let key = self.pages.next()?;
            let columns = self.decoder.decode(key);
            let is_workgroup = |i: &usize| is_workgroup(profile, columns, *i);
            self.order = (0..columns.len()).filter(is_workgroup).collect();
            // Of calls that begin together, the outer one must come first, because exported traces
            // number dispatches in this order. Of nested calls, the outer one is recorded last.
            self.order.sort_by_key(|i| {
                Reverse((columns.start_ticks[*i], Reverse(columns.duration(*i)), Reverse(*i)))
            });
        }
        self.order.last().map(|i| self.decoder.columns().start_ticks[*i])
    }
}

fn is_workgroup(profile: &Profile, columns: &Columns, i: usize) -> bool {
    let op = profile.ops.of(columns.process, columns.export[i]).and_then(|op| profile.ops.get(op));
    op.is_some_and(|op| op.role == Role::Workgroup) && columns.knows_workgroup(i)
}

/// Assembles the dispatches of a process. Returns `None` if the process does not exist, or in a run
/// with a budget for the cost of recording, because calls that were not timed are missing.
pub(super) fn assemble(
    profile: &Profile,
    process: usize,
    brackets: &Brackets,
) -> Option<Assembled> {
    if profile.is_sampled() {
        return None;
    }
    let of = profile.processes.get(process)?;
    // If workgroups begin at the same time on several threads, the workgroup of the thread with the
    // smallest index comes first.
    let readers = of.threads.iter().enumerate().map(|(thread, t)| {
        let pages = (0..t.headers().len()).map(|page| PageKey { process, thread, page });
        let pages = pages.collect::<Vec<_>>().into_iter();
        Reader { decoder: PageDecoder::new(profile), pages, order: Vec::new() }
    });
    let mut readers: Vec<Reader<'_>> = readers.collect();
    let mut next: BinaryHeap<Reverse<Next>> = BinaryHeap::new();
    for (reader, of) in readers.iter_mut().enumerate() {
        next.extend(of.peek(profile).map(|begin| Reverse(Next { begin, reader })));
    }
    let lost = of.losses.iter().any(|loss| loss.severity() == Severity::Missing);
    let mut sums = Sums {
        profile,
        brackets,
        assembler: Assembler::new(lost, 0),
        found: Assembled { threads: next.len(), ..Assembled::default() },
        of_threads: HashMap::default(),
    };
    while let Some(Reverse(Next { reader, .. })) = next.pop() {
        let of = &mut readers[reader];
        if let Some(i) = of.order.pop() {
            sums.add(of.decoder.columns(), i);
        }
        next.extend(of.peek(profile).map(|begin| Reverse(Next { begin, reader })));
    }
    Some(sums.found)
}

struct Sums<'a> {
    profile: &'a Profile,
    brackets: &'a Brackets,
    assembler: Assembler,
    found: Assembled,
    /// For each dispatch that may still get workgroups: the sum of its workgroups' durations on
    /// each thread.
    of_threads: HashMap<DispatchId, Vec<(usize, u64)>, BuildHasherDefault<NumberHasher>>,
}

/// Hashes numbers of dispatches, which count up from 1. Nobody can choose them, so the hash needs
/// no protection against attacks.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Sums<'_> {
    /// Adds a workgroup to its dispatch. Returns `None` if the workgroup cannot be assigned to a
    /// dispatch.
    fn add(&mut self, columns: &Columns, i: usize) -> Option<()> {
        let (begin, duration) = (columns.start_ticks[i], columns.duration(i));
        let end = begin.saturating_add(duration);
        let export = columns.export[i];
        let op = self.profile.ops.of(columns.process, export)?;
        let at = |axes: &[Vec<u32>; 3]| [axes[0][i], axes[1][i], axes[2][i]];
        let (id, count) = (at(&columns.workgroup), at(&columns.count));
        // The assembler uses times only to choose the row of a dispatch in a timeline, so the times
        // may be 0 here.
        let call = Workgroup { export, id, count, start_ns: 0, end_ns: 0, counters: &[] };
        let placed = self.assembler.add(&call)?;
        if placed.first {
            let of = count.iter().map(|n| u64::from(*n)).product();
            let (sum, busiest, workgroups) = (0, 0, 0);
            let dispatch = Dispatch { op, begin, end, sum, busiest, workgroups, of };
            self.found.dispatches.push(dispatch);
        }
        // Dispatches are numbered from 1, without gaps.
        let dispatch = self.found.dispatches.get_mut(usize::try_from(placed.id).ok()? - 1)?;
        let duration = parts(duration);
        let class = self.brackets.page(columns).of(columns, i);
        let time = duration - self.brackets.in_duration(class).min(duration);
        dispatch.end = dispatch.end.max(end);
        dispatch.sum = dispatch.sum.saturating_add(time);
        dispatch.workgroups += 1;
        let threads = self.of_threads.entry(placed.id).or_default();
        let known = threads.iter().position(|(thread, _)| *thread == columns.thread);
        let known = known.unwrap_or_else(|| {
            threads.push((columns.thread, 0));
            threads.len() - 1
        });
        threads[known].1 = threads[known].1.saturating_add(time);
        dispatch.busiest = dispatch.busiest.max(threads[known].1);
        for over in placed.over {
            self.of_threads.remove(&over.id);
        }
        Some(())
    }
}
