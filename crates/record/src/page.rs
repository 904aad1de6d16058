//! Pages: where a thread writes its records, and how they are read back.
//!
//! ```text
//!   0                    256                            256 + committed        64 KiB
//!   ├─ header ────────────┼─ records ─────────────────────┼─ not yet committed ─┤
//! ```
//!
//! In the pool a page always has its full size; appended to `pages.cps` it ends behind its last
//! record. One page belongs to one thread; a thread's pages are numbered by `sequence` without
//! gaps. Each page can be read alone: differences start from the header's base values.
//!
//! Records, all fields prefix varints ([`crate::wire`]):
//!
//! ```text
//!  call          tag u8 = 0000 r w c 1
//!                c: export, count x y z, location (node << 12 | cpu), worker   follow
//!                w: workgroup id x y z follow; otherwise x is one more than the last call's
//!                start − end of the record before (zigzag), duration             [ticks]
//!                per counter group of the page, in order:
//!                    0 = not read, or time enabled + 1;  if r: time running;  values
//!                    (all differences over the call; without r, running = enabled)
//!  thread clock  tag u8 = 2
//!                now − end of the record before (zigzag)                         [ticks]
//!                thread CPU time − header's base                                 [ns]
//!                CLOCK_MONOTONIC − header's base                                 [ns]
//!  later kinds   tag even, length, payload: skipped by readers that do not know them
//! ```
//!
//! After `c` the workgroup id predicted for the call is 0,0,0. A call's context (the fields of
//! `c`) is all zero at the start of a page. With two counters a call takes 14 to 22 bytes.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use crate::wire::{VARINT_SLACK, get_varint, put_varint, unzigzag, xxh64, zigzag};

/// Bytes of a page in the pool.
pub const PAGE_BYTES: usize = 64 * 1024;
/// Bytes of a page's header.
pub const HEADER_BYTES: usize = 256;
/// Marks the start of a page; also what readers look for behind damage.
pub const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"CPTPAGE1");
/// The version of the layout described above.
pub const PAGE_VERSION: u16 = 1;

/// No record is longer: 11 leading fields, and for each of 32 counters in 32 groups three more.
const LONGEST_RECORD: usize = 1 + (11 + 3 * model::MAX_COUNTERS) * 9 + VARINT_SLACK;

const TAG_CALL: u8 = 1;
const TAG_CONTEXT: u8 = 2;
const TAG_WORKGROUP: u8 = 4;
const TAG_RUNNING: u8 = 8;
const TAG_THREAD_CLOCK: u8 = 2;

/// The page was the thread's last one.
pub const FLAG_LAST: u32 = 1;
/// The page was appended to a file, and `checksum` covers its records.
pub const FLAG_FLUSHED: u32 = 2;

#[repr(C)]
struct RawHeader {
    magic: AtomicU64,
    version: u16,
    header_bytes: u16,
    flags: u32,
    pid: u32,
    generation: u32,
    start_time: u64,
    thread_uid: u32,
    tid: u32,
    thread_name: [u8; 16],
    sequence: u32,
    counters: u32,
    base_ticks: u64,
    base_cpu_ns: u64,
    base_monotonic_ns: u64,
    /// Low half: bytes of records; high half: call records among them.
    committed: AtomicU64,
    /// High half: calls in progress; low half: export of the outermost one.
    open: AtomicU64,
    flush_ticks: u64,
    flushes: u32,
    reserved: u32,
    checksum: u64,
    reserved2: [u64; 16],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// Whose page it is and what is measured from where: all that a new page's header needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStart {
    /// Process id, as the process sees itself.
    pub pid: u32,
    /// See [`crate::pool::Row::generation`].
    pub generation: u32,
    /// See [`crate::pool::Row::start_time`].
    pub start_time: u64,
    /// The thread's number in its process.
    pub thread_uid: u32,
    /// The kernel's thread id.
    pub tid: u32,
    /// The thread's name, padded with zeros.
    pub thread_name: [u8; 16],
    /// Number of this page among the thread's pages, from 0.
    pub sequence: u32,
    /// Bit *i*: counter *i* of the run is recorded in this page. Whole groups only.
    pub counters: u32,
    /// Ticks from which the first record counts.
    pub base_ticks: u64,
    /// The thread's CPU time at `base_ticks`, ns.
    pub base_cpu_ns: u64,
    /// `CLOCK_MONOTONIC` at `base_ticks`, ns.
    pub base_monotonic_ns: u64,
    /// Ticks that this thread has spent in flushing pages so far.
    pub flush_ticks: u64,
    /// How often it has flushed.
    pub flushes: u32,
}

