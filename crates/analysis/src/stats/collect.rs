//! Collects the chosen calls by op and thread while the pages are read.
//!
//! Worker threads receive pages (blocks of recorded calls) in no particular order. For each op and
//! recorded thread, a worker keeps the calls in the order in which it gets them. Calls of
//! consecutive pages form a *run*; the worker notes the position at which each run begins. The runs
//! of all workers, sorted by page, contain the thread's calls in the recorded order, whatever the
//! number of workers.
//!
//! If the calls take too much memory, workers leave out ops, one after the other, and free the
//! memory of these ops' calls. All pages are then read again for the ops that were left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use profile::batch::unknown_op;
use profile::{Columns, LossCount, Profile};

use super::Options;
use super::blocks::Blocks;
use super::choice::Choice;
use super::samples::{Column, Samples, Values};
use crate::amounts::{BracketCounts, Brackets, parts};
use crate::by_export::ByExport;
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::probe::InPlace;
use crate::sampled::Weights;
use crate::table::Key;
use crate::walk::{Adder, walk};

/// A worker adds up its used memory after this many pages.
const PAGES_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Found {
    pub key: Key,
    /// The sum of the durations, in units of 1/[`crate::amounts::PARTS`] tick. In a run with a
    /// budget, each duration is multiplied by its call's weight, which is stored as a multiple of
    /// 1/[`crate::sampled::SCALE`].
    pub total: u128,
    parts: Vec<((usize, usize), OfThread)>,
}

/// The thread or the rank whose calls are described together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// Process and thread index.
    Thread(usize, usize),
    /// The processes of one rank; `None` for those that belong to no rank.
    Rank(Option<u32>),
}

/// The calls of one thread or rank: those from `from` to `to - 1` among the calls of the op.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub who: Who,
    pub from: usize,
    pub to: usize,
    pub locations: BTreeMap<u32, u64>,
    pub recorder: Recorder,
}

/// What the recorder added to a set of calls, and the number of calls that the set lacks because
/// they are inside of others.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    /// Number of calls of the op that are inside of another call of the op. They are not described.
    pub inner: u64,
    /// The time that was subtracted from the durations, in units of 1/[`crate::amounts::PARTS`]
    /// tick.
    pub taken: u128,
    pub brackets: BracketCounts,
}

impl Recorder {
    pub fn add(&mut self, other: Self) {
        self.inner += other.inner;
        self.taken += other.taken;
        self.brackets.add(other.brackets);
    }
}

/// The calls of one op in one thread, as far as one worker has collected them.
#[derive(Debug)]
struct Segment {
    key: Key,
    process: usize,
    thread: usize,
    total: u128,
    recorder: Recorder,
    runs: Vec<Run>,
    columns: Vec<Store>,
    locations: Vec<(u32, u64)>,
    last_location: usize,
}

/// Calls of consecutive pages within a segment. A run ends where the segment's next run begins.
#[derive(Clone, Copy, Debug)]
struct Run {
    first_page: usize,
    last_page: usize,
    from: usize,
}

#[derive(Debug, Default)]
struct Store {
    values: Blocks,
    /// The indices of missing values; `values` contains 0 in their place.
    missing: Vec<u32>,
}

impl Store {
    fn push_missing(&mut self) {
        self.missing.push(self.values.len() as u32);
        self.values.push(0);
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.missing.capacity() * size_of::<u32>()
    }
}

impl Segment {
    fn calls(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    fn bytes(&self) -> usize {
        self.columns.iter().map(Store::bytes).sum()
    }

    /// Notes that the calls that are added from now on come from this page.
    fn begin(&mut self, page: usize, variables: usize) {
        if let Some(run) = self.runs.last_mut()
            && (run.last_page == page || run.last_page + 1 == page)
        {
            run.last_page = page;
            return;
        }
        self.columns.resize_with(variables, Store::default);
        self.runs.push(Run { first_page: page, last_page: page, from: self.calls() });
    }

    fn add_location(&mut self, location: u32) {
        if self.locations.get(self.last_location).is_none_or(|(known, _)| *known != location) {
            let known = self.locations.iter().position(|(known, _)| *known == location);
            self.last_location = known.unwrap_or_else(|| {
                self.locations.push((location, 0));
                self.locations.len() - 1
            });
        }
        self.locations[self.last_location].1 += 1;
    }
}

#[derive(Debug, Default)]
struct OfThread {
    total: u128,
    recorder: Recorder,
    segments: Vec<Segment>,
}

impl OfThread {
    fn add(&mut self, mut segment: Segment) {
        self.total = self.total.saturating_add(segment.total);
        self.recorder.add(std::mem::take(&mut segment.recorder));
        self.segments.push(segment);
    }

