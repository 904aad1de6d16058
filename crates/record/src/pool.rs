//! The pool: one file on a memory file system, made by `counterpoint run`, mapped by every
//! process of the run. It holds the process table with its losses and the pages that threads
//! write in place.
//!
//! ```text
//!        0  header        magic, version, counts, next free row
//!       64  owner         the profile that it belongs to ([`owner`])
//!     1024  run's row     losses of no process that records
//!     4096  claims        u32 per page: 0 free, otherwise 1 + row of the owner
//!    +8 KiB rows          1 KiB per process: identity, losses
//!   +1 MiB  pages         64 KiB each
//! ```
//!
//! Why a named tmpfs file: a mapping of a disk file faults again after each writeback, which a
//! page-fault counter of the program would see; a memfd dies with its last holder. Why made
//! beforehand at full (sparse) size: a process under `RLIMIT_FSIZE` can still map and fill it.
//! Nothing here blocks: claims and rows are taken with one atomic operation.
//!
//! A process maps what stands before the pages, and each page when it first claims it. Mapped whole,
//! 128 MiB would count against what a program may lock (`mlockall`, `RLIMIT_MEMLOCK`), and be locked.

mod file;
pub mod owner;

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use model::Loss;

pub use file::{PoolFile, ProcessRow, create};
pub use owner::{Owner, ProfileId};

use crate::page::PAGE_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"CPTPOOL1");
const VERSION: u32 = 2;
const RUN_ROW_OFFSET: usize = 1024;
const CLAIMS_OFFSET: usize = 4096;

/// How many pages a pool has, and so how many threads can record at the same time.
pub const PAGES: usize = 2048;
/// How many processes have a row of their own in the table of losses.
pub const ROWS: usize = 1024;
const ROWS_OFFSET: usize = CLAIMS_OFFSET + 4 * PAGES;
const PAGES_OFFSET: usize = (ROWS_OFFSET + ROWS * size_of::<Row>()).next_multiple_of(PAGE_BYTES);
/// Size of the pool file; sparse, so that only pages in use take memory.
pub const POOL_BYTES: usize = PAGES_OFFSET + PAGES * PAGE_BYTES;

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    pages: u32,
    rows: u32,
    next_row: AtomicU32,
    reserved: [u32; 10],
    /// The first field of [`Owner`].
    id: [u8; 16],
}

/// One process in the process table. Fields are written by that process only (rows that are
/// shared because the table is full: by atomic additions only).
#[repr(C)]
pub struct Row {
    /// Process id in the process's own PID namespace; 0 while the row is free.
    pub pid: AtomicU32,
    /// How many times this process had recorded before an `exec`.
    pub generation: AtomicU32,
    /// Start time of the process, clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: AtomicU64,
    /// Threads that have recorded so far.
    pub threads: AtomicU32,
    /// 1: the process will not write again, although it lives: its session has ended.
    pub left: AtomicU32,
    /// Calls in pages that were flushed or released; those in claimed pages come on top.
    pub calls: AtomicU64,
    reserved2: [u64; 28],
    /// How often each [`Loss`] happened, by number.
    pub losses: [AtomicU64; Loss::CAPACITY],
    /// `errno` of the first time, 0 where there was none.
    pub first_errno: [AtomicU32; Loss::CAPACITY],
}

const _: () = assert!(size_of::<Row>() == 1024 && size_of::<Header>() <= RUN_ROW_OFFSET);
const _: () = assert!(std::mem::offset_of!(Header, id) == owner::OFFSET);
const _: () = assert!(RUN_ROW_OFFSET + size_of::<Row>() <= CLAIMS_OFFSET);

