//! Releases the dynamic linker's locks after a constructor of a shared object threw.
//!
//! glibc holds a lock while constructors run. If an exception leaves `dlopen`, the lock stays
//! locked, and other threads that load something or end the process wait for ever. No public
//! function of glibc releases this lock. But glibc's locks are mutexes in one exported object, and
//! a mutex contains the thread that holds it and a count. The layout of a mutex is part of glibc's
//! ABI (`bits/struct_mutex.h`, the same on the 64-bit processors that we build for). So this code
//! finds the mutexes that the thread has locked more often than before `dlopen`, and releases them.

use std::ffi::{c_int, c_void};

/// The beginning of glibc's `pthread_mutex_t`.
#[repr(C)]
struct Mutex {
    lock: c_int,
    count: u32,
    owner: c_int,
    users: u32,
    kind: c_int,
}

/// `PTHREAD_MUTEX_RECURSIVE`.
const RECURSIVE: c_int = 1;

/// The locks that this thread holds, each with the number of times that the thread has locked it.
pub(super) struct Held(Vec<(*mut Mutex, u32)>);

/// Returns the address and the size of the object that contains glibc's locks. Other C libraries
/// have no such object.
fn object() -> Option<(*mut c_void, usize)> {
    const WITH_SYMBOL: c_int = 1;
    /// `Elf64_Sym`.
    #[repr(C)]
    struct Symbol {
        name: u32,
        info: u8,
        other: u8,
        section: u16,
        value: u64,
        size: u64,
    }
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *const Symbol,
            flags: c_int,
        ) -> c_int;
    }
    // SAFETY: dlsym gets a C string. dladdr1 gets an address, and two variables that outlive the
    // call.
    unsafe {
        let object = libc::dlsym(libc::RTLD_DEFAULT, c"_rtld_global".as_ptr());
        if object.is_null() {
            return None;
        }
        let mut info: libc::Dl_info = std::mem::zeroed();
        let mut symbol = std::ptr::null();
        if dladdr1(object, &mut info, &mut symbol, WITH_SYMBOL) == 0 || symbol.is_null() {
            return None;
        }
        (info.dli_saddr == object).then_some((object, (*symbol).size as usize))
    }
}

impl Held {
    pub(super) fn now() -> Self {
        let mut held = Vec::new();
        let Some((object, size)) = object() else { return Self(held) };
        // SAFETY: gettid has no arguments. Old versions of glibc have no wrapper for it.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as c_int;
        let step = size_of::<usize>();
        for offset in (0..size.saturating_sub(size_of::<libc::pthread_mutex_t>())).step_by(step) {
            let mutex: *mut Mutex = object.wrapping_byte_add(offset).cast();
            // SAFETY: `mutex` is within the linker's object. Other threads change the object
            // meanwhile, but not the fields of a lock that this thread holds.
            let seen = unsafe { mutex.read_volatile() };
            let is_ours = seen.owner == thread
                && seen.kind == RECURSIVE
                && (seen.lock == 1 || seen.lock == 2)
                && (1..64).contains(&seen.count)
                && seen.users == 1;
            if is_ours {
                held.push((mutex, seen.count));
            }
        }
        Self(held)
    }

    /// Releases the locks that this thread has taken since `self` was made.
    ///
    /// # Safety
    /// The code that took the locks must not release them.
    pub(super) unsafe fn restore(&self) {
        for (mutex, count) in Self::now().0 {
            let before = self.0.iter().find(|(held, _)| *held == mutex).map_or(0, |held| held.1);
            for _ in before..count {
                // SAFETY: `mutex` is a recursive mutex that this thread holds, and by contract
                // nobody else will release it.
                unsafe { libc::pthread_mutex_unlock(mutex.cast()) };
            }
        }
    }
}
