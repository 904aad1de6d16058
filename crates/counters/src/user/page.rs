//! The page that the kernel shares for each mapped counter, and the arithmetic on its fields.
//!
//! ```text
//!  lock ─► index, offset, width ─► the counter itself ─► time ─► lock again: equal and even?
//!                                                                no: once more
//!  value   = offset + sign_extend(counter, width)
//!  enabled = time_enabled + ns since the page was written (from the time-stamp counter)
//! ```
//!
//! The counter must be *sign*-extended. The kernel starts it at minus half of its range, so that
//! its overflow raises an interrupt, and compensates for this start in `offset`.
//!
//! Sources: `struct perf_event_mmap_page` in include/uapi/linux/perf_event.h of Linux 6.12 and the
//! algorithm in its comments.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, compiler_fence};

use model::MAX_COUNTERS;

use super::pmu::Pmu;

/// The part of `struct perf_event_mmap_page` that reads of counters and ring buffers need. The
/// fields are atomics because the kernel writes them; relaxed loads of atomics are plain loads.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Page {
    version: AtomicU32,
    compat_version: AtomicU32,
    /// Odd while the kernel writes the page. Each write changes the number.
    pub(crate) lock: AtomicU32,
    /// Number of the processor's counter plus one; 0 while no counter of the processor counts the
    /// event.
    pub(crate) index: AtomicU32,
    /// Signed number that is added to the processor's counter.
    pub(crate) offset: AtomicU64,
    pub(crate) time_enabled: AtomicU64,
    pub(crate) time_running: AtomicU64,
    pub(crate) capabilities: AtomicU64,
    /// Width of the counter in bits.
    pub(crate) pmc_width: AtomicU16,
    pub(crate) time_shift: AtomicU16,
    pub(crate) time_mult: AtomicU32,
    pub(crate) time_offset: AtomicU64,
    time_zero: AtomicU64,
    size: AtomicU32,
    reserved_1: AtomicU32,
    pub(crate) time_cycles: AtomicU64,
    pub(crate) time_mask: AtomicU64,
    reserved_2: [[AtomicU64; 29]; 4],
    /// Bytes that the kernel has written to the ring buffer.
    pub(crate) data_head: AtomicU64,
    data_tail: AtomicU64,
    data_offset: AtomicU64,
    /// Size of the ring buffer in bytes; 0 if there is none.
    pub(crate) data_size: AtomicU64,
}

const _: () = {
    assert!(offset_of!(Page, lock) == 8);
    assert!(offset_of!(Page, offset) == 16);
    assert!(offset_of!(Page, capabilities) == 40);
    assert!(offset_of!(Page, pmc_width) == 48);
    assert!(offset_of!(Page, time_offset) == 56);
    assert!(offset_of!(Page, size) == 72);
    assert!(offset_of!(Page, time_cycles) == 80);
    assert!(offset_of!(Page, time_mask) == 88);
    assert!(offset_of!(Page, data_head) == 1024);
    assert!(offset_of!(Page, data_size) == 1048);
};

/// `cap_user_rdpmc`: the counter can be read in user mode.
pub(crate) const CAP_USER_READ: u64 = 1 << 2;
/// `cap_user_time`: the time since the page was written can also be read in user mode.
pub(crate) const CAP_USER_TIME: u64 = 1 << 3;
/// `cap_user_time_short`: the time-stamp counter is shorter than 64 bits.
pub(crate) const CAP_USER_TIME_SHORT: u64 = 1 << 5;
/// The number of attempts that may find a changed page before the kernel must read the group. A
/// change is a context switch or an overflow, so two in a row are already rare.
const ATTEMPTS: usize = 8;

/// The capabilities needed to read a group without the kernel. Without the times, it is unknown how
/// much of an interval was counted.
const NEEDED: u64 = CAP_USER_READ | CAP_USER_TIME;

impl Page {
    pub(crate) fn allows(&self) -> bool {
        self.capabilities.load(Ordering::Relaxed) & NEEDED == NEEDED
    }

    /// Returns the counter's value if the processor counts the event now and its counter can be
    /// read in user mode. The caller must check that the kernel did not change the page meanwhile.
    #[inline(always)]
    fn value<P: Pmu>(&self, pmu: &P, capabilities: u64) -> Option<u64> {
        let index = self.index.load(Ordering::Relaxed);
        if index == 0 || capabilities & CAP_USER_READ == 0 {
            return None;
        }
        let offset = self.offset.load(Ordering::Relaxed);
        let width = self.pmc_width.load(Ordering::Relaxed);
        Some(offset.wrapping_add(sign_extend(pmu.counter(index)?, width)))
    }

