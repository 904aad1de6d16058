//! Records calls that enqueue work for a device.
//!
//! The times of a command are read from its event. If the program does not ask for the event, the
//! layer does. Otherwise the layer takes another reference to the same event.

#![allow(non_snake_case, clippy::too_many_arguments, reason = "the functions of OpenCL")]

use std::ffi::c_void;
use std::sync::Arc;

use super::{guarded, installs, next};
use crate::api::{Code, Event, Kernel, Mem, Queue as QueueHandle, SUCCESS};
use crate::next_layer::forward;
use crate::queues::{self, Queue};
use crate::record::{Command, Name, Sizes, Work};
use crate::recorder::{self, Begun};
use crate::{ask, names};

struct Enqueue {
    begun: Begun,
    name: &'static str,
    queue: QueueHandle,
    /// The queue, if the layer knows it and has room to keep the command's event.
    kept: Option<Arc<Queue>>,
    /// The program's variable for the event, or null.
    wanted: *mut Event,
    event: Event,
}

impl Enqueue {
    fn new(begun: Begun, name: &'static str, queue: QueueHandle, wanted: *mut Event) -> Self {
        let kept = guarded(|| {
            let found = queues::find(queue)?;
            if !queues::reserve() {
                // Examining the queue's oldest command makes room if that oldest command has ended.
                recorder::harvest(&found, 1);
                if !queues::reserve() {
                    begun.untracked();
                    return None;
                }
            }
            Some(found)
        });
        // SAFETY: `wanted` is the program's variable. The value in it may be anything: it is only
        // written back if the call returns no event.
        let event = if wanted.is_null() { std::ptr::null_mut() } else { unsafe { wanted.read() } };
        Self { begun, name, queue, kept: kept.flatten(), wanted, event }
    }

    /// Returns the variable in which the implementation should store the event. Returns null if
    /// neither the layer nor the program needs the event.
    fn event(&mut self) -> *mut Event {
        if self.kept.is_none() && self.wanted.is_null() {
            return std::ptr::null_mut();
        }
        &raw mut self.event
    }

    /// Gives the event to the program if `wanted` is not null, and records the end of the call.
    /// `command` is called after success only, because otherwise the program's arguments may be
    /// invalid.
    fn end(self, code: Code, command: impl FnOnce() -> Command) {
        let Self { begun, name, queue, kept, wanted, event } = self;
        let is_shared = !wanted.is_null();
        let ours = kept.is_some()
            && code == SUCCESS
            && !event.is_null()
            // The layer's reference is taken first, because the program may release the event once
            // it is in `wanted`.
            && (!is_shared || ask::retain(event));
        if is_shared {
            // SAFETY: `wanted` is the program's variable, because a shared event is one that the
            // program asked for.
            unsafe { wanted.write(event) };
        }
        guarded(|| match kept {
            Some(queue) if ours => {
                begun.end_enqueued(name, &queue, command(), event, is_shared);
            }
            Some(queue) => {
                queues::one_ended();
                begun.end(name, code, Some(queue.number));
            }
            None => begun.end(name, code, queues::known(queue).map(|queue| queue.number)),
        });
    }
}

/// Defines functions that enqueue a command and return a code.
macro_rules! enqueues {
    ($( fn $name:ident($($argument:ident: $type:ty),*), $command:expr; )*) => { $(
        unsafe extern "C" fn $name(
            queue: QueueHandle,
            $($argument: $type,)*
            count: u32,
            list: *const Event,
            event: *mut Event,
        ) -> Code {
            let Some(begun) = recorder::begin() else {
                return forward!(next!($name), (queue, $($argument,)* count, list, event)
                    : (QueueHandle, $($type,)* u32, *const Event, *mut Event) -> Code);
            };
            let mut call = Enqueue::new(begun, stringify!($name), queue, event);
            let code = forward!(next!($name), (queue, $($argument,)* count, list, call.event())
                : (QueueHandle, $($type,)* u32, *const Event, *mut Event) -> Code);
            call.end(code, || $command);
            code
        }
    )* };
}

