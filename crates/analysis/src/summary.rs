//! Adds up the calls of a profile for a report: the rows of its table, the totals, the times of
//! threads, and the cost of recording.

use std::collections::HashMap;

use model::Loss;
use model::metric::Bound;
use profile::{LossCount, Profile, merge_losses};

use crate::amounts::{Brackets, ticks};
use crate::checks::{self, Violation};
use crate::clusters::PageSpan;
use crate::estimate::Estimate;
use crate::gaps::{Gaps, Wanted};
use crate::probe::{ProbeCost, costs};
use crate::sampled::{self, Found, Sample, SampledRow, SampledRun};
use crate::silent::{SilentThread, silent};
use crate::table::{Apart, By, Counts, Key, Places, Row, Selection, Table};
use crate::threads::ThreadTime;
use crate::walk::{Walked, walk_several};

/// The options of a summary.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub by: By,
    /// If set, only calls of ops whose name matches this pattern (with `*` and `?`) are shown.
    pub filter: Option<String>,
    /// If set, only activities (calls from an imported trace or a plugin) whose kind matches this
    /// pattern are shown. A kind matches by its name in the trace (`cuda_runtime`) or by its
    /// generic name (`runtime`).
    pub kind: Option<String>,
    /// If set, only activities on a device whose number or name matches this pattern are shown.
    pub device: Option<String>,
    /// If set, only activities on a stream whose number or name matches this pattern are shown.
    pub stream: Option<String>,
    /// Metrics to compute for each row, bound to the counters of the profile.
    pub metrics: Vec<Bound>,
    /// Number of worker threads; 0 for as many as there are processors that this process may use.
    pub workers: usize,
    /// Whether to show values as recorded, without subtracting the recorder's time.
    pub raw: bool,
    /// Number of nested calls that a worker sorts at a time; `None` for 16,384 at first, and up to
    /// 262,144 if needed. The results do not depend on this number.
    pub round: Option<usize>,
    /// Whether to find the gaps between the calls of threads, including calls that the filters
    /// leave out.
    pub gaps: bool,
    /// Whether to find [`Gaps::levels`], too, if `gaps` is set.
    pub levels: bool,
}

/// The sums over the calls of a profile.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The rows of the table, in no particular order.
    pub rows: Vec<Row>,
    /// Number of all calls on threads; in a run with a budget, also of those that were only
    /// counted. This and the following totals include calls that the filters leave out.
    pub calls: u64,
    /// Number of all dispatches. `None` if a call ran a workgroup whose id is not known, or if some
    /// calls were only counted.
    pub dispatches: Option<u64>,
    /// Time in recorded calls, in ticks: the sum of the self times of all calls. In a run with a
    /// budget, this is an estimate; `None` if it is not known.
    pub total: Option<Estimate>,
    /// The time of brackets (the recorder's work before and after calls) that was subtracted from
    /// `total`. `None` if the brackets were not calibrated for all calls.
    pub taken: Option<Estimate>,
    /// Whether some call is inside of another one.
    pub nested: bool,
    /// Whether values are as recorded, without subtracting the recorder's time.
    pub raw: bool,
    /// At least this many calls began inside of another call and ended after it; see
    /// [`crate::innermost::Innermost::overlapping`].
    pub overlapping: u64,
    /// Numbers of calls that belong to no thread. These calls have rows only in tables by op (also
    /// per process) and by kind.
    pub apart: Apart,
    /// The times of each thread that has calls. Calls that the filters leave out count, too.
    pub threads: Vec<ThreadTime>,
    /// The gaps between the threads' calls, if requested. `None` for several passes (repetitions of
    /// the program with other counters), and in a run with a budget, because calls that were only
    /// counted would be in the gaps.
    pub gaps: Option<Gaps>,
    /// Threads without recorded calls, in processes that have calls, as far as their processor time
    /// is known.
    pub silent: Vec<SilentThread>,
    /// The cost of recording in each process for which it is known.
    pub probes: Vec<ProbeCost>,
    /// Whether some calls were recorded with a set of counters that was not calibrated in their
    /// process.
    pub uncalibrated_probes: bool,
    /// For each process, its losses: of the process itself, of its files, and inside of its pages.
    pub process_losses: Vec<Vec<LossCount>>,
    /// The contradictions between the values, each counted as a loss. If subtracting the recorder's
    /// time may have caused one of them, all values are as recorded.
    pub violations: Vec<Violation>,
    /// All losses, including those of the run as a whole.
    pub losses: Vec<LossCount>,
    /// In a run with a budget (`run --budget`, which times only some of the calls): the estimates
    /// for all calls. The sums above are then estimates.
    pub sampled: Option<SampledRun>,
}

