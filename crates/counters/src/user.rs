//! Reading without the kernel: `rdpmc` on x86-64, `PMEVCNTR`/`PMCCNTR` on AArch64.
//!
//! ```text
//!  open ─► hardware counters only? of this thread? ─► map each counter's page ─► all allow it?
//!             no │                                                     no, or it fails │
//!                └──────────────► one read(2) per reading ◄────────────────────────────┘
//! ```
//!
//! A group is read this way as a whole or not at all: values and times of one interval.
//! Tens of nanoseconds instead of hundreds, and no system call; nothing is lost when it does not
//! work, so that is neither a loss nor an error, and [`crate::ThreadCounters::user_reads`] says which
//! groups it is.
//!
//! # What keeps it right
//!
//! - The pages of a thread's counters mean something on that thread only: another thread (its
//!   thread pointer differs) asks the kernel.
//! - A forked child has no pages (the kernel does not copy such mappings). Their addresses are
//!   in a table of its own that a fork wipes, so that the child neither reads nor unmaps them.
//! - `close` unmaps too: a counter whose descriptor is closed but whose page is mapped goes on
//!   counting and keeps its place in the PMU (measured).
//! - Pages are touched at once, so that no reading faults.
//!
//! # What can go wrong
//!
//! If root takes user-space reads away while a program uses them (`kernel.perf_user_access`, or
//! `rdpmc` in sysfs, set to 0), the next one traps and kills the program, whoever reads so: the
//! pages go on allowing what the processor refuses. [`crate::Plan::kernel_reads_only`] is for
//! machines where that happens.

mod page;
mod pmu;
#[cfg(test)]
mod tests;

use core::ptr;

use model::{Counter, MAX_COUNTERS, PerfAttr, Source};

use self::page::{Attempt, Page};
use self::pmu::Hardware;
pub(crate) use self::pmu::thread_pointer;
use crate::perf::Target;
use crate::plan::{Group, Plan, SourceKind};
use crate::sys;

/// Bytes of a mapping; the kernel rounds up to its own pages.
const MAPPED: usize = 4096;

/// Where the pages of one thread's counters are. In memory that a forked child finds zeroed.
#[repr(C)]
pub(crate) struct Table {
    /// Not zero in the process that made the table.
    alive: usize,
    /// Null for a counter without a page; a group has all of its pages or none.
    pages: [*const Page; MAX_COUNTERS],
}

const _: () = assert!(size_of::<Table>() <= MAPPED);

impl Table {
    /// A table without pages; null if there is no memory for it, or no `MADV_WIPEONFORK` (Linux
    /// before 4.14).
    pub(crate) fn make() -> *mut Table {
        match sys::map_wiped_on_fork(MAPPED) {
            Ok(at) => {
                let table = at.cast::<Table>();
                // SAFETY: fresh zeroed memory that is large enough; zeros are a valid table.
                unsafe { (*table).alive = 1 };
                table
            }
            Err(_) => ptr::null_mut(),
        }
    }

    /// Whether this is the process that made the table.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive != 0
    }

    /// Whether the group whose first counter is `first` has pages.
    pub(crate) fn has(&self, first: usize) -> bool {
        self.pages.get(first).is_some_and(|page| !page.is_null())
    }

    /// Where the pages are.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = usize> {
        self.pages.iter().filter(|page| !page.is_null()).map(|page| page.addr())
    }

    /// Maps the pages of a group, if all of its counters can be read through them. Leaves none
    /// otherwise.
    pub(crate) fn map(&mut self, group: Group, fds: &[i32; MAX_COUNTERS]) {
        for i in group.range() {
            let (Some(slot), Some(&fd)) = (self.pages.get_mut(i), fds.get(i)) else { return };
            if let Ok(at) = sys::map_counter(fd, MAPPED) {
                *slot = at.cast();
                // SAFETY: mapped just now, read-only, as long as a `Page`. This touches it.
                if unsafe { (**slot).allows() } {
                    continue;
                }
            }
            self.unmap(group);
            return;
        }
    }

    fn unmap(&mut self, group: Group) {
        for slot in self.pages.get_mut(group.range()).into_iter().flatten() {
            if !slot.is_null() {
                sys::unmap(slot.cast_mut().cast(), MAPPED);
                *slot = ptr::null();
            }
        }
    }

    /// Unmaps every page and the table itself. In a forked child there are no pages any more.
    ///
    /// # Safety
    /// `table` comes from [`Table::make`] and is not used afterwards.
    pub(crate) unsafe fn free(table: *mut Table) {
        // SAFETY: by contract.
        unsafe {
            (*table).unmap(Group { first: 0, len: MAX_COUNTERS as u8, kind: SourceKind::Perf });
        }
        sys::unmap(table.cast(), MAPPED);
    }

    /// Reads the group of `len` counters from `first` on, if it has pages, into its block. To be
    /// called on the thread that opened the counters. In a forked child there are no pages.
    /// False: ask the kernel.
    pub(crate) fn read(&self, first: usize, len: usize, block: &mut [u64]) -> bool {
        page::read_group(|i| if i < len { self.page(first + i) } else { None }, &Hardware, block)
    }

    /// One attempt to read the only group that there is: its pages end where there are no more.
    #[inline(always)]
    pub(crate) fn attempt_only_group(&self, block: &mut [u64]) -> bool {
        page::attempt(|i| self.page(i), &Hardware, block) == Attempt::Read
    }

    #[inline(always)]
    fn page(&self, counter: usize) -> Option<&Page> {
        // SAFETY: null, or mapped until `free`.
        unsafe { self.pages.get(counter)?.as_ref() }
    }
}

/// Whether it is worth asking for the pages of a group: hardware counters of the calling thread.
pub(crate) fn is_candidate(plan: &Plan, group: Group, target: Target) -> bool {
    let hardware = |counter: &Counter| matches!(&counter.source, Source::Perf(a) if on_pmu(a));
    target == Target::CALLING_THREAD
        && plan.user_reads()
        && plan.counters().get(group.range()).is_some_and(|members| members.iter().all(hardware))
}

/// Not one of the kinds that the kernel counts itself: software, tracepoint, breakpoint.
fn on_pmu(attr: &PerfAttr) -> bool {
    !matches!(attr.kind, 1 | 2 | 5)
}

/// The attributes that ask for user-space reads, where they have to be asked for: on AArch64 bit 1
/// of `config1`, for the generic, cache and raw kinds. Other PMUs may mean something else by it,
/// so there it is the `rdpmc` term that the user types. Copies no text: these have none.
pub(crate) fn asking(attr: &PerfAttr) -> Option<PerfAttr> {
    let core = matches!(attr.kind, 0 | 3 | 4);
    let asks = cfg!(target_arch = "aarch64") && core && attr.config1 & 2 == 0;
    asks.then(|| PerfAttr { config1: attr.config1 | 2, ..attr.clone() })
}
