//! The report for people: header, table, and what belongs below it.

use std::io::{self, Write};

use analysis::ThreadTime;
use model::Severity;
use profile::LossCount;

use super::columns::{Column, Table, Value, process_label, thread_label};
use super::losses::{by_severity, errno_text, notes, reasons, severity};
use super::source::SOURCE;
use super::tracks::LISTED;
use super::units::{grouped, percent, shorten, time};
use super::{Report, header, names};
use crate::output::PROSE_WIDTH;
use crate::terminal::{Style, visible};

/// Names are not shortened below this, as long as there are other columns to leave out.
const NAME_WIDTH: usize = 28;
/// What a place in the source is shortened to before the column is left out.
const SOURCE_WIDTH: usize = 16;
/// Likewise for names of threads.
const THREAD_NAME_WIDTH: usize = 16;
const OFF_CPU: &str = "off-CPU meanwhile";
/// Threads that are listed; the rest is counted.
const THREADS: usize = 16;
const GAP: &str = "  ";

/// Without a width tables are as wide as they need.
pub fn print(out: &mut impl Write, report: &Report<'_>, width: Option<usize>) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let width = tables.unwrap_or(PROSE_WIDTH);
    for (label, text) in header::lines(report) {
        // A command can be very long.
        let text = shorten(&text, 3 * (width - 10));
        wrapped(out, &format!("{label:<9} "), &text, width)?;
    }
    writeln!(out)?;
    if report.summary.calls == 0 && !report.summary.rows.is_empty() {
        table(out, &report.table, tables)?;
    } else if report.summary.calls == 0 {
        writeln!(out, "no calls were recorded; likely reasons:")?;
        for reason in reasons(report) {
            wrapped(out, "  - ", &reason, width)?;
        }
    } else if report.summary.rows.is_empty() {
        writeln!(out, "no op matches {}", visible(report.filter.unwrap_or_default()))?;
    } else {
        table(out, &report.table, tables)?;
        if let Some(text) = super::source::shared(&report.table) {
            wrapped(out, "source: ", &text, width)?;
            writeln!(out)?;
        }
        threads(out, report, tables)?;
        wrapped(out, "probes: ", &super::price::text(report), width)?;
    }
    tracks(out, report, tables)?;
    losses(out, &report.summary.losses, width)?;
    for note in notes(report) {
        wrapped(out, "note: ", &note, width)?;
    }
    Ok(())
}

/// The table of the report. A counter that was not counted in all calls of a row is marked.
pub fn table(out: &mut impl Write, table: &Table, width: Option<usize>) -> io::Result<()> {
    let mut columns: Vec<&Column> = table.columns.iter().filter(|c| !c.csv_only).collect();
    // A place in the source is worth less than a number.
    columns.sort_by_key(|column| column.name == SOURCE);
    let mut partly = Vec::new();
    let mut estimated = Vec::new();
    let shown = columns.iter().map(|column| {
        let marked = || table.order.iter().filter_map(|row| column.partly(*row));
        let any = marked().next().is_some();
        if any && table.columns.iter().any(|c| c.name == format!("{}_per_call", column.name)) {
            let sum = marked().fold((0, 0), |(n, m), (counted, of)| (n + counted, m + of));
            partly.push((column.name.as_str(), sum));
        }
        if let Some(parts) = &column.estimated
            && table.columns.iter().any(|c| c.name == format!("{}_calls", column.name))
        {
            let parts: Vec<f64> = parts.iter().copied().flatten().collect();
            let (least, most) =
                parts.iter().fold((f64::MAX, 0.0), |(least, most): (f64, f64), p| {
                    (least.min(*p), most.max(*p))
                });
            if !parts.is_empty() {
                estimated.push((column.name.as_str(), least, most));
            }
        }
        let cells = table.order.iter().map(|row| {
            let text = match &column.cells[*row] {
                Some(value) => value.to_text(),
                None => "–".to_owned(),
            };
            let text = match column.estimate(*row).or(column.is_mostly_empty(*row)) {
                Some(_) => format!("≈{text}"),
                None => text,
            };
            match column.partly(*row) {
                Some(_) => text + "*",
                None if any => text + " ",
                None => text,
            }
        });
        let is_text = column.cells.iter().any(|cell| matches!(cell, Some(Value::Text(_))));
        Shown {
            name: &column.name,
            title: column.title.clone(),
            rank: column.rank,
            is_text,
            cells: cells.collect(),
        }
    });
    let shown = shown.collect();
    let Layout { left_out, common } = layout(out, shown, NAME_WIDTH, width)?;
    let prose = width.unwrap_or(PROSE_WIDTH);
    if let Some(common) = common {
        wrapped(out, "… ", &format!("at the beginning of a name stands for {common}"), prose)?;
    }
    if !partly.is_empty() {
        let counters = partly.iter().map(|(name, (counted, calls))| {
            format!(
                "{name} in {} of {} calls",
                grouped((*counted).into()),
                grouped((*calls).into())
            )
        });
        let text = format!(
            "counted in only some of the calls in the marked rows: {}",
            counters.collect::<Vec<_>>().join(", ")
        );
        wrapped(out, "* ", &text, prose)?;
    }
    if !estimated.is_empty() {
        let counters = estimated.iter().map(|(name, least, most)| {
            let (least, most) = (percent(*least), percent(*most));
            match least == most {
                true => format!("{name} {least}"),
                false => format!("{name} {least} to {most}"),
            }
        });
        let text = format!(
            "estimates, because counters took turns; each was counting for this part of the time \
             in its row's calls: {}",
            counters.collect::<Vec<_>>().join(", ")
        );
        wrapped(out, "≈ ", &text, prose)?;
    }
    for (mark, text) in super::price::doubts(table, &left_out) {
        wrapped(out, mark, &text, prose)?;
    }
    if !left_out.is_empty() {
        let text =
            format!("{} (use a wider terminal, or --format json or csv)", left_out.join(", "));
        wrapped(out, "not shown: ", &text, prose)?;
    }
    writeln!(out)
}

