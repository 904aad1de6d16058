//! Reads the calls of a sampled run in the order in which each thread recorded them, and adds up
//! what belongs to a row.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Columns, PageDecoder, PageKey, Profile, Status, on_threads};

use super::quantile::Weighted;
use super::tail::Tail;
use super::{Estimated, SampledCounter, SampledRow, SampledRun, Strata};
use crate::amounts::{self, Brackets, PARTS, parts};
use crate::clusters::PageSpan;
use crate::forest::{Marker, Marks, NO_ROW};
use crate::loops::Sum;
use crate::table::{By, Key, PassTotal, Places};
use crate::walk::apart;

/// What is known of a row besides its numbers.
#[derive(Debug)]
pub(crate) struct Found {
    pub row: SampledRow,
    /// Threads that made these calls, as process and thread index.
    pub threads: Vec<(usize, usize)>,
    /// The 50th and the 99th percentile, in ticks.
    pub quantiles: [Option<f64>; 2],
    /// The part of each pass: all calls, and the estimated sum of their durations.
    pub passes: Vec<PassTotal>,
}

/// The calls of one export on one thread.
#[derive(Debug)]
struct Unit {
    durations: Strata,
    /// Sum of the durations of the timed calls.
    seen: f64,
    /// Whether some call is inside of another one of its row, or has one inside. Which of the calls
    /// that were only counted are inside of others is not known.
    inner: bool,
    nested: bool,
    /// Timed calls with at least one counter.
    counted: u64,
    counters: Vec<UnitCounter>,
    weighted: Weighted,
}

/// The values of a counter in these calls.
#[derive(Clone, Debug, Default)]
struct UnitCounter {
    strata: Strata,
    /// Sum of the values.
    seen: f64,
    weighted: Weighted,
}

impl Unit {
    fn new(counters: usize) -> Self {
        Self {
            durations: Strata::default(),
            seen: 0.0,
            inner: false,
            nested: false,
            counted: 0,
            counters: vec![Default::default(); counters],
            weighted: Weighted::default(),
        }
    }

    /// Adds a call that took `time`, in [`amounts::PARTS`] of a tick.
    fn add(&mut self, profile: &Profile, columns: &Columns, i: usize, time: u64) {
        let skipped = columns.drawn(i).skipped;
        self.durations.skip(skipped);
        self.durations.add(columns.weight(i), amounts::ticks(time.into()));
        self.seen += amounts::ticks(time.into());
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
                        of.seen += value as f64;
                        of.weighted.push(value, columns.counter_weight(i));
                    }
                    None => of.strata.skip(1),
                }
            }
        }
        self.counted += u64::from(read);
    }
}

/// A row while units are added to it.
#[derive(Debug)]
struct Adding {
    calls: u64,
    timed: u64,
    counted: u64,
    total: Sum,
    seen: f64,
    /// Calls of units of which nothing was timed.
    unknown: u64,
    /// Whether some calls are inside of others of the row, or have others inside.
    inner: bool,
    nested: bool,
    counters: Vec<AddingCounter>,
    weighted: Weighted,
    threads: Vec<(usize, usize)>,
    /// By pass; empty without passes.
    passes: Vec<PassTotal>,
}

#[derive(Clone, Debug)]
struct AddingCounter {
    total: Sum,
    seen: f64,
    calls: u64,
    counted: u64,
}

impl Adding {
    fn new(counters: usize, passes: usize) -> Self {
        let none = AddingCounter { total: Sum::exact(0.0), seen: 0.0, calls: 0, counted: 0 };
        Self {
            calls: 0,
            timed: 0,
            counted: 0,
            total: Sum::exact(0.0),
            seen: 0.0,
            unknown: 0,
            inner: false,
            nested: false,
            counters: vec![none; counters],
            weighted: Weighted::default(),
            threads: Vec::new(),
            passes: vec![PassTotal::default(); passes],
        }
    }

