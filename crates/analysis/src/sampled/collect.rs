//! Reads the calls of a sampled run (one with a budget for the cost of recording) in the order in
//! which each thread recorded them, and adds up the calls of each row.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Columns, CountedSteps, PageDecoder, PageKey, Profile, Status, on_threads};

use super::by_step::ByStep;
use super::pool::Pool;
use super::quantile::Weighted;
use super::tail::Tail;
use super::weights::{Factors, Weights};
use super::{Estimated, SampledCounter, SampledRow, SampledRun, Strata};
use crate::amounts::{self, Brackets, PARTS, parts};
use crate::clusters::PageSpan;
use crate::forest::{Marker, Marks, NO_ROW};
use crate::interval::Sum;
use crate::table::{By, Key, PassTotal, Places};
use crate::walk::apart;

/// A sampled row, together with values that [`SampledRow`] does not contain.
#[derive(Debug)]
pub(crate) struct Found {
    pub row: SampledRow,
    /// The threads that made the calls, as process and thread index.
    pub threads: Vec<(usize, usize)>,
    /// The 10th, the 50th and the 99th percentile of the durations, in ticks.
    pub quantiles: [Option<f64>; 3],
    /// For each pass (a repetition of the program with other counters), the number of all calls of
    /// the row, and the estimated sum of their durations.
    pub passes: Vec<PassTotal>,
}

#[derive(Debug)]
struct Unit {
    durations: Strata,
    /// Whether some call is inside of another call of its row. Only timed calls can show this.
    inner: bool,
    /// Whether some call has another call inside.
    nested: bool,
    /// Number of timed calls in which at least one counter was read.
    counted: u64,
    counters: Vec<UnitCounter>,
    weighted: Weighted,
}

#[derive(Clone, Debug, Default)]
struct UnitCounter {
    strata: Strata,
    weighted: Weighted,
}

impl Unit {
    fn new(counters: usize) -> Self {
        Self {
            durations: Strata::default(),
            inner: false,
            nested: false,
            counted: 0,
            counters: vec![Default::default(); counters],
            weighted: Weighted::default(),
        }
    }

    /// Adds a call that took `time`, in units of 1/[`amounts::PARTS`] tick.
    fn add(&mut self, profile: &Profile, columns: &Columns, i: usize, time: u64) {
        let skipped = columns.drawn(i).skipped;
        self.durations.skip(skipped);
        self.durations.add(columns.weight(i), amounts::ticks(time.into()));
        self.weighted.push(time, columns.weight(i));
        let mut read = false;
        for (g, group) in profile.groups.all().iter().enumerate() {
            let status = columns.groups[g].status.get(i);
            read |= status.is_some_and(|status| *status != Status::NotRead);
            for counter in group.counters.clone() {
                let of = &mut self.counters[counter];
                of.strata.skip(skipped);
                match columns.value(g, counter, i) {
                    Some(value) => {
                        of.strata.add(columns.counter_weight(i), value as f64);
                        of.weighted.push(value, columns.counter_weight(i));
                    }
                    None => of.strata.skip(1),
                }
            }
        }
        self.counted += u64::from(read);
    }
}

#[derive(Debug)]
struct Adding {
    calls: u64,
    by_steps: ByStep,
    counted: u64,
    durations: Pool,
    /// Whether some calls are inside of other calls of the row.
    inner: bool,
    /// Whether some calls have other calls inside.
    nested: bool,
    /// Whether some calls of the row's threads, in this row or in others, were only counted. Such
    /// calls may be inside of the row's calls.
    beside_untimed: bool,
    counters: Vec<Pool>,
    weighted: Weighted,
    threads: BTreeSet<(usize, usize)>,
    /// The total of each pass (a repetition of the program with other counters); empty without
    /// passes.
    passes: Vec<PassTotal>,
}

impl Adding {
    fn new(counters: usize, passes: usize) -> Self {
        Self {
            calls: 0,
            by_steps: ByStep::default(),
            counted: 0,
            durations: Pool::default(),
            inner: false,
            nested: false,
            beside_untimed: false,
            counters: vec![Pool::default(); counters],
            weighted: Weighted::default(),
            threads: BTreeSet::new(),
            passes: vec![PassTotal::default(); passes],
        }
    }

