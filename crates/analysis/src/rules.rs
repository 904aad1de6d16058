//! Checks for causes that often hold a program back. Each rule that fires has evidence, and the
//! part of the wall time that is at stake: the most that the program could gain.
//!
//! A rule does not fire if less than its threshold is at stake, or if the data that it needs was
//! not recorded. Rules about dispatches do not fire if other threads took the CPU from a thread of
//! the program for too long ([`CROWDED`]). These rules are computed from the sites: the places in
//! the program that launch dispatches of IREE ([`crate::sites()`]). The idle time of workers in a
//! site's dispatches counts for one rule, the first of these that holds:
//!
//! ```text
//!  fewer workgroups than workers ───────────────────────► too few workgroups
//!  workgroups shorter than 2 µs ────────────────────────► too small workgroups
//!  one worker has much more of the work than others ────► imbalance
//!  otherwise ───────────────────────────────────────────► workers wait
//! ```

use profile::{OpId, Profile, Role};

use crate::answer::{Preempted, passes};
use crate::explain::later_faults;
use crate::metrics::is_clock_of_threads;
use crate::sites::{Before, Site, Sites};
use crate::summary::Summary;
use crate::table::{By, Key, Row};
use crate::threads::threads_of_program;

/// The rules about workers and about stalls for memory only fire if at least this part of the wall
/// time is at stake. The rule about fresh memory can also fire with less (see [`FAULTS`]).
pub const WORTH: f64 = 0.1;
/// The rules about time between dispatches or runs fire if this time is at least this part of the
/// wall time.
pub const MOST: f64 = 0.5;
/// The rule about the data loader fires if waiting for data takes at least this part of the wall
/// time.
pub const LOADING: f64 = 0.05;
/// The rule about `.item()` only fires if its calls, without the gaps around them, take at least
/// this part of the wall time.
pub const ITEMS: f64 = 0.01;
/// The rule about `.item()` only fires if there are at least this many calls.
pub const ITEM_CALLS: u64 = 1_000;
/// The rule about imbalance only fires if the busiest worker takes at least this many times as long
/// as with evenly divided work.
pub const IMBALANCE: f64 = 1.3;
/// Workgroups whose mean time is less than this, in ns, count as small.
pub const SMALL_NS: f64 = 2_000.0;
/// The rule about memory only fires if at least this part of the cycles are stalls for memory.
pub const STALLED: f64 = 0.5;
/// The least time that a page fault takes, in ns. Published measurements on Linux on x86-64 found
/// 0.25 µs for a page that only has to be cleared, and much more in virtual machines.
pub const FAULT_NS: f64 = 250.0;

/// With less than [`WORTH`] at stake, the rule about fresh memory only fires if page faults take at
/// least this part of an op's time (of its processor time, if known). The part is small, because a
/// fault can take several times [`FAULT_NS`].
pub const FAULTS: f64 = 0.05;
/// With less than [`WORTH`] at stake, the rule about fresh memory only fires for ops that take at
/// least this part of the wall time.
pub const FAULTS_OP: f64 = 0.02;
/// The rule about fresh memory only fires if at least this part of the op's calls have page faults.
/// The op's first call on each thread does not count.
pub const FAULTS_CALLS: f64 = 0.01;

/// If the operating system gave the CPU to other threads for at least this part of a thread's time
/// in calls, wall times show more about those threads than about this program.
pub const CROWDED: f64 = 0.2;

