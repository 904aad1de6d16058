//! The guarded call of a plugin's function.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::{Left, RawException, cxx_exceptions};

/// A call in progress. `stack` must stay the first field, because the assembly below writes it at
/// the struct's address.
#[repr(C)]
struct Frame {
    /// The trampoline's stack pointer, below the registers that it saved.
    stack: *mut c_void,
    /// The guarded call of the same thread that encloses this one, or null.
    outer: *mut Frame,
    exception: *mut RawException,
    forced: bool,
    /// The signal that has ended the call, or 0.
    fault: c_int,
}

thread_local! {
    /// The innermost guarded call of this thread.
    static INNERMOST: Cell<*mut Frame> = const { Cell::new(std::ptr::null_mut()) };
}

// These values are from the Itanium C++ ABI, exception handling.
const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const FORCE_UNWIND: c_int = 8;
const FOREIGN_EXCEPTION_CAUGHT: c_int = 1;
const HANDLER_FOUND: c_int = 6;
const CONTINUE_UNWIND: c_int = 8;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden counterpoint_plugin_trampoline",
    ".hidden counterpoint_plugin_land",
    ".globl counterpoint_plugin_trampoline",
    ".type counterpoint_plugin_trampoline, @function",
    // The arguments are the function, its first and its second argument, and the frame.
    "counterpoint_plugin_trampoline:",
    ".cfi_startproc",
    // In the encoding 0x1b, the address is relative to this place and has 4 bytes with a sign.
    ".cfi_personality 0x1b, {personality}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    "push r12",
    ".cfi_offset r12, -32",
    "push r13",
    ".cfi_offset r13, -40",
    "push r14",
    ".cfi_offset r14, -48",
    "push r15",
    ".cfi_offset r15, -56",
    "sub rsp, 8",
    "mov [rcx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "call rax",
    "2:",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size counterpoint_plugin_trampoline, . - counterpoint_plugin_trampoline",
    ".globl counterpoint_plugin_land",
    ".type counterpoint_plugin_land, @function",
    // The argument is the trampoline's stack pointer (`Frame::stack`).
    "counterpoint_plugin_land:",
    ".cfi_startproc",
    "mov rsp, rdi",
    // The ABI requires that the direction flag is clear at every call and return.
    "cld",
    "xor eax, eax",
    "jmp 2b",
    ".cfi_endproc",
    ".size counterpoint_plugin_land, . - counterpoint_plugin_land",
    personality = sym personality,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden counterpoint_plugin_trampoline",
    ".hidden counterpoint_plugin_land",
    ".globl counterpoint_plugin_trampoline",
    ".type counterpoint_plugin_trampoline, %function",
    "counterpoint_plugin_trampoline:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {personality}",
    "stp x29, x30, [sp, #-160]!",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset x29, -160",
    ".cfi_offset x30, -152",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "stp x19, x20, [sp, #16]",
    ".cfi_offset x19, -144",
    ".cfi_offset x20, -136",
    "stp x21, x22, [sp, #32]",
    ".cfi_offset x21, -128",
    ".cfi_offset x22, -120",
    "stp x23, x24, [sp, #48]",
    ".cfi_offset x23, -112",
    ".cfi_offset x24, -104",
    "stp x25, x26, [sp, #64]",
    ".cfi_offset x25, -96",
    ".cfi_offset x26, -88",
    "stp x27, x28, [sp, #80]",
    ".cfi_offset x27, -80",
    ".cfi_offset x28, -72",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "str x9, [x3]",
    "mov x9, x0",
    "mov x0, x1",
    "mov x1, x2",
    "blr x9",
    "2:",
    "ldp d14, d15, [sp, #144]",
    "ldp d12, d13, [sp, #128]",
    "ldp d10, d11, [sp, #112]",
    "ldp d8, d9, [sp, #96]",
    "ldp x27, x28, [sp, #80]",
    "ldp x25, x26, [sp, #64]",
    "ldp x23, x24, [sp, #48]",
    "ldp x21, x22, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #160",
    ".cfi_def_cfa sp, 0",
    "ret",
    ".cfi_endproc",
    ".size counterpoint_plugin_trampoline, . - counterpoint_plugin_trampoline",
    ".globl counterpoint_plugin_land",
    ".type counterpoint_plugin_land, %function",
    "counterpoint_plugin_land:",
    ".cfi_startproc",
    "mov sp, x0",
    "mov x0, #0",
    "b 2b",
    ".cfi_endproc",
    ".size counterpoint_plugin_land, . - counterpoint_plugin_land",
    personality = sym personality,
);

