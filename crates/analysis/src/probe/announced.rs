//! Estimates the cost of announcing ops: the time that the host needs to call the recorder before
//! and after each op, and the time of other threads that wait meanwhile.
//!
//! As soon as PyTorch has an observer, it does more work for each op. It creates an object, looks
//! up the observers, and calls the recorder's observer before and after the op. No bracket (the
//! measured work of the recorder around a call) includes this time. The recorder measures it in the
//! program: it makes PyTorch announce additional, empty ops to an observer that does nothing
//! (`agent/recorder/thread/announced.rs`).
//!
//! ```text
//!  launching thread   ── op ──┬ region ┬─ announced ─ bracket ─ op ──┬ region ┬──
//!  its worker           waits │  task  │            waits            │  task  │
//! ```
//!
//! While the launching thread is in the recorder, OpenMP's threads wait for its next region. At
//! first they do not sleep, but keep using their processors. So each nanosecond of the launching
//! thread costs another one for each thread that waits in this way. The average number of such
//! threads is computed from processor times. For each page of the launching thread, two processor
//! times are compared: that of the workers outside of their tasks, and that of the launching thread
//! outside of its own tasks ([`part_of_calls`]). Wall time cannot be used for this. When the
//! launching thread sleeps, for example until its data is there, it is not in the recorder, and its
//! workers soon sleep as well.

use std::collections::{BTreeMap, BTreeSet};

use profile::brackets::{Brackets, Histogram};
use profile::{CountedCalls, Profile, Role};

use super::brackets::{LONGEST_NS, mean};
use super::in_place::InPlace;
use super::sum;
use crate::estimate::Estimate;
use crate::threads::ThreadTime;

/// The cost of announcing an op, as a multiple of the measured time. The measured time misses two
/// causes of cost. PyTorch's dispatcher has separate code for calling an observer for each
/// signature of an op, and announcing displaces data from the processor's caches. The factor was
/// measured in a training loop that alternated between steps with an observer that does nothing and
/// steps without one. On a busy machine, an op cost 582 ns (± 238), and the measured time was 540
/// ns. On a machine that was not busy, an op cost 202 ns (± 57), and the measured time was 227 ns.
const OF_MEASURED: Estimate = Estimate { value: 1.1, low: 0.8, high: 1.5 };

/// The lower end of the interval of the time that threads waited, as a part of the value that is
/// computed for this time.
const LEAST_WAITING: f64 = 0.5;

/// Returns the time that PyTorch needed to announce all ops of a process, in ns. `None` if too few
/// times are known, as in recordings of earlier versions.
pub(super) fn announcing(
    profile: &Profile,
    process: usize,
    in_place: &InPlace,
) -> Option<Estimate> {
    let line = &profile.timeline;
    let of = profile.processes.get(process)?;
    // The last block of times that a thread wrote contains everything that its earlier blocks
    // contain.
    let last: BTreeMap<u32, &Brackets> = of.announced.iter().map(|b| (b.thread_uid, b)).collect();
    let longest = LONGEST_NS / line.ns_per_tick();
    let half = |half: fn(&Brackets) -> &Histogram| mean(last.values().map(|b| half(b)), longest);
    let each = half(|b| &b.before)?.plus(half(|b| &b.after)?);
    let all = each.times(line.ns_per_tick() * ops(profile, process, in_place) as f64);
    Some(Estimate {
        value: all.value * OF_MEASURED.value,
        low: all.low.max(0.0) * OF_MEASURED.low,
        high: all.high * OF_MEASURED.high,
    })
}

/// Returns the number of ops that were announced by a host with `program_between_ops`, such as
/// PyTorch, whose announcements the recorder measures. In a run with a budget, this includes ops
/// that were only counted.
fn ops(profile: &Profile, process: usize, in_place: &InPlace) -> u64 {
    let recorded = || in_place.threads(process).map(|(_, kinds)| kinds.announced).sum();
    if profile.manifest.budget.is_none() {
        return recorded();
    }
    let all = profile.counted().iter().filter(|of| of.process == process);
    let is_op = |export: u32| {
        let op = profile.ops.of(process, export).and_then(|op| profile.ops.get(op));
        op.is_some_and(|op| op.role == Role::Op && profile.ops.host_of(op).program_between_ops)
    };
    let counted = all.filter(|of| is_op(of.export)).map(CountedCalls::seen);
    counted.fold(0, u64::saturating_add).max(recorded())
}

