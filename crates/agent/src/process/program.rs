//! Calls a function immediately before the program's `main`, on the main thread, after the dynamic
//! linker has initialised the libraries. This library's constructor is too early for work that
//! needs other libraries, because these may not be initialised yet.
//!
//! ```text
//!  _start ─► __libc_start_main (ours) ─► glibc's ─► counterpoint_main ─► main
//!                                                     │ the adapters' work, then a jump
//! ```
//!
//! Because of the jump, none of our stack frames is on the stack while `main` runs. If a program
//! does not start through glibc's function (Go without cgo), the adapters' work is not done.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::os::sys::ErrnoGuard;
use crate::process::panics::guarded;

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Start = unsafe extern "C" fn(
    Option<Main>,
    c_int,
    *mut *mut c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// The function that does the adapters' work before `main`, or null.
static WORK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// The address of the program's `main`, to which the code below jumps.
static MAIN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Whether the program has already called our `__libc_start_main`.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Called by this library's constructor.
pub fn call_before_main(function: fn()) {
    WORK.store(function as *mut (), Ordering::Release);
}

/// Returns whether the program will start through our `__libc_start_main`. It will not if this
/// library was loaded after the program had started.
pub fn will_begin() -> bool {
    // SAFETY: the name is a C string, and constructors may look up symbols.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_start_main".as_ptr()) };
    first.cast_const() == __libc_start_main as *const c_void && !HAS_BEGUN.load(Ordering::Relaxed)
}

/// Replaces the function through which programs start.
///
/// # Safety
/// The requirements of glibc's `__libc_start_main` apply. Only the program's start code calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Option<Main>,
    count: c_int,
    words: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    linker_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    HAS_BEGUN.store(true, Ordering::Relaxed);
    // SAFETY: the name is a C string. With RTLD_NEXT, dlsym finds the definition that comes after
    // this library's.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"__libc_start_main".as_ptr()) };
    if real.is_null() {
        // Cannot happen, because glibc always defines this function.
        return 127;
    }
    let has_work = !WORK.load(Ordering::Acquire).is_null();
    let main = main.map(|main| {
        if !has_work {
            return main;
        }
        MAIN.store(main as *mut (), Ordering::Release);
        counterpoint_main
    });
    // SAFETY: `real` is the C library's `__libc_start_main`, which has this type, and gets the
    // arguments that the program's start code passed.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Start>(real);
        real(main, count, words, init, fini, linker_fini, stack_end)
    }
}

unsafe extern "C" {
    /// Does the adapters' work, and jumps to the program's `main` with the same arguments.
    fn counterpoint_main(
        count: c_int,
        words: *mut *mut c_char,
        environment: *mut *mut c_char,
    ) -> c_int;
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden counterpoint_main",
    ".globl counterpoint_main",
    ".type counterpoint_main, @function",
    "counterpoint_main:",
    ".cfi_startproc",
    "endbr64",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "call {work}",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "jmp qword ptr [rip + {main}]",
    ".cfi_endproc",
    ".size counterpoint_main, . - counterpoint_main",
    work = sym work,
    main = sym MAIN,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden counterpoint_main",
    ".globl counterpoint_main",
    ".type counterpoint_main, %function",
    "counterpoint_main:",
    ".cfi_startproc",
    // This is the instruction `bti c`.
    "hint #34",
    "stp x29, x30, [sp, #-48]!",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset x29, -48",
    ".cfi_offset x30, -40",
    "mov x29, sp",
    "stp x0, x1, [sp, #16]",
    "str x2, [sp, #32]",
    "bl {work}",
    "ldr x2, [sp, #32]",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #48",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "adrp x16, {main}",
    "ldr x16, [x16, :lo12:{main}]",
    "br x16",
    ".cfi_endproc",
    ".size counterpoint_main, . - counterpoint_main",
    work = sym work,
    main = sym MAIN,
);

extern "C" fn work() {
    let work = WORK.load(Ordering::Acquire);
    if work.is_null() {
        return;
    }
    let _errno = ErrnoGuard::new();
    // SAFETY: only `call_before_main` stores to `WORK`, and it stores a `fn()`.
    guarded(|| unsafe { std::mem::transmute::<*mut (), fn()>(work)() });
}
