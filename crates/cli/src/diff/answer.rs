//! Formats the verdicts of `diff` about A and B in words.

use analysis::diff::counters::Known;
use analysis::diff::matching::Relation;
use analysis::diff::verdict::{Change, Verdict};
use analysis::diff::{Diff, DiffRow, FEWEST_PAIRS, Part, Statistic, Untested};

use crate::view::units::{grouped, plural, time};

/// A row is not named as the origin of a difference if it adds less than this fraction of the whole
/// difference.
const SHARE: f64 = 0.05;
/// A sentence names at most this many rows.
const NAMED: usize = 3;

/// Formats a fraction as a percentage without its sign: `12.3`.
fn digits(part: f64) -> String {
    let percent = 100.0 * part.abs();
    match percent {
        p if p >= 99.95 => grouped(p.round() as u128),
        p if p >= 0.95 => format!("{p:.1}"),
        p => format!("{p:.2}"),
    }
}

/// Formats a change with its sign: `+5.1 %`, `−12.3 %`.
pub fn signed(part: f64) -> String {
    let sign = if part < 0.0 { "−" } else { "+" };
    format!("{sign}{} %", digits(part))
}

/// Formats a difference of times with its sign.
pub fn signed_time(ns: f64) -> String {
    let sign = if ns < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(ns.abs()))
}

/// Formats the size of a change, with its interval: `12.3 % [11.0, 13.9]`. An end of the interval
/// has a minus sign if its direction is opposite to that of the change.
pub fn amount(change: &Change) -> String {
    let faster = change.by < 0.0;
    let end = |part: f64| match (part < 0.0) == faster || part == 0.0 {
        true => digits(part),
        false => format!("−{}", digits(part)),
    };
    let [low, high] = change.interval;
    let (from, to) = if faster { (high, low) } else { (low, high) };
    format!("{} % [{}, {}]", digits(change.by), end(from), end(to))
}

/// The kind of quantity that a verdict is about. It determines the words for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The time that calls take. B is called *faster* or *slower*.
    Time,
    /// An amount that is used or counted. B is called *less* or *more*. The words are different
    /// from those for a time, because a program with more threads can be faster and yet use more
    /// processor time.
    Amount,
}

fn direction(change: &Change, about: About) -> &'static str {
    match (about, change.by < 0.0) {
        (About::Time, true) => "faster",
        (About::Time, false) => "slower",
        (About::Amount, true) => "less",
        (About::Amount, false) => "more",
    }
}

/// Formats a change of an amount: `12.3 % [11.0, 13.9] less`.
fn of_amount(change: &Change) -> String {
    format!("{} {}", amount(change), direction(change, About::Amount))
}

/// Formats a verdict: `faster 12.3 % [11.0, 13.9]`.
pub fn verdict(of: &Verdict) -> String {
    match of {
        Verdict::Differs(change) => {
            let floor = match change.floor_unchanged {
                true => ", floor unchanged",
                false if change.statistic == Statistic::Floor => ", its floor",
                false if change.statistic == Statistic::Fastest => ", its fastest call",
                false => "",
            };
            format!("{} {}{floor}", direction(change, About::Time), amount(change))
        }
        Verdict::Same(within) => format!("same within {} %", trimmed(*within)),
        Verdict::Unknown { half_width, pairs: Some(pairs) } => {
            format!("cannot be told (±{} %): {pairs} pairs would tell", digits(*half_width))
        }
        Verdict::Unknown { half_width, pairs: None } => {
            format!("cannot be told (±{} %): too noisy", digits(*half_width))
        }
        Verdict::Untested(_) => "not tested".to_owned(),
        Verdict::Missing => "not known in all runs".to_owned(),
        Verdict::New => "new".to_owned(),
        Verdict::Gone => "gone".to_owned(),
    }
}

/// Returns what is told about a row, with `ratio` (B divided by A) in place of its verdict if nothing
/// was tested. If its number of executions differs, the verdict is about all of them in a run, and
/// the two numbers follow: `faster 79.5 % in a run (240 instead of 15,360)`.
pub fn of_row(row: &DiffRow, ratio: Option<f64>) -> String {
    let ratio = |place: &str| ratio.map(|ratio| format!("× {ratio:.3}{place}, not tested"));
    let Some(executions) = row.other_executions else {
        return ratio("").unwrap_or_else(|| verdict(&row.verdict));
    };
    let is_estimate = |side: usize| row.sides[side].is_some_and(|of| of.estimated_calls.is_some());
    let [a, b] = [0, 1].map(|side| {
        let mark = if is_estimate(side) { "~" } else { "" };
        format!("{mark}{}", grouped(executions[side].round() as u128))
    });
    let said = ratio(" in a run").unwrap_or_else(|| match &row.verdict {
        Verdict::Differs(change) => {
            format!("{} {} % in a run", direction(change, About::Time), digits(change.by))
        }
        Verdict::Same(_) => format!("{} in a run", verdict(&row.verdict)),
        // The width of the interval is left out, so that both numbers fit into a line.
        Verdict::Unknown { .. } => "cannot be told".to_owned(),
        other => verdict(other),
    });
    format!("{said} ({b} instead of {a})")
}

