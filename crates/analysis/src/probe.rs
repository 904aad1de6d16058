//! The cost of the probes.
//!
//! ```text
//!  cost of a process  = calls × bracket in place    calibrated × how much longer readings took
//!                     + ops × way of the machine    TVM: its own path to an instrument
//!                     + switches × switch           threads with counters, measured by `run`
//!                     + flushes + attaching         measured in the program
//! ```
//!
//! All of this is processor time of the program's threads. So it is compared with processor time,
//! and with the time in dispatches, but never with wall time, in which idle workers only wait.
//!
//! The bracket is calibrated with an empty call in a warm loop. A program that does something else
//! between two calls finds colder caches. Each record shows how much longer its readings take: a
//! counter group is enabled from some point in the first reading to some point in the second one.
//! So the time enabled exceeds the call's duration by about one reading.

use std::collections::{BTreeMap, HashMap};

use profile::columns::Columns;
use profile::{Calibration, LibraryKind, PageHeader, Profile, Role, Status, Thread, Timeline};

use crate::durations::Durations;
use crate::empty::{Brackets, EmptyCall, Place, calibration, empty_call};
use crate::threads::ThreadTime;

/// The estimated cost of recording for one process, in ns of processor time, summed over its
/// threads. Calls with a set of counters that was not calibrated are left out, because the cost
/// with and without counters differs by a factor of thirty.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// Process index.
    pub process: usize,
    /// Number of recorded calls whose set of counters was calibrated. The estimate covers these
    /// calls.
    pub calls: u64,
    /// Number of all recorded calls.
    pub of_calls: u64,
    /// How much one probe lengthens the program: the mean over those calls.
    pub per_call_ns: f64,
    /// The same from the calibration alone, without the extra time of readings in the program.
    pub calibrated_per_call_ns: f64,
    /// The cost of the probes of all those calls.
    pub probes_ns: f64,
    /// Number of those calls for which no counter was read although their thread had counters.
    /// These are the book-keeping ops of a virtual machine.
    pub uncounted: u64,
    /// The cost of the probe of such a call. `None` if it was not calibrated.
    pub uncounted_call_ns: Option<f64>,
    /// Upper bound for the time in which a virtual machine itself calls an instrument. It includes
    /// the machine's step between two ops, because the two cannot be told apart. `None` if there is
    /// no such machine, or if too few of its ops follow one another.
    pub way_ns: Option<f64>,
    /// What counters add to the context switches of threads that have them; 0 without counters.
    /// `None` if there are counters and it was not measured.
    pub switches_ns: Option<f64>,
    /// Number of those context switches.
    pub switches: u64,
    /// The cost of flushing pages. It includes the last page of each thread if the process ended in
    /// an orderly way.
    pub flush_ns: f64,
    /// The cost of attaching threads: opening counters, mapping pages, and one calibration.
    pub attach_ns: f64,
    /// Processor time of its threads, each between its first call and the last known moment.
    /// Flushing and attaching are not included. `None` if it is not known for some thread with
    /// calls.
    pub cpu_ns: Option<f64>,
    /// Time of its threads in dispatches.
    pub dispatch_ns: Option<f64>,
    /// The readings of an empty call, for the calibrated set of counters that most calls had.
    pub empty_call: EmptyCall,
}

impl ProbeCost {
    /// The mean cost of the probe of a call whose counters are read; of any call if there are no
    /// such calls.
    pub fn counted_call_ns(&self) -> f64 {
        let counted = self.calls - self.uncounted;
        match counted {
            0 => self.per_call_ns,
            _ => {
                let uncounted = self.uncounted as f64 * self.uncounted_call_ns.unwrap_or(0.0);
                (self.probes_ns - uncounted) / counted as f64
            }
        }
    }

    /// The sum of everything that is known, in ns, over all threads.
    pub fn total_ns(&self) -> f64 {
        self.probes_ns
            + self.way_ns.unwrap_or(0.0)
            + self.switches_ns.unwrap_or(0.0)
            + self.flush_ns
            + self.attach_ns
    }

    /// The processor time that the threads would have used without us. `None` if their processor
    /// time is not known, or if the estimate exceeds it.
    pub fn alone_ns(&self) -> Option<f64> {
        let ours = self.total_ns() - self.flush_ns - self.attach_ns;
        self.cpu_ns.map(|cpu| cpu - ours).filter(|alone| *alone > 0.0)
    }
}

/// What the recorded calls themselves tell about the cost of their probes.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    /// By process and set of counters.
    readings: HashMap<(usize, u32), Reading>,
    /// Number of calls for which no counter of the set was read, by process and set of counters.
    uncounted: HashMap<(usize, u32), u64>,
    /// Times in ticks from the end of one op to the begin of the next, by process.
    gaps: HashMap<usize, Gaps>,
}

/// Calls in which a group was enabled for longer than the call took.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    calls: u64,
    ns: f64,
    squares: f64,
}

#[derive(Clone, Debug, Default)]
struct Gaps {
    ops: u64,
    gaps: Durations,
}

