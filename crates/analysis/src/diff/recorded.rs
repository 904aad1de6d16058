//! Computes the rows of one run from its profile, with the same tables that `report` prints.

use std::collections::HashMap;

use model::metric::Bound;
use profile::batch::unknown_op;
use profile::{LossCount, Op, Profile, merge_losses};

use crate::loops::{LoopData, LoopNode, LoopTree, loops};
use crate::sampled::Estimated;
use crate::sites::{Site, Sites, sites};
use crate::summary::{Options, Summary, summarize};
use crate::table::{By as TableBy, Key, Row};
use crate::torch::by_module;

/// The kind of the rows of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// An op, as in a report.
    #[default]
    Op,
    /// A place in the program at which dispatches of IREE are launched.
    Site,
    /// A loop or function of an instrumented module.
    Loop,
    /// A PyTorch module.
    Module,
    /// A kind of activities (work of a device).
    Activity,
}

/// Identifies a row of a run. Usually, the same row of another run has an equal identity. The
/// identity contains nothing that differs between processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Name of the op, loop, module or kind of activities; for a site, of its op.
    pub name: String,
    /// Types and shapes of the arguments, or empty.
    pub arguments: String,
    /// Device of the arguments, or empty.
    pub device: String,
    /// Name of the library.
    pub library: String,
    /// The role of the op's calls, for example `workgroup` or `op`.
    pub role: String,
    /// Source location, `path:line`, if the compiler recorded one.
    pub source: Option<String>,
    /// The number of earlier rows with equal values in all fields above.
    pub nth: u32,
}

/// A row of one run. Times are in ns, without the time that the recorder added unless
/// [`Recorded::raw`] is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRow {
    pub identity: Identity,
    /// Number of outermost calls (those that are not inside of another call of the row); for a
    /// site, number of dispatches; for a loop, number of hits (entries).
    pub calls: u64,
    /// The number of calls with its interval, if it is an estimate in a run with a budget (a limit
    /// for the cost of recording).
    pub estimated_calls: Option<Estimated>,
    /// Number of dispatches; `None` if it is not known, or in a run with a budget.
    pub dispatches: Option<u64>,
    /// Sum of the durations; `None` if it is not known.
    pub total_ns: Option<f64>,
    /// The sum of the durations with its interval, if it is estimated from the timed calls of a run
    /// with a budget.
    pub estimated_total_ns: Option<Estimated>,
    /// Sum of the self times. `None` if it is not known, or if the calls belong to no thread.
    pub own_ns: Option<f64>,
    /// Duration of the shortest call; for a site, of the shortest dispatch. `None` if it is not
    /// known, for example in a run with a budget or in a dataset.
    pub call_min_ns: Option<f64>,
    /// Shortest dispatch, with durations as in `dispatch_p10_ns`.
    pub dispatch_min_ns: Option<f64>,
    /// 10th percentile of single calls; for a site, of dispatches.
    pub call_p10_ns: Option<f64>,
    /// 10th percentile over dispatches. The duration of a dispatch is the sum over its workgroups.
    /// For a row without dispatches, the 10th percentile of single calls.
    pub dispatch_p10_ns: Option<f64>,
    /// Median over dispatches, with durations as in `dispatch_p10_ns`.
    pub dispatch_p50_ns: Option<f64>,
    /// Mean duration of a call, for rows whose percentiles are not known (for example loops and
    /// modules).
    pub mean_ns: Option<f64>,
    /// Values of counters, in the order of the profile, and then of metrics.
    pub readings: Vec<Reading>,
}

impl RunRow {
    /// Returns the number of dispatches or, if there are none, of calls.
    pub fn executions(&self) -> f64 {
        self.dispatches.filter(|n| *n > 0).unwrap_or(self.calls) as f64
    }
}

/// The value of a counter or metric in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The name of the counter or metric.
    pub name: String,
    /// The unit of the counter or metric.
    pub unit: String,
    /// The sum of the values as they were read, and the number of calls in which the counter was
    /// read. `None` for metrics, for estimates, and for a loop if the counter was not read at every
    /// hit.
    pub exact: Option<(u128, u64)>,
    /// For a counter, the mean per call, without what the recorder added. For a counter of a loop,
    /// the mean per hit, as it was read. For a metric, its value.
    pub value: f64,
    pub is_metric: bool,
}

