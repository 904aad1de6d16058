//! Stores whether the calls of a machine (a virtual machine that calls ops, such as TVM's) are
//! watched at present. This is needed only in a recording with a budget, which is a limit for the
//! recording's cost ([`crate::recorder::budget::watch`]). A run of the machine is *watched* if the
//! machine announces each op to the recorder.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::recorder::budget::watch::{Calls, Pattern};
use crate::recorder::thread::Thread;

/// No run has claimed the machine.
pub const IDLE: u32 = 0;
pub const WATCHED: u32 = 1;
/// The run in progress is not watched: the agent's instrument was removed from the machine.
pub const UNWATCHED: u32 = 2;

/// Whether one machine has a run in progress, and whether its runs are watched. Only one run at a
/// time can claim the machine. A machine must not run on two threads at once; if a program
/// nevertheless does this, all later runs of the machine are watched.
#[derive(Debug, Default)]
pub struct Watching {
    state: AtomicU32,
    /// The thread that has claimed the machine, and the serial number of its process's part of the
    /// profile.
    thread: AtomicUsize,
    serial: AtomicU32,
    /// The number of runs that the run in progress represents, because only one run in that many is
    /// watched. 0 or 1 if every run is watched.
    one_in: AtomicU32,
    /// A hash of the calls that the run in progress has made.
    hash: AtomicU64,
    told: AtomicU32,
    /// While the recorder learns which calls a run makes: the list of the calls that the run in
    /// progress has made. Otherwise null.
    calls: AtomicPtr<Vec<u32>>,
    /// Whether all runs must be watched, because two threads used the machine at once, or because
    /// ops launch parallel regions. In a run that is not watched, the regions' tasks would belong
    /// to no op.
    is_always: AtomicBool,
    functions: AtomicPtr<Function>,
    pub switch: Switch,
}

#[derive(Debug, Default)]
pub struct Switch {
    lock: AtomicBool,
    /// The agent's instrument; null if it must not be removed.
    instrument: AtomicPtr<c_void>,
}

#[derive(Debug)]
pub struct Function {
    /// The number that identifies the function's runs in a profile.
    export: u32,
    /// Only the thread that has claimed the machine uses this field.
    pattern: UnsafeCell<Pattern>,
    next: *const Function,
}

// SAFETY: `next` is set before the value is shared, and never changed afterwards. Only the thread
// that has claimed the machine uses `pattern`.
unsafe impl Sync for Function {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The calling thread has claimed the machine, until it calls [`Watching::release`].
    Mine,
    /// The calling thread has already claimed the machine for an outer run, which is still in
    /// progress. The value is the machine's state.
    Within(u32),
    /// The machine cannot be claimed. The value is true if a run that is not watched is in progress
    /// on another thread.
    Refused(bool),
}

impl Watching {
    fn here() -> usize {
        // SAFETY: `pthread_self` has no preconditions.
        unsafe { libc::pthread_self() as usize }
    }