    fn add(&mut self, thread: (usize, usize), pass: u32, of: &Counted, tails: &Tails) {
        let nothing = Strata::default();
        let unit = of.unit.as_ref();
        let durations = unit.map_or(&nothing, |unit| &unit.durations);
        let calls = of.calls();
        self.calls = self.calls.saturating_add(calls);
        self.by_steps.add(of.steps.as_ref());
        let estimated = self.durations.add(durations, calls, &tails.durations);
        if let Some(pass) = self.passes.get_mut(pass as usize) {
            pass.calls = pass.calls.saturating_add(calls);
            pass.total_ticks += estimated.max(0.0);
        }
        self.threads.insert(thread);
        for (i, (pool, tail)) in self.counters.iter_mut().zip(&tails.counters).enumerate() {
            let strata = unit.map(|unit| &unit.counters[i].strata);
            // The recorder reads the counters around an op's first calls. So a counter that has no
            // value in any recorded call of the op is not read around this op.
            match strata {
                Some(strata) if strata.known() > 0 => _ = pool.add(strata, calls, tail),
                None if tails.has_counter(thread.0, i) => _ = pool.add(&nothing, calls, tail),
                _ => (),
            }
        }
        let Some(unit) = unit else { return };
        self.counted += unit.counted;
        self.inner |= unit.inner;
        self.nested |= unit.nested;
        self.weighted.append(unit.weighted.clone());
    }

    /// Prepares a sum over all calls of a thread or of a run. The sum is unknown if any call has
    /// another one inside, unless all calls were timed.
    fn of_all(mut self) -> Self {
        self.inner |= self.nested;
        self
    }

    /// Computes the estimates of the row. `all` is the estimated time of all calls of the run;
    /// `None` if the row's share of it is not wanted or not known.
    fn finish(mut self, all: Option<&Sum>) -> Found {
        let (by_steps, all_calls) = (self.by_steps, self.calls);
        let counters = self.counters.iter().map(|counter| {
            Some(SampledCounter {
                total: by_steps.widen(counter.total().filter(|_| counter.known() > 0)?, all_calls),
                calls: counter.calls(),
                counted: counter.known(),
            })
        });
        let counters = counters.collect();
        // If calls of the row are inside of other calls of the row, the sum is known only if every
        // call of the row was timed.
        let complete = self.calls == self.durations.known();
        let tells = self.durations.sum();
        let known = complete || !self.inner;
        let share = tells.filter(|_| known).zip(all).and_then(|(own, all)| {
            let share = own.part_with(&all.without(&own))?;
            Some(by_steps.widen(Estimated::of(&share), all_calls))
        });
        let row = SampledRow {
            calls: Some(self.calls),
            by_steps: by_steps.calls(all_calls),
            timed: self.durations.known(),
            counted: self.counted,
            total: self
                .durations
                .total()
                .filter(|_| known)
                .map(|total| by_steps.widen(total, all_calls)),
            self_known: tells.is_some() && known && !(self.nested && self.beside_untimed),
            share,
            effective: tells.and_then(|_| self.weighted.effective()),
            counters,
        };
        let mut quantile = |q: f64| {
            tells?;
            Some(amounts::ticks(self.weighted.quantile(q)?.into()))
        };
        let quantiles = [quantile(0.1), quantile(0.5), quantile(0.99)];
        Found { row, threads: self.threads.into_iter().collect(), quantiles, passes: self.passes }
    }
}

/// One export (function of an executable) on one thread: its recorded calls, and the number of all
/// its calls there.
#[derive(Debug, Default)]
struct Counted {
    unit: Option<Unit>,
    counted: u64,
    steps: Option<CountedSteps>,
}

impl Counted {
    fn calls(&self) -> u64 {
        self.counted.max(self.unit.as_ref().map_or(0, |unit| unit.durations.mentioned()))
    }

