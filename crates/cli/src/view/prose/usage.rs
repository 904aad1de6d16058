//! Shows what the operating system counted for threads: processor time, page faults and context
//! switches.

use profile::Usage;
use serde::Serialize;

use super::overview::Overview;
use crate::view::labels::process_label;
use crate::view::units::{grouped, plural, time};

/// Returns a text about what the operating system counted for the threads. `None` if no counts are
/// known.
pub fn text(overview: &Overview<'_>) -> Option<String> {
    let used = |process: Option<usize>| {
        let threads = overview.summary.threads.iter();
        let mine = threads.filter(|t| process.is_none_or(|process| t.process == process));
        mine.filter_map(|t| t.usage)
            .fold((0u128, Usage::default()), |(n, sum), more| (n + 1, sum.plus(&more)))
    };
    // The table of threads has the same processor time. If a process was killed, this time ends
    // with the last reading of each thread's clocks, while the other counts can end earlier.
    let cpu_ns = |process: Option<usize>| -> f64 {
        let threads = overview.summary.threads.iter().filter(|t| t.usage.is_some());
        let mine = threads.filter(|t| process.is_none_or(|process| t.process == process));
        mine.filter_map(|t| t.cpu_ns).sum()
    };
    let (threads, all) = used(None);
    if threads == 0 {
        return None;
    }
    let mut processes: Vec<usize> = overview.summary.threads.iter().map(|t| t.process).collect();
    processes.dedup();
    let since = if threads == 1 { "its first call" } else { "their first calls" };
    let mut text =
        format!("{}, in {} since {since}", one(cpu_ns(None), &all), plural(threads, "thread"));
    if processes.len() > 1 {
        for process in processes.iter().take(PROCESSES) {
            let label = process_label(overview.profile, *process);
            // Counts are missing, for example, if the process was killed before it stored any.
            let counted = match used(Some(*process)) {
                (0, _) => "not known".to_owned(),
                (_, used) => one(cpu_ns(Some(*process)), &used),
            };
            text.push_str(&format!("; {label}: {counted}"));
        }
        if let Some(more) = processes.len().checked_sub(PROCESSES).filter(|more| *more > 0) {
            text.push_str(&format!("; and {more} more (--format json has them)"));
        }
    }
    Some(text)
}

/// At most this many processes are listed.
const PROCESSES: usize = 4;

fn one(cpu_ns: f64, used: &Usage) -> String {
    format!(
        "{} on a CPU, {} ({} major), {} ({} involuntary)",
        time(cpu_ns),
        plural(u128::from(used.minor_faults) + u128::from(used.major_faults), "page fault"),
        grouped(used.major_faults.into()),
        plural(used.switches().into(), "context switch"),
        grouped(used.involuntary_switches.into())
    )
}

/// The member `usage` of a thread or process in JSON.
#[derive(Serialize)]
pub struct UsageOut {
    of_ns: f64,
    cpu_ns: u64,
    minor_faults: u64,
    major_faults: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
}

impl UsageOut {
    pub fn new(overview: &Overview<'_>, used: &Usage) -> Self {
        Self {
            of_ns: overview.profile.timeline.duration_ns(used.ticks),
            cpu_ns: used.cpu_ns,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
        }
    }

    /// Returns the sum over all threads of a process.
    pub fn of_process(overview: &Overview<'_>, process: usize) -> Option<Self> {
        let threads = overview.summary.threads.iter().filter(|t| t.process == process);
        let used = threads.filter_map(|t| t.usage).reduce(|sum, more| sum.plus(&more))?;
        Some(Self::new(overview, &used))
    }
}
