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
//!
//! In a run with a budget, a page takes too long for this comparison, because few calls are
//! recorded. If the program has steps, the two processor times are those of a step
//! ([`profile::Steps::of_thread`]); otherwise, they are those of the whole program.

use std::collections::BTreeMap;

use profile::brackets::{Brackets, Histogram};
use profile::{Process, Profile, Role, Steps, Thread};

use super::brackets::{LONGEST_NS, mean};
use super::in_place::InPlace;
use super::kinds::Kinds;
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
    let recorded: u64 = in_place.threads(process).map(|(_, kinds)| kinds.announced).sum();
    let counted = counted(profile, process).into_values().map(|of| of.announced);
    counted.fold(0, u64::saturating_add).max(recorded)
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
    let of = profile.processes.get(process)?;
    let has_budget = profile.manifest.budget.is_some();
    let counted = counted(profile, process);
    let recorded: BTreeMap<usize, Kinds> = in_place.threads(process).collect();
    let (mut launching, mut their, mut all) = (0u64, Made::default(), Made::default());
    let (mut workers, mut waited, mut busy) = (0u64, None, Estimate::exact(0.0));
    let mut in_tasks = Estimate::exact(0.0);
    let mut moments = Vec::new();
    for (index, thread) in of.threads.iter().enumerate() {
        let kinds = recorded.get(&index).copied().unwrap_or_default();
        let counts = counted.get(&thread.uid).copied().unwrap_or_default();
        let made = Made {
            calls: counts.calls.max(kinds.all) as f64,
            announced: counts.announced.max(kinds.announced) as f64,
        };
        all.add(made);
        let time = threads.iter().find(|t| t.process == process && t.thread == index);
        let used = used_until_end(of, thread).filter(|_| has_budget);
        let used = used.or_else(|| time.and_then(|time| time.cpu_ns));
        let tasks = kinds.in_tasks().times(profile.timeline.ns_per_tick());
        if kinds.works_for_others() || counts.works_for_others() {
            workers += 1;
            if let Some(ns) = used.map(|used| waited_ns(used, time, tasks)) {
                waited = Some(sum(waited.into_iter().chain([ns])));
            }
        } else if kinds.regions > 0 || counts.regions > 0 {
            launching += 1;
            their.add(made);
            let used = used.unwrap_or_else(|| time.map_or(0.0, |time| time.wall_ns));
            busy = sum([busy, rest(used, tasks)]);
            // If tasks were only counted, nothing is known about their times.
            let part = match counts.tasks > 0 && tasks.high <= 0.0 {
                true => Estimate { value: 0.0, low: 0.0, high: 1.0 },
                false => tasks.times(1.0 / used.max(1.0)),
            };
            in_tasks = sum([in_tasks, part]);
            moments.extend(moments_of(profile, process, index, in_place));
        }
    }
    if launching == 0 || workers == 0 {
        return None;
    }
    let of_calls = their.calls / all.calls.max(1.0);
    let of_announced = match all.announced > 0.0 {
        true => their.announced / all.announced,
        false => of_calls,
    };
    let longer = sum([brackets.times(of_calls), announcing.times(of_announced)]);
    let most = workers as f64 / launching as f64;
    if let Some(steps) = of.steps.filter(|steps| steps.of_thread > 0) {
        let part = part_of_steps(&steps, in_tasks.times(1.0 / launching as f64), most);
        return Some(Estimate {
            value: longer.value * part.value,
            low: longer.low * part.low * LEAST_WAITING,
            high: longer.high * part.high,
        });
    }
    let waited = waited?;
    // In a run with a budget, the recorded regions are too few to say how long workers waited.
    let by_pages = !has_budget && !moments.is_empty();
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

/// Returns how many threads, on average, wait for a launching thread while it is outside of its
/// tasks, in a step of the program. `in_tasks` is the part of the launching thread's processor time
/// that it is in tasks, and `most` the number of its workers. Each worker is in tasks for as long
/// as the launching thread:
///
/// ```text
///   processor time of the process − that of the thread − most · in tasks
///   ────────────────────────────────────────────────────────────────────
///             that of the thread − in tasks
/// ```
fn part_of_steps(steps: &Steps, in_tasks: Estimate, most: f64) -> Estimate {
    let others = steps.of_thread as f64 / 1_000.0 - 1.0;
    let part = |in_tasks: f64| {
        let outside = (1.0 - in_tasks).max(0.0);
        let waits = (others - most * in_tasks).max(0.0);
        if outside > 0.0 { (waits / outside).min(most) } else { 0.0 }
    };
    Estimate { value: part(in_tasks.value), low: part(in_tasks.high), high: part(in_tasks.low) }
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

/// The calls of a thread that were counted, timed or not, in a run with a budget.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    announced: u64,
    regions: u64,
    tasks: u64,
}

