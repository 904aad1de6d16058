//! Collects the chosen calls by op and thread while the pages are read.
//!
//! Workers receive pages in no particular order. For each op and thread, a worker keeps chunks of
//! calls from consecutive pages. Sorted by page, the chunks are the thread's calls in the recorded
//! order, whatever the number of workers.

use std::collections::{BTreeMap, HashMap};

use profile::batch::unknown_op;
use profile::{Columns, LossCount, PageDecoder, PageKey, Profile};

use super::Options;
use super::samples::{Column, Samples, Values};
use crate::table::Key;

/// The calls that were found for an op.
#[derive(Debug)]
pub(super) struct Found {
    pub key: Key,
    pub total_ticks: u128,
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
}

/// The calls of one op in one thread.
#[derive(Debug)]
struct Segment {
    key: Key,
    process: usize,
    thread: usize,
    total_ticks: u128,
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

/// The chosen calls of each op, the op with the largest sum of durations first, and the losses
/// found inside pages, by process.
pub(super) fn collect(
    profile: &Profile,
    options: &Options,
    workers: usize,
) -> (Vec<Found>, Vec<Vec<LossCount>>) {
    let choice = Choice::new(profile, options);
    let make = || Worker::new(profile, &choice);
    let (states, losses) = profile.visit(workers, make, |worker, columns| worker.add(columns));
    let mut all: BTreeMap<(Key, usize, usize), Segment> = BTreeMap::new();
    for segment in states.into_iter().flat_map(|state| state.segments) {
        match all.entry((segment.key, segment.process, segment.thread)) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(segment);
            }
            std::collections::btree_map::Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.total_ticks += segment.total_ticks;
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
        let op = ops.entry(key).or_insert_with(|| Found { key, total_ticks: 0, parts: vec![] });
        op.total_ticks += segment.total_ticks;
        op.parts.push(segment);
    }
    let mut ops: Vec<Found> = ops.into_values().collect();
    ops.sort_by_key(|op| (std::cmp::Reverse(op.total_ticks), op.key));
    (ops, losses)
}

/// Which calls are wanted.
struct Choice<'a> {
    op: Option<&'a str>,
    ops: Vec<bool>,
    /// By process and thread: the tick from which calls are wanted; `None` if the thread is not.
    threads: Vec<Vec<Option<u64>>>,
}

impl<'a> Choice<'a> {
    fn new(profile: &Profile, options: &'a Options) -> Self {
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

/// What one worker has found.
struct Worker<'a> {
    profile: &'a Profile,
    choice: &'a Choice<'a>,
    segments: Vec<Segment>,
    places: HashMap<(Key, usize, usize), usize>,
    /// The segment of each export of the thread that was seen last.
    cache: HashMap<u32, Option<u32>>,
    cached: Option<(usize, usize)>,
    /// The segment of each call of the page.
    rows: Vec<u32>,
}

const SKIPPED: u32 = u32::MAX;

impl<'a> Worker<'a> {
    fn new(profile: &'a Profile, choice: &'a Choice<'a>) -> Self {
        Self {
            profile,
            choice,
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
        let key = op.map_or(Key::Unknown(process, export), Key::Op);
        let place = self.places.entry((key, process, thread)).or_insert_with(|| {
            self.segments.push(Segment {
                key,
                process,
                thread,
                total_ticks: 0,
                chunks: vec![],
                locations: vec![],
                last_location: 0,
            });
            self.segments.len() - 1
        });
        Some(*place as u32)
    }

    fn add(&mut self, columns: &Columns) {
        let (process, thread) = (columns.process, columns.thread);
        let Some(from) = self.choice.threads[process][thread] else { return };
        if self.cached != Some((process, thread)) {
            self.cache.clear();
            self.cached = Some((process, thread));
        }
        // In a run with a budget, the last two columns are the weights of timed calls and of calls
        // whose counters were read.
        let counters = self.profile.groups.counters();
        let variables = 1 + counters + if columns.sampled { 2 } else { 0 };
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
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
            let Some(row) = row else {
                rows.push(SKIPPED);
                continue;
            };
            rows.push(row);
            let segment = &mut self.segments[row as usize];
            segment.begin(columns.page, variables);
            segment.add_location(columns.location[i]);
            let (ticks, weight) = (columns.duration(i), columns.weight(i));
            segment.total_ticks += u128::from(ticks) * u128::from(weight);
        }
        for (i, row) in rows.iter().enumerate() {
            if let Some(column) = self.column(*row, 0) {
                column.values.push(columns.duration(i));
            }
            if let Some(column) = self.column(*row, 1 + counters).filter(|_| columns.sampled) {
                column.values.push(columns.weight(i));
            }
            if let Some(column) = self.column(*row, 2 + counters).filter(|_| columns.sampled) {
                column.values.push(columns.counter_weight(i));
            }
        }
        for (g, group) in self.profile.groups.all().iter().enumerate() {
            for counter in group.counters.clone() {
                for (i, row) in rows.iter().enumerate() {
                    let Some(column) = self.column(*row, 1 + counter) else { continue };
                    match columns.value(g, counter, i) {
                        Some(value) => column.values.push(value),
                        None => column.push_missing(),
                    }
                }
            }
        }
        self.rows = rows;
    }

    /// A variable's column in the current chunk of a segment; `None` for a call that is skipped.
    #[inline]
    fn column(&mut self, row: u32, variable: usize) -> Option<&mut ChunkColumn> {
        let chunk = self.segments.get_mut(row as usize)?.chunks.last_mut()?;
        chunk.columns.get_mut(variable)
    }
}
