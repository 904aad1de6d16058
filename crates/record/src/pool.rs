//! Defines the pool: one file on a memory file system. `counterpoint run` creates it, and the
//! recorded processes map it. It contains a table of these processes, with counts of what they
//! failed to record, and the pages to which threads write directly.
//!
//! ```text
//!        0  header        magic, version, counts, next free row
//!       64  owner         the profile that the pool belongs to ([`owner`])
//!     1024  run's row     losses that belong to no recording process
//!     4096  claims        u32 per page: 0 free, else 1 + row of the process, and states ([`full`])
//!    +8 KiB rows          1 KiB per process: identity, losses
//!   +1 MiB  pages         64 KiB each
//! ```
//!
//! There are 2,048 pages unless the user asks for more (`run --max-threads`). Each additional page
//! moves the rows by 4 bytes. The pages begin at the next multiple of 64 KiB after the rows.
//!
//! The pool is a named tmpfs file for two reasons. A page of a mapped disk file faults again after
//! each writeback, and the program's page-fault counters would count these faults. A memfd, which
//! has no name, would disappear with the last process that holds it, and pages not yet saved would
//! be lost. The pool has its full (sparse) size from the start, so that a process under
//! `RLIMIT_FSIZE` can still map and fill it. Claiming a page or a row does not block.
//!
//! A process maps the part of the pool before the pages. It maps a page only when one of its
//! threads claims the page. If the whole file were mapped, a program that calls `mlockall` would
//! lock at least 128 MiB more, which count against its limit (`RLIMIT_MEMLOCK`).

mod file;
pub mod full;
mod layout;
pub mod owner;
mod run_row;
mod truncation;

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use model::Loss;

pub use file::{PoolFile, ProcessRow, create, create_with};
pub use layout::Layout;
pub use owner::{Owner, ProfileId};
pub use run_row::{with_guarded_run_row, with_run_row};
pub use truncation::TruncationGuard;

use crate::page::PAGE_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"CPTPOOL1");
/// Version of the format of pools.
pub const VERSION: u32 = 2;
const RUN_ROW_OFFSET: usize = 1024;
const CLAIMS_OFFSET: usize = 4096;

/// Number of pages in a pool unless the user asks for more. A thread that records needs a page.
pub const PAGES: usize = 2048;
/// The largest number of pages that a pool can have.
pub const MOST_PAGES: usize = 1 << 17;
/// Number of rows in the process table.
pub const ROWS: usize = 1024;
/// Size in bytes of a pool of [`PAGES`] pages. The file is sparse.
pub const POOL_BYTES: usize = Layout::USUAL.bytes();

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    pages: u32,
    rows: u32,
    next_row: AtomicU32,
    /// 1 if a process takes full pages from threads ([`full`]).
    drained: AtomicU32,
    /// Number of full pages that threads have offered so far.
    offers: AtomicU32,
    /// 1 while the process that takes full pages waits for `offers` to change (futex).
    waits: AtomicU32,
    reserved: [u32; 7],
    /// The id of the profile that the pool belongs to. It is the first field of [`Owner`].
    id: [u8; 16],
}

/// One process in the process table. If the table is full, several processes share the last row.
#[repr(C)]
pub struct Row {
    /// Process id in the process's own PID namespace; 0 while the row is free.
    pub pid: AtomicU32,
    /// Number of directories in the profile that the same process created earlier, for example
    /// before an `exec`.
    pub generation: AtomicU32,
    /// Start time of the process in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: AtomicU64,
    /// Number of threads that have recorded so far.
    pub threads: AtomicU32,
    /// 1 if the process's recording session has ended. The process may still be alive, but does not
    /// use this pool any more.
    pub left: AtomicU32,
    /// Number of recorded calls on the pages that this process's threads have finished.
    pub calls: AtomicU64,
    /// The user's request to the plugins ([`PluginControl`]). Only the run's row has it. Processes
    /// with plugins wait for a change of this word (futex).
    pub plugin_control: AtomicU32,
    reserved1: AtomicU32,
    reserved2: [u64; 27],
    /// Number of occurrences of each [`Loss`], indexed by its number.
    pub losses: [AtomicU64; Loss::CAPACITY],
    /// For each loss, the first `errno` that was reported with it; 0 if none was.
    pub first_errno: [AtomicU32; Loss::CAPACITY],
}

const _: () = assert!(size_of::<Row>() == 1024 && size_of::<Header>() <= RUN_ROW_OFFSET);
const _: () = assert!(std::mem::offset_of!(Header, id) == owner::OFFSET);
const _: () = assert!(RUN_ROW_OFFSET + size_of::<Row>() <= CLAIMS_OFFSET);

