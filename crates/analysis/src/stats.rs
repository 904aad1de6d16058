//! Describes the calls of each op: computes the distribution of each variable (such as the
//! duration), and the correlation of each pair of variables.
//!
//! ```text
//!  Profile ─ walk ──► collect: values per op and thread ─► Samples: one column per variable
//!                                                             │ all threads, then each thread or rank:
//!                                                             ├─► ranks: sorted, ranked, cut
//!                                                             │     into buckets ─► Variable
//!                                                             └─► pairs ──────────► Pair
//! ```
//!
//! The statistics describe the outermost calls of each op: those that are not inside of another
//! call of the same op. The time that the recorder added to a call is subtracted from the call's
//! duration, unless [`Stats::raw`] is set. A counter can only be corrected in a sum or mean over
//! many calls, so the counter values of single calls are as they were read. [`Scope::brackets`] has
//! the amount to subtract from the mean of a counter.
//!
//! The variables of a call are its duration in ticks, each counter of the run, and each requested
//! metric. A counter has a value if it was read and counted during the whole call. If the run asked
//! for estimates, a counter that counted during a part of the call has a value, too. A metric has
//! no value if one of its counters has none, or if the metric's formula has no defined result. The
//! statistics of a variable cover the calls in which it has a value; those of a pair cover the
//! calls in which both variables have one. In a run with a budget (a limit for the cost of
//! recording), only some calls are timed, and only timed calls are described, each with a weight
//! (see `weighted`).
//!
//! **Buckets.** The `n` values of a variable are sorted. Bucket `b` of `B` covers the sorted
//! positions from `n·b/B` to before `n·(b+1)/B`, in integer arithmetic; its mean is the mean of the
//! values there. With fewer values than buckets, some buckets are empty: they have no mean and no
//! calls.
//!
//! **Ties.** Equal values can span several buckets. In the table of a pair, all calls with such a
//! value are counted in the lowest bucket that contains it. So calls with equal values are not
//! separated, and every value is counted in a bucket whose mean includes it.
//!
//! **Numbers.** Without weights, sums of values are exact, and ranks and their products are
//! integers; with weights, they are `f64`. Squares and products of differences from the mean are
//! added up in `f64`. The smallest value is subtracted from all values first, so that large values
//! with small differences keep their precision. The values of a metric are floats; they are mapped
//! to a grid of 2⁵² steps between the smallest and the largest value of the op, which keeps their
//! order and changes no value by more than half a step. If all values of a variable are equal, the
//! variable has no correlation with any other one: `None`, not NaN.

mod blocks;
mod choice;
mod collect;
mod estimated;
mod grid;
mod noise;
mod pairs;
mod ranks;
mod samples;
mod subtracted;
mod weighted;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use model::Loss;
use model::metric::Bound;
use profile::{LossCount, Profile, merge_losses};

use crate::amounts::{Brackets, PARTS, ticks};
use crate::checks;
use crate::empty::Bracket;
use crate::metrics::PartOfTime;
use crate::probe::{InPlace, ProbeCost, costs};
use crate::sampled::{Estimated, SCALE, Sample, SampledRow};
use crate::summary::contradictions;
use crate::table::{Key, Places, Selection};
use choice::Choice;
use collect::{Batch, Part, Recorder, Who, collect, keeps_recorded};
pub use samples::{Column, Samples};
pub use subtracted::Subtracted;
use work::{Workspace, parallel};

/// The largest number of buckets, so that the index of a bucket fits into one byte.
pub const MOST_BUCKETS: usize = 256;
/// The largest number of calls of one op that can be described: twice the rank of a call is stored
/// in 32 bits.
pub const MOST_CALLS: u64 = (1 << 31) - 1;
/// A scope (the calls of an op, or its calls on one thread or rank) with fewer calls than this is
/// described by one worker. Without weights, the variables of a larger scope are divided among
/// several workers.
const SMALL: usize = 1 << 16;
/// The default of [`Options::memory`].
const MOST_MEMORY: usize = 640 << 20;

