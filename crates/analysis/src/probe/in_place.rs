//! Computes facts about the cost of probes (the recorder's work around calls) from the recorded
//! calls. These are the time of readings of counters, the number of calls without readings, the
//! time between the ops of a virtual machine, and the kinds of calls of each thread.

use std::collections::{BTreeMap, HashMap};

use profile::columns::Columns;
use profile::{Calibration, PageKey, Profile, Role, Status};

use super::FEWEST;
use super::kinds::{self, Kinds, OfPage, OnPage, Parallel, Threads};
use crate::amounts::Brackets;
use crate::empty::{EmptyCall, Place, calibration};

#[derive(Debug, Default)]
pub(crate) struct InPlace {
    /// The times of readings, by process and set of counters.
    readings: HashMap<(usize, u32), Reading>,
    /// Number of calls in which no counter of the set was read, by process and set of counters.
    uncounted: HashMap<(usize, u32), u64>,
    /// Times in ticks from the end of one op to the start of the next, by process.
    gaps: HashMap<usize, Gaps>,
    /// The kinds of calls of each page (block of recorded calls); [`InPlace::joined`] moves them to
    /// `threads`.
    pages: BTreeMap<PageKey, OfPage>,
    /// The kinds of calls of each thread, by process and thread; empty before [`InPlace::joined`].
    threads: Threads,
    /// Whether the profile has ops of hosts (runtimes such as PyTorch that call ops). `None` until
    /// this has been determined.
    has_ops: Option<bool>,
}

/// The times of readings of counters. A group of counters is enabled for longer than the call
/// takes. The difference between the two durations is the time of the readings.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    calls: u64,
    ns: f64,
    squares: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    ops: u64,
    /// Number of gaps that are shorter than [`LONGEST_GAP_NS`].
    gaps: u64,
    ticks: u64,
}

/// A reading that takes longer than this is not used, because something else happened meanwhile.
/// Readings around a call that takes longer than [`LONGEST_CALL_NS`] are not used either: during
/// long calls, the clock of the counters and that of the recorder drift apart too far.
const LONGEST_READING_NS: f64 = 20_000.0;
/// In a gap between ops that is longer than this, the virtual machine did more than step from one
/// op to the next.
const LONGEST_GAP_NS: f64 = 5_000.0;
const LONGEST_CALL_NS: f64 = 1_000_000.0;

impl InPlace {
    pub fn add(&mut self, columns: &Columns, profile: &Profile) {
        let Some(header) = columns.header() else { return };
        let line = &profile.timeline;
        let groups = profile.groups.all().iter().zip(&columns.groups);
        let first = groups
            .filter(|(group, column)| !group.simulated && column.status.len() == columns.len())
            .map(|(_, column)| column)
            .next();
        if let Some(column) = first {
            let sum = self.readings.entry((columns.process, header.start.counters)).or_default();
            for i in 0..columns.len() {
                let duration = line.duration_ns(columns.duration(i));
                let more = column.enabled_ns[i] as f64 - duration;
                let is_usual = more > 0.0 && more < LONGEST_READING_NS;
                if column.status[i] == Status::Whole && is_usual && duration < LONGEST_CALL_NS {
                    sum.calls += 1;
                    sum.ns += more;
                    sum.squares += more * more;
                }
            }
        }
        let mask = header.start.counters;
        if mask != 0 {
            let unread = |i: &usize| {
                columns
                    .groups
                    .iter()
                    .all(|c| c.status.get(*i).is_none_or(|s| *s == Status::NotRead))
            };
            let calls = (0..columns.len()).filter(unread).count() as u64;
            *self.uncounted.entry((columns.process, mask)).or_default() += calls;
        }
        self.add_gaps(columns, profile);
    }

    fn add_gaps(&mut self, columns: &Columns, profile: &Profile) {
        let ops = &profile.ops;
        let is_any = || ops.all().iter().any(|op| op.role == Role::Op);
        if !*self.has_ops.get_or_insert_with(is_any) {
            return;
        }
        let op_of =
            |i: usize| ops.of(columns.process, columns.export[i]).and_then(|op| ops.get(op));
        let found = self.gaps.entry(columns.process).or_default();
        let mut kinds = Kinds::of_calls(columns.len());
        let mut parallel = Vec::new();
        let mut last = None;
        for i in 0..columns.len() {
            let op = op_of(i);
            let role = op.map(|op| op.role);
            if role != Some(Role::Op) {
                kinds.regions += u64::from(role == Some(Role::Region));
                parallel.extend(Parallel::of(columns, i, role));
                last = None;
                continue;
            }
            let host = op.map(|op| ops.host_of(op));
            kinds.announced += u64::from(host.is_some_and(|host| host.program_between_ops));
            found.ops += 1;
            let begin = columns.start_ticks[i];
            let gap = last.and_then(|end| begin.checked_sub(end));
            let short = gap.filter(|gap| profile.timeline.duration_ns(*gap) < LONGEST_GAP_NS);
            if let Some(gap) = short {
                found.gaps += 1;
                found.ticks += gap;
            }
            last = begin.checked_add(columns.duration(i));
        }
        let key = PageKey { process: columns.process, thread: columns.thread, page: columns.page };
        self.pages.insert(key, OfPage::new(kinds, &parallel));
    }

