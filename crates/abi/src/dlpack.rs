//! DLPack's structs for tensors and devices. TVM uses them, and the interface of collectors uses
//! [`Device`].

use core::ffi::c_void;
use core::mem::offset_of;

/// `DLDevice`: one device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `DLDeviceType`, for example 1 for the CPU and 2 for CUDA.
    pub kind: i32,
    /// Number of the device.
    pub id: i32,
}

/// `DLDataType`: the type of an element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataType {
    /// Kind of number (`DLDataTypeCode`).
    pub code: u8,
    /// Number of bits of one lane.
    pub bits: u8,
    /// Number of lanes of a vector. For scalable vectors, these bits are a negative 16-bit integer.
    pub lanes: u16,
}

/// `DLTensor`: a tensor and where its elements are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// Address of the elements.
    pub data: *mut c_void,
    /// Device on which the elements are.
    pub device: Device,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DataType,
    /// Array of `ndim` extents.
    pub shape: *const i64,
    /// Array of `ndim` strides in elements, or null.
    pub strides: *const i64,
    /// Offset in bytes from `data` to the first element.
    pub byte_offset: u64,
}

const _: () = assert!(size_of::<Device>() == 8 && size_of::<DataType>() == 4);
const _: () = assert!(size_of::<DlTensor>() == 48 && offset_of!(DlTensor, ndim) == 16);
const _: () = assert!(offset_of!(DlTensor, dtype) == 20 && offset_of!(DlTensor, shape) == 24);