/// Options of [`stats`](stats()).
#[derive(Clone, Debug)]
pub struct Options {
    /// If set, only calls of ops whose name matches this pattern (with `*` and `?`) are described.
    pub op: Option<String>,
    /// If set, only threads with this id in the operating system, or with a name that matches this
    /// pattern (with `*` and `?`), are described.
    pub thread: Option<String>,
    /// Whether to describe the calls of each rank of a distributed job, instead of each thread.
    pub by_rank: bool,
    /// Calls that begin within this time, in ns, after the start of their thread's first recorded
    /// call are left out.
    pub skip_ns: u64,
    /// Number of buckets, 1 to [`MOST_BUCKETS`]; other values are clamped.
    pub buckets: usize,
    /// Whether to compute [`Pair::table`].
    pub tables: bool,
    /// Metrics to describe besides the counters. They are bound: each name in their formulas is
    /// resolved to a counter of the profile.
    pub metrics: Vec<Bound>,
    /// Number of worker threads; 0 for as many as the machine has processors.
    pub workers: usize,
    /// Whether durations are described as recorded, without subtracting the recorder's time.
    pub raw: bool,
    /// The memory for collected values, in bytes; `None` for 640 MiB. If the values need more, the
    /// ops are described in several batches, and all calls of the profile are read once for each
    /// batch. An op that needs more by itself is alone in its batch. The results do not depend on
    /// this limit.
    pub memory: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            op: None,
            thread: None,
            by_rank: false,
            skip_ns: 0,
            buckets: 16,
            tables: true,
            metrics: Vec::new(),
            workers: 0,
            raw: false,
            memory: None,
        }
    }
}

/// The statistics of the calls of each op.
#[derive(Clone, Debug)]
pub struct Stats {
    pub buckets: usize,
    /// The described metrics, in the order of [`Scope::variables`].
    pub metrics: Vec<Bound>,
    /// The ops with described calls, the largest sum of durations first.
    pub ops: Vec<OpStats>,
    /// Whether durations are as recorded: with [`Options::raw`], or because corrected durations
    /// would contradict each other. In the second case, `losses` contains a [`Loss::Inconsistent`].
    pub raw: bool,
    /// The cost of recording in each process in which this cost was measured.
    pub probes: Vec<ProbeCost>,
    /// All losses of the profile.
    pub losses: Vec<LossCount>,
}

/// The statistics of one op.
#[derive(Clone, Debug)]
pub struct OpStats {
    /// The op: [`Key::Op`] or [`Key::Unknown`].
    pub key: Key,
    /// Sum of the durations of the described calls, in ticks. In a run with a budget, each duration
    /// is multiplied by the weight of its call (the number of calls that it stands for).
    pub total_ticks: f64,
    /// In a run with a budget, the estimated sum of the durations of all calls, if it is known.
    pub estimated: Option<Estimated>,
    /// The calls of all threads together.
    pub all: Scope,
    /// The calls of each thread, sorted by process index and thread index. Empty with
    /// [`Options::by_rank`].
    pub threads: Vec<ThreadStats>,
    /// The calls of each rank, sorted. Empty without [`Options::by_rank`].
    pub ranks: Vec<(u32, Scope)>,
}

impl OpStats {
    /// Whether the op's calls are described by rank, even if no call has a rank.
    pub fn is_by_rank(&self) -> bool {
        // An op that is described by thread has at least one thread.
        self.threads.is_empty()
    }
}

/// An op's calls in one thread.
#[derive(Clone, Debug)]
pub struct ThreadStats {
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// The calls of this thread.
    pub scope: Scope,
}

/// The statistics of a set of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// Number of described calls: those that are not inside of another call of the op.
    pub calls: u64,
    /// Number of calls of the op inside of another call of the op. The statistics do not include
    /// them.
    pub inner: u64,
    /// For each CPU, as `node << 12 | cpu` with its NUMA node: the number of calls that ended
    /// there.
    pub locations: BTreeMap<u32, u64>,
    /// The duration in ticks, then each counter of the run, then each metric.
    pub variables: Vec<Variable>,
    /// All pairs of variables: each variable with every earlier one.
    pub pairs: Vec<Pair>,
    /// In a run with a budget, the effective sample size: the number of calls of equal weight that
    /// would be as informative.
    pub effective: Option<f64>,
    /// In a run with a budget: the estimates for all calls, of which `calls` were timed. `None` if
    /// they are not known, for example because of [`Options::skip_ns`].
    pub sampled: Option<Box<SampledRow>>,
    /// For each variable except metrics: the mean and the standard deviation of the amount that the
    /// recorder added to a value. This amount is already subtracted from durations (the first
    /// variable), unless [`Stats::raw`] is set, but not from counters. `None` if the brackets (the
    /// readings before and after a call) were not calibrated.
    pub brackets: Vec<Option<Bracket>>,
}

impl Scope {
    /// In a run with a budget, returns the number of all calls, timed or not, if it is known.
    pub fn counted(&self) -> Option<u64> {
        self.sampled.as_ref()?.calls
    }

