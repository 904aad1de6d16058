//! Runs work on a separate stack that belongs to the agent.
//!
//! The agent's functions are called on the program's stacks, and some of these are small: a thread
//! may have 16 KiB. The memory below a stack for `makecontext` or `sigaltstack` is often the
//! program's own data, without a guard page. So the agent uses at most 1 KiB of the program's stack
//! (`cargo xtask tidy --built` checks this in the machine code, and lists the exceptions). Longer
//! work runs on a private mapping:
//!
//! ```text
//!  the program's stack          our mapping
//!  ─────────────────            ─────────────────
//!  … the program                top
//!  our entry (≤ 1 KiB)            runner ─► work
//!  cp_own_stack  ───────────►     …
//!                               page without access
//! ```
//!
//! * Most signals are blocked during the work, so their handlers neither run on our stack nor leave
//!   it by `longjmp`. Signals that the thread itself causes are not blocked; their handlers find
//!   100 KiB or more of free stack.
//! * The work does not call the program's own code, because that code may examine its stack or
//!   throw exceptions.
//! * Panics are caught on our stack, so nothing unwinds through the switch of stacks. For
//!   debuggers, the unwind table of the switch says where the program's stack continues.
//! * Calls and returns stay balanced, so the switch works with shadow stacks (CET).
//! * A stack is used by one thread at a time. Afterwards, it is kept for the next thread; at most
//!   one unused stack is kept. The agent does not store which thread uses a stack, so a forked
//!   child has nothing to correct. A child of `vfork` shares its parent's memory, and takes and
//!   gives back stacks like a thread of the parent.
//! * If the new stack is near the old one, valgrind mistakes the switch of stacks for growth of the
//!   old stack. After the switch back, it regards the memory between the stacks as released. So
//!   under valgrind, a stack is mapped far from all other memory. (valgrind could be informed about
//!   each stack instead, but then its tool drd fails.)
//! * ThreadSanitizer sees what libc's functions read and write for us, but not the atomic
//!   operations that hand a stack or a page of [`super::scratch`] from one thread to another. So
//!   the agent tells it to ignore work on our stacks ([`annotate_by`]).
//! * Work that is already on our stack and asks for a stack again stays on the same stack, unless
//!   more than 64 stacks are in use ([`USED`]).

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::os::sys::{self, SignalsBlocked};

/// The size of a stack in bytes, including the guard page below it. Only the parts that are used
/// take physical memory. Stacks are at multiples of this size, so the stack that an address belongs
/// to can be computed.
const BYTES: usize = 256 * 1024;
/// The size in bytes of the guard page, which cannot be accessed.
const GUARD: usize = 4096;

/// The unused stack that is kept, or 0.
static FREE: AtomicUsize = AtomicUsize::new(0);
/// The stacks in use; 0 in unused elements. [`is_ours`] does not recognise stacks beyond these 64;
/// nested work on them then takes a further stack.
static USED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

/// The type of the functions that make ThreadSanitizer ignore the thread's work or stop ignoring
/// it. Their arguments are the caller's source file (null if it is not known) and line.
pub type Annotate = unsafe extern "C" fn(*const c_char, i32);

/// The functions that are called before and after work on one of our stacks, or 0.
static BEFORE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static AFTER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Stores the functions to call before and after all later work on our stacks. Must be called while
/// the process has only one thread, and not on our stack.
///
/// # Safety
/// The functions must be callable on any thread, and in a signal handler.
pub unsafe fn annotate_by(before: [Annotate; 2], after: [Annotate; 2]) {
    for (places, functions) in [(&BEFORE, before), (&AFTER, after)] {
        places.iter().zip(functions).for_each(|(p, f)| p.store(f as usize, Ordering::Relaxed));
    }
}

