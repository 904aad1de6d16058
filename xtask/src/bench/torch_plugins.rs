//! `torch-plugins`: measures how much time idle plugins add to PyTorch's own profiler.
//!
//! `benches/torch/plugins.py` records small ops in four cases, which take turns in one process: no
//! plugin, an empty child profiler, an idle plugin, and one that accepts the ids of ops.

use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use super::torch::Tools;
use crate::layout::Layout;
use crate::process::output;

const CASE: &str = "plugins";

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let tools = Tools::find(layout)?;
    let plugins = layout.target.join("bench/torch-plugins");
    std::fs::create_dir_all(&plugins)?;
    for (name, flags) in [
        ("idle.so", &["-DKIND=KINETO_PLUGIN_PROFILE_EVENT_TYPE_CONCURRENT_KERNEL"][..]),
        ("ids.so", &["-DKIND=KINETO_PLUGIN_PROFILE_EVENT_TYPE_GPU_MEMSET", "-DIDS"][..]),
    ] {
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-O2", "-shared", "-fPIC", "-o"]).arg(plugins.join(name));
        compile.args(flags).arg("-I").arg(layout.root.join("include"));
        output(compile.arg(layout.root.join("benches/torch/idle.c")), "compile idle.c")?;
    }
    let child = layout.target.join("bench/torch-child.so");
    tools.compile(layout, "child.cpp", &child)?;
    let script = layout.root.join("benches/torch/plugins.py");
    let package = layout.root.join("bindings/python/src");
    let command = move || {
        let mut command = Command::new(&tools.python);
        command.arg(&script).args([&package, &child]).env("KINETO_PLUGIN_LIB_DIR_PATH", &plugins);
        command.env("COUNTERPOINT_DIST", &tools.dist.root);
        command
    };
    let ratio = |name: &str, over: &str, under: &str| {
        Figure::ratio(name, "", Of::new(CASE, over), Of::new(CASE, under), None)
    };
    let value = |name: &str, of: &str, unit| Figure::value(name, unit, Of::new(CASE, of), None);
    Ok(Plan {
        cases: vec![Case::new(CASE, Observe::Lines, command)],
        figures: vec![
            ratio("recording an op, idle plugin over an empty child profiler", "idle", "empty"),
            ratio("recording an op, empty child profiler over none", "empty", "bare"),
            ratio("recording an op, idle plugin over none", "idle", "bare"),
            ratio("recording an op, plugin that takes ids over none", "ids", "bare"),
            ratio("stopping, idle plugin over none", "idle-stop", "bare-stop"),
            ratio("stopping, plugin that takes ids over none", "ids-stop", "bare-stop"),
            value("recording an op without a plugin", "bare", "ns"),
            value("stopping, per op, without a plugin", "bare-stop", "ns"),
            value("the entry point, when nothing is asked of it", "entry", "ms"),
        ],
        rounds: USUAL_ROUNDS,
        notes: vec![
            "an effect is distinguishable from noise if 1 is outside of the interval".into(),
            "PyTorch makes two calls for each op to every child profiler that takes part, and a plugin can take part only as one: an empty child profiler is the least that a plugin can cost".into(),
            "wall time per op (aten::add_ on one number, called from Python); medians of 20 turns with 25,000 ops each in every process".into(),
        ],
    })
}
