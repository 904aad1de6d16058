//! A user's collector: `include/counterpoint/collector.h`, in Rust.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

/// How many slots all collectors may have together.
pub const MOST_SLOTS: usize = 16;

/// As `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `DLDeviceType`: 1 CPU, 2 CUDA.
    pub kind: i32,
    /// Its number.
    pub id: i32,
}

/// One value that a collector gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Unique among all collectors' slots.
    pub name: *const c_char,
    /// As `record::meta::ValueKind` numbers them.
    pub kind: u32,
}

/// A value in the making.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// Signed number, double or address of a C string, as the slot's kind says.
    pub bits: u64,
    /// 0: there is none.
    pub filled: u64,
}

/// A collector's function behind an op.
pub type Stop = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut Value, u32) -> i32;

/// See the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Collector {
    /// Bytes of this struct.
    pub size: u32,
    /// How many slots, from 1.
    pub slots: u32,
    /// What it is called.
    pub name: *const c_char,
    /// The slots.
    pub slot: *const Slot,
    /// First argument of the functions.
    pub this: *mut c_void,
    /// Before an op.
    pub start: Option<unsafe extern "C" fn(*mut c_void, Device) -> *mut c_void>,
    /// Behind it; 0: done.
    pub stop: Option<Stop>,
    /// Instead of `stop`, for an op that has thrown. May be absent.
    pub abandon: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
}

const _: () = assert!(size_of::<Device>() == 8 && size_of::<Slot>() == 16);
const _: () = assert!(size_of::<Value>() == 16 && offset_of!(Value, filled) == 8);
const _: () = assert!(size_of::<Collector>() == 56);
const _: () = assert!(offset_of!(Collector, name) == 8 && offset_of!(Collector, this) == 24);
const _: () = assert!(offset_of!(Collector, stop) == 40 && offset_of!(Collector, abandon) == 48);