/// The data of one run that a comparison needs. If the run has several passes (repetitions of the
/// recorded calls), the times below are means over the passes.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// The rows in the order of the program, as far as that is known.
    pub rows: Vec<RunRow>,
    /// Rows by op. The self times of these rows add up to the time in calls. Empty if `rows` are by
    /// op.
    pub ops: Vec<RunRow>,
    /// Time in recorded calls, in ns. `None` if it is not known.
    pub total_ns: Option<f64>,
    /// The sum of the threads' wall times outside of recorded calls, in ns.
    pub between_ns: Option<f64>,
    /// Processor time of all processes with calls, from their start to their end, in ns. The known
    /// cost of recording is subtracted unless `raw` is set. `None` if a process with calls did not
    /// end in an orderly way, or was recorded only in part.
    pub processor_ns: Option<f64>,
    /// Whether values include the time that the recorder added: on request, or because the
    /// corrected values contradict each other.
    pub raw: bool,
    /// Whether only some calls were timed.
    pub sampled: bool,
    /// Set for a dataset, whose rows are not in the order of the program. Not set for rows of
    /// modules and activities, although they are not in this order, either.
    pub is_unordered: bool,
    /// What the recording lacks. Empty for a dataset.
    pub losses: Vec<LossCount>,
}

impl Recorded {
    /// Returns the rows whose self times add up to the time in calls.
    pub fn parts(&self, by: By) -> &[RunRow] {
        if by == By::Op { &self.rows } else { &self.ops }
    }
}

/// Reads one run. With `raw`, the time that the recorder added is not subtracted.
///
/// # Errors
/// Fails if the loops or activities of the profile cannot be read.
pub fn recorded(
    profile: &Profile,
    by: By,
    raw: bool,
    metrics: &[Bound],
) -> profile::Result<Recorded> {
    let options = Options { raw, metrics: metrics.to_vec(), ..Options::default() };
    let summary = summarize(profile, &options);
    let sites = sites(profile, summary.raw);
    let ops = ops(profile, &summary, sites.as_ref(), metrics, TableBy::Op);
    let per_pass = crate::answer::passes(profile, TableBy::Op) as f64;
    let found = Recorded {
        total_ns: summary.total.map(|all| all.value * profile.timeline.ns_per_tick() / per_pass),
        between_ns: summary.between(profile).map(|ns| ns / per_pass),
        processor_ns: processor_ns(profile, &summary).map(|ns| ns / per_pass),
        raw: summary.raw,
        sampled: summary.sampled.as_ref().is_some_and(|run| run.all.calls != Some(run.all.timed)),
        losses: summary.losses.clone(),
        ..Recorded::default()
    };
    let mut losses = vec![];
    let rows = match by {
        By::Op => return Ok(Recorded { rows: ops, ..found }),
        By::Site => sites.as_ref().map_or_else(Vec::new, |sites| of_sites(profile, sites)),
        By::Loop => of_loops(profile, summary.raw, &mut losses)?,
        By::Module => of_modules(profile)?,
        By::Activity => {
            let summary = summarize(profile, &Options { by: TableBy::Kind, ..options });
            let mut rows = self::ops(profile, &summary, None, metrics, TableBy::Kind);
            rows.retain(|row| !row.identity.name.is_empty());
            rows
        }
    };
    let losses = merge_losses(found.losses.iter().chain(&losses));
    Ok(Recorded { rows, ops, losses, ..found })
}

/// Returns the processor time of all processes with calls. The known cost of recording is
/// subtracted, unless the values of the summary are as recorded.
fn processor_ns(profile: &Profile, summary: &Summary) -> Option<f64> {
    let mut sum = 0.0;
    for (index, process) in profile.processes.iter().enumerate() {
        // A process's plugins are stored as another process, which would add the same processor
        // time again.
        if process.threads.is_empty() || process.id.is_of_plugins() {
            continue;
        }
        let used = process.cost.map(|cost| cost.process_cpu_ns as f64).filter(|ns| *ns > 0.0)?;
        let cost = summary.probes.iter().find(|cost| cost.process == index && !summary.raw);
        sum += match cost {
            Some(cost) => cost.program_ns()?,
            None => used,
        };
    }
    Some(sum).filter(|ns| *ns > 0.0)
}

/// Sets `nth` of each row, so that equal rows have different identities.
pub(super) fn number(rows: &mut [RunRow]) {
    let mut seen: HashMap<Identity, u32> = HashMap::new();
    for row in rows {
        let known = seen.entry(row.identity.clone()).or_default();
        row.identity.nth = *known;
        *known += 1;
    }
}

fn identity(op: &Op) -> Identity {
    Identity {
        name: op.shown_name().to_owned(),
        arguments: op.arguments.clone(),
        device: op.device.clone(),
        library: op.library.to_string(),
        role: op.role.name().to_owned(),
        source: op.source(),
        nth: 0,
    }
}

