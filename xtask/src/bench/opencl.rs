//! `opencl`: measures how much time the plugin for OpenCL adds to calls, with PoCL as the device.
//! The plugin is an OpenCL layer. `tests/programs/opencl/bench.c` measures the calls without it,
//! with the idle layer, and while it records.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::layout::Layout;
use crate::process::{cargo, output};
use crate::setup::packages;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    packages::install(&[packages::OPENCL]);
    let mut build = cargo();
    output(build.args(["build", "--release", "-p", "counterpoint-opencl"]), "build the plugin")?;
    let plugin = layout.target.join("release/libcounterpoint_opencl.so");
    let scratch = layout.bench()?;
    let program = scratch.join("opencl_bench");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-std=gnu11", "-I"]).arg(layout.root.join("include"));
    cc.arg("-o").arg(&program).arg(layout.root.join("tests/programs/opencl/bench.c"));
    output(cc.arg("-lOpenCL"), "compile bench.c (packages ocl-icd-opencl-dev, pocl-opencl-icd)")?;

    let case = |label: &'static str, layer: Option<PathBuf>, argument: Option<PathBuf>| {
        let program = program.clone();
        let command = move || {
            let mut command = Command::new(&program);
            command.env_remove("OPENCL_LAYERS");
            command.envs(layer.iter().map(|layer| ("OPENCL_LAYERS", layer))).args(&argument);
            command
        };
        Case::new(label, Observe::Lines, command)
    };
    let mut figures = Vec::new();
    for (label, what) in [("idle", "idle layer"), ("recording", "recording")] {
        for reading in ["enqueue", "through", "flush"] {
            figures.push(Figure::difference(
                format!("{what}, added to {reading}"),
                "ns",
                Of::new(label, reading),
                Of::new("without", reading),
                None,
            ));
        }
    }
    Ok(Plan {
        cases: vec![
            case("without", None, None),
            case("idle", Some(plugin.clone()), None),
            case("recording", Some(plugin.clone()), Some(plugin)),
        ],
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "enqueue: the call alone, while nothing runs; through: until the kernel of one work item has ended, with the look at its times; flush: a call that does nothing".into(),
            "idle and recording include the implementation's own cost of keeping the times of commands".into(),
        ],
    })
}
