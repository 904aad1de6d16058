//! Which runs are compared, and which of them are pairs.

use std::fs;
use std::path::{Path, PathBuf};

use analysis::diff::recorded::{Recorded, recorded};
use profile::Profile;
use profile::manifest::{Manifest, Place, Side};
use profile::safe_dir::Dir;
use profile::series::Series;

use super::Args;
use crate::failure::Failure;
use crate::metrics::{Offer, of_profile};
use crate::plugin_events::show;
use crate::terminal::progress;
use crate::view::open::explain;
use crate::view::rights::{Needs, confine};

/// One run.
pub struct Run {
    pub path: PathBuf,
    pub manifest: Manifest,
}

impl Run {
    fn open(path: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::read(path).map_err(|e| explain(path, e))?;
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Reads it. One after the other: a series can have more runs than a process can have open files.
    pub fn read(&self, args: &Args) -> Result<Recorded, Failure> {
        let root = Dir::open(&self.path);
        let profile = root.and_then(|root| Profile::open_at(&root));
        let profile = profile.map_err(|e| explain(&self.path, e))?;
        let profile = show(profile);
        let metrics = of_profile(&args.metrics, &profile, Offer::Nothing)?;
        recorded(&profile, args.by.by(), args.raw, &metrics)
            .map_err(|e| Failure::new(format!("{}: {e}", self.path.display())))
    }
}

/// The runs of both sides.
pub struct Inputs {
    pub runs: [Vec<Run>; 2],
    /// By their numbers in `runs`; empty if they are not paired.
    pub pairs: Vec<(usize, usize)>,
    /// What is worth a note: rounds that are not complete.
    pub notes: Vec<String>,
}

impl Inputs {
    /// Finds the runs. From then on, this command can only read what the user named.
    pub fn find(args: &Args) -> Result<Self, Failure> {
        let named = args.a.iter().chain(&args.against).chain(&args.metrics.metrics_file);
        let outputs = args.html.iter().cloned().collect();
        confine(None, &Needs { outputs, ..Needs::files(named) });
        let mut notes = Vec::new();
        let runs = match (args.a.as_slice(), args.against.as_slice()) {
            ([series], []) if Series::is_at(series) => both(series, &mut notes)?,
            (_, []) => {
                return Err(Failure::new("nothing to compare with").hint(
                    "name the profiles of B with --against, or record both with \
                     `counterpoint run --repeat 10 --against 'PROGRAM B' -- PROGRAM A`",
                ));
            }
            (a, b) => [one(a, &mut notes)?, one(b, &mut notes)?],
        };
        runs.iter().try_for_each(|side| each_once(side))?;
        let pairs = pairs(&runs, args.paired)?;
        Ok(Self { runs, pairs, notes })
    }

    /// Reads the runs, one after the other.
    pub fn read(&self, args: &Args) -> Result<[Vec<Recorded>; 2], Failure> {
        let [a, b] = &self.runs;
        let reading = progress::step_of("reading", (a.len() + b.len()) as u64, "runs");
        let read = |run: &Run| run.read(args).inspect(|_| reading.done(1));
        Ok([
            a.iter().map(read).collect::<Result<_, _>>()?,
            b.iter().map(read).collect::<Result<_, _>>()?,
        ])
    }
}

/// Refuses a run that is there twice, also as a copy: it would count as two.
pub fn each_once(runs: &[Run]) -> Result<(), Failure> {
    let mut seen: Vec<(Option<PathBuf>, Option<&Place>)> = Vec::new();
    for run in runs {
        let path = fs::canonicalize(&run.path).ok();
        let place = run.manifest.series.as_ref();
        let same = |other: &(Option<PathBuf>, Option<&Place>)| {
            let key = |place: &Place| (place.series.clone(), place.round, place.side);
            (path.is_some() && other.0 == path)
                || (place.is_some() && other.1.map(key) == place.map(key))
        };
        if seen.iter().any(same) {
            return Err(Failure::new(format!("{}: the same run twice", run.path.display()))
                .hint("name each run once: a copy says nothing new"));
        }
        seen.push((path, place));
    }
    Ok(())
}

/// The complete rounds of a series.
fn rounds(path: &Path, notes: &mut Vec<String>) -> Result<(Series, Vec<Vec<Run>>), Failure> {
    let root = Dir::open(path).map_err(Failure::new)?;
    let series = Series::read_in(&root).map_err(Failure::new)?;
    let complete = series.complete(path);
    if complete.len() < series.rounds as usize {
        notes.push(format!(
            "{}: {} of {} rounds are complete; the others are left out",
            path.display(),
            complete.len(),
            series.rounds
        ));
    }
    if complete.is_empty() {
        return Err(Failure::new(format!("{}: no round is complete", path.display())));
    }
    let open = |runs: &Vec<PathBuf>| runs.iter().map(|run| Run::open(run)).collect();
    let runs = complete.iter().map(open).collect::<Result<Vec<Vec<Run>>, Failure>>()?;
    Ok((series, runs))
}

/// Both sides of a series.
fn both(path: &Path, notes: &mut Vec<String>) -> Result<[Vec<Run>; 2], Failure> {
    let (series, rounds) = rounds(path, notes)?;
    if series.sides().len() < 2 {
        return Err(Failure::new(format!("{}: a series of one program", path.display())).hint(
            "name another one with --against; or record both programs in turn: \
             `counterpoint run --repeat 10 --against 'PROGRAM B' -- PROGRAM A`",
        ));
    }
    let mut sides = [Vec::new(), Vec::new()];
    for runs in rounds {
        for (side, run) in sides.iter_mut().zip(runs) {
            side.push(run);
        }
    }
    Ok(sides)
}

/// The runs of one side.
pub fn one(paths: &[PathBuf], notes: &mut Vec<String>) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for path in paths {
        if !Series::is_at(path) {
            runs.push(Run::open(path)?);
            continue;
        }
        let (series, rounds) = rounds(path, notes)?;
        if series.sides().len() > 1 {
            return Err(Failure::new(format!("{}: a series of two programs", path.display()))
                .hint("give it alone: it has A and B"));
        }
        runs.extend(rounds.into_iter().flatten());
    }
    Ok(runs)
}

/// The pairs: runs of the same round of a series, or those that the user says.
fn pairs(runs: &[Vec<Run>; 2], given: bool) -> Result<Vec<(usize, usize)>, Failure> {
    let [a, b] = runs;
    if given {
        if a.len() != b.len() {
            let why = format!("--paired: {} runs of A and {} of B", a.len(), b.len());
            return Err(Failure::new(why).hint("name as many of each, in the order of the pairs"));
        }
        return Ok((0..a.len()).map(|n| (n, n)).collect());
    }
    let of = |run: &Run, side: Side| run.manifest.series.clone().filter(|place| place.side == side);
    let key = |place: Place| (place.series, place.round);
    let places = |runs: &[Run], side| -> Option<Vec<(String, u32)>> {
        runs.iter().map(|run| of(run, side).map(key)).collect()
    };
    let Some((in_a, in_b)) = places(a, Side::A).zip(places(b, Side::B)) else {
        return Ok(Vec::new());
    };
    let pair = |(n, place): (usize, &(String, u32))| {
        Some((n, in_b.iter().position(|other| other == place)?))
    };
    // With runs that have no partner, somebody has chosen among them.
    let found: Vec<(usize, usize)> = in_a.iter().enumerate().filter_map(pair).collect();
    Ok(if found.len() == a.len() && found.len() == b.len() { found } else { Vec::new() })
}
