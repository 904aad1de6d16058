//! Releases a C++ exception that left a plugin's function, and finds out its type and message.
//!
//! A process may have several C++ runtime libraries. The library that threw an exception must also
//! release it. This library contains the exception's cleanup function. The layouts that are read
//! here are fixed by the Itanium C++ ABI: chapters 2.9.5 (`type_info`) and 2.5.2 (virtual tables),
//! and sections 2.2 and 2.5 of its part on exceptions.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{Left, RawException};

/// [`super::call`].
pub(super) type Call =
    unsafe fn(*const c_void, *const c_void, *const c_void) -> Result<usize, Left>;

pub(super) struct Runtime {
    handle: *mut c_void,
    begin_catch: *const c_void,
    end_catch: *const c_void,
    current_type: *const c_void,
    demangle: *const c_void,
    /// The pointer to the virtual table in the `type_info` of a class with one base class.
    single_base: *const c_void,
    /// Whether the exception shares its object with others (`std::rethrow_exception`).
    shared: bool,
    call: Call,
}

/// `std::type_info`, with the field for a class with one base class.
#[repr(C)]
struct TypeInfo {
    table: *const c_void,
    name: *const c_char,
    base: *const TypeInfo,
}

/// Returns the base address and the file name of the module that contains `address`.
fn module(address: *const c_void) -> Option<(*mut c_void, *const c_char)> {
    // SAFETY: `Dl_info` consists of pointers, which may be zero, and dladdr takes any address.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address, &mut info) != 0 && !info.dli_fname.is_null();
        found.then_some((info.dli_fbase, info.dli_fname))
    }
}

impl Runtime {
    /// Returns the runtime library that threw an exception. Returns `None` if the exception is not
    /// from C++, or if the library's functions are not found (for example, if it is linked into a
    /// plugin and exports none).
    pub(super) fn of(class: [u8; 8], cleanup: Option<*const c_void>, call: Call) -> Option<Self> {
        let [language @ .., sharing] = class;
        if ![*b"GNUCC++", *b"CLNGC++"].contains(&language) {
            return None;
        }
        let (base, file) = module(cleanup?)?;
        // SAFETY: `file` is a C string of the dynamic linker's. The file is loaded already, so no
        // constructor runs.
        let handle = unsafe { libc::dlopen(file, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: `handle` is open, and `name` is a C string.
            let address: *const c_void = unsafe { libc::dlsym(handle, name.as_ptr()) };
            // `dlsym` also finds symbols in the dependencies of the library; these symbols are not
            // used.
            module(address).filter(|of| of.0 == base && !address.is_null()).map(|_| address)
        };
        let all = (|| {
            Some(Self {
                handle,
                begin_catch: symbol(c"__cxa_begin_catch")?,
                end_catch: symbol(c"__cxa_end_catch")?,
                current_type: symbol(c"__cxa_current_exception_type")?,
                demangle: symbol(c"__cxa_demangle")?,
                // Pointers to a virtual table skip its first two words, which are not functions.
                single_base: symbol(c"_ZTVN10__cxxabiv120__si_class_type_infoE")?
                    .wrapping_byte_add(2 * size_of::<usize>()),
                shared: sharing != 0,
                call,
            })
        })();
        if all.is_none() {
            // SAFETY: `handle` was opened above, and nobody uses it after this.
            unsafe { libc::dlclose(handle) };
        }
        all
    }

    pub(super) fn end(self, exception: *mut RawException) -> String {
        type Plain = unsafe extern "C" fn() -> *const TypeInfo;
        type Catch = unsafe extern "C" fn(*mut RawException) -> *mut c_void;
        // SAFETY: the functions have these types by the ABI, and are called in its order: after
        // `begin` the exception is the current one.
        let said = unsafe {
            let begin: Catch = std::mem::transmute(self.begin_catch);
            begin(exception);
            let current: Plain = std::mem::transmute(self.current_type);
            let of = current();
            // The thrown object follows the unwinder's struct, which begins at `exception` and has
            // four words.
            let object = exception.wrapping_byte_add(32).cast::<c_void>();
            match (self.name(of), self.text(object, of)) {
                (Some(name), Some(text)) => format!("a C++ exception of type {name}: {text}"),
                (Some(name), None) => format!("a C++ exception of type {name}"),
                (None, _) => "a C++ exception".to_owned(),
            }
        };
        // This call runs the exception's destructor, which is the plugin's code and may throw.
        // SAFETY: the exception is still the current one of this thread, as the runtime's
        // `__cxa_end_catch` requires.
        let _ = unsafe { (self.call)(self.end_catch, std::ptr::null(), std::ptr::null()) };
        // SAFETY: `Self::of` opened the handle, and the exception, which needed the library, has
        // been released.
        unsafe { libc::dlclose(self.handle) };
        said
    }

    /// Returns the type's name, as in source code if the runtime library can demangle it.
    unsafe fn name(&self, of: *const TypeInfo) -> Option<String> {
        type Demangle =
            unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;
        if of.is_null() {
            return None;
        }
        // SAFETY: the name in the runtime's `type_info` is a C string. The demangler returns memory
        // of malloc, or null.
        unsafe {
            // GCC writes a `*` before names that are compared by their address.
            let raw = (*of).name;
            let raw = CStr::from_ptr(if *raw == b'*' as c_char { raw.add(1) } else { raw });
            let demangle: Demangle = std::mem::transmute(self.demangle);
            let mut status = 0;
            let shown =
                demangle(raw.as_ptr(), std::ptr::null_mut(), std::ptr::null_mut(), &mut status);
            if shown.is_null() {
                return Some(raw.to_string_lossy().into_owned());
            }
            let text = CStr::from_ptr(shown).to_string_lossy().into_owned();
            libc::free(shown.cast());
            Some(text)
        }
    }

    /// Returns the message of an exception that is not shared, if its class derives from
    /// `std::exception` through classes with one base class. In this case, the parts of the object
    /// that belong to these classes have the same address.
    unsafe fn text(&self, object: *mut c_void, mut of: *const TypeInfo) -> Option<String> {
        /// The place of `what` in the virtual table, after the two destructors.
        const WHAT: usize = 2;
        if self.shared {
            return None;
        }
        // SAFETY: `of` is the runtime's `type_info`, which has the third field if the class has one
        // base class. An object of a class with virtual functions begins with the address of the
        // class's virtual table.
        unsafe {
            for _ in 0..64 {
                if of.is_null() {
                    return None;
                }
                if CStr::from_ptr((*of).name) == c"St9exception" {
                    let table = *object.cast::<*const *const c_void>();
                    let what = *table.add(WHAT);
                    let text = (self.call)(what, object, std::ptr::null()).ok()? as *const c_char;
                    let text = (!text.is_null()).then(|| CStr::from_ptr(text))?;
                    return Some(text.to_string_lossy().into_owned());
                }
                if (*of).table != self.single_base {
                    return None;
                }
                of = (*of).base;
            }
        }
        None
    }
}
