//! `merge` of datasets.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::dataset::open::is_dataset;
use ::dataset::own::foreign;
use ::dataset::{Dataset, Merged, merge};

use crate::failure::Failure;
use crate::stage::Stage;
use crate::terminal::{Kind, progress, say, stdout};
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;
use crate::whole::directory;

/// Gaps that are named one by one.
const MOST_NAMED: usize = 20;

/// Unites these datasets, and the one that is at `output` already.
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
    // What the datasets contain was written by others. Rights that a thread gives up are gone for that
    // thread only.
    let merged = std::thread::scope(|scope| {
        let merging = scope.spawn(|| -> Result<Merged, Failure> {
            confine(
                None,
                &Needs { reads: all.clone(), made: Some(stage.path()), ..Needs::default() },
            );
            progress::phase(progress::step("uniting the datasets"));
            let opened: Result<Vec<Dataset>, _> =
                all.iter().map(|dir| Dataset::open(dir)).collect();
            let opened = opened.map_err(Failure::new)?;
            let merged = merge(&opened, stage.path()).map_err(Failure::new)?;
            // The dataset that is there now would be gone.
            let replaced = opened.last().filter(|_| is_replaced);
            let lost = replaced.and_then(|old| {
                old.gaps.iter().find(|gap| gap.is_left_out() && merged.gaps.contains(gap))
            });
            match lost {
                Some(gap) => {
                    let why = format!("{} is not replaced: {gap}", output.display());
                    Err(Failure::new(why)
                        .hint("choose another place with -o DIR, or remove that part yourself"))
                }
                None => Ok(merged),
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
    // What was there before is where the new one was made, and goes with it.
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

/// Refuses to replace a directory that has files of somebody else.
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
