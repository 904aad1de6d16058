//! Assembles dispatches of IREE from their workgroups, and finds the sites: the places in the
//! program that launch these dispatches.
//!
//! ```text
//!  worker 0   ├ 0 ┤├ 2 ┤├──── 4 ────┤      ├ 0 ┤├ 1 ┤
//!  worker 1   ├── 1 ──┤├ 3 ┤                ├ 2 ┤
//!             ├──── dispatch 0 ─────┤ gap   ├ dispatch 1 ┤
//! ```
//!
//! Workgroups are assigned to dispatches by [`profile::dispatch`], so sites, timelines and exported
//! files show the same dispatches.
//!
//! **Sites.** A model makes the same dispatches in each of its runs. One iteration is the shortest
//! sequence of functions that, when it is repeated, makes up the end of a process's dispatches.
//! Each position in this sequence is a site. Dispatches before the first iteration have sites
//! without a position, one for each function. If dispatches can run at the same time, they can swap
//! positions, so no sequence repeats exactly. Then the number of iterations is assumed to be the
//! greatest common divisor of the functions' numbers of dispatches.
//!
//! The calls of a thread are read page by page (in blocks of recorded calls). So the analysis needs
//! memory for one page of each thread, and 76 bytes for each dispatch.

mod assemble;
mod period;

use std::collections::BTreeMap;

use profile::{OpId, Profile};

use crate::amounts::{Brackets, PARTS, ticks};
use crate::answer::passes;
use crate::durations::Durations;
use crate::summary::is_contradicted;
use crate::table::By;
use assemble::{Dispatch, assemble};
use period::positions;

/// One site: a place in the program that launches dispatches of one function. Times are in ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    pub op: OpId,
    /// The site's index among the dispatches of one iteration. `None` for dispatches before the
    /// first iteration, and if a process with many dispatches does not repeat any sequence.
    pub position: Option<u32>,
    /// The number of dispatches of one iteration, if the site has a position.
    pub of: Option<u32>,
    pub dispatches: u64,
    /// Number of workgroups of the site's dispatches.
    pub workgroups: u64,
    /// Number of threads that ran workgroups; with several processes, the largest number in one
    /// process.
    pub workers: usize,
    /// Number of dispatches with missing workgroups. The times of such dispatches are from the
    /// first to the last recorded workgroup.
    pub incomplete: u64,
    /// Sum of the wall times of the dispatches, as recorded: each from the start of the first
    /// workgroup to the end of the last one.
    pub wall: f64,
    /// The mean wall time of a dispatch.
    pub mean: f64,
    /// The shortest and the longest wall time of a dispatch.
    pub range: [f64; 2],
    /// For each dispatch, the durations of its workgroups are added up, without the time that the
    /// recorder added. These are the quantiles of the sums.
    pub dispatch: DispatchTimes,
    /// Sum of the durations of all workgroups, without the time that the recorder added.
    pub sum: f64,
    /// How busy the workers were in the dispatches, from 0 to 1: `sum` divided by `wall`, and by
    /// the number of the process's threads that ran workgroups.
    pub efficiency: f64,
    /// The time of the busiest worker in each dispatch, added up over the dispatches. This sum is
    /// divided by what it would be if the work were divided equally, so 1 means that the work is
    /// balanced. A dispatch with a single workgroup counts as balanced, because it cannot be
    /// divided.
    pub imbalance: f64,
    /// The gaps before the site's dispatches.
    pub before: Before,
}

/// The gaps before some dispatches. In a gap, no dispatch of the process is running. The first
/// dispatch of a process has no gap. Times are in ticks, unless a user of this type documents
/// another unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Before {
    /// Number of the gaps.
    pub times: u64,
    /// The sum of the gaps.
    pub total: f64,
    pub mean: f64,
    pub median: f64,
    pub longest: f64,
}

impl Before {
    /// Returns the same gaps with their times multiplied by `factor`.
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            times: self.times,
            total: self.total * factor,
            mean: self.mean * factor,
            median: self.median * factor,
            longest: self.longest * factor,
        }
    }

    /// Divides the sum and the number of gaps by the number of passes (repetitions of the program
    /// with other counters) over which they were added up.
    fn be_mean_of(&mut self, passes: u64) {
        self.times = self.times.saturating_add(passes / 2) / passes;
        self.total /= passes as f64;
    }
}

#[derive(Debug, Default)]
struct Pauses {
    lengths: Durations,
    total: u128,
    longest: u64,
}

