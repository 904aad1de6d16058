//! `diff --history DIR`: finds the runs at which the whole program or a row became slower or
//! faster.
//!
//! ```text
//!  profiles of a directory, by time ─► points ─► analysis::diff::history ─► text, markdown, json
//! ```

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use analysis::diff::Statistic;
use analysis::diff::history::{ChangePoint, FEWEST, MOST, change_points, history};
use analysis::diff::recorded::{Identity, Recorded};
use analysis::diff::verdict::Change;
use profile::series::Series;
use serde::Serialize;

use super::answer::amount;
use super::gate::{self, Failed, Later};
use super::inputs::{Run, each_once, losses, one};
use super::{Args, DiffFormat, FAILED, columns};
use crate::failure::Failure;
use crate::object::object;
use crate::terminal::{known_width, say, stdout, visible};
use crate::view::markdown;
use crate::view::rights::{Needs, confine};
use crate::view::units::{grouped, moment, plural};
use crate::view::wrap::{PROSE_WIDTH, wrapped};

const HISTORY_SCHEMA: &str = "counterpoint.history/1";

/// One point of the history: consecutive runs with the same labels, or a single run without labels.
struct Point {
    runs: Vec<Run>,
}

/// A change of a row, or of the whole program (`row` is `None`).
struct Found {
    row: Option<usize>,
    point: ChangePoint,
    /// The numbers of executions in a run before and after the change, if they differ.
    executions: Option<[f64; 2]>,
    sentence: String,
}

