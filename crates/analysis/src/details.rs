//! Computes the data for the pictures of an op: the distribution of its durations, how they changed
//! over the recording, the longest calls, and which counter values occurred with which durations.
//! Also computes, for the threads with the most calls, how the rates of counters changed over the
//! recording.
//!
//! Pictures do not need exact values, so durations and counter values are counted in bins
//! ([`bins`]).

pub mod bins;
mod drift;
mod rates;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use profile::{Columns, PageDecoder, PageKey, Profile};

use crate::amounts::{Brackets, PARTS, parts};
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::sampled::{SCALE, Sample, Weights};
use crate::table::{Key, Places, Selection};
use crate::walk::{Adder, apart, walk};
use bins::{Bins, Joint};
pub use drift::{Drift, Part};
pub use rates::Rates;

/// Options of [`details`].
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// The ops: [`Key::Op`] or [`Key::Unknown`]. At most 65,534.
    pub ops: &'a [Key],
    /// For each op, this many calls are kept: those with the longest durations.
    pub longest: usize,
    /// The largest number of parts into which the time of the recording is divided.
    pub parts: usize,
    /// The largest number of parts into which the recording is divided for the rates of counters on
    /// threads.
    pub rates: usize,
    /// The largest number of threads for which rates of counters are computed. The threads with the
    /// most calls are chosen (calls that plugins recorded do not count).
    pub threads: usize,
    /// Whether durations are used as recorded, without subtracting the recorder's time.
    pub raw: bool,
    /// Number of worker threads; 0 for as many as the machine has processors.
    pub workers: usize,
}

/// The results of [`details`].
#[derive(Clone, Debug)]
pub struct Details {
    /// The start of the recording's first call, in ticks.
    pub begin: u64,
    /// The ops, in the same order as in [`Options::ops`].
    pub ops: Vec<OpDetails>,
    /// For each of the chosen threads (process and thread index), the rates of each counter of the
    /// run, over the calls of all ops. The threads with the most calls come first. Values and
    /// durations are as recorded.
    pub rates: Vec<((usize, usize), Vec<Rates>)>,
}

/// The details of one op, over its outermost calls (those that are not inside of another call of
/// the op). In a run with a budget (a limit for the cost of recording), a timed call counts once
/// for each call that it represents.
#[derive(Clone, Debug, Default)]
pub struct OpDetails {
    /// For each thread, the number of calls in each bin of durations (in ns). Sorted by process and
    /// thread index.
    pub threads: Vec<((usize, usize), Bins)>,
    pub drift: Drift,
    /// The longest calls, the longest first.
    pub longest: Vec<LongCall>,
    /// One joint for each counter of the run. For each pair of a bin of durations (first) and a bin
    /// of the counter's values, it has the number of calls.
    pub joints: Vec<Joint>,
}

