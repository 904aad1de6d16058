//! Writes records to pages. The recorder runs most of this code for every recorded call.

use std::sync::atomic::{Ordering, compiler_fence};

use super::context::Contexts;
use super::header::{RawHeader, USAGE_BEGIN, USAGE_END, checksum_with};
use super::{
    Call, Drawn, FLAG_FLUSHED, FLAG_LAST, HEADER_BYTES, LONGEST_RECORD, LONGEST_VALUES,
    MOST_VALUES, PAGE_BYTES, PAGE_MAGIC, PAGE_VERSION, PageStart, TAG_CALL, TAG_CONTEXT, TAG_DRAWN,
    TAG_EXPORT, TAG_PLACE, TAG_RUNNING, TAG_TASK, TAG_THREAD_CLOCK, TAG_VALUES, TAG_WORKGROUP,
    Task,
};
use crate::usage::{USAGE_WORDS, Usage};
use crate::wire::{put_varint, zigzag};

/// Writes records to one page at a time. The type has no destructor, so that it can be in a
/// thread-local variable that is never dropped. The first cache line has the fields that every call
/// needs.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct PageWriter {
    page: *mut u8,
    at: u32,
    calls: u32,
    last_ticks: u64,
    contexts: Contexts,
    base_cpu_ns: u64,
    base_monotonic_ns: u64,
}

/// The place of the next field of a record that is being written. Readers do not see the record
/// before it is committed.
#[derive(Debug)]
pub struct Cursor {
    at: *mut u8,
}

impl Cursor {
    /// Appends one field.
    ///
    /// # Safety
    /// The page must have had room when the record was begun, and the caller may append no more
    /// fields than the longest record has.
    #[inline(always)]
    pub unsafe fn put(&mut self, value: u64) {
        // SAFETY: by contract, the fields are no more than the longest record has, and the page had
        // LONGEST_RECORD bytes for them. These bytes include the slack that `put_varint` may
        // overwrite.
        self.at = unsafe { put_varint(self.at, value) };
    }

    /// # Safety
    /// Same as for [`Cursor::put`].
    #[inline(always)]
    unsafe fn put_context(&mut self, call: &Call, tag: u8) {
        // SAFETY: by contract, there is room for the record, and these fields are part of the
        // record.
        unsafe {
            if tag & (TAG_CONTEXT | TAG_EXPORT) != 0 {
                self.put_seldom(call.export);
            }
            if tag & TAG_CONTEXT != 0 {
                call.count.iter().for_each(|field| self.put_seldom(*field));
            }
            if tag & TAG_PLACE != 0 {
                self.put_seldom(call.location);
                self.put_seldom(call.worker);
            }
            if tag & TAG_WORKGROUP != 0 {
                call.workgroup.iter().for_each(|field| self.put_seldom(*field));
            }
        }
    }

    /// [`Cursor::put`] for a field that most records do not have. A separate function keeps the
    /// code for the usual fields short.
    ///
    /// # Safety
    /// Same as for [`Cursor::put`].
    #[cold]
    #[inline(never)]
    unsafe fn put_seldom(&mut self, value: u32) {
        // SAFETY: by contract, there is room for the record, and this field is part of the record.
        unsafe { self.put(value.into()) };
    }
}

impl PageWriter {
    /// Creates a writer without a page. [`PageWriter::attach`] must attach a page before records
    /// are written.
    pub const fn detached() -> Self {
        Self {
            page: std::ptr::null_mut(),
            at: 0,
            calls: 0,
            last_ticks: 0,
            base_cpu_ns: 0,
            base_monotonic_ns: 0,
            contexts: Contexts::new(),
        }
    }

    #[inline(always)]
    pub fn is_attached(&self) -> bool {
        !self.page.is_null()
    }

    #[inline(always)]
    fn header(&self) -> *mut RawHeader {
        self.page.cast()
    }

