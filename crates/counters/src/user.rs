//! Reads counters without the kernel: with `rdpmc` on x86-64, from `PMEVCNTR`/`PMCCNTR` on
//! AArch64, and software counters from ring buffers ([`rings`]).
//!
//! ```text
//!  open ─► all of one kind? of this thread? ─► map each counter's page ─► all allow it?
//!             no │                                              no, or it fails │
//!                └──────────────► one read(2) per reading ◄─────────────────────┘
//! ```
//!
//! A group is read without the kernel as a whole or not at all, so that values and times cover one
//! interval. A reading takes tens of nanoseconds instead of hundreds, and no system call. Where
//! such a reading is not possible, the kernel reads the group, which is neither a loss nor an
//! error.
//!
//! # What keeps it correct
//!
//! - The pages of a thread's counters are only meaningful on that thread, which its thread pointer
//!   identifies.
//! - A forked child has no pages, because the kernel does not copy such mappings. Their addresses
//!   are in a separate table, which the kernel zeroes in a forked child, so that the child neither
//!   reads nor unmaps them.
//! - `close` also unmaps the pages. A counter whose descriptor is closed but whose page is still
//!   mapped continues to count and keeps its place in the PMU (measured).
//! - Pages are read once when they are mapped, so that no later reading causes a page fault.
//!
//! # What can go wrong
//!
//! If root disables user-space reads while a program uses them (by setting
//! `kernel.perf_user_access`, or `rdpmc` in sysfs, to 0), the next read traps and kills the
//! program, because the pages still say that reads are allowed. [`crate::Plan::kernel_reads_only`]
//! is for machines on which this can happen.

mod page;
mod pmu;
mod rings;
#[cfg(test)]
mod tests;

use core::ptr;

use model::{Counter, MAX_COUNTERS, PerfAttr, Source};

use self::page::{Attempt, Page};
use self::pmu::Hardware;
pub(crate) use self::pmu::thread_pointer;
use self::rings::Rings;
use crate::perf::{self, Target};
use crate::plan::{Group, Plan, SourceKind};
use crate::sys;

/// Size of a mapping without a ring buffer in bytes; the kernel rounds it up to its own page size.
const MAPPED: usize = 4096;

/// The addresses of the pages of one thread's counters, in memory that a forked child finds zeroed.
#[repr(C)]
pub(crate) struct Table {
    /// Nonzero in the process that created the table.
    alive: usize,
    /// The address of each counter's page, or null. A group has either all of its pages or none.
    pages: [*const Page; MAX_COUNTERS],
    /// A mask of the counters whose page is followed by a ring buffer.
    with_ring: u32,
    rings: Rings,
}

const _: () = assert!(size_of::<Table>() <= MAPPED);

