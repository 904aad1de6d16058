//! `--fail-if`: checks the rules that make `diff` end with status 3.

use analysis::diff::counters::Known;
use analysis::diff::recorded::Identity;
use analysis::diff::verdict::{Compared, fastest_counts};
use analysis::diff::{Diff, DiffRow, Statistic};

use super::answer::signed;
use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The rule as it was typed.
    text: String,
    of: Of,
    /// The largest relative change that is allowed: 0.05 for 5 %.
    limit: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Of {
    /// The rule is about the whole program and about each row.
    Everything,
    Whole,
    Rows(String),
    Counter(String),
}

/// The result of a `--fail-if` rule. `rows` has a sentence for the whole program, if the rule holds
/// for it, and one for each row for which the rule holds. Without a sentence, the rule does not
/// make `diff` fail.
pub struct Failed {
    pub rule: String,
    pub rows: Vec<String>,
}

/// Parses `5%`, `0.5 %` or `0.05` as a fraction.
pub fn percent(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    match number.parse::<f64>() {
        Ok(part) if part >= 0.0 && part.is_finite() && scale == 0.01 => Ok(part * scale),
        Ok(part) if (0.0..1.0).contains(&part) => Ok(part),
        Ok(_) => Err("write percent with their sign: 5%".to_owned()),
        Err(_) => Err("expected a percentage such as 5%".to_owned()),
    }
}

impl Gate {
    /// Parses a rule, such as `whole>5%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (of, limit) = match text.rsplit_once('>') {
            None => (Of::Everything, text),
            Some((of, limit)) => match of.trim() {
                "" => (Of::Everything, limit),
                "whole" => (Of::Whole, limit),
                of => match of.strip_prefix("counter:") {
                    Some(name) => (Of::Counter(name.to_owned()), limit),
                    None => (Of::Rows(of.to_owned()), limit),
                },
            },
        };
        Ok(Self { text: text.to_owned(), of, limit: percent(limit)? })
    }
}

/// Returns the statistic whose change has the largest lower end of its confidence interval, and this
/// end, if it is above `limit`. The estimate of a change is not enough, because the true change may
/// be smaller. The fastest call is left out unless it counts for a verdict ([`fastest_counts`]).
fn exceeds(compared: &[Compared], limit: f64, threshold: f64) -> Option<(f64, Statistic)> {
    let with_fastest = fastest_counts(compared, threshold);
    let decides = |one: &&Compared| one.statistic != Statistic::Fastest || with_fastest;
    let low = |one: &Compared| Some((one.interval?[0], one.statistic));
    let all = compared.iter().filter(decides).filter_map(low);
    all.filter(|(low, _)| *low > limit).max_by(|x, y| x.0.total_cmp(&y.0))
}

/// Whether some statistic has an interval. Without an interval, no rule about a time can hold.
fn is_judged(compared: &[Compared]) -> bool {
    compared.iter().any(|one| one.interval.is_some())
}

/// Returns the sentence about a row, or about the whole program, if its change exceeds `limit`. The
/// last argument says in words that the change is one of the fastest call, or of the floor.
fn slower(
    name: &str,
    compared: &[Compared],
    [limit, threshold]: [f64; 2],
    [fastest, floor]: [&str; 2],
) -> Option<String> {
    let (low, statistic) = exceeds(compared, limit, threshold)?;
    let of = match statistic {
        Statistic::Fastest => fastest,
        Statistic::Floor => floor,
        Statistic::Run => " in a run",
        _ => "",
    };
    Some(format!("{name} is slower by at least {}{of}", signed(low).trim_start_matches('+')))
}

fn of_whole(diff: &Diff, limits: [f64; 2]) -> Option<String> {
    slower("the whole", &diff.whole.compared, limits, [" in its fastest calls"; 2])
}

fn of_row(compared: &[Compared], name: &str, limits: [f64; 2]) -> Option<String> {
    slower(name, compared, limits, [" in its fastest call", " in its floor"])
}

