//! Decides which recorded variables are associated with the durations of calls more strongly than
//! by chance.
//!
//! ```text
//!  durations ─► ranks ──┬─ without drift, if they drift ─┬─► strength of each variable ─► strong ones
//!  variables ───────────┘                                └─► the same in other orders  ─► not by chance
//!                                                                         same calls ─► one finding
//! ```
//!
//! **Strength.** An ordered variable has two strengths: Spearman's correlation with the durations,
//! and the correlation of its ranks with whether a call is among the slowest 5 %. The second one
//! finds rare effects. For a variable with classes, the strength is the mutual information with six
//! classes of durations. The last two of the six are the slowest tenth of the calls. A strength
//! below its limit ([`CORRELATION`], [`TAIL`] or [`INFORMATION`]) does not count, however certain
//! the association is.
//!
//! **Chance.** The durations are put into many other orders (`permuted`). A variable becomes a
//! finding only if one of its strengths is larger than in all of these orders. The number of orders
//! is chosen so that the probability that any variable is reported by chance is at most `LEVEL`
//! (Bonferroni over the strengths of all variables).
//!
//! **Drift.** If durations change with the time in the run, they are associated with every variable
//! that changed over the run. So if they drift, the strengths of all variables but the time are
//! tested with the ranks of the durations within each sixteenth of the run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use profile::on_threads;

use super::What;
use super::association::{
    as_correlation, cells, classes, correlation, information, information_of, ranks, spearman,
};
use super::effect::{Effect, effect_of};
use super::permuted::{Blocks, moved};
use super::variable::{MOST_CLASSES, Values, Variable};

/// The highest probability that a variable is reported although none is associated with the
/// durations.
const LEVEL: f64 = 0.02;
/// With fewer calls than this, no variable is analysed.
pub const LEAST_CALLS: usize = 50;
/// Correlations of ranks are reported only if they are at least this large.
pub const CORRELATION: f64 = 0.1;
/// Correlations with whether a call is among the slowest are reported only if they are at least
/// this large.
pub const TAIL: f64 = 0.15;
/// Mutual information is reported only if it is at least that of two normal variables with this
/// correlation.
pub const INFORMATION: f64 = 0.1;
/// The part of the calls that count as the slowest.
pub const SLOWEST: f64 = 0.05;
/// If the median duration of the slowest calls is less than this many times that of all calls,
/// there is nothing to explain.
pub const EVEN: f64 = 1.05;
/// First calls are reported if their median duration is at least this many times that of the other
/// calls.
const FIRST_TIMES: f64 = 1.5;
/// The run is divided into this many parts to remove a drift.
const TIMES: usize = 16;
/// The limits between the classes of durations: ranks divided by the number of calls.
const ENDS: [f64; 5] = [0.25, 0.5, 0.75, 0.9, 0.95];
const KINDS: usize = ENDS.len() + 1;
/// Two variables count as the same if the absolute correlation of their ranks is at least this.
/// They also count as the same if their mutual information is at least the part `SAME_CLASSES` of
/// the smaller one of their entropies.
const SAME_RANKS: f64 = 0.9;
const SAME_CLASSES: f64 = 0.8;
/// Of two variables that count as the same, the variable with fewer classes is reported if its
/// strength is at least this part of the other strength.
const SIMPLER: f64 = 0.9;

/// The result of an analysis: the variables that are associated with the durations of the analysed
/// calls.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The reason why there are no findings. `None` if the variables were analysed, even if no
    /// finding resulted.
    pub silent: Option<Silent>,
    /// Whether the durations drift. If so, the drift is removed before the other variables are
    /// analysed.
    pub drifts: bool,
    pub slow: Slow,
    /// The reported variables, the strongest first. A finding that explains most of the slow calls'
    /// additional time comes before the others.
    pub findings: Vec<Finding>,
}

/// The reason why there are no findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// The op has fewer calls than [`LEAST_CALLS`].
    TooFew,
    /// All calls take about the same time: see [`EVEN`].
    Even,
    /// Neighbouring calls are too similar to distinguish any finding from chance.
    Alike,
}

