//! Finds the calling thread's table of an instrumented module: the memory in which the thread
//! counts the module's hits (executions of its functions and loops). Instrumented functions call
//! [`enter`] at their start.

use std::sync::atomic::Ordering;

use abi::loops::{Entry, Module};

use super::modules::{self, Known};
use super::{code, counters, local, tables};
use crate::os::sys::ErrnoGuard;
use crate::process::load;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::state::epoch;
use crate::state::run::{self, Run};

/// Returns the calling thread's table of a module, or null if nothing is to be counted or no table
/// could be made.
///
/// # Safety
/// `module` must be a descriptor (the struct that describes a module) that was registered.
pub unsafe extern "C" fn enter(module: *mut Module) -> *mut Entry {
    // SAFETY: `places` is null or points to memory of this thread, which stays mapped until
    // `places` is changed. By contract, `module` is a registered descriptor.
    unsafe {
        let places = (*local::get()).places;
        let number = (*module).handle.load(Ordering::Relaxed) as usize;
        if !places.is_null() {
            let at = (*places).get(number, epoch::current());
            if at as usize > local::NOTHING {
                return at;
            }
            if at as usize == local::NOTHING {
                return std::ptr::null_mut();
            }
        }
        enter_first(module)
    }
}

/// Makes the calling thread's table of this module, if loops are being recorded.
///
/// # Safety
/// The requirements of [`enter`] apply.
#[cold]
#[inline(never)]
unsafe fn enter_first(module: *mut Module) -> *mut Entry {
    let without_loops = run::current().is_some_and(|run| run.loops.is_none());
    if !epoch::wanted() || without_loops {
        return std::ptr::null_mut();
    }
    let _errno = ErrnoGuard::new();
    // SAFETY: by contract, `module` is a registered descriptor.
    let made = guarded_apart(|| unsafe { make(module) }).flatten();
    made.unwrap_or(std::ptr::null_mut())
}

/// # Safety
/// The requirements of [`enter`] apply.
unsafe fn make(module: *mut Module) -> Option<*mut Entry> {
    point!(LoopEnter);
    // The epoch (number of the recording) is read before the run (the recording's settings) is
    // loaded. So if a session begins in between, the table has the old epoch and will be made
    // again.
    let epoch = epoch::current();
    let run = load::load()?;
    // SAFETY: by contract, `module` is a registered descriptor, and a registered descriptor has its
    // number.
    let (known, process) = unsafe { announce(module, run) }?;
    tables::make(known, epoch, run, process)
}

/// Writes the module's metadata and the place of its code to the profile, and the options of the
/// recording to the descriptor.
///
/// # Safety
/// `at` must be a descriptor that has been given its number.
pub unsafe fn announce(at: *mut Module, run: &'static Run) -> Option<(&'static Known, Process)> {
    let options = run.loops?;
    let process = Process::current(run)?;
    // SAFETY: by contract, `at` is a descriptor. Fields that change after its registration are
    // atomic.
    let module = unsafe { &*at };
    // All threads write the same two numbers during a recording. Instrumented code that reads them
    // at this moment gets the old or the new ones.
    module.first.store(options.first, Ordering::Relaxed);
    module.gap_mask.store(options.gap_mask, Ordering::Relaxed);
    let known = modules::find(module.handle.load(Ordering::Acquire) as u32)?;
    let (begin, end) = match counters::count(run, known.mode) {
        0 => (std::ptr::null_mut(), std::ptr::null_mut()),
        _ => (counters::begin as *mut (), counters::end as *mut ()),
    };
    // It does no harm if instrumented code sees only one of the two new pointers.
    module.begin.store(begin, Ordering::Relaxed);
    module.end.store(end, Ordering::Relaxed);
    known.announce(module, options, &process);
    code::note(known, module, options.keep_code, &process);
    Some((known, process))
}
