//! Shared parts of the tests, for example profiles made from scripts, and the comparison of a
//! program's output with golden files.
//!
//! | module | purpose |
//! |---|---|
//! | [`browser`] | drives a browser, for tests of pages |
//! | [`c`] | compiles C programs of `tests/programs` |
//! | [`counting`] | provides counters, memory and machines for tests of counting |
//! | [`hosts`] | describes the hosts (frameworks) that scripts use |
//! | [`script`] | describes a profile in a test: processes, threads, calls |
//! | [`make`] | writes a script as a real profile directory, with the real page writer |
//! | [`python`] | runs Python programs that compute the numbers that our results must equal |
//! | [`random`] | generates numbers that are the same in every run |
//! | [`scratch`] | creates temporary directories |
//! | [`skips`] | reports tests that cannot run on this machine |
//! | [`firefox`] | drives Firefox, as a second browser |
//! | [`fuzz`] | runs readers over arbitrary bytes, for fuzzers and mutation tests |
//! | [`golden`] | runs `counterpoint` and compares its output with files under `tests/golden` |
//!
//! This crate is only for development. No release contains it. Like tests, its functions may panic.

pub mod browser;
pub mod c;
pub mod counting;
pub mod firefox;
pub mod fuzz;
pub mod golden;
pub mod hosts;
pub mod make;
pub mod python;
pub mod random;
pub mod scratch;
pub mod script;
pub mod skips;

pub use browser::Browser;
pub use firefox::Firefox;
pub use golden::{Golden, Output};
pub use make::PageMaker;
pub use random::Random;
pub use scratch::Scratch;
pub use script::{CallScript, GroupRead, Item, ProcessScript, ProfileScript, ThreadScript};
pub use skips::{skip, skip_this};
