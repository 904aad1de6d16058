//! Two functions of CUDA's driver, in the process that uses it. Nothing is loaded for them.

use std::ffi::{CStr, c_int, c_void};

/// `CUDA_SUCCESS`.
const SUCCESS: c_int = 0;

fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; only a library that is loaded is opened.
    let handle =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a handle of dlopen's, and a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The context on which the calling thread launches kernels.
pub fn context() -> Option<*mut c_void> {
    let found = function(c"cuCtxGetCurrent")?;
    // SAFETY: a function of CUDA's driver with this name has this type.
    let current = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void) -> c_int>(found)
    };
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver's function, with a variable of ours.
    let code = unsafe { current(&raw mut context) };
    (code == SUCCESS && !context.is_null()).then_some(context)
}

/// Waits until the work of the calling thread's context is done.
///
/// # Errors
/// The driver's code: the work failed, or the device cannot be waited for now.
pub fn wait() -> Result<(), String> {
    let found = function(c"cuCtxSynchronize").ok_or("CUDA's driver has no cuCtxSynchronize")?;
    // SAFETY: as above.
    let synchronize =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(found) };
    // SAFETY: the driver's function, without arguments.
    match unsafe { synchronize() } {
        SUCCESS => Ok(()),
        code => Err(format!("cuCtxSynchronize: error {code}")),
    }
}
