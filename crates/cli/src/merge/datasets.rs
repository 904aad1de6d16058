//! Merges datasets, for `counterpoint merge`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::dataset::open::is_dataset;
use ::dataset::own::foreign;
use ::dataset::{Dataset, Gap, Merged, merge};

use crate::failure::Failure;
use crate::stage::Stage;
use crate::terminal::{Kind, progress, say, stdout};
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;
use crate::whole::directory;

/// If a program replaces parts of a dataset during the merge, the merge begins again, at most this
/// many times.
const MOST_CHANGES: u32 = 5;
/// At most this many gaps (missing parts of a dataset) are printed one by one.
const MOST_NAMED: usize = 20;

/// Merges `inputs`, and the dataset at `output` if there already is one, into one dataset at
/// `output`.
pub fn main(inputs: &[PathBuf], output: &Path) -> Result<ExitCode, Failure> {
    let mut all: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let is_replaced = output.symlink_metadata().is_ok();
    if is_replaced {
        if !is_dataset(output) {
            let why = format!("{} already exists and is not a dataset", output.display());
            return Err(Failure::new(why).hint("choose another place with -o DIR"));
        }
        only_its_own(output)?;
        all.push(output);
    }
    let failed = |e| Failure::new(format!("create {}: {e}", output.display()));
    let stage = Stage::create(directory(output)).map_err(failed)?;
    // The datasets may come from somebody else, so they are read by a thread that first gives up
    // all rights that the merge does not need.
    let merged = std::thread::scope(|scope| {
        let merging = scope.spawn(|| -> Result<Merged, Failure> {
            confine(
                None,
                &Needs { reads: all.clone(), made: Some(stage.path()), ..Needs::default() },
            );
            progress::phase(progress::step("uniting the datasets"));
            let (opened, merged) = unite(&all, stage.path())?;
            // The dataset at `output` will be replaced, so all of its parts must be in the new one.
            let replaced = opened.last().filter(|_| is_replaced);
            let lost = replaced.and_then(|old| {
                old.gaps.iter().find(|gap| gap.is_left_out() && merged.gaps.contains(gap))
            });
            // While a recording still adds parts to the dataset, replacing the dataset would lose
            // the rest of the recording.
            let grows = |gap: &&Gap| match gap {
                Gap::Unfinished { run, .. } => {
                    let mut own = replaced.iter().flat_map(|old| &old.gaps);
                    own.any(|own| matches!(own, Gap::Unfinished { .. }) && own.run() == Some(run))
                }
                _ => false,
            };
            let growing = merged.gaps.iter().find(grows);
            match (lost, growing) {
                (Some(gap), _) => {
                    let why = format!("{} is not replaced: {gap}", output.display());
                    Err(Failure::new(why)
                        .hint("choose another place with -o DIR, or remove that part yourself"))
                }
                (None, Some(gap)) => {
                    let why = format!("{} is not replaced: {gap}", output.display());
                    Err(Failure::new(why).hint(
                        "choose another place with -o DIR; `export PROFILE --dataset DIR` completes a rank \
                         whose recording was killed",
                    ))
                }
                (None, None) => Ok(merged),
            }
        });
        merging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    if merged.members.is_empty() {
        let mut why = format!("create {}: the datasets have no recordings", output.display());
        if let Some(gap) = merged.gaps.first() {
            why.push_str(&format!("; {gap}"));
        }
        return Err(Failure::new(why));
    }
    if is_replaced {
        only_its_own(output)?;
    }
    ::dataset::merge::move_into_place(stage.path(), output).map_err(Failure::new)?;
    // If there was a dataset at `output`, it is now in the directory of `stage` and is removed with
    // it.
    drop(stage);
    for gap in merged.gaps.iter().take(MOST_NAMED) {
        say!("{gap}");
    }
    if merged.gaps.len() > MOST_NAMED {
        say!("and {} more gaps", merged.gaps.len() - MOST_NAMED);
    }
    let mut runs: Vec<&str> = merged.members.iter().map(|member| &*member.run).collect();
    runs.dedup();
    let (parts, runs) = (merged.members.len() as u128, runs.len() as u128);
    let repeated = match merged.repeated {
        0 => String::new(),
        n => format!("; {} there more than once", plural(n as u128, "recording")),
    };
    let mut out = stdout(Kind::People);
    let (parts, runs) = (plural(parts, "recording"), plural(runs, "run"));
    writeln!(out, "{}: {parts} of {runs}{repeated}", output.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Merges the datasets. A program that still runs replaces its parts of a dataset from time to
/// time; if a merge fails because of that, it begins again.
fn unite(all: &[&Path], stage: &Path) -> Result<(Vec<Dataset>, Merged), Failure> {
    let open = || {
        let opened: Result<Vec<Dataset>, _> = all.iter().map(|dir| Dataset::open(dir)).collect();
        opened.map_err(Failure::new)
    };
    let mut opened = open()?;
    let mut changes = 0;
    loop {
        let why = match merge(&opened, stage) {
            Ok(merged) => return Ok((opened, merged)),
            Err(why) => Failure::new(why),
        };
        let now = open()?;
        let parts =
            |all: &[Dataset]| all.iter().flat_map(|one| one.parts.clone()).collect::<Vec<_>>();
        if parts(&now) == parts(&opened) || changes == MOST_CHANGES {
            return Err(why);
        }
        for entry in fs::read_dir(stage).map_err(Failure::new)?.flatten() {
            let made = entry.path();
            let removed =
                if made.is_dir() { fs::remove_dir_all(&made) } else { fs::remove_file(&made) };
            removed.map_err(|e| Failure::new(format!("remove {}: {e}", made.display())))?;
        }
        (opened, changes) = (now, changes + 1);
    }
}

/// Returns an error if the directory contains files that do not belong to a dataset.
fn only_its_own(output: &Path) -> Result<(), Failure> {
    match foreign(output).map_err(Failure::new)? {
        None => Ok(()),
        Some(found) => {
            let (output, found) = (output.display(), found.display());
            let why = format!("{output} is not replaced: {found} in it is not a dataset's own");
            Err(Failure::new(why).hint("choose another place with -o DIR"))
        }
    }
}
