//! The functions that `tvm_ffi.load_module` finds in this library. `include/counterpoint/tvm.h`
//! documents them.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::Ordering;

use abi::collector::{Collector, Slot};
use abi::tvm_ffi::{Any, Object, type_index};

use crate::adapters::op_calls::bracket;
use crate::adapters::op_calls::op;
use crate::adapters::op_calls::vm::Vm;
use crate::adapters::tvm::ffi::{self, Ffi};
use crate::adapters::tvm::function_collector::{self, Functions};
use crate::adapters::tvm::instrument::{Instrument, Wrapper};
use crate::adapters::tvm::parallel;
use crate::adapters::tvm::unwatched;
use crate::adapters::tvm::{ADAPTER, HOST};
use crate::os::sys::ErrnoGuard;
use crate::process::panics::guarded_apart;
use crate::recorder::bracket::stack_address;
use crate::recorder::collectors;
use crate::state::epoch;

enum Refusal {
    /// The arguments have wrong types or values, or there are too few.
    Types,
    NoVm,
    /// An internal error, or an error of the FFI.
    Internal,
}

/// Runs the body of an exported function, and raises an error of the FFI for a [`Refusal`].
///
/// # Safety
/// The arguments and the result must be those that the FFI passes.
unsafe fn export(
    arguments: *const Any,
    count: i32,
    result: *mut Any,
    body: impl FnOnce(&'static Ffi, &[Any], usize) -> Result<Any, Refusal>,
) -> c_int {
    let _errno = ErrnoGuard::new();
    // Without the FFI's functions, the return code is the only way to report a failure.
    let Some(ffi) = guarded_apart(ffi::get).flatten() else { return -1 };
    // SAFETY: by contract, the FFI passed the arguments.
    let arguments = unsafe { ffi::arguments(arguments, count) };
    // The body runs on a separate stack, but needs an address on the caller's stack: `frame`.
    let frame = stack_address();
    let outcome = guarded_apart(|| {
        point!(Exported);
        body(ffi, arguments, frame)
    });
    match outcome.unwrap_or(Err(Refusal::Internal)) {
        Ok(value) => {
            // SAFETY: by contract, the FFI passed `result`, which has space for a value.
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
    // SAFETY: the FFI passed the arguments to the exported function, so the value comes from the
    // FFI.
    arguments.get(at).and_then(|value| unsafe { ffi::text(value) }).ok_or(Refusal::Types)
}

fn vm(arguments: &[Any]) -> Result<&'static Vm, Refusal> {
    let number = arguments.first().and_then(ffi::integer).ok_or(Refusal::Types)?;
    Vm::find(number).ok_or(Refusal::NoVm)
}

/// Returns the function object that is the argument with the index `at`; null if this argument is
/// None.
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

/// Registers a collector that calls two functions, and keeps a reference to both.
fn register(collector: &Collector, this: *mut Functions) -> i32 {
    // SAFETY: every field of `collector` is set. `this` was just leaked, and it is freed only if
    // the collector was not registered.
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
    ($(#[$doc:meta])* $name:ident, $ffi:ident, $arguments:ident, $frame:ident, $body:block) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Only TVM's FFI may call this.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            _: *mut c_void,
            arguments: *const Any,
            count: i32,
            result: *mut Any,
        ) -> c_int {
            // SAFETY: by contract, TVM's FFI makes this call, with its arguments and its result.
            unsafe { export(arguments, count, result, |$ffi, $arguments, $frame| $body) }
        }
    };
}

exported! {
    /// Registers a virtual machine. The argument is its name, and the result its number.
    __tvm_ffi_counterpoint_vm, _ffi, arguments, _frame, {
        let name = String::from_utf8_lossy(text(arguments, 0)?).into_owned();
        Vm::register(name, &HOST).map(|vm| integer(vm.number.into())).ok_or(Refusal::Internal)
    }
}

exported! {
    /// Makes an instrument for a virtual machine. The arguments are the machine's number and the
    /// user's instrument or None; the result is a function.
    __tvm_ffi_counterpoint_instrument, ffi, arguments, _frame, {
        let (vm, user) = (vm(arguments)?, function(arguments, 1)?);
        Instrument::make(ffi, vm, user).ok_or(Refusal::Internal)
    }
}

exported! {
    /// Makes a wrapper for an entry function of a virtual machine. The arguments are the machine's
    /// number, the function's name, the function, and `set` or None. `set` is the machine's
    /// function that sets its instrument; it may be passed only if all runs of the entry function
    /// make the same calls. The result is the wrapper, a function.
    __tvm_ffi_counterpoint_entry, ffi, arguments, _frame, {
        let (vm, name) = (vm(arguments)?, text(arguments, 1)?);
        let function = some_function(arguments, 2)?;
        let set = if arguments.len() > 3 { self::function(arguments, 3)? } else { std::ptr::null_mut() };
        Wrapper::make(ffi, vm, name, function, set).ok_or(Refusal::Internal)
    }
}

exported! {
    /// Allows the agent to remove a machine's instrument for runs whose calls are known. The
    /// arguments are the machine's number and the agent's instrument; None in place of the
    /// instrument forbids the removal. The result is 1 if the calling thread is recorded with a
    /// budget, otherwise 0.
    __tvm_ffi_counterpoint_switch, ffi, arguments, _frame, {
        let (vm, instrument) = (vm(arguments)?, function(arguments, 1)?);
        unwatched::install(ffi, vm, instrument);
        let thread = if epoch::wanted() { bracket::thread(&ADAPTER) } else { std::ptr::null_mut() };
        let thread = thread.as_ref(); // Null, or this thread's own state.
        Ok(integer(thread.is_some_and(|thread| thread.run.budget.is_some()).into()))
    }
}

exported! {
    /// Starts watching parallel launches and workspaces (temporary memory of ops). Returns 0 or a
    /// number that says why this failed.
    __tvm_ffi_counterpoint_parallel, _ffi, _arguments, _frame, { Ok(integer(parallel::watch())) }
}

exported! {
    /// Attaches the calling thread, and writes the names of a machine's ops to the profile. The
    /// argument is the machine's number; the result is 1, or 0 if the thread is not being recorded.
    __tvm_ffi_counterpoint_ready, _ffi, arguments, _frame, {
        let vm = vm(arguments)?;
        let thread = if epoch::wanted() { bracket::thread(&ADAPTER) } else { std::ptr::null_mut() };
        let thread = thread.as_ref(); // Null, or this thread's own state.
        if let Some(thread) = thread {
            op::announce(vm, thread);
        }
        Ok(integer(thread.is_some().into()))
    }
}

exported! {
    /// Checks whether a metric may have the name that is the argument. The result is 0 if it may;
    /// otherwise it is a number that says what uses the name already, or that the name is empty or
    /// only a unit.
    __tvm_ffi_counterpoint_metric_name, _ffi, arguments, _frame, {
        let name = std::str::from_utf8(text(arguments, 0)?).map_err(|_| Refusal::Types)?;
        Ok(integer(collectors::who_has(name).into()))
    }
}

exported! {
    /// Returns the number of calls of a virtual machine's ops. Calls in runs without the instrument
    /// are added when such a run has ended. The argument is the machine's number.
    __tvm_ffi_counterpoint_calls, _ffi, arguments, _frame, {
        Ok(integer(vm(arguments)?.calls.load(Ordering::Relaxed) as i64))
    }
}

exported! {
    /// Checks whether the calling thread may remove a machine's instrument now. The argument is the
    /// machine's number; the result is 1 if the thread may remove the instrument, otherwise 0.
    __tvm_ffi_counterpoint_quiet, _ffi, arguments, frame, {
        Ok(integer(vm(arguments)?.inside.is_quiet(frame).into()))
    }
}

exported! {
    /// Registers a collector. The arguments are the functions start and stop, and then the name and
    /// the kind of each slot (value). The result is the collector's number, or a negative number if
    /// the collector was refused.
    __tvm_ffi_counterpoint_collector, ffi, arguments, _frame, {
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
    /// Removes the collector whose number is the argument. Returns 0 or −1.
    __tvm_ffi_counterpoint_collector_remove, _ffi, arguments, _frame, {
        let number = arguments.first().and_then(ffi::integer).ok_or(Refusal::Types)?;
        Ok(integer(collectors::remove(i32::try_from(number).unwrap_or(-1)).into()))
    }
}
