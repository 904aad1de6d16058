//! Checks whether counters work on this machine, and finds out why they do not. Counters of threads
//! are opened as the agent (the library in the recorded program) opens them.
//!
//! ```text
//!  all of them              ──► do they open and count at the same time? ──► if so, done
//!  if not: each one alone   ──► does it open and count?  ──► Problem { message, cause }
//!  if so: all of them again ──► which of them work at the same time? ──► Problem
//! ```

mod cause;
mod explain;

use std::time::{Duration, Instant};

use model::{Counter, PerfAttr, Scope, Source};

pub use cause::Cause;
use explain::explain;

use crate::files::Machine;
use crate::killer;
use counters::perf::{self, OpenError, OpenErrorKind, Target};
use counters::plan::{Plan, by_scope};
use counters::readings::{Coverage, Readings};
use counters::thread::{ReadStatus, ThreadCounters};

/// The reason why a counter or a set of counters does not work here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The whole message, such as `open cycles on this thread: ENOENT (no PMU in this virtual
    /// machine)`.
    pub message: String,
    /// The reason without the counter's name; empty if nothing is known beyond the error number.
    pub why: String,
    /// The reason as a value, from which the command line chooses its advice.
    pub cause: Cause,
    /// The kernel's error, if it refused to open the counter.
    pub error: Option<OpenError>,
}

/// The result of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// For each counter: For each counter: `Ok` if it works alone, or else the problem.
    pub counters: Vec<Result<(), Problem>>,
    /// The result for all counters in their groups. It is also `Ok` if some counter does not work
    /// alone, because the problem of that counter already explains the failure of all together.
    pub together: Result<(), Problem>,
}

impl Report {
    /// Returns the first problem, or `None` if the counters can be used.
    pub fn problem(&self) -> Option<&Problem> {
        let alone = self.counters.iter().find_map(|c| c.as_ref().err());
        alone.or(self.together.as_ref().err())
    }
}

/// Opens all counters of threads together for the calling thread, reads them until all have
/// counted, and closes them. Opens the counters of packages one by one. If any of this fails,
/// checks each counter alone. Takes some tenths of a millisecond, or tens of milliseconds if a
/// counter never runs.
pub fn check(counters: &[Counter], machine: &Machine) -> Report {
    if all_at_once(counters) {
        return Report { counters: vec![Ok(()); counters.len()], together: Ok(()) };
    }
    let alone: Vec<_> = counters.iter().map(|c| check_one(c, machine)).collect();
    let together = match alone.iter().all(Result::is_ok) {
        true => check_together(counters, machine),
        false => Ok(()),
    };
    Report { counters: alone, together }
}

/// Returns whether all counters open, those of threads count at the same time, and none would
/// always be 0. If so, each counter also works alone, so this need not be tried. Opening a counter
/// can be slow: the first counter of a kind of software counter makes the kernel change its own
/// code, for which it stops every processor.
pub fn all_at_once(counters: &[Counter]) -> bool {
    let (threads, packages) = by_scope(counters.to_vec());
    !counters.iter().any(is_always_zero)
        && packages.iter().all(|counter| probe_one(counter).is_ok())
        && Plan::new(threads).is_ok_and(|plan| probe_at_once(&plan).is_ok())
}

/// Returns whether the calling thread has the right to open this counter, with one system call that
/// opens nothing. The call asks to join a group whose descriptor does not exist. The kernel checks
/// rights before it looks at this descriptor, so the error `EBADF` means that the rights suffice
/// (Linux 4.14 to 6.18, from its source). The machine may still have no such counter.
pub fn is_allowed(counter: &Counter) -> bool {
    let Source::Perf(attr) = &counter.source else { return true };
    let no_group = i32::MAX;
    killer::survivable().is_ok()
        && perf::open(attr, Target::CALLING_THREAD, no_group)
            .is_err_and(|error| error.errno == libc::EBADF)
}

