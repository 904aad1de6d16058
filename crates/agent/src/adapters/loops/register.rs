//! The functions that instrumented modules call from their constructors and destructors.

use std::sync::atomic::{AtomicBool, Ordering};

use abi::loops::{MAGIC, Mode, Module, VERSION};
use model::Loss;

use super::modules::Origin;
use super::{enter, log, modules, notes};
use crate::os::sys::ErrnoGuard;
use crate::process::lock::Lock;
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::process::{load, losses};
use crate::state::{epoch, run, run_file};

const REGISTERED: i32 = 0;
const NOTHING_RECORDED: i32 = 1;
const REFUSED: i32 = -1;

/// Whether this library's constructor has run. Before that, the agent has not read the environment
/// variables that say what to record.
static CONSTRUCTED: AtomicBool = AtomicBool::new(false);
/// Whether a module tried to register before this library's constructor had run. The constructors
/// of libraries that a program is linked with can run before those of a preloaded library.
static EARLY: AtomicBool = AtomicBool::new(false);

/// Called at the end of this library's constructor.
pub fn constructed() {
    CONSTRUCTED.store(true, Ordering::Release);
    if EARLY.load(Ordering::Acquire) {
        register_all();
    }
}

/// Registers the loaded instrumented modules that have Counterpoint's ELF note. A module that is
/// already registered keeps its number.
pub fn register_all() {
    // `find` holds the dynamic linker's lock only during the search. So this thread does not hold
    // it while it registers modules.
    for at in notes::find() {
        // SAFETY: `find` returns only addresses at which enough loaded memory follows for a
        // descriptor. `register` itself checks that a descriptor is there.
        unsafe { register(at as *mut Module, None) };
    }
}

/// Registers an instrumented module.
///
/// # Safety
/// `module` must be null, or point to a descriptor (the struct that `include/counterpoint/loops.h`
/// defines) or to other readable memory of a descriptor's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_loops_register(module: *mut Module) -> i32 {
    let _errno = ErrnoGuard::new();
    // SAFETY: `register` has the same contract as this function.
    guarded_apart(|| unsafe { register(module, None) }).unwrap_or(NOTHING_RECORDED)
}

/// Unregisters a module that is about to be unloaded.
///
/// # Safety
/// `module` must be null or point to a descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterpoint_loops_unregister(module: *mut Module) {
    guarded(|| {
        point!(LoopUnregister);
        // SAFETY: by contract, `module` is null or points to a descriptor.
        let Some(module) = (unsafe { module.as_ref() }) else { return };
        if mode_of(module).is_none() {
            return;
        }
        // Destructors of other libraries can still enter the module's code. The module's code then
        // finds that `enter` is null, and counts nothing.
        module.enter.store(std::ptr::null_mut(), Ordering::Release);
        module.handle.store(0, Ordering::Relaxed);
        module.unregister.store(std::ptr::null_mut(), Ordering::Relaxed);
    });
}

/// Returns the mode of a descriptor (the struct that describes a module), if this agent supports
/// its version and its mode.
fn mode_of(module: &Module) -> Option<Mode> {
    let known = module.magic == MAGIC
        && module.size as usize == size_of::<Module>()
        && module.version == VERSION;
    if known { Mode::from_u32(module.mode) } else { None }
}

/// # Safety
/// The requirements of [`counterpoint_loops_register`] apply.
pub unsafe fn register(at: *mut Module, origin: Option<Origin>) -> i32 {
    point!(LoopRegister);
    if at.is_null() || !at.is_aligned() {
        return REFUSED;
    }
    // SAFETY: by contract, `at` points to readable memory, and `mode_of` compares its magic number
    // and size before it uses other fields. Fields that other threads may write are atomic, or are
    // written before `enter` is set.
    let module = unsafe { &*at };
    let mode = mode_of(module);
    if !CONSTRUCTED.load(Ordering::Acquire) {
        EARLY.store(true, Ordering::Release);
        return if mode.is_some() { NOTHING_RECORDED } else { REFUSED };
    }
    let asked = run_file::is_asked_for();
    let run = if asked { load::load() } else { run::current() };
    let run = run.filter(|run| run.loops.is_some() && epoch::wanted());
    let Some(mode) = mode else {
        if let Some(run) = run {
            match Process::current(run) {
                Some(process) => process.lose(Loss::LibraryRejected, 1, 0),
                None => losses::with_run_row(|row| row.lose(Loss::LibraryRejected, 1, 0)),
            }
        }
        return REFUSED;
    };
    // No loops are recorded if the agent is off or the module has no ids. The same is true if the
    // environment asks for a run that was not loaded, has ended or does not record loops.
    if epoch::is_off() || asked && run.is_none() || module.ids == 0 {
        return NOTHING_RECORDED;
    }
    if module.handle.load(Ordering::Acquire) == 0 {
        // `place_of` takes the dynamic linker's lock, so it is called before `Lock::take`. In the
        // other order, two threads could wait for each other: another thread may hold the linker's
        // lock and wait in `Lock::take`.
        let origin = origin
            .unwrap_or_else(|| Origin { place: modules::place_of(at as usize), export: None });
        let costs = match modules::is_known(module, mode, &origin) {
            true => None,
            // SAFETY: no thread uses the descriptor yet, because its `enter` is still null.
            false => unsafe { modules::measure(at, mode) },
        };
        let Some(lock) = Lock::take() else { return NOTHING_RECORDED };
        let known = modules::remember(module, mode, origin, costs, &lock);
        module.handle.store(known.number.into(), Ordering::Relaxed);
        if mode == Mode::Log {
            module.log.store(log::address(), Ordering::Relaxed);
        }
        module.unregister.store(counterpoint_loops_unregister as *mut (), Ordering::Relaxed);
    }
    let mut result = NOTHING_RECORDED;
    if let Some(run) = run {
        // SAFETY: `at` is the descriptor that is being registered, and its `handle` is set, now or
        // at an earlier registration.
        if unsafe { enter::announce(at, run) }.is_some() {
            result = REGISTERED;
        }
    }
    module.enter.store(enter::enter as *mut (), Ordering::Release);
    result
}
