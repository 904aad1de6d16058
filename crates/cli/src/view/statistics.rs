//! Prints statistics as text in the format of IREE's experimental call hook. The text also has what
//! that format lacks: units, the standard deviation, rank correlation, and a total over threads.
//!
//! ```text
//! Statistics for thread iree-worker-0 (4712), op matmul:
//!   1024 matching calls, of which:
//!     1024 calls on cpu 1
//!   duration:
//!     mean: 373 µs
//!     …
//!     means of 16 equal groups of calls, by size: 165 µs 166 µs 167 µs …
//!   task-clock:
//!     …
//!   correlation of duration vs. task-clock: 0.58 (Pearson), 0.61 (Spearman)
//!   conditional probability of duration 16-ile (↓) given task-clock 16-ile (→):
//!           0  1  2 …
//!        0 ██ __
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use analysis::stats::{Number, OpStats, Pair, Scope, Stats, Variable};
use profile::Profile;
use profile::columns::{cpu_of, node_of};

use super::labels::{labels, process_label, thread_label};
use super::sampled;
use super::shades::shade;
use super::units::{below, bytes, general, number, plural, time};
use super::variables::{Subtracted, VariableKind, kind, name_and_unit};
use super::wrap::wrapped;
use crate::terminal::visible;

/// The widths of the indentation and of a column in a table of probabilities, in characters.
const TABLE_INDENT: usize = 8;
const TABLE_CELL: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The shade of a table's cell stands for its probability raised to this power.
    pub gamma: f64,
    /// Whether each heading names the op.
    pub name_op: bool,
    /// Whether the operating system's ids of threads are shown.
    pub name_tid: bool,
    /// Whether totals over several threads are shown.
    pub totals: bool,
    /// Whether totals come after the threads.
    pub totals_last: bool,
    /// Whether a variable gets only one line if it has the same value in all calls. The original
    /// hook prints all statistics.
    pub constants_short: bool,
    /// Whether times and bytes are printed in a unit that suits their size. The original hook
    /// prints durations in microseconds.
    pub units: bool,
    /// Whether the part of durations that the recorder itself takes is printed at the end.
    pub probes: bool,
    /// Whether unusual words are avoided or explained. The original hook prints `16-ile means`.
    pub explained: bool,
    /// The width of the lines; `None` does not break them.
    pub width: Option<usize>,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            gamma: 0.5,
            name_op: true,
            name_tid: true,
            totals: true,
            totals_last: false,
            constants_short: true,
            units: true,
            probes: true,
            explained: true,
            width: None,
        }
    }
}

/// Writes the statistics of each op, and its tables of probabilities if `stats` has them.
///
/// # Errors
/// Returns an error if writing to `out` fails.
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
        let (is_whole, of_all) = of_all(op);
        let totals = style.totals && !is_whole;
        let all = |out: &mut _| {
            let head = format!("Statistics for {of_all}{of_op}:");
            line(out, style, "", &head)?;
            scope(out, profile, stats, &op.all, style)
        };
        if totals && !style.totals_last {
            all(out)?;
        }
        for thread in &op.threads {
            let name = match style.name_tid {
                true => thread_label(profile, thread.process, thread.thread),
                false => profile.processes[thread.process].threads[thread.thread].name.clone(),
            };
            line(out, style, "", &format!("Statistics for thread {}{of_op}:", visible(&name)))?;
            scope(out, profile, stats, &thread.scope, style)?;
        }
        for (rank, of_rank) in &op.ranks {
            line(out, style, "", &format!("Statistics for rank {rank}{of_op}:"))?;
            scope(out, profile, stats, of_rank, style)?;
        }
        if totals && style.totals_last {
            all(out)?;
        }
    }
    if style.explained && stats.ops.iter().any(|op| has_table(&op.all, stats.buckets, style)) {
        line(out, style, "", &key(style.gamma))?;
    }
    if style.probes {
        let met = |process| {
            let of = |op: &OpStats| op.threads.iter().any(|t| t.process == process);
            stats.ops.iter().any(|op| op.is_by_rank() || of(op))
        };
        for probe in stats.probes.iter().filter(|probe| met(probe.process)) {
            let of = &probe.empty_call.duration.mean;
            let ns = |ticks: f64| time(ticks.max(0.0) * profile.timeline.ns_per_tick());
            let text = format!(
                "{} of each duration in process {} ({} to {}) {} the recorder's own{}.",
                ns(of.value),
                visible(&process_label(profile, probe.process)),
                ns(of.low),
                ns(of.high),
                if stats.raw { "are" } else { "were" },
                if stats.raw { "; nothing is subtracted" } else { " and are subtracted" },
            );
            line(out, style, "", &text)?;
        }
    }
    Ok(())
}