impl Summary {
    /// Counts the processes, threads and devices that have calls. Calls that the filters leave out
    /// count, too.
    pub fn places(&self, profile: &Profile) -> Counts {
        let timed = self.threads.iter().map(|time| (time.process, time.thread));
        // Begin and end of calls that were only counted are not known, so `threads` may lack
        // threads that have only such calls.
        let counted = self.sampled.iter().flat_map(|run| &run.threads).map(|(at, _)| *at);
        Counts::of(profile, timed.chain(counted))
    }
}

/// Reads all pages (blocks of one thread's recorded calls) of `profile`, and adds up the calls.
/// Some pages are read twice, above all those with nested calls. In a run with a budget, and if
/// corrected values may contradict each other, the calls are read more often. If corrected values
/// do contradict each other, the summary has the recorded values. This choice depends on the ops of
/// the whole profile and on the summary's own rows. So summaries with other rows or other filters
/// usually make the same choice.
pub fn summarize(profile: &Profile, options: &Options) -> Summary {
    summarize_each(profile, std::slice::from_ref(options)).remove(0)
}

/// Makes several summaries of one profile. Most pages are read once for all summaries together, and
/// pages with nested calls once more for each summary. The `raw`, `workers`, `round`, `gaps` and
/// `levels` of the first options apply to all summaries. In a run with a budget, each summary is
/// made by itself, with its own options.
pub fn summarize_each(profile: &Profile, each: &[Options]) -> Vec<Summary> {
    let summaries = match profile.is_sampled() {
        // In a run with a budget, estimates can be made for only one summary at a time.
        true => each.iter().flat_map(|one| once(profile, std::slice::from_ref(one))).collect(),
        false => once(profile, each),
    };
    let mut known = None;
    let checked = summaries.into_iter().zip(each).map(|((summary, exhausted), options)| {
        let given = [&options.filter, &options.kind, &options.device, &options.stream];
        let all_rows = given.iter().all(|filter| filter.is_none());
        let whole = all_rows && summary.apart == Apart::default();
        let total = summary.total.filter(|_| whole && summary.sampled.is_none());
        let mut violations = match checks::may_contradict(exhausted) && !options.raw {
            false => Vec::new(),
            true if options.by == By::Op && all_rows => checks::exhausted_ops(&summary.rows),
            true => known.get_or_insert_with(|| contradictions(profile, options.workers)).clone(),
        };
        violations.extend(checks::violations(&summary.rows, summary.overlapping == 0, total));
        let is_wrong = violations.iter().any(|one| one.what.is_of_correction());
        violations.extend(checks::of_run(&summary.threads, &summary.probes));
        if violations.is_empty() {
            return summary;
        }
        let mut recorded = match options.raw || !is_wrong {
            true => summary,
            false => one(profile, &Options { raw: true, ..options.clone() }).0,
        };
        let loss = LossCount::new(Loss::Inconsistent, violations.len() as u64);
        recorded.losses = merge_losses(recorded.losses.iter().chain([&loss]));
        recorded.violations = violations;
        recorded
    });
    checked.collect()
}

/// Finds the ops of the whole profile whose corrected values are contradictory.
pub(crate) fn contradictions(profile: &Profile, workers: usize) -> Vec<Violation> {
    let (all, _) = one(profile, &Options { workers, ..Options::default() });
    checks::exhausted_ops(&all.rows)
}

