//! Lists the built-in metrics, which need no definition.

use super::names::Spelling;
use super::{Bound, Metric, Operand};

/// A metric with a commonly used definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// The name that views show.
    pub name: &'static str,
    /// The expression.
    pub expression: &'static str,
    /// Description of one line.
    pub description: &'static str,
}

const fn builtin(
    name: &'static str,
    expression: &'static str,
    description: &'static str,
) -> Builtin {
    Builtin { name, expression, description }
}

/// The built-in metrics that do not depend on a vendor.
pub const BUILTINS: &[Builtin] = &[
    builtin("ipc", "instructions / cycles", "instructions per cycle"),
    builtin("cpi", "cycles / instructions", "cycles per instruction"),
    builtin("frequency", "cycles / duration in GHz", "cycles per time, waiting included"),
    builtin(
        "frontend-stalled",
        "stalled-cycles-frontend / cycles in %",
        "cycles in which no instruction was delivered",
    ),
    builtin(
        "backend-stalled",
        "stalled-cycles-backend / cycles in %",
        "cycles in which the execution units took no instruction",
    ),
    builtin("cache-miss-rate", "cache-misses / cache-references in %", "last-level cache misses"),
    builtin(
        "L1d-miss-rate",
        "L1-dcache-load-misses / L1-dcache-loads in %",
        "loads that miss the first-level data cache",
    ),
    builtin("LLC-miss-rate", "LLC-load-misses / LLC-loads in %", "loads that go to memory"),
    builtin(
        "dTLB-miss-rate",
        "dTLB-load-misses / dTLB-loads in %",
        "loads whose page is not in the data TLB",
    ),
    builtin(
        "branch-miss-rate",
        "branch-misses / branch-instructions in %",
        "branches that were predicted wrongly",
    ),
    builtin("cache-mpki", "1000 * cache-misses / instructions", "per thousand instructions"),
    builtin("L1d-mpki", "1000 * L1-dcache-load-misses / instructions", "likewise"),
    builtin("LLC-mpki", "1000 * LLC-load-misses / instructions", "likewise"),
    builtin("dTLB-mpki", "1000 * dTLB-load-misses / instructions", "likewise"),
    builtin("branch-mpki", "1000 * branch-misses / instructions", "likewise"),
    builtin("cpu-utilisation", "task-clock / duration in %", "of the time, on a CPU"),
    builtin("fault-rate", "page-faults / duration", "page faults per second"),
    builtin("switch-rate", "context-switches / duration", "context switches per second"),
];

/// Makes the expression for a share of the pipeline slots of Intel's cores, from Ice Lake on. The
/// four counters in the divisor together count all slots.
macro_rules! intel {
    ($of:literal) => {
        concat!(
            "(",
            $of,
            ") / (topdown-retiring + topdown-bad-spec + topdown-fe-bound + topdown-be-bound) in %"
        )
    };
}

/// Makes the expression for a share of the dispatch slots of AMD's Zen 4, which has six slots in
/// each cycle. Zen 5 has eight.
macro_rules! zen4 {
    ($of:literal) => {
        concat!("(", $of, ") / (6 * ls_not_halted_cyc) in %")
    };
}