    /// Adds the calls of an export on a thread: what was recorded of them, and how many there were.
    fn add(
        &mut self,
        thread: (usize, usize),
        pass: u32,
        unit: Option<&Unit>,
        calls: u64,
        tails: &Tails,
    ) {
        let mentioned = unit.map_or(0, |unit| unit.durations.mentioned());
        let calls = calls.max(mentioned);
        self.calls = self.calls.saturating_add(calls);
        if let Some(pass) = self.passes.get_mut(pass as usize) {
            pass.calls = pass.calls.saturating_add(calls);
        }
        if !self.threads.contains(&thread) {
            self.threads.push(thread);
        }
        let total = |unit: &Unit| unit.durations.total_with(calls, &tails.durations);
        let Some((unit, total)) = unit.and_then(|unit| Some((unit, total(unit)?))) else {
            self.unknown = self.unknown.saturating_add(calls);
            return;
        };
        self.total.add(&total);
        if let Some(pass) = self.passes.get_mut(pass as usize) {
            pass.total_ticks += total.value().max(0.0);
        }
        self.timed += unit.durations.known();
        self.counted += unit.counted;
        self.seen += unit.seen;
        self.inner |= unit.inner;
        self.nested |= unit.nested;
        self.weighted.append(unit.weighted.clone());
        let counters = unit.counters.iter().zip(&tails.counters);
        for (all, (of, tail)) in self.counters.iter_mut().zip(counters) {
            let known = of.strata.known();
            // Nothing is known of calls none of which was drawn.
            let tells = known > 0 && (of.strata.any_drawn() || known == calls);
            if let Some(total) = of.strata.total_with(calls, tail).filter(|_| tells) {
                all.total.add(&total);
                all.seen += of.seen;
                all.calls = all.calls.saturating_add(calls);
                all.counted += known;
            }
        }
    }

    /// Of all calls of a thread or a run: each call with another one inside makes the sum unknown.
    fn of_all(mut self) -> Self {
        self.inner |= self.nested;
        self
    }

    fn finish(mut self, all: &Sum, shares: bool) -> Found {
        let counters = self.counters.iter().map(|counter| {
            (counter.counted > 0).then(|| SampledCounter {
                total: Estimated::at_least(&counter.total, counter.seen),
                calls: counter.calls,
                counted: counter.counted,
            })
        });
        // A sum over only some of the calls would be too small.
        let complete = self.calls == self.timed;
        let known = self.unknown == 0 && (complete || !self.inner);
        let share = self.total.part_with(&all.without(&self.total)).filter(|_| known && shares);
        let row = SampledRow {
            calls: Some(self.calls),
            timed: self.timed,
            counted: self.counted,
            total: known.then(|| Estimated::at_least(&self.total, self.seen)),
            self_known: known && (complete || !self.nested),
            share: share.map(|share| Estimated::of(&share)),
            effective: self.weighted.effective(),
            counters: counters.collect(),
        };
        self.threads.sort_unstable();
        let mut quantile = |q: f64| Some(amounts::ticks(self.weighted.quantile(q)?.into()));
        let quantiles = [quantile(0.5), quantile(0.99)];
        Found { row, threads: self.threads, quantiles, passes: self.passes }
    }
}

/// The units of all threads, and the exact numbers of calls.
fn units(profile: &Profile, places: &Places<'_>, workers: usize, brackets: &Brackets) -> Units {
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
                continue; // Its calls are shown with those of its home.
            }
            let of = |(process, thread): (usize, usize)| {
                let pages = profile.processes[process].threads[thread].headers().len();
                (0..pages).map(move |page| PageKey { process, thread, page })
            };
            let others = others.get(home).into_iter().flatten();
            let pages: Vec<PageKey> =
                std::iter::once(home).chain(others).copied().flat_map(of).collect();
            // Calls that belong to no thread have pages of their own, and are in no call.
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
    let mut all = BTreeMap::new();
    for (key, unit) in
        on_threads(workers.clamp(1, threads.len().max(1)), work).into_iter().flatten()
    {
        all.insert(key, (Some(unit), 0));
    }
    for counted in profile.counted() {
        let Some(process) = profile.processes.get(counted.process) else { continue };
        let place = process.threads.iter().position(|t| t.uid == counted.thread_uid);
        let Some(thread) = place else { continue };
        let unit = all.entry((counted.process, thread, counted.export)).or_default();
        unit.1 = counted.calls;
    }
    all
}

