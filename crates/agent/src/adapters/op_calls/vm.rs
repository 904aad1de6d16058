//! The machines of a process; a machine is something that calls ops. It is a virtual machine of TVM
//! with the agent's instrument, a machine that a host announces, or a whole host (PyTorch).

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use record::meta::{Frame, Library};

use crate::adapters::op_calls::watching::Watching;
use crate::process::hosts::Described;
use crate::process::lock::Lock;
use crate::process::names;
use crate::process::part::Process;
use crate::state::run::Run;

static VMS: AtomicPtr<Vm> = AtomicPtr::new(std::ptr::null_mut());

#[derive(Debug)]
pub struct Vm {
    pub number: u32,
    /// Id of the library that represents this machine in a profile.
    pub library: u32,
    name: String,
    pub host: &'static Described,
    /// For a virtual machine: the number of op calls while something was recorded. For runs that
    /// are not watched ([`Watching`]), the number includes the calls that such runs are known to
    /// make.
    pub calls: AtomicU64,
    pub inside: Inside,
    pub watching: Watching,
    /// Serial number of the part of the profile that contains the machine's metadata.
    told: AtomicU32,
    next: *const Vm,
}

/// Stores whether a virtual machine has called its instrument before an op, but not yet after this
/// op. If the instrument were removed in between, TVM would report an error.
#[derive(Debug, Default)]
pub struct Inside {
    /// The thread that last set `frame` at the start of an op, or 0.
    thread: AtomicUsize,
    /// Stack address of the machine's outermost op in progress, or 0. If an op threw an exception,
    /// its address stays here. The next op on the same thread then usually has the same or a higher
    /// stack address, and replaces it.
    frame: AtomicUsize,
}

impl Inside {
    fn here() -> usize {
        // SAFETY: `pthread_self` has no preconditions.
        unsafe { libc::pthread_self() as usize }
    }

    #[inline(always)]
    pub fn begin(&self, frame: usize) {
        let (here, open) = (Self::here(), self.frame.load(Ordering::Relaxed));
        if open == 0 || frame >= open || self.thread.load(Ordering::Relaxed) != here {
            self.thread.store(here, Ordering::Relaxed);
            self.frame.store(frame, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub fn end(&self, frame: usize) {
        if self.frame.load(Ordering::Relaxed) == frame {
            self.frame.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the calling thread, which is at the stack address `frame`, may remove the
    /// instrument. It may if no op of the machine has begun yet, or if the last op began on this
    /// thread and the thread is in none of the machine's ops.
    pub fn is_quiet(&self, frame: usize) -> bool {
        let (thread, open) =
            (self.thread.load(Ordering::Relaxed), self.frame.load(Ordering::Relaxed));
        thread == 0 || thread == Self::here() && (open == 0 || frame > open)
    }
}

// SAFETY: `next` is set before the value is shared, and never changed afterwards.
unsafe impl Sync for Vm {}

impl Vm {
    /// Writes the machine's metadata to the part of `process`, at most once per part. The caller
    /// must have the process's lock.
    pub fn tell(&self, process: &Process, run: &Run) {
        if self.told.swap(process.serial(), Ordering::Relaxed) == process.serial() {
            return;
        }
        process.tell(self.host);
        process.append(&Frame::Library(Library {
            id: self.library,
            name: self.name.clone(),
            host: self.host.number(),
            abi: 0,
            features: 0,
            sanitizer: 0,
            ticks: run.clock.begin(),
            exports: Vec::new(),
        }));
    }

    /// Registers a machine. Returns `None` if the process's lock cannot be taken.
    pub fn register(name: String, host: &'static Described) -> Option<&'static Self> {
        let _lock = Lock::take()?;
        let next = VMS.load(Ordering::Acquire);
        // SAFETY: `VMS` is null or a machine that `link` has leaked.
        let number = unsafe { next.as_ref() }.map_or(0, |last| last.number + 1);
        Some(Self::link(number, name, host, next))
    }

    fn link(number: u32, name: String, host: &'static Described, next: *mut Self) -> &'static Self {
        let vm = Self { next, ..Self::new(number, names::take_library(), name, host) };
        let vm = Box::leak(Box::new(vm));
        VMS.store(vm, Ordering::Release);
        vm
    }

    fn new(number: u32, library: u32, name: String, host: &'static Described) -> Self {
        Self {
            number,
            library,
            name,
            host,
            calls: AtomicU64::new(0),
            inside: Inside::default(),
            watching: Watching::default(),
            told: AtomicU32::new(0),
            next: std::ptr::null(),
        }
    }

    /// Makes a machine for calibration (which measures what empty ops cost). [`Vm::find`] does not
    /// find it, and no profile contains it.
    pub fn nowhere(host: &'static Described) -> &'static Self {
        Box::leak(Box::new(Self::new(u32::MAX - 1, u32::MAX, String::new(), host)))
    }

    /// Makes a machine for the parallel regions that are launched outside of any machine.
    pub fn outside(name: &str, host: &'static Described) -> &'static Self {
        Box::leak(Box::new(Self::new(u32::MAX, names::take_library(), name.to_owned(), host)))
    }

    pub fn find(number: i64) -> Option<&'static Self> {
        let mut at: *const Self = VMS.load(Ordering::Acquire);
        // SAFETY: each pointer in the list is null or a machine that `register` has leaked.
        while let Some(vm) = unsafe { at.as_ref() } {
            if i64::from(vm.number) == number {
                return Some(vm);
            }
            at = vm.next;
        }
        None
    }
}
