//! The calls of one page (a block of one thread's records) as columns of numbers. This is the fast
//! way to read a profile. The buffers of the columns are reused for the next page.

use std::ops::Range;

use model::Loss;
pub use record::page::{
    FIRST_USER_KEY, KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_FORWARD, KEY_PLUGIN_ID,
    KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};
use record::page::{GroupTimes, PageReader};
use record::{Drawn, GroupLayout, PageHeader, Record};

use crate::groups::{Groups, PageGroups};
use crate::ledger::LossCount;

/// The calls of one page, in the order in which they ended. The column of a counter that the page
/// does not contain is empty.
#[derive(Debug, Default)]
pub struct Columns {
    /// Index of the process in the profile.
    pub process: usize,
    /// Index of the thread in the process.
    pub thread: usize,
    /// Index of the page among the thread's pages.
    pub page: usize,
    /// Number of each call's export (exported function); [`crate::Ops::of`] returns its op.
    pub export: Vec<u32>,
    /// Workgroup id of each call, in x, y, z.
    pub workgroup: [Vec<u32>; 3],
    /// Number of workgroups of each call's dispatch, in x, y, z; 0,0,0 if unknown.
    pub count: [Vec<u32>; 3],
    /// Number of the worker that executed each call, as the runtime counts its workers.
    pub worker: Vec<u32>,
    /// NUMA node and CPU on which each call ended, as `node << 12 | cpu`.
    pub location: Vec<u32>,
    /// Ticks when the call began.
    pub start_ticks: Vec<u64>,
    /// Recorded duration in ticks. Duration of each call. It wraps around if the end is before the
    /// start, because the clocks of two CPUs differ; see [`Columns::duration`].
    pub duration_ticks: Vec<u64>,
    /// For each counter of the run, how much it increased during each call. Check
    /// [`GroupColumn::status`] first.
    pub values: Vec<Vec<u64>>,
    /// Values with keys, which only some calls have, in the order of the calls; see
    /// [`record::page`].
    pub extras: Vec<Extra>,
    /// For each counter group of the run, its status and its times in each call.
    pub groups: Vec<GroupColumn>,
    /// How each call was chosen by sampling. Empty for a run without a budget.
    pub drawn: Vec<Drawn>,
    /// Readings of the thread's clocks.
    pub clocks: Vec<ThreadClock>,
    /// Whether the run asked for estimates of multiplexed counters (`run --multiplex`).
    pub estimates: bool,
    /// Whether the run had a budget (`run --budget`).
    pub sampled: bool,
    /// Number of calls during which a counter group did not count all the time. 0 if the run asked
    /// for estimates.
    pub multiplexed: u64,
    /// Number of records that cannot be decoded: 0 or 1, because the rest of the page is not used.
    pub torn_records: u64,
    header: Option<PageHeader>,
    torn_pages: u64,
}

impl Columns {
    /// Removes the calls that began before `from` (in ticks), and readings of the thread's clocks
    /// from before `from`. If no call began before `from`, nothing is removed.
    pub(crate) fn keep_from(&mut self, from: u64) {
        if self.start_ticks.iter().all(|start| *start >= from) {
            return;
        }
        let keep: Vec<bool> = self.start_ticks.iter().map(|start| *start >= from).collect();
        let mut kept = 0;
        // For each call, and for the end of the page: the number of earlier calls that are kept.
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
        retain(&mut self.drawn, &keep);
        self.extras.retain(|extra| keep.get(extra.call) == Some(&true));
        self.extras.iter_mut().for_each(|extra| extra.call = places[extra.call]);
        self.clocks.retain(|clock| clock.ticks >= from);
        let last = places.len() - 1;
        let place = |before: usize| places[before.min(last)];
        self.clocks.iter_mut().for_each(|clock| clock.calls_before = place(clock.calls_before));
    }
}

/// Keeps the elements for which `keep` is true. A column that the page does not have stays empty.
fn retain<T>(column: &mut Vec<T>, keep: &[bool]) {
    if column.len() == keep.len() {
        let mut keep = keep.iter();
        column.retain(|_| keep.next() == Some(&true));
    }
}