/// A column as it is printed.
struct Shown<'a> {
    name: &'a str,
    title: String,
    /// See [`Column::rank`].
    rank: u8,
    /// Aligned left.
    is_text: bool,
    cells: Vec<String>,
}

/// What [`layout`] had no room for.
#[derive(Debug, Default)]
struct Layout<'a> {
    /// Names of the columns that were left out.
    left_out: Vec<&'a str>,
    /// A beginning that names had in common, and that is `…` now.
    common: Option<String>,
}

/// Prints columns in at most `width`, as far as that is possible: shortens places in the source,
/// leaves out columns of the highest rank, and shortens what is in the first one.
fn layout<'a>(
    out: &mut impl Write,
    mut shown: Vec<Shown<'a>>,
    name_width: usize,
    width: Option<usize>,
) -> io::Result<Layout<'a>> {
    let length = |text: &String| text.chars().count();
    let needs = |column: &Shown<'_>| {
        column.cells.iter().map(length).chain([length(&column.title)]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = shown.iter().map(needs).collect();
    let Some(name) = shown.first() else { return Ok(Layout::default()) };
    // Only of ops it is said what was cut.
    let cut = name_width == NAME_WIDTH;
    let (title, name_needs) = (length(&name.title), widths[0]);
    // Names without what they have in common.
    let least = names::least(&name.cells, cut).max(title);
    let is_source = |column: &Shown<'_>| column.name == SOURCE;
    // A place in the source is shortened before anything else.
    let source_needs = shown.iter().position(is_source).map(|i| widths[i]).unwrap_or(0);
    if let Some(i) = shown.iter().position(is_source) {
        widths[i] = source_needs.min(SOURCE_WIDTH);
    }
    let others = |widths: &[usize]| widths[1..].iter().map(|w| w + GAP.len()).sum::<usize>();
    let width = width.unwrap_or(usize::MAX);
    let mut left_out = Vec::new();
    while shown.len() > 2 {
        let taken = others(&widths);
        let worst = match (1..shown.len()).find(|i| is_source(&shown[*i])) {
            // And goes before a name is shortened to less than tells it apart.
            Some(source) if taken.saturating_add(least) > width => Some(source),
            _ if taken.saturating_add(least.min(name_width)) > width => {
                (1..shown.len()).max_by_key(|i| (shown[*i].rank, *i))
            }
            _ => None,
        };
        let Some(worst) = worst else { break };
        widths.remove(worst);
        left_out.push(shown.remove(worst).name);
    }
    let room = width.saturating_sub(others(&widths)).max(8);
    widths[0] = name_needs.min(room);
    let fitted = names::fit(&shown[0].cells, widths[0], cut);
    widths[0] = fitted.names.iter().map(length).chain([title.min(widths[0])]).max().unwrap_or(0);
    shown[0].cells = fitted.names;
    if let Some(i) = shown.iter().position(is_source) {
        let free = width.saturating_sub(widths[0]).saturating_sub(others(&widths));
        widths[i] = source_needs.min(widths[i].saturating_add(free));
        let cells = &mut shown[i].cells;
        cells.iter_mut().for_each(|cell| *cell = names::place(cell, widths[i]));
    }
    let line = |out: &mut dyn Write, cell: &dyn Fn(&Shown<'_>) -> String| -> io::Result<()> {
        let mut text = String::new();
        for (i, (column, width)) in shown.iter().zip(&widths).enumerate() {
            let cell = shorten(&visible(&cell(column)), *width);
            if i > 0 {
                text.push_str(GAP);
            }
            // Not by `{:width$}`, which panics from 65,536 on: names can be longer.
            let gap = " ".repeat(width.saturating_sub(length(&cell)));
            match column.is_text {
                true => text.extend([cell, gap]),
                false => text.extend([gap, cell]),
            }
        }
        out.write_all(text.trim_end().as_bytes())
    };
    write!(out, "{}", Style::Bold.mark())?;
    line(out, &|column| column.title.clone())?;
    writeln!(out, "{}", Style::Off.mark())?;
    for row in 0..shown.first().map_or(0, |name| name.cells.len()) {
        line(out, &|column| column.cells[row].clone())?;
        writeln!(out)?;
    }
    Ok(Layout { left_out, common: fitted.common })
}