/// Returns the verdict about the processor time, or `None` if the processor time was not compared.
pub fn processor(diff: &Diff) -> Option<String> {
    let one = diff.processor.compared.first()?;
    Some(match &diff.processor.verdict {
        Verdict::Differs(change) => of_amount(change),
        Verdict::Untested(_) => format!("× {:.3}, not tested", one.change + 1.0),
        other => verdict(other),
    })
}

/// Formats a fraction in percent without trailing zeros: `3`, `0.5`.
pub fn trimmed(part: f64) -> String {
    let percent = format!("{:.2}", 100.0 * part);
    percent.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the word for a verdict in JSON, in CSV and in the data of the HTML page.
pub fn word(of: &Verdict, about: About) -> &'static str {
    match of {
        Verdict::Differs(change) => direction(change, about),
        Verdict::Same(_) => "same",
        Verdict::Unknown { .. } => "unknown",
        Verdict::Untested(_) => "not_tested",
        Verdict::Missing => "missing",
        Verdict::New => "new",
        Verdict::Gone => "gone",
    }
}

/// Returns why nothing was tested, or an empty text.
pub fn why_untested(diff: &Diff) -> String {
    match diff.untested {
        Some(Untested::NotPaired) => {
            "nothing is tested, because the runs are not pairs in random order".to_owned()
        }
        Some(Untested::TooFew(n)) => {
            let pairs = plural(n as u128, "pair");
            format!("nothing is tested, because {pairs} are too few (at least {FEWEST_PAIRS})")
        }
        None => String::new(),
    }
}

/// Returns one sentence about whether B is faster or slower than A as a whole. If anything was
/// tested, the sentence also names up to [`NAMED`] rows that differ.
pub fn sentence(diff: &Diff, names: &[String]) -> String {
    let whole = &diff.whole;
    match &whole.verdict {
        Verdict::Differs(change) => {
            let from = origin(diff, names, change.by < 0.0);
            let of = match change.statistic {
                Statistic::Fastest | Statistic::Floor => " in its fastest calls",
                _ => "",
            };
            format!("B is {}: {}{of}{from}.", direction(change, About::Time), amount(change))
        }
        Verdict::Same(within) => {
            let text = format!("B is the same as A within {} % as a whole", trimmed(*within));
            with_rows(diff, names, text)
        }
        Verdict::Unknown { half_width, pairs } => {
            let more = match pairs {
                Some(pairs) => format!("a series of {pairs} pairs would tell"),
                None => "the machine is too noisy".to_owned(),
            };
            let text = format!(
                "It cannot be told whether B is slower or faster as a whole (±{} %): {more}",
                digits(*half_width)
            );
            with_rows(diff, names, text)
        }
        Verdict::Untested(_) => {
            let ratio = whole.compared.iter().find(|one| one.statistic == Statistic::Typical);
            let ratio = ratio.map_or(String::new(), |one| {
                let calls = if whole.counts_all { "The calls" } else { "Typical calls" };
                format!(
                    "{calls} of B take {:.3} times as long as those of A, all ops together, ",
                    one.change + 1.0
                )
            });
            let why = why_untested(diff);
            format!("{ratio}{}{why}.", if ratio.is_empty() { "" } else { "but " })
        }
        Verdict::Missing | Verdict::New | Verdict::Gone => {
            let text = "The time of the whole is not known in all runs".to_owned();
            with_rows(diff, names, text)
        }
    }
}

/// Returns the rows that are faster or slower in B, and those that only A or only B has. The rows
/// that add most to the difference of the whole come first.
fn differing(diff: &Diff) -> Vec<usize> {
    let weight = |row: &DiffRow| row.part.map_or(0.0, |part| part.ns.abs());
    let is = |row: &DiffRow| {
        row.verdict.change().is_some() || matches!(row.verdict, Verdict::New | Verdict::Gone)
    };
    let mut rows: Vec<usize> = (0..diff.rows.len()).filter(|row| is(&diff.rows[*row])).collect();
    rows.sort_by(|x, y| weight(&diff.rows[*y]).total_cmp(&weight(&diff.rows[*x])));
    rows
}

