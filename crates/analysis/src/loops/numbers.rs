//! Computes the numbers of each row of a tree: inclusive time, self time, mean and share.
//!
//! The numbers are computed for all threads together and for each thread, from the innermost loops
//! outwards: the self time of a loop needs the inclusive times of the loops inside. `estimate` has
//! the formulas.
//!
//! **Slow hits that no sample contains.** In mode sampled, random hits are timed. If none of the
//! slow hits is timed, nothing shows how long they took. So a row has an interval only if slow hits
//! that were not timed cannot make the interval wrong. There are two such cases:
//!
//! - Every hit was timed.
//! - The loop or function around the row leaves no room for slow hits. The row's hits lie inside
//!   that loop or function, so their time can exceed the estimate only by the self time around
//!   them. This self time, plus the margin of the inclusive time of that loop or function, is the
//!   *room*. If the room is not longer than the estimate, the row's margin is at least as long as
//!   the room. In any case, the interval of the self time around the row includes 0.
//!
//! So a function with nothing instrumented around it has an interval only if all hits were timed.

mod fit;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ir::table::Entry;

use super::Mode;
use super::estimate::{Estimate, Overhead, SAMPLED_ONLY, spread};
use super::trips::{TripSum, Trips};
use crate::interval::Sum;

/// The counts and times of a function or a loop. Times are in ticks.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Number of times that the function or loop was entered.
    pub hits: u128,
    /// Number of timed hits that began. In mode log, number of hits whose start was recorded.
    pub begun: u128,
    /// Number of timed hits that ended.
    pub ended: u128,
    /// The measured time of the hits in `ended`, without any correction.
    pub ticks: u128,
    /// The part of `ticks` that was spent in loops directly inside. Known in mode timed.
    pub child_ticks: Option<u128>,
    /// The standard deviation of the times of the hits in `ended`. Missing for fewer than two hits.
    pub deviation: Option<f64>,
    /// The sum of the iterations of the hits that `iterated` counts. Missing if there are no such
    /// hits.
    pub iterations: Option<u128>,
    /// Number of hits whose iterations are known.
    pub iterated: u128,
    /// The sum of the iterations of all hits; an estimate if not all were counted. Missing if there
    /// is no estimate (see [`super::trips`]), or if no hit was counted.
    pub estimated_iterations: Option<f64>,
    /// The numbers of iterations of single hits, for the hits in `iterated`.
    pub trips: Option<Trips>,
    /// For each counter of the profile, the sum of its counts in timed hits. For a counter that was
    /// not read, the element is `None` or beyond the end of the list.
    pub counters: Vec<Option<CounterSum>>,
    /// Times as measured, scaled up to all hits. Missing if no hit was timed or ended, or if one of
    /// the added rows is damaged.
    pub raw: Option<Times>,
    /// Times after subtracting the time that measuring has added. Missing if `raw` is missing, if
    /// the cost of measuring this row or a row inside is not known, or if `refused` is set.
    pub compensated: Option<Times>,
    /// Whether the mean hit takes less than [`SAMPLED_ONLY`] times the cost of timing a hit. If so,
    /// the self times of the loops around this row are doubtful.
    pub sampled_only: bool,
    /// Whether the time added by measuring was not subtracted in the row's function, because a time
    /// would have become negative, or a loop shorter than the loops inside of it.
    pub refused: bool,
}

impl Numbers {
    /// Returns the sum of the profile's counter `index`.
    pub fn counter(&self, index: usize) -> Option<CounterSum> {
        *self.counters.get(index)?
    }

    /// Returns how many timed hits began, and how many of them ended. `None` if no hit was timed.
    pub fn timed_hits(&self) -> Option<(u128, u128)> {
        (self.raw.is_some() || self.begun > 0).then_some((self.begun, self.ended))
    }

    /// Returns the number of timed hits that did not end.
    pub fn unended(&self) -> u128 {
        self.begun.saturating_sub(self.ended)
    }

    /// Returns the compensated times, or the raw ones if `raw` is set or nothing was compensated.
    pub fn times(&self, raw: bool) -> Option<&Times> {
        self.compensated.as_ref().filter(|_| !raw).or(self.raw.as_ref())
    }
}

/// The sum of a counter's counts in the hits for which it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSum {
    pub total: u128,
    /// The number of hits for which the counter was read; at least 1.
    pub hits: u128,
}

