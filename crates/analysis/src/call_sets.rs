//! Computes, for each process and set of counters, what the recorder measures for an empty call (of
//! a function that does nothing). Views that show single calls need these values.

use profile::Profile;

use crate::empty::EmptyCall;
use crate::probe::in_place;

/// What the recorder measures for an empty call (of a function that does nothing), in one process
/// with one set of counters.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSet {
    /// Process index.
    pub process: usize,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    pub empty: EmptyCall,
}

/// Returns a [`CallSet`] for each process and each set of counters for which empty calls were
/// measured. Reads all calls once, because they show how long readings of the counters took in the
/// program.
pub fn call_sets(profile: &Profile) -> Vec<CallSet> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let brackets = in_place(profile, workers).brackets(profile);
    let set = |(process, counters, empty): (usize, u32, &EmptyCall)| CallSet {
        process,
        counters,
        empty: empty.clone(),
    };
    let mut sets: Vec<CallSet> = brackets.by_set().map(set).collect();
    sets.sort_by_key(|set| (set.process, set.counters));
    sets
}
