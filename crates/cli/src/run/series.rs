//! `run --repeat`: runs one program, or each of two programs, several times, each time in a new
//! process.
//!
//! ```text
//!  warm-up   A B          once each, recorded and thrown away
//!  round 1   B A          the order is chosen at random for each round
//!  round 2   A B          ↓ time
//! ```
//!
//! The state of a machine (frequency, load, caches) changes within seconds. Consecutive runs find
//! nearly the same state, and the random order favours neither program. In experiments in which all
//! runs of A came before all runs of B, about one in four comparisons gave a wrong verdict
//! (docs/diff.md).
//!
//! In the warm-up, each program runs as often as `--warm-up` says. Afterwards, the files that each
//! program reads are usually in memory. The first calls of each later run are compared like its
//! other calls, because they hardly change the compared statistics.
//!
//! The series ends early if a program does not end with status 0, or if `run` receives a signal
//! such as SIGINT. The complete rounds can still be compared.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::Ordering;
use std::time::Instant;

use analysis::diff::FEWEST_PAIRS;
use analysis::diff::flips::split_mix;
use machine::Machine;
use profile::ProfileId;
use profile::manifest::{Manifest, Origin, Place, Side};
use profile::safe_dir::Dir;
use profile::series::{MOST_ROUNDS, SERIES_SCHEMA, Series};

use super::{
    Args, SIGNALLED, Sampler, close, end_as, end_by, find, forward_signals, sampler, start,
    write_page,
};
use crate::failure::Failure;
use crate::inherited::Inherited;
use crate::plugin_events::convert_and_say;
use crate::prepare::{self, DirectoryLock, choose, make, make_directory, make_way, place};
use crate::terminal::{note, say};
use crate::view::open::typed;
use crate::view::units::{plural, time};

const DEFAULT_SERIES: &str = "counterpoint.series";
/// The name of the directory for the profile of one warm-up run. The directory is removed after
/// that run.
const WARM_UP: &str = "warm-up";

/// Several runs.
#[derive(clap::Args)]
pub struct Repeat {
    /// Run the program N times, each time in a fresh process and with a profile of its own in one
    /// directory (by default counterpoint.series), for `counterpoint diff`
    #[arg(long, value_name = "N", conflicts_with = "passes",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    pub repeat: Option<u32>,
    /// Compare with this program: N pairs of runs, in random order in each pair. Words are separated
    /// by spaces and can be in quotes; there is no shell (write sh -c '…' for one)
    #[arg(long, value_name = "PROGRAM B", requires = "repeat", value_parser = words)]
    pub against: Option<Words>,
    /// Number of times that each program runs before the first round. What is recorded then is
    /// thrown away
    #[arg(long, value_name = "N", requires = "repeat", default_value_t = 1)]
    pub warm_up: u32,
    /// Draw the order of the pairs from this number, to get the same order again
    #[arg(long, value_name = "N", requires = "against")]
    pub seed: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<String>);

/// Splits a command into words, nearly as a shell does.
fn words(text: &str) -> Result<Words, String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => {
                let next = characters.next().ok_or("a backslash at the end")?;
                word.get_or_insert_default().push(next);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            (None, '$' | '`' | '|' | '&' | ';' | '<' | '>' | '*' | '?' | '(' | ')') => {
                return Err(format!("{c} is for a shell: put it in quotes, or write sh -c '…'"));
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote that does not end".to_owned());
    }
    all.extend(word);
    if all.is_empty() { Err("no program".to_owned()) } else { Ok(Words(all)) }
}

struct Program {
    side: Side,
    path: PathBuf,
    command: Vec<OsString>,
    words: Vec<String>,
}

impl Program {
    fn new(side: Side, command: Vec<OsString>) -> Result<Self, Failure> {
        let path = find(Path::new(&command[0]))?;
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Ok(Self { side, path, command, words })
    }
}

enum Ended {
    Program(ExitStatus),
    /// `run` received this signal, and the program ended with status 0.
    Signal(i32),
}

impl Ended {
    fn why(&self) -> String {
        match self {
            Self::Program(status) => status.to_string(),
            Self::Signal(signal) => format!("signal {signal}"),
        }
    }
}

