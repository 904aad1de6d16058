//! For an op of the backward pass, finds the op of the forward pass to which it belongs.
//!
//! PyTorch gives each op of the forward pass a sequence number: the number of nodes that the thread
//! added to autograd's graph before the op began. In the backward pass, autograd passes the number
//! of a node, and the number of the thread that made the node, to each op. Several nested ops have
//! the same sequence number if they began before the node was made; of these, the op that began
//! last made the node. PyTorch's own profiler links forward and backward ops in the same way.
//!
//! For each thread with a number below `MOST_THREADS`, a ring buffer contains the ops with the
//! latest sequence numbers. If the forward op is no longer in the buffer, the backward op is
//! recorded without a link to it.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::torch::ops::{Call, kind};

use crate::os::sys::{self, ErrnoGuard};
use crate::recorder::thread::Thread;

/// Number of sequence numbers in a ring.
const KEPT: usize = 1 << 14;
/// Threads whose number is below this can have a ring. PyTorch numbers threads from 1.
const MOST_THREADS: usize = 1024;

struct Ring {
    /// Serial number of the part of the profile to which the ring's ops belong; 0 while the ring is
    /// being cleared.
    serial: AtomicU32,
    /// The process that mapped the ring. A forked child maps a new ring, because its first write to
    /// each page that it has inherited would cause a page fault (copy on write).
    process: AtomicU32,
    /// One word for each sequence number modulo [`KEPT`]. The upper half contains the lower 32 bits
    /// of the sequence number. The lower half contains the op's export id (its number in the
    /// profile) plus one, or 0.
    ops: [AtomicU64; KEPT],
}

static RINGS: [AtomicPtr<Ring>; MOST_THREADS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_THREADS];

/// Stores an op of the forward pass in the thread's ring, and returns 0. For an op of the backward
/// pass, returns the export id of its forward op plus one, or 0 if the forward op is not known.
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
    // SAFETY: the pointer is null or a ring that `make` has mapped, which is never unmapped.
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
    // The pages are present from the start, so that the first write to them causes no page fault
    // that is counted for the program.
    let ring = sys::map_present(size_of::<Ring>()).ok()?.cast::<Ring>();
    // SAFETY: the ring was just mapped, zeros are a valid ring, and it is never unmapped.
    let made = unsafe { &*ring };
    made.process.store(here, Ordering::Relaxed);
    made.serial.store(serial, Ordering::Relaxed);
    place.store(ring, Ordering::Release);
    Some(made)
}
