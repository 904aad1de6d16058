//! `price`: compares the real cost of recording with the cost that the report states.
//!
//! Each workload runs alone, with timing only, and with one and three software counters, in turn.
//! The reference is the ratio of the processor time per inference with and without the recorder, in
//! the same round. Wall time on a shared machine depends mostly on its other users.
//! `benches/price.py` makes one run and reads its report.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::fixtures::{
    self, Fixture, MLP, TINYLOOP, TRANSFORMER_BLOCK, Variant, packages_of as site_packages,
};
use crate::layout::Layout;

/// Fixtures with inputs and numbers of inferences. Each takes a good part of a second.
const MODELS: [(&Fixture, &[&str], u32); 3] = [
    (&TINYLOOP, &["16xf32=0"], 4),
    (&MLP, MLP.inputs, 1_000),
    (&TRANSFORMER_BLOCK, TRANSFORMER_BLOCK.inputs, 600),
];
const DEVICES: [&str; 2] = ["local-sync", "local-task"];
/// The names of the cases, and the value of `run -e` for each.
const COUNTERS: [(&str, &str); 3] =
    [("timing", "none"), ("one", "page-faults"), ("three", "page-faults,task-clock,major-faults")];

/// The program, IREE's benchmark tool and the modules. If the variables that tests use are set,
/// nothing is built or downloaded.
pub(super) fn tools(layout: &Layout) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let program = match given("COUNTERPOINT_DIST") {
        Some(dist) => dist.join("bin/counterpoint"),
        None => dist::release(layout)?.program(),
    };
    let (venv, modules) = match (given("COUNTERPOINT_VENV"), given("COUNTERPOINT_FIXTURES")) {
        (Some(venv), Some(modules)) => (venv, modules),
        _ => {
            fixtures::compile(layout)?;
            (layout.venv(), layout.fixtures())
        }
    };
    // The program itself. The wheel's script of the same name first starts a Python.
    let tool = site_packages(&venv)?.join("iree/_runtime_libs/iree-benchmark-module");
    Ok((program, tool, modules))
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let (program, tool, modules) = tools(layout)?;
    let variant = Variant::best().context("no variant of the fixtures runs on this CPU")?;
    let script = layout.root.join("benches/price.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for (fixture, inputs, inferences) in MODELS {
        let name = fixture.name;
        let module = modules.join(format!("{name}.{}.vmfb", variant.name));
        for device in DEVICES {
            // On local-task, a dispatch of tinyloop takes 16 µs instead of 0.1.
            let slow = (name, device) == ("tinyloop", "local-task");
            let mut arguments = vec![
                format!("--module={}", module.display()),
                format!("--device={device}"),
                format!("--function={}", fixture.function),
                "--benchmark_format=json".to_owned(),
                format!("--benchmark_min_time={inferences}x"),
            ];
            arguments.extend(inputs.iter().map(|input| format!("--input={input}")));
            if fixture.name == TINYLOOP.name {
                let iterations = if slow { 150 } else { 4_000 };
                arguments.push(format!("--input={iterations}"));
            }
            let case = |mode: &str, before: Vec<String>| {
                let label: &'static str = format!("{name}.{device}.{mode}").leak();
                let (tool, arguments, script) = (tool.clone(), arguments.clone(), script.clone());
                let command = move || {
                    let mut command = Command::new("python3");
                    command.arg(&script).args(&before).arg(&tool).args(&arguments);
                    command
                };
                Case { label, command: Box::new(command), observe: Observe::Lines }
            };
            let alone = case("alone", vec!["alone".to_owned()]);
            let under = Of::new(alone.label, "cpu");
            cases.push(alone);
            for (mode, events) in COUNTERS {
                let profile = layout.target.join("bench/price.cpt");
                let paths = [&program, &profile].map(|path| path.display().to_string());
                let before = [events.to_owned()].into_iter().chain(paths).collect();
                let case = case(mode, before);
                let truth =
                    Formula::Ratio { over: Of::new(case.label, "cpu"), under: under.clone() };
                let stated = Formula::Value(Of::new(case.label, "stated"));
                for (what, formula) in [("truth", truth), ("stated", stated)] {
                    let name = format!("{name}, {device}, {mode}: {what}");
                    figures.push(Figure { name, unit: "×", formula, at_most: None });
                }
                cases.push(case);
            }
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "truth: processor time per inference with the recorder, divided by that without it in the same round".into(),
            "stated: the factor that the report states, without the cost of starting threads; 1.2 means 20 % more".into(),
        ],
    })
}
