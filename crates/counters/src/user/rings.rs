//! Reads software counters without the kernel, from the number of bytes that were written to a ring
//! buffer.
//!
//! Without a system call, programs can read the values of hardware counters only. But the kernel
//! can write a *sample* of an event to a ring buffer that the program maps, and it publishes how
//! many bytes it has written. If each event is sampled (period 1), and a sample is only its header,
//! then
//!
//! ```text
//!  value = value that the kernel said last + bytes written since then / 8
//! ```
//!
//! ```text
//!  page 0: struct perf_event_mmap_page          page 1: the samples
//!  ┌──────────────┬─────────────┬────────┐      ┌────────┬────────┬────────┬──
//!  │ lock, …      │ data_head ──┼────────┼────► │ header │ header │ header │ …  nobody reads them
//!  └──────────────┴─────────────┴────────┘      └────────┴────────┴────────┴──
//! ```
//!
//! The value is exact for these reasons (kernel/events/core.c and ring_buffer.c of Linux 6.12):
//!
//! - The kernel counts a software event and writes its sample in one place (`perf_swevent_event`),
//!   under the same conditions, before the thread continues.
//! - Events with period 1 are never throttled. The first sample of an occurrence never causes
//!   throttling, and with period 1 each occurrence has only one sample.
//! - A ring buffer that is mapped read-only is overwritten. So no sample is lost for want of room,
//!   and `data_head` always advances.
//!
//! The time for which the group was enabled is the thread's time on a processor. The kernel writes
//! page 0 each time that it schedules the thread in (`perf_swevent_add`). While `lock` is
//! unchanged, the thread has stayed on its processor, and the time-stamp counter says how long:
//!
//! ```text
//!  lock as at the last reading by the kernel? ── no ──► read(2), note value, time, ticks and lock
//!     │ yes
//!     └──► ticks, data_head of each counter ─► lock still the same? ── no ──► read(2)
//! ```
//!
//! The cost is two pages of memory for each counter of each thread, and a sample for each event.
//! The kernel counts these pages as locked memory; what exceeds `kernel.perf_event_mlock_kb` counts
//! towards `RLIMIT_MEMLOCK`. The time for a sample is too short to be seen beside the time for a
//! page fault (measured). If the buffer cannot be mapped, the kernel makes each reading.

use core::sync::atomic::Ordering;

use model::{Counter, MAX_COUNTERS, PerfAttr, Source};

use super::page::Page;
use super::pmu::Pmu;
use crate::plan::{Group, Plan};
use crate::sys;

/// Events of type 1 (`PERF_TYPE_SOFTWARE`) that the kernel counts one by one: page faults, context
/// switches, migrations, minor and major faults.
const COUNTED: [u64; 5] = [2, 3, 4, 5, 6];
/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// Size of a sample without any content: a `struct perf_event_header`.
const SAMPLE: u64 = 8;

/// Returns whether all counters of a group can be read from ring buffers. A tracepoint may count
/// system calls. If the plan has a tracepoint, the kernel makes each reading, so that every reading
/// adds the same number of our own system calls.
pub(crate) fn is_candidate(plan: &Plan, group: Group) -> bool {
    let counted = |counter: &Counter| match &counter.source {
        Source::Perf(attr) => is_counted(attr),
        Source::Sim(_) => false,
    };
    let tracepoint = |counter: &Counter| matches!(&counter.source, Source::Perf(attr) if attr.kind == TRACEPOINT);
    if plan.counters().iter().any(tracepoint) {
        return false;
    }
    plan.counters().get(group.range()).is_some_and(|members| members.iter().all(counted))
}

fn is_counted(attr: &PerfAttr) -> bool {
    attr.kind == 1 && COUNTED.contains(&attr.config) && !attr.pinned && !attr.exclusive
}

/// Returns the number of bytes to map: those of the page that the kernel shares, and those of the
/// smallest ring buffer.
pub(crate) fn mapped() -> usize {
    2 * sys::page_size()
}

pub(crate) fn is_ring(page: &Page) -> bool {
    page.data_size.load(Ordering::Relaxed) != 0
}

/// Returns the number of events that were written to the buffer.
#[inline(always)]
fn written(page: &Page) -> u64 {
    page.data_head.load(Ordering::Relaxed) / SAMPLE
}