    /// Claims the machine for a run on this thread. In a forked child, calls `mend` first if a
    /// thread of the parent had claimed the machine; `mend` must add the instrument again.
    pub fn claim(&self, thread: &Thread, mend: impl FnOnce()) -> Claim {
        let here = Self::here();
        let state = self.state.load(Ordering::Acquire);
        if state != IDLE {
            if self.thread.load(Ordering::Relaxed) == here {
                return Claim::Within(state);
            }
            if self.serial.load(Ordering::Relaxed) == thread.serial {
                self.is_always.store(true, Ordering::Relaxed);
                return Claim::Refused(state == UNWATCHED);
            }
            mend();
            self.release();
        }
        if self.is_always.load(Ordering::Relaxed) {
            return Claim::Refused(false);
        }
        if self.state.compare_exchange(IDLE, WATCHED, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            self.is_always.store(true, Ordering::Relaxed);
            return Claim::Refused(false);
        }
        self.thread.store(here, Ordering::Relaxed);
        self.serial.store(thread.serial, Ordering::Relaxed);
        self.hash.store(0, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        Claim::Mine
    }

    pub fn release(&self) {
        self.one_in.store(1, Ordering::Relaxed);
        self.calls.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.thread.store(0, Ordering::Relaxed);
        self.state.store(IDLE, Ordering::Release);
    }

    /// Stores that the claimed run represents `runs` runs.
    pub fn set_one_in(&self, runs: u32) {
        self.one_in.store(runs, Ordering::Relaxed);
    }

    /// From now on, [`Watching::note`] appends to `calls` the export id of each op that the claimed
    /// run calls. The list must live until [`Watching::release`].
    pub fn collect(&self, calls: *mut Vec<u32>) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    pub fn set_unwatched(&self) {
        self.state.store(UNWATCHED, Ordering::Relaxed);
    }

    /// Returns the number of runs that the run in progress represents.
    #[inline(always)]
    pub fn one_in(&self) -> u32 {
        self.one_in.load(Ordering::Relaxed).max(1)
    }

    /// Called when an op of the machine has launched a parallel region.
    pub fn note_region(&self) {
        self.is_always.store(true, Ordering::Relaxed);
    }

    /// Called for each call that the machine announces. Returns false if the run is not watched;
    /// its calls are then counted together with the run.
    #[inline(always)]
    pub fn note(&self, export: u32) -> bool {
        match self.state.load(Ordering::Relaxed) {
            IDLE => return true,
            UNWATCHED => return false,
            _ => {}
        }
        let hash = self.hash.load(Ordering::Relaxed);
        let hash = hash.rotate_left(7).wrapping_add(u64::from(export) + 1);
        self.hash.store(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
        self.told.store(self.told.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        let calls = self.calls.load(Ordering::Relaxed);
        // A second thread may run the same machine, although hosts do not allow it. It must not use
        // the list.
        if !calls.is_null() && self.thread.load(Ordering::Relaxed) == Self::here() {
            // SAFETY: the claimed run has set `calls`, and the list lives until this run ends. The
            // run is on this thread, so no other thread uses the list.
            unsafe { (*calls).push(export) };
        }
        true
    }

    pub fn seen(&self) -> Calls {
        Calls { hash: self.hash.load(Ordering::Relaxed), told: self.told.load(Ordering::Relaxed) }
    }

    /// Returns the function whose runs have this export id, and adds it if necessary. The caller
    /// must have the process's lock.
    pub fn function(&self, export: u32) -> &'static Function {
        let first = self.functions.load(Ordering::Acquire);
        let mut at: *const Function = first;
        // SAFETY: each pointer in the list is null or a function that was leaked below.
        while let Some(function) = unsafe { at.as_ref() } {
            if function.export == export {
                return function;
            }
            at = function.next;
        }
        let pattern = UnsafeCell::new(Pattern::default());
        let made = Box::leak(Box::new(Function { export, pattern, next: first }));
        self.functions.store(made, Ordering::Release);
        made
    }
}

impl Function {
    pub fn export(&self) -> u32 {
        self.export
    }

    /// # Safety
    /// The calling thread must have claimed the machine, and there must be no other reference to
    /// the pattern.
    #[expect(clippy::mut_from_ref, reason = "the claim makes it the only one")]
    pub unsafe fn pattern(&self) -> &mut Pattern {
        // SAFETY: by contract, the calling thread has claimed the machine and there is no other
        // reference to the pattern.
        unsafe { &mut *self.pattern.get() }
    }
}

impl Switch {
    pub fn is_there(&self) -> bool {
        !self.instrument.load(Ordering::Relaxed).is_null()
    }

    /// Calls `body` with the agent's instrument. No other thread replaces it until `body` returns.
    /// If the instrument must not be removed, returns `None` and does not call `body`.
    pub fn with<T>(&self, body: impl FnOnce(*mut c_void) -> T) -> Option<T> {
        self.take();
        let instrument = self.instrument.load(Ordering::Relaxed);
        let result = (!instrument.is_null()).then(|| body(instrument));
        self.lock.store(false, Ordering::Release);
        result
    }

    pub fn replace(&self, instrument: *mut c_void) -> *mut c_void {
        self.take();
        let old = self.instrument.swap(instrument, Ordering::Relaxed);
        self.lock.store(false, Ordering::Release);
        old
    }

    fn take(&self) {
        while self.lock.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}
