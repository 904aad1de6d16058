//! What a host pays to announce ops to the recorder, and what other threads pay meanwhile.
//!
//! As soon as PyTorch has an observer, it makes an object for each op, looks up whom to call, and calls
//! us before and after the op. No bracket can contain this. The recorder measures it in the program: it has
//! PyTorch announce some more ops, which do nothing, to an observer that does nothing
//! (`agent/recorder/thread/announced.rs`).
//!
//! ```text
//!  launching thread   ── op ──┬ region ┬─ announced ─ bracket ─ op ──┬ region ┬──
//!  its worker           waits │  task  │            waits            │  task  │
//! ```
//!
//! While the launching thread is in the recorder, OpenMP's threads wait for its next region. They do not
//! sleep at first, but use their processors. So a nanosecond of the launching thread costs as many more as
//! there are threads that wait in this way.

use std::collections::BTreeMap;

use profile::brackets::{Brackets, Histogram};
use profile::{Profile, Role};

use super::brackets::{LONGEST_NS, mean};
use super::in_place::InPlace;
use crate::estimate::Estimate;
use crate::threads::ThreadTime;

/// What announcing an op costs as a multiple of what is measured. The code of PyTorch's dispatcher that
/// calls an observer exists once for each signature of an op, and is not part of the announcement that is
/// measured. Nor is what the announcement displaces from the processor's caches. Measured in a training
/// loop, with steps with an observer that does nothing and steps without one in turn: 582 ns (± 238) on a
/// busy machine, where 540 were seen, and 202 (± 57), where 227 were seen.
const OF_MEASURED: Estimate = Estimate { value: 1.1, low: 0.8, high: 1.5 };

/// The least part of its waiting that a thread may have spent because of the recorder.
const LEAST_WAITING: f64 = 0.5;

/// What PyTorch took to announce all ops of a process, in ns. `None` if too few times are known, as in
/// recordings of earlier versions.
pub(super) fn announcing(
    profile: &Profile,
    process: usize,
    in_place: &InPlace,
) -> Option<Estimate> {
    let line = &profile.timeline;
    let of = profile.processes.get(process)?;
    // The last frame of a thread holds everything that the earlier ones hold.
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

/// Number of ops that were announced. In a run with a budget, some of them were only counted.
fn ops(profile: &Profile, process: usize, in_place: &InPlace) -> u64 {
    let recorded = || in_place.threads(process).map(|(_, kinds)| kinds.ops).sum();
    if profile.manifest.budget.is_none() {
        return recorded();
    }
    let all = profile.counted().iter().filter(|of| of.process == process);
    let is_op = |export: u32| {
        let op = profile.ops.of(process, export).and_then(|op| profile.ops.get(op));
        op.is_some_and(|op| op.role == Role::Op)
    };
    let counted = all.filter(|of| is_op(of.export)).map(|of| of.calls);
    counted.fold(0, u64::saturating_add).max(recorded())
}

/// What threads that wait for the next region pay for `ns`, by which the recorder has lengthened the
/// program's calls, `of_calls` of which were recorded. `None` if no thread works for others, or if the times of
/// those that do are not known.
pub(super) fn waiting(
    process: usize,
    in_place: &InPlace,
    threads: &[ThreadTime],
    ns: Estimate,
    of_calls: u64,
) -> Option<Estimate> {
    let (mut launching, mut their_calls, mut spinning) = (0u64, 0u64, None);
    for (thread, kinds) in in_place.threads(process) {
        if kinds.regions > 0 {
            launching += 1;
            their_calls += kinds.all;
        } else if kinds.tasks > 0 {
            let time = threads.iter().find(|t| t.process == process && t.thread == thread);
            if let Some(part) = time.and_then(spinning_part) {
                spinning = Some(spinning.unwrap_or(0.0) + part);
            }
        }
    }
    if launching == 0 {
        return None;
    }
    // How much longer each of the launching threads took, on average.
    let each = their_calls as f64 / of_calls.max(1) as f64 / launching as f64;
    let waited = ns.times(each * spinning?);
    Some(Estimate { low: waited.low * LEAST_WAITING, ..waited })
}

/// The part of a thread's time outside of tasks in which it was on a processor.
fn spinning_part(time: &ThreadTime) -> Option<f64> {
    let tasks = time.dispatch_ns + time.recorder_ns;
    let (waited, used) = (time.wall_ns - tasks, time.cpu_ns? - tasks);
    (time.dispatch_known && waited > 0.0).then(|| (used / waited).clamp(0.0, 1.0))
}
