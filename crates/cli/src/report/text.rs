//! The report for people: header, table, and what belongs below it.

use std::io::{self, Write};

use analysis::ThreadTime;
use model::Severity;

use super::columns::{Column, Table, Value, printable, process_label, thread_label};
use super::losses::{by_severity, errno_text, notes, reasons, severity};
use super::units::{grouped, number, percent, plural, shorten, time};
use super::{Report, header};
use crate::output::colour;

/// Names are not shortened below this, as long as there are other columns to leave out.
const NAME_WIDTH: usize = 28;
/// Threads that are listed; the rest is counted.
const THREADS: usize = 16;
const GAP: &str = "  ";

pub fn print(out: &mut impl Write, report: &Report<'_>, width: usize) -> io::Result<()> {
    let width = width.max(40);
    for (label, text) in header::lines(report) {
        // A command can be very long.
        let text = shorten(&text, 3 * (width - 10));
        wrapped(out, &format!("{label:<9} "), &text, width)?;
    }
    writeln!(out)?;
    if report.summary.calls == 0 {
        writeln!(out, "no calls were recorded; likely reasons:")?;
        for reason in reasons(report.profile) {
            wrapped(out, "  - ", &reason, width)?;
        }
    } else if report.summary.rows.is_empty() {
        writeln!(out, "no op matches {}", report.filter.unwrap_or_default())?;
    } else {
        table(out, &report.table, width)?;
        threads(out, report, width)?;
        probes(out, report, width)?;
    }
    losses(out, report, width)?;
    for note in notes(report) {
        wrapped(out, "note: ", &printable(&note), width)?;
    }
    Ok(())
}

