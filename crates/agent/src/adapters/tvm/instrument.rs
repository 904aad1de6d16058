//! The instrument that the agent adds to TVM's virtual machine (VM), and the wrapper around an
//! entry function of a model.
//!
//! The VM calls its instrument before and after each op, from the same stack frame. So the stack
//! pointer is the same at both calls, and lower at calls for ops inside of this op. If it is the
//! same or higher for a new op than for an op that has not ended, an exception has left the older
//! op. Therefore the agent can match the two calls without comparing names, and can distinguish
//! recursion from an op that threw.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use abi::dlpack::{DataType, Device, DlTensor};
use abi::tvm_ffi::{Any, Object, type_index};
use record::meta::Role;

use crate::adapters::op_calls::bracket::{self, Caller, How};
use crate::adapters::op_calls::inside::{self, Bracket, What};
use crate::adapters::op_calls::nowhere::Nowhere;
use crate::adapters::op_calls::op::{self, Entry};
use crate::adapters::op_calls::vm::Vm;
use crate::adapters::op_calls::watching::Function;
use crate::adapters::tvm::ffi::{self, Ffi};
use crate::adapters::tvm::unwatched::{self, Plan};
use crate::adapters::tvm::{ADAPTER, HOST, call};
use crate::process::panics::guarded;
use crate::recorder::adapter::Took;
use crate::recorder::bracket::stack_address;
use crate::recorder::rehearsal;
use crate::recorder::thread::Thread;
use crate::state::epoch;

/// The value that a user's instrument returns if the op is to be skipped.
const SKIP: u64 = 1;
/// Returned if a user's collector was interrupted. The FFI's error is then already raised.
const INTERRUPTED: c_int = -1;

/// The data of an instrument's function object.
pub struct Instrument {
    ffi: &'static Ffi,
    vm: &'static Vm,
    /// The user's instrument, which was set before this one, or null. We own a reference to it.
    user: *mut Object,
}

impl Instrument {
    /// Makes the function object of an instrument, and adds a reference to `user`, the instrument
    /// that was set before.
    pub fn make(ffi: &'static Ffi, vm: &'static Vm, user: *mut Object) -> Option<Any> {
        retain(ffi, user);
        let this = Box::into_raw(Box::new(Self { ffi, vm, user }));
        ffi.function(this.cast(), called, drop_instrument)
    }

    /// # Safety
    /// The arguments must be those that the VM has passed.
    #[inline(always)]
    unsafe fn call_user(&self, arguments: *const Any, count: i32, result: *mut Any) -> c_int {
        if self.user.is_null() {
            return 0;
        }
        // SAFETY: we own a reference to the user's function, and by contract the VM has passed the
        // arguments.
        unsafe { (self.ffi.function_call)(self.user, arguments, count, result) }
    }
}

fn retain(ffi: &Ffi, object: *mut Object) {
    if !object.is_null() {
        // SAFETY: the caller owns a reference to the object, so the object is alive.
        unsafe { (ffi.retain)(object) };
    }
}

unsafe extern "C" fn drop_instrument(this: *mut c_void) {
    // SAFETY: `make` made `this` with `Box::into_raw`, and the FFI calls this function once, when
    // the object is freed.
    let this = unsafe { Box::from_raw(this.cast::<Instrument>()) };
    if !this.user.is_null() {
        // SAFETY: the instrument owns a reference to `user`, and gives it up here.
        unsafe { (this.ffi.release)(this.user) };
    }
}

/// The VM calls this function. It jumps to [`instrument`], and adds a fifth argument: the stack
/// pointer at the entry of this function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn called(_: *mut c_void, _: *const Any, _: i32, _: *mut Any) -> c_int {
    std::arch::naked_asm!("endbr64", "mov r8, rsp", "jmp {body}", body = sym instrument)
}
/// The VM calls this function. It jumps to [`instrument`], and adds a fifth argument: the stack
/// pointer at the entry of this function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn called(_: *mut c_void, _: *const Any, _: i32, _: *mut Any) -> c_int {
    std::arch::naked_asm!("bti c", "mov x4, sp", "b {body}", body = sym instrument)
}

