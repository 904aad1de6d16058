//! The calls of one page as plain columns: the fast way to read a profile. The buffers are used
//! again for the next page.

use std::ops::Range;

use model::Loss;
use record::page::PageReader;
pub use record::page::{
    FIRST_USER_KEY, KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_STORAGE_BYTES,
    KEY_WORKSPACE_BYTES,
};
use record::{GroupLayout, PageHeader, Record};

use crate::groups::{Groups, PageGroups};
use crate::ledger::LossCount;

/// The calls of one page, in the order in which they ended. All columns of calls have the same
/// length; those of counters that the page does not hold are empty.
#[derive(Debug, Default)]
pub struct Columns {
    /// Index of the process in the profile.
    pub process: usize,
    /// Index of the thread in the process.
    pub thread: usize,
    /// Index of the page among the thread's pages that are there.
    pub page: usize,
    /// Export of each call; see [`crate::Ops::of`].
    pub export: Vec<u32>,
    /// Workgroup id: x, y, z.
    pub workgroup: [Vec<u32>; 3],
    /// Workgroups of the dispatch: x, y, z. See [`Columns::knows_workgroup`].
    pub count: [Vec<u32>; 3],
    /// The runtime's worker number.
    pub worker: Vec<u32>,
    /// `node << 12 | cpu` at the end of the call.
    pub location: Vec<u32>,
    /// When it began.
    pub start_ticks: Vec<u64>,
    /// How long it took, as recorded. A call whose end was read before its begin (two CPUs whose
    /// clocks differ) wraps around: see [`Columns::duration`].
    pub duration_ticks: Vec<u64>,
    /// What it added to each counter of the run; look at [`GroupColumn::status`] first.
    pub values: Vec<Vec<u64>>,
    /// Values that single calls have, in the order of the calls; see [`record::page`] for keys.
    pub extras: Vec<Extra>,
    /// Each group of the run.
    pub groups: Vec<GroupColumn>,
    /// Moments on the thread's clocks.
    pub clocks: Vec<ThreadClock>,
    /// The run asked for estimates of counters that take turns (`run --multiplex`).
    pub estimates: bool,
    /// Calls during which some group ran only part of the time.
    pub multiplexed: u64,
    /// Records that do not decode: 0 or 1, since the rest of the page is not used then.
    pub torn_records: u64,
    header: Option<PageHeader>,
    torn_pages: u64,
}

impl Columns {
    /// Leaves out the calls that began before these ticks, and the readings of the thread's clocks.
    pub(crate) fn keep_from(&mut self, from: u64) {
        if self.start_ticks.iter().all(|start| *start >= from) {
            return;
        }
        let keep: Vec<bool> = self.start_ticks.iter().map(|start| *start >= from).collect();
        let mut kept = 0;
        // For each call, and for the end, how many of those before it are kept.
        let places: Vec<usize> = keep
            .iter()
            .chain([&false])
            .map(|keep| {
                kept += usize::from(*keep);
                kept - usize::from(*keep)
            })
            .collect();
        let [x, y, z] = &mut self.workgroup;
        let [of_x, of_y, of_z] = &mut self.count;
        let numbers = [&mut self.export, x, y, z, of_x, of_y, of_z];
        numbers.into_iter().for_each(|column| retain(column, &keep));
        [&mut self.worker, &mut self.location].into_iter().for_each(|c| retain(c, &keep));
        [&mut self.start_ticks, &mut self.duration_ticks]
            .into_iter()
            .for_each(|c| retain(c, &keep));
        self.values.iter_mut().for_each(|column| retain(column, &keep));
        for group in &mut self.groups {
            retain(&mut group.status, &keep);
            retain(&mut group.enabled_ns, &keep);
            retain(&mut group.running_ns, &keep);
        }
        self.extras.retain(|extra| keep.get(extra.call) == Some(&true));
        self.extras.iter_mut().for_each(|extra| extra.call = places[extra.call]);
        self.clocks.retain(|clock| clock.ticks >= from);
        let last = places.len() - 1;
        let place = |before: usize| places[before.min(last)];
        self.clocks.iter_mut().for_each(|clock| clock.calls_before = place(clock.calls_before));
    }
}

/// Keeps the values that are wanted. A column that the page does not have stays empty.
fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
    if column.len() == keep.len() {
        let mut keep = keep.iter();
        column.retain(|_| keep.next() == Some(&true));
    }
}

