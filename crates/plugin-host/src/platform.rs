//! Opens shared objects.

use std::ptr::NonNull;

/// An open shared object. Dropping the library does not close the shared object; see
/// [`Library::close`].
#[derive(Debug)]
pub struct Library {
    handle: NonNull<std::ffi::c_void>,
}

// SAFETY: any thread may use a handle of the dynamic linker.
unsafe impl Send for Library {}
// SAFETY: any thread may use a handle of the dynamic linker, also while others do.
unsafe impl Sync for Library {}

#[cfg(unix)]
mod unix {
    use std::ffi::{CStr, CString};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::NonNull;

    use super::Library;

    fn last_error() -> String {
        // SAFETY: dlerror has no arguments; its text is valid until this thread calls the dynamic
        // linker again.
        let text = unsafe { libc::dlerror() };
        if text.is_null() {
            return "the dynamic linker gives no reason".to_owned();
        }
        // SAFETY: `text` is a C string, which is copied before this thread calls the dynamic linker
        // again.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    impl Library {
        /// Opens the file, binds its symbols, and hides them from other libraries. Its constructors
        /// run.
        ///
        /// # Errors
        /// The path does not lead to a plain file, or the dynamic linker or a constructor failed.
        pub fn open(path: &Path) -> Result<Self, String> {
            // The dynamic linker would search the system's directories for a name without a slash,
            // so such a name gets `./` in front.
            let path = if path.as_os_str().as_bytes().contains(&b'/') {
                path.to_owned()
            } else {
                Path::new(".").join(path)
            };
            // The dynamic linker would block when it opens a FIFO, so the file is checked first.
            crate::fit::plain(&path).map_err(|error| error.to_string())?;
            let name = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| "its name has a zero byte".to_owned())?;
            // SAFETY: `name` is a C string. The user chose the file, and with it what its
            // constructors do.
            let opened = unsafe { crate::catch::open(&name, libc::RTLD_NOW | libc::RTLD_LOCAL) };
            match opened {
                Ok(handle) => {
                    NonNull::new(handle).map(|handle| Self { handle }).ok_or_else(last_error)
                }
                Err(how) => Err(format!("a constructor of it {how}")),
            }
        }

        /// Returns the address of an exported function or object.
        pub fn symbol(&self, name: &CStr) -> Option<NonNull<std::ffi::c_void>> {
            // SAFETY: the handle is open, and `name` is a C string.
            NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
        }

        /// Closes the library.
        ///
        /// # Safety
        /// Nothing of the library may be used from now on.
        pub unsafe fn close(self) {
            // SAFETY: the handle is open, and by contract nobody uses anything of the library after
            // this.
            unsafe { libc::dlclose(self.handle.as_ptr()) };
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::ffi::CStr;
    use std::path::Path;
    use std::ptr::NonNull;

    use super::Library;

    impl Library {
        /// Fails, because this system is not supported.
        ///
        /// # Errors
        /// Always, with the name of the system.
        pub fn open(_path: &Path) -> Result<Self, String> {
            Err(format!("plugins cannot be loaded on {} yet", std::env::consts::OS))
        }

        /// Returns `None`, because no library can be open.
        pub fn symbol(&self, _name: &CStr) -> Option<NonNull<std::ffi::c_void>> {
            None
        }

        /// Does nothing, because no library can be open.
        ///
        /// # Safety
        /// There are no conditions.
        pub unsafe fn close(self) {}
    }
}