unsafe extern "C-unwind" fn instrument(
    this: *mut c_void,
    arguments: *const Any,
    count: i32,
    result: *mut Any,
    frame: usize,
) -> c_int {
    // SAFETY: `Instrument::make` made `this`, which lives as long as its object, and the FFI calls
    // only objects that are alive.
    let this = unsafe { &*this.cast::<Instrument>() };
    // SAFETY: the VM passes its arguments and their number.
    let all = unsafe { ffi::arguments(arguments, count) };
    let before = all.get(2).and_then(ffi::integer).map(|before| before != 0);
    let inside = &this.vm.inside;
    // SAFETY: the VM has passed the arguments, which is what the functions called here require.
    unsafe {
        match before {
            Some(true) => {
                bracket::enter_before(Caller::Instrument);
                inside.begin(frame);
                let code = this.call_user(arguments, count, result);
                let skips = !this.user.is_null()
                    && (*result).type_index == type_index::INT
                    && (*result).bits == SKIP;
                if code != 0 || skips {
                    inside.end(frame);
                } else if epoch::wanted() && op_begins(this.vm, all, frame) {
                    inside.end(frame);
                    return INTERRUPTED;
                }
                code
            }
            Some(false) => {
                bracket::enter_after();
                let code = match op_ends(frame) {
                    true => INTERRUPTED,
                    false => this.call_user(arguments, count, result),
                };
                inside.end(frame);
                bracket::leave(Caller::Instrument);
                code
            }
            None => this.call_user(arguments, count, result),
        }
    }
}

#[inline(never)]
unsafe fn op_begins(vm: &'static Vm, arguments: &[Any], frame: usize) -> bool {
    let interrupted = guarded(|| {
        point!(OpBefore);
        vm.calls.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the VM has passed `arguments`, and it will call the op next, on this thread.
        unsafe {
            let Some(entry) = call::of_call(vm, arguments) else { return false };
            if !vm.watching.note(entry.id) {
                return false;
            }
            let storage = if entry.allocates { call::storage_bytes(arguments) } else { 0 };
            bracket::begin_op(&ADAPTER, entry, storage, frame)
        }
    });
    interrupted.unwrap_or(false)
}

#[inline(never)]
unsafe fn op_ends(frame: usize) -> bool {
    let interrupted = guarded(|| {
        point!(OpAfter);
        // SAFETY: the VM calls the instrument on the thread that has called the op.
        unsafe { bracket::end_op(frame) }.is_some_and(|ended| ended.interrupted)
    });
    interrupted.unwrap_or(false)
}

