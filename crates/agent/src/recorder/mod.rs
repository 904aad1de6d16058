//! The fourth layer of the agent ([`crate`] lists the layers): records the calls of a thread. All
//! adapters (each for one kind of host) use it, and its code does not name any of them.
//!
//! Adapters use these operations:
//!
//! | operation | where |
//! |---|---|
//! | attach the calling thread | [`attach::attach`], when [`thread::current`] is null or not attached |
//! | bracket a call (do the recorder's work before and after it), or only count it in a run with a budget (a limit for the cost of recording) | [`bracket`]: [`thread::Thread::begin`] before the call and [`thread::Thread::end`] after it. If the host announces the start and the end of the call separately, also [`thread::Thread::start`] after `begin` and [`thread::Thread::finish`] before `end`. [`short`] has faster versions |
//! | store data for a call in progress | [`thread::Thread::set_slot`] |
//! | attach values and texts to a call | [`values`]; for the values of users' collectors: [`collectors`] |
//! | take ids, and write the names that they stand for | [`crate::process::names`], [`crate::process::part::Process::append`] |
//! | count a loss | [`crate::process::losses`] |
//!
//! | module | purpose |
//! |---|---|
//! | [`bracket`] | reads clock and counters before and after a call; the hot path |
//! | [`busy`] | marks a thread's state while the recorder changes it |
//! | [`abandoned`] | removes calls that never end |
//! | [`short`] | fast versions of the functions for the most frequent calls |
//! | [`thread`] | contains the state of a thread: its page, its counters, its open calls |
//! | [`attach`] | attaches a thread to the recording, and detaches it |
//! | [`budget`] | in a run with a budget: counts all calls, and times calls chosen at random |
//! | [`pages`] | claims, flushes and releases the pages that a thread writes to |
//! | [`values`] | collects the values of a call, and numbers texts |
//! | [`collectors`] | runs the users' collectors |
//! | [`adapter`] | defines the interface of an adapter |
//! | [`calibrate`] | measures the cost of a bracket around an empty call |
//! | [`rehearsal`] | makes empty calls with and without a bracket, to measure the bracket's cost |
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