/// A cause that holds a program back, with the evidence. Times are in ns. `efficiency` and
/// `stalled` are parts from 0 to 1. `counter` is the index of a counter of the run. `workgroups` is
/// the mean number of workgroups in a dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what the variants and this comment say")]
pub enum Rule {
    /// Most of the time is between dispatches. `before` describes the gaps before dispatches, and
    /// `mean_ns` is the mean time of a dispatch.
    Between { dispatches: u64, before: Before, mean_ns: f64 },
    /// Most of the time is between runs of the model. `before` describes the gaps before runs, and
    /// `mean_ns` is the mean time of a run.
    BetweenRuns { runs: u64, before: Before, mean_ns: f64 },
    /// Workers are idle in the dispatches of a site, although each could have a workgroup.
    WorkersWait { site: OpId, efficiency: f64 },
    /// A site's dispatches have fewer workgroups than there are workers.
    FewWorkgroups { site: OpId, workgroups: f64, workers: usize },
    /// A site's workgroups take so little time that handing them out may cost as much time as their
    /// work. `mean_ns` is their mean time.
    SmallWorkgroups { site: OpId, mean_ns: f64, efficiency: f64 },
    /// In a site's dispatches, one worker does much more work than the others.
    Imbalance { site: OpId, imbalance: f64 },
    /// In most cycles of an op, the processor waits for memory. `counter` counts such cycles, and
    /// `stalled` is their part of all cycles.
    MemoryBound { op: Key, counter: usize, stalled: f64 },
    /// Again and again, an op touches fresh memory: pages that the operating system has to provide
    /// first. `mean` is the mean number of page faults in a call, and `calls` is the part of the
    /// calls that have page faults, both without the first call on each thread. The faults take at
    /// least `part` of the op's time (of its processor time, if `of_cpu`).
    FreshMemory { op: Key, counter: usize, mean: f64, calls: f64, part: f64, of_cpu: bool },
    /// The program waits for its data loader. `calls` is how often it waits, and `mean_ns` is the
    /// mean wait.
    DataLoader { op: Key, calls: u64, mean_ns: f64 },
    /// `.item()` is called often. `around_ns` is the sum of the gaps right before and after its
    /// calls. Some of Python's work for the calls is done in these gaps, so the gaps are at stake
    /// as well.
    Items { op: Key, calls: u64, mean_ns: f64, around_ns: f64 },
}

/// A rule that fired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fired {
    /// The rule with its evidence.
    pub rule: Rule,
    /// The part of the wall time that is at stake, from 0 to 1.
    pub share: f64,
    /// The wall time, in ns: the lifetime of the thread that lived longest, added up over
    /// processes. With several passes (repetitions of the program with other counters), the mean
    /// over the passes.
    pub wall_ns: f64,
}

impl Fired {
    /// Returns the time at stake, in ns.
    pub fn at_stake_ns(&self) -> f64 {
        self.share * self.wall_ns
    }
}

