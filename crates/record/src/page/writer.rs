//! Writing: the hot path's half.

use std::sync::atomic::{Ordering, compiler_fence};

use super::header::{RawHeader, USAGE_BEGIN, USAGE_END, checksum_with};
use super::{
    Call, FLAG_FLUSHED, FLAG_LAST, HEADER_BYTES, LONGEST_RECORD, LONGEST_VALUES, MOST_VALUES,
    PAGE_BYTES, PAGE_MAGIC, PAGE_VERSION, PageStart, TAG_CALL, TAG_CONTEXT, TAG_RUNNING,
    TAG_THREAD_CLOCK, TAG_VALUES, TAG_WORKGROUP,
};
use crate::usage::{USAGE_WORDS, Usage};
use crate::wire::{put_varint, zigzag};

/// Writes records into one mapped page at a time. Plain data, so that it can live in a
/// thread-local that is never dropped; see [`PageWriter::detached`].
#[derive(Debug)]
pub struct PageWriter {
    page: *mut u8,
    at: u32,
    calls: u32,
    last_ticks: u64,
    base_cpu_ns: u64,
    base_monotonic_ns: u64,
    context: [u32; 6],
    next_workgroup: [u32; 3],
}

/// A record in the making: addresses of bytes that are not committed yet.
#[derive(Debug)]
pub struct Cursor {
    at: *mut u8,
}

impl Cursor {
    /// Appends one field.
    ///
    /// # Safety
    /// At most the fields of the longest record, on a page that had room when it was begun.
    #[inline(always)]
    pub unsafe fn put(&mut self, value: u64) {
        // SAFETY: `has_room` reserved LONGEST_RECORD bytes, which includes the slack.
        self.at = unsafe { put_varint(self.at, value) };
    }
}

impl PageWriter {
    /// A writer without a page. Only [`PageWriter::is_attached`] and [`PageWriter::attach`] make
    /// sense on it.
    pub const fn detached() -> Self {
        Self {
            page: std::ptr::null_mut(),
            at: 0,
            calls: 0,
            last_ticks: 0,
            base_cpu_ns: 0,
            base_monotonic_ns: 0,
            context: [0; 6],
            next_workgroup: [0; 3],
        }
    }

    /// Whether it has a page.
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
    /// `page` is [`PAGE_BYTES`] of writable memory, aligned to 8, that no other thread writes.
    pub unsafe fn attach(&mut self, page: *mut u8, start: &PageStart) {
        self.page = page;
        self.base_cpu_ns = start.base_cpu_ns;
        self.base_monotonic_ns = start.base_monotonic_ns;
        self.rewind(start.base_ticks);
        let header = self.header();
        // SAFETY: inside the page. Until `magic` is stored, readers ignore the page, so a kill
        // in between leaves no half-made header.
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
        self.context = [0; 6];
        self.next_workgroup = [0; 3];
    }

    /// Forgets the page. What is in it stays.
    pub fn detach(&mut self) {
        *self = Self::detached();
    }

