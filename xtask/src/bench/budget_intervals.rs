//! `budget-intervals`: runs programs with a budget, and measures how often the 95 % interval of an
//! estimate contains the value that a full run of the same program found.
//!
//! The mode `replay` records a program once in full in each round. Then, many times for each
//! budget, it chooses calls of this recording as a run with this budget would, with the agent's
//! code (`recorder/budget/replay.rs`). So differences between processes have no effect. The mode
//! `direct` runs the program with each budget, and compares these runs with runs without a budget.
//! `benches/budget_intervals.py` does both.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan};
use super::price::{Workload, tools, workloads};
use crate::layout::Layout;
use crate::process::{cargo, output};

const BUDGETS: [&str; 4] = ["1%", "2%", "5%", "10%"];
/// The number of replays in each round for each budget. Each round makes a new recording.
const REPLAYS: u32 = 50;
/// The number of runs without a budget in each round of `direct`.
const FULL_RUNS: u32 = 6;
const ROUNDS: usize = 10;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let (program, tool, modules) = tools(layout)?;
    let test = agent_tests(layout)?;
    let folder = layout.bench()?;
    let script = layout.root.join("benches/budget_intervals.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for Workload { name, command } in workloads(layout, &tool, &modules)? {
        let mut case = |mode: &str, words: Vec<String>| {
            let label: &'static str = format!("{name}.{mode}").leak();
            let (script, command, folder) = (script.clone(), command.clone(), folder.clone());
            let (program, mode) = (program.clone(), mode.to_owned());
            let command = move || {
                let mut python = Command::new("python3");
                python
                    .arg(&script)
                    .arg(&mode)
                    .args(&words)
                    .args([&program, &folder])
                    .args(&command);
                python
            };
            cases.push(Case::new(label, Observe::Lines, command));
            label
        };
        let replay = case("replay", vec![REPLAYS.to_string(), test.display().to_string()]);
        let direct = case("direct", vec![FULL_RUNS.to_string()]);
        let mut figure = |label, reading: String| {
            let formula = Formula::Rate(Of::new(label, reading.clone()));
            let name = format!("{label}: {reading}");
            figures.push(Figure { name, unit: "of the intervals", formula, at_most: None });
        };
        for budget in BUDGETS {
            for what in ["duration", "counter"] {
                figure(replay, format!("{budget}.{what}.held"));
                figure(replay, format!("{budget}.{what}.worst-op"));
                figure(replay, format!("{budget}.{what}.unknown"));
            }
            figure(direct, format!("{budget}.held"));
            figure(direct, format!("{budget}.interval-alone"));
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: ROUNDS,
        notes: vec![
            format!(
                "replay: {REPLAYS} draws in each round from the calls of a full run; held: the part of the intervals of all ops that hold the full run's total, worst-op: the same of the op with the fewest, unknown: the part of the estimates that state no interval (±?)"
            ),
            format!(
                "direct: of the ops with at least 100 calls, the part whose mean per call lies so near to that of {FULL_RUNS} full runs as the interval and the spread of full runs allow; interval-alone: without that spread"
            ),
            "at least 0.90 is the goal; each round has new draws".into(),
        ],
    })
}

fn agent_tests(layout: &Layout) -> Result<PathBuf> {
    let mut command = cargo();
    command.current_dir(&layout.root).args(["test", "--no-run", "--message-format=json"]);
    command.args(["--package", "counterpoint-agent", "--lib"]);
    let messages = output(&mut command, "build the agent's tests")?;
    let program = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "agent" && message["profile"]["test"] == true;
        message["executable"].as_str().filter(|_| is_it).map(|path| Path::new(path).to_owned())
    });
    program.context("cargo named no test program of the agent")
}