impl Pauses {
    fn add(&mut self, ticks: u64) {
        self.lengths.push(ticks);
        self.total += u128::from(ticks);
        self.longest = self.longest.max(ticks);
    }

    fn finish(&self) -> Before {
        let (times, total) = (self.lengths.len() as u64, self.total as f64);
        Before {
            times,
            total,
            mean: total / times.max(1) as f64,
            median: self.lengths.quantile(0.5).unwrap_or(0.0),
            longest: self.longest as f64,
        }
    }
}

/// For each of several dispatches, the durations of its workgroups are added up. These are
/// quantiles of the sums, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DispatchTimes {
    /// The shortest dispatch.
    pub min: f64,
    /// The 10th percentile over the dispatches.
    pub p10: f64,
    /// The median over the dispatches.
    pub p50: f64,
}

impl DispatchTimes {
    fn of(sums: &mut Durations) -> Self {
        let quantile = |q| sums.quantile(q).map_or(0.0, |parts| parts / PARTS as f64);
        Self { min: quantile(0.0), p10: quantile(0.1), p50: quantile(0.5) }
    }
}

impl Site {
    /// Divides the counts and sums by the number of passes (repetitions of the program with other
    /// counters) over which they were added up.
    fn be_mean_of(&mut self, passes: u64) {
        let of = |count: u64| count.saturating_add(passes / 2) / passes;
        self.dispatches = of(self.dispatches);
        self.workgroups = of(self.workgroups);
        self.incomplete = of(self.incomplete);
        self.wall /= passes as f64;
        self.sum /= passes as f64;
        self.before.be_mean_of(passes);
    }

    /// Returns the gaps before the site's dispatches, if there are any.
    pub fn gaps(&self) -> Option<Before> {
        Some(self.before).filter(|before| before.times > 0)
    }
}

/// The sites of a profile.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// The sites, sorted by position. If processes repeat different sequences of dispatches, each
    /// sequence is sorted by itself. Sites without a position come before the others.
    pub rows: Vec<Site>,
    /// The time in which any dispatch was running, in ticks, added up over processes.
    pub busy: f64,
    pub dispatches: u64,
    /// The gaps before all dispatches.
    pub before: Before,
    /// For each function: the times of its dispatches at all sites. The key is the op that stands
    /// for the function in a table by op.
    pub of_ops: BTreeMap<OpId, DispatchTimes>,
    /// The parts of the program's time, by whether more threads could shorten them.
    pub room: Room,
}

/// The time from the first dispatch to the end of the last one, divided into parts. Times are in
/// ticks, as recorded, and added up over processes. If dispatches overlap, their common time
/// belongs to the one that began first.
///
/// ```text
///  2 workers    ├ a ┤     ├ b ┤├── c ──┤
///                         ├ b ┤├ c ┤├ c ┤
///               alone  –  few   many
/// ```
///
/// The parts do not show how much would be gained with more threads, because threads share caches
/// and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Room {
    /// The time from the first dispatch to the end of the last one.
    pub span: f64,
    /// The part in which no dispatch ran.
    pub outside: f64,
    /// The part in dispatches of at most one workgroup.
    pub alone: f64,
    /// The part in other dispatches with no more workgroups than workers: an additional thread
    /// would have nothing to do.
    pub few: f64,
    /// The part in dispatches with more workgroups than workers.
    pub many: f64,
    /// Number of workers; with several processes, the largest number in one process.
    pub workers: usize,
    /// How busy the workers were in dispatches, from 0 to 1.
    pub efficiency: f64,
}

impl Room {
    /// Adds a dispatch. `ticks` is the part of the dispatch's time that belongs to no earlier
    /// dispatch.
    fn add(&mut self, dispatch: &Dispatch, threads: usize, ticks: f64) {
        let part = match dispatch.of {
            0 | 1 => &mut self.alone,
            of if of <= threads as u64 => &mut self.few,
            _ => &mut self.many,
        };
        *part += ticks;
    }

    fn be_mean_of(&mut self, passes: u64) {
        for part in
            [&mut self.span, &mut self.outside, &mut self.alone, &mut self.few, &mut self.many]
        {
            *part /= passes as f64;
        }
    }
}

impl Sites {
    /// Returns the sum of the wall times of all dispatches, in ticks. Unlike in [`Sites::busy`],
    /// time in which several dispatches run counts for each of them.
    pub fn walls(&self) -> f64 {
        self.rows.iter().map(|site| site.wall).sum()
    }

    /// Returns a site's part of [`Sites::walls`], from 0 to 1.
    pub fn share(&self, site: &Site) -> Option<f64> {
        let all = self.walls();
        (all > 0.0).then(|| site.wall / all)
    }

