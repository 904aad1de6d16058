//! `torch-ops`: measures how much time an observer (a callback for each op) adds to an op of
//! PyTorch. `benches/torch/ops.py` calls a small op in stock PyTorch, without an observer and with
//! up to five different ones in turn, in one process. Most of the cost of an observer is the time
//! that PyTorch takes to call it.

use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use super::torch::Tools;
use crate::layout::Layout;

/// The label of the case, the value of the option `-e` of `counterpoint run`, and the number of
/// counters.
const GROUPS: [(&str, &str, &str); 3] = [
    ("none", "none", "0"),
    ("one", "page-faults:u", "1"),
    ("three", "{page-faults:u,task-clock:u,minor-faults:u}", "3"),
];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let tools = Tools::find(layout)?;
    let scratch = layout.bench()?;
    let noop = scratch.join("torch-noop.so");
    tools.compile(layout, "noop.cpp", &noop)?;

    let mut cases = Vec::new();
    let mut figures = Vec::new();
    for (label, list, counters) in GROUPS {
        let (program, root) = (tools.dist.program(), tools.dist.root.clone());
        let package = layout.root.join("bindings/python/src");
        let profile = scratch.join(format!("torch-ops-{label}.cpt"));
        let script = layout.root.join("benches/torch/ops.py");
        let (python, noop) = (tools.python.clone(), noop.clone());
        cases.push(Case::new(label, Observe::Lines, move || {
            // `run` would keep an earlier profile next to the new one.
            if profile.is_dir() {
                let _ = std::fs::remove_dir_all(&profile);
            }
            let mut command = Command::new(&program);
            // The Python package of the checkout finds `libcounterpoint.so` by this variable.
            command.env("COUNTERPOINT_DIST", &root);
            command.args(["run", "-e", list, "-o"]).arg(&profile).arg("--");
            // With -E, Python does not load the hook of `counterpoint run`, which would record all
            // cases, also those without an observer.
            command.arg(&python).arg("-E").arg(&script).args([&package, &noop]).arg(counters);
            command
        }));
        let added = |name: String, of: &str, minus: &str, at_most| {
            Figure::difference(name, "ns", Of::new(label, of), Of::new(label, minus), at_most)
        };
        if list == "none" {
            figures.push(added("an observer that does nothing".into(), "noop", "bare", None));
            figures.push(added("ours over it, timing only".into(), "ours", "noop", Some(100.0)));
            figures.push(added("shapes over none, timing only".into(), "shapes", "ours", None));
            figures.push(added(
                "an observer that does nothing and gets the arguments, over one that does not"
                    .into(),
                "inputs",
                "noop",
                None,
            ));
            let name = "ours with shapes, over an observer that gets the arguments, timing only";
            figures.push(added(name.into(), "shapes", "inputs", None));
        } else {
            let name = format!("shapes over none, {label} counter(s)");
            figures.push(added(name, "shapes", "ours", None));
            figures.push(added(
                format!("ours, {label} counter(s), over none"),
                "ours",
                "noop",
                None,
            ));
            let name = format!("ours over an observer that only reads them, {label} counter(s)");
            figures.push(added(name, "ours", "reads", Some(100.0)));
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "unit: nanoseconds of CPU time per op (aten::neg_ on one number, called from Python); medians over 400 turns in each process".into(),
        ],
    })
}