impl CounterSum {
    /// Returns the mean count of a hit, over the hits for which the counter was read.
    pub fn per_hit(&self) -> f64 {
        self.total as f64 / self.hits as f64
    }
}

/// The times of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The time of all hits, including everything inside.
    pub inclusive: Estimate,
    /// Self time: the time without the instrumented loops directly inside. Missing without a side
    /// table, or if the loops inside took longer than the row by more than the interval explains.
    /// Except in mode timed, also missing if the time of a loop inside is missing, or if not all
    /// hits ended. Loops inside may have ended even in hits that did not end.
    pub own: Option<Estimate>,
    /// The mean time of a hit that ended. Missing if no hit ended.
    pub mean: Option<Estimate>,
    /// The row's part of the inclusive time of the function or loop around it. Missing for
    /// outermost rows, if that time is missing or not above 0, or if not all hits around the row
    /// ended.
    pub share: Option<Estimate>,
}

/// The sums over the rows of one function or loop, from which its numbers are computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub numbers: Numbers,
    pub trips: TripSum,
    /// The sum of the squares of the times in `numbers.ticks`.
    pub squares: u128,
    /// The time of all hits. `None` if the time of one of the added rows is missing.
    pub time: Option<Sum>,
    /// The number of hits that ended; an estimate if not all hits were timed.
    pub ended: f64,
    /// The time that measuring the hits adds to their own measured times.
    pub own: Overhead,
    /// The time that measuring the hits adds to the loop or function around them.
    pub inner: Overhead,
    /// Whether it is known for all hits how long measuring them took.
    pub cost_known: bool,
    /// Of all registrations, the largest cost of timing one hit, in ticks.
    pub probe: f64,
}

#[derive(Clone, Copy, Default)]
struct Inside {
    /// The time that measuring all hits inside, directly or indirectly, adds to the loop's time.
    added: Overhead,
    /// The measuring time that is subtracted from the times of the loop's direct children.
    subtracted: Overhead,
    /// The time of the loop's direct children.
    time: Sum,
    time_missing: bool,
    cost_missing: bool,
}

/// Computes the numbers of all rows in `cells`. `parents` contains, for each id, the id of the loop
/// or function around it. `None` without a side table.
pub(super) fn of_scope(
    mut cells: BTreeMap<u32, Cell>,
    parents: Option<&[Option<u32>]>,
    mode: Mode,
) -> BTreeMap<u32, Numbers> {
    let mut inside: HashMap<u32, Inside> = HashMap::new();
    let parent_of = |id: u32| parents.and_then(|all| *all.get(id as usize)?);
    let sampled: BTreeSet<u32> = cells
        .iter()
        .filter(|(_, cell)| cell.time.as_ref().is_some_and(Sum::is_sampled))
        .map(|(id, _)| *id)
        .collect();
    let ids: Vec<u32> = cells.keys().rev().copied().collect();
    for id in ids {
        // If a thread has no row for the loop around a loop, the next loop outwards is used.
        let mut around = parent_of(id);
        while let Some(next) = around.filter(|next| !cells.contains_key(next)) {
            around = parent_of(next);
        }
        let of_children = inside.remove(&id).unwrap_or_default();
        let Some(cell) = cells.get_mut(&id) else { continue };
        cell.numbers.trips = cell.trips.trips();
        if cell.numbers.iterations.is_some() {
            cell.numbers.estimated_iterations = cell.trips.iterations();
        }
        let overhead = cell.own.plus(&of_children.added);
        fill(cell, &of_children, &overhead, parents.is_some(), mode);
        if let Some(around) = around {
            let around = inside.entry(around).or_default();
            around.added = around.added.plus(&cell.inner).plus(&of_children.added);
            around.subtracted = around.subtracted.plus(&overhead);
            around.cost_missing |= of_children.cost_missing || !cell.cost_known;
            match &cell.time {
                Some(time) if cell.numbers.raw.is_some() => around.time.add(time),
                _ => around.time_missing = true,
            }
        }
    }
    let mut all: BTreeMap<u32, Numbers> =
        cells.into_iter().map(|(id, cell)| (id, cell.numbers)).collect();
    let around = |id: u32, all: &BTreeMap<u32, Numbers>| {
        let mut around = parent_of(id);
        while let Some(next) = around.filter(|next| !all.contains_key(next)) {
            around = parent_of(next);
        }
        around
    };
    let whole = hold(&mut all, mode, around);
    shares(&mut all, &whole, around);
    allow_for_unseen(&mut all, &sampled, around);
    fit::fit(&mut all, &sampled, around);
    all
}