/// Above these, something else happened during a reading, or the rates of the clocks matter.
const LONGEST_READING_NS: f64 = 20_000.0;
const LONGEST_CALL_NS: f64 = 1_000_000.0;
/// With fewer calls, the result is not meaningful.
const FEWEST_CALLS: u64 = 30;

impl InPlace {
    /// Adds the calls of a page.
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

    /// Adds the times between consecutive ops in the same function of a machine.
    fn add_gaps(&mut self, columns: &Columns, profile: &Profile) {
        let ops = &profile.ops;
        if !ops.all().iter().any(|op| op.role == Role::Op) {
            return;
        }
        let is_op = |i: usize| {
            let op = ops.of(columns.process, columns.export[i]).and_then(|op| ops.get(op));
            op.is_some_and(|op| op.role == Role::Op)
        };
        let found = self.gaps.entry(columns.process).or_default();
        let mut last = None;
        for i in 0..columns.len() {
            if !is_op(i) {
                last = None;
                continue;
            }
            found.ops += 1;
            let begin = columns.start_ticks[i];
            if let Some(gap) = last.and_then(|end| begin.checked_sub(end)) {
                found.gaps.push(gap);
            }
            last = begin.checked_add(columns.duration(i));
        }
    }

    /// Adds the findings of another worker.
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
        for (process, more) in other.gaps {
            let found = self.gaps.entry(process).or_default();
            found.ops += more.ops;
            found.gaps.append(more.gaps);
        }
    }

    /// How many times longer a bracket took in the program than in the calibration.
    fn ratio(&self, process: usize, known: &Calibration, ns_per_tick: f64) -> f64 {
        let calibrated = known.spread.as_ref().and_then(|spread| {
            let enabled = *spread.enabled_ns.first()? as f64;
            Some(enabled - known.inside_ticks as f64 * ns_per_tick)
        });
        let found = self.readings.get(&(process, known.counters));
        match (calibrated, found) {
            (Some(calibrated), Some(found)) if calibrated > 0.0 && found.calls >= FEWEST_CALLS => {
                (found.ns / found.calls as f64 / calibrated).max(1.0)
            }
            _ => 1.0,
        }
    }

    /// How long the readings of a process took, in the program and in its calibration. `None` if too
    /// few calls show it.
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
        let found = self.readings.get(&(process, mask)).filter(|f| f.calls >= FEWEST_CALLS)?;
        let (calls, reading_ns) = (found.calls as f64, found.ns / found.calls as f64);
        let deviation_ns = (found.squares / calls - reading_ns * reading_ns).max(0.0).sqrt();
        (calibrated_ns > 0.0).then_some(Place { reading_ns, deviation_ns, calibrated_ns })
    }

    /// All brackets of a profile, with what these calls show about them.
    pub fn brackets(&self, profile: &Profile) -> Brackets {
        let mut brackets = Brackets::new(profile);
        brackets.place(profile, |process, mask, empty| self.place(profile, process, mask, empty));
        brackets
    }

    /// The machine's time from op to op without the bracket's part of it, in ticks, and the number
    /// of ops.
    fn way(&mut self, process: usize, outside_ticks: f64) -> Option<(f64, u64)> {
        let found = self.gaps.get_mut(&process)?;
        if (found.gaps.len() as u64) < FEWEST_CALLS {
            return None;
        }
        let median = found.gaps.quantile(0.5)?;
        Some(((median - outside_ticks).max(0.0), found.ops))
    }
}

/// Reads the calls of a whole profile.
pub(crate) fn in_place(profile: &Profile, workers: usize) -> InPlace {
    let add = |found: &mut InPlace, columns: &Columns| found.add(columns, profile);
    let (states, _) = profile.visit(workers, InPlace::default, add);
    states.into_iter().fold(InPlace::default(), |mut all, state| {
        all.merge(state);
        all
    })
}

/// The cost in every process that recorded calls with a calibrated set of counters. `threads` has
/// the times of all threads, if they are known.
pub(crate) fn costs(
    profile: &Profile,
    mut in_place: InPlace,
    threads: &[ThreadTime],
) -> Vec<ProbeCost> {
    let processes = 0..profile.processes.len();
    processes.filter_map(|process| cost(profile, process, &mut in_place, threads)).collect()
}