    /// In a run with a budget, estimates the mean of a variable over all calls. `None` without a
    /// budget, for metrics, and if there is no estimate. Durations are in ticks.
    pub fn estimated_mean(&self, variable: usize) -> Option<Estimated> {
        let sampled = self.sampled.as_deref()?;
        match variable.checked_sub(1) {
            None => sampled.mean(),
            Some(counter) => Some(sampled.counters.get(counter).copied()??.mean()),
        }
    }

    /// Whether much of the scatter of a variable's values comes from the recorder: the standard
    /// deviation of what the recorder added is at least half of the values' standard deviation. So
    /// the recorder explains at least a quarter of the values' variance.
    pub fn is_noise(&self, variable: usize) -> bool {
        let bracket = self.brackets.get(variable).copied().flatten();
        let deviation = self.variables.get(variable).and_then(|v| v.standard_deviation);
        bracket.zip(deviation).is_some_and(|(bracket, deviation)| {
            bracket.deviation > 0.0 && 2.0 * bracket.deviation >= deviation
        })
    }
}

/// The statistics of one variable, over the calls in which it has a value. In a run with a budget,
/// only `calls`, `min` and `max` are known if too few calls were chosen at random.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variable {
    pub calls: u64,
    /// The mean of the values. In a run with a budget, it is the estimated mean over all calls, if
    /// there is one. `None` without calls.
    pub mean: Option<f64>,
    /// The standard deviation of a sample (numpy's `ddof=1`). `None` with fewer than two calls.
    pub standard_deviation: Option<f64>,
    /// Smallest value.
    pub min: Option<Number>,
    /// Largest value.
    pub max: Option<Number>,
    /// The mean of each bucket; `None` for an empty one.
    pub bucket_means: Vec<Option<f64>>,
    /// The same as [`Scope::effective`], for the calls with a value.
    pub effective: Option<f64>,
}

/// A value of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A duration in ticks, or the value of a counter.
    Whole(u64),
    /// The value of a metric, in its unit, or a duration that is not a whole number of ticks.
    Real(f64),
}

impl Number {
    /// Converts to a float; a value with more than 53 bits is rounded.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Real(x) => x,
        }
    }
}

/// The correlation of two variables, over the calls in which both have a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pair {
    /// Index of the earlier variable: [`Table::probabilities`] returns the probabilities of this
    /// variable's buckets.
    pub of: usize,
    /// Index of the later variable. Each probability is conditional: it applies to the calls in one
    /// bucket of this variable.
    pub given: usize,
    /// Number of calls in which both variables have a value.
    pub calls: u64,
    /// Pearson's correlation; `None` if a variable is constant in these calls.
    pub pearson: Option<f64>,
    /// Spearman's correlation. Equal values get the mean of the ranks that they span.
    pub spearman: Option<f64>,
    /// The numbers of calls by the buckets of both variables, if requested.
    pub table: Option<Table>,
    /// The same as [`Scope::effective`], for the calls in which both variables have a value.
    pub effective: Option<f64>,
}

/// The number of calls in each combination of the buckets of two variables. The buckets are those
/// of [`Variable::bucket_means`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The cells with at least one call, sorted by `given`, then by `of`.
    pub cells: Vec<Cell>,
}

/// A combination of a bucket of one variable with a bucket of the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The column: a bucket of the variable [`Pair::given`].
    pub given: u8,
    /// The row: a bucket of the variable [`Pair::of`].
    pub of: u8,
    pub calls: u32,
    /// Sum of the calls' weights; without a budget, each weight is 1.
    pub weight: f64,
}

impl Table {
    /// Returns the probability of each bucket of the variable [`Pair::of`] (rows), given each
    /// bucket of the variable [`Pair::given`] (columns): `buckets` × `buckets`, row by row. Each
    /// column sums to one; in a column without calls, all probabilities are `None`.
    pub fn probabilities(&self, buckets: usize) -> Vec<Vec<Option<f64>>> {
        let mut rows = vec![vec![None; buckets]; buckets];
        for column in self.cells.chunk_by(|a, b| a.given == b.given) {
            let all: f64 = column.iter().map(|cell| cell.weight).sum();
            let given = usize::from(column[0].given);
            if given >= buckets {
                continue;
            }
            rows.iter_mut().for_each(|row| row[given] = Some(0.0));
            for cell in column {
                if let Some(row) = rows.get_mut(usize::from(cell.of)) {
                    row[given] = Some(cell.weight / all);
                }
            }
        }
        rows
    }
}