/// The data of the function object that wraps an entry function.
pub struct Wrapper {
    ffi: &'static Ffi,
    entry: &'static Entry,
    /// What is known about the calls that a run makes, and the machine's function that sets its
    /// instrument. `None` unless all runs of the function are expected to make the same calls. We
    /// own a reference to the machine's function.
    fixed: Option<(&'static Function, *mut Object)>,
    /// The wrapped function. We own a reference to it.
    function: *mut Object,
}

impl Wrapper {
    /// Makes the function object of a wrapper, and adds a reference to `function`. Also adds one to
    /// `set`, if the wrapper keeps `set` in its field `fixed`.
    pub fn make(
        ffi: &'static Ffi,
        vm: &'static Vm,
        name: &[u8],
        function: *mut Object,
        set: *mut Object,
    ) -> Option<Any> {
        let entry = op::by_name(vm, Role::Run, name)?;
        let known = if set.is_null() { None } else { unwatched::function(vm, name) };
        let fixed = known.map(|known| (known, set));
        if epoch::wanted() {
            // Write the entry's metadata now, so that no run has to wait for this.
            let thread = bracket::thread(&ADAPTER);
            // SAFETY: `bracket::thread` returns null or the calling thread's own state.
            unsafe { thread.as_ref() }.map(|thread| entry.is_recorded(thread));
        }
        retain(ffi, function);
        if let Some((_, set)) = fixed {
            retain(ffi, set);
        }
        let this = Box::into_raw(Box::new(Self { ffi, entry, fixed, function }));
        ffi.function(this.cast(), entry_called, drop_wrapper)
    }
}

unsafe extern "C" fn drop_wrapper(this: *mut c_void) {
    // SAFETY: `make` made `this` with `Box::into_raw`, and the FFI calls this function once, when
    // the object is freed.
    let this = unsafe { Box::from_raw(this.cast::<Wrapper>()) };
    // SAFETY: the wrapper owns a reference to each of these objects, and gives it up here.
    unsafe {
        (this.ffi.release)(this.function);
        if let Some((_, set)) = this.fixed {
            (this.ffi.release)(set);
        }
    }
}

unsafe extern "C-unwind" fn entry_called(
    this: *mut c_void,
    arguments: *const Any,
    count: i32,
    result: *mut Any,
) -> c_int {
    // SAFETY: `Wrapper::make` made `this`, which lives as long as its object. The caller may drop
    // the last reference to the object during the call, so everything that is needed afterwards is
    // copied.
    let (ffi, function, entry, fixed) = unsafe {
        let this = &*this.cast::<Wrapper>();
        (this.ffi, this.function, this.entry, this.fixed)
    };
    // SAFETY: the wrapper owns a reference to `function`, and the arguments are those that the
    // caller passed for it.
    let call = || unsafe { (ffi.function_call)(function, arguments, count, result) };
    if !epoch::wanted() {
        return call();
    }
    let mut plan = match fixed {
        Some((known, set)) => unwatched::plan(ffi, entry.vm, known, set),
        None => Plan::Recorded(How::Always, None),
    };
    let code = match &plan {
        Plan::Recorded(how, _) => {
            let (task, correlation, how) = (None, None, *how);
            let what = What { export: entry.id, entry, task, correlation, counted: true, how };
            let bracket = run_begins(&what, stack_address());
            let code = call();
            if let Some(bracket) = bracket {
                run_ends(&bracket, &what, code != 0);
            }
            code
        }
        Plan::Passed => call(),
    };
    if let Plan::Recorded(_, Some(run)) = &mut plan {
        run.ends(code != 0);
    }
    code
}

#[inline(never)]
fn run_begins(what: &What, frame: usize) -> Option<Bracket> {
    guarded(|| {
        point!(RunBegin);
        let thread = bracket::thread(&ADAPTER);
        // SAFETY: `bracket::thread` returns null or the calling thread's own state.
        let recorded = unsafe { thread.as_ref() }.is_some_and(|t| what.entry.is_recorded(t));
        recorded.then(|| inside::begin_inside(thread, what, frame, inside::NOT_TIMED)).flatten()
    })
    .flatten()
}

#[inline(never)]
fn run_ends(bracket: &Bracket, what: &What, failed: bool) {
    guarded(|| {
        point!(RunEnd);
        inside::end(bracket, what, failed);
    });
}

/// Calls an instrument before and after each of `calls` empty ops with three tensors, to measure
/// what recording costs (calibration). The VM's own work for such a call, for example to collect
/// the arguments, is not included. `bookkeeping` selects bookkeeping ops (which only manage the
/// VM's data), for which no counter is read by default.
pub fn rehearse(thread: &mut Thread, calls: usize, bookkeeping: bool) -> Took {
    static NOWHERE: Nowhere = Nowhere::new(&HOST);
    let vm = NOWHERE.machine();
    let shape = [1i64, 1];
    let tensor = DlTensor {
        data: std::ptr::null_mut(),
        device: Device { kind: 1, id: 0 },
        ndim: 2,
        dtype: DataType { code: 2, bits: 32, lanes: 1 },
        shape: shape.as_ptr(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };
    let value = |type_index, bits| Any { type_index, small_length: 0, bits };
    let tensor = value(type_index::TENSOR_PTR, &raw const tensor as u64);
    let name = if bookkeeping { c"vm.builtin.rehearsal" } else { c"rehearsal" };
    let name = value(type_index::RAW_STR, name.as_ptr() as u64);
    let call = |before| {
        let before = value(type_index::BOOL, u64::from(before));
        [Any::default(), name, before, Any::default(), tensor, tensor, tensor]
    };
    let (before, after) = (call(true), call(false));
    // SAFETY: the arguments have the form in which a VM passes them.
    let Some(entry) = (unsafe { call::of_call(vm, &before) }) else { return Took::default() };
    entry.rehearse(thread);
    // The instrument is called through its function object, as a VM calls it, because that is part
    // of what recording costs.
    let Some(ffi) = ffi::get() else { return Took::default() };
    let Some(instrument) = Instrument::make(ffi, vm, std::ptr::null_mut()) else {
        return Took::default();
    };
    let function = instrument.bits as *mut Object;
    let mut result = Any::default();
    let mut tell = |arguments: &[Any; 7]| {
        let arguments = std::hint::black_box(arguments);
        // SAFETY: the arguments have the form in which a VM passes them, and the function object
        // lives until `drop_value` below.
        unsafe { (ffi.function_call)(function, arguments.as_ptr(), 7, &raw mut result) };
    };
    let bare = || _ = std::hint::black_box(&before);
    let took = rehearsal::rehearse(thread.run.clock, calls, bare, || {
        tell(&before);
        tell(&after);
    });
    ffi.drop_value(instrument);
    took
}
