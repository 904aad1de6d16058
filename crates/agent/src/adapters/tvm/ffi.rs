//! Access to TVM's FFI (its interface for functions and values). The FFI's functions are looked up
//! by name in the libraries that are already loaded.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use abi::dlpack::DlTensor;
use abi::tvm_ffi::{
    Any, Bytes, ErrorCell, ErrorMoveFromRaised, ErrorSetAgain, ErrorSetRaised, FunctionCall,
    FunctionCreate, Object, ObjectRef, RegisterContextSymbol, SafeCall, Shape, type_index,
};

/// The FFI's functions, none of which is missing.
#[derive(Debug)]
pub struct Ffi {
    pub function_create: FunctionCreate,
    pub function_call: FunctionCall,
    pub retain: ObjectRef,
    pub release: ObjectRef,
    pub raise: ErrorSetRaised,
    pub raise_again: ErrorSetAgain,
    pub take_raised: ErrorMoveFromRaised,
    pub register_context_symbol: RegisterContextSymbol,
}

/// Errors that are no failures but are meant to end the program: Ctrl-C and `sys.exit`.
const INTERRUPTS: [&[u8]; 2] = [b"KeyboardInterrupt", b"SystemExit"];

/// Python loads this library with local scope, so its functions are found only through the
/// library's name.
const LIBRARY: &CStr = c"libtvm_ffi.so";

