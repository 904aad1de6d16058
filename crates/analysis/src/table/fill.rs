//! Fills the table: finds the row of each call, and adds the call to it.

use std::collections::HashMap;

use model::metric::Bound;
use profile::columns::{cpu_of, node_of};
use profile::{Columns, Profile, Role, Status};

use super::sum::Sum;
use super::{Apart, By, Key, Places};
use crate::amounts::{self, BracketCounts, Brackets, PageBrackets, parts};
use crate::by_export::ByExport;
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::metrics::{self, Sets};
use crate::sampled::Weights;
use crate::walk::{Adder, apart};

#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(super) profile: &'a Profile,
    places: &'a Places<'a>,
    pub(super) metrics: &'a [Bound],
    /// The number of calls that each timed call represents, in a run with a budget.
    weights: Option<&'a Weights>,
    pub(super) sets: Sets,
    passes: usize,
    pub(super) rows: HashMap<Key, usize>,
    pub(super) sums: Vec<Sum>,
    /// Number of all recorded calls. This and the other totals (`all_…`) include calls that the
    /// filter leaves out, because percentages are parts of these totals.
    pub all_calls: u64,
    pub all_dispatches: u64,
    pub all_unplaced: bool,
    /// Whether some ops of the profile do not stand for workgroups of a dispatch, but for example
    /// for ops of virtual machines.
    machines: bool,
    /// The sum of the self times of all calls, in units of 1/[`amounts::PARTS`] tick.
    pub all_own: u128,
    /// The time that was subtracted from `all_own`, in the same unit.
    pub all_own_taken: u128,
    /// Number of calls whose self time is 0 after the recorder's time was subtracted.
    pub all_exhausted: u64,
    /// For each thread, its part of `all_own` and of `all_own_taken`.
    pub of_threads: HashMap<(usize, usize), (u128, u128)>,
    /// Whether some call is inside of another one.
    pub nested: bool,
    /// For each class of brackets (the recorder's work before and after a call), the number of all
    /// calls with such a bracket.
    pub all_in_brackets: BracketCounts,
    /// Numbers of calls that belong to no thread ([`Role::is_apart`]). The totals above leave such
    /// calls out, except `all_exhausted`.
    pub all_apart: Apart,
    /// The rows found so far for the exported functions of the process `cached_process`.
    cache: ByExport,
    cached_process: Option<usize>,
    page_rows: Vec<u32>,
    /// The duration of each call of the page (block of one thread's records) that is being added.
    /// The time that the recorder added is subtracted.
    page_times: Vec<u64>,
    page_runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    row: u32,
    class: Option<u32>,
    from: usize,
    to: usize,
}

impl<'a> Table<'a> {
    pub fn new(
        profile: &'a Profile,
        places: &'a Places<'a>,
        metrics: &'a [Bound],
        weights: Option<&'a Weights>,
    ) -> Self {
        Self {
            profile,
            places,
            metrics,
            weights,
            sets: Sets::new(profile, metrics),
            passes: profile.passes() as usize,
            rows: HashMap::new(),
            sums: Vec::new(),
            all_calls: 0,
            all_dispatches: 0,
            all_unplaced: false,
            machines: profile.ops.all().iter().any(|op| op.role != Role::Workgroup),
            all_own: 0,
            all_own_taken: 0,
            all_exhausted: 0,
            of_threads: HashMap::new(),
            nested: false,
            all_in_brackets: BracketCounts::default(),
            all_apart: Apart::default(),
            cache: ByExport::default(),
            cached_process: None,
            page_rows: Vec::new(),
            page_times: Vec::new(),
            page_runs: Vec::new(),
        }
    }

    fn row(&mut self, key: Key) -> usize {
        let counters = self.profile.groups.counters();
        *self.rows.entry(key).or_insert_with(|| {
            self.sums.push(Sum::new(counters, self.sets.sums(), self.passes));
            self.sums.len() - 1
        })
    }

    /// Returns the row for calls of an exported function on the page's thread. In a table by CPU,
    /// returns a placeholder. `None` if the filter leaves the calls out.
    fn row_of(&mut self, columns: &Columns, export: u32) -> Option<usize> {
        let thread = (columns.process, columns.thread);
        let key = self.places.row(self.profile, thread, export)?;
        // In a table by CPU, calls of one function can have different rows, so `find_rows` finds
        // the row of each call.
        Some(if self.places.by() == By::Cpu { 0 } else { self.row(key) })
    }

