//! The two functions that the ICD loader calls in a layer.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::api::{
    Code, Dispatch, INVALID_VALUE, LAYER_API_VERSION, LAYER_API_VERSION_100, LAYER_NAME, SUCCESS,
    Slot,
};
use crate::{calls, next_layer};

const NAME: &[u8] = b"counterpoint opencl\0";

static TABLE: OnceLock<Dispatch> = OnceLock::new();

/// # Safety
/// Only a loader may call this. `value` must have `size` bytes if it is not null, and `size_ret`
/// must be null or point to a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetLayerInfo(
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> Code {
    let version = LAYER_API_VERSION_100.to_ne_bytes();
    let answer: &[u8] = match param {
        LAYER_API_VERSION => &version,
        LAYER_NAME => NAME,
        _ => return INVALID_VALUE,
    };
    if !value.is_null() {
        if size < answer.len() {
            return INVALID_VALUE;
        }
        // SAFETY: by contract, `value` has `size` bytes, and `size` is at least the answer's
        // length, as checked above.
        unsafe { std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), answer.len()) };
    }
    if !size_ret.is_null() {
        // SAFETY: by contract, `size_ret` may be written to if it is not null.
        unsafe { size_ret.write(answer.len()) };
    }
    SUCCESS
}

/// Receives the next layer's functions, and returns this layer's. A second call of this function in
/// a process fails, so that the program's calls are not recorded twice. A process makes a second
/// call if it has two loaders, or if `OPENCL_LAYERS` names the layer twice.
///
/// # Safety
/// Only a loader may call this. `target` must have `entries` functions that stay valid, and the
/// pointers for the results must point to variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clInitLayer(
    entries: u32,
    target: *const Dispatch,
    entries_ret: *mut u32,
    table_ret: *mut *const Dispatch,
) -> Code {
    if target.is_null() || entries_ret.is_null() || table_ret.is_null() {
        return INVALID_VALUE;
    }
    let length = (entries as usize).min(Dispatch::LENGTH);
    let mut next = Dispatch::default();
    // SAFETY: the loader's table has `entries` addresses, and ours has room for `length` of them.
    unsafe {
        std::ptr::copy_nonoverlapping(
            target.cast::<Slot>(),
            std::ptr::from_mut(&mut next).cast::<Slot>(),
            length,
        );
    }
    let ready = catch_unwind(AssertUnwindSafe(|| {
        next_layer::set(next) && TABLE.set(calls::table(&next)).is_ok()
    }));
    let (Ok(true), Some(table)) = (ready, TABLE.get()) else { return INVALID_VALUE };
    // SAFETY: by contract, the pointers for the results point to variables of the loader.
    unsafe {
        entries_ret.write(length as u32);
        table_ret.write(table);
    }
    SUCCESS
}
