//! Runs the commands that read a profile, in the same way as `main`.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;
use profile::Origin;

use crate::{Cli, run_command};

/// Views in their formats, and the commands that recover or end a recording. `PROFILE` stands for
/// the path of the profile. The standard output of the worker process that runs these commands is
/// `/dev/null`.
const READING: [&str; 60] = [
    "report PROFILE",
    "report PROFILE --by thread --width 60",
    "report PROFILE --by cpu --filter m*",
    "report PROFILE --by process --skip-ms 0.01",
    "report PROFILE --format json",
    "report PROFILE --format json --by thread --metric x=cycles/page-faults",
    "report PROFILE --format csv --metric builtin --sort self",
    "ops PROFILE",
    "ops PROFILE --all --width 70",
    "ops PROFILE --format json",
    "ops PROFILE --format csv --since 10000 --until 30000",
    "ops PROFILE --vm vm",
    "stats PROFILE",
    "stats PROFILE --width 100 --buckets 64 --gamma 1",
    "stats PROFILE --format json --metric x=cycles/page-faults",
    "stats PROFILE --format csv --skip-ms 0.01",
    "stats PROFILE --op matmul --thread main --no-table",
    "export PROFILE --format csv",
    "export PROFILE --format json --metric x=cycles/page-faults",
    "export PROFILE --format parquet -o -",
    "export PROFILE --format csv --filter m*",
    "export PROFILE --format csv --what tracks",
    "export PROFILE --format json --what tracks --filter power*",
    "export PROFILE --format parquet --what tracks -o -",
    "trace export PROFILE -o -",
    "trace export PROFILE -o - --vocabulary generic --rank 1 --world-size 2",
    "trace export PROFILE -o - --format json.gz --no-counter-tracks",
    "trace export PROFILE -o - --format pftrace",
    "trace export PROFILE -o - --format pftrace --compress --vocabulary kineto",
    "trace export PROFILE -o - --from 1us --to 20us",
    "trace export PROFILE -o - --category cpu_op --from 2us",
    "trace export PROFILE -o - --format pftrace --category *op* --to 1ms",
    "report PROFILE --tree",
    "report PROFILE --roofline",
    "report PROFILE --by site --format csv",
    "report PROFILE --by between --format json",
    "report PROFILE --by loop --format csv",
    "report PROFILE --by module",
    "report PROFILE --by line",
    "report PROFILE --by arguments --top 3",
    "report PROFILE --html -",
    "explain PROFILE",
    "explain PROFILE --format json --top 0",
    "critical-path PROFILE",
    "critical-path PROFILE --format csv",
    "diff PROFILE --against PROFILE",
    "diff PROFILE --against PROFILE --format json",
    "loops report PROFILE --all --threads",
    "loops report PROFILE --asm --source --format json",
    "loops report PROFILE --format lwp-csv",
    "export PROFILE --format pprof -o -",
    "export PROFILE --format folded",
    "export PROFILE --format speedscope",
    "export PROFILE --format csv --what counts",
    "export PROFILE --format json --what loops",
    "export PROFILE --format parquet --what loop-events -o -",
    "recover PROFILE",
    "recover PROFILE --close",
    "session finish PROFILE",
    "hook report PROFILE",
];

fn of(origin: Origin) -> &'static [&'static str] {
    match origin {
        Origin::Hook => &READING,
        _ => &READING[..READING.len() - 1],
    }
}

pub fn number(origin: Origin) -> usize {
    of(origin).len()
}

pub fn words(origin: Origin, number: usize) -> &'static str {
    of(origin)[number]
}

/// Runs the command with the index `number`. The command may report the damage as an error.
///
/// # Panics
/// Panics if the words are not a valid command line, or if the command panics.
pub fn run(origin: Origin, number: usize, dir: &Path) {
    let words = words(origin, number).split(' ').map(|word| match word {
        "PROFILE" => dir.as_os_str().to_owned(),
        word => OsString::from(word),
    });
    let cli = Cli::try_parse_from([OsString::from("counterpoint")].into_iter().chain(words));
    let cli = cli.unwrap_or_else(|error| panic!("{error}"));
    if let Err(failure) = run_command(cli.command) {
        failure.report();
    }
}
