//! Adds up the calls of one row.

use std::collections::{BTreeSet, HashMap};

use super::{CounterTotal, PassTotal};
use crate::amounts::BracketCounts;
use crate::durations::Durations;
use crate::metrics::{self, SetSum};

/// Number of 64-bit words for a set of CPUs. CPU numbers have 12 bits.
const CPU_WORDS: usize = 4096 / 64;

/// The sums over the calls that were added to a row so far. `own`, `own_taken`, `exhausted`,
/// `unplaced`, dispatches, threads, first calls and CPUs are those of all calls. The other sums are
/// over outermost calls, except `inner`. Times are in units of 1/[`crate::amounts::PARTS`] tick,
/// without the time that the recorder added.
#[derive(Debug)]
pub struct Sum {
    pub calls: u64,
    /// Number of calls inside of other calls of the row.
    pub inner: u64,
    /// Number of calls whose self time is 0 after the recorder's time was subtracted.
    pub exhausted: u64,
    pub dispatches: u64,
    /// Whether some call is not a workgroup, or has an unknown workgroup id.
    pub unplaced: bool,
    pub total: u128,
    pub own: u128,
    /// The time that was subtracted from `total`.
    pub taken: u128,
    /// The time that was subtracted from `own`.
    pub own_taken: u128,
    pub brackets: BracketCounts,
    pub durations: Durations,
    pub min: u64,
    pub max: u64,
    pub counters: Vec<CounterTotal>,
    pub sets: Vec<SetSum>,
    pub passes: Vec<PassTotal>,
    pub threads: BTreeSet<(usize, usize)>,
    pub last_thread: Option<(usize, usize)>,
    /// The start and the duration of the earliest call that was added since `last_thread` was set.
    /// `firsts` does not consider these calls yet.
    pub first: (u64, u64),
    /// For each thread, the start and the duration of its earliest call. The calls of `last_thread`
    /// that were added last may not be considered yet.
    pub firsts: HashMap<(usize, usize), (u64, u64)>,
    pub cpus: [u64; CPU_WORDS],
}

impl Sum {
    /// Enters `first` into `firsts` for `last_thread`, unless an earlier call is there.
    pub fn note_first(&mut self) {
        if let (Some(thread), (begin, _)) = (self.last_thread, self.first) {
            let known = self.firsts.entry(thread).or_insert(self.first);
            if begin < known.0 {
                *known = self.first;
            }
        }
    }

    pub fn new(counters: usize, sets: Vec<SetSum>, passes: usize) -> Self {
        Self {
            calls: 0,
            inner: 0,
            exhausted: 0,
            dispatches: 0,
            unplaced: false,
            total: 0,
            own: 0,
            taken: 0,
            own_taken: 0,
            brackets: BracketCounts::default(),
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

    pub fn merge(&mut self, mut other: Self) {
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
        self.inner += other.inner;
        self.exhausted += other.exhausted;
        self.total += other.total;
        self.own += other.own;
        self.taken += other.taken;
        self.own_taken += other.own_taken;
        self.brackets.add(other.brackets);
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
}

impl AsMut<[SetSum]> for Sum {
    fn as_mut(&mut self) -> &mut [SetSum] {
        &mut self.sets
    }
}