/// Returns the result of each rule. `threshold` is the relative change that the verdicts are about.
///
/// # Errors
/// Returns an error if nothing matches a rule, or if nothing that matches can be judged, because
/// such a rule could never hold.
pub fn check(
    rules: &[Gate],
    diff: &Diff,
    names: &[String],
    threshold: f64,
) -> Result<Vec<Failed>, Failure> {
    let check = |rule: &Gate| {
        let limits = [rule.limit, threshold];
        let whole = of_whole(diff, limits);
        let all = || diff.rows.iter().zip(names);
        let whole_is_judged = is_judged(&diff.whole.compared);
        let rows = match &rule.of {
            Of::Whole if !whole_is_judged => {
                return Err(nothing(rule, "the time of the whole is not known in all runs"));
            }
            Of::Whole => whole.into_iter().collect(),
            Of::Everything => {
                if !whole_is_judged && !diff.rows.iter().any(|row| is_judged(&row.compared)) {
                    return Err(nothing(rule, "no time is known in all runs"));
                }
                let rows = all().filter_map(|(row, name)| of_row(&row.compared, name, limits));
                whole.into_iter().chain(rows).collect()
            }
            Of::Rows(glob) => {
                let is = |row: &DiffRow| {
                    let mut all = row.a.iter().chain(&row.b).map(|one| one.name.as_str());
                    all.any(|name| profile::demangle::matches(glob, name))
                };
                if !diff.rows.iter().any(is) {
                    return Err(nothing(rule, "no row matches"));
                }
                if !diff.rows.iter().any(|row| is(row) && is_judged(&row.compared)) {
                    let why = "no row that matches is in all runs of both sides with its time";
                    return Err(nothing(rule, why));
                }
                let matching = all().filter(|(row, _)| is(row));
                matching.filter_map(|(row, name)| of_row(&row.compared, name, limits)).collect()
            }
            Of::Counter(counter) => {
                let is = |one: &&analysis::diff::counters::ReadingDiff| one.name == *counter;
                if !diff.rows.iter().any(|row| row.readings.iter().any(|one| is(&one))) {
                    return Err(nothing(
                        rule,
                        "no counter of this name was recorded on both sides",
                    ));
                }
                let is_known = |one: &analysis::diff::counters::ReadingDiff| match one.reading {
                    Known::Equal | Known::Fact { .. } => true,
                    Known::Tested(_) => is_judged(one.compared.as_slice()),
                };
                let mut all_readings = diff.rows.iter().flat_map(|row| &row.readings);
                if !all_readings.any(|one| is(&one) && is_known(one)) {
                    let why = "this counter scatters and is 0 or missing in some run of each row, \
                               so it is not tested";
                    return Err(nothing(rule, why));
                }
                let more = |row: &DiffRow, name: &str| {
                    let one = row.readings.iter().find(is)?;
                    let low = match one.reading {
                        Known::Equal => None,
                        Known::Fact { sums: [a, b], calls } => {
                            let in_run = one.statistic == Statistic::Run;
                            let each = |sum: u128, calls: u64| {
                                sum as f64 / if in_run { 1 } else { calls.max(1) } as f64
                            };
                            let (a, b) = (each(a, calls[0]), each(b, calls[1]));
                            // A change from 0 to any other number exceeds any limit.
                            let more = if a > 0.0 { b / a - 1.0 } else { f64::INFINITY };
                            (b > a && more > rule.limit).then_some(more)
                        }
                        Known::Tested(_) => {
                            let found = exceeds(one.compared.as_slice(), rule.limit, threshold);
                            found.map(|(low, _)| low)
                        }
                    };
                    let low = low?;
                    let by = match low.is_finite() {
                        true => format!("at least {} more", signed(low).trim_start_matches('+')),
                        false => "some instead of none".to_owned(),
                    };
                    Some(format!("{name} has {by} {counter}"))
                };
                all().filter_map(|(row, name)| more(row, name)).collect()
            }
        };
        Ok(Failed { rule: rule.text.clone(), rows })
    };
    rules.iter().map(check).collect()
}

/// A change that `diff --history` found.
pub struct Later<'a> {
    /// The row that changed; `None` for the whole program.
    pub of: Option<&'a Identity>,
    /// The lower end of the change's interval.
    pub low: f64,
    pub sentence: String,
}