/// For each row, the sums of the measured and of the compensated times of the loops directly
/// inside.
type Wholes = HashMap<u32, [f64; 2]>;

fn inner(
    all: &BTreeMap<u32, Numbers>,
    around: impl Fn(u32, &BTreeMap<u32, Numbers>) -> Option<u32>,
) -> Wholes {
    let mut inner = Wholes::new();
    for (id, numbers) in all {
        let Some(around) = around(*id, all) else { continue };
        let sums = inner.entry(around).or_default();
        for (sum, times) in sums.iter_mut().zip([&numbers.raw, &numbers.compensated]) {
            *sum += times.map_or(0.0, |times| times.inclusive.value);
        }
    }
    inner
}

/// Enforces two rules: no time is negative, and the loops inside of a loop take no longer than the
/// loop. If subtracting the measuring time breaks a rule for a row, nothing is subtracted in the
/// whole function that contains the row. Measured times can break a rule as well: if not all outer
/// hits ended, or if the times of outer and inner loops come from different hits. In these cases,
/// the self time is missing, or 0 if its interval contains 0. Returns, for each row, the sum of the
/// times of the loops directly inside.
fn hold(
    all: &mut BTreeMap<u32, Numbers>,
    mode: Mode,
    around: impl Fn(u32, &BTreeMap<u32, Numbers>) -> Option<u32> + Copy,
) -> Wholes {
    let inside = inner(all, around);
    let top = |mut id: u32| {
        while let Some(next) = around(id, all) {
            id = next;
        }
        id
    };
    // If the measured times already break a rule, subtracting the measuring time is not the cause.
    // Nor is it the cause if the interval of the self time contains values that break no rule.
    let breaks = |times: Option<Times>, within: f64| {
        times.is_some_and(|times| {
            let whole = times.inclusive.value;
            let rest = times.own.map_or(whole - within, |own| {
                let open = own.margin.filter(|_| mode == Mode::Sampled);
                own.value.min(whole - within) + open.unwrap_or(0.0)
            });
            whole < 0.0 || rest < -ROUNDING * whole
        })
    };
    let is_broken = |id: &u32, numbers: &Numbers| {
        let [raw, compensated] = inside.get(id).copied().unwrap_or_default();
        breaks(numbers.compensated, compensated) && !breaks(numbers.raw, raw)
    };
    let broken: BTreeSet<u32> =
        all.iter().filter(|(id, numbers)| is_broken(id, numbers)).map(|(id, _)| top(*id)).collect();
    let refused: Vec<u32> = all.keys().copied().filter(|id| broken.contains(&top(*id))).collect();
    for id in refused {
        if let Some(numbers) = all.get_mut(&id) {
            numbers.refused |= numbers.compensated.take().is_some();
        }
    }
    for numbers in all.values_mut() {
        // In mode timed, the time of the loops inside was measured in exactly those hits that
        // ended.
        let is_partial = numbers.unended() > 0 && numbers.child_ticks.is_none();
        for times in [&mut numbers.raw, &mut numbers.compensated].into_iter().flatten() {
            times.own = times.own.filter(|_| !is_partial).and_then(not_negative);
        }
    }
    inside
}

