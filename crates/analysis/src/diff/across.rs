//! Converts a run of a job with many ranks to the rows that a comparison needs. The run was read
//! from a dataset. Each row combines the calls of one op on all ranks.

use super::recorded::{Identity, Recorded, RunRow, number};
use crate::across::{OpAcross, RunAcross};

/// The floor and the typical execution are quantiles of histograms that are merged over all ranks.
/// Their relative error is at most 1/128. An op is compared by its mean if the histograms lack some
/// of its calls, for example because only a sample was timed. Counters are left out.
pub fn recorded(run: &RunAcross) -> Recorded {
    // The ops are sorted before they are numbered, so that equal ops get the same numbers in each
    // run.
    let mut ops: Vec<&OpAcross> = run.ops.iter().collect();
    ops.sort_by(|a, b| (&a.name, &a.key).cmp(&(&b.name, &b.key)));
    let mut rows: Vec<RunRow> = ops.into_iter().map(row).collect();
    number(&mut rows);
    Recorded {
        rows,
        total_ns: run.sums.own_ns.map(|ns| ns as f64),
        sampled: run.sums.is_estimate,
        is_unordered: true,
        ..Recorded::default()
    }
}

fn row(op: &OpAcross) -> RunRow {
    let ns = |ns: Option<i128>| ns.map(|ns| ns as f64);
    let call = |ns: Option<u64>| ns.map(|ns| ns as f64);
    let calls = op.sums.calls.unwrap_or(0);
    let total_ns = ns(op.sums.total_ns);
    let mean = total_ns.filter(|total| calls > 0 && *total > 0.0).map(|total| total / calls as f64);
    RunRow {
        identity: Identity {
            name: op.name.clone(),
            arguments: op.about.arguments.clone(),
            library: op.about.library.clone(),
            role: op.about.role.clone(),
            source: op.about.source.clone(),
            ..Identity::default()
        },
        calls: u64::try_from(calls).unwrap_or(u64::MAX),
        total_ns,
        own_ns: ns(op.sums.own_ns),
        call_p10_ns: call(op.p10_ns),
        dispatch_p10_ns: call(op.p10_ns),
        dispatch_p50_ns: call(op.p50_ns),
        mean_ns: mean.filter(|_| op.p50_ns.is_none()),
        ..RunRow::default()
    }
}
