//! `cargo xtask`: the commands for development. Without arguments, it prints a list of them.
//!
//! Each command does its own set-up, so it works on a fresh checkout. All commands run in the
//! repository's root. In the checkout, they write below `target/` and `dist/`; `bench` also writes
//! in `benches/runs/`, `fixtures --bless` in `fixtures/`, `hardware --keep` in
//! `tests/hardware/results/` and README.md, and `pictures` in `docs/pictures/` and README.md. A
//! command that fails exits with 2.

mod bench;
mod book;
mod demo;
mod dist;
mod elf;
mod files;
mod fixtures;
mod frames;
mod hardware;
mod layout;
mod lock;
mod npm;
mod page_tools;
mod pictures;
mod pmu_vm;
mod process;
mod release;
mod setup;
mod test;
mod tidy;
mod trace_processor;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::layout::Layout;

/// Commands for working on Counterpoint.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    Setup(setup::Args),
    Dist(dist::Args),
    Release(release::Args),
    Files(files::Args),
    Fixtures(fixtures::Args),
    Test(test::Args),
    Tidy(tidy::Args),
    Demo(demo::Args),
    Pictures(pictures::Args),
    Book(book::Args),
    PmuVm(pmu_vm::Args),
    Hardware(hardware::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let chore = Cli::parse().chore;
    let result = Layout::find().and_then(|layout| match chore {
        Chore::Setup(args) if args.tests => test::set_up(&layout),
        Chore::Setup(args) => setup::main(&layout, &args),
        Chore::Dist(args) => dist::main(&layout, &args),
        Chore::Release(args) => release::main(&layout, &args),
        Chore::Files(args) => files::main(&layout, &args),
        Chore::Fixtures(args) => fixtures::main(&layout, &args),
        Chore::Test(args) => test::main(&layout, &args),
        Chore::Tidy(args) => tidy::main(&layout, &args),
        Chore::Demo(args) => demo::main(&layout, &args),
        Chore::Pictures(args) => pictures::main(&layout, &args),
        Chore::Book(args) => book::main(&layout, &args),
        Chore::PmuVm(args) => pmu_vm::main(&layout, &args),
        Chore::Hardware(args) => hardware::main(&layout, &args),
        Chore::Bench(args) => bench::main(&layout, &args),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}
