//! The guard that marks a thread's state as busy while the recorder changes it.
//!
//! ```text
//!  idle ──── set ────► busy    the state may be half changed; a call from a signal handler is not recorded
//!    ▲                   │
//!    └───── clear ───────┘
//! ```
//!
//! **Who reads it.** Only the thread that owns the state, and signal handlers that interrupt this
//! thread. A handler runs between two instructions of the thread, and sees what the earlier
//! instructions stored, without memory barriers. So the accesses to the guard can be relaxed, and
//! compile to plain loads and stores.
//!
//! **What the fences do.** The compiler may move other stores across a relaxed store. If it moved a
//! store that changes the state to before `set` or to after `clear`, a handler could find the guard
//! clear and the state half changed. [`compiler_fence`] forbids this, and emits no instruction.
//!
//! **What a panic does.** A panic switches the agent off permanently ([`crate::process::panics`]),
//! so the guard need not be cleared. A destructor that cleared it would give each bracket (the
//! recorder's work before and after a call) a landing pad (code that runs when an exception unwinds
//! the stack). Some brackets are between stack frames of the host and must not have a landing pad
//! (`adapters/iree/probe.rs`).

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

/// Set while the recorder is changing the state of the thread that owns this guard.
#[repr(transparent)]
pub(crate) struct Busy(AtomicU32);

impl Busy {
    pub(super) fn while_made() -> Self {
        Self(AtomicU32::new(1))
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    pub(crate) fn set(&self) {
        self.0.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    pub(crate) fn clear(&self) {
        compiler_fence(Ordering::SeqCst);
        self.0.store(0, Ordering::Relaxed);
    }
}

/// `while_busy!(thread, change)` sets the guard while it evaluates `change`. Code that a signal
/// handler may run must check first that the guard is not set. `change` must not leave the macro
/// (by `return`, for example), because the guard would stay set.
///
/// This is a macro because a closure might not be inlined.
macro_rules! while_busy {
    ($thread:expr, $change:expr) => {{
        $thread.busy.set();
        let result = $change;
        $thread.busy.clear();
        result
    }};
}
pub(crate) use while_busy;
