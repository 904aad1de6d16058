//! One pass over a profile, which computes everything that a report shows of it.

use std::collections::HashMap;

use model::metric::Bound;
use profile::{LossCount, Profile, merge_losses};

use crate::clusters::{PageSpan, clusters};
use crate::empty::Brackets;
use crate::nested;
use crate::probe::{InPlace, ProbeCost, costs};
use crate::table::{Apart, By, Places, Row, RowBrackets, Selection, Table};
use crate::threads::{PageTimes, ThreadTime};

/// What to add up, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a row stands for.
    pub by: By,
    /// Only calls of ops whose name matches (`*`, `?`).
    pub filter: Option<String>,
    /// Only activities whose kind matches: by its name in the trace (`cuda_runtime`), or by the
    /// generic name of the kind (`runtime`).
    pub kind: Option<String>,
    /// Only activities on a device whose number or name matches.
    pub device: Option<String>,
    /// Only activities on a stream whose number or name matches.
    pub stream: Option<String>,
    /// Metrics to compute for each row, bound to the counters of the profile.
    pub metrics: Vec<Bound>,
    /// Number of worker threads; 0 for as many as the machine has.
    pub workers: usize,
    /// Number of nested calls that a worker sorts at a time; `None` for 262,144. The result does
    /// not depend on it.
    pub round: Option<usize>,
}

/// The sums over the calls of a profile.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The rows of the table, in no particular order.
    pub rows: Vec<Row>,
    /// Number of all recorded calls. This and the following totals ignore the filter.
    pub calls: u64,
    /// Number of all dispatches. `None` if it is unknown for some call which workgroup it was.
    pub dispatches: Option<u64>,
    /// Sum of the durations of all calls.
    pub total_ticks: u128,
    /// Sum of their self times, which is what percentages refer to. It is less than `total_ticks`
    /// if calls are nested, because there the same time counts several times.
    pub self_ticks: u128,
    /// The time of brackets in these two sums; `None` if they were not calibrated for all calls.
    pub brackets: Option<RowBrackets>,
    /// Calls that ended after a call of their thread in which they had begun; see
    /// [`crate::innermost::Innermost::overlapping`].
    pub overlapping: u64,
    /// Calls that belong to no thread. They have rows by op, and are included in nothing else here.
    pub apart: Apart,
    /// Each thread that has calls. Ignores the filter.
    pub threads: Vec<ThreadTime>,
    /// Each process that has calls with a calibrated set of counters.
    pub probes: Vec<ProbeCost>,
    /// Whether some calls have a set of counters that their process did not calibrate.
    pub uncalibrated_probes: bool,
    /// Losses of each process: its own, those of its files, and those inside its pages.
    pub process_losses: Vec<Vec<LossCount>>,
    /// All losses together, including those of the run as a whole.
    pub losses: Vec<LossCount>,
}

/// Reads every page of `profile` once and adds it up. Pages with nested calls are read twice.
pub fn summarize(profile: &Profile, options: &Options) -> Summary {
    let workers = match options.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let selection = Selection {
        by: options.by,
        op: options.filter.as_deref(),
        kind: options.kind.as_deref(),
        device: options.device.as_deref(),
        stream: options.stream.as_deref(),
    };
    let places = Places::new(profile, &selection);
    let table = || Table::new(profile, &places, &options.metrics);
    let mut brackets = Brackets::new(profile);
    let make =
        || Worker { table: table(), in_place: InPlace::default(), times: PageTimes::default() };
    let (states, found) = profile.visit(workers, make, |worker, columns| {
        worker.in_place.add(columns, profile);
        // Calls that belong to no thread count neither for the times of threads nor for self times.
        if worker.table.apart(columns).is_none() {
            worker.times.add(columns, profile);
        }
        let mask = columns.header().map_or(0, |h| h.start.counters);
        worker.table.add(columns, brackets.number(columns.process, mask));
    });
    let mut all = make();
    for state in states {
        all.table.merge(state.table);
        all.times.merge(state.times);
        all.in_place.merge(state.in_place);
    }
    let clusters = clusters(all.times.spans());
    let (tables, nested) =
        nested::visit(profile, &clusters, workers, &brackets, options.round, table);
    tables.into_iter().for_each(|table| all.table.merge(table));
    let busy = busy(&clusters, &nested.busy);
    let threads = all.times.finish(profile, &clusters, &busy);
    brackets
        .place(profile, |process, mask, empty| all.in_place.place(profile, process, mask, empty));
    let probes = costs(profile, &all.in_place, &threads);
    let calibrated =
        |process| probes.iter().any(|p: &ProbeCost| p.process == process && p.calls == p.of_calls);
    let recorded = |process: usize| !profile.processes[process].id.is_of_plugins();
    let uncalibrated_probes = threads.iter().any(|t| recorded(t.process) && !calibrated(t.process));
    let process_losses: Vec<Vec<LossCount>> = profile
        .processes
        .iter()
        .zip(&found)
        .map(|(process, found)| merge_losses(process.losses.iter().chain(found)))
        .collect();
    let losses = merge_losses(profile.losses.iter().chain(process_losses.iter().flatten()));
    Summary {
        calls: all.table.all_calls,
        dispatches: (!all.table.all_unplaced).then_some(all.table.all_dispatches),
        total_ticks: all.table.all_ticks,
        self_ticks: all.table.all_ticks.saturating_sub(all.table.all_not_own),
        overlapping: nested.overlapping,
        apart: all.table.all_apart,
        brackets: all.table.all_brackets(&brackets),
        rows: all.table.finish(workers, &brackets),
        threads,
        probes,
        uncalibrated_probes,
        process_losses,
        losses,
    }
}

/// For each thread with clusters, how long it was in some call of them.
fn busy(clusters: &[Vec<PageSpan>], busy: &[u64]) -> HashMap<(usize, usize), u64> {
    let mut threads = HashMap::new();
    for (cluster, ticks) in clusters.iter().zip(busy) {
        let Some(key) = cluster.first().map(|page| page.key) else { continue };
        let thread: &mut u64 = threads.entry((key.process, key.thread)).or_default();
        *thread = thread.saturating_add(*ticks);
    }
    threads
}

struct Worker<'a> {
    table: Table<'a>,
    times: PageTimes,
    in_place: InPlace,
}