impl Table {
    /// Makes a table. Returns null if there is no memory, or no `MADV_WIPEONFORK` (Linux before
    /// 4.14).
    pub(crate) fn make() -> *mut Table {
        match sys::map_wiped_on_fork(MAPPED) {
            Ok(at) => {
                let table = at.cast::<Table>();
                // SAFETY: the memory was mapped just now and is large enough, and its zeros are a
                // valid table.
                unsafe { (*table).alive = 1 };
                table
            }
            Err(_) => ptr::null_mut(),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive != 0
    }

    pub(crate) fn has(&self, first: usize) -> bool {
        self.pages.get(first).is_some_and(|page| !page.is_null())
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.pages.iter().filter(|page| !page.is_null()).map(|page| page.addr())
    }

    /// Maps the pages of a group, or none if one of its counters cannot be read through a page.
    /// `ns_per_tick` is the number that [`Plan::with_steady_ticks`] was given.
    pub(crate) fn map(
        &mut self,
        group: Group,
        kind: Kind,
        fds: &[i32; MAX_COUNTERS],
        ns_per_tick: u64,
    ) {
        let bytes = kind.mapped();
        for i in group.range() {
            let (Some(slot), Some(&fd)) = (self.pages.get_mut(i), fds.get(i)) else { return };
            if let Ok(at) = sys::map_counter(fd, bytes) {
                *slot = at.cast();
                if kind == Kind::Rings {
                    self.with_ring |= 1 << i;
                }
                // SAFETY: the page was mapped just now, is readable, and is as long as a `Page`.
                // Reading the page also makes its memory present.
                let page = unsafe { &**slot };
                let works = match kind {
                    Kind::Processors => page.allows(),
                    Kind::Rings => rings::is_ring(page),
                };
                if works {
                    continue;
                }
            }
            self.unmap(group);
            return;
        }
        if kind == Kind::Rings {
            self.rings.begin(group.first.into(), ns_per_tick);
        }
    }

    fn unmap(&mut self, group: Group) {
        for i in group.range() {
            let kind = if self.has_ring(i) { Kind::Rings } else { Kind::Processors };
            let Some(slot) = self.pages.get_mut(i).filter(|slot| !slot.is_null()) else { continue };
            sys::unmap(slot.cast_mut().cast(), kind.mapped());
            *slot = ptr::null();
            self.with_ring &= !(1 << i);
        }
    }

    /// Returns whether the counter has a ring buffer. Either all counters of a group have one, or
    /// none.
    pub(crate) fn has_ring(&self, counter: usize) -> bool {
        counter < MAX_COUNTERS && self.with_ring >> counter & 1 == 1
    }

    #[inline(always)]
    pub(crate) fn attempt_only_rings(&mut self, block: &mut [u64]) -> bool {
        self.attempt_rings(0, MAX_COUNTERS, block)
    }

    #[inline(always)]
    pub(crate) fn attempt_rings(&mut self, first: usize, len: usize, block: &mut [u64]) -> bool {
        let pages = &self.pages;
        // SAFETY: a pointer to a page is null, or the page is mapped until `free`.
        let page = |i: usize| unsafe {
            let page = if i < len { pages.get(first + i)? } else { return None };
            page.as_ref()
        };
        self.rings.attempt(first, page, &Hardware, block)
    }

    /// Lets the kernel fill in a group's block; see [`Rings::ask`].
    pub(crate) fn ask_for_rings(
        &mut self,
        first: usize,
        len: usize,
        ask: impl FnOnce(&mut [u64]) -> isize,
        block: &mut [u64],
    ) -> isize {
        let pages = &self.pages;
        // SAFETY: a pointer to a page is null, or the page is mapped until `free`.
        let page = |i: usize| unsafe {
            let page = if i < len { pages.get(first + i)? } else { return None };
            page.as_ref()
        };
        self.rings.ask(first, page, &Hardware, ask, block)
    }

    /// Unmaps every page and the table itself. In a forked child, the pages are gone already.
    ///
    /// # Safety
    /// `table` must come from [`Table::make`], must not be null, and must not be used afterwards.
    pub(crate) unsafe fn free(table: *mut Table) {
        // SAFETY: by contract, `Table::make` made the table and nobody uses it after this.
        unsafe {
            (*table).unmap(Group { first: 0, len: MAX_COUNTERS as u8, kind: SourceKind::Perf });
        }
        sys::unmap(table.cast(), MAPPED);
    }

    /// Reads the group of `len` counters that starts at the counter `first` into `block`. Must be
    /// called on the thread that opened the counters. Returns false if the kernel must read the
    /// group.
    pub(crate) fn read(&self, first: usize, len: usize, block: &mut [u64]) -> bool {
        page::read_group(|i| if i < len { self.page(first + i) } else { None }, &Hardware, block)
    }

    /// Makes one attempt to read the plan's only group.
    #[inline(always)]
    pub(crate) fn attempt_only_group(&self, block: &mut [u64]) -> bool {
        page::attempt(|i| self.page(i), &Hardware, block) == Attempt::Read
    }

    #[inline(always)]
    fn page(&self, counter: usize) -> Option<&Page> {
        // SAFETY: a pointer to a page is null, or the page is mapped until `free`.
        unsafe { self.pages.get(counter)?.as_ref() }
    }
}

/// A way to read a group without the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The processor's counters.
    Processors,
    /// The ring buffers of software counters.
    Rings,
}

impl Kind {
    /// Returns the number of bytes to map for a counter.
    fn mapped(self) -> usize {
        match self {
            Self::Processors => MAPPED,
            Self::Rings => rings::mapped(),
        }
    }
}

/// Returns the kind of pages through which a group could be read, or `None` if it cannot be read
/// without the kernel.
pub(crate) fn candidate(plan: &Plan, group: Group, target: Target) -> Option<Kind> {
    if target != Target::CALLING_THREAD || !plan.user_reads() {
        return None;
    }
    let hardware = |counter: &Counter| matches!(&counter.source, Source::Perf(a) if on_pmu(a));
    if plan.counters().get(group.range()).is_some_and(|members| members.iter().all(hardware)) {
        return Some(Kind::Processors);
    }
    (plan.ns_per_tick() != 0 && rings::is_candidate(plan, group)).then_some(Kind::Rings)
}

/// Returns whether a PMU counts the event. The kernel itself counts software events (kind 1),
/// tracepoints (kind 2) and breakpoints (kind 5).
fn on_pmu(attr: &PerfAttr) -> bool {
    !matches!(attr.kind, 1 | 2 | 5)
}

/// Returns the attributes with the bit that requests user-space reads, or `None` if no bit has to
/// be added. Only AArch64 has such a bit: bit 1 of `config1` for the generic, cache and raw kinds.
/// Other PMUs may use that bit for something else, so the user has to request such reads for their
/// events (with the term `rdpmc`). The generic, cache and raw kinds have neither a `path` nor a
/// `filter`, so the clone copies no string.
fn asking(attr: &PerfAttr) -> Option<PerfAttr> {
    let core = matches!(attr.kind, 0 | 3 | 4);
    let asks = cfg!(target_arch = "aarch64") && core && attr.config1 & 2 == 0;
    asks.then(|| PerfAttr { config1: attr.config1 | 2, ..attr.clone() })
}

/// Opens a counter to be read without the kernel. `None` means that it must be opened like any
/// other counter.
pub(crate) fn open(kind: Kind, attr: &PerfAttr, target: Target, leader: i32) -> Option<i32> {
    match kind {
        Kind::Processors => perf::open(&asking(attr)?, target, leader).ok(),
        Kind::Rings => perf::open_sampled(attr, target, leader).ok(),
    }
}
