//! `counterpoint loops`: where inside compiled functions the time goes.

mod report;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Count and time the loops of compiled code, and show where the time goes.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Report(report::Args),
}

/// Runs the subcommand.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Report(args) => report::main(args),
    }
}