/// Divides a list of counters of threads into sets, each of which can be counted at once. The order
/// is kept. A set takes counters until the next counter does not fit, but at most `most`.
/// Neighbouring counters of a set are in one group if they have the same kind of source and the
/// second is not pinned.
///
/// # Errors
/// Fails with the problem of the first counter that does not work even alone.
pub fn sets(
    counters: &[Counter],
    most: usize,
    machine: &Machine,
) -> Result<Vec<Vec<Counter>>, Problem> {
    let mut sets: Vec<Vec<Counter>> = Vec::new();
    for counter in counters {
        check_one(counter, machine)?;
        if let Some(last) = sets.last_mut().filter(|last| last.len() < most)
            && let Some(grown) = with(last, counter, machine)
        {
            *last = grown;
            continue;
        }
        sets.push(vec![Counter { group: 0, ..counter.clone() }]);
    }
    Ok(sets)
}

/// Returns the set with one more counter, or `None` if the set is empty or the grown set cannot be
/// counted at once. The counter joins the last group if that has the same kind of source and the
/// counter is not pinned.
pub fn with(set: &[Counter], counter: &Counter, machine: &Machine) -> Option<Vec<Counter>> {
    let kind = |c: &Counter| matches!(c.source, Source::Sim(_));
    let pinned = matches!(&counter.source, Source::Perf(attr) if attr.pinned);
    let last = set.last()?;
    let joins = !pinned && kind(last) == kind(counter);
    let group = last.group + u16::from(!joins);
    let mut grown = set.to_vec();
    grown.push(Counter { group, ..counter.clone() });
    check_together(&grown, machine).is_ok().then_some(grown)
}

fn check_one(counter: &Counter, machine: &Machine) -> Result<(), Problem> {
    if is_always_zero(counter) {
        return Err(Problem {
            message: format!(
                "{} is always 0 with :u, because it happens in the kernel",
                counter.name
            ),
            why: "happens in the kernel, so it is always 0 without the kernel's part".into(),
            cause: Cause::AlwaysZero,
            error: None,
        });
    }
    probe_one(counter).map_err(|failure| match failure {
        Failure::Open { error, .. } => explain(counter, error, machine),
        failure => no_counts(&counter.name, failure),
    })
}

fn check_together(counters: &[Counter], machine: &Machine) -> Result<(), Problem> {
    let (counters, _) = by_scope(counters.to_vec());
    let plan = Plan::new(counters.clone()).map_err(|e| Problem {
        message: e.to_string(),
        why: String::new(),
        cause: Cause::Unknown,
        error: None,
    })?;
    let (at, error) = match probe_at_once(&plan) {
        Ok(()) => return Ok(()),
        Err(Failure::Open { counter, error }) => (counter, error),
        Err(Failure::TakesTurns { counter }) => return Err(take_turns(&counters, counter)),
        Err(failure) => return Err(no_counts(&names(&counters), failure)),
    };
    let refused = &counters[at];
    match error.kind {
        OpenErrorKind::Invalid | OpenErrorKind::NoSlot => {}
        _ => return Err(explain(refused, error, machine)),
    }
    // At this point, each counter is known to work alone, and the counters before the refused one
    // were opened together.
    let group: Vec<Counter> =
        counters.iter().filter(|c| c.group == refused.group).cloned().collect();
    let fits: Vec<Counter> =
        counters[..at].iter().filter(|c| c.group == refused.group).cloned().collect();
    let message = match fits.is_empty() {
        true => format!("open {} together with {}: {error}", refused.name, names(&counters[..at])),
        false => format!("open {} as one group: {error} at {}", names(&group), refused.name),
    };
    let fits = if fits.is_empty() { &counters[..at] } else { &fits };
    Err(too_many(message, fits, refused, error))
}

/// `fits` can be counted at once, but not together with `refused`.
fn too_many(message: String, fits: &[Counter], refused: &Counter, error: OpenError) -> Problem {
    let cause = Cause::TooMany {
        fits: list(fits),
        refused: vec![refused.name.clone()],
        // Breakpoints cannot take turns.
        can_take_turns: error.kind != OpenErrorKind::NoSlot,
    };
    let why = "too many for the machine at once".into();
    Problem { message, why, cause, error: Some(error) }
}

