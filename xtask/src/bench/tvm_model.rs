//! `tvm-model`: measures how long a run of a whole model on TVM takes, alone and under
//! `counterpoint run`. `tvm-op` measures the cost of single ops.

use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let python = super::tvm_op::python(layout)?;
    let program = dist::release(layout)?.program();
    let scratch = layout.bench()?;
    let script = [layout.root.join("benches/tvm/model.py"), layout.root.join("tests/python/tvm")];
    let bare = move || {
        let mut command = Command::new(&python);
        command.args(&script);
        command
    };
    let under = |label: &'static str, list: &'static str| {
        let (bare, program) = (bare.clone(), program.clone());
        let profile = scratch.join(format!("tvm-model-{label}.cpt"));
        let command = move || {
            let bare = bare();
            let mut command = Command::new(&program);
            command.args(["run", "-e", list, "-o"]).arg(&profile).arg("--");
            command.arg(bare.get_program()).args(bare.get_args());
            command
        };
        Case::new(label, Observe::Lines, command)
    };
    let slowdown = |name: &str, case: &'static str| {
        Figure::ratio(name, "", Of::new(case, "run"), Of::new("bare", "run"), None)
    };
    Ok(Plan {
        figures: vec![
            slowdown("timing only over bare", "timing"),
            slowdown("two counters over bare", "counters"),
        ],
        cases: vec![
            Case::new("bare", Observe::Lines, bare.clone()),
            under("timing", "none"),
            under("counters", "page-faults,task-clock"),
        ],
        rounds: 12,
        notes: vec![
            "each process measures the wall time of 80 runs of the model; its median is the reading".into(),
            "a slowdown differs from noise only if 1 lies outside of its interval".into(),
        ],
    })
}
