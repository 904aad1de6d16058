//! `counterpoint query`: replaces this process by the program `counterpoint-query`.
//!
//! The query engine is a separate program, because it depends on some two hundred packages that
//! Counterpoint does not need.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::failure::Failure;
use crate::terminal::{is_quiet, is_verbose};

const PROGRAM: &str = "counterpoint-query";
const VARIABLE: &str = "COUNTERPOINT_QUERY";

/// Ask a dataset of many ranks in SQL, with `counterpoint-query`.
///
/// Arguments are those of that program; `counterpoint query --help` prints them if it is installed.
/// docs/datasets.md describes datasets, and how to get the program.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// --dataset DIR, and the query in SQL or --kept NAME.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let missing = |why: String| {
        Failure::new(why).hint(format!(
            "it is a program of its own: build it in Counterpoint's sources with `cargo build --release \
             --manifest-path query/Cargo.toml`, and put it into PATH or name it with {VARIABLE}"
        ))
    };
    let program = find().ok_or_else(|| missing(format!("{PROGRAM} was not found")))?;
    // `--quiet` and `--verbose` before the command are passed on to the program.
    let words = match (is_quiet(), is_verbose()) {
        (true, _) => Some("--quiet"),
        (_, true) => Some("--verbose"),
        _ => None,
    };
    // `exec` only returns if it failed.
    let error = Command::new(&program).args(words).args(args.arguments).exec();
    Err(missing(format!("start {}: {error}", program.display())))
}

/// Finds `counterpoint-query`: the program that `COUNTERPOINT_QUERY` names, or else the one in the
/// directory of this program, or else the first one in PATH.
fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty entry of PATH would mean the working directory, so only absolute entries are used.
    let in_path = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let in_path = in_path.map(|dir| dir.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|place| is_program(place))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