fn list(counters: &[Counter]) -> Vec<String> {
    counters.iter().map(|counter| counter.name.clone()).collect()
}

fn names(counters: &[Counter]) -> String {
    let names: Vec<&str> = counters.iter().map(|c| c.name.as_str()).collect();
    format!("{{{}}}", names.join(","))
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Open { counter: usize, error: OpenError },
    Read(ReadStatus),
    NeverRan { enabled_ns: u64 },
    TakesTurns { counter: usize },
}

fn no_counts(what: &str, failure: Failure) -> Problem {
    let (message, cause) = match failure {
        Failure::NeverRan { enabled_ns } => (
            format!("{what} opens but does not count (enabled for {enabled_ns} ns)"),
            Cause::NeverScheduled,
        ),
        Failure::Read(status) => {
            (format!("{what} opens but cannot be read: {status:?}"), Cause::Unreadable)
        }
        Failure::Open { counter, error } => {
            (format!("open counter {counter}: {error}"), Cause::Unknown)
        }
        Failure::TakesTurns { .. } => {
            (format!("{what} counts for only part of the time"), Cause::Unknown)
        }
    };
    Problem { message, why: "does not count".into(), cause, error: None }
}

fn probe_one(counter: &Counter) -> Result<(), Failure> {
    if let (Scope::Cpus(cpus), Source::Perf(attr)) = (&counter.scope, &counter.source) {
        return probe_cpus(attr, cpus);
    }
    let alone = Counter { group: 0, ..counter.clone() };
    match Plan::new(vec![alone]) {
        Ok(plan) => probe(&plan),
        Err(_) => {
            let error = OpenError::from_errno(libc::EINVAL);
            Err(Failure::Open { counter: 0, error })
        }
    }
}

/// Opens a counter of a package on each of `cpus`, without waiting until it counts.
fn probe_cpus(attr: &PerfAttr, cpus: &[u32]) -> Result<(), Failure> {
    for &cpu in cpus {
        let target = Target { pid: -1, cpu: cpu.cast_signed() };
        killer::try_open(attr, target).map_err(|error| Failure::Open { counter: 0, error })?;
    }
    Ok(())
}

fn is_clock(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.kind == 1 && attr.config <= 1)
}

fn probe(plan: &Plan) -> Result<(), Failure> {
    probe_with(plan, counts)
}

/// Like [`probe`], but also fails if a group has to wait while another one counts.
fn probe_at_once(plan: &Plan) -> Result<(), Failure> {
    probe_with(plan, |counters, plan| counts(counters, plan).and_then(|()| at_once(counters, plan)))
}