    /// Returns the nanoseconds since the page was written, if the page allows computing them.
    #[inline(always)]
    fn elapsed<P: Pmu>(&self, pmu: &P, capabilities: u64) -> Option<u64> {
        if capabilities & CAP_USER_TIME == 0 {
            return None;
        }
        let mut ticks = pmu.ticks();
        if capabilities & CAP_USER_TIME_SHORT != 0 {
            let cycles = self.time_cycles.load(Ordering::Relaxed);
            let mask = self.time_mask.load(Ordering::Relaxed);
            ticks = cycles.wrapping_add(ticks.wrapping_sub(cycles) & mask);
        }
        let mult = self.time_mult.load(Ordering::Relaxed);
        let shift = self.time_shift.load(Ordering::Relaxed);
        let offset = self.time_offset.load(Ordering::Relaxed);
        Some(offset.wrapping_add(nanoseconds(ticks, mult, shift)))
    }
}

/// Extends `counter`, a signed number of `width` bits, to 64 bits.
#[inline(always)]
pub(crate) fn sign_extend(counter: u64, width: u16) -> u64 {
    let unused = 64u32.wrapping_sub(width.into()) & 63;
    ((counter << unused) as i64 >> unused) as u64
}

/// Computes `ticks · mult / 2^shift` modulo 2⁶⁴. The product could overflow, so the quotient and
/// the remainder of `ticks / 2^shift` are multiplied separately.
#[inline(always)]
pub(crate) fn nanoseconds(ticks: u64, mult: u32, shift: u16) -> u64 {
    let (mult, shift) = (u64::from(mult), u32::from(shift) & 63);
    let whole = ticks >> shift;
    let rest = ticks & ((1 << shift) - 1);
    whole.wrapping_mul(mult).wrapping_add(rest.wrapping_mul(mult) >> shift)
}

/// Reads a group into `block`, whose layout [`crate::readings`] describes. Leaves the words for the
/// number of counters and for their ids unchanged. Returns false if the kernel must read the group.
/// `pages` returns the group's pages by their position in the group; the first `None` ends the
/// group.
#[inline]
pub(crate) fn read_group<'p, P: Pmu>(
    pages: impl Fn(usize) -> Option<&'p Page>,
    pmu: &P,
    block: &mut [u64],
) -> bool {
    for _ in 0..ATTEMPTS {
        match attempt(&pages, pmu, block) {
            Attempt::Read => return true,
            Attempt::AskTheKernel => return false,
            Attempt::Changed => {}
        }
    }
    false
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// All values and times belong to one interval.
    Read,
    /// Reading in user mode is impossible, at least now.
    AskTheKernel,
    /// The kernel wrote to a page during the attempt.
    Changed,
}

/// Makes one attempt to read a group.
///
/// If the attempt succeeds, all values come from one interval without a context switch. Every
/// switch writes the page of every counter, so the last check, of the leader's page, detects it.
///
/// Like the kernel's own example, the code needs no fence of the processor: the kernel writes the
/// page of a thread's counter on the thread's CPU, between two instructions of the thread.
#[inline(always)]
pub(crate) fn attempt<'p, P: Pmu>(
    pages: impl Fn(usize) -> Option<&'p Page>,
    pmu: &P,
    block: &mut [u64],
) -> Attempt {
    let (Some(leader), Some([_, to_enabled, to_running, to_value])) =
        (pages(0), block.first_chunk_mut())
    else {
        return Attempt::AskTheKernel;
    };
    let lock = leader.begin();
    let capabilities = leader.capabilities.load(Ordering::Relaxed);
    let Some(value) = leader.value(pmu, capabilities) else { return Attempt::AskTheKernel };
    let Some(elapsed) = leader.elapsed(pmu, capabilities) else { return Attempt::AskTheKernel };
    *to_enabled = leader.time_enabled.load(Ordering::Relaxed).wrapping_add(elapsed);
    *to_running = leader.time_running.load(Ordering::Relaxed).wrapping_add(elapsed);
    *to_value = value;
    for member in 1..MAX_COUNTERS {
        let Some(page) = pages(member) else { break };
        let lock = page.begin();
        let capabilities = page.capabilities.load(Ordering::Relaxed);
        let (Some(value), Some(to)) =
            (page.value(pmu, capabilities), block.get_mut(3 + 2 * member))
        else {
            return Attempt::AskTheKernel;
        };
        if page.changed(lock) {
            return Attempt::Changed;
        }
        *to = value;
    }
    if leader.changed(lock) { Attempt::Changed } else { Attempt::Read }
}

impl Page {
    #[inline(always)]
    pub(crate) fn begin(&self) -> u32 {
        let lock = self.lock.load(Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        lock
    }

    /// Returns whether the kernel has written to this page since [`Page::begin`], or was writing
    /// then.
    #[inline(always)]
    pub(crate) fn changed(&self, before: u32) -> bool {
        compiler_fence(Ordering::SeqCst);
        before & 1 != 0 || self.lock.load(Ordering::Relaxed) != before
    }
}
