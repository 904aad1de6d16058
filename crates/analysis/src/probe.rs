//! What the probes cost, and what an empty call reads.

use std::collections::BTreeMap;

use profile::{Calibration, Profile};

/// What an empty call is recorded as, by the calibration of its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmptyCall {
    /// Duration in ticks.
    pub ticks: u64,
    /// For each counter of the run what it adds; `None` if not calibrated.
    pub values: Vec<Option<u64>>,
}

/// What the probes of one process are estimated to have cost: calls × calibrated cost of a probe,
/// and the time spent in flushing pages. Calls with a set of counters that was not calibrated are
/// left out: with and without counters the cost differs by a factor of thirty.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// Process index.
    pub process: usize,
    /// Recorded calls whose set of counters was calibrated: what the estimate covers.
    pub calls: u64,
    /// All recorded calls.
    pub of_calls: u64,
    /// By how much one probe lengthens the program, ns: mean over those calls.
    pub per_call_ns: f64,
    /// The probes of those calls together, ns, summed over threads.
    pub probes_ns: f64,
    /// Flushing pages, ns, summed over threads.
    pub flush_ns: f64,
    /// What an empty call reads, for the calibrated set of counters that most calls had.
    pub empty_call: EmptyCall,
}

impl ProbeCost {
    /// Everything, ns, summed over threads.
    pub fn total_ns(&self) -> f64 {
        self.probes_ns + self.flush_ns
    }
}

/// The calibration of a process for pages with this set of counters. That of another set says
/// nothing about it.
fn calibration(profile: &Profile, process: usize, mask: u32) -> Option<&Calibration> {
    let all = &profile.processes.get(process)?.calibrations;
    all.iter().find(|c| c.counters == mask)
}

/// What an empty call reads in pages with this set of counters. `None`: not calibrated.
pub(crate) fn empty_call(profile: &Profile, process: usize, mask: u32) -> Option<EmptyCall> {
    let calibration = calibration(profile, process, mask)?;
    let values = (0..profile.groups.counters()).map(|i| {
        let read = calibration.counters >> i & 1 == 1;
        calibration.inside_values.get(i).copied().filter(|_| read)
    });
    Some(EmptyCall { ticks: calibration.inside_ticks, values: values.collect() })
}

/// Ticks that the probe of a call costs for which no counter is read, where other calls of the process
/// have counters. `None`: not calibrated.
pub(crate) fn timing_only(profile: &Profile, process: usize) -> Option<u64> {
    calibration(profile, process, 0).map(|calibration| calibration.total_ticks)
}

/// The cost in every process that recorded calls with a set of counters that was calibrated.
pub(crate) fn costs(profile: &Profile) -> Vec<ProbeCost> {
    (0..profile.processes.len()).filter_map(|process| cost(profile, process)).collect()
}

fn cost(profile: &Profile, process: usize) -> Option<ProbeCost> {
    let line = &profile.timeline;
    let (mut calls, mut of_calls, mut ticks, mut flush) = (0u64, 0u64, 0u128, 0u64);
    let mut by_set = BTreeMap::<u32, u64>::new();
    for thread in &profile.processes[process].threads {
        for header in thread.headers() {
            let mask = header.start.counters;
            let of_page = u64::from(header.calls);
            of_calls += of_page;
            if let Some(known) = calibration(profile, process, mask) {
                calls += of_page;
                ticks += u128::from(of_page) * u128::from(known.total_ticks);
                *by_set.entry(mask).or_default() += of_page;
            }
        }
        let spent = thread.headers().map(|h| h.start.flush_ticks).max().unwrap_or(0);
        flush = flush.saturating_add(spent);
    }
    if calls == 0 {
        return None;
    }
    let most = by_set.into_iter().max_by_key(|(_, calls)| *calls)?.0;
    let probes_ns = ticks as f64 * line.ns_per_tick();
    Some(ProbeCost {
        process,
        calls,
        of_calls,
        per_call_ns: probes_ns / calls as f64,
        probes_ns,
        flush_ns: line.duration_ns(flush),
        empty_call: empty_call(profile, process, most)?,
    })
}