    /// Starts a page at `page`.
    ///
    /// # Safety
    /// `page` must be [`PAGE_BYTES`] of writable memory, aligned to 8, that no other thread writes
    /// to.
    pub unsafe fn attach(&mut self, page: *mut u8, start: &PageStart) {
        self.page = page;
        self.base_cpu_ns = start.base_cpu_ns;
        self.base_monotonic_ns = start.base_monotonic_ns;
        self.rewind(start.base_ticks);
        let header = self.header();
        // SAFETY: the fields are inside the page, and the caller guarantees that it is writable.
        // Readers ignore the page until `magic` is stored. So they see no partial header if the
        // process is killed before that.
        unsafe {
            (*header).magic.store(0, Ordering::Release);
            (*header).committed.store(0, Ordering::Release);
            (*header).open.store(0, Ordering::Relaxed);
            (*header).version = PAGE_VERSION;
            (*header).header_bytes = HEADER_BYTES as u16;
            (*header).flags = 0;
            (*header).pid = start.pid;
            (*header).generation = start.generation;
            (*header).start_time = start.start_time;
            (*header).thread_uid = start.thread_uid;
            (*header).tid = start.tid;
            (*header).thread_name = start.thread_name;
            (*header).sequence = start.sequence;
            (*header).counters = start.counters;
            (*header).base_ticks = start.base_ticks;
            (*header).base_cpu_ns = start.base_cpu_ns;
            (*header).base_monotonic_ns = start.base_monotonic_ns;
            (*header).flush_ticks = start.flush_ticks;
            (*header).flushes = start.flushes;
            (*header).attach_ns = start.attach_ns;
            (*header).usages = if start.usage.is_some() { USAGE_BEGIN } else { 0 };
            (*header).usage_begin = start.usage.map_or([0; USAGE_WORDS], |usage| usage.words());
            (*header).usage_end = [0; USAGE_WORDS];
            (*header).checksum = 0;
            (*header).magic.store(PAGE_MAGIC, Ordering::Release);
        }
    }

    fn rewind(&mut self, base_ticks: u64) {
        self.at = HEADER_BYTES as u32;
        self.calls = 0;
        self.last_ticks = base_ticks;
        self.contexts.clear();
    }

    /// Detaches the page, whose content does not change.
    pub fn detach(&mut self) {
        // The fields are set one by one, because `Self::detached()` would first build a whole
        // writer on the program's stack.
        self.page = std::ptr::null_mut();
        (self.base_cpu_ns, self.base_monotonic_ns) = (0, 0);
        self.rewind(0);
        self.at = 0;
    }

