//! Replaces the glibc functions that IREE's loaders use to load executables.
//!
//! `dlsym` depends on its caller (`RTLD_NEXT` means "after the library that calls"). For every name
//! except that of IREE's query function, our `dlsym` therefore *jumps* to the next definition and
//! does not change the return address. Our `mmap` and `mprotect` call the next definition.
//!
//! *Next* is the definition that would be found without this library: that of another library in
//! `LD_PRELOAD`, of an allocator or of a sanitizer, or else glibc's. A lookup takes the dynamic
//! linker's lock, so it could cause a deadlock when a thread calls `mmap` while it holds another
//! lock. Therefore this library's constructor looks up the next definitions before there are
//! threads. If another library's constructor calls one of our functions before this library's
//! constructor has run, the function looks up its next definition itself. During a lookup, our
//! functions call the kernel or glibc directly. Otherwise an allocator that `dlsym` calls, and that
//! calls `mmap`, would recurse for ever.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::adapters::iree::{elf, patch, stubs};
use crate::adapters::loops::executables;
use crate::os::own_stack;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::panics::{guarded, guarded_apart};
use crate::state::epoch;

struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    /// Set while a thread is looking the function up.
    looking: AtomicBool,
}

static DLSYM: Next = Next::new(c"dlsym");
static MMAP: Next = Next::new(c"mmap");
static MMAP64: Next = Next::new(c"mmap64");
static MPROTECT: Next = Next::new(c"mprotect");

/// Called by the constructor.
pub fn prepare() {
    for next in [&DLSYM, &MMAP, &MMAP64, &MPROTECT] {
        next.get();
    }
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        let at = AtomicPtr::new(std::ptr::null_mut());
        Self { name, at, looking: AtomicBool::new(false) }
    }

    /// Returns the next definition; null if there is none or while it is being looked up.
    #[inline(always)]
    fn get(&self) -> *mut c_void {
        let at = self.at.load(Ordering::Relaxed);
        if at.is_null() { self.look() } else { at }
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> *mut c_void {
        if self.looking.swap(true, Ordering::Acquire) {
            return std::ptr::null_mut();
        }
        let _errno = ErrnoGuard::new();
        let glibc = glibcs_dlsym();
        let mut found = std::ptr::null_mut();
        if !glibc.is_null() {
            // Because this library makes the call, RTLD_NEXT finds the definition after ours. The
            // call goes to glibc's own `dlsym`, because that of another library might call the
            // function that is being looked up.
            // SAFETY: glibc's `dlsym` has this type, and the name is a C string.
            let look = || unsafe {
                let dlsym = std::mem::transmute::<*mut c_void, Dlsym>(glibc);
                dlsym(libc::RTLD_NEXT, self.name.as_ptr())
            };
            // A lookup needs 1.3 KiB of stack, so it runs on a stack of the agent and not on the
            // host's.
            found = own_stack::run(look).unwrap_or(found);
        }
        self.at.store(found, Ordering::Relaxed);
        self.looking.store(false, Ordering::Release);
        found
    }
}

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Mprotect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The oldest version of glibc's `dlsym` on this architecture.
#[cfg(target_arch = "x86_64")]
const BASE_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const BASE_VERSION: &CStr = c"GLIBC_2.17";

/// Replaces `dlsym` for all callers. Jumps to the address that [`route`] returns, with the caller's
/// return address and arguments unchanged.
///
/// # Safety
/// The requirements of `dlsym(3)` apply.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {route}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        route = sym route,
    )
}

/// The same function for AArch64.
///
/// # Safety
/// The requirements of `dlsym(3)` apply.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "bti c",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {route}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "br x16",
        route = sym route,
    )
}

/// Returns the address at which `dlsym` continues.
unsafe extern "C" fn route(_handle: *mut c_void, name: *const c_char) -> usize {
    let ours = || {
        point!(Dlsym);
        // SAFETY: callers of `dlsym` pass a C string, or null, which is checked first.
        epoch::wanted()
            && !name.is_null()
            && unsafe { CStr::from_ptr(name) }.to_bytes() == abi::iree::QUERY_SYMBOL.as_bytes()
    };
    let ours = guarded(ours).unwrap_or(false);
    let next = next_dlsym();
    if ours || next.is_null() { query_symbol as *const () as usize } else { next as usize }
}