    /// Computes the mean run of the model. Each iteration is taken as one run. `None` if there are
    /// fewer than two iterations, if there is no gap before any of them, or if the program's
    /// processes repeat different dispatches.
    pub fn run(&self) -> Option<ModelRun> {
        let placed = || self.rows.iter().filter(|site| site.position.is_some());
        let first = placed().find(|site| site.position == Some(0))?;
        let dispatches = first.of.filter(|of| *of as usize == placed().count())?;
        let runs = first.dispatches;
        if runs < 2 {
            return None;
        }
        let outside = self.rows.iter().filter(|site| site.position.is_none());
        let outside: f64 = outside.map(|site| site.wall).sum();
        let later = placed().filter(|site| site.position != Some(0));
        Some(ModelRun {
            runs,
            dispatches,
            busy: (self.busy - outside).max(0.0) / runs as f64,
            between: later.map(|site| site.before.total).sum::<f64>() / runs as f64,
            before: first.gaps()?,
        })
    }
}

/// The mean of all runs of a model. Times are in ticks, as recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelRun {
    pub runs: u64,
    pub dispatches: u32,
    /// The time in which any dispatch was running.
    pub busy: f64,
    /// The time in which no dispatch was running, between the first and the last dispatch of a run.
    pub between: f64,
    /// The gaps before the first dispatch of each run.
    pub before: Before,
}

/// Finds the sites. `None` if no workgroup ids were recorded, or in a run with a budget for the
/// cost of recording. As in a [`Summary`](crate::Summary), the time that the recorder added is
/// subtracted, except with `raw`, or if corrected values would contradict each other. With several
/// passes (repetitions of the program with other counters), sums and the numbers of dispatches,
/// workgroups and gaps are means over the passes.
pub fn sites(profile: &Profile, raw: bool) -> Option<Sites> {
    let is_raw = raw || profile.is_sampled() || is_contradicted(profile);
    sites_as(profile, is_raw)
}

/// Like [`sites`], but `raw` must be [`Summary::raw`](crate::Summary::raw) of a summary of the same
/// profile. It reads all calls one time fewer than [`sites`], which computes this value itself.
pub fn sites_as(profile: &Profile, raw: bool) -> Option<Sites> {
    let brackets = Brackets::new(profile, raw);
    let mut found = Sites::default();
    // The sum of the durations of all workgroups, and the sum over all workers of the time in which
    // any dispatch was running.
    let (mut work, mut room) = (0.0, 0.0);
    let mut pauses = Pauses::default();
    // The keys are the functions of one iteration, which are the same in processes of one program.
    let mut sums: BTreeMap<Vec<OpId>, Places> = BTreeMap::new();
    for process in 0..profile.processes.len() {
        let assembled = assemble(profile, process, &brackets)?;
        if assembled.dispatches.is_empty() {
            continue;
        }
        let ops: Vec<OpId> = assembled.dispatches.iter().map(|dispatch| dispatch.op).collect();
        let (sequence, places) = positions(&ops);
        let of_sequence = sums.entry(sequence).or_default();
        let mut end: Option<u64> = None;
        let busy = found.busy;
        found.room.workers = found.room.workers.max(assembled.threads);
        for (dispatch, place) in assembled.dispatches.iter().zip(places) {
            let gap = end.map(|end| dispatch.begin.saturating_sub(end));
            gap.into_iter().for_each(|ticks| pauses.add(ticks));
            let before = end.unwrap_or(dispatch.begin).max(dispatch.begin);
            let new = dispatch.end.saturating_sub(before) as f64;
            found.busy += new;
            found.room.add(dispatch, assembled.threads, new);
            work += dispatch.sum as f64 / PARTS as f64;
            end = end.max(Some(dispatch.end));
            let sum = of_sequence.entry((place, dispatch.op)).or_default();
            sum.add(dispatch, assembled.threads, gap);
        }
        found.dispatches += assembled.dispatches.len() as u64;
        let begin = assembled.dispatches.first().map_or(0, |dispatch| dispatch.begin);
        found.room.span += end.map_or(0, |end| end.saturating_sub(begin)) as f64;
        room += (found.busy - busy) * assembled.threads as f64;
    }
    found.before = pauses.finish();
    found.room.outside = (found.room.span - found.busy).max(0.0);
    found.room.efficiency = if room > 0.0 { (work / room).clamp(0.0, 1.0) } else { 0.0 };
    let mut of_ops: BTreeMap<OpId, Durations> = BTreeMap::new();
    for ((_, op), sum) in sums.values().flatten() {
        of_ops.entry(profile.ops.row_of(*op)).or_default().append(sum.sums.clone());
    }
    found.of_ops =
        of_ops.into_iter().map(|(op, mut sums)| (op, DispatchTimes::of(&mut sums))).collect();
    for (sequence, sites) in sums {
        found.rows.extend(sites.into_iter().map(|((position, op), sum)| {
            let of = position.map(|_| sequence.len() as u32);
            sum.finish(op, position, of)
        }));
    }
    let passes = passes(profile, By::Op);
    if passes > 1 {
        found.rows.iter_mut().for_each(|site| site.be_mean_of(passes));
        found.busy /= passes as f64;
        found.before.be_mean_of(passes);
        found.room.be_mean_of(passes);
        found.dispatches /= passes;
    }
    (!found.rows.is_empty()).then_some(found)
}

