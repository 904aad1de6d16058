//! A runtime library for instrumented loops. It is linked with programs whose instrumented code
//! cannot find Counterpoint in another way. It passes calls on to Counterpoint's shared library, if
//! that is in the process. `include/counterpoint/loops.h` defines the interface.
//!
//! Two kinds of programs need this runtime: programs for a glibc older than 2.34 that are not
//! linked with libdl (an instrumented module finds no `dlsym` there), and builds that need a
//! definition of `counterpoint_loops_register` at link time. Nothing can be preloaded into a
//! statically linked program, so the instrumented code counts nothing there.
//!
//! The crate allocates no memory and has no thread-local storage. It imports only `dlsym`, as a
//! weak reference.
#![no_std]

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

use abi::loops::{Module, REGISTER_SYMBOL, UNREGISTER_SYMBOL};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Register = unsafe extern "C" fn(*mut Module) -> i32;
type Unregister = unsafe extern "C" fn(*mut Module);

/// The handles `RTLD_DEFAULT` and `RTLD_NEXT` of Linux.
const SCOPES: [isize; 2] = [0, -1];

core::arch::global_asm!(".weak dlsym");

/// Returns the process's `dlsym`, or `None` in a program without one.
fn dlsym() -> Option<Dlsym> {
    let address: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads an entry of the global offset table, which is 0 for a weak
    // symbol that nobody defines.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr [rip + dlsym@GOTPCREL]",
            out(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instructions read an entry of the global offset table, which is 0 for a weak
    // symbol that nobody defines.
    unsafe {
        core::arch::asm!(
            "adrp {0}, :got:dlsym",
            "ldr {0}, [{0}, :got_lo12:dlsym]",
            out(reg) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    // SAFETY: `address` is 0, which becomes `None`, or the address of the C library's `dlsym`,
    // which has this type.
    unsafe { transmute::<usize, Option<Dlsym>>(address) }
}

/// Returns the address of the function `name` in another library of the process. `own` is the
/// address of this crate's function with the same name.
fn find(name: &CStr, own: usize) -> Option<*mut c_void> {
    let dlsym = dlsym()?;
    let look = |scope: &isize| {
        // SAFETY: `scope` is one of the handles that dlsym defines, and `name` is a C string.
        unsafe { dlsym(*scope as *mut c_void, name.as_ptr()) }
    };
    SCOPES.iter().map(look).find(|found| !found.is_null() && *found as usize != own)
}

/// Passes the module on to Counterpoint's function of the same name. Returns 1 if Counterpoint is
/// not in the process.
///
/// # Safety
/// `include/counterpoint/loops.h` says what `module` must be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_loops_register(module: *mut Module) -> i32 {
    let own: Register = counterpoint_loops_register;
    match find(REGISTER_SYMBOL, own as usize) {
        // SAFETY: a function with this name has this type. It has the same contract as this
        // function, and the caller meets that contract.
        Some(found) => unsafe { transmute::<*mut c_void, Register>(found)(module) },
        None => 1,
    }
}

/// Passes the module on to Counterpoint's function of the same name.
///
/// # Safety
/// The requirements of [`counterpoint_loops_register`] apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_loops_unregister(module: *mut Module) {
    let own: Unregister = counterpoint_loops_unregister;
    if let Some(found) = find(UNREGISTER_SYMBOL, own as usize) {
        // SAFETY: a function with this name has this type. It has the same contract as this
        // function, and the caller meets that contract.
        unsafe { transmute::<*mut c_void, Unregister>(found)(module) }
    }
}
