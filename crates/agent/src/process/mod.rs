//! The third layer: what one process owns of a profile.
//!
//! | module | what |
//! |---|---|
//! | [`part`] | the process's row of the loss table and its part of the profile; renewed after a fork |
//! | [`names`] | the dictionary of names and ids, one for all adapters |
//! | [`losses`] | counts what was lost |
//! | [`guard`] | stops panics of ours, and switches the agent off after one |
//! | [`load`] | loads the run when there is something to record |
//! | [`lock`] | the process's lock |
//! | [`descriptors`] | the counters that a forked child inherits and closes |

pub mod descriptors;
pub mod guard;
pub mod load;
pub mod lock;
pub mod losses;
pub mod names;
pub mod part;