/// The slowest calls, compared with all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slow {
    /// Number of the slowest calls.
    pub calls: usize,
    /// The part of all calls that count as the slowest, from 0 to 1.
    pub share: f64,
    /// The median of the slowest calls' durations.
    pub median: f64,
    /// The mean of the slowest calls' durations.
    pub mean: f64,
    /// The median of all durations.
    pub of_all: f64,
}

/// A variable that is associated with the durations of the analysed calls.
#[derive(Clone, Debug)]
pub struct Finding {
    pub what: What,
    /// The strength of this variable, from 0 to 1.
    pub strength: f64,
    pub effect: Effect,
    /// Variables that cannot be distinguished from this one in these calls.
    pub same: Vec<(What, Effect)>,
}

enum Strength {
    /// The sum over all calls of the variable's rank times the duration's rank, both relative to
    /// the middle. With `is_tail`, the variable's ranks are added up over the slow calls. `found`
    /// is the absolute value of the sum for the recorded order.
    Dot {
        x: Vec<f32>,
        is_tail: bool,
        found: f64,
    },
    /// `found` is the mutual information with the durations. `excess` is the part of it above the
    /// mean for independent classes.
    Classes {
        classes: Vec<u32>,
        found: f64,
        excess: f64,
    },
    First {
        places: Vec<u32>,
        found: f64,
    },
}

struct Durations {
    /// Ranks divided by their number, and shifted so that their mean is 0.
    ranks: Vec<f32>,
    is_slow: Vec<f32>,
    kinds: Vec<u8>,
}

impl Durations {
    fn new(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let ranks = ranks(values);
        let kind = |rank: &f64| ENDS.iter().filter(|end| (rank - 0.5) / n >= **end).count() as u8;
        let slow = slowest(values);
        Self {
            kinds: ranks.iter().map(kind).collect(),
            ranks: ranks.iter().map(|rank| ((rank - (n + 1.0) / 2.0) / n) as f32).collect(),
            is_slow: slow.iter().map(|slow| f32::from(u8::from(*slow))).collect(),
        }
    }

    fn blocks(&self) -> Option<Blocks> {
        let from_middle: Vec<f32> = self.ranks.iter().map(|rank| rank.abs()).collect();
        Blocks::new(&[&self.ranks, &from_middle, &self.is_slow])
    }

    /// Returns the blocks (calls that stay together when the order is changed) for testing whether
    /// durations change with the time in the run. A drift would make all neighbouring calls look
    /// similar, so a straight line is subtracted from the values in each quarter of the run. With
    /// shorter parts, the similarity of neighbours would be subtracted, too.
    fn blocks_for_time(&self) -> Option<Blocks> {
        let quarter = self.ranks.len().div_ceil(4).max(2);
        let level = |values: &[f32]| -> Vec<f32> {
            values.chunks(quarter).flat_map(without_line).collect()
        };
        let (ranks, is_slow) = (level(&self.ranks), level(&self.is_slow));
        let from_middle: Vec<f32> = ranks.iter().map(|rank| rank.abs()).collect();
        // If durations drift, the distances of their ranks from the middle can drift, too, so lines
        // are subtracted from these distances as well.
        let level_from_middle = level(&from_middle);
        Blocks::for_time(&[&ranks, &from_middle, &is_slow], &[&ranks, &level_from_middle, &is_slow])
    }

    /// Computes the ranks within each sixteenth of the run, which removes a drift.
    fn without_drift(durations: &[f64]) -> Self {
        let mut all = Self { ranks: Vec::new(), is_slow: Vec::new(), kinds: Vec::new() };
        for part in durations.chunks(durations.len().div_ceil(TIMES).max(1)) {
            let part = Self::new(part);
            all.ranks.extend(part.ranks);
            all.is_slow.extend(part.is_slow);
            all.kinds.extend(part.kinds);
        }
        all
    }
}