/// Widens or removes the intervals of the rows in `sampled`, of which not all hits were timed: see
/// the section about slow hits at the top.
fn allow_for_unseen(
    all: &mut BTreeMap<u32, Numbers>,
    sampled: &BTreeSet<u32>,
    around: impl Fn(u32, &BTreeMap<u32, Numbers>) -> Option<u32>,
) {
    // The function or loop around a row has a smaller id, so its interval is already final.
    let ids: Vec<(u32, Option<u32>)> = all.keys().map(|id| (*id, around(*id, all))).collect();
    for (id, around) in ids {
        let of_around = around.and_then(|around| all.get(&around));
        let is_known = [of_around.and_then(|n| n.raw), of_around.and_then(|n| n.compensated)]
            .map(|times| times.is_none_or(|times| times.inclusive.margin.is_some()));
        if let Some(numbers) = all.get_mut(&id) {
            for (times, is_known) in
                [&mut numbers.raw, &mut numbers.compensated].into_iter().zip(is_known)
            {
                let share = times.as_mut().and_then(|times| times.share.as_mut());
                if let Some(share) = share {
                    share.margin = share.margin.filter(|_| is_known);
                }
            }
        }
        if !sampled.contains(&id) {
            continue;
        }
        let [raw, compensated] = match around.and_then(|around| all.get(&around)) {
            Some(around) => [around.raw, around.compensated].map(|times| {
                let times = times?;
                Some(times.own?.value + times.inclusive.margin?)
            }),
            None => [None, None],
        };
        let Some(numbers) = all.get_mut(&id) else { continue };
        for (times, room) in [(&mut numbers.raw, raw), (&mut numbers.compensated, compensated)] {
            let Some(times) = times else { continue };
            let time = &mut times.inclusive;
            let room = room.filter(|room| *room <= time.value);
            let margin = time.margin.zip(room).map(|(margin, room)| margin.max(room));
            time.margin = margin;
            // The self time is part of the row's time, so it gets at least that time's margin.
            if let Some(own) = &mut times.own {
                own.margin = own.margin.zip(margin).map(|(own, of_whole)| own.max(of_whole));
            }
            if let Some(share) = &mut times.share {
                let whole = time.value / share.value;
                let of_share = margin.map(|margin| margin / whole).filter(|m| m.is_finite());
                share.margin = share.margin.zip(of_share).map(|(own, of_time)| own.max(of_time));
            }
            if let Some(mean) = &mut times.mean {
                let ended = time.value / mean.value;
                mean.margin = margin.map(|margin| margin / ended).filter(|m| m.is_finite());
            }
        }
        let Some(around) = around.and_then(|around| all.get_mut(&around)) else { continue };
        for times in [&mut around.raw, &mut around.compensated].into_iter().flatten() {
            if let Some(own) = &mut times.own {
                own.margin = own.margin.map(|margin| margin.max(own.value));
            }
        }
    }
}

/// Relative differences up to this are rounding errors: `f64` sums above 2⁵³ are not exact.
const ROUNDING: f64 = 1e-9;

/// Limits a time that cannot be negative: a negative value is set to 0 if its interval contains 0,
/// and removed otherwise.
fn not_negative(time: Estimate) -> Option<Estimate> {
    match (time.value < 0.0, time.margin) {
        (false, _) => Some(time),
        (true, Some(margin)) if time.value + margin >= 0.0 => {
            Some(Estimate { value: 0.0, margin: Some(time.value + margin) })
        }
        (true, _) => None,
    }
}