/// The state of a group at its last reading by the kernel, and the enabled time that was returned
/// since.
#[repr(C)]
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Default))]
struct Last {
    /// The `lock` of the leader's page. An odd number, which no page has while its thread runs,
    /// means that no later reading can start from this state.
    lock: u32,
    ticks: u64,
    /// The nanoseconds for which the group was enabled. The group ran for the same time.
    enabled: u64,
    /// The enabled time that the latest reading returned. If the hypervisor took the processor while
    /// the kernel read the group, it is later than the kernel's. The next reading in the group's own
    /// thread returns a later one still: a group that ran for no time has no counts (see
    /// `profile::Status`).
    returned: u64,
}

#[repr(C)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Rings {
    /// Nanoseconds in a tick, times 2³².
    rate: u64,
    /// For each group, its last reading by the kernel, at the index of the group's first counter.
    last: [Last; MAX_COUNTERS],
    /// For each counter, its value when nothing had been written to its buffer.
    bases: [u64; MAX_COUNTERS],
}

impl Rings {
    /// Prepares a group that has just got its ring buffers.
    pub(crate) fn begin(&mut self, first: usize, rate: u64) {
        self.rate = rate;
        if let Some(last) = self.last.get_mut(first) {
            last.lock = 1;
        }
    }

    /// Makes one attempt to read the group that starts at `first` into its block. `pages` returns
    /// the group's pages by their position; the first `None` ends the group. Returns false if the
    /// kernel must read the group.
    #[inline(always)]
    pub(crate) fn attempt<'p, P: Pmu>(
        &mut self,
        first: usize,
        pages: impl Fn(usize) -> Option<&'p Page>,
        pmu: &P,
        block: &mut [u64],
    ) -> bool {
        let (Some(leader), Some(last), Some(bases)) =
            (pages(0), self.last.get_mut(first), self.bases.get(first..))
        else {
            return false;
        };
        let lock = leader.begin();
        if lock != last.lock {
            return false;
        }
        let since = pmu.ticks().wrapping_sub(last.ticks);
        let mut to = block.get_mut(3..).unwrap_or(&mut []).iter_mut().step_by(2);
        for (member, base) in bases.iter().enumerate() {
            let (Some(page), Some(to)) = (pages(member), to.next()) else { break };
            *to = base.wrapping_add(written(page));
        }
        if leader.changed(lock) {
            return false;
        }
        let ns = (u128::from(since) * u128::from(self.rate)) >> 32;
        let enabled = last.enabled.wrapping_add(ns as u64).max(last.returned.wrapping_add(1));
        last.returned = enabled;
        if let Some([_, to_enabled, to_running]) = block.first_chunk_mut() {
            (*to_enabled, *to_running) = (enabled, enabled);
        }
        true
    }

    /// Calls `ask` to let the kernel fill in the group's `block`, and returns the result of `ask`:
    /// the number of bytes, or a negative error number. Stores the numbers that later readings
    /// need.
    pub(crate) fn ask<'p, P: Pmu>(
        &mut self,
        first: usize,
        pages: impl Fn(usize) -> Option<&'p Page>,
        pmu: &P,
        ask: impl FnOnce(&mut [u64]) -> isize,
        block: &mut [u64],
    ) -> isize {
        let (Some(leader), Some(last), Some(bases)) =
            (pages(0), self.last.get_mut(first), self.bases.get_mut(first..))
        else {
            return ask(block);
        };
        let counters = || (0..MAX_COUNTERS).map_while(&pages);
        let lock = leader.begin();
        for (page, base) in counters().zip(bases.iter_mut()) {
            *base = written(page);
        }
        let before = pmu.ticks();
        let got = ask(block);
        let after = pmu.ticks();
        last.lock = 1;
        let Some([_, enabled, running]) = block.first_chunk_mut().filter(|_| got > 0) else {
            return got;
        };
        // In another thread that shares these pages, the time stands still.
        let has_run = *enabled > last.enabled;
        last.enabled = *enabled;
        let is_still = counters().zip(bases.iter()).all(|(page, base)| written(page) == *base);
        // A group that consists only of software counters runs whenever it is enabled.
        if is_still && enabled == running && !leader.changed(lock) {
            last.lock = lock;
            last.ticks = before.wrapping_add(after.wrapping_sub(before) / 2);
        }
        last.returned = last.returned.wrapping_add(has_run.into()).max(*enabled);
        (*enabled, *running) = (last.returned, last.returned.max(*running));
        let values = block.get(3..).unwrap_or(&[]).iter().step_by(2);
        counters().zip(bases.iter_mut()).zip(values).for_each(|((_, base), value)| {
            *base = value.wrapping_sub(*base);
        });
        got
    }
}