impl Counted {
    /// Whether the thread works on regions of other threads: it has more tasks than regions. A
    /// thread that launches regions has one task in each of them. The two numbers can differ a
    /// little, for example if counting begins or ends inside of a region.
    fn works_for_others(&self) -> bool {
        self.tasks > self.regions.saturating_add(self.regions / 16)
    }
}

/// Returns the counted calls of each thread of a process, by `thread_uid`. Empty without a budget.
fn counted(profile: &Profile, process: usize) -> BTreeMap<u32, Counted> {
    let mut found = BTreeMap::<u32, Counted>::new();
    for of in profile.counted().iter().filter(|of| of.process == process) {
        let (sums, seen) = (found.entry(of.thread_uid).or_default(), of.seen());
        sums.calls = sums.calls.saturating_add(seen);
        let op = profile.ops.of(process, of.export).and_then(|op| profile.ops.get(op));
        let sum = match op.map(|op| op.role) {
            Some(Role::Region) => &mut sums.regions,
            Some(Role::Task) => &mut sums.tasks,
            Some(Role::Op) if op.is_some_and(|op| profile.ops.host_of(op).program_between_ops) => {
                &mut sums.announced
            }
            _ => continue,
        };
        *sum = sum.saturating_add(seen);
    }
    found
}

/// Returns the processor time of a thread from its first call to the end of its process, in ns.
/// `None` if the thread had ended before, or if the process did not end in an orderly way.
fn used_until_end(process: &Process, thread: &Thread) -> Option<f64> {
    // The kernel may give the id of a thread that has ended to a later one.
    let latest = process.threads.iter().rfind(|of| of.tid == thread.tid)?;
    if latest.uid != thread.uid {
        return None;
    }
    let first = thread.headers().next()?.start.usage?.cpu_ns;
    let end = process.thread_times.as_ref()?.iter().find(|of| of.tid == thread.tid)?.cpu_ns;
    Some(end.checked_sub(first)? as f64)
}

fn rest(used: f64, tasks: Estimate) -> Estimate {
    let less = |tasks: f64| (used - tasks).max(0.0);
    Estimate { value: less(tasks.value), low: less(tasks.high), high: less(tasks.low) }
}

/// Whether some thread runs tasks of other threads' regions, and therefore waits for these threads.
/// If two or more threads have counted tasks, some of them are assumed to work for another thread.
pub(super) fn waits(profile: &Profile, process: usize, in_place: &InPlace) -> bool {
    let counted = counted(profile, process);
    counted.values().filter(|of| of.tasks > 0).count() > 1
        || in_place.threads(process).any(|(_, kinds)| kinds.works_for_others())
}

/// Returns the processor time, in ns, that a thread used outside of its calls and outside of the
/// recorder. `used` is the thread's whole processor time. `tasks` is the time in tasks; in a run
/// with a budget, it is estimated from the timed tasks. If the time in calls is not known, returns
/// the processor time outside of tasks, with an interval from 0 to the whole processor time.
fn waited_ns(used: f64, time: Option<&ThreadTime>, tasks: Estimate) -> Estimate {
    if let Some(time) = time.filter(|time| time.dispatch_known) {
        let known = time.dispatch_ns + time.recorder_ns;
        let (low, high) = (tasks.low - tasks.value, tasks.high - tasks.value);
        return rest(used, Estimate { value: known, low: known + low, high: known + high });
    }
    Estimate { low: 0.0, high: used, ..rest(used, tasks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If all threads are on processors during the whole step, it does not matter for how long they
    /// are in tasks.
    #[test]
    fn threads_that_never_sleep_wait_whenever_the_launching_one_is_outside_of_tasks() {
        let steps = |of_thread| Steps { of_thread, ..Steps::default() };
        let in_tasks = Estimate { value: 0.6, low: 0.2, high: 0.75 };
        let part = part_of_steps(&steps(2_000), in_tasks, 1.0);
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
        assert!([part.value, part.low, part.high].iter().all(|part| near(*part, 1.0)), "{part:?}");
        // Of 100 ms, a worker is on a processor for 90 ms, and in tasks for 60, 75 or 20 ms.
        let part = part_of_steps(&steps(1_900), in_tasks, 1.0);
        assert!(
            near(part.value, 0.75) && near(part.low, 0.6) && near(part.high, 0.875),
            "{part:?}"
        );
        // Of three workers, each waits for 20 of the 40 ms.
        assert!(near(part_of_steps(&steps(3_400), in_tasks, 3.0).value, 1.5));
        // Other threads of the program used more time than three workers can use.
        assert!(near(part_of_steps(&steps(9_000), in_tasks, 3.0).value, 3.0));
        for of_thread in [0, 1_000, 1_500] {
            assert_eq!(part_of_steps(&steps(of_thread), in_tasks, 1.0).value, 0.0);
        }
        assert_eq!(part_of_steps(&steps(2_000), Estimate::exact(1.0), 1.0).value, 0.0);
    }
}
