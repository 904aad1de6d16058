//! Collects the chosen calls by op and thread while the pages are read.
//!
//! Workers receive pages in no particular order. For each op and thread, a worker keeps chunks of
//! calls from consecutive pages. Sorted by page, the chunks are the thread's calls in the recorded
//! order, whatever the number of workers.

use std::collections::{BTreeMap, HashMap};

use profile::batch::unknown_op;
use profile::{Columns, PageDecoder, PageKey, Profile};

use super::Options;
use super::samples::{Column, Samples, Values};
use crate::amounts::{BracketCounts, Brackets, parts};
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::sampled::Weights;
use crate::table::Key;
use crate::walk::{Adder, Walked, walk};

/// The calls that were found for an op.
#[derive(Debug)]
pub(super) struct Found {
    pub key: Key,
    /// In [`crate::amounts::PARTS`] of a tick. In a run with a budget, each call counts for as many as
    /// it stands for, in parts ([`crate::sampled::SCALE`]).
    pub total: u128,
    parts: Vec<Segment>,
}

/// The position of one thread's calls among those of the op.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub process: usize,
    pub thread: usize,
    pub from: usize,
    pub to: usize,
    pub locations: BTreeMap<u32, u64>,
    pub recorder: Recorder,
}

/// What the recorder added to some calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    /// Number of other calls of the op, inside of these.
    pub inner: u64,
    /// What was taken of the durations, in parts of a tick.
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

/// The calls of one op in one thread.
#[derive(Debug)]
struct Segment {
    key: Key,
    process: usize,
    thread: usize,
    total: u128,
    recorder: Recorder,
    chunks: Vec<Chunk>,
    locations: Vec<(u32, u64)>,
    last_location: usize,
}

/// The calls of consecutive pages.
#[derive(Debug)]
struct Chunk {
    first_page: usize,
    last_page: usize,
    columns: Vec<ChunkColumn>,
}

#[derive(Debug, Default)]
struct ChunkColumn {
    values: Values,
    /// Indices of missing values.
    missing: Vec<u32>,
}

impl ChunkColumn {
    fn push_missing(&mut self) {
        self.missing.push(self.values.len() as u32);
        self.values.push(0);
    }
}

