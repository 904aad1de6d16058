//! Functions that make queues and kernels, and that release queues and contexts.
//!
//! When the program makes a queue, the layer asks for a queue whose commands have times, unless it
//! is an on-device queue. If the implementation cannot make a queue with times, the layer asks for
//! the queue that the program wanted.

#![allow(non_snake_case, reason = "the functions of OpenCL")]

use std::ffi::{CStr, c_char};

use super::{guarded, installs, next};
use crate::api::{
    Code, Context, Device, Kernel, Program, QUEUE_ON_DEVICE, QUEUE_PROFILING, QUEUE_PROPERTIES,
    Queue, SUCCESS,
};
use crate::next_layer::forward;
use crate::{names, queues, recorder};

/// The largest number of keys in a list of properties, including the 0 at its end. A longer list is
/// passed on unchanged.
const MOST_PAIRS: usize = 64;

/// Stores a queue that was made. `hidden` says whether only the layer, and not the program, asked
/// for the times of commands.
fn made(queue: Queue, properties: u64, hidden: bool, asked: Option<Option<Vec<u64>>>) {
    recorder::watch_exit();
    if let Some(queue) = queues::add(queue, properties, hidden, asked)
        && recorder::is_active()
    {
        queue.device.read_clock();
    }
}

/// Records the end of a call that makes an object, with the error from the program's variable.
fn end(begun: Option<recorder::Begun>, name: &'static str, code_ret: *mut Code, made: bool) {
    let Some(begun) = begun else { return };
    let code = match made {
        true => SUCCESS,
        // SAFETY: `code_ret` is the program's variable, and the implementation has just written to
        // it.
        false if !code_ret.is_null() => unsafe { code_ret.read() },
        // The call failed, but the program gave no variable for the error.
        false => crate::api::INVALID_VALUE,
    };
    begun.end(name, code, None);
}

unsafe extern "C" fn clCreateCommandQueue(
    context: Context,
    device: Device,
    properties: u64,
    code_ret: *mut Code,
) -> Queue {
    let call = |properties: u64| {
        forward!(next!(clCreateCommandQueue), (context, device, properties, code_ret)
            : (Context, Device, u64, *mut Code) -> Queue)
    };
    let begun = recorder::begin();
    let mut hidden = properties & (QUEUE_PROFILING | QUEUE_ON_DEVICE) == 0;
    let mut queue = call(if hidden { properties | QUEUE_PROFILING } else { properties });
    if queue.is_null() && hidden {
        hidden = false;
        queue = call(properties);
    }
    guarded(|| {
        if !queue.is_null() {
            made(queue, properties, hidden, None);
        }
        end(begun, "clCreateCommandQueue", code_ret, !queue.is_null());
    });
    queue
}

/// Returns the program's list without the 0 at its end. `Some(None)` means that there is no list,
/// and `None` that it is too long.
///
/// # Safety
/// The list must be null or end with a 0 in the place of a key.
unsafe fn list(properties: *const u64) -> Option<Option<Vec<u64>>> {
    if properties.is_null() {
        return Some(None);
    }
    let mut all = Vec::new();
    for pair in 0..MOST_PAIRS {
        // SAFETY: by contract, the list ends with a 0 in the place of a key, and nothing is read
        // beyond that.
        let (key, value) = unsafe {
            let key = properties.add(2 * pair).read();
            (key, if key == 0 { 0 } else { properties.add(2 * pair + 1).read() })
        };
        if key == 0 {
            return Some(Some(all));
        }
        all.extend([key, value]);
    }
    None
}

/// Returns the queue's flags in the program's list, and a list of properties with which the queue's
/// commands also have times. The list is `None` if the program itself asked for times, or for an
/// on-device queue, in which only kernels enqueue commands.
fn with_times(asked: Option<&[u64]>) -> (u64, Option<Vec<u64>>) {
    let mut all = asked.unwrap_or_default().to_vec();
    let place = all.chunks_exact(2).position(|pair| pair[0] == u64::from(QUEUE_PROPERTIES));
    let properties = place.map_or(0, |pair| all[2 * pair + 1]);
    if properties & (QUEUE_PROFILING | QUEUE_ON_DEVICE) != 0 {
        return (properties, None);
    }
    match place {
        Some(pair) => all[2 * pair + 1] |= QUEUE_PROFILING,
        None => all.extend([QUEUE_PROPERTIES.into(), QUEUE_PROFILING]),
    }
    all.push(0);
    (properties, Some(all))
}

