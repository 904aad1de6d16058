//! The data that CUPTI passes to the plugin when the program calls a function of CUDA's driver, and
//! when the function returns. Sources: `cupti_callbacks.h` of CUDA 11.8 to 13.5 for [`Call`], and
//! `generated_cuda_meta.h` and `cuda.h` for the structs of arguments.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use crate::driver::Stream;

/// `CUPTI_API_ENTER`. The only other value is `CUPTI_API_EXIT`.
const ENTER: u32 = 0;

/// `CUpti_CallbackData`.
#[repr(C)]
pub struct Call {
    site: u32,
    function: *const c_char,
    parameters: *const c_void,
    result: *const c_int,
    symbol: *const c_char,
    /// The context of the calling thread. A later context can have the same address.
    pub context: *mut c_void,
    /// CUPTI's number of the context. No other context of the process has the same number (from the
    /// manual).
    pub context_id: u32,
    user: *mut u64,
    /// CUPTI's number of the call, which the records of the launched work contain too.
    pub correlation: u32,
}

/// The beginning of `cuLaunchKernel_params` and `cuLaunchCooperativeKernel_params`.
#[repr(C)]
struct OfLaunch {
    function: *const c_void,
    sizes: [u32; 7],
    stream: usize,
}

/// The beginning of `cuLaunchKernelEx_params`.
#[repr(C)]
struct OfLaunchEx {
    config: *const Config,
}

/// The beginning of `CUlaunchConfig`.
#[repr(C)]
struct Config {
    sizes: [u32; 7],
    stream: usize,
}

/// `cuGraphLaunch_params`.
#[repr(C)]
struct OfGraph {
    graph: *const c_void,
    stream: usize,
}

/// The driver's functions that launch kernels, grouped by the structs of their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// `cuLaunchKernel` and `cuLaunchCooperativeKernel`.
    Kernel,
    /// `cuLaunchKernelEx`.
    KernelEx,
    /// `cuGraphLaunch`. A graph may contain any number of kernels.
    Graph,
}

impl Call {
    pub fn is_enter(&self) -> bool {
        self.site == ENTER
    }

    pub fn has_failed(&self) -> bool {
        // SAFETY: when the function returns, CUPTI gives the address of the driver's result, which
        // is not read earlier.
        !self.is_enter() && !self.result.is_null() && unsafe { *self.result } != 0
    }

    /// Returns the name of the launched kernel, or `None` if CUPTI gives no name.
    pub fn kernel(&self) -> Option<Arc<str>> {
        // SAFETY: CUPTI gives a C string for a function that launches a kernel.
        let name = (!self.symbol.is_null()).then(|| unsafe { CStr::from_ptr(self.symbol) })?;
        Some(Arc::from(&*name.to_string_lossy()))
    }

    /// Returns the stream on which a call launches work. A null stream means the thread's default
    /// stream if `is_of_thread`, and otherwise the context's.
    pub fn stream(&self, launch: Launch, is_of_thread: bool) -> Option<Stream> {
        let arguments = self.parameters;
        if arguments.is_null() {
            return None;
        }
        // SAFETY: CUPTI gives the function's arguments in a struct that begins as `launch` says;
        // `config` is memory of the program, which the driver reads in this call, too.
        let stream = unsafe {
            match launch {
                Launch::Kernel => (*arguments.cast::<OfLaunch>()).stream,
                Launch::KernelEx => (*arguments.cast::<OfLaunchEx>()).config.as_ref()?.stream,
                Launch::Graph => (*arguments.cast::<OfGraph>()).stream,
            }
        };
        Some(match stream {
            0 if is_of_thread => Stream::PER_THREAD,
            0 => Stream::LEGACY,
            stream => Stream(stream),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;
    use std::ptr;

    /// The offsets are those of a C compiler, from `cupti_callbacks.h` of CUDA 13.5.
    #[test]
    fn data_of_a_call_stand_where_the_header_has_them() {
        assert_eq!(offset_of!(Call, result), 24);
        assert_eq!(offset_of!(Call, symbol), 32);
        assert_eq!(offset_of!(Call, context), 40);
        assert_eq!(offset_of!(Call, correlation), 64);
        assert_eq!(size_of::<Call>(), 72);
    }

    /// The offsets follow from the fields in `generated_cuda_meta.h` and `cuda.h`.
    #[test]
    fn the_stream_of_a_launch_is_among_its_arguments() {
        let launch = OfLaunch { function: ptr::null(), sizes: [7; 7], stream: 0x77 };
        let config = Config { sizes: [7; 7], stream: 0x78 };
        let with_config = OfLaunchEx { config: &raw const config };
        let graph = OfGraph { graph: ptr::null(), stream: 0 };
        assert_eq!((offset_of!(OfLaunch, stream), offset_of!(Config, stream)), (40, 32));
        assert_eq!(offset_of!(OfGraph, stream), 8);
        let stream = |parameters: *const c_void, launch, is_of_thread| {
            // SAFETY: `Call` consists of numbers and pointers, for which zeros are values.
            let mut call: Call = unsafe { std::mem::zeroed() };
            call.parameters = parameters;
            call.stream(launch, is_of_thread)
        };
        let of = |parameters: *const c_void, launch| stream(parameters, launch, false);
        assert_eq!(of((&raw const launch).cast(), Launch::Kernel), Some(Stream(0x77)));
        assert_eq!(of((&raw const with_config).cast(), Launch::KernelEx), Some(Stream(0x78)));
        assert_eq!(of((&raw const graph).cast(), Launch::Graph), Some(Stream::LEGACY));
        let of_thread = stream((&raw const graph).cast(), Launch::Graph, true);
        assert_eq!(of_thread, Some(Stream::PER_THREAD));
        assert_eq!(of(ptr::null(), Launch::Kernel), None);
    }
}
