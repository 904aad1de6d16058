//! The table of a report: calls added up by op, thread, CPU or process.

use std::collections::{BTreeSet, HashMap};

use model::metric::Bound;
use profile::batch::unknown_op;
use profile::columns::{cpu_of, node_of};
use profile::{Columns, OpId, Profile, Role, Status};

use crate::durations::Durations;
use crate::metrics::{self, MetricValue, SetSum, Sets};
use crate::probe::EmptyCall;

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// One exported function; see [`profile::ops`] for when two are the same.
    #[default]
    Op,
    /// One thread.
    Thread,
    /// One CPU.
    Cpu,
    /// One process.
    Process,
}

/// Names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An op of the profile.
    Op(OpId),
    /// An export whose metadata is missing: process index and export id.
    Unknown(usize, u32),
    /// Process index and thread index.
    Thread(usize, usize),
    /// CPU and node.
    Cpu(u32, u32),
    /// Process index.
    Process(usize),
}

/// One row. Durations in ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it stands for.
    pub key: Key,
    /// The first call of each thread among them.
    pub first: FirstCalls,
    /// Workgroup calls.
    pub calls: u64,
    /// Calls whose workgroup id is 0,0,0: one per dispatch. `None` if it is not known of some
    /// call which workgroup it was, and where some is a virtual machine's.
    pub dispatches: Option<u64>,
    /// Sum of the durations.
    pub total_ticks: u128,
    /// The part of the durations that empty calls would have taken, 0 to 1; `None` where that was
    /// not calibrated.
    pub empty_share: Option<f64>,
    /// Sum of the self times: the durations less the time in which a call that began later on the
    /// same thread owned the moment ([`crate::innermost`]).
    pub self_ticks: u128,
    /// Shortest.
    pub min_ticks: u64,
    /// Longest.
    pub max_ticks: u64,
    /// Median, linear between closest ranks.
    pub p50_ticks: f64,
    /// 99th percentile, likewise.
    pub p99_ticks: f64,
    /// For each counter of the run; `None` if no call of this row has a usable value.
    pub counters: Vec<Option<CounterTotal>>,
    /// Each metric that was asked for.
    pub metrics: Vec<MetricValue>,
    /// What each pass that recorded something has of all this; empty in a profile without passes.
    /// A pass that was not run is missing here, not 0.
    pub passes: Vec<PassTotal>,
    /// Threads that made these calls: process index and thread index.
    pub threads: BTreeSet<(usize, usize)>,
    /// CPUs on which they ended.
    pub cpus: BTreeSet<u32>,
}

/// The part of one pass in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassTotal {
    /// Workgroup calls.
    pub calls: u64,
    /// Calls whose workgroup id is known and 0,0,0.
    pub dispatches: u64,
    /// Sum of the durations.
    pub total_ticks: u128,
}

/// A counter over the calls that have a value of it ([`Columns::value`]): in which it was read
/// and counting all the time, or, in a run that asked for estimates, part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterTotal {
    /// Sum of the values, estimates included.
    pub total: u128,
    /// Number of those calls.
    pub calls: u64,
    /// How many of them have an estimate. The fields below are 0 in a run without estimates.
    pub estimated: u64,
    /// Time for which its group was enabled in every call in which it was read, also where it
    /// never counted, ns.
    pub enabled_ns: u128,
    /// Time of that for which it counted, ns.
    pub running_ns: u128,
    /// Those of the calls whose bracket was calibrated.
    pub calibrated: u64,
    /// What empty calls would have read in those.
    pub empty: u128,
    /// What was taken off.
    pub subtracted: bool,
}

impl CounterTotal {
    /// Per call that has a value.
    pub fn mean(&self) -> f64 {
        self.total as f64 / self.calls as f64
    }

    /// The part of the time for which it counted, 0 to 1; `None` without estimates.
    pub fn covered(&self) -> Option<f64> {
        (self.enabled_ns > 0).then(|| self.running_ns as f64 / self.enabled_ns as f64)
    }

