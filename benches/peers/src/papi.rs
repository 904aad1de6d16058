//! The functions of PAPI 7 that the benchmark needs. PAPI's library is loaded at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};

const OK: c_int = 0;
const NULL: c_int = -1;
/// `PAPI_VER_CURRENT` of PAPI 7.0 and 7.1. `PAPI_library_init` fails if its argument is not the
/// version of the loaded library.
const VERSIONS: [c_int; 2] = [7 << 24, 7 << 24 | 1 << 16];

pub struct Papi {
    read: unsafe extern "C" fn(c_int, *mut c_longlong) -> c_int,
    set: c_int,
}

impl Papi {
    /// Loads PAPI from the file `library`, and starts counting the events `names`.
    pub fn start(library: &str, names: &[&str]) -> Result<Self, String> {
        let path = CString::new(library).map_err(|e| e.to_string())?;
        // SAFETY: `path` is a C string, and loading the library only runs PAPI's constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            return Err(format!("load {library}"));
        }
        let symbol = |name: &CStr| {
            // SAFETY: `handle` is an open library, and `name` is a C string.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if at.is_null() { Err(format!("{library} has no {name:?}")) } else { Ok(at) }
        };
        type Init = unsafe extern "C" fn(c_int) -> c_int;
        type Create = unsafe extern "C" fn(*mut c_int) -> c_int;
        type Add = unsafe extern "C" fn(c_int, *const c_char) -> c_int;
        type Start = unsafe extern "C" fn(c_int) -> c_int;
        type Read = unsafe extern "C" fn(c_int, *mut c_longlong) -> c_int;
        // SAFETY: papi.h declares functions with these names and types.
        let (init, create, add, start, read) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(symbol(c"PAPI_library_init")?),
                std::mem::transmute::<*mut c_void, Create>(symbol(c"PAPI_create_eventset")?),
                std::mem::transmute::<*mut c_void, Add>(symbol(c"PAPI_add_named_event")?),
                std::mem::transmute::<*mut c_void, Start>(symbol(c"PAPI_start")?),
                std::mem::transmute::<*mut c_void, Read>(symbol(c"PAPI_read")?),
            )
        };
        // SAFETY: the functions are called with the arguments and in the order that papi.h wants;
        // `set` and the names outlive the calls.
        unsafe {
            if !VERSIONS.iter().any(|version| init(*version) == *version) {
                return Err("PAPI_library_init: unsupported version of PAPI".into());
            }
            let mut set = NULL;
            let created = create(&mut set);
            if created != OK {
                return Err(format!("PAPI_create_eventset: {created}"));
            }
            for name in names {
                let text = CString::new(*name).map_err(|e| e.to_string())?;
                let added = add(set, text.as_ptr());
                if added != OK {
                    return Err(format!("PAPI_add_named_event {name}: {added}"));
                }
            }
            let started = start(set);
            if started != OK {
                return Err(format!("PAPI_start: {started}"));
            }
            Ok(Self { read, set })
        }
    }

    /// Returns whether `PAPI_read` succeeded.
    #[inline]
    pub fn read(&self, values: &mut [c_longlong; 8]) -> bool {
        // SAFETY: the set has at most 5 events, and `values` has room for 8.
        unsafe { (self.read)(self.set, values.as_mut_ptr()) == OK }
    }
}