/// A dispatch call as it is recorded: one workgroup of one exported function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// See [`model::ExportId`].
    pub export: u32,
    /// Workgroups of the dispatch in x, y, z.
    pub count: [u32; 3],
    /// This workgroup, each below `count`.
    pub workgroup: [u32; 3],
    /// `node << 12 | cpu` at the end of the call.
    pub location: u32,
    /// The runtime's worker number.
    pub worker: u32,
    /// Ticks at its begin.
    pub start: u64,
    /// Ticks at its end.
    pub end: u64,
}

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

    /// The bytes to append to the profile: header with checksum, committed records.
    /// `last` marks the thread's last page.
    ///
    /// # Safety
    /// A page is attached and stays so while the slice is used.
    pub unsafe fn seal(&mut self, last: bool, thread_name: [u8; 16]) -> &[u8] {
        let header = self.header();
        // SAFETY: the page is attached and this thread is its only writer.
        unsafe {
            let records = std::slice::from_raw_parts(
                self.page.add(HEADER_BYTES),
                self.at as usize - HEADER_BYTES,
            );
            (*header).thread_name = thread_name;
            (*header).checksum = xxh64(records);
            (*header).flags = FLAG_FLUSHED | if last { FLAG_LAST } else { 0 };
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

/// How many counters each group of a page has, in the order of the run's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLayout {
    sizes: Vec<u8>,
}

impl GroupLayout {
    /// The layout of pages whose header says `mask`, in a run whose counters belong to `groups`
    /// (the group number of each counter, ascending).
    pub fn new(groups: &[u16], mask: u32) -> Self {
        let mut sizes: Vec<u8> = Vec::new();
        let mut previous = None;
        for (i, group) in groups.iter().enumerate().take(model::MAX_COUNTERS) {
            if mask & (1 << i) == 0 {
                continue;
            }
            if previous == Some(*group) {
                if let Some(size) = sizes.last_mut() {
                    *size += 1;
                }
            } else {
                sizes.push(1);
                previous = Some(*group);
            }
        }
        Self { sizes }
    }
}

/// The header of a page, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// What the writer said when it started the page (the name: when it ended it).
    pub start: PageStart,
    /// Bytes of records.
    pub committed: u32,
    /// Call records among them.
    pub calls: u32,
    /// Calls in progress when the page was last touched.
    pub open_calls: u32,
    /// The export of the outermost of them.
    pub open_export: u32,
    /// The thread's last page.
    pub last: bool,
    /// Appended to a file: the checksum holds.
    pub flushed: bool,
    checksum: u64,
}

/// Why bytes are not a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Fewer bytes than the header and the committed records need.
    Truncated {
        /// Bytes needed.
        need: usize,
        /// Bytes there.
        have: usize,
    },
    /// The magic number is not there.
    NoMagic,
    /// Written by a later version.
    Version(u16),
    /// The header's sizes contradict one another.
    Inconsistent,
    /// The records are not those that were written.
    Checksum,
}

