//! Finds the critical path: the chain of calls that ends with the last call of the recording, in
//! which each call waited for the one before it. Also computes the *gain* of each op: by how much,
//! at most, the recording would be shorter if the op took no time.
//!
//! ```text
//!  main      ├ mm ┤├─ launch ┄┄┄┄┄┄┄┄┤├ add ┤        the path:  mm, launch, task 1, add
//!  worker         ·  ├─── task 1 ────┤·
//!                 fork               join
//! ```
//!
//! The time of a thread is cut into *steps*: stretches in which one call is the innermost one
//! (`segments`). A step begins after the end of everything that it waits for. The time between this
//! end and the step's begin is its *gap*:
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
//! | in a task of a parallel region on another thread: the step before the region | the region's number |
//! | at the end of a parallel region: all tasks of the region on other threads | the region's number |
//! | in an activity (work of a device): the call that launched the activity | the id that both have in a plugin's events or in a trace |
//! | at the end of a call that has an id but launched nothing: the last activity that ended during the call | their times |
//!
//! With the recorded gaps, these formulas give the recorded times. The path is found backwards,
//! beginning with the step that ends last. Of the steps that a step waited for, the one that ended
//! last comes next.
//!
//! The gain of an op is how much earlier everything would end if all its steps took no time, with
//! the same gaps and the same order. The gain can be less than the op's time on the path, because
//! without that time another path may be the longest one. The gain is at most the time of the op's
//! steps on the path. The gain of a range (a stretch of time that the program named) is computed
//! for all steps inside of it. These are its own steps, those of the calls in it, and those of the
//! tasks of parallel regions in it.
//!
//! Times are as recorded: the time that the recorder added is not subtracted. All calls are stored
//! in memory, so at most [`MOST_CALLS`] calls are analysed.

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
/// Gains are computed for at least this many ops of the path, if the path has as many. Each gain
/// takes one pass over all steps.
const LEAST_GAINS: usize = 64;
/// More gains are computed as long as all passes together visit at most this many steps. Visiting
/// so many steps is estimated to take a second.
const MOST_VISITED: usize = 1 << 27;

/// The reason why there is no critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPath {
    /// The run had a budget (a limit for the cost of recording), so the times of most calls are not
    /// recorded.
    Sampled,
    /// The profile has more calls than [`MOST_CALLS`].
    TooMany { calls: u64 },
    /// There is no call that belongs to a thread.
    Empty,
}

/// The critical path of a profile. Times are in ticks, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// Ticks from the start of the first call to the end of the last one. Equals `between` plus the
    /// sum of `on_path` over all rows.
    pub length: u64,
    /// The sum of the gaps before the path's steps, in which no step of the path ran.
    pub between: u64,
    /// The rows, sorted by their time on the path, the largest first. Includes ops that are not on
    /// the path.
    pub rows: Vec<CriticalRow>,
    /// Number of ops on the path whose gain was not computed, because there are too many ops and
    /// steps. These are the ops with the least `inside` time.
    pub without_gain: usize,
    /// The threads and streams on which the path runs, sorted by `on_path`, the largest first.
    pub threads: Vec<OnThread>,
    /// Numbers of waits that were found between steps.
    pub links: Links,
    /// Whether the profile has several passes (repetitions of the recorded calls), of which only
    /// the first was analysed.
    pub first_pass: bool,
}

/// Numbers of waits that were found. A step's wait for the step before it on its own thread does
/// not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Number of dispatches that waited for other dispatches.
    pub dispatches: u64,
    /// Number of tasks (the work of a parallel region on one thread) that ran on another thread
    /// than their region.
    pub tasks: u64,
    /// Number of activities (work of a device) whose launch is known.
    pub launches: u64,
    /// Number of calls that waited for an activity.
    pub waits: u64,
}

/// One op or range (a stretch of time that the program named), and its part in the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CriticalRow {
    /// The op. Parallel regions and their tasks belong to the op around them.
    pub op: OpId,
    /// The op's self time on all threads, on the path or not. Does not include the time in which a
    /// region waited for its tasks.
    pub own: u64,
    /// The part of the path that is the op's self time.
    pub on_path: u64,
    /// Number of the op's steps on the path.
    pub steps: u64,
    /// The sum of the gaps before the op's steps on the path.
    pub gaps: u64,
    /// For an op, the same as `on_path`. For a range, the part of the path that is inside of the
    /// range.
    pub inside: u64,
    /// How much shorter the recording could become at most if the op, or everything inside of the
    /// range, took no time. Never above `inside`. `None` for the rows that
    /// [`CriticalPath::without_gain`] counts.
    pub gain: Option<u64>,
}

/// The time of the path on one thread or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnThread {
    /// Process index.
    pub process: usize,
    /// Thread index.
    pub thread: usize,
    /// Time of the path in calls of this thread or stream.
    pub on_path: u64,
}

/// Finds the critical path.
///
/// # Errors
/// Returns [`NoPath`] if there is no path. Fails if the profile's activities cannot be read.
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

/// `most` takes the number of steps, and returns for how many ops gains are computed.
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
        // If a step is in several nested ranges of the same row, its time is added to the row only
        // once.
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

    /// `step` contains `f`, `g` and `f` again. `h` comes after it. `spare` runs on another thread,
    /// and nothing waits for it.
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

    /// Gains are computed for the ops with the largest `inside` time, and not for those with the
    /// most self time.
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
