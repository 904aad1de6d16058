//! Computes the number of each call's dispatch. `trace export` writes the same number under the key
//! `correlation`.
//!
//! The dispatch of a call follows from the order in which the calls of a process began
//! ([`crate::dispatch`]), but batches are ordered by thread. So the calls of a process are decoded
//! twice: first for these numbers, and then for the batches.
//!
//! Memory use: one decoded page (a block of records) for each thread, and the numbers of the calls
//! of one process. Consecutive calls whose numbers differ by the same step take 16 bytes together.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use model::Severity;

use crate::Role;
use crate::columns::Columns;
use crate::dispatch::{Assembler, Workgroup};
use crate::profile::{Process, Profile};
use crate::visit::{PageDecoder, PageKey};

/// Returns whether calls of this profile may belong to dispatches. In a run with a budget,
/// dispatches are not known, because some calls have no record.
pub(super) fn has_any(profile: &Profile) -> bool {
    let has_dispatches = |process: &Process| {
        let mut libraries = process.libraries.iter().filter(|library| !library.exports.is_empty());
        libraries.any(|library| process.host_of(library).dispatches)
    };
    !profile.is_sampled() && profile.processes.iter().any(has_dispatches)
}

/// The dispatch numbers of the calls of one process at a time.
#[derive(Debug)]
pub(super) struct Numbers<'a> {
    profile: &'a Profile,
    /// The process to which the numbers in `pages` belong.
    process: Option<usize>,
    pages: HashMap<PageKey, Steps>,
    last: u64,
}

impl<'a> Numbers<'a> {
    pub fn new(profile: &'a Profile) -> Self {
        Self { profile, process: None, pages: HashMap::new(), last: 0 }
    }

    /// Returns the dispatch numbers of a page's calls. Processes must be requested in the order of
    /// the profile.
    pub fn of(&mut self, key: PageKey) -> impl Iterator<Item = Option<u64>> + '_ {
        let next = self.process.map_or(0, |process| process + 1);
        for process in next..=key.process {
            self.pages = number(self.profile, process, &mut self.last);
            self.process = Some(process);
        }
        self.pages.get(&key).into_iter().flat_map(Steps::numbers)
    }
}

/// The dispatch numbers of one page's calls, as pairs: a step, and how many consecutive calls have
/// this step. A call's number is that of the call before it plus the step; it is 0 if the call
/// belongs to no dispatch.
#[derive(Debug, Default)]
struct Steps(Vec<(i64, u64)>);

impl Steps {
    fn of(numbers: &[u64]) -> Self {
        let (mut steps, mut before): (Vec<(i64, u64)>, _) = (Vec::new(), 0);
        for number in numbers {
            let step = number.wrapping_sub(before) as i64;
            before = *number;
            match steps.last_mut() {
                Some((known, calls)) if *known == step => *calls += 1,
                _ => steps.push((step, 1)),
            }
        }
        Self(steps)
    }

    fn numbers(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let each = self.0.iter().flat_map(|(step, calls)| (0..*calls).map(|_| *step));
        each.scan(0u64, |number, step| {
            *number = number.wrapping_add_signed(step);
            Some(Some(*number).filter(|number| *number > 0))
        })
    }
}

/// The current page of a thread: its calls, sorted by start, and the numbers so far.
struct Cursor<'a> {
    decoder: PageDecoder<'a>,
    key: PageKey,
    pages: usize,
    order: Vec<u32>,
    at: usize,
    numbers: Vec<u64>,
}

