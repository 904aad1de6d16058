//! A page in its own memory, for programs that write pages outside of a profiled process.

use super::{Call, Drawn, PAGE_BYTES, PageStart, PageWriter};
use crate::Usage;

/// A page and its writer.
pub struct OwnedPage {
    memory: Vec<u64>,
    writer: PageWriter,
    start: PageStart,
}

impl std::fmt::Debug for OwnedPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedPage").field("start", &self.start).finish_non_exhaustive()
    }
}

impl OwnedPage {
    /// Creates a page without records, whose header contains the values of `start`.
    pub fn new(start: PageStart) -> Self {
        let mut memory = vec![0u64; PAGE_BYTES / 8];
        let mut writer = PageWriter::detached();
        // SAFETY: the memory is a whole page, aligned as u64. The vector never grows, and moving it
        // does not move its memory.
        unsafe { writer.attach(memory.as_mut_ptr().cast(), &start) };
        Self { memory, writer, start }
    }

    /// Returns whether another record fits.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.writer.has_room()
    }

    /// Returns whether the records of another call and of its values fit.
    pub fn has_room_with_values(&self) -> bool {
        self.writer.has_room_with_values()
    }

    /// Returns whether a record of the values of the last recorded call still fits.
    pub fn has_room_for_values(&self) -> bool {
        self.writer.has_room_for_values()
    }

    /// Returns the number of calls in the page.
    pub fn calls(&self) -> u32 {
        self.writer.calls()
    }

    /// Records a call. `fields` are the numbers that the record contains about the page's counter
    /// groups, in the order that [`super`] describes. `scaled` is as for [`PageWriter::call`].
    ///
    /// # Panics
    /// Panics if the page is full, or if there are more fields than the counters of a run can have.
    #[inline]
    pub fn call(&mut self, call: &Call, scaled: bool, fields: impl IntoIterator<Item = u64>) {
        self.put_call(call, scaled, None, fields);
    }

    /// Does what [`OwnedPage::call`] does, for a call that was chosen by sampling. `drawn` says how
    /// the call was chosen.
    ///
    /// # Panics
    /// Same as for [`OwnedPage::call`].
    pub fn drawn_call(
        &mut self,
        call: &Call,
        scaled: bool,
        drawn: &Drawn,
        fields: impl IntoIterator<Item = u64>,
    ) {
        self.put_call(call, scaled, Some(drawn), fields);
    }

    #[inline]
    fn put_call(
        &mut self,
        call: &Call,
        scaled: bool,
        drawn: Option<&Drawn>,
        fields: impl IntoIterator<Item = u64>,
    ) {
        assert!(self.writer.has_room(), "the page is full");
        // SAFETY: `new` has attached a page, and the assertion above checks that the longest record
        // fits. The assertion in the loop allows no more fields than such a record has.
        unsafe {
            let mut cursor = match drawn {
                Some(drawn) => self.writer.drawn_call(call, scaled, drawn),
                None => self.writer.call(call, scaled),
            };
            for (number, field) in fields.into_iter().enumerate() {
                assert!(number < 3 * model::MAX_COUNTERS, "more fields than counters");
                cursor.put(field);
            }
            self.writer.commit_call(cursor);
        }
    }

    /// Adds values to the last call; see [`PageWriter::values`].
    ///
    /// # Panics
    /// Panics if the page is full. Check [`OwnedPage::has_room_for_values`] first.
    pub fn values(&mut self, values: &[(u32, u64)]) {
        assert!(self.writer.has_room_for_values(), "the page is full");
        // SAFETY: `new` has attached a page, and the assertion checks that it has room.
        unsafe { self.writer.values(values) };
    }

    /// Records the readings of the run's clock, of the thread's CPU clock and of `CLOCK_MONOTONIC`
    /// at one moment.
    ///
    /// # Panics
    /// Panics if the page is full.
    pub fn thread_clock(&mut self, ticks: u64, cpu_ns: u64, monotonic_ns: u64) {
        assert!(self.writer.has_room(), "the page is full");
        // SAFETY: `new` has attached a page, and the assertion checks that it has room.
        unsafe { self.writer.thread_clock(ticks, cpu_ns, monotonic_ns) };
    }

    /// Stores `depth`, the number of calls in progress, and `export`, the export of the call that
    /// began or ended last.
    pub fn set_open(&mut self, depth: u32, export: u32) {
        // SAFETY: `new` has attached a page.
        unsafe { self.writer.set_open(depth, export) };
    }

    /// Stores what the kernel had counted for the page's thread when the page ended. Call it before
    /// [`OwnedPage::seal`].
    pub fn set_end(&mut self, usage: Usage) {
        // SAFETY: `new` has attached a page.
        unsafe { self.writer.set_end(usage) };
    }

    /// Changes the thread's name, which [`OwnedPage::seal`] writes.
    pub fn set_thread_name(&mut self, name: [u8; 16]) {
        self.start.thread_name = name;
    }

    /// Returns the bytes to append to a file of pages. `last` says whether this is the thread's
    /// last page.
    pub fn seal(&mut self, last: bool) -> &[u8] {
        // SAFETY: `new` has attached a page, and the borrow of `self` prevents changes to it while
        // the slice is used.
        unsafe { self.writer.seal(last, self.start.thread_name) }
    }

    /// Starts the next page in the same memory, and thus discards the records of this page.
    pub fn next(&mut self, start: PageStart) {
        self.start = start;
        // SAFETY: `new` has attached a page.
        unsafe { self.writer.next_page(&start) };
    }

    /// Returns the values that the page started with, with the thread's name as last changed.
    pub fn start(&self) -> &PageStart {
        &self.start
    }

    /// Returns the whole page, as it would be in a pool.
    pub fn bytes(&self) -> Vec<u8> {
        self.memory.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}
