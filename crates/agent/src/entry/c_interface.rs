//! The C interface: the exported table of functions that programs and the Python package call.
//! Several copies of the agent in one process find each other by the table's name
//! ([`crate::entry::one_agent`]).

use std::ffi::{CStr, c_char};

use abi::agent::{AgentTable, TABLE_SYMBOL, TABLE_VERSION};

use crate::adapters::announced::{calls, machines};
use crate::entry::{one_agent, session};
use crate::process::cost;
use crate::recorder::collectors;

/// The table documented in `include/counterpoint/agent.h`.
#[allow(non_upper_case_globals, reason = "a C name")]
#[unsafe(no_mangle)]
pub static counterpoint_agent: AgentTable = AgentTable {
    size: size_of::<AgentTable>() as u32,
    version: TABLE_VERSION,
    build: build(),
    state: one_agent::state,
    session_begin,
    session_end,
    ticks,
    profile,
    lose,
    collector_add: collectors::add_guarded,
    collector_remove,
    spent,
    host_machine: machines::add,
    op_begin: calls::begin,
    op_end: calls::end,
};

const fn build() -> [u8; 32] {
    let (version, mut padded) = (env!("CARGO_PKG_VERSION").as_bytes(), [0; 32]);
    let mut i = 0;
    while i < version.len() {
        padded[i] = version[i];
        i += 1;
    }
    padded
}

unsafe extern "C" fn session_begin(run_file: *const c_char) -> i32 {
    if run_file.is_null() {
        return abi::agent::session::UNUSABLE;
    }
    // SAFETY: agent.h requires that `run_file` is null or a C string; null was handled above.
    session::begin(unsafe { CStr::from_ptr(run_file) })
}

extern "C" fn session_end() -> i32 {
    session::end()
}

extern "C" fn ticks() -> u64 {
    session::ticks()
}

unsafe extern "C" fn profile(path: *mut c_char, capacity: usize) -> usize {
    let Some(profile) = session::profile() else { return 0 };
    if !path.is_null() && profile.len() < capacity {
        // SAFETY: agent.h requires that `path` has space for `capacity` bytes, which is more than
        // the path's length.
        unsafe {
            path.cast::<u8>().copy_from_nonoverlapping(profile.as_ptr(), profile.len());
            path.add(profile.len()).write(0);
        }
    }
    profile.len()
}

extern "C" fn collector_remove(number: i32) -> i32 {
    collectors::remove(number)
}

extern "C" fn spent(cpu_ns: u64) {
    cost::add(cpu_ns);
}

unsafe extern "C" fn lose(loss: *const c_char, count: u64) -> i32 {
    if loss.is_null() {
        return -1;
    }
    // SAFETY: agent.h requires that `loss` is null or a C string; null was handled above.
    session::lose(unsafe { CStr::from_ptr(loss) }, count)
}

// The symbol is exported under the name of the static, so `TABLE_SYMBOL` must be the same name.
const _: () = assert!(matches!(TABLE_SYMBOL.to_bytes(), b"counterpoint_agent"));
