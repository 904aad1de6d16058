//! Prints the comparison for people, as text and as Markdown.

use std::io::{self, Write};

use analysis::diff::verdict::Verdict;
use analysis::diff::{Part, Statistic, Untested};
use profile::manifest::Manifest;

use super::View;
use super::answer::{processor, reading, sentence, signed_time, trimmed};
use super::columns::{BASE, NEW};
use super::inputs::Run;
use crate::terminal::visible;
use crate::view::markdown::plain;
use crate::view::text::table;
use crate::view::units::{grouped, plural, shorten, time};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// The line about counters describes at most this many of the rows whose counters differ.
const COUNTERS: usize = 8;
/// On a shared machine, a run whose calls take less than this time in total may have no undisturbed
/// call.
const SHORT_NS: f64 = 1e9;
/// Commands with more characters are shortened.
const COMMAND: usize = 200;

pub fn print(out: &mut impl Write, view: &View<'_>, width: Option<usize>) -> io::Result<()> {
    let tables = width.map(|width| width.max(40));
    let prose = tables.unwrap_or(PROSE_WIDTH);
    wrapped(out, "", &sentence(view.diff, view.names), prose)?;
    for (label, text) in head(view) {
        wrapped(out, &format!("{label:<9} "), &text, prose)?;
    }
    writeln!(out)?;
    if !view.table.order.is_empty() {
        table(out, &view.table, tables)?;
    }
    for (label, text) in below(view) {
        wrapped(out, &format!("{label}: "), &text, prose)?;
    }
    Ok(())
}

pub fn markdown(out: &mut impl Write, view: &View<'_>) -> io::Result<()> {
    writeln!(out, "**{}**\n", plain(&sentence(view.diff, view.names)))?;
    let columns: Vec<_> = view
        .table
        .columns
        .iter()
        .filter(|column| !column.csv_only)
        .filter(|column| {
            column.rank < 5 && view.table.order.iter().any(|row| column.cells.get(*row).is_some())
        })
        .collect();
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    writeln!(out, "{}", line(columns.iter().map(|column| plain(&column.title)).collect()))?;
    let is_number = |name: &str| name.ends_with("_ns") || name == "in_run";
    let align = |name: &str| if is_number(name) { "---:".into() } else { ":---".to_owned() };
    writeln!(out, "{}", line(columns.iter().map(|column| align(&column.name)).collect()))?;
    for row in &view.table.order {
        let cells = columns.iter().map(|column| {
            column.cells.get(*row).map_or_else(|| "–".to_owned(), |cell| plain(&cell.to_text()))
        });
        writeln!(out, "{}", line(cells.collect()))?;
    }
    if view.table.left_out > 0 {
        writeln!(out, "\n… and {} more", grouped(view.table.left_out as u128))?;
    }
    writeln!(out)?;
    for (label, text) in head(view).into_iter().chain(below(view)) {
        writeln!(out, "- {label}: {}", plain(&text))?;
    }
    Ok(())
}

pub fn head(view: &View<'_>) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for (label, runs) in [BASE, NEW].into_iter().zip(&view.inputs.runs) {
        lines.push((label, side(runs)));
    }
    let diff = view.diff;
    let how = match (diff.untested, view.args.paired) {
        (None, true) => format!("{} as they were given", plural(diff.pairs as u128, "pair")),
        (None, false) => format!("{} in random order", plural(diff.pairs as u128, "pair")),
        (Some(Untested::TooFew(_)), _) => {
            "too few pairs: ratios are shown, and not tested".to_owned()
        }
        (Some(Untested::NotPaired), _) => {
            "not interleaved: ratios are shown, and not tested. The load and the frequency of a \
             machine change within minutes, which takes 9 to 72 % of unchanged ops for changed"
                .to_owned()
        }
    };
    lines.push(("runs", how));
    lines
}

/// Returns a text about the runs of A or of B: how many there are, their command or dataset, and
/// the labels that all of them have.
fn side(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let command = |manifest: &Manifest| visible(&manifest.command.join(" ")).into_owned();
    let of_first = command(&first.manifest);
    let same = runs.iter().all(|run| command(&run.manifest) == of_first);
    let labels: Vec<String> = first
        .manifest
        .labels
        .iter()
        .filter(|(key, value)| runs.iter().all(|run| run.manifest.labels.get(*key) == Some(value)))
        .map(|(key, value)| visible(&format!("{key}={value}")).into_owned())
        .collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!(" ({})", labels.join(", ")),
    };
    let runs = plural(runs.len() as u128, "run");
    let command = match (first.dataset(), same) {
        // The commands of a dataset's runs are not known.
        (Some(dataset), _) => visible(&dataset.display().to_string()).into_owned(),
        (None, true) => shorten(&of_first, COMMAND),
        (None, false) => "several commands".to_owned(),
    };
    format!("{runs} of {command}{labels}")
}

/// Formats a part of the time difference between a run of A and a run of B, with its interval if it
/// has one: `+2.3 ms [+1.2 ms, +3.4 ms]`.
pub fn part(of: &Part) -> String {
    let range = match of.interval {
        Some([low, high]) => format!(" [{}, {}]", signed_time(low), signed_time(high)),
        None => String::new(),
    };
    format!("{}{range}", signed_time(of.ns))
}

/// Returns the names of the rows in which counters differ, each with one text for each counter that
/// differs.
pub fn counters(view: &View<'_>) -> impl Iterator<Item = (String, Vec<String>)> {
    view.diff.rows.iter().zip(view.names).filter_map(|(row, name)| {
        let all: Vec<String> = row.readings.iter().filter_map(reading).collect();
        (!all.is_empty()).then(|| (name.clone(), all))
    })
}