/// A table of text, the first column and those of text aligned left.
fn table(out: &mut impl Write, table: &Table, width: usize) -> io::Result<()> {
    let mut shown: Vec<&Column> = table.columns.iter().filter(|c| !c.csv_only).collect();
    // A place in the source is worth less than a number.
    shown.sort_by_key(|column| column.name == "source");
    let is_text =
        |column: &Column| column.cells.iter().any(|cell| matches!(cell, Some(Value::Text(_))));
    let cell = |column: &Column, row: usize| match &column.cells[row] {
        Some(value) => printable(&value.to_text()),
        None => "–".to_owned(),
    };
    let needs = |column: &Column| {
        let cells = table.order.iter().map(|row| cell(column, *row).chars().count());
        cells.chain([column.title.chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = shown.iter().map(|column| needs(column)).collect();
    let name_needs = widths.first().copied().unwrap_or(0);
    let others = |widths: &[usize]| widths[1..].iter().map(|w| w + GAP.len()).sum::<usize>();
    let mut left_out = Vec::new();
    while shown.len() > 2 && others(&widths) + name_needs.min(NAME_WIDTH) > width {
        let Some(least) = (1..shown.len()).max_by_key(|i| (shown[*i].rank, *i)) else { break };
        widths.remove(least);
        left_out.push(shown.remove(least));
    }
    let room = width.saturating_sub(others(&widths)).max(8);
    widths[0] = name_needs.min(room);
    let bold = if colour() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let line = |out: &mut dyn Write, cells: Vec<String>| -> io::Result<()> {
        let mut text = String::new();
        for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let cell = shorten(cell, *width);
            match is_text(shown[i]) {
                _ if i > 0 => text.push_str(GAP),
                _ => {}
            }
            if is_text(shown[i]) {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("{cell:>width$}"));
            }
        }
        out.write_all(text.trim_end().as_bytes())
    };
    out.write_all(bold.0.as_bytes())?;
    line(out, shown.iter().map(|column| column.title.clone()).collect())?;
    writeln!(out, "{}", bold.1)?;
    for row in &table.order {
        line(out, shown.iter().map(|column| cell(column, *row)).collect())?;
        writeln!(out)?;
    }
    if !left_out.is_empty() {
        let names: Vec<&str> = left_out.iter().map(|c| c.name.as_str()).collect();
        let text =
            format!("{} (a wider terminal, --format json and csv have them)", names.join(", "));
        wrapped(out, "not shown: ", &text, width)?;
    }
    writeln!(out)
}

fn threads(out: &mut impl Write, report: &Report<'_>, width: usize) -> io::Result<()> {
    let mut threads: Vec<&ThreadTime> = report.summary.threads.iter().collect();
    threads.sort_by(|a, b| b.wall_ns.total_cmp(&a.wall_ns));
    let many = report.summary.threads.iter().any(|t| t.process != threads[0].process);
    let label = |t: &ThreadTime| {
        let thread = thread_label(report.profile, t.process, t.thread);
        match many {
            true => format!("{thread} of {}", process_label(report.profile, t.process)),
            false => thread,
        }
    };
    let longest = threads.iter().take(THREADS).map(|t| label(t).chars().count()).max();
    let name_width = longest.unwrap_or(0).max(6).min(width.saturating_sub(60).max(12));
    writeln!(
        out,
        "{:<name_width$}  {:>9}  {:>11}  {:>18}  of it off-CPU",
        "thread", "wall", "in dispatch", "in no dispatch"
    )?;
    let mut assumed = false;
    for t in threads.iter().take(THREADS) {
        let no_dispatch = t.no_dispatch_ns();
        let share = if t.wall_ns > 0.0 { percent(no_dispatch / t.wall_ns) } else { "–".into() };
        let off_cpu = match t.off_cpu {
            None => "–".to_owned(),
            Some(off) => {
                assumed |= off.assumed;
                format!("{}{}", if off.assumed { "≤ " } else { "" }, time(off.ns))
            }
        };
        writeln!(
            out,
            "{:<name_width$}  {:>9}  {:>11}  {:>18}  {:>13}",
            shorten(&label(t), name_width),
            time(t.wall_ns),
            time(t.dispatch_ns),
            format!("{} ({share})", time(no_dispatch)),
            off_cpu
        )?;
    }
    if threads.len() > THREADS {
        writeln!(out, "… and {} more", grouped((threads.len() - THREADS) as u128))?;
    }
    if assumed {
        let text = "no counter tells the CPU time inside some dispatches; they are assumed to have \
                    been on a CPU all the time";
        wrapped(out, "≤: ", text, width)?;
    }
    writeln!(out)
}

fn probes(out: &mut impl Write, report: &Report<'_>, width: usize) -> io::Result<()> {
    let summary = report.summary;
    let mut text = match probe_totals(report) {
        None => "not calibrated; their cost is unknown".to_owned(),
        Some(totals) => {
            let share = totals.share.map_or(String::new(), |share| {
                format!(", {} of the threads' wall time", percent(share))
            });
            format!(
                "about {}{share}: {} at {} each, flushing {}",
                time(totals.probes_ns + totals.flush_ns),
                plural(totals.calls.into(), "call"),
                time(totals.probes_ns / totals.calls as f64),
                time(totals.flush_ns)
            )
        }
    };
    if let Some(one) = summary.probes.iter().max_by_key(|probe| probe.calls) {
        let empty = &one.empty_call;
        let counters = report.profile.manifest.counters.iter().zip(&empty.values);
        let values = counters.filter_map(|(counter, value)| {
            let value = value.filter(|v| *v > 0)?;
            Some(match counter.unit() {
                model::Unit::Nanoseconds => format!(", {} {}", counter.name, time(value as f64)),
                _ => format!(", {} {}", counter.name, number(value as f64)),
            })
        });
        let ticks = time(report.profile.timeline.duration_ns(empty.ticks));
        text.push_str(&format!("; an empty call reads {ticks}{}", values.collect::<String>()));
    }
    if summary.uncalibrated_probes && !summary.probes.is_empty() {
        text.push_str("; some processes were not calibrated");
    }
    wrapped(out, "probes: ", &text, width)
}

/// The cost of all probes that are calibrated.
pub struct ProbeTotals {
    pub calls: u64,
    pub probes_ns: f64,
    pub flush_ns: f64,
    /// Of the wall time of the threads of those processes, added up.
    pub share: Option<f64>,
}

pub fn probe_totals(report: &Report<'_>) -> Option<ProbeTotals> {
    let probes = &report.summary.probes;
    if probes.is_empty() {
        return None;
    }
    let probes_ns = probes.iter().map(|p| p.probes_ns).sum();
    let flush_ns = probes.iter().map(|p| p.flush_ns).sum();
    let calibrated = |process| probes.iter().any(|p| p.process == process);
    let threads = report.summary.threads.iter().filter(|t| calibrated(t.process));
    let wall: f64 = threads.map(|t| t.wall_ns).sum();
    Some(ProbeTotals {
        calls: probes.iter().map(|p| p.calls).sum(),
        probes_ns,
        flush_ns,
        share: (wall > 0.0).then(|| (probes_ns + flush_ns) / wall),
    })
}

fn losses(out: &mut impl Write, report: &Report<'_>, width: usize) -> io::Result<()> {
    for loss in by_severity(&report.summary.losses) {
        let errno = errno_text(loss).map_or(String::new(), |text| format!(" ({text})"));
        let (on, off) = match (colour(), severity(loss)) {
            (false, _) | (_, Severity::Note) => ("", ""),
            (true, Severity::Missing) => ("\x1b[33m", "\x1b[0m"),
            (true, Severity::Distorted) => ("\x1b[31m", "\x1b[0m"),
        };
        let head = format!("{}: ", severity(loss).name());
        let text =
            format!("{} × {}{errno}: {}", grouped(loss.count.into()), loss.name, loss.help());
        write!(out, "{on}")?;
        wrapped(out, &head, &text, width)?;
        write!(out, "{off}")?;
    }
    Ok(())
}

/// Writes `text` behind `head`, broken between words, further lines indented under it.
fn wrapped(out: &mut impl Write, head: &str, text: &str, width: usize) -> io::Result<()> {
    let indent = head.chars().count();
    let mut line = head.to_owned();
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > indent && used + 1 + length > width {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(indent);
            used = indent;
        }
        if used > indent {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    writeln!(out, "{}", line.trim_end())
}