impl OpDetails {
    /// Returns the number of calls in each bin of durations, added up over all threads.
    pub fn times(&self) -> Bins {
        let mut all = Bins::default();
        self.threads.iter().for_each(|(_, bins)| all.merge(bins));
        all
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongCall {
    /// The call's duration in units of 1/16 tick, without the time that the recorder added (unless
    /// [`Options::raw`] is set).
    duration: u64,
    /// The start of the call, in ticks.
    pub begin: u64,
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// The CPU on which the call ended.
    pub cpu: u32,
    /// The call's workgroup, if known.
    pub workgroup: Option<[u32; 3]>,
    /// The value of each counter of the run.
    pub counters: Vec<Option<u64>>,
}

impl LongCall {
    /// Returns the call's duration in ticks, without the time that the recorder added (unless
    /// [`Options::raw`] is set).
    pub fn ticks(&self) -> f64 {
        self.duration as f64 / PARTS as f64
    }
}

/// Describes the calls of the ops in `options`. Pages (blocks of recorded calls) that contain
/// nested calls are read twice.
///
/// Memory: about 4 KiB per op and thread, and 50 KiB per op. The rates take 100 bytes for each
/// combination of a worker, a counter, a thread ([`Options::threads`]) and a part
/// ([`Options::rates`]).
pub fn details(profile: &Profile, options: &Options<'_>) -> Details {
    let workers = match options.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    let brackets = Brackets::new(profile, options.raw);
    let places = Places::new(profile, &Selection::default());
    let sample = profile.is_sampled().then(|| Sample::read(profile, &places, workers, &brackets));
    let weights = sample.as_ref().map(Sample::weights);
    let begin = first_begin(profile);
    let numbers: HashMap<Key, u32> = options.ops.iter().copied().zip(0..).collect();
    let busiest = busiest(profile, options.threads);
    let worker = || Worker {
        profile,
        busiest: &busiest,
        numbers: &numbers,
        weights: weights.as_ref(),
        begin,
        options,
        ops: options.ops.iter().map(|_| Found::new(profile, options.parts)).collect(),
        rates: HashMap::new(),
        rows: Vec::new(),
    };
    let walked = walk(profile, workers, &brackets, None, worker);
    let mut ops: Vec<Found> =
        options.ops.iter().map(|_| Found::new(profile, options.parts)).collect();
    let mut rates: HashMap<(usize, usize), Vec<Rates>> = HashMap::new();
    for part in walked.parts {
        for (place, counters) in part.rates {
            let known = rates.entry(place).or_insert_with(|| no_rates(profile, options));
            known.iter_mut().zip(counters).for_each(|(all, one)| all.merge(one));
        }
        ops.iter_mut().zip(part.ops).for_each(|(all, one)| all.merge(one, options.longest));
    }
    let rates = busiest.iter().filter_map(|place| Some((*place, rates.remove(place)?))).collect();
    Details { begin, ops: ops.into_iter().map(Found::finish).collect(), rates }
}

fn busiest(profile: &Profile, most: usize) -> Vec<(usize, usize)> {
    if profile.groups.counters() == 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let processes = profile.processes.iter().enumerate();
    for (process, p) in processes.filter(|(_, p)| !p.id.is_of_plugins()) {
        for (thread, t) in p.threads.iter().enumerate() {
            let calls: u64 = t.headers().map(|page| u64::from(page.calls)).sum();
            all.push((Reverse(calls), (process, thread)));
        }
    }
    all.sort_unstable();
    all.into_iter().take(most).map(|(_, place)| place).collect()
}

fn no_rates(profile: &Profile, options: &Options<'_>) -> Vec<Rates> {
    vec![Rates::new(options.rates); profile.groups.counters()]
}

fn first_begin(profile: &Profile) -> u64 {
    let mut decoder = PageDecoder::new(profile);
    let mut first = u64::MAX;
    for (process, p) in profile.processes.iter().enumerate() {
        for (thread, t) in p.threads.iter().enumerate() {
            let begin = (0..t.headers().len()).find_map(|page| {
                let columns = decoder.decode(PageKey { process, thread, page });
                columns.start_ticks.iter().copied().min()
            });
            first = first.min(begin.unwrap_or(u64::MAX));
        }
    }
    if first == u64::MAX { 0 } else { first }
}

struct Found {
    threads: Vec<((usize, usize), Bins)>,
    /// Index in `threads` of the thread whose call was added last. The next call is usually of the
    /// same thread.
    last: usize,
    drift: Drift,
    longest: BinaryHeap<Reverse<LongCall>>,
    joints: Vec<Joint>,
}

impl Found {
    fn new(profile: &Profile, parts: usize) -> Self {
        Self {
            threads: Vec::new(),
            last: 0,
            drift: Drift::new(parts),
            longest: BinaryHeap::new(),
            joints: vec![Joint::default(); profile.groups.counters()],
        }
    }

    fn merge(&mut self, other: Self, longest: usize) {
        for (thread, bins) in other.threads {
            self.of_thread(thread).merge(&bins);
        }
        self.drift.merge(other.drift);
        self.longest.extend(other.longest);
        while self.longest.len() > longest {
            self.longest.pop();
        }
        self.joints.iter_mut().zip(&other.joints).for_each(|(all, one)| all.merge(one));
    }

    fn of_thread(&mut self, thread: (usize, usize)) -> &mut Bins {
        if self.threads.get(self.last).is_none_or(|(of, _)| *of != thread) {
            let known = self.threads.iter().position(|(of, _)| *of == thread);
            self.last = known.unwrap_or(self.threads.len());
            if known.is_none() {
                self.threads.push((thread, Bins::default()));
            }
        }
        &mut self.threads[self.last].1
    }

    fn finish(self) -> OpDetails {
        let mut threads = self.threads;
        threads.sort_by_key(|(thread, _)| *thread);
        let longest = self.longest.into_sorted_vec().into_iter().map(|Reverse(call)| call);
        OpDetails { threads, drift: self.drift, longest: longest.collect(), joints: self.joints }
    }
}

struct Worker<'a> {
    profile: &'a Profile,
    busiest: &'a [(usize, usize)],
    numbers: &'a HashMap<Key, u32>,
    weights: Option<&'a Weights>,
    begin: u64,
    options: &'a Options<'a>,
    ops: Vec<Found>,
    rates: HashMap<(usize, usize), Vec<Rates>>,
    /// For each call of a page (a block of one thread's records), the index of its op in
    /// [`Options::ops`]; `NO_ROW` for other ops.
    rows: Vec<u32>,
}

impl Worker<'_> {
    fn find_rows(&mut self, columns: &Columns) {
        let ops = &self.profile.ops;
        let mut last = (0, None);
        let numbers = self.numbers;
        let row = |export: &u32| {
            if let (known, Some(row)) = last
                && known == *export
            {
                return row;
            }
            let key = match ops.of(columns.process, *export) {
                Some(op) => Key::Op(ops.row_of(op)),
                None => Key::Unknown(columns.process, *export),
            };
            let row = numbers.get(&key).copied().unwrap_or(NO_ROW);
            last = (*export, Some(row));
            row
        };
        self.rows.clear();
        self.rows.extend(columns.export.iter().map(row));
    }