impl Segment {
    fn calls(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.columns[0].values.len()).sum()
    }

    /// Makes sure that the last chunk accepts calls of this page.
    fn begin(&mut self, page: usize, variables: usize) {
        if let Some(chunk) = self.chunks.last_mut() {
            if chunk.last_page == page || chunk.last_page + 1 == page {
                chunk.last_page = page;
                return;
            }
            chunk.shrink();
        }
        let columns = (0..variables).map(|_| ChunkColumn::default()).collect();
        self.chunks.push(Chunk { first_page: page, last_page: page, columns });
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

impl Chunk {
    fn shrink(&mut self) {
        for column in &mut self.columns {
            column.values.shrink();
            column.missing.shrink_to_fit();
        }
    }
}

impl Found {
    pub fn calls(&self) -> u64 {
        self.parts.iter().map(|part| part.calls() as u64).sum()
    }

    /// Joins the calls of all threads, thread by thread.
    pub fn flatten(self) -> (Samples, Vec<Part>) {
        let mut parts = Vec::new();
        let mut at = 0;
        for segment in &self.parts {
            let to = at + segment.calls();
            parts.push(Part {
                process: segment.process,
                thread: segment.thread,
                from: at,
                to,
                locations: segment.locations.iter().copied().collect(),
                recorder: segment.recorder.clone(),
            });
            at = to;
        }
        let mut chunks: Vec<Chunk> = self.parts.into_iter().flat_map(|part| part.chunks).collect();
        let variables = chunks.first().map_or(0, |chunk| chunk.columns.len());
        let columns = (0..variables).map(|variable| {
            let mut missing = None;
            let mut from = 0;
            let taken = chunks.iter_mut().map(|chunk| {
                let column = std::mem::take(&mut chunk.columns[variable]);
                if !column.missing.is_empty() {
                    let missing = missing.get_or_insert_with(|| vec![false; at]);
                    column.missing.iter().for_each(|i| missing[from + *i as usize] = true);
                }
                from += column.values.len();
                column.values
            });
            let values = Values::join(taken.collect());
            Column { values, missing }
        });
        (Samples::from_columns(columns.collect(), at), parts)
    }
}

/// The chosen calls of each op, the op with the largest sum of durations first; the number of all calls
/// of whose own time nothing is left; and what else is known after reading all pages.
pub(super) fn collect<'a>(
    profile: &'a Profile,
    options: &'a Options,
    choice: &'a Choice<'a>,
    weights: Option<&'a Weights>,
    brackets: &Brackets,
    workers: usize,
) -> (Vec<Found>, u64, Walked<Worker<'a>>) {
    let recorded = keeps_recorded(options);
    let make = || Worker::new(profile, choice, weights, recorded);
    let mut walked = walk(profile, workers, brackets, None, make);
    let mut all: BTreeMap<(Key, usize, usize), Segment> = BTreeMap::new();
    let workers = std::mem::take(&mut walked.parts);
    let exhausted = workers.iter().map(|worker| worker.exhausted).sum();
    for segment in workers.into_iter().flat_map(|worker| worker.segments) {
        match all.entry((segment.key, segment.process, segment.thread)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(segment);
            }
            std::collections::btree_map::Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.total = known.total.saturating_add(segment.total);
                known.recorder.add(segment.recorder);
                known.chunks.extend(segment.chunks);
                known.locations.extend(segment.locations);
            }
        }
    }
    let mut ops: BTreeMap<Key, Found> = BTreeMap::new();
    for ((key, ..), mut segment) in all {
        segment.chunks.sort_by_key(|chunk| chunk.first_page);
        let mut locations: BTreeMap<u32, u64> = BTreeMap::new();
        for (location, calls) in &segment.locations {
            *locations.entry(*location).or_default() += calls;
        }
        segment.locations = locations.into_iter().collect();
        let op = ops.entry(key).or_insert_with(|| Found { key, total: 0, parts: vec![] });
        op.total = op.total.saturating_add(segment.total);
        op.parts.push(segment);
    }
    let mut ops: Vec<Found> = ops.into_values().collect();
    ops.sort_by_key(|op| (std::cmp::Reverse(op.total), op.key));
    (ops, exhausted, walked)
}

/// Whether the last column is the durations as they were recorded. Metrics of single calls are
/// computed from these, because counters cannot be corrected call by call.
pub(super) fn keeps_recorded(options: &Options) -> bool {
    options.metrics.iter().any(|metric| metric.uses_duration())
}

/// Which calls are wanted.
pub(super) struct Choice<'a> {
    op: Option<&'a str>,
    ops: Vec<bool>,
    /// By process and thread: the tick from which calls are wanted; `None` if the thread is not.
    threads: Vec<Vec<Option<u64>>>,
}

impl<'a> Choice<'a> {
    pub fn new(profile: &Profile, options: &'a Options) -> Self {
        let op = options.op.as_deref();
        let wanted = |name: &str| op.is_none_or(|glob| profile::demangle::matches(glob, name));
        let skip_ticks = (options.skip_ns as f64 / profile.timeline.ns_per_tick()).round() as u64;
        let mut decoder = PageDecoder::new(profile);
        let mut threads = Vec::new();
        for (process, p) in profile.processes.iter().enumerate() {
            let mut all = Vec::new();
            for (thread, t) in p.threads.iter().enumerate() {
                let chosen = options.thread.as_deref().is_none_or(|asked| {
                    asked.parse() == Ok(t.tid) || model::glob::matches(asked, &t.name)
                });
                all.push(match (chosen, skip_ticks) {
                    (false, _) => None,
                    (true, 0) => Some(0),
                    (true, skip) => {
                        let mut pages = 0..t.headers().len();
                        let first = pages.find_map(|page| {
                            let columns = decoder.decode(PageKey { process, thread, page });
                            columns.start_ticks.first().copied()
                        });
                        Some(first.unwrap_or(0).saturating_add(skip))
                    }
                });
            }
            threads.push(all);
        }
        Self { op, ops: profile.ops.all().iter().map(|op| wanted(&op.name)).collect(), threads }
    }
}

