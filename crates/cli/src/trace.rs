//! `counterpoint trace`: timelines for other programs.

mod export;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Write timelines that other programs show.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Export(export::Args),
}

/// Runs the subcommand.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Export(args) => export::main(args),
    }
}
