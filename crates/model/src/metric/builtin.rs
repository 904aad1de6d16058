//! Built-in metrics, which need no definition. They are offered if their counters were counted in
//! one group.

use super::names::Spelling;
use super::{Bound, Metric, Operand};

/// A metric with a commonly used definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// The name that views show.
    pub name: &'static str,
    /// The expression as a person would type it.
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

/// All built-in metrics, in the order in which views show them.
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

impl Builtin {
    /// Parses the metric.
    pub fn metric(&self) -> Option<Metric> {
        Metric::of(self.name, self.expression).ok()
    }
}

/// Returns the built-in metrics that can be computed from `operands`, which are all counters of a
/// run in their order. If a metric can be formed more than once (`cycles:u` and `cycles:k`), its
/// name contains the modes.
pub fn offered(operands: &[Operand<'_>]) -> Vec<Bound> {
    // Counters of the same group and the same modes, as indices into the list.
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
    let mut all: Vec<Bound> = Vec::new();
    for metric in BUILTINS.iter().filter_map(Builtin::metric) {
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
            if all.iter().all(|known| known.name != bound.name) {
                all.push(bound);
            }
        }
    }
    all
}
