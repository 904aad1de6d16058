//! Finds the entry (the agent's data) of the op that TVM's virtual machine (VM) calls, from the
//! arguments that the VM passes to its instrument.

use std::sync::atomic::{AtomicPtr, Ordering};

use abi::dlpack::DataType;
use abi::tvm_ffi::Any;
use record::meta::Role;

use crate::adapters::op_calls::op::{
    self, Entry, LONGEST_NAME, MOST_DIMENSIONS, NO_SHAPE, Tensors, Words,
};
use crate::adapters::op_calls::text;
use crate::adapters::op_calls::vm::Vm;
use crate::adapters::tvm::{HOST, ffi};
use crate::process::lock::Lock;

/// The arguments of an op's call. The VM passes them to its instrument after four other arguments:
/// the function, the op's name, the flag "before" and the result.
struct Arguments<'a>(&'a [Any]);

impl Tensors for Arguments<'_> {
    /// Appends the types, devices and shapes of the tensors.
    #[inline(always)]
    fn push(&self, to: &mut impl Words) {
        for argument in self.0 {
            // SAFETY: by the contract of `of_call`, the VM passed the arguments, so their type
            // fields are right.
            let Some(tensor) = (unsafe { ffi::tensor(argument) }) else { continue };
            let DataType { code, bits, lanes } = tensor.dtype;
            let dtype = u64::from(code) | u64::from(bits) << 8 | u64::from(lanes) << 16;
            let known = tensor.ndim == 0 || !tensor.shape.is_null();
            let dimensions = match usize::try_from(tensor.ndim) {
                Ok(n) if known && tensor.ndim <= MOST_DIMENSIONS => Some(n),
                _ => None,
            };
            let ndim = dimensions.map_or(NO_SHAPE, |n| n as u64);
            to.push(dtype | ndim << 32);
            let device = tensor.device;
            to.push(u64::from(device.kind as u32) << 32 | u64::from(device.id as u32));
            for i in 0..dimensions.unwrap_or(0) {
                // SAFETY: a tensor's shape contains one number for each dimension of the tensor.
                to.push(unsafe { *tensor.shape.add(i) } as u64);
            }
        }
    }
}

/// Returns the entry for a call of an op; `None` if the op has no name, or if no entry can be made.
///
/// # Safety
/// `arguments` must be all arguments that the VM passes to its instrument, including the function,
/// the name, "before" and the result.
#[inline(always)]
pub unsafe fn of_call(vm: &'static Vm, arguments: &[Any]) -> Option<&'static Entry> {
    // SAFETY: by contract, the VM passed the arguments, so they come from the FFI.
    let name = unsafe { ffi::text(arguments.get(1)?) }?;
    if name.len() > LONGEST_NAME {
        return op::by_name(vm, Role::Op, name);
    }
    op::of_call(vm, Role::Op, name, &Arguments(arguments.get(4..).unwrap_or_default()))
}

/// Returns the entry of parallel regions that are launched outside of any op.
pub fn outside() -> Option<&'static Entry> {
    static OUTSIDE: AtomicPtr<Vm> = AtomicPtr::new(std::ptr::null_mut());
    let mut vm = OUTSIDE.load(Ordering::Acquire);
    if vm.is_null() {
        let _lock = Lock::take()?;
        vm = OUTSIDE.load(Ordering::Acquire);
        if vm.is_null() {
            vm = std::ptr::from_ref(Vm::outside("(outside of virtual machines)", &HOST)).cast_mut();
            OUTSIDE.store(vm, Ordering::Release);
        }
    }
    // SAFETY: `Vm::outside` made and leaked `vm`, so it is valid for ever.
    op::by_name(unsafe { &*vm }, Role::Op, b"(outside of ops)")
}

/// Returns the number of bytes of storage that a call of `vm.builtin.alloc_storage` requests, or 0
/// if it is unknown.
///
/// # Safety
/// The requirements of [`of_call`] apply.
#[cold]
#[inline(never)]
pub unsafe fn storage_bytes(arguments: &[Any]) -> u64 {
    let bytes = || {
        // SAFETY: by contract, the VM passed the arguments, so they come from the FFI.
        let extents = unsafe { ffi::shape(arguments.get(5)?) }?;
        let dtype = arguments.get(7)?;
        let element = if dtype.type_index == abi::tvm_ffi::type_index::DATA_TYPE {
            let (bits, lanes) = (dtype.bits >> 8 & 0xFF, dtype.bits >> 16 & 0xFFFF);
            (bits * lanes).div_ceil(8)
        } else {
            // SAFETY: by contract, the VM passed the arguments, so they come from the FFI.
            text::element_bytes(unsafe { ffi::text(dtype) }?)?
        };
        extents.iter().try_fold(element, |n, extent| n.checked_mul(u64::try_from(*extent).ok()?))
    };
    bytes().unwrap_or(0)
}
