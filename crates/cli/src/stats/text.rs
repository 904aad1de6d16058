//! The statistics as text, in the form in which IREE's experimental call hook prints them, with
//! what it lacks: right units, the spread, ranks, a total over threads.
//!
//! ```text
//! Statistics for thread iree-worker-0 (4712), op matmul:
//!   1024 matching calls, of which:
//!     1024 calls on cpu 1
//!   duration_us:
//!     mean: 373
//!     …
//!     16-ile means: 165 166 167 …
//!   task-clock (ns):
//!     …
//!   correlation of duration_us vs. task-clock: 0.58 (Pearson), 0.61 (Spearman)
//!   conditional probability of duration_us 16-ile (↓) given task-clock 16-ile (→):
//!           0  1  2 …
//!        0 ██ __
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use analysis::stats::{Number, Pair, Scope, Stats, Variable};
use profile::Profile;
use profile::columns::{cpu_of, node_of};

use super::shades::shade;
use super::{Kind, kind, name_and_unit};
use crate::report::units::{general, time};
use crate::report::{labels, process_label, thread_label};
use crate::terminal::visible;

/// What to print and how.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Shades are probabilities to this power.
    pub gamma: f64,
    /// Name the op in each heading.
    pub name_op: bool,
    /// Name threads with their kernel ids.
    pub name_tid: bool,
    /// Begin each op with all its threads together, if there are several.
    pub totals: bool,
    /// Say at the end what an empty call is recorded as.
    pub probes: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { gamma: 0.5, name_op: true, name_tid: true, totals: true, probes: true }
    }
}

/// Writes the statistics of every op and thread. The tables of pairs are written if they are
/// there.
///
/// # Errors
/// Only those of `out`.
pub fn render(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    style: &Style,
) -> io::Result<()> {
    let keys: Vec<_> = stats.ops.iter().map(|op| op.key).collect();
    for (op, name) in stats.ops.iter().zip(labels(profile, &keys)) {
        let of_op = match style.name_op {
            true => format!(", op {}", visible(&name)),
            false => String::new(),
        };
        if style.totals && op.threads.len() > 1 {
            writeln!(out, "Statistics for all {} threads{of_op}:", op.threads.len())?;
            scope(out, profile, stats, &op.all, style)?;
        }
        for thread in &op.threads {
            let name = match style.name_tid {
                true => thread_label(profile, thread.process, thread.thread),
                false => visible(&profile.processes[thread.process].threads[thread.thread].name)
                    .into_owned(),
            };
            writeln!(out, "Statistics for thread {name}{of_op}:")?;
            scope(out, profile, stats, &thread.scope, style)?;
        }
    }
    if style.probes {
        let met =
            |process| stats.ops.iter().any(|o| o.threads.iter().any(|t| t.process == process));
        for probe in stats.probes.iter().filter(|probe| met(probe.process)) {
            writeln!(
                out,
                "Of this, {} per call is the probe (process {}): not subtracted.",
                time(profile.timeline.duration_ns(probe.empty_call.ticks)),
                visible(&process_label(profile, probe.process)),
            )?;
        }
    }
    Ok(())
}

fn scope(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    scope: &Scope,
    style: &Style,
) -> io::Result<()> {
    writeln!(out, "  {} matching calls, of which:", scope.calls)?;
    let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
    for (location, calls) in &scope.locations {
        *nodes.entry(node_of(*location)).or_default() += calls;
    }
    // On a machine of one node, its number says nothing.
    let some_node = nodes.keys().any(|node| *node != 0);
    for (location, calls) in &scope.locations {
        write!(out, "    {calls} calls on cpu {}", cpu_of(*location))?;
        if some_node {
            write!(out, " (node {})", node_of(*location))?;
        }
        writeln!(out)?;
    }
    if nodes.len() > 1 {
        for (node, calls) in nodes {
            writeln!(out, "    {calls} calls on node {node}")?;
        }
    }
    for (i, variable) in scope.variables.iter().enumerate() {
        describe(out, profile, stats, scope.calls, i, variable)?;
        for pair in scope.pairs.iter().filter(|pair| pair.given == i) {
            correlation(out, profile, stats, pair, style)?;
        }
    }
    Ok(())
}

/// The name in headings: the duration with its unit in it, as in the hook's CSV.
fn name(profile: &Profile, stats: &Stats, variable: usize) -> String {
    match kind(profile, stats, variable) {
        Kind::Duration => "duration_us".to_owned(),
        // Its values are estimates wherever it took turns.
        Kind::Counter(info) if profile.manifest.multiplex => format!("≈{}", visible(&info.name)),
        Kind::Counter(info) => visible(&info.name).into_owned(),
        Kind::Metric(metric) => visible(&metric.name).into_owned(),
    }
}

fn describe(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    calls: u64,
    i: usize,
    variable: &Variable,
) -> io::Result<()> {
    let kind = kind(profile, stats, i);
    let unit = match name_and_unit(profile, stats, i).1 {
        _ if matches!(kind, Kind::Duration) => String::new(),
        "count" | "cycles" | "ratio" | "other" => String::new(),
        unit => format!(" ({})", visible(unit)),
    };
    let some = match (variable.calls, kind) {
        (n, _) if n == calls => String::new(),
        (n, Kind::Metric(_)) => format!(", defined in {n} of these calls"),
        (n, _) => format!(", read in {n} of these calls"),
    };
    writeln!(out, "  {}{unit}{some}:", name(profile, stats, i))?;
    let scale = if i == 0 { profile.timeline.ns_per_tick() / 1e3 } else { 1.0 };
    let text = |value: Option<f64>| {
        value.map_or_else(|| "–".to_owned(), |value| general(value * scale, 3))
    };
    writeln!(out, "    mean: {}", text(variable.mean))?;
    writeln!(out, "    standard deviation: {}", text(variable.standard_deviation))?;
    writeln!(out, "    min: {}", text(variable.min.map(Number::to_f64)))?;
    writeln!(out, "    max: {}", text(variable.max.map(Number::to_f64)))?;
    write!(out, "    {}-ile means:", stats.buckets)?;
    for mean in &variable.bucket_means {
        write!(out, " {}", text(*mean))?;
    }
    writeln!(out)
}

fn correlation(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    pair: &Pair,
    style: &Style,
) -> io::Result<()> {
    let (of, given) = (name(profile, stats, pair.of), name(profile, stats, pair.given));
    let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| general(value, 2));
    writeln!(
        out,
        "  correlation of {of} vs. {given}: {} (Pearson), {} (Spearman)",
        text(pair.pearson),
        text(pair.spearman)
    )?;
    let (Some(table), buckets) = (&pair.table, stats.buckets) else { return Ok(()) };
    writeln!(
        out,
        "  conditional probability of {of} {buckets}-ile (↓) given {given} {buckets}-ile (→):"
    )?;
    write!(out, "{:8}", "")?;
    (0..buckets).try_for_each(|column| write!(out, " {column:2x}"))?;
    writeln!(out)?;
    for (number, row) in table.probabilities(buckets).iter().enumerate() {
        write!(out, "      {number:2x}")?;
        row.iter().try_for_each(|p| write!(out, " {}", shade(*p, style.gamma)))?;
        writeln!(out)?;
    }
    writeln!(out)
}
