//! `diff --html`: writes the comparison as an HTML page.

use std::path::Path;

use analysis::diff::Part;
use analysis::diff::verdict::{Compared, Verdict};

use super::answer::{About, processor, sentence, signed, signed_time, word};
use super::columns::{in_words, shown};
use super::inputs::Run;
use super::text::{counters, head, notes, part};
use super::{View, columns};
use crate::failure::Failure;
use crate::page::compare::{Comparison, Estimate, Row, Whole, write as write_page};
use crate::terminal::visible;
use crate::view::units::{plural, time};

pub fn write(path: &Path, view: &View<'_>) -> Result<(), Failure> {
    let diff = view.diff;
    let owned = |lines: Vec<(&str, String)>| {
        lines.into_iter().map(|(label, text)| (label.to_owned(), text)).collect()
    };
    let rows = diff.rows.iter().map(|row| Row {
        change: change(&row.compared, &row.verdict),
        part: row.part.map(estimate),
        kind: word(&row.verdict, About::Time),
    });
    let of = Comparison {
        program: program(&view.inputs.runs),
        about: match diff.pairs {
            0 => format!("{} and {}", plural(diff.runs[0] as u128, "run"), diff.runs[1]),
            pairs => plural(pairs as u128, "pair"),
        },
        answer: sentence(diff, view.names),
        runs: owned(head(view)),
        whole: whole(view),
        sides: [columns::BASE, columns::NEW],
        verdicts: columns::VERDICT,
        adds: columns::IN_RUN,
        table: view.table.clone(),
        rows: rows.collect(),
        threshold: diff.untested.is_none().then_some(view.args.threshold),
        in_words: [change_in_words, part_in_words],
        counters: counters(view).collect(),
        notes: owned(notes(view)),
    };
    write_page(path, of)
}

/// Returns a name for the page's title: the program of the first run of A. If the first run of B is
/// of another program, the title has both names, with an arrow between them. Runs of a dataset have
/// the name of the dataset.
fn program(runs: &[Vec<Run>; 2]) -> String {
    let name = |run: &Run| {
        let name = run.manifest.command.first().and_then(|path| path.rsplit('/').next());
        let name = name.or_else(|| run.dataset()?.file_name()?.to_str());
        visible(name.unwrap_or("profile")).into_owned()
    };
    let [a, b] = runs.each_ref().map(|runs| runs.first().map(name));
    match (a, b) {
        (Some(a), Some(b)) if a != b => format!("{a} → {b}"),
        (a, b) => a.or(b).unwrap_or_default(),
    }
}

/// Returns the change that a row's verdict states. If the verdict states none, returns the change
/// of the statistic that the text output shows.
fn change(compared: &[Compared], verdict: &Verdict) -> Option<Estimate> {
    match verdict.change() {
        Some(change) => Some(Estimate { value: change.by, ends: Some(change.interval) }),
        None => shown(compared).map(|one| Estimate { value: one.change, ends: one.interval }),
    }
}

fn estimate(part: Part) -> Estimate {
    Estimate { value: part.ns, ends: part.interval }
}

/// Formats a change, with its interval if it has one: `+5.1 % [+4.0 %, +6.2 %]`. The text is empty
/// if the change is not a finite number.
fn change_in_words(of: &Estimate) -> String {
    with_interval(of, signed)
}

fn part_in_words(of: &Estimate) -> String {
    with_interval(of, signed_time)
}

fn with_interval(of: &Estimate, text: fn(f64) -> String) -> String {
    match of.ends {
        _ if !of.value.is_finite() => String::new(),
        Some(ends) if ends.iter().all(|end| end.is_finite()) => {
            format!("{} [{}, {}]", text(of.value), text(ends[0]), text(ends[1]))
        }
        _ => text(of.value),
    }
}

fn whole(view: &View<'_>) -> Vec<Whole> {
    let of = &view.diff.whole;
    let times = |sides: [Option<f64>; 2]| sides.map(|side| side.map(time));
    let row = |name, sides, verdict, added: Option<Part>, row| Whole {
        name,
        sides: times(sides),
        verdict,
        adds: added.as_ref().map(part),
        row: Row { part: added.map(estimate), ..row },
    };
    let verdict = in_words(view.diff, &of.compared, &of.verdict);
    let drawn = Row {
        change: change(&of.compared, &of.verdict),
        part: None,
        kind: word(&of.verdict, About::Time),
    };
    let nothing = [None; 2];
    let mut rows = vec![row("all calls", of.total_ns, Some(verdict), of.difference, drawn)];
    let rest = Row::default();
    if of.explained.is_some() {
        let name = match of.counts_all {
            true => "typical calls of all ops, and all calls where their number differs",
            false => "typical calls of all ops",
        };
        rows.push(row(name, nothing, None, of.explained, rest));
    }
    if of.remainder.is_some() {
        let name = "remainder: slow calls and first calls, which are not typical";
        rows.push(row(name, nothing, None, of.remainder, rest));
    }
    let of_processor = &view.diff.processor;
    if let (Some(one), Some(verdict)) = (of_processor.compared.first(), processor(view.diff)) {
        let drawn = Row {
            change: change(&of_processor.compared, &of_processor.verdict),
            part: None,
            kind: word(&of_processor.verdict, About::Amount),
        };
        let name = "processor time of a whole run, start and end included";
        rows.push(row(name, one.medians.map(Some), Some(verdict), None, drawn));
    }
    if of.between_ns.iter().all(Option::is_some) {
        let verdict = Some("not tested".to_owned());
        rows.push(row("outside of calls", of.between_ns, verdict, None, rest));
    }
    rows
}
