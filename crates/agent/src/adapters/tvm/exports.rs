//! What `tvm_ffi.load_module` finds in this library: `include/counterpoint/tvm.h`.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::Ordering;

use abi::collector::{Collector, Slot};
use abi::tvm_ffi::{Any, Object, type_index};

use crate::adapters::tvm::bracket;
use crate::adapters::tvm::ffi::{self, Ffi};
use crate::adapters::tvm::function_collector::{self, Functions};
use crate::adapters::tvm::instrument::{Instrument, Wrapper};
use crate::adapters::tvm::op;
use crate::adapters::tvm::parallel;
use crate::adapters::tvm::vm::Vm;
use crate::os::sys::ErrnoGuard;
use crate::process::guard::guarded;
use crate::recorder::bracket::stack_address;
use crate::recorder::collectors;
use crate::state::epoch;

/// Why an exported function raises.
enum Refusal {
    /// The arguments are of other types, or too few.
    Types,
    /// There is no such virtual machine.
    NoVm,
    /// An error of our own, or of the FFI.
    Internal,
}

/// Runs an exported function's body, and raises what it refuses.
///
/// # Safety
/// Arguments and result as the FFI passes them.
unsafe fn export(
    arguments: *const Any,
    count: i32,
    result: *mut Any,
    body: impl FnOnce(&'static Ffi, &[Any]) -> Result<Any, Refusal>,
) -> c_int {
    let _errno = ErrnoGuard::new();
    // Without the FFI's functions, the code is the only way to report that.
    let Some(ffi) = guarded(ffi::get).flatten() else { return -1 };
    // SAFETY: by contract.
    let arguments = unsafe { ffi::arguments(arguments, count) };
    let outcome = guarded(|| {
        point!(Exported);
        body(ffi, arguments)
    });
    match outcome.unwrap_or(Err(Refusal::Internal)) {
        Ok(value) => {
            // SAFETY: by contract.
            unsafe { result.write(value) };
            0
        }
        Err(Refusal::Types) => ffi
            .error(c"TypeError", c"counterpoint: wrong arguments (see include/counterpoint/tvm.h)"),
        Err(Refusal::NoVm) => {
            ffi.error(c"ValueError", c"counterpoint: no virtual machine of this number")
        }
        Err(Refusal::Internal) => {
            ffi.error(c"RuntimeError", c"counterpoint: the recorder could not do this")
        }
    }
}

fn integer(value: i64) -> Any {
    Any { type_index: type_index::INT, small_length: 0, bits: value as u64 }
}

fn text(arguments: &[Any], at: usize) -> Result<&[u8], Refusal> {
    // SAFETY: a value as the FFI passes it.
    arguments.get(at).and_then(|value| unsafe { ffi::text(value) }).ok_or(Refusal::Types)
}

fn vm(arguments: &[Any]) -> Result<&'static Vm, Refusal> {
    let number = arguments.first().and_then(ffi::integer).ok_or(Refusal::Types)?;
    Vm::find(number).ok_or(Refusal::NoVm)
}

/// A function object, or any that can be called as one; null for None.
fn function(arguments: &[Any], at: usize) -> Result<*mut Object, Refusal> {
    match arguments.get(at) {
        Some(value) if value.type_index == type_index::FUNCTION && value.bits != 0 => {
            Ok(value.bits as *mut Object)
        }
        Some(value) if value.type_index == type_index::NONE => Ok(std::ptr::null_mut()),
        _ => Err(Refusal::Types),
    }
}

fn some_function(arguments: &[Any], at: usize) -> Result<*mut Object, Refusal> {
    function(arguments, at).and_then(|f| if f.is_null() { Err(Refusal::Types) } else { Ok(f) })
}

/// Registers two functions; the references are ours from then on.
fn register(collector: &Collector, this: *mut Functions) -> i32 {
    // SAFETY: complete; `this` was leaked a moment ago, and is freed if nobody got it.
    unsafe {
        let number = collectors::add(collector, true);
        let functions = &*this;
        if number < 0 {
            drop(Box::from_raw(this));
        } else {
            (functions.ffi.retain)(functions.start);
            (functions.ffi.retain)(functions.stop);
        }
        number
    }
}

macro_rules! exported {
    ($(#[$doc:meta])* $name:ident, $ffi:ident, $arguments:ident, $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Called by TVM's FFI.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            _: *mut c_void,
            arguments: *const Any,
            count: i32,
            result: *mut Any,
        ) -> c_int {
            // SAFETY: by contract.
            unsafe { export(arguments, count, result, |$ffi, $arguments| $body) }
        }
    };
}

