//! The functions that this library exports in place of glibc's functions that start a program.
//!
//! Our `execve` and `execveat` make the system call directly, and so do our versions of the
//! functions that only wrap `execve`. If glibc's function does more (for example, searches `PATH`),
//! our function calls glibc's.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Program, Strings, launch, replace};
use crate::os::own_stack;
use crate::os::sys::set_errno;

/// A function of glibc that this library replaces. `at` is its next definition after this
/// library's, usually glibc's own; it is null before the lookup.
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

static EXECVPE: Real = Real::new(c"execvpe");
static FEXECVE: Real = Real::new(c"fexecve");
static SPAWN: Real = Real::new(c"posix_spawn");
static SPAWNP: Real = Real::new(c"posix_spawnp");

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn get(&self) -> Option<*mut c_void> {
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            // SAFETY: the name is a C string. With RTLD_NEXT, dlsym finds the definition that comes
            // after this library's.
            let look = || unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            at = own_stack::run(look).ok()?;
            self.at.store(at, Ordering::Relaxed);
        }
        (!at.is_null()).then_some(at)
    }
}

pub fn prepare() {
    for real in [&EXECVPE, &FEXECVE, &SPAWN, &SPAWNP] {
        real.get();
    }
}

fn not_there() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

fn own_environment() -> Strings {
    // SAFETY: `environ` is a variable of glibc, and is only read here. If another thread changes
    // the variable meanwhile, this is a data race, which the program would also have without this
    // library.
    unsafe { libc::environ }.cast::<*const c_char>().cast_const()
}

/// # Safety
/// The requirements of `execve(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `execve(2)`.
    unsafe {
        replace(Program::Path(path), environment, |environment| {
            libc::syscall(libc::SYS_execve, path, arguments, environment) as c_int
        })
    }
}

/// # Safety
/// The requirements of `execv(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `execv(3)`.
    unsafe { execve(path, arguments, own_environment()) }
}

/// # Safety
/// The requirements of `execveat(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `execveat(2)`.
    unsafe {
        replace(Program::At(at, path), environment, |environment| {
            libc::syscall(libc::SYS_execveat, at, path, arguments, environment, flags) as c_int
        })
    }
}

/// # Safety
/// The requirements of `fexecve(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    type Function = unsafe extern "C" fn(c_int, Strings, Strings) -> c_int;
    let Some(real) = FEXECVE.get() else { return not_there() };
    // SAFETY: `real` is the C library's `fexecve`, which has this type; the arguments are the
    // host's own.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Function>(real);
        replace(Program::Descriptor(fd), environment, |environment| {
            real(fd, arguments, environment)
        })
    }
}

/// # Safety
/// The requirements of `execvpe(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
    let Some(real) = EXECVPE.get() else { return not_there() };
    // SAFETY: `real` is the C library's `execvpe`, which has this type; the arguments are the
    // host's own.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Function>(real);
        replace(Program::Search(file), environment, |environment| {
            real(file, arguments, environment)
        })
    }
}

/// # Safety
/// The requirements of `execvp(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `execvp(3)`.
    unsafe { execvpe(file, arguments, own_environment()) }
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const libc::posix_spawn_file_actions_t,
    *const libc::posix_spawnattr_t,
    Strings,
    Strings,
) -> c_int;

/// # Safety
/// The requirements of `posix_spawn(3)` apply. (Programs that were linked before glibc 2.15 expect
/// an older version that also tries `/bin/sh`; they get the new version here.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(real) = SPAWN.get() else { return libc::ENOSYS };
    // SAFETY: `real` is the C library's `posix_spawn`, which has this type; the arguments are the
    // host's own.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Spawn>(real);
        launch(Program::Path(path), environment, |environment| {
            real(pid, path, actions, attributes, arguments, environment)
        })
    }
}

/// # Safety
/// The requirements of `posix_spawnp(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const libc::posix_spawn_file_actions_t,
    attributes: *const libc::posix_spawnattr_t,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(real) = SPAWNP.get() else { return libc::ENOSYS };
    // SAFETY: `real` is the C library's `posix_spawnp`, which has this type; the arguments are the
    // host's own.
    unsafe {
        let real = std::mem::transmute::<*mut c_void, Spawn>(real);
        launch(Program::Search(file), environment, |environment| {
            real(pid, file, actions, attributes, arguments, environment)
        })
    }
}

// The functions made by this macro take the arguments of the program to start one by one, not as an
// array. The arguments in registers are pushed onto the stack directly below the other arguments,
// over the return address. So the stack contains the whole array of arguments, and no argument
// beyond those in registers is copied. If the program cannot be started, the return address is put
// back.
#[cfg(target_arch = "x86_64")]
macro_rules! listed {
    ($name:ident, $body:ident, $page:literal) => {
        #[doc = concat!("# Safety\nThe requirements of `", $page, "` apply.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "endbr64",
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {body}",
                "pop rcx",
                "add rsp, 32",
                "mov [rsp], rcx",
                "ret",
                body = sym $body,
            )
        }
    };
}

// The same macro for AArch64, where the return address is in a register. This code has not been run
// yet.
#[cfg(target_arch = "aarch64")]
macro_rules! listed {
    ($name:ident, $body:ident, $page:literal) => {
        #[doc = concat!("# Safety\nThe requirements of `", $page, "` apply.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "bti c",
                "sub sp, sp, #80",
                "stp x1, x2, [sp, #24]",
                "stp x3, x4, [sp, #40]",
                "stp x5, x6, [sp, #56]",
                "str x7, [sp, #72]",
                "str x30, [sp, #8]",
                "add x1, sp, #24",
                "bl {body}",
                "ldr x30, [sp, #8]",
                "add sp, sp, #80",
                "ret",
                body = sym $body,
            )
        }
    };
}

listed!(execl, execv, "execl(3)");
listed!(execlp, execvp, "execlp(3)");
listed!(execle, execle_array, "execle(3)");

/// Called by `execle`, where the environment follows the null pointer that ends the arguments.
unsafe extern "C" fn execle_array(path: *const c_char, arguments: Strings) -> c_int {
    let mut count = 0;
    // SAFETY: execle(3) requires that the caller's arguments end with a null pointer and that the
    // environment follows it.
    unsafe {
        while !(*arguments.add(count)).is_null() {
            count += 1;
        }
        execve(path, arguments, (*arguments.add(count + 1)).cast())
    }
}
