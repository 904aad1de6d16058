//! Turns sums into rows: computes quantiles and metrics, and decides which values are unknown.

use model::metric::Bound;
use profile::Profile;

use super::fill::Table;
use super::sum::Sum;
use super::{FirstCalls, Key, Row, RowBrackets};
use crate::empty::{BracketCounts, Brackets, together};
use crate::metrics::Sets;

/// What all rows need in order to be finished.
struct Finishing<'a> {
    profile: &'a Profile,
    sets: &'a Sets,
    metrics: &'a [Bound],
    brackets: &'a Brackets,
}

impl Sum {
    fn finish(mut self, key: Key, table: &Finishing<'_>) -> Row {
        self.note_first();
        let firsts = || self.firsts.values().map(|(_, ticks)| *ticks);
        let first = FirstCalls {
            calls: self.firsts.len() as u64,
            total_ticks: firsts().map(u128::from).sum(),
            max_ticks: firsts().max().unwrap_or(0),
        };
        let brackets = row_brackets(&self.brackets, self.calls, table.brackets);
        for (i, counter) in self.counters.iter_mut().enumerate() {
            counter.brackets = self.brackets.counter(i, counter.calls, table.brackets);
        }
        Row {
            key,
            first,
            brackets,
            metrics: table.sets.values(table.profile, table.metrics, &self.sets, table.brackets),
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
            sampled: None,
            cpus: (0..)
                .zip(self.cpus)
                .filter(|(_, word)| *word != 0)
                .flat_map(|(place, word)| {
                    (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * place + bit)
                })
                .collect(),
        }
    }
}

/// The time of brackets in the times of these calls. `None` if they were not calibrated for all of
/// them.
fn row_brackets(counts: &BracketCounts, calls: u64, brackets: &Brackets) -> Option<RowBrackets> {
    let own = counts.durations(calls, brackets)?;
    let [beneath, inside] = counts.others(brackets);
    let (total, own_too) = (together(own, beneath), together(own, inside));
    Some(RowBrackets { total, own: own_too, each: own.times(1.0 / calls.max(1) as f64) })
}

impl Table<'_> {
    /// The time of brackets in the calls of the whole profile.
    pub fn all_brackets(&self, brackets: &Brackets) -> Option<RowBrackets> {
        row_brackets(&self.all_in_brackets, self.all_calls, brackets)
    }

    /// The rows that have calls, in no particular order. `workers` threads compute them.
    pub fn finish(self, workers: usize, brackets: &Brackets) -> Vec<Row> {
        let mut sums: Vec<Option<Sum>> = self.sums.into_iter().map(Some).collect();
        let mut work: Vec<(Key, Sum)> = self
            .rows
            .into_iter()
            .filter_map(|(key, place)| Some((key, sums[place].take()?)))
            .filter(|(_, sum)| sum.calls > 0)
            .collect();
        // Quantiles take time, so the biggest rows are assigned first.
        work.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.calls), *key));
        let mut hands: Vec<Vec<(Key, Sum)>> = (0..workers.max(1)).map(|_| Vec::new()).collect();
        for one in work {
            let calls = |hand: &Vec<(Key, Sum)>| hand.iter().map(|(_, s)| s.calls).sum::<u64>();
            if let Some(hand) = hands.iter_mut().min_by_key(|hand| calls(hand)) {
                hand.push(one);
            }
        }
        let (profile, metrics) = (self.profile, self.metrics);
        let table = Finishing { profile, sets: &self.sets, metrics, brackets };
        let finish = |hand: Vec<(Key, Sum)>| -> Vec<Row> {
            hand.into_iter().map(|(key, sum)| sum.finish(key, &table)).collect()
        };
        let own = hands.pop().unwrap_or_default();
        hands.retain(|hand| !hand.is_empty());
        std::thread::scope(|scope| {
            let others: Vec<_> =
                hands.into_iter().map(|hand| scope.spawn(move || finish(hand))).collect();
            let mut rows = finish(own);
            for other in others {
                match other.join() {
                    Ok(more) => rows.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            rows
        })
    }
}