/// The user's request to the plugins of a recording in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginControl {
    /// Whether plugins that can pause should pause.
    pub paused: bool,
    /// How often the user has asked the plugins to hand over their complete events. The number
    /// wraps around.
    pub flushes: u32,
}

impl PluginControl {
    /// Decodes a word of [`Row::plugin_control`].
    pub fn of_word(word: u32) -> Self {
        Self { paused: word & 1 != 0, flushes: word >> 1 }
    }

    /// Encodes this request as a word of [`Row::plugin_control`].
    pub fn word(self) -> u32 {
        self.flushes << 1 | u32::from(self.paused)
    }
}

impl Row {
    /// Changes the request to the plugins, and wakes the threads that wait for a change.
    pub fn control_plugins(&self, change: impl Fn(PluginControl) -> PluginControl) {
        let next = |word| Some(change(PluginControl::of_word(word)).word());
        let _ = self.plugin_control.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        let (wake, all) = (libc::c_long::from(libc::FUTEX_WAKE), libc::c_long::from(i32::MAX));
        // SAFETY: the word outlives the call. The futex is not private, because other processes
        // wait for it.
        unsafe { libc::syscall(libc::SYS_futex, &raw const self.plugin_control, wake, all) };
    }

    /// Adds `count` occurrences of `loss`. An `errno` of 0 means that no error number is known.
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

    /// Subtracts one occurrence that was counted in advance but did not happen.
    pub fn take_back(&self, loss: Loss) {
        self.losses[loss.number()].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A pool that this process has mapped. The type is `Copy`, and the part before the pages is never
/// unmapped, because threads that run until the very end of the process may still write to this
/// part.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Address of the part before the pages.
    base: *mut u8,
    /// Address of each page in this process; null if it is not mapped. Only the thread that has
    /// claimed a page changes its address, except when another pool replaces this one.
    places: &'static [AtomicPtr<u8>],
}

// SAFETY: the memory of a pool is constant, is atomic, or belongs to the thread that has claimed
// the page.
unsafe impl Send for Pool {}
// SAFETY: the memory of a pool is constant, is atomic, or belongs to the thread that has claimed
// the page.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps the pool at `path`. The file is closed again, because the program could close an open
    /// descriptor and reuse its number.
    ///
    /// # Errors
    /// Returns the `errno` of `open`, `fstat` or `mmap`, or `EINVAL` for a file that is not a pool
    /// of this version.
    pub fn open(path: &CStr) -> Result<Self, i32> {
        let fd = open_raw(path)?;
        let mapped = Self::map(fd, None, |_, _| Ok(()));
        close_raw(fd);
        mapped.map(|(pool, ())| pool)
    }

    /// Maps the pool at `path`, as [`Pool::open`] does, but at the address of `old` if both pools
    /// have the same size. A thread that still uses `old` by mistake may count a loss in the wrong
    /// pool, but nothing worse happens.
    ///
    /// # Errors
    /// Same as [`Pool::open`]. If there is an error, `old` is unchanged, except that its pages are
    /// unmapped.
    ///
    /// # Safety
    /// No thread of this process may have a page of `old`.
    pub unsafe fn open_in_place_of(old: Self, path: &CStr) -> Result<Self, i32> {
        for page in 0..old.layout().pages() {
            // SAFETY: by contract, no thread of this process has a page of `old`.
            unsafe { old.unmap_page(page) };
        }
        let fd = open_raw(path)?;
        let mapped = Self::map(fd, Some(old), |_, _| Ok(()));
        close_raw(fd);
        mapped.map(|(pool, ())| pool)
    }