/// Returns the rules that fire, the most time at stake first. `sites` are the profile's dispatch
/// sites; `None` if there are none. The rows of `summary` must be ops, and the summary must have
/// been made without a filter.
pub fn rules(profile: &Profile, summary: &Summary, sites: Option<&Sites>) -> Vec<Fired> {
    let wall = wall_ns(profile, summary);
    if wall <= 0.0 || summary.sampled.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let ns_per_tick = profile.timeline.ns_per_tick();
    let taken = |of: &Preempted<'_>| of.in_calls_ns >= CROWDED * of.thread.dispatch_ns;
    let crowded = summary.preempted(profile).iter().any(taken);
    // If other threads took the CPU from a thread for too long (`crowded`), these rules are not
    // checked, because gaps and idle workers may have no other cause.
    if let Some(sites) = sites.filter(|_| !crowded) {
        between(sites, wall, ns_per_tick, &mut found);
        workers(sites, wall, ns_per_tick, &mut found);
    }
    let passes = passes(profile, By::Op) as f64;
    for row in summary.rows.iter().filter(|row| !row.key.is_apart(profile)) {
        let total_ns = row.total.value * ns_per_tick / passes;
        let own_ns = row.own.value * ns_per_tick / passes;
        let calls = row.calls / passes as u64;
        let around_ns = || summary.gaps.as_ref().map_or(0.0, |gaps| gaps.around_ns(row.key));
        named(profile, row, calls, [total_ns, wall], around_ns, &mut found);
        memory_bound(profile, row, own_ns, wall, &mut found);
    }
    fresh_memory(profile, summary, [wall, passes], &mut found);
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

/// Returns the program's wall time in ns (see [`Fired::wall_ns`]), the mean over the passes.
fn wall_ns(profile: &Profile, summary: &Summary) -> f64 {
    let mut of_process = vec![0f64; profile.processes.len()];
    for thread in threads_of_program(profile, &summary.threads) {
        let wall = &mut of_process[thread.process];
        *wall = wall.max(thread.wall_ns);
    }
    of_process.iter().sum::<f64>() / passes(profile, By::Op) as f64
}

fn fire(rule: Rule, ns: f64, wall: f64, least: f64, found: &mut Vec<Fired>) {
    let share = (ns / wall).clamp(0.0, 1.0);
    if share >= least {
        found.push(Fired { rule, share, wall_ns: wall });
    }
}

fn between(sites: &Sites, wall: f64, ns_per_tick: f64, found: &mut Vec<Fired>) {
    let idle = wall - sites.busy * ns_per_tick;
    let run = sites.run().filter(|run| run.dispatches > 1).map(|run| {
        let before = run.before.scaled(ns_per_tick);
        let mean_ns = (run.busy + run.between) * ns_per_tick;
        (Rule::BetweenRuns { runs: run.runs, before, mean_ns }, before.total.min(idle))
    });
    // If the gaps between runs of the model alone take most of the time, only the more specific
    // `BetweenRuns` fires.
    if let Some((rule, ns)) = run.filter(|(_, ns)| *ns >= MOST * wall) {
        return fire(rule, ns, wall, MOST, found);
    }
    let before = sites.before.scaled(ns_per_tick);
    let all: f64 = sites.rows.iter().map(|site| site.wall).sum();
    let mean_ns = all * ns_per_tick / sites.dispatches.max(1) as f64;
    let rule = Rule::Between { dispatches: sites.dispatches, before, mean_ns };
    fire(rule, before.total.min(idle), wall, MOST, found);
}

/// Checks the rules about workers. The time at stake of such a rule is the sum over all sites for
/// which the rule holds. The evidence is the site with the most time at stake.
fn workers(sites: &Sites, wall: f64, ns_per_tick: f64, found: &mut Vec<Fired>) {
    let mut at_stake: [(f64, f64, Option<Rule>); 4] = [(0.0, 0.0, None); 4];
    for site in &sites.rows {
        let Some((which, rule, ticks)) = of_site(site, ns_per_tick) else { continue };
        let (sum, most, named) = &mut at_stake[which];
        *sum += ticks * ns_per_tick;
        if ticks > *most {
            (*most, *named) = (ticks, Some(rule));
        }
    }
    for (ns, _, rule) in at_stake {
        if let Some(rule) = rule {
            fire(rule, ns, wall, WORTH, found);
        }
    }
}

/// Returns the rule that holds for a site. The first value is the rule's index in the array
/// `at_stake` of [`workers`], and the last is the time at stake, in ticks.
fn of_site(site: &Site, ns_per_tick: f64) -> Option<(usize, Rule, f64)> {
    let (op, efficiency) = (site.op, site.efficiency);
    if efficiency <= 0.0 || site.wall <= 0.0 || site.dispatches == 0 || site.workgroups == 0 {
        return None;
    }
    let threads = (site.sum / (efficiency * site.wall)).round() as usize;
    let workgroups = site.workgroups as f64 / site.dispatches as f64;
    let mean_ns = site.sum * ns_per_tick / site.workgroups as f64;
    // The time that the site would save if all workers were always busy.
    let idle = site.wall * (1.0 - efficiency);
    if threads < 2 {
        return None;
    }
    Some(if workgroups < threads as f64 {
        let rule = Rule::FewWorkgroups { site: op, workgroups, workers: threads };
        (0, rule, idle)
    } else if mean_ns < SMALL_NS {
        (1, Rule::SmallWorkgroups { site: op, mean_ns, efficiency }, idle)
    } else if site.imbalance >= IMBALANCE {
        let rest = site.wall * (1.0 - 1.0 / site.imbalance);
        (2, Rule::Imbalance { site: op, imbalance: site.imbalance }, rest.min(idle))
    } else {
        (3, Rule::WorkersWait { site: op, efficiency }, idle)
    })
}

/// Checks the rules about ops that are recognised by their names.
fn named(
    profile: &Profile,
    row: &Row,
    calls: u64,
    [total_ns, wall]: [f64; 2],
    around_ns: impl Fn() -> f64,
    found: &mut Vec<Fired>,
) {
    let Key::Op(op) = row.key else { return };
    let Some(op) = profile.ops.get(op) else { return };
    let mean_ns = total_ns / calls.max(1) as f64;
    match op.name.as_str() {
        "aten::item" if calls >= ITEM_CALLS && total_ns >= ITEMS * wall => {
            let around_ns = around_ns();
            let rule = Rule::Items { op: row.key, calls, mean_ns, around_ns };
            fire(rule, total_ns + around_ns, wall, ITEMS, found);
        }
        name if name.starts_with("enumerate(DataLoader)#") => {
            let rule = Rule::DataLoader { op: row.key, calls, mean_ns };
            fire(rule, total_ns, wall, LOADING, found);
        }
        _ => {}
    }
}

/// Returns the name of a counter without modifiers such as `:u`.
fn plain(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

fn memory_bound(profile: &Profile, row: &Row, own_ns: f64, wall: f64, found: &mut Vec<Fired>) {
    let counters = &profile.manifest.counters;
    let is_cycles = |name: &str| matches!(plain(name), "cycles" | "cpu-cycles");
    let is_stall = |name: &str| {
        let name = plain(name);
        name.contains("stalls_mem_any") || name.contains("stalls_l3_miss")
    };
    let find = |is: &dyn Fn(&str) -> bool| counters.iter().position(|c| is(&c.name));
    let Some((cycles, counter)) = find(&is_cycles).zip(find(&is_stall)) else { return };
    let value = |at: usize| row.counters.get(at).copied().flatten();
    let Some((all, waiting)) = value(cycles).zip(value(counter)) else { return };
    if all.calls != waiting.calls || all.value.value <= 0.0 {
        return;
    }
    let stalled = (waiting.value.value / all.value.value).min(1.0);
    if stalled >= STALLED {
        let rule = Rule::MemoryBound { op: row.key, counter, stalled };
        fire(rule, own_ns * stalled, wall, WORTH, found);
    }
}

/// Finds ops that have page faults even after their first call on a thread, if these faults take
/// much of the wall time or of the op's time. The mean number of page faults includes calls without
/// any, so that the page faults of a few calls are not counted for all calls. `wall` is the mean over
/// the passes (repetitions of the program with other counters). A counter is read in only one pass.
fn fresh_memory(
    profile: &Profile,
    summary: &Summary,
    [wall, passes]: [f64; 2],
    found: &mut Vec<Fired>,
) {
    let counters = &profile.manifest.counters;
    let is_faults = |name: &str| matches!(plain(name), "page-faults" | "faults" | "minor-faults");
    let Some(counter) = counters.iter().position(|c| is_faults(&c.name)) else { return };
    let clock = (0..counters.len()).find(|at| is_clock_of_threads(profile, *at));
    let value = |row: &Row, at: usize| row.counters.get(at).copied().flatten();
    // Returns the time of an op's calls, and whether it is processor time. The page faults of a
    // call include those of calls inside of it, so its time must include these calls, too.
    let own = |row: &Row, calls: u64| match clock.and_then(|at| value(row, at)) {
        Some(on_cpu) if on_cpu.calls == calls => (on_cpu.value.value, true),
        _ => {
            let part = calls as f64 / row.calls.max(1) as f64;
            (row.total.value * part * profile.timeline.ns_per_tick(), false)
        }
    };
    let is_around = |key: Key| {
        let Key::Op(op) = key else { return false };
        profile.ops.get(op).is_some_and(|op| matches!(op.role, Role::Run | Role::Range))
    };
    let is_much = |faults: f64, row: &Row, calls: u64| {
        let (own, _) = own(row, calls);
        let op_ns = row.total.value * profile.timeline.ns_per_tick() / passes;
        let ns = faults * FAULT_NS;
        ns >= WORTH * wall || (own > 0.0 && ns >= FAULTS * own && op_ns >= FAULTS_OP * wall)
    };
    // Ops whose calls have too few page faults altogether are left out, so that their calls need
    // not be read one by one.
    let many = |row: &&Row| {
        let of = value(row, counter);
        of.is_some_and(|of| of.calls >= 10 && is_much(of.value.value, row, of.calls))
    };
    let rows = summary.rows.iter().filter(|row| !row.key.is_apart(profile) && !is_around(row.key));
    let rows: Vec<&Row> = rows.filter(many).collect();
    let keys: Vec<Vec<Key>> = rows.iter().map(|row| vec![row.key]).collect();
    if keys.is_empty() {
        return;
    }
    for (row, later) in rows.iter().zip(later_faults(profile, &keys, counter)) {
        let Some(of) = value(row, counter) else { continue };
        let calls = later.with_some as f64 / later.calls.max(1) as f64;
        let faults = later.mean * of.calls as f64;
        if calls < FAULTS_CALLS || later.with_some < 2 || !is_much(faults, row, of.calls) {
            continue;
        }
        let (own, of_cpu) = own(row, of.calls);
        let ns = (faults * FAULT_NS).min(own);
        let part = if own > 0.0 { ns / own } else { 0.0 };
        let (op, mean) = (row.key, later.mean);
        fire(Rule::FreshMemory { op, counter, mean, calls, part, of_cpu }, ns, wall, 0.0, found);
    }
}
