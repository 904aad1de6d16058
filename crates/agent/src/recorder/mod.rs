//! The fourth layer: records the calls of a thread, whichever adapter makes them. It knows no
//! adapter by name.
//!
//! It offers these operations to adapters:
//!
//! | operation | where |
//! |---|---|
//! | attach the calling thread | [`attach::attach`], when [`thread::current`] is null or not attached |
//! | bracket a call, or count it in a run with a budget | [`bracket`]: [`thread::Thread::begin`] and [`thread::Thread::end`], with [`thread::Thread::start`] and [`thread::Thread::finish`] between them if the host makes two separate calls; [`short`] |
//! | store data for a call in progress | [`thread::Thread::set_slot`] |
//! | attach values and texts to a call | [`values`]; those of users by [`collectors`] |
//! | take ids, and write the names that they stand for | [`crate::process::names`], [`crate::process::part::Process::append`] |
//! | count a loss | [`crate::process::losses`] |
//!
//! | module | purpose |
//! |---|---|
//! | [`bracket`] | brackets a call; the hot path |
//! | [`busy`] | the guard while the recorder changes a thread's state |
//! | [`abandoned`] | forgets calls that never end |
//! | [`short`] | the short ways of the calls that most programs make |
//! | [`thread`] | holds what one thread owns: its page, its counters, its calls in progress |
//! | [`attach`] | attaches a thread to the recording, and detaches it |
//! | [`budget`] | counts all calls and draws those that are timed, in a run with a budget |
//! | [`pages`] | claims, flushes and releases the pages that a thread writes to |
//! | [`values`] | collects the values of a call, and numbers texts |
//! | [`collectors`] | runs the users' collectors |
//! | [`adapter`] | defines the interface of an adapter |
//! | [`calibrate`] | measures the cost of an empty bracket |
//! | [`rehearsal`] | brackets empty calls, to measure what a bracket costs |
//! | [`handler_fork`] | handles a fork by a signal handler that has interrupted the recorder |

mod abandoned;
pub mod adapter;
pub mod attach;
pub mod bracket;
pub mod budget;
pub mod busy;
pub mod calibrate;
pub mod collectors;
pub mod handler_fork;
pub mod pages;
pub mod rehearsal;
pub mod short;
pub mod thread;
pub mod values;
