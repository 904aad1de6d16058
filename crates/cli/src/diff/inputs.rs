//! Finds the runs to compare, and the pairs among them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use ::dataset::gaps::Ranks;
use ::dataset::{Dataset, Only, across};
use analysis::diff::recorded::{Recorded, recorded};
use model::Severity;
use profile::manifest::{Manifest, Place, Side};
use profile::safe_dir::Dir;
use profile::series::Series;
use profile::{LossCount, Profile};

use super::{Args, RowKind};
use crate::failure::Failure;
use crate::metrics::{Offer, of_profile};
use crate::plugin_events::show;
use crate::terminal::progress;
use crate::view::open::explain;
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;

pub struct Run {
    pub path: PathBuf,
    pub manifest: Manifest,
    /// The rows of a run in a dataset; `None` for a run that is a profile. They are read when the
    /// run is found, because all runs of a dataset are read together.
    of_dataset: Option<Recorded>,
}

impl Run {
    fn open(path: &Path) -> Result<Self, Failure> {
        let manifest = Manifest::read(path).map_err(|e| explain(path, e))?;
        Ok(Self { path: path.to_owned(), manifest, of_dataset: None })
    }

    /// Returns the dataset that the run belongs to; `None` for a run that is a profile.
    pub fn dataset(&self) -> Option<&Path> {
        self.of_dataset.as_ref().and(self.path.parent())
    }

    /// Reads the run. A profile is open only during this call, because all runs of a series can
    /// have more files than a process may open.
    pub fn read(&self, args: &Args) -> Result<Recorded, Failure> {
        if let Some(recorded) = &self.of_dataset {
            return Ok(recorded.clone());
        }
        let root = Dir::open(&self.path);
        let profile = root.and_then(|root| Profile::open_at(&root));
        let profile = profile.map_err(|e| explain(&self.path, e))?;
        let profile = show(profile);
        let metrics = of_profile(&args.metrics, &profile, Offer::Nothing)?;
        recorded(&profile, args.by.by(), args.raw, &metrics)
            .map_err(|e| Failure::new(format!("{}: {e}", self.path.display())))
    }
}

pub struct Inputs {
    pub runs: [Vec<Run>; 2],
    /// The pairs, as indices of runs of A and B in `runs`.
    pub pairs: Vec<(usize, usize)>,
    pub notes: Vec<String>,
}

