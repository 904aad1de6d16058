//! Adds up the cost of recording over several processes.

use super::{Hits, ProbeCost, sum};
use crate::estimate::Estimate;

/// The cost of recording of several processes together, in ns of processor time.
#[derive(Clone, Debug)]
pub struct Price {
    /// Number of calls whose cost is known.
    pub calls: u64,
    /// Number of all recorded calls of these processes.
    pub of_calls: u64,
    /// The time that brackets (the recorder's work before and after calls) took.
    pub probes: Estimate,
    /// The time that brackets took according to the calibration alone.
    pub calibrated_ns: f64,
    /// Number of calls that were only counted and not recorded, in runs with a budget.
    pub only_counted: u64,
    /// The time that it took to count the calls in `only_counted`.
    pub counting: Estimate,
    /// The additional time that the program's own code takes after counters were read.
    pub after: Estimate,
    /// The time that hosts (runtimes such as PyTorch) needed to announce ops: to call the recorder
    /// before and after each op. `None` if it is unknown for all processes.
    pub way: Option<Estimate>,
    /// Whether a part of `way` comes from comparing steps of the program with and without announced
    /// ops.
    pub way_by_steps: bool,
    /// The time of threads that waited while others were in the recorder. `None` if it is unknown
    /// for all processes.
    pub waiting: Option<Estimate>,
    /// Whether some threads waited for a thread in the recorder, and it is not known for how long.
    pub waits_unknown: bool,
    /// The hits of instrumented loops and their cost.
    pub hits: Hits,
    /// Number of context switches of threads that have counters.
    pub switches: u64,
    /// The time that counters added to these context switches. `None` if it is unknown for at least
    /// one process.
    pub switched: Option<Estimate>,
    /// The cost of flushing pages (blocks of recorded calls).
    pub flush_ns: f64,
    /// The cost of attaching threads: opening counters, mapping pages, and calibrating.
    pub attach_ns: f64,
    /// The cost of loading and starting the recorder, before the first calls. `None` if it is
    /// unknown for all processes.
    pub start: Option<Estimate>,
    pub total: Estimate,
    /// The cost as a part of the processor time that the program would have used without recording.
    pub of_program: Option<Estimate>,
    /// Like `of_program`, but without the cost of attaching threads and starting.
    pub of_program_by_calls: Option<f64>,
    /// The cost as a part of the processor time that was used, which includes recording.
    pub of_used: Option<f64>,
    /// The processor time of the processes' threads, each from its first call on. `None` if it is
    /// unknown for at least one process.
    pub cpu_ns: Option<f64>,
    /// The cost without attaching threads and starting, as a part of the threads' time in calls.
    /// `None` if that time is unknown or 0.
    pub of_dispatches: Option<Estimate>,
}

impl Price {
    /// Adds up the costs of processes, which together recorded `of_calls` calls. `None` without
    /// processes.
    pub fn of<'a>(costs: impl IntoIterator<Item = &'a ProbeCost>, of_calls: u64) -> Option<Self> {
        let probes: Vec<&ProbeCost> = costs.into_iter().collect();
        if probes.is_empty() {
            return None;
        }
        let add = |of: fn(&ProbeCost) -> f64| probes.iter().map(|p| of(p)).sum::<f64>();
        let all =
            |of: fn(&ProbeCost) -> Option<f64>| probes.iter().map(|p| of(p)).sum::<Option<f64>>();
        let range = |of: fn(&ProbeCost) -> Estimate| sum(probes.iter().map(|p| of(p)));
        let some = |of: fn(&ProbeCost) -> Option<Estimate>| {
            let known: Vec<Estimate> = probes.iter().filter_map(|p| of(p)).collect();
            (!known.is_empty()).then(|| sum(known))
        };
        let total = range(ProbeCost::total);
        let of_all_calls = range(ProbeCost::of_calls);
        let part = |of: Option<f64>| of.filter(|ns| *ns > 0.0);
        let program = part(all(ProbeCost::program_ns));
        let is_known = probes.iter().all(|p| p.switched.is_some());
        Some(Self {
            calls: probes.iter().map(|p| p.calls).sum(),
            of_calls,
            probes: range(|p| p.probes),
            calibrated_ns: add(|p| p.calibrated_per_call_ns * p.calls as f64),
            only_counted: probes.iter().map(|p| p.only_counted).fold(0, u64::saturating_add),
            counting: range(|p| p.counting),
            after: range(|p| p.after),
            way: some(|p| p.way),
            way_by_steps: probes.iter().any(|p| p.way_by_steps),
            waiting: some(|p| p.waiting),
            waits_unknown: probes.iter().any(|p| p.waits && p.waiting.is_none()),
            hits: Hits {
                hits: probes.iter().fold(0, |sum, p| sum.saturating_add(p.hits.hits)),
                unknown: probes.iter().fold(0, |sum, p| sum.saturating_add(p.hits.unknown)),
                cost: range(|p| p.hits.cost),
            },
            switches: probes.iter().fold(0, |sum, p| sum.saturating_add(p.switches)),
            switched: some(|p| p.switched).filter(|_| is_known),
            flush_ns: add(|p| p.flush_ns),
            attach_ns: add(|p| p.attach_ns),
            start: some(|p| p.start),
            total,
            of_program: program.map(|ns| total.times(1.0 / ns)),
            of_program_by_calls: program.map(|ns| of_all_calls.value / ns),
            of_used: part(all(ProbeCost::used_ns)).map(|ns| total.value / ns),
            cpu_ns: all(|p| p.cpu_ns),
            of_dispatches: part(all(|p| p.dispatch_ns)).map(|ns| of_all_calls.times(1.0 / ns)),
        })
    }

    /// Returns the mean time of the bracket of a call.
    pub fn per_call_ns(&self) -> f64 {
        self.probes.value / self.calls.max(1) as f64
    }

    /// Returns the mean time of the bracket of a call according to the calibration alone.
    pub fn calibrated_per_call_ns(&self) -> f64 {
        self.calibrated_ns / self.calls.max(1) as f64
    }
}
