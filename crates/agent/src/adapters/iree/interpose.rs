//! The functions of glibc that stand between IREE's loaders and their executables.
//!
//! `dlsym` is sensitive to its caller (`RTLD_NEXT` means "after the library that calls"): for
//! every name but one, the exported function *jumps* to the next one and leaves the return
//! address alone. `mmap` and `mprotect` call the next one, too: `mmap` remembers ranges that were
//! reserved as IREE's loader does, `mprotect` looks into them when they become executable.
//!
//! *Next* is the definition that would be found without us: that of another library in
//! `LD_PRELOAD`, of an allocator or a sanitizer, else glibc's. The constructor looks for all of
//! them, before there are threads: a look takes the dynamic linker's lock, and a thread may call
//! `mmap` while it holds a lock of its own. Calls that come earlier (from constructors of libraries
//! after us) search by themselves. During a search, what it calls reaches the kernel or glibc
//! directly: an allocator that is called by `dlsym` and calls `mmap` comes to an end.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use record::meta::LibraryKind;

use crate::adapters::iree::{elf, patch, trampolines};
use crate::os::sys::{self, ErrnoGuard};
use crate::process::guard::guarded;
use crate::state::epoch;

/// A function of the next library that has it.
struct Next {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
    /// Set while a thread looks for it.
    looking: AtomicBool,
}

static DLSYM: Next = Next::new(c"dlsym");
static MMAP: Next = Next::new(c"mmap");
static MMAP64: Next = Next::new(c"mmap64");
static MPROTECT: Next = Next::new(c"mprotect");

/// Finds the next functions, in the constructor.
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

    /// The function; null if there is none, or while it is being looked for.
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
            // Called here, in this library: what is next to the caller is next to us. glibc's own
            // function, since another library's might call what is being looked for.
            // SAFETY: glibc's `dlsym` has this type; the name is a C string.
            found = unsafe {
                let dlsym = std::mem::transmute::<*mut c_void, Dlsym>(glibc);
                dlsym(libc::RTLD_NEXT, self.name.as_ptr())
            };
        }
        self.at.store(found, Ordering::Relaxed);
        self.looking.store(false, Ordering::Release);
        found
    }
}

type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type Mprotect = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The version under which glibc has had `dlsym` from its beginning on this machine.
#[cfg(target_arch = "x86_64")]
const BASE_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const BASE_VERSION: &CStr = c"GLIBC_2.17";

/// `dlsym` for all callers: jumps on to where [`route`] says, with the caller's return address and
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

/// Where `dlsym` should go on: at the next one, or at [`query_symbol`].
unsafe extern "C" fn route(_handle: *mut c_void, name: *const c_char) -> usize {
    let ours = || {
        point!(Dlsym);
        // SAFETY: `dlsym` is called with a C string; a null one is the real function's business.
        epoch::wanted()
            && !name.is_null()
            && unsafe { CStr::from_ptr(name) }.to_bytes() == abi::iree::QUERY_SYMBOL.as_bytes()
    };
    let ours = guarded(ours).unwrap_or(false);
    let next = next_dlsym();
    if ours || next.is_null() { query_symbol as *const () as usize } else { next as usize }
}

/// The next `dlsym`; glibc's, whose callers cannot come back here, while that one is looked for.
fn next_dlsym() -> *mut c_void {
    let next = DLSYM.get();
    if next.is_null() { glibcs_dlsym() } else { next }
}

/// glibc's own `dlsym`. By its version, under which no other library defines it.
fn glibcs_dlsym() -> *mut c_void {
    static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let known = KNOWN.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let next = libc::RTLD_NEXT;
    // SAFETY: both names are C strings; `dlvsym` finds the definition after this library.
    let found = unsafe { libc::dlvsym(next, c"dlsym".as_ptr(), BASE_VERSION.as_ptr()) };
    KNOWN.store(found, Ordering::Relaxed);
    found
}

/// `dlsym` for the one name that matters: the next one's answer, wrapped.
unsafe extern "C" fn query_symbol(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let next = next_dlsym();
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: glibc's `dlsym` has this signature. The caller's identity matters for RTLD_NEXT
    // and RTLD_DEFAULT only; runtimes ask with the handle of the library that they loaded.
    let found = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(next)(handle, name) };
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
    let result = unsafe { next_mprotect(address, bytes, protection) };
    if protection & libc::PROT_EXEC != 0 && result == 0 && epoch::wanted() {
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

/// # Safety
/// As `mprotect(2)`.
#[inline(always)]
unsafe fn next_mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    let next = MPROTECT.get();
    // SAFETY: the caller's promise; whoever defines this name gives it this type.
    unsafe {
        if next.is_null() {
            return sys::host_mprotect(address, bytes, protection);
        }
        std::mem::transmute::<*mut c_void, Mprotect>(next)(address, bytes, protection)
    }
}

/// What the host gets from `mmap` or `mmap64`, whichever it has called.
type Arguments = (*mut c_void, usize, c_int, c_int, c_int, i64);

/// # Safety
/// As `mmap(2)`.
#[inline(always)]
unsafe fn mmap_by(next: &Next, arguments: Arguments) -> *mut c_void {
    let (address, bytes, protection, flags, fd, offset) = arguments;
    let function = next.get();
    // SAFETY: the caller's promise; whoever defines this name gives it this type.
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
    unsafe { mmap_by(&MMAP, (address, bytes, protection, flags, fd, offset)) }
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
    unsafe { mmap_by(&MMAP64, (address, bytes, protection, flags, fd, offset)) }
}
