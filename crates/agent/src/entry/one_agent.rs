//! Whether this is the one agent of the process, and what it is doing.
//!
//! The first copy in the process wins: the one that the dynamic linker finds under the name of the
//! table in the C interface. Preloaded copies are all in the global scope, in their order. A copy
//! that is loaded later sees a preloaded one; so that another one that comes after it sees it, it
//! makes itself global.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::agent::{AgentState, AgentTable, TABLE_SYMBOL};

use crate::state::{epoch, run};

/// Set where another agent was in the process first.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Notes that another agent records.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether another agent records.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// What this agent is doing: a number of [`AgentState`]. A function of the C interface.
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

/// Whether another copy is in the process already. In the constructor, under a profile only: a
/// few lookups of a name.
pub fn another_is_first() -> bool {
    let name = TABLE_SYMBOL.as_ptr();
    // SAFETY: a C string; the default scope is that of the program, or of whoever loaded us.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
    if first.is_null() {
        return false;
    }
    if !is_own(first) {
        return true;
    }
    // SAFETY: as above; closing the program's handle would do nothing.
    let found = unsafe {
        let program = libc::dlopen(std::ptr::null(), libc::RTLD_LAZY);
        if program.is_null() { program } else { libc::dlsym(program, name) }
    };
    if found.is_null() {
        become_global(state as *const c_void);
    }
    false
}

/// Whether this is our table. A function in it tells, which no other copy has. Its own address, taken
/// here, would be that of the first one too, since the dynamic linker resolves both names alike.
fn is_own(table: *mut c_void) -> bool {
    let table = table.cast::<AgentTable>();
    // SAFETY: what has this name starts with its size, and is constant.
    unsafe {
        (*table).size as usize >= size_of::<AgentTable>()
            && std::ptr::fn_addr_eq((*table).state, state as extern "C" fn() -> u32)
    }
}

/// Puts this library, loaded for one caller, into the scope of all that are loaded later.
fn become_global(own: *const c_void) {
    // SAFETY: all-zero is a valid value to be overwritten.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL | libc::RTLD_NODELETE;
    // SAFETY: `info` outlives the call; the name is the linker's own, under which it finds the
    // library that it has loaded.
    unsafe {
        if libc::dladdr(own, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, flags);
        }
    }
}
