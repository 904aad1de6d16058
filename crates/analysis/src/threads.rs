//! Computes, for each thread, the time in calls (here also called *dispatches*), the time outside
//! of calls, and the parts of both in which the thread was off the CPU.
//!
//! ```text
//!  first start                                                     last moment
//!  ├─ dispatch ─┼─ none ─┼─ dispatch ──────────────┼─ none ────────┤
//!                          └ nested: not counted again
//! ```
//!
//! Most calls are recorded when they end, so after all calls inside of them. The code goes through
//! the calls backwards, and meets the outer call first. If a call ends after the earliest start
//! seen so far, it is at least partly inside of another call, and only the part before that start
//! is added. So the earliest start is all that must be remembered to compute the time in which any
//! call was running. Pages (blocks of recorded calls) are added up separately, in any order, and
//! joined backwards afterwards. A page must be read again if a call of a later page began before
//! the page's last call ended. This method fails for imported calls, which can have any order. So
//! for threads whose calls are nested or recorded in another order, the time in calls comes from
//! [`crate::innermost`].

use std::collections::{BTreeMap, HashMap, HashSet};

use profile::columns::ThreadClock;
use profile::{Columns, Homes, PageHeader, PageKey, Profile, Status, Usage};

use crate::clusters::PageSpan;
use crate::table::devices;

/// The times of one thread, in ns unless the field says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreadTime {
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    pub calls: u64,
    /// When the thread's first call began, in ticks.
    pub begin: u64,
    /// When the thread's last call ended, in ticks.
    pub end: u64,
    /// Wall time: from the start of the thread's first call to the end of its last call, or to its
    /// last clock record if that is later.
    pub wall_ns: f64,
    /// Time in calls: the sum of their self times. The time that the recorder added is subtracted,
    /// unless [`Summary::raw`](crate::Summary::raw) is set. In a run with a budget, this is an
    /// estimate.
    pub dispatch_ns: f64,
    /// The time that was subtracted from `dispatch_ns`. This time counts as time outside of calls.
    pub recorder_ns: f64,
    /// Whether `dispatch_ns` is known. It is unknown in a run with a budget if it cannot be
    /// estimated, for example because calls are nested and some were only counted. Then
    /// `dispatch_ns` is the time in the timed calls.
    pub dispatch_known: bool,
    /// The time in which the thread was off the CPU and in no dispatch. `None` if the thread's CPU
    /// clock was not read at least twice, or if some calls were only counted.
    pub off_cpu: Option<OffCpu>,
    /// The time in ns in which the thread was off the CPU and in a dispatch. `None` if some call
    /// had no counter group that shows how long it was on a CPU, or if some calls were only
    /// counted.
    pub off_cpu_in_calls_ns: Option<f64>,
    /// Ticks that the thread spent flushing pages.
    pub flush_ticks: u64,
    /// What the operating system counted for the thread, such as page faults, summed over the
    /// thread's pages (blocks of recorded calls). The counts begin with the first call, and do not
    /// include the flushes of pages. If the process was killed, they also lack the time after the
    /// last flush. `None` in profiles of older versions, and if no page has ended.
    pub usage: Option<Usage>,
    /// Processor time since the thread's first call, in ns. It comes from [`ThreadTime::usage`] or,
    /// for a page that has not ended, from the last reading of the thread's clocks.
    pub cpu_ns: Option<f64>,
}

/// The time that a thread was neither in a dispatch nor on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffCpu {
    /// The time off the CPU, in ns.
    pub ns: f64,
    /// The time in no dispatch between the first and the last reading of the thread's CPU clock, in
    /// ns, of which `ns` is a part. It can be less than the thread's whole time in no dispatch.
    pub of_ns: f64,
    /// Whether some calls had no counter group that shows how long they were on a CPU. Such calls
    /// are assumed to have been on a CPU all the time, so `ns` may be too large.
    pub assumed: bool,
}

