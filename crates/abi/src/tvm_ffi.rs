//! TVM's FFI (`tvm/ffi/c_api.h`, `dlpack.h`) and the functions that its compiled modules call
//! (`tvm/runtime/c_backend_api.h`), as far as the agent meets them. The same in `apache-tvm-ffi`
//! 0.1.12 to 0.1.15, which apache-tvm 0.25 to 0.27 use: offsets measured with a C compiler.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// Type indices of [`Any`].
pub mod type_index {
    /// Nothing.
    pub const NONE: i32 = 0;
    /// `i64`.
    pub const INT: i32 = 1;
    /// 0 or 1.
    pub const BOOL: i32 = 2;
    /// `f64`.
    pub const FLOAT: i32 = 3;
    /// An address that means something to somebody.
    pub const OPAQUE_PTR: i32 = 4;
    /// [`super::DataType`].
    pub const DATA_TYPE: i32 = 5;
    /// `*const DlTensor`, borrowed.
    pub const TENSOR_PTR: i32 = 7;
    /// `*const c_char`, borrowed; only in arguments.
    pub const RAW_STR: i32 = 8;
    /// Up to seven bytes in place.
    pub const SMALL_STR: i32 = 11;
    /// The first type of objects: an address of a [`super::Object`].
    pub const FIRST_OBJECT: i32 = 64;
    /// A string: [`super::Bytes`] follow the object's header.
    pub const STR: i32 = 65;
    /// An error: [`super::ErrorCell`] follows.
    pub const ERROR: i32 = 67;
    /// A function. Dynamic types (from 128) may derive from it.
    pub const FUNCTION: i32 = 68;
    /// A shape: [`super::Shape`] follows.
    pub const SHAPE: i32 = 69;
    /// A tensor: [`super::DlTensor`] follows.
    pub const TENSOR: i32 = 70;
}

/// A value. In arguments borrowed, in results owned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Any {
    /// See [`type_index`].
    pub type_index: i32,
    /// Length of a small string; else 0.
    pub small_length: u32,
    /// The number's bits, or an address.
    pub bits: u64,
}

/// What every object begins with.
#[repr(C)]
#[derive(Debug)]
pub struct Object {
    /// Strong count below, weak above.
    pub references: u64,
    /// Its type.
    pub type_index: i32,
    /// 0.
    pub padding: u32,
    /// Called by the runtime alone.
    pub deleter: *const c_void,
}

/// Behind the header of strings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// First byte.
    pub data: *const u8,
    /// How many.
    pub size: usize,
}

/// Behind the header of shapes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// First extent.
    pub data: *const i64,
    /// How many.
    pub size: usize,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataType {
    /// Kind of number.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of a vector; scalable ones are negative in 16 bits.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// The elements.
    pub data: *mut c_void,
    /// Where they are.
    pub device: crate::collector::Device,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DataType,
    /// `ndim` extents.
    pub shape: *const i64,
    /// `ndim` strides, or null.
    pub strides: *const i64,
    /// Where in `data` it begins.
    pub byte_offset: u64,
}

/// `TVMFFISafeCallType`: 0, or another number after an error was raised.
pub type SafeCall = unsafe extern "C-unwind" fn(*mut c_void, *const Any, i32, *mut Any) -> c_int;
/// `TVMFFIFunctionCreate`.
pub type FunctionCreate = unsafe extern "C" fn(
    *mut c_void,
    SafeCall,
    Option<unsafe extern "C" fn(*mut c_void)>,
    *mut *mut Object,
) -> c_int;
/// `TVMFFIFunctionCall`.
pub type FunctionCall =
    unsafe extern "C-unwind" fn(*mut Object, *const Any, i32, *mut Any) -> c_int;
/// `TVMFFIObjectIncRef` and `TVMFFIObjectDecRef`.
pub type ObjectRef = unsafe extern "C" fn(*mut Object) -> c_int;
/// Behind the header of errors, as far as we look.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorCell {
    /// Name of its class.
    pub kind: Bytes,
}
/// `TVMFFIErrorSetRaisedFromCStr`: kind, message.
pub type ErrorSetRaised = unsafe extern "C" fn(*const c_char, *const c_char);
/// `TVMFFIErrorSetRaised`: takes a reference of its own to the error.
pub type ErrorSetAgain = unsafe extern "C" fn(*mut Object);
/// `TVMFFIErrorMoveFromRaised`: takes the raised error, or null.
pub type ErrorMoveFromRaised = unsafe extern "C" fn(*mut *mut Object);
/// `TVMFFIEnvModRegisterContextSymbol`.
pub type RegisterContextSymbol = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

/// `TVMParallelGroupEnv`.
#[repr(C)]
#[derive(Debug)]
pub struct ParallelGroup {
    /// The runtime's.
    pub sync: *mut c_void,
    /// How many tasks there are in fact.
    pub tasks: i32,
}

/// `FTVMParallelLambda`.
pub type ParallelTask =
    unsafe extern "C-unwind" fn(c_int, *mut ParallelGroup, *mut c_void) -> c_int;
/// `TVMBackendParallelLaunch`; 0 tasks: as many as the runtime likes.
pub type ParallelLaunch = unsafe extern "C-unwind" fn(ParallelTask, *mut c_void, c_int) -> c_int;
/// `TVMBackendAllocWorkspace`: device type and number, bytes, data type code and bits.
pub type AllocWorkspace =
    unsafe extern "C-unwind" fn(c_int, c_int, u64, c_int, c_int) -> *mut c_void;

const _: () = assert!(size_of::<Any>() == 16 && offset_of!(Any, bits) == 8);
const _: () = assert!(size_of::<Object>() == 24 && offset_of!(Object, type_index) == 8);
const _: () = assert!(size_of::<DlTensor>() == 48 && offset_of!(DlTensor, ndim) == 16);
const _: () = assert!(offset_of!(DlTensor, dtype) == 20 && offset_of!(DlTensor, shape) == 24);
const _: () = assert!(size_of::<DataType>() == 4 && size_of::<ParallelGroup>() == 16);
