//! Prints a table as text, with marks on cells and lines that explain the marks.

use std::io::{self, Write};

use analysis::Hidden;

use super::layout::{Kind, Layout, SAYS_NOTHING, Shown, layout};
use super::table::{Column, Table, Value};
use super::units::{grouped, percent, plural};
use super::wrap::{PROSE_WIDTH, wrapped};
use crate::view::sampled;
use crate::view::source::SOURCE;

/// The column with the time that threads were off a CPU.
const OFF_CPU: &str = "off_cpu_ns";
/// Why a thread's time off a CPU is an upper bound.
pub const ASSUMED_ON_CPU: &str = "at most: no counter measured the CPU time in some calls, which are taken \
                                  to have been on a CPU all the time";

/// Prints a table. The mark `*` says that only some calls have a value, and `±` shows an interval.
/// The mark `≈` stands for an estimate or for a value that mostly the recorder caused. Returns the
/// names of the columns that did not fit.
pub fn table<'a>(
    out: &mut impl Write,
    table: &'a Table,
    width: Option<usize>,
) -> io::Result<Vec<&'a str>> {
    Ok(laid_out(out, table, width)?.left_out)
}

/// Like [`table`], but also returns the common beginning of names that was replaced by `…`.
pub fn laid_out<'a>(
    out: &mut impl Write,
    table: &'a Table,
    width: Option<usize>,
) -> io::Result<Layout<'a>> {
    let mut columns: Vec<&Column> =
        table.columns.iter().filter(|c| !c.csv_only && !is_empty(table, c)).collect();
    // Source locations are less important than numbers, so their column comes last.
    columns.sort_by_key(|column| column.name == SOURCE);
    let shown = columns.iter().map(|column| {
        let any = table.order.iter().any(|row| column.partly(*row).is_some());
        let cells = table.shown().map(|row| {
            let text = cell_text(column, row);
            if any && column.partly(row).is_none() { text + " " } else { text }
        });
        let is_text =
            column.cells.iter().any(|cell| matches!(cell.as_deref(), Some(Value::Text(_))));
        let kind = match is_text {
            _ if column.name == SOURCE => Kind::Place,
            true => Kind::Text,
            false => Kind::Number,
        };
        let cells: Vec<String> = cells.collect();
        let nothing = says_nothing(table, column);
        Shown {
            name: &column.name,
            title: column.title.clone(),
            rank: if nothing { SAYS_NOTHING } else { column.rank },
            kind,
            cells,
        }
    });
    let shown = shown.collect();
    let laid = layout(out, shown, table.names, width)?;
    if table.left_out > 0 {
        writeln!(out, "… and {} more (--top 0 shows all)", grouped(table.left_out as u128))?;
    }
    let prose = width.unwrap_or(PROSE_WIDTH);
    if let Some(common) = &laid.common {
        wrapped(out, "… ", &format!("at the beginning of a name stands for {common}"), prose)?;
    }
    for (mark, text) in marks(table, &laid.left_out) {
        wrapped(out, mark, &text, prose)?;
    }
    laid.say_left_out(out, width)?;
    writeln!(out)?;
    Ok(laid)
}

/// Returns the text of a cell with its marks.
pub fn cell_text(column: &Column, row: usize) -> String {
    let cell = column.cells.get(row);
    let text = match &cell {
        Some(value) => value.to_text(),
        None => "–".to_owned(),
    };
    let text = match (column.margin_of(row), &cell) {
        (Some(part), Some(value)) if value.shows().0 => text + &sampled::margin_text(part),
        _ => text,
    };
    let text = match column.estimate(row).or(column.is_mostly_empty(row)) {
        Some(_) => format!("≈{text}"),
        None => text,
    };
    if column.partly(row).is_some() { text + "*" } else { text }
}