/// Returns the processor time that waiting threads used because the recorder lengthened the
/// program's calls: `brackets` ns in all calls together, and `announcing` ns in ops. `None` if no
/// thread runs tasks of other threads' regions, or if the processor times of such threads are not
/// known, for example because no call was timed.
///
/// In a run with a budget, the time in tasks is estimated from the tasks that were timed. The
/// uncertainty of this estimate is included in the result.
pub(super) fn waiting(
    profile: &Profile,
    process: usize,
    in_place: &InPlace,
    threads: &[ThreadTime],
    [brackets, announcing]: [Estimate; 2],
) -> Option<Estimate> {
    let (mut launching, mut their, mut all) = (0u64, Made::default(), Made::default());
    let (mut workers, mut waited, mut busy) = (0u64, None, Estimate::exact(0.0));
    let mut moments = Vec::new();
    for (thread, kinds) in in_place.threads(process) {
        let calls = calls_of(profile, process, thread).max(kinds.all);
        let made = Made { calls: calls as f64, announced: kinds.announced as f64 };
        all.add(made);
        let time = threads.iter().find(|t| t.process == process && t.thread == thread);
        let tasks = kinds.in_tasks().times(profile.timeline.ns_per_tick());
        if kinds.works_for_others() {
            workers += 1;
            if let Some(ns) = time.and_then(|time| waited_ns(time, tasks)) {
                waited = Some(sum(waited.into_iter().chain([ns])));
            }
        } else if kinds.regions > 0 {
            launching += 1;
            their.add(made);
            let used = time.map_or(0.0, |time| time.cpu_ns.unwrap_or(time.wall_ns));
            busy = sum([busy, rest(used, tasks)]);
            moments.extend(moments_of(profile, process, thread, in_place));
        }
    }
    if launching == 0 {
        return None;
    }
    let waited = waited?;
    let of_calls = their.calls / all.calls.max(1.0);
    let of_announced = match all.announced > 0.0 {
        true => their.announced / all.announced,
        false => of_calls,
    };
    let longer = sum([brackets.times(of_calls), announcing.times(of_announced)]);
    let most = workers as f64 / launching as f64;
    // In a run with a budget, the recorded regions are too few to say how long workers waited.
    let by_pages = profile.manifest.budget.is_none() && !moments.is_empty();
    let part = |waited: f64, busy: f64| match waited > 0.0 {
        true if by_pages => most * part_of_calls(&moments, waited / most),
        true => (waited / busy).min(most),
        false => 0.0,
    };
    Some(Estimate {
        value: longer.value * part(waited.value, busy.value),
        low: longer.low * part(waited.low, busy.high) * LEAST_WAITING,
        high: longer.high * part(waited.high, busy.low),
    })
}

/// Number of calls, and of ops that were announced.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    calls: f64,
    announced: f64,
}

impl Made {
    fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.announced += more.announced;
    }
}

/// What a launching thread did in the time of one of its pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment {
    /// Number of recorded calls.
    calls: f64,
    /// Number of times that workers began to wait: once after each region, and at least once.
    waits: f64,
    /// The thread's processor time outside of tasks, in ns.
    busy: f64,
}

impl Moment {
    /// Returns the part of `busy` in which a worker waited, if workers wait for at most `longest`
    /// ns after each region.
    fn waited(&self, longest: f64) -> f64 {
        if self.busy > 0.0 { (longest * self.waits / self.busy).min(1.0) } else { 0.0 }
    }
}

/// Returns the moments of a launching thread. Pages are left out if their processor time is not
/// known, such as the last page of a program that was killed.
fn moments_of(profile: &Profile, process: usize, thread: usize, in_place: &InPlace) -> Vec<Moment> {
    let of = profile.processes.get(process).and_then(|of| of.threads.get(thread));
    let headers: Vec<_> = of.into_iter().flat_map(|of| of.headers()).collect();
    // The part of a task's time that exceeds the time of the page on which the task ended. It
    // belongs to an earlier page, on which the task began.
    let mut earlier = 0.0;
    let moments = in_place.on_pages(process, thread).iter().filter_map(|on| {
        let header = headers.get(on.page)?;
        let used = header.usage_end?.since(&header.start.usage?)?.cpu_ns as f64;
        let busy = used - on.task_ticks * profile.timeline.ns_per_tick() - earlier;
        earlier = (-busy).max(0.0);
        let waits = on.regions.max(1) as f64;
        Some(Moment { calls: on.calls as f64, waits, busy: busy.max(0.0) })
    });
    moments.collect()
}

