//! The data that a thread keeps for each of its calls in progress.

use std::ffi::c_void;

use model::MAX_COUNTERS;

/// Maximum number of users' collectors that can be registered at a time.
pub(crate) const MOST_COLLECTORS: usize = 8;

/// What the end of a call needs to know about its begin when the two are in different functions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Apart {
    pub(crate) export: u32,
    pub(crate) start: u64,
}

/// Data that the adapter stores with a call it began. The recorder does not interpret it.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Identifies the owner: an address that no other adapter uses.
    pub(crate) owner: *const c_void,
    /// Address of a description of the called function, which is never freed.
    pub(crate) subject: *const c_void,
    /// Numbers that the adapter may change during the call.
    pub(crate) numbers: [u64; 3],
}

impl Slot {
    pub(crate) const EMPTY: Self =
        Self { owner: std::ptr::null(), subject: std::ptr::null(), numbers: [0; 3] };
}

/// What other threads counted for a call in progress, in its parallel regions so far.
#[derive(Clone, Copy)]
pub(crate) struct Workers {
    /// One bit for each counter whose sum is known.
    pub(crate) known: u32,
    pub(crate) sums: [u64; MAX_COUNTERS],
}

impl Workers {
    pub(crate) const NONE: Self = Self { known: 0, sums: [0; MAX_COUNTERS] };
}

/// The users' collectors that were started for a call, and the state that each returned.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    /// One bit for each collector.
    pub(crate) mask: u32,
    /// Whether one of them was interrupted; the call must then not begin.
    pub(crate) interrupted: bool,
    /// The id that profiler plugins got for the call; 0: none.
    pub(crate) plugin_id: u64,
    /// For each collector: its address, which is never freed, and its state.
    pub(crate) states: [(*const c_void, *mut c_void); MOST_COLLECTORS],
}

impl Started {
    pub(crate) const NONE: Self = Self {
        mask: 0,
        interrupted: false,
        plugin_id: 0,
        states: [(std::ptr::null(), std::ptr::null_mut()); MOST_COLLECTORS],
    };
}
