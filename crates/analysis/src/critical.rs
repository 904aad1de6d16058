//! Finds the critical path: the chain of calls, each of which waited for the one before it, that
//! ends with the last call of the recording. Also computes what shortening each op could gain at
//! most.
//!
//! ```text
//!  main      ├ mm ┤├─ launch ┄┄┄┄┄┄┄┄┤├ add ┤        the path:  mm, launch, task 1, add
//!  worker         ·  ├─── task 1 ────┤·
//!                 fork               join
//! ```
//!
//! Each stretch of a thread in which one call is the innermost one is a *step* (`segments`). A step
//! begins a *gap* after the end of everything that it waits for:
//!
//! ```text
//!  begin(step) = max over what it waits for (end) + gap       end(step) = begin(step) + length
//! ```
//!
//! A step waits for:
//!
//! | for | known from |
//! |---|---|
//! | the step before it on its thread or stream | their times |
//! | the dispatches of its process that had ended when its own dispatch began | the workgroups of IREE |
//! | the start of the parallel region that it is a task of; and the end of a region for all its tasks | the number of the region |
//! | the call that launched it | the id that a plugin or a trace gives both |
//! | the activity of a device that ended during it, if it launched nothing itself and has such an id, too | the same |
//!
//! With the gaps as they were recorded, this formula gives every recorded time again. The path is
//! found backwards from the last end: the next node is always the one that ended last of those
//! waited for. The gain of an op is the difference if all its steps took no time, with all gaps and
//! the order unchanged. So other paths, which then become the longest ones, limit the gain. A range has a gain for all steps inside of it: its
//! own, those of the calls in it, and those of the tasks that these launched.
//!
//! Times are as recorded. All calls are in memory, at most [`MOST_CALLS`].

mod calls;
mod graph;
mod launched;
mod ranges;
mod segments;

use std::collections::{BTreeMap, HashSet};

use profile::{OpId, Profile};

use calls::Calls;
use graph::{Graph, NONE};

/// Profiles with more calls than this are refused: each call takes about 150 bytes of memory.
pub const MOST_CALLS: u64 = 10_000_000;
/// Gains are computed for at most this many ops of the path. Each takes one pass over all steps.
const MOST_GAINS: usize = 64;

/// The reason why there is no critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPath {
    /// In a run with a budget, the times of most calls are not recorded.
    Sampled,
    /// The profile has more calls than [`MOST_CALLS`].
    TooMany { calls: u64 },
    /// There is no call that belongs to a thread.
    Empty,
}

/// The critical path of a profile. Times are in ticks, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// Ticks from the start of the first call to the end of the last one. It is `on_path` of all
    /// rows together, plus `between`.
    pub length: u64,
    /// The part of the path in which no call of the path ran.
    pub between: u64,
    /// Rows, the one with the most on the path first. Ops that are not on the path are rows, too.
    pub rows: Vec<CriticalRow>,
    /// The threads and streams that the path goes through, the one with the most first.
    pub threads: Vec<OnThread>,
    /// The number of links that were found besides the order on threads: between dispatches,
    /// between regions and their tasks, from a launch to what it launched, and from a call to the
    /// activity that it waited for.
    pub links: Links,
    /// Whether only the first of several passes was analysed.
    pub first_pass: bool,
}

/// Numbers of links between threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Number of dispatches that waited for other dispatches.
    pub dispatches: u64,
    /// Number of tasks that ran on another thread than their region.
    pub tasks: u64,
    /// Number of activities whose launch is known.
    pub launches: u64,
    /// Number of calls that waited for an activity.
    pub waits: u64,
}

/// The numbers of one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalRow {
    /// The op. Parallel regions and their tasks belong to the op around them.
    pub op: OpId,
    /// The op's self time on all threads, whether on the path or not. It does not contain the time
    /// that regions waited for tasks.
    pub own: u64,
    /// The part of the path that is the op's own time.
    pub on_path: u64,
    /// Number of the op's steps on the path.
    pub steps: u64,
    /// The gaps before the steps, in which the path waited for no call.
    pub gaps: u64,
    /// The most that the whole length would shrink if the op took no time; for a range, if nothing inside of
    /// it did. `None` if it was not computed because there are too many ops.
    pub gain: Option<u64>,
}

/// The steps and the time of the path on one thread or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnThread {
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// Time of the path in calls of this thread.
    pub on_path: u64,
}

/// Finds the critical path.
///
/// # Errors
/// Returns [`NoPath`] if the profile has no critical path. Fails if the profile's activities cannot
/// be read.
pub fn critical_path(profile: &Profile) -> profile::Result<Result<CriticalPath, NoPath>> {
    if profile.is_sampled() {
        return Ok(Err(NoPath::Sampled));
    }
    if profile.calls() > MOST_CALLS {
        return Ok(Err(NoPath::TooMany { calls: profile.calls() }));
    }
    let mut calls = calls::collect(profile);
    let pairs = launched::pairs(profile, &calls)?;
    calls.link(&pairs);
    Ok(path(profile, &calls).ok_or(NoPath::Empty))
}

fn path(profile: &Profile, calls: &Calls) -> Option<CriticalPath> {
    let (mut steps, joins, mut ranges) = segments::steps(calls);
    for step in &mut steps {
        step.owner = profile.ops.row_of(step.owner);
    }
    ranges.renumber(|op| profile.ops.row_of(op));
    let graph = Graph::new(calls, &steps, &joins)?;
    let mut rows: BTreeMap<OpId, CriticalRow> = BTreeMap::new();
    fn row(rows: &mut BTreeMap<OpId, CriticalRow>, op: OpId) -> &mut CriticalRow {
        let new = CriticalRow { op, own: 0, on_path: 0, steps: 0, gaps: 0, gain: Some(0) };
        rows.entry(op).or_insert(new)
    }
    for node in graph.nodes.iter().filter(|node| node.owner != NONE) {
        row(&mut rows, node.owner).own += node.length();
    }
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut between, mut gap) = (0u64, 0u64);
    // What is on the path, by its own steps or by those inside of it.
    let mut reached: HashSet<OpId> = HashSet::new();
    for at in graph.path() {
        let node = &graph.nodes[at];
        gap += node.gap;
        between += node.gap;
        if node.owner == NONE {
            continue;
        }
        let row = row(&mut rows, node.owner);
        row.on_path += node.length();
        row.steps += 1;
        row.gaps += gap;
        gap = 0;
        reached.extend(ranges.of(node.ranges).chain([node.owner]).filter(|_| node.length() > 0));
        *threads.entry(node.line).or_default() += node.length();
    }
    let length = graph.length();
    let mut rows: Vec<CriticalRow> = rows.into_values().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse((row.on_path, row.own)), row.op));
    let on_path: Vec<usize> =
        (0..rows.len()).filter(|at| reached.contains(&rows[*at].op)).collect();
    let computed: Vec<OpId> = on_path.iter().take(MOST_GAINS).map(|at| rows[*at].op).collect();
    let mut gains = graph.gains(&computed, &ranges).into_iter();
    // Of those that are not on the path, it is known: nothing.
    on_path.into_iter().for_each(|at| rows[at].gain = gains.next());
    let threads = threads.into_iter().map(|(line, on_path)| {
        let (process, thread) = calls.lines[line as usize];
        OnThread { process, thread, on_path }
    });
    let mut threads: Vec<OnThread> = threads.collect();
    threads.sort_by_key(|one| (std::cmp::Reverse(one.on_path), one.process, one.thread));
    let links = Links { launches: calls.launches(), ..graph.links };
    Some(CriticalPath { length, between, rows, threads, links, first_pass: profile.passes() > 1 })
}
