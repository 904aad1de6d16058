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
//! the order unchanged. So other paths, which then become the longest ones, limit the gain. A range
//! has a gain for all steps inside of it: its own, those of the calls in it, and those of the tasks
//! that these calls launched. Without any step of the path, the path cannot be shorter than the rest
//! of it, so an op never gains more than its steps on the path (for a range, the steps inside of it)
//! take.
//!
//! Times are as recorded. All calls are in memory, at most [`MOST_CALLS`].

mod calls;
mod graph;
mod launched;
mod owners;
mod ranges;
mod segments;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use profile::{OpId, Profile};

use calls::Calls;
use graph::{Graph, NONE};

/// Profiles with more calls than this are refused: each call takes about 150 bytes of memory.
pub const MOST_CALLS: u64 = 10_000_000;
/// Each gain takes one pass over all steps. Gains are computed for at least this many ops of the
/// path, however many steps there are.
const LEAST_GAINS: usize = 64;
/// As many gains are computed as visit this many steps in all, which is believed to take about a second.
const MOST_VISITED: usize = 1 << 27;

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
    /// The number of rows without a gain, because there are too many ops and steps: those of which
    /// the least is on the path, with what is inside of them.
    pub without_gain: usize,
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
    /// The part of the path that is the op's own time, or for a range that is inside of it. The gain
    /// is not above it.
    pub inside: u64,
    /// The most that the whole length would shrink if the op took no time; for a range, if nothing
    /// inside of it did. `None` for [`CriticalPath::without_gain`] rows.
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
    let most = |steps: usize| LEAST_GAINS.max(MOST_VISITED / steps.max(1));
    Ok(path(profile, &calls, most).ok_or(NoPath::Empty))
}

/// `most` returns for how many ops gains are computed, from the number of steps.
fn path(profile: &Profile, calls: &Calls, most: impl Fn(usize) -> usize) -> Option<CriticalPath> {
    let (mut steps, joins, mut ranges) = segments::steps(calls);
    for step in &mut steps {
        step.owner = profile.ops.row_of(step.owner);
    }
    ranges.renumber(|op| profile.ops.row_of(op));
    let graph = Graph::new(calls, &steps, &joins)?;
    let mut rows: BTreeMap<OpId, CriticalRow> = BTreeMap::new();
    fn row(rows: &mut BTreeMap<OpId, CriticalRow>, op: OpId) -> &mut CriticalRow {
        let new =
            CriticalRow { op, own: 0, on_path: 0, steps: 0, gaps: 0, inside: 0, gain: Some(0) };
        rows.entry(op).or_insert(new)
    }
    for node in graph.nodes.iter().filter(|node| node.owner != NONE) {
        row(&mut rows, node.owner).own += node.length();
    }
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut between, mut gap) = (0u64, 0u64);
    let mut around: Vec<OpId> = Vec::new();
    for at in graph.path() {
        let node = &graph.nodes[at];
        gap += node.gap;
        between += node.gap;
        if node.owner == NONE {
            continue;
        }
        let of_node = row(&mut rows, node.owner);
        of_node.on_path += node.length();
        of_node.steps += 1;
        of_node.gaps += gap;
        gap = 0;
        // A range that is inside of itself counts once.
        around.clear();
        around.extend(ranges.members(node.ranges).chain([node.owner]));
        around.sort_unstable();
        around.dedup();
        around.iter().for_each(|op| row(&mut rows, *op).inside += node.length());
        *threads.entry(node.line).or_default() += node.length();
    }
    let length = graph.length();
    let mut rows: Vec<CriticalRow> = rows.into_values().collect();
    rows.sort_by_key(|row| (Reverse((row.on_path, row.own)), row.op));
    let mut on_path: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].inside > 0).collect();
    on_path.sort_by_key(|at| Reverse(rows[*at].inside));
    let computed: Vec<OpId> =
        on_path.iter().take(most(graph.nodes.len())).map(|at| rows[*at].op).collect();
    let without_gain = on_path.len() - computed.len();
    let mut gains = graph.gains(&computed, &ranges).into_iter();
    // Of those that are not on the path, it is known: nothing.
    on_path.into_iter().for_each(|at| rows[at].gain = gains.next());
    let threads = threads.into_iter().map(|(line, on_path)| {
        let (process, thread) = calls.lines[line as usize];
        OnThread { process, thread, on_path }
    });
    let mut threads: Vec<OnThread> = threads.collect();
    threads.sort_by_key(|one| (Reverse(one.on_path), one.process, one.thread));
    let links = Links { launches: calls.launches(), ..graph.links };
    let first_pass = profile.passes() > 1;
    Some(CriticalPath { length, between, rows, without_gain, threads, links, first_pass })
}

#[cfg(test)]
mod tests {
    use profile::Role;
    use testkit::{CallScript, ProfileScript};

    use super::*;

    /// `step` is around `f`, `g` and `f`, for 100 with 5 of its own; `h` takes 40 after it. `spare` is on another
    /// thread, and the end does not wait for it.
    fn script() -> ProfileScript {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        let vm = process.machine("vm 0");
        let step = process.op(vm, Role::Range, "step", "");
        let [f, g, h, spare] =
            ["f", "g", "h", "spare"].map(|name| process.op(vm, Role::Op, name, ""));
        let thread = process.thread("main");
        for (op, begin, end) in
            [(f, 1_005, 1_050), (g, 1_050, 1_080), (f, 1_080, 1_100), (step, 1_000, 1_100)]
        {
            thread.call(CallScript::op(op, begin, end - begin));
        }
        thread.call(CallScript::op(h, 1_100, 40));
        process.thread("aside").call(CallScript::op(spare, 1_000, 30));
        script
    }

    fn rows(most: usize) -> (usize, Vec<(String, u64, Option<u64>)>) {
        let (_scratch, profile) = script().opened();
        let calls = calls::collect(&profile);
        let path = path(&profile, &calls, |_| most).unwrap();
        let row = |row: &CriticalRow| {
            let name = profile.ops.get(row.op).unwrap().name.clone();
            (name, row.inside, row.gain)
        };
        (path.without_gain, path.rows.iter().map(row).collect())
    }

    /// If only some gains are computed, these are the largest possible ones, and not those of the ops with the most
    /// time of their own.
    #[test]
    fn gains_that_are_not_computed_are_counted() {
        let all =
            [("f", 65, 65), ("h", 40, 40), ("g", 30, 30), ("step", 100, 100), ("spare", 0, 0)];
        let expected = |without: &[&str]| {
            let gain = |name: &str, gain| (!without.contains(&name)).then_some(gain);
            let rows = all.map(|(name, inside, of)| (name.to_owned(), inside, gain(name, of)));
            (without.len(), rows.to_vec())
        };
        assert_eq!(rows(64), expected(&[]));
        assert_eq!(rows(2), expected(&["h", "g"]));
    }
}
