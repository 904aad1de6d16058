//! Measures how large the effect of a variable on the durations of calls is.

use super::What;
use super::association::{information, ranks, spearman};
use super::variable::{Values, Variable};

/// A class consists of calls with the same or similar values of a variable. A class is worth
/// reporting if the median duration of its calls is at least this many times that of the other
/// calls. It is also worth reporting if its share of the slow calls is at least `MORE_SLOW` times
/// its share of all calls.
const LARGER: f64 = 1.05;
const MORE_SLOW: f64 = 1.5;
/// Time off a CPU is worth reporting if it is at least this part of the slowest calls' time, and a
/// smaller part of the other calls' time.
const OFF_CPU: f64 = 0.1;
/// The time off a CPU is reported first if it explains at least this part of the slowest calls'
/// additional time (compared with the other calls).
const MOST: f64 = 0.5;

/// The effect of a variable. Durations are in the unit of the durations that the caller passed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The effect of a numeric variable.
    Ordered {
        /// The correlation of the ranks of the variable with the ranks of the durations.
        spearman: f64,
        /// The values of the variable in the slowest calls.
        slow: Level,
        others: Level,
    },
    /// The effect of the time off a CPU, which is a part of the durations.
    OffCpu {
        /// The correlation of the ranks of the time off a CPU with the ranks of the durations.
        spearman: f64,
        /// The time off a CPU in the slowest calls.
        slow: Level,
        others: Level,
        /// The mean durations of the slowest and of the other calls whose time off a CPU is known.
        means: [f64; 2],
        /// The time off a CPU in the slowest calls, as a part of their time, from 0 to 1.
        share: f64,
        /// The time off a CPU in the other calls, as a part of their time.
        of_others: f64,
        /// The additional time off a CPU in the slowest calls, as a part of their additional
        /// duration. Both additional times are differences between the mean of the slowest calls
        /// and the mean of the other calls.
        of_excess: f64,
    },
    /// The effect of one class: the class whose calls' durations differ most from the durations of
    /// all calls.
    Class {
        class: u32,
        /// The median duration of the calls in the class.
        median: f64,
        /// The median duration of all other calls.
        others: f64,
        /// The part of all calls that are in the class, from 0 to 1.
        share: f64,
        /// The part of the slowest calls that are in the class, from 0 to 1.
        of_slow: f64,
        /// The mutual information of the variable and the durations (divided into 16 classes), in
        /// nats.
        information: f64,
    },
    /// The effect of being the first call on a thread. `median` is the median duration of first
    /// calls.
    First {
        /// Number of first calls.
        calls: usize,
        median: f64,
        /// The median duration of the other calls.
        others: f64,
        /// Number of first calls that are among the slowest calls.
        of_slow: usize,
    },
    /// The effect of the time at which a call began. The calls, in the order in which they began,
    /// are divided into tenths.
    Time {
        /// The correlation of the order of the calls with their durations.
        spearman: f64,
        /// The median duration in the first tenth of the calls.
        first: f64,
        /// The median duration in the last tenth of the calls.
        last: f64,
        /// The tenth with the largest median (numbered from 0), and this median.
        slowest: (usize, f64),
        /// The median duration of all calls.
        all: f64,
    },
}

/// A summary of a variable's values in a group of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    /// The median of the values.
    pub median: f64,
    /// The mean of the values.
    pub mean: f64,
    /// The part of the values that are not 0, from 0 to 1.
    pub some: f64,
}

impl Level {
    fn of(values: Vec<f64>) -> Self {
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / n;
        let some = values.iter().filter(|value| **value != 0.0).count() as f64 / n;
        Self { median: median(values).unwrap_or(0.0), mean, some }
    }
}

impl Effect {
    /// Whether the effect is large enough to be reported. First calls are reported if their median
    /// duration is at least `first_times` times that of the other calls.
    pub(super) fn is_worth_saying(&self, first_times: f64) -> bool {
        match self {
            Self::First { median, others, .. } => *median >= first_times * others,
            Self::Ordered { slow, others, .. } => slow != others,
            Self::Class { median, others, share, of_slow, .. } => {
                *median >= LARGER * others || *of_slow >= MORE_SLOW * share
            }
            Self::OffCpu { share, of_others, .. } => *share >= OFF_CPU && share > of_others,
            Self::Time { .. } => true,
        }
    }

    /// Whether the effect is time off a CPU that explains at least the part `MOST` of the slowest
    /// calls' additional time.
    pub(super) fn is_most(&self) -> bool {
        matches!(self, Self::OffCpu { of_excess, .. } if *of_excess >= MOST)
    }
}

/// Returns the median; for an even number of values, the mean of the two middle ones.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    let (n, half) = (values.len(), values.len() / 2);
    if n == 0 {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let upper = *upper;
    match n % 2 {
        1 => Some(upper),
        _ => below.iter().copied().max_by(f64::total_cmp).map(|lower| (lower + upper) / 2.0),
    }
}