fn cost(
    profile: &Profile,
    process: usize,
    in_place: &mut InPlace,
    threads: &[ThreadTime],
) -> Option<ProbeCost> {
    let line = &profile.timeline;
    let of = &profile.processes[process];
    let (mut calls, mut of_calls, mut ticks, mut in_place_ticks) = (0u64, 0u64, 0u128, 0.0);
    let (mut flush_ns, mut attach) = (of.leaving.map_or(0.0, |l| l.cpu_ns as f64), 0u64);
    let mut by_set = BTreeMap::<u32, u64>::new();
    for thread in &of.threads {
        for header in thread.headers() {
            let mask = header.start.counters;
            let of_page = u64::from(header.calls);
            of_calls += of_page;
            attach = attach.saturating_add(header.start.attach_ns);
            if let Some(known) = calibration(profile, process, mask) {
                calls += of_page;
                let all = u128::from(of_page) * u128::from(known.total_ticks);
                ticks += all;
                in_place_ticks += all as f64 * in_place.ratio(process, known, line.ns_per_tick());
                *by_set.entry(mask).or_default() += of_page;
            }
        }
        flush_ns += flushing_ns(thread, line);
    }
    if calls == 0 {
        return None;
    }
    // Calls that were only timed cost less, if that was calibrated.
    let mut uncounted = 0;
    let timing = calibration(profile, process, 0);
    for (mask, calls) in by_set.iter().filter(|(mask, _)| **mask != 0) {
        let Some((timing, known)) = timing.zip(calibration(profile, process, *mask)) else {
            continue;
        };
        let timed = in_place.uncounted.get(&(process, *mask)).map_or(0, |n| *n.min(calls));
        let ratio = in_place.ratio(process, known, line.ns_per_tick());
        let counted = u128::from(timed) * u128::from(known.total_ticks);
        let less = u128::from(timed) * u128::from(timing.total_ticks);
        ticks = ticks.saturating_sub(counted) + less;
        in_place_ticks += less as f64 - counted as f64 * ratio;
        uncounted += timed;
    }
    let most = by_set.into_iter().max_by_key(|(_, calls)| *calls)?.0;
    let empty_call = empty_call(profile, process, most)?;
    let place = in_place.place(profile, process, most, &empty_call);
    let empty_call = empty_call.placed(profile, place);
    let probes_ns = in_place_ticks * line.ns_per_tick();
    // The part of a bracket that lies outside of the duration that it records.
    let outside = in_place_ticks / calls as f64 - empty_call.ticks as f64;
    // Between two ops of PyTorch, Python runs the program.
    let libraries = &profile.processes[process].libraries;
    let is_torch = libraries.iter().any(|library| library.kind == LibraryKind::Torch);
    let way = in_place.way(process, outside).filter(|_| !is_torch);
    let mine = || threads.iter().filter(|thread| thread.process == process);
    let (switches, switches_ns) = switches(profile, process);
    let cpu: Option<Vec<f64>> = mine().map(|thread| thread.cpu_ns).collect();
    Some(ProbeCost {
        process,
        calls,
        of_calls,
        per_call_ns: probes_ns / calls as f64,
        calibrated_per_call_ns: ticks as f64 * line.ns_per_tick() / calls as f64,
        probes_ns,
        uncounted,
        uncounted_call_ns: timing.map(|t| line.duration_ns(t.total_ticks)),
        way_ns: way.map(|(ticks, ops)| ticks * line.ns_per_tick() * ops as f64),
        switches_ns,
        switches,
        flush_ns,
        attach_ns: attach as f64,
        cpu_ns: cpu.filter(|cpu| !cpu.is_empty()).map(|cpu| cpu.iter().sum()),
        dispatch_ns: mine().next().map(|_| mine().map(|thread| thread.dispatch_ns).sum()),
        empty_call,
    })
}

/// The processor time that a thread used to flush pages: from the end of one page to the begin of
/// the next. If that is not known, the time that flushing took, which includes waiting.
fn flushing_ns(thread: &Thread, line: &Timeline) -> f64 {
    let headers: Vec<&PageHeader> = thread.headers().collect();
    let used = headers.windows(2).map(|pair| {
        let (end, begin) = (pair[0].usage_end?, pair[1].start.usage?);
        let follows = pair[0].start.sequence.checked_add(1) == Some(pair[1].start.sequence);
        follows.then(|| begin.since(&end)).flatten().map(|used| used.cpu_ns as f64)
    });
    used.sum::<Option<f64>>().unwrap_or_else(|| {
        line.duration_ns(headers.iter().map(|h| h.start.flush_ticks).max().unwrap_or(0))
    })
}

/// The context switches of threads while they had kernel counters open, and the time that these
/// counters added.
fn switches(profile: &Profile, process: usize) -> (u64, Option<f64>) {
    let of = &profile.processes[process];
    let groups = profile.groups.all();
    let real: u32 = groups
        .iter()
        .filter(|group| !group.simulated)
        .flat_map(|group| group.counters.clone())
        .fold(0, |mask, counter| mask | 1u32.checked_shl(counter as u32).unwrap_or(0));
    let counted = of
        .threads
        .iter()
        .flat_map(|thread| thread.headers())
        .filter(|header| header.start.counters & real != 0);
    let (mut any, mut switches) = (false, 0u64);
    for header in counted {
        any = true;
        let used = header.start.usage.zip(header.usage_end);
        let used = used.and_then(|(begin, end)| end.since(&begin));
        switches = switches.saturating_add(used.map_or(0, |used| used.switches()));
    }
    let added = of.switch_cost.map(|cost| cost.added_ns).filter(|ns| ns.is_finite());
    match any {
        false => (0, Some(0.0)),
        true => (switches, added.map(|ns| ns.max(0.0) * switches as f64)),
    }
}
