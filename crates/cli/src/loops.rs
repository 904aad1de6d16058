//! `counterpoint loops`: instruments compiled functions, and shows how much time their loops take.

mod compile_iree;
mod instrument;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// Find out where inside compiled functions the time goes: instrument their loops, and show what
/// they counted.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Instrument(instrument::Args),
    CompileIree(compile_iree::Args),
    Report(report::Args),
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Instrument(args) => instrument::main(args),
        Command::CompileIree(args) => compile_iree::main(args),
        Command::Report(args) => report::main(args),
    }
}

impl Args {
    pub fn is_view(&self) -> bool {
        matches!(self.command, Command::Report(_))
    }
}
