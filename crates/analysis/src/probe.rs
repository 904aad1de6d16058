//! Estimates the cost of the probes (what the recorder does around calls) as a range.
//!
//! ```text
//!  cost of a process  = calls × bracket in place     calibrated, and timed around some calls
//!                     + readings × effect after one  calibrated: displaced caches
//!                     + only counted calls × count   runs with a budget
//!                     + ops × way of the host        its own path to an instrument or observer
//!                     + waiting                      threads that spin while another is in the recorder
//!                     + hits of loops × hit           calibrated, with readings of counters
//!                     + switches × switch            threads with counters, measured by `run`
//!                     + flushes                      measured in the program
//!                     + start                        constructor, loading, attaching: measured;
//!                                                    mapping: estimated
//! ```
//!
//! All of this is processor time of the program's threads. So it is compared with processor time
//! and with the time in dispatches. It is not compared with wall time, because wall time includes
//! time in which idle workers only wait.
//!
//! | module | what it does |
//! |---|---|
//! | `brackets` | the cost of one bracket |
//! | `in_place` | facts about the cost of probes that can be computed from the recorded calls |
//! | `kinds` | which threads launch regions, which work for other threads, and the time in tasks |
//! | `steps` | compares steps of a program with announced ops and steps without |
//! | `announced` | the time in which PyTorch calls an observer, and the time of threads that wait meanwhile |
//!
//! The cost is computed with a model. It cannot be measured by comparing periods with and without
//! probes. Without a budget, every call must be recorded, so calls would be lost in periods without
//! probes. A run with a budget can have such periods: in such a run, PyTorch does not announce its
//! ops in some steps (`steps`).

use std::collections::BTreeMap;

use profile::{PageHeader, Profile, Thread, Timeline};

use crate::empty::{EmptyCall, empty_call};
use crate::estimate::Estimate;
use crate::threads::ThreadTime;

mod announced;
mod brackets;
mod hits;
mod in_place;
mod kinds;
mod price;
mod steps;

use brackets::{bracket, only_timed};
pub use hits::Hits;
pub(crate) use in_place::{InPlace, in_place};
pub use price::Price;

/// Means of fewer values than this are not used.
const FEWEST: u64 = 30;

/// Time in ns that the dynamic linker may need to map the library and to relocate it. It cannot be
/// measured inside of the process; in separate measurements, it was 0.4 to 1.1 ms.
const MAPPING_NS: Estimate = Estimate { value: 0.7e6, low: 0.3e6, high: 1.5e6 };

/// The cost of a call that is only counted, in ns: one decision whether to time the call, and one
/// addition to a table. This time is too short to be measured in the program.
const ONLY_COUNTED_NS: Estimate = Estimate { value: 5.0, low: 2.0, high: 12.0 };

/// The estimated cost of recording one process, in ns of processor time, added up over its threads.
/// With the budget 0, all calls were only counted. A recorded call is left out if its set of
/// counters was not calibrated. The cost of another set cannot be used instead, because the cost
/// with and without counters differs by a factor of thirty.
///
/// The interval of each part contains the true cost, as far as the causes of its error are known.
/// These causes are the same for all calls, so the ends of the parts' intervals are added.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// Process index.
    pub process: usize,
    /// Number of recorded calls whose set of counters was calibrated. The estimate covers these
    /// calls.
    pub calls: u64,
    /// Number of all recorded calls.
    pub of_calls: u64,
    /// The mean time that the probe (the recorder's work before and after a call) takes per call.
    pub per_call_ns: f64,
    /// The mean time of the probe per call according to the calibration alone, without the
    /// additional time of readings in the program.
    pub calibrated_per_call_ns: f64,
    /// The cost of the brackets (the recorder's work before and after a call) of the calls in
    /// `calls`.
    pub probes: Estimate,
    /// The additional time that the program's own code takes after counters were read. 0 without
    /// counters.
    pub after: Estimate,
    /// Number of calls that were only counted, in a run with a budget. [`Self::calls`] does not
    /// include them.
    pub only_counted: u64,
    /// The cost of the calls in `only_counted`.
    pub counting: Estimate,
    /// Number of recorded calls for which no counter was read, although their thread had counters,
    /// for example book-keeping ops of a virtual machine.
    pub uncounted: u64,
    /// The cost of the probe of one call in `uncounted`. `None` if it is not known.
    pub uncounted_call_ns: Option<f64>,
    /// The time that a host (such as PyTorch or TVM's virtual machine) itself needs to announce
    /// ops: to call the recorder before and after each op. For a virtual machine of TVM, the upper
    /// end of the interval includes the time of the machine's step between two ops, which cannot be
    /// measured separately. `None` if there is no such host, or if too few times are known.
    pub way: Option<Estimate>,
    /// Whether `way` comes from comparing steps of the program with and without announced ops. If
    /// so, it includes the time of threads that waited meanwhile.
    pub way_by_steps: bool,
    /// The processor time that threads of parallel regions used while they waited for a thread that
    /// was in the recorder. `None` if there are no such threads, if `way` includes this time, or if
    /// the threads' processor time is not known. The interval begins at 0 if some tasks were only
    /// counted and others have calls inside.
    pub waiting: Option<Estimate>,
    /// Whether threads of parallel regions wait for a thread in the recorder. False if `way`
    /// includes their time.
    pub waits: bool,
    /// The hits of instrumented loops and their cost.
    pub hits: Hits,
    /// The time that counters add to the context switches of threads that have counters. `None` if
    /// there are counters and this time was not measured.
    pub switched: Option<Estimate>,
    /// Number of context switches of threads that have counters.
    pub switches: u64,
    /// The cost of flushing pages (blocks of recorded calls). Includes the last page of each thread
    /// if the process ended in an orderly way.
    pub flush_ns: f64,
    /// The cost of attaching threads: opening counters, mapping pages, and calibrating.
    pub attach_ns: f64,
    /// The cost of the library before the first call. `None` in profiles of earlier versions.
    pub start: Option<Estimate>,
    /// Processor time of the process's threads, each from its first call to its last known moment,
    /// without flushing pages and attaching threads. `None` if it is not known for a thread with
    /// calls.
    pub cpu_ns: Option<f64>,
    /// Processor time of the whole process, including the cost of recording. `None` if the process
    /// did not end in an orderly way, if a session recorded a part of it, and in profiles of
    /// earlier versions.
    pub process_ns: Option<f64>,
    /// Time in dispatches, added up over the process's threads.
    pub dispatch_ns: Option<f64>,
    /// The values of an empty call (of a function that does nothing), for the calibrated set of
    /// counters that most calls had.
    pub empty_call: EmptyCall,
}