impl ThreadTime {
    /// Returns the wall time minus the time in calls. This includes the recorder's time that was
    /// subtracted from the time in calls (`recorder_ns`).
    pub fn no_dispatch_ns(&self) -> f64 {
        (self.wall_ns - self.dispatch_ns).max(0.0)
    }
}

/// Returns the times of the program's threads: all but the streams of devices.
pub(crate) fn threads_of_program<'a>(
    profile: &Profile,
    times: &'a [ThreadTime],
) -> impl Iterator<Item = &'a ThreadTime> {
    let on_device = devices(profile);
    times.iter().filter(move |time| on_device.get(time.process) == Some(&false))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// The time in which any dispatch was running.
    ticks: u64,
    /// The part of `ticks` in which, according to a counter group, the thread was not on a CPU.
    off_ticks: u64,
    /// The part of `ticks` for which no group shows whether the thread was on a CPU.
    assumed_ticks: u64,
}

impl Spent {
    fn add(&mut self, other: Self) {
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.off_ticks = self.off_ticks.saturating_add(other.off_ticks);
        self.assumed_ticks = self.assumed_ticks.saturating_add(other.assumed_ticks);
    }

    fn less(self, other: Self) -> Self {
        Self {
            ticks: self.ticks.saturating_sub(other.ticks),
            off_ticks: self.off_ticks.saturating_sub(other.off_ticks),
            assumed_ticks: self.assumed_ticks.saturating_sub(other.assumed_ticks),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PageTime {
    calls: u64,
    first_begin: u64,
    last_begin: u64,
    last_end: u64,
    last_moment: u64,
    /// Whether each call begins after all earlier recorded calls have ended.
    flat: bool,
    all: Spent,
    /// The reading of the thread's clocks when the page began.
    base: Moment,
    /// The last clock record before the page's first call.
    early: Option<Moment>,
    /// The first clock record after the page's first call.
    first: Option<Moment>,
    /// The last clock record.
    last: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    cpu_ns: u64,
    /// The time in dispatches before this moment: within the page at first, and within the thread
    /// after the thread's pages were joined.
    before: Spent,
}

impl Moment {
    fn after(mut self, spent: Spent) -> Self {
        self.before.add(spent);
        self
    }
}

impl PageTime {
    fn of(columns: &Columns, profile: &Profile, cursor: u64) -> Option<Self> {
        let header = columns.header()?;
        let ns_per_tick = profile.timeline.ns_per_tick();
        let told_by = profile
            .groups
            .all()
            .iter()
            .zip(&columns.groups)
            .find(|(group, column)| !group.simulated && !column.status.is_empty())
            .map(|(_, column)| column);
        let early = columns.clocks.iter().rfind(|clock| clock.calls_before == 0);
        let first = columns.clocks.iter().find(|clock| clock.calls_before > 0);
        let last = columns.clocks.last();
        let mut all = Spent::default();
        let (mut after_first, mut after_last) = (Spent::default(), Spent::default());
        let mut earliest = cursor;
        let (mut first_begin, mut last_begin, mut last_end) = (u64::MAX, 0, 0);
        let mut flat = true;
        for i in (0..columns.len()).rev() {
            let begin = columns.start_ticks[i];
            let duration = columns.duration(i);
            let end = begin.saturating_add(duration);
            flat &= end <= first_begin;
            first_begin = first_begin.min(begin);
            last_begin = last_begin.max(begin);
            last_end = last_end.max(end);
            for (clock, after) in [(first, &mut after_first), (last, &mut after_last)] {
                if clock.is_some_and(|clock| clock.calls_before == i + 1) {
                    *after = all;
                }
            }
            let counted = end.min(earliest).saturating_sub(begin);
            earliest = earliest.min(begin);
            // The call has no duration, or it is inside of another call, whose CPU time includes
            // that of this call.
            if counted == 0 {
                continue;
            }
            let whole = counted == duration;
            let told = told_by.filter(|c| whole && c.status[i] != Status::NotRead);
            all.add(match told {
                Some(column) => {
                    // A counter group is enabled from slightly before the clock is read for the
                    // call's start until slightly after it is read for the call's end. The enabled
                    // time passes only while the thread is on a CPU. So this time can be slightly
                    // longer than the call; then the call's time off the CPU is 0.
                    let on = (column.enabled_ns[i] as f64 / ns_per_tick) as u64;
                    let off_ticks = counted.saturating_sub(on);
                    Spent { ticks: counted, off_ticks, assumed_ticks: 0 }
                }
                None => Spent { ticks: counted, off_ticks: 0, assumed_ticks: counted },
            });
        }
        let moment = |after: Spent| {
            let before = all.less(after);
            move |clock: &ThreadClock| Moment { ticks: clock.ticks, cpu_ns: clock.cpu_ns, before }
        };
        if last.is_some_and(|clock| clock.calls_before == 0) {
            after_last = all;
        }
        let start = &header.start;
        let (ticks, cpu_ns) = (start.base_ticks, start.base_cpu_ns);
        let last_moment = last.map_or(last_end, |clock| clock.ticks.max(last_end));
        Some(Self {
            calls: columns.len() as u64,
            first_begin,
            last_begin,
            last_end,
            last_moment,
            flat,
            all,
            base: Moment { ticks, cpu_ns, before: Spent::default() },
            early: early.map(moment(all)),
            first: first.map(moment(after_first)),
            last: last.map(moment(after_last)),
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct PageTimes {
    pages: BTreeMap<PageKey, PageTime>,
}

impl PageTimes {
    /// Adds a page. Returns whether each of its calls begins after all earlier recorded calls have
    /// ended.
    pub fn add(&mut self, columns: &Columns, profile: &Profile) -> bool {
        let key = PageKey { process: columns.process, thread: columns.thread, page: columns.page };
        let found = PageTime::of(columns, profile, u64::MAX).map(|time| (key, time));
        let flat = found.as_ref().is_none_or(|(_, time)| time.flat);
        self.pages.extend(found);
        flat
    }

    pub fn merge(&mut self, mut other: Self) {
        self.pages.append(&mut other.pages);
    }

    /// Finds the pages that have calls inside of calls of later pages.
    pub fn inside_of_later(&self, homes: &Homes) -> Inside {
        let mut inside = Inside::new();
        let (mut thread, mut cursor) = (None, u64::MAX);
        for (key, time) in self.pages.iter().rev().filter(|(_, time)| time.calls > 0) {
            let of = (key.process, key.thread);
            if homes.of(of) != of {
                continue;
            }
            if thread != Some(of) {
                (thread, cursor) = (Some(of), u64::MAX);
            }
            if time.last_end > cursor {
                inside.insert(*key, cursor);
            }
            cursor = cursor.min(time.first_begin);
        }
        inside
    }

    /// Replaces the times of those pages whose times were computed again.
    pub fn replace(&mut self, again: Self) {
        self.pages.extend(again.pages);
    }

    /// Returns the time span of the calls of each page that has calls.
    pub fn spans(&self, homes: &Homes) -> impl Iterator<Item = PageSpan> {
        self.pages.iter().filter(|(_, time)| time.calls > 0).map(|(key, time)| PageSpan {
            key: *key,
            thread: homes.of((key.process, key.thread)),
            first_begin: time.first_begin,
            last_begin: time.last_begin,
            last_end: time.last_end,
            flat: time.flat,
        })
    }

    /// Computes the times of each thread that has calls, from the times of its pages. For each
    /// thread, `busy` is the time in which any call was running. It covers only the pages that are
    /// in `clusters`. Unlike the sums of single pages, `busy` is right for calls that were recorded
    /// in any order.
    pub fn finish(
        self,
        profile: &Profile,
        homes: &Homes,
        clusters: &[Vec<PageSpan>],
        busy: &HashMap<(usize, usize), u64>,
    ) -> Vec<ThreadTime> {
        let mut busy = busy.clone();
        let again: HashSet<PageKey> = clusters.iter().flatten().map(|span| span.key).collect();
        let mut threads: BTreeMap<(usize, usize), Vec<(PageKey, PageTime)>> = BTreeMap::new();
        let mut others: HashMap<(usize, usize), Other> = HashMap::new();
        for key in self.pages.keys() {
            let of = (key.process, key.thread);
            if homes.of(of) != of {
                busy.entry(homes.of(of)).or_insert(0);
            }
        }
        for (key, time) in self.pages {
            let of = (key.process, key.thread);
            let home = homes.of(of);
            if !again.contains(&key)
                && let Some(busy) = busy.get_mut(&home)
            {
                *busy = busy.saturating_add(time.all.ticks);
            }
            if home == of {
                threads.entry(of).or_default().push((key, time));
            } else if time.calls > 0 {
                others.entry(home).or_default().add(&time);
            }
        }
        // A thread whose calls were recorded only by a plugin is a thread of the program, too.
        for home in others.keys() {
            threads.entry(*home).or_default();
        }
        threads
            .into_iter()
            .filter_map(|(id, pages)| {
                join(profile, id, &pages, busy.get(&id).copied(), others.get(&id))
            })
            .collect()
    }
}

/// For each page that has calls inside of calls of later pages: the start of the earliest call of
/// all later pages of the thread.
pub(crate) type Inside = HashMap<PageKey, u64>;

/// Computes the times of pages again, without the calls that are inside of calls of later pages.
/// Nearly all of these pages overlap with later ones, so they are decoded again anyway, to compute
/// the self times of nested calls. The few others have no nested calls; they are in `inside` only
/// because a page with earlier calls was recorded after them. They keep their times.
pub(crate) struct Again<'a> {
    profile: &'a Profile,
    inside: &'a Inside,
    times: PageTimes,
}

impl<'a> Again<'a> {
    pub fn new(profile: &'a Profile, inside: &'a Inside) -> Self {
        Self { profile, inside, times: PageTimes::default() }
    }

    pub fn page(&mut self, columns: &Columns) {
        let key = PageKey { process: columns.process, thread: columns.thread, page: columns.page };
        if let Some(cursor) = self.inside.get(&key) {
            let time = PageTime::of(columns, self.profile, *cursor);
            self.times.pages.extend(time.map(|time| (key, time)));
        }
    }

    pub fn finish(self) -> PageTimes {
        self.times
    }
}

/// Those of a thread's calls that a plugin recorded. The profile stores them in a separate process.
#[derive(Clone, Copy, Debug)]
struct Other {
    calls: u64,
    begin: u64,
    end: u64,
}

impl Default for Other {
    fn default() -> Self {
        Self { calls: 0, begin: u64::MAX, end: 0 }
    }
}

impl Other {
    fn add(&mut self, page: &PageTime) {
        self.calls += page.calls;
        self.begin = self.begin.min(page.first_begin);
        self.end = self.end.max(page.last_end);
    }
}

fn join(
    profile: &Profile,
    (process, thread): (usize, usize),
    pages: &[(PageKey, PageTime)],
    busy: Option<u64>,
    other: Option<&Other>,
) -> Option<ThreadTime> {
    let mut calls: u64 = pages.iter().map(|(_, time)| time.calls).sum();
    let own = pages.iter().filter(|(_, t)| t.calls > 0).map(|(_, t)| t.first_begin).min();
    let begin = own.into_iter().chain(other.map(|other| other.begin)).min()?;
    let ends = pages.iter().map(|(_, t)| t.last_moment).chain(other.map(|other| other.end));
    let end = ends.max()?;
    let ended = pages.iter().filter(|(_, t)| t.calls > 0).map(|(_, t)| t.last_end);
    let ended = ended.chain(other.map(|other| other.end)).max()?;
    calls += other.map_or(0, |other| other.calls);
    let mut spent = Spent::default();
    let (mut from, mut until) = (None, None);
    let (mut early, mut called) = (None, false);
    for (_, time) in pages {
        until = Some(time.last.unwrap_or(time.base).after(spent));
        // The thread's first page begins before the recorder is ready to record calls. So the
        // measured time begins at the last clock record before the thread's first call. Without
        // such a clock record, it begins at the clock reading from the page's start, if this
        // reading is not older than the first call. Otherwise, it begins at the page's first clock
        // record after a call.
        if from.is_none() {
            if !called {
                early = time.early.or(early);
            }
            called |= time.calls > 0;
            if called {
                let base = Some(time.base).filter(|base| base.ticks >= begin);
                from = early.or(base).or(time.first).map(|moment| moment.after(spent));
            }
        }
        spent.add(time.all);
    }
    let headers = || profile.processes[process].threads[thread].headers();
    let line = &profile.timeline;
    let wall_ns = line.duration_ns(end.saturating_sub(begin));
    let dispatch_ns = line.duration_ns(busy.unwrap_or(spent.ticks));
    let no_dispatch_ns = (wall_ns - dispatch_ns).max(0.0);
    let off_cpu = from.zip(until).and_then(|(from, until)| {
        let window = until.ticks.checked_sub(from.ticks).filter(|ticks| *ticks > 0)?;
        let cpu_ns = until.cpu_ns.checked_sub(from.cpu_ns)? as f64;
        let inside = until.before.less(from.before);
        let none = line.duration_ns(window.saturating_sub(inside.ticks));
        let in_dispatches = line.duration_ns(inside.ticks.saturating_sub(inside.off_ticks));
        let on_ns = cpu_ns - in_dispatches.min(cpu_ns);
        // `wall_ns` begins at the first call, which may be slightly after the clock record. So
        // `of_ns` is limited to the time outside of calls in `wall_ns`.
        let of_ns = none.min(no_dispatch_ns);
        let ns = (none - on_ns).clamp(0.0, of_ns);
        // Calls that a plugin recorded do not show how long they were on a CPU.
        let assumed = inside.assumed_ticks > 0 || other.is_some();
        Some(OffCpu { ns, of_ns, assumed })
    });
    let all_told = spent.assumed_ticks == 0 && other.is_none();
    Some(ThreadTime {
        off_cpu_in_calls_ns: all_told.then(|| line.duration_ns(spent.off_ticks)),
        process,
        thread,
        calls,
        begin,
        end: ended,
        wall_ns,
        dispatch_ns,
        recorder_ns: 0.0,
        dispatch_known: true,
        off_cpu,
        flush_ticks: headers().map(|h| h.start.flush_ticks).max().unwrap_or(0),
        usage: headers()
            .filter_map(|h| h.usage_end?.since(&h.start.usage?))
            .reduce(|sum, page| sum.plus(&page)),
        cpu_ns: cpu_ns(headers(), pages),
    })
}

/// Adds up the thread's processor time over its pages: from each page's start to its end. If a
/// page's header lacks one of them, a clock reading near it is used. The time between two pages is
/// left out, because the recorder uses it to flush a page.
fn cpu_ns<'a>(
    headers: impl Iterator<Item = &'a PageHeader>,
    pages: &[(PageKey, PageTime)],
) -> Option<f64> {
    let mut sum = None;
    let headers: Vec<&PageHeader> = headers.collect();
    for (key, page) in pages {
        let Some(header) = headers.get(key.page) else { continue };
        let begin = header.start.usage.map(|usage| usage.cpu_ns);
        let begin = begin.or(page.early.map(|clock| clock.cpu_ns)).unwrap_or(page.base.cpu_ns);
        let end = header.usage_end.map(|usage| usage.cpu_ns);
        let end = end.or(page.last.map(|clock| clock.cpu_ns));
        if let Some(spent) = end.and_then(|end| end.checked_sub(begin)) {
            *sum.get_or_insert(0.0) += spent as f64;
        }
    }
    sum
}