/// Whether views show this profile's values as recorded, because values without the recorder's time
/// would contradict each other. Reads all calls.
pub fn is_contradicted(profile: &Profile) -> bool {
    !contradictions(profile, 0).is_empty()
}

/// Returns the cost of recording in each process, as in [`Summary::probes`]. Reads all calls.
pub(crate) fn costs_of(profile: &Profile) -> Vec<ProbeCost> {
    one(profile, &Options::default()).0.probes
}

/// Returns the summary, and the number of calls whose self time is 0 after the recorder's time was
/// subtracted.
fn one(profile: &Profile, options: &Options) -> (Summary, u64) {
    once(profile, std::slice::from_ref(options)).remove(0)
}

fn places_of<'a>(profile: &Profile, options: &'a Options) -> Places<'a> {
    let selection = Selection {
        by: options.by,
        op: options.filter.as_deref(),
        kind: options.kind.as_deref(),
        device: options.device.as_deref(),
        stream: options.stream.as_deref(),
    };
    Places::new(profile, &selection)
}

/// Makes one summary for each element of `each`, and reads the calls for all of them together. The
/// first element's `raw`, `workers`, `round`, `gaps` and `levels` apply to all summaries. In a run
/// with a budget, `each` must have a single element.
fn once(profile: &Profile, each: &[Options]) -> Vec<(Summary, u64)> {
    let Some(options) = each.first() else { return Vec::new() };
    let workers = match options.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let places: Vec<Places<'_>> = each.iter().map(|options| places_of(profile, options)).collect();
    let mut brackets = Brackets::new(profile, options.raw);
    let sample = match profile.is_sampled() {
        true => places.first().map(|places| Sample::read(profile, places, workers, &brackets)),
        false => None,
    };
    let weights = sample.as_ref().map(Sample::weights);
    let tables = || -> Vec<Table<'_>> {
        let all = each.iter().zip(&places);
        all.map(|(of, places)| Table::new(profile, places, &of.metrics, weights.as_ref())).collect()
    };
    let wanted = if options.levels { Wanted::GapsAndLevels } else { Wanted::Gaps };
    let with_gaps =
        Some(wanted).filter(|_| options.gaps && sample.is_none() && profile.passes() < 2);
    let walked = walk_several(profile, workers, &brackets, options.round, with_gaps, tables);
    let Walked { parts, times, in_place, clusters, busy, overlapping, homes, gaps, losses: found } =
        walked;
    let mut all = tables();
    for part in parts {
        all.iter_mut().zip(part).for_each(|(sums, part)| sums.merge(part));
    }
    let busy = by_thread(&clusters, &busy);
    let mut threads = times.finish(profile, &homes, &clusters, &busy);
    // The times of a thread are the same in every table, so those of the first table are used.
    let of_threads = all.first().map(|sums| &sums.of_threads);
    for thread in &mut threads {
        let place = (thread.process, thread.thread);
        let Some((own, taken)) = of_threads.and_then(|of| of.get(&place)) else { continue };
        let ns = |parts: u128| profile.timeline.ns_per_tick() * ticks(parts);
        thread.dispatch_ns = ns(*own).min(thread.wall_ns);
        thread.recorder_ns = ns(*taken);
    }
    let mut estimates = sample.zip(places.first()).map(|(sample, places)| sample.rows(places));
    if let Some((_, run)) = &estimates {
        estimate_threads(profile, run, &mut threads);
    }
    brackets.place(profile, |process, mask, empty| in_place.place(profile, process, mask, empty));
    let probes = costs(profile, &in_place, &threads);
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
    let gaps = gaps.map(|gaps| gaps.finish(profile, &threads));
    let silent = silent(profile, &threads);
    let finished = all.into_iter().zip(each).map(|(sums, options)| {
        let (total, taken) = sums.all(&brackets);
        let exhausted = sums.all_exhausted;
        let mut summary = Summary {
            calls: sums.all_calls,
            dispatches: (!sums.all_unplaced).then_some(sums.all_dispatches),
            total: Some(total),
            taken,
            nested: sums.nested,
            raw: options.raw,
            overlapping,
            apart: sums.all_apart,
            rows: sums.finish(workers, &brackets),
            gaps: gaps.clone(),
            silent: silent.clone(),
            threads: threads.clone(),
            probes: probes.clone(),
            uncalibrated_probes,
            process_losses: process_losses.clone(),
            violations: Vec::new(),
            losses: losses.clone(),
            sampled: None,
        };
        if let Some((rows, run)) = estimates.take() {
            estimate(profile, rows, run, options, &mut summary);
        }
        (summary, exhausted)
    });
    finished.collect()
}