    /// The part of what was read that is an empty bracket's, 0 to 1; `None` where that was not
    /// calibrated. Of what is left after `--subtract-probe` it is what was taken off.
    pub fn empty_share(&self) -> Option<f64> {
        let read = if self.subtracted { self.total + self.empty } else { self.total };
        metrics::empty_share(read, self.empty, self.calibrated)
    }

    /// Adds a call's value. `bracket`: what an empty call reads, if that was calibrated.
    fn count(&mut self, value: u64, bracket: Option<u64>, subtract: bool) {
        let empty = bracket.unwrap_or(0);
        self.total += u128::from(if subtract { value.saturating_sub(empty) } else { value });
        self.calls += 1;
        self.calibrated += u64::from(bracket.is_some());
        self.empty += u128::from(empty);
        self.subtracted |= subtract && bracket.is_some();
    }

    fn add(&mut self, other: Self) {
        self.calibrated += other.calibrated;
        self.empty += other.empty;
        self.subtracted |= other.subtracted;
        self.total += other.total;
        self.calls += other.calls;
        self.estimated += other.estimated;
        self.enabled_ns += other.enabled_ns;
        self.running_ns += other.running_ns;
    }
}

impl Row {
    /// Whether every pass made the same number of calls and dispatches. True without passes.
    pub fn passes_agree(&self) -> bool {
        let same =
            |a: &PassTotal, b: &PassTotal| (a.calls, a.dispatches) == (b.calls, b.dispatches);
        self.passes.windows(2).all(|pair| same(&pair[0], &pair[1]))
    }

    /// Mean duration in ticks.
    pub fn mean_ticks(&self) -> f64 {
        self.total_ticks as f64 / self.calls as f64
    }
}

/// How many calls are on no thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// Asynchronous spans.
    pub spans: u64,
    /// What a profiler wrote about its own work.
    pub bookkeeping: u64,
}

impl Apart {
    fn add(&mut self, role: Role, calls: u64) {
        match role {
            Role::Span => self.spans += calls,
            _ => self.bookkeeping += calls,
        }
    }
}

#[derive(Debug)]
struct Sum {
    calls: u64,
    dispatches: u64,
    /// Some call's workgroup is not known.
    unplaced: bool,
    total_ticks: u128,
    calibrated: u64,
    empty_ticks: u128,
    /// What of it calls within these calls own.
    not_own: u128,
    durations: Durations,
    min: u64,
    max: u64,
    counters: Vec<CounterTotal>,
    sets: Vec<SetSum>,
    passes: Vec<PassTotal>,
    threads: BTreeSet<(usize, usize)>,
    last_thread: Option<(usize, usize)>,
    /// Of that thread the begin and the duration of its earliest call.
    first: (u64, u64),
    /// Likewise of each thread, but for what is in `first` alone.
    firsts: HashMap<(usize, usize), (u64, u64)>,
    cpus: [u64; CPU_WORDS],
}

/// CPU numbers have 12 bits.
const CPU_WORDS: usize = 4096 / 64;

/// The first calls of a row, one per thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstCalls {
    /// How many: one for each thread.
    pub calls: u64,
    /// Their durations together.
    pub total_ticks: u128,
    /// The longest of them.
    pub max_ticks: u64,
}

impl Sum {
    /// Notes what is known of the thread that was seen last.
    fn note_first(&mut self) {
        if let (Some(thread), (begin, _)) = (self.last_thread, self.first) {
            let known = self.firsts.entry(thread).or_insert(self.first);
            if begin < known.0 {
                *known = self.first;
            }
        }
    }

    fn new(counters: usize, sets: Vec<SetSum>, passes: usize) -> Self {
        Self {
            calls: 0,
            dispatches: 0,
            unplaced: false,
            total_ticks: 0,
            calibrated: 0,
            empty_ticks: 0,
            not_own: 0,
            durations: Durations::default(),
            min: u64::MAX,
            max: 0,
            counters: vec![CounterTotal::default(); counters],
            sets,
            passes: vec![PassTotal::default(); passes],
            threads: BTreeSet::new(),
            last_thread: None,
            first: (u64::MAX, 0),
            firsts: HashMap::new(),
            cpus: [0; CPU_WORDS],
        }
    }

