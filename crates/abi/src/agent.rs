//! The table of functions through which a program, or a library in it, calls the agent (the
//! recorder in the program's process). This file is `include/counterpoint/agent.h` in Rust.

use core::ffi::{CStr, c_char};
use core::mem::offset_of;

/// The exported name of the table.
pub const TABLE_SYMBOL: &CStr = c"counterpoint_agent";
/// The version of the table's layout. A later version only adds fields at the end.
pub const TABLE_VERSION: u32 = 3;

/// The table that `agent.h` describes.
#[repr(C)]
#[derive(Debug)]
pub struct AgentTable {
    /// Size of the table in bytes. A field exists if it lies within this size.
    pub size: u32,
    /// Version of the table's layout: [`TABLE_VERSION`].
    pub version: u32,
    /// Version of Counterpoint, padded with zeros.
    pub build: [u8; 32],
    /// Returns an [`AgentState`]. May be called on any thread, also in a signal handler.
    pub state: extern "C" fn() -> u32,
    /// Begins a session (a recording within one process). This field and those up to `spent` exist
    /// since version 2. The argument is the path of the run file, which `counterpoint session
    /// prepare` makes.
    pub session_begin: unsafe extern "C" fn(*const c_char) -> i32,
    /// Ends the session.
    pub session_end: extern "C" fn() -> i32,
    /// Returns the current time on the clock that records use, or 0 if nothing is being recorded.
    pub ticks: extern "C" fn() -> u64,
    /// Writes the path of the current profile to a buffer, if the path fits, and returns the path's
    /// length.
    pub profile: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    /// Adds the second argument to the count of the loss that the first argument names.
    pub lose: unsafe extern "C" fn(*const c_char, u64) -> i32,
    /// Registers a user's collector.
    pub collector_add: unsafe extern "C" fn(*const crate::collector::Collector) -> i32,
    /// Removes a collector.
    pub collector_remove: extern "C" fn(i32) -> i32,
    /// Reports how much processor time (in ns) code outside of the agent used in order to record.
    pub spent: extern "C" fn(u64),
    /// Since version 3: announces a machine of a host, as [`crate::host`] describes.
    pub host_machine: crate::host::AddMachine,
    /// Begins a call on a machine that was announced.
    pub op_begin: crate::host::Begin,
    /// Ends a call that `op_begin` began.
    pub op_end: crate::host::End,
}

/// Return values of `session_begin`.
pub mod session {
    /// The session began.
    pub const BEGAN: i32 = 0;
    /// No session began, because the process already records for `counterpoint run`.
    pub const JOINED: i32 = 1;
    /// Another session is in progress.
    pub const BUSY: i32 = 2;
    /// The run file, or the pool (the memory for records) that it names, cannot be used.
    pub const UNUSABLE: i32 = -1;
    /// The agent is off, or another agent records.
    pub const OFF: i32 = -2;
}

/// The states of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AgentState {
    /// No profile was requested.
    Idle = 0,
    /// A profile was requested, but nothing to record has been seen yet.
    Waiting = 1,
    /// The agent records.
    Recording = 2,
    /// The agent turned itself off after an error, or recording is impossible.
    Off = 3,
    /// Another agent was in the process first.
    Quiet = 4,
}

const _: () = assert!(size_of::<AgentTable>() == 136);
const _: () = assert!(offset_of!(AgentTable, build) == 8 && offset_of!(AgentTable, state) == 40);
