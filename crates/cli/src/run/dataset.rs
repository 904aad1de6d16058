//! `run --dataset`: adds the recording to a dataset at intervals while the program runs
//! (`periodic.rs`), and when it has ended.
//!
//! A separate process (`export --dataset`) adds the recording, completely or not at all. The user
//! can also add the profile later.

mod periodic;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::attend;
use crate::failure::Failure;
use crate::prepare::{Recording, interval};
use crate::terminal::{is_quiet, say};

pub use periodic::PeriodicExports;

#[derive(clap::Args)]
pub struct DatasetArgs {
    /// Also add what is recorded to this dataset of many ranks, as `export --dataset` does: every five
    /// minutes while the program runs, and when it has ended. The dataset is made if it does not exist. The
    /// run is the label `run` or what the launcher calls its job. The profile stays; without -o, it is
    /// counterpoint.rankN.cpt. The status is that of the program, also if nothing can be added
    #[arg(id = "dataset", long, value_name = "DIR", conflicts_with_all = ["passes", "repeat"])]
    pub dir: Option<PathBuf>,
    /// With --dataset: also write each call as a row
    #[arg(long, requires = "dataset", conflicts_with = "budget")]
    calls: bool,
    /// For tests: the time between two parts
    #[arg(long, hide = true, default_value = "300s", value_parser = interval)]
    dataset_interval: Duration,
    /// For tests: the bytes of a file of calls after which it does not wait for this time
    #[arg(long, hide = true, default_value_t = 64 << 20)]
    dataset_bytes: u64,
    /// For tests: the part of a processor that writing may take
    #[arg(long, hide = true, default_value_t = 0.05)]
    dataset_share: f64,
}

impl DatasetArgs {
    /// Returns the command that adds the profile in `directory` to the dataset `dir`. `goes_on`
    /// means that the program still runs.
    pub fn adding(
        &self,
        dir: &Path,
        directory: &Path,
        rank: Option<u32>,
        goes_on: bool,
    ) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg("export").arg("--dataset").arg(dir);
        let options = [(self.calls, "--calls"), (goes_on, "--goes-on")];
        command.args(options.iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option));
        if let Some(rank) = rank {
            command.arg("--rank").arg(rank.to_string());
        }
        // Standard output belongs to the program, so the command must not write to it.
        command.arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// Checks before the program runs that its recording can be added to the dataset `dir`.
///
/// # Errors
/// Returns an error if `dir` is not a directory, or contains files that do not belong to a dataset.
pub fn check(dir: &Path) -> Result<(), Failure> {
    use ::dataset::open::is_dataset;
    use ::dataset::own::foreign;
    match dir.symlink_metadata() {
        Ok(_) if is_dataset(dir) => Ok(()),
        Ok(_) if !dir.is_dir() => {
            Err(Failure::new(format!("--dataset {}: it is not a directory", dir.display())))
        }
        // A directory without foreign files is accepted, because another rank may be creating the
        // dataset at this moment.
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

/// If the user chose no output and the rank is known, the profile's name contains the rank. This is
/// because the ranks on one machine are often started in the same directory.
pub fn choose_output(recording: &mut Recording) {
    if let (None, Some(job)) = (&recording.output, recording.job()) {
        recording.output = Some(PathBuf::from(format!("counterpoint.rank{}.cpt", job.rank)));
    }
}

/// Runs the command `adding`, and prints the result. `running` is the number of processes that
/// still record. `shown` is the profile's path as the user typed it. Errors are printed and not
/// returned, because the profile is complete even if it cannot be added.
pub fn add(dir: &Path, mut adding: Command, shown: &Path, running: usize) {
    let later = || {
        let (shown, dir) = (shown.display(), dir.display());
        format!("; later: counterpoint export {shown} --dataset {dir}")
    };
    let name = dir.display();
    if running > 0 {
        say!("{name}: nothing is added while a process is still recording{}", later());
        return;
    }
    match attend(&mut adding) {
        Ok(status) if status.success() && is_quiet() => {}
        Ok(status) if status.success() => say!("{name}: the recording was added"),
        // The process that adds the recording has printed the reason.
        Ok(status) if status.code().is_some() => say!("{name}: nothing was added{}", later()),
        Ok(status) => say!("{name}: the program that adds to it ended with {status}{}", later()),
        Err(e) => say!("{name}: the program that adds to it: {e}{}", later()),
    }
}
