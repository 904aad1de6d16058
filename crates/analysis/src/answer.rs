//! Finds what matters most in a summary: for example, the few rows that take most of the time.

use std::collections::HashMap;

use profile::{OpId, Profile, Role};

use crate::estimate::Estimate;
use crate::summary::Summary;
use crate::table::{By, Key, PassTotal, Row};
use crate::threads::{ThreadTime, threads_of_program};

/// With fewer rows than this, [`Summary::most`] returns nothing: a reader sees at a glance where
/// the time went.
const ROWS: usize = 3;
/// "Most" means more than this part of the time; for [`Summary::dominant`], at least this part.
const MOST: f64 = 0.5;
/// An op or range (a stretch of time that the program named) that takes less than this part of its
/// threads' time in calls is not mentioned.
const AROUND_MUCH: f64 = 0.1;
/// An op or range that takes at least this part is regarded as the program's main loop or a run of
/// the model. To mention it would tell a reader nothing new.
const AROUND_ALL: f64 = 0.95;

/// The fewest rows that together take more than half of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Most {
    /// Number of these rows: less than half of the rows whose calls belong to threads.
    pub rows: usize,
    /// The part of the time that these rows take, from 0 to 1.
    pub share: f64,
}

/// The time that threads spent outside of recorded calls. Each thread's time is counted from its
/// first call on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outside {
    /// Number of threads.
    pub threads: usize,
    /// The time outside of calls, summed over these threads, in ns.
    pub ns: f64,
    /// The wall time, summed over these threads, in ns.
    pub wall_ns: f64,
    /// The part of `ns` in which the threads were on no CPU. `None` if for some thread it is not
    /// known, or only a bound of it is known.
    pub off_cpu_ns: Option<f64>,
    /// The time in calls, in ns.
    pub in_calls_ns: f64,
    /// The part of `in_calls_ns` in which the threads were on no CPU; `None` if unknown.
    pub off_cpu_in_calls_ns: Option<f64>,
}

/// A thread whose calls took longer because the kernel gave its CPU to other threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preempted<'a> {
    /// The thread. Its [`ThreadTime::usage`] is known.
    pub thread: &'a ThreadTime,
    /// The number of times that the kernel took the CPU from the thread.
    pub times: u64,
    /// `times` divided by the thread's processor time in seconds.
    pub per_second: f64,
    /// A lower bound of the time that the thread's calls were on no CPU, in ns.
    pub in_calls_ns: f64,
}

/// The op or range with the most time (including the calls inside of it), of those that
/// [`Summary::around`] considers. See [`Summary::around`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Around {
    /// The op or range.
    pub key: Key,
    /// The time of its calls in one pass (repetition of the recorded calls), in ns, including the
    /// calls inside.
    pub total_ns: f64,
    /// Number of threads that called it.
    pub threads: usize,
    /// The part of these threads' time in calls that was spent in the op or range, from 0 to 1.
    pub share: f64,
}

/// A function of a host (a runtime such as IREE) whose self time is at least half of the time in
/// calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dominant {
    /// The function. If several rows have the function's name, this is the op of the row with the
    /// most self time.
    pub op: OpId,
    /// The part of the time in calls that all rows with the function's name take together, from 0
    /// to 1.
    pub share: f64,
}

/// Sums over all calls of a profile, for the first line of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Together {
    /// The number of passes (repetitions of the recorded calls); 1 in a profile without passes. The
    /// other numbers are means over the passes.
    pub passes: u64,
    pub calls: u64,
    /// Number of dispatches (launches of a function over a grid of workgroups), if known.
    pub dispatches: Option<u64>,
    /// The time in calls, in ticks; `None` if not known.
    pub total: Option<f64>,
}

/// The numbers of a row for one pass: the mean over the passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InPass {
    /// Number of outermost calls (those that are not inside of another call of the row); `None` if
    /// the passes differ.
    pub calls: Option<u64>,
    /// Number of calls inside of other calls of the row.
    pub inner: u64,
    /// Number of dispatches; `None` if not known or if the passes differ.
    pub dispatches: Option<u64>,
    /// Sum of the durations, in ticks.
    pub total: Estimate,
    /// Sum of the self times, in ticks.
    pub own: Estimate,
}

/// Whether each row of a report is a mean over passes. Each pass repeats the calls of an op or a
/// rank, so their rows are means. A thread or a process belongs to a single pass.
pub fn are_means(profile: &Profile, by: By) -> bool {
    matches!(by, By::Op | By::Rank) && profile.manifest.passes > 0
}