/// Error: an op has more than [`MOST_CALLS`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCalls {
    pub key: Key,
    pub calls: u64,
}

/// Describes the calls of `profile`. All calls are read once for each batch of ops (see
/// [`Options::memory`]). They are read at least once more in a run with a budget, and again if
/// corrected durations may contradict each other.
///
/// For each call of a batch, every variable except metrics takes 1 to 8 bytes of memory, depending
/// on the size of the values, and 4 more if its value is missing. While an op is being described,
/// each of its calls takes about another 9 bytes for every variable (13 for a metric, or if a value
/// of the variable is 2³² or more), and 8 or 12 for every worker.
///
/// # Errors
/// Fails if an op has more than [`MOST_CALLS`] calls.
pub fn stats(profile: &Profile, options: &Options) -> Result<Stats, TooManyCalls> {
    let (stats, exhausted) = once(profile, options)?;
    if options.raw || !checks::may_contradict(exhausted) {
        return Ok(stats);
    }
    // All calls of the profile are checked for contradictions, also those that `options` leave out.
    let contradictions = contradictions(profile, options.workers).len() as u64;
    if contradictions == 0 {
        return Ok(stats);
    }
    let (mut stats, _) = once(profile, &Options { raw: true, ..options.clone() })?;
    let loss = LossCount::new(Loss::Inconsistent, contradictions);
    stats.losses = merge_losses(stats.losses.iter().chain([&loss]));
    Ok(stats)
}

