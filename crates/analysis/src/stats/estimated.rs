//! In a run with a budget, adds estimates for all calls to the statistics of the described calls.

use profile::Profile;

use super::choice::Choice;
use super::collect::Who;
use super::{OpStats, Scope, Table, Variable};
use crate::sampled::{Sample, SampledRow};
use crate::table::Key;

/// Adds to each op and scope the number of all calls and the estimated total. If too few calls were
/// chosen at random for a variable, removes most of its statistics.
pub(super) fn add(
    profile: &Profile,
    choice: &Choice<'_>,
    sample: &Sample<'_>,
    by_rank: bool,
    ops: &mut [OpStats],
) {
    let key = |at: (usize, usize), export: u32| {
        let op = profile.ops.of(at.0, export);
        let row = |op| Key::Op(profile.ops.row_of(op));
        choice.has_thread(at).then(|| op.map_or(Key::Unknown(at.0, export), row))
    };
    let who = |at: (usize, usize)| match by_rank {
        true => Who::Rank(super::rank_of(profile, at.0)),
        false => Who::Thread(at.0, at.1),
    };
    let of_parts = sample.sets(|at, export| Some((key(at, export)?, who(at))));
    let of_ops = sample.sets(key);
    for op in ops.iter_mut() {
        let threads = op.threads.iter_mut();
        let threads = threads.map(|of| (Who::Thread(of.process, of.thread), &mut of.scope));
        let ranks = op.ranks.iter_mut().map(|(rank, scope)| (Who::Rank(Some(*rank)), scope));
        for (who, scope) in threads.chain(ranks) {
            if let Some(found) = of_parts.get(&(op.key, who)) {
                keep_known(profile, scope, &found.row);
            }
        }
        if let Some(found) = of_ops.get(&op.key) {
            keep_known(profile, &mut op.all, &found.row);
            op.estimated = found.row.total;
        }
    }
    let total = |op: &OpStats| op.estimated.map_or(0.0, |total| total.value);
    ops.sort_by(|a, b| total(b).total_cmp(&total(a)).then(a.key.cmp(&b.key)));
}

/// If a variable cannot be estimated, because too few calls were chosen at random, keeps only the
/// number of its values, the smallest value and the largest value. If the mean duration or a
/// counter's mean over all calls can be estimated, sets the variable's mean to this estimate, which
/// a report shows as well.
fn keep_known(profile: &Profile, scope: &mut Scope, row: &SampledRow) {
    scope.sampled = Some(Box::new(row.clone()));
    let timed = row.effective.is_some();
    if !timed {
        scope.effective = None;
    }
    let counters = profile.groups.counters();
    let known = |variable: usize| match variable.checked_sub(1) {
        Some(counter) if counter < counters => {
            row.counters.get(counter).is_some_and(|c| c.is_some())
        }
        Some(_) => timed,
        None => timed,
    };
    for (at, variable) in scope.variables.iter_mut().enumerate() {
        if !known(at) {
            let Variable { calls, min, max, .. } = *variable;
            let bucket_means = vec![None; variable.bucket_means.len()];
            *variable = Variable { calls, min, max, bucket_means, ..Variable::default() };
        }
    }
    if let Some(mean) = row.mean()
        && let Some(duration) = scope.variables.first_mut()
    {
        duration.mean = Some(mean.value);
    }
    let of_counters = scope.variables.iter_mut().skip(1).zip(&row.counters);
    for (variable, counter) in of_counters {
        variable.mean = counter.map(|counter| counter.mean().value).or(variable.mean);
    }
    for pair in &mut scope.pairs {
        if !known(pair.of) || !known(pair.given) {
            (pair.pearson, pair.spearman, pair.effective) = (None, None, None);
            pair.table = pair.table.as_ref().map(|_| Table::default());
        }
    }
}