/// Subtracts the straight line that fits the values best.
fn without_line(values: &[f32]) -> Vec<f32> {
    let n = values.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
    let from_middle =
        || values.iter().zip(0u32..).map(|(v, at)| (f64::from(*v), f64::from(at) - middle));
    let product: f64 = from_middle().map(|(value, at)| value * at).sum();
    let square: f64 = from_middle().map(|(_, at)| at * at).sum();
    let slope = if square > 0.0 { product / square } else { 0.0 };
    from_middle().map(|(value, at)| (value - mean - slope * at) as f32).collect()
}

/// Marks the slowest 5 % of the calls. If the shortest duration among them also occurs in other
/// calls, either all calls with this duration are marked or none of them. They are marked if this
/// marks at most 20 % of all calls, or at most half of all calls if no call is slower.
pub(super) fn slowest(values: &[f64]) -> Vec<bool> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = ((values.len() as f64 * SLOWEST).ceil() as usize).max(1);
    let Some(end) = sorted.len().checked_sub(count).map(|at| sorted[at]) else {
        return vec![false; values.len()];
    };
    let with = sorted.len() - sorted.partition_point(|value| *value < end);
    let is_longest = sorted.last() == Some(&end);
    let is_few = with * 5 <= sorted.len() || is_longest && with * 2 <= sorted.len();
    values.iter().map(|value| if is_few { *value >= end } else { *value > end }).collect()
}