impl PageHeader {
    /// Reads a header.
    ///
    /// # Errors
    /// [`PageError`] for anything that is not a complete header of a known version.
    pub fn parse(bytes: &[u8]) -> Result<Self, PageError> {
        let raw: &[u8; HEADER_BYTES] = bytes
            .first_chunk()
            .ok_or(PageError::Truncated { need: HEADER_BYTES, have: bytes.len() })?;
        macro_rules! field {
            ($name:ident, $t:ty) => {{
                let at = std::mem::offset_of!(RawHeader, $name);
                let mut word = [0u8; size_of::<$t>()];
                word.copy_from_slice(&raw[at..at + size_of::<$t>()]);
                <$t>::from_le_bytes(word)
            }};
        }
        if field!(magic, u64) != PAGE_MAGIC {
            return Err(PageError::NoMagic);
        }
        let version = field!(version, u16);
        if version != PAGE_VERSION {
            return Err(PageError::Version(version));
        }
        let committed = field!(committed, u64);
        let (committed, calls) = (committed as u32, (committed >> 32) as u32);
        if field!(header_bytes, u16) as usize != HEADER_BYTES
            || committed as usize > PAGE_BYTES - HEADER_BYTES
        {
            return Err(PageError::Inconsistent);
        }
        let open = field!(open, u64);
        let flags = field!(flags, u32);
        let mut thread_name = [0u8; 16];
        let name_at = std::mem::offset_of!(RawHeader, thread_name);
        thread_name.copy_from_slice(&raw[name_at..name_at + 16]);
        Ok(Self {
            start: PageStart {
                pid: field!(pid, u32),
                generation: field!(generation, u32),
                start_time: field!(start_time, u64),
                thread_uid: field!(thread_uid, u32),
                tid: field!(tid, u32),
                thread_name,
                sequence: field!(sequence, u32),
                counters: field!(counters, u32),
                base_ticks: field!(base_ticks, u64),
                base_cpu_ns: field!(base_cpu_ns, u64),
                base_monotonic_ns: field!(base_monotonic_ns, u64),
                flush_ticks: field!(flush_ticks, u64),
                flushes: field!(flushes, u32),
            },
            committed,
            calls,
            open_calls: (open >> 32) as u32,
            open_export: open as u32,
            last: flags & FLAG_LAST != 0,
            flushed: flags & FLAG_FLUSHED != 0,
            checksum: field!(checksum, u64),
        })
    }

    /// Bytes that this page takes in a file.
    pub fn file_bytes(&self) -> usize {
        HEADER_BYTES + self.committed as usize
    }

    /// The thread's name as text.
    pub fn thread_name(&self) -> String {
        let name = &self.start.thread_name;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    }
}

/// One decoded record. The values of a call are in [`PageReader::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A call of one workgroup.
    Call(Call),
    /// A moment on the thread's clocks.
    ThreadClock {
        /// The run's clock.
        ticks: u64,
        /// CPU time of the thread, ns.
        cpu_ns: u64,
        /// `CLOCK_MONOTONIC`, ns.
        monotonic_ns: u64,
    },
    /// A kind that a later version writes; skipped.
    Other {
        /// Its number.
        kind: u8,
    },
}

/// What one group counted during the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTimes {
    /// Whether the group was read. If not, its values are meaningless.
    pub read: bool,
    /// How long the group was enabled during the call, ns (time on a CPU, for a thread's group).
    pub enabled: u64,
    /// How long it was really counting, ns.
    pub running: u64,
}

/// A record that does not decode. What came before it on the page is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornRecord {
    /// Where it starts, in bytes from the page's start.
    pub at: usize,
}

/// Reads the records of one page.
#[derive(Debug)]
pub struct PageReader<'a> {
    header: PageHeader,
    records: &'a [u8],
    at: usize,
    layout: &'a GroupLayout,
    last_ticks: u64,
    context: [u32; 6],
    next_workgroup: [u32; 3],
    groups: Vec<GroupTimes>,
    values: Vec<u64>,
}

impl<'a> PageReader<'a> {
    /// Checks the page at the start of `bytes` (which may go on behind it).
    ///
    /// # Errors
    /// [`PageError`]; a flushed page whose checksum does not hold is an error as a whole.
    pub fn new(bytes: &'a [u8], layout: &'a GroupLayout) -> Result<Self, PageError> {
        let header = PageHeader::parse(bytes)?;
        let need = header.file_bytes();
        let records = bytes
            .get(HEADER_BYTES..need)
            .ok_or(PageError::Truncated { need, have: bytes.len() })?;
        if header.flushed && xxh64(records) != header.checksum {
            return Err(PageError::Checksum);
        }
        let values = layout.sizes.iter().map(|s| *s as usize).sum();
        Ok(Self {
            last_ticks: header.start.base_ticks,
            header,
            records,
            at: 0,
            layout,
            context: [0; 6],
            next_workgroup: [0; 3],
            groups: vec![GroupTimes::default(); layout.sizes.len()],
            values: vec![0; values],
        })
    }