    /// Maps the pool. `guard` is called with the address and the length of the mapping before its
    /// memory is accessed.
    fn map<G>(
        fd: i32,
        old: Option<Self>,
        guard: impl FnOnce(usize, usize) -> Result<G, i32>,
    ) -> Result<(Self, G), i32> {
        // SAFETY: `stat` consists of integers, for which zeros are valid values.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` outlives the call.
        if unsafe { libc::fstat(fd, &mut stat) } != 0 {
            return Err(errno());
        }
        let Some(layout) = Layout::of_size(stat.st_size as u64) else { return Err(libc::EINVAL) };
        let length = layout.pages_offset();
        // The file is first mapped at another address than the old pool, because only a valid pool
        // may replace the old one.
        let base = map_part(std::ptr::null_mut(), SHARED, fd, 0, length)?;
        let refuse = |errno| {
            // SAFETY: `base` was mapped above with this length, and no reference to it survives.
            unsafe { libc::syscall(libc::SYS_munmap, base, length) };
            Err(errno)
        };
        let guard = match guard(base as usize, length) {
            Ok(guard) => guard,
            Err(errno) => return refuse(errno),
        };
        // SAFETY: `base` was mapped just now, and the header consists of integers.
        let header = unsafe { &*base.cast::<Header>() };
        let known = header.magic == MAGIC
            && header.version == VERSION
            && header.pages as usize == layout.pages();
        // A new pool of another size than the old one stays at the address where it was just
        // mapped. Only a thread that still accesses the old pool by mistake would notice a
        // difference.
        if known && let Some(old) = old.filter(|old| old.layout() == layout) {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: both mappings are ours and have this length. The new one replaces the old one
            // in a single step, so no other thread sees a hole.
            let moved = unsafe { libc::mremap(base.cast(), length, length, flags, old.base) };
            if moved != libc::MAP_FAILED {
                return Ok((old, guard));
            }
        }
        if !known {
            drop(guard);
            return refuse(libc::EINVAL);
        }
        let unmapped = (0..layout.pages()).map(|_| AtomicPtr::new(std::ptr::null_mut()));
        Ok((Self { base, places: Box::leak(unmapped.collect()) }, guard))
    }

    /// Does what [`Pool::open`] does, for a process of Counterpoint that is not recorded itself. If
    /// the recorded program truncates the pool later, this process sees an empty pool.
    ///
    /// # Errors
    /// Same as [`Pool::open`], or as [`TruncationGuard::new`].
    pub fn open_guarded(file: &File) -> Result<(Self, TruncationGuard), i32> {
        // SAFETY: the range is a mapping that is unmapped only after the guard was dropped.
        Self::map(file.as_raw_fd(), None, |at, length| unsafe {
            TruncationGuard::new(at..at + length)
        })
    }

    /// Returns the layout of the pool.
    pub fn layout(&self) -> Layout {
        Layout::of_pages(self.places.len())
    }