/// Returns whether one thread (in statistics by rank: one rank) has all calls of the op. The text
/// says what to call all of the threads or ranks in a heading.
fn of_all(op: &OpStats) -> (bool, String) {
    if !op.is_by_rank() {
        return (op.threads.len() == 1, format!("all {} threads", op.threads.len()));
    }
    let calls: u64 = op.ranks.iter().map(|(_, of_rank)| of_rank.calls).sum();
    let ranks = op.ranks.len();
    match (calls == op.all.calls, ranks) {
        (true, _) => (ranks == 1, format!("all {ranks} ranks")),
        (false, 0) => (false, "processes without a rank".to_owned()),
        (false, n) => (false, format!("{} and processes without one", plural(n as u128, "rank"))),
    }
}

fn scope(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    scope: &Scope,
    style: &Style,
) -> io::Result<()> {
    match (profile.is_sampled(), scope.counted()) {
        (false, _) => {
            let inner = match scope.inner {
                0 => String::new(),
                n => format!(" ({} inside of these not included)", calls(n, "more call")),
            };
            let text = format!("{}{inner}, of which:", calls(scope.calls, "matching call"));
            line(out, style, "  ", &text)?;
        }
        (true, counted) => {
            let weight = match scope.effective {
                Some(effective) => format!(
                    "Each counts for as many calls as it stands for, so that they say as much as {} \
                     calls of equal weight.",
                    number(effective)
                ),
                None => "They are too few to say anything about the others.".to_owned(),
            };
            let about =
                sampled::about(scope.sampled.as_ref().and_then(|row| row.by_steps.as_ref()));
            let text = format!(
                "{}{} timed. {weight} Of the timed calls:",
                counted.map_or_else(String::new, |n| format!(
                    "{about}{}, of which ",
                    calls(n, "call")
                )),
                match scope.calls {
                    1 => "1 call was".to_owned(),
                    n => format!("{n} calls were"),
                },
            );
            line(out, style, "  ", &text)?;
        }
    }
    let mut nodes: BTreeMap<u32, u64> = BTreeMap::new();
    for (location, n) in &scope.locations {
        *nodes.entry(node_of(*location)).or_default() += n;
    }
    // If all calls were on NUMA node 0, which may be the only one, nodes are not printed.
    let some_node = nodes.keys().any(|node| *node != 0);
    for (location, n) in &scope.locations {
        write!(out, "    {} on cpu {}", calls(*n, "call"), cpu_of(*location))?;
        if some_node {
            write!(out, " (node {})", node_of(*location))?;
        }
        writeln!(out)?;
    }
    if nodes.len() > 1 {
        for (node, n) in nodes {
            writeln!(out, "    {} on node {node}", calls(n, "call"))?;
        }
    }
    // The correlation with a value that does not vary is not defined, so it is not printed if such
    // a value gets only one line.
    let short = |v: &Variable| style.constants_short && is_constant(v);
    let varies = |i: usize| scope.variables.get(i).is_some_and(|v| !short(v));
    for (i, variable) in scope.variables.iter().enumerate() {
        describe(out, profile, stats, scope, i, variable, style)?;
        let pairs = scope.pairs.iter().filter(|pair| pair.given == i);
        for pair in pairs.filter(|pair| varies(pair.of) && varies(pair.given)) {
            correlation(out, profile, stats, scope, pair, style)?;
        }
    }
    Ok(())
}