/// Returns the number of passes over which each row of a report is averaged.
pub fn passes(profile: &Profile, by: By) -> u64 {
    if are_means(profile, by) { profile.passes().max(1).into() } else { 1 }
}

/// The first calls of an op, if they took much longer than its other calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowFirst {
    /// The part of the op's total time that these first calls take, from 0 to 1.
    pub share: f64,
}

/// An op with fewer calls than this is not examined for slow first calls.
const CALLS: u64 = 10;
/// First calls count as slow only if the longest of them takes more than this many times the op's
/// median duration.
const TIMES: f64 = 10.0;
/// First calls count as slow only if they take at least this part of the op's total time.
const PART: f64 = 0.05;
/// First calls count as slow only if they take at least this part of the time in all calls.
const OF_ALL: f64 = 0.01;

/// A thread counts as preempted only if the kernel took its CPU at least this many times.
const PREEMPTED: u64 = 50;
/// A thread counts as preempted only if the kernel took its CPU at least this many times per second
/// of the thread's processor time. A thread that has a CPU for itself still loses it a few times
/// per second to work of the kernel.
const PER_SECOND: f64 = 20.0;
/// A thread counts as preempted only if it was on no CPU for at least this part of its time in
/// calls.
const AWAY: f64 = 0.05;

impl ThreadTime {
    /// Returns a lower bound of the time, in ns, that the thread's calls were on no CPU. If it is
    /// not known how long the thread was on no CPU between calls, the longest possible time is
    /// assumed. `None` if the thread's processor time is not known.
    fn away_in_calls_ns(&self) -> Option<f64> {
        let between = self.no_dispatch_ns();
        let off =
            self.off_cpu.filter(|off| !off.assumed).map_or(between, |off| off.ns.min(between));
        Some((self.wall_ns - self.cpu_ns? - off).clamp(0.0, self.dispatch_ns))
    }

    /// Returns how often the kernel preempted the thread; `None` if the thread does not count as
    /// preempted. `computes` means that the thread's calls never wait by themselves.
    fn preempted(&self, computes: bool) -> Option<Preempted<'_>> {
        let (usage, cpu_ns) = (self.usage?, self.cpu_ns.filter(|ns| *ns > 0.0)?);
        let in_calls_ns = self.away_in_calls_ns().filter(|_| self.dispatch_known)?;
        let times = usage.involuntary_switches;
        let per_second = times as f64 / (cpu_ns / 1e9);
        // If a thread gives up its CPU more often than the kernel takes it, it is on no CPU because
        // it waits. For a thread whose calls never wait, this need not be checked.
        let is_taken = times >= PREEMPTED && (computes || times > usage.voluntary_switches);
        let is_often = is_taken && per_second >= PER_SECOND;
        let found = Preempted { thread: self, times, per_second, in_calls_ns };
        (is_often && in_calls_ns >= AWAY * self.dispatch_ns).then_some(found)
    }
}

impl Row {
    /// Returns the row's numbers for one of `passes` passes.
    pub fn in_pass(&self, passes: u64) -> InPass {
        let agree = |number: fn(&PassTotal) -> u64| passes <= 1 || self.passes_agree(number);
        let dispatches = self.dispatches.filter(|_| agree(|pass| pass.dispatches));
        let each = passes.max(1);
        InPass {
            calls: agree(|pass| pass.calls).then_some(self.calls / each),
            inner: self.inner / each,
            dispatches: dispatches.map(|n| n / each),
            total: self.total.times(1.0 / each as f64),
            own: self.own.times(1.0 / each as f64),
        }
    }
}

impl Row {
    /// Returns how far the passes' total durations are apart: (largest − smallest) / mean. `None`
    /// without passes.
    pub fn spread(&self) -> Option<f64> {
        let totals = || self.passes.iter().map(|pass| pass.total_ticks);
        let (least, most) = (totals().reduce(f64::min)?, totals().reduce(f64::max)?);
        let mean = totals().sum::<f64>() / self.passes.len() as f64;
        (mean > 0.0).then(|| (most - least) / mean)
    }
}

impl Outside {
    /// Returns `ns` as a part of `wall_ns`.
    pub fn share(&self) -> f64 {
        self.ns / self.wall_ns
    }

    /// Returns `off_cpu_ns` as a part of `ns`.
    pub fn off_cpu_share(&self) -> Option<f64> {
        self.off_cpu_ns.filter(|_| self.ns > 0.0).map(|off| off / self.ns)
    }

    /// Returns `off_cpu_in_calls_ns` as a part of `in_calls_ns`, at most 1.
    pub fn off_cpu_share_in_calls(&self) -> Option<f64> {
        let off = self.off_cpu_in_calls_ns.filter(|_| self.in_calls_ns > 0.0)?;
        Some((off / self.in_calls_ns).min(1.0))
    }
}