    fn place(&self, page: usize) -> &'static AtomicPtr<u8> {
        &self.places[page.min(self.places.len() - 1)]
    }

    fn claim(&self, page: usize) -> &'static AtomicU32 {
        &self.claims()[page.min(self.places.len() - 1)]
    }

    fn header(&self) -> &'static Header {
        // SAFETY: the mapping is `pages_offset` long, page-aligned, and never unmapped once handed
        // out; the integers of the header have no invalid values.
        unsafe { &*self.base.cast::<Header>() }
    }

    fn claims(&self) -> &'static [AtomicU32] {
        // SAFETY: the mapping is never unmapped once handed out, and contains a claim for each
        // page.
        unsafe {
            let first = self.base.add(CLAIMS_OFFSET).cast::<AtomicU32>();
            std::slice::from_raw_parts(first, self.places.len())
        }
    }

    /// Returns the id of the profile that the pool belongs to.
    pub fn profile_id(&self) -> ProfileId {
        ProfileId(self.header().id)
    }

    /// Returns the row with this number. If the table has no such row, returns the last row, which
    /// several processes share.
    pub fn row(&self, number: u32) -> &'static Row {
        let n = (number as usize).min(ROWS - 1);
        // SAFETY: the mapping is never unmapped once handed out, and contains row `n` of the
        // process table.
        unsafe { &*self.base.add(self.layout().rows_offset() + n * size_of::<Row>()).cast::<Row>() }
    }

    /// Returns the run's row: the losses that belong to no recording process, and the user's
    /// request to the plugins.
    pub fn run_row(&self) -> &'static Row {
        // SAFETY: the mapping is never unmapped once handed out, and contains this row between the
        // header and the claims.
        unsafe { &*self.base.add(RUN_ROW_OFFSET).cast::<Row>() }
    }

    /// Claims a row for a process, and returns the row's number. If the table is full, this is the
    /// last row, which several processes then share.
    pub fn claim_row(&self) -> u32 {
        let n = self.header().next_row.fetch_add(1, Ordering::Relaxed);
        if n as usize >= ROWS {
            let shared = self.row(n);
            shared.lose(Loss::ProcessTableFull, 1, 0);
            return ROWS as u32 - 1;
        }
        n
    }

    /// Claims a free page for the process in `row`; `None` if all pages are in use. The search
    /// starts at `hint`, so that a process tends to get pages that it has touched before.
    pub fn claim_page(&self, row: u32, hint: usize) -> Option<usize> {
        let claims = self.claims();
        let pages = claims.len();
        (0..pages).map(|i| (hint + i) % pages).find(|&n| {
            claims[n].load(Ordering::Relaxed) == 0
                && claims[n]
                    .compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Claims `count` consecutive free pages and returns the first one; `None` if there are not
    /// that many consecutive free pages. The search begins at the end of the pool, away from the
    /// pages that threads claim one at a time.
    pub fn claim_run(&self, row: u32, count: usize) -> Option<usize> {
        let claims = self.claims();
        let take = |n: usize| {
            claims[n].compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let mut end = claims.len();
        while count > 0 && end >= count {
            let first = end - count;
            // A page in the range that is in use: the last one, or the first one that another
            // thread claimed in the meantime. The next attempt uses pages before this page.
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

    /// Maps to consecutive addresses the pages that [`Pool::claim_run`] claimed, and makes them
    /// present, as [`Pool::populate`] does. The function does not zero the pages.
    ///
    /// # Errors
    /// Same as [`Pool::populate`].
    pub fn map_run(&self, first: usize, count: usize, path: &CStr) -> Result<*mut u8, i32> {
        let bytes = count * PAGE_BYTES;
        let fd = open_raw(path)?;
        let place =
            map_part(std::ptr::null_mut(), SHARED, fd, self.layout().page_offset(first), bytes)
                .and_then(|place| {
                    let populated =
                        make_present(place, bytes, self.layout().page_offset(first), fd);
                    populated.map(|()| place).inspect_err(|_| {
                        // SAFETY: `place` was mapped above with this length, and nobody else knows
                        // it.
                        unsafe { libc::syscall(libc::SYS_munmap, place, bytes) };
                    })
                });
        close_raw(fd);
        place
    }

    /// Releases a page. Its content must have been flushed, or must not be needed.
    pub fn release_page(&self, page: usize) {
        self.claim(page).store(0, Ordering::Release);
    }

    /// Returns the address of a page in this process; null if it is not mapped.
    pub fn page(&self, page: usize) -> *mut u8 {
        self.place(page).load(Ordering::Acquire)
    }

    /// Unmaps the page from this process. The content stays in the pool.
    ///
    /// # Safety
    /// Nothing in this process may access the page any more.
    pub unsafe fn unmap_page(&self, page: usize) {
        let at = self.place(page).swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !at.is_null() {
            // SAFETY: `map_page` mapped this page, and by contract nobody accesses it any more.
            unsafe { libc::syscall(libc::SYS_munmap, at, PAGE_BYTES) };
        }
    }

    /// Unmaps from this process the pages that no process has claimed. The function is meant for a
    /// process that will not claim any more pages.
    pub fn unmap_free_pages(&self, row: u32) {
        for page in (0..self.places.len()).filter(|page| !self.page(*page).is_null()) {
            let claim = self.claim(page);
            if claim.compare_exchange(0, row + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: this thread has just claimed the page, so nobody else uses it.
                unsafe { self.unmap_page(page) };
                self.release_page(page);
            }
        }
    }

    /// Replaces the page by private memory, in this process only. A child process calls this
    /// function if it was forked while a record was being written. The child then writes the rest
    /// of the record to this memory, and not to its parent's page.
    ///
    /// # Errors
    /// Returns the `errno` of `mmap`, or `EFAULT` if the page is not mapped.
    pub fn stand_in(&self, page: usize) -> Result<(), i32> {
        self.map_again(page, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Reverses [`Pool::stand_in`].
    ///
    /// # Errors
    /// Returns the `errno` of `open` (the pool may have been deleted) or `mmap`, or `EFAULT` if the
    /// page is not mapped.
    pub fn share_again(&self, page: usize, path: &CStr) -> Result<(), i32> {
        let fd = open_raw(path)?;
        let mapped = self.map_again(page, SHARED, fd);
        close_raw(fd);
        mapped
    }

    /// Maps other memory in place of a mapped page that nobody else in this process uses.
    fn map_again(&self, page: usize, flags: i32, fd: i32) -> Result<(), i32> {
        let at = self.page(page);
        if at.is_null() {
            return Err(libc::EFAULT);
        }
        map_part(at, flags | libc::MAP_FIXED, fd, self.layout().page_offset(page), PAGE_BYTES)
            .map(drop)
    }

    /// Returns the address of the page in this process, and maps it first if necessary. Only a
    /// thread that has claimed the page may call this.
    fn map_page(&self, page: usize, path: &CStr) -> Result<*mut u8, i32> {
        let at = self.page(page);
        if !at.is_null() {
            return Ok(at);
        }
        let fd = open_raw(path)?;
        let mapped =
            map_part(std::ptr::null_mut(), SHARED, fd, self.layout().page_offset(page), PAGE_BYTES);
        close_raw(fd);
        let at = mapped?;
        self.place(page).store(at, Ordering::Release);
        Ok(at)
    }

    /// Maps the page if necessary, and makes its memory present, so that a write to the page does
    /// not fault. Such a write adds nothing to the program's counters of page faults, and raises no
    /// SIGBUS if the file system is full.
    ///
    /// # Errors
    /// Returns the `errno` that says why there is no memory (EAGAIN if the program may not lock
    /// more memory), or why the pool cannot be opened or mapped.
    pub fn populate(&self, page: usize, path: &CStr) -> Result<(), i32> {
        let place = self.map_page(page, path)?;
        // SAFETY: the range is the page, which `map_page` has mapped.
        if unsafe { libc::madvise(place.cast(), PAGE_BYTES, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        if errno() != libc::EINVAL {
            return Err(errno());
        }
        // EINVAL means that the kernel is older than Linux 5.14.
        let fd = open_raw(path)?;
        let made =
            make_present_without_populate(place, PAGE_BYTES, self.layout().page_offset(page), fd);
        close_raw(fd);
        made
    }
}

/// Makes the memory of a mapping present, so that writing to it does not fault.
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

/// [`make_present`] for kernels before Linux 5.14: reserves the file's space, then touches the
/// mapping every 4 KiB. The program's counters count these page faults, but no recorded call
/// contains them.
fn make_present_without_populate(
    place: *mut u8,
    bytes: usize,
    offset: usize,
    fd: i32,
) -> Result<(), i32> {
    let (offset, length) = (offset as libc::c_long, bytes as libc::c_long);
    // SAFETY: fallocate takes numbers only, and the caller has opened `fd`.
    let reserved =
        unsafe { libc::syscall(libc::SYS_fallocate, libc::c_long::from(fd), 0, offset, length) };
    if reserved != 0 {
        return Err(errno());
    }
    for at in (0..bytes).step_by(4096) {
        // SAFETY: `at` is inside of the mapping, and nobody else writes to pages that this thread
        // has claimed.
        unsafe { place.add(at).cast::<AtomicU32>().as_ref() }
            .map(|word| word.fetch_add(0, Ordering::Relaxed));
    }
    Ok(())
}

const SHARED: i32 = libc::MAP_SHARED | libc::MAP_NORESERVE;

/// Maps a part of the pool (or private memory, with `MAP_ANONYMOUS`), at an address that the kernel
/// chooses or, with `MAP_FIXED`, in place of a mapping. The function makes a raw system call,
/// because the agent replaces `mmap`.
fn map_part(at: *mut u8, flags: i32, fd: i32, offset: usize, bytes: usize) -> Result<*mut u8, i32> {
    let number = |n: i32| libc::c_long::from(n);
    let (prot, flags) = (number(libc::PROT_READ | libc::PROT_WRITE), number(flags));
    let (length, offset) = (bytes as libc::c_long, offset as libc::c_long);
    // SAFETY: the call makes a new mapping, or replaces one that the caller owns.
    let base =
        unsafe { libc::syscall(libc::SYS_mmap, at, length, prot, flags, number(fd), offset) };
    if base == -1 {
        return Err(errno());
    }
    let base = base as *mut u8;
    // Core dumps of the program do not need the pool. A failure is harmless.
    // SAFETY: the range was just mapped.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTDUMP) };
    Ok(base)
}

/// Opens a file with a raw system call, because libc's `open` is a cancellation point: a thread
/// that is cancelled there would unwind through our stack frames.
fn open_raw(path: &CStr) -> Result<i32, i32> {
    let (at, flags) = (libc::AT_FDCWD as libc::c_long, libc::O_RDWR | libc::O_CLOEXEC);
    // SAFETY: `path` is a C string; the flags need no mode argument.
    let fd =
        unsafe { libc::syscall(libc::SYS_openat, at, path.as_ptr(), libc::c_long::from(flags)) };
    if fd < 0 { Err(errno()) } else { Ok(fd as i32) }
}

fn close_raw(fd: i32) {
    // SAFETY: the caller has just opened the descriptor, so nobody else uses it.
    unsafe { libc::syscall(libc::SYS_close, libc::c_long::from(fd)) };
}

/// Returns the calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: glibc returns the address of the calling thread's errno, which is always valid.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests;
