//! The second layer: whether something is being recorded, and what was requested.
//!
//! | module | purpose |
//! |---|---|
//! | [`epoch`] | identifies the current recording by a number; one load tells whether there is anything to do |
//! | [`run_file`] | knows whether the environment asks for a profile, and the path of the run file |
//! | [`source`] | lets an adapter ask for a profile in its own way, without a run file |
//! | [`run`] | holds the contents of the run file in a form that is ready to use |
//! | [`part_words`] | holds what a process knows about its part of a profile; a forked child finds it zeroed |

pub mod epoch;
pub mod part_words;
pub mod run;
pub mod run_file;
pub mod source;