    fn factors(&self) -> Factors {
        let Some(unit) = &self.unit else { return Factors::default() };
        let counters = unit.counters.iter().map(|counter| &counter.strata);
        Factors::new(self.calls(), &unit.durations, counters)
    }
}

/// Collects the recorded calls of each export on each thread, and the numbers of all calls. The
/// keys are process, thread and export.
fn units(
    profile: &Profile,
    places: &Places<'_>,
    workers: usize,
    brackets: &Brackets,
) -> BTreeMap<(usize, usize, u32), Counted> {
    let threads: Vec<(usize, usize)> = profile
        .processes
        .iter()
        .enumerate()
        .flat_map(|(process, p)| (0..p.threads.len()).map(move |thread| (process, thread)))
        .collect();
    let next = AtomicUsize::new(0);
    let mut others: HashMap<(usize, usize), Vec<(usize, usize)>> = HashMap::new();
    for thread in threads.iter().filter(|thread| places.home(**thread) != **thread) {
        others.entry(places.home(*thread)).or_default().push(*thread);
    }
    let work = || {
        let mut decoder = PageDecoder::new(profile);
        let mut marker = Marker::new(profile, brackets, None);
        let mut found: Vec<((usize, usize, u32), Unit)> = Vec::new();
        while let Some(home) = threads.get(next.fetch_add(1, Ordering::Relaxed)) {
            if places.home(*home) != *home {
                continue; // Its calls are shown with those of another thread, its home.
            }
            let of = |(process, thread): (usize, usize)| {
                let pages = profile.processes[process].threads[thread].headers().len();
                (0..pages).map(move |page| PageKey { process, thread, page })
            };
            let others = others.get(home).into_iter().flatten();
            let pages: Vec<PageKey> =
                std::iter::once(home).chain(others).copied().flat_map(of).collect();
            // A page is a block of recorded calls. Calls that belong to no thread, such as
            // asynchronous spans, are in separate pages, and are not inside of another call.
            let is_of_thread = |page: &&PageKey| apart(profile, decoder.decode(**page)).is_none();
            let of_thread: Vec<&PageKey> = pages.iter().filter(is_of_thread).collect();
            let span = |page: &&PageKey| PageSpan {
                key: **page,
                thread: *home,
                first_begin: 0,
                last_begin: u64::MAX,
                last_end: u64::MAX,
                flat: false,
            };
            let spans: Vec<PageSpan> = of_thread.iter().map(span).collect();
            let mut numbers: HashMap<Key, u32> = HashMap::new();
            let (marks, _) = marker.mark(&spans, |columns, rows| {
                rows.extend(columns.export.iter().map(|export| {
                    let next = numbers.len() as u32;
                    match places.row(profile, (columns.process, columns.thread), *export) {
                        Some(key) => *numbers.entry(key).or_insert(next),
                        None => NO_ROW,
                    }
                }));
            });
            let mut marks: HashMap<&PageKey, Marks> = of_thread.into_iter().zip(marks).collect();
            let mut units: HashMap<(usize, usize, u32), Unit> = HashMap::new();
            for page in &pages {
                let columns = decoder.decode(*page);
                let marks = marks.remove(page);
                for (i, export) in columns.export.iter().enumerate() {
                    let mark = marks.as_ref().map(|marks| marks.of(i)).unwrap_or_default();
                    let time = parts(columns.duration(i)) - mark.taken;
                    let new = || Unit::new(profile.groups.counters());
                    let at = (columns.process, columns.thread, *export);
                    let unit = units.entry(at).or_insert_with(new);
                    unit.add(profile, columns, i, time);
                    unit.inner |= mark.inner;
                    unit.nested |= marks.is_some() && mark.own != time;
                }
            }
            found.extend(units);
        }
        found
    };
    let mut all: BTreeMap<_, Counted> = BTreeMap::new();
    for (key, unit) in
        on_threads(workers.clamp(1, threads.len().max(1)), work).into_iter().flatten()
    {
        all.insert(key, Counted { unit: Some(unit), ..Counted::default() });
    }
    for counted in profile.counted() {
        let Some(process) = profile.processes.get(counted.process) else { continue };
        let place = process.threads.iter().position(|t| t.uid == counted.thread_uid);
        let Some(thread) = place else { continue };
        let of = all.entry((counted.process, thread, counted.export)).or_default();
        (of.counted, of.steps) = (counted.calls, counted.steps);
    }
    all
}

