//! `counterpoint loops`: where inside a kernel the time goes.

mod instrument;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Find out where inside a kernel the time goes: instrument the loops of a compiler's text.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Instrument(instrument::Args),
}

/// Runs the subcommand.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Instrument(args) => instrument::main(args),
    }
}
