//! In a recording with a budget (a limit for its cost), lets a virtual machine execute a model's
//! function without announcing the function's ops ([`crate::recorder::budget::watch`]). Such a run
//! of the function is *not watched*. The agent removes the machine's instrument before the run, and
//! adds it again afterwards.
//!
//! Only the wrapper of an entry function does this. If the program calls the machine in another
//! way, the agent does not remove the instrument.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use abi::tvm_ffi::{Any, Object, type_index};
use model::Loss;
use record::meta::Role;

use crate::adapters::op_calls::bracket::{self, How};
use crate::adapters::op_calls::op;
use crate::adapters::op_calls::vm::Vm;
use crate::adapters::op_calls::watching::{Claim, Function, UNWATCHED};
use crate::adapters::tvm::ADAPTER;
use crate::adapters::tvm::ffi::Ffi;
use crate::process::lock::Lock;
use crate::process::losses;
use crate::process::panics::{guarded, guarded_apart};
use crate::recorder::budget::watch::Next;
use crate::recorder::collectors;
use crate::recorder::thread::{self, Thread};
use crate::state::epoch;

/// Returns the data about the machine's function with this name. All runs of the function are
/// expected to make the same calls.
pub fn function(vm: &'static Vm, name: &[u8]) -> Option<&'static Function> {
    let entry = op::by_name(vm, Role::Run, name)?;
    let _lock = Lock::take()?;
    Some(vm.watching.function(entry.id))
}

/// Allows the removal of the machine's `instrument`, or forbids it if `instrument` is null. Adds a
/// reference to `instrument`, and gives up the one to the previous instrument.
pub fn install(ffi: &Ffi, vm: &Vm, instrument: *mut Object) {
    if !instrument.is_null() {
        // SAFETY: the caller owns a reference to the instrument, so the object is alive.
        unsafe { (ffi.retain)(instrument) };
    }
    let old = vm.watching.switch.replace(instrument.cast());
    if !old.is_null() {
        // SAFETY: the switch owned one reference to the old instrument, and gives it up here.
        unsafe { (ffi.release)(old.cast()) };
    }
}

/// Calls the machine's function `set` to add the machine's instrument (`on`) or to remove it. Does
/// nothing if the instrument must not be removed. Returns whether the call succeeded. The caller
/// must own a reference to `set`.
fn switch(ffi: &Ffi, vm: &Vm, set: *mut Object, on: bool) -> bool {
    let set = |instrument: *mut c_void| {
        let of = |bits: *mut c_void| Any {
            type_index: if bits.is_null() { type_index::NONE } else { type_index::FUNCTION },
            small_length: 0,
            bits: bits as u64,
        };
        let argument = of(if on { instrument } else { std::ptr::null_mut() });
        let mut result = Any::default();
        // SAFETY: the caller owns a reference to `set`, and the switch owns one to the instrument;
        // `set` takes one argument.
        let code = unsafe { (ffi.function_call)(set, &raw const argument, 1, &raw mut result) };
        if code == 0 {
            ffi.drop_value(result);
        } else {
            ffi.drop_error();
        }
        code == 0
    };
    vm.watching.switch.with(set).unwrap_or(false)
}

/// One run (execution) of a model's function. The run has claimed the machine for itself.
/// [`Run::end`] is called when this value is dropped, also by unwinding.
pub struct Run {
    ffi: &'static Ffi,
    vm: &'static Vm,
    function: &'static Function,
    /// The machine's function that sets its instrument. If the run is not watched, we own a
    /// reference to it, because the caller may drop the machine during the run.
    set: *mut Object,
    kind: Kind,
    /// The export ids (the recorder's numbers) of the ops that the run calls, while the recorder
    /// learns which ops a run calls.
    #[expect(clippy::box_collection, reason = "the machine has the vector's address")]
    calls: Option<Box<Vec<u32>>>,
    /// Times in ticks: when our work for the run began, when the run itself began, and when it
    /// ended; 0 if the time is not known. The first time is measured only for runs that are not
    /// watched.
    entered: u64,
    begun: u64,
    ended: u64,
    /// Whether the model's function failed. A function that was left by an exception counts as
    /// failed.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Learned,
    Watched,
    Unwatched,
}

pub enum Plan {
    /// The call can be recorded. In a recording with a budget, `How` says how the recorder decides
    /// whether to record the call. The `Run` is set if the call has claimed the machine.
    Recorded(How, Option<Box<Run>>),
    /// The call is not recorded, because it is inside of a run that is not watched.
    Passed,
}

/// Decides how a call of this function is treated. `set` is the machine's function that sets its
/// instrument; the caller must own a reference to it.
#[inline(never)]
pub fn plan(
    ffi: &'static Ffi,
    vm: &'static Vm,
    function: &'static Function,
    set: *mut Object,
) -> Plan {
    guarded(|| planned(ffi, vm, function, set)).unwrap_or(Plan::Recorded(How::Always, None))
}

fn planned(
    ffi: &'static Ffi,
    vm: &'static Vm,
    function: &'static Function,
    set: *mut Object,
) -> Plan {
    const ORDINARY: Plan = Plan::Recorded(How::Always, None);
    let thread = bracket::thread(&ADAPTER);
    // SAFETY: `bracket::thread` returns null or the calling thread's own state.
    let Some(thread) = (unsafe { thread.as_mut() }) else { return ORDINARY };
    if !thread.draws.is_on() {
        return ORDINARY;
    }
    let watching = &vm.watching;
    let mend = || {
        switch(ffi, vm, set, true);
    };
    match watching.claim(thread, mend) {
        Claim::Mine => {}
        Claim::Within(UNWATCHED) => return Plan::Passed,
        Claim::Within(_) => {
            watching.note(function.export());
            return Plan::Recorded(How::AlwaysWatched(watching.one_in()), None);
        }
        Claim::Refused(is_unwatched) => {
            if is_unwatched {
                losses::lose(Loss::RunsUnlike, 1, 0);
            }
            return ORDINARY;
        }
    }
    if !watching.switch.is_there() || collectors::any() {
        watching.release();
        return ORDINARY;
    }
    // SAFETY: this thread has claimed the machine, and the reference is not used after this
    // statement.
    let next = unsafe { function.pattern() }.next(thread);
    let run = |kind| Run::new(ffi, vm, function, set, kind);
    match next {
        Next::Ordinary => {
            watching.release();
            ORDINARY
        }
        Next::Learn => {
            let mut run = run(Kind::Learned);
            watching.collect(&raw mut **run.calls.insert(Box::default()));
            run.begun = thread.run.clock.begin();
            Plan::Recorded(How::Always, Some(run))
        }
        Next::Watched(one_in) => {
            watching.set_one_in(one_in);
            let how = if one_in == 1 { How::Always } else { How::Never };
            let mut run = run(Kind::Watched);
            run.begun = thread.run.clock.begin();
            Plan::Recorded(how, Some(run))
        }
        Next::Unwatched(is_timed) => {
            let entered = if is_timed { thread.run.clock.begin() } else { 0 };
            if !switch(ffi, vm, set, false) {
                watching.release();
                return ORDINARY;
            }
            // SAFETY: the caller owns a reference to `set`, so the object is alive.
            unsafe { (ffi.retain)(set) };
            watching.set_unwatched();
            let mut run = run(Kind::Unwatched);
            if is_timed {
                (run.entered, run.begun) = (entered, thread.run.clock.begin());
            }
            Plan::Recorded(How::Due, Some(run))
        }
    }
}

/// Returns the calling thread's state if the thread is attached and the recording has a budget.
fn attached() -> Option<&'static mut Thread> {
    // SAFETY: `thread::current` returns null or the calling thread's own state, which stays mapped
    // as long as the thread lives.
    let thread = unsafe { thread::current().as_mut() }?;
    (epoch::wanted() && thread.is_attached() && thread.draws.is_on()).then_some(thread)
}