/// A value of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Index of the call in the columns.
    pub call: usize,
    /// What it is.
    pub key: u32,
    /// Its 64 bits.
    pub bits: u64,
}

/// One group's times in each call of a page. Empty if the page does not hold the group.
#[derive(Debug, Default)]
pub struct GroupColumn {
    /// Whether its values are there.
    pub status: Vec<Status>,
    /// How long it was enabled during the call, ns; 0 if not read.
    pub enabled_ns: Vec<u64>,
    /// How long of that it was counting, ns; 0 if not read.
    pub running_ns: Vec<u64>,
}

/// What became of one group's reading in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not read; the values mean nothing.
    NotRead,
    /// Read, and counting all the time.
    Whole,
    /// Read, but counting only part of the time: the values are too small.
    Multiplexed,
    /// Read, but it never counted during the call: the values mean nothing.
    NeverRan,
}

impl Status {
    /// Whether there are values, if perhaps too small ones.
    pub fn has_values(self) -> bool {
        matches!(self, Self::Whole | Self::Multiplexed)
    }

    /// A group of the kernel's that was not even enabled belongs to another task than the one that
    /// called (a raw `clone` that shares its maker's thread-local storage): its 0 says nothing.
    /// Scripts need not write times down.
    fn of(read: bool, enabled: u64, running: u64, simulated: bool) -> Self {
        match (read, running) {
            (false, _) => Self::NotRead,
            (true, 0) if enabled > 0 || !simulated => Self::NeverRan,
            (true, _) if running < enabled => Self::Multiplexed,
            (true, _) => Self::Whole,
        }
    }
}

/// A moment on a thread's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock {
    /// The run's clock.
    pub ticks: u64,
    /// CPU time of the thread, ns.
    pub cpu_ns: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// How many calls of the page were recorded before it.
    pub calls_before: usize,
}

/// CPU of a [`Columns::location`].
pub fn cpu_of(location: u32) -> u32 {
    location & 0xfff
}

/// NUMA node of a [`Columns::location`].
pub fn node_of(location: u32) -> u32 {
    location >> 12
}

impl Columns {
    /// Columns for a run with these counters.
    pub fn new(groups: &Groups) -> Self {
        let mut columns = Self::default();
        columns.values.resize_with(groups.counters(), Vec::new);
        columns.groups.resize_with(groups.all().len(), GroupColumn::default);
        columns
    }

    /// What a counter counted in call `i`, as views show it: the raw value if its group counted
    /// all the time; an estimate ([`model::scaled`]) if it took turns and the run asked for
    /// estimates; else nothing. `group` and `counter` are places in the run's lists.
    #[inline]
    pub fn value(&self, group: usize, counter: usize, i: usize) -> Option<u64> {
        let times = self.groups.get(group)?;
        let raw = *self.values.get(counter)?.get(i)?;
        match times.status.get(i)? {
            Status::Whole => Some(raw),
            Status::Multiplexed if self.estimates => {
                model::scaled(raw, *times.enabled_ns.get(i)?, *times.running_ns.get(i)?)
            }
            _ => None,
        }
    }

    /// What the counters of a group counted in call `i`, as [`Columns::value`] says it, for the
    /// places in `counters`, into the same places of `values`.
    #[inline]
    pub fn group_values(
        &self,
        group: usize,
        counters: Range<usize>,
        i: usize,
        values: &mut [Option<u64>],
    ) {
        let status = self.groups.get(group).and_then(|times| times.status.get(i));
        let whole = status == Some(&Status::Whole);
        let columns = self.values.get(counters.clone()).unwrap_or_default();
        let places = values.get_mut(counters.clone()).unwrap_or_default();
        for ((place, column), counter) in places.iter_mut().zip(columns).zip(counters) {
            *place = match whole {
                true => column.get(i).copied(),
                false => self.value(group, counter, i),
            };
        }
    }

    /// The values of call `i`.
    pub fn extras_of(&self, i: usize) -> &[Extra] {
        let first = self.extras.partition_point(|extra| extra.call < i);
        let rest = &self.extras[first..];
        &rest[..rest.partition_point(|extra| extra.call == i)]
    }

    /// The value of call `i` with this key.
    pub fn extra(&self, i: usize, key: u32) -> Option<u64> {
        self.extras_of(i).iter().find(|extra| extra.key == key).map(|extra| extra.bits)
    }

    /// Calls.
    pub fn len(&self) -> usize {
        self.export.len()
    }

    /// Whether there is no call.
    pub fn is_empty(&self) -> bool {
        self.export.is_empty()
    }

