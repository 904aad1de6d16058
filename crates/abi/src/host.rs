//! The interface through which a host (a library that runs ops, such as a virtual machine) reports
//! its calls to the agent: `include/counterpoint/host.h` in Rust.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

/// The roles (kinds of calls) that a host can report. The numbers are those of
/// `record::meta::Role`.
pub mod role {
    /// A call of an operator, or of a function that calls operators.
    pub const OP: u32 = 1;
    /// One run of a model.
    pub const RUN: u32 = 2;
    /// A range that the program marked by name.
    pub const RANGE: u32 = 7;
    /// The number of roles in `record::meta::Role`.
    pub const COUNT: usize = 8;
}

/// A flag of [`Host::flags`]: between two ops, the program's own code runs, so the time between ops
/// does not belong to the host.
pub const PROGRAM_BETWEEN_OPS: u32 = 1;

/// The description that a host gives of itself. The agent copies the struct and its texts; a null
/// text is the same as an empty one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Size of the struct in bytes.
    pub size: u32,
    /// [`PROGRAM_BETWEEN_OPS`], or 0.
    pub flags: u32,
    /// Short name in lower case.
    pub name: *const c_char,
    /// The host's name as people write it, such as "IREE". If it is empty, `name` is used.
    pub title: *const c_char,
    /// The words with which `counterpoint ops` describes the host's calls, such as "the ops of
    /// Toy".
    pub ops: *const c_char,
    /// In exported traces, the key of the argument with the name of a call's machine. If this text
    /// is empty, the key is `library`.
    pub library_key: *const c_char,
    /// A sentence that explains why a machine may have no calls although it was announced.
    pub without_calls: *const c_char,
    /// The prefix of the names of bookkeeping ops (which only manage the host's data); empty if
    /// there are none.
    pub bookkeeping: *const c_char,
    /// For each role, the name that exported traces give to the host's calls with this role. Null
    /// stands for the name that Kineto gives to such calls.
    pub kinds: [*const c_char; role::COUNT],
}

/// A machine of a host, such as a virtual machine. Only the agent reads the data at this address.
pub type Machine = *const c_void;

/// The function with which a host tells the agent about one of its machines.
pub type AddMachine = unsafe extern "C" fn(*const Host, *const c_char) -> Machine;
/// The function with which a host reports that a call begins. Its arguments are the machine, the
/// role, the name, and an address that identifies the call until it ends.
pub type Begin = unsafe extern "C" fn(Machine, u32, *const c_char, *const c_void);
/// The function with which a host reports that the call with this address ends.
pub type End = unsafe extern "C" fn(*const c_void);

const _: () = assert!(size_of::<Host>() == 120);
const _: () = assert!(offset_of!(Host, name) == 8 && offset_of!(Host, kinds) == 56);