    fn find_rows(&mut self, columns: &Columns) {
        if self.cached_process != Some(columns.process) || self.places.needs_thread() {
            self.cache.clear();
            self.cached_process = Some(columns.process);
        }
        let mut rows = std::mem::take(&mut self.page_rows);
        rows.clear();
        let by_cpu = self.places.by() == By::Cpu;
        for (i, export) in columns.export.iter().enumerate() {
            let mut row = self.cache.get(*export).unwrap_or_else(|| {
                let row = self.row_of(columns, *export).map_or(NO_ROW, |row| row as u32);
                self.cache.insert(*export, row);
                row
            });
            if by_cpu && row != NO_ROW {
                let location = columns.location[i];
                row = self.row(Key::Cpu(cpu_of(location), node_of(location))) as u32;
            }
            rows.push(row);
        }
        self.page_rows = rows;
    }

    /// Whether call `i` is not a workgroup of a dispatch, but for example an op of a virtual
    /// machine.
    fn is_of_machine(&self, columns: &Columns, i: usize) -> bool {
        let ops = &self.profile.ops;
        let op = ops.of(columns.process, columns.export[i]).and_then(|op| ops.get(op));
        op.is_some_and(|op| op.role != Role::Workgroup)
    }

    /// Adds `calls` brackets of a class to `all_in_brackets`, unless the calls belong to no thread
    /// (`apart`).
    fn add_class(&mut self, (class, calls): (Option<u32>, u64), apart: Option<Role>) {
        if let Some(class) = class.filter(|_| apart.is_none() && calls > 0) {
            self.all_in_brackets.of(class, self.profile.groups.counters()).calls += calls;
        }
    }

    /// Finds runs of consecutive calls of the page that have the same row and whose brackets have
    /// the same class (see [`amounts`]).
    fn find_runs(&mut self, columns: &Columns, classes: &PageBrackets) {
        self.page_runs.clear();
        for (at, row) in self.page_rows.iter().enumerate() {
            let class = classes.of(columns, at);
            match self.page_runs.last_mut() {
                Some(run) if run.row == *row && run.class == class => run.to = at + 1,
                _ => self.page_runs.push(Run { row: *row, class, from: at, to: at + 1 }),
            }
        }
    }

    fn add_counters(&mut self, columns: &Columns, classes: &PageBrackets) {
        if self.profile.groups.counters() > 0 {
            self.find_runs(columns, classes);
        }
        let counters = self.profile.groups.counters();
        for (group, column) in self.profile.groups.all().iter().zip(&columns.groups) {
            if column.status.len() != self.page_rows.len() {
                continue;
            }
            for counter in group.counters.clone() {
                let values = &columns.values[counter];
                if values.len() != self.page_rows.len() {
                    continue;
                }
                for run in &self.page_runs {
                    let Some(sum) = self.sums.get_mut(run.row as usize) else { continue };
                    let of_run = column.status[run.from..run.to].iter();
                    let there = of_run.zip(&values[run.from..run.to]);
                    let whole = there.filter(|(status, _)| **status == Status::Whole);
                    let (mut calls, mut total) = (0, 0u128);
                    whole.for_each(|(_, value)| {
                        calls += 1;
                        total += u128::from(*value);
                    });
                    sum.counters[counter].total += total;
                    sum.counters[counter].calls += calls;
                    if let Some(class) = run.class.filter(|_| calls > 0) {
                        sum.brackets.of(class, counters).counted[counter] += calls;
                    }
                }
            }
        }
        if columns.estimates {
            self.add_estimates(columns, classes);
        }
    }

    /// Adds the times for which each group of counters was enabled and for which it counted. Also
    /// adds the estimated values of calls in which a group counted for only part of the time.
    fn add_estimates(&mut self, columns: &Columns, classes: &PageBrackets) {
        let counters = self.profile.groups.counters();
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
                        continue; // The value was added before.
                    }
                    if let Some(value) = columns.value(g, counter, i) {
                        counted.count(value);
                        counted.estimated += 1;
                        if let Some(class) = classes.of(columns, i) {
                            sum.brackets.of(class, counters).counted[counter] += 1;
                        }
                    }
                }
            }
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.all_calls += other.all_calls;
        self.all_dispatches += other.all_dispatches;
        self.all_unplaced |= other.all_unplaced;
        self.nested |= other.nested;
        self.all_own += other.all_own;
        self.all_own_taken += other.all_own_taken;
        self.all_exhausted += other.all_exhausted;
        for (thread, (own, taken)) in other.of_threads {
            let sum = self.of_threads.entry(thread).or_default();
            *sum = (sum.0 + own, sum.1 + taken);
        }
        self.all_in_brackets.add(other.all_in_brackets);
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
}

