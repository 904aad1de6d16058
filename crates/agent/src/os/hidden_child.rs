//! Runs a program and waits for it, without the host noticing the child process.
//!
//! ```text
//!  host thread ── clone, exit signal 0 ──► go-between ── clone ──► exec of the program
//!  (suspended)                             waits for it ◄────────── ends
//!       ▲ pipe ◄──────────────────────────────────────── fd 3
//!       └── wait4(__WCLONE) ◄── ends
//! ```
//!
//! There are two new processes because `execve` resets the exit signal of a process to SIGCHLD,
//! whatever `clone` set (`de_thread` in fs/exec.c). A direct child would therefore trigger the
//! host's SIGCHLD handler, and the host's `wait()` would find it. The go-between never calls
//! `execve`, so its exit signal stays 0: nobody gets a signal when it ends, and only a wait with
//! `__WCLONE` finds it. The go-between lives longer than the program. So the program never becomes
//! a child of the host, even if the host is a subreaper.
//!
//! Both new processes share the host's memory and run on their own stacks while the host's thread
//! is suspended (`CLONE_VM | CLONE_VFORK`). The host's memory is not copied, no page of it becomes
//! copy-on-write, and `pthread_atfork` handlers do not run. Until the program starts, the two
//! processes make only raw system calls. The host's thread blocks all signals before, and both
//! processes inherit this, so that no signal handler of the host runs in them.

use std::ffi::{CStr, c_char, c_int, c_long};

use crate::os::sys;

/// The descriptor to which the program writes its answer.
const ANSWER: c_int = 3;
const STACK_BYTES: usize = 64 * 1024;
const ALL_SIGNALS: u64 = u64::MAX;
/// Size of the kernel's signal set in bytes.
const SET_BYTES: usize = 8;

/// The data for the two new processes, which also write their results into it.
struct Errand {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    /// Descriptor of the pipe's write end, or −1 if no answer is wanted.
    answer: c_int,
    second_stack: usize,
    /// `errno` of the system call that failed, or 0.
    errno: c_int,
    status: c_int,
}

/// Runs `program` and waits until it ends. The first argument is the program's own name. Bytes that
/// the program writes to descriptor 3 are stored in `answer`, as far as they fit. Returns the
/// number of stored bytes.
///
/// # Errors
/// Returns the `errno` of the system call that failed, or `EIO` if the program did not end with
/// status 0.
pub fn run(
    program: &CStr,
    arguments: &[&CStr],
    environment: &[*const c_char],
    answer: &mut [u8],
) -> Result<usize, i32> {
    let end = std::iter::once(std::ptr::null());
    let arguments: Vec<_> = arguments.iter().map(|a| a.as_ptr()).chain(end.clone()).collect();
    let environment: Vec<_> = environment.iter().copied().chain(end).collect();
    let stacks = sys::map_stacks(2 * STACK_BYTES)?;
    let pipe = match answer.is_empty() {
        true => None,
        false => Some(sys::pipe().inspect_err(|_| sys::unmap(stacks, 2 * STACK_BYTES))?),
    };
    let mut errand = Errand {
        program: program.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        answer: pipe.as_ref().map_or(-1, |(_, writing)| writing.number()),
        second_stack: stacks as usize + 2 * STACK_BYTES,
        errno: 0,
        status: -1,
    };
    let outcome = send(&mut errand, stacks as usize + STACK_BYTES);
    sys::unmap(stacks, 2 * STACK_BYTES);
    outcome?;
    if errand.errno != 0 {
        return Err(errand.errno);
    }
    if errand.status != 0 {
        return Err(libc::EIO);
    }
    Ok(pipe.map_or(0, |(reading, writing)| {
        drop(writing); // Closes the last write end, so that the reader sees the end of the pipe.
        reading.read_into(answer)
    }))
}

fn send(errand: &mut Errand, stack: usize) -> Result<(), i32> {
    let before = set_mask(ALL_SIGNALS);
    let errand: *mut Errand = errand;
    // SAFETY: the stack was mapped for the go-between alone; `errand` outlives the go-between,
    // because this thread is suspended until the go-between ends.
    let made = unsafe { clone(libc::CLONE_VM | libc::CLONE_VFORK, stack, go_between, errand) };
    if made > 0 {
        // SAFETY: no pointers are passed. EINTR cannot occur, because every signal is blocked.
        unsafe { raw(libc::SYS_wait4, [made, 0, c_long::from(libc::__WCLONE), 0]) };
    }
    set_mask(before);
    if made < 0 { Err(-made as i32) } else { Ok(()) }
}

/// The work of the go-between: starts the second process, and waits until the program ends.
///
/// # Safety
/// `errand` must be the pointer that `send` passed.
unsafe extern "C" fn go_between(errand: *mut Errand) -> ! {
    // If the host ignores SIGCHLD, the kernel would reap the program before the wait. The
    // go-between has its own copy of the table of signal handlers, so changing it here does not
    // affect the host.
    set_default(libc::SIGCHLD);
    // SAFETY: by contract, `errand` is valid. Only the process that becomes the program uses the
    // second stack, until its `execve`.
    unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let made = clone(flags, (*errand).second_stack, start_program, errand);
        if made < 0 {
            (*errand).errno = -made as c_int;
        } else {
            let status = &raw mut (*errand).status;
            while raw(libc::SYS_wait4, [made, status as c_long, 0, 0]) == -c_long::from(libc::EINTR)
            {
            }
        }
        exit(0)
    }
}