/// Returns the effect of a variable. `is_slow` is true for the slowest calls.
pub(super) fn effect_of(variable: &Variable, durations: &[f64], is_slow: &[bool]) -> Effect {
    match &variable.values {
        Values::Ordered(values) if variable.what == What::OffCpu => {
            off_cpu(values, durations, is_slow)
        }
        Values::Ordered(values) => {
            let those = |slow: bool| {
                let some = values.iter().zip(is_slow).filter(|(v, s)| **s == slow && !v.is_nan());
                Level::of(some.map(|(value, _)| *value).collect())
            };
            let spearman = spearman(values, durations);
            Effect::Ordered { spearman, slow: those(true), others: those(false) }
        }
        Values::Classes(classes) => of_class(classes, durations, is_slow),
        Values::First(first) => {
            let those = |which: bool| {
                let some = durations.iter().zip(first).filter(|(_, first)| **first == which);
                median(some.map(|(duration, _)| *duration).collect()).unwrap_or(0.0)
            };
            let calls = first.iter().filter(|first| **first).count();
            let of_slow =
                first.iter().zip(is_slow).filter(|(first, slow)| **first && **slow).count();
            Effect::First { calls, median: those(true), others: those(false), of_slow }
        }
        Values::Time => {
            let tenth = durations.len().div_ceil(10).max(1);
            let medians: Vec<f64> =
                durations.chunks(tenth).filter_map(|some| median(some.to_vec())).collect();
            let order: Vec<f64> = (0..durations.len()).map(|at| at as f64).collect();
            let slowest = medians.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            Effect::Time {
                spearman: spearman(&order, durations),
                first: medians.first().copied().unwrap_or(0.0),
                last: medians.last().copied().unwrap_or(0.0),
                slowest: slowest.unwrap_or((0, 0.0)),
                all: median(durations.to_vec()).unwrap_or(0.0),
            }
        }
    }
}

/// Returns the effect of the time off a CPU, over the calls for which it is known.
fn off_cpu(values: &[f64], durations: &[f64], is_slow: &[bool]) -> Effect {
    let those = |slow: bool| -> (Level, f64, f64) {
        let all = values.iter().zip(durations).zip(is_slow);
        let some: Vec<(f64, f64)> = all
            .filter(|((off, _), is)| **is == slow && !off.is_nan())
            .map(|((off, duration), _)| (*off, *duration))
            .collect();
        let n = some.len().max(1) as f64;
        let mean = some.iter().map(|(_, duration)| duration).sum::<f64>() / n;
        let level = Level::of(some.into_iter().map(|(off, _)| off).collect());
        let share = if mean > 0.0 { level.mean / mean } else { 0.0 };
        (level, mean, share)
    };
    let ((slow, slow_mean, share), (others, mean, of_others)) = (those(true), those(false));
    let excess = slow_mean - mean;
    let of_excess = if excess > 0.0 { (slow.mean - others.mean) / excess } else { 0.0 };
    let spearman = spearman(values, durations);
    let means = [slow_mean, mean];
    Effect::OffCpu { spearman, slow, others, means, share, of_others, of_excess }
}

/// Returns the effect of the class with the largest n·(r − m)². Here, n is the number of calls in
/// the class, r the mean rank of their durations, and m the mean rank of all durations.
fn of_class(classes: &[u32], durations: &[f64], is_slow: &[bool]) -> Effect {
    let ranks = ranks(durations);
    let middle = (durations.len() as f64 + 1.0) / 2.0;
    let most = classes.iter().filter(|c| **c != u32::MAX).max().map_or(0, |c| *c as usize + 1);
    let mut sums = vec![(0usize, 0.0); most];
    for (class, rank) in classes.iter().zip(&ranks) {
        if let Some(sum) = sums.get_mut(*class as usize) {
            *sum = (sum.0 + 1, sum.1 + rank - middle);
        }
    }
    let far = |sum: &(usize, f64)| if sum.0 == 0 { 0.0 } else { sum.1 * sum.1 / sum.0 as f64 };
    let farthest = (0..most).max_by(|a, b| far(&sums[*a]).total_cmp(&far(&sums[*b])));
    let class = farthest.unwrap_or(0) as u32;
    let those = |inside: bool| {
        let some = durations.iter().zip(classes).filter(|(_, c)| (**c == class) == inside);
        median(some.map(|(duration, _)| *duration).collect()).unwrap_or(0.0)
    };
    let part = |slow: bool| {
        let all = is_slow.iter().filter(|is| **is || !slow).count();
        let some = classes.iter().zip(is_slow).filter(|(c, is)| **c == class && (**is || !slow));
        some.count() as f64 / all.max(1) as f64
    };
    let of_durations = super::association::classes(&ranks, 16);
    Effect::Class {
        class,
        median: those(true),
        others: those(false),
        share: part(false),
        of_slow: part(true),
        information: information(classes, &of_durations).nats,
    }
}
