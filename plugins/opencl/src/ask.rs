//! Asks the OpenCL implementation about devices, kernels, queues, memory and commands. The
//! functions that this file calls do not block.

use std::ffi::c_void;

use crate::api::{
    Code, Device, Event, Handle, INVALID_OPERATION, Kernel, Mem, PROFILING_QUEUED, Queue, SUCCESS,
    Slot,
};
use crate::next_layer::{forward, target};

/// Calls a function of the form `clGet…Info(object, parameter, size, value, size_ret)`.
fn info(slot: Slot, object: Handle, param: u32, value: &mut [u8]) -> Result<usize, Code> {
    if slot == 0 {
        return Err(INVALID_OPERATION);
    }
    let mut size = 0;
    let code = forward!(slot, (object, param, value.len(), value.as_mut_ptr().cast(), &raw mut size)
        : (Handle, u32, usize, *mut c_void, *mut usize) -> Code);
    if code == SUCCESS { Ok(size) } else { Err(code) }
}

fn number(slot: Slot, object: Handle, param: u32) -> Result<u64, Code> {
    let mut value = [0; 8];
    // An answer of 4 bytes fills the first half of `value`.
    info(slot, object, param, &mut value).map(|size| match size {
        4 => u32::from_ne_bytes([value[0], value[1], value[2], value[3]]).into(),
        _ => u64::from_ne_bytes(value),
    })
}

fn text(slot: Slot, object: Handle, param: u32) -> Option<String> {
    let mut value = vec![0; 1024];
    let size = match info(slot, object, param, &mut value) {
        Ok(size) => size,
        Err(_) => {
            value.resize(64 * 1024, 0);
            info(slot, object, param, &mut value).ok()?
        }
    };
    value.truncate(size);
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    Some(String::from_utf8_lossy(&value[..end]).trim().to_owned())
}

/// Returns a text about a device.
pub fn device_text(device: Device, param: u32) -> Option<String> {
    text(target()?.clGetDeviceInfo, device, param)
}

/// Returns the name of a kernel's function.
pub fn kernel_name(kernel: Kernel) -> Option<String> {
    text(target()?.clGetKernelInfo, kernel, crate::api::KERNEL_NAME)
}

/// Returns a property of a queue. The property must be a number or a handle.
pub fn queue_number(queue: Queue, param: u32) -> Result<u64, Code> {
    number(target().map_or(0, |next| next.clGetCommandQueueInfo), queue, param)
}

/// Returns the size of a buffer or image in bytes.
pub fn mem_size(mem: Mem) -> Option<u64> {
    number(target()?.clGetMemObjectInfo, mem, crate::api::MEM_SIZE).ok()
}

/// Returns the size of one element of an image in bytes.
pub fn element_size(image: Mem) -> Option<u64> {
    number(target()?.clGetImageInfo, image, crate::api::IMAGE_ELEMENT_SIZE).ok()
}

/// Returns the queue of an event's command.
pub fn event_queue(event: Event) -> Option<Queue> {
    let queue = number(target()?.clGetEventInfo, event, crate::api::EVENT_QUEUE).ok()?;
    Some(queue as usize as Queue)
}

/// Returns the state of a command: 0 if it is complete, a positive number if it is not, and a
/// negative number if the command or the query has failed.
pub fn status(event: Event) -> Code {
    let slot = target().map_or(0, |next| next.clGetEventInfo);
    number(slot, event, crate::api::EVENT_STATUS).map_or_else(|code| code, |status| status as Code)
}

/// Returns the times at which a complete command was queued, submitted, started and ended, by the
/// device's clock.
pub fn times(event: Event) -> Option<[u64; 4]> {
    let slot = target()?.clGetEventProfilingInfo;
    let mut times = [0; 4];
    for (time, param) in times.iter_mut().zip(PROFILING_QUEUED..) {
        *time = number(slot, event, param).ok()?;
    }
    Some(times)
}

/// Takes a reference to an event, and returns whether that succeeded. Returns whether this
/// succeeded.
pub fn retain(event: Event) -> bool {
    let slot = target().map_or(0, |next| next.clRetainEvent);
    slot != 0 && forward!(slot, (event): (Event) -> Code) == SUCCESS
}

/// Gives a reference to an event back.
pub fn release(event: Event) {
    let slot = target().map_or(0, |next| next.clReleaseEvent);
    if slot != 0 {
        forward!(slot, (event): (Event) -> Code);
    }
}

/// Returns the time of the device's clock in ns, or `None` if the implementation cannot read it.
pub fn device_time(device: Device) -> Option<u64> {
    let slot = target()?.clGetDeviceAndHostTimer;
    if slot == 0 {
        return None;
    }
    let (mut of_device, mut of_host) = (0_u64, 0_u64);
    let code = forward!(slot, (device, &raw mut of_device, &raw mut of_host)
        : (Device, *mut u64, *mut u64) -> Code);
    (code == SUCCESS && of_device != 0).then_some(of_device)
}
