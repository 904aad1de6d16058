//! Defines how a thread hands full pages over to `run`, which appends the pages to the profile and
//! gives them back empty.
//!
//! ```text
//!            offer                 take                     give back
//!  claimed ─────────► OFFERED ───────────► TAKEN ─────────────────────────► claimed, empty
//!     ▲                │ take back           │ leave               
//!     └────────────────┘                     ▼      give back
//!                                       TAKEN LEFT ───────────────────────► free
//! ```
//!
//! The states are bits of a page's claim, and each arrow is one atomic operation. So a page is
//! appended either by its thread or by `run`, but never by both. A page that was offered stays
//! mapped and present in its process, and its content stays readable in the pool until the page is
//! given back.
//!
//! `run` changes the claims in its own mapping, which is guarded against a program that truncates
//! the pool (`truncation.rs`). It maps no pages. It reads pages from the file. When it gives a page
//! back, it removes the page's magic number by writing to the file.
//!
//! Threads do not need `run` to be alive. A thread has a few spare pages, and offers at most as
//! many full pages. If `run` gives none of them back, the thread appends its pages itself. If `run`
//! is killed after it has appended a page and before it has given it back, the page exists twice.
//! Readers use such a page only once, because part, thread and sequence number identify a page. The
//! same holds for pages that a collector had already copied when it was killed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Pool;
use crate::page::{PAGE_BYTES, PageHeader, seal_in_place};

/// The page is full, and `run` may take it.
const OFFERED: u32 = 1 << 31;
/// `run` is appending the page.
const TAKEN: u32 = 1 << 30;
/// The page's thread has ended, so the page becomes free as soon as `run` has appended it.
const LEFT: u32 = 1 << 29;
/// The other bits of a claim: 1 + the row of the process that owns the page.
pub(super) const OWNER: u32 = LEFT - 1;

impl Pool {
    fn change(&self, page: usize, from: u32, to: u32) -> bool {
        self.claim(page).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether some process takes full pages. The result stays true if that process is killed.
    pub fn is_drained(&self) -> bool {
        self.header().drained.load(Ordering::Relaxed) != 0
    }

    /// Offers a full page and wakes the process that takes pages. The page's thread must have
    /// called [`crate::PageWriter::finish`].
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

    /// Whether a page that was offered has been given back and is now empty.
    pub fn is_given_back(&self, page: usize, row: u32) -> bool {
        self.claim(page).load(Ordering::Acquire) == row + 1
    }

    /// Takes back a page that was offered. Returns false if the page has already been taken or
    /// given back.
    pub fn take_back(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | OFFERED, row + 1)
    }

    /// Leaves a page to `run`, which has taken it, because the page's thread ends. Returns false if
    /// the page is not taken any more.
    pub fn leave_page(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | TAKEN, (row + 1) | TAKEN | LEFT)
    }

    /// Stores whether some process takes full pages from now on.
    pub fn set_drained(&self, drained: bool) {
        self.header().drained.store(drained.into(), Ordering::Relaxed);
    }

    /// Returns the number of pages that were offered so far. The number wraps around. If a thread
    /// increases the number before a call of [`Pool::wait_for_offers`] with the earlier number has
    /// begun to wait, that call returns at once.
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

    /// Takes the first page that is offered, beginning with page number `start`. Only one thread of
    /// one process may take full pages.
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

/// A full page that was taken. If the value is dropped, the page stays taken, as if this process
/// had been killed.
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

    /// Returns the page's header and the bytes to append to a file of pages, with their checksum.
    /// The bytes are read from the pool in `file`. Returns `None` if the bytes are not a page,
    /// because the recorded program has overwritten or truncated them.
    pub fn seal<'a>(&self, file: &File, copy: &'a mut PageCopy) -> Option<(PageHeader, &'a [u8])> {
        let at = copy.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the array has PAGE_BYTES bytes and is borrowed mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, PAGE_BYTES) };
        file.read_exact_at(bytes, self.pool.layout().page_offset(self.page) as u64).ok()?;
        // SAFETY: the array has PAGE_BYTES bytes, is aligned as its words are, and is borrowed
        // mutably for as long as the result is used.
        unsafe { seal_in_place(at) }
    }

    /// Gives the page back after it was appended. The page is empty from now on: the function
    /// overwrites the magic number at the start of the page in `file`, the pool's file. The write
    /// ends before the claim changes, so whoever sees the new claim also sees the empty page.
    pub fn give_back(self, file: &File) {
        // If this fails, readers find the page twice, but use it once.
        let _ = file.write_all_at(&[0; 8], self.pool.layout().page_offset(self.page) as u64);
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner) {
            self.pool.release_page(self.page);
        }
    }

    /// Offers the page again because it could not be appended. If the page's thread has ended, the
    /// page stays in the pool until the profile is collected.
    pub fn refuse(self) {
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner | OFFERED) {
            self.pool.change(self.page, self.owner | TAKEN | LEFT, self.owner);
        }
    }
}