impl Summary {
    /// Returns the numbers of all calls and dispatches, and the time in calls. With several passes
    /// (repetitions of the recorded calls), these are means over the passes.
    pub fn together(&self, profile: &Profile, by: By) -> Together {
        let passes = passes(profile, by);
        let total = match &self.sampled {
            Some(run) => run.all.total.map(|all| all.value),
            None => self.total.map(|all| all.value),
        };
        Together {
            passes,
            calls: self.calls / passes,
            dispatches: self.dispatches.map(|n| n / passes),
            total: total.map(|total| total / passes as f64),
        }
    }

    /// Returns the part of a row's total time that its first calls took (one on each thread).
    /// `None` if the first calls were not much slower than the row's other calls, took little time,
    /// or cannot be compared.
    pub fn slow_first(&self, row: &Row) -> Option<SlowFirst> {
        let known = row.sampled.as_ref().is_none_or(|sampled| sampled.total.is_some());
        let all = self.total.map_or(0.0, |total| total.value);
        let share = row.first.total / row.total.value.max(1.0);
        // There must be at least as many other calls as first calls, to compare the first calls
        // with.
        let is_slow = known
            && row.calls >= CALLS.max(2 * row.first.calls)
            && row.first.max > TIMES * row.p50
            && share >= PART
            && row.first.total >= OF_ALL * all;
        is_slow.then_some(SlowFirst { share })
    }

    /// Returns a row's self time as a part of [`Summary::total`], from 0 to 1. `None` if it is not
    /// known, or if the row's calls belong to no thread.
    pub fn share(&self, profile: &Profile, row: &Row) -> Option<f64> {
        if row.key.is_apart(profile) {
            return None;
        }
        if self.sampled.is_some() {
            return Some(row.sampled.as_ref()?.share?.value);
        }
        let all = self.total.filter(|all| all.value > 0.0)?;
        Some((row.own.value / all.value).clamp(0.0, 1.0))
    }

    /// Returns the fewest rows whose self times together are more than half of the time in calls.
    /// `None` if a row's share is not known, if there are fewer than three rows, or if half of the
    /// rows or more are needed.
    pub fn most(&self, profile: &Profile) -> Option<Most> {
        let rows = self.rows.iter().filter(|row| !row.key.is_apart(profile));
        let shares: Option<Vec<f64>> = rows.map(|row| self.share(profile, row)).collect();
        let mut shares = shares.filter(|shares| shares.len() >= ROWS)?;
        shares.sort_by(|a, b| b.total_cmp(a));
        let mut share = 0.0;
        let last = shares.iter().position(|part| {
            share += part;
            share > MOST
        })?;
        let rows = last + 1;
        (rows * 2 < shares.len()).then_some(Most { rows, share: share.min(1.0) })
    }

    /// In a summary by op with nested calls, returns the op or range whose calls, including
    /// everything inside of them, took the most time. Leaves out ops and ranges that take nearly
    /// all of the time in calls on their threads. `None` if no op takes much time, or in a run with
    /// a budget (a limit for the cost of recording). Of ops with equal times, returns the one that
    /// comes first in the profile.
    pub fn around(&self, profile: &Profile) -> Option<Around> {
        if !self.nested || self.sampled.is_some() {
            return None;
        }
        let passes = passes(profile, By::Op) as f64;
        let found = self.rows.iter().filter_map(|row| {
            let Key::Op(op) = row.key else { return None };
            let op = profile.ops.get(op)?;
            if !matches!(op.role, Role::Op | Role::Range) || op.bookkeeping {
                return None;
            }
            let is_caller = |t: &&ThreadTime| row.threads.contains(&(t.process, t.thread));
            let in_calls_ns: f64 =
                self.threads.iter().filter(is_caller).map(|thread| thread.dispatch_ns).sum();
            let total_ns = row.total.value * profile.timeline.ns_per_tick();
            let share = (total_ns / in_calls_ns.max(1.0)).min(1.0);
            let is_told = (AROUND_MUCH..AROUND_ALL).contains(&share);
            let (key, threads) = (row.key, row.threads.len());
            is_told.then_some(Around { key, total_ns: total_ns / passes, threads, share })
        });
        found.max_by(|a, b| a.total_ns.total_cmp(&b.total_ns).then(b.key.cmp(&a.key)))
    }

