//! `budget`: measures the cost of a run with a budget, compared with the program alone.
//!
//! Each workload runs in turn without the recorder and with budgets from 0 to 10 %, with and
//! without a software counter. The cost is the processor time per inference with a budget, divided
//! by that without the recorder in the same round. `benches/budget.py` makes one run.

use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan, USUAL_ROUNDS};
use super::price::{Workload, tools, tvm};
use crate::fixtures::{Fixture, MLP, TINYLOOP, TRANSFORMER_BLOCK, Variant};
use crate::layout::Layout;

/// Fixture, inputs, device and number of inferences. With these numbers, each run of a workload
/// takes a large part of a second.
const WORKLOADS: [(&Fixture, &[&str], &str, u32); 5] = [
    (&TINYLOOP, &["16xf32=0", "4000"], "local-sync", 4),
    (&MLP, MLP.inputs, "local-sync", 2_000),
    (&MLP, MLP.inputs, "local-task", 1_000),
    (&TRANSFORMER_BLOCK, TRANSFORMER_BLOCK.inputs, "local-sync", 1_000),
    (&TRANSFORMER_BLOCK, TRANSFORMER_BLOCK.inputs, "local-task", 600),
];
const TVM_RUNS: u32 = 30_000;
const BUDGETS: [(&str, f64); 5] =
    [("0", 0.0), ("1%", 0.01), ("2%", 0.02), ("5%", 0.05), ("10%", 0.10)];
const COUNTERS: [(&str, &str); 2] = [("timing", "none"), ("one counter", "page-faults:u")];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let (program, tool, modules) = tools(layout)?;
    let variant = Variant::best().context("no variant of the fixtures runs on this CPU")?;
    let script = layout.root.join("benches/budget.py");
    let profile = layout.target.join("bench/budget.cpt");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    let mut workloads = Vec::new();
    for (fixture, inputs, device, inferences) in WORKLOADS {
        let module = modules.join(format!("{}.{}.vmfb", fixture.name, variant.name));
        let mut command = vec![
            tool.display().to_string(),
            format!("--module={}", module.display()),
            format!("--device={device}"),
            format!("--function={}", fixture.function),
            "--benchmark_format=json".to_owned(),
            format!("--benchmark_min_time={inferences}x"),
        ];
        command.extend(inputs.iter().map(|input| format!("--input={input}")));
        workloads.push(Workload { name: format!("{}.{device}", fixture.name), command });
    }
    workloads.push(tvm(layout, TVM_RUNS)?);
    for Workload { name, command } in workloads {
        let case = |mode: &str, before: Vec<String>| {
            let label: &'static str = format!("{name}.{mode}").leak();
            let (program, script) = (command.clone(), script.clone());
            let command = move || {
                let mut command = Command::new("python3");
                command.arg(&script).args(&before).args(&program);
                command
            };
            Case::new(label, Observe::Lines, command)
        };
        let alone = case("alone", vec!["alone".to_owned()]);
        let under = Of::new(alone.label, "cpu");
        cases.push(alone);
        for (what, events) in COUNTERS {
            for (budget, part) in BUDGETS {
                let paths = [&program, &profile].map(|path| path.display().to_string());
                let words = [budget.to_owned(), events.to_owned()];
                let before = words.into_iter().chain(paths).collect();
                let case = case(&format!("{budget}.{events}"), before);
                let name = format!("{name}, {what}, budget {budget}");
                // With a budget of 0, calls are only counted, and the cost has no target.
                let at_most = Some(1.0 + part).filter(|_| part > 0.0);
                let truth =
                    Formula::Ratio { over: Of::new(case.label, "cpu"), under: under.clone() };
                figures.push(Figure {
                    name: format!("{name}: truth"),
                    unit: "×",
                    formula: truth,
                    at_most,
                });
                for (reading, unit) in [("reached", "of the time"), ("timed-share", "of the calls")]
                {
                    figures.push(Figure::value(
                        format!("{name}: {reading}"),
                        unit,
                        Of::new(case.label, reading),
                        None,
                    ));
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
            "reached: the part of the threads' processor time that recording took by the recorder's own account, with the start of the threads".into(),
            "budget 0 counts calls and does nothing else; where its truth differs from 1, so far does the machine's noise reach, or the change of addresses by a preloaded library".into(),
        ],
    })
}
