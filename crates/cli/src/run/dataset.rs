//! `run --dataset`: adds what was recorded to a dataset when the program has ended.
//!
//! A program of its own does it, `export --dataset`, whose parts appear as a whole or not at all. So whatever
//! happens to `run`, the dataset has the old or the new state, and the profile can be added later.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::attend;
use crate::failure::Failure;
use crate::prepare::Recording;
use crate::terminal::{is_quiet, say};

/// Checks that parts can be added there, before the program runs.
///
/// # Errors
/// The directory is something else.
pub fn check(dir: &Path) -> Result<(), Failure> {
    use ::dataset::open::is_dataset;
    use ::dataset::own::foreign;
    match dir.symlink_metadata() {
        Ok(_) if is_dataset(dir) => Ok(()),
        Ok(_) if !dir.is_dir() => {
            Err(Failure::new(format!("--dataset {}: it is not a directory", dir.display())))
        }
        // Another rank may have begun to make the dataset.
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

/// Ranks of one machine are often started in one directory. Each gets a profile of its own.
pub fn choose_output(recording: &mut Recording) {
    if let (None, Some(job)) = (&recording.output, recording.job()) {
        recording.output = Some(PathBuf::from(format!("counterpoint.rank{}.cpt", job.rank)));
    }
}

/// Adds the profile in `directory`, which the user calls `shown`. Whatever fails, the program has run, and its
/// profile is there.
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
    // Standard output is the program's.
    command.arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::null());
    match attend(&mut command) {
        Ok(status) if status.success() && is_quiet() => {}
        Ok(status) if status.success() => say!("{name}: the recording was added"),
        // That program has said why.
        Ok(status) if status.code().is_some() => say!("{name}: nothing was added{}", later()),
        Ok(status) => say!("{name}: the program that adds to it ended with {status}{}", later()),
        Err(e) => say!("{name}: the program that adds to it: {e}{}", later()),
    }
}