impl Inputs {
    /// Restricts this process to the files that the user named, and finds the runs.
    pub fn find(args: &Args) -> Result<Self, Failure> {
        let named = args.a.iter().chain(&args.against).chain(&args.metrics.metrics_file);
        let outputs = args.html.iter().cloned().collect();
        confine(None, &Needs { outputs, ..Needs::files(named) });
        let mut notes = Vec::new();
        let is_dataset = |path: &&PathBuf| ::dataset::open::is_dataset(path);
        let datasets = args.a.iter().chain(&args.against).filter(is_dataset).count();
        let runs = match (args.a.as_slice(), args.against.as_slice()) {
            (a, b) if datasets > 0 => of_datasets(args, [a, b], datasets, &mut notes)?,
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

    /// Reads all runs, and adds a note for each loss that affects their numbers.
    pub fn read(&mut self, args: &Args) -> Result<[Vec<Recorded>; 2], Failure> {
        let [a, b] = &self.runs;
        let reading = progress::step_of("reading", (a.len() + b.len()) as u64, "runs");
        let read = |run: &Run| run.read(args).inspect(|_| reading.done(1));
        let found: [Vec<Recorded>; 2] = [
            a.iter().map(read).collect::<Result<_, _>>()?,
            b.iter().map(read).collect::<Result<_, _>>()?,
        ];
        self.notes.extend(losses(a.iter().chain(b).zip(found.iter().flatten())));
        Ok(found)
    }
}

/// Notes name at most this many losses. A damaged profile can have many unknown ones.
const MOST_LOSSES: usize = 20;

/// Returns a text for each loss that affects numbers of `runs`, with the first run that has it.
pub fn losses<'a>(runs: impl Iterator<Item = (&'a Run, &'a Recorded)>) -> Vec<String> {
    let mut number = 0;
    // The losses by name, in the order in which they were found: the first run and the number of
    // runs that have the loss.
    let mut found: Vec<(&LossCount, &Run, u128)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (run, recorded) in runs {
        number += 1;
        for loss in recorded.losses.iter().filter(|loss| loss.severity() > Severity::Note) {
            let place = *places.entry(&loss.name).or_insert(found.len());
            match found.get_mut(place) {
                Some((.., runs)) => *runs += 1,
                None => found.push((loss, run, 1)),
            }
        }
    }
    let text = |(loss, first, runs): &(&LossCount, &Run, u128)| {
        let (name, help, path) = (&loss.name, loss.help(), first.path.display());
        format!("{name} in {runs} of {}, first in {path}: {help}", plural(number, "run"))
    };
    let mut texts: Vec<String> = found.iter().take(MOST_LOSSES).map(text).collect();
    if let more @ 1.. = found.len().saturating_sub(MOST_LOSSES) {
        texts.push(format!("and {more} more kinds of losses"));
    }
    texts
}

/// The smallest allowed threshold for datasets. The quantiles in a dataset have a relative error of
/// up to 1/128. The errors of A and B can add up.
const LEAST_THRESHOLD: f64 = 2.0 / 128.0;

/// Reads the runs of datasets. The runs of each side are taken as repeats of one another. Only
/// ranks that all runs have are compared.
fn of_datasets(
    args: &Args,
    sides: [&[PathBuf]; 2],
    datasets: usize,
    notes: &mut Vec<String>,
) -> Result<[Vec<Run>; 2], Failure> {
    if sides[1].is_empty() || datasets != sides[0].len() + sides[1].len() {
        return Err(Failure::new("a dataset is compared with a dataset")
            .hint("`diff DATASET --against DATASET`; the runs of each are its repeats"));
    }
    let given = [
        (args.by != RowKind::Op, "--by"),
        (args.raw, "--raw"),
        (!args.metrics.metric.is_empty(), "--metric"),
        (!args.metrics.metrics_file.is_empty(), "--metrics-file"),
    ];
    if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
        return Err(Failure::new(format!("{option} cannot be used with datasets"))
            .hint("a dataset has sums and histograms of each op"));
    }
    if args.threshold < LEAST_THRESHOLD {
        let why = "--threshold: datasets have durations within 1/128, so that changes below 1.6 % cannot be \
                   told";
        return Err(Failure::new(why));
    }
    let mut named: Vec<Option<PathBuf>> = Vec::new();
    let mut opened: [Vec<(&PathBuf, Dataset)>; 2] = [Vec::new(), Vec::new()];
    for (side, paths) in opened.iter_mut().zip(sides) {
        for path in paths {
            let real = fs::canonicalize(path).ok();
            if named.contains(&real) {
                return Err(Failure::new(format!("{}: the same dataset twice", path.display())));
            }
            named.push(real);
            let dataset = Dataset::open(path).map_err(Failure::new)?;
            notes.extend(dataset.gaps.iter().map(|gap| format!("{}: {gap}", path.display())));
            side.push((path, dataset));
        }
    }
    // The ranks of each run, by the dataset's number and the run's name.
    let mut ranks: BTreeMap<(usize, &str), BTreeSet<u32>> = BTreeMap::new();
    for (number, (_, dataset)) in opened.iter().flatten().enumerate() {
        for member in dataset.members() {
            ranks.entry((number, &member.run)).or_default().insert(member.rank);
        }
    }
    let everywhere = ranks.values().cloned().reduce(|a, b| &a & &b).unwrap_or_default();
    let anywhere = ranks.values().cloned().reduce(|a, b| &a | &b).unwrap_or_default();
    if everywhere.is_empty() {
        return Err(Failure::new("there is no rank that all runs of the datasets have"));
    }
    if everywhere != anywhere {
        let left = Ranks::of((&anywhere - &everywhere).into_iter());
        notes.push(format!(
            "compared are the {} that all runs have; left out: {left}",
            plural(everywhere.len() as u128, "rank")
        ));
    }
    let only = Only { run: None, ranks: Some(everywhere.into_iter().collect()) };
    notes.push("quantiles are of histograms, within 1/128; counters are not compared".to_owned());
    let mut found = [Vec::new(), Vec::new()];
    for (side, datasets) in found.iter_mut().zip(&opened) {
        for (path, dataset) in datasets {
            for run in across(dataset, &only).map_err(Failure::new)? {
                let mut manifest = Manifest::default();
                manifest.labels.insert("run".to_owned(), run.run.clone());
                let of_dataset = Some(analysis::diff::across::recorded(&run));
                let path = path.join(::dataset::layout::run_directory(&run.run));
                side.push(Run { path, manifest, of_dataset });
            }
        }
    }
    Ok(found)
}

/// Returns an error if two of `runs` have the same path or the same place in a series, because one
/// run would count as two.
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

/// Returns the series at `path` and the runs of its complete rounds.
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

/// Returns the runs of both sides of a series.
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

/// Returns the pairs of runs. With `given`, the runs are paired in the order in which the user
/// named them. Otherwise, the two runs of a round of a series are a pair; but if any run has no
/// partner, no pairs are returned.
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
    // A run without a partner can mean that somebody picked runs from a series. Tests of picked
    // runs could mislead, so no pair is used.
    let found: Vec<(usize, usize)> = in_a.iter().enumerate().filter_map(pair).collect();
    Ok(if found.len() == a.len() && found.len() == b.len() { found } else { Vec::new() })
}