    fn calls(&self) -> usize {
        self.segments.iter().map(Segment::calls).sum()
    }

    fn locations(&self) -> BTreeMap<u32, u64> {
        let mut all = BTreeMap::new();
        for (location, calls) in self.segments.iter().flat_map(|segment| &segment.locations) {
            *all.entry(*location).or_default() += calls;
        }
        all
    }

    /// Returns the runs of all segments in the recorded order. Each element is the index of the
    /// run's segment, and the positions `from` and `to` of the run's calls in this segment.
    fn pieces(&self) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            let ends = segment.runs.iter().skip(1).map(|run| run.from).chain([segment.calls()]);
            let of_run = |(run, end): (&Run, usize)| (run.first_page, (number, run.from, end));
            all.extend(segment.runs.iter().zip(ends).map(of_run));
        }
        all.sort_by_key(|(page, _)| *page);
        all.into_iter().map(|(_, piece)| piece).collect()
    }
}

impl Found {
    pub fn calls(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.calls() as u64).sum()
    }

    /// Joins the calls of all threads. Threads for which `who` returns the same value form one
    /// part. The parts are sorted.
    pub fn flatten(mut self, who: impl Fn(usize, usize) -> Who) -> (Samples, Vec<Part>) {
        self.parts.sort_by_key(|((process, thread), _)| who(*process, *thread));
        let (mut parts, mut pieces) = (Vec::<Part>::new(), Vec::new());
        let (mut at, mut variables) = (0, 0);
        for ((process, thread), of) in &self.parts {
            let to = at + of.calls();
            let who = who(*process, *thread);
            if parts.last().is_none_or(|part| part.who != who) {
                let (locations, recorder) = Default::default();
                parts.push(Part { who, from: at, to, locations, recorder });
            }
            if let Some(part) = parts.last_mut() {
                part.to = to;
                part.recorder.add(of.recorder.clone());
                for (location, calls) in of.locations() {
                    *part.locations.entry(location).or_default() += calls;
                }
            }
            let of_segment = |segment: &Segment| segment.columns.len();
            variables = of.segments.iter().map(of_segment).max().unwrap_or(0).max(variables);
            pieces.push(of.pieces());
            at = to;
        }
        let mut parts_of: Vec<Vec<Vec<Store>>> = self
            .parts
            .into_iter()
            .map(|(_, of)| of.segments.into_iter().map(|segment| segment.columns).collect())
            .collect();
        let columns = (0..variables).map(|variable| {
            // As soon as a variable has been copied, its memory is freed.
            let of_segment = |columns: &mut Vec<Store>| {
                columns.get_mut(variable).map(std::mem::take).unwrap_or_default()
            };
            let stores = parts_of.iter_mut().map(|part| part.iter_mut().map(of_segment).collect());
            join(&stores.collect::<Vec<Vec<Store>>>(), &pieces, at)
        });
        (Samples::from_columns(columns.collect(), at), parts)
    }
}