/// One dispatch, with its times in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    pub process: usize,
    pub op: OpId,
    /// The number that the dispatch has in exported files and timelines.
    pub number: u64,
    /// Start of the dispatch's first workgroup.
    pub begin: u64,
    /// End of the dispatch's last workgroup.
    pub end: u64,
    /// The number of all workgroups of the dispatch, recorded or not.
    pub of: u64,
}

/// Returns all dispatches, process by process, in the order in which they began. `None` in a run
/// with a budget.
pub fn dispatches(profile: &Profile) -> Option<Vec<Dispatched>> {
    let brackets = Brackets::new(profile, true);
    let mut all = Vec::new();
    for process in 0..profile.processes.len() {
        for dispatch in assemble(profile, process, &brackets)?.dispatches {
            let Dispatch { op, begin, end, of, .. } = dispatch;
            let number = all.len() as u64 + 1;
            all.push(Dispatched { process, op, number, begin, end, of });
        }
    }
    Some(all)
}

/// The sites of processes with the same sequence, by position and function.
type Places = BTreeMap<(Option<u32>, OpId), Sum>;

/// A site while dispatches are added to it. `sum`, `sums`, `busiest` and `equal` are in units of
/// 1/[`crate::amounts::PARTS`] tick; other times are in ticks.
#[derive(Debug, Default)]
struct Sum {
    dispatches: u64,
    workgroups: u64,
    workers: usize,
    incomplete: u64,
    wall: u128,
    least: Option<u64>,
    most: u64,
    sum: u128,
    /// For each dispatch, the sum of its workgroups' durations.
    sums: Durations,
    /// Sum over the dispatches: wall time times number of threads.
    room: u128,
    busiest: u128,
    equal: f64,
    before: Pauses,
}

impl Sum {
    fn add(&mut self, dispatch: &Dispatch, threads: usize, gap: Option<u64>) {
        let wall = dispatch.end.saturating_sub(dispatch.begin);
        self.dispatches += 1;
        self.workgroups += dispatch.workgroups;
        self.workers = self.workers.max(threads);
        self.incomplete += u64::from(!dispatch.is_whole());
        self.wall += u128::from(wall);
        self.least = Some(self.least.map_or(wall, |least| least.min(wall)));
        self.most = self.most.max(wall);
        self.sum += u128::from(dispatch.sum);
        self.sums.push(dispatch.sum);
        self.room += u128::from(wall) * threads as u128;
        self.busiest += u128::from(dispatch.busiest);
        let workers = (threads as u64).min(dispatch.of).max(1);
        self.equal += dispatch.sum as f64 / workers as f64;
        gap.into_iter().for_each(|ticks| self.before.add(ticks));
    }

    fn finish(mut self, op: OpId, position: Option<u32>, of: Option<u32>) -> Site {
        let sum = ticks(self.sum);
        let part = |whole: f64| if whole > 0.0 { (sum / whole).clamp(0.0, 1.0) } else { 0.0 };
        Site {
            op,
            position,
            of,
            dispatches: self.dispatches,
            workgroups: self.workgroups,
            workers: self.workers,
            incomplete: self.incomplete,
            wall: self.wall as f64,
            mean: self.wall as f64 / self.dispatches.max(1) as f64,
            range: [self.least.unwrap_or(0) as f64, self.most as f64],
            dispatch: DispatchTimes::of(&mut self.sums),
            sum,
            efficiency: part(self.room as f64),
            imbalance: match self.equal > 0.0 {
                true => (self.busiest as f64 / self.equal).max(1.0),
                false => 1.0,
            },
            before: self.before.finish(),
        }
    }
}
