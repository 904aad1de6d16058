//! Computes the statistics of a scope (a set of calls of one op) on several worker threads, with
//! buffers that are used again for every scope.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pairs::{PairScratch, pair};
use super::ranks::{RankScratch, Ranked, rank};
use super::samples::Slice;
use super::{Scope, Variable};

/// Buffers for describing one scope at a time. Each worker has its own `Scratch`.
#[derive(Debug)]
pub(super) struct Workspace {
    /// For each variable, the rank and the bucket of each call. Ranks are multiplied by 2, because
    /// equal values share the mean of their ranks.
    ranks: Vec<(Vec<u32>, Vec<u8>)>,
    scratch: Vec<Scratch>,
}

#[derive(Debug, Default)]
struct Scratch {
    rank: RankScratch,
    pair: PairScratch,
}

impl Workspace {
    pub fn new(workers: usize) -> Self {
        Self { ranks: vec![], scratch: (0..workers.max(1)).map(|_| Scratch::default()).collect() }
    }

    /// Computes the statistics of the variables of these calls, and of all pairs of variables. The
    /// other fields of the scope, except for `calls`, stay empty.
    pub fn describe(&mut self, calls: &Slice<'_>, buckets: usize, tables: bool) -> Scope {
        self.ranks.resize_with(calls.columns.len(), Default::default);
        for (ranks, places) in &mut self.ranks {
            ranks.resize(calls.len, 0);
            places.resize(calls.len, 0);
        }
        let items = calls.columns.iter().zip(&mut self.ranks).collect();
        let ranked: Vec<Ranked> =
            parallel(&mut self.scratch, items, |scratch, (column, (ranks, places))| {
                rank(column, buckets, &mut scratch.rank, ranks, places)
            });
        // Sorting takes the most memory. Pairs need other buffers, so large buffers for sorting are
        // freed before pairs are computed.
        self.scratch.iter_mut().for_each(|scratch| scratch.rank.shrink());
        let pairs =
            (0..calls.columns.len()).flat_map(|given| (0..given).map(move |of| (of, given)));
        let (columns, ranks) = (&calls.columns, &self.ranks);
        let pairs = parallel(&mut self.scratch, pairs.collect(), |scratch, (of, given)| {
            let side = |i: usize| super::pairs::Side {
                column: columns[i],
                ranked: &ranked[i],
                ranks: &ranks[i].0,
                places: &ranks[i].1,
            };
            let mut pair = pair(&side(of), &side(given), buckets, tables, &mut scratch.pair);
            (pair.of, pair.given) = (of, given);
            pair
        });
        Scope {
            calls: calls.len as u64,
            locations: Default::default(),
            variables: ranked.iter().map(Variable::from).collect(),
            pairs,
            brackets: Vec::new(),
            effective: None,
            inner: 0,
            sampled: None,
        }
    }
}

/// Calls `each` for every item, on at most as many threads as there are `states`. Without states,
/// does nothing. Returns the results in the order of the items.
pub(super) fn parallel<S: Send, T: Send, R: Send>(
    states: &mut [S],
    items: Vec<T>,
    each: impl Fn(&mut S, T) -> R + Sync,
) -> Vec<R> {
    let workers = states.len().min(items.len());
    if workers < 2 {
        let Some(state) = states.first_mut() else { return Vec::new() };
        return items.into_iter().map(|item| each(state, item)).collect();
    }
    let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|i| Mutex::new(Some(i))).collect();
    let next = AtomicUsize::new(0);
    let work = |state: &mut S| {
        let mut results = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { break };
            // No thread panics while it holds the lock, so the lock is never poisoned. Every item
            // is taken only once, so it is still there.
            let taken = item.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            results.extend(taken.map(|item| (i, each(state, item))));
        }
        results
    };
    let mut results = std::thread::scope(|scope| {
        let mut states = states.iter_mut().take(workers);
        let own = states.next();
        let work = &work;
        let others: Vec<_> = states.map(|state| scope.spawn(move || work(state))).collect();
        let mut results = own.map(work).unwrap_or_default();
        for other in others {
            match other.join() {
                Ok(more) => results.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(i, _)| *i);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::parallel;

    #[test]
    fn every_item_once_and_in_order() {
        for workers in 0..4 {
            let mut states = vec![0; workers];
            let results = parallel(&mut states, (0..100).collect(), |seen, item: u32| {
                *seen += 1;
                item * 2
            });
            let expected: Vec<u32> =
                if workers == 0 { vec![] } else { (0..100).map(|i| i * 2).collect() };
            assert_eq!(results, expected);
            assert_eq!(states.iter().sum::<usize>(), expected.len());
        }
    }
}
