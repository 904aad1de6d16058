//! OpenCL's functions whose results would reveal the layer if it passed them on unchanged. The
//! program gets the results that it would get without the layer.

#![allow(non_snake_case, reason = "the functions of OpenCL")]

use std::ffi::c_void;

use super::{guarded, installs, next};
use crate::api::{
    Code, EVENT_REFERENCE_COUNT, Event, INVALID_VALUE, NO_PROFILING_INFO, QUEUE_PROFILING,
    QUEUE_PROPERTIES, QUEUE_PROPERTIES_ARRAY, Queue, SUCCESS,
};
use crate::next_layer::forward;
use crate::{ask, queues};

unsafe extern "C" fn clGetCommandQueueInfo(
    queue: Queue,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> Code {
    let call = |size: usize, value: *mut c_void, size_ret: *mut usize| {
        forward!(next!(clGetCommandQueueInfo), (queue, param, size, value, size_ret)
            : (Queue, u32, usize, *mut c_void, *mut usize) -> Code)
    };
    let hidden = matches!(param, QUEUE_PROPERTIES | QUEUE_PROPERTIES_ARRAY)
        .then(|| guarded(|| queues::known(queue)).flatten())
        .flatten()
        .filter(|queue| queue.is_hidden());
    let Some(hidden) = hidden else { return call(size, value, size_ret) };
    if let (QUEUE_PROPERTIES_ARRAY, Some(asked)) = (param, &hidden.asked) {
        let code = call(0, std::ptr::null_mut(), std::ptr::null_mut());
        if code != SUCCESS {
            return code;
        }
        let asked = asked.as_deref().unwrap_or_default();
        if !value.is_null() && !asked.is_empty() {
            if size < size_of_val(asked) {
                return INVALID_VALUE;
            }
            // SAFETY: the program's `value` has room for `size` bytes, which was compared with the
            // answer's size above.
            unsafe {
                std::ptr::copy_nonoverlapping(asked.as_ptr().cast(), value, size_of_val(asked))
            };
        }
        if !size_ret.is_null() {
            // SAFETY: the specification wants a variable here if the pointer is not null.
            unsafe { size_ret.write(size_of_val(asked)) };
        }
        return SUCCESS;
    }
    let code = call(size, value, size_ret);
    if code == SUCCESS && param == QUEUE_PROPERTIES && !value.is_null() {
        let value = value.cast::<u64>();
        // SAFETY: the implementation has just written the 8 bytes there.
        unsafe { value.write_unaligned(value.read_unaligned() & !QUEUE_PROFILING) };
    }
    code
}

unsafe extern "C" fn clSetCommandQueueProperty(
    queue: Queue,
    properties: u64,
    enable: u32,
    old: *mut u64,
) -> Code {
    let code = forward!(next!(clSetCommandQueueProperty), (queue, properties, enable, old)
        : (Queue, u64, u32, *mut u64) -> Code);
    guarded(|| {
        let Some(queue) = queues::known(queue).filter(|queue| queue.is_hidden()) else { return };
        if code != SUCCESS {
            return;
        }
        if !old.is_null() {
            // SAFETY: `old` is the program's variable, and the implementation has just written to
            // it.
            unsafe { old.write(old.read() & !QUEUE_PROFILING) };
        }
        if properties & QUEUE_PROFILING != 0 {
            // The program itself has turned times on or off, and the layer leaves that as it is. If
            // times are off, the recorder only counts the queue's commands (`untimed`).
            queue.show();
        }
    });
    code
}

unsafe extern "C" fn clGetEventInfo(
    event: Event,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> Code {
    let code = forward!(next!(clGetEventInfo), (event, param, size, value, size_ret)
        : (Event, u32, usize, *mut c_void, *mut usize) -> Code);
    if param == EVENT_REFERENCE_COUNT
        && code == SUCCESS
        && !value.is_null()
        && guarded(|| queues::holds(event)) == Some(true)
    {
        let value = value.cast::<u32>();
        // SAFETY: the implementation has just written the 4 bytes there.
        unsafe { value.write_unaligned(value.read_unaligned().saturating_sub(1)) };
    }
    code
}

unsafe extern "C" fn clGetEventProfilingInfo(
    event: Event,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> Code {
    let slot = next!(clGetEventProfilingInfo);
    let hidden = queues::any_hidden()
        && guarded(|| ask::event_queue(event).and_then(queues::known))
            .flatten()
            .is_some_and(|queue| queue.is_hidden());
    if !hidden {
        return forward!(slot, (event, param, size, value, size_ret)
            : (Event, u32, usize, *mut c_void, *mut usize) -> Code);
    }
    // For an unknown parameter, an implementation may report that it is invalid, or that there are
    // no times. PoCL reports that there are no times, and so does this function.
    let mut time = 0_u64;
    let code = forward!(slot, (event, param, 8, (&raw mut time).cast(), std::ptr::null_mut())
        : (Event, u32, usize, *mut c_void, *mut usize) -> Code);
    if matches!(code, SUCCESS | INVALID_VALUE) { NO_PROFILING_INFO } else { code }
}

installs! { clGetCommandQueueInfo clSetCommandQueueProperty clGetEventInfo clGetEventProfilingInfo }