/// Returns the next `dlsym`, or glibc's while the next is being looked up.
fn next_dlsym() -> *mut c_void {
    let next = DLSYM.get();
    if next.is_null() { glibcs_dlsym() } else { next }
}

/// Returns glibc's own `dlsym`. Finds it by the version of its symbol.
fn glibcs_dlsym() -> *mut c_void {
    static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let known = KNOWN.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = libc::RTLD_NEXT;
    // SAFETY: both names are C strings; `dlvsym` finds the definition after this library's.
    let look = || unsafe { libc::dlvsym(next, c"dlsym".as_ptr(), BASE_VERSION.as_ptr()) };
    let Ok(found) = own_stack::run(look) else { return std::ptr::null_mut() };
    KNOWN.store(found, Ordering::Relaxed);
    found
}

/// Finds the query function with the next `dlsym`. Returns a stub that wraps the function, or the
/// function itself if no stub is free.
unsafe extern "C" fn query_symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let next = next_dlsym();
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: every definition of `dlsym` has this signature. The caller's identity only matters
    // for RTLD_NEXT and RTLD_DEFAULT; runtimes pass the handle of the library that they loaded.
    let found = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(next)(handle, name) };
    if found.is_null() {
        return found;
    }
    guarded(|| stubs::wrap_query(found)).unwrap_or(found)
}

/// Calls the next `mprotect`. If something is being recorded and a range becomes executable, looks
/// for an embedded ELF in it.
///
/// # Safety
/// The requirements of `mprotect(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `mprotect(2)`.
    let result = unsafe { next_mprotect(address, bytes, protection) };
    if protection & libc::PROT_EXEC != 0 && result == 0 && epoch::wanted() {
        let _errno = ErrnoGuard::new();
        guarded_apart(|| {
            point!(Mprotect);
            if let Some(found) = elf::find(address as usize, bytes) {
                let export = patch::query_and_take_in(found.query);
                executables::embedded(found.base, export);
            }
        });
    }
    result
}

/// # Safety
/// The requirements of `mprotect(2)` apply.
#[inline(always)]
unsafe fn next_mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    let next = MPROTECT.get();
    // SAFETY: the caller meets the requirements of `mprotect(2)`, and every definition of
    // `mprotect` has this type.
    unsafe {
        if next.is_null() {
            return sys::host_mprotect(address, bytes, protection);
        }
        std::mem::transmute::<*mut c_void, Mprotect>(next)(address, bytes, protection)
    }
}

type Arguments = (*mut c_void, usize, c_int, c_int, c_int, i64);

/// # Safety
/// The requirements of `mmap(2)` apply.
#[inline(always)]
unsafe fn mmap_by(next: &Next, arguments: Arguments) -> *mut c_void {
    let (address, bytes, protection, flags, fd, offset) = arguments;
    let function = next.get();
    // SAFETY: the caller meets the requirements of `mmap(2)`, and every definition of `mmap` has
    // this type.
    let at = unsafe {
        if function.is_null() {
            sys::host_mmap(address, bytes, protection, flags, fd, offset)
        } else {
            let function = std::mem::transmute::<*mut c_void, Mmap>(function);
            function(address, bytes, protection, flags, fd, offset)
        }
    };
    let reserves = protection == libc::PROT_NONE && flags & RESERVATION == RESERVATION;
    if reserves && at != libc::MAP_FAILED && epoch::wanted() {
        guarded(|| {
            point!(Mmap);
            elf::note_reservation(at as usize, bytes);
        });
    }
    at
}

/// The flags with which IREE's loader reserves the range of an executable.
const RESERVATION: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Calls the next `mmap`. If something is being recorded and the range was reserved in the way of
/// IREE's loader, remembers the range.
///
/// # Safety
/// The requirements of `mmap(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `mmap(2)`.
    unsafe { mmap_by(&MMAP, (address, bytes, protection, flags, fd, offset)) }
}

/// Does what `mmap` does, under the name that programs with 64-bit file offsets use.
///
/// # Safety
/// The requirements of `mmap(2)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the arguments are the host's own, so the host must meet the requirements of
    // `mmap(2)`.
    unsafe { mmap_by(&MMAP64, (address, bytes, protection, flags, fd, offset)) }
}
