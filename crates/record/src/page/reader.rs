//! Reads pages. Their bytes may be damaged.

use super::context::{Contexts, Told};
use super::header::{PageError, PageHeader, checksum};
use super::{
    Call, Drawn, HEADER_BYTES, KEY_CORRELATION, MOST_VALUES, TAG_CALL, TAG_CONTEXT, TAG_DRAWN,
    TAG_EXPORT, TAG_PLACE, TAG_RUNNING, TAG_TASK, TAG_THREAD_CLOCK, TAG_VALUES, TAG_WORKGROUP,
    Task,
};
use crate::wire::{get_varint, unzigzag};

/// The number of counters in each counter group of a page. The groups have the order of the run's
/// counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLayout {
    sizes: Vec<u8>,
}

impl GroupLayout {
    /// Creates the layout of pages that record the counters in `mask`
    /// ([`super::PageStart::counters`]). `groups` contains the group number of each of the run's
    /// counters. These numbers never decrease.
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

/// One decoded record. After a [`Record::Call`], [`PageReader::groups`] and [`PageReader::values`]
/// return the call's counter readings, and [`PageReader::drawn`] returns how the call was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A recorded call, for example of a workgroup or of an op.
    Call(Call),
    /// The readings of the run's clock and the thread's clocks at one moment.
    ThreadClock {
        /// The run's clock.
        ticks: u64,
        /// CPU time of the thread, ns.
        cpu_ns: u64,
        /// `CLOCK_MONOTONIC`, ns.
        monotonic_ns: u64,
    },
    /// Values other than counters of the call that was read last. [`PageReader::extras`] returns
    /// these values. A record of a task ([`super::Task`]) is returned as a call followed by its
    /// correlation number as such a value.
    Values,
    /// A kind that only later versions know. Its content is skipped.
    Other { kind: u8 },
}

/// The times of one counter group during a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTimes {
    /// Whether the group was read. If not, its values are meaningless.
    pub read: bool,
    /// Time for which the group was enabled, in ns. For a group that counts one thread, this is the
    /// time that the thread was on a CPU.
    pub enabled: u64,
    /// Time for which the group counted, in ns.
    pub running: u64,
}

/// The error if a record cannot be decoded. The records before it on the page are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornRecord {
    /// Offset of the record in bytes from the start of the page.
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
    contexts: Contexts,
    drawn: Drawn,
    groups: Vec<GroupTimes>,
    values: Vec<u64>,
    extras: Vec<(u32, u64)>,
    /// Whether the last record was a task whose correlation number, in `extras`, was not returned
    /// yet.
    has_correlation: bool,
}

impl<'a> PageReader<'a> {
    /// Creates a reader of the page at the start of `bytes`, and checks this page. More data may
    /// follow it.
    ///
    /// # Errors
    /// Returns [`PageError`] if the header is not valid, if `bytes` ends before the page does, or
    /// if the checksum of a flushed page is wrong.
    pub fn new(bytes: &'a [u8], layout: &'a GroupLayout) -> Result<Self, PageError> {
        let header = PageHeader::parse(bytes)?;
        let need = header.file_bytes();
        let records = bytes
            .get(HEADER_BYTES..need)
            .ok_or(PageError::Truncated { need, have: bytes.len() })?;
        if header.flushed && checksum(&bytes[..need]) != header.checksum {
            return Err(PageError::Checksum);
        }
        let values = layout.sizes.iter().map(|s| *s as usize).sum();
        Ok(Self {
            last_ticks: header.start.base_ticks,
            header,
            records,
            at: 0,
            layout,
            contexts: Contexts::new(),
            drawn: Drawn::default(),
            groups: vec![GroupTimes::default(); layout.sizes.len()],
            values: vec![0; values],
            extras: Vec::new(),
            has_correlation: false,
        })
    }

    pub fn header(&self) -> &PageHeader {
        &self.header
    }

    /// Returns the times of the counter groups during the call that was read last.
    pub fn groups(&self) -> &[GroupTimes] {
        &self.groups
    }

    /// Returns what the call that was read last added to each counter of the page, in the order of
    /// the run's counters.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// Returns how sampling chose the call that was read last; the default if the call's record
    /// does not contain this.
    pub fn drawn(&self) -> Drawn {
        self.drawn
    }

    /// Returns the pairs of keys and values of the last [`Record::Values`].
    pub fn extras(&self) -> &[(u32, u64)] {
        &self.extras
    }