impl ProbeCost {
    /// Returns the mean cost of the probe of a call whose counters are read. Without such calls,
    /// returns the mean over all calls.
    pub fn counted_call_ns(&self) -> f64 {
        let counted = self.calls - self.uncounted;
        match counted {
            0 => self.per_call_ns,
            _ => {
                let uncounted = self.uncounted as f64 * self.uncounted_call_ns.unwrap_or(0.0);
                (self.probes.value - uncounted) / counted as f64
            }
        }
    }

    /// Returns the cost without attaching threads and starting, which do not depend on the number
    /// of calls.
    pub fn of_calls(&self) -> Estimate {
        sum([self.among_calls(), Estimate::exact(self.flush_ns)])
    }

    /// Returns the part of the cost that is in the processor time of the threads between their
    /// first call and their last known moment.
    fn among_calls(&self) -> Estimate {
        let parts =
            [Some(self.probes), Some(self.counting), Some(self.after), self.way, self.switched];
        sum(parts.into_iter().flatten().chain(self.waiting).chain([self.hits.cost]))
    }

    /// Returns the sum of all known costs.
    pub fn total(&self) -> Estimate {
        let rest = Estimate::exact(self.flush_ns + self.attach_ns);
        sum([self.among_calls(), rest].into_iter().chain(self.start))
    }

    /// Limits the cost to the processor time that the process used. If the estimate exceeds this
    /// time, the machine must have been slower during the calibration than during the calls. In
    /// this case, all parts except flushing, attaching and starting are reduced by the same factor,
    /// so that the sum fits if possible.
    fn within_what_was_used(mut self) -> Self {
        let (total, among) = (self.total().value, self.among_calls().value);
        let Some(all) = self.process_ns.filter(|all| total > *all && among > 0.0) else {
            return self;
        };
        let part = ((all - (total - among)) / among).clamp(0.0, 1.0);
        let optional = [&mut self.way, &mut self.waiting, &mut self.switched];
        let known = optional.into_iter().filter_map(Option::as_mut);
        for of in known.chain([
            &mut self.probes,
            &mut self.counting,
            &mut self.after,
            &mut self.hits.cost,
        ]) {
            *of = Estimate { low: of.low.max(0.0), ..*of }.times(part);
        }
        self.per_call_ns *= part;
        self.uncounted_call_ns = self.uncounted_call_ns.map(|ns| ns * part);
        self
    }

    /// Returns the processor time of the process or, if that is not known, of its threads since
    /// their first calls. It includes the cost of recording.
    pub fn used_ns(&self) -> Option<f64> {
        self.process_ns.or(self.cpu_ns)
    }