    /// In a summary by op, returns the function that takes at least half of the time in calls.
    /// Considers only functions of hosts (runtimes such as IREE) whose functions can be
    /// instrumented, so that the user can look inside.
    pub fn dominant(&self, profile: &Profile) -> Option<Dominant> {
        let mut of_name: HashMap<(&str, &str), (f64, f64, OpId)> = HashMap::new();
        for row in &self.rows {
            let Key::Op(id) = row.key else { continue };
            let Some((op, share)) = profile.ops.get(id).zip(self.share(profile, row)) else {
                continue;
            };
            let is_only_around = matches!(op.role, Role::Run | Role::Range);
            if is_only_around || op.bookkeeping || profile.ops.host_of(op).inside.is_empty() {
                continue;
            }
            let of = of_name.entry((&op.library, &op.name)).or_insert((0.0, share, id));
            of.0 += share;
            if share > of.1 {
                (of.1, of.2) = (share, id);
            }
        }
        let all =
            of_name.into_values().map(|(share, _, op)| Dominant { op, share: share.min(1.0) });
        all.filter(|of| of.share >= MOST)
            .max_by(|a, b| a.share.total_cmp(&b.share).then(b.op.cmp(&a.op)))
    }

    /// Returns how long the threads were outside of calls, in ns, summed over all threads. `None`
    /// if it is not known or is 0.
    pub fn between(&self, profile: &Profile) -> Option<f64> {
        self.outside(profile).map(|outside| outside.ns).filter(|ns| *ns > 0.0)
    }

    /// Returns the thread with the most time in calls, and the time that it spent outside of calls.
    pub fn busiest(&self, profile: &Profile) -> Option<(&ThreadTime, Outside)> {
        self.outside(profile)?;
        let threads: Vec<&ThreadTime> = threads_of_program(profile, &self.threads).collect();
        // `max_by` returns the last of several equal threads, so the order is reversed to get the
        // first.
        let busiest =
            threads.into_iter().rev().max_by(|a, b| a.dispatch_ns.total_cmp(&b.dispatch_ns))?;
        let (ns, wall_ns) = (busiest.no_dispatch_ns(), busiest.wall_ns);
        let off = busiest.off_cpu.filter(|off| !off.assumed);
        let off_cpu_ns = off.map(|off| off.ns.min(ns));
        let (in_calls_ns, off_cpu_in_calls_ns) = (busiest.dispatch_ns, busiest.off_cpu_in_calls_ns);
        let outside =
            Outside { threads: 1, ns, wall_ns, off_cpu_ns, in_calls_ns, off_cpu_in_calls_ns };
        (wall_ns > 0.0).then_some((busiest, outside))
    }

    /// Returns the threads that often lost their CPU to other threads during calls, because the
    /// operating system preempted them. The thread that lost the most time is first.
    pub fn preempted(&self, profile: &Profile) -> Vec<Preempted<'_>> {
        // If all hosts (runtimes such as IREE) of a process run dispatches, its calls are
        // workgroups, which compute and never wait by themselves.
        let computes: Vec<bool> = profile
            .processes
            .iter()
            .map(|process| process.seen_hosts().all(|host| host.dispatches))
            .collect();
        let of = |thread: &'_ ThreadTime| computes.get(thread.process) == Some(&true);
        let found = self.threads.iter().filter_map(|thread| thread.preempted(of(thread)));
        let mut found: Vec<Preempted> = found.collect();
        found.sort_by(|a, b| b.in_calls_ns.total_cmp(&a.in_calls_ns));
        found
    }

    /// Returns the time that threads spent outside of calls. `None` if some thread's time in calls
    /// is not known, or if no thread has any wall time.
    pub fn outside(&self, profile: &Profile) -> Option<Outside> {
        let threads: Vec<&ThreadTime> = threads_of_program(profile, &self.threads).collect();
        let all_known = threads.iter().all(|thread| thread.dispatch_known);
        let wall_ns: f64 = threads.iter().map(|thread| thread.wall_ns).sum();
        if !all_known || wall_ns <= 0.0 {
            return None;
        }
        let ns = threads.iter().map(|thread| thread.no_dispatch_ns()).sum();
        let off = threads.iter().map(|t| Some(t.off_cpu.filter(|off| !off.assumed)?.ns));
        let off_cpu_ns = off.sum::<Option<f64>>().map(|off: f64| off.min(ns));
        Some(Outside {
            threads: threads.len(),
            ns,
            wall_ns,
            off_cpu_ns,
            in_calls_ns: threads.iter().map(|thread| thread.dispatch_ns).sum(),
            off_cpu_in_calls_ns: threads.iter().map(|thread| thread.off_cpu_in_calls_ns).sum(),
        })
    }
}
