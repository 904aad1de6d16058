//! `counterpoint`: the command line. The only place with hints and prose for people.
//!
//! One module per command; each has its `Args` and a `main` that returns the exit code.
//! Data goes to stdout, words to stderr with the prefix `counterpoint:`. Exit codes: 0 ok,
//! 1 a finding, 2 an error; `run` passes on the status of the program it ran.

mod asker;
mod doctor;
mod env;
mod export;
mod failure;
mod hook;
mod inherited;
mod list;
mod metrics;
mod naming;
mod ops;
mod orphans;
mod output;
mod prepare;
mod python;
mod recover;
mod report;
mod run;
mod session;
mod stats;
mod trace;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Where the time went in compiled machine learning, and which hardware counter explains it.
#[derive(Parser)]
#[command(name = "counterpoint", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Report(report::Args),
    Ops(ops::Args),
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
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Report(args) => report::main(args),
        Command::Ops(args) => ops::main(args),
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