/// Returns the rows of a summary, in the order of their first dispatches in one iteration of the
/// program. Rows without such a dispatch follow, in the order of their keys.
fn ops(
    profile: &Profile,
    summary: &Summary,
    sites: Option<&Sites>,
    metrics: &[Bound],
    by: TableBy,
) -> Vec<RunRow> {
    let place = |row: &Row| {
        let Key::Op(op) = row.key else { return None };
        let of = |site: &&Site| profile.ops.row_of(site.op) == op;
        sites?.rows.iter().filter(of).filter_map(|site| site.position).min()
    };
    let mut order: Vec<(Option<u32>, &Row)> =
        summary.rows.iter().map(|row| (place(row), row)).collect();
    order.sort_by_key(|(place, row)| (place.is_none(), *place, row.key));
    let line = &profile.timeline;
    let ns = |ticks: f64| ticks * line.ns_per_tick();
    let passes = crate::answer::passes(profile, by);
    let mut rows: Vec<RunRow> = order
        .into_iter()
        .map(|(_, row)| {
            let identity = match row.key {
                Key::Op(op) if by == TableBy::Op => profile.ops.get(op).map(identity),
                Key::Kind(op) => profile
                    .ops
                    .get(op)
                    .map(|op| Identity { name: op.library.to_string(), ..Identity::default() }),
                Key::Unknown(_, export) => {
                    Some(Identity { name: unknown_op(export), ..Identity::default() })
                }
                _ => None,
            };
            let once = row.in_pass(passes);
            let timed = row.is_timed();
            let known = |ticks: f64| Some(ns(ticks)).filter(|_| timed);
            let whole = row.sampled.as_ref().is_none_or(|sampled| sampled.total.is_some());
            let dispatch = match row.key {
                Key::Op(op) => sites.and_then(|sites| sites.of_ops.get(&op)).copied(),
                _ => None,
            };
            let sampled = row.sampled.as_deref();
            let by_steps =
                sampled.and_then(|row| row.by_steps).map(|of| of.times(1.0 / passes as f64));
            let of_sample = sampled.and_then(|row| row.total).filter(|total| !total.is_exact());
            // The interval includes the uncertainty of the subtracted time of the recorder, as in a
            // report.
            let total = of_sample.map(|of| Estimated {
                value: ns(once.total.value),
                interval: of.interval.map(|_| once.total.times(line.ns_per_tick())),
            });
            let call = |ticks: f64| known(row.call(ticks).value).filter(|_| whole);
            let call_p10_ns = call(row.p10);
            // Left out in a run with a budget, because the shortest timed call depends on how many
            // calls were timed.
            let call_min_ns = call(row.min).filter(|_| row.sampled.is_none());
            RunRow {
                identity: identity.unwrap_or_default(),
                calls: once.calls.unwrap_or(row.calls / passes),
                estimated_calls: by_steps,
                dispatches: once.dispatches,
                total_ns: known(once.total.value).filter(|_| whole),
                estimated_total_ns: total.filter(|_| timed && whole),
                own_ns: known(once.own.value)
                    .filter(|_| row.sampled.as_ref().is_none_or(|sampled| sampled.self_known))
                    .filter(|_| !row.key.is_apart(profile)),
                call_min_ns,
                dispatch_min_ns: dispatch.map(|d| ns(d.min)).or(call_min_ns),
                call_p10_ns,
                dispatch_p10_ns: dispatch.map(|d| ns(d.p10)).or(call_p10_ns),
                dispatch_p50_ns: dispatch.map(|d| ns(d.p50)).or(call(row.p50)),
                mean_ns: None,
                readings: readings(profile, row, metrics),
            }
        })
        .collect();
    number(&mut rows);
    rows
}

fn readings(profile: &Profile, row: &Row, metrics: &[Bound]) -> Vec<Reading> {
    let counters = profile.manifest.counters.iter().zip(&row.counters);
    let counters = counters.filter_map(|(info, total)| {
        let total = total.as_ref()?;
        let sampled = row.sampled.is_some() || total.estimated > 0;
        Some(Reading {
            name: info.name.clone(),
            unit: info.unit.clone(),
            exact: (!sampled).then_some((total.total, total.calls)),
            value: total.mean().value,
            is_metric: false,
        })
    });
    let metrics = metrics.iter().enumerate().filter_map(|(i, metric)| {
        Some(Reading {
            name: metric.name.clone(),
            unit: metric.unit.name.clone(),
            exact: None,
            value: row.metrics.get(i).value?,
            is_metric: true,
        })
    });
    counters.chain(metrics).collect()
}