/// Checks all rules against the changes of a history. `rows` are the rows that were tested.
///
/// # Errors
/// Returns an error if nothing matches a rule, if a rule is about a counter, or if a rule is about
/// the whole program and `has_whole` is false.
pub fn check_history(
    rules: &[Gate],
    has_whole: bool,
    rows: &[&Identity],
    changes: &[Later<'_>],
) -> Result<Vec<Failed>, Failure> {
    let is = |glob: &str, one: &Identity| profile::demangle::matches(glob, &one.name);
    let check = |rule: &Gate| {
        match &rule.of {
            Of::Counter(_) => return Err(nothing(rule, "a history is of times, not of counters")),
            Of::Whole if !has_whole => {
                return Err(nothing(rule, "the time of the whole is not known in all runs"));
            }
            Of::Rows(glob) if !rows.iter().any(|one| is(glob, one)) => {
                return Err(nothing(rule, "no row that is in all runs matches"));
            }
            _ => {}
        }
        let holds = |one: &&Later<'_>| {
            one.low > rule.limit
                && match (&rule.of, one.of) {
                    (Of::Everything, _) | (Of::Whole, None) => true,
                    (Of::Rows(glob), Some(of)) => is(glob, of),
                    _ => false,
                }
        };
        let found = changes.iter().filter(holds).map(|one| one.sentence.clone()).collect();
        Ok(Failed { rule: rule.text.clone(), rows: found })
    };
    rules.iter().map(check).collect()
}

fn nothing(rule: &Gate, why: &str) -> Failure {
    Failure::new(format!("--fail-if '{}': {why}", rule.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a comparison in which a difference was found.
    fn compared(statistic: Statistic, interval: [f64; 2]) -> Compared {
        Compared {
            statistic,
            medians: [1.0, 1.0],
            change: (interval[0] + interval[1]) / 2.0,
            interval: Some(interval),
            interval_90: None,
            p: Some(0.01),
            deviation: None,
            t: None,
            pairs: 10,
        }
    }

    #[test]
    fn the_fastest_call_counts_unless_the_others_contradict_it() {
        let said = |fastest: [f64; 2], typical: [f64; 2]| {
            let all = [
                compared(Statistic::Fastest, fastest),
                compared(Statistic::Floor, [0.02, 0.06]),
                compared(Statistic::Typical, typical),
            ];
            of_row(&all, "matmul", [0.01, 0.03])
        };
        let of_floor = "matmul is slower by at least 2.0 % in its floor";
        let of_fastest = "matmul is slower by at least 5.8 % in its fastest call";
        assert_eq!(said([0.058, 0.062], [0.005, 0.08]).as_deref(), Some(of_fastest));
        assert_eq!(said([0.058, 0.062], [-0.01, 0.01]).as_deref(), Some(of_floor));
        assert_eq!(said([0.158, 0.162], [0.005, 0.08]).as_deref(), Some(of_floor));
    }

    #[test]
    fn rules() {
        let rule = |text: &str| Gate::parse(text).map(|gate| (gate.of, gate.limit));
        assert_eq!(rule("5%"), Ok((Of::Everything, 0.05)));
        assert_eq!(rule(">5%"), Ok((Of::Everything, 0.05)));
        assert_eq!(rule("whole > 2.5 %"), Ok((Of::Whole, 0.025)));
        assert_eq!(rule("*matmul*>10%"), Ok((Of::Rows("*matmul*".to_owned()), 0.1)));
        assert_eq!(rule("a->b>0%"), Ok((Of::Rows("a->b".to_owned()), 0.0)));
        let counter = Of::Counter("page-faults".to_owned());
        assert_eq!(rule("counter:page-faults>0.01"), Ok((counter, 0.01)));
        for (wrong, why) in [
            ("5", "write percent with their sign: 5%"),
            ("x", "expected a percentage such as 5%"),
            ("matmul>", "expected a percentage such as 5%"),
            ("-1%", "write percent with their sign: 5%"),
        ] {
            assert_eq!(rule(wrong), Err(why.to_owned()), "{wrong}");
        }
    }
}
