//! The fourth layer: records calls of a thread, whatever adapter makes them. It knows no adapter by
//! name.
//!
//! What it offers to adapters:
//!
//! | verb | where |
//! |---|---|
//! | attach the calling thread | [`attach::attach`], when [`thread::current`] is null or not attached |
//! | bracket a call | [`bracket`]: begin, end; [`thread::Thread::begin_apart`] where they are two calls |
//! | keep words with a call in progress | [`thread::Thread::set_slot`] |
//! | give a call values and texts | [`values`]; users' own by [`collectors`] |
//! | take ids, and announce what they name | [`crate::process::names`], [`crate::process::part::Process::append`] |
//! | count a loss | [`crate::process::losses`] |
//!
//! | module | what |
//! |---|---|
//! | [`bracket`] | the bracket around a call: the hot path |
//! | [`thread`] | what one thread owns: page, counters, the calls that it is in |
//! | [`attach`] | how a thread begins to be recorded, and how it ends |
//! | [`pages`] | the pages that a thread writes to |
//! | [`values`] | values of a call, and texts |
//! | [`collectors`] | users' collectors |
//! | [`adapter`] | what the agent knows about an adapter |
//! | [`calibrate`] | what the bracket costs when there is nothing in it |
//! | [`fork`] | a fork by a signal handler that has interrupted the recorder |

pub mod adapter;
pub mod attach;
pub mod bracket;
pub mod calibrate;
pub mod collectors;
pub mod fork;
pub mod pages;
pub mod thread;
pub mod values;