    fn merge(&mut self, mut other: Self) {
        self.note_first();
        other.note_first();
        self.last_thread = None;
        for (thread, first) in other.firsts {
            let known = self.firsts.entry(thread).or_insert(first);
            *known = (*known).min(first);
        }
        self.calls += other.calls;
        self.dispatches += other.dispatches;
        self.unplaced |= other.unplaced;
        self.total_ticks += other.total_ticks;
        self.calibrated += other.calibrated;
        self.empty_ticks += other.empty_ticks;
        self.not_own += other.not_own;
        self.durations.append(other.durations);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.counters.iter_mut().zip(other.counters).for_each(|(total, more)| total.add(more));
        metrics::merge(&mut self.sets, other.sets);
        for (pass, more) in self.passes.iter_mut().zip(other.passes) {
            pass.calls += more.calls;
            pass.dispatches += more.dispatches;
            pass.total_ticks += more.total_ticks;
        }
        self.threads.append(&mut other.threads);
        self.cpus.iter_mut().zip(other.cpus).for_each(|(a, b)| *a |= b);
    }

    fn finish(mut self, key: Key, table: &Finishing<'_>) -> Row {
        self.note_first();
        let firsts = || self.firsts.values().map(|(_, ticks)| *ticks);
        let first = FirstCalls {
            calls: self.firsts.len() as u64,
            total_ticks: firsts().map(u128::from).sum(),
            max_ticks: firsts().max().unwrap_or(0),
        };
        let subtracted = table.subtract;
        let read = self.total_ticks + if subtracted { self.empty_ticks } else { 0 };
        Row {
            key,
            first,
            empty_share: metrics::empty_share(read, self.empty_ticks, self.calibrated),
            metrics: table.sets.values(table.profile, table.metrics, &self.sets, subtracted),
            calls: self.calls,
            dispatches: (!self.unplaced).then_some(self.dispatches),
            total_ticks: self.total_ticks,
            self_ticks: self.total_ticks.saturating_sub(self.not_own),
            min_ticks: self.min,
            max_ticks: self.max,
            p50_ticks: self.durations.quantile(0.5).unwrap_or(0.0),
            p99_ticks: self.durations.quantile(0.99).unwrap_or(0.0),
            counters: self
                .counters
                .iter()
                .map(|total| (total.calls > 0).then_some(*total))
                .collect(),
            passes: self.passes,
            threads: self.threads,
            cpus: (0..4096)
                .filter(|cpu| self.cpus[cpu / 64] >> (cpu % 64) & 1 == 1)
                .map(|cpu| cpu as u32)
                .collect(),
        }
    }
}

impl AsMut<[SetSum]> for Sum {
    fn as_mut(&mut self) -> &mut [SetSum] {
        &mut self.sets
    }
}

/// What finishing rows has to know.
struct Finishing<'a> {
    profile: &'a Profile,
    sets: &'a Sets,
    metrics: &'a [Bound],
    subtract: bool,
}

/// The table in the making, of one worker.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    profile: &'a Profile,
    by: By,
    /// For each op whether the filter wants it; `None`: all.
    wanted: Option<&'a [bool]>,
    /// The filter itself, for calls whose op's name is lost.
    filter: Option<&'a str>,
    metrics: &'a [Bound],
    /// Whether what an empty call reads is taken off each call.
    subtract: bool,
    sets: Sets,
    passes: usize,
    rows: HashMap<Key, usize>,
    sums: Vec<Sum>,
    /// Everything recorded, whatever the filter says: what shares are shares of.
    pub all_calls: u64,
    pub all_dispatches: u64,
    pub all_unplaced: bool,
    /// Some ops are what virtual machines call.
    machines: bool,
    pub all_ticks: u128,
    /// What of that is nobody's self time.
    pub all_not_own: u128,
    /// Calls on no thread ([`Role::is_apart`]), which the above leave out.
    pub all_apart: Apart,
    /// Row of each export of the process that was seen last.
    cache: HashMap<u32, Option<usize>>,
    cached_process: Option<usize>,
    /// Row of each call of the page.
    page_rows: Vec<u32>,
}