/// How much rare slow calls add to the variance of the durations and of each counter.
#[derive(Debug)]
struct Tails {
    durations: Tail,
    counters: Vec<Tail>,
    /// Pairs of a process index and the index of a counter that has a value in some call of this
    /// process.
    with_counter: HashSet<(usize, usize)>,
}

impl Tails {
    /// Computes the tails from the calls of each op, on all threads of all processes.
    fn of(profile: &Profile, units: &BTreeMap<(usize, usize, u32), Counted>) -> Self {
        let mut durations: BTreeMap<_, Weighted> = BTreeMap::new();
        let mut counters = vec![durations.clone(); profile.groups.counters()];
        let mut with_counter = HashSet::new();
        for ((process, _, export), of) in units {
            let Some(unit) = &of.unit else { continue };
            let read = unit.counters.iter().enumerate().filter(|(_, of)| of.strata.known() > 0);
            with_counter.extend(read.map(|(counter, _)| (*process, counter)));
            // An export whose metadata is missing counts as an op of its own.
            let op = profile.ops.of(*process, *export).ok_or((*process, *export));
            durations.entry(op).or_default().append(unit.weighted.clone());
            for (all, of) in counters.iter_mut().zip(&unit.counters) {
                all.entry(op).or_default().append(of.weighted.clone());
            }
        }
        let counters = counters.iter_mut().map(|of| Tail::of(of.values_mut())).collect();
        // `weighted` has durations in units of 1/[`amounts::PARTS`] tick, and their tail is
        // converted to ticks.
        let durations = Tail::of(durations.values_mut()).times(1.0 / PARTS as f64);
        Self { durations, counters, with_counter }
    }

    fn has_counter(&self, process: usize, counter: usize) -> bool {
        self.with_counter.contains(&(process, counter))
    }
}

/// The timed calls of a run with a budget. The weight of a timed call is the number of calls that
/// it represents.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    profile: &'a Profile,
    units: BTreeMap<(usize, usize, u32), Counted>,
    tails: Tails,
    any_nested: bool,
    /// The threads with calls that were only counted, as process and thread. Includes threads of
    /// other recordings of the same thread ([`Places::home`]).
    untimed: BTreeSet<(usize, usize)>,
}

impl<'a> Sample<'a> {
    pub fn read(
        profile: &'a Profile,
        places: &Places<'_>,
        workers: usize,
        brackets: &Brackets,
    ) -> Self {
        let mut units = units(profile, places, workers, brackets);
        let is_nested = |of: &Counted| of.unit.as_ref().is_some_and(|unit| unit.nested);
        let any_nested = units.values().any(is_nested);
        let is_untimed =
            |of: &Counted| of.calls() > of.unit.as_ref().map_or(0, |unit| unit.durations.known());
        let home = |(process, thread, _): &(usize, usize, u32)| places.home((*process, *thread));
        let untimed = units.iter().filter(|(_, of)| is_untimed(of)).map(|(at, _)| home(at));
        let untimed: BTreeSet<_> = untimed.collect();
        let untimed = units.keys().filter(|at| untimed.contains(&home(at)));
        let untimed = untimed.map(|(process, thread, _)| (*process, *thread)).collect();
        let tails = Tails::of(profile, &units);
        for of in units.values_mut() {
            let factors = of.factors();
            if let Some(unit) = &mut of.unit {
                unit.weighted.reweigh(|weight| factors.timed(weight));
            }
        }
        Self { profile, units, tails, any_nested, untimed }
    }

    /// Returns the number of calls that each timed call represents.
    pub fn weights(&self) -> Weights {
        Weights::new(self.units.iter().map(|(key, of)| (*key, of.factors())).collect())
    }

