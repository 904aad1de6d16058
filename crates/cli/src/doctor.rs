//! `counterpoint doctor`: shows what limits counting and recording on this machine, and the
//! commands that remove these limits.

mod resolution;
mod torch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use machine::Machine;
use machine::check::{Problem, check};
use machine::doctor::{Finding, Level, examine};
use model::Counter;
use names::{Entries, Item, Modifiers, NameError, parse};
use serde::Serialize;

use self::resolution::Resolution;
use crate::advice;
use crate::config;
use crate::failure::Failure;
use crate::naming::Naming;
use crate::terminal::{self, known_width, stdout, visible};
use crate::view::layout::{Kind, Names, Shown, layout};
use crate::view::units::plural;
use crate::view::wrap::{PROSE_WIDTH, wrapped};

/// Show what limits counting on this machine, and what to do about it.
#[derive(clap::Args)]
pub struct Args {
    /// Counters to try. The exit code is 0 if all of them work, and 1 if not
    #[arg(short = 'e', long = "events", value_name = "LIST")]
    events: Option<String>,
    #[command(flatten)]
    naming: Naming,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Width of the table in characters, as for `report --width`
    #[arg(long, value_name = "N")]
    width: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table that fits the terminal
    #[default]
    #[value(alias = "text")]
    Table,
    /// One JSON document; docs/schema.md describes it
    Json,
}

/// At most this many orphaned pools (files in memory with records that no profile can use) are
/// named; the others are only counted.
const ORPHANS: usize = 2;

/// A row of the table. In JSON, a row is an entry of `findings` or `counters`. The rows about the
/// resolution are only in the table.
#[derive(Serialize)]
struct Row {
    name: String,
    level: &'static str,
    state: String,
    prevents: Option<String>,
    remedy: Option<String>,
}

impl Row {
    fn new(finding: Finding, machine: &Machine) -> Self {
        Self {
            name: finding.name.into(),
            level: finding.level.name(),
            state: finding.state,
            prevents: finding.prevents,
            remedy: finding.limit.map(|limit| advice::for_limit(&limit, machine)),
        }
    }
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let machine = Machine::here();
    let counters = match &args.events {
        Some(list) => Some(asked(list, &args.naming, &machine)?),
        None => None,
    };
    let findings = examine(&machine, library().as_deref());
    let findings = findings.into_iter().map(|finding| Row::new(finding, &machine));
    let findings: Vec<Row> =
        findings.chain(left_in_memory()).chain(configuration()).chain(torch::bridge()).collect();
    let works = counters.iter().flatten().all(|row| row.level == Level::Ok.name());
    // The resolution is measured with the counters of `-e` only if all of them work. Under some
    // seccomp filters, opening a counter that does not work kills this process.
    let list = args.events.as_deref().filter(|_| works);
    let asked = list.and_then(|list| args.naming.resolver(&machine).resolve(list).ok());
    let resolution = resolution::measure(&asked.unwrap_or_default(), &machine);
    let mut out = stdout(match args.format {
        Format::Table => terminal::Kind::People,
        Format::Json => terminal::Kind::Json,
    });
    match args.format {
        Format::Table => {
            let measured = resolution.as_ref().map_or_else(Vec::new, Resolution::rows);
            let rows = findings.iter().chain(counters.iter().flatten()).chain(&measured);
            let rows: Vec<&Row> = rows.collect();
            let width = args.width.or_else(known_width).unwrap_or(PROSE_WIDTH).max(40);
            wrapped(&mut out, "", &summary(&rows), width)?;
            writeln!(out)?;
            table(rows.into_iter(), &mut out, width)?;
        }
        Format::Json => json(&findings, counters.as_deref(), resolution, &mut out)?,
    }
    Ok(ExitCode::from(u8::from(!works)))
}

/// Returns a row for each setting in the configuration files (`counterpoint.toml`), or a row for
/// each file if nothing is set. If a file is wrong, the only row says why.
fn configuration() -> Vec<Row> {
    let row = |name: &str, level: Level, state: String| Row {
        name: name.to_owned(),
        level: level.name(),
        state,
        prevents: None,
        remedy: None,
    };
    match config::read() {
        Ok(found) if found.settings.is_empty() => {
            let nothing = |file: &PathBuf| format!("nothing is set in {}", file.display());
            let files = found.files.iter().map(nothing);
            files.map(|state| row("configuration", Level::Ok, state)).collect()
        }
        Ok(found) => {
            let settings = found.settings.iter().map(|setting| {
                let name = format!("configuration {}", setting.key.name());
                row(&name, Level::Ok, format!("{} ({})", setting.value, setting.place))
            });
            settings.collect()
        }
        Err(failure) => {
            let state = failure.messages().join("; ");
            let prevents =
                Some("all commands that record, and the settings of the others".to_owned());
            vec![Row { prevents, ..row("configuration", Level::Problem, state) }]
        }
    }
}

/// Returns rows about the pools (files in memory with records) that no profile can use.
fn left_in_memory() -> impl Iterator<Item = Row> {
    let orphans = profile::pools::orphans();
    let row = |state: String| Row {
        name: "orphaned pool".to_owned(),
        level: Level::Note.name(),
        state,
        prevents: None,
        remedy: Some("counterpoint recover --orphans".to_owned()),
    };
    let (named, others) = orphans.split_at(orphans.len().min(ORPHANS));
    let mut rows: Vec<Row> = named
        .iter()
        .map(|orphan| {
            let (path, why) = (orphan.path.display(), crate::orphans::describe(orphan));
            row(format!("{path} ({} KiB), {why}", orphan.bytes / 1024))
        })
        .collect();
    if !others.is_empty() {
        let bytes: u64 = others.iter().map(|orphan| orphan.bytes).sum();
        rows.push(row(format!("and {} more ({} KiB)", others.len(), bytes / 1024)));
    }
    rows.into_iter()
}