impl Row {
    /// Counts `count` occurrences of `loss`; `errno` 0 means that there was no error number.
    pub fn lose(&self, loss: Loss, count: u64, errno: i32) {
        let n = loss.number();
        self.losses[n].fetch_add(count, Ordering::Relaxed);
        if errno > 0 {
            let _ = self.first_errno[n].compare_exchange(
                0,
                errno as u32,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Takes one occurrence back that was counted before it happened, and then did not.
    pub fn take_back(&self, loss: Loss) {
        self.losses[loss.number()].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `body` with the run's row of the pool at `path`, mapped for the length of the call. For
/// processes that do not record, and for code between `vfork` and `exec`: no allocation, no lock,
/// and nothing stays mapped.
///
/// # Errors
/// As [`Pool::open`].
pub fn with_run_row(path: &CStr, body: impl FnOnce(&Row)) -> Result<(), i32> {
    let fd = open_raw(path)?;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let number = |n: libc::c_int| libc::c_long::from(n);
    // As a system call: the function of that name is one that we interpose.
    // SAFETY: a new mapping at an address of the kernel's choice. In a file that is shorter than
    // the page, nothing is touched: the length is looked at first.
    let (length, base) = unsafe {
        let (zero, end) = (number(0), number(libc::SEEK_END));
        let length = libc::syscall(libc::SYS_lseek, number(fd), zero, end);
        let (bytes, prot, flags) = (CLAIMS_OFFSET as libc::c_long, number(prot), number(flags));
        (length, libc::syscall(libc::SYS_mmap, zero, bytes, prot, flags, number(fd), zero))
    };
    close_raw(fd);
    if base < 0 {
        return Err(errno());
    }
    let page = base as *mut u8;
    // SAFETY: mapped above; the file is a whole pool, whose header has no invalid values.
    let known = length == POOL_BYTES as i64
        && unsafe {
            let header = &*page.cast::<Header>();
            header.magic == MAGIC && header.version == VERSION
        };
    if known {
        // SAFETY: inside the mapping, aligned; every field is an integer.
        body(unsafe { &*page.add(RUN_ROW_OFFSET).cast::<Row>() });
    }
    // SAFETY: mapped above, no reference to it survives.
    unsafe { libc::syscall(libc::SYS_munmap, base, CLAIMS_OFFSET) };
    if known { Ok(()) } else { Err(libc::EINVAL) }
}

/// A mapped pool, as the agent uses it. `Copy`, because it lives in statics and is never unmapped:
/// threads that outlive everything else may still write through it.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// What stands before the pages.
    base: *mut u8,
    /// Where this process has each page; null: not yet. Written by the page's claimer only.
    places: &'static [AtomicPtr<u8>; PAGES],
}

// SAFETY: everything after `base` is either atomic or owned by the claimer of a page.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps the pool at `path`. The descriptor is closed again: descriptors of ours that stay
    /// open can be closed, and their numbers reused, by the program.
    ///
    /// # Errors
    /// The `errno` of `open`, `fstat` or `mmap`; `EINVAL` for a file that is not a pool of this
    /// version.
    pub fn open(path: &CStr) -> Result<Self, i32> {
        let fd = open_raw(path)?;
        let mapped = Self::map(fd, None);
        close_raw(fd);
        mapped
    }

    /// As [`Pool::open`], in the address space of `old`, a pool that nobody in this process uses any
    /// more. A thread that still reads or writes the old one by mistake finds memory of the new
    /// one: its losses may be counted there, and nothing worse happens.
    ///
    /// # Errors
    /// As [`Pool::open`]; then `old` is as it was.
    ///
    /// # Safety
    /// No thread of this process has a page of `old`.
    pub unsafe fn open_in_place_of(old: Self, path: &CStr) -> Result<Self, i32> {
        for page in 0..PAGES {
            // SAFETY: by contract.
            unsafe { old.unmap_page(page) };
        }
        let fd = open_raw(path)?;
        let mapped = Self::map(fd, Some(old));
        close_raw(fd);
        mapped
    }

    fn map(fd: i32, old: Option<Self>) -> Result<Self, i32> {
        // SAFETY: an all-zero `stat` is a valid value to be overwritten.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` outlives the call.
        if unsafe { libc::fstat(fd, &mut stat) } != 0 {
            return Err(errno());
        }
        if stat.st_size as usize != POOL_BYTES {
            return Err(libc::EINVAL);
        }
        // Looked at by itself first: what takes an old pool's place has to be one.
        let base = map_part(std::ptr::null_mut(), SHARED, fd, 0, PAGES_OFFSET)?;
        // SAFETY: mapped a moment ago; the integers of the header have no invalid values.
        let header = unsafe { &*base.cast::<Header>() };
        let known = header.magic == MAGIC && header.version == VERSION;
        if known && let Some(old) = old {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: both mappings are ours and of this length; the new one takes the old one's
            // place in one step, so that nobody finds a hole there.
            let moved =
                unsafe { libc::mremap(base.cast(), PAGES_OFFSET, PAGES_OFFSET, flags, old.base) };
            if moved != libc::MAP_FAILED {
                return Ok(old);
            }
        }
        if !known {
            // SAFETY: mapped above, no reference to it survives.
            unsafe { libc::syscall(libc::SYS_munmap, base, PAGES_OFFSET) };
            return Err(libc::EINVAL);
        }
        let unmapped = [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGES];
        Ok(Self { base, places: Box::leak(Box::new(unmapped)) })
    }

    fn header(&self) -> &'static Header {
        // SAFETY: the mapping is PAGES_OFFSET long, page aligned, and never unmapped once handed
        // out; the integers of the header have no invalid values.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn claims(&self) -> &'static [AtomicU32; PAGES] {
        // SAFETY: as `header`; CLAIMS_OFFSET + 4 · PAGES lies inside the mapping.
        unsafe { &*self.base.add(CLAIMS_OFFSET).cast::<[AtomicU32; PAGES]>() }
    }

    /// The id of the profile that it belongs to.
    pub fn profile_id(&self) -> ProfileId {
        ProfileId(self.header().id)
    }

    /// The row with this number; numbers beyond the table share the last row.
    pub fn row(&self, number: u32) -> &'static Row {
        let n = (number as usize).min(ROWS - 1);
        // SAFETY: as `header`; `n` is inside the table.
        unsafe { &*self.base.add(ROWS_OFFSET + n * size_of::<Row>()).cast::<Row>() }
    }

    /// The row for what happens in processes that do not record, and about programs that cannot.
    pub fn run_row(&self) -> &'static Row {
        // SAFETY: as `header`; after it and before the claims.
        unsafe { &*self.base.add(RUN_ROW_OFFSET).cast::<Row>() }
    }

