//! The exported table that names the one agent of a process, and whether that is this one.
//!
//! The first copy in the process wins: the one that the dynamic linker finds under the table's
//! name. Preloaded copies are all in the global scope, in their order. A copy that is loaded later
//! sees a preloaded one; for another that comes after it, it makes itself global too.

use std::ffi::{CStr, c_char, c_void};

use abi::agent::{AgentTable, TABLE_SYMBOL, TABLE_VERSION};

use crate::entry::session;
use crate::recorder::collectors;
use crate::state::run;

/// See `include/counterpoint/agent.h`.
#[allow(non_upper_case_globals, reason = "a C name")]
#[unsafe(no_mangle)]
pub static counterpoint_agent: AgentTable = AgentTable {
    size: size_of::<AgentTable>() as u32,
    version: TABLE_VERSION,
    build: build(),
    state,
    session_begin,
    session_end,
    ticks,
    profile,
    lose,
    collector_add: collectors::add_guarded,
    collector_remove,
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

extern "C" fn state() -> u32 {
    run::state() as u32
}

unsafe extern "C" fn session_begin(run_file: *const c_char) -> i32 {
    if run_file.is_null() {
        return abi::agent::session::UNUSABLE;
    }
    // SAFETY: a C string, as the header says.
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
        // SAFETY: `capacity` bytes, as the header says.
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

unsafe extern "C" fn lose(loss: *const c_char, count: u64) -> i32 {
    if loss.is_null() {
        return -1;
    }
    // SAFETY: a C string, as the header says.
    session::lose(unsafe { CStr::from_ptr(loss) }, count)
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

/// Whether this is our table: by a function in it that nobody else has. Its own address, taken
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

// The name is exported by the static's own name.
const _: () = assert!(matches!(TABLE_SYMBOL.to_bytes(), b"counterpoint_agent"));
