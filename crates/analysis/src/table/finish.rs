//! Converts sums to rows: computes quantiles and metrics, and decides which values are unknown.

use model::metric::Bound;
use profile::Profile;

use super::fill::Table;
use super::sum::Sum;
use super::{FirstCalls, Key, Row, Taken};
use crate::amounts::{Brackets, Inside, PARTS, ticks};
use crate::estimate::Estimate;
use crate::metrics::{Sets, empty_share, is_clock_of_threads};

struct Finishing<'a> {
    profile: &'a Profile,
    sets: &'a Sets,
    metrics: &'a [Bound],
    brackets: &'a Brackets,
}

impl Sum {
    fn finish(mut self, key: Key, table: &Finishing<'_>) -> Row {
        self.note_first();
        let firsts = || self.firsts.values().map(|(_, time)| *time);
        let first = FirstCalls {
            calls: self.firsts.len() as u64,
            total: ticks(firsts().map(u128::from).sum()),
            max: ticks(firsts().max().unwrap_or(0).into()),
        };
        let raw = table.brackets.is_raw();
        let taken = |taken: u128| self.brackets.taken(self.calls, ticks(taken), table.brackets);
        let taken = taken(self.taken).zip(taken(self.own_taken)).filter(|_| !raw);
        let taken = taken.map(|(total, own)| Taken { total, own });
        let total = rest(self.total, taken.map(|taken| taken.total));
        let of_empty = match (raw, taken) {
            (true, _) => self.brackets.durations(self.calls, table.brackets),
            (false, taken) => taken.map(|taken| taken.total),
        };
        for (i, counter) in self.counters.iter_mut().enumerate() {
            let inside = Inside { taken: ticks(self.taken), calls: self.calls };
            counter.brackets =
                self.brackets.counter(table.profile, i, counter.calls, inside, table.brackets);
            counter.set_value(raw);
            // A clock that stops while its thread waits cannot count more time than the calls take.
            // So the value of such a counter is limited to the time of the calls.
            let of_all_calls = counter.calls == self.calls && !raw;
            if of_all_calls && is_clock_of_threads(table.profile, i) {
                let ns = total.times(table.profile.timeline.ns_per_tick());
                counter.value = counter.value.at_most(ns);
            }
        }
        let of_parts = |parts: Option<f64>| parts.map_or(0.0, |parts| parts / PARTS as f64);
        let [p10, p50, p99] = self.durations.quantiles([0.1, 0.5, 0.99]).map(of_parts);
        // Metrics are computed from outermost calls. If the row has inner calls, the number of
        // dispatches of the outermost calls alone is not known.
        let all = [(self.calls, self.dispatches)].into_iter().filter(|_| self.passes.is_empty());
        let of_passes = self.passes.iter().map(|pass| (pass.calls, pass.dispatches));
        let known = all.chain(of_passes).filter(|_| !self.unplaced && self.inner == 0);
        let dispatches: Vec<(u64, u64)> = known.collect();
        let (profile, metrics) = (table.profile, table.metrics);
        Row {
            key,
            first,
            metrics: table.sets.values(profile, metrics, &self.sets, &dispatches, table.brackets),
            calls: self.calls,
            inner: self.inner,
            exhausted: self.exhausted,
            dispatches: (!self.unplaced).then_some(self.dispatches),
            total,
            own: rest(self.own, taken.map(|taken| taken.own)),
            taken,
            empty_share: empty_share(ticks(self.total + self.taken), of_empty),
            min: ticks(self.min.into()),
            max: ticks(self.max.into()),
            p10,
            p50,
            p99,
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

/// Returns a sum of times as an estimate. `taken` was already subtracted from the sum, so only its
/// uncertainty is used: as the interval of the estimate.
fn rest(parts: u128, taken: Option<Estimate>) -> Estimate {
    let value = ticks(parts);
    let of = taken.unwrap_or_default();
    Estimate { value, low: value + of.value - of.high, high: value + of.value - of.low }
}

impl Table<'_> {
    /// Returns the sum of the self times of all calls of the profile, in ticks, and the time that
    /// was subtracted from it.
    pub fn all(&self, brackets: &Brackets) -> (Estimate, Option<Estimate>) {
        let taken = ticks(self.all_own_taken);
        let taken = self.all_in_brackets.taken(self.all_calls, taken, brackets);
        let taken = taken.filter(|_| !brackets.is_raw());
        (rest(self.all_own, taken), taken)
    }

    /// Computes all rows that have calls, on `workers` threads. The rows are in no particular
    /// order.
    pub fn finish(self, workers: usize, brackets: &Brackets) -> Vec<Row> {
        let mut sums: Vec<Option<Sum>> = self.sums.into_iter().map(Some).collect();
        let mut work: Vec<(Key, Sum)> = self
            .rows
            .into_iter()
            .filter_map(|(key, place)| Some((key, sums[place].take()?)))
            .filter(|(_, sum)| sum.calls > 0)
            .collect();
        // Computing the quantiles of a large row takes long. So the largest rows are assigned
        // first, each to the worker thread that has the fewest calls so far.
        work.sort_by_key(|(key, sum)| (std::cmp::Reverse(sum.calls), *key));
        let mut hands: Vec<(u64, Vec<(Key, Sum)>)> =
            (0..workers.max(1)).map(|_| (0, Vec::new())).collect();
        for one in work {
            if let Some((calls, hand)) = hands.iter_mut().min_by_key(|(calls, _)| *calls) {
                *calls = calls.saturating_add(one.1.calls);
                hand.push(one);
            }
        }
        let mut hands: Vec<_> = hands.into_iter().map(|(_, hand)| hand).collect();
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
