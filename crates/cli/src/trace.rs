//! `counterpoint trace`: converts between profiles and the timelines of other programs, and checks
//! and merges such timelines.

mod check;
pub mod export;
mod import;
mod into;
mod loops;
mod merge;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Export, import, check and merge timelines in the formats of other programs.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Export(export::Args),
    Import(import::Args),
    Check(check::Args),
    Merge(merge::Args),
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Export(args) => export::main(args),
        Command::Import(args) => import::main(args),
        Command::Check(args) => check::main(args),
        Command::Merge(args) => merge::main(args),
    }
}