impl Choice<'_> {
    /// Whether calls of this thread are wanted.
    pub fn has_thread(&self, (process, thread): (usize, usize)) -> bool {
        let of_process = self.threads.get(process);
        of_process.and_then(|threads| threads.get(thread)).is_some_and(Option::is_some)
    }
}

/// What one worker has found.
pub(super) struct Worker<'a> {
    profile: &'a Profile,
    choice: &'a Choice<'a>,
    /// In a run with a budget.
    weights: Option<&'a Weights>,
    recorded: bool,
    /// Number of calls of whose own time nothing is left, wanted or not.
    pub exhausted: u64,
    segments: Vec<Segment>,
    places: HashMap<(Key, usize, usize), usize>,
    /// The segment of each export of the thread that was seen last.
    cache: HashMap<u32, Option<u32>>,
    cached: Option<(usize, usize)>,
    /// The segment of each call of the page.
    rows: Vec<u32>,
}

impl<'a> Worker<'a> {
    fn new(
        profile: &'a Profile,
        choice: &'a Choice<'a>,
        weights: Option<&'a Weights>,
        recorded: bool,
    ) -> Self {
        Self {
            profile,
            choice,
            weights,
            recorded,
            exhausted: 0,
            segments: Vec::new(),
            places: HashMap::new(),
            cache: HashMap::new(),
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
        let place = self.places.entry((key, process, thread)).or_insert_with(|| {
            self.segments.push(Segment {
                key,
                process,
                thread,
                total: 0,
                recorder: Recorder::default(),
                chunks: vec![],
                locations: vec![],
                last_location: 0,
            });
            self.segments.len() - 1
        });
        Some(*place as u32)
    }

    /// Finds the segment of each call of the page.
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
            let row = match self.cache.get(export) {
                _ if columns.start_ticks[i] < from => None,
                Some(row) => *row,
                None => {
                    let row = self.segment_of(process, thread, *export);
                    self.cache.insert(*export, row);
                    row
                }
            };
            rows.push(row.unwrap_or(NO_ROW));
        }
        self.rows = rows;
    }

    fn add_counters(&mut self, columns: &Columns, brackets: &Brackets, rows: &[u32]) {
        let counters = self.profile.groups.counters();
        let classes = brackets.page(columns);
        for (g, group) in self.profile.groups.all().iter().enumerate() {
            for counter in group.counters.clone() {
                for (i, row) in rows.iter().enumerate() {
                    let Some(column) = self.column(*row, 1 + counter) else { continue };
                    let Some(value) = columns.value(g, counter, i) else {
                        column.push_missing();
                        continue;
                    };
                    column.values.push(value);
                    if let Some(class) = classes.of(columns, i) {
                        let of = &mut self.segments[*row as usize].recorder.brackets;
                        of.of(class, counters).counted[counter] += 1;
                    }
                }
            }
        }
    }

    /// A variable's column in the current chunk of a segment; `None` for a call that is skipped.
    #[inline]
    fn column(&mut self, row: u32, variable: usize) -> Option<&mut ChunkColumn> {
        let chunk = self.segments.get_mut(row as usize)?.chunks.last_mut()?;
        chunk.columns.get_mut(variable)
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
        // In a run with a budget, the columns after the counters are the weights of timed calls and of
        // calls whose counters were read.
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
            let Some(chunk) = segment.chunks.last_mut() else { continue };
            chunk.columns[0].values.push(time);
            if columns.sampled {
                let counted = self.weights.map_or(1, |weights| weights.counted(columns, i));
                chunk.columns[1 + counters].values.push(weight);
                chunk.columns[2 + counters].values.push(counted);
            }
            if self.recorded {
                chunk.columns[variables - 1].values.push(columns.duration(i));
            }
        }
        self.add_counters(columns, brackets, &rows);
        self.rows = rows;
    }
}
