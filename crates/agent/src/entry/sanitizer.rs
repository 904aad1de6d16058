//! Checkers that the program runs under.
//!
//! Its shared runtime (`libasan.so`, `libclang_rt.asan*.so`) ends a program at the start if another
//! library comes before it, because that library might replace `malloc`. We replace no function
//! that allocates; those which we do replace call the next definition, the sanitizer's where it
//! has one ([`crate::adapters::iree::interpose`]). So the check may be left out.
//!
//! The runtime asks the function below for options before it reads `ASAN_OPTIONS`. A definition of
//! the program's own is found first: then the check stays, and such a program is not given this
//! library (`record::carry`). A runtime that is linked statically has no such check and does not ask
//! us. A variable in the environment was the alternative: programs that are started by a bare system
//! call would not get it, and all others would see it.
//!
//! Valgrind's helgrind and drd know locks and no atomic operations: they would report every page that
//! two threads have used after one another. Under them nothing is recorded. (Memcheck, the others of
//! valgrind, and ThreadSanitizer, which sees nothing of a library without it, report nothing of us.)

use std::ffi::{CStr, c_char};

use crate::process::guard::guarded;

/// Options of AddressSanitizer, as `sanitizer/asan_interface.h` declares it.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    guarded(|| {
        point!(SanitizerOptions);
    });
    c"verify_asan_link_order=0".as_ptr()
}

/// In the constructor: whether valgrind looks for races. It loads a library of its own into the
/// program, as we are loaded.
pub fn checks_races() -> bool {
    // SAFETY: a C string; the result is null or one, which nothing changes while the dynamic linker
    // runs constructors.
    let list = unsafe {
        let list = libc::getenv(c"LD_PRELOAD".as_ptr());
        if list.is_null() { return false } else { CStr::from_ptr(list) }
    };
    let has = |name: &[u8]| list.to_bytes().windows(name.len()).any(|part| part == name);
    has(b"/vgpreload_helgrind-") || has(b"/vgpreload_drd-")
}