    /// Whether one more record fits, whatever it holds.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.at as usize + LONGEST_RECORD <= PAGE_BYTES
    }

    /// Whether a call and its values fit.
    #[inline(always)]
    pub fn has_room_with_values(&self) -> bool {
        self.at as usize + LONGEST_RECORD + LONGEST_VALUES <= PAGE_BYTES
    }

    /// Whether values of the last call fit.
    #[inline(always)]
    pub fn has_room_for_values(&self) -> bool {
        self.at as usize + LONGEST_VALUES <= PAGE_BYTES
    }

    /// Notes in the header that `depth` calls are in progress, the outermost of `export`:
    /// what a reader finds if the process dies now.
    ///
    /// # Safety
    /// A page is attached.
    #[inline(always)]
    pub unsafe fn set_open(&mut self, depth: u32, export: u32) {
        // SAFETY: attached by contract.
        unsafe { &(*self.header()).open }
            .store(u64::from(depth) << 32 | u64::from(export), Ordering::Relaxed);
    }

    /// Begins a call record; the caller appends what each group read, then commits.
    /// `scaled` says that some group's time running differs from its time enabled.
    ///
    /// # Safety
    /// A page with room is attached.
    #[inline(always)]
    pub unsafe fn call(&mut self, call: &Call, scaled: bool) -> Cursor {
        let context =
            [call.export, call.count[0], call.count[1], call.count[2], call.location, call.worker];
        let mut tag = TAG_CALL | (u8::from(scaled) * TAG_RUNNING);
        // SAFETY: `at` is within the page while there is room.
        let start = unsafe { self.page.add(self.at as usize) };
        // SAFETY: as above.
        let mut cursor = Cursor { at: unsafe { start.add(1) } };
        if context != self.context {
            tag |= TAG_CONTEXT;
            self.context = context;
            self.next_workgroup = [0; 3];
            for field in context {
                // SAFETY: room by contract.
                unsafe { cursor.put(field.into()) };
            }
        }
        if call.workgroup != self.next_workgroup {
            tag |= TAG_WORKGROUP;
            for field in call.workgroup {
                // SAFETY: room by contract.
                unsafe { cursor.put(field.into()) };
            }
        }
        let [x, y, z] = call.workgroup;
        self.next_workgroup = [x.wrapping_add(1), y, z];
        // SAFETY: room by contract; `start` is the tag's place.
        unsafe {
            start.write(tag);
            cursor.put(zigzag(call.start.wrapping_sub(self.last_ticks) as i64));
            cursor.put(call.end.wrapping_sub(call.start));
        }
        self.last_ticks = call.end;
        cursor
    }

    /// Makes a call record count.
    ///
    /// # Safety
    /// `cursor` is of the record just begun on the attached page.
    #[inline(always)]
    pub unsafe fn commit_call(&mut self, cursor: Cursor) {
        self.calls += 1;
        // SAFETY: same contract.
        unsafe { self.commit(cursor) };
    }

    #[inline(always)]
    unsafe fn commit(&mut self, cursor: Cursor) {
        self.at = (cursor.at as usize - self.page as usize) as u32;
        let committed = u64::from(self.at - HEADER_BYTES as u32) | u64::from(self.calls) << 32;
        // SAFETY: a page is attached. Release: the record's bytes are in memory before the count
        // that covers them, also for the process that maps the page from outside.
        unsafe { &(*self.header()).committed }.store(committed, Ordering::Release);
    }

    /// Adds values to the call that was just committed: keys and their 64 bits, at most
    /// [`MOST_VALUES`] (the rest is left out).
    ///
    /// # Safety
    /// A page with room for values is attached.
    pub unsafe fn values(&mut self, values: &[(u32, u64)]) {
        // SAFETY: room by contract.
        unsafe {
            let start = self.page.add(self.at as usize);
            start.write(TAG_VALUES);
            // The length goes before; it is below 2^14, so two bytes hold it always.
            let first = start.add(3);
            let mut cursor = Cursor { at: first };
            for (key, value) in values.iter().take(MOST_VALUES) {
                cursor.put((*key).into());
                cursor.put(*value);
            }
            let length = cursor.at as usize - first as usize;
            let [low, high] = two_byte_varint(length as u16);
            start.add(1).write(low);
            start.add(2).write(high);
            self.commit(cursor);
        }
    }

    /// Records where the thread's CPU clock and `CLOCK_MONOTONIC` stand at `ticks`.
    ///
    /// # Safety
    /// A page with room is attached.
    pub unsafe fn thread_clock(&mut self, ticks: u64, cpu_ns: u64, monotonic_ns: u64) {
        // SAFETY: room by contract.
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

    /// Notes what the thread had used when the recorder was ready for it, and how long that took:
    /// where its first page begins for the program.
    ///
    /// # Safety
    /// A page is attached.
    pub unsafe fn set_begin(&mut self, usage: Usage, attach_ns: u64) {
        let header = self.header();
        // SAFETY: attached by contract. The mark goes last, so that a kill in between leaves a page
        // without usage.
        unsafe {
            (*header).attach_ns = attach_ns;
            (*header).usage_begin = usage.words();
            compiler_fence(Ordering::SeqCst);
            (*header).usages = USAGE_BEGIN;
        }
    }

    /// Notes what the thread had used when its page ended. Before [`PageWriter::seal`].
    ///
    /// # Safety
    /// A page is attached.
    pub unsafe fn set_end(&mut self, usage: Usage) {
        let header = self.header();
        // SAFETY: as in `set_begin`.
        unsafe {
            (*header).usage_end = usage.words();
            compiler_fence(Ordering::SeqCst);
            (*header).usages |= USAGE_END;
        }
    }

    /// The bytes to append to the profile: header with checksum, committed records.
    /// `last` marks the thread's last page. A kill in between leaves a page that is not marked as
    /// flushed yet, or one whose checksum holds: the mark is stored last.
    ///
    /// # Safety
    /// A page is attached and stays so while the slice is used.
    pub unsafe fn seal(&mut self, last: bool, thread_name: [u8; 16]) -> &[u8] {
        let header = self.header();
        // SAFETY: the page is attached and this thread is its only writer.
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

    /// Takes [`PageWriter::seal`] back: the page was not written and stays in the pool.
    ///
    /// # Safety
    /// A page is attached.
    pub unsafe fn unseal(&mut self, last: bool) {
        // SAFETY: attached by contract.
        unsafe { (*self.header()).flags = if last { FLAG_LAST } else { 0 } };
    }

    /// Calls recorded in the attached page.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// Empties the page after its content was flushed (or given up) and starts the next one of
    /// the same thread in the same memory. A reader that finds the page between the two sees
    /// either the old sequence number, which it already has from the file, or an empty page.
    ///
    /// # Safety
    /// A page is attached.
    pub unsafe fn next_page(&mut self, start: &PageStart) {
        let page = self.page;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: attached by contract.
        unsafe { self.attach(page, start) };
    }

    /// Marks the memory as no page any more, before it is given back to the pool.
    ///
    /// # Safety
    /// A page is attached.
    pub unsafe fn retire(&mut self) {
        // SAFETY: attached by contract.
        unsafe { &(*self.header()).magic }.store(0, Ordering::Release);
        self.detach();
    }
}

/// A prefix varint of two bytes, also for what would fit into one.
const fn two_byte_varint(value: u16) -> [u8; 2] {
    (value << 2 | 0b10).to_le_bytes()
}

const _: () = assert!(LONGEST_VALUES < 1 << 14);
