//! `counterpoint list`: prints names of counters that `-e` accepts, and whether each counter opens
//! on this machine.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use machine::Machine;
use machine::check::{self, Opens, Problem, opens};
use model::{Counter, Source};
use names::{Entry, NameError, NameErrorKind, Resolver};
use serde::Serialize;

use crate::advice;
use crate::failure::Failure;
use crate::naming::Naming;
use crate::object::object;
use crate::output::Format;
use crate::terminal::{known_width, say, stdout};
use crate::view::csv::field;
use crate::view::layout::{Kind, Names, Shown, layout};

/// List the known counters, and show whether each one opens on this machine.
#[derive(clap::Args)]
pub struct Args {
    /// List only names that contain this text, or that match it if it contains * or ?. Tracepoints
    /// and the processor's own names are listed only with a pattern, because there are thousands
    pattern: Option<String>,
    /// Open each counter, even if more than 50 tracepoints and vendor names match
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    naming: Naming,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Width of the table in characters, as for `report --width`
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

/// A row of the table, of the CSV output and of `counterpoint.list/1` (docs/counters.md).
#[derive(Serialize)]
struct Row {
    name: String,
    aliases: Vec<String>,
    source: String,
    unit: &'static str,
    /// `yes`, `only_user` or `no`; `null` if opening the counter was not tried, or if its name is a
    /// pattern with parts to fill in.
    opens: Option<&'static str>,
    /// The kernel's error (`ENOENT`, …), if the kernel refused to open the counter.
    error: Option<String>,
    reason: Option<String>,
    remedy: Option<String>,
    description: String,
    /// Who may open the counter: `anyone`, `user`, `kernel`, `system` or `perfmon`; `null` if this
    /// is not known.
    needs: Option<&'static str>,
}

/// Without `--open`, tracepoints and vendor names are opened only if at most this many match.
const FEW: usize = 50;

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let machine = Machine::here();
    let resolver = args.naming.resolver(&machine);
    let pattern = args.pattern.as_deref().unwrap_or("");
    let mut entries = resolver.catalogue();
    if !pattern.is_empty() {
        entries.extend(resolver.bulk());
    }
    entries.retain(|e| {
        let names = std::iter::once(&e.name).chain(&e.aliases).chain([&e.source]);
        names.into_iter().any(|n| matches(pattern, n))
    });
    if entries.is_empty() {
        entries.extend(by_name(&resolver, pattern));
    }
    let open = args.open || entries.iter().filter(|e| e.bulk).count() <= FEW;
    let rows: Vec<Row> = entries.into_iter().map(|e| row(e, open, &resolver, &machine)).collect();
    let mut out = stdout(args.format.into());
    match args.format {
        Format::Table => {
            let width = args.width.or_else(known_width);
            table(&rows, &mut out, width.map(|width| width.max(40)))?;
        }
        Format::Json => json(&rows, &mut out)?,
        Format::Csv => csv(&rows, &mut out)?,
    }
    if let Some(problem) = resolver.tables_problem().filter(|_| !pattern.is_empty()) {
        say!("{problem}");
    }
    if rows.is_empty() {
        say_why(&resolver, pattern, &machine);
        return Ok(ExitCode::from(1));
    }
    if args.format == Format::Table {
        explain(&rows);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints why there are no rows. If the pattern seems to be a counter's name, prints what is wrong
/// with the name. May also print a hint, such as similar names.
fn say_why(resolver: &Resolver, pattern: &str, machine: &Machine) {
    let error = match resolver.resolve(pattern) {
        // A text with `*`, `?` or a space was not meant as a counter's name, so an error about the
        // syntax of names would not help.
        Err(error) if is_unknown(&error) || !pattern.contains(['*', '?', ' ']) => Some(error),
        _ => None,
    };
    match &error {
        Some(error) if !is_unknown(error) => say!("{}", error.kind),
        _ => say!("no counter matches {pattern:?}"),
    }
    // The user has just typed `counterpoint list`, so a hint to type it does not help.
    let hint = error.and_then(|error| advice::for_name(&error, machine));
    if let Some(hint) = hint.filter(|hint| !hint.starts_with("counterpoint list")) {
        say!("hint: {hint}");
    }
}

fn is_unknown(error: &NameError) -> bool {
    matches!(error.kind, NameErrorKind::Unknown { .. })
}

/// Returns an entry for a counter that the user named completely, but that no catalogue lists (such
/// as `r01c2`, or a tracepoint).
fn by_name(resolver: &Resolver, name: &str) -> Option<Entry> {
    let [counter] = <[Counter; 1]>::try_from(resolver.resolve(name).ok()?).ok()?;
    let source = match &counter.source {
        Source::Sim(_) => "simulated",
        Source::Perf(attr) => match attr.kind {
            0 => "hardware",
            1 => "software",
            2 => "tracepoint",
            3 => "cache",
            4 => "raw",
            5 => "breakpoint",
            _ if attr.path.is_some() => "uprobe",
            _ => "pmu",
        },
    };
    Some(Entry::new(name, source, counter.unit, ""))
}

fn row(entry: Entry, open: bool, resolver: &Resolver, machine: &Machine) -> Row {
    let tried = !entry.is_pattern && (open || !entry.bulk);
    let resolved = tried.then(|| resolver.resolve(&entry.name));
    let counter = resolved.as_ref().and_then(|r| r.as_ref().ok()?.first());
    let opens = counter.map(|counter| opens(counter, machine));
    let needs = counter.map(|counter| check::needs(counter, machine).name());
    // `unknown` is the error if the name does not exist on this processor.
    let unknown = resolved.and_then(|r| r.err());
    let word = match (&opens, &unknown) {
        (Some(Opens::Yes), _) => Some("yes"),
        (Some(Opens::OnlyUser), _) => Some("only_user"),
        (Some(Opens::No(_)), _) | (None, Some(_)) => Some("no"),
        (None, None) => None,
    };
    let problem = match opens {
        Some(Opens::No(problem)) => Some(problem),
        _ => None,
    };
    let (error, reason, remedy) = match problem {
        Some(problem) => {
            let remedy = advice::for_problem(&problem, machine);
            let Problem { error, why, .. } = problem;
            (error.map(|e| e.to_string()), Some(why).filter(|w| !w.is_empty()), remedy)
        }
        None => (
            None,
            unknown.as_ref().map(NameError::what),
            unknown.and_then(|error| advice::for_name(&error, machine)),
        ),
    };
    Row {
        name: entry.name,
        aliases: entry.aliases,
        source: entry.source,
        unit: entry.unit.name(),
        opens: word,
        error,
        reason,
        remedy,
        description: entry.description,
        needs,
    }
}

/// Whether `name` matches `pattern`. Upper and lower case are not distinguished. A pattern with `*`
/// or `?` must match the whole name, as in a shell. Other patterns may occur anywhere in the name.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    if !pattern.contains(['*', '?']) {
        return name.contains(&pattern);
    }
    model::glob::matches(&pattern, &name)
}