/// Explains the marks of a cell.
pub fn note_of(column: &Column, row: usize) -> Option<String> {
    let partly = column.partly(row).map(|(counted, calls)| {
        format!("in {} of {} calls", grouped(counted.into()), grouped(calls.into()))
    });
    let part = match (column.estimate(row), column.is_mostly_empty(row)) {
        (Some(part), _) => {
            Some(format!("estimated: it was counted for {} of the time", percent(part)))
        }
        (None, Some(part)) => {
            Some(format!("{} of it is what the probe itself counted", percent(part)))
        }
        (None, None) => None,
    };
    let all: Vec<String> = partly.into_iter().chain(part).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Whether no cell of a column contains a useful value. Always false for texts in a column of rank
/// 0.
pub fn says_nothing(table: &Table, column: &Column) -> bool {
    let is_text = column.cells.iter().any(|cell| matches!(cell.as_deref(), Some(Value::Text(_))));
    let mut cells = table.shown().map(|row| cell_text(column, row));
    match is_text {
        false => cells.all(|cell| is_nothing(column, &cell)),
        true => column.rank > 0 && cells.all(|cell| cell.is_empty() || cell == "–"),
    }
}

/// Whether a column contains only empty texts. Always false for a column of rank 0, which is among
/// the most important ones.
fn is_empty(table: &Table, column: &Column) -> bool {
    let is_text = column.cells.iter().any(|cell| matches!(cell.as_deref(), Some(Value::Text(_))));
    let mut cells = table.shown().map(|row| cell_text(column, row));
    is_text && column.rank > 0 && cells.all(|cell| cell.is_empty())
}

/// Whether a cell has no useful value: no value at all, the number 0, one thread, or one CPU.
fn is_nothing(column: &Column, cell: &str) -> bool {
    let one = matches!(column.name.as_str(), "threads" | "cpus") && cell == "1";
    one || matches!(cell, "–" | "0" | "0 ns")
}

pub fn marks(table: &Table, left_out: &[&str]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let has = |name: String| table.columns.iter().any(|column| column.name == name);
    let is_repeated = |column: &Column| {
        let of = column.name.strip_suffix("_per_call");
        of.is_some_and(|of| table.columns.iter().any(|column| column.name == of))
    };
    // Columns with the same numbers of calls are explained together.
    let mut partly: Vec<(Vec<&str>, (u64, u64))> = Vec::new();
    let mut estimated = Vec::new();
    for column in table.columns.iter().filter(|column| !column.csv_only) {
        let marked = || table.order.iter().filter_map(|row| column.partly(*row));
        // A counter whose column was left out is named, too, because its metrics may be shown.
        let is_shown = !left_out.contains(&column.name.as_str()) || column.hidden.is_none();
        if marked().next().is_some() && is_shown && !is_repeated(column) {
            let sum = marked().fold((0, 0), |(n, m), (counted, of)| (n + counted, m + of));
            match partly.iter_mut().find(|(_, known)| *known == sum) {
                Some((names, _)) => names.push(column.name.as_str()),
                None => partly.push((vec![column.name.as_str()], sum)),
            }
        }
        if let Some(parts) = &column.estimated
            && has(format!("{}_calls", column.name))
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
    }
    if !partly.is_empty() {
        let counters = partly.iter().map(|(names, (counted, calls))| {
            let names = match names.split_last() {
                Some((last, first)) if !first.is_empty() => {
                    format!("{} and {last}", first.join(", "))
                }
                _ => names.concat(),
            };
            format!(
                "{names} in {} of {} calls",
                grouped((*counted).into()),
                grouped((*calls).into())
            )
        });
        let text = format!(
            "counted in only some of the calls in the marked rows: {}; calls and times are of all of them",
            counters.collect::<Vec<_>>().join(", ")
        );
        lines.push(("* ", text));
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
        lines.push(("≈ ", text));
    }
    lines.extend(doubts(table, left_out));
    lines
}

fn doubts(table: &Table, left_out: &[&str]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let shown = |column: &&Column| !column.csv_only && !left_out.contains(&column.name.as_str());
    let cells = table.columns.iter().filter(shown).flat_map(|column| {
        table.order.iter().filter_map(|row| column.cells.get(*row).map(|cell| cell.shows()))
    });
    let (below, wide) = cells.fold((false, false), |(below, wide), (resolved, interval)| {
        (below || !resolved, wide || interval)
    });
    let at_most = |column: &Column| {
        let mut cells = column.cells.iter();
        column.name == OFF_CPU
            && cells.any(|cell| matches!(cell.as_deref(), Some(Value::AtMostNs(_))))
    };
    if table.columns.iter().filter(shown).any(at_most) {
        lines.push(("≤: ", ASSUMED_ON_CPU.to_owned()));
    }
    if below {
        let text = "below this value, and cannot be told from what recording the call, and the calls inside of it, took";
        lines.push(("< ", text.to_owned()));
    }
    if wide {
        let text = "half of the 95 % interval: what empty calls read is subtracted, and is not known \
                    better than this (no ±: better than 1 %)";
        lines.push(("± ", text.to_owned()));
    }
    let unknown = |column: &Column| {
        let mut margins = table.shown().filter_map(|row| Some((row, column.margin_of(row)?)));
        margins.any(|(row, margin)| {
            margin.is_infinite() && column.cells.get(row).is_some_and(|cell| cell.shows().0)
        })
    };
    if table.columns.iter().filter(shown).any(unknown) {
        let text = "too few calls were drawn to say how far off it is";
        lines.push(("±? ", text.to_owned()));
    }
    let range = |shares: &[f64]| {
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        let most = shares.iter().copied().fold(0.0, f64::max);
        match percent(least) == percent(most) {
            true => percent(most),
            false => format!("{} to {}", percent(least), percent(most)),
        }
    };
    let empty: Vec<String> = table
        .columns
        .iter()
        .filter(shown)
        .filter(|c| table.columns.iter().any(|calls| calls.name == format!("{}_calls", c.name)))
        .filter_map(|column| {
            let shares = table.order.iter().filter_map(|row| column.is_mostly_empty(*row));
            let shares: Vec<f64> = shares.collect();
            (!shares.is_empty()).then(|| format!("{} {}", column.name, range(&shares)))
        })
        .collect();
    if !empty.is_empty() {
        let text = format!(
            "mostly counted by the probe itself; its part of the value: {}",
            empty.join(", ")
        );
        lines.push(("≈ ", text));
    }
    for column in table.columns.iter().filter(shown) {
        let Some(hidden) = &column.hidden else { continue };
        let found = table.order.iter().filter_map(|row| hidden.get(*row));
        let found: Vec<Hidden> = found.collect();
        let count = |of: fn(&Hidden) -> bool| found.iter().filter(|h| of(h)).count();
        let kinds = [
            (
                count(|h| matches!(h, Hidden::Counter { .. })),
                "the probe itself counts most of a counter",
            ),
            (
                count(|h| matches!(h, Hidden::Duration { .. })),
                "the probe itself takes most of the duration",
            ),
            (
                count(|h| matches!(h, Hidden::MoreThanAll { .. })),
                "the value is above 100 % of the time, which is impossible",
            ),
        ];
        for (rows, why) in kinds.into_iter().filter(|(rows, _)| *rows > 0) {
            let rows = plural(rows as u128, "row");
            lines.push(("– ", format!("{} is left out of {rows}: {why}", column.name)));
        }
    }
    lines
}