/// Defines functions that enqueue a command and return the address of mapped memory.
macro_rules! maps {
    ($( fn $name:ident($($argument:ident: $type:ty),*), $command:expr; )*) => { $(
        unsafe extern "C" fn $name(
            queue: QueueHandle,
            $($argument: $type,)*
            count: u32,
            list: *const Event,
            event: *mut Event,
            code_ret: *mut Code,
        ) -> *mut c_void {
            let Some(begun) = recorder::begin() else {
                return forward!(next!($name), (queue, $($argument,)* count, list, event, code_ret)
                    : (QueueHandle, $($type,)* u32, *const Event, *mut Event, *mut Code)
                    -> *mut c_void);
            };
            let mut call = Enqueue::new(begun, stringify!($name), queue, event);
            let mut own_code = SUCCESS;
            let code_ret = if code_ret.is_null() { &raw mut own_code } else { code_ret };
            let address = forward!(next!($name),
                (queue, $($argument,)* count, list, call.event(), code_ret)
                : (QueueHandle, $($type,)* u32, *const Event, *mut Event, *mut Code)
                -> *mut c_void);
            // SAFETY: `code_ret` is the program's variable or ours, and the implementation has just
            // written to it.
            let code = unsafe { code_ret.read() };
            call.end(code, || $command);
            address
        }
    )* };
}

fn copy(name: &'static str, bytes: usize) -> Command {
    Command::new(Work::Copy, name, Some(bytes as u64))
}

/// Returns the product of the three sizes in `region`.
///
/// # Safety
/// `region` must be null or an array of three numbers.
unsafe fn elements(region: *const usize) -> Option<u64> {
    if region.is_null() {
        return None;
    }
    // SAFETY: by contract, `region` is null or an array of three numbers, and null was handled
    // above.
    let region = unsafe { region.cast::<[usize; 3]>().read_unaligned() };
    region.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64))
}

/// Describes a copy of a part of a buffer, whose elements are bytes.
fn rect(name: &'static str, region: *const usize) -> Command {
    // SAFETY: the specification requires that `region` is an array of three numbers.
    Command::new(Work::Copy, name, unsafe { elements(region) })
}

/// Describes work on a part of an image.
fn pixels(work: Work, name: &'static str, image: Mem, region: *const usize) -> Command {
    // SAFETY: the specification requires that `region` is an array of three numbers.
    let bytes = unsafe { elements(region) }
        .and_then(|elements| elements.checked_mul(ask::element_size(image)?));
    Command::new(work, name, bytes)
}

/// Returns the first `length` numbers of the program's list, followed by zeros, or `None` if there
/// is no list.
fn three(list: *const usize, length: usize) -> Option<[i64; 3]> {
    if list.is_null() {
        return None;
    }
    let mut numbers = [0; 3];
    for (index, number) in numbers.iter_mut().enumerate().take(length) {
        // SAFETY: the program's list has this length, and the implementation accepted it.
        *number = unsafe { list.add(index).read() } as i64;
    }
    Some(numbers)
}

/// Describes a kernel with its index space.
fn kernel(
    kernel: Kernel,
    dimensions: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
) -> Command {
    let dimensions = (dimensions as usize).min(3);
    let sizes = three(global, dimensions).map(|global| {
        let (local, offset) = (three(local, dimensions), three(offset, dimensions));
        Box::new(Sizes { dimensions, global, local, offset })
    });
    let name = Name::Kernel(names::of(kernel));
    Command { work: Work::Kernel, name, bytes: None, sizes }
}

/// Returns the sum of the sizes of the memory objects in a list, in bytes.
fn mem_sizes(count: u32, list: *const Mem) -> Option<u64> {
    if list.is_null() {
        return None;
    }
    // SAFETY: the specification requires that the list has `count` objects.
    (0..count as usize).map(|index| ask::mem_size(unsafe { list.add(index).read() })).sum()
}

/// Returns the sum of the sizes of some pieces of shared virtual memory (SVM). Without a list of
/// sizes, the pieces are whole allocations, whose sizes are not known.
fn svm_sizes(count: u32, sizes: *const usize) -> Option<u64> {
    if sizes.is_null() {
        return None;
    }
    // SAFETY: the specification requires that the list has `count` sizes.
    let sizes = (0..count as usize).map(|index| unsafe { sizes.add(index).read() } as u64);
    // A size of 0 also means a whole allocation.
    sizes.map(|size| (size != 0).then_some(size)).sum()
}