/// Returns the name of a variable for headings. Unless [`Style::units`] is set, the duration's name
/// includes its unit, as in the CSV of IREE's hook.
fn name(profile: &Profile, stats: &Stats, variable: usize, style: &Style) -> String {
    match kind(profile, stats, variable) {
        VariableKind::Duration if style.units => "duration".to_owned(),
        VariableKind::Duration => "duration_us".to_owned(),
        // `≈` says that the values may be estimates, because the counters took turns.
        VariableKind::Counter(info) if profile.manifest.multiplex => {
            format!("≈{}", visible(&info.name))
        }
        VariableKind::Counter(info) => visible(&info.name).into_owned(),
        VariableKind::Metric(metric) => visible(&metric.name).into_owned(),
    }
}

fn describe(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    scope: &Scope,
    i: usize,
    variable: &Variable,
    style: &Style,
) -> io::Result<()> {
    let kind = kind(profile, stats, i);
    let unit_name = name_and_unit(profile, stats, i).1;
    let readable = match unit_name {
        _ if !style.units => None,
        "ns" => Some(time as fn(f64) -> String),
        "bytes" => Some(bytes as fn(f64) -> String),
        _ => None,
    };
    let unit = match unit_name {
        _ if matches!(kind, VariableKind::Duration) || readable.is_some() => String::new(),
        "count" | "cycles" | "ratio" | "other" => String::new(),
        unit => format!(" ({})", visible(unit)),
    };
    let some = match (variable.calls, kind) {
        (n, _) if n == scope.calls => String::new(),
        (n, VariableKind::Metric(_)) => format!(", defined in {n} of these calls"),
        (n, _) => format!(", read in {n} of these calls"),
    };
    let step = if style.units { 1.0 } else { 1e3 };
    let scale = if i == 0 { profile.timeline.ns_per_tick() / step } else { 1.0 };
    let less = Subtracted::new(stats, scope, i);
    let plain = |value: Option<f64>| match (value.map(|value| value * scale), readable) {
        (None, _) => "–".to_owned(),
        (Some(value), Some(readable)) if value >= 0.0 => readable(value),
        (Some(value), Some(readable)) => format!("-{}", readable(-value)),
        (Some(value), None) => general(value, 3),
    };
    let text = |value: Option<f64>| match value.map(|value| less.from(value)) {
        // A value that cannot be distinguished from that of an empty call is shown only as an upper
        // bound.
        Some(value) if !value.is_resolved() => below(&plain(Some(value.high.max(0.0)))),
        value => plain(value.map(|value| value.value)),
    };
    let head = format!("{}{unit}{some}:", name(profile, stats, i, style));
    if style.constants_short && is_constant(variable) {
        let value = text(variable.min.map(Number::to_f64));
        let all = match variable.calls {
            0 => String::new(),
            1 => " in one call".to_owned(),
            n => format!(" in each of {n} calls"),
        };
        return line(out, style, "  ", &format!("{head} {value}{all}"));
    }
    line(out, style, "  ", &head)?;
    // In a run with a budget, only some calls are measured, so the mean over all calls is
    // estimated.
    let estimated =
        variable.mean.and(scope.estimated_mean(i)).map(|mean| less.from_estimated(mean));
    let mean = match estimated {
        None => text(variable.mean),
        Some(mean) => match mean.interval {
            Some(all) if !all.is_resolved() => below(&plain(Some(all.high.max(0.0)))),
            _ => plain(Some(mean.value)) + &sampled::margin_of(&mean),
        },
    };
    writeln!(out, "    mean: {mean}")?;
    writeln!(out, "    standard deviation: {}", plain(variable.standard_deviation))?;
    writeln!(out, "    min: {}", text(variable.min.map(Number::to_f64)))?;
    writeln!(out, "    max: {}", text(variable.max.map(Number::to_f64)))?;
    let means: String =
        variable.bucket_means.iter().map(|mean| format!(" {}", text(*mean))).collect();
    let title = match style.explained {
        true => format!("means of {} equal groups of calls, by size", stats.buckets),
        false => format!("{}-ile means", stats.buckets),
    };
    line(out, style, "    ", &format!("{title}:{means}"))
}