unsafe extern "C" {
    fn counterpoint_plugin_trampoline(
        function: *const c_void,
        first: *const c_void,
        second: *const c_void,
        frame: *mut Frame,
    ) -> usize;
    fn counterpoint_plugin_land(stack: *mut c_void) -> !;
}

/// The personality function of the trampoline's frame. The unwinder that unwinds the exception
/// calls it.
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut RawException,
    _context: *mut c_void,
) -> c_int {
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & (HANDLER_FRAME | FORCE_UNWIND) == 0 {
        return CONTINUE_UNWIND;
    }
    // The stack frames inside of this trampoline's frame have been unwound, so the innermost call
    // is that of this trampoline.
    let frame = INNERMOST.get();
    if frame.is_null() {
        return CONTINUE_UNWIND;
    }
    // SAFETY: the frame is on the stack of `call`, further out than this function, and its `stack`
    // was set before the plugin was called. No function between this one and `call` has a
    // destructor to run.
    unsafe {
        (*frame).forced = actions & FORCE_UNWIND != 0;
        (*frame).exception = exception;
        counterpoint_plugin_land((*frame).stack)
    }
}

/// Ends the innermost guarded call of this thread, for a signal handler. Returns if there is no
/// such call.
pub(super) fn leave_by(signal: c_int) {
    let frame = INNERMOST.get();
    if !frame.is_null() {
        // SAFETY: the frame is on the stack of `call`, further out than this function, and its
        // `stack` was set before the plugin was called. The stack frames in between, of the plugin
        // and of our functions that it called, are not used again.
        unsafe {
            (*frame).fault = signal;
            counterpoint_plugin_land((*frame).stack)
        }
    }
}

/// Calls a function with up to two arguments, and returns the first result register.
///
/// # Safety
/// `function` must be a C function that takes these arguments.
///
/// # Errors
/// Fails if the function did not return.
pub(crate) unsafe fn call(
    function: *const c_void,
    first: *const c_void,
    second: *const c_void,
) -> Result<usize, Left> {
    let mut frame = Frame {
        stack: std::ptr::null_mut(),
        outer: INNERMOST.get(),
        exception: std::ptr::null_mut(),
        forced: false,
        fault: 0,
    };
    let frame = &raw mut frame;
    let mut cancel = 0;
    // SAFETY: by contract, `function` takes these arguments; `frame` outlives the call. Everything
    // that the call can change in the frame is read afterwards, through the same pointer.
    let (value, forced, exception, fault) = unsafe {
        pthread_setcancelstate(CANCEL_DISABLE, &mut cancel);
        INNERMOST.set(frame);
        let value = counterpoint_plugin_trampoline(function, first, second, frame);
        INNERMOST.set((*frame).outer);
        pthread_setcancelstate(cancel, std::ptr::null_mut());
        (value, (*frame).forced, NonNull::new((*frame).exception), (*frame).fault)
    };
    match exception {
        _ if fault != 0 => Err(Left::Fault(fault)),
        None => Ok(value),
        // The exception of `pthread_exit` belongs to the C library, and we must not delete it.
        Some(_) if forced => Err(Left::ThreadExit),
        Some(exception) => Err(Left::Exception(caught(exception))),
    }
}

// The crate `libc` does not declare the following for every system that we build for.
const CANCEL_DISABLE: c_int = 1;
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

fn caught(exception: NonNull<RawException>) -> String {
    let raw = exception.as_ptr();
    // SAFETY: The plugin threw `exception`, which was caught here and has not been destroyed yet.
    let (class, cleanup) = unsafe { ((*raw).class, (*raw).cleanup) };
    let class = class.to_be_bytes();
    if let Some(runtime) =
        cxx_exceptions::Runtime::of(class, cleanup.map(|function| function as *const _), call)
    {
        return runtime.end(raw);
    }
    if let Some(cleanup) = cleanup {
        // SAFETY: the ABI asks a language that catches another language's exception to call the
        // cleanup function in the exception. If that function throws in turn, `call` ends the
        // second exception as well.
        let _ = unsafe {
            call(
                cleanup as *const c_void,
                FOREIGN_EXCEPTION_CAUGHT as usize as *const _,
                raw.cast(),
            )
        };
    }
    match &class {
        b"GNUCC++\0" | b"GNUCC++\x01" | b"CLNGC++\0" | b"CLNGC++\x01" => {
            "a C++ exception".to_owned()
        }
        b"MOZ\0RUST" => "a Rust panic".to_owned(),
        _ => format!("an exception of class {:?}", String::from_utf8_lossy(&class)),
    }
}
