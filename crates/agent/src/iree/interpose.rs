//! The functions of glibc that stand between IREE's loaders and their executables.
//!
//! `dlsym` is sensitive to its caller (`RTLD_NEXT` means "behind the library that calls"): for
//! every name but one, the exported function *jumps* to the real one and leaves the return
//! address alone. `mmap` and `mprotect` make the system call themselves; the one remembers ranges
//! that were reserved as IREE's loader does, the other looks into them when they become executable.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use record::meta::LibraryKind;

use crate::iree::{elf, patch, trampolines};
use crate::run;
use crate::sys::{self, ErrnoGuard};
use crate::thread::guarded;

/// The next `dlsym` in the lookup order; filled at the first use.
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The version under which glibc has had `dlsym` from its beginning on this machine.
#[cfg(target_arch = "x86_64")]
const BASE_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const BASE_VERSION: &CStr = c"GLIBC_2.17";

/// `dlsym` for everybody: jumps on to where [`route`] says, with the caller's return address and
/// arguments as they were.
///
/// # Safety
/// As `dlsym(3)`.
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

/// As the function for x86-64.
///
/// # Safety
/// As `dlsym(3)`.
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

/// Where `dlsym` should go on: at the real one, or at [`query_symbol`].
unsafe extern "C" fn route(_handle: *mut c_void, name: *const c_char) -> usize {
    let ours = || {
        point!(Dlsym);
        // SAFETY: `dlsym` is called with a C string; a null one is the real function's business.
        run::wanted()
            && !name.is_null()
            && unsafe { CStr::from_ptr(name) }.to_bytes() == abi::iree::QUERY_SYMBOL.as_bytes()
    };
    let ours = guarded(ours).unwrap_or(false);
    let real = real_dlsym();
    if ours || real.is_null() { query_symbol as *const () as usize } else { real as usize }
}

fn real_dlsym() -> *mut c_void {
    let known = REAL_DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = libc::RTLD_NEXT;
    // SAFETY: both names are C strings; `dlvsym` finds the definition behind this library.
    let found = unsafe { libc::dlvsym(next, c"dlsym".as_ptr(), BASE_VERSION.as_ptr()) };
    REAL_DLSYM.store(found, Ordering::Relaxed);
    found
}

/// `dlsym` for the one name that matters: the real answer, wrapped.
unsafe extern "C" fn query_symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = real_dlsym();
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: glibc's `dlsym` has this signature. The caller's identity matters for RTLD_NEXT
    // and RTLD_DEFAULT only; runtimes ask with the handle of the library that they loaded.
    let found = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real)(handle, name) };
    if found.is_null() {
        return found;
    }
    guarded(|| trampolines::wrap_query(found)).unwrap_or(found)
}

/// `mprotect` with a look at what became executable.
///
/// # Safety
/// As `mprotect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the host's own arguments, passed on.
    let result = unsafe { sys::host_mprotect(address, bytes, protection) };
    if protection & libc::PROT_EXEC != 0 && result == 0 && run::wanted() {
        let _errno = ErrnoGuard::new();
        guarded(|| {
            point!(Mprotect);
            if let Some(query) = elf::find_query(address as usize, bytes) {
                patch::query_and_take_in(query, LibraryKind::EmbeddedElf);
            }
        });
    }
    result
}

/// IREE's loader reserves the range of an executable like this.
const RESERVATION: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// `mmap` that remembers reservations.
///
/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the host's own arguments, passed on.
    let at = unsafe { sys::host_mmap(address, bytes, protection, flags, fd, offset) };
    let reserves = protection == libc::PROT_NONE && flags & RESERVATION == RESERVATION;
    if reserves && at != libc::MAP_FAILED && run::wanted() {
        guarded(|| {
            point!(Mmap);
            elf::note_reservation(at as usize, bytes);
        });
    }
    at
}

/// The same function under the name that programs with 64-bit file offsets call.
///
/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: passed on.
    unsafe { mmap(address, bytes, protection, flags, fd, offset) }
}