/// Rare slow calls: see [`Tail`].
#[derive(Debug)]
struct Tails {
    durations: Tail,
    /// By counter.
    counters: Vec<Tail>,
}

type Units = BTreeMap<(usize, usize, u32), (Option<Unit>, u64)>;

impl Tails {
    /// From the calls of each op, on all threads of all processes.
    fn of(profile: &Profile, units: &Units) -> Self {
        let mut durations: BTreeMap<_, Weighted> = BTreeMap::new();
        let mut counters = vec![durations.clone(); profile.groups.counters()];
        for ((process, _, export), (unit, _)) in units {
            let Some(unit) = unit else { continue };
            // An export whose metadata is missing is an op of its own.
            let op = profile.ops.of(*process, *export).ok_or((*process, *export));
            durations.entry(op).or_default().append(unit.weighted.clone());
            for (all, of) in counters.iter_mut().zip(&unit.counters) {
                all.entry(op).or_default().append(of.weighted.clone());
            }
        }
        let counters = counters.iter_mut().map(|of| Tail::of(of.values_mut())).collect();
        // Durations are in parts of a tick.
        let durations = Tail::of(durations.values_mut()).times(1.0 / PARTS as f64);
        Self { durations, counters }
    }
}

/// Reads a sampled run. Returns what is known of each row, and of the run as a whole.
pub(crate) fn collect(
    profile: &Profile,
    places: &Places<'_>,
    workers: usize,
    brackets: &Brackets,
) -> (HashMap<Key, Found>, SampledRun) {
    let (counters, passes) = (profile.groups.counters(), profile.passes() as usize);
    let units = units(profile, places, workers, brackets);
    let any_nested = units.values().any(|(unit, _)| unit.as_ref().is_some_and(|unit| unit.nested));
    let tails = Tails::of(profile, &units);
    let mut rows: BTreeMap<Key, Adding> = BTreeMap::new();
    let mut threads: BTreeMap<(usize, usize), Adding> = BTreeMap::new();
    let mut all = Adding::new(0, 0);
    for ((process, thread, export), (unit, calls)) in &units {
        let (at, unit) = ((*process, *thread), unit.as_ref());
        let pass = profile.processes[*process].pass;
        let apart = profile.ops.of(*process, *export).and_then(|op| profile.ops.get(op));
        if !apart.is_some_and(|op| op.role.is_apart()) {
            all.add(at, pass, unit, *calls, &tails);
            let home = places.home(at);
            let thread = threads.entry(home).or_insert_with(|| Adding::new(0, 0));
            thread.add(at, pass, unit, *calls, &tails);
        }
        // Where a call was is only known if it was timed.
        if places.by() != By::Cpu
            && let Some(key) = places.row(profile, at, *export)
        {
            let row = rows.entry(key).or_insert_with(|| Adding::new(counters, passes));
            row.add(at, pass, unit, *calls, &tails);
        }
    }
    let whole = all.total;
    let spent = profile.processes.iter().flat_map(|process| &process.spent);
    let (cpu, price) = spent.fold((0u64, 0u64), |(cpu, price), thread| {
        (cpu.saturating_add(thread.cpu_ns), price.saturating_add(thread.price_ns))
    });
    let run = SampledRun {
        budget: profile.manifest.budget.unwrap_or(1.0),
        price: (cpu > price).then(|| price as f64 / (cpu - price) as f64),
        all: all.of_all().finish(&whole, !any_nested).row,
        threads: threads
            .into_iter()
            .map(|(at, one)| (at, one.of_all().finish(&whole, !any_nested).row))
            .collect(),
    };
    (rows.into_iter().map(|(key, one)| (key, one.finish(&whole, !any_nested))).collect(), run)
}
