//! A machine (caller of ops) that exists only for calibration. Calibration calls empty ops of this
//! machine, to measure what recording an op costs. No profile contains the machine.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use record::meta::Role;

use crate::adapters::op_calls::op::{self, Entry};
use crate::adapters::op_calls::vm::Vm;
use crate::process::hosts::Described;
use crate::recorder::thread::Thread;

/// A machine for the calibration of one adapter, made at its first use. If two threads need it at
/// the same moment, each may make one.
#[derive(Debug)]
pub struct Nowhere {
    host: &'static Described,
    machine: AtomicPtr<Vm>,
}

impl Nowhere {
    /// The ops of the machine will be treated like those of `host`.
    pub const fn new(host: &'static Described) -> Self {
        Self { host, machine: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub fn machine(&self) -> &'static Vm {
        let mut machine = self.machine.load(Ordering::Acquire);
        if machine.is_null() {
            machine = std::ptr::from_ref(Vm::nowhere(self.host)).cast_mut();
            self.machine.store(machine, Ordering::Release);
        }
        // SAFETY: `Vm::nowhere` made and leaked `machine`, so it is valid for ever.
        unsafe { &*machine }
    }

    /// Returns the machine and the entry of its op with this name. Neither is written to the
    /// profile. Returns `None` if no entry can be made.
    pub fn op(&self, thread: &Thread, name: &CStr) -> Option<(&'static Vm, &'static Entry)> {
        let machine = self.machine();
        let entry = op::by_name(machine, Role::Op, name.to_bytes())?;
        entry.rehearse(thread);
        Some((machine, entry))
    }
}