/// Joins one variable's values from the stores of all threads and their segments. `pieces`
/// contains, for each thread, the result of [`OfThread::pieces`].
fn join(stores: &[Vec<Store>], pieces: &[Vec<(usize, usize, usize)>], calls: usize) -> Column {
    let narrow = stores.iter().flatten().all(|store| store.values.is_narrow());
    let mut values = Values::with_capacity(narrow, calls);
    let mut missing: Option<Vec<bool>> = None;
    for (stores, pieces) in stores.iter().zip(pieces) {
        for (segment, from, to) in pieces {
            let store = &stores[*segment];
            let begin = values.len();
            match &mut values {
                // In a narrow column, no value has more than 32 bits.
                Values::Narrow(all) => store.values.read(*from, *to, |v| all.push(v as u32)),
                Values::Wide(all) => store.values.read(*from, *to, |v| all.push(v)),
            }
            let first = store.missing.partition_point(|at| (*at as usize) < *from);
            for at in store.missing[first..].iter().take_while(|at| (**at as usize) < *to) {
                let missing = missing.get_or_insert_with(|| vec![false; calls]);
                missing[begin + *at as usize - from] = true;
            }
        }
    }
    Column { values, missing }
}

/// The ops that are collected in one pass over all pages, and the memory that their calls take.
#[derive(Debug)]
pub(super) struct Batch {
    /// The ops to collect; `None` to collect all ops.
    only: Option<BTreeSet<Key>>,
    most_bytes: usize,
    used: AtomicUsize,
    /// Number of ops that workers have left out so far.
    changes: AtomicUsize,
    left_out: Mutex<BTreeSet<Key>>,
}

impl Batch {
    pub fn new(only: Option<BTreeSet<Key>>, most_bytes: usize) -> Self {
        let (used, changes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { only, most_bytes, used, changes, left_out: Mutex::default() }
    }

    fn is_wanted(&self, key: &Key) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(key))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Key>> {
        self.left_out.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[derive(Debug)]
pub(super) struct Collected {
    /// The chosen calls of each op of the batch, except for those that were left out.
    pub ops: Vec<Found>,
    /// The ops that were left out, which form the next batch. If `ops` is empty, no op was left
    /// out, because the op with the smallest key never is.
    pub left_out: BTreeSet<Key>,
    /// Number of calls, chosen or not, whose self time is 0 after the recorder's time was
    /// subtracted.
    pub exhausted: u64,
    pub in_place: InPlace,
    /// For each process, the losses (of records) that were found while its pages were read.
    pub losses: Vec<Vec<LossCount>>,
}

pub(super) fn collect(
    profile: &Profile,
    options: &Options,
    choice: &Choice<'_>,
    weights: Option<&Weights>,
    brackets: &Brackets,
    workers: usize,
    batch: &Batch,
) -> Collected {
    let recorded = keeps_recorded(options);
    let make = || Worker::new(profile, choice, weights, recorded, batch);
    let walked = walk(profile, workers, brackets, None, make);
    let exhausted = walked.parts.iter().map(|worker| worker.exhausted).sum();
    let left_out = batch.lock().clone();
    let mut ops: BTreeMap<Key, BTreeMap<(usize, usize), OfThread>> = BTreeMap::new();
    for segment in walked.parts.into_iter().flat_map(|worker| worker.segments) {
        if !left_out.contains(&segment.key) {
            let of = ops.entry(segment.key).or_default();
            of.entry((segment.process, segment.thread)).or_default().add(segment);
        }
    }
    let found = ops.into_iter().map(|(key, parts)| {
        let total = parts.values().map(|part| part.total).fold(0, u128::saturating_add);
        Found { key, total, parts: parts.into_iter().collect() }
    });
    let (in_place, losses) = (walked.in_place, walked.losses);
    Collected { ops: found.collect(), left_out, exhausted, in_place, losses }
}

/// Whether the last column contains the durations as they were recorded. A metric that uses the
/// duration is computed from this column. Its counters cannot be corrected call by call, so its
/// duration must not be corrected either.
pub(super) fn keeps_recorded(options: &Options) -> bool {
    options.metrics.iter().any(|metric| metric.uses_duration())
}

struct Worker<'a> {
    profile: &'a Profile,
    choice: &'a Choice<'a>,
    /// The number of calls that each timed call represents, in a run with a budget.
    weights: Option<&'a Weights>,
    recorded: bool,
    batch: &'a Batch,
    /// The ops in [`Batch::left_out`] when this worker last looked there. The field `changes` is
    /// the value of [`Batch::changes`] at that time.
    left_out: BTreeSet<Key>,
    changes: usize,
    /// Number of pages that the worker has read since it last added up its memory.
    pages: usize,
    /// The memory of this worker in bytes when it was last added up.
    bytes: usize,
    exhausted: u64,
    segments: Vec<Segment>,
    places: HashMap<(Key, usize, usize), usize>,
    /// For the thread whose page was read last: the segment of each export (recorded function).
    cache: ByExport,
    cached: Option<(usize, usize)>,
    rows: Vec<u32>,
}

impl<'a> Worker<'a> {
    fn new(
        profile: &'a Profile,
        choice: &'a Choice<'a>,
        weights: Option<&'a Weights>,
        recorded: bool,
        batch: &'a Batch,
    ) -> Self {
        Self {
            profile,
            choice,
            weights,
            recorded,
            batch,
            left_out: BTreeSet::new(),
            changes: 0,
            pages: 0,
            bytes: 0,
            exhausted: 0,
            segments: Vec::new(),
            places: HashMap::new(),
            cache: ByExport::default(),
            cached: None,
            rows: Vec::new(),
        }
    }