/// Returns a phrase with the rows that make the whole faster or slower: `, from matmul_4 alone`.
fn origin(diff: &Diff, names: &[String], faster: bool) -> String {
    let changed = |row: usize| diff.rows[row].verdict.change().map(|change| change.by < 0.0);
    let along = |row: &&usize| {
        // If the interval of the time that a row adds contains 0, the sign of this time can be
        // chance, so the sign of the row's own change is used.
        let known =
            |part: &Part| part.interval.is_none_or(|[low, high]| (low < 0.0) == (high < 0.0));
        let sign = diff.rows[**row].part.filter(known).map(|part| part.ns < 0.0);
        sign.or(changed(**row)) == Some(faster)
    };
    let all = differing(diff);
    let rows: Vec<usize> = all.iter().filter(along).copied().collect();
    // Only rows with a tested change are counted here, because a new or gone row is neither slower
    // nor faster. The time that a row adds to the whole does not show whether the row is slower: a
    // row that is slower per call adds less time if it has fewer calls.
    let against = all.iter().filter(|row| changed(**row) == Some(!faster)).count();
    let but = match against {
        0 => String::new(),
        n => format!(
            ", although {} {}",
            plural(n as u128, "row"),
            if faster { "got slower" } else { "got faster" }
        ),
    };
    // A row can have changed for certain and still add very little to the whole difference. Such a
    // row is not named ([`SHARE`]).
    let all = diff.whole.explained.map_or(0.0, |part| part.ns.abs());
    let counts =
        |row: &&usize| diff.rows[**row].part.is_none_or(|part| part.ns.abs() >= SHARE * all);
    let large: Vec<usize> = rows.iter().filter(counts).copied().collect();
    let named: Vec<&str> = large.iter().take(NAMED).map(|row| names[*row].as_str()).collect();
    match (named.as_slice(), large.len()) {
        ([], _) => format!(", from no row in particular{but}"),
        ([only], _) if rows.len() > 1 => format!(", mostly from {only}{but}"),
        ([only], _) => format!(", from {only} alone{but}"),
        (some, n) if n > some.len() => {
            format!(", from {} and {} more{but}", some.join(", "), n - some.len())
        }
        (some, _) => {
            let (last, first) = some.split_last().unwrap_or((&"", &[]));
            format!(", from {} and {last}{but}", first.join(", "))
        }
    }
}

/// Appends what differs in the rows to `text`, which is the verdict about the whole program.
fn with_rows(diff: &Diff, names: &[String], text: String) -> String {
    let rows = differing(diff);
    let some = rows
        .iter()
        .take(NAMED)
        .map(|row| format!("{} is {}", names[*row], of_row(&diff.rows[*row], None)));
    let some: Vec<String> = some.collect();
    match (some.is_empty(), rows.len() - some.len()) {
        (true, _) if matches!(diff.whole.verdict, Verdict::Same(_)) => {
            format!("{text}, and no row differs.")
        }
        (true, _) => format!("{text}; no row differs."),
        (false, 0) => format!("{text}; {}.", some.join("; ")),
        (false, more) => format!("{text}; {}; and {more} more differ.", some.join("; ")),
    }
}

/// Returns how a row of A or B corresponds to rows of the other side: `renamed from x`. The text is
/// empty if the row is the same, new or gone.
pub fn relation(
    row: &DiffRow,
    name: impl Fn(&analysis::diff::recorded::Identity) -> String,
) -> String {
    let list = |rows: &[analysis::diff::recorded::Identity]| {
        rows.iter().map(&name).collect::<Vec<_>>().join(", ")
    };
    match row.relation {
        Relation::Same | Relation::New | Relation::Gone => String::new(),
        Relation::Changed => {
            let arguments = |rows: &[analysis::diff::recorded::Identity]| {
                rows.first().map_or(String::new(), |one| one.arguments.clone())
            };
            match (arguments(&row.a), arguments(&row.b)) {
                (a, b) if a == b => "from another device".to_owned(),
                (a, b) => format!("shapes {a} → {b}"),
            }
        }
        Relation::Renamed => format!("renamed from {}", list(&row.a)),
        Relation::Split => format!("split into {}", list(&row.b)),
        Relation::Joined => format!("joined from {}", list(&row.a)),
    }
}

/// Returns how a counter or metric of a row differs between A and B, as in `page-faults 3 → 515 per
/// call (exact)`. Returns `None` if no difference was found.
pub fn reading(of: &analysis::diff::counters::ReadingDiff) -> Option<String> {
    let number = crate::view::units::number;
    match of.reading {
        Known::Equal => None,
        Known::Fact { sums: [a, b], .. } if of.statistic == Statistic::Run => {
            Some(format!("{} {} → {} in a run (exact)", of.name, grouped(a), grouped(b)))
        }
        Known::Fact { sums, calls } => {
            let each = |side: usize| sums[side] as f64 / calls[side].max(1) as f64;
            let name = &of.name;
            let [a, b] = [number(each(0)), number(each(1))];
            // With many calls, a difference per call can be too small for the digits that are
            // shown.
            Some(if each(0) == each(1) || (a == b && calls[0] == calls[1]) {
                let [a, b] = sums.map(grouped);
                format!("{name} {a} → {b} in all calls (exact)")
            } else if a == b {
                format!("{name} {} → {} per call (exact)", each(0), each(1))
            } else {
                format!("{name} {a} → {b} per call (exact)")
            })
        }
        Known::Tested(verdict) => {
            let place = if of.statistic == Statistic::Run { " in a run" } else { "" };
            Some(format!("{} {}{place}", of.name, of_amount(verdict.change()?)))
        }
    }
}
