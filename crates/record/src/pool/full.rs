//! Defines how a thread hands full pages over to `run` (the process of `counterpoint run`), which
//! appends them to the profile and gives them back empty.
//!
//! ```text
//!            offer                 take                     give back
//!  claimed ─────────► OFFERED ───────────► TAKEN ─────────────────────────► claimed, empty
//!     ▲                │ take back           │ leave               
//!     └────────────────┘                     ▼      give back
//!                                       TAKEN LEFT ───────────────────────► free
//! ```
//!
//! The states are bits of the page's claim (the pool has one word with a claim for each page). Each
//! arrow is one atomic operation. So it cannot happen that both the thread and `run` append a page.
//! A page that was offered stays mapped in the process of its thread. Its content stays in the pool
//! until the page is given back.
//!
//! `run` maps the claims. It guards this mapping (`truncation.rs`), because the recorded program
//! can truncate the pool. `run` does not map the pages, but reads and writes the pool's file
//! instead.
//!
//! Threads do not need `run` to be alive. A thread has a few spare pages, and offers at most that
//! many full pages at one time. If `run` gives no page back, the thread appends its full pages
//! itself. If `run` is killed between appending a page and giving it back, the page is both in the
//! profile and in the pool. Readers use only one of the two copies, which they recognize by
//! process, thread and sequence number.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Pool;
use crate::page::{PAGE_BYTES, PageHeader, seal_in_place};

/// The page is full, and may be taken.
const OFFERED: u32 = 1 << 31;
/// `run` is appending the page.
const TAKEN: u32 = 1 << 30;
/// The page's thread has ended, so the page becomes free once it was appended.
const LEFT: u32 = 1 << 29;
/// The other bits of a claim: 1 + the row of the process that owns the page.
pub(super) const OWNER: u32 = LEFT - 1;

impl Pool {
    fn change(&self, page: usize, from: u32, to: u32) -> bool {
        self.claim(page).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether a process takes full pages. This stays true if that process is killed.
    pub fn is_drained(&self) -> bool {
        self.header().drained.load(Ordering::Relaxed) != 0
    }

    /// Offers a full page. The page's thread must have called [`crate::PageWriter::finish`].
    pub fn offer_page(&self, page: usize, row: u32) {
        self.claim(page).store((row + 1) | OFFERED, Ordering::Release);
        let header = self.header();
        header.offers.fetch_add(1, Ordering::SeqCst);
        if header.waits.load(Ordering::SeqCst) != 0 {
            let number = |n: i32| libc::c_long::from(n);
            // SAFETY: `offers` is a word that is never unmapped. The futex is not private, because
            // another process waits.
            unsafe {
                let word = &raw const header.offers;
                libc::syscall(libc::SYS_futex, word, number(libc::FUTEX_WAKE), number(1));
            }
        }
    }

    /// Returns whether a page that was offered has been given back.
    pub fn is_given_back(&self, page: usize, row: u32) -> bool {
        self.claim(page).load(Ordering::Acquire) == row + 1
    }

    /// Takes back a page that was offered. Returns false if it was already taken or given back.
    pub fn take_back(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | OFFERED, row + 1)
    }

    /// Leaves a taken page to `run`, because the page's thread ends. Returns false if the page is
    /// not taken any more.
    pub fn leave_page(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | TAKEN, (row + 1) | TAKEN | LEFT)
    }

    /// Stores whether a process takes full pages.
    pub fn set_drained(&self, drained: bool) {
        self.header().drained.store(drained.into(), Ordering::Relaxed);
    }

    /// Returns the counter of full pages that threads have offered so far. It wraps around.
    pub fn offers(&self) -> &'static AtomicU32 {
        &self.header().offers
    }

    /// Waits until the number of offers differs from `seen`, or until a signal arrives.
    ///
    /// # Errors
    /// Returns the `errno` if the kernel refuses to wait.
    pub fn wait_for_offers(&self, seen: u32) -> Result<(), i32> {
        let header = self.header();
        header.waits.store(1, Ordering::SeqCst);
        let number = |n: i32| libc::c_long::from(n);
        // SAFETY: `offers` is a word that is never unmapped, and null stands for no timeout.
        let result = unsafe {
            let (word, wait) = (&raw const header.offers, number(libc::FUTEX_WAIT));
            libc::syscall(libc::SYS_futex, word, wait, seen as libc::c_long, 0usize)
        };
        header.waits.store(0, Ordering::SeqCst);
        match (result, super::errno()) {
            (0, _) | (_, libc::EAGAIN | libc::EINTR) => Ok(()),
            (_, errno) => Err(errno),
        }
    }

    /// Takes the first offered page whose number is at least `start`; `None` if there is none. Only
    /// one thread of one process may take full pages.
    pub fn take_full_page(&self, start: usize) -> Option<Taken<'_>> {
        let claims = self.claims();
        (start..claims.len()).find_map(|page| {
            let claim = claims[page].load(Ordering::Relaxed);
            let owner = claim & OWNER;
            let is_taken = claim == owner | OFFERED && self.change(page, claim, owner | TAKEN);
            is_taken.then_some(Taken { pool: self, page, owner })
        })
    }
}

/// A buffer for the copy of a page.
#[derive(Debug)]
pub struct PageCopy([u64; PAGE_BYTES / 8]);

impl Default for PageCopy {
    fn default() -> Self {
        Self([0; PAGE_BYTES / 8])
    }
}

/// A full page that was taken. Dropping this value leaves the page taken.
#[derive(Debug)]
pub struct Taken<'a> {
    pool: &'a Pool,
    page: usize,
    owner: u32,
}

impl Taken<'_> {
    pub fn page(&self) -> usize {
        self.page
    }

    /// Reads the page from the pool's file. Returns its header and the bytes to append to a file of
    /// pages. Returns `None` if the page cannot be read or is not valid, for example because the
    /// recorded program has truncated the pool.
    pub fn seal<'a>(&self, file: &File, copy: &'a mut PageCopy) -> Option<(PageHeader, &'a [u8])> {
        let at = copy.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the array has PAGE_BYTES bytes and is borrowed mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, PAGE_BYTES) };
        file.read_exact_at(bytes, self.pool.layout().page_offset(self.page) as u64).ok()?;
        // SAFETY: the array has PAGE_BYTES bytes, is aligned to 8, and is borrowed mutably while
        // the result is used.
        unsafe { seal_in_place(at) }
    }

    /// Empties a page that was appended, by overwriting its magic number in `file` (the pool's
    /// file). Then gives the page back to its thread, or releases it if the thread has ended. The
    /// write ends before the claim changes, so whoever sees the new claim also sees the empty page.
    pub fn give_back(self, file: &File) {
        // If the write fails, readers find the page both in the profile and in the pool, and use it
        // once.
        let _ = file.write_all_at(&[0; 8], self.pool.layout().page_offset(self.page) as u64);
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner) {
            self.pool.release_page(self.page);
        }
    }

    /// Offers the page again because it could not be appended. If its thread has ended, the page
    /// stays claimed, and `counterpoint run` or `counterpoint report` appends it later.
    pub fn refuse(self) {
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner | OFFERED) {
            self.pool.change(self.page, self.owner | TAKEN | LEFT, self.owner);
        }
    }
}