    fn segment_of(&mut self, process: usize, thread: usize, export: u32) -> Option<u32> {
        let op = self.profile.ops.of(process, export);
        let wanted = match op {
            Some(op) => self.choice.ops.get(op as usize) == Some(&true),
            None => self.choice.op.is_none_or(|f| model::glob::matches(f, &unknown_op(export))),
        };
        if !wanted {
            return None;
        }
        let row = |op| Key::Op(self.profile.ops.row_of(op));
        let key = op.map_or(Key::Unknown(process, export), row);
        if !self.batch.is_wanted(&key) || self.left_out.contains(&key) {
            return None;
        }
        let place = self.places.entry((key, process, thread)).or_insert_with(|| {
            self.segments.push(Segment {
                key,
                process,
                thread,
                total: 0,
                recorder: Recorder::default(),
                runs: vec![],
                columns: vec![],
                locations: vec![],
                last_location: 0,
            });
            self.segments.len() - 1
        });
        Some(*place as u32)
    }

    fn find_rows(&mut self, columns: &Columns) {
        let (process, thread) = (columns.process, columns.thread);
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let Some(from) = self.choice.threads[process][thread] else {
            rows.resize(columns.len(), NO_ROW);
            self.rows = rows;
            return;
        };
        if self.cached != Some((process, thread)) {
            self.cache.clear();
            self.cached = Some((process, thread));
        }
        for (i, export) in columns.export.iter().enumerate() {
            let row = match self.cache.get(*export) {
                _ if columns.start_ticks[i] < from => NO_ROW,
                Some(row) => row,
                None => {
                    let row = self.segment_of(process, thread, *export).unwrap_or(NO_ROW);
                    self.cache.insert(*export, row);
                    row
                }
            };
            rows.push(row);
        }
        self.rows = rows;
    }

    fn add_counters(&mut self, columns: &Columns, brackets: &Brackets, rows: &[u32]) {
        let counters = self.profile.groups.counters();
        let classes = brackets.page(columns);
        let mut from = 0;
        for calls in rows.chunk_by(|a, b| a == b) {
            let to = from + calls.len();
            // A row is the index of a call's segment. The rows in `calls` are equal, so these
            // consecutive calls belong to one segment, or to none.
            if let Some(segment) = self.segments.get_mut(calls[0] as usize) {
                for (g, group) in self.profile.groups.all().iter().enumerate() {
                    for counter in group.counters.clone() {
                        let column = &mut segment.columns[1 + counter];
                        for i in from..to {
                            let Some(value) = columns.value(g, counter, i) else {
                                column.push_missing();
                                continue;
                            };
                            column.values.push(value);
                            if let Some(class) = classes.of(columns, i) {
                                let of = segment.recorder.brackets.of(class, counters);
                                of.counted[counter] += 1;
                            }
                        }
                    }
                }
            }
            from = to;
        }
    }