impl Cursor<'_> {
    /// Returns the start of the next call.
    fn begin(&self) -> Option<u64> {
        let call = *self.order.get(self.at)?;
        Some(self.decoder.columns().start_ticks[call as usize])
    }

    /// Decodes pages until there is a next call. The numbers of finished pages are moved to `done`.
    fn fill(&mut self, done: &mut HashMap<PageKey, Steps>) {
        while self.at >= self.order.len() {
            if !self.numbers.is_empty() {
                let page = PageKey { page: self.key.page - 1, ..self.key };
                done.insert(page, Steps::of(&self.numbers));
                self.numbers.clear();
            }
            if self.key.page >= self.pages {
                return;
            }
            let columns = self.decoder.decode(self.key);
            self.key.page += 1;
            self.order.clear();
            self.order.extend(0..columns.len() as u32);
            // Of calls that begin at the same time, the outermost comes first. A thread records a
            // call after the calls inside of it, so the outermost has the highest index.
            self.order.sort_by_key(|i| {
                let at = *i as usize;
                (columns.start_ticks[at], Reverse(columns.duration(at)), Reverse(at))
            });
            self.numbers.resize(columns.len(), 0);
            self.at = 0;
        }
    }
}

/// Computes the dispatch numbers of a process's calls. The numbers begin after `last`; at the end,
/// `last` is set to the highest number.
fn number(profile: &Profile, process: usize, last: &mut u64) -> HashMap<PageKey, Steps> {
    let mut done = HashMap::new();
    let Some(of) = profile.processes.get(process) else { return done };
    if of.id.is_of_plugins() {
        return done;
    }
    let mut cursors: Vec<Cursor<'_>> = Vec::new();
    let mut heap = BinaryHeap::new();
    for (thread, t) in of.threads.iter().enumerate() {
        let mut cursor = Cursor {
            decoder: PageDecoder::new(profile),
            key: PageKey { process, thread, page: 0 },
            pages: t.pages.len(),
            order: Vec::new(),
            at: 0,
            numbers: Vec::new(),
        };
        cursor.fill(&mut done);
        heap.extend(cursor.begin().map(|begin| Reverse((begin, thread))));
        cursors.push(cursor);
    }
    let lost = of.losses.iter().any(|loss| loss.severity() == Severity::Missing);
    let mut dispatches = Assembler::new(lost, *last);
    while let Some(Reverse((_, thread))) = heap.pop() {
        let cursor = &mut cursors[thread];
        let Some(i) = cursor.order.get(cursor.at).map(|i| *i as usize) else { continue };
        if let Some(number) = place(profile, cursor.decoder.columns(), i, &mut dispatches) {
            cursor.numbers[i] = number;
        }
        cursor.at += 1;
        cursor.fill(&mut done);
        heap.extend(cursor.begin().map(|begin| Reverse((begin, thread))));
    }
    *last = dispatches.last();
    done
}

/// Adds a call to its dispatch, and returns the dispatch's number.
fn place(profile: &Profile, columns: &Columns, i: usize, all: &mut Assembler) -> Option<u64> {
    let export = columns.export[i];
    let op = profile.ops.of(columns.process, export).and_then(|op| profile.ops.get(op));
    if !columns.knows_workgroup(i) || op.is_some_and(|op| op.role != Role::Workgroup) {
        return None;
    }
    let at = |axes: &[Vec<u32>; 3]| [axes[0][i], axes[1][i], axes[2][i]];
    // The assembler needs the times only to choose the timeline's row for a dispatch, so they are 0
    // here.
    let (id, count) = (at(&columns.workgroup), at(&columns.count));
    let call = Workgroup { export, id, count, start_ns: 0, end_ns: 0, counters: &[] };
    all.add(&call).map(|placed| placed.id)
}

#[cfg(test)]
mod tests {
    use super::Steps;

    #[test]
    fn numbers_come_back_and_take_little() {
        for numbers in
            [vec![], vec![0], vec![1, 1, 1, 2, 2], vec![7, 3, 0, 0, 9], (1..5_000).collect()]
        {
            let steps = Steps::of(&numbers);
            let back: Vec<u64> = steps.numbers().map(|number| number.unwrap_or(0)).collect();
            assert_eq!(back, numbers);
        }
        let one_per_call: Vec<u64> = (1..5_000).collect();
        assert_eq!(Steps::of(&one_per_call).0.len(), 1);
    }
}
