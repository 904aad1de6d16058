//! The third layer of the agent: the state that one process contributes to a profile.
//!
//! | module | purpose |
//! |---|---|
//! | [`part`] | a process's row of losses and part of the profile; made again after a fork |
//! | [`events`] | writes files of events to the process's part |
//! | [`plugins`] | stores which profiler plugins are loaded into the process |
//! | [`plugin_ids`] | pushes ids of ops to profiler plugins |
//! | [`program`] | calls a function before the program's `main` |
//! | [`hosts`] | gives numbers to hosts, and remembers whether a part contains their descriptions |
//! | [`names`] | stores the names and ids of libraries and exports, for all adapters |
//! | [`losses`] | counts losses |
//! | [`panics`] | catches internal panics, and switches the agent off after one |
//! | [`load`] | loads the run when there is something to record |
//! | [`cost`] | measures the processor time that the library uses outside of calls |
//! | [`thread_times`] | reads the processor times of all threads at the end of a recording |
//! | [`lock`] | the process's lock |
//! | [`descriptors`] | knows the counters that a forked child inherits and has to close |

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