/// Records a series. If a program or signal ended the series early, this process ends with the same
/// status or signal.
pub fn main(args: &Args, rounds: u32, inherited: Inherited) -> Result<ExitCode, Failure> {
    let mut programs = vec![Program::new(Side::A, args.command.clone())?];
    if let Some(Words(words)) = &args.repeat.against {
        programs.push(Program::new(Side::B, words.iter().map(OsString::from).collect())?);
    }
    // Wrong counters or plugins fail here, before anything is created.
    choose(&args.recording, &args.beside.system, Origin::Run, &Machine::here())?;
    let output = args.recording.output.as_deref().unwrap_or(Path::new(DEFAULT_SERIES));
    let directory = place(output)?;
    let series = plan(args, rounds, &programs)?;
    let lock = DirectoryLock::wait(&directory);
    make_way(&directory, &lock)?;
    make_directory(&directory).map_err(|f| f.hint("choose another place with -o DIR"))?;
    series.write(&directory).map_err(Failure::new)?;
    let _running = prepare::Running::lock(&directory);
    drop(lock);
    if programs.len() > 1 && (rounds as usize) < FEWEST_PAIRS {
        note!(
            "`diff` tests nothing with fewer than {FEWEST_PAIRS} pairs (--repeat {FEWEST_PAIRS})"
        );
    }
    forward_signals();
    let ended = all(args, &series, &programs, &directory, inherited);
    let runs = series.complete(&directory);
    let complete = runs.len();
    let has_begun = Series::run_at(&directory, 1, Side::A).parent().is_some_and(Path::exists);
    if complete == 0 && (ended.is_err() || !has_begun) && is_at(&series, &directory) {
        let _ = fs::remove_dir_all(&directory);
    }
    let not_written = |why: &str| {
        if let Some(page) = &args.html {
            say!("{}: was not written, because {why}", page.display());
        }
    };
    let ended = ended.inspect_err(|_| not_written("the series could not go on"))?;
    let what = if programs.len() > 1 { "pair" } else { "run" };
    let of = match complete == rounds as usize {
        true => String::new(),
        false => format!(" of {rounds}"),
    };
    let next = match programs.len() {
        _ if complete == 0 => String::new(),
        1 => format!("; next: counterpoint report {}", typed(&Series::run_at(output, 1, Side::A))),
        _ => format!("; next: counterpoint diff {}", typed(output)),
    };
    if has_begun {
        note!("{}: {}{of}{next}", output.display(), plural(complete as u128, what));
    }
    match (runs.last().map(Vec::as_slice), programs.len()) {
        (Some([.., last]), 1) => write_page::<true>(args, "report", last),
        (Some(_), _) => write_page::<true>(args, "diff", &directory),
        (None, _) => not_written("no round is complete"),
    }
    Ok(match ended {
        None => ExitCode::SUCCESS,
        Some(Ended::Program(status)) => end_as(status),
        Some(Ended::Signal(signal)) => end_by(signal),
    })
}

/// Whether `directory` still contains this series: somebody may have moved it and created another
/// one there.
fn is_at(series: &Series, directory: &Path) -> bool {
    let found = Dir::open(directory).and_then(|root| Series::read_in(&root));
    found.is_ok_and(|found| found.id == series.id)
}

