//! The third layer: the state that one process contributes to a profile.
//!
//! | module | purpose |
//! |---|---|
//! | [`part`] | owns the process's row of the loss table and its part of the profile; renewed after a fork |
//! | [`events`] | writes files of events in the process's part |
//! | [`plugins`] | holds the profiler plugins that are loaded into the process |
//! | [`program`] | the moment before the program's `main` |
//! | [`hosts`] | numbers the hosts that were seen, and writes what each says about itself |
//! | [`names`] | holds the dictionary of names and ids that all adapters share |
//! | [`losses`] | counts losses |
//! | [`panics`] | catches internal panics, and switches the agent off after one |
//! | [`load`] | loads the run when there is something to record |
//! | [`cost`] | the processor time that the library uses before the first call |
//! | [`thread_times`] | the processor time of all threads, at the end of the process |
//! | [`lock`] | the process's lock |
//! | [`descriptors`] | tracks the counters that a forked child inherits and has to close |

pub mod cost;
pub mod descriptors;
pub mod events;
pub mod hosts;
pub mod load;
pub mod lock;
pub mod losses;
pub mod names;
pub mod panics;
pub mod part;
pub mod plugin_ids;
pub mod plugins;
pub mod program;
pub mod thread_times;