fn probe_with(
    plan: &Plan,
    body: impl FnOnce(&mut ThreadCounters<'_>, &Plan) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut counters = ThreadCounters::closed();
    killer::may_open(plan)
        .and_then(|()| counters.open(plan))
        .map_err(|f| Failure::Open { counter: f.counter, error: f.error })?;
    let result = body(&mut counters, plan);
    counters.close();
    result
}

/// Checks that all groups count without interruption for a tenth of a millisecond, unless the plan
/// has simulated counters. Groups that do not all fit into the PMU take turns.
fn at_once(counters: &mut ThreadCounters<'_>, plan: &Plan) -> Result<(), Failure> {
    if is_scripted(plan) {
        return Ok(());
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    let begun = counters.read(&mut begin);
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(100) {}
    let ended = counters.read(&mut end);
    if let Some(status) = [begun, ended].into_iter().find(|s| *s != ReadStatus::Complete) {
        return Err(Failure::Read(status));
    }
    let partly = |i: &usize| end.coverage(&begin, *i) != Coverage::Whole;
    let firsts = plan.groups().iter().map(|group| usize::from(group.first));
    match firsts.into_iter().find(partly) {
        Some(counter) => Err(Failure::TakesTurns { counter }),
        None => Ok(()),
    }
}

/// Finds out whether open counters count, and whether they do so at the same time.
pub fn count_at_once(open: &mut ThreadCounters<'_>, plan: &Plan) -> Result<(), Problem> {
    let groups = plan.groups().len();
    let result = counts(open, plan);
    let result = if groups > 1 { result.and_then(|()| at_once(open, plan)) } else { result };
    result.map_err(|failure| match failure {
        Failure::TakesTurns { counter } => take_turns(plan.counters(), counter),
        failure => no_counts(&names(plan.counters()), failure),
    })
}

fn is_scripted(plan: &Plan) -> bool {
    plan.counters().iter().any(|c| matches!(c.source, Source::Sim(_)))
}

/// `waits` is the index of a counter whose group had to wait.
fn take_turns(counters: &[Counter], waits: usize) -> Problem {
    let (waiting, others): (Vec<Counter>, Vec<Counter>) =
        counters.iter().cloned().partition(|c| c.group == counters[waits].group);
    let (message, cause) = match others.is_empty() {
        true => (format!("{} counts for only part of the time", names(&waiting)), Cause::SharedPmu),
        false => (
            format!("{} and {} take turns on the PMU", names(&others), names(&waiting)),
            Cause::TooMany { fits: list(&others), refused: list(&waiting), can_take_turns: true },
        ),
    };
    let why = "too many for the machine at once".into();
    Problem { message, why, cause, error: None }
}

/// Divides counters into groups, each of which the PMU can count at once, so that the groups can
/// take turns. A group is divided only where the machine refuses the next counter.
///
/// # Errors
/// Fails with the problem of the first counter that does not work alone, or that cannot take turns.
pub fn split(counters: &[Counter], machine: &Machine) -> Result<Vec<Counter>, Problem> {
    let mut split: Vec<Counter> = Vec::with_capacity(counters.len());
    let (mut typed, mut number) = (None, 0);
    for counter in counters {
        check_one(counter, machine)?;
        let begun = split.iter().rposition(|c| c.group != number).map_or(0, |at| at + 1);
        let mut group: Vec<Counter> = split[begun..].to_vec();
        let same = typed == Some(counter.group) && !group.is_empty();
        group.push(Counter { group: number, ..counter.clone() });
        let fits = same && {
            let alone = group.iter().map(|c| Counter { group: 0, ..c.clone() }).collect();
            Plan::new(alone).is_ok_and(|plan| probe(&plan).is_ok())
        };
        if !fits && !split.is_empty() {
            number += 1;
        }
        typed = Some(counter.group);
        split.push(Counter { group: number, ..counter.clone() });
    }
    // Counters that cannot take turns, such as breakpoints, fail here.
    match Plan::new(split.clone()).map(|plan| probe_with(&plan, |_, _| Ok(()))) {
        Ok(Err(Failure::Open { counter, error })) if error.kind == OpenErrorKind::NoSlot => {
            let (fits, refused) = (&split[..counter], &split[counter]);
            let message = format!(
                "open {} together with {}: {error} (hardware breakpoints do not take turns)",
                refused.name,
                names(fits)
            );
            Err(too_many(message, fits, refused, error))
        }
        Ok(Err(Failure::Open { counter, error })) => Err(explain(&split[counter], error, machine)),
        _ => Ok(split),
    }
}

/// Waits, for about 20 ms at most, until the times of every open group show that the group has
/// counted.
fn counts(counters: &mut ThreadCounters<'_>, plan: &Plan) -> Result<(), Failure> {
    if is_scripted(plan) {
        return Ok(()); // The times of a simulated counter are part of its script.
    }
    let mut now = Readings::new();
    let start = Instant::now();
    loop {
        let status = counters.read(&mut now);
        if status != ReadStatus::Complete {
            return Err(Failure::Read(status));
        }
        // A clock counter that does not advance is not running, even if the times of its group
        // grow.
        let stands = |i: usize| is_clock(&plan.counters()[i]) && now.value(i) == Some(0);
        let idle = (0..plan.counters().len()).find(|&i| now.running(i) == Some(0) || stands(i));
        match idle {
            None => return Ok(()),
            Some(i) if start.elapsed() > Duration::from_millis(20) => {
                let enabled_ns = now.enabled(i).unwrap_or(0);
                return Err(Failure::NeverRan { enabled_ns });
            }
            Some(_) => {}
        }
    }
}

/// The answer to the question whether a counter opens and counts here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opens {
    /// Works as the user typed it.
    Yes,
    /// Works only with `:u`, because counting in the kernel is forbidden.
    OnlyUser,
    /// Does not work.
    No(Problem),
}

/// Finds out whether a counter opens and counts here, or works with `:u` because counting in the
/// kernel is forbidden.
pub fn opens(counter: &Counter, machine: &Machine) -> Opens {
    match check_one(counter, machine) {
        Ok(()) => Opens::Yes,
        Err(problem) => match user_only(counter) {
            Some(narrow) if forbidden(&problem) && probe_one(&narrow).is_ok() => Opens::OnlyUser,
            _ => Opens::No(problem),
        },
    }
}

model::named! {
    /// The privilege that a user needs to open a counter.
    pub enum Privilege {
        /// Anyone can open the counter on every machine, because it is simulated.
        Anyone = "anyone",
        /// With `:u`, any user can open the counter if `perf_event_paranoid` is at most 2. Without
        /// `:u`, `perf_event_paranoid` must be at most 1, or the user needs CAP_PERFMON.
        User = "user",
        /// Any user can open the counter if `perf_event_paranoid` is at most 1, and a user with
        /// CAP_PERFMON always can. For tracepoints, the user must also be able to read tracefs.
        Kernel = "kernel",
        /// The counter counts all processes, so a user needs CAP_PERFMON, or `perf_event_paranoid`
        /// must be at most 0.
        System = "system",
        /// Only a user with CAP_PERFMON can open the counter. Root has that capability.
        PerfMon = "perfmon",
    }
}

pub fn needs(counter: &Counter, machine: &Machine) -> Privilege {
    let Source::Perf(attr) = &counter.source else { return Privilege::Anyone };
    let is_core = |kind| machine.core_types().iter().any(|&(_, core)| core == kind);
    match attr.kind {
        _ if !counter.scope.is_thread() => Privilege::System,
        _ if attr.path.is_some() => Privilege::PerfMon,
        _ if in_kernel_only(counter) => Privilege::Kernel,
        // The kernel lets any user count the system calls of his own threads.
        2 if counter.name.starts_with("syscalls:") => Privilege::User,
        2 => Privilege::Kernel,
        0 | 1 | 3 | 4 | 5 => Privilege::User,
        kind if is_core(kind) => Privilege::User,
        _ => Privilege::Kernel,
    }
}

fn forbidden(problem: &Problem) -> bool {
    let kind = problem.error.map(|e| e.kind);
    matches!(kind, Some(OpenErrorKind::AccessDenied | OpenErrorKind::NotPermitted))
}

fn has_filter(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.filter.is_some())
}

