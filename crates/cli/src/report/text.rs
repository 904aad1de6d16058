//! Prints the report for people: the header, the table, and the notes below the table.

use std::io::{self, Write};

use analysis::{By, SilentThread, ThreadTime};

use super::Report;
use crate::terminal::visible;
use crate::view::between;
use crate::view::head;
use crate::view::held_back;
use crate::view::inside;
use crate::view::labels::{process_label, silent_label, thread_label};
use crate::view::layout::{Kind, Names, Shown, THREAD_WIDTH, layout};
use crate::view::lengths;
use crate::view::loops::expensive;
use crate::view::losses;
use crate::view::notes::{notes, reasons};
use crate::view::open::series_of_plugins;
use crate::view::overview::Overview;
use crate::view::preempted;
use crate::view::price;
use crate::view::roles::roles;
use crate::view::sampled;
use crate::view::source;
use crate::view::text::{ASSUMED_ON_CPU, laid_out, table};
use crate::view::tracks::{self, LISTED};
use crate::view::units::{grouped, percent, shorten, time};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const OFF_CPU: &str = "off-CPU between";
/// At most this many threads are listed, and up to [`SILENT`] threads without calls in addition.
/// The others are counted.
const THREADS: usize = 16;
/// Of the threads without calls, at least this many are listed (or all, if there are fewer).
const SILENT: usize = 4;
const ON_CPU: &str = "on a CPU";