/// Finds the variables that are associated with the durations of calls. The calls must be in the
/// order in which they began. The answer does not depend on the number of `workers`.
///
/// Cost: at most 50 × (number of strengths) orders of the durations are tried for the time in the
/// run, and as many for the other variables. In each order, only those strengths are computed that
/// no earlier order has reached.
pub fn stand_out(durations: &[f64], variables: &[Variable], workers: usize) -> Answer {
    let slow = Slow::new(durations);
    let why = match slow.calls {
        _ if durations.len() < LEAST_CALLS => Some(Silent::TooFew),
        0 => Some(Silent::Even),
        _ if slow.median < slow.of_all * EVEN => Some(Silent::Even),
        _ => None,
    };
    let silent = |why| Answer { silent: Some(why), slow, ..Answer::default() };
    if let Some(why) = why {
        return silent(why);
    }
    let family: usize = variables.iter().map(|variable| variable.values.strengths()).sum();
    let orders = (family as f64 / LEVEL).ceil() as u64;
    let recorded = Durations::new(durations);
    let level = Durations::without_drift(durations);
    let time = variables.iter().find(|one| matches!(one.values, Values::Time));
    let of_time = time.map_or_else(Vec::new, |time| strengths(&time.values, &recorded));
    // A drift makes all neighbouring calls look similar, so `blocks_for_time` removes it before it
    // computes the blocks.
    let drifts = recorded.blocks_for_time().is_some_and(|blocks| {
        survive(&of_time, &recorded, blocks, orders, workers).contains(&true)
    });
    let tested = if drifts { &level } else { &recorded };
    let Some(blocks) = tested.blocks() else { return silent(Silent::Alike) };
    let rest: Vec<&Variable> =
        variables.iter().filter(|one| !matches!(one.values, Values::Time)).collect();
    let (mut asked, mut whose) = (Vec::new(), Vec::new());
    for (at, variable) in rest.iter().enumerate() {
        for strength in strengths(&variable.values, tested) {
            asked.push(strength);
            whose.push(at);
        }
    }
    let survived = survive(&asked, tested, blocks, orders, workers);
    let is_slow: Vec<bool> = tested.is_slow.iter().map(|slow| *slow > 0.0).collect();
    let effect = |variable: &Variable| effect_of(variable, durations, &is_slow);
    let mut found: Vec<(&Variable, f64)> = Vec::new();
    for (at, variable) in rest.iter().enumerate() {
        let strong = (0..asked.len()).filter(|i| whose[*i] == at && survived[*i]);
        let strong: f64 = strong.map(|i| size(&asked[i])).fold(0.0, f64::max);
        if strong > 0.0 && effect(variable).is_worth_saying(FIRST_TIMES) {
            found.push((*variable, strong));
        }
    }
    // A variable that explains most of the slow calls' additional time comes first.
    let is_most = |one: &Variable| effect(one).is_most();
    found.sort_by(|a, b| is_most(b.0).cmp(&is_most(a.0)).then(b.1.total_cmp(&a.1)));
    let mut groups: Vec<(&Variable, f64, Vec<&Variable>)> = Vec::new();
    if let Some(time) = time.filter(|_| drifts) {
        // After the drift was removed, a variable that changed with the time has little strength
        // left. So its strength is computed from the recorded durations.
        let also = |one: &&&Variable| {
            strongest(&strengths(&one.values, &recorded)) > 0.0
                && are_same(&time.values, &one.values, durations.len())
        };
        let same: Vec<&Variable> = rest.iter().filter(also).copied().collect();
        groups.push((time, strongest(&of_time), same));
    }
    for (variable, strength) in found.iter().copied() {
        let known = groups.iter().any(|(_, _, same)| same.iter().any(|s| s.what == variable.what));
        if known {
            continue;
        }
        let same = |lead: &Variable| are_same(&lead.values, &variable.values, durations.len());
        match groups.iter_mut().find(|(lead, _, _)| same(lead)) {
            Some((_, _, all)) => all.push(variable),
            None => groups.push((variable, strength, Vec::new())),
        }
    }
    for (lead, strength, same) in &mut groups {
        // If two variables explain about as much, the one with fewer classes is the simpler
        // explanation: for example the thread, compared with the many workgroups that ran on it.
        let of = |one: &Variable| found.iter().find(|(v, _)| v.what == one.what).map(|(_, s)| *s);
        let is_simpler = |one: &&mut &Variable| {
            one.values.kinds().is_some()
                && one.values.kinds() < lead.values.kinds()
                && of(one) >= Some(SIMPLER * *strength)
        };
        let simplest = same.iter_mut().filter(is_simpler).min_by_key(|one| one.values.kinds());
        if let Some(simplest) = simplest.filter(|_| !is_most(lead)) {
            std::mem::swap(lead, simplest);
            *strength = of(lead).unwrap_or(*strength);
        }
    }
    groups.sort_by(|a, b| is_most(b.0).cmp(&is_most(a.0)).then(b.1.total_cmp(&a.1)));
    let finding = |(variable, strength, same): (&Variable, f64, Vec<&Variable>)| Finding {
        what: variable.what,
        strength,
        effect: effect(variable),
        same: same.into_iter().map(|one| (one.what, effect(one))).collect(),
    };
    let findings = groups.into_iter().map(finding).collect();
    Answer { silent: None, drifts, slow, findings }
}

impl Slow {
    fn new(durations: &[f64]) -> Self {
        let is_slow = slowest(durations);
        let slow = durations.iter().zip(&is_slow).filter(|(_, slow)| **slow).map(|(d, _)| *d);
        let slow: Vec<f64> = slow.collect();
        let calls = slow.len();
        Self {
            calls,
            share: calls as f64 / durations.len().max(1) as f64,
            mean: slow.iter().sum::<f64>() / calls.max(1) as f64,
            median: super::effect::median(slow).unwrap_or(0.0),
            of_all: super::effect::median(durations.to_vec()).unwrap_or(0.0),
        }
    }
}

impl Values {
    fn strengths(&self) -> usize {
        match self {
            Self::Ordered(_) | Self::Time => 2,
            Self::Classes(_) | Self::First(_) => 1,
        }
    }

    /// Returns the largest class number. `None` if the variable has no classes.
    fn kinds(&self) -> Option<u32> {
        match self {
            Self::Classes(classes) => classes.iter().filter(|c| **c != u32::MAX).max().copied(),
            _ => None,
        }
    }