    /// Adds up the used memory every [`PAGES_AT_ONCE`] pages. If all workers together use more than
    /// the batch allows, leaves out one of this worker's ops if it has several. If another worker
    /// has left out an op, frees the memory that this worker uses for the op.
    fn watch_memory(&mut self) {
        self.pages += 1;
        if self.batch.changes.load(Ordering::Relaxed) != self.changes {
            self.forget();
        } else if self.pages >= PAGES_AT_ONCE {
            self.add_up();
            if self.batch.used.load(Ordering::Relaxed) > self.batch.most_bytes {
                self.leave_out();
            }
        }
    }

    fn add_up(&mut self) {
        let bytes: usize = self.segments.iter().map(Segment::bytes).sum();
        let used = &self.batch.used;
        match bytes.checked_sub(self.bytes) {
            Some(more) => used.fetch_add(more, Ordering::Relaxed),
            None => used.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
        };
        (self.bytes, self.pages) = (bytes, 0);
    }

    /// Of this worker's ops with calls, leaves out the one with the largest key. Leaves out none if
    /// there is only one, or if another worker has left out an op in the meantime.
    fn leave_out(&mut self) {
        let mut all = self.batch.lock();
        if self.batch.changes.load(Ordering::Relaxed) == self.changes {
            let keys = self.segments.iter().filter(|s| s.bytes() > 0).map(|s| s.key);
            let keys: BTreeSet<Key> = keys.collect();
            if let Some(last) = keys.last().filter(|_| keys.len() > 1) {
                all.insert(*last);
                self.batch.changes.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(all);
        self.forget();
    }

    /// Frees the memory that this worker uses for ops that were left out.
    fn forget(&mut self) {
        let all = self.batch.lock();
        self.changes = self.batch.changes.load(Ordering::Relaxed);
        self.left_out.clone_from(&all);
        drop(all);
        for segment in &mut self.segments {
            if self.left_out.contains(&segment.key) {
                (segment.columns, segment.runs) = (Vec::new(), Vec::new());
            }
        }
        self.cache.clear();
        self.add_up();
    }
}

impl Rows for Worker<'_> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.find_rows(columns);
        rows.extend_from_slice(&self.rows);
    }
}

impl Adder for Worker<'_> {
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>) {
        self.find_rows(columns);
        let mut rows = std::mem::take(&mut self.rows);
        // In a run with a budget, two columns follow the counters: the weights of timed calls, and
        // of calls whose counters were read.
        let counters = self.profile.groups.counters();
        let of_weights = if columns.sampled { 2 } else { 0 };
        let variables = 1 + counters + of_weights + usize::from(self.recorded);
        let classes = brackets.page(columns);
        for (i, row) in rows.iter_mut().enumerate() {
            let duration = parts(columns.duration(i));
            let class = classes.of(columns, i);
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, class, brackets),
            };
            self.exhausted += u64::from(mark.is_exhausted());
            let Some(segment) = self.segments.get_mut(*row as usize) else { continue };
            if mark.inner {
                segment.recorder.inner += 1;
                *row = NO_ROW;
                continue;
            }
            segment.begin(columns.page, variables);
            segment.add_location(columns.location[i]);
            let time = duration - mark.taken;
            segment.recorder.taken += u128::from(mark.taken);
            if let Some(class) = class {
                segment.recorder.brackets.of(class, counters).calls += 1;
            }
            let weight = self.weights.map_or(1, |weights| weights.timed(columns, i));
            let stands_for = u128::from(time).saturating_mul(u128::from(weight));
            segment.total = segment.total.saturating_add(stands_for);
            segment.columns[0].values.push(time);
            if columns.sampled {
                let counted = self.weights.map_or(1, |weights| weights.counted(columns, i));
                segment.columns[1 + counters].values.push(weight);
                segment.columns[2 + counters].values.push(counted);
            }
            if self.recorded {
                segment.columns[variables - 1].values.push(columns.duration(i));
            }
        }
        self.add_counters(columns, brackets, &rows);
        self.rows = rows;
        self.watch_memory();
    }
}
