//! Makes estimates for runs with a budget for the cost of recording (`run --budget`). In such a
//! run, only some calls are timed, and the others are only counted. A call is *drawn* if it was
//! chosen at random to be timed. The first calls of an op are timed anyway, so they are not drawn.
//!
//! ```text
//!  Profile ─ pages of each thread, in order ─► Unit: strata per thread and export ─┐
//!          └ counted: exact numbers of calls ──────────────────────────────────────┴─► SampledRow
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`strata`] | estimates the sum over all calls of one thread and op, with its interval |
//! | [`pool`] | adds up the sums of a row's threads and ops, and decides whether the drawn calls suffice for an estimate and an interval |
//! | `weights` | computes the number of calls that each timed call represents |
//! | `by_step` | estimates numbers of calls that were counted only in some steps of the program |
//! | `collect` | reads a profile, and adds up the calls of each row |
//! | [`tail`] | estimates from the samples of all ops how much rare slow calls add to the variance |
//! | [`quantile`] | computes quantiles of values with weights |
//! | `values` | defines the estimates of rows and of a run |
//!
//! Numbers of calls are exact, unless a host (a runtime such as PyTorch) announced its calls only
//! in some steps (iterations) of the program. Sums, means and shares are estimates, with an
//! interval if enough calls were drawn. Numbers that cannot be estimated from the timed calls are
//! missing: see docs/sampling.md.

mod by_step;
mod collect;
pub mod pool;
pub mod quantile;
pub mod strata;
pub mod tail;
pub(crate) mod values;
mod weights;

use model::metric::Bound;

use crate::estimate::Estimate;
use crate::metrics::MetricValue;
use crate::table::Row;

pub use by_step::calls_of;
pub(crate) use collect::{Found, Sample};
pub use pool::Pool;
pub use strata::Strata;
pub use values::{Estimated, SampledCounter, SampledRow, SampledRun};
pub(crate) use weights::{SCALE, Weights};

/// Copies the estimates of `sampled` into the fields of `row`, so that views need not distinguish
/// exact values from estimates.
pub(crate) fn apply(row: &mut Row, sampled: SampledRow, metrics: &[Bound], raw: bool) {
    let timed = sampled.timed.max(1) as f64;
    let complete = sampled.calls == Some(sampled.timed);
    if let Some(calls) = sampled.calls.filter(|_| !complete) {
        // `taken` is the recorder's time that was subtracted from the timed calls, so it is scaled
        // to all calls.
        let each = calls as f64 / timed;
        if let Some(taken) = &mut row.taken {
            (taken.total, taken.own) = (taken.total.times(each), taken.own.times(each));
        }
        if let Some(total) = sampled.total {
            row.total = widened(total, row.taken.map(|taken| taken.total));
            // The self time is the total time if the row's calls have no other calls inside.
            // Otherwise, the self time is not known (`self_known`).
            row.own = row.total;
        }
        row.calls = calls;
        row.inner = 0;
    }
    if !complete {
        // Dispatches are counted by the workgroup ids of their calls, and a call that was only
        // counted has no known id.
        row.dispatches = None;
    }
    // Counters whose sum could not be estimated are removed: all of them in rows by CPU, and
    // counters that were read in too few calls. Counters are not read in all timed calls, so they
    // may be missing even if all calls of the row were timed.
    let known = |i: usize| sampled.counters.get(i).is_some_and(Option::is_some);
    let counters = row.counters.iter_mut().enumerate();
    counters.filter(|(i, _)| !known(*i)).for_each(|(_, counter)| *counter = None);
    let tells = |metric: &Bound| match metric.counters.as_slice() {
        [] => sampled.effective.is_some(),
        counters => counters.iter().all(|counter| known(*counter)),
    };
    let told = |(at, metric)| match tells(metric) {
        true => row.metrics.get(at),
        false => MetricValue::NONE,
    };
    row.metrics = metrics.iter().enumerate().map(told).collect();
    for (of_row, counter) in row.counters.iter_mut().zip(&sampled.counters) {
        let (Some(of_row), Some(counter)) = (of_row.as_mut(), counter) else { continue };
        let read = of_row.calls.max(1) as f64;
        of_row.brackets = of_row.brackets.map(|all| all.times(counter.calls as f64 / read));
        of_row.sampled = counter.total.interval;
        if counter.counted < counter.calls {
            of_row.total = counter.total.value.max(0.0).round() as u128;
        }
        of_row.calls = counter.calls;
        of_row.set_value(raw);
    }
    row.sampled = Some(Box::new(sampled));
}

/// Widens the interval of `total`, an estimate from a sample, by the uncertainty of `taken`, the
/// recorder's time.
pub(crate) fn widened(total: Estimated, taken: Option<Estimate>) -> Estimate {
    let of_sample = total.interval.unwrap_or(Estimate::exact(total.value));
    let taken = taken.unwrap_or_default();
    // The recorder's time is already subtracted from `total`, so only the uncertainty of this time
    // is added.
    of_sample.minus(Estimate {
        value: 0.0,
        low: taken.low - taken.value,
        high: taken.high - taken.value,
    })
}
