//! A host that announces itself: `include/counterpoint/host.h` in Rust.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

/// The roles that the calls of such a host can have, with the numbers of `record::meta::Role`.
pub mod role {
    /// A call of an operator.
    pub const OP: u32 = 1;
    /// One run of a model.
    pub const RUN: u32 = 2;
    /// A range that the program marked by name.
    pub const RANGE: u32 = 7;
    /// Number of all roles that there are.
    pub const COUNT: usize = 8;
}

/// A flag: the program itself runs between two ops.
pub const PROGRAM_BETWEEN_OPS: u32 = 1;

/// What a host says about itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Size of the struct in bytes.
    pub size: u32,
    /// [`PROGRAM_BETWEEN_OPS`], or 0.
    pub flags: u32,
    /// Short name.
    pub name: *const c_char,
    /// The name that people use.
    pub title: *const c_char,
    /// What `ops` shows.
    pub ops: *const c_char,
    /// The argument of exported calls that names the machine.
    pub library_key: *const c_char,
    /// Why the host may have no calls.
    pub without_calls: *const c_char,
    /// How names of bookkeeping ops begin.
    pub bookkeeping: *const c_char,
    /// Names of kinds, by role.
    pub kinds: [*const c_char; role::COUNT],
}

/// A machine of a host, which only the agent looks into.
pub type Machine = *const c_void;

/// Announces a machine of a host.
pub type AddMachine = unsafe extern "C" fn(*const Host, *const c_char) -> Machine;
/// Begins a call: machine, role, name, and the address that identifies the call until it ends.
pub type Begin = unsafe extern "C" fn(Machine, u32, *const c_char, *const c_void);
/// Ends the call with this address.
pub type End = unsafe extern "C" fn(*const c_void);

const _: () = assert!(size_of::<Host>() == 120);
const _: () = assert!(offset_of!(Host, name) == 8 && offset_of!(Host, kinds) == 56);