fn below(view: &View<'_>) -> Vec<(&'static str, String)> {
    let diff = view.diff;
    let mut lines = Vec::new();
    if let (Some(explained), [Some(a), Some(b)]) = (diff.whole.explained, diff.whole.total_ns) {
        let about = |side: usize| ["", "~"][usize::from(diff.whole.estimated[side])].to_owned();
        let rest = diff.whole.remainder.map_or(String::new(), |rest| {
            format!(
                "; remainder {}: slow calls and first calls, which are not typical",
                part(&rest)
            )
        });
        let paired = diff.whole.difference.filter(|of| of.interval.is_some());
        let difference = paired.map_or(String::new(), |of| {
            format!(
                " (medians); the differences of pairs have the mean {}, which is made of what follows",
                signed_time(of.ns)
            )
        });
        let others = match diff.whole.counts_all {
            true => ", and all calls where their number differs,",
            false => "",
        };
        lines.push((
            "whole",
            format!(
                "{} → {} in calls of a run{difference}. Typical calls of all ops{others} add {}{rest}",
                about(0) + &time(a),
                about(1) + &time(b),
                part(&explained)
            ),
        ));
    }
    if let (Some(one), Some(verdict)) = (diff.processor.compared.first(), processor(diff)) {
        let [a, b] = one.medians.map(time);
        let text = format!("{a} → {b} of a whole run, start and end included: {verdict}");
        lines.push(("processor time", text));
    }
    if let [Some(a), Some(b)] = diff.whole.between_ns {
        lines.push(("between", format!("{} → {} outside of calls, not tested", time(a), time(b))));
    }
    let counters: Vec<String> =
        counters(view).map(|(name, all)| format!("{name}: {}", all.join(", "))).collect();
    if !counters.is_empty() {
        let more = counters.len().saturating_sub(COUNTERS);
        let more = if more > 0 { format!("; and {more} more rows") } else { String::new() };
        let some = counters.iter().take(COUNTERS).cloned().collect::<Vec<_>>().join("; ");
        lines.push(("counters", some + &more));
    }
    lines.extend(notes(view));
    lines
}

/// Returns the notes below the table.
pub fn notes(view: &View<'_>) -> Vec<(&'static str, String)> {
    let diff = view.diff;
    let mut lines = Vec::new();
    let any = |is: fn(&Verdict) -> bool| diff.rows.iter().any(|row| is(&row.verdict));
    if diff.rows.iter().any(|row| row.part.is_some()) {
        let text = "A and B are of one typical execution (a dispatch, or else a call), with what is \
                    inside of it; in a run is by how much all calls of the op, without what is inside \
                    of them, change the time of a recording";
        lines.push(("columns", text.to_owned()));
    }
    if diff.untested.is_none() {
        lines.push((
            "read",
            format!(
                "faster 5 % [4, 6]: it takes 5 % less time, and between 4 and 6 % with 95 % \
                 confidence. A and B are the medians of typical calls over all runs, and the \
                 percentage is of pairs of runs, so it can differ from what A and B would give. \
                 Same: within {} % in floor \
                 and typical call",
                trimmed(view.args.threshold)
            ),
        ));
    }
    if diff.rows.iter().any(|row| row.other_executions.is_some()) {
        let text = "B executes the op more or less often than A, so that single executions may not be \
                    the same work; A, B and the verdict are of all its executions in a run";
        lines.push(("10 instead of 20", text.to_owned()));
    }
    if let Some(factor) = diff.factor {
        let text = format!(
            "B makes {factor:.2} times as many calls of most ops as A; single calls are compared, but \
             the whole and in a run are of different amounts of work"
        );
        lines.push(("calls", text));
    }
    if any(|verdict| matches!(verdict, Verdict::Unknown { .. })) {
        let text = "more pairs have to be a new series; adding pairs until something differs finds \
                    differences where there are none";
        lines.push(("cannot be told", text.to_owned()));
    }
    let times = || diff.whole.total_ns.iter().flatten().copied();
    let too_noisy = |verdict: &Verdict| matches!(verdict, Verdict::Unknown { pairs: None, .. });
    if (too_noisy(&diff.whole.verdict) || any(too_noisy)) && times().any(|ns| ns < SHORT_NS) {
        let longest = time(times().fold(0.0, f64::max));
        let text = format!(
            "the calls of a run take {longest}. Where other machines share this one's processors, \
             runs of one or two seconds tell more: with more iterations in each run, more of its \
             calls are undisturbed"
        );
        lines.push(("short runs", text));
    }
    if any(|verdict| verdict.change().is_some_and(|change| change.floor_unchanged)) {
        let text = "single calls can be as fast as before: contention, caches, or only part of the \
                    calls changed";
        lines.push(("floor unchanged", text.to_owned()));
    }
    if any(|verdict| verdict.change().is_some_and(|change| change.statistic == Statistic::Fastest))
    {
        let text = "typical calls vary too much for a verdict between these runs; the shortest call of \
                    each run, which nothing disturbed, tells them apart";
        lines.push(("its fastest call", text.to_owned()));
    }
    if diff.whole.estimated.contains(&true) {
        let text = "of runs with a budget, totals, means and quantiles are estimates from the timed calls; \
                    numbers of calls with ~ are estimates, too, and those without it are exact";
        lines.push(("budget", text.to_owned()));
    }
    lines.extend(view.inputs.notes.iter().map(|note| ("note", note.clone())));
    let raw = view.args.raw;
    if raw {
        lines.push(("values", "as they were recorded; nothing was subtracted".to_owned()));
    }
    lines
}