    /// How long call `i` took, in ticks; 0 for one whose end was read before its begin.
    #[inline]
    pub fn duration(&self, i: usize) -> u64 {
        let ticks = self.duration_ticks[i];
        if ticks > i64::MAX as u64 { 0 } else { ticks }
    }

    /// Whether it is known which workgroup of which dispatch call `i` was, and on which worker.
    /// Not if a runtime's own call hook told of it: those calls have counts of 0,0,0.
    #[inline]
    pub fn knows_workgroup(&self, i: usize) -> bool {
        let [x, y, z] = &self.count;
        x[i] | y[i] | z[i] != 0
    }

    /// The page's header; `None` if the page could not be read any more.
    pub fn header(&self) -> Option<&PageHeader> {
        self.header.as_ref()
    }

    /// The losses found in this page.
    pub fn losses(&self) -> Vec<LossCount> {
        [
            (Loss::TornPage, self.torn_pages),
            (Loss::TornRecord, self.torn_records),
            (Loss::MultiplexedCall, self.multiplexed),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(loss, count)| LossCount::new(loss, count))
        .collect()
    }

    fn clear(&mut self) {
        self.header = None;
        (self.multiplexed, self.torn_records, self.torn_pages) = (0, 0, 0);
        self.clocks.clear();
        self.extras.clear();
        for column in [&mut self.export, &mut self.worker, &mut self.location] {
            column.clear();
        }
        self.workgroup.iter_mut().chain(&mut self.count).for_each(Vec::clear);
        self.start_ticks.clear();
        self.duration_ticks.clear();
        self.values.iter_mut().for_each(Vec::clear);
        for group in &mut self.groups {
            group.status.clear();
            group.enabled_ns.clear();
            group.running_ns.clear();
        }
    }

    /// Empties the columns for a page that cannot be used.
    pub(crate) fn torn(&mut self) {
        self.clear();
        self.torn_pages = 1;
    }

    /// Decodes the page at the start of `bytes`, whose counters are these of the profile.
    pub(crate) fn decode(&mut self, bytes: &[u8], page: &PageGroups, counters: u32) {
        self.clear();
        let layout: &GroupLayout = &page.layout;
        let Ok(mut reader) = PageReader::new(bytes, layout) else {
            self.torn_pages = 1;
            return;
        };
        let mut header = reader.header().clone();
        header.start.counters = counters;
        self.header = Some(header);
        while let Some(record) = reader.next_record() {
            let call = match record {
                Ok(Record::Call(call)) => call,
                Ok(Record::ThreadClock { ticks, cpu_ns, monotonic_ns }) => {
                    let calls_before = self.export.len();
                    self.clocks.push(ThreadClock { ticks, cpu_ns, monotonic_ns, calls_before });
                    continue;
                }
                Ok(Record::Values) => {
                    // Values without a call before them belong to nothing.
                    if let Some(call) = self.export.len().checked_sub(1) {
                        let of_call =
                            |(key, bits): &(u32, u64)| Extra { call, key: *key, bits: *bits };
                        self.extras.extend(reader.extras().iter().map(of_call));
                    }
                    continue;
                }
                Ok(Record::Other { .. }) => continue,
                Err(_) => {
                    self.torn_records = 1;
                    break;
                }
            };
            self.export.push(call.export);
            for axis in 0..3 {
                self.workgroup[axis].push(call.workgroup[axis]);
                self.count[axis].push(call.count[axis]);
            }
            self.worker.push(call.worker);
            self.location.push(call.location);
            self.start_ticks.push(call.start);
            self.duration_ticks.push(call.end.wrapping_sub(call.start));
            let mut values = reader.values().iter();
            let mut multiplexed = false;
            let groups = page.groups.iter().zip(&page.simulated);
            for (times, ((group, counters), simulated)) in reader.groups().iter().zip(groups) {
                let status = Status::of(times.read, times.enabled, times.running, *simulated);
                multiplexed |= matches!(status, Status::Multiplexed | Status::NeverRan);
                let column = &mut self.groups[*group];
                column.status.push(status);
                column.enabled_ns.push(times.enabled);
                column.running_ns.push(times.running);
                for counter in counters {
                    let value = values.next().copied().unwrap_or(0);
                    self.values[*counter].push(if times.read { value } else { 0 });
                }
            }
            // Asked for, it is not a loss.
            self.multiplexed += u64::from(multiplexed && !self.estimates);
        }
    }
}
