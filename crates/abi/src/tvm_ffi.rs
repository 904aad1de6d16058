//! The parts of TVM's FFI (`tvm/ffi/c_api.h`) that the agent uses, and the functions that
//! compiled modules of TVM call (`tvm/runtime/c_backend_api.h`). They are the same in
//! `apache-tvm-ffi` 0.1.12 to 0.1.15, which apache-tvm 0.25 to 0.27 use. Offsets were measured with
//! a C compiler.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// Type indices of [`Any`].
pub mod type_index {
    /// No value.
    pub const NONE: i32 = 0;
    /// `i64`.
    pub const INT: i32 = 1;
    /// 0 or 1.
    pub const BOOL: i32 = 2;
    /// `f64`.
    pub const FLOAT: i32 = 3;
    /// An address that TVM does not interpret.
    pub const OPAQUE_PTR: i32 = 4;
    /// [`crate::dlpack::DataType`].
    pub const DATA_TYPE: i32 = 5;
    /// `*const DlTensor`, borrowed.
    pub const TENSOR_PTR: i32 = 7;
    /// `*const c_char`, borrowed. Occurs only in arguments.
    pub const RAW_STR: i32 = 8;
    /// A string of up to seven bytes, stored in the value itself.
    pub const SMALL_STR: i32 = 11;
    /// The first type of objects: the value is the address of a [`super::Object`].
    pub const FIRST_OBJECT: i32 = 64;
    /// A string: [`super::Bytes`] follows the object's header.
    pub const STR: i32 = 65;
    /// An error: [`super::ErrorCell`] follows the object's header.
    pub const ERROR: i32 = 67;
    /// A function. Dynamic types (from 128) may derive from it.
    pub const FUNCTION: i32 = 68;
    /// A shape: [`super::Shape`] follows the object's header.
    pub const SHAPE: i32 = 69;
    /// A tensor: [`crate::dlpack::DlTensor`] follows the object's header.
    pub const TENSOR: i32 = 70;
}

/// A value. Arguments are borrowed, results are owned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Any {
    /// See [`type_index`].
    pub type_index: i32,
    /// Length of a small string; otherwise 0.
    pub small_length: u32,
    /// The bits of a number, or an address.
    pub bits: u64,
}

/// The header of every object.
#[repr(C)]
#[derive(Debug)]
pub struct Object {
    /// Strong count in the lower half, weak count in the upper half.
    pub references: u64,
    /// Type index of the object.
    pub type_index: i32,
    /// Always 0.
    pub padding: u32,
    /// Function that frees the object; only the runtime calls it.
    pub deleter: *const c_void,
}

/// The content of a string, which follows the object's header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// First byte.
    pub data: *const u8,
    /// Number of bytes.
    pub size: usize,
}

/// The content of a shape, which follows the object's header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// First extent.
    pub data: *const i64,
    /// Number of extents.
    pub size: usize,
}

/// `TVMFFISafeCallType`. Returns 0, or another number after it has raised an error.
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
/// The part of an error that we read, which follows the object's header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorCell {
    /// Name of the error's class.
    pub kind: Bytes,
}
/// `TVMFFIErrorSetRaisedFromCStr`: kind, message.
pub type ErrorSetRaised = unsafe extern "C" fn(*const c_char, *const c_char);
/// `TVMFFIErrorSetRaised`: takes its own reference to the error.
pub type ErrorSetAgain = unsafe extern "C" fn(*mut Object);
/// `TVMFFIErrorMoveFromRaised`: takes the raised error out; null if there is none.
pub type ErrorMoveFromRaised = unsafe extern "C" fn(*mut *mut Object);
/// `TVMFFIEnvModRegisterContextSymbol`.
pub type RegisterContextSymbol = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

/// `TVMParallelGroupEnv`.
#[repr(C)]
#[derive(Debug)]
pub struct ParallelGroup {
    /// Private data of the runtime.
    pub sync: *mut c_void,
    /// Actual number of tasks.
    pub tasks: i32,
}

/// `FTVMParallelLambda`.
pub type ParallelTask =
    unsafe extern "C-unwind" fn(c_int, *mut ParallelGroup, *mut c_void) -> c_int;
/// `TVMBackendParallelLaunch`. With 0 tasks, the runtime chooses the number.
pub type ParallelLaunch = unsafe extern "C-unwind" fn(ParallelTask, *mut c_void, c_int) -> c_int;
/// `TVMBackendAllocWorkspace`: device type and number, bytes, data type code and bits.
pub type AllocWorkspace =
    unsafe extern "C-unwind" fn(c_int, c_int, u64, c_int, c_int) -> *mut c_void;

const _: () = assert!(size_of::<Any>() == 16 && offset_of!(Any, bits) == 8);
const _: () = assert!(size_of::<Object>() == 24 && offset_of!(Object, type_index) == 8);
const _: () = assert!(size_of::<ParallelGroup>() == 16);
