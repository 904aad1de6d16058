//! The parts of TVM's FFI (`tvm/ffi/c_api.h`) that the agent uses, and functions that compiled
//! modules of TVM call (`tvm/runtime/c_backend_api.h`). These interfaces are the same in
//! `apache-tvm-ffi` 0.1.12 to 0.1.15, which apache-tvm 0.25 to 0.27 use.

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
    /// The address of a [`crate::dlpack::DlTensor`], borrowed.
    pub const TENSOR_PTR: i32 = 7;
    /// The address of a C string, borrowed. This type occurs only in arguments.
    pub const RAW_STR: i32 = 8;
    /// A string of up to seven bytes, stored in the value itself.
    pub const SMALL_STR: i32 = 11;
    /// The smallest type index of an object. The value of an object is the address of an
    /// [`super::Object`].
    pub const FIRST_OBJECT: i32 = 64;
    /// A string: [`super::Bytes`] follows the object's header.
    pub const STR: i32 = 65;
    /// An error: [`super::ErrorCell`] follows the object's header.
    pub const ERROR: i32 = 67;
    /// A function. Types that are registered at run time (indices from 128) may be derived from
    /// this type.
    pub const FUNCTION: i32 = 68;
    /// A shape: [`super::Shape`] follows the object's header.
    pub const SHAPE: i32 = 69;
    /// A tensor: [`crate::dlpack::DlTensor`] follows the object's header.
    pub const TENSOR: i32 = 70;
}

/// A value. A function borrows the values that are its arguments, and its caller owns the result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Any {
    /// Type of the value: one of [`type_index`].
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
    /// Padding, 0.
    pub padding: u32,
    /// Function that frees the object. Only the runtime calls it.
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

/// `TVMFFISafeCallType`. The function that runs when a function object is called. It returns 0, or
/// another number if it has raised an error.
pub type SafeCall = unsafe extern "C-unwind" fn(*mut c_void, *const Any, i32, *mut Any) -> c_int;
/// `TVMFFIFunctionCreate`: makes a function object.
pub type FunctionCreate = unsafe extern "C" fn(
    *mut c_void,
    SafeCall,
    Option<unsafe extern "C" fn(*mut c_void)>,
    *mut *mut Object,
) -> c_int;
/// `TVMFFIFunctionCall`: calls a function object.
pub type FunctionCall =
    unsafe extern "C-unwind" fn(*mut Object, *const Any, i32, *mut Any) -> c_int;
/// `TVMFFIObjectIncRef` and `TVMFFIObjectDecRef`: take and give up a reference to an object.
pub type ObjectRef = unsafe extern "C" fn(*mut Object) -> c_int;
/// The part of an error that the agent reads, which follows the object's header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ErrorCell {
    /// Name of the error's class.
    pub kind: Bytes,
}
/// `TVMFFIErrorSetRaisedFromCStr`: raises an error of a kind with a message.
pub type ErrorSetRaised = unsafe extern "C" fn(*const c_char, *const c_char);
/// `TVMFFIErrorSetRaised`: raises an existing error object, and adds a reference to the object.
pub type ErrorSetAgain = unsafe extern "C" fn(*mut Object);
/// `TVMFFIErrorMoveFromRaised`: stores the raised error at the given address, or null if there is
/// none. The error is then no longer raised.
pub type ErrorMoveFromRaised = unsafe extern "C" fn(*mut *mut Object);
/// `TVMFFIEnvModRegisterContextSymbol`: sets the address that modules get for the symbol of this
/// name when they are loaded.
pub type RegisterContextSymbol = unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int;

/// `TVMParallelGroupEnv`: the group of tasks that a task belongs to.
#[repr(C)]
#[derive(Debug)]
pub struct ParallelGroup {
    /// Private data of the runtime.
    pub sync: *mut c_void,
    /// Actual number of tasks in the group.
    pub tasks: i32,
}

/// `FTVMParallelLambda`: the function of a task.
pub type ParallelTask =
    unsafe extern "C-unwind" fn(c_int, *mut ParallelGroup, *mut c_void) -> c_int;
/// `TVMBackendParallelLaunch`: runs a number of tasks. With 0, the runtime chooses the number.
pub type ParallelLaunch = unsafe extern "C-unwind" fn(ParallelTask, *mut c_void, c_int) -> c_int;
/// `TVMBackendAllocWorkspace`. The arguments are the type and number of the device, the size in
/// bytes, and the code and bits of the data type.
pub type AllocWorkspace =
    unsafe extern "C-unwind" fn(c_int, c_int, u64, c_int, c_int) -> *mut c_void;

const _: () = assert!(size_of::<Any>() == 16 && offset_of!(Any, bits) == 8);
const _: () = assert!(size_of::<Object>() == 24 && offset_of!(Object, type_index) == 8);
const _: () = assert!(size_of::<ParallelGroup>() == 16);