fn fill(cell: &mut Cell, inside: &Inside, overhead: &Overhead, tree: bool, mode: Mode) {
    let numbers = &mut cell.numbers;
    numbers.deviation = spread(numbers.ended, numbers.ticks, cell.squares).map(f64::sqrt);
    let Some(time) = cell.time else { return };
    if numbers.hits > 0 && cell.ended <= 0.0 {
        return; // No hit ended, so none has a time.
    }
    let own = match numbers.child_ticks {
        _ if !tree => None,
        // This difference is exact, because both times were measured in the same hits.
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

/// Computes each row's share of the function or loop around it, if all hits of that function or
/// loop ended. If not all of them ended, rows inside may have taken longer. If the rows inside took
/// longer by chance (because they are estimates), the shares are parts of the sum of their times.
fn shares(
    all: &mut BTreeMap<u32, Numbers>,
    inside: &Wholes,
    around: impl Fn(u32, &BTreeMap<u32, Numbers>) -> Option<u32>,
) {
    let wholes: HashMap<u32, [Option<Estimate>; 2]> = all
        .iter()
        .map(|(id, n)| {
            let inner = inside.get(id).copied().unwrap_or_default();
            let mut wholes = [&n.raw, &n.compensated].map(|t| t.map(|t| t.inclusive));
            for (whole, inner) in wholes.iter_mut().zip(inner) {
                *whole = whole.filter(|_| n.unended() == 0).and_then(|whole| {
                    let over = (inner - whole.value).max(0.0);
                    let is_chance = whole.margin.is_some_and(|margin| over <= margin)
                        || over <= ROUNDING * inner;
                    is_chance.then_some(Estimate { value: whole.value.max(inner), ..whole })
                });
            }
            (*id, wholes)
        })
        .collect();
    let parents: Vec<(u32, Option<u32>)> = all.keys().map(|id| (*id, around(*id, all))).collect();
    for (id, parent) in parents {
        let Some(whole) = parent.and_then(|parent| wholes.get(&parent)) else { continue };
        let Some(numbers) = all.get_mut(&id) else { continue };
        for (times, whole) in [&mut numbers.raw, &mut numbers.compensated].into_iter().zip(whole) {
            if let Some((times, whole)) = times.as_mut().zip(*whole) {
                times.share = times.inclusive.share_of(whole);
            }
        }
    }
}

/// Returns the iterations of all hits: the counted sum if every hit was counted. Otherwise, if all
/// timed hits ended and the module's text states the iterations of a hit, multiplies them by the
/// number of hits. Hits that did not end may have run fewer iterations.
pub fn iterations(entry: Option<&Entry>, numbers: &Numbers) -> Option<u128> {
    let counted = numbers.iterations.filter(|_| numbers.iterated == numbers.hits);
    let each = entry.and_then(|entry| entry.trip_count).filter(|_| numbers.unended() == 0);
    counted.or_else(|| numbers.hits.checked_mul(each?.into()))
}

/// Returns the iterations of all hits; an estimate if not all of them were counted.
pub fn estimated_iterations(numbers: &Numbers) -> Option<u128> {
    numbers.estimated_iterations.map(|all| all.round() as u128)
}

/// Returns the mean number of iterations of the counted hits or, without counted hits, the number
/// that the module's text states.
pub fn iterations_per_hit(entry: Option<&Entry>, numbers: &Numbers) -> Option<f64> {
    let counted = numbers.iterations.map(|n| n as f64 / numbers.iterated as f64);
    counted.or_else(|| Some(entry?.trip_count? as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(hits: u128, begun: u128, ended: u128, ticks: u128) -> Cell {
        Cell {
            numbers: Numbers { hits, begun, ended, ticks, ..Numbers::default() },
            time: Some(Sum::exact(ticks as f64)),
            ended: ended as f64,
            cost_known: true,
            ..Cell::default()
        }
    }

    /// JSON and CSV once lacked the timed hits of a row in which no timed hit had ended.
    #[test]
    fn a_hit_that_never_ended_was_timed() {
        assert_eq!(cell(1, 1, 0, 0).numbers.timed_hits(), Some((1, 0)));
        assert_eq!(Numbers { hits: 5, ..Numbers::default() }.timed_hits(), None);
    }

    fn rows(cells: Vec<Cell>, parents: &[Option<u32>]) -> BTreeMap<u32, Numbers> {
        let cells = (0..).zip(cells).collect();
        of_scope(cells, Some(parents), Mode::Timed)
    }

    /// From few hits, two nested loops are estimated to take longer than the function around them.
    #[test]
    fn few_timed_hits_take_no_longer_than_what_is_around_them() {
        let seldom = |hits, ticks: f64| Cell {
            time: Some(Sum { value: ticks, sampled: true, unknown: true, ..Sum::default() }),
            ended: hits as f64,
            ..cell(hits, 3, 3, 3)
        };
        let cells = vec![cell(2, 2, 2, 100), seldom(10, 150.0), seldom(40, 300.0)];
        let cells = (0..).zip(cells).collect();
        let rows = of_scope(cells, Some(&[None, Some(0), Some(1)]), Mode::Sampled);
        for id in [1, 2] {
            let times = rows[&id].raw.unwrap();
            assert_eq!(times.inclusive, Estimate { value: 100.0, margin: None }, "{id}");
            let hits = [10.0, 40.0][id as usize - 1];
            assert_eq!(times.mean.unwrap().value, 100.0 / hits, "{id}");
        }
    }

    /// The estimates of the two loops inside are 60 and 90 ticks, but all hits of the function
    /// around them took only 100 ticks.
    #[test]
    fn loops_beside_each_other_take_no_longer_than_what_is_around_them() {
        let seldom = |ticks: f64| Cell {
            time: Some(Sum { value: ticks, sampled: true, unknown: true, ..Sum::default() }),
            ..cell(9, 3, 3, 3)
        };
        let cells = (0..).zip(vec![cell(2, 2, 2, 100), seldom(60.0), seldom(90.0)]).collect();
        let rows = of_scope(cells, Some(&[None, Some(0), Some(0)]), Mode::Sampled);
        let times = [1, 2].map(|id| rows[&id].raw.unwrap());
        assert_eq!(times.map(|times| times.inclusive.value), [40.0, 60.0]);
        assert_eq!(times.map(|times| times.share.map(|share| share.value)), [Some(0.4), Some(0.6)]);
        // The self time of the function is not known.
        assert_eq!(rows[&0].raw.unwrap().own, None);
    }

    #[test]
    fn what_never_ended_has_no_time() {
        let rows = rows(vec![cell(5, 5, 0, 0), cell(5, 5, 5, 100)], &[None, Some(0)]);
        assert_eq!((rows[&0].raw, rows[&0].compensated), (None, None));
        let inner = rows[&1].compensated.unwrap();
        assert_eq!((inner.inclusive.value, inner.share), (100.0, None));
    }

    /// Two of ten outer hits ended. The loop inside also ended in the eight unended outer hits.
    #[test]
    fn what_is_inside_of_hits_that_did_not_end_is_no_part_of_those_that_did() {
        let rows = rows(vec![cell(10, 10, 2, 50), cell(10, 10, 10, 400)], &[None, Some(0)]);
        let outer = rows[&0].raw.unwrap();
        assert_eq!((outer.inclusive.value, outer.own), (50.0, None));
        assert_eq!(rows[&1].raw.unwrap().share, None);
    }

    /// The loop inside took 90 of 100 ticks. If compensation left 60 of the 90 ticks and 40 of the
    /// 100 ticks, the loop would take 150 % of the function around it.
    #[test]
    fn a_correction_that_breaks_what_must_be_true_is_not_used() {
        let with = |mut cell: Cell, inside: f64| {
            cell.own =
                Overhead::of_own(&profile::loops::HitCost { inside, ..Default::default() }, 1.0);
            cell
        };
        let cells = vec![
            with(cell(1, 1, 1, 100), 60.0),
            with(cell(1, 1, 1, 90), 30.0),
            with(cell(1, 1, 1, 100), 10.0),
        ];
        let rows = rows(cells, &[None, Some(0), None]);
        assert!(rows[&0].refused && rows[&1].refused && !rows[&2].refused);
        assert_eq!((rows[&0].compensated, rows[&1].compensated), (None, None));
        assert_eq!(rows[&1].raw.unwrap().share.unwrap().value, 0.9);
        assert_eq!(rows[&2].compensated.unwrap().inclusive.value, 90.0);
    }

    /// A row of 100 ticks contains a loop of which some hits were timed. If the loop's estimate is
    /// 90 ± 2, it may have taken all 100 ticks. If the estimate is 30, the room of 70 is longer
    /// than the estimate, so the loop has no interval.
    #[test]
    fn what_was_not_timed_takes_no_longer_than_what_is_around_it() {
        let of = |estimated: f64| {
            let sampled = Sum::sampled(estimated, Some(1.0), 1e9, 0.0).of_sample();
            let inner = Cell { time: Some(sampled), ..cell(9, 5, 5, 50) };
            let cells = (0..).zip(vec![cell(1, 1, 1, 100), inner]).collect();
            let rows = of_scope(cells, Some(&[None, Some(0)]), Mode::Sampled);
            let [outer, inner] = [&rows[&0], &rows[&1]].map(|row| row.raw.unwrap());
            let margin = |of: Option<Estimate>| of.unwrap().margin;
            assert_eq!(outer.inclusive.margin, Some(0.0));
            [inner.inclusive.margin, margin(inner.own), margin(outer.own)]
        };
        assert_eq!(of(90.0), [Some(10.0); 3]);
        assert_eq!(of(30.0), [None, None, Some(70.0)]);
    }

    /// The estimate of a loop is 104 ± 10 ticks. The loop around it was estimated at 100 ± 10
    /// ticks, from other hits.
    #[test]
    fn chance_makes_no_self_time_negative_and_no_share_larger_than_all() {
        let sampled = |ticks: u128| Cell {
            time: Some(Sum::sampled(ticks as f64, Some(25.0), 1e9, 0.0)),
            ..cell(9, 5, 5, ticks)
        };
        let cells = (0..).zip(vec![sampled(100), sampled(104)]).collect();
        let rows = of_scope(cells, Some(&[None, Some(0)]), Mode::Sampled);
        let own = rows[&0].raw.unwrap().own.unwrap();
        assert!(own.value == 0.0 && own.margin.unwrap() > 0.0, "{own:?}");
        assert_eq!(rows[&1].raw.unwrap().share.unwrap().value, 1.0);
    }
}
