//! `counterpoint`: the command line. The only place with hints and prose for people.
//!
//! One module per command; each has its `Args` and a `main` that returns the exit code. Data goes
//! to stdout, words to stderr with the prefix `counterpoint:`; both by way of [`terminal`], which
//! decides what a terminal gets of text that we did not write. Exit codes: 0 ok, 1 a finding, 2 an
//! error; `run` passes on the status of the program it ran, and says 127 and 126 of one that is not
//! there and one that cannot be executed.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod asker;
mod doctor;
mod env;
mod export;
mod failure;
mod hook;
mod inherited;
mod input;
mod list;
mod loops;
mod matching;
mod metrics;
mod naming;
mod ops;
mod orphans;
mod output;
mod own;
mod prepare;
mod python;
mod recover;
mod report;
mod run;
mod session;
mod stats;
mod terminal;
mod trace;
mod view;
mod whole;

use std::process::ExitCode;

use clap::error::{ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

/// Show where compiled machine learning spends its time, and which hardware counter explains it.
#[derive(Parser)]
#[command(name = "counterpoint", bin_name = "counterpoint", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Report(report::Args),
    Ops(ops::Args),
    Loops(loops::Args),
    Stats(stats::Args),
    Export(export::Args),
    Trace(trace::Args),
    Recover(recover::Args),
    List(list::Args),
    Doctor(doctor::Args),
    Env(env::Args),
    #[command(hide = true)]
    Session(session::Args),
    #[command(hide = true)]
    Hook(hook::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(error),
    };
    let result = match cli.command {
        Command::Run(args) => run::main(args),
        Command::Report(args) => report::main(args),
        Command::Ops(args) => ops::main(args),
        Command::Loops(args) => loops::main(args),
        Command::Stats(args) => stats::main(args),
        Command::Export(args) => export::main(args),
        Command::Trace(args) => trace::main(args),
        Command::Recover(args) => recover::main(args),
        Command::List(args) => list::main(args),
        Command::Doctor(args) => doctor::main(args),
        Command::Env(args) => env::main(args),
        Command::Session(args) => session::main(args),
        Command::Hook(args) => hook::main(args),
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Help, the version, or what is wrong with the arguments. The latter repeats them, so that it
/// goes to the terminal as all foreign text does, and without colours.
fn usage(mut error: clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {
            // A line break in an argument is none of ours.
            let typed: Vec<_> =
                error.context().map(|(kind, value)| (kind, value.clone())).collect();
            for (kind, value) in typed {
                let text = |text: String| terminal::visible(&text).into_owned();
                let value = match value {
                    ContextValue::String(typed) => ContextValue::String(text(typed)),
                    ContextValue::Strings(typed) => {
                        ContextValue::Strings(typed.into_iter().map(text).collect())
                    }
                    other => other,
                };
                error.insert(kind, value);
            }
            terminal::say_lines(error.render().to_string().trim_end());
            ExitCode::from(2)
        }
    }
}
