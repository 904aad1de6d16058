//! `resolution`: measures how often the true mean is inside of the interval that the report states.
//! It is the interval of the compensated mean, from which the recorder's own time has been
//! subtracted.
//!
//! `tests/programs/resolution.c` calls functions of known duration, from 20 ns to 1 ms, in turn
//! directly and through the recorder. `benches/resolution.py` compares the means of the report with
//! the truth.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;

/// The label, the value of `run -e`, and the KiB of memory that the program writes between two
/// calls.
const CASES: [(&str, &str, u32); 4] = [
    ("times", "none", 0),
    ("times-cold", "none", 512),
    ("clock", "task-clock", 0),
    ("clock-cold", "task-clock", 4_096),
];
/// The functions of `resolution_library.c`.
const FUNCTIONS: [&str; 8] = [
    "take_20ns",
    "take_50ns",
    "take_100ns",
    "take_300ns",
    "take_1us",
    "take_10us",
    "take_100us",
    "take_1ms",
];
const RUNS: u32 = 10;
const ROUNDS: usize = 10;
/// The target: at most this share of the 95 % intervals miss the true value.
const MOST_OUTSIDE: f64 = 0.1;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::given(layout)?.program();
    let scratch = layout.bench()?;
    let sources = layout.root.join("tests/programs");
    let libraries = ["-ldl", "-lm"];
    let host = compile(&sources.join("resolution.c"), &scratch.join("resolution"), &libraries)?;
    let shared = ["-shared", "-fPIC"];
    let library = scratch.join("resolution.so");
    let library = compile(&sources.join("resolution_library.c"), &library, &shared)?;
    let script = layout.root.join("benches/resolution.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for (label, events, kib) in CASES {
        let arguments: Vec<PathBuf> = [
            script.clone(),
            RUNS.to_string().into(),
            events.into(),
            kib.to_string().into(),
            program.clone(),
            host.clone(),
            library.clone(),
            scratch.join("resolution.cpt"),
        ]
        .into();
        let command = move || {
            let mut command = Command::new("python3");
            command.args(&arguments);
            command
        };
        cases.push(Case::new(label, Observe::Lines, command));
        let quantities = ["", ".task-clock"].into_iter().take(if events == "none" { 1 } else { 2 });
        for (function, of) in quantities.flat_map(|of| FUNCTIONS.map(|function| (function, of))) {
            let figure = |what: &str, unit, at_most| {
                Figure::value(
                    format!("{label}: {function}{of}, {what}"),
                    unit,
                    Of::new(label, format!("{function}{of}.{what}")),
                    at_most,
                )
            };
            figures.push(figure("outside", "of the runs", Some(MOST_OUTSIDE)));
            figures.push(figure("difference", "ns", None));
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: ROUNDS,
        notes: vec![
            format!("outside: the part of {RUNS} runs in which the truth was outside of the interval that the report stated for the compensated mean"),
            "difference: the compensated mean minus the truth".into(),
            "cold: the program writes to memory between two calls, 512 KiB (times) or 4 MiB (clock)".into(),
        ],
    })
}

fn compile(source: &Path, program: &Path, options: &[&str]) -> Result<PathBuf> {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O2", "-Wall", "-o"]).arg(program).arg(source).args(options);
    output(&mut command, &format!("compile {}", source.display()))?;
    Ok(program.to_owned())
}