    /// Takes a row for a process. When all are taken, the last one is shared.
    pub fn claim_row(&self) -> u32 {
        let n = self.header().next_row.fetch_add(1, Ordering::Relaxed);
        if n as usize >= ROWS {
            let shared = self.row(n);
            shared.lose(Loss::ProcessTableFull, 1, 0);
            return ROWS as u32 - 1;
        }
        n
    }

    /// Takes a free page for the process in `row`, or `None` when all are in use.
    /// Starts looking at `hint`, so that a process tends to get back pages that it touched before.
    pub fn claim_page(&self, row: u32, hint: usize) -> Option<usize> {
        let claims = self.claims();
        (0..PAGES).map(|i| (hint + i) % PAGES).find(|&n| {
            claims[n].load(Ordering::Relaxed) == 0
                && claims[n]
                    .compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Takes `count` free pages that follow one another, from the end of the pool, where they are in
    /// the way of no single page. Returns the first; `None` when there is no such room.
    pub fn claim_run(&self, row: u32, count: usize) -> Option<usize> {
        let claims = self.claims();
        let take = |n: usize| {
            claims[n].compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let mut end = PAGES;
        while count > 0 && end >= count {
            let first = end - count;
            // The last page of the stretch that somebody has: the next try ends before it.
            let taken = (first..end).rev().find(|n| claims[*n].load(Ordering::Relaxed) != 0);
            let taken = taken.or_else(|| {
                let lost = (first..end).find(|n| !take(*n))?;
                (first..lost).for_each(|n| self.release_page(n));
                Some(lost)
            });
            match taken {
                None => return Some(first),
                Some(taken) => end = taken,
            }
        }
        None
    }

    /// Maps pages that [`Pool::claim_run`] took, as one piece, and has them present, as
    /// [`Pool::populate`] does for one. Not zeroed: what was in them before may still be there.
    ///
    /// # Errors
    /// As [`Pool::populate`].
    pub fn map_run(&self, first: usize, count: usize, path: &CStr) -> Result<*mut u8, i32> {
        let bytes = count * PAGE_BYTES;
        let fd = open_raw(path)?;
        let place = map_part(std::ptr::null_mut(), SHARED, fd, page_offset(first), bytes).and_then(
            |place| {
                let populated = make_present(place, bytes, page_offset(first), fd);
                populated.map(|()| place).inspect_err(|_| {
                    // SAFETY: mapped above, and nobody knows it.
                    unsafe { libc::syscall(libc::SYS_munmap, place, bytes) };
                })
            },
        );
        close_raw(fd);
        place
    }

    /// Gives a page back. Its content must have been flushed.
    pub fn release_page(&self, page: usize) {
        self.claims()[page % PAGES].store(0, Ordering::Release);
    }

    /// The first byte of a page that this process has populated; null before.
    pub fn page(&self, page: usize) -> *mut u8 {
        self.places[page % PAGES].load(Ordering::Acquire)
    }

    /// Takes the page out of this process's memory, whoever has claimed it. What is in it stays in
    /// the pool.
    ///
    /// # Safety
    /// Nobody in this process writes to it any more.
    pub unsafe fn unmap_page(&self, page: usize) {
        let at = self.places[page % PAGES].swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !at.is_null() {
            // SAFETY: mapped by `map_page`, unused by contract.
            unsafe { libc::syscall(libc::SYS_munmap, at, PAGE_BYTES) };
        }
    }

    /// Takes the pages that nobody has claimed out of this process's memory. For a process that
    /// will claim none any more.
    pub fn unmap_free_pages(&self, row: u32) {
        for page in (0..PAGES).filter(|page| !self.page(*page).is_null()) {
            let claim = &self.claims()[page];
            if claim.compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: claimed a moment ago, and so nobody's.
                unsafe { self.unmap_page(page) };
                self.release_page(page);
            }
        }
    }

    /// Puts private memory in the page's place, in this process only: for a forked child that has to
    /// end what its parent had begun to write there.
    ///
    /// # Errors
    /// The `errno` of `mmap`.
    pub fn stand_in(&self, page: usize) -> Result<(), i32> {
        self.map_again(page, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Takes [`Pool::stand_in`] back.
    ///
    /// # Errors
    /// The `errno` of `open` or `mmap`: the pool may be gone.
    pub fn share_again(&self, page: usize, path: &CStr) -> Result<(), i32> {
        let fd = open_raw(path)?;
        let mapped = self.map_again(page, SHARED, fd);
        close_raw(fd);
        mapped
    }

    /// Replaces a page that is mapped already, which nobody else in this process uses.
    fn map_again(&self, page: usize, flags: i32, fd: i32) -> Result<(), i32> {
        let at = self.page(page);
        if at.is_null() {
            return Err(libc::EFAULT);
        }
        map_part(at, flags | libc::MAP_FIXED, fd, page_offset(page), PAGE_BYTES).map(drop)
    }

    /// Where the page is in this process; mapped now if it was not. For the page's claimer: nobody
    /// else looks at its place, and the next claimer sees what this one has stored.
    fn map_page(&self, page: usize, path: &CStr) -> Result<*mut u8, i32> {
        let at = self.page(page);
        if !at.is_null() {
            return Ok(at);
        }
        let fd = open_raw(path)?;
        let mapped = map_part(std::ptr::null_mut(), SHARED, fd, page_offset(page), PAGE_BYTES);
        close_raw(fd);
        let at = mapped?;
        self.places[page % PAGES].store(at, Ordering::Release);
        Ok(at)
    }

    /// Maps the page if this process does not have it yet, and makes its memory present, so that writing to it never
    /// faults: neither as a page fault that the program's counters would see nor as SIGBUS when
    /// the file system is full.
    ///
    /// # Errors
    /// The `errno` that says why there is no memory (ENOSPC, ENOMEM, EFAULT; EAGAIN where the
    /// program may lock no more), or why the pool cannot be opened.
    pub fn populate(&self, page: usize, path: &CStr) -> Result<(), i32> {
        let place = self.map_page(page, path)?;
        // SAFETY: the range lies inside the mapping.
        if unsafe { libc::madvise(place.cast(), PAGE_BYTES, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        if errno() != libc::EINVAL {
            return Err(errno());
        }
        let fd = open_raw(path)?;
        let made = make_present_without_populate(place, PAGE_BYTES, page_offset(page), fd);
        close_raw(fd);
        made
    }
}

/// Makes the memory of a mapping of the pool present.
fn make_present(place: *mut u8, bytes: usize, offset: usize, fd: i32) -> Result<(), i32> {
    // SAFETY: the caller has mapped this range.
    if unsafe { libc::madvise(place.cast(), bytes, libc::MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    match errno() {
        libc::EINVAL => make_present_without_populate(place, bytes, offset, fd),
        errno => Err(errno),
    }
}

/// Before Linux 5.14: reserves the space, then touches each page (which is counted as page faults of
/// the program, but outside of any bracketed call).
fn make_present_without_populate(
    place: *mut u8,
    bytes: usize,
    offset: usize,
    fd: i32,
) -> Result<(), i32> {
    let (offset, length) = (offset as libc::c_long, bytes as libc::c_long);
    // SAFETY: the caller has opened `fd`; the arguments are plain numbers.
    let reserved =
        unsafe { libc::syscall(libc::SYS_fallocate, libc::c_long::from(fd), 0, offset, length) };
    if reserved != 0 {
        return Err(errno());
    }
    for at in (0..bytes).step_by(4096) {
        // SAFETY: inside the mapping; nobody else writes to pages that this thread claimed.
        unsafe { place.add(at).cast::<AtomicU32>().as_ref() }
            .map(|word| word.fetch_add(0, Ordering::Relaxed));
    }
    Ok(())
}

const SHARED: i32 = libc::MAP_SHARED | libc::MAP_NORESERVE;

fn page_offset(page: usize) -> usize {
    PAGES_OFFSET + (page % PAGES) * PAGE_BYTES
}

/// Maps a part of the pool, at an address of the kernel's choice or (`MAP_FIXED`) in the place of
/// memory of ours. As a system call: the function of that name is one that we interpose.
fn map_part(at: *mut u8, flags: i32, fd: i32, offset: usize, bytes: usize) -> Result<*mut u8, i32> {
    let number = |n: i32| libc::c_long::from(n);
    let (prot, flags) = (number(libc::PROT_READ | libc::PROT_WRITE), number(flags));
    let (length, offset) = (bytes as libc::c_long, offset as libc::c_long);
    // SAFETY: a new mapping, or one in the place of what the caller owns.
    let base =
        unsafe { libc::syscall(libc::SYS_mmap, at, length, prot, flags, number(fd), offset) };
    if base == -1 {
        return Err(errno());
    }
    let base = base as *mut u8;
    // Core dumps of the program need not carry the pool. Advice only; failure is harmless.
    // SAFETY: the range was just mapped.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTDUMP) };
    Ok(base)
}

/// `open` as a bare system call: the function of that name is a cancellation point, and a host
/// that cancels its threads must not unwind through us.
fn open_raw(path: &CStr) -> Result<i32, i32> {
    let (at, flags) = (libc::AT_FDCWD as libc::c_long, libc::O_RDWR | libc::O_CLOEXEC);
    // SAFETY: `path` is a C string; the flags need no mode argument.
    let fd =
        unsafe { libc::syscall(libc::SYS_openat, at, path.as_ptr(), libc::c_long::from(flags)) };
    if fd < 0 { Err(errno()) } else { Ok(fd as i32) }
}

fn close_raw(fd: i32) {
    // SAFETY: the caller opened it a moment ago.
    unsafe { libc::syscall(libc::SYS_close, libc::c_long::from(fd)) };
}

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: glibc returns the address of the calling thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests;
