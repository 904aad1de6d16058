//! Decides whether this copy of the agent is the one that records in this process.
//!
//! The first copy in the process records. It is the copy whose table of the C interface the dynamic
//! linker finds. Preloaded copies are in the linker's global scope, in the order of `LD_PRELOAD`.
//! So a copy that is loaded later finds a preloaded copy first. If no copy was preloaded, the first
//! copy makes itself global, so that further copies find it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::agent::{AgentState, AgentTable, TABLE_SYMBOL};

use crate::state::{epoch, run};

/// Set if another copy of the agent was in the process first.
static QUIET: AtomicBool = AtomicBool::new(false);

pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Returns the state of this copy of the agent, as the number of an [`AgentState`].
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

/// Returns whether another copy was in the process before this one. If not, makes sure that later
/// copies find this one. Costs a few symbol lookups.
pub fn another_is_first() -> bool {
    let name = TABLE_SYMBOL.as_ptr();
    // SAFETY: `name` is a C string. With RTLD_DEFAULT, dlsym searches the global scope, and then
    // the scope in which this library was loaded.
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

/// Returns whether `table` belongs to this copy of the agent, judging by the address of a function
/// in the table. The address of the table itself cannot be compared: the dynamic linker makes
/// `counterpoint_agent` refer to the first copy's table, even in the code of this copy.
fn is_own(table: *mut c_void) -> bool {
    let table = table.cast::<AgentTable>();
    // SAFETY: `dlsym` found the table. Every version of the table starts with its size, and the
    // table is constant.
    unsafe {
        (*table).size as usize >= size_of::<AgentTable>()
            && std::ptr::fn_addr_eq((*table).state, state as extern "C" fn() -> u32)
    }
}

/// Makes the symbols of this library visible to libraries that are loaded later. (It was loaded
/// with RTLD_LOCAL.)
fn become_global(own: *const c_void) {
    // SAFETY: `Dl_info` consists of pointers, and a pointer may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_GLOBAL | libc::RTLD_NODELETE;
    // SAFETY: `info` outlives the call. The name is the linker's own C string, so `dlopen` finds
    // the library that is already loaded.
    unsafe {
        if libc::dladdr(own, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(info.dli_fname, flags);
        }
    }
}