/// Returns whether this is a software counter of what the kernel does with a thread: context
/// switches, migrations or cgroup switches (linux/perf_event.h). With `:u`, such a counter would
/// always be 0, which a reader could take for a measured 0.
fn in_kernel_only(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.kind == 1 && matches!(attr.config, 3 | 4 | 11))
}

fn is_always_zero(counter: &Counter) -> bool {
    in_kernel_only(counter) && matches!(&counter.source, Source::Perf(attr) if attr.exclude_kernel)
}

/// Returns the counter with `:u` added. Returns `None` if it is simulated, already has a modifier
/// for modes, or could count nothing in user mode.
pub fn user_only(counter: &Counter) -> Option<Counter> {
    if in_kernel_only(counter) {
        return None;
    }
    let Source::Perf(attr) = &counter.source else { return None };
    if attr.exclude_user || attr.exclude_kernel || attr.exclude_hv {
        return None;
    }
    let attr = PerfAttr { exclude_kernel: true, exclude_hv: true, ..attr.clone() };
    let name = match counter.name.rsplit_once(':') {
        Some((head, letters)) if letters.chars().all(|c| "GHIpD".contains(c)) => {
            format!("{head}:u{letters}")
        }
        _ => format!("{}:u", counter.name),
    };
    Some(Counter { name, source: Source::Perf(attr), ..counter.clone() })
}
