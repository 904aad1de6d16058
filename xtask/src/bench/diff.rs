//! `diff`: how often `counterpoint diff` calls equal programs different, and how often it finds a matrix
//! product that has more to do. Each round is two whole series, recorded as a user would, so a round
//! takes some seconds; 200 rounds give rates.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan};
use super::price::tools;
use crate::layout::Layout;
use crate::process::quiet;

/// Pairs of a series of equal programs, and of one with a slowdown.
const PAIRS: u32 = 10;
const ROUNDS: usize = 20;
/// The inner size of the first matrix product of the model, and of the slowed one: 8.2 % more work.
const SIZES: [u32; 2] = [784, 848];
const ITERATIONS: u32 = 100;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let (program, tool, _) = tools(layout)?;
    let folder = layout.bench()?;
    let text = std::fs::read_to_string(layout.root.join("fixtures/iree/mlp.mlir"))
        .context("read fixtures/iree/mlp.mlir")?;
    let compiler = match std::env::var_os("COUNTERPOINT_VENV") {
        Some(venv) => PathBuf::from(venv).join("bin/iree-compile"),
        None => layout.venv().join("bin/iree-compile"),
    };
    let mut commands = Vec::new();
    for size in SIZES {
        let [before, after] = [SIZES[0], size].map(|n| n.to_string());
        let source = folder.join(format!("mlp-{size}.mlir"));
        let module = source.with_extension("vmfb");
        std::fs::write(&source, text.replace(&before, &after))?;
        let mut compile = Command::new(&compiler);
        compile.arg(&source).arg("-o").arg(&module).args([
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=x86-64-v3",
        ]);
        quiet(&mut compile, "compile the model of the benchmark")?;
        commands.push(vec![
            tool.display().to_string(),
            format!("--module={}", module.display()),
            "--device=local-sync".to_owned(),
            "--function=mlp".to_owned(),
            format!("--input=64x{size}xf32=1"),
            format!("--benchmark_min_time={ITERATIONS}x"),
        ]);
    }
    let script = layout.root.join("benches/diff.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for (label, b) in [("equal", 0), ("slower", 1)] {
        let (script, folder, program) = (script.clone(), folder.clone(), program.clone());
        let (of_a, of_b) = (commands[0].clone(), commands[b].clone());
        let command = move || {
            let mut python = Command::new("python3");
            python.arg(&script).arg(PAIRS.to_string()).args([&program, &folder]);
            python.args(&of_a).arg("--").args(&of_b);
            python
        };
        cases.push(Case::new(label, Observe::Lines, command));
        let mut figure = |reading: &str| {
            let formula = Formula::Value(Of::new(label, reading));
            let name = format!("{label}: {reading}");
            figures.push(Figure { name, unit: "", formula, at_most: None });
        };
        figure("any-difference");
        figure("same");
        figure("biggest-floor-change");
        figure("biggest-floor-spread");
        figure("biggest-typical-change");
        figure("biggest-typical-spread");
        if b > 0 {
            figure("biggest-slower");
            figure("elsewhere");
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: ROUNDS,
        notes: vec![
            format!("each round records {PAIRS} pairs of mlp with itself (equal), and of mlp with one whose first matrix product has {} instead of {} columns (slower), {ITERATIONS} iterations each on local-sync", SIZES[1], SIZES[0]),
            "any-difference and the others of one series are 0 or 1: their mean over the rounds counts, which the rounds of the file give; at most 0.06 of 200 equal ones is the goal".into(),
        ],
    })
}