/// For threads with calls that were only counted, replaces the values computed from timed calls by
/// estimates for all calls. Times without an estimate are marked as unknown.
fn estimate_threads(profile: &Profile, run: &SampledRun, threads: &mut [ThreadTime]) {
    for thread in threads {
        let place = (thread.process, thread.thread);
        let Some((_, of_thread)) = run.threads.iter().find(|(at, _)| *at == place) else {
            continue;
        };
        thread.calls = of_thread.calls.unwrap_or(thread.calls);
        if thread.calls == of_thread.timed {
            continue;
        }
        thread.off_cpu = None;
        thread.off_cpu_in_calls_ns = None;
        thread.dispatch_known = of_thread.total.is_some();
        if let Some(total) = of_thread.total {
            // The estimated time in calls must not be longer than the thread's life.
            let ns = total.value * profile.timeline.ns_per_tick();
            thread.dispatch_ns = ns.min(thread.wall_ns);
        }
    }
}

/// In a run with a budget, replaces the sums over timed calls by estimates for all calls.
fn estimate(
    profile: &Profile,
    mut found: HashMap<Key, Found>,
    run: SampledRun,
    options: &Options,
    summary: &mut Summary,
) {
    let Options { metrics, raw, .. } = options;
    for row in &mut summary.rows {
        match found.remove(&row.key) {
            Some(of_row) => {
                if row.calls != of_row.row.calls.unwrap_or(0) {
                    [row.p10, row.p50, row.p99] =
                        of_row.quantiles.map(|ticks| ticks.unwrap_or(0.0));
                }
                row.threads.extend(of_row.threads);
                row.passes = of_row.passes;
                sampled::apply(row, of_row.row, metrics, *raw);
            }
            None => {
                let timed = row.calls;
                sampled::apply(row, SampledRow { timed, ..SampledRow::default() }, metrics, *raw);
            }
        }
    }
    for (key, of_row) in found {
        let counters = profile.groups.counters();
        let mut row = Row::of_counts(key, counters);
        row.threads.extend(of_row.threads);
        row.passes = of_row.passes;
        sampled::apply(&mut row, of_row.row, metrics, *raw);
        summary.rows.push(row);
    }
    let all = &run.all;
    let timed = all.timed.max(1) as f64;
    summary.calls = all.calls.unwrap_or(summary.calls);
    if all.calls != Some(all.timed) {
        summary.dispatches = None;
        summary.taken = summary.taken.map(|taken| taken.times(summary.calls as f64 / timed));
        summary.total = all.total.map(|total| sampled::widened(total, summary.taken));
    }
    summary.sampled = Some(run);
}

/// Returns, for each thread with clusters, the time in which any call of its clusters was running.
/// A cluster is a group of pages that overlap in time, or one page with nested calls.
fn by_thread(clusters: &[Vec<PageSpan>], busy: &[u64]) -> HashMap<(usize, usize), u64> {
    let mut threads = HashMap::new();
    for (cluster, ticks) in clusters.iter().zip(busy) {
        let Some(thread) = cluster.first().map(|page| page.thread) else { continue };
        let thread: &mut u64 = threads.entry(thread).or_default();
        *thread = thread.saturating_add(*ticks);
    }
    threads
}