fn of_sites(profile: &Profile, sites: &Sites) -> Vec<RunRow> {
    let ns = |ticks: f64| Some(ticks * profile.timeline.ns_per_tick());
    let mut rows: Vec<RunRow> = sites
        .rows
        .iter()
        .map(|site| RunRow {
            identity: profile.ops.get(site.op).map(identity).unwrap_or_default(),
            calls: site.dispatches,
            dispatches: Some(site.dispatches),
            total_ns: ns(site.sum),
            own_ns: ns(site.sum),
            call_min_ns: ns(site.dispatch.min),
            dispatch_min_ns: ns(site.dispatch.min),
            call_p10_ns: ns(site.dispatch.p10),
            dispatch_p10_ns: ns(site.dispatch.p10),
            dispatch_p50_ns: ns(site.dispatch.p50),
            ..RunRow::default()
        })
        .collect();
    number(&mut rows);
    rows
}

/// Returns the rows of loops and functions, and adds what their data lack to `losses`.
fn of_loops(
    profile: &Profile,
    raw: bool,
    losses: &mut Vec<LossCount>,
) -> profile::Result<Vec<RunRow>> {
    let found = profile.loops()?;
    losses.extend(found.losses.iter().cloned());
    let of_pass = |pass: u32| {
        let all = profile.manifest.counters.iter().enumerate();
        let read = all.filter(|(_, counter)| counter.pass.is_none_or(|of| of == pass + 1));
        read.map(|(index, _)| index).collect()
    };
    let counters: Vec<Vec<usize>> =
        profile.processes.iter().map(|process| of_pass(process.pass)).collect();
    let data = LoopData {
        modules: &found.modules,
        rows: &found.rows,
        events: &found.events,
        counters: &counters,
    };
    let table = loops(data, &[]);
    let all = table.modules.iter().flat_map(|tree| tree.nodes.iter().map(move |node| (tree, node)));
    let entered = all.filter(|(_, node)| node.all.hits > 0);
    // Each pass (repetition of the recorded calls) runs all loops again.
    let passes = crate::answer::passes(profile, TableBy::Op);
    let mut rows: Vec<RunRow> = entered
        .map(|(tree, node)| {
            let row = of_loop(profile, tree, node, raw);
            let once = |ns: Option<f64>| ns.map(|ns| ns / passes as f64);
            RunRow {
                calls: row.calls / passes,
                total_ns: once(row.total_ns),
                own_ns: once(row.own_ns),
                ..row
            }
        })
        .collect();
    number(&mut rows);
    Ok(rows)
}

fn of_loop(profile: &Profile, tree: &LoopTree, node: &LoopNode, raw: bool) -> RunRow {
    let times = node.all.times(raw);
    let ns = |value: f64| tree.ns(value);
    let entry = tree.entry(node);
    let (function, inner) = match entry {
        None => (format!("id {}", node.id), None),
        Some(entry) if entry.depth.is_none() => (entry.function.clone(), None),
        Some(entry) => {
            let own = entry.variable.clone().or_else(|| entry.label.clone());
            (entry.function.clone(), Some(own.unwrap_or_else(|| format!("loop {}", node.id))))
        }
    };
    let line = entry.and_then(|entry| Some(format!("{}:{}", entry.file.as_ref()?, entry.line?)));
    let counters = profile.manifest.counters.iter().enumerate().filter_map(|(i, info)| {
        let sum = node.all.counter(i)?;
        Some(Reading {
            name: info.name.clone(),
            unit: info.unit.clone(),
            exact: (sum.hits == node.all.hits).then_some((sum.total, sum.hits as u64)),
            value: sum.per_hit(),
            is_metric: false,
        })
    });
    RunRow {
        identity: Identity {
            name: inner.map_or(function.clone(), |inner| format!("{function}:{inner}")),
            source: line,
            ..Identity::default()
        },
        calls: node.all.hits.min(u64::MAX.into()) as u64,
        total_ns: times.and_then(|times| ns(times.inclusive.value)),
        own_ns: times.and_then(|times| ns(times.own?.value)),
        mean_ns: times.and_then(|times| ns(times.mean?.value)).filter(|ns| *ns > 0.0),
        readings: counters.collect(),
        ..RunRow::default()
    }
}

fn of_modules(profile: &Profile) -> profile::Result<Vec<RunRow>> {
    let activities = profile.activities()?;
    let found = by_module(&activities)?;
    let mut rows: Vec<RunRow> = found
        .rows
        .into_iter()
        .filter_map(|row| {
            let name = row.module?;
            let (total, own) = (row.total_ns as f64, row.self_ns as f64);
            Some(RunRow {
                identity: Identity { name, ..Identity::default() },
                calls: row.calls,
                total_ns: Some(total),
                own_ns: Some(own),
                mean_ns: (row.calls > 0 && total > 0.0).then(|| total / row.calls as f64),
                ..RunRow::default()
            })
        })
        .collect();
    number(&mut rows);
    Ok(rows)
}
