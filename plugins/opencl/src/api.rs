//! The part of the OpenCL interface that the layer needs.
//!
//! Source: the Khronos headers `CL/cl.h`, `CL/cl_icd.h` and `CL/cl_layer.h` for OpenCL 3.0. The
//! order of the functions in the dispatch table is part of the loader's interface; new functions
//! are added at the table's end. A unit test compares the table with the installed headers.

use std::ffi::c_void;

/// A handle of an object of the implementation.
pub type Handle = *mut c_void;
/// `cl_device_id`.
pub type Device = Handle;
/// `cl_context`.
pub type Context = Handle;
/// `cl_command_queue`.
pub type Queue = Handle;
/// `cl_mem`.
pub type Mem = Handle;
/// `cl_program`.
pub type Program = Handle;
/// `cl_kernel`.
pub type Kernel = Handle;
/// `cl_event`.
pub type Event = Handle;
/// `cl_int`: 0, or a negative error.
pub type Code = i32;

/// `CL_SUCCESS`, and `CL_COMPLETE` as the status of a command.
pub const SUCCESS: Code = 0;
/// `CL_PROFILING_INFO_NOT_AVAILABLE`.
pub const NO_PROFILING_INFO: Code = -7;
/// `CL_INVALID_VALUE`.
pub const INVALID_VALUE: Code = -30;
/// `CL_INVALID_OPERATION`.
pub const INVALID_OPERATION: Code = -59;