/// Returns whether all calls with a value have the same value, or no call has one.
fn is_constant(variable: &Variable) -> bool {
    match (variable.min, variable.max) {
        (Some(min), Some(max)) => min.to_f64() == max.to_f64(),
        _ => true,
    }
}

/// Formats a number with its noun, such as `1 call` or `2 calls`. Like IREE's hook, it does not
/// group the digits.
fn calls(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

fn line(out: &mut impl Write, style: &Style, indent: &str, text: &str) -> io::Result<()> {
    match style.width {
        Some(width) => wrapped(out, indent, text, width.max(40)),
        None => writeln!(out, "{indent}{text}"),
    }
}

/// Formats a coefficient with two digits, or with four if two would round it to 1 or -1: `0.9975`.
fn coefficient(value: f64) -> String {
    let is_perfect = |text: &str| matches!(text, "1" | "-1");
    let few = general(value, 2);
    match is_perfect(&few) && value.abs() < 1.0 {
        true => general(value, 4),
        false => few,
    }
}

fn has_table(scope: &Scope, buckets: usize, style: &Style) -> bool {
    let has_room = style.width.is_none_or(|width| width_of_table(buckets) <= width);
    let varies = |i: usize| scope.variables.get(i).is_some_and(|v| !is_constant(v));
    let is_printed = |p: &Pair| p.table.is_some() && varies(p.of) && varies(p.given);
    has_room && scope.pairs.iter().any(is_printed)
}

fn width_of_table(buckets: usize) -> usize {
    TABLE_INDENT + TABLE_CELL * buckets
}

/// Explains what the cells of a table mean, and why columns are blank.
fn key(gamma: f64) -> String {
    let cells = [0.05, 0.25, 0.5, 1.0].map(|p: f64| (shade(Some(p), gamma), 100.0 * p));
    let seen = cells.iter().filter(|(shade, _)| !shade.trim().is_empty());
    let seen: Vec<String> = seen.map(|(shade, p)| format!("{shade} {p:.0} %")).collect();
    format!(
        "cells: blank 0 %, {}; the cells of each column add up to 100 %, and groups are numbered from the \
         smallest values. Equal values share one group, so other columns are blank",
        seen.join(", ")
    )
}

/// Returns both coefficients as one text: `0.58 (Pearson), 0.61 (Spearman)`.
pub fn coefficients(pair: &Pair) -> String {
    let text = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), coefficient);
    format!("{} (Pearson), {} (Spearman)", text(pair.pearson), text(pair.spearman))
}

fn correlation(
    out: &mut impl Write,
    profile: &Profile,
    stats: &Stats,
    scope: &Scope,
    pair: &Pair,
    style: &Style,
) -> io::Result<()> {
    let (of, given) =
        (name(profile, stats, pair.of, style), name(profile, stats, pair.given, style));
    let words = format!("correlation of {of} vs. {given}: {}", coefficients(pair));
    line(out, style, "  ", &words)?;
    let noise = [pair.of, pair.given].into_iter().find(|variable| scope.is_noise(*variable));
    if let Some(variable) = noise.filter(|_| style.probes) {
        let words = format!(
            "(this is mostly noise of the probe: {} of empty calls varies about as much)",
            name(profile, stats, variable, style)
        );
        line(out, style, "    ", &words)?;
    }
    let (Some(table), buckets) = (&pair.table, stats.buckets) else { return Ok(()) };
    let words = format!(
        "conditional probability of {of} {buckets}-ile (↓) given {given} {buckets}-ile (→):"
    );
    let needed = width_of_table(buckets);
    if style.width.is_some_and(|width| needed > width) {
        let words =
            format!("{words} needs {needed} columns (use a wider terminal, or fewer --buckets)");
        return line(out, style, "  ", &words);
    }
    line(out, style, "  ", &words)?;
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
