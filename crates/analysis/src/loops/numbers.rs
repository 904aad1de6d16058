//! The numbers of each row of a tree: inclusive time, self time, mean and share.
//!
//! They are computed for all threads together and for each thread, from the innermost loops outwards:
//! what the hits of a loop add to what is around them, and what its direct children took, are known
//! before its own self time is. `estimate` has the formulas.

use std::collections::{BTreeMap, HashMap};

use super::Mode;
use super::estimate::{Estimate, Overhead, SAMPLED_ONLY, Sum, spread};

/// What was counted and timed for a function or a loop. Times are in ticks.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Times entered.
    pub hits: u128,
    /// Timed hits that began. In mode log, those whose begin was written down.
    pub begun: u128,
    /// Timed hits that ended.
    pub ended: u128,
    /// The measured time of these, as it was measured.
    pub ticks: u128,
    /// The part of `ticks` that was spent in loops directly inside. Mode timed only.
    pub child_ticks: Option<u128>,
    /// The standard deviation of the times of these hits; missing for fewer than two.
    pub deviation: Option<f64>,
    /// Iterations of the hits in `iterated`; missing where these are none.
    pub iterations: Option<u128>,
    /// Hits whose iterations are known.
    pub iterated: u128,
    /// What the profile's counters added in timed hits. A counter that was not read, or is beyond the
    /// end, has none.
    pub counters: Vec<Option<CounterSum>>,
    /// Times as they were measured, for all hits. Missing in mode count.
    pub raw: Option<Times>,
    /// Times without what measuring has added. Missing where the cost of a hit is not known.
    pub compensated: Option<Times>,
    /// The mean hit takes less than ten times what timing it costs: its times are only good as
    /// samples, and self times around it are doubtful.
    pub sampled_only: bool,
}

impl Numbers {
    /// What a counter of the profile added.
    pub fn counter(&self, index: usize) -> Option<CounterSum> {
        *self.counters.get(index)?
    }

    /// Timed hits that began and did not end.
    pub fn unended(&self) -> u128 {
        self.begun.saturating_sub(self.ended)
    }

    /// Compensated times where there are some, unless raw ones are asked for.
    pub fn times(&self, raw: bool) -> Option<&Times> {
        self.compensated.as_ref().filter(|_| !raw).or(self.raw.as_ref())
    }
}

/// What a counter added in the hits for which it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSum {
    /// The sum.
    pub total: u128,
    /// How many hits these were; at least 1.
    pub hits: u128,
}

impl CounterSum {
    /// Its mean.
    pub fn per_hit(&self) -> f64 {
        self.total as f64 / self.hits as f64
    }
}

/// The times of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// From begin to end, with everything inside.
    pub inclusive: Estimate,
    /// Without the instrumented loops directly inside. May be negative. Missing without a side
    /// table, and where the time of a loop inside is missing.
    pub own: Option<Estimate>,
    /// Of a hit that ended. Missing if none did.
    pub mean: Option<Estimate>,
    /// The part of the inclusive time of what is around it. Missing at the top, and where that
    /// is not above 0.
    pub share: Option<Estimate>,
}

/// What rows add up to, before anything is computed from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub numbers: Numbers,
    /// The squares of the times in `numbers.ticks`.
    pub squares: u128,
    /// Their time, with their doubts; `None` if that of one is missing.
    pub time: Option<Sum>,
    /// How many hits ended.
    pub ended: f64,
    /// What the hits measured although nothing was inside.
    pub own: Overhead,
    /// What the hits add to what is around them.
    pub inner: Overhead,
    /// Whether the cost of all hits is known.
    pub cost_known: bool,
    /// The cost of timing one hit, in ticks; the largest of the registrations.
    pub probe: f64,
}

/// What the loops inside of a loop come to.
#[derive(Clone, Copy, Default)]
struct Inside {
    /// What all hits beneath it add to it.
    added: Overhead,
    /// What is subtracted from its direct children.
    subtracted: Overhead,
    /// The time of its direct children.
    time: Sum,
    time_missing: bool,
    cost_missing: bool,
}