    /// Returns the next record, or `None` at the end of the page.
    ///
    /// # Errors
    /// Returns [`TornRecord`] for a record that cannot be decoded. No more records are returned
    /// after it.
    #[inline]
    pub fn next_record(&mut self) -> Option<Result<Record, TornRecord>> {
        if std::mem::take(&mut self.has_correlation) {
            return Some(Ok(Record::Values));
        }
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

    #[inline]
    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    #[inline]
    fn decode(&mut self) -> Option<Record> {
        let tag = *self.records.get(self.at)?;
        self.at += 1;
        if tag & TAG_CALL != 0 { self.decode_call(tag) } else { self.decode_other(tag) }
    }

    #[inline]
    fn decode_call(&mut self, tag: u8) -> Option<Record> {
        let mut call = self.decode_context(tag)?;
        let start = self.last_ticks.wrapping_add(unzigzag(self.varint()?) as u64);
        let end = start.wrapping_add(self.varint()?);
        self.last_ticks = end;
        (call.start, call.end) = (start, end);
        self.drawn = Drawn::default();
        if tag & TAG_DRAWN != 0 {
            let (period, counter_period) = (self.small()?, self.small()?);
            if period == 0 || counter_period == 0 {
                return None;
            }
            self.drawn = Drawn { period, counter_period, skipped: self.varint()? };
        }
        self.decode_groups(tag & TAG_RUNNING != 0)?;
        Some(Record::Call(call))
    }

    /// Decodes the readings of each counter group. `has_running` says whether the record contains
    /// the times for which the groups were running.
    #[inline]
    fn decode_groups(&mut self, has_running: bool) -> Option<()> {
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
            let running = if has_running { self.varint()? } else { enabled };
            self.groups[g] = GroupTimes { read: true, enabled, running };
            for _ in 0..size {
                let value = self.varint()?;
                *self.values.get_mut(value_at)? = value;
                value_at += 1;
            }
        }
        Some(())
    }

    /// Decodes the record of a task that ends at the offset `end`.
    fn decode_task(&mut self, end: usize) -> Option<Record> {
        let (export, number, count) = (self.small()?, self.small()?, self.small()?);
        let start = self.last_ticks.wrapping_add(unzigzag(self.varint()?) as u64);
        let stop = start.wrapping_add(self.varint()?);
        let correlation = self.varint()?.rotate_right(1);
        self.last_ticks = stop;
        self.drawn = Drawn::default();
        self.decode_groups(false)?;
        if self.at != end {
            return None;
        }
        self.extras.clear();
        self.extras.push((KEY_CORRELATION, correlation));
        self.has_correlation = true;
        let [location, worker] = self.contexts.place();
        let task = Task { export, number, count, start, end: stop, correlation };
        Some(Record::Call(task.to_call(location, worker)))
    }

    #[inline]
    fn decode_context(&mut self, tag: u8) -> Option<Call> {
        const KNOWN: u8 = TAG_CALL
            | TAG_CONTEXT
            | TAG_WORKGROUP
            | TAG_RUNNING
            | TAG_DRAWN
            | TAG_EXPORT
            | TAG_PLACE;
        if tag & !KNOWN != 0 || tag & (TAG_CONTEXT | TAG_EXPORT) == TAG_CONTEXT | TAG_EXPORT {
            return None;
        }
        let mut told = Told { context: None, export: None, place: None, workgroup: None };
        if tag & TAG_CONTEXT != 0 {
            told.context = Some((self.small()?, self.three()?));
        }
        if tag & TAG_EXPORT != 0 {
            told.export = Some(self.small()?);
        }
        if tag & TAG_PLACE != 0 {
            told.place = Some([self.small()?, self.small()?]);
        }
        if tag & TAG_WORKGROUP != 0 {
            told.workgroup = Some(self.three()?);
        }
        self.contexts.read(&told)
    }

    #[inline]
    fn three(&mut self) -> Option<[u32; 3]> {
        Some([self.small()?, self.small()?, self.small()?])
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
        let end = self.at.checked_add(len).filter(|end| *end <= self.records.len())?;
        if tag == TAG_TASK {
            return self.decode_task(end);
        }
        if tag == TAG_VALUES {
            self.extras.clear();
            while self.at < end {
                if self.extras.len() == MOST_VALUES {
                    return None;
                }
                let pair = (self.small()?, self.varint()?);
                self.extras.push(pair);
            }
            return (self.at == end).then_some(Record::Values);
        }
        self.at = end;
        Some(Record::Other { kind: tag >> 1 })
    }
}
