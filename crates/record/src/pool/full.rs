//! Defines how a thread hands full pages to `run`, which appends them to the profile and gives them
//! back empty.
//!
//! ```text
//!            offer                 take                     give back
//!  claimed ─────────► OFFERED ───────────► TAKEN ─────────────────────────► claimed, empty
//!     ▲                │ take back           │ leave               
//!     └────────────────┘                     ▼      give back
//!                                       TAKEN LEFT ───────────────────────► free
//! ```
//!
//! The states are bits of a page's claim, and each arrow is one atomic operation, so a page is
//! appended by the thread or by `run`, never by both. A page that was offered remains in the process
//! to which it belongs, mapped and present, and its content remains readable in the pool until it is
//! given back.
//!
//! `run` changes the claims in its mapping, which is guarded against a program that truncates the
//! pool (`truncation.rs`). It maps no pages: it reads them from the file, and removes the magic number
//! of a page that it gives back by a write to the file.
//!
//! Nothing depends on `run` being alive. A thread offers as many pages as it has spare ones; if none
//! comes back, it appends its own pages. If `run` is killed after it has appended a page and before it
//! has given it back, the page exists twice. Readers take it once, as they do for every page that
//! a collector had copied when it was killed: pages are identified by part, thread and sequence.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Pool;
use crate::page::{PAGE_BYTES, PageHeader, seal_in_place};

/// The page is full, and `run` may take it.
const OFFERED: u32 = 1 << 31;
/// `run` is appending the page.
const TAKEN: u32 = 1 << 30;
/// The page's thread has ended, so the page becomes free once `run` has appended it.
const LEFT: u32 = 1 << 29;
/// The other bits of a claim: 1 + row of the owner.
pub(super) const OWNER: u32 = LEFT - 1;

impl Pool {
    fn change(&self, page: usize, from: u32, to: u32) -> bool {
        self.claim(page).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether somebody takes full pages, or did until it was killed.
    pub fn is_drained(&self) -> bool {
        self.header().drained.load(Ordering::Relaxed) != 0
    }

    /// Offers a full page, which the thread has prepared for reading
    /// ([`crate::PageWriter::finish`]), and wakes the process that takes pages.
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

    /// Whether a page that was offered has been given back, empty.
    pub fn is_given_back(&self, page: usize, row: u32) -> bool {
        self.claim(page).load(Ordering::Acquire) == row + 1
    }

    /// Takes a page back that was offered. Returns false if it has been taken or given back.
    pub fn take_back(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | OFFERED, row + 1)
    }

    /// Leaves a page that was taken to `run`, because its thread ends. Returns false if the page is
    /// not taken any more.
    pub fn leave_page(&self, page: usize, row: u32) -> bool {
        self.change(page, (row + 1) | TAKEN, (row + 1) | TAKEN | LEFT)
    }

    /// Stores whether full pages are taken from now on.
    pub fn set_drained(&self, drained: bool) {
        self.header().drained.store(drained.into(), Ordering::Relaxed);
    }

    /// Returns the number of pages that were offered so far. It wraps around. Adding to the number
    /// makes a [`Pool::wait_for_offers`] that has not begun to wait yet return at once.
    pub fn offers(&self) -> &'static AtomicU32 {
        &self.header().offers
    }

    /// Waits until the number of offers is not `seen`, or until a signal arrives.
    ///
    /// # Errors
    /// Returns the `errno` if the kernel does not wait.
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

    /// Takes the first page that is offered, from number `start` on. Only one thread of one process
    /// may take full pages.
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

/// Room for a copy of a page.
#[derive(Debug)]
pub struct PageCopy([u64; PAGE_BYTES / 8]);

impl Default for PageCopy {
    fn default() -> Self {
        Self([0; PAGE_BYTES / 8])
    }
}

/// A full page that was taken. If it is dropped, it stays taken, as if this process had been killed.
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

    /// Returns the page's header and the bytes to append to a file of pages, with their checksum,
    /// read from the pool in `file`. `None` if the bytes are not a page, because the page's program
    /// has overwritten or truncated it.
    pub fn seal<'a>(&self, file: &File, copy: &'a mut PageCopy) -> Option<(PageHeader, &'a [u8])> {
        let at = copy.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the array has PAGE_BYTES bytes and is borrowed mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, PAGE_BYTES) };
        file.read_exact_at(bytes, self.pool.layout().page_offset(self.page) as u64).ok()?;
        // SAFETY: the array has PAGE_BYTES bytes, is aligned as its words are, and is borrowed
        // mutably for as long as the result is used.
        unsafe { seal_in_place(at) }
    }

    /// Gives the page back, after it was appended. It is empty from now on: its magic number, which
    /// comes first, is removed from the pool in `file`. The write ends before the claim changes, so
    /// whoever sees the new claim also sees the empty page.
    pub fn give_back(self, file: &File) {
        // If this fails, readers find the page twice and take it once.
        let _ = file.write_all_at(&[0; 8], self.pool.layout().page_offset(self.page) as u64);
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner) {
            self.pool.release_page(self.page);
        }
    }

    /// Offers the page again, because it could not be appended. If its thread has ended, the page
    /// stays in the pool for the collector of the profile.
    pub fn refuse(self) {
        if !self.pool.change(self.page, self.owner | TAKEN, self.owner | OFFERED) {
            self.pool.change(self.page, self.owner | TAKEN | LEFT, self.owner);
        }
    }
}