    /// Returns whether one more record fits, whatever its content.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.at as usize + LONGEST_RECORD <= PAGE_BYTES
    }

    /// Returns whether a call and its values fit.
    #[inline(always)]
    pub fn has_room_with_values(&self) -> bool {
        self.at as usize + LONGEST_RECORD + LONGEST_VALUES <= PAGE_BYTES
    }

    /// Returns whether the values of the call that was just committed fit, however many they are.
    #[inline(always)]
    pub fn has_room_for_values(&self) -> bool {
        self.at as usize + LONGEST_VALUES <= PAGE_BYTES
    }

    /// Returns the addresses that the writer will access when it records the next call of `export`,
    /// except those in its own first cache line. They are meant for prefetching.
    #[inline(always)]
    pub fn ahead(&self, export: u32) -> [*const u8; 3] {
        let record = self.page.wrapping_add(self.at as usize);
        [self.contexts.place_of(export), record, self.page.wrapping_add(64)]
    }

    /// Stores in the header how many calls are in progress, and the export of one of the latest
    /// calls. If the process dies, a reader finds both in the header.
    ///
    /// # Safety
    /// A page must be attached.
    #[inline(always)]
    pub unsafe fn set_open(&mut self, depth: u32, export: u32) {
        // SAFETY: by contract, a page is attached.
        unsafe { &(*self.header()).open }
            .store(u64::from(depth) << 32 | u64::from(export), Ordering::Relaxed);
    }

    /// Begins the record of a call. The caller appends the readings of each counter group and
    /// commits the record. `scaled` says whether the running time of some group differs from its
    /// enabled time.
    ///
    /// # Safety
    /// A page with room must be attached.
    #[inline(always)]
    pub unsafe fn call(&mut self, call: &Call, scaled: bool) -> Cursor {
        let context = self.contexts.write(call);
        let tag = TAG_CALL | (u8::from(scaled) * TAG_RUNNING) | context;
        // SAFETY: by contract, a page with room is attached, so `at` is within the page.
        let start = unsafe { self.page.add(self.at as usize) };
        // SAFETY: the page has room for the record, so the byte after the tag is within the page.
        let mut cursor = Cursor { at: unsafe { start.add(1) } };
        if context != 0 {
            // SAFETY: by contract, a page with room is attached.
            unsafe { cursor.put_context(call, context) };
        }
        // SAFETY: by contract, a page with room is attached; `start` is the place of the tag.
        unsafe {
            start.write(tag);
            cursor.put(zigzag(call.start.wrapping_sub(self.last_ticks) as i64));
            cursor.put(call.end.wrapping_sub(call.start));
        }
        self.last_ticks = call.end;
        cursor
    }

    /// Does what [`PageWriter::call`] does, for a call that was chosen by sampling. The record also
    /// contains `drawn`, which says how the call was chosen.
    ///
    /// # Safety
    /// A page with room must be attached.
    #[inline(always)]
    pub unsafe fn drawn_call(&mut self, call: &Call, scaled: bool, drawn: &Drawn) -> Cursor {
        // SAFETY: by contract, a page with room is attached. The record's tag is at `at` until the
        // record is committed.
        unsafe {
            let tag = self.page.add(self.at as usize);
            let mut cursor = self.call(call, scaled);
            tag.write(tag.read() | TAG_DRAWN);
            cursor.put(drawn.period.into());
            cursor.put(drawn.counter_period.into());
            cursor.put(drawn.skipped);
            cursor
        }
    }

    /// Commits a call record, so that readers see it.
    ///
    /// # Safety
    /// `cursor` must belong to the record that was just begun on the attached page.
    #[inline(always)]
    pub unsafe fn commit_call(&mut self, cursor: Cursor) {
        self.calls += 1;
        // SAFETY: by contract, `cursor` belongs to the record that was begun on the attached page.
        unsafe { self.commit(cursor) };
    }

    #[inline(always)]
    unsafe fn commit(&mut self, cursor: Cursor) {
        self.at = (cursor.at as usize - self.page as usize) as u32;
        let committed = u64::from(self.at - HEADER_BYTES as u32) | u64::from(self.calls) << 32;
        // SAFETY: callers have a page attached. Release ordering makes the record's bytes visible
        // before the count that includes them, also to another process that maps the page.
        unsafe { &(*self.header()).committed }.store(committed, Ordering::Release);
    }

    /// Returns whether a task that ended at this location can have the record of a task: whether
    /// the last record of a call on the page has this location, and the worker 0.
    #[inline(always)]
    pub fn takes_task(&self, location: u32) -> bool {
        self.contexts.place() == [location, 0]
    }

    /// Begins the record of a parallel region or of a task. The caller appends what
    /// [`PageWriter::call`] says, and commits the record with [`PageWriter::commit_task`].
    ///
    /// # Safety
    /// A page with room must be attached, and [`PageWriter::takes_task`] must have returned true.
    #[inline(always)]
    pub unsafe fn task(&mut self, task: &Task) -> Cursor {
        // SAFETY: by contract, a page with room is attached, so the record is within the page.
        unsafe {
            let start = self.page.add(self.at as usize);
            start.write(TAG_TASK);
            let mut cursor = Cursor { at: start.add(LENGTH_END) };
            cursor.put(task.export.into());
            cursor.put(task.number.into());
            cursor.put(task.count.into());
            cursor.put(zigzag(task.start.wrapping_sub(self.last_ticks) as i64));
            cursor.put(task.end.wrapping_sub(task.start));
            cursor.put(task.correlation.rotate_left(1));
            self.last_ticks = task.end;
            cursor
        }
    }

    /// Commits the record of a parallel region or of a task, so that readers see it.
    ///
    /// # Safety
    /// `cursor` must belong to the record that [`PageWriter::task`] has just begun on the attached
    /// page.
    #[inline(always)]
    pub unsafe fn commit_task(&mut self, cursor: Cursor) {
        // SAFETY: by contract, the record begins at `at` on the attached page.
        unsafe {
            put_length(self.page.add(self.at as usize), &cursor);
            self.commit_call(cursor);
        }
    }

    /// Adds keys with values to the call that was just committed: at most the first
    /// [`MOST_VALUES`].
    ///
    /// # Safety
    /// A page with room for values must be attached.
    pub unsafe fn values(&mut self, values: &[(u32, u64)]) {
        // SAFETY: by contract, a page with room for values is attached.
        unsafe {
            let start = self.page.add(self.at as usize);
            start.write(TAG_VALUES);
            let mut cursor = Cursor { at: start.add(LENGTH_END) };
            for (key, value) in values.iter().take(MOST_VALUES) {
                cursor.put((*key).into());
                cursor.put(*value);
            }
            put_length(start, &cursor);
            self.commit(cursor);
        }
    }

    /// Records the thread's CPU time and `CLOCK_MONOTONIC` at the moment `ticks`.
    ///
    /// # Safety
    /// A page with room must be attached.
    pub unsafe fn thread_clock(&mut self, ticks: u64, cpu_ns: u64, monotonic_ns: u64) {
        // SAFETY: by contract, a page with room is attached.
        unsafe {
            let start = self.page.add(self.at as usize);
            start.write(TAG_THREAD_CLOCK);
            let mut cursor = Cursor { at: start.add(1) };
            cursor.put(zigzag(ticks.wrapping_sub(self.last_ticks) as i64));
            cursor.put(cpu_ns.wrapping_sub(self.base_cpu_ns));
            cursor.put(monotonic_ns.wrapping_sub(self.base_monotonic_ns));
            self.last_ticks = ticks;
            self.commit(cursor);
        }
    }

    /// Stores the thread's usage at the moment when the recorder was completely attached to the
    /// thread. `attach_ns` is the CPU time that attaching took. What the thread uses after this
    /// moment is attributed to the program.
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn set_begin(&mut self, usage: Usage, attach_ns: u64) {
        let header = self.header();
        // SAFETY: by contract, a page is attached. The flag is stored last, so if the process is
        // killed in between, the page has no usage.
        unsafe {
            (*header).attach_ns = attach_ns;
            (*header).usage_begin = usage.words();
            compiler_fence(Ordering::SeqCst);
            (*header).usages = USAGE_BEGIN;
        }
    }

    /// Stores the usage of the thread at the end of its page. Call it before [`PageWriter::seal`].
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn set_end(&mut self, usage: Usage) {
        let header = self.header();
        // SAFETY: by contract, a page is attached. The flag is stored last, so if the process is
        // killed in between, the page does not have this usage.
        unsafe {
            (*header).usage_end = usage.words();
            compiler_fence(Ordering::SeqCst);
            (*header).usages |= USAGE_END;
        }
    }

    /// Marks the page as flushed, and returns its bytes, which are to be appended to the profile.
    /// `last` says whether this is the thread's last page. The flags are stored after the checksum,
    /// so if the process is killed meanwhile, a page that is marked as flushed has a valid
    /// checksum.
    ///
    /// # Safety
    /// A page must be attached, and stay attached while the slice is used.
    pub unsafe fn seal(&mut self, last: bool, thread_name: [u8; 16]) -> &[u8] {
        let header = self.header();
        // SAFETY: by contract, a page is attached, and this thread is its only writer.
        unsafe {
            (*header).thread_name = thread_name;
            let flags = FLAG_FLUSHED | if last { FLAG_LAST } else { 0 };
            let page = std::slice::from_raw_parts(self.page, self.at as usize);
            (*header).checksum = checksum_with(page, flags);
            compiler_fence(Ordering::SeqCst);
            (*header).flags = flags;
            std::slice::from_raw_parts(self.page, self.at as usize)
        }
    }

    /// Stores the thread's name for the process that will append the page ([`crate::pool::full`]),
    /// and detaches the page.
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn finish(&mut self, thread_name: [u8; 16]) {
        // SAFETY: by contract, a page is attached, and this thread is its only writer.
        unsafe { (*self.header()).thread_name = thread_name };
        self.detach();
    }

    /// Reverses [`PageWriter::seal`], because the page could not be appended to the profile and
    /// stays in the pool.
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn unseal(&mut self, last: bool) {
        // SAFETY: by contract, a page is attached.
        unsafe { (*self.header()).flags = if last { FLAG_LAST } else { 0 } };
    }

    /// Returns the number of calls recorded in the attached page.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Empties the page after its content was flushed or abandoned, and starts the thread's next
    /// page in the same memory. A reader in another process meanwhile sees the old sequence number,
    /// no magic number, or no records.
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn next_page(&mut self, start: &PageStart) {
        let page = self.page;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: by contract, a page was attached, so its memory is as `attach` requires.
        unsafe { self.attach(page, start) };
    }

    /// Removes the page's magic number before its memory is given back to the pool, and detaches
    /// the page.
    ///
    /// # Safety
    /// A page must be attached.
    pub unsafe fn retire(&mut self) {
        // SAFETY: by contract, a page is attached.
        unsafe { &(*self.header()).magic }.store(0, Ordering::Release);
        self.detach();
    }
}

/// Offset of the first field after the tag and the length, in a record that has a length. The
/// length is a prefix varint of two bytes, even if one is enough.
const LENGTH_END: usize = 3;

/// Stores the length of the record that begins at `start`. Its last field ends at `cursor`.
///
/// # Safety
/// The record must have a tag and room for the length, and be on a page.
#[inline(always)]
unsafe fn put_length(start: *mut u8, cursor: &Cursor) {
    let length = cursor.at as usize - start as usize - LENGTH_END;
    // SAFETY: by contract, the record has room for its length.
    unsafe { start.add(1).cast::<u16>().write_unaligned(((length as u16) << 2 | 0b10).to_le()) };
}

const _: () = assert!(LONGEST_VALUES < 1 << 14 && LONGEST_RECORD < 1 << 14);
