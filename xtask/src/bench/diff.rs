//! `diff`: measures how often `counterpoint diff` finds a difference between equal programs, and
//! how often it detects that a matrix product has more work. The same is measured with hyperfine.
//! Each round records twelve series of pairs of runs, which takes half a minute.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan};
use super::price::tools;
use crate::layout::Layout;
use crate::process::{exists, quiet};
use crate::setup::packages;

const ROUNDS: usize = 20;
/// The number of columns of the first matrix product in the model `mlp`.
const COLUMNS: u32 = 784;
/// The kinds of series. 824 columns are 5.1 % more multiplications, and 808 columns 3.1 % more.
const SERIES: [Series; 3] = [
    Series { name: "equal", columns: COLUMNS, pairs: 10, count: 10, iterations: 100, peer: true },
    Series { name: "five", columns: 824, pairs: 10, count: 1, iterations: 3_000, peer: true },
    Series { name: "three", columns: 808, pairs: 20, count: 1, iterations: 3_000, peer: false },
];

struct Series {
    name: &'static str,
    /// The columns of the first matrix product in the second program.
    columns: u32,
    pairs: u32,
    /// The number of series in a round.
    count: u32,
    /// Iterations of the model in each run. On a shared host, other virtual machines may disturb
    /// this one for a tenth of a second. Runs must be longer than that to show a small difference.
    iterations: u32,
    /// Whether hyperfine compares the programs, too. This comparison takes as long as the recorded
    /// runs.
    peer: bool,
}
/// The target: the share of series with equal programs for which `diff` finds a difference.
const FALSE_VERDICTS: f64 = 0.06;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    packages::install(&[packages::DIFF]);
    ensure!(exists("hyperfine", &["--version"]), "hyperfine (package hyperfine) is needed");
    let (program, tool, _) = tools(layout)?;
    let folder = layout.bench()?;
    let text = std::fs::read_to_string(layout.root.join("fixtures/iree/mlp.mlir"))
        .context("read fixtures/iree/mlp.mlir")?;
    let compiler = match std::env::var_os("COUNTERPOINT_VENV") {
        Some(venv) => PathBuf::from(venv).join("bin/iree-compile"),
        None => layout.venv().join("bin/iree-compile"),
    };
    let run = |columns: u32, iterations: u32| -> Result<Vec<String>> {
        let source = folder.join(format!("mlp-{columns}.mlir"));
        let module = source.with_extension("vmfb");
        std::fs::write(&source, text.replace(&COLUMNS.to_string(), &columns.to_string()))?;
        let mut compile = Command::new(&compiler);
        compile.arg(&source).arg("-o").arg(&module).args([
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=x86-64-v3",
        ]);
        quiet(&mut compile, "compile the model of the benchmark")?;
        Ok(vec![
            tool.display().to_string(),
            format!("--module={}", module.display()),
            "--device=local-sync".to_owned(),
            "--function=mlp".to_owned(),
            format!("--input=64x{columns}xf32=1"),
            format!("--benchmark_min_time={iterations}x"),
        ])
    };
    let script = layout.root.join("benches/diff.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for Series { name: label, columns, pairs, count, iterations, peer } in SERIES {
        let (script, folder, program) = (script.clone(), folder.clone(), program.clone());
        let (before, after) = (run(COLUMNS, iterations)?, run(columns, iterations)?);
        let command = move || {
            let mut python = Command::new("python3");
            python.arg(&script).args([count, pairs].map(|n| n.to_string()));
            python.arg(if peer { "hyperfine" } else { "alone" });
            python.args([&program, &folder]);
            python.args(&before).arg("--").args(&after);
            python
        };
        cases.push(Case::new(label, Observe::Lines, command));
        let mut figure = |reading: &str, formula: fn(Of) -> Formula, at_most| {
            let formula = formula(Of::new(label, reading));
            let name = format!("{label}: {reading}");
            figures.push(Figure { name, unit: "", formula, at_most });
        };
        let equal = columns == COLUMNS;
        figure("any-difference", Formula::Rate, equal.then_some(FALSE_VERDICTS));
        figure("same", Formula::Rate, None);
        for statistic in ["fastest", "floor", "typical"] {
            for reading in ["change", "spread"] {
                figure(&format!("biggest-{statistic}-{reading}"), Formula::Value, None);
            }
        }
        if !equal {
            for reading in ["biggest-slower", "elsewhere", "whole-slower"] {
                figure(reading, Formula::Rate, None);
            }
        }
        if peer {
            figure("hyperfine-change", Formula::Value, None);
            let found = if equal { "hyperfine-difference" } else { "hyperfine-slower" };
            figure(found, Formula::Rate, None);
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: ROUNDS,
        notes: vec![
            format!("each round records 10 series of 10 pairs of mlp with itself (equal), a series of 10 pairs of it with one whose first matrix product has 824 instead of {COLUMNS} columns (five: 5.1 % more multiplications), and one of 20 pairs with 808 columns (three: 3.1 % more), on local-sync"),
            "equal runs have 100 iterations, which take 0.07 s; the others have 3,000, which take 2 s".into(),
            "any-difference, biggest-slower (the verdict of the op with the longest total) and elsewhere (another row has a verdict) are the part of the series; of 20 with 5 % at least 17 are to be found, of 20 with 3 % at least 19".into(),
            "hyperfine times as many whole processes of both programs (all of A first, without a profiler) after each series of equal and five: hyperfine-difference and hyperfine-slower are the part of the comparisons whose ratio differs from 1 by more than the deviation that hyperfine prints beside it, whole-slower the part of ours in which all ops together are slower".into(),
        ],
    })
}