const SKIPPED: u32 = u32::MAX;

impl<'a> Table<'a> {
    pub fn new(
        profile: &'a Profile,
        by: By,
        wanted: Option<&'a [bool]>,
        filter: Option<&'a str>,
        metrics: &'a [Bound],
        subtract: bool,
    ) -> Self {
        Self {
            profile,
            by,
            wanted,
            filter,
            metrics,
            subtract,
            sets: Sets::new(profile, metrics),
            passes: profile.passes() as usize,
            rows: HashMap::new(),
            sums: Vec::new(),
            all_calls: 0,
            all_dispatches: 0,
            all_unplaced: false,
            machines: profile.ops.all().iter().any(|op| op.role != Role::Workgroup),
            all_ticks: 0,
            all_not_own: 0,
            all_apart: Apart::default(),
            cache: HashMap::new(),
            cached_process: None,
            page_rows: Vec::new(),
        }
    }

    fn row(&mut self, key: Key) -> usize {
        let counters = self.profile.groups.counters();
        *self.rows.entry(key).or_insert_with(|| {
            self.sums.push(Sum::new(counters, self.sets.sums(), self.passes));
            self.sums.len() - 1
        })
    }

    /// The row of a call, except for its CPU; `None` if the filter does not want it.
    fn row_of(&mut self, columns: &Columns, export: u32) -> Option<usize> {
        let op = self.profile.ops.of(columns.process, export);
        let wanted = match op {
            Some(op) => self.wanted.is_none_or(|w| w.get(op as usize) == Some(&true)),
            None => self.filter.is_none_or(|f| model::glob::matches(f, &unknown_op(export))),
        };
        if !wanted {
            return None;
        }
        let key = match (self.by, op) {
            (By::Op, Some(op)) => Key::Op(op),
            (By::Op, None) => Key::Unknown(columns.process, export),
            (By::Thread, _) => Key::Thread(columns.process, columns.thread),
            (By::Process, _) => Key::Process(columns.process),
            // The real row is found per call; this one only says that it is wanted.
            (By::Cpu, _) => return Some(0),
        };
        Some(self.row(key))
    }

    fn find_rows(&mut self, columns: &Columns) {
        if self.cached_process != Some(columns.process) || self.by == By::Thread {
            self.cache.clear();
            self.cached_process = Some(columns.process);
        }
        let mut rows = std::mem::take(&mut self.page_rows);
        rows.clear();
        let mut last: Option<(u32, Option<usize>)> = None;
        for (i, export) in columns.export.iter().enumerate() {
            let row = match last {
                Some((known, row)) if known == *export => row,
                _ => match self.cache.get(export) {
                    Some(row) => *row,
                    None => {
                        let row = self.row_of(columns, *export);
                        self.cache.insert(*export, row);
                        row
                    }
                },
            };
            last = Some((*export, row));
            let row = match row {
                Some(_) if self.by == By::Cpu => {
                    let location = columns.location[i];
                    Some(self.row(Key::Cpu(cpu_of(location), node_of(location))))
                }
                other => other,
            };
            rows.push(row.map_or(SKIPPED, |row| row as u32));
        }
        self.page_rows = rows;
    }

    /// For each call of a page a number that [`Table::not_own`] takes.
    pub fn rows_of(&mut self, columns: &Columns) -> &[u32] {
        self.find_rows(columns);
        &self.page_rows
    }