/// One value of a call, with the value's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Index of the call in the columns.
    pub call: usize,
    pub key: u32,
    /// The 64 bits of the value.
    pub bits: u64,
}

/// The status and the times of one counter group in each call of a page; empty if the page does not
/// contain the group.
#[derive(Debug, Default)]
pub struct GroupColumn {
    /// The status of the group in each call.
    pub status: Vec<Status>,
    /// The time for which the group was enabled during the call, in ns; 0 if it was not read.
    pub enabled_ns: Vec<u64>,
    /// The part of `enabled_ns` in which the group was counting; 0 if it was not read.
    pub running_ns: Vec<u64>,
}

/// A call of at most so many ticks may begin and end within one tick of its counters' clock. With a
/// time-stamp counter, which has a tick of less than 1 ns, no call is so short.
const SHORTEST_TICKS: u64 = 2;

/// What is known about the values of one group in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The group was not read: the values are meaningless.
    NotRead,
    /// The group was counting during the whole call.
    Whole,
    /// The group was counting part of the time: the values are too small.
    Multiplexed,
    /// The group did not count during the call: the values are meaningless.
    NeverRan,
}

impl Status {
    /// Whether the group's values have a meaning. They may be too small.
    pub fn has_values(self) -> bool {
        matches!(self, Self::Whole | Self::Multiplexed)
    }

    /// Determines the status in a call that took `ticks`. If a group of the operating system's
    /// counters has an enabled time of 0, the group belongs to another thread than the calling one.
    /// Its values are then meaningless. This happens in a thread that a raw `clone` made and that
    /// shares its creator's thread-local storage. Two groups have values even if both times are 0:
    /// a simulated group, which may have no times, and a group in a call that is too short for the
    /// clock. On AArch64, where the times come from the same clock as the call's, a tick may take
    /// 40 ns.
    fn of(times: &GroupTimes, ticks: u64, simulated: bool) -> Self {
        let may_be_zero = simulated || ticks <= SHORTEST_TICKS;
        match (times.read, times.running) {
            (false, _) => Self::NotRead,
            (true, 0) if times.enabled > 0 || !may_be_zero => Self::NeverRan,
            (true, running) if running < times.enabled => Self::Multiplexed,
            (true, _) => Self::Whole,
        }
    }
}

/// A reading of a thread's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadClock {
    /// Ticks of the run's clock.
    pub ticks: u64,
    /// CPU time of the thread, in ns.
    pub cpu_ns: u64,
    /// `CLOCK_MONOTONIC`, in ns.
    pub monotonic_ns: u64,
    /// Number of the page's calls before this reading.
    pub calls_before: usize,
}

/// Returns the CPU in a value of [`Columns::location`].
pub fn cpu_of(location: u32) -> u32 {
    location & 0xfff
}

/// Returns the NUMA node in a value of [`Columns::location`].
pub fn node_of(location: u32) -> u32 {
    location >> 12
}

impl Columns {
    /// Creates empty columns for a run with the counters of `groups`.
    pub fn new(groups: &Groups) -> Self {
        let mut columns = Self::default();
        columns.values.resize_with(groups.counters(), Vec::new);
        columns.groups.resize_with(groups.all().len(), GroupColumn::default);
        columns
    }

    /// Returns the count of a counter in call `i`, as reports show it. A multiplexed counter has an
    /// estimate ([`model::scaled`]) if the run asked for it, else `None`. `group` and `counter` are
    /// indices in the run's lists of groups and of counters.
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

    /// [`Columns::value`] for several counters of one group. The value of the counter with index
    /// `c` is stored in `values[c]`.
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

    /// Returns the entries of [`Columns::extras`] that belong to call `i`.
    pub fn extras_of(&self, i: usize) -> &[Extra] {
        let first = self.extras.partition_point(|extra| extra.call < i);
        let rest = &self.extras[first..];
        &rest[..rest.partition_point(|extra| extra.call == i)]
    }

    /// Returns the value of call `i` with this key.
    pub fn extra(&self, i: usize, key: u32) -> Option<u64> {
        self.extras_of(i).iter().find(|extra| extra.key == key).map(|extra| extra.bits)
    }

