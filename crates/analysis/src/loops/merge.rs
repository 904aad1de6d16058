//! Adds up the counts of all threads and all registrations of one module. A module registers itself
//! each time it is loaded.

use std::collections::{BTreeMap, HashMap};

use ir::table::SideTable;
use profile::loops::{LoopModule, LoopRow};

use super::estimate::{NoTime, Overhead, total};
use super::log::Logged;
use super::numbers::{Cell, CounterSum, Numbers, of_scope};
use super::tree::{choose_for, order, scheduled};
use super::trips::TripSum;
use super::{LoopData, LoopNode, LoopThread, LoopTree, Mode};
use crate::interval::Sum;

pub(super) struct Group {
    id: [u8; 16],
    mode: Mode,
    registrations: Vec<usize>,
}

/// Groups registrations by the module's identity and mode. The groups are in the order of their
/// first registrations.
pub(super) fn groups(modules: &[LoopModule]) -> Vec<Group> {
    let mut places: HashMap<([u8; 16], u32), usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        let place = *places.entry((module.id, module.mode)).or_insert(groups.len());
        if place == groups.len() {
            let mode = Mode::from_number(module.mode);
            groups.push(Group { id: module.id, mode, registrations: Vec::new() });
        }
        groups[place].registrations.push(index);
    }
    groups
}

pub(super) fn by_module<'a>(data: &LoopData<'a>) -> Vec<Vec<&'a LoopRow>> {
    let mut rows = vec![Vec::new(); data.modules.len()];
    for row in data.rows {
        if let Some(of_module) = rows.get_mut(row.module) {
            of_module.push(row);
        }
    }
    rows
}

pub(super) fn tree(
    data: &LoopData<'_>,
    rows: &[Vec<&LoopRow>],
    logged: &Logged,
    group: Group,
    files: &[SideTable],
) -> LoopTree {
    let modules = || group.registrations.iter().map(|index| &data.modules[*index]);
    let ids = modules().map(|module| module.ids).max().unwrap_or(0);
    let (table, choice) = choose_for(&group.id, ids, modules(), files);
    let parents: Option<Vec<Option<u32>>> =
        table.as_ref().map(|table| table.entries.iter().map(|entry| entry.parent).collect());
    let mut sums = Sums::new(group.mode, ids, data.counters);
    for index in &group.registrations {
        let module = &data.modules[*index];
        for row in &rows[*index] {
            sums.add(module, row, logged);
        }
    }
    let all = of_scope(sums.all, parents.as_deref(), group.mode);
    let threads: Vec<LoopThread> = sums.threads.keys().copied().collect();
    let mut of_threads: HashMap<u32, Vec<(usize, Numbers)>> = HashMap::new();
    for (thread, cells) in sums.threads.into_values().enumerate() {
        for (id, numbers) in of_scope(cells, parents.as_deref(), group.mode) {
            of_threads.entry(id).or_default().push((thread, numbers));
        }
    }
    LoopTree {
        id: group.id,
        mode: group.mode,
        ids,
        ticks_per_second: modules()
            .map(|module| module.ticks_per_second)
            .find(|rate| rate.is_finite() && *rate > 0.0),
        nodes: nodes(all, of_threads, parents.as_deref()),
        threads,
        beyond: sums.beyond,
        damaged: sums.damaged,
        uncalibrated: modules().filter(|module| module.cost.is_none()).count(),
        registrations: group.registrations,
        scheduled: table.as_ref().map(scheduled).unwrap_or_default(),
        table,
        choice,
    }
}

fn nodes(
    mut all: BTreeMap<u32, Numbers>,
    mut of_threads: HashMap<u32, Vec<(usize, Numbers)>>,
    parents: Option<&[Option<u32>]>,
) -> Vec<LoopNode> {
    let ids: Vec<u32> = match parents {
        Some(parents) => (0..parents.len() as u32).collect(),
        None => all.keys().copied().collect(),
    };
    let ordered = order(&ids, parents.unwrap_or_default());
    let mut places: HashMap<u32, usize> = HashMap::with_capacity(ordered.len());
    let mut nodes = Vec::with_capacity(ordered.len());
    for (id, level) in ordered {
        places.insert(id, nodes.len());
        let around = parents.and_then(|all| *all.get(id as usize)?);
        let threads = of_threads.remove(&id).unwrap_or_default();
        let times = threads.iter().map(|(_, n)| n.times(false).map(|t| t.inclusive.value));
        nodes.push(LoopNode {
            id,
            parent: around.and_then(|around| places.get(&around).copied()),
            level,
            all: all.remove(&id).unwrap_or_default(),
            imbalance: times.collect::<Option<Vec<f64>>>().and_then(|all| imbalance(&all)),
            hit_imbalance: imbalance(
                &threads.iter().map(|(_, n)| n.hits as f64).collect::<Vec<f64>>(),
            ),
            threads,
        });
    }
    nodes
}

/// Returns the largest value divided by the mean. Returns `None` for fewer than two values, or if
/// the mean is not above 0.
fn imbalance(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    (mean > 0.0).then(|| most / mean)
}

