//! Counts the calls of each thread by kind. The counts show whether a thread works on the parallel
//! regions of other threads, and for how long it was in tasks (parts of regions).
//!
//! ```text
//!  page 1                     page 2
//!  ├ region ┤ ├ task ┤ ├ region ┤ … ┤      the task around them ends on page 2: only it is outside
//! ```
//!
//! A page (block of recorded calls) contains calls in the order of their ends. A call ends later
//! than the calls inside of it, so the code goes through the calls backwards. A region or a task
//! that begins at or after the earliest start seen so far is inside of a region or task that ends
//! later. Pages are read in any order and joined afterwards. A page is read again if a region or a
//! task of a later page may contain some of its regions or tasks.

use std::collections::{BTreeMap, HashMap};

use profile::columns::Columns;
use profile::{PageDecoder, PageKey, Profile, Role};

use crate::estimate::Estimate;

/// Half the width of a 95 % interval, in standard errors.
const NORMAL_95: f64 = 1.96;

/// The calls of a thread, by kind. In a run with a budget, `outer_regions`, `outer_tasks` and
/// `task_ticks` are estimates: each timed call counts as many times as its weight says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    /// Number of recorded calls.
    pub all: u64,
    /// Number of recorded ops of hosts (runtimes) whose program runs between two ops
    /// (`program_between_ops`), such as PyTorch.
    pub announced: u64,
    /// Number of recorded regions.
    pub regions: u64,
    /// Number of the regions that are not inside of another region or task of the same thread.
    outer_regions: u64,
    /// Number of tasks that are not inside of a region or task of the same thread: another thread
    /// launched them.
    outer_tasks: u64,
    /// The time in tasks, in ticks.
    task_ticks: f64,
    /// The variance of `task_ticks` that comes from sampling calls. 0 without a budget.
    variance: f64,
}

impl Kinds {
    /// Returns counts with this many recorded calls, and 0 in all other fields.
    pub fn of_calls(calls: usize) -> Self {
        Self { all: calls as u64, ..Self::default() }
    }

    /// Whether the thread works on regions of other threads more often than it launches regions.
    /// Regions that it launches inside of its tasks do not count; there may be more of them than
    /// tasks.
    pub fn works_for_others(&self) -> bool {
        self.outer_tasks > self.outer_regions
    }

    /// Returns the time in tasks in ticks, with a 95 % interval for the error of sampling calls.
    pub fn in_tasks(&self) -> Estimate {
        let around = Estimate::within(self.task_ticks, NORMAL_95 * self.variance.sqrt());
        Estimate { low: around.low.max(0.0), ..around }
    }

    fn add(&mut self, more: &Self) {
        self.all += more.all;
        self.announced += more.announced;
        self.regions += more.regions;
        self.outer_regions = self.outer_regions.saturating_add(more.outer_regions);
        self.outer_tasks = self.outer_tasks.saturating_add(more.outer_tasks);
        self.task_ticks += more.task_ticks;
        self.variance += more.variance;
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Parallel {
    is_task: bool,
    begin: u64,
    ticks: u64,
    weight: u64,
}

impl Parallel {
    /// Returns call `i` if it is a region or a task.
    pub fn of(columns: &Columns, i: usize, role: Option<Role>) -> Option<Self> {
        let is_task = match role {
            Some(Role::Task) => true,
            Some(Role::Region) => false,
            _ => return None,
        };
        let (begin, ticks) = (columns.start_ticks[i], columns.duration(i));
        Some(Self { is_task, begin, ticks, weight: columns.weight(i) })
    }
}

/// The earliest start of the regions and tasks seen so far, which end later than the call that is
/// looked at. `any` is the earliest start of regions and tasks, and `task` that of tasks only.
#[derive(Clone, Copy, Debug)]
struct Earliest {
    any: u64,
    task: u64,
}

impl Earliest {
    const NONE: Self = Self { any: u64::MAX, task: u64::MAX };
}

/// What a thread did on one of its pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnPage {
    /// Index of the page among the thread's pages.
    pub page: usize,
    /// Number of recorded calls.
    pub calls: u64,
    /// Number of regions that are not inside of another region or task of the thread; an estimate
    /// in a run with a budget.
    pub regions: u64,
    /// The time in tasks, in ticks. The whole time of a task is on the page on which the task ends.
    pub task_ticks: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OfPage {
    kinds: Kinds,
    earliest: Earliest,
    /// The latest start of a region or task of the page. `None` if the page has none.
    latest: Option<u64>,
}

impl OfPage {
    /// Makes the numbers of a page. `kinds` has the numbers that do not depend on nesting.
    /// `parallel` has the page's regions and tasks, sorted by end.
    pub fn new(kinds: Kinds, parallel: &[Parallel]) -> Self {
        let latest = parallel.iter().map(|call| call.begin).max();
        let mut page = Self { kinds, earliest: Earliest::NONE, latest };
        page.count(parallel, Earliest::NONE);
        page
    }

    /// Counts the regions and tasks that are not inside of others, and adds up the time in tasks.
    fn count(&mut self, parallel: &[Parallel], mut earliest: Earliest) {
        let Kinds { all, announced, regions, .. } = self.kinds;
        let mut kinds = Kinds { all, announced, regions, ..Kinds::default() };
        for call in parallel.iter().rev() {
            if call.begin < earliest.any {
                earliest.any = call.begin;
                let outer =
                    if call.is_task { &mut kinds.outer_tasks } else { &mut kinds.outer_regions };
                *outer = outer.saturating_add(call.weight);
            }
            if call.is_task && call.begin < earliest.task {
                earliest.task = call.begin;
                let (ticks, weight) = (call.ticks as f64, call.weight as f64);
                kinds.task_ticks += weight * ticks;
                // This estimates the variance of the estimator of Horvitz and Thompson: each call
                // is sampled independently with the probability 1 / weight.
                kinds.variance += weight * (weight - 1.0) * ticks * ticks;
            }
        }
        (self.kinds, self.earliest) = (kinds, earliest);
    }
}

/// The kinds of calls of each thread, by process and thread, and what the thread did on each of its
/// pages (the last page first).
pub(super) type Threads = HashMap<(usize, usize), (Kinds, Vec<OnPage>)>;

pub(super) fn join(profile: &Profile, pages: BTreeMap<PageKey, OfPage>) -> Threads {
    let mut decoder = PageDecoder::new(profile);
    let mut threads = Threads::new();
    let mut later = (None, Earliest::NONE);
    for (key, mut page) in pages.into_iter().rev() {
        let thread = Some((key.process, key.thread));
        let earliest = if later.0 == thread { later.1 } else { Earliest::NONE };
        if page.latest.is_some_and(|begin| begin >= earliest.any) {
            page.count(&parallel(decoder.decode(key), profile), earliest);
        }
        let Earliest { any, task } = page.earliest;
        later = (thread, Earliest { any: any.min(earliest.any), task: task.min(earliest.task) });
        let (kinds, on_pages) = threads.entry((key.process, key.thread)).or_default();
        kinds.add(&page.kinds);
        on_pages.push(OnPage {
            page: key.page,
            calls: page.kinds.all,
            regions: page.kinds.outer_regions,
            task_ticks: page.kinds.task_ticks,
        });
    }
    threads
}

fn parallel(columns: &Columns, profile: &Profile) -> Vec<Parallel> {
    let role = |export: u32| {
        let op = profile.ops.of(columns.process, export).and_then(|op| profile.ops.get(op));
        op.map(|op| op.role)
    };
    let calls = columns.export.iter().enumerate();
    calls.filter_map(|(i, export)| Parallel::of(columns, i, role(*export))).collect()
}
