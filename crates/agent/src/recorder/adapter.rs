//! The interface of an adapter (the code for one kind of host). On a hot path, the adapter calls
//! the recorder directly.

use crate::recorder::thread::Thread;
use crate::state::source::RunSource;

/// The functions and properties of one adapter. `entry/adapters.rs` lists all adapters.
#[derive(Debug)]
pub struct Adapter {
    /// Called by this library's constructor in every process, usually before there are further
    /// threads. Looks up symbols that must not be looked up later.
    pub prepare: fn(),
    /// Called at the end of the constructor, when the agent knows whether the environment asks for
    /// a profile.
    pub constructed: fn(),
    /// Called on the main thread immediately before the program's `main`, when all libraries are
    /// initialised. Not called if the environment asks for no profile, or if this library was
    /// loaded after `main` had begun.
    pub main_begins: fn(),
    /// Called after a session (a recording that the program itself begins) has begun, on the thread
    /// that began it.
    pub session_began: fn(),
    /// Called before a session ends, on the thread that ends it, and also if the program ends a
    /// session although none is in progress. In a session, the adapter can still write to the
    /// process's part of the profile.
    pub session_ends: fn(),
    /// Called when the process ends normally while it is being recorded, on the thread that ends
    /// the process.
    pub at_exit: fn(),
    /// Makes `calls` empty calls without a bracket (the recorder's work around a call) and as many
    /// with the bracket of real calls, and returns how long each of them took. `uncounted` selects
    /// calls for which no counter is read.
    pub rehearse: fn(thread: &mut Thread, calls: usize, uncounted: bool) -> Took,
    /// Whether the adapter has calls for which counters are not read by default.
    pub has_uncounted: bool,
    /// The adapter's own way in which the environment can ask for a profile, for example with
    /// variables of the host.
    pub run_source: Option<&'static RunSource>,
}

impl Adapter {
    /// An adapter that does nothing. Other adapters take from it the values of fields that they do
    /// not set.
    pub const NOTHING: Self = Self {
        prepare: || {},
        constructed: || {},
        main_begins: || {},
        session_began: || {},
        session_ends: || {},
        at_exit: || {},
        rehearse: |_, _, _| Took::default(),
        has_uncounted: false,
        run_source: None,
    };
}

/// The durations of empty calls, without and with the bracket.
#[derive(Debug, Default)]
pub struct Took {
    pub bare: Vec<u64>,
    pub probed: Vec<u64>,
}
