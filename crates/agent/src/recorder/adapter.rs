//! The interface of an adapter: a few cold functions. Hot paths do not go through them; there, an
//! adapter calls the recorder directly.

use crate::recorder::thread::Thread;
use crate::state::source::RunSource;

/// One kind of host. `entry/adapters.rs` lists all adapters.
#[derive(Debug)]
pub struct Adapter {
    /// Called by the constructor, before there are threads, in every process: looks up the symbols
    /// that must not be looked up later.
    pub prepare: fn(),
    /// Called at the end of the constructor, when it is known whether the environment asks for a profile.
    pub constructed: fn(),
    /// Called on the main thread when all libraries are initialised, right before the program's
    /// `main`. Not called in a process whose `main` had begun when this library was loaded.
    pub main_begins: fn(),
    /// Called after a session has begun, on the thread that began it.
    pub session_began: fn(),
    /// Called before a session ends, on the thread that ends it. The process's part can still be
    /// written.
    pub session_ends: fn(),
    /// Called at the orderly end of the process, on the thread that ends it.
    pub at_exit: fn(),
    /// Brackets `calls` empty calls with the same code that brackets real calls, and returns how
    /// long each took. `uncounted` selects calls for which no counter is read.
    pub rehearse: fn(thread: &mut Thread, calls: usize, uncounted: bool) -> Took,
    /// Whether the adapter has calls for which no counter is read unless the run asks for it.
    pub has_uncounted: bool,
    /// The adapter's own way of asking for a profile.
    pub run_source: Option<&'static RunSource>,
}

impl Adapter {
    /// An adapter that does nothing and measures nothing, with the default values for the fields of
    /// real adapters.
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

/// Ticks of each empty call, without and with the bracket.
#[derive(Debug, Default)]
pub struct Took {
    /// Ticks without the bracket.
    pub bare: Vec<u64>,
    /// Ticks with the bracket.
    pub probed: Vec<u64>,
}
