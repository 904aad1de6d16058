//! The table through which anything in a process finds the one agent there:
//! `include/counterpoint/agent.h`, in Rust.

use core::ffi::{CStr, c_char};
use core::mem::offset_of;

/// The exported name of the table.
pub const TABLE_SYMBOL: &CStr = c"counterpoint_agent";
/// The version of the table's layout. A later one only adds at the end.
pub const TABLE_VERSION: u32 = 2;

/// See the header. Constant: the same in every process and after every fork.
#[repr(C)]
#[derive(Debug)]
pub struct AgentTable {
    /// Bytes of the table; a field exists if this covers it.
    pub size: u32,
    /// [`TABLE_VERSION`].
    pub version: u32,
    /// Version of Counterpoint, then the build's own mark if it has one; padded with zeros.
    pub build: [u8; 32],
    /// What the agent is doing: an [`AgentState`]. Any thread, also in a signal handler.
    pub state: extern "C" fn() -> u32,
    /// Version 2: begins to record with this run file.
    pub session_begin: unsafe extern "C" fn(*const c_char) -> i32,
    /// Ends that.
    pub session_end: extern "C" fn() -> i32,
    /// Now, on the clock of the records.
    pub ticks: extern "C" fn() -> u64,
    /// The path of the profile that is being recorded.
    pub profile: unsafe extern "C" fn(*mut c_char, usize) -> usize,
    /// Counts a loss by its name.
    pub lose: unsafe extern "C" fn(*const c_char, u64) -> i32,
    /// Registers a user's collector.
    pub collector_add: unsafe extern "C" fn(*const crate::collector::Collector) -> i32,
    /// Takes one out.
    pub collector_remove: extern "C" fn(i32) -> i32,
}

/// What `session_begin` returns.
pub mod session {
    /// It began.
    pub const BEGAN: i32 = 0;
    /// The environment's run records already.
    pub const JOINED: i32 = 1;
    /// Another session is open.
    pub const BUSY: i32 = 2;
    /// No run file or pool that can be used.
    pub const UNUSABLE: i32 = -1;
    /// Off, or another agent records.
    pub const OFF: i32 = -2;
}

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AgentState {
    /// Nobody asked for a profile.
    Idle = 0,
    /// A profile was asked for; nothing to record has been seen.
    Waiting = 1,
    /// It records.
    Recording = 2,
    /// It turned itself off after an error, or there was no way to record.
    Off = 3,
    /// Another agent was in the process first.
    Quiet = 4,
}

const _: () = assert!(size_of::<AgentTable>() == 104);
const _: () = assert!(offset_of!(AgentTable, build) == 8 && offset_of!(AgentTable, state) == 40);