impl Rows for Table<'_> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.find_rows(columns);
        rows.extend_from_slice(&self.page_rows);
    }
}

impl Adder for Table<'_> {
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>) {
        self.find_rows(columns);
        let apart = apart(self.profile, columns);
        if apart.is_some() && !matches!(self.places.by(), By::Op | By::OpInProcess | By::Kind) {
            // Calls that belong to no thread have rows in tables by op and by kind only.
            self.page_rows.fill(NO_ROW);
        }
        let counters = self.profile.groups.counters();
        let classes = brackets.page(columns);
        // The sums of one page fit into 64 bits.
        let (mut own, mut own_taken) = (0u64, 0u64);
        let mut of_class: (Option<u32>, u64) = (None, 0);
        let (mut dispatches, mut unplaced, mut nested) = (0, false, false);
        let [x, y, z] = &columns.workgroup;
        let thread = self.places.home((columns.process, columns.thread));
        let pass = self.profile.processes.get(columns.process).map_or(0, |p| p.pass as usize);
        self.page_times.clear();
        for i in 0..columns.len() {
            let duration = parts(columns.duration(i));
            let class = classes.of(columns, i);
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, class, brackets),
            };
            let time = duration - mark.taken;
            self.page_times.push(time);
            nested |= mark.own != time;
            own = own.saturating_add(mark.own);
            own_taken = own_taken.saturating_add(mark.own_taken);
            self.all_exhausted += u64::from(mark.is_exhausted());
            let machine = self.machines && self.is_of_machine(columns, i);
            let placed = !machine && columns.knows_workgroup(i);
            let first = placed && x[i] | y[i] | z[i] == 0;
            unplaced |= !placed && !machine;
            dispatches += u64::from(first);
            if of_class.0 != class {
                self.add_class(of_class, apart);
                of_class = (class, 0);
            }
            of_class.1 += 1;
            let Some(sum) = self.sums.get_mut(self.page_rows[i] as usize) else { continue };
            sum.dispatches += u64::from(first);
            sum.unplaced |= !placed;
            sum.own += u128::from(mark.own);
            sum.own_taken += u128::from(mark.own_taken);
            sum.exhausted += u64::from(mark.is_exhausted());
            let cpu = cpu_of(columns.location[i]) as usize;
            sum.cpus[cpu / 64] |= 1 << (cpu % 64);
            if sum.last_thread != Some(thread) {
                sum.note_first();
                sum.last_thread = Some(thread);
                sum.first = (u64::MAX, 0);
                sum.threads.insert(thread);
            }
            if columns.start_ticks[i] < sum.first.0 {
                sum.first = (columns.start_ticks[i], time);
            }
            if let Some(pass) = sum.passes.get_mut(pass) {
                pass.dispatches += u64::from(first);
            }
            if mark.inner {
                sum.inner += 1;
                // This call is inside of another call of the row, and that call's values already
                // include it.
                self.page_rows[i] = NO_ROW;
                continue;
            }
            sum.calls += 1;
            sum.total += u128::from(time);
            sum.taken += u128::from(mark.taken);
            if let Some(class) = class {
                sum.brackets.of(class, counters).calls += 1;
            }
            if let Some(pass) = sum.passes.get_mut(pass) {
                pass.calls += 1;
                pass.total_ticks += amounts::ticks(time.into());
            }
            sum.durations.push(time);
            sum.min = sum.min.min(time);
            sum.max = sum.max.max(time);
        }
        self.add_class(of_class, apart);
        if let Some(role) = apart {
            self.all_apart.add(role, columns.len() as u64);
            return;
        }
        self.all_calls += columns.len() as u64;
        self.all_dispatches += dispatches;
        self.all_unplaced |= unplaced;
        self.nested |= nested;
        self.all_own += u128::from(own);
        self.all_own_taken += u128::from(own_taken);
        let of_thread = self.of_threads.entry(thread).or_default();
        *of_thread = (of_thread.0 + u128::from(own), of_thread.1 + u128::from(own_taken));
        self.add_counters(columns, &classes);
        let page = metrics::Page {
            columns,
            rows: &self.page_rows,
            times: &self.page_times,
            brackets: &classes,
            weights: self.weights,
        };
        self.sets.add(&page, &mut self.sums);
    }
}