    pub fn merge(&mut self, other: Self) {
        for (key, more) in other.readings {
            let sum = self.readings.entry(key).or_default();
            sum.calls += more.calls;
            sum.ns += more.ns;
            sum.squares += more.squares;
        }
        for (key, more) in other.uncounted {
            *self.uncounted.entry(key).or_default() += more;
        }
        self.pages.extend(other.pages);
        for (process, more) in other.gaps {
            let found = self.gaps.entry(process).or_default();
            found.ops += more.ops;
            found.gaps += more.gaps;
            found.ticks += more.ticks;
        }
    }

    /// Combines the kinds of calls of each thread's pages. Must be called after the calls of all
    /// pages were added.
    pub fn joined(mut self, profile: &Profile) -> Self {
        self.threads = kinds::join(profile, std::mem::take(&mut self.pages));
        self
    }

    /// Returns the kinds of calls of each thread of a process. Empty if the profile has no ops of
    /// hosts.
    pub(super) fn threads(&self, process: usize) -> impl Iterator<Item = (usize, Kinds)> {
        let of = self.threads.iter().filter(move |((of, _), _)| *of == process);
        of.map(|((_, thread), (kinds, _))| (*thread, *kinds))
    }

    /// Returns what a thread did on each of its pages that have calls, the last page first.
    pub(super) fn on_pages(&self, process: usize, thread: usize) -> &[OnPage] {
        self.threads.get(&(process, thread)).map_or(&[], |(_, pages)| pages)
    }

    /// Returns the number of calls for which no counter was read, although their thread had the
    /// counters of this set.
    pub(super) fn uncounted(&self, process: usize, counters: u32) -> u64 {
        self.uncounted.get(&(process, counters)).copied().unwrap_or(0)
    }

    /// Returns the time that the readings of counters before and after a call took in the program,
    /// as a multiple of the time that they took in the calibration. At least 1; 1 if too few times
    /// are known.
    pub(super) fn ratio(&self, process: usize, known: &Calibration, ns_per_tick: f64) -> f64 {
        let calibrated = known.spread.as_ref().and_then(|spread| {
            let enabled = *spread.enabled_ns.first()? as f64;
            Some(enabled - known.inside_ticks as f64 * ns_per_tick)
        });
        let found = self.readings.get(&(process, known.counters));
        match (calibrated, found) {
            (Some(calibrated), Some(found)) if calibrated > 0.0 && found.calls >= FEWEST => {
                (found.ns / found.calls as f64 / calibrated).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// Returns how long readings of counters took in the program and in the calibration. `None` if
    /// the time was not calibrated, or if too few readings in the program are known.
    pub fn place(
        &self,
        profile: &Profile,
        process: usize,
        mask: u32,
        empty: &EmptyCall,
    ) -> Option<Place> {
        let known = calibration(profile, process, mask)?;
        let enabled = *known.spread.as_ref()?.enabled_ns.first()? as f64;
        let calibrated_ns = enabled - profile.timeline.duration_ns(empty.ticks);
        let found = self.readings.get(&(process, mask)).filter(|f| f.calls >= FEWEST)?;
        let (calls, reading_ns) = (found.calls as f64, found.ns / found.calls as f64);
        let deviation_ns = (found.squares / calls - reading_ns * reading_ns).max(0.0).sqrt();
        (calibrated_ns > 0.0).then_some(Place { reading_ns, deviation_ns, calibrated_ns })
    }

    /// Returns what the recorder adds to calls, for all classes of calls (such as calls with
    /// counters), corrected by the times of readings in the program.
    pub fn brackets(&self, profile: &Profile) -> Brackets {
        let mut brackets = Brackets::new(profile, false);
        brackets.place(profile, |process, mask, empty| self.place(profile, process, mask, empty));
        brackets
    }

    /// Returns the mean time from the end of an op to the start of the next op, in ticks, and the
    /// number of ops. The mean is over the gaps that are shorter than [`LONGEST_GAP_NS`]. `None` if
    /// there are too few such gaps.
    pub(super) fn gap(&self, process: usize) -> Option<(f64, u64)> {
        let found = self.gaps.get(&process).filter(|found| found.gaps >= FEWEST)?;
        Some((found.ticks as f64 / found.gaps as f64, found.ops))
    }
}

pub(crate) fn in_place(profile: &Profile, workers: usize) -> InPlace {
    let add = |found: &mut InPlace, columns: &Columns| found.add(columns, profile);
    let (states, _) = profile.visit(workers, InPlace::default, add);
    let all = states.into_iter().fold(InPlace::default(), |mut all, state| {
        all.merge(state);
        all
    });
    all.joined(profile)
}
