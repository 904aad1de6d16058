//! `counterpoint trace`: timelines for other programs.

mod export;
mod import;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Timelines of other programs: write them, read them.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Export(export::Args),
    Import(import::Args),
}

/// Runs the subcommand.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Export(args) => export::main(args),
        Command::Import(args) => import::main(args),
    }
}