    /// Of a call with this number, so much is the self time of others.
    pub fn not_own(&mut self, row: u32, ticks: u64) {
        self.all_not_own += u128::from(ticks);
        if let Some(sum) = self.sums.get_mut(row as usize) {
            sum.not_own += u128::from(ticks);
        }
    }

    /// Whether call `i` is a virtual machine's, which belongs to no dispatch.
    fn is_of_machine(&self, columns: &Columns, i: usize) -> bool {
        let ops = &self.profile.ops;
        let op = ops.of(columns.process, columns.export[i]).and_then(|op| ops.get(op));
        op.is_some_and(|op| op.role != Role::Workgroup)
    }

    /// The role of a page's calls, if they are on no thread. Such calls have pages of their own.
    pub fn apart(&self, columns: &Columns) -> Option<Role> {
        if !self.machines {
            return None;
        }
        let op = self.profile.ops.of(columns.process, *columns.export.first()?)?;
        self.profile.ops.get(op).map(|op| op.role).filter(|role| role.is_apart())
    }

    /// Adds the calls of one page. `empty`: what an empty call reads.
    pub fn add(&mut self, columns: &Columns, empty: Option<&EmptyCall>) {
        self.find_rows(columns);
        let apart = self.apart(columns);
        if apart.is_some() && self.by != By::Op {
            // They are on no thread and no CPU.
            self.page_rows.fill(SKIPPED);
        }
        let empty_ticks = empty.map_or(0, |e| e.ticks);
        let inside = if self.subtract { empty_ticks } else { 0 };
        let calibrated = u64::from(empty.is_some());
        let (mut ticks, mut dispatches, mut unplaced) = (0u128, 0, false);
        let [x, y, z] = &columns.workgroup;
        let thread = (columns.process, columns.thread);
        let pass = self.profile.processes.get(columns.process).map_or(0, |p| p.pass as usize);
        for (i, row) in self.page_rows.iter().enumerate() {
            let duration = columns.duration(i).saturating_sub(inside);
            let machine = self.machines && self.is_of_machine(columns, i);
            let placed = !machine && columns.knows_workgroup(i);
            let first = placed && x[i] | y[i] | z[i] == 0;
            unplaced |= !placed && !machine;
            ticks += u128::from(duration);
            dispatches += u64::from(first);
            let Some(sum) = self.sums.get_mut(*row as usize) else { continue };
            sum.calls += 1;
            sum.dispatches += u64::from(first);
            sum.unplaced |= !placed;
            sum.total_ticks += u128::from(duration);
            sum.calibrated += calibrated;
            sum.empty_ticks += u128::from(empty_ticks);
            if let Some(pass) = sum.passes.get_mut(pass) {
                pass.calls += 1;
                pass.dispatches += u64::from(first);
                pass.total_ticks += u128::from(duration);
            }
            sum.durations.push(duration);
            sum.min = sum.min.min(duration);
            sum.max = sum.max.max(duration);
            let cpu = cpu_of(columns.location[i]) as usize;
            sum.cpus[cpu / 64] |= 1 << (cpu % 64);
            if sum.last_thread != Some(thread) {
                sum.note_first();
                sum.last_thread = Some(thread);
                sum.first = (u64::MAX, 0);
                sum.threads.insert(thread);
            }
            if columns.start_ticks[i] < sum.first.0 {
                sum.first = (columns.start_ticks[i], duration);
            }
        }
        if let Some(role) = apart {
            self.all_apart.add(role, columns.len() as u64);
            return;
        }
        self.all_calls += columns.len() as u64;
        self.all_dispatches += dispatches;
        self.all_unplaced |= unplaced;
        self.all_ticks += ticks;
        self.add_counters(columns, empty);
        self.sets.add(columns, &self.page_rows, empty, self.subtract, &mut self.sums);
    }