    /// Computes a row for each set of calls. `set` returns the set to which the calls of an export
    /// on a thread belong.
    pub fn sets<K: Copy + Ord>(
        &self,
        set: impl Fn((usize, usize), u32) -> Option<K>,
    ) -> BTreeMap<K, Found> {
        self.add_up(self.profile.groups.counters(), set, |one| one.finish(None))
    }

    fn add_up<K: Copy + Ord>(
        &self,
        counters: usize,
        set: impl Fn((usize, usize), u32) -> Option<K>,
        finish: impl Fn(Adding) -> Found,
    ) -> BTreeMap<K, Found> {
        let passes = self.profile.passes() as usize;
        let mut rows: BTreeMap<K, Adding> = BTreeMap::new();
        for ((process, thread, export), of) in &self.units {
            let at = (*process, *thread);
            let Some(key) = set(at, *export) else { continue };
            let row = rows.entry(key).or_insert_with(|| Adding::new(counters, passes));
            row.add(at, self.profile.processes[*process].pass, of, &self.tails);
            row.beside_untimed |= self.untimed.contains(&at);
        }
        rows.into_iter().map(|(key, one)| (key, finish(one))).collect()
    }

    pub fn rows(&self, places: &Places<'_>) -> (HashMap<Key, Found>, SampledRun) {
        let profile = self.profile;
        let is_apart = |process: usize, export: u32| {
            let op = profile.ops.of(process, export).and_then(|op| profile.ops.get(op));
            op.is_some_and(|op| op.role.is_apart())
        };
        let mut all = Adding::new(0, 0);
        all.beside_untimed = !self.untimed.is_empty();
        // The time of all calls is computed as the sum of the estimates for the ops, so that these
        // add up to it.
        let mut ops: BTreeMap<_, Pool> = BTreeMap::new();
        for ((process, thread, export), of) in &self.units {
            if !is_apart(*process, *export) {
                let pass = profile.processes[*process].pass;
                let op = profile.ops.of(*process, *export).ok_or((*process, *export));
                all.add((*process, *thread), pass, of, &self.tails);
                let nothing = Strata::default();
                let strata = of.unit.as_ref().map_or(&nothing, |unit| &unit.durations);
                ops.entry(op).or_default().add(strata, of.calls(), &self.tails.durations);
            }
        }
        all.durations = Pool::default();
        for mut op in ops.into_values() {
            op.estimate_undrawn();
            all.durations.join(&op);
        }
        let whole = all.durations.sum().filter(|_| !self.any_nested);
        let whole = whole.as_ref();
        let of_thread =
            |at: (usize, usize), export: u32| (!is_apart(at.0, export)).then(|| places.home(at));
        let threads = self.add_up(0, of_thread, |one| one.of_all().finish(whole));
        let counters = profile.groups.counters();
        // The CPU is known for timed calls only, so there are no estimates by CPU.
        let row = |at: (usize, usize), export: u32| {
            places.row(profile, at, export).filter(|_| places.by() != By::Cpu)
        };
        let mut rows = self.add_up(counters, row, |one| one.finish(whole));
        // The rows are estimated separately from the time of all calls, so their shares may add up
        // to more than 1. If they do, they are scaled down.
        let shares = rows.values().filter_map(|found| found.row.share);
        let sum: f64 = shares.map(|share| share.value).sum();
        if sum > 1.0 {
            let all = rows.values_mut().filter_map(|found| found.row.share.as_mut());
            all.for_each(|share| *share = share.times(1.0 / sum));
        }
        let spent = profile.processes.iter().flat_map(|process| &process.spent);
        let (cpu, price) = spent.fold((0u64, 0u64), |(cpu, price), thread| {
            (cpu.saturating_add(thread.cpu_ns), price.saturating_add(thread.price_ns))
        });
        let run = SampledRun {
            budget: profile.manifest.budget.unwrap_or(1.0),
            price: (cpu > price).then(|| price as f64 / (cpu - price) as f64),
            all: all.of_all().finish(whole).row,
            threads: threads.into_iter().map(|(at, one)| (at, one.row)).collect(),
        };
        (rows.into_iter().collect(), run)
    }
}
