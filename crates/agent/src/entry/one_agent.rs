//! Decides whether this copy of the agent is the one that records in this process, and returns its
//! state.
//!
//! The first copy in the process records. It is the one in which the dynamic linker finds the C
//! interface's table. Preloaded copies are all in the linker's global scope, in the order of
//! `LD_PRELOAD`. So a copy that is loaded later finds a preloaded copy first. If there is none, it
//! makes itself global, so that further copies find it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::agent::{AgentState, AgentTable, TABLE_SYMBOL};

use crate::state::{epoch, run};

/// Set if another copy of the agent was in the process first.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Stores that another copy of the agent records, and this one does not.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Returns whether another copy of the agent records.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Returns this agent's state, a number of [`AgentState`]. This function is in the table of the C
/// interface.
pub extern "C" fn state() -> u32 {
    let state = if is_quiet() {
        AgentState::Quiet
    } else if epoch::is_off() {
        AgentState::Off
    } else if !epoch::wanted() {
        AgentState::Idle
    } else if run::current().is_none() {
        AgentState::Waiting
    } else {
        AgentState::Recording
    };
    state as u32
}

/// Returns whether another copy is already in the process. Called only if the process is to be
/// recorded or a session begins, because it costs a few symbol lookups.
pub fn another_is_first() -> bool {
    let name = TABLE_SYMBOL.as_ptr();
    // SAFETY: `name` is a C string. RTLD_DEFAULT stands for the scope of the program, or of the
    // library that loaded us.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
    if first.is_null() {
        return false;
    }
    if !is_own(first) {
        return true;
    }
    // SAFETY: dlopen accepts null instead of a name, and `name` is a C string. The handle stays
    // open, because closing the program's handle would do nothing.
    let found = unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        if program.is_null() { program } else { libc::dlsym(program, name) }
    };
    if found.is_null() {
        become_global(state as *const c_void);
    }
    false
}

/// Returns whether `table` belongs to this copy of the agent. This is decided by the address of a
/// function in the table, because no other copy contains this function. Comparing the address of
/// the table would not work: if this copy takes the address of its own table, it gets that of the
/// first copy's table, because the dynamic linker resolves both names in the same way.
fn is_own(table: *mut c_void) -> bool {
    let table = table.cast::<AgentTable>();
    // SAFETY: `dlsym` found the table. Every version of the table starts with its size, and the
    // table is constant.
    unsafe {
        (*table).size as usize >= size_of::<AgentTable>()
            && std::ptr::fn_addr_eq((*table).state, state as extern "C" fn() -> u32)
    }
}

/// Makes this library, which was loaded for one caller only, visible to all libraries that are
/// loaded later.
fn become_global(own: *const c_void) {
    // SAFETY: `Dl_info` consists of pointers, for which zeros are values.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL | libc::RTLD_NODELETE;
    // SAFETY: `info` outlives the call. The name is the linker's own C string, so it finds the
    // library that is already loaded.
    unsafe {
        if libc::dladdr(own, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, flags);
        }
    }
}
