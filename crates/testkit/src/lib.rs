//! What tests of the reading side have in common: profiles made from a script, and a harness
//! that runs the command line and compares what it prints with golden files.
//!
//! | module | what |
//! |---|---|
//! | [`c`] | compiles C programs of `tests/programs` |
//! | [`counting`] | counters, memory and machines for tests of counting |
//! | [`script`] | a profile as a test describes it: processes, threads, calls |
//! | [`make`] | writes a script as a real profile directory, through the real page writer |
//! | [`random`] | numbers that are the same in every run |
//! | [`scratch`] | directories that go away again |
//! | [`skips`] | tests that cannot run on this machine say so |
//! | [`fuzz`] | readers over bytes that nobody wrote, for fuzzers and mutation tests |
//! | [`golden`] | runs `counterpoint` and compares with files under `tests/golden` |
//!
//! Dev only: nothing here is in a release, and it may panic, as tests do.

pub mod c;
pub mod counting;
pub mod fuzz;
pub mod golden;
pub mod make;
pub mod random;
pub mod scratch;
pub mod script;
pub mod skips;

pub use golden::{Golden, Output};
pub use make::PageMaker;
pub use random::Random;
pub use scratch::Scratch;
pub use script::{CallScript, GroupRead, Item, ProcessScript, ProfileScript, ThreadScript};
pub use skips::{skip, skip_this};
