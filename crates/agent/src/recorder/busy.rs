//! The guard that marks the recorder as busy: it is changing a thread's state.
//!
//! ```text
//!  idle ──── set ────► busy    the state may be half changed; a call from a signal handler is not recorded
//!    ▲                   │
//!    └───── clear ───────┘
//! ```
//!
//! **Who reads it.** Only the thread that owns the state, and signal handlers that interrupt this
//! thread. A handler runs between two instructions of the thread, on the same processor or after a
//! migration that makes the thread's own stores visible to the handler. So no other order than that
//! of the instructions is needed: the accesses are relaxed, and compile to plain ones.
//!
//! **What the fences do.** The compiler may move other stores across a relaxed one. A store to the state
//! that came before `set`, or after `clear`, would be seen half done by a handler that believes the guard.
//! [`compiler_fence`] forbids that, and emits no instruction.
//!
//! **What a panic does.** It switches the agent off for good ([`crate::process::panics`]), so the
//! guard need not be cleared, and the state that may be half changed stays out of reach. A
//! destructor that cleared the guard would give each bracket a landing pad; some brackets lie
//! between the frames of the host and must not have one (`adapters/iree/probe.rs`).

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Whether the recorder is changing the state of the thread that owns this.
#[repr(transparent)]
pub(crate) struct Busy(AtomicU32);

impl Busy {
    /// Makes the guard of a state that is being created.
    pub(super) fn while_made() -> Self {
        Self(AtomicU32::new(1))
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Called before the state is changed.
    #[inline(always)]
    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Called when the state is whole again.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        compiler_fence(Ordering::SeqCst);
        self.0.store(0, Ordering::Relaxed);
    }
}

/// `while_busy!(thread, change)` runs `change` as the recorder, so that calls that a signal handler
/// makes at the same time are not recorded. Where a handler of the program may have interrupted the
/// recorder, the caller has checked that the guard is not set. `change` must not leave the macro
/// (by `return`, for example), because the guard would stay set. It may break out of a labelled
/// block that it contains.
///
/// It is a macro because a closure is not certain to be inlined, and a bracket is to be one short function.
macro_rules! while_busy {
    ($thread:expr, $change:expr) => {{
        $thread.busy.set();
        let result = $change;
        $thread.busy.clear();
        result
    }};
}
pub(crate) use while_busy;