    /// Returns the processor time of the program without the cost of recording. This is the time of
    /// the whole process or, if that is not known, of its threads since their first calls. `None`
    /// if neither time is known, or if the estimated cost is nearly all of it.
    pub fn program_ns(&self) -> Option<f64> {
        match self.process_ns {
            Some(ns) => Some(ns - self.total().value).filter(|left| *left > ns / 1000.0),
            None => self.alone_ns(),
        }
    }

    /// Returns the processor time that the threads would have used without recording. `None` if it
    /// is not known, or if the estimated cost exceeds it.
    pub fn alone_ns(&self) -> Option<f64> {
        let ours = self.among_calls().value;
        self.cpu_ns.map(|cpu| cpu - ours).filter(|alone| *alone > 0.0)
    }
}

/// Returns the sum of values whose errors have the same causes, so the ends of the intervals are
/// added.
pub fn sum(all: impl IntoIterator<Item = Estimate>) -> Estimate {
    all.into_iter().fold(Estimate::exact(0.0), |sum, one| Estimate {
        value: sum.value + one.value,
        low: sum.low + one.low,
        high: sum.high + one.high,
    })
}

/// Returns the cost in every process that recorded calls with a calibrated set of counters, that
/// only counted its calls, or that has hits of loops. `threads` is empty if their times are not
/// known.
pub(crate) fn costs(
    profile: &Profile,
    in_place: &InPlace,
    threads: &[ThreadTime],
) -> Vec<ProbeCost> {
    let processes = 0..profile.processes.len();
    // If the loops cannot be read, the code that shows loops reports the error.
    let loops = profile.loops().unwrap_or_default();
    let hits = |process| hits::hits(&loops, process);
    processes
        .filter_map(|process| cost(profile, process, in_place, threads, hits(process)))
        .collect()
}

fn cost(
    profile: &Profile,
    process: usize,
    in_place: &InPlace,
    threads: &[ThreadTime],
    hits: Hits,
) -> Option<ProbeCost> {
    let line = &profile.timeline;
    let of = &profile.processes[process];
    let (mut of_calls, mut attach) = (0u64, 0u64);
    let mut flush_ns = of.leaving.map_or(0.0, |l| l.cpu_ns as f64);
    let mut by_set = BTreeMap::<u32, u64>::new();
    for thread in &of.threads {
        for header in thread.headers() {
            of_calls += u64::from(header.calls);
            attach = attach.saturating_add(header.start.attach_ns);
            *by_set.entry(header.start.counters).or_default() += u64::from(header.calls);
        }
        flush_ns += flushing_ns(thread, line);
    }
    // Calls for which no counter was read cost less, so they have a bracket of their own.
    let timing = bracket(profile, process, 0, in_place).or_else(|| only_timed(profile, process));
    let (mut calls, mut uncounted, mut readings) = (0, 0, 0);
    let (mut ticks, mut calibrated) = (Estimate::exact(0.0), 0.0);
    for (mask, n) in &by_set {
        let Some(one) = bracket(profile, process, *mask, in_place) else { continue };
        let unread = in_place.uncounted(process, *mask).min(*n);
        let timed = timing.as_ref().filter(|_| *mask != 0).map_or(0, |_| unread);
        calls += n;
        uncounted += timed;
        if *mask != 0 {
            readings += 2 * (n - unread);
        }
        for (bracket, n) in [(Some(&one), n - timed), (timing.as_ref(), timed)] {
            let Some(bracket) = bracket else { continue };
            ticks = sum([ticks, bracket.ticks.times(n as f64)]);
            calibrated += bracket.calibrated * n as f64;
        }
    }
    let only_counted: u64 = profile
        .counted()
        .iter()
        .filter(|of| of.process == process)
        .map(|of| of.seen().saturating_sub(of.timed))
        .fold(0, u64::saturating_add);
    // With the budget 0, there are only counted calls, which need no calibration. Hits of loops
    // have a calibration of their own.
    if calls == 0 && hits.is_empty() && (of_calls > 0 || only_counted == 0) {
        return None;
    }
    let calibrated_calls =
        by_set.iter().filter(|(mask, _)| empty_call(profile, process, **mask).is_some());
    let most = calibrated_calls.max_by_key(|(_, calls)| **calls);
    let empty_call = most.map_or_else(EmptyCall::default, |(mask, _)| {
        let empty_call = empty_call(profile, process, *mask).unwrap_or_default();
        let place = in_place.place(profile, process, *mask, &empty_call);
        empty_call.placed(profile, place)
    });
    let probes = ticks.times(line.ns_per_tick());
    // Most calls that are only counted are counted by a stub (a short piece of code in front of the
    // function). For the others, the recorder measured the cost itself.
    let told = of.spent.iter().map(|spent| spent.told_calls).fold(0, u64::saturating_add);
    let told_ns: f64 = of.spent.iter().map(|spent| spent.told_ns as f64).sum();
    let told_ns = Estimate { value: told_ns, low: 0.5 * told_ns, high: 1.5 * told_ns };
    let by_stubs = ONLY_COUNTED_NS.times(only_counted.saturating_sub(told) as f64);
    let after = of.cost.map_or(0.0, |b| line.duration_ns(b.after_reading_ticks));
    let after = after * readings as f64;
    let mine = || threads.iter().filter(|thread| thread.process == process);
    let (switches, switched) = switches(profile, process);
    let each = |sum: f64| sum / calls.max(1) as f64;
    let outside = each(ticks.value) - empty_call.ticks as f64;
    let way = way(profile, process, in_place, outside);
    let counting = sum([by_stubs, told_ns]);
    let by_steps = steps::way(of.steps.as_ref(), sum([probes, counting]), way);
    let (way, way_by_steps) = (by_steps.or(way), by_steps.is_some());
    let lengthened = [sum([probes, counting]), way.unwrap_or(Estimate::exact(0.0))];
    let cpu: Option<Vec<f64>> = mine().map(|thread| thread.cpu_ns).collect();
    let cost = ProbeCost {
        process,
        calls,
        of_calls,
        per_call_ns: each(probes.value),
        calibrated_per_call_ns: each(calibrated * line.ns_per_tick()),
        probes,
        after: Estimate { value: after, low: 0.0, high: 2.0 * after },
        only_counted,
        counting,
        uncounted,
        uncounted_call_ns: timing.map(|t| t.ticks.value * line.ns_per_tick()),
        way,
        way_by_steps,
        waiting: Some(lengthened)
            .filter(|_| !way_by_steps)
            .and_then(|longer| announced::waiting(profile, process, in_place, threads, longer)),
        waits: !way_by_steps && announced::waits(profile, process, in_place),
        hits,
        switched,
        switches,
        flush_ns,
        attach_ns: attach as f64,
        start: of.cost.map(|b| {
            let known = (b.constructor_ns as f64) + b.loading_ns as f64;
            sum([Estimate::exact(known), MAPPING_NS])
        }),
        cpu_ns: cpu.filter(|cpu| !cpu.is_empty()).map(|cpu| cpu.iter().sum()),
        process_ns: of.cost.map(|c| c.process_cpu_ns as f64).filter(|ns| *ns > 0.0),
        dispatch_ns: mine()
            .next()
            .map(|_| mine().map(|thread| thread.dispatch_ns + thread.recorder_ns).sum()),
        empty_call,
    };
    Some(cost.within_what_was_used())
}