/// Computes the numbers of all rows that are there. `parents`: what is around each id; `None`
/// without a side table.
pub(super) fn of_scope(
    mut cells: BTreeMap<u32, Cell>,
    parents: Option<&[Option<u32>]>,
    mode: Mode,
) -> BTreeMap<u32, Numbers> {
    let mut inside: HashMap<u32, Inside> = HashMap::new();
    let parent_of = |id: u32| parents.and_then(|all| *all.get(id as usize)?);
    let ids: Vec<u32> = cells.keys().rev().copied().collect();
    for id in ids {
        // A thread may lack what is around a loop: then the loop belongs to what is around that.
        let mut around = parent_of(id);
        while let Some(next) = around.filter(|next| !cells.contains_key(next)) {
            around = parent_of(next);
        }
        let of_children = inside.remove(&id).unwrap_or_default();
        let Some(cell) = cells.get_mut(&id) else { continue };
        let overhead = cell.own.plus(&of_children.added);
        fill(cell, &of_children, &overhead, parents.is_some(), mode);
        if let Some(around) = around {
            let around = inside.entry(around).or_default();
            around.added = around.added.plus(&cell.inner).plus(&of_children.added);
            around.subtracted = around.subtracted.plus(&overhead);
            around.cost_missing |= of_children.cost_missing || !cell.cost_known;
            match &cell.time {
                Some(time) => around.time.add(time),
                None => around.time_missing = true,
            }
        }
    }
    let mut all: BTreeMap<u32, Numbers> =
        cells.into_iter().map(|(id, cell)| (id, cell.numbers)).collect();
    shares(&mut all, parent_of);
    all
}

fn fill(cell: &mut Cell, inside: &Inside, overhead: &Overhead, tree: bool, mode: Mode) {
    let numbers = &mut cell.numbers;
    numbers.deviation = spread(numbers.ended, numbers.ticks, cell.squares).map(f64::sqrt);
    let Some(time) = cell.time else { return };
    let own = match numbers.child_ticks {
        _ if !tree => None,
        // Exactly: what was measured inside the same hits.
        Some(children) if mode == Mode::Timed => {
            Some(Sum::exact(numbers.ticks as f64 - children as f64))
        }
        _ if inside.time_missing => None,
        _ => {
            let mut own = time;
            own.subtract(&inside.time);
            Some(own)
        }
    };
    let mean = |inclusive: Estimate| (cell.ended > 0.0).then(|| inclusive.scaled(1.0 / cell.ended));
    let inclusive = time.estimate();
    numbers.raw = Some(Times {
        inclusive,
        own: own.map(|own| own.estimate()),
        mean: mean(inclusive),
        share: None,
    });
    numbers.sampled_only =
        cell.probe > 0.0 && mean(inclusive).is_some_and(|m| m.value < SAMPLED_ONLY * cell.probe);
    if !cell.cost_known || inside.cost_missing {
        return;
    }
    let inclusive = time.compensated(overhead);
    let of_own = overhead.minus(&inside.subtracted);
    numbers.compensated = Some(Times {
        inclusive,
        own: own.map(|own| own.compensated(&of_own)),
        mean: mean(inclusive),
        share: None,
    });
}

/// Puts each row into relation with what is around it.
fn shares(all: &mut BTreeMap<u32, Numbers>, parent_of: impl Fn(u32) -> Option<u32>) {
    let inclusive: HashMap<u32, [Option<Estimate>; 2]> = all
        .iter()
        .map(|(id, n)| (*id, [&n.raw, &n.compensated].map(|t| t.map(|t| t.inclusive))))
        .collect();
    for (id, numbers) in all {
        let Some(around) = parent_of(*id).and_then(|parent| inclusive.get(&parent)) else {
            continue;
        };
        for (times, whole) in [&mut numbers.raw, &mut numbers.compensated].into_iter().zip(around) {
            if let Some((times, whole)) = times.as_mut().zip(*whole) {
                times.share = times.inclusive.share_of(whole);
            }
        }
    }
}