    /// Returns the rank of each call's value; `None` if the variable has no order.
    fn ranks(&self, calls: usize) -> Option<Vec<f64>> {
        match self {
            Self::Ordered(values) => Some(ranks(values)),
            Self::Time => Some((0..calls).map(|at| at as f64 + 1.0).collect()),
            Self::Classes(_) | Self::First(_) => None,
        }
    }

    fn classes(&self, calls: usize) -> Vec<u32> {
        match self {
            Self::Classes(classes) => classes.clone(),
            Self::First(first) => first.iter().map(|first| (*first).into()).collect(),
            Self::Ordered(_) | Self::Time => classes(&self.ranks(calls).unwrap_or_default(), TIMES),
        }
    }
}

fn strengths(values: &Values, durations: &Durations) -> Vec<Strength> {
    let calls = durations.ranks.len();
    let mut all = Vec::new();
    if let Some(ranks) = values.ranks(calls) {
        let n = ranks.iter().filter(|rank| !rank.is_nan()).count();
        let middle = (n as f64 + 1.0) / 2.0;
        let center =
            |rank: &f64| if rank.is_nan() { 0.0 } else { (rank - middle) as f32 / n as f32 };
        let x: Vec<f32> = ranks.iter().map(center).collect();
        let to_f64 = |of: &[f32]| of.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let tail = (TAIL, true, &durations.is_slow);
        for (least, is_tail, of) in [(CORRELATION, false, &durations.ranks), tail] {
            let is_time = matches!(values, Values::Time);
            let strong = n >= LEAST_CALLS && correlation(&ranks, &to_f64(of)).abs() >= least;
            if strong && !(is_tail && is_time) {
                let found = dot(&x, of).abs();
                all.push(Strength::Dot { x: x.clone(), is_tail, found });
            }
        }
    }
    match values {
        Values::Classes(_) | Values::Time => {
            let classes = values.classes(calls);
            let kinds: Vec<u32> = durations.kinds.iter().map(|kind| (*kind).into()).collect();
            let excess = information(&classes, &kinds).excess;
            if as_correlation(excess) >= INFORMATION {
                let mut counts = vec![0; MOST_CLASSES * KINDS];
                cells(&classes, &durations.kinds, KINDS, &mut counts);
                all.push(Strength::Classes {
                    found: information_of(&counts, KINDS),
                    excess,
                    classes,
                });
            }
        }
        Values::First(first) => {
            let places = (0u32..).zip(first).filter(|(_, first)| **first).map(|(at, _)| at);
            let places: Vec<u32> = places.collect();
            let found = sum_of(&places, &durations.ranks);
            if !places.is_empty() && found > 0.0 {
                all.push(Strength::First { places, found });
            }
        }
        Values::Ordered(_) => {}
    }
    all
}

fn sum_of(places: &[u32], ranks: &[f32]) -> f64 {
    places.iter().map(|at| f64::from(ranks[*at as usize])).sum()
}

/// Whether, in the order `pieces`, each position in `places` has a call whose recorded position is
/// in `places`, too. `places` must be ascending.
fn stay(places: &[u32], pieces: &[(usize, usize)]) -> bool {
    let calls = pieces.iter().flat_map(|(from, to)| *from..*to);
    let is_one = |at: usize| places.binary_search(&(at as u32)).is_ok();
    let until = places.last().map_or(0, |last| *last as usize + 1);
    calls.enumerate().take(until).all(|(at, call)| !is_one(at) || is_one(call))
}

/// Returns the size of a strength, from 0 to 1.
fn size(strength: &Strength) -> f64 {
    match strength {
        // Ranks divided by their number have a variance of 1/12. Being slow is treated as a number
        // that is 1 with the probability `SLOWEST`, and otherwise 0.
        Strength::Dot { x, is_tail: false, found } => {
            let squares: f64 = x.iter().map(|v| f64::from(v * v)).sum();
            found / (squares * x.len() as f64 / 12.0).sqrt().max(f64::MIN_POSITIVE)
        }
        Strength::Dot { x, is_tail: true, found } => {
            let squares: f64 = x.iter().map(|v| f64::from(v * v)).sum();
            let coin = SLOWEST * (1.0 - SLOWEST);
            found / (squares * x.len() as f64 * coin).sqrt().max(f64::MIN_POSITIVE)
        }
        Strength::Classes { excess, .. } => as_correlation(*excess),
        Strength::First { places, found } => 2.0 * found / places.len() as f64,
    }
    .min(1.0)
}