    fn add_counters(&mut self, columns: &Columns, empty: Option<&EmptyCall>) {
        for (group, column) in self.profile.groups.all().iter().zip(&columns.groups) {
            if column.status.len() != self.page_rows.len() {
                continue;
            }
            for counter in group.counters.clone() {
                let bracket = empty.and_then(|e| e.values.get(counter).copied().flatten());
                let values = columns.values[counter].iter();
                for ((row, status), value) in self.page_rows.iter().zip(&column.status).zip(values)
                {
                    if *status != Status::Whole {
                        continue;
                    }
                    if let Some(sum) = self.sums.get_mut(*row as usize) {
                        sum.counters[counter].count(*value, bracket, self.subtract);
                    }
                }
            }
        }
        if columns.estimates {
            self.add_estimates(columns, empty);
        }
    }

    /// Adds the calls whose counters took turns, and for how long each group counted.
    fn add_estimates(&mut self, columns: &Columns, empty: Option<&EmptyCall>) {
        let groups = self.profile.groups.all();
        for (g, (group, times)) in groups.iter().zip(&columns.groups).enumerate() {
            for (i, row) in self.page_rows.iter().enumerate() {
                let Some(sum) = self.sums.get_mut(*row as usize) else { continue };
                let Some(status) = times.status.get(i).filter(|s| **s != Status::NotRead) else {
                    continue;
                };
                for counter in group.counters.clone() {
                    let counted = &mut sum.counters[counter];
                    counted.enabled_ns += u128::from(times.enabled_ns[i]);
                    counted.running_ns += u128::from(times.running_ns[i]);
                    if *status == Status::Whole {
                        continue; // Added already.
                    }
                    if let Some(value) = columns.value(g, counter, i) {
                        let bracket = empty.and_then(|e| e.values.get(counter).copied().flatten());
                        counted.count(value, bracket, self.subtract);
                        counted.estimated += 1;
                    }
                }
            }
        }
    }

    /// Adds what another worker found.
    pub fn merge(&mut self, other: Self) {
        self.all_calls += other.all_calls;
        self.all_dispatches += other.all_dispatches;
        self.all_unplaced |= other.all_unplaced;
        self.all_ticks += other.all_ticks;
        self.all_not_own += other.all_not_own;
        self.all_apart.spans += other.all_apart.spans;
        self.all_apart.bookkeeping += other.all_apart.bookkeeping;
        let mut sums: Vec<Option<Sum>> = other.sums.into_iter().map(Some).collect();
        for (key, place) in other.rows {
            let row = self.row(key);
            if let Some(sum) = sums[place].take() {
                self.sums[row].merge(sum);
            }
        }
    }

    /// The rows that have calls, in no order, and what is true of all calls.
    pub fn finish(self, workers: usize) -> Vec<Row> {
        let mut sums: Vec<Option<Sum>> = self.sums.into_iter().map(Some).collect();
        let mut work: Vec<(Key, Sum)> = self
            .rows
            .into_iter()
            .filter_map(|(key, place)| Some((key, sums[place].take()?)))
            .filter(|(_, sum)| sum.calls > 0)
            .collect();
        // The quantiles take time; the biggest rows are dealt out first.
        work.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.calls), *key));
        let mut hands: Vec<Vec<(Key, Sum)>> = (0..workers.max(1)).map(|_| Vec::new()).collect();
        for one in work {
            let calls = |hand: &Vec<(Key, Sum)>| hand.iter().map(|(_, s)| s.calls).sum::<u64>();
            if let Some(hand) = hands.iter_mut().min_by_key(|hand| calls(hand)) {
                hand.push(one);
            }
        }
        let (profile, metrics, subtract) = (self.profile, self.metrics, self.subtract);
        let table = Finishing { profile, sets: &self.sets, metrics, subtract };
        let finish = |hand: Vec<(Key, Sum)>| -> Vec<Row> {
            hand.into_iter().map(|(key, sum)| sum.finish(key, &table)).collect()
        };
        std::thread::scope(|scope| {
            let handles: Vec<_> =
                hands.into_iter().map(|hand| scope.spawn(move || finish(hand))).collect();
            handles
                .into_iter()
                .flat_map(|handle| match handle.join() {
                    Ok(rows) => rows,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    }
}