impl Run {
    #[inline(never)]
    fn new(
        ffi: &'static Ffi,
        vm: &'static Vm,
        function: &'static Function,
        set: *mut Object,
        kind: Kind,
    ) -> Box<Self> {
        let (calls, entered, begun, ended, failed) = (None, 0, 0, 0, true);
        Box::new(Self { ffi, vm, function, set, kind, calls, entered, begun, ended, failed })
    }

    /// Must be called immediately after the model's function has returned.
    pub fn ends(&mut self, failed: bool) {
        self.failed = failed;
        if self.begun != 0
            && let Some(thread) = attached()
        {
            self.ended = thread.run.clock.begin();
        }
    }

    #[inline(never)]
    fn end(&mut self) {
        let (vm, watching) = (self.vm, &self.vm.watching);
        let seen = watching.seen();
        if self.kind == Kind::Unwatched {
            switch(self.ffi, vm, self.set, true);
        }
        let timed = self.begun != 0 && self.ended != 0;
        if let Some(thread) = attached() {
            // SAFETY: this run has claimed the machine and has not released it yet, and there is no
            // other reference to the pattern.
            let pattern = unsafe { self.function.pattern() };
            let ran = self.ended.wrapping_sub(self.begun);
            guarded_apart(|| match self.kind {
                Kind::Learned => {
                    let calls = counted(thread, *self.calls.take().unwrap_or_default());
                    pattern.learn(thread, seen, calls, ran, self.failed || !timed);
                }
                Kind::Watched => pattern.compare(thread, seen, ran, self.failed || !timed),
                Kind::Unwatched => {
                    let own = || {
                        let own = thread.run.clock.begin().wrapping_sub(self.entered);
                        (ran, own.saturating_sub(ran))
                    };
                    let ticks = timed.then(own).filter(|(ran, _)| *ran < i64::MAX as u64);
                    let told = pattern.count(thread, ticks, self.failed);
                    vm.calls.fetch_add(told.into(), Ordering::Relaxed);
                }
            });
        }
        watching.release();
        if self.kind == Kind::Unwatched {
            // SAFETY: the run added a reference to `set` when it began, and gives it up here.
            unsafe { (self.ffi.release)(self.set) };
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        guarded(|| self.end());
    }
}

/// Returns each export in `calls` that is counted in the thread's table, and the number of times
/// that `calls` contains this export.
fn counted(thread: &Thread, mut calls: Vec<u32>) -> Vec<(u32, u64)> {
    let is_counted = |export: &u32| {
        thread.draws.entry(*export).is_some_and(|e| e.calls.load(Ordering::Relaxed) > 0)
    };
    calls.retain(is_counted);
    calls.sort_unstable();
    calls.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect()
}