fn strongest(all: &[Strength]) -> f64 {
    all.iter().map(size).fold(0.0, f64::max)
}

/// Marks the strengths that none of `orders` random orders reaches.
fn survive(
    all: &[Strength],
    durations: &Durations,
    blocks: Blocks,
    orders: u64,
    workers: usize,
) -> Vec<bool> {
    let alive: Vec<AtomicBool> = all.iter().map(|_| AtomicBool::new(true)).collect();
    let next = AtomicU64::new(0);
    let work = || {
        let (mut order, mut ranks, mut is_slow) = (Vec::new(), Vec::new(), Vec::new());
        let (mut kinds, mut counts) = (Vec::new(), vec![0; MOST_CLASSES * KINDS]);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let none = alive.iter().all(|alive| !alive.load(Ordering::Relaxed));
            if seed >= orders || none {
                return;
            }
            blocks.order(seed, &mut order);
            moved(&durations.ranks, &order, &mut ranks);
            moved(&durations.is_slow, &order, &mut is_slow);
            moved(&durations.kinds, &order, &mut kinds);
            for (strength, alive) in all.iter().zip(&alive) {
                if !alive.load(Ordering::Relaxed) {
                    continue;
                }
                let (chance, found) = match strength {
                    Strength::Dot { x, is_tail, found } => {
                        (dot(x, if *is_tail { &is_slow } else { &ranks }).abs(), *found)
                    }
                    Strength::Classes { classes, found, .. } => {
                        cells(classes, &kinds, KINDS, &mut counts);
                        (information_of(&counts, KINDS), *found)
                    }
                    // If the order has first calls at all positions of first calls, its sum is the
                    // recorded one, which says nothing about chance. First calls in one block move
                    // together, so with n calls, this happens in about one of n orders.
                    Strength::First { places, .. } if stay(places, &order) => continue,
                    Strength::First { places, found } => (sum_of(places, &ranks), *found),
                };
                // In another order, the same terms can add up to a slightly different sum, so there
                // is a small tolerance.
                if chance >= found * (1.0 - 1e-6) {
                    alive.store(false, Ordering::Relaxed);
                }
            }
        }
    };
    if !all.is_empty() {
        on_threads(workers.max(1), work);
    }
    alive.into_iter().map(AtomicBool::into_inner).collect()
}

/// Returns the sum of the products of corresponding elements. The sum is added up in parts, which
/// keeps the rounding errors small.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let part = |(a, b): (&[f32], &[f32])| {
        let mut lanes = [0f32; 16];
        let (whole_a, rest_a) = a.as_chunks::<16>();
        let (whole_b, rest_b) = b.as_chunks::<16>();
        for (a, b) in whole_a.iter().zip(whole_b) {
            // This loop uses an index, because an iterator would be slow in a build without
            // optimisation.
            let mut at = 0;
            while at < 16 {
                lanes[at] += a[at] * b[at];
                at += 1;
            }
        }
        lanes.iter_mut().zip(rest_a.iter().zip(rest_b)).for_each(|(lane, (a, b))| *lane += a * b);
        f64::from(lanes.iter().sum::<f32>())
    };
    a.chunks(1_024).zip(b.chunks(1_024)).map(part).sum()
}

/// Whether two variables have so similar values that they count as the same.
fn are_same(a: &Values, b: &Values, calls: usize) -> bool {
    if let Some((a, b)) = a.ranks(calls).zip(b.ranks(calls))
        && spearman(&a, &b).abs() >= SAME_RANKS
    {
        return true;
    }
    let shared = information(&a.classes(calls), &b.classes(calls));
    shared.least_entropy > 0.0 && shared.excess >= SAME_CLASSES * shared.least_entropy
}
