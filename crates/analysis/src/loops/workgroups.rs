//! In mode log, finds the workgroup call of an IREE dispatch for each event (start or end of a hit
//! of a loop or function). It is the recorded call that was running on the event's thread.

use std::collections::HashMap;

use profile::columns::Columns;
use profile::loops::{LoopEvent, LoopModule};
use profile::{Clock, OpId, Profile};

/// A workgroup call of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workgroup {
    pub op: OpId,
    /// The call's workgroup id in x, y, z; `None` if the recorder did not see it.
    pub id: Option<[u32; 3]>,
}

#[derive(Clone, Copy)]
struct Call {
    start: u64,
    end: u64,
    of: Workgroup,
}

/// Process and thread.
type Key = (usize, u32);

/// Returns the workgroup call of each event. `None` if the event's module is not in an IREE
/// library, if no recorded call was running at the event's time, or if calls and loops were timed
/// with different clocks.
pub fn workgroups(
    profile: &Profile,
    modules: &[LoopModule],
    events: &[LoopEvent],
) -> Vec<Option<Workgroup>> {
    let key = |event: &LoopEvent| {
        let module = modules.get(event.module).filter(|module| module.export.is_some())?;
        Some((module.process, event.tid))
    };
    // The times of the first and of the last event of each thread.
    let mut spans: HashMap<Key, (u64, u64)> = HashMap::new();
    for event in events {
        let Some(key) = key(event) else { continue };
        let span = spans.entry(key).or_insert((u64::MAX, 0));
        *span = (span.0.min(event.ticks), span.1.max(event.ticks));
    }
    if spans.is_empty() || !matches!(profile.manifest.clock, Clock::Tsc) {
        return vec![None; events.len()];
    }
    let calls = calls(profile, &spans);
    let of = |event: &LoopEvent| {
        let calls = calls.get(&key(event)?)?;
        // Of the calls that contain the event's time, the innermost one began last.
        let after = calls.partition_point(|call| call.start <= event.ticks);
        let mut before = calls[..after].iter().rev().take(MOST_NESTED);
        before.find(|call| event.ticks <= call.end).map(|call| call.of)
    };
    events.iter().map(of).collect()
}

/// At most this many calls that began before an event are compared with it.
const MOST_NESTED: usize = 16;

/// Returns, for each thread in `spans`, the thread's calls that overlap the thread's span of time,
/// sorted by start.
fn calls(profile: &Profile, spans: &HashMap<Key, (u64, u64)>) -> HashMap<Key, Vec<Call>> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let add = |all: &mut HashMap<Key, Vec<Call>>, columns: &Columns| {
        let process = profile.processes.get(columns.process);
        let thread = process.and_then(|process| process.threads.get(columns.thread));
        let Some(thread) = thread else { return };
        let key = (columns.process, thread.tid);
        let Some((first, last)) = spans.get(&key) else { return };
        for i in 0..columns.len() {
            let start = columns.start_ticks[i];
            let end = start.saturating_add(columns.duration(i));
            let Some(op) = profile.ops.of(columns.process, columns.export[i]) else { continue };
            if start > *last || end < *first {
                continue;
            }
            let [x, y, z] = &columns.workgroup;
            let id = columns.knows_workgroup(i).then(|| [x[i], y[i], z[i]]);
            all.entry(key).or_default().push(Call { start, end, of: Workgroup { op, id } });
        }
    };
    let (states, _) = profile.visit(workers, HashMap::new, add);
    let mut all: HashMap<Key, Vec<Call>> = HashMap::new();
    for (key, calls) in states.into_iter().flatten() {
        all.entry(key).or_default().extend(calls);
    }
    all.values_mut().for_each(|calls| calls.sort_by_key(|call| call.start));
    all
}
