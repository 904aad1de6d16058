//! A host for Kineto's profiler plugins (`include/counterpoint/kineto_plugin.h`) and for
//! Counterpoint's extension of that interface. It runs in the profiled program and in the
//! command-line tool, and passes the events to a [`Sink`].
//!
//! ```text
//!  files ─ discover ─► Library ─ load ─► Plugin ─► Profiler ─ create ─► Session
//!                     (platform)                                      start, stop, push, pop
//!                                                            process ─► builder ─► Sink
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`platform`] | opening a shared object with the dynamic linker of the system |
//! | [`discover`](mod@discover) | which files of a directory are plugins, in which order |
//! | [`fit`] | whether a file may be loaded |
//! | [`catch`] | calls a plugin's functions so that their exceptions do not reach the host |
//! | [`layers`] | which plugins the loaders of OpenCL, CUDA and NVTX must load, too |
//! | [`load`] | a plugin: opened, extended, registered, queried |
//! | [`session`] | one recording of one profiler |
//! | [`event_checks`] | the functions that a plugin hands its events to |
//! | [`sink`] | where events go |
//! | [`entry`] | an event of a whole trace, for profilers that are not plugins |
//! | [`lineage`] | tells a forked child from its parent, whose sessions it must not use |
//! | [`conformance`] | drives a plugin through everything, to find out what it does wrong |
//! | [`stream`] | events as bytes, from the process of the plugins to the one that makes a profile |
//! | [`problem`] | everything that a plugin can do wrong, with messages |
//!
//! A plugin is somebody else's code in the host's process. The host checks that pointers are not
//! null and that sizes are large enough. It cannot detect a wild pointer, or a size that exceeds
//! the readable memory. A mistake that it detects becomes a [`Problem`], and the recording goes
//! on.

pub mod catch;
pub mod conformance;
pub mod discover;
pub mod entry;
pub mod event_checks;
pub mod fit;
mod known;
pub mod layers;
pub mod lineage;
pub mod load;
pub mod platform;
pub mod problem;
pub mod session;
pub mod sink;
pub mod stream;

pub use catch::Left;
pub use discover::discover;
pub use load::{Host, Plugin, Profiler};
pub use problem::{Problem, Problems};
pub use session::{Correlation, Session, Setup};
pub use sink::{Counter, Event, Flow, Message, Metadata, Sink};
