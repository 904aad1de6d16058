//! Computes the values of an empty call in each set of calls of a profile, for views that show
//! single calls.

use profile::Profile;

use crate::empty::EmptyCall;
use crate::probe::in_place;

/// The values of an empty call in the pages of one process with one set of counters.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSet {
    /// Process index.
    pub process: usize,
    /// Bit *i* is set if counter *i* was read.
    pub counters: u32,
    pub empty: EmptyCall,
}

/// Returns every set of calls of a profile that was calibrated, by process and set of counters.
/// Reads the calls of the profile once, because the calls show how long readings took in the
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
