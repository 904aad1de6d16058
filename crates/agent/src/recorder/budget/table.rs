//! The table in which a thread counts its calls, in a run with a budget (a limit for the cost of
//! recording). It consists of pages of the pool (memory that `counterpoint run` shares with the
//! processes of the run). The pages are mapped at an address that does not change while the thread
//! lives.
//!
//! ```text
//!  base ─┬─ header ─ entry ─ entry ─ …        pages of the pool
//!        └─ reserved, for more exports        nothing is mapped
//! ```
//!
//! The address must stay the same because a signal handler can interrupt the increment of an entry
//! at any instruction. The handler may call exports for which the table must grow, or it may fork.
//! A larger table replaces the old one at the same address by `mremap`. In a forked child, private
//! memory replaces the parent's pages at the same address.

use std::sync::atomic::{AtomicU64, Ordering};

use record::counts::steps::Steps;
use record::counts::{
    CountsFrame, Entry, Spent, TABLE_HEADER_BYTES, TABLE_MAGIC, TABLE_VERSION, Table as Reader,
    TableHeader, entries_in, pages_for,
};
use record::page::{PAGE_BYTES, PageStart};

use crate::os::sys;
use crate::process::part::Process;
use crate::state::run::Run;

/// Maximum number of exports whose calls a thread counts.
pub const MOST_EXPORTS: usize = 1 << 16;
/// The size in bytes of the address range that a thread reserves.
const RESERVED: usize =
    (TABLE_HEADER_BYTES + MOST_EXPORTS * size_of::<Entry>()).next_multiple_of(PAGE_BYTES);

/// A thread's table. A table is plain data, so that it can be copied with the thread's state.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Start of the reserved address range; null if none is reserved yet.
    base: *mut u8,
    /// The table's first page, as an index in the pool.
    first: usize,
    /// Number of pages; 0 if there is no table.
    pages: usize,
}