/// Returns the address of `name` in the first of `libraries` that is loaded and defines the name.
/// If there is none, searches the program and its global libraries.
pub fn find(libraries: &[&CStr], name: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    for library in libraries {
        // SAFETY: `library` and `name` are C strings. With RTLD_NOLOAD, a library that is not
        // loaded stays unloaded.
        let found = unsafe {
            let handle = libc::dlopen(library.as_ptr(), flags);
            if handle.is_null() {
                continue;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            found
        };
        if !found.is_null() {
            return Some(found);
        }
    }
    // SAFETY: `name` is a C string, and dlsym takes RTLD_DEFAULT in place of a handle.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Returns the functions of the FFI, or `None` if one of them is missing.
pub fn get() -> Option<&'static Ffi> {
    static FFI: AtomicPtr<Ffi> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `FFI` is null or points to a value that was leaked below.
    if let Some(known) = unsafe { FFI.load(Ordering::Acquire).as_ref() } {
        return Some(known);
    }
    let look = |name| find(&[LIBRARY], name);
    macro_rules! function {
        ($name:literal, $type:ty) => {{
            let found = look($name)?;
            // SAFETY: the symbol with this name has this type in every version of the FFI.
            unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
        }};
    }
    let ffi = Box::leak(Box::new(Ffi {
        function_create: function!(c"TVMFFIFunctionCreate", FunctionCreate),
        function_call: function!(c"TVMFFIFunctionCall", FunctionCall),
        retain: function!(c"TVMFFIObjectIncRef", ObjectRef),
        release: function!(c"TVMFFIObjectDecRef", ObjectRef),
        raise: function!(c"TVMFFIErrorSetRaisedFromCStr", ErrorSetRaised),
        raise_again: function!(c"TVMFFIErrorSetRaised", ErrorSetAgain),
        take_raised: function!(c"TVMFFIErrorMoveFromRaised", ErrorMoveFromRaised),
        register_context_symbol: function!(
            c"TVMFFIEnvModRegisterContextSymbol",
            RegisterContextSymbol
        ),
    }));
    FFI.store(ffi, Ordering::Release);
    Some(ffi)
}

impl Ffi {
    /// Raises an error of the FFI. Returns the code that the exported function must return.
    pub fn error(&self, kind: &CStr, message: &CStr) -> c_int {
        // SAFETY: `raise` is the FFI's own function, which takes two C strings.
        unsafe { (self.raise)(kind.as_ptr(), message.as_ptr()) };
        -1
    }

    /// Makes a function object, and returns a value that owns a reference to it.
    pub fn function(
        &self,
        this: *mut c_void,
        call: SafeCall,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> Option<Any> {
        let mut object = std::ptr::null_mut();
        // SAFETY: `function_create` is the FFI's own function, called with arguments of its types;
        // `object` outlives the call.
        let code = unsafe { (self.function_create)(this, call, Some(free), &mut object) };
        (code == 0 && !object.is_null()).then_some(Any {
            type_index: type_index::FUNCTION,
            small_length: 0,
            bits: object as u64,
        })
    }

    /// Releases the reference that a value owns.
    pub fn drop_value(&self, value: Any) {
        if value.type_index >= type_index::FIRST_OBJECT && value.bits != 0 {
            // SAFETY: the value is an object, and the caller gives up one reference to it.
            unsafe { (self.release)(value.bits as *mut Object) };
        }
    }

    /// Drops the error that a call has raised. An error that is meant to end the program stays
    /// raised, and the function returns true.
    pub fn drop_error(&self) -> bool {
        let mut error = std::ptr::null_mut::<Object>();
        // SAFETY: `take_raised` and `release` are the FFI's own functions. After `take_raised`,
        // `error` is null or an object of which we own a reference.
        unsafe {
            (self.take_raised)(&mut error);
            let Some(object) = error.as_ref() else { return false };
            let interrupts = object.type_index == type_index::ERROR && {
                let kind = (*error.add(1).cast::<ErrorCell>()).kind;
                !kind.data.is_null()
                    && INTERRUPTS.contains(&std::slice::from_raw_parts(kind.data, kind.size))
            };
            if interrupts {
                (self.raise_again)(error);
            }
            (self.release)(error);
            interrupts
        }
    }
}

/// Returns the arguments of a call as a slice.
///
/// # Safety
/// The arguments must be what the FFI passed.
pub unsafe fn arguments<'a>(at: *const Any, count: i32) -> &'a [Any] {
    match usize::try_from(count) {
        // SAFETY: by contract, the FFI passed `at` and `count`: an array and its length.
        Ok(count) if count > 0 && !at.is_null() => unsafe { std::slice::from_raw_parts(at, count) },
        _ => &[],
    }
}

/// Returns the address of the content of an object, which follows the object's header.
unsafe fn after_header<T>(value: &Any) -> *const T {
    (value.bits as *const u8).wrapping_add(size_of::<Object>()).cast()
}

/// Returns the text of a C string, a small string or a string object.
///
/// # Safety
/// The value must come from the FFI. The text is valid as long as the value.
#[inline(always)]
pub unsafe fn text(value: &Any) -> Option<&[u8]> {
    match value.type_index {
        type_index::RAW_STR if value.bits != 0 => {
            // SAFETY: by contract, the value comes from the FFI, and its type says that `bits` is
            // the address of a C string.
            Some(unsafe { CStr::from_ptr(value.bits as *const _) }.to_bytes())
        }
        type_index::SMALL_STR => {
            let length = (value.small_length as usize).min(7);
            // SAFETY: the type says that the text is in the eight bytes of `bits`; the length is at
            // most 7.
            Some(unsafe { std::slice::from_raw_parts((&raw const value.bits).cast(), length) })
        }
        type_index::STR if value.bits != 0 => {
            // SAFETY: by contract, the value comes from the FFI, and its type says that it is a
            // string object.
            unsafe {
                let bytes = &*after_header::<Bytes>(value);
                if bytes.data.is_null() {
                    return Some(&[]);
                }
                Some(std::slice::from_raw_parts(bytes.data, bytes.size))
            }
        }
        _ => None,
    }
}

/// Returns the tensor in a value.
///
/// # Safety
/// The requirements of [`text`] apply.
#[inline(always)]
pub unsafe fn tensor(value: &Any) -> Option<&DlTensor> {
    if value.bits == 0 {
        return None;
    }
    match value.type_index {
        // SAFETY: by contract, the value comes from the FFI, and its type says that it is a tensor
        // object.
        type_index::TENSOR => Some(unsafe { &*after_header::<DlTensor>(value) }),
        // SAFETY: by contract, the value comes from the FFI, and its type says that `bits` is the
        // address of a tensor.
        type_index::TENSOR_PTR => Some(unsafe { &*(value.bits as *const DlTensor) }),
        _ => None,
    }
}

/// Returns the extents of the shape in a value.
///
/// # Safety
/// The requirements of [`text`] apply.
pub unsafe fn shape(value: &Any) -> Option<&[i64]> {
    if value.type_index != type_index::SHAPE || value.bits == 0 {
        return None;
    }
    // SAFETY: by contract, the value comes from the FFI, and its type says that it is a shape
    // object.
    unsafe {
        let shape = &*after_header::<Shape>(value);
        if shape.data.is_null() {
            return Some(&[]);
        }
        Some(std::slice::from_raw_parts(shape.data, shape.size))
    }
}

/// Returns the number in a value if it is an integer or a Boolean.
pub fn integer(value: &Any) -> Option<i64> {
    matches!(value.type_index, type_index::INT | type_index::BOOL).then_some(value.bits as i64)
}
