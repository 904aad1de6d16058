//! Records the ops, runs and ranges of hosts (profiled runtimes) that announce themselves
//! (`include/counterpoint/host.h`). A host identifies a call in progress by the address of
//! something on the host's stack.

use std::ffi::{c_char, c_void};

use abi::host::{Machine, role};
use record::host::Host;
use record::meta::Role;

use crate::adapters::announced::ADAPTER;
use crate::adapters::op_calls::bracket::{self, Caller};
use crate::adapters::op_calls::nowhere::Nowhere;
use crate::adapters::op_calls::op::{self, Entry};
use crate::adapters::op_calls::vm::Vm;
use crate::process::hosts::Described;
use crate::process::panics::guarded;
use crate::recorder::adapter::Took;
use crate::recorder::rehearsal;
use crate::recorder::thread::Thread;
use crate::state::epoch;

/// Begins a call of the kind `of` (op, run or range). Does nothing if the machine or the name is
/// null, or if `of` is none of these kinds.
///
/// # Safety
/// The caller must meet the requirements of `include/counterpoint/host.h`.
pub unsafe extern "C" fn begin(
    machine: Machine,
    of: u32,
    name: *const c_char,
    address: *const c_void,
) {
    if !epoch::wanted() {
        return;
    }
    guarded(|| {
        point!(HostOpBegin);
        let role = match of {
            role::OP => Role::Op,
            role::RUN => Role::Run,
            role::RANGE => Role::Range,
            _ => return,
        };
        // SAFETY: a host passes null or what `machines::add` returned, which is never freed.
        let Some(vm) = (unsafe { machine.cast::<Vm>().as_ref() }) else { return };
        if name.is_null() {
            return;
        }
        let entered = bracket::enter_before(Caller::Holder);
        // SAFETY: host.h requires that `name` is a C string, and that the host makes the call next,
        // on this thread. These are the requirements of the two functions that are called here.
        unsafe {
            let Some(entry) = op::by_c_name(vm, role, name) else { return };
            bracket::begin_held_op(&ADAPTER, entry, entered, address as usize, |_| 0);
        }
    });
}

/// Ends the call that began with this address, if it is recorded.
///
/// # Safety
/// The caller must meet the requirements of `include/counterpoint/host.h`.
pub unsafe extern "C" fn end(address: *const c_void) {
    guarded(|| {
        point!(HostOpEnd);
        // SAFETY: host.h requires that a host ends a call on the thread that began it.
        unsafe { bracket::end_held_op(address as usize) };
        // The time that a host needs to announce an op is not measured, because a host cannot be
        // asked to announce an empty op.
        bracket::leave(Caller::Holder);
    });
}

/// In calibration, an op whose name begins with this prefix is a bookkeeping op (it only manages
/// the host's data).
const BOOKKEEPING: &str = "bookkeeping.";

/// Records `calls` empty ops, to measure what recording costs (calibration). If `bookkeeping` is
/// set, they are bookkeeping ops, for which no counters are read by default.
pub fn rehearse(thread: &mut Thread, calls: usize, bookkeeping: bool) -> Took {
    static NOBODY: Described = Described::new(Host {
        bookkeeping: std::borrow::Cow::Borrowed(BOOKKEEPING),
        ..Host::UNKNOWN
    });
    static NOWHERE: Nowhere = Nowhere::new(&NOBODY);
    let name = if bookkeeping { c"bookkeeping.rehearsal" } else { c"rehearsal" };
    let Some((vm, entry)) = NOWHERE.op(thread, name) else { return Took::default() };
    let bare = || _ = std::hint::black_box(name);
    rehearsal::rehearse(thread.run.clock, calls, bare, || bracketed(vm, entry, name.as_ptr()))
}

#[inline(never)]
fn bracketed(vm: &'static Vm, entry: &'static Entry, name: *const c_char) {
    let marker = 0u8;
    let frame = (&raw const marker) as usize;
    // SAFETY: `name` is a C string. The op begins and ends in this function, so on one thread.
    unsafe {
        // The lookup of the op's entry (the agent's data about the op) is part of the cost of an
        // op.
        let entered = bracket::enter_before(Caller::Holder);
        let found = op::by_c_name(vm, Role::Op, std::hint::black_box(name)).unwrap_or(entry);
        bracket::begin_held_op(&ADAPTER, found, entered, frame, |_| 0);
        bracket::end_held_op(frame);
        bracket::leave(Caller::Holder);
    }
}