    fn add_rates(&mut self, columns: &Columns) {
        let groups = self.profile.groups.all();
        let place = (columns.process, columns.thread);
        if groups.is_empty()
            || !self.busiest.contains(&place)
            || apart(self.profile, columns).is_some()
        {
            return;
        }
        let rates = self.rates.entry(place).or_insert_with(|| no_rates(self.profile, self.options));
        for i in 0..columns.export.len() {
            let at = columns.start_ticks[i].saturating_sub(self.begin);
            let counted = self.weights.map_or(1, |w| w.counted(columns, i).div_ceil(SCALE));
            for (g, group) in groups.iter().enumerate() {
                for counter in group.counters.clone() {
                    if let Some(value) = columns.value(g, counter, i) {
                        rates[counter].add(at, value, columns.duration(i), counted);
                    }
                }
            }
        }
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
        let rows = std::mem::take(&mut self.rows);
        let ns_per_tick = self.profile.timeline.ns_per_tick();
        let classes = brackets.page(columns);
        let place = (columns.process, columns.thread);
        self.add_rates(columns);
        for (i, row) in rows.iter().enumerate() {
            let Some(op) = self.ops.get_mut(*row as usize) else { continue };
            let duration = parts(columns.duration(i));
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, classes.of(columns, i), brackets),
            };
            if mark.inner {
                continue;
            }
            let weight = |scaled: u64| scaled.div_ceil(SCALE);
            let timed = self.weights.map_or(1, |weights| weight(weights.timed(columns, i)));
            let duration = duration - mark.taken;
            let bin = bins::bin(duration as f64 / PARTS as f64 * ns_per_tick);
            op.of_thread(place).add(bin, timed);
            op.drift.add(columns.start_ticks[i].saturating_sub(self.begin), bin, timed);
            let is_long = op.longest.len() < self.options.longest
                || op.longest.peek().is_some_and(|Reverse(least)| duration > least.duration);
            let counted = self.weights.map_or(1, |weights| weight(weights.counted(columns, i)));
            let counters = op.joints.len();
            let mut values = vec![None; if is_long { counters } else { 0 }];
            for (g, group) in self.profile.groups.all().iter().enumerate() {
                for counter in group.counters.clone() {
                    let value = columns.value(g, counter, i);
                    if let Some(value) = value {
                        op.joints[counter].add(bin, bins::bin(value as f64), counted);
                    }
                    if let Some(place) = values.get_mut(counter) {
                        *place = value;
                    }
                }
            }
            if !is_long || self.options.longest == 0 {
                continue;
            }
            op.longest.push(Reverse(LongCall {
                duration,
                begin: columns.start_ticks[i],
                process: columns.process,
                thread: columns.thread,
                cpu: profile::columns::cpu_of(columns.location[i]),
                workgroup: columns
                    .knows_workgroup(i)
                    .then(|| [0, 1, 2].map(|axis| columns.workgroup[axis][i])),
                counters: values,
            }));
            if op.longest.len() > self.options.longest {
                op.longest.pop();
            }
        }
        self.rows = rows;
    }
}
