//! Records calls that enqueue no work, such as flushes, waits and barriers, and calls that make
//! contexts or memory or build programs.

#![allow(non_snake_case, clippy::too_many_arguments, reason = "the functions of OpenCL")]

use std::ffi::{c_char, c_void};

use super::{guarded, installs, next};
use crate::api::{Code, Context, Device, Event, Mem, Program, Queue, SUCCESS};
use crate::next_layer::forward;
use crate::queues;
use crate::recorder::{self, Begun};

/// Defines functions that record the call and pass it on. The expression after each function's type
/// records the end of the call, with the function's result.
macro_rules! recorded {
    ($( fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, $end:expr; )*) => { $(
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let Some(begun) = recorder::begin() else {
                return forward!(next!($name), ($($argument),*): ($($type),*) -> $result);
            };
            let result = forward!(next!($name), ($($argument),*): ($($type),*) -> $result);
            guarded(|| ($end)(begun, stringify!($name), result));
            result
        }
    )* };
}

fn queue_number(queue: Queue) -> Option<i32> {
    queues::known(queue).map(|queue| queue.number)
}

fn done(begun: Begun, name: &'static str, code: Code) {
    begun.end(name, code, None);
}

/// Records a call that waited for commands, and reads the times of commands that have ended.
fn waited(begun: Begun, name: &'static str, code: Code) {
    begun.end(name, code, None);
    recorder::harvest_some();
}

/// Records the end of a call that returns a handle, with the error from the program's variable.
fn made(code_ret: *mut Code) -> impl FnOnce(Begun, &'static str, *mut c_void) {
    move |begun, name, made| {
        let code = match made.is_null() {
            false => SUCCESS,
            // SAFETY: `code_ret` is the program's variable, and the implementation has just written
            // to it.
            true if !code_ret.is_null() => unsafe { code_ret.read() },
            // The call failed, but the program gave no variable for the error.
            true => crate::api::INVALID_VALUE,
        };
        begun.end(name, code, None);
    }
}

recorded! {
    fn clFlush(queue: Queue) -> Code,
        |begun: Begun, name, code| begun.end(name, code, queue_number(queue));
    fn clFinish(queue: Queue) -> Code, |begun: Begun, name, code| {
        begun.end(name, code, queue_number(queue));
        if let Some(queue) = queues::known(queue) {
            recorder::harvest(&queue, usize::MAX);
        }
    };
    fn clWaitForEvents(count: u32, list: *const Event) -> Code, waited;
    fn clEnqueueWaitForEvents(queue: Queue, count: u32, list: *const Event) -> Code,
        |begun: Begun, name, code| begun.end(name, code, queue_number(queue));
    fn clEnqueueBarrier(queue: Queue) -> Code,
        |begun: Begun, name, code| begun.end(name, code, queue_number(queue));
    fn clEnqueueMarker(queue: Queue, event: *mut Event) -> Code,
        |begun: Begun, name, code| begun.end(name, code, queue_number(queue));
    fn clEnqueueMarkerWithWaitList(
        queue: Queue, count: u32, list: *const Event, event: *mut Event
    ) -> Code, |begun: Begun, name, code| begun.end(name, code, queue_number(queue));
    fn clEnqueueBarrierWithWaitList(
        queue: Queue, count: u32, list: *const Event, event: *mut Event
    ) -> Code, |begun: Begun, name, code| begun.end(name, code, queue_number(queue));

    fn clCreateContext(
        properties: *const isize, count: u32, devices: *const Device, notify: *mut c_void,
        user: *mut c_void, code_ret: *mut Code
    ) -> Context, made(code_ret);
    fn clCreateContextFromType(
        properties: *const isize, device_type: u64, notify: *mut c_void, user: *mut c_void,
        code_ret: *mut Code
    ) -> Context, made(code_ret);
    fn clCreateBuffer(
        context: Context, flags: u64, size: usize, host: *mut c_void, code_ret: *mut Code
    ) -> Mem, made(code_ret);
    fn clCreateImage(
        context: Context, flags: u64, format: *const c_void, description: *const c_void,
        host: *mut c_void, code_ret: *mut Code
    ) -> Mem, made(code_ret);
    fn clBuildProgram(
        program: Program, count: u32, devices: *const Device, options: *const c_char,
        notify: *mut c_void, user: *mut c_void
    ) -> Code, done;
    fn clCompileProgram(
        program: Program, count: u32, devices: *const Device, options: *const c_char,
        headers: u32, programs: *const Program, names: *const *const c_char, notify: *mut c_void,
        user: *mut c_void
    ) -> Code, done;
    fn clLinkProgram(
        context: Context, count: u32, devices: *const Device, options: *const c_char,
        inputs: u32, programs: *const Program, notify: *mut c_void, user: *mut c_void,
        code_ret: *mut Code
    ) -> Program, made(code_ret);
}

installs! {
    clFlush clFinish clWaitForEvents clEnqueueWaitForEvents clEnqueueBarrier clEnqueueMarker
    clEnqueueMarkerWithWaitList clEnqueueBarrierWithWaitList clCreateContext
    clCreateContextFromType clCreateBuffer clCreateImage clBuildProgram clCompileProgram
    clLinkProgram
}
