//! `counterpoint hook`: the agent (the library in the profiled program) starts this command if the
//! program's environment has the variables of IREE's original call hook. People do not use this
//! command; `docs/hook.md` describes the feature for them.
//!
//! ```text
//!  hook prepare PID      settings ─► counters ─► a profile ──► fd 3: "record", path of the run file
//!                            └─ list of counters on stdout ──► fd 3: "exit"
//!  hook report PROFILE   the profile ─┬─► statistics per thread on stdout
//!                                     └─► a CSV file per thread    then removes the profile
//! ```

mod choose;
mod csv;
mod prepare;
mod report;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::Failure;

/// Set up and finish recordings of programs that have IREE_HOOK_… variables; started by the agent
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    end: End,
}

#[derive(clap::Subcommand)]
enum End {
    /// Make a profile as the IREE_HOOK_… variables ask, and write the path of its run file to
    /// descriptor 3
    Prepare {
        /// Id of the process that asks for the profile
        process: u32,
    },
    /// Print the statistics of a profile that `hook prepare` made, write its CSV files and remove it
    Report {
        /// Profile directory
        profile: PathBuf,
    },
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.end {
        End::Prepare { process } => prepare::main(process),
        End::Report { profile } => report::main(&profile),
    }
}