/// Prints the table. Names are not shortened, because people copy them. Without `width`, each row
/// is printed on one line.
fn table(rows: &[Row], out: &mut impl Write, width: Option<usize>) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let column = |name: &'static str, rank, kind, cell: &dyn Fn(&Row) -> String| Shown {
        name,
        title: name.to_owned(),
        rank,
        kind,
        cells: rows.iter().map(cell).collect(),
    };
    let opens = |row: &Row| match (row.opens, &row.error) {
        (None, _) => "–".to_owned(),
        (Some("only_user"), _) => "only :u".to_owned(),
        (Some("no"), Some(error)) => format!("no: {error}"),
        (Some(word), _) => word.to_owned(),
    };
    let description = |row: &Row| match row.aliases.is_empty() {
        true => row.description.clone(),
        false => format!("{} (also {})", row.description, row.aliases.join(", ")),
    };
    let columns = vec![
        column("name", 0, Kind::Text, &|row| row.name.clone()),
        column("source", 5, Kind::Text, &|row| row.source.clone()),
        column("unit", 4, Kind::Text, &|row| row.unit.to_owned()),
        column("opens", 1, Kind::Text, &opens),
        column("needs", 3, Kind::Text, &|row| row.needs.unwrap_or("–").to_owned()),
        column("description", 2, Kind::Prose, &description),
    ];
    layout(out, columns, Names::Whole, width)?.say_left_out(out, width)
}

/// Prints why counters have `no: ERROR` or `only :u` in the table. Each reason is printed once.
fn explain(rows: &[Row]) {
    let mut told = BTreeSet::new();
    for row in rows {
        let (Some(error), Some(reason)) = (&row.error, &row.reason) else { continue };
        if told.insert((error, reason)) {
            say!("{error}: {reason}");
            if let Some(remedy) = &row.remedy {
                say!("hint: {remedy}");
            }
        }
    }
    if rows.iter().any(|r| r.opens == Some("only_user")) {
        say!("only :u: counting in the kernel is forbidden (perf_event_paranoid)");
    }
}

fn json(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(
        &mut *out,
        &object! { schema: "counterpoint.list/1", counters: rows },
    )?;
    writeln!(out)
}

fn csv(rows: &[Row], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "name,aliases,source,unit,opens,error,reason,remedy,description,needs\r")?;
    for r in rows {
        let aliases = r.aliases.join(" ");
        let optional = |o: &Option<String>| o.clone().unwrap_or_default();
        let (error, reason, remedy) =
            (optional(&r.error), optional(&r.reason), optional(&r.remedy));
        let (opens, needs) = (r.opens.unwrap_or(""), r.needs.unwrap_or(""));
        let description = &r.description;
        let fields = [
            &r.name,
            &aliases,
            &r.source,
            r.unit,
            opens,
            &error,
            &reason,
            &remedy,
            description,
            needs,
        ];
        writeln!(out, "{}\r", fields.map(field).join(","))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("", "cycles", true),
            ("CYC", "cpu-cycles", true),
            ("cyc*", "cpu-cycles", false),
            ("*cyc*", "cpu-cycles", true),
            ("L1-*-misses", "L1-dcache-load-misses", true),
            ("L1-*-misses", "L1-dcache-loads", false),
            ("c?", "cs", true),
            ("c?", "cycles", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