impl Table {
    /// Stands for a missing table. `base` is the address range that an earlier table of the thread
    /// has reserved, or null.
    pub const fn none(base: *mut u8) -> Self {
        Self { base, first: 0, pages: 0 }
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn exists(&self) -> bool {
        self.pages > 0
    }

    pub fn entries(&self) -> *mut Entry {
        self.base.wrapping_add(TABLE_HEADER_BYTES).cast()
    }

    pub fn len(&self) -> u32 {
        entries_in(self.pages).min(MOST_EXPORTS) as u32
    }

    fn header(&self) -> &TableHeader {
        // SAFETY: callers have made sure that the table exists, so `base` is its mapped header,
        // which consists of integers.
        unsafe { &*self.base.cast::<TableHeader>() }
    }

    /// Makes a table in which `export` has an entry, or replaces the table by a larger one with the
    /// same counts. Signals must be blocked.
    ///
    /// # Errors
    /// Returns an `errno`, or 0 if the pool has not enough free pages or there are too many
    /// exports.
    pub fn make(
        &mut self,
        run: &Run,
        process: &Process,
        start: &PageStart,
        export: u32,
    ) -> Result<(), i32> {
        if export as usize >= MOST_EXPORTS {
            return Err(0);
        }
        if self.base.is_null() {
            self.base = sys::reserve(RESERVED)?;
        }
        let pages = pages_for(export as usize + 1).max(2 * self.pages).min(RESERVED / PAGE_BYTES);
        let first = run.pool.claim_run(process.row_number(), pages).ok_or(0)?;
        let release = || (first..first + pages).for_each(|page| run.pool.release_page(page));
        let fresh = match run.pool.map_run(first, pages, &run.pool_path) {
            Ok(fresh) => fresh,
            Err(errno) => {
                release();
                return Err(errno);
            }
        };
        let old = *self;
        // SAFETY: `fresh` is mapped and has `pages` pages, and only this thread writes to it. The
        // magic number is stored last, so a reader finds either no table or a whole one. For a
        // short time, a reader may find both tables of the thread. It then uses the larger numbers.
        unsafe {
            fresh.write_bytes(0, pages * PAGE_BYTES);
            let spent = if old.exists() { old.spent() } else { Spent::default() };
            let steps = if old.exists() { old.steps() } else { Steps::default() };
            fresh.cast::<TableHeader>().write(TableHeader {
                magic: AtomicU64::new(0),
                version: TABLE_VERSION,
                pages: pages as u32,
                pid: start.pid,
                generation: start.generation,
                start_time: start.start_time,
                thread_uid: start.thread_uid,
                tid: start.tid,
                entries: entries_in(pages).min(MOST_EXPORTS) as u32,
                reserved: 0,
                cpu_ns: AtomicU64::new(spent.cpu_ns),
                price_ns: AtomicU64::new(spent.price_ns),
                told_calls: AtomicU64::new(spent.told_calls),
                told_ns: AtomicU64::new(spent.told_ns),
                steps: steps.to_words().map(AtomicU64::new),
                more: [0; 6],
            });
            if old.exists() {
                let bytes = old.len() as usize * size_of::<Entry>();
                let to = fresh.add(TABLE_HEADER_BYTES);
                to.copy_from_nonoverlapping(old.entries().cast(), bytes);
            }
            (*fresh.cast::<TableHeader>()).magic.store(TABLE_MAGIC, Ordering::Release);
            if old.exists() {
                old.header().magic.store(0, Ordering::Release);
            }
        }
        if let Err(errno) = sys::move_mapping(fresh, pages * PAGE_BYTES, self.base) {
            // If there is an old table, the thread continues with it. Nothing was counted in the
            // new one.
            // SAFETY: `fresh` is still mapped, because moving it failed.
            unsafe { (*fresh.cast::<TableHeader>()).magic.store(0, Ordering::Release) };
            if old.exists() {
                old.header().magic.store(TABLE_MAGIC, Ordering::Release);
            }
            sys::unmap(fresh, pages * PAGE_BYTES);
            release();
            return Err(errno);
        }
        (old.first..old.first + old.pages).for_each(|page| run.pool.release_page(page));
        (self.first, self.pages) = (first, pages);
        Ok(())
    }

    fn spent(&self) -> Spent {
        let header = self.header();
        Spent {
            cpu_ns: header.cpu_ns.load(Ordering::Relaxed),
            price_ns: header.price_ns.load(Ordering::Relaxed),
            told_calls: header.told_calls.load(Ordering::Relaxed),
            told_ns: header.told_ns.load(Ordering::Relaxed),
        }
    }

    pub fn set_spent(&self, spent: Spent) {
        if self.exists() {
            self.header().cpu_ns.store(spent.cpu_ns, Ordering::Relaxed);
            self.header().price_ns.store(spent.price_ns, Ordering::Relaxed);
            self.header().told_calls.store(spent.told_calls, Ordering::Relaxed);
            self.header().told_ns.store(spent.told_ns, Ordering::Relaxed);
        }
    }

    fn steps(&self) -> Steps {
        Steps::from_words(self.header().steps.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Changes the data about steps in the table's header.
    pub fn change_steps(&self, change: impl FnOnce(&mut Steps)) {
        if self.exists() {
            let mut steps = self.steps();
            change(&mut steps);
            let words = self.header().steps.iter().zip(steps.to_words());
            words.for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        }
    }

    pub fn frame(&self) -> Option<CountsFrame> {
        if !self.exists() {
            return None;
        }
        // SAFETY: the table is mapped and has `self.pages` pages. Only the calling thread writes to
        // it, and that thread is in this function.
        let bytes = unsafe { std::slice::from_raw_parts(self.base, self.pages * PAGE_BYTES) };
        Reader::parse(bytes).ok().map(|table| table.frame())
    }

    /// Maps private memory over the table, at the same address. The table's pages stay in the pool
    /// unchanged.
    pub fn part(&mut self) {
        let bytes = std::mem::take(&mut self.pages) * PAGE_BYTES;
        if bytes > 0 && sys::map_private_at(self.base as usize, bytes).is_err() {
            // The pages are still mapped and may belong to another process, so the agent is
            // switched off and writes nothing to them.
            crate::state::epoch::switch_off();
        }
    }

    /// Gives the table's pages back to the pool. The counts in the table must have been appended to
    /// the profile before.
    pub fn release(&mut self, run: &Run) {
        if self.exists() {
            self.header().magic.store(0, Ordering::Release);
            let pages = self.first..self.first + self.pages;
            self.part();
            pages.for_each(|page| run.pool.release_page(page));
        }
    }

    /// Unmaps the table and the reserved addresses.
    pub fn unmap(&mut self) {
        if !self.base.is_null() {
            sys::unmap(self.base, RESERVED);
            *self = Self::none(std::ptr::null_mut());
        }
    }
}