fn annotate(places: &[AtomicUsize; 2]) {
    for place in places {
        let function = place.load(Ordering::Relaxed);
        if function != 0 {
            // SAFETY: only `annotate_by` stores functions here, and its contract allows calls on
            // any thread.
            unsafe { std::mem::transmute::<usize, Annotate>(function)(std::ptr::null(), 0) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.cp_own_stack,\"ax\",@progbits",
    ".globl cp_own_stack",
    ".hidden cp_own_stack",
    ".type cp_own_stack,@function",
    "cp_own_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "test rdx, rdx",
    "cmovne rsp, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size cp_own_stack, . - cp_own_stack",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .text.cp_own_stack,\"ax\",@progbits",
    ".globl cp_own_stack",
    ".hidden cp_own_stack",
    ".type cp_own_stack,@function",
    "cp_own_stack:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov x9, sp",
    "cmp x2, #0",
    "csel x9, x2, x9, ne",
    "mov sp, x9",
    "blr x1",
    "mov sp, x29",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size cp_own_stack, . - cp_own_stack",
    ".popsection",
);

unsafe extern "C" {
    /// Calls `function(data)` with the stack pointer set to `top`, or on the current stack if `top`
    /// is 0.
    fn cp_own_stack(data: *mut c_void, function: unsafe extern "C" fn(*mut c_void), top: usize);
}

struct Errand<F, T> {
    body: Option<F>,
    result: Option<T>,
}

/// Runs `body` on a separate stack, or on the current stack if that is already one of ours. `body`
/// must not panic, and must not call the program's code. Most signals are blocked while `body` runs
/// ([`SignalsBlocked`]).
///
/// # Errors
/// If no stack can be mapped, returns the `errno`, and `body` does not run.
#[inline(never)]
pub fn run<T, F: FnOnce() -> T>(body: F) -> Result<T, i32> {
    let mut errand = Errand { body: Some(body), result: None };
    let data = (&raw mut errand).cast::<c_void>();
    // SAFETY: `data` points to an `Errand` of the types with which `runner` is instantiated, and
    // `runner` does not unwind.
    unsafe { switch(data, runner::<T, F>) }?;
    errand.result.ok_or(libc::EIO)
}

/// The part of [`run`] that does not depend on the types of body and result.
///
/// # Safety
/// One call of `function` with `data` must be sound, and `function` must not unwind.
#[inline(never)]
unsafe fn switch(
    data: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
) -> Result<(), i32> {
    if is_ours(here()) {
        // `function` is not called directly, because the compiler could then inline it and enlarge
        // this function's stack frame.
        // SAFETY: because `top` is 0, `function` is called on the current stack. By contract,
        // `function` may be called with `data` and does not unwind.
        unsafe { cp_own_stack(data, function, 0) };
        return Ok(());
    }
    let _calm = SignalsBlocked::new();
    let stack = take()?;
    let place = USED.iter().find(|place| {
        place.compare_exchange(0, stack, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    });
    annotate(&BEFORE);
    // SAFETY: the stack is mapped, and only this thread uses it until it is given back. By
    // contract, `function` may be called with `data` and does not unwind.
    unsafe { cp_own_stack(data, function, stack + BYTES) };
    annotate(&AFTER);
    if let Some(place) = place {
        place.store(0, Ordering::Relaxed);
    }
    give_back(stack);
    Ok(())
}

/// Runs an errand's body. A panic in it would end the process, because a panic cannot leave an
/// `extern "C"` function.
///
/// # Safety
/// `data` must point to an `Errand<F, T>`, which nothing else uses during the call.
unsafe extern "C" fn runner<T, F: FnOnce() -> T>(data: *mut c_void) {
    // SAFETY: by contract, `data` points to an errand. It is on the stack of [`run`], which does
    // not use it before this function returns.
    let errand = unsafe { &mut *data.cast::<Errand<F, T>>() };
    errand.result = errand.body.take().map(|body| body());
}

#[inline(always)]
fn here() -> usize {
    let marker = 0u8;
    std::hint::black_box(&raw const marker) as usize
}

fn is_ours(address: usize) -> bool {
    let start = address & !(BYTES - 1);
    USED.iter().any(|place| place.load(Ordering::Relaxed) == start)
}

/// Returns the lowest address of a stack that nobody else uses.
fn take() -> Result<usize, i32> {
    match FREE.swap(0, Ordering::Acquire) {
        0 => map(),
        free => Ok(free),
    }
}

fn give_back(stack: usize) {
    let other = FREE.swap(stack, Ordering::AcqRel);
    if other != 0 {
        let margin = margin();
        sys::unmap((other - margin) as *mut u8, BYTES + 2 * margin);
    }
}

fn map() -> Result<usize, i32> {
    let margin = margin();
    let whole = 2 * (BYTES + margin);
    let place = sys::map_stacks(whole)? as usize;
    let stack = (place + margin).next_multiple_of(BYTES);
    let (begin, end) = (stack - margin, stack + BYTES + margin);
    if begin > place {
        sys::unmap(place as *mut u8, begin - place);
    }
    sys::unmap(end as *mut u8, place + whole - end);
    let guarded = sys::protect(begin, margin + GUARD, libc::PROT_NONE);
    guarded.inspect_err(|_| sys::unmap(begin as *mut u8, end - begin))?;
    Ok(stack)
}

/// Returns the size in bytes of each of the two unused areas that are mapped below and above a
/// stack. They keep the stack far from other memory, and are empty without valgrind. valgrind
/// regards a change of the stack pointer by less than 2 MB as growth of the stack (see its option
/// --max-stackframe).
fn margin() -> usize {
    if runs_on_valgrind() { 4 << 20 } else { 0 }
}

/// The request RUNNING_ON_VALGRIND of `valgrind.h` (3.19), and its arguments. They are in a static,
/// so that they take no space on the program's stack.
static REQUEST: [usize; 6] = [0x1001, 0, 0, 0, 0, 0];

/// Returns whether the process runs under valgrind. Makes a client request to valgrind: executes a
/// sequence of instructions that changes nothing without valgrind and that no compiler generates.
fn runs_on_valgrind() -> bool {
    let mut answer = 0usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instructions rotate `rdi` by 128 bits in total, which changes nothing, and
    // exchange a register with itself. valgrind reads the request and sets `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") REQUEST.as_ptr(),
            inout("rdx") answer,
            inout("rdi") 0usize => _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instructions rotate `x12` by 128 bits in total, which changes nothing, and
    // combine a register with itself. valgrind reads the request through `x4` and sets `x3`.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") REQUEST.as_ptr(),
            inout("x3") answer,
            inout("x12") 0usize => _,
            options(nostack),
        );
    }
    answer > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_elsewhere_and_its_result_comes_back() {
        let outside = here();
        let text = String::from("moved there and back");
        let (inside, nested, text) = run(move || {
            let inside = here();
            let nested = run(here).expect("goes on where it is");
            // This array is larger than the smallest stack that a thread can have on x86-64 (16
            // KiB).
            let deep = std::hint::black_box([7u8; 100_000]);
            assert_eq!(deep.iter().map(|b| u64::from(*b)).sum::<u64>(), 700_000);
            (inside, nested, text)
        })
        .expect("a stack");
        assert!(outside.abs_diff(inside) > BYTES / 2);
        assert_eq!(inside & !(BYTES - 1), nested & !(BYTES - 1));
        assert_eq!(text, "moved there and back");
        assert!(!is_ours(here()));
    }

    #[test]
    fn threads_have_stacks_of_their_own_and_keep_at_most_one() {
        let meet = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|number: u64| {
                    let meet = &meet;
                    scope.spawn(move || {
                        (0..50u64)
                            .map(|turn| {
                                run(|| {
                                    let mine = std::hint::black_box([number << 32 | turn; 512]);
                                    if turn == 0 {
                                        meet.wait();
                                    }
                                    mine.iter().filter(|n| **n == number << 32 | turn).count()
                                })
                                .expect("a stack")
                            })
                            .sum::<usize>()
                    })
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), 50 * 512);
            }
        });
        assert!(USED.iter().all(|place| place.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn the_page_below_is_not_for_anybody() {
        let stack = take().expect("a stack");
        assert_eq!(sys::protection_of(stack), Some(libc::PROT_NONE));
        assert_eq!(sys::protection_of(stack + GUARD), Some(libc::PROT_READ | libc::PROT_WRITE));
        give_back(stack);
    }
}