/// Returns the statistics, and the number of calls whose self time is 0 after the recorder's time
/// was subtracted. This number includes calls that `options` leave out.
fn once(profile: &Profile, options: &Options) -> Result<(Stats, u64), TooManyCalls> {
    let workers = match options.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let buckets = options.buckets.clamp(1, MOST_BUCKETS);
    let mut brackets = Brackets::new(profile, options.raw);
    let choice = Choice::new(profile, options);
    let places = Places::new(profile, &Selection::default());
    let sample = profile.is_sampled().then(|| Sample::read(profile, &places, workers, &brackets));
    let weights = sample.as_ref().map(Sample::weights);
    let read = |brackets: &Brackets, only: Option<BTreeSet<Key>>| {
        let batch = Batch::new(only, options.memory.unwrap_or(MOST_MEMORY));
        collect(profile, options, &choice, weights.as_ref(), brackets, workers, &batch)
    };
    let mut found = read(&brackets, None);
    let exhausted = found.exhausted;
    let mut losses =
        merge_losses(profile.losses.iter().chain(profile.processes.iter().flat_map(|p| &p.losses)));
    losses = merge_losses(losses.iter().chain(found.losses.iter().flatten()));
    let in_place = std::mem::take(&mut found.in_place);
    brackets.place(profile, |process, mask, empty| in_place.place(profile, process, mask, empty));
    let of_time = PartOfTime::of_each(profile, &options.metrics, &in_place);
    let mut large = Workspace::new(workers);
    let mut small: Vec<Workspace> = (0..workers).map(|_| Workspace::new(1)).collect();
    let mut ops = Vec::new();
    let kind_of = |counters: usize| match counters {
        0 => weighted::Kind::Timed,
        _ => weighted::Kind::Counted,
    };
    let counters = std::iter::repeat_n(weighted::Kind::Counted, profile.groups.counters());
    let of_metrics = options.metrics.iter().map(|metric| kind_of(metric.counters.len()));
    let kinds: Vec<weighted::Kind> =
        std::iter::once(weighted::Kind::Timed).chain(counters).chain(of_metrics).collect();
    let who = |process: usize, thread: usize| match options.by_rank {
        true => Who::Rank(rank_of(profile, process)),
        false => Who::Thread(process, thread),
    };
    while let Some(op) = found.ops.pop() {
        if op.calls() > MOST_CALLS {
            return Err(TooManyCalls { key: op.key, calls: op.calls() });
        }
        let scale = if profile.is_sampled() { SCALE as f64 } else { 1.0 };
        let (key, total, total_ticks) = (op.key, op.total, ticks(op.total) / scale);
        let (mut samples, parts) = op.flatten(who);
        let recorded = samples.take_recorded(keeps_recorded(options));
        let weights = samples.take_weights(profile);
        let grids = samples.add_metrics(profile, &options.metrics, &of_time, recorded.as_ref());
        let describe = |space: &mut Workspace, from: usize, to: usize| {
            let slice = samples.slice(from, to);
            let mut scope = match &weights {
                None => space.describe(&slice, buckets, options.tables),
                Some(weights) => {
                    let weights = weights.slice(from, to);
                    let [timed, counted] = [weights.columns[0], weights.columns[1]];
                    let weights = weighted::Weights::new(timed, counted, to - from);
                    weighted::describe(&slice, &weights, &kinds, buckets, options.tables)
                }
            };
            let metrics = scope.variables.iter_mut().rev().zip(grids.iter().rev());
            metrics.for_each(|(variable, grid)| grid.undo(variable));
            scope.variables[..1].iter_mut().for_each(in_ticks);
            scope
        };
        let mut scopes = vec![Scope::default(); parts.len()];
        let mut all = Scope::default();
        let mut jobs = Vec::new();
        // If one thread or rank made all calls, its statistics equal those of `all`, so they are
        // computed only once. If there are several parts, the calls without a rank are described
        // only as a part of `all`.
        let several = parts.len() > 1;
        let is_shown = |part: &Part| !several || part.who != Who::Rank(None);
        if several {
            jobs.push((0, samples.len(), &mut all));
        }
        let shown = parts.iter().zip(&mut scopes).filter(|(part, _)| is_shown(part));
        jobs.extend(shown.map(|(part, scope)| (part.from, part.to, scope)));
        let (big, little): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(from, to, _)| to - from >= SMALL);
        for (from, to, scope) in big {
            *scope = describe(&mut large, from, to);
        }
        parallel(&mut small, little, |space, (from, to, scope)| {
            *scope = describe(space, from, to);
        });
        let (mut of_all, mut threads, mut ranks) = (Recorder::default(), Vec::new(), Vec::new());
        for (mut scope, part) in scopes.into_iter().zip(parts) {
            noise::note(profile, &brackets, &mut scope, &part.recorder);
            of_all.add(part.recorder);
            for (location, calls) in &part.locations {
                *all.locations.entry(*location).or_default() += calls;
            }
            scope.locations = part.locations;
            if !several {
                all = scope.clone();
            }
            match part.who {
                Who::Thread(process, thread) => {
                    threads.push(ThreadStats { process, thread, scope })
                }
                Who::Rank(Some(rank)) => ranks.push((rank, scope)),
                Who::Rank(None) => {}
            }
        }
        if several {
            noise::note(profile, &brackets, &mut all, &of_all);
        }
        ops.push((total, OpStats { key, total_ticks, estimated: None, all, threads, ranks }));
        if found.ops.is_empty() && !found.left_out.is_empty() {
            found = read(&brackets, Some(found.left_out));
        }
    }
    ops.sort_by_key(|(total, op)| (std::cmp::Reverse(*total), op.key));
    let mut ops: Vec<OpStats> = ops.into_iter().map(|(_, op)| op).collect();
    // With `skip_ns`, there are no estimates, because it is not known how many untimed calls are
    // left out.
    if let Some(sample) = sample.filter(|_| options.skip_ns == 0) {
        estimated::add(profile, &choice, &sample, options.by_rank, &mut ops);
    }
    let metrics = options.metrics.clone();
    let mut probes = costs(profile, &InPlace::default(), &[]);
    probes.retain(|probe| probe.calls > 0);
    Ok((Stats { buckets, metrics, ops, raw: options.raw, probes, losses }, exhausted))
}

fn rank_of(profile: &Profile, process: usize) -> Option<u32> {
    profile.processes.get(process)?.job.map(|job| job.rank)
}

/// Converts the statistics of a duration from units of 1/`PARTS` tick to ticks.
fn in_ticks(duration: &mut Variable) {
    let ticks = |parts: f64| parts / PARTS as f64;
    let number = |number: Option<Number>| match number? {
        Number::Whole(parts) if parts.is_multiple_of(PARTS) => Some(Number::Whole(parts / PARTS)),
        number => Some(Number::Real(ticks(number.to_f64()))),
    };
    duration.mean = duration.mean.map(ticks);
    duration.standard_deviation = duration.standard_deviation.map(ticks);
    (duration.min, duration.max) = (number(duration.min), number(duration.max));
    duration.bucket_means.iter_mut().for_each(|mean| *mean = mean.map(ticks));
}

/// Describes calls whose values are already stored in columns, for data that does not come from a
/// profile. [`Scope::locations`] stays empty. Calls after the first [`MOST_CALLS`] are ignored.
pub fn describe(samples: &Samples, buckets: usize, tables: bool) -> Scope {
    let kept = samples.len().min(MOST_CALLS as usize);
    Workspace::new(1).describe(&samples.slice(0, kept), buckets.clamp(1, MOST_BUCKETS), tables)
}