/// Returns the part of the launching threads' calls during which a worker waited. `waited` is the
/// time that a worker waited in all moments together.
///
/// A worker waits for a limited time after a region, and then sleeps. So it waits in moments with
/// many regions, and sleeps while the launching thread does something else for a long time, such as
/// importing a module. The time of such an import must not count: it has few calls, and the
/// recorder lengthens calls. So the longest time S that a worker waits after a region is the
/// solution of
///
/// ```text
///   Σ over moments: min(busy, S · waits) = waited
/// ```
fn part_of_calls(moments: &[Moment], waited: f64) -> f64 {
    let mut sorted = moments.to_vec();
    sorted.sort_by(|a, b| (a.busy / a.waits).total_cmp(&(b.busy / b.waits)));
    let mut waits: f64 = sorted.iter().map(|moment| moment.waits).sum();
    let (mut left, mut longest) = (waited, f64::INFINITY);
    for moment in &sorted {
        if left <= moment.busy / moment.waits * waits {
            longest = left / waits;
            break;
        }
        left -= moment.busy;
        waits -= moment.waits;
    }
    let during: f64 = sorted.iter().map(|moment| moment.calls * moment.waited(longest)).sum();
    let all: f64 = sorted.iter().map(|moment| moment.calls).sum();
    if all > 0.0 { during / all } else { 0.0 }
}

/// Returns the number of calls of a thread that were counted, timed or not. 0 without a budget.
fn calls_of(profile: &Profile, process: usize, thread: usize) -> u64 {
    let threads = profile.processes.get(process).map(|of| &of.threads);
    let Some(thread) = threads.and_then(|threads| threads.get(thread)) else { return 0 };
    let all = profile.counted().iter();
    let own = all.filter(|of| of.process == process && of.thread_uid == thread.uid);
    own.map(CountedCalls::seen).fold(0, u64::saturating_add)
}

fn rest(used: f64, tasks: Estimate) -> Estimate {
    let less = |tasks: f64| (used - tasks).max(0.0);
    Estimate { value: less(tasks.value), low: less(tasks.high), high: less(tasks.low) }
}

/// Whether some thread runs tasks of other threads' regions, and therefore waits for these threads.
/// If two or more threads have counted tasks, some of them are assumed to work for another thread.
pub(super) fn waits(profile: &Profile, process: usize, in_place: &InPlace) -> bool {
    let role = |export: u32| {
        let op = profile.ops.of(process, export).and_then(|op| profile.ops.get(op));
        op.map(|op| op.role)
    };
    let counted = profile.counted().iter().filter(|of| of.process == process && of.calls > 0);
    let tasks = counted.filter(|of| role(of.export) == Some(Role::Task));
    let threads: BTreeSet<u32> = tasks.map(|of| of.thread_uid).collect();
    threads.len() > 1 || in_place.threads(process).any(|(_, kinds)| kinds.works_for_others())
}

/// Returns the processor time, in ns, that a thread used outside of its calls and outside of the
/// recorder. `tasks` is the time in tasks; in a run with a budget, it is estimated from the timed
/// tasks. If the time in calls is not known, returns the processor time outside of tasks, with an
/// interval from 0 to the whole processor time.
fn waited_ns(time: &ThreadTime, tasks: Estimate) -> Option<Estimate> {
    let used = time.cpu_ns?;
    if time.dispatch_known {
        let known = time.dispatch_ns + time.recorder_ns;
        let (low, high) = (tasks.low - tasks.value, tasks.high - tasks.value);
        return Some(rest(used, Estimate { value: known, low: known + low, high: known + high }));
    }
    Some(Estimate { low: 0.0, high: used, ..rest(used, tasks) })
}
