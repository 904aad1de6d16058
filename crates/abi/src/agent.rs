//! The table through which anything in a process finds the one agent there:
//! `include/counterpoint/agent.h`, in Rust.

use core::ffi::CStr;
use core::mem::offset_of;

/// The exported name of the table.
pub const TABLE_SYMBOL: &CStr = c"counterpoint_agent";
/// The version of the table's layout. A later one only adds at the end.
pub const TABLE_VERSION: u32 = 1;

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

const _: () = assert!(size_of::<AgentTable>() == 48);
const _: () = assert!(offset_of!(AgentTable, build) == 8 && offset_of!(AgentTable, state) == 40);
