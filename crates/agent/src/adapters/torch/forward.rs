//! Finds the forward op of a call of the backward pass.
//!
//! PyTorch gives each op of the forward pass a sequence number, which counts the nodes of
//! autograd's graph that the thread has made. Autograd passes the number of a node, and the thread
//! that made it, to the calls of the backward pass. Several nested ops have the same number,
//! because they began before the node was made; the one that began last made it. PyTorch's own
//! profiler links the two in the same way.
//!
//! Each thread has a ring of its latest numbers. It is long enough for a very deep model; a forward
//! op that has been overwritten is not known, which is not an error.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::torch::ops::{Call, kind};

use crate::os::sys::{self, ErrnoGuard};
use crate::recorder::thread::Thread;

/// Number of sequence numbers that a thread keeps.
const KEPT: usize = 1 << 14;
/// Number of threads that can have a ring. PyTorch numbers threads from 1.
const MOST_THREADS: usize = 1024;

/// The latest forward ops of one thread.
struct Ring {
    /// Serial number of the part of the profile in which the ring is valid; 0 while it is cleared.
    serial: AtomicU32,
    /// The process that mapped the ring. A forked child maps its own, because its first write to a page
    /// of this one would be a page fault.
    process: AtomicU32,
    /// For each sequence number modulo [`KEPT`]: the number's lower half, and one more than the
    /// export of the op; 0 if there is none.
    ops: [AtomicU64; KEPT],
}

static RINGS: [AtomicPtr<Ring>; MOST_THREADS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_THREADS];

/// Notes a call of the forward pass, and returns 0. For a call of the backward pass, returns one more
/// than the export of its forward op, or 0 if that is not known.
#[inline(always)]
pub fn note(thread: &Thread, call: &Call, export: u32) -> u64 {
    let serial = thread.serial;
    let at = call.sequence as usize % KEPT;
    let number = (call.sequence as u64) << 32;
    if call.kind == kind::BACKWARD || call.forward_thread != 0 {
        let Some(ring) = ring(call.forward_thread) else { return 0 };
        if ring.serial.load(Ordering::Relaxed) != serial {
            return 0;
        }
        let found = ring.ops[at].load(Ordering::Relaxed);
        return if found & !u64::from(u32::MAX) == number {
            found & u64::from(u32::MAX)
        } else {
            0
        };
    }
    let ring = match ring(call.thread) {
        Some(ring) if ring.serial.load(Ordering::Relaxed) == serial => ring,
        _ => match make(call.thread, serial) {
            Some(ring) => ring,
            None => return 0,
        },
    };
    ring.ops[at].store(number | (u64::from(export) + 1), Ordering::Relaxed);
    0
}

#[inline(always)]
fn ring(thread: u64) -> Option<&'static Ring> {
    let place = RINGS.get(usize::try_from(thread).ok()?)?;
    // SAFETY: a place holds null or a ring that `make` has mapped and nobody unmaps.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

#[cold]
#[inline(never)]
fn make(thread: u64, serial: u32) -> Option<&'static Ring> {
    let _errno = ErrnoGuard::new();
    let place = RINGS.get(usize::try_from(thread).ok()?)?;
    let here = sys::process_id();
    if let Some(old) = ring(thread).filter(|ring| ring.process.load(Ordering::Relaxed) == here) {
        // The ring is from an earlier session. Only this thread writes to it.
        old.serial.store(0, Ordering::Relaxed);
        old.ops.iter().for_each(|op| op.store(0, Ordering::Relaxed));
        old.serial.store(serial, Ordering::Release);
        return Some(old);
    }
    // The memory is present from the start, so that writing to it is no page fault of the program.
    let ring = sys::map_present(size_of::<Ring>()).ok()?.cast::<Ring>();
    // SAFETY: the ring was just mapped, zeros are a valid ring, and nobody unmaps it.
    let made = unsafe { &*ring };
    made.process.store(here, Ordering::Relaxed);
    made.serial.store(serial, Ordering::Relaxed);
    place.store(ring, Ordering::Release);
    Some(made)
}