/// `CL_DEVICE_NAME`.
pub const DEVICE_NAME: u32 = 0x102b;
/// `CL_DEVICE_VENDOR`.
pub const DEVICE_VENDOR: u32 = 0x102c;
/// `CL_DRIVER_VERSION`.
pub const DRIVER_VERSION: u32 = 0x102d;
/// `CL_QUEUE_DEVICE`.
pub const QUEUE_DEVICE: u32 = 0x1091;
/// `CL_QUEUE_PROPERTIES`, as a parameter of queries and as a key in a list of properties.
pub const QUEUE_PROPERTIES: u32 = 0x1093;
/// `CL_QUEUE_PROPERTIES_ARRAY`.
pub const QUEUE_PROPERTIES_ARRAY: u32 = 0x1098;
/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`.
pub const QUEUE_OUT_OF_ORDER: u64 = 1;
/// `CL_QUEUE_PROFILING_ENABLE`.
pub const QUEUE_PROFILING: u64 = 2;
/// `CL_QUEUE_ON_DEVICE`.
pub const QUEUE_ON_DEVICE: u64 = 4;
/// `CL_MEM_SIZE`.
pub const MEM_SIZE: u32 = 0x1102;
/// `CL_IMAGE_ELEMENT_SIZE`.
pub const IMAGE_ELEMENT_SIZE: u32 = 0x1111;
/// `CL_KERNEL_FUNCTION_NAME`.
pub const KERNEL_NAME: u32 = 0x1190;
/// `CL_EVENT_COMMAND_QUEUE`.
pub const EVENT_QUEUE: u32 = 0x11d0;
/// `CL_EVENT_REFERENCE_COUNT`.
pub const EVENT_REFERENCE_COUNT: u32 = 0x11d2;
/// `CL_EVENT_COMMAND_EXECUTION_STATUS`.
pub const EVENT_STATUS: u32 = 0x11d3;
/// `CL_PROFILING_COMMAND_QUEUED`. Submit, start and end are the next three numbers.
pub const PROFILING_QUEUED: u32 = 0x1280;

/// `CL_LAYER_API_VERSION`.
pub const LAYER_API_VERSION: u32 = 0x4240;
/// `CL_LAYER_NAME`.
pub const LAYER_NAME: u32 = 0x4241;
/// `CL_LAYER_API_VERSION_100`.
pub const LAYER_API_VERSION_100: u32 = 100;

/// The address of a function; 0 if the next layer does not have it.
pub type Slot = usize;

macro_rules! table {
    ($($name:ident,)*) => {
        /// `cl_icd_dispatch`, in the order of the header.
        #[allow(non_snake_case, missing_docs, reason = "the names of the OpenCL headers")]
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Dispatch {
            $(pub $name: Slot,)*
        }

        impl Dispatch {
            pub const LENGTH: usize = [$(stringify!($name),)*].len();

            /// Returns every name with its offset in bytes.
            #[cfg(test)]
            pub fn offsets() -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), std::mem::offset_of!(Dispatch, $name)),)*]
            }
        }
    };
}

table! {
    clGetPlatformIDs, clGetPlatformInfo, clGetDeviceIDs, clGetDeviceInfo, clCreateContext,
    clCreateContextFromType, clRetainContext, clReleaseContext, clGetContextInfo,
    clCreateCommandQueue, clRetainCommandQueue, clReleaseCommandQueue,
    clGetCommandQueueInfo, clSetCommandQueueProperty, clCreateBuffer, clCreateImage2D,
    clCreateImage3D, clRetainMemObject, clReleaseMemObject, clGetSupportedImageFormats,
    clGetMemObjectInfo, clGetImageInfo, clCreateSampler, clRetainSampler, clReleaseSampler,
    clGetSamplerInfo, clCreateProgramWithSource, clCreateProgramWithBinary, clRetainProgram,
    clReleaseProgram, clBuildProgram, clUnloadCompiler, clGetProgramInfo,
    clGetProgramBuildInfo, clCreateKernel, clCreateKernelsInProgram, clRetainKernel,
    clReleaseKernel, clSetKernelArg, clGetKernelInfo, clGetKernelWorkGroupInfo,
    clWaitForEvents, clGetEventInfo, clRetainEvent, clReleaseEvent, clGetEventProfilingInfo,
    clFlush, clFinish, clEnqueueReadBuffer, clEnqueueWriteBuffer, clEnqueueCopyBuffer,
    clEnqueueReadImage, clEnqueueWriteImage, clEnqueueCopyImage, clEnqueueCopyImageToBuffer,
    clEnqueueCopyBufferToImage, clEnqueueMapBuffer, clEnqueueMapImage,
    clEnqueueUnmapMemObject, clEnqueueNDRangeKernel, clEnqueueTask, clEnqueueNativeKernel,
    clEnqueueMarker, clEnqueueWaitForEvents, clEnqueueBarrier,
    clGetExtensionFunctionAddress, clCreateFromGLBuffer, clCreateFromGLTexture2D,
    clCreateFromGLTexture3D, clCreateFromGLRenderbuffer, clGetGLObjectInfo,
    clGetGLTextureInfo, clEnqueueAcquireGLObjects, clEnqueueReleaseGLObjects,
    clGetGLContextInfoKHR, clGetDeviceIDsFromD3D10KHR, clCreateFromD3D10BufferKHR,
    clCreateFromD3D10Texture2DKHR, clCreateFromD3D10Texture3DKHR,
    clEnqueueAcquireD3D10ObjectsKHR, clEnqueueReleaseD3D10ObjectsKHR, clSetEventCallback,
    clCreateSubBuffer, clSetMemObjectDestructorCallback, clCreateUserEvent,
    clSetUserEventStatus, clEnqueueReadBufferRect, clEnqueueWriteBufferRect,
    clEnqueueCopyBufferRect, clCreateSubDevicesEXT, clRetainDeviceEXT, clReleaseDeviceEXT,
    clCreateEventFromGLsyncKHR, clCreateSubDevices, clRetainDevice, clReleaseDevice,
    clCreateImage, clCreateProgramWithBuiltInKernels, clCompileProgram, clLinkProgram,
    clUnloadPlatformCompiler, clGetKernelArgInfo, clEnqueueFillBuffer, clEnqueueFillImage,
    clEnqueueMigrateMemObjects, clEnqueueMarkerWithWaitList, clEnqueueBarrierWithWaitList,
    clGetExtensionFunctionAddressForPlatform, clCreateFromGLTexture,
    clGetDeviceIDsFromD3D11KHR, clCreateFromD3D11BufferKHR, clCreateFromD3D11Texture2DKHR,
    clCreateFromD3D11Texture3DKHR, clCreateFromDX9MediaSurfaceKHR,
    clEnqueueAcquireD3D11ObjectsKHR, clEnqueueReleaseD3D11ObjectsKHR,
    clGetDeviceIDsFromDX9MediaAdapterKHR, clEnqueueAcquireDX9MediaSurfacesKHR,
    clEnqueueReleaseDX9MediaSurfacesKHR, clCreateFromEGLImageKHR,
    clEnqueueAcquireEGLObjectsKHR, clEnqueueReleaseEGLObjectsKHR,
    clCreateEventFromEGLSyncKHR, clCreateCommandQueueWithProperties, clCreatePipe,
    clGetPipeInfo, clSVMAlloc, clSVMFree, clEnqueueSVMFree, clEnqueueSVMMemcpy,
    clEnqueueSVMMemFill, clEnqueueSVMMap, clEnqueueSVMUnmap, clCreateSamplerWithProperties,
    clSetKernelArgSVMPointer, clSetKernelExecInfo, clGetKernelSubGroupInfoKHR,
    clCloneKernel, clCreateProgramWithIL, clEnqueueSVMMigrateMem, clGetDeviceAndHostTimer,
    clGetHostTimer, clGetKernelSubGroupInfo, clSetDefaultDeviceCommandQueue,
    clSetProgramReleaseCallback, clSetProgramSpecializationConstant,
    clCreateBufferWithProperties, clCreateImageWithProperties,
    clSetContextDestructorCallback,
}

const _: () = assert!(size_of::<Dispatch>() == Dispatch::LENGTH * size_of::<Slot>());

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::process::Command;

    use testkit::Scratch;

    use super::*;

    #[test]
    fn the_table_and_the_constants_are_those_of_the_headers() {
        let mut program = String::from(
            "#define CL_TARGET_OPENCL_VERSION 300\n#include <CL/cl.h>\n#include <CL/cl_icd.h>\n\
             #include <CL/cl_layer.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
        );
        let mut expected = String::new();
        for (name, offset) in Dispatch::offsets() {
            let _ = writeln!(
                program,
                "printf(\"{name} %zu\\n\", offsetof(struct _cl_icd_dispatch, {name}));"
            );
            let _ = writeln!(expected, "{name} {offset}");
        }
        let constants: [(&str, i64); 25] = [
            ("CL_SUCCESS", SUCCESS.into()),
            ("CL_COMPLETE", SUCCESS.into()),
            ("CL_PROFILING_INFO_NOT_AVAILABLE", NO_PROFILING_INFO.into()),
            ("CL_INVALID_VALUE", INVALID_VALUE.into()),
            ("CL_INVALID_OPERATION", INVALID_OPERATION.into()),
            ("CL_DEVICE_NAME", DEVICE_NAME.into()),
            ("CL_DEVICE_VENDOR", DEVICE_VENDOR.into()),
            ("CL_DRIVER_VERSION", DRIVER_VERSION.into()),
            ("CL_QUEUE_DEVICE", QUEUE_DEVICE.into()),
            ("CL_QUEUE_PROPERTIES", QUEUE_PROPERTIES.into()),
            ("CL_QUEUE_PROPERTIES_ARRAY", QUEUE_PROPERTIES_ARRAY.into()),
            ("CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE", QUEUE_OUT_OF_ORDER as i64),
            ("CL_QUEUE_PROFILING_ENABLE", QUEUE_PROFILING as i64),
            ("CL_QUEUE_ON_DEVICE", QUEUE_ON_DEVICE as i64),
            ("CL_MEM_SIZE", MEM_SIZE.into()),
            ("CL_IMAGE_ELEMENT_SIZE", IMAGE_ELEMENT_SIZE.into()),
            ("CL_KERNEL_FUNCTION_NAME", KERNEL_NAME.into()),
            ("CL_EVENT_COMMAND_QUEUE", EVENT_QUEUE.into()),
            ("CL_EVENT_REFERENCE_COUNT", EVENT_REFERENCE_COUNT.into()),
            ("CL_EVENT_COMMAND_EXECUTION_STATUS", EVENT_STATUS.into()),
            ("CL_PROFILING_COMMAND_QUEUED", PROFILING_QUEUED.into()),
            ("CL_PROFILING_COMMAND_END", i64::from(PROFILING_QUEUED) + 3),
            ("CL_LAYER_API_VERSION", LAYER_API_VERSION.into()),
            ("CL_LAYER_NAME", LAYER_NAME.into()),
            ("CL_LAYER_API_VERSION_100", LAYER_API_VERSION_100.into()),
        ];
        for (name, value) in constants {
            let _ = writeln!(program, "printf(\"{name} %lld\\n\", (long long)({name}));");
            let _ = writeln!(expected, "{name} {value}");
        }
        program.push_str("return sizeof(struct _cl_icd_dispatch) % 255; }\n");

        let scratch = Scratch::new();
        let source = scratch.join("layout.c");
        std::fs::write(&source, program).expect("writes");
        let built = Command::new("cc").arg(&source).arg("-o").arg(scratch.join("layout")).output();
        let built = match built {
            Ok(built) if !String::from_utf8_lossy(&built.stderr).contains("CL/cl") => built,
            _ => return testkit::skip("opencl", "no C compiler or no OpenCL headers"),
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let printed = Command::new(scratch.join("layout")).output().expect("starts");
        assert_eq!(String::from_utf8_lossy(&printed.stdout), expected);
        // Newer headers may have more entries at the end.
    }
}