/// Top-down metrics by vendor: how many of the slots for operations were used, and why others
/// stayed empty.
///
/// Sources: for Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 3B,
/// section "Performance Metrics" (PERF_METRICS), and `tools/perf/Documentation/topdown.txt` of
/// Linux 6.12, which says that the kernel returns the metrics as numbers of slots. For AMD,
/// "Processor Programming Reference for Family 19h Model 11h", events 0x0aa and 0x1a0, and the
/// group `PipelineL1` of Linux 6.12, `tools/perf/pmu-events/arch/x86/amdzen4/pipeline.json`. None
/// of these metrics was tried on a processor with these counters: the tests use simulated counts.
pub const TOP_DOWN: &[Builtin] = &[
    builtin("retiring", intel!("topdown-retiring"), "slots whose operation retired"),
    builtin("bad-speculation", intel!("topdown-bad-spec"), "slots lost to wrong predictions"),
    builtin("frontend-bound", intel!("topdown-fe-bound"), "slots that got no operation to issue"),
    builtin("backend-bound", intel!("topdown-be-bound"), "slots that waited for data or units"),
    builtin("branch-mispredicts", intel!("topdown-br-mispredict"), "bad-speculation by branches"),
    builtin("fetch-latency", intel!("topdown-fetch-lat"), "frontend-bound: nothing at all came"),
    builtin("memory-bound", intel!("topdown-mem-bound"), "backend-bound: waiting for memory"),
    builtin(
        "core-bound",
        intel!("topdown-be-bound - topdown-mem-bound"),
        "backend-bound: waiting for units and other operations",
    ),
    builtin("retiring", zen4!("ex_ret_ops"), "slots whose operation retired"),
    builtin(
        "bad-speculation",
        zen4!("de_src_op_disp.all - ex_ret_ops"),
        "slots of operations that did not retire",
    ),
    builtin(
        "frontend-bound",
        zen4!("de_no_dispatch_per_slot.no_ops_from_frontend"),
        "slots that got no operation from the front end",
    ),
    builtin(
        "backend-bound",
        zen4!("de_no_dispatch_per_slot.backend_stalls"),
        "slots that waited for the back end",
    ),
    builtin(
        "smt-contention",
        zen4!("de_no_dispatch_per_slot.smt_contention"),
        "slots that the other thread of the core had",
    ),
];

/// Returns all built-in metrics. Several metrics in the list can have the same name, for different
/// processors.
pub fn all() -> impl Iterator<Item = &'static Builtin> {
    BUILTINS.iter().chain(TOP_DOWN)
}

/// Returns the first built-in metric with this name that can be computed from `operands`. If there
/// is none, returns the first metric with this name.
pub fn named(name: &str, operands: &[Operand<'_>]) -> Option<&'static Builtin> {
    let with_name = || all().filter(|builtin| builtin.name == name);
    let fits =
        |builtin: &&Builtin| builtin.metric().is_some_and(|metric| metric.bind(operands).is_ok());
    with_name().find(fits).or_else(|| with_name().next())
}

impl Builtin {
    /// Parses the metric.
    pub fn metric(&self) -> Option<Metric> {
        Metric::of(self.name, self.expression).ok()
    }
}

/// Returns the built-in metrics that can be computed from `operands`. If several sets of counters
/// (`cycles:u` and `cycles:k`) give the same metric, the modes of each set are a suffix of the
/// metric's name. Of metrics with equal names, only the first is returned.
pub fn offered(operands: &[Operand<'_>]) -> Vec<Bound> {
    // Each set has the counters of one group that count in the same modes, as indices into
    // `operands`.
    let mut sets: Vec<(u16, String, Vec<usize>)> = Vec::new();
    for (place, operand) in operands.iter().enumerate() {
        let modes = Spelling::of(operand.name).modes();
        match sets
            .iter_mut()
            .find(|(group, of, _)| (*group, of.as_str()) == (operand.group, &modes))
        {
            Some((.., set)) => set.push(place),
            None => sets.push((operand.group, modes, vec![place])),
        }
    }
    let mut found: Vec<Bound> = Vec::new();
    for metric in all().filter_map(Builtin::metric) {
        let formed = sets.iter().filter_map(|(_, modes, set)| {
            let chosen: Vec<Operand<'_>> = set.iter().map(|place| operands[*place]).collect();
            let mut bound = metric.bind(&chosen).ok()?;
            bound.counters.iter_mut().for_each(|place| *place = set[*place]);
            bound.builtin = true;
            Some((modes, bound))
        });
        let formed: Vec<(&String, Bound)> = formed.collect();
        let several = formed.len() > 1;
        for (modes, mut bound) in formed {
            if several && !modes.is_empty() {
                bound.name = format!("{}:{modes}", bound.name);
            }
            if found.iter().all(|known| known.name != bound.name) {
                found.push(bound);
            }
        }
    }
    found
}