pub fn main(args: &Args, dir: &Path) -> Result<ExitCode, Failure> {
    if args.format == DiffFormat::Csv {
        return Err(Failure::new("diff --history: there is no CSV of changes")
            .hint("--format json has all numbers"));
    }
    confine(None, &Needs::files([&dir.to_owned()].into_iter().chain(&args.metrics.metrics_file)));
    let mut notes = Vec::new();
    let mut points = points(runs(dir, &mut notes)?);
    if points.len() > MOST {
        let older = points.len() - MOST;
        notes.push(format!(
            "the {} before the latest {MOST} are left out",
            plural(older as u128, "point")
        ));
        points.drain(..older);
    }
    if points.len() < FEWEST {
        let found = plural(points.len() as u128, "point");
        return Err(Failure::new(format!("{}: {found}, and it takes {FEWEST}", dir.display())).hint(
            "runs with the same labels, one after the other, count as one: `run --label commit=…` says \
             what was run",
        ));
    }
    let read = |point: &Point| point.runs.iter().map(|run| run.read(args)).collect();
    let read: Vec<Vec<Recorded>> = points.iter().map(read).collect::<Result<_, Failure>>()?;
    let all = points.iter().flat_map(|point| &point.runs).zip(read.iter().flatten());
    notes.extend(losses(all));
    let history = history(&read, args.by.by());
    if history.rows.is_empty() {
        return Err(Failure::new(format!("--by {}: no row is in all runs", args.by.name())));
    }
    if history.left_out > 0 {
        let rows = plural(history.left_out as u128, args.by.name());
        notes.push(format!("{rows} without a time at some point: not tested"));
    }
    let identities: Vec<Identity> = history.rows.iter().map(|row| row.identity.clone()).collect();
    let names = columns::distinct(&identities);
    let labels: Vec<String> = points.iter().map(Point::name).collect();
    // The times of the whole program come first, if there are any.
    let times = history.whole.iter().chain(history.rows.iter().map(|row| &row.times));
    let times: Vec<Vec<f64>> = times.cloned().collect();
    let first = usize::from(history.whole.is_some());
    let mut found: Vec<Found> = Vec::new();
    for (at, of_row) in change_points(&times).into_iter().enumerate() {
        let row = at.checked_sub(first);
        let name = row.map_or("the whole", |row| &names[row]);
        found.extend(of_row.iter().cloned().map(|point| {
            let of = row.map(|row| &history.rows[row]);
            let executions = of.and_then(|of| of.executions_around(&of_row, point.at));
            let sentence = sentence(&labels[point.at], name, &point, executions);
            Found { row, point, executions, sentence }
        }));
    }
    found.sort_by_key(|one| (one.point.at, one.row));
    let later = |one: &Found| Later {
        of: one.row.map(|row| &identities[row]),
        low: one.point.interval[0],
        sentence: one.sentence.clone(),
    };
    let later: Vec<Later<'_>> = found.iter().map(later).collect();
    let tested: Vec<&Identity> = identities.iter().collect();
    let failed = gate::check_history(&args.fail_if, history.whole.is_some(), &tested, &later)?;
    if let Some(glob) = &args.filter {
        let matches = |row: usize| profile::demangle::matches(glob, &identities[row].name);
        found.retain(|one| one.row.is_some_and(matches));
    }
    let runs = points.iter().map(|point| point.runs.len()).sum::<usize>();
    let mut out = BufWriter::new(stdout(args.format.into()));
    let about = format!(
        "{} of {} from {} to {}, {} tested",
        plural(points.len() as u128, "point"),
        plural(runs as u128, "run"),
        labels[0],
        labels[labels.len() - 1],
        match first {
            0 => plural(names.len() as u128, args.by.name()),
            _ => format!("the whole and {}", plural(names.len() as u128, args.by.name())),
        }
    );
    match args.format {
        DiffFormat::Json => {
            let whole = |at: usize| history.whole.as_ref().map(|whole| whole[at]);
            let document = object! {
                schema: HISTORY_SCHEMA,
                by: args.by.name(),
                filter: args.filter.as_deref(),
                points: (0..points.len())
                    .map(|at| object! {
                        name: &labels[at],
                        labels: &points[at].runs[0].manifest.labels,
                        created_unix_ns: points[at].runs[0].manifest.created_unix_ns,
                        runs: points[at]
                            .runs
                            .iter()
                            .map(|run| run.path.display().to_string())
                            .collect::<Vec<_>>(),
                        whole_ns: whole(at),
                    })
                    .collect::<Vec<_>>(),
                changes: found
                    .iter()
                    .map(|one| object! {
                        name: one.row.map(|row| names[row].as_str()),
                        point: one.point.at,
                        change: one.point.change,
                        change_low: one.point.interval[0],
                        change_high: one.point.interval[1],
                        p: one.point.p,
                        executions: one.executions,
                        sentence: &one.sentence,
                    })
                    .collect::<Vec<_>>(),
                failed: failed.iter().map(failed_out).collect::<Vec<_>>(),
                notes: &notes,
            };
            serde_json::to_writer_pretty(&mut out, &document).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        _ => {
            let is_markdown = args.format == DiffFormat::Markdown;
            let width = args.width.or_else(known_width).map_or(PROSE_WIDTH, |width| width.max(40));
            let mut lines: Vec<String> = found.iter().map(|one| one.sentence.clone()).collect();
            if lines.is_empty() {
                lines.push("nothing changed that stands out of the noise".to_owned());
            }
            for (line, is_finding) in lines
                .iter()
                .map(|line| (line, true))
                .chain(notes.iter().chain([&about]).map(|l| (l, false)))
            {
                match (is_markdown, is_finding) {
                    (true, true) => writeln!(out, "- **{}**", markdown::plain(line))?,
                    (true, false) => writeln!(out, "- {}", markdown::plain(line))?,
                    (false, _) => wrapped(&mut out, "", line, width)?,
                }
            }
        }
    }
    out.flush()?;
    for one in failed.iter().filter(|one| !one.rows.is_empty()) {
        say!("--fail-if '{}': {}", one.rule, one.rows.join("; "));
    }
    let fails = failed.iter().any(|one| !one.rows.is_empty());
    Ok(if fails { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn failed_out(one: &Failed) -> impl Serialize {
    object! {
        rule: &one.rule,
        failed: !one.rows.is_empty(),
        rows: &one.rows,
    }
}

/// Describes a change in a sentence: `from commit 1a2b on, matmul takes 7.0 % [5.1, 8.9] longer`. If
/// the number of executions changes, too, both numbers follow.
fn sentence(from: &str, name: &str, point: &ChangePoint, executions: Option<[f64; 2]>) -> String {
    let change = Change {
        statistic: Statistic::Typical,
        by: point.change,
        interval: point.interval,
        floor_unchanged: false,
    };
    let word = if point.change < 0.0 { "less" } else { "longer" };
    let number = executions.map_or(String::new(), |[before, after]| {
        let [before, after] = [before, after].map(|n| grouped(n.round() as u128));
        format!(" ({after} executions in a run instead of {before})")
    });
    format!("from {from} on, {name} takes {} {word}{number}", amount(&change))
}

/// Finds the runs in a directory of profiles and series, or in a series.
fn runs(dir: &Path, notes: &mut Vec<String>) -> Result<Vec<Run>, Failure> {
    let is_run = |path: &PathBuf| path.join("manifest.json").is_file() || Series::is_at(path);
    let mut paths: Vec<PathBuf> = match Series::is_at(dir) {
        true => vec![dir.to_owned()],
        false => {
            let failed = |e: std::io::Error| Failure::new(format!("read {}: {e}", dir.display()));
            let entries = fs::read_dir(dir).map_err(failed)?;
            let entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            entries.into_iter().map(|entry| entry.path()).filter(is_run).collect()
        }
    };
    paths.sort();
    let mut runs = one(&paths, notes)?;
    each_once(&runs)?;
    runs.sort_by_key(|run| run.manifest.created_unix_ns);
    Ok(runs)
}

/// Joins consecutive runs with the same labels into one point.
fn points(runs: Vec<Run>) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for run in runs {
        let labels = &run.manifest.labels;
        match points.last_mut() {
            Some(last) if !labels.is_empty() && last.runs[0].manifest.labels == *labels => {
                last.runs.push(run);
            }
            _ => points.push(Point { runs: vec![run] }),
        }
    }
    points
}

impl Point {
    /// Returns the name of the point: the label `commit` (as in `commit 1a2b`), or else all labels,
    /// or else the time of the recording.
    fn name(&self) -> String {
        let manifest = &self.runs[0].manifest;
        if let Some(commit) = manifest.labels.get("commit") {
            return format!("commit {}", visible(commit));
        }
        let labels: Vec<String> =
            manifest.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        match labels.is_empty() {
            false => visible(&labels.join(", ")).into_owned(),
            true => moment(manifest.created_unix_ns),
        }
    }
}
