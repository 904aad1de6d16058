//! Writes the result of a benchmark to two files: `benches/runs/NAME.txt`, a page for people, and
//! `target/bench/NAME.json` with every reading. Both replace the files of the previous result.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::machine;
use super::plan::{Figure, Plan, Round};
use super::stats::Estimate;
use crate::layout::Layout;
use crate::process::shell_form;

const SCHEMA: u32 = 1;

/// How the interval of a figure compares with its target, which is an upper limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The whole interval is at or below the target.
    Met,
    /// The whole interval is above the target.
    NotMet,
    /// The target lies inside the interval.
    Inconclusive,
}

pub struct Outcome {
    pub name: String,
    pub unit: &'static str,
    pub formula: String,
    pub estimate: Estimate,
    pub at_most: Option<f64>,
    pub verdict: Option<Verdict>,
}

pub struct Report<'a> {
    pub name: &'a str,
    pub about: &'a str,
    pub plan: &'a Plan,
    pub rounds: &'a [Round],
    pub outcomes: &'a [Outcome],
    pub load_before: String,
}

impl Verdict {
    fn of(estimate: &Estimate, at_most: f64) -> Verdict {
        if estimate.high <= at_most {
            Verdict::Met
        } else if estimate.low > at_most {
            Verdict::NotMet
        } else {
            Verdict::Inconclusive
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::NotMet => "not met",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

impl Outcome {
    pub fn of(figure: &Figure, rounds: &[Round]) -> Result<Outcome> {
        let values: Vec<f64> = rounds.iter().filter_map(|round| figure.formula.of(round)).collect();
        let estimate = figure
            .formula
            .estimate(&values)
            .with_context(|| format!("{}: no round has both of {}", figure.name, figure.formula))?;
        Ok(Outcome {
            name: figure.name.clone(),
            unit: figure.unit,
            formula: figure.formula.to_string(),
            estimate,
            at_most: figure.at_most,
            verdict: figure.at_most.map(|at_most| Verdict::of(&estimate, at_most)),
        })
    }
}

impl Report<'_> {
    /// Returns the page for people, without its first line, which contains the date.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let machine = machine::describe();
        let _ = writeln!(text, "{}: {}", self.name, self.about);
        let _ = writeln!(text, "commit: {}", commit().unwrap_or_default());
        let _ = writeln!(text, "machine: {}", machine::line(&machine));
        let _ = writeln!(text, "load before: {}; rounds: {}", self.load_before, self.rounds.len());
        for note in &self.plan.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let width = self.outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0);
        let _ = writeln!(text);
        for outcome in self.outcomes {
            let Estimate { middle, low, high, .. } = outcome.estimate;
            let _ = write!(
                text,
                "{:<width$}  {:>10} {}  95% [{}, {}]",
                outcome.name,
                digits(middle),
                outcome.unit,
                digits(low),
                digits(high)
            );
            if let (Some(at_most), Some(verdict)) = (outcome.at_most, outcome.verdict) {
                let _ = write!(text, "  at most {}: {}", digits(at_most), verdict.word());
            }
            let _ = writeln!(text, "   = {}", outcome.formula);
        }
        text
    }

    /// Writes both files, and returns the path of the page.
    pub fn save(&self, layout: &Layout) -> Result<PathBuf> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let json =
            serde_json::to_string_pretty(&self.json(layout, now)).context("format result")?;
        let text = format!("{} UTC {}\n{}", date(now), time_of_day(now), self.text());
        let page = layout.root.join("benches/runs").join(self.name).with_extension("txt");
        let readings = layout.target.join("bench").join(self.name).with_extension("json");
        for (path, text) in [(&page, text), (&readings, json + "\n")] {
            std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(page)
    }

    fn commands(&self, layout: &Layout) -> Vec<(&'static str, String)> {
        let cases = self.plan.cases.iter();
        cases.map(|case| (case.label, shell_form(layout, &(case.command)()))).collect()
    }

    fn json(&self, layout: &Layout, now: u64) -> Value {
        let outcomes: Vec<Value> = self
            .outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "name": outcome.name,
                    "unit": outcome.unit,
                    "formula": outcome.formula,
                    "estimate": outcome.estimate.middle,
                    "low95": outcome.estimate.low,
                    "high95": outcome.estimate.high,
                    "rounds": outcome.estimate.count,
                    "at_most": outcome.at_most,
                    "verdict": outcome.verdict.map(Verdict::word),
                })
            })
            .collect();
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|round| {
                let cases = round.cases().map(|(label, readings)| {
                    let values = readings
                        .iter()
                        .map(|(name, reading)| {
                            (format!("{name} {}", reading.unit), json!(reading.value))
                        })
                        .collect();
                    (label.to_owned(), Value::Object(values))
                });
                Value::Object(cases.collect())
            })
            .collect();
        let commands: Map<String, Value> = self
            .commands(layout)
            .into_iter()
            .map(|(label, command)| (label.to_owned(), json!(command)))
            .collect();
        json!({
            "schema": SCHEMA,
            "benchmark": self.name,
            "about": self.about,
            "date": format!("{}T{}Z", date(now), time_of_day(now)),
            "commit": commit(),
            "machine": machine::describe(),
            "load": { "before": self.load_before, "after": machine::load() },
            "commands": commands,
            "notes": self.plan.notes,
            "outcomes": outcomes,
            "rounds": rounds,
        })
    }
}

/// Returns the commit, with `+` appended if the working tree differs from it.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let out = Command::new("git").args(arguments).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain"]).is_none_or(|list| !list.is_empty());
    Some(if changed { hash + "+" } else { hash })
}

/// Formats a value with at most three decimals.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.places$}")
}

/// The day as `YYYY-MM-DD` in UTC, by Howard Hinnant's `civil_from_days`.
fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

fn time_of_day(unix_seconds: u64) -> String {
    let seconds = unix_seconds % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_from_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_709_164_800), "2024-02-29");
        assert_eq!(date(1_735_689_599), "2024-12-31");
        assert_eq!(time_of_day(1_735_689_599), "23:59:59");
    }

    #[test]
    fn a_target_inside_the_interval_is_inconclusive() {
        let estimate = Estimate { middle: 89.0, low: 85.0, high: 91.0, count: 15 };
        assert_eq!(Verdict::of(&estimate, 90.0), Verdict::Inconclusive);
        assert_eq!(Verdict::of(&estimate, 91.0), Verdict::Met);
        assert_eq!(Verdict::of(&estimate, 84.0), Verdict::NotMet);
    }

    #[test]
    fn four_digits() {
        assert_eq!(digits(1.0567), "1.057");
        assert_eq!(digits(-89.126), "-89.13");
        assert_eq!(digits(123_456.7), "123457");
    }
}
