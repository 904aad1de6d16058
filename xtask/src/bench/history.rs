//! `cargo xtask bench --history NAME`: draws the results of a benchmark over time.
//!
//! `benches/runs` has the newest result of each benchmark; git's history has the earlier ones.
//! [`super::results`] writes each result as a text:
//!
//! ```text
//!  2026-11-23 UTC 01:13:04
//!  dispatch-e2e: what it is about
//!  …
//!  timing only   33.10 ns  95% [2.653, 47.99]  at most 90.00: met   = …
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::layout::Layout;
use crate::process::output;

const COLUMNS: usize = 40;

#[derive(Clone, Debug, PartialEq)]
struct Point {
    date: String,
    median: f64,
    low: f64,
    high: f64,
}

/// The points of each figure, by name and unit.
type Figures = BTreeMap<(String, String), Vec<Point>>;

pub fn show(layout: &Layout, names: &[String]) -> Result<()> {
    let texts = texts(layout)?;
    for name in names {
        let figures = figures(name, &texts);
        ensure!(!figures.is_empty(), "benchmark {name}: there is no result in git's history");
        // Writing fails if the reader, for example `head`, has closed the pipe. This is no error.
        let _ = std::io::stdout().write_all(draw(name, &figures).as_bytes());
    }
    Ok(())
}

/// Returns every result in `benches/runs` and in git's history.
fn texts(layout: &Layout) -> Result<Vec<String>> {
    let git = |arguments: &[&str]| {
        output(Command::new("git").args(arguments).current_dir(&layout.root), "git")
    };
    let folder = layout.root.join("benches/runs");
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        texts.push(std::fs::read_to_string(entry?.path())?);
    }
    let log = git(&[
        "log",
        "--format=commit %H",
        "--name-only",
        "--no-renames",
        "--diff-filter=AM",
        "--",
        "benches/runs/*.txt",
    ])?;
    let mut commit = "";
    for line in log.lines() {
        match line.strip_prefix("commit ") {
            Some(hash) => commit = hash,
            None if line.is_empty() => {}
            None => texts.push(git(&["show", &format!("{commit}:{line}")])?),
        }
    }
    Ok(texts)
}

/// Returns the figures of a benchmark, oldest points first.
fn figures(name: &str, texts: &[String]) -> Figures {
    let mut figures = Figures::new();
    for text in texts {
        let mut lines = text.lines();
        let date = lines.next().unwrap_or_default().replace(" UTC", "");
        let is_it = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'));
        if !lines.next().is_some_and(is_it) {
            continue;
        }
        for (what, mut point) in lines.filter_map(figure) {
            point.date.clone_from(&date);
            let points = figures.entry(what).or_default();
            if !points.contains(&point) {
                points.push(point);
            }
        }
    }
    figures.values_mut().for_each(|points| points.sort_by(|a, b| a.date.cmp(&b.date)));
    figures
}

fn figure(line: &str) -> Option<((String, String), Point)> {
    let (left, right) = line.split_once("  95% [")?;
    let (low, high) = right.split_once(']')?.0.split_once(", ")?;
    let (left, unit) = left.rsplit_once(' ')?;
    let (name, median) = left.rsplit_once(' ')?;
    let number = |text: &str| text.parse::<f64>().ok();
    let point = Point {
        date: String::new(),
        median: number(median)?,
        low: number(low)?,
        high: number(high)?,
    };
    Some(((name.trim().to_owned(), unit.to_owned()), point))
}

/// Draws the figures. The scale of each figure goes from the lowest to the highest end of the
/// figure's intervals.
fn draw(name: &str, figures: &Figures) -> String {
    let mut out = format!("{name}\n");
    for ((figure, unit), points) in figures {
        let least = points.iter().map(|p| p.low).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|p| p.high).fold(f64::NEG_INFINITY, f64::max);
        let column = |value: f64| {
            let share = (value - least) / (most - least).max(f64::MIN_POSITIVE);
            (share.clamp(0.0, 1.0) * (COLUMNS - 1) as f64).round() as usize
        };
        let _ = writeln!(out, "\n{figure} ({unit})");
        for Point { date, median, low, high } in points {
            let mut bar = vec![' '; COLUMNS];
            bar[column(*low)..=column(*high)].fill('-');
            bar[column(*median)] = 'o';
            let bar: String = bar.into_iter().collect();
            let _ = writeln!(out, "  {date:<19}  {median:>10}  [{low}, {high}]\n    |{bar}|");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_runs() {
        let run = |date: &str, name: &str, median: f64| {
            format!(
                "{date}\n{name}: about\n\ntwo, cpu   {median:.2} ns  95% [1.00, 5.00]  at most 9: met\n"
            )
        };
        let texts = [
            run("2026-11-23 UTC 01:00:00", "probe", 5.0),
            run("2026-11-20 UTC 02:00:00", "probe", 1.0),
            run("2026-11-20 UTC 02:00:00", "probe", 1.0),
            run("2026-11-21 UTC 02:00:00", "probe-2", 3.0),
        ];
        let figures = figures("probe", &texts);
        let points = &figures[&("two, cpu".to_owned(), "ns".to_owned())];
        let found: Vec<_> = points.iter().map(|p| (p.date.as_str(), p.median)).collect();
        assert_eq!(
            found,
            [
                ("2026-11-20 01:00:00".replace("01", "02").as_str(), 1.0),
                ("2026-11-23 01:00:00", 5.0)
            ]
        );
        let drawn = draw("probe", &figures);
        assert!(drawn.contains(&format!("|o{}|", "-".repeat(39))), "{drawn}");
        assert!(drawn.contains(&format!("|{}o|", "-".repeat(39))), "{drawn}");
    }
}
