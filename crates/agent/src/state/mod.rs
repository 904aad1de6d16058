//! The second layer of the agent: whether something is being recorded, and what was requested.
//!
//! | module | purpose |
//! |---|---|
//! | [`epoch`] | identifies the current recording by a number; one load tells whether there is anything to do |
//! | [`run_file`] | checks whether a profile is asked for; stores the path of the run file |
//! | [`source`] | lets the environment ask for a profile with variables that an adapter defines |
//! | [`run`] | the contents of the run file, in a form that is ready to use |
//! | [`part_words`] | the data of a process about its part of a profile; zeroed in a forked child |

pub mod epoch;
pub mod part_words;
pub mod run;
pub mod run_file;
pub mod source;
