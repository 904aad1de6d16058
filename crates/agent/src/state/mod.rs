//! The second layer: whether something is being recorded, and what was asked for.
//!
//! | module | what |
//! |---|---|
//! | [`epoch`] | the number of what is being recorded: one load tells whether there is anything to do |
//! | [`run_file`] | whether the environment asks for a profile, and the path of the run file |
//! | [`source`] | an adapter's own way of asking for a profile, in place of a run file |
//! | [`run`] | what the run file says, made ready to use |
//! | [`part_words`] | what a process knows about its part of a profile; a forked child finds it zeroed |

pub mod epoch;
pub mod part_words;
pub mod run;
pub mod run_file;
pub mod source;
