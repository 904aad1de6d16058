//! `run --dataset`: adds the recording to a dataset when the program has ended.
//!
//! A separate process of `export --dataset` adds it, and its parts appear completely or not at all.
//! So whatever happens to `run`, the dataset is in the old or the new state, and the profile can be
//! added later.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::attend;
use crate::failure::Failure;
use crate::prepare::Recording;
use crate::terminal::{is_quiet, say};

/// Checks before the program runs that parts can be added to `dir`.
///
/// # Errors
/// `dir` exists and is not a dataset.
pub fn check(dir: &Path) -> Result<(), Failure> {
    use ::dataset::open::is_dataset;
    use ::dataset::own::foreign;
    match dir.symlink_metadata() {
        Ok(_) if is_dataset(dir) => Ok(()),
        Ok(_) if !dir.is_dir() => {
            Err(Failure::new(format!("--dataset {}: it is not a directory", dir.display())))
        }
        // Another rank may be making the dataset at this moment.
        Ok(_) => match foreign(dir).map_err(Failure::new)? {
            Some(found) => Err(Failure::new(format!(
                "--dataset {}: it is not a dataset, and not empty: it has {}",
                dir.display(),
                found.display()
            ))),
            None => Ok(()),
        },
        Err(_) => Ok(()),
    }
}

/// Chooses another output for each rank, because the ranks of one machine are often started in one
/// directory.
pub fn choose_output(recording: &mut Recording) {
    if let (None, Some(job)) = (&recording.output, recording.job()) {
        recording.output = Some(PathBuf::from(format!("counterpoint.rank{}.cpt", job.rank)));
    }
}

/// Adds the profile in `directory`, which the user calls `shown`. An error is only reported,
/// because the program has run and its profile exists.
pub fn add(dir: &Path, directory: &Path, shown: &Path, rank: Option<u32>, running: usize) {
    let later = || {
        let (shown, dir) = (shown.display(), dir.display());
        format!("; later: counterpoint export {shown} --dataset {dir}")
    };
    let name = dir.display();
    if running > 0 {
        say!("{name}: nothing is added while a process is still recording{}", later());
        return;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("export").arg("--dataset").arg(dir);
    if let Some(rank) = rank {
        command.arg("--rank").arg(rank.to_string());
    }
    // Standard output belongs to the recorded program.
    command.arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::null());
    match attend(&mut command) {
        Ok(status) if status.success() && is_quiet() => {}
        Ok(status) if status.success() => say!("{name}: the recording was added"),
        // The process has printed the reason.
        Ok(status) if status.code().is_some() => say!("{name}: nothing was added{}", later()),
        Ok(status) => say!("{name}: the program that adds to it ended with {status}{}", later()),
        Err(e) => say!("{name}: the program that adds to it: {e}{}", later()),
    }
}
