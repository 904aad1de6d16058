//! The interface of a collector (a user's code that measures values of its own for each op). This
//! file is `include/counterpoint/collector.h` in Rust.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

use crate::dlpack::Device;

/// Maximum number of slots that all collectors may have together.
pub const MOST_SLOTS: usize = 16;

/// One of the values that a collector provides.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Name of the value. No other slot, counter of the recording or column of a view may have this
    /// name.
    pub name: *const c_char,
    /// Kind of the value: a number of `record::meta::ValueKind`.
    pub kind: u32,
}

/// The place into which a collector writes one value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// A signed integer, a double or the address of a C string, depending on the slot's kind.
    pub bits: u64,
    /// 0 if there is no value.
    pub filled: u64,
}

/// The function of a collector that the agent calls after an op.
pub type Stop = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut Value, u32) -> i32;

/// The description of a collector, which `collector.h` explains.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Collector {
    /// Size of this struct in bytes.
    pub size: u32,
    /// Number of slots, at least 1.
    pub slots: u32,
    /// Name of the collector.
    pub name: *const c_char,
    /// Array of `slots` slots.
    pub slot: *const Slot,
    /// First argument of the three functions.
    pub this: *mut c_void,
    /// The agent calls this before an op.
    pub start: Option<unsafe extern "C" fn(*mut c_void, Device) -> *mut c_void>,
    /// The agent calls this after an op. Returns 0 on success.
    pub stop: Option<Stop>,
    /// The agent calls this instead of `stop` if the values cannot be recorded, for example because
    /// the op has thrown. May be null.
    pub abandon: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

const _: () = assert!(size_of::<Slot>() == 16);
const _: () = assert!(size_of::<Value>() == 16 && offset_of!(Value, filled) == 8);
const _: () = assert!(size_of::<Collector>() == 56);
const _: () = assert!(offset_of!(Collector, name) == 8 && offset_of!(Collector, this) == 24);
const _: () = assert!(offset_of!(Collector, stop) == 40 && offset_of!(Collector, abandon) == 48);