fn plan(args: &Args, rounds: u32, programs: &[Program]) -> Result<Series, Failure> {
    let random = |e| Failure::new(format!("random number: {e}"));
    let seed = match args.repeat.seed {
        Some(seed) => seed,
        None => crate::whole::random().map_err(random)? as u32,
    };
    Ok(Series {
        schema: SERIES_SCHEMA.to_owned(),
        id: ProfileId::random().map_err(random)?.to_string(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        rounds,
        warm_up: args.repeat.warm_up,
        seed: seed.into(),
        commands: programs.iter().map(|program| program.words.clone()).collect(),
        labels: args.recording.labels.iter().cloned().collect(),
    })
}

/// Runs the warm-up and all rounds. Returns `None` if all rounds are complete.
fn all(
    args: &Args,
    series: &Series,
    programs: &[Program],
    directory: &Path,
    inherited: Inherited,
) -> Result<Option<Ended>, Failure> {
    for _ in 0..series.warm_up {
        for program in programs {
            let at = directory.join(WARM_UP);
            let status = one(args, program, &at, None, inherited);
            let _ = fs::remove_dir_all(&at);
            if let Some(ended) = why_ended(status?) {
                let side = program.side.name();
                say!("the warm-up of {side}: {}; the series ends here", ended.why());
                return Ok(Some(ended));
            }
        }
    }
    let mut state = series.seed;
    let since_begin = Instant::now();
    for round in 1..=series.rounds {
        let mut order: Vec<&Program> = programs.iter().collect();
        if split_mix(&mut state) & 1 == 1 {
            order.reverse();
        }
        let at = directory.join(format!("{round:03}"));
        make_directory(&at)?;
        let mut took = Vec::new();
        for (position, program) in (1..).zip(order) {
            let place = Place {
                series: series.id.clone(),
                side: program.side,
                round,
                position,
                seed: series.seed,
            };
            let since = Instant::now();
            let at = Series::run_at(directory, round, program.side);
            let status = one(args, program, &at, Some(place), inherited)?;
            let ns = since.elapsed().as_nanos() as f64;
            took.push(format!("{} {}", program.side.name(), time(ns)));
            if let Some(ended) = why_ended(status) {
                let (side, why) = (program.side.name(), ended.why());
                say!("round {round} of {}, {side}: {why}; the series ends here", series.rounds);
                return Ok(Some(ended));
            }
        }
        let each_ns = since_begin.elapsed().as_nanos() as f64 / f64::from(round);
        let left_ns = each_ns * f64::from(series.rounds - round);
        let to_go = match left_ns >= 1e9 {
            true => format!("; about {} to go", time(left_ns)),
            false => String::new(),
        };
        note!("round {round} of {}: {}{to_go}", series.rounds, took.join(", "));
    }
    Ok(None)
}

/// Returns why the series ends; `None` if it continues.
fn why_ended(status: ExitStatus) -> Option<Ended> {
    // A program may have handled a signal and ended with status 0. The signal still ends the
    // series.
    match (status.success(), SIGNALLED.load(Ordering::SeqCst)) {
        (true, 0) => None,
        (true, signal) => Some(Ended::Signal(signal)),
        (false, _) => Some(Ended::Program(status)),
    }
}

fn one(
    args: &Args,
    program: &Program,
    directory: &Path,
    place: Option<Place>,
    inherited: Inherited,
) -> Result<ExitStatus, Failure> {
    let machine = Machine::here();
    let choice = choose(&args.recording, &args.beside.system, Origin::Run, &machine)?;
    let (recording, words) = (&args.recording, &program.words);
    let mut prepared = make(recording, choice, &machine, directory, Origin::Run, words)?;
    prepared.manifest.series = place;
    let wanted = (prepared.clock, prepared.beside.clone());
    let sampler = match sampler::<true>(directory, wanted, args.beside.sample_interval) {
        Ok(sampler) => sampler,
        Err(failure) => {
            prepared.discard();
            return Err(failure);
        }
    };
    let running = start(&program.path, &program.command, prepared, inherited)?;
    sampler.iter().for_each(Sampler::manifest_is_free);
    let status = running.wait(&program.path)?;
    let is_sampled = sampler.is_some();
    let trouble = sampler.and_then(Sampler::finish);
    let mut manifest = running.manifest;
    if is_sampled {
        // The manifest is read again, because the sampler may have added a snapshot to it.
        manifest = Manifest::read(directory).unwrap_or(manifest);
    }
    let closed = close(directory, manifest, status, trouble);
    running.prepared.tidy();
    closed.map_err(Failure::new)?;
    convert_and_say(directory);
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_words() {
        let split = |text: &str| words(text).map(|Words(words)| words.join("|"));
        for (text, expected) in [
            ("a b  c", "a|b|c"),
            (" 'a b' c", "a b|c"),
            (r#"x --y="1 2" z\ w"#, "x|--y=1 2|z w"),
            (r#"'$HOME' "a'b" ''"#, "$HOME|a'b|"),
            (r#""a\"b""#, "a\"b"),
        ] {
            assert_eq!(split(text).as_deref(), Ok(expected), "{text}");
        }
        for (wrong, why) in [
            ("", "no program"),
            ("  ", "no program"),
            ("a 'b", "a quote that does not end"),
            ("a\\", "a backslash at the end"),
            ("a | b", "| is for a shell: put it in quotes, or write sh -c '…'"),
            ("a $B", "$ is for a shell: put it in quotes, or write sh -c '…'"),
        ] {
            assert_eq!(split(wrong), Err(why.to_owned()), "{wrong}");
        }
    }
}