/// Prints the report. If `width` is `None`, tables are as wide as they need to be.
pub fn print(out: &mut impl Write, report: &Report<'_>, width: Option<usize>) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let width = tables.unwrap_or(PROSE_WIDTH);
    let overview = &report.overview;
    let recording = if report.verbose { head::recording(overview) } else { Vec::new() };
    for (label, text) in recording {
        // The text is shortened, because a command can be very long.
        wrapped(out, &format!("{label:<9} "), &shorten(&text, 3 * (width - 10)), width)?;
    }
    if report.verbose {
        lengths::print(out, overview, tables)?;
    }
    let lines = head::lines(overview);
    for (label, text) in &lines {
        let label = if label.is_empty() { String::new() } else { format!("{label:<9} ") };
        wrapped(out, &label, text, width)?;
    }
    if report.verbose || !lines.is_empty() {
        writeln!(out)?;
    }
    if overview.summary.calls == 0 && !overview.summary.rows.is_empty() {
        table(out, &report.table, tables)?;
    } else if overview.summary.calls == 0 && report.loops.entered().next().is_some() {
        writeln!(out, "no calls were recorded, but loops were:")?;
    } else if overview.summary.calls == 0 && series_of_plugins(overview.profile) > 0 {
        writeln!(out, "no calls were recorded, but counters of plugins were:")?;
        writeln!(out)?;
    } else if overview.summary.calls == 0 {
        match overview.skip_ms > 0.0 && overview.profile.calls() > 0 {
            true => writeln!(out, "no calls are left:")?,
            false => writeln!(out, "no calls were recorded; likely reasons:")?,
        }
        for reason in reasons(overview) {
            wrapped(out, "  - ", &reason, width)?;
        }
    } else if overview.summary.rows.is_empty()
        && (overview.filter.is_some() || overview.summary.sampled.is_none())
    {
        writeln!(out, "no op matches {}", visible(overview.filter.unwrap_or_default()))?;
    } else {
        let laid = laid_out(out, &report.table, tables)?;
        let has_room = |name: &str| !laid.left_out.contains(&name);
        if overview.by != By::Op && overview.summary.rows.iter().any(|row| row.inner > 0) {
            let of_these = ["mean_ns", "p50_ns", "p99_ns"].iter().any(|name| has_room(name));
            let also = if of_these { "; mean and quantiles are of these" } else { "" };
            wrapped(out, "calls: ", &format!("those that are inside of no other{also}"), width)?;
            writeln!(out)?;
        }
        let counters = &overview.profile.manifest.counters;
        if overview.summary.nested && counters.iter().any(|counter| has_room(&counter.name)) {
            let text = "as total, with what is inside (`ops` has them without the ops inside)";
            wrapped(out, "counters: ", text, width)?;
            writeln!(out)?;
        }
        let rows = report.table.order.iter().filter_map(|row| overview.summary.rows.get(*row));
        let roles = roles(overview.profile, rows.map(|row| row.key)).collect::<Vec<_>>();
        for (label, text) in &roles {
            wrapped(out, label, text, width)?;
        }
        if !roles.is_empty() {
            writeln!(out)?;
        }
        if let Some(text) = source::shared(&report.table) {
            wrapped(out, "source: ", &text, width)?;
            writeln!(out)?;
        }
        // If the main table is by thread, without a filter, a second table of threads would repeat
        // it.
        if overview.by != By::Thread || overview.filter.is_some() {
            threads(out, overview, tables)?;
        }
        let gaps = overview.summary.gaps.as_ref().filter(|_| overview.filter.is_none());
        let common = laid.common.as_deref().unwrap_or_default();
        if let Some(text) = gaps.and_then(|gaps| between::most(overview.profile, gaps, common)) {
            wrapped(out, "between: ", &text, width)?;
        }
        if let Some(text) = sampled::limits(overview.summary) {
            wrapped(out, "sample: ", text, width)?;
        }
        let price = match report.verbose {
            true => price::text(overview),
            false => price::line(overview),
        };
        wrapped(out, "price: ", &price, width)?;
    }
    if !report.verbose {
        wrapped(out, "program: ", &head::program(overview), width)?;
    }
    expensive::print(out, report.loops, tables)?;
    series(out, overview, tables)?;
    let losses = &overview.summary.losses;
    match report.verbose {
        true => losses::print(out, losses, width)?,
        false => losses::print_brief(out, losses, width)?,
    }
    if let Some(text) = preempted::text(overview) {
        wrapped(out, "note: ", &text, width)?;
    }
    let machine = overview.profile.manifest.environment.as_ref();
    for note in notes(overview).iter().filter(|note| report.verbose || Some(*note) != machine) {
        wrapped(out, "note: ", note, width)?;
    }
    if let Some(most) = held_back::most(overview) {
        wrapped(out, "look at: ", &most, width)?;
    }
    let is_whole = held_back::is_whole(overview);
    let has_loops = report.loops.entered().next().is_some();
    let text = is_whole.then(|| inside::text(overview.profile, overview.summary, has_loops));
    if let Some(text) = text.flatten() {
        wrapped(out, "inside: ", &text, width)?;
    }
    Ok(())
}