enqueues! {
    fn clEnqueueReadBuffer(mem: Mem, blocking: u32, offset: usize, size: usize, to: *mut c_void),
        copy("read buffer", size);
    fn clEnqueueWriteBuffer(
        mem: Mem, blocking: u32, offset: usize, size: usize, from: *const c_void
    ), copy("write buffer", size);
    fn clEnqueueCopyBuffer(from: Mem, to: Mem, from_offset: usize, to_offset: usize, size: usize),
        copy("copy buffer", size);
    fn clEnqueueFillBuffer(
        mem: Mem, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize
    ), Command::new(Work::Fill, "fill buffer", Some(size as u64));
    fn clEnqueueReadBufferRect(
        mem: Mem, blocking: u32, buffer_origin: *const usize, host_origin: *const usize,
        region: *const usize, row: usize, slice: usize, host_row: usize, host_slice: usize,
        to: *mut c_void
    ), rect("read buffer", region);
    fn clEnqueueWriteBufferRect(
        mem: Mem, blocking: u32, buffer_origin: *const usize, host_origin: *const usize,
        region: *const usize, row: usize, slice: usize, host_row: usize, host_slice: usize,
        from: *const c_void
    ), rect("write buffer", region);
    fn clEnqueueCopyBufferRect(
        from: Mem, to: Mem, from_origin: *const usize, to_origin: *const usize,
        region: *const usize, row: usize, slice: usize, to_row: usize, to_slice: usize
    ), rect("copy buffer", region);
    fn clEnqueueReadImage(
        image: Mem, blocking: u32, origin: *const usize, region: *const usize, row: usize,
        slice: usize, to: *mut c_void
    ), pixels(Work::Copy, "read image", image, region);
    fn clEnqueueWriteImage(
        image: Mem, blocking: u32, origin: *const usize, region: *const usize, row: usize,
        slice: usize, from: *const c_void
    ), pixels(Work::Copy, "write image", image, region);
    fn clEnqueueCopyImage(
        from: Mem, to: Mem, from_origin: *const usize, to_origin: *const usize,
        region: *const usize
    ), pixels(Work::Copy, "copy image", from, region);
    fn clEnqueueCopyImageToBuffer(
        from: Mem, to: Mem, origin: *const usize, region: *const usize, offset: usize
    ), pixels(Work::Copy, "copy image to buffer", from, region);
    fn clEnqueueCopyBufferToImage(
        from: Mem, to: Mem, offset: usize, origin: *const usize, region: *const usize
    ), pixels(Work::Copy, "copy buffer to image", to, region);
    fn clEnqueueFillImage(
        image: Mem, color: *const c_void, origin: *const usize, region: *const usize
    ), pixels(Work::Fill, "fill image", image, region);
    fn clEnqueueUnmapMemObject(mem: Mem, address: *mut c_void),
        Command::new(Work::Copy, "unmap", None);
    fn clEnqueueMigrateMemObjects(number: u32, objects: *const Mem, flags: u64),
        Command::new(Work::Copy, "migrate", mem_sizes(number, objects));
    fn clEnqueueNDRangeKernel(
        object: Kernel, dimensions: u32, offset: *const usize, global: *const usize,
        local: *const usize
    ), kernel(object, dimensions, offset, global, local);
    fn clEnqueueTask(object: Kernel), {
        // OpenCL defines that this function runs the kernel as one workgroup with one work item.
        let one = 1;
        kernel(object, 1, std::ptr::null(), &raw const one, &raw const one)
    };
    fn clEnqueueNativeKernel(
        function: *mut c_void, arguments: *mut c_void, size: usize, number: u32,
        objects: *const Mem, places: *const *const c_void
    ), Command::new(Work::Kernel, "native kernel", None);
    fn clEnqueueSVMMemcpy(
        blocking: u32, to: *mut c_void, from: *const c_void, size: usize
    ), copy("copy SVM", size);
    fn clEnqueueSVMMemFill(
        to: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize
    ), Command::new(Work::Fill, "fill SVM", Some(size as u64));
    fn clEnqueueSVMMap(blocking: u32, flags: u64, address: *mut c_void, size: usize),
        copy("map SVM", size);
    fn clEnqueueSVMUnmap(address: *mut c_void), Command::new(Work::Copy, "unmap SVM", None);
    fn clEnqueueSVMMigrateMem(
        number: u32, addresses: *const *const c_void, lengths: *const usize, flags: u64
    ), Command::new(Work::Copy, "migrate SVM", svm_sizes(number, lengths));
}

maps! {
    fn clEnqueueMapBuffer(mem: Mem, blocking: u32, flags: u64, offset: usize, size: usize),
        copy("map buffer", size);
    fn clEnqueueMapImage(
        image: Mem, blocking: u32, flags: u64, origin: *const usize, region: *const usize,
        row: *mut usize, slice: *mut usize
    ), pixels(Work::Copy, "map image", image, region);
}

installs! {
    clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer clEnqueueFillBuffer
    clEnqueueReadBufferRect clEnqueueWriteBufferRect clEnqueueCopyBufferRect clEnqueueReadImage
    clEnqueueWriteImage clEnqueueCopyImage clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage
    clEnqueueFillImage clEnqueueUnmapMemObject clEnqueueMigrateMemObjects clEnqueueNDRangeKernel
    clEnqueueTask clEnqueueNativeKernel clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap
    clEnqueueSVMUnmap clEnqueueSVMMigrateMem clEnqueueMapBuffer clEnqueueMapImage
}
