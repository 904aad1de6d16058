//! What a thread keeps for each call that it is in.

use std::ffi::c_void;

/// Users' collectors that can be registered at a time.
pub(crate) const MOST_COLLECTORS: usize = 8;

/// What the end of a call has to know about its begin, where they are not in one function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Apart {
    pub(crate) export: u32,
    pub(crate) start: u64,
}

/// Plain words for the adapter that began the call. The recorder does not interpret them.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Whose slot it is: an address that no other adapter uses.
    pub(crate) owner: *const c_void,
    /// Address of something that is never freed: what is being called.
    pub(crate) subject: *const c_void,
    /// Two numbers that the adapter may add to while the call lasts.
    pub(crate) numbers: [u64; 2],
}

impl Slot {
    pub(crate) const EMPTY: Self =
        Self { owner: std::ptr::null(), subject: std::ptr::null(), numbers: [0; 2] };
}

/// Which users' collectors were started for a call, and the state that each gave.
#[derive(Clone, Copy)]
pub(crate) struct Started {
    /// A bit for each collector.
    pub(crate) mask: u32,
    /// One of them was interrupted: nothing may begin.
    pub(crate) interrupted: bool,
    /// The collector, which is never freed, and its state.
    pub(crate) states: [(*const c_void, *mut c_void); MOST_COLLECTORS],
}

impl Started {
    pub(crate) const NONE: Self = Self {
        mask: 0,
        interrupted: false,
        states: [(std::ptr::null(), std::ptr::null_mut()); MOST_COLLECTORS],
    };
}
