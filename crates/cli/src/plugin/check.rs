//! `counterpoint plugin check`: checks whether a plugin conforms to the published interface.
//!
//! ```text
//!  probes ─► a child for each ─► findings, each on a clause ─► text, Markdown or JSON
//! ```
//!
//! The check asks the plugin questions (the probes), each in a child process. Findings below the
//! level of a violation are only advice.

mod json;
mod markdown;
mod text;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use plugin_host::conformance::{CLAUSES, Clause, Level, Probe, probes};
use sha2::{Digest, Sha256};

use super::child::{Found, Listed, ListedProfiler};
use super::list::ask_within;
use super::patient::PATIENCE;
use super::shown;
use crate::failure::Failure;
use crate::output::time;
use crate::plugin_files::files;
use crate::terminal::{Kind, stdout, visible};

#[derive(clap::Args)]
pub struct Args {
    /// Plugin, or the name of one that comes with Counterpoint
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Time for all questions together: 30s, 500ms. What is not asked by then is named, and the plugin
    /// is not certified
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "120s")]
    timeout: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line for each finding
    #[default]
    #[value(alias = "table")]
    Text,
    /// A report that can be published, with everything that was asked
    Markdown,
    /// One JSON document
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// The question led to findings, and the worst one has this level.
    Found(Level),
    /// The question was not asked, because the plugin cannot be used at all.
    Impossible,
    /// The time of the check was over before the question was asked or answered.
    NoTime,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Found(level) => level.name(),
            Self::Impossible => "not asked: the plugin cannot be used",
            Self::NoTime => "not asked: no time was left",
        }
    }
}

struct Asked {
    probe: Probe,
    outcome: Outcome,
}

struct Finding {
    level: Level,
    clause: &'static Clause,
    what: String,
    probes: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Conforms,
    Violates,
    /// No violation was found, but not every question was asked and answered.
    Unknown,
}

struct Report {
    file: PathBuf,
    bytes: u64,
    sha256: String,
    profilers: Vec<ListedProfiler>,
    asked: Vec<Asked>,
    findings: Vec<Finding>,
    checked_unix_s: u64,
}

impl Report {
    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    fn verdict(&self) -> Verdict {
        if self.count(Level::Violation) > 0 {
            return Verdict::Violates;
        }
        let is_asked = |asked: &Asked| matches!(asked.outcome, Outcome::Passed | Outcome::Found(_));
        if self.asked.iter().all(is_asked) { Verdict::Conforms } else { Verdict::Unknown }
    }

    /// Adds a finding, or only the name of the probe if an equal finding exists already.
    fn add(&mut self, probe: &Probe, level: Level, clause: &'static Clause, what: String) {
        let is_same = |known: &&mut Finding| {
            (known.level, known.clause, &known.what) == (level, clause, &what)
        };
        match self.findings.iter_mut().find(is_same) {
            Some(known) if known.probes.contains(&probe.name) => {}
            Some(known) => known.probes.push(probe.name),
            None => self.findings.push(Finding { level, clause, what, probes: vec![probe.name] }),
        }
    }
}

fn interface() -> String {
    let (request, state) = (abi::kineto::PULL_REQUEST, abi::kineto::REVISION.commit);
    format!("Kineto's profiler plugin interface (pull request {request}, state {state})")
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    let [file] = &files(std::slice::from_ref(&args.file))?[..] else {
        return Err(Failure::new(format!("{}: has several plugins", shown(&args.file)))
            .hint("check one file at a time"));
    };
    let report = examine(file, Duration::from_nanos(args.timeout))?;
    let mut out = stdout(match args.format {
        Format::Text | Format::Markdown => Kind::People,
        Format::Json => Kind::Json,
    });
    match args.format {
        Format::Text => text::write(&report, &mut out)?,
        Format::Markdown => markdown::write(&report, &mut out)?,
        Format::Json => json::write(&report, &mut out)?,
    }
    out.flush()?;
    Ok(match report.verdict() {
        Verdict::Conforms => ExitCode::SUCCESS,
        Verdict::Violates | Verdict::Unknown => ExitCode::from(1),
    })
}

/// Asks the plugin the questions, which together may take at most `limit`.
fn examine(file: &Path, limit: Duration) -> Result<Report, Failure> {
    let deadline = Instant::now() + limit;
    let bytes =
        std::fs::read(file).map_err(|e| Failure::new(format!("read {}: {e}", shown(file))))?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut report = Report {
        file: file.to_owned(),
        bytes: bytes.len() as u64,
        sha256,
        profilers: Vec::new(),
        asked: Vec::new(),
        findings: Vec::new(),
        checked_unix_s: now.as_secs(),
    };
    let all = probes();
    let mut progress = Progress::new(all.len());
    let mut is_usable = true;
    for (number, probe) in all.iter().enumerate() {
        if probe.only_after_failure && report.count(Level::Violation) == 0 {
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let outcome = match (is_usable, left.is_zero()) {
            (false, _) => Outcome::Impossible,
            (true, true) => Outcome::NoTime,
            (true, false) => {
                progress.asks(number, probe.name);
                ask_one(file, (number, probe), left, &mut report)?
            }
        };
        // After a violation in question 0 (whether the plugin registers), no further question is
        // asked.
        is_usable &= number > 0 || outcome != Outcome::Found(Level::Violation);
        report.asked.push(Asked { probe: *probe, outcome });
    }
    progress.is_over();
    let left = deadline.saturating_duration_since(Instant::now());
    if is_usable
        && !left.is_zero()
        && let Ok(Listed { profilers, .. }) = ask_within(file, &["list"], left.min(PATIENCE))?
    {
        report.profilers = profilers;
    }
    // The sort is stable: findings of one level stay in the order of the questions.
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    Ok(report)
}

fn ask_one(
    file: &Path,
    (number, probe): (usize, &Probe),
    left: Duration,
    report: &mut Report,
) -> Result<Outcome, Failure> {
    let began = Instant::now();
    let asked: Result<Vec<Found>, String> =
        ask_within(file, &["probe", &number.to_string()], left.min(PATIENCE))?;
    let found = match asked {
        Ok(found) => found,
        // The check ran out of time, so it is not known whether the plugin hangs.
        Err(_) if left < PATIENCE && began.elapsed() >= left => return Ok(Outcome::NoTime),
        Err(died) => {
            let level = probe.level_of_crash();
            report.add(probe, level, probe.clause, died);
            return Ok(Outcome::Found(level));
        }
    };
    let mut worst = None;
    for Found { level, clause, what } in found {
        let level = Level::of(&level).unwrap_or(Level::Violation);
        let clause = CLAUSES.iter().find(|known| known.id == clause).unwrap_or(&probe.clause);
        worst = worst.max(Some(level));
        report.add(probe, level, clause, what);
    }
    Ok(worst.map_or(Outcome::Passed, Outcome::Found))
}

/// Shows on a terminal which question is being asked, because a question may take half a minute.
struct Progress {
    of: usize,
    is_shown: bool,
}

impl Progress {
    fn new(of: usize) -> Self {
        Self { of, is_shown: std::io::stderr().is_terminal() }
    }

    fn asks(&mut self, number: usize, name: &str) {
        if self.is_shown {
            let line = format!("\r\x1b[K{} of {}: {}", number + 1, self.of, visible(name));
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn is_over(&mut self) {
        if self.is_shown {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