    /// Returns how call `i` was chosen by sampling; the default if the run had no budget.
    #[inline]
    pub fn drawn(&self, i: usize) -> Drawn {
        self.drawn.get(i).copied().unwrap_or_default()
    }

    /// Returns 1 divided by the probability with which call `i` was timed; 1 without a budget.
    #[inline]
    pub fn weight(&self, i: usize) -> u64 {
        self.drawn(i).period.max(1).into()
    }

    /// Returns 1 divided by the probability with which the counters of call `i` were read.
    #[inline]
    pub fn counter_weight(&self, i: usize) -> u64 {
        self.weight(i) * u64::from(self.drawn(i).counter_period.max(1))
    }

    pub fn len(&self) -> usize {
        self.export.len()
    }

    pub fn is_empty(&self) -> bool {
        self.export.is_empty()
    }

    /// Returns the duration of call `i` in ticks; 0 if its end is before its start.
    #[inline]
    pub fn duration(&self, i: usize) -> u64 {
        let ticks = self.duration_ticks[i];
        if ticks > i64::MAX as u64 { 0 } else { ticks }
    }

    /// Whether the workgroup, the dispatch and the worker of call `i` are known. They are not
    /// known if a hook of the runtime reported the call.
    #[inline]
    pub fn knows_workgroup(&self, i: usize) -> bool {
        let [x, y, z] = &self.count;
        x[i] | y[i] | z[i] != 0
    }

    /// Returns the page's header; `None` if the page could not be read.
    pub fn header(&self) -> Option<&PageHeader> {
        self.header.as_ref()
    }

    /// Returns the losses in this page.
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
        self.drawn.clear();
        self.values.iter_mut().for_each(Vec::clear);
        for group in &mut self.groups {
            group.status.clear();
            group.enabled_ns.clear();
            group.running_ns.clear();
        }
    }

    pub(crate) fn header_mut(&mut self) -> Option<&mut PageHeader> {
        self.header.as_mut()
    }

    /// Empties the columns and counts a torn page, for a page that cannot be used.
    pub(crate) fn torn(&mut self) {
        self.clear();
        self.torn_pages = 1;
    }

    /// Decodes the page at the start of `bytes`. `counters` is the mask of the page's counters; its
    /// bits are numbered like the profile's counters.
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
                    // Values before the first call of the page belong to no call.
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
            if self.sampled {
                self.drawn.push(reader.drawn());
            }
            for axis in 0..3 {
                self.workgroup[axis].push(call.workgroup[axis]);
                self.count[axis].push(call.count[axis]);
            }
            self.worker.push(call.worker);
            self.location.push(call.location);
            self.start_ticks.push(call.start);
            let ticks = call.end.wrapping_sub(call.start);
            self.duration_ticks.push(ticks);
            let mut values = reader.values().iter();
            let mut multiplexed = false;
            let groups = page.groups.iter().zip(&page.simulated);
            for (times, ((group, counters), simulated)) in reader.groups().iter().zip(groups) {
                let status = Status::of(times, ticks, *simulated);
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
            // With estimates, a multiplexed counter is not a loss.
            self.multiplexed += u64::from(multiplexed && !self.estimates);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_ran_for_no_time_has_values_only_in_a_call_of_no_time() {
        let times = |enabled, running| GroupTimes { read: true, enabled, running };
        assert_eq!(Status::of(&GroupTimes::default(), 0, false), Status::NotRead);
        assert_eq!(Status::of(&times(80, 80), 2, false), Status::Whole);
        assert_eq!(Status::of(&times(80, 40), 2, false), Status::Multiplexed);
        assert_eq!(Status::of(&times(80, 0), 2, false), Status::NeverRan);
        assert_eq!(Status::of(&times(0, 0), 0, false), Status::Whole);
        assert_eq!(Status::of(&times(0, 0), 2, false), Status::Whole);
        assert_eq!(Status::of(&times(0, 0), 3, false), Status::NeverRan);
        assert_eq!(Status::of(&times(0, 0), 3, true), Status::Whole);
    }
}