struct Sums<'a> {
    mode: Mode,
    ids: u32,
    counters: &'a [Vec<usize>],
    all: BTreeMap<u32, Cell>,
    threads: BTreeMap<LoopThread, BTreeMap<u32, Cell>>,
    beyond: u64,
    damaged: u64,
}

impl<'a> Sums<'a> {
    fn new(mode: Mode, ids: u32, counters: &'a [Vec<usize>]) -> Self {
        let (all, threads) = (BTreeMap::new(), BTreeMap::new());
        Self { mode, ids, counters, all, threads, beyond: 0, damaged: 0 }
    }

    fn add(&mut self, module: &LoopModule, row: &LoopRow, logged: &Logged) {
        if row.id >= self.ids {
            self.beyond += 1;
            return;
        }
        // In mode log, a row itself contains no times.
        let filled = match self.mode {
            Mode::Log => logged.row(row),
            _ => row.clone(),
        };
        let cell = self.cell(module, &filled);
        let thread = LoopThread { process: module.process, tid: row.tid };
        if filled.hits > 0 || filled.begun > 0 {
            let of_thread = self.threads.entry(thread).or_default();
            of_thread.entry(row.id).or_insert_with(Cell::empty).add(&cell);
        }
        self.all.entry(row.id).or_insert_with(Cell::empty).add(&cell);
    }

    /// Returns the sums of a row's counters. Element `i` is the sum of the profile's counter `i`;
    /// it is `None` or absent if the row has no value of this counter.
    fn counters_of(&self, module: &LoopModule, row: &LoopRow) -> Vec<Option<CounterSum>> {
        let mut sums = Vec::new();
        let places = self.counters.get(module.process).map_or(&[][..], Vec::as_slice);
        if row.counted == 0 || places.len() != row.counters.len() {
            return sums;
        }
        for (place, total) in places.iter().zip(&row.counters) {
            sums.resize(sums.len().max(place + 1), None);
            let (total, hits) = (u128::from(*total), u128::from(row.counted));
            sums[*place] = Some(CounterSum { total, hits });
        }
        sums
    }

    fn cell(&mut self, module: &LoopModule, row: &LoopRow) -> Cell {
        let time = total(row, self.mode);
        self.damaged += u64::from(time == Err(NoTime::Damaged));
        let ended = time.map_or(0.0, |total| total.ended);
        let cost = module.cost.filter(|cost| {
            [cost.inside, cost.timed, cost.counted, cost.reading]
                .iter()
                .all(|ticks| ticks.is_finite())
        });
        let (timed, counted) = (row.begun as f64, row.hits.saturating_sub(row.begun) as f64);
        let numbers = Numbers {
            hits: row.hits.into(),
            begun: row.begun.into(),
            ended: row.ended.into(),
            ticks: row.ticks.into(),
            child_ticks: (self.mode == Mode::Timed).then_some(row.child_ticks.into()),
            iterations: (row.iterated > 0).then_some(row.iterations.into()),
            iterated: row.iterated.into(),
            counters: self.counters_of(module, row),
            ..Numbers::default()
        };
        Cell {
            numbers,
            trips: TripSum::of(row, self.mode),
            time: time.ok().map(|total| total.time),
            ended,
            own: cost.map_or_else(Overhead::default, |cost| Overhead::of_own(&cost, ended)),
            inner: cost.map_or_else(Overhead::default, |cost| {
                Overhead::of_inner(&cost, timed, counted, row.counted as f64)
            }),
            cost_known: cost.is_some(),
            probe: cost.map_or(0.0, |cost| cost.timed),
            squares: row.squares,
        }
    }
}

impl Cell {
    fn empty() -> Self {
        Self { time: Some(Sum::default()), cost_known: true, ..Self::default() }
    }

    fn add(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.numbers, &other.numbers);
        mine.hits += theirs.hits;
        mine.begun += theirs.begun;
        mine.ended += theirs.ended;
        mine.ticks += theirs.ticks;
        mine.child_ticks = match (mine.child_ticks, theirs.child_ticks) {
            (None, other) => other,
            (Some(mine), other) => Some(mine + other.unwrap_or(0)),
        };
        mine.iterations = match (mine.iterations, theirs.iterations) {
            (None, other) => other,
            (Some(mine), other) => Some(mine + other.unwrap_or(0)),
        };
        mine.iterated += theirs.iterated;
        if mine.counters.len() < theirs.counters.len() {
            mine.counters.resize(theirs.counters.len(), None);
        }
        for (mine, theirs) in mine.counters.iter_mut().zip(&theirs.counters) {
            if let Some(CounterSum { total, hits }) = theirs {
                let sum = mine.get_or_insert_default();
                sum.total += total;
                sum.hits += hits;
            }
        }
        self.trips.add(&other.trips);
        self.time = match (self.time, other.time) {
            (Some(mut sum), Some(time)) => {
                sum.add(&time);
                Some(sum)
            }
            _ => None,
        };
        self.squares = self.squares.saturating_add(other.squares);
        self.ended += other.ended;
        self.own = self.own.plus(&other.own);
        self.inner = self.inner.plus(&other.inner);
        self.cost_known &= other.cost_known;
        self.probe = self.probe.max(other.probe);
    }
}