/// Returns a row for each counter in the list of `-e`, and one more row if the counters work
/// separately but not together. If the whole list cannot be resolved, each name is tried alone.
/// Fails if the list cannot be parsed, or if each entry is valid alone but the list is not.
fn asked(list: &str, naming: &Naming, machine: &Machine) -> Result<Vec<Row>, Failure> {
    let typed = parse(list).map_err(|error| unreadable(list, &error, machine))?;
    let resolver = naming.resolver(machine);
    match resolver.resolve(list) {
        Ok(counters) => return Ok(tried(&counters, machine)),
        // Each entry alone is valid, so the error is about the whole list: for example, a name
        // appears twice.
        Err(error) if typed.entries.iter().all(|e| resolver.resolve(&e.to_string()).is_ok()) => {
            return Err(unreadable(list, &error, machine));
        }
        Err(_) => {}
    }
    let mut rows = Vec::new();
    for entry in &typed.entries {
        let (items, of_group) = match entry {
            Entries::Single(item) => (std::slice::from_ref(item), Modifiers::default()),
            Entries::Group { items, modifiers } => (items.as_slice(), *modifiers),
        };
        for item in items {
            let modifiers = item.modifiers.and(of_group);
            let name = Item { modifiers, ..item.clone() }.to_string();
            match resolver.resolve(&name) {
                Ok(counters) => rows.extend(tried(&counters, machine)),
                Err(error) => rows.push(Row {
                    name,
                    level: Level::Problem.name(),
                    state: error.kind.to_string(),
                    prevents: None,
                    remedy: advice::for_name(&error, machine),
                }),
            }
        }
    }
    Ok(rows)
}

fn unreadable(list: &str, error: &NameError, machine: &Machine) -> Failure {
    Failure::new(format!("-e {list}: {error}")).advise(advice::for_name(error, machine))
}

fn tried(counters: &[Counter], machine: &Machine) -> Vec<Row> {
    let report = check(counters, machine);
    let row = |name: String, result: Result<(), Problem>| match result {
        Ok(()) => Row {
            name,
            level: Level::Ok.name(),
            state: "opens and counts".into(),
            prevents: None,
            remedy: None,
        },
        Err(problem) => Row {
            name,
            level: Level::Problem.name(),
            remedy: advice::for_problem(&problem, machine),
            state: problem.message,
            prevents: None,
        },
    };
    let names = counters.iter().map(|c| c.name.clone());
    let mut rows: Vec<Row> = names.zip(report.counters).map(|(n, r)| row(n, r)).collect();
    if report.together.is_err() {
        rows.push(row("all together".into(), report.together));
    }
    rows
}

/// Returns the library that `run` would preload, or else where it should be.
fn library() -> Option<PathBuf> {
    let places = crate::prepare::library_places().ok()?;
    places.iter().find(|path| path.is_file()).or(places.first()).cloned()
}

fn summary(rows: &[&Row]) -> String {
    const NAMED: usize = 3;
    let of = |level: Level| rows.iter().filter(move |row| row.level == level.name());
    let problems: Vec<String> = of(Level::Problem).map(|row| visible(&row.name).into()).collect();
    let notes = of(Level::Note).count();
    let (some, more) = problems.split_at(problems.len().min(NAMED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let problems = match problems.len() {
        0 => "no problem".to_owned(),
        n => format!("{}: {}{more}", plural(n as u128, "problem"), some.join(", ")),
    };
    match notes {
        0 => problems,
        n => format!("{problems}; {}", plural(n as u128, "note")),
    }
}

fn table<'r>(
    rows: impl Iterator<Item = &'r Row>,
    out: &mut impl Write,
    width: usize,
) -> io::Result<()> {
    let rows: Vec<&Row> = rows.collect();
    let column = |name, kind, cell: &dyn Fn(&Row) -> String| Shown {
        name,
        title: String::new(),
        rank: 0,
        kind,
        cells: rows.iter().map(|row| cell(row)).collect(),
    };
    let one_line = |text: &str| visible(text).into_owned();
    let state = |row: &Row| {
        let more = [("prevents", &row.prevents), ("remedy", &row.remedy)];
        let more = more.into_iter().filter_map(|(word, text)| {
            text.as_ref().map(|text| format!("\n{word}: {}", visible(text)))
        });
        more.fold(one_line(&row.state), |state, line| state + &line)
    };
    let columns = vec![
        column("level", Kind::Text, &|row| row.level.to_owned()),
        column("name", Kind::Text, &|row| one_line(&row.name)),
        column("state", Kind::Prose, &state),
    ];
    layout(out, columns, Names::Whole, Some(width))?.say_left_out(out, Some(width))
}

fn json(
    findings: &[Row],
    counters: Option<&[Row]>,
    resolution: Option<Resolution>,
    out: &mut impl Write,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'a str,
        findings: &'a [Row],
        /// The counters that `-e` names; `null` without that option.
        counters: Option<&'a [Row]>,
        /// The resolution of the clock and the counters; `null` if it could not be measured.
        resolution: Option<Resolution>,
    }
    let document = Document { schema: "counterpoint.doctor/1", findings, counters, resolution };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}
