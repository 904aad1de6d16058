//! Turns mangled names of C++ kernels into the names in the source code, with a function of the C++
//! library that the program has loaded.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;

/// `__cxa_demangle` of the Itanium C++ ABI.
type Demangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<Arc<str>, Arc<str>>,
    demangle: Option<Demangle>,
}

const MOST: usize = 100_000;

impl Names {
    /// Returns the demangled name of a kernel, or the same name if it is not mangled or cannot be
    /// demangled.
    pub fn shown(&mut self, name: &Arc<str>) -> Arc<str> {
        if !name.starts_with("_Z") {
            return Arc::clone(name);
        }
        if let Some(shown) = self.known.get(name) {
            return Arc::clone(shown);
        }
        if self.demangle.is_none() {
            self.demangle = found();
        }
        let Some(demangle) = self.demangle else { return Arc::clone(name) };
        let shown = demangled(demangle, name).map_or_else(|| Arc::clone(name), Arc::from);
        if self.known.len() < MOST {
            self.known.insert(Arc::clone(name), Arc::clone(&shown));
        }
        shown
    }
}

/// Finds `__cxa_demangle` in the loaded libraries.
fn found() -> Option<Demangle> {
    const NAME: &CStr = c"__cxa_demangle";
    let mut handles = vec![libc::RTLD_DEFAULT];
    for library in [c"libstdc++.so.6", c"libc++abi.so.1"] {
        // SAFETY: the name is a C string. With RTLD_NOLOAD, a library that is not loaded stays
        // unloaded.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            handles.push(handle);
        }
    }
    handles.into_iter().find_map(|handle| {
        // SAFETY: the handle is RTLD_DEFAULT or one that dlopen returned, and NAME is a C string.
        let found = unsafe { libc::dlsym(handle, NAME.as_ptr()) };
        // SAFETY: the C++ ABI says that the function of this name has this type.
        (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Demangle>(found) })
    })
}

fn demangled(demangle: Demangle, name: &str) -> Option<String> {
    let mangled = CString::new(name).ok()?;
    let mut status = -1;
    let none = std::ptr::null_mut();
    // SAFETY: `mangled` is a C string, and `status` outlives the call. Without a buffer, the
    // function makes one with malloc.
    let text = unsafe { demangle(mangled.as_ptr(), none, std::ptr::null_mut(), &raw mut status) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the function returned a C string made with malloc, which belongs to its caller.
    let shown = unsafe {
        let shown = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        shown
    };
    (status == 0).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_broken_ones_too() {
        let mut names = Names::default();
        for name in ["double_plus_one", "fused_square_plus", "", "_Z", "_Zbroken"] {
            assert_eq!(&*names.shown(&Arc::from(name)), name);
        }
    }
}
