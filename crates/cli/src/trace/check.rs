//! `counterpoint trace check`: reports what is wrong with a trace file, and at which byte.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;
use trace::check::Report;
use trace::kind::{self, FileKind};
use trace::{chrome, perfetto};

use crate::failure::Failure;
use crate::input;
use crate::object::object;
use crate::terminal::progress;
use crate::terminal::{self, stdout, visible};
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;

const CHECK_SCHEMA: &str = "counterpoint.trace-check/1";

/// Check a trace file in Chrome JSON or Perfetto's format, whichever program wrote it.
///
/// The file may be compressed with gzip. Reports errors that any reader would run into, and at
/// which byte they are. The exit code is 1 if there are any.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line per finding.
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document; docs/traces.md describes it.
    Json,
}

#[derive(Serialize)]
struct FileOut {
    path: String,
    format: &'static str,
    contents: BTreeMap<&'static str, u64>,
    findings: Vec<FindingOut>,
    counts: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct FindingOut {
    byte: u64,
    what: String,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    input::at_most_one_standard(args.files.iter().map(PathBuf::as_path))?;
    confine(None, &Needs::files(&args.files));
    let files: Vec<FileOut> =
        args.files.iter().map(|path| check(path)).collect::<Result<_, _>>()?;
    let wrong = files.iter().any(|file| !file.counts.is_empty());
    let kind = match args.format {
        Format::Text => terminal::Kind::People,
        Format::Json => terminal::Kind::Json,
    };
    let mut out = stdout(kind);
    match args.format {
        Format::Text => files.iter().try_for_each(|file| print(&mut out, file))?,
        Format::Json => {
            let document = object! { schema: CHECK_SCHEMA, files };
            serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
            writeln!(out)?;
        }
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

fn check(path: &Path) -> Result<FileOut, Failure> {
    let failed = |e: io::Error| Failure::new(format!("read {}: {e}", input::name(path)));
    let other = |what: &str| {
        let mut report = Report::default();
        report.find(0, "not a trace", format!("not a trace: {what}"));
        FileOut::new(path, "other", report)
    };
    if path.is_dir() {
        return Ok(other(kind::of_directory(path)));
    }
    progress::phase(progress::step(format!("reading {}", input::name(path))));
    let (kind, source) = kind::open(input::once(path).map_err(failed)?).map_err(failed)?;
    match kind {
        FileKind::Other(what) => Ok(other(what)),
        FileKind::IreeLines => Ok(other("it is a bundle of IREE, which `trace import` reads")),
        FileKind::Empty => Ok(other("it is empty")),
        FileKind::Perfetto => {
            let report = perfetto::check::check(source).map_err(failed)?;
            Ok(FileOut::new(path, "perfetto", report))
        }
        FileKind::Json | FileKind::Unknown => {
            let report = match chrome::check::check(source) {
                Ok(report) => report,
                Err((mut report, error)) => {
                    let text = error.to_string();
                    let what = text.split_once(": ").map_or(text.as_str(), |(_, what)| what);
                    report.find(error.at, "the rest cannot be read", what);
                    report
                }
            };
            Ok(FileOut::new(path, "chrome", report))
        }
    }
}

impl FileOut {
    fn new(path: &Path, format: &'static str, report: Report) -> Self {
        let finding = |f: trace::check::Finding| FindingOut { byte: f.at, what: f.what };
        Self {
            path: input::name(path),
            format,
            contents: report.contents,
            findings: report.findings.into_iter().map(finding).collect(),
            counts: report.counts,
        }
    }
}

/// Formats a number with its noun: `1 slice`, `2 slices`, `1 name of rows`. `name` is the noun in
/// the plural.
fn counted(count: u64, name: &str) -> String {
    let one = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    match (count, name.split_once(" of ")) {
        (1, None) => format!("1 {}", one(name)),
        (1, Some((what, whose))) => format!("1 {} of {whose}", one(what)),
        _ => format!("{count} {name}"),
    }
}

fn print(out: &mut impl Write, file: &FileOut) -> io::Result<()> {
    let path = visible(&file.path);
    for finding in &file.findings {
        writeln!(out, "{path}: byte {}: {}", finding.byte, visible(&finding.what))?;
    }
    let kept = file.findings.len() as u64;
    let wrong: u64 = file.counts.values().sum();
    if wrong > kept {
        for (kind, count) in &file.counts {
            writeln!(out, "{path}: {count} × {kind}")?;
        }
    }
    let contents = file.contents.iter().map(|(name, count)| counted(*count, name));
    let contents = contents.collect::<Vec<_>>().join(", ");
    let verdict = if wrong == 0 { "ok".to_owned() } else { plural(wrong.into(), "finding") };
    let contents = if contents.is_empty() { "no events" } else { contents.as_str() };
    writeln!(out, "{path}: {verdict}: {contents}")
}