    /// The page's header.
    pub fn header(&self) -> &PageHeader {
        &self.header
    }

    /// Times of each group during the last call.
    pub fn groups(&self) -> &[GroupTimes] {
        &self.groups
    }

    /// What the last call added to each counter of the page, in the order of the run's counters.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The next record, or `None` at the end of the page.
    ///
    /// # Errors
    /// [`TornRecord`]; after it, only `None` follows.
    pub fn next_record(&mut self) -> Option<Result<Record, TornRecord>> {
        if self.at >= self.records.len() {
            return None;
        }
        let start = self.at;
        let record = self.decode();
        if record.is_none() {
            self.at = self.records.len();
        }
        Some(record.ok_or(TornRecord { at: HEADER_BYTES + start }))
    }

    #[inline(always)]
    fn varint(&mut self) -> Option<u64> {
        let (value, len) = get_varint(self.records.get(self.at..)?)?;
        self.at += len;
        Some(value)
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    fn decode(&mut self) -> Option<Record> {
        let tag = *self.records.get(self.at)?;
        self.at += 1;
        if tag & TAG_CALL != 0 { self.decode_call(tag) } else { self.decode_other(tag) }
    }

    fn decode_call(&mut self, tag: u8) -> Option<Record> {
        if tag & !(TAG_CALL | TAG_CONTEXT | TAG_WORKGROUP | TAG_RUNNING) != 0 {
            return None;
        }
        if tag & TAG_CONTEXT != 0 {
            for i in 0..self.context.len() {
                self.context[i] = self.small()?;
            }
            self.next_workgroup = [0; 3];
        }
        let mut workgroup = self.next_workgroup;
        if tag & TAG_WORKGROUP != 0 {
            for place in &mut workgroup {
                *place = self.small()?;
            }
        }
        self.next_workgroup = [workgroup[0].wrapping_add(1), workgroup[1], workgroup[2]];
        let start = self.last_ticks.wrapping_add(unzigzag(self.varint()?) as u64);
        let end = start.wrapping_add(self.varint()?);
        self.last_ticks = end;
        let mut value_at = 0;
        for g in 0..self.groups.len() {
            let size = *self.layout.sizes.get(g)? as usize;
            let head = self.varint()?;
            if head == 0 {
                self.groups[g] = GroupTimes::default();
                value_at += size;
                continue;
            }
            let enabled = head - 1;
            let running = if tag & TAG_RUNNING != 0 { self.varint()? } else { enabled };
            self.groups[g] = GroupTimes { read: true, enabled, running };
            for _ in 0..size {
                let value = self.varint()?;
                *self.values.get_mut(value_at)? = value;
                value_at += 1;
            }
        }
        let [export, x, y, z, location, worker] = self.context;
        Some(Record::Call(Call {
            export,
            count: [x, y, z],
            workgroup,
            location,
            worker,
            start,
            end,
        }))
    }

    fn decode_other(&mut self, tag: u8) -> Option<Record> {
        if tag == TAG_THREAD_CLOCK {
            let ticks = self.last_ticks.wrapping_add(unzigzag(self.varint()?) as u64);
            let cpu_ns = self.header.start.base_cpu_ns.wrapping_add(self.varint()?);
            let monotonic_ns = self.header.start.base_monotonic_ns.wrapping_add(self.varint()?);
            self.last_ticks = ticks;
            return Some(Record::ThreadClock { ticks, cpu_ns, monotonic_ns });
        }
        if tag == 0 {
            return None;
        }
        let len = usize::try_from(self.varint()?).ok()?;
        self.at = self.at.checked_add(len).filter(|end| *end <= self.records.len())?;
        Some(Record::Other { kind: tag >> 1 })
    }
}
