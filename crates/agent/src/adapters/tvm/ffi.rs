//! TVM's FFI from inside: its functions, looked up by name where it is loaded already, and its
//! values, read without trusting more than their type says.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use abi::tvm_ffi::{
    Any, Bytes, DlTensor, ErrorCell, ErrorMoveFromRaised, ErrorSetAgain, ErrorSetRaised,
    FunctionCall, FunctionCreate, Object, ObjectRef, RegisterContextSymbol, SafeCall, Shape,
    type_index,
};

/// The functions, all of them there.
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

/// Kinds of errors that end a program and are not about what raised them: Ctrl-C, `sys.exit`.
const INTERRUPTS: [&[u8]; 2] = [b"KeyboardInterrupt", b"SystemExit"];

/// The library, loaded by whoever calls us: Python loads it for itself alone.
const LIBRARY: &CStr = c"libtvm_ffi.so";

/// Looks `name` up in the first of `libraries` that is loaded and has it, else in the program.
pub fn find(libraries: &[&CStr], name: &CStr) -> Option<*mut c_void> {
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    for library in libraries {
        // SAFETY: C strings. A library that is not loaded stays so.
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
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The FFI of this process, looked up once.
pub fn get() -> Option<&'static Ffi> {
    static FFI: AtomicPtr<Ffi> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: null or leaked below.
    if let Some(known) = unsafe { FFI.load(Ordering::Acquire).as_ref() } {
        return Some(known);
    }
    let look = |name| find(&[LIBRARY], name);
    macro_rules! function {
        ($name:literal, $type:ty) => {{
            let found = look($name)?;
            // SAFETY: what has this name has this type, in every version of the FFI.
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
    /// Raises an error. What the exported function returns then.
    pub fn error(&self, kind: &CStr, message: &CStr) -> c_int {
        // SAFETY: the FFI's own, with two C strings.
        unsafe { (self.raise)(kind.as_ptr(), message.as_ptr()) };
        -1
    }

    /// A function object of ours, as an owned value.
    pub fn function(
        &self,
        this: *mut c_void,
        call: SafeCall,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> Option<Any> {
        let mut object = std::ptr::null_mut();
        // SAFETY: the FFI's own; `object` outlives the call.
        let code = unsafe { (self.function_create)(this, call, Some(free), &mut object) };
        (code == 0 && !object.is_null()).then_some(Any {
            type_index: type_index::FUNCTION,
            small_length: 0,
            bits: object as u64,
        })
    }

    /// Gives an owned value back.
    pub fn drop_value(&self, value: Any) {
        if value.type_index >= type_index::FIRST_OBJECT && value.bits != 0 {
            // SAFETY: an object that we own one reference to.
            unsafe { (self.release)(value.bits as *mut Object) };
        }
    }

    /// Forgets the error that a call has raised, unless it is for whoever runs the program: such a
    /// one stays raised. Whether it is.
    pub fn drop_error(&self) -> bool {
        let mut error = std::ptr::null_mut::<Object>();
        // SAFETY: the FFI's own functions; `error` is null or owned afterwards.
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

/// The arguments of a call.
///
/// # Safety
/// As the FFI passes them.
pub unsafe fn arguments<'a>(at: *const Any, count: i32) -> &'a [Any] {
    match usize::try_from(count) {
        // SAFETY: by contract.
        Ok(count) if count > 0 && !at.is_null() => unsafe { std::slice::from_raw_parts(at, count) },
        _ => &[],
    }
}

/// What a value of this type holds in its object, after the header.
unsafe fn behind_header<T>(value: &Any) -> *const T {
    (value.bits as *const u8).wrapping_add(size_of::<Object>()).cast()
}

/// A string: C string, small string or object. `None` for anything else.
///
/// # Safety
/// A value as the FFI passes it; the text is good as long as the value.
#[inline(always)]
pub unsafe fn text(value: &Any) -> Option<&[u8]> {
    match value.type_index {
        type_index::RAW_STR if value.bits != 0 => {
            // SAFETY: a C string, as its type says.
            Some(unsafe { CStr::from_ptr(value.bits as *const _) }.to_bytes())
        }
        type_index::SMALL_STR => {
            let length = (value.small_length as usize).min(7);
            // SAFETY: the bytes are in place, eight of them.
            Some(unsafe { std::slice::from_raw_parts((&raw const value.bits).cast(), length) })
        }
        type_index::STR if value.bits != 0 => {
            // SAFETY: a string object, as its type says.
            unsafe {
                let bytes = &*behind_header::<Bytes>(value);
                if bytes.data.is_null() {
                    return Some(&[]);
                }
                Some(std::slice::from_raw_parts(bytes.data, bytes.size))
            }
        }
        _ => None,
    }
}

/// A tensor, if it is one.
///
/// # Safety
/// As [`text`].
#[inline(always)]
pub unsafe fn tensor(value: &Any) -> Option<&DlTensor> {
    if value.bits == 0 {
        return None;
    }
    match value.type_index {
        // SAFETY: a tensor object, as its type says.
        type_index::TENSOR => Some(unsafe { &*behind_header::<DlTensor>(value) }),
        // SAFETY: the address of one.
        type_index::TENSOR_PTR => Some(unsafe { &*(value.bits as *const DlTensor) }),
        _ => None,
    }
}

/// The extents of a shape, if it is one.
///
/// # Safety
/// As [`text`].
pub unsafe fn shape(value: &Any) -> Option<&[i64]> {
    if value.type_index != type_index::SHAPE || value.bits == 0 {
        return None;
    }
    // SAFETY: a shape object, as its type says.
    unsafe {
        let shape = &*behind_header::<Shape>(value);
        if shape.data.is_null() {
            return Some(&[]);
        }
        Some(std::slice::from_raw_parts(shape.data, shape.size))
    }
}

/// A whole number.
pub fn integer(value: &Any) -> Option<i64> {
    matches!(value.type_index, type_index::INT | type_index::BOOL).then_some(value.bits as i64)
}