exported! {
    /// Registers a virtual machine: name → number.
    __tvm_ffi_counterpoint_vm, _ffi, arguments, {
        let name = String::from_utf8_lossy(text(arguments, 0)?).into_owned();
        Vm::register(name).map(|vm| integer(vm.number.into())).ok_or(Refusal::Internal)
    }
}

exported! {
    /// An instrument for it: number, the user's instrument or None → function.
    __tvm_ffi_counterpoint_instrument, ffi, arguments, {
        let (vm, user) = (vm(arguments)?, function(arguments, 1)?);
        Instrument::make(ffi, vm, user).ok_or(Refusal::Internal)
    }
}

exported! {
    /// A wrapper for an entry function: number, name, function → function.
    __tvm_ffi_counterpoint_entry, ffi, arguments, {
        let (vm, name) = (vm(arguments)?, text(arguments, 1)?);
        let function = some_function(arguments, 2)?;
        Wrapper::make(ffi, vm, name, function).ok_or(Refusal::Internal)
    }
}

exported! {
    /// Watches parallel launches and workspaces: → 0 or a reason.
    __tvm_ffi_counterpoint_parallel, _ffi, _arguments, { Ok(integer(parallel::watch())) }
}

exported! {
    /// Attaches the calling thread and writes the names of a machine's ops: number → 1, or 0 if
    /// nothing is being recorded.
    __tvm_ffi_counterpoint_ready, _ffi, arguments, {
        let vm = vm(arguments)?;
        let thread = if epoch::wanted() { bracket::thread() } else { std::ptr::null_mut() };
        let thread = thread.as_ref(); // Null, or this thread's own state.
        if let Some(thread) = thread {
            op::announce(vm, thread);
        }
        Ok(integer(thread.is_some().into()))
    }
}

exported! {
    /// Whether a metric may have this name: name → 0 or who has it.
    __tvm_ffi_counterpoint_metric_name, _ffi, arguments, {
        let name = std::str::from_utf8(text(arguments, 0)?).map_err(|_| Refusal::Types)?;
        Ok(integer(collectors::who_has(name).into()))
    }
}

exported! {
    /// Calls that a virtual machine's instruments saw: number → count.
    __tvm_ffi_counterpoint_calls, _ffi, arguments, {
        Ok(integer(vm(arguments)?.calls.load(Ordering::Relaxed) as i64))
    }
}

exported! {
    /// Whether the calling thread may take its instrument away now: number → 0 or 1.
    __tvm_ffi_counterpoint_quiet, _ffi, arguments, {
        Ok(integer(vm(arguments)?.inside.is_quiet(stack_address()).into()))
    }
}

exported! {
    /// Registers a collector: start, stop, name and kind of each slot → number.
    __tvm_ffi_counterpoint_collector, ffi, arguments, {
        let (start, stop) = (some_function(arguments, 0)?, some_function(arguments, 1)?);
        let mut names = Vec::new();
        let mut kinds = Vec::new();
        for at in (2..arguments.len()).step_by(2) {
            names.push(CString::new(text(arguments, at)?).map_err(|_| Refusal::Types)?);
            let kind = arguments.get(at + 1).and_then(ffi::integer).ok_or(Refusal::Types)?;
            kinds.push(u32::try_from(kind).map_err(|_| Refusal::Types)?);
        }
        let slots: Vec<Slot> =
            names.iter().zip(kinds).map(|(name, kind)| Slot { name: name.as_ptr(), kind }).collect();
        let this = Box::into_raw(Box::new(Functions { ffi, start, stop }));
        let collector = Collector {
            size: size_of::<Collector>() as u32,
            slots: slots.len() as u32,
            name: c"functions".as_ptr(),
            slot: slots.as_ptr(),
            this: this.cast(),
            start: Some(function_collector::start),
            stop: Some(function_collector::stop),
            abandon: Some(function_collector::abandon),
        };
        let number = register(&collector, this);
        Ok(integer(number.into()))
    }
}

exported! {
    /// Takes a collector out: number → 0 or -1.
    __tvm_ffi_counterpoint_collector_remove, _ffi, arguments, {
        let number = arguments.first().and_then(ffi::integer).ok_or(Refusal::Types)?;
        Ok(integer(collectors::remove(i32::try_from(number).unwrap_or(-1)).into()))
    }
}