unsafe extern "C" fn clCreateCommandQueueWithProperties(
    context: Context,
    device: Device,
    properties: *const u64,
    code_ret: *mut Code,
) -> Queue {
    let call = |properties: *const u64| {
        forward!(next!(clCreateCommandQueueWithProperties), (context, device, properties, code_ret)
            : (Context, Device, *const u64, *mut Code) -> Queue)
    };
    let begun = recorder::begin();
    // SAFETY: the specification requires that the program's list is null or ends with a 0.
    let asked = guarded(|| unsafe { list(properties) }).flatten();
    let (bits, changed) = asked
        .as_ref()
        .and_then(|asked| guarded(|| with_times(asked.as_deref())))
        .unwrap_or_default();
    let mut hidden = changed.is_some();
    let mut queue = changed.map_or(std::ptr::null_mut(), |list| call(list.as_ptr()));
    if queue.is_null() {
        hidden = false;
        queue = call(properties);
    }
    guarded(|| {
        if !queue.is_null() {
            let asked = asked.map(|asked| {
                asked.map(|mut asked| {
                    asked.push(0);
                    asked
                })
            });
            made(queue, bits, hidden, asked);
        }
        end(begun, "clCreateCommandQueueWithProperties", code_ret, !queue.is_null());
    });
    queue
}

unsafe extern "C" fn clReleaseCommandQueue(queue: Queue) -> Code {
    if recorder::is_active() {
        guarded(|| queues::known(queue).inspect(|queue| recorder::harvest(queue, usize::MAX)));
    }
    forward!(next!(clReleaseCommandQueue), (queue): (Queue) -> Code)
}

unsafe extern "C" fn clReleaseContext(context: Context) -> Code {
    if recorder::is_active() {
        guarded(recorder::harvest_all);
    }
    forward!(next!(clReleaseContext), (context): (Context) -> Code)
}

unsafe extern "C" fn clCreateKernel(
    program: Program,
    name: *const c_char,
    code_ret: *mut Code,
) -> Kernel {
    let begun = recorder::begin();
    let kernel = forward!(next!(clCreateKernel), (program, name, code_ret)
        : (Program, *const c_char, *mut Code) -> Kernel);
    guarded(|| {
        if !kernel.is_null() {
            // SAFETY: the implementation has just found a kernel by this name, so `name` is a C
            // string.
            let name = unsafe { CStr::from_ptr(name) };
            names::made(kernel, Some(&name.to_string_lossy()));
        }
        end(begun, "clCreateKernel", code_ret, !kernel.is_null());
    });
    kernel
}

unsafe extern "C" fn clCreateKernelsInProgram(
    program: Program,
    room: u32,
    kernels: *mut Kernel,
    count_ret: *mut u32,
) -> Code {
    let mut count = 0;
    let code = forward!(next!(clCreateKernelsInProgram), (program, room, kernels, &raw mut count)
        : (Program, u32, *mut Kernel, *mut u32) -> Code);
    if code == SUCCESS && !count_ret.is_null() {
        // SAFETY: the specification wants a variable here if the pointer is not null.
        unsafe { count_ret.write(count) };
    }
    if code == SUCCESS && !kernels.is_null() {
        guarded(|| {
            for index in 0..count.min(room) as usize {
                // SAFETY: `index` is below the room of the program's array, and the implementation
                // has filled the array.
                names::made(unsafe { kernels.add(index).read() }, None);
            }
        });
    }
    code
}

unsafe extern "C" fn clCloneKernel(kernel: Kernel, code_ret: *mut Code) -> Kernel {
    let clone = forward!(next!(clCloneKernel), (kernel, code_ret): (Kernel, *mut Code) -> Kernel);
    if !clone.is_null() {
        guarded(|| names::made(clone, None));
    }
    clone
}

installs! {
    clCreateCommandQueue clCreateCommandQueueWithProperties clReleaseCommandQueue clReleaseContext
    clCreateKernel clCreateKernelsInProgram clCloneKernel
}