fn threads(out: &mut impl Write, report: &Report<'_>, width: Option<usize>) -> io::Result<()> {
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
    let some = &threads[..threads.len().min(THREADS)];
    let column = |rank, title: &'static str, cell: &dyn Fn(&ThreadTime) -> String| Shown {
        name: title,
        title: title.to_owned(),
        rank,
        is_text: title == "thread",
        cells: some.iter().map(|t| cell(t)).collect(),
    };
    let share = |t: &ThreadTime| match t.wall_ns > 0.0 {
        true => percent(t.no_dispatch_ns() / t.wall_ns),
        false => "–".to_owned(),
    };
    let off_cpu = |t: &ThreadTime| match t.off_cpu {
        None => "–".to_owned(),
        Some(off) => format!("{}{}", if off.assumed { "≤ " } else { "" }, time(off.ns)),
    };
    let columns = vec![
        column(0, "thread", &label),
        column(4, "wall", &|t| time(t.wall_ns)),
        column(5, "in dispatch", &|t| time(t.dispatch_ns)),
        column(1, "in no dispatch", &|t| time(t.no_dispatch_ns())),
        column(6, "of wall", &share),
        column(3, OFF_CPU, &off_cpu),
    ];
    let Layout { left_out, .. } = layout(out, columns, THREAD_NAME_WIDTH, width)?;
    if threads.len() > THREADS {
        writeln!(out, "… and {} more", grouped((threads.len() - THREADS) as u128))?;
    }
    let prose = width.unwrap_or(PROSE_WIDTH);
    let with_off_cpu = !left_out.contains(&OFF_CPU);
    if with_off_cpu && some.iter().any(|t| t.off_cpu.is_some_and(|off| off.assumed)) {
        let text = "no counter measured the CPU time in some dispatches; they are assumed to have \
                    been on a CPU all the time";
        wrapped(out, "≤: ", text, prose)?;
    }
    if !left_out.is_empty() {
        wrapped(out, "not shown: ", &left_out.join(", "), prose)?;
    }
    writeln!(out)
}

/// Time series beside the calls.
fn tracks(out: &mut impl Write, report: &Report<'_>, width: Option<usize>) -> io::Result<()> {
    const TITLES: [&str; 7] = ["track", "of", "total", "mean", "min", "max", "samples"];
    let mut rows = super::tracks::rows(report);
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(LISTED);
    rows.truncate(LISTED);
    let columns = TITLES.iter().enumerate().map(|(i, title)| Shown {
        name: title,
        title: (*title).to_owned(),
        rank: [0, 1, 2, 3, 5, 4, 6][i],
        is_text: i < 2,
        cells: rows.iter().map(|(cells, _)| cells[i].clone()).collect(),
    });
    writeln!(out)?;
    let Layout { left_out, .. } = layout(out, columns.collect(), THREAD_NAME_WIDTH, width)?;
    if more > 0 {
        writeln!(out, "… and {} more (--format json has them)", grouped(more as u128))?;
    }
    let prose = width.unwrap_or(PROSE_WIDTH);
    if rows.iter().any(|(_, estimated)| *estimated) {
        let text = "counted for only part of the time, and scaled";
        wrapped(out, "~: ", text, prose)?;
    }
    if !left_out.is_empty() {
        wrapped(out, "not shown: ", &left_out.join(", "), prose)?;
    }
    let evenness = super::tracks::evenness(report);
    if !evenness.is_empty() {
        wrapped(out, "tracks: ", &evenness, prose)?;
    }
    writeln!(out)
}

/// One line for each, or more.
pub fn losses(out: &mut impl Write, losses: &[LossCount], width: usize) -> io::Result<()> {
    for loss in by_severity(losses) {
        let errno = errno_text(loss).map_or(String::new(), |text| format!(" ({text})"));
        let (on, off) = match severity(loss) {
            Severity::Note => ("", ""),
            Severity::Missing => (Style::Yellow.mark(), Style::Off.mark()),
            Severity::Distorted => (Style::Red.mark(), Style::Off.mark()),
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

/// Writes `text` behind `head`, broken between words, further lines indented under it. Control
/// characters are replaced, here and in [`layout`]: names and notes can hold anything.
pub fn wrapped(out: &mut impl Write, head: &str, text: &str, width: usize) -> io::Result<()> {
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
        line.push_str(&visible(word));
        used += length;
    }
    writeln!(out, "{}", line.trim_end())
}
