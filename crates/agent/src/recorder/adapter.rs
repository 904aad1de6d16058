//! What the agent knows about an adapter: a few cold functions. Nothing on a hot path goes
//! through them; an adapter calls the recorder directly.

use crate::recorder::thread::Thread;
use crate::state::source::RunSource;

/// One kind of host. The list of all adapters is `entry/adapters.rs`.
#[derive(Debug)]
pub struct Adapter {
    /// In the constructor, before there are threads, in every process: looks up what must not be
    /// looked up later.
    pub prepare: fn(),
    /// At the end of the constructor, when it is known whether the environment asks for a profile.
    pub constructed: fn(),
    /// After a session has begun, on the thread that began it.
    pub session_began: fn(),
    /// At the orderly end of the process, on the thread that ends it.
    pub at_exit: fn(),
    /// Brackets `calls` empty calls with the very code that brackets real ones, and says how long each
    /// took. `uncounted`: calls for which no counter is read.
    pub rehearse: fn(thread: &mut Thread, calls: usize, uncounted: bool) -> Took,
    /// Whether it brackets calls for which no counter is read, unless the run asks for them.
    pub has_uncounted: bool,
    /// Its own way of asking for a profile.
    pub run_source: Option<&'static RunSource>,
}

/// Ticks of each empty call without and with the bracket.
#[derive(Debug, Default)]
pub struct Took {
    /// Without.
    pub bare: Vec<u64>,
    /// With.
    pub probed: Vec<u64>,
}
