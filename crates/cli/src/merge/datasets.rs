//! `merge` of datasets.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::dataset::open::is_dataset;
use ::dataset::{Dataset, Gap, Merged, merge};

use crate::failure::Failure;
use crate::stage::Stage;
use crate::terminal::{Kind, say, stdout, visible};
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;
use crate::whole::directory;

/// Gaps that are named one by one.
const MOST_NAMED: usize = 20;

/// Unites these datasets, and the one that is at `output` already.
pub fn main(inputs: &[PathBuf], output: &Path) -> Result<ExitCode, Failure> {
    let mut all: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    if output.symlink_metadata().is_ok() {
        if !is_dataset(output) {
            let why = format!("{} already exists and is not a dataset", output.display());
            return Err(Failure::new(why).hint("choose another place with -o DIR"));
        }
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
            let opened: Result<Vec<Dataset>, _> =
                all.iter().map(|dir| Dataset::open(dir)).collect();
            merge(&opened.map_err(Failure::new)?, stage.path()).map_err(Failure::new)
        });
        merging.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    ::dataset::merge::settle(stage.path(), output).map_err(Failure::new)?;
    // What was there before is where the new one was made, and goes with it.
    drop(stage);
    for gap in merged.gaps.iter().take(MOST_NAMED) {
        say!("{}", in_words(gap));
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

/// What is missing.
fn in_words(gap: &Gap) -> String {
    let text = match gap {
        Gap::NoPart { run, rank } => format!("run {run}: rank {rank} is missing"),
        Gap::Broken { run, rank, why, .. } => {
            format!("run {run}: rank {rank} is incomplete and left out: {why}")
        }
        Gap::Unreadable { why } => format!("left out: {why}"),
    };
    visible(&text).into_owned()
}