/// Returns the time that a host needs to announce ops. In a virtual machine, no code of the program
/// runs between two ops. The machine only calls the instrument (the recorder's callback) twice, and
/// steps to the next op. `outside` is the part of a bracket that is in the time between two ops, in
/// ticks.
fn way(profile: &Profile, process: usize, in_place: &InPlace, outside: f64) -> Option<Estimate> {
    let mut hosts = profile.processes.get(process)?.seen_hosts();
    if hosts.any(|host| host.program_between_ops) {
        return announced::announcing(profile, process, in_place);
    }
    let (gap, ops) = in_place.gap(process)?;
    let ns = (gap - outside).max(0.0) * profile.timeline.ns_per_tick() * ops as f64;
    Some(Estimate { value: ns * OF_GAP, low: 0.5 * ns, high: ns })
}

/// The part of the time between two ops (without brackets) that the virtual machine needs to call
/// the instrument. It was measured with TVM 0.27 and tiny ops.
const OF_GAP: f64 = 0.8;

/// Returns the processor time that a thread used to flush pages, from the end of one page to the
/// start of the next. If it is not known, returns the wall time of flushing, which includes
/// waiting.
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

/// Returns the number of context switches of threads that had the operating system's counters open,
/// and the time that these counters added to the switches.
fn switches(profile: &Profile, process: usize) -> (u64, Option<Estimate>) {
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
    let added = of.switch_cost.and_then(|cost| {
        let [low, high] = cost.added_range_ns;
        let all = [low, cost.added_ns, high];
        all.iter().all(|ns| ns.is_finite()).then(|| all.map(|ns| ns.max(0.0) * switches as f64))
    });
    match any {
        false => (0, Some(Estimate::exact(0.0))),
        true => {
            // With a budget, counters are open around the calls that were chosen for them. It is
            // not known how many of the switches happened during these calls. These switches are
            // few, so the value is 0.
            let is_whole = profile.manifest.budget.is_none();
            let range = |[low, value, high]: [f64; 3]| Estimate {
                value: if is_whole { value } else { 0.0 },
                low: if is_whole { low.min(value) } else { 0.0 },
                high: high.max(value),
            };
            (switches, added.map(range))
        }
    }
}
