//! Computes the values of an empty call for each process and set of counters, for views that show
//! single calls.

use profile::Profile;

use crate::empty::EmptyCall;
use crate::probe::in_place;

/// What the recorder measures for an empty call in one process with one set of counters.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSet {
    /// Process index.
    pub process: usize,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    pub empty: EmptyCall,
}

/// Returns the calibrated sets of calls of a profile. Reads all calls once, because they show how
/// long readings took in the program.
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