fn threads(out: &mut impl Write, overview: &Overview<'_>, width: Option<usize>) -> io::Result<()> {
    let mut threads: Vec<&ThreadTime> = overview.summary.threads.iter().collect();
    if threads.is_empty() {
        return Ok(());
    }
    threads.sort_by(|a, b| b.wall_ns.total_cmp(&a.wall_ns));
    let many = overview.summary.threads.iter().any(|t| t.process != threads[0].process);
    let label = |t: &ThreadTime| {
        let thread = thread_label(overview.profile, t.process, t.thread);
        match many {
            true => format!("{thread} of {}", process_label(overview.profile, t.process)),
            false => thread,
        }
    };
    let some = &threads[..threads.len().min(THREADS)];
    let silent = &overview.summary.silent;
    let silent = &silent[..silent.len().min(THREADS.saturating_sub(some.len()).max(SILENT))];
    let silent_label = |t: &SilentThread| {
        let name = silent_label(overview.profile, t);
        match many {
            true => format!("{name} of {}", process_label(overview.profile, t.process)),
            false => name,
        }
    };
    let column = |rank, title: &'static str, cell: &dyn Fn(&ThreadTime) -> String| Shown {
        name: title,
        title: title.to_owned(),
        rank,
        kind: if title == "thread" { Kind::Text } else { Kind::Number },
        cells: some
            .iter()
            .map(|t| cell(t))
            .chain(silent.iter().map(|t| match title {
                "thread" => silent_label(t),
                ON_CPU => time(t.cpu_ns),
                "in calls" => "none".to_owned(),
                _ => "–".to_owned(),
            }))
            .collect(),
    };
    let known = |t: &ThreadTime, ns: f64| match t.dispatch_known {
        true => time(ns),
        false => "–".to_owned(),
    };
    let share = |t: &ThreadTime| match t.wall_ns > 0.0 && t.dispatch_known {
        true => percent(t.no_dispatch_ns() / t.wall_ns),
        false => "–".to_owned(),
    };
    let off_cpu = |t: &ThreadTime| match t.off_cpu {
        None => "–".to_owned(),
        Some(off) => format!("{}{}", if off.assumed { "≤ " } else { "" }, time(off.ns)),
    };
    let columns = vec![
        column(0, "thread", &label),
        // First come columns about the whole wall time, and then columns about its two parts: in
        // calls and between calls.
        column(4, "wall", &|t| time(t.wall_ns)),
        column(if silent.is_empty() { 7 } else { 2 }, ON_CPU, &|t| match t.cpu_ns {
            Some(ns) => time(ns),
            None => "–".to_owned(),
        }),
        column(5, "in calls", &|t| known(t, t.dispatch_ns)),
        column(1, "between", &|t| known(t, t.no_dispatch_ns())),
        column(6, "of wall", &share),
        column(3, OFF_CPU, &off_cpu),
    ];
    let laid = layout(out, columns, Names::Shortened(THREAD_WIDTH), width)?;
    let more = threads.len() - some.len() + overview.summary.silent.len() - silent.len();
    if more > 0 {
        writeln!(out, "… and {} more", grouped(more as u128))?;
    }
    let prose = width.unwrap_or(PROSE_WIDTH);
    let with_off_cpu = !laid.left_out.contains(&OFF_CPU);
    if with_off_cpu && some.iter().any(|t| t.off_cpu.is_some_and(|off| off.assumed)) {
        wrapped(out, "≤: ", ASSUMED_ON_CPU, prose)?;
    }
    laid.say_left_out_but_in(out, width, "json")?;
    writeln!(out)
}

/// Prints the table of time series (samples of counters over time).
fn series(out: &mut impl Write, overview: &Overview<'_>, width: Option<usize>) -> io::Result<()> {
    const TITLES: [&str; 7] = ["track", "of", "total", "mean", "min", "max", "samples"];
    let mut rows = tracks::rows(overview);
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(LISTED);
    rows.truncate(LISTED);
    let columns = TITLES.iter().enumerate().map(|(i, title)| Shown {
        name: title,
        title: (*title).to_owned(),
        rank: [0, 1, 2, 3, 5, 4, 6][i],
        kind: if i < 2 { Kind::Text } else { Kind::Number },
        cells: rows.iter().map(|(cells, _)| cells[i].clone()).collect(),
    });
    writeln!(out)?;
    let laid = layout(out, columns.collect(), Names::Shortened(THREAD_WIDTH), width)?;
    if more > 0 {
        writeln!(out, "… and {} more (--format json has them)", grouped(more as u128))?;
    }
    let prose = width.unwrap_or(PROSE_WIDTH);
    if rows.iter().any(|(_, estimated)| *estimated) {
        let text = "counted for only part of the time, and scaled";
        wrapped(out, "~: ", text, prose)?;
    }
    laid.say_left_out_but_in(out, width, "json")?;
    let evenness = tracks::evenness(overview);
    if !evenness.is_empty() {
        wrapped(out, "tracks: ", &evenness, prose)?;
    }
    writeln!(out)
}