/// The work of the process that becomes the program, up to its `execve`.
///
/// # Safety
/// `errand` must be the pointer that `send` passed.
unsafe extern "C" fn start_program(errand: *mut Errand) -> ! {
    // `execve` resets the signal handlers, too. But signals are unblocked before that, and no
    // handler of the host may run in this process.
    for signal in 1..=64 {
        set_default_if_handled(signal);
    }
    // SAFETY: by contract, `errand` is valid. The pointers in `errand` are valid while the host's
    // thread is suspended, and that thread is suspended now.
    unsafe {
        if (*errand).answer >= 0 {
            raw(libc::SYS_dup3, [(*errand).answer.into(), ANSWER.into(), 0, 0]);
        }
        set_mask(0);
        let (program, arguments) = ((*errand).program, (*errand).arguments);
        let environment = (*errand).environment;
        let call = [program as c_long, arguments as c_long, environment as c_long, 0];
        (*errand).errno = -raw(libc::SYS_execve, call) as c_int;
        exit(127)
    }
}

/// The kernel's `sigaction`: handler, flags, restorer and mask, in an order that depends on the
/// architecture. All zeros means SIG_DFL.
type KernelAction = [u64; 4];

fn set_default(signal: c_int) {
    let action: KernelAction = [0; 4];
    let call = [signal.into(), &raw const action as c_long, 0, SET_BYTES as c_long];
    // SAFETY: `action` is at least as large as what the kernel reads.
    unsafe { raw(libc::SYS_rt_sigaction, call) };
}

fn set_default_if_handled(signal: c_int) {
    let mut action: KernelAction = [0; 4];
    let call = [signal.into(), 0, &raw mut action as c_long, SET_BYTES as c_long];
    // SAFETY: `action` is at least as large as what the kernel writes.
    let known = unsafe { raw(libc::SYS_rt_sigaction, call) } == 0;
    // The first word is the handler on the supported architectures. 0 is SIG_DFL and 1 is SIG_IGN.
    if known && action[0] > 1 {
        set_default(signal);
    }
}

/// Sets the thread's mask of blocked signals, and returns the previous mask. The new mask can also
/// contain the signals that libc reserves. Returns the previous mask.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = (&raw const mask as c_long, &raw mut before as c_long);
    // SAFETY: both sets have the size that is passed to the call.
    unsafe { raw(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK.into(), new, old, 8]) };
    before
}

fn exit(code: c_int) -> ! {
    loop {
        // SAFETY: exit_group ends the calling process, which is the go-between or the process that
        // it started.
        unsafe { raw(libc::SYS_exit_group, [code.into(), 0, 0, 0]) };
    }
}

/// Makes a system call without changing `errno`, which the two new processes share with the host's
/// suspended thread.
///
/// # Safety
/// The requirements of the system call apply.
#[cfg(target_arch = "x86_64")]
unsafe fn raw(number: c_long, a: [c_long; 4]) -> c_long {
    let result;
    // SAFETY: the registers follow the kernel's calling convention, and by contract the arguments
    // meet the system call's requirements.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    result
}

/// The same function for AArch64.
///
/// # Safety
/// The requirements of the system call apply.
#[cfg(target_arch = "aarch64")]
unsafe fn raw(number: c_long, a: [c_long; 4]) -> c_long {
    let result;
    // SAFETY: the registers follow the kernel's calling convention, and by contract the arguments
    // meet the system call's requirements.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3],
            options(nostack),
        );
    }
    result
}

/// Calls `clone`, and runs `body` in the child, on the child's own stack. glibc's wrapper is not
/// used, because with shared memory, versions before 2.25 overwrite the process id that is cached
/// for the host's thread.
///
/// # Safety
/// `stack` must be the upper end of memory that only the child uses, and `errand` must stay valid
/// as long as the child uses it.
#[cfg(target_arch = "x86_64")]
unsafe fn clone(
    flags: c_int,
    stack: usize,
    body: unsafe extern "C" fn(*mut Errand) -> !,
    errand: *mut Errand,
) -> c_long {
    let result: c_long;
    // SAFETY: the child starts after `syscall` with these registers and its own stack, and never
    // leaves this block: the child calls `body`, which does not return.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") c_long::from(flags), in("rsi") stack & !15,
            in("rdx") 0, in("r10") 0, in("r8") 0,
            in("r12") errand, in("r13") body,
            out("rcx") _, out("r11") _,
        );
    }
    result
}

/// The same function for AArch64. This code has not been run yet.
///
/// # Safety
/// The requirements of the function for x86-64 apply.
#[cfg(target_arch = "aarch64")]
unsafe fn clone(
    flags: c_int,
    stack: usize,
    body: unsafe extern "C" fn(*mut Errand) -> !,
    errand: *mut Errand,
) -> c_long {
    let result: c_long;
    // SAFETY: the child starts after `svc` with these registers and its own stack, and never leaves
    // this block: the child calls `body`, which does not return.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x9",
            "blr x10",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") c_long::from(flags) => result,
            in("x1") stack & !15, in("x2") 0, in("x3") 0, in("x4") 0,
            in("x9") errand, in("x10") body,
        );
    }
    result
}
