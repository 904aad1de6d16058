//! A collector (which measures values for each op) that calls two functions of the user through
//! TVM's FFI.

use std::ffi::c_void;

use abi::collector::Value;
use abi::dlpack::Device;
use abi::tvm_ffi::{Any, Object, type_index};

use crate::adapters::tvm::ffi::{self, Ffi};
use crate::recorder::collectors;

/// The references to the two functions are never released.
pub struct Functions {
    pub ffi: &'static Ffi,
    pub start: *mut Object,
    pub stop: *mut Object,
}

enum Failure {
    Failed,
    Interrupted,
}

fn number(value: i64) -> Any {
    Any { type_index: type_index::INT, small_length: 0, bits: value as u64 }
}

fn call(ffi: &Ffi, function: *mut Object, arguments: &[Any]) -> Result<Any, Failure> {
    let mut result = Any::default();
    // SAFETY: we own a reference to the function, and the arguments outlive the call.
    let code = unsafe {
        (ffi.function_call)(function, arguments.as_ptr(), arguments.len() as i32, &mut result)
    };
    match code {
        0 => Ok(result),
        _ if ffi.drop_error() => Err(Failure::Interrupted),
        _ => Err(Failure::Failed),
    }
}

/// Calls the user's function `start`. Returns the address of a copy of its result, null if the call
/// failed, or [`collectors::interruption`] if it was interrupted.
pub unsafe extern "C" fn start(this: *mut c_void, device: Device) -> *mut c_void {
    // SAFETY: the collector was registered with a leaked `Functions`, which the recorder passes
    // here.
    let this = unsafe { &*this.cast::<Functions>() };
    let arguments = [number(device.kind.into()), number(device.id.into())];
    match call(this.ffi, this.start, &arguments) {
        Ok(state) => Box::into_raw(Box::new(state)).cast(),
        Err(Failure::Failed) => std::ptr::null_mut(),
        Err(Failure::Interrupted) => collectors::interruption(),
    }
}

pub unsafe extern "C" fn stop(
    this: *mut c_void,
    state: *mut c_void,
    values: *mut Value,
    slots: u32,
) -> i32 {
    if state.is_null() {
        return 1;
    }
    // SAFETY: the recorder passes the leaked `Functions`, and the state that `start` has allocated
    // for this call.
    let (this, state) =
        unsafe { (&*this.cast::<Functions>(), *Box::from_raw(state.cast::<Any>())) };
    let place = Any { type_index: type_index::OPAQUE_PTR, small_length: 0, bits: values as u64 };
    let result = call(this.ffi, this.stop, &[state, place, number(slots.into())]);
    this.ffi.drop_value(state);
    let result = match result {
        Ok(result) => result,
        Err(Failure::Failed) => return 1,
        Err(Failure::Interrupted) => return collectors::INTERRUPTED,
    };
    let failed = ffi::integer(&result).is_some_and(|code| code != 0);
    this.ffi.drop_value(result);
    failed.into()
}

pub unsafe extern "C" fn abandon(this: *mut c_void, state: *mut c_void) {
    if state.is_null() {
        return;
    }
    // SAFETY: the recorder passes the leaked `Functions`, and the state that `start` has allocated
    // for this call.
    unsafe { (*this.cast::<Functions>()).ffi.drop_value(*Box::from_raw(state.cast::<Any>())) };
}
