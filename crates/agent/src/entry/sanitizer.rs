//! Makes this library work together with AddressSanitizer, ThreadSanitizer and valgrind.
//!
//! AddressSanitizer's shared runtime (`libasan.so`, `libclang_rt.asan*.so`) ends a program at its
//! start if another library comes before the runtime, because that library might replace `malloc`.
//! This library does not replace `malloc`, and the functions that it does replace call the next
//! definition. So this library switches the check off.
//!
//! AddressSanitizer's runtime calls [`__asan_default_options`] before it reads `ASAN_OPTIONS`. If
//! the program itself defines this function, the linker finds that definition first. The check then
//! stays on, and this library is not preloaded into such a program (`record::preloadable`). The
//! alternative was to set `ASAN_OPTIONS`. But programs that are started by a system call without
//! glibc would not get this variable, and all other programs would see a variable that their user
//! did not set.
//!
//! Valgrind's helgrind and drd understand locks but not atomic operations. These tools would report
//! data races in the memory for records, which several threads use one after the other. So if a
//! program runs under one of them, the agent records nothing for a profile that the environment
//! asks for. ThreadSanitizer does not see the memory accesses of a library, such as this one, that
//! was built without it. But it sees what libc's functions (`memcpy`, `clock_gettime`) read and
//! write for this library, so the agent tells it to ignore work on the agent's own stacks.

use std::ffi::{CStr, c_char, c_void};

use crate::os::own_stack::{self, Annotate};
use crate::process::panics::guarded;

/// Returns options for AddressSanitizer, as declared in `sanitizer/asan_interface.h`.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    guarded(|| {
        point!(SanitizerOptions);
    });
    c"verify_asan_link_order=0".as_ptr()
}

/// Returns whether one of valgrind's race checkers runs. Such a checker is recognised by its own
/// library in `LD_PRELOAD`.
pub fn checks_races() -> bool {
    // SAFETY: the name is a C string, so `getenv` returns null or a C string, which nothing changes
    // while the dynamic linker runs constructors.
    let list = unsafe {
        let list = libc::getenv(c"LD_PRELOAD".as_ptr());
        if list.is_null() { return false } else { CStr::from_ptr(list) }
    };
    let has = |name: &[u8]| list.to_bytes().windows(name.len()).any(|part| part == name);
    has(b"/vgpreload_helgrind-") || has(b"/vgpreload_drd-")
}

/// Makes ThreadSanitizer, if present, ignore work on the agent's own stacks. Must be called before
/// anything runs on such a stack.
pub fn hide_our_work() {
    let function = |name: &CStr| {
        // SAFETY: the name is a C string. ThreadSanitizer's function with this name has this type,
        // and null becomes `None`.
        unsafe {
            std::mem::transmute::<*mut c_void, Option<Annotate>>(libc::dlsym(
                libc::RTLD_DEFAULT,
                name.as_ptr(),
            ))
        }
    };
    let functions = [
        c"AnnotateIgnoreReadsBegin",
        c"AnnotateIgnoreWritesBegin",
        c"AnnotateIgnoreWritesEnd",
        c"AnnotateIgnoreReadsEnd",
    ];
    let [Some(reads), Some(writes), Some(writes_end), Some(reads_end)] = functions.map(function)
    else {
        return;
    };
    // SAFETY: the four functions only change counters in ThreadSanitizer's state of the calling
    // thread.
    unsafe { own_stack::annotate_by([reads, writes], [writes_end, reads_end]) };
}
