//! Runs under a budget (`run --budget`), in which all calls were counted and only some were timed.
//!
//! | module | what it does |
//! |---|---|
//! | [`strata`] | the sum over all calls of one thread and op, with its interval |

pub mod strata;

pub use strata::Strata;
