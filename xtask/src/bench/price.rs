//! `price`: compares the real cost of recording with the cost that the report states.
//!
//! Each workload runs in turn without the recorder, with timing only, and with one and three
//! software counters. The true cost is the difference of the processor times of two processes of
//! the same round, with and without the recorder. (Wall time on a shared machine depends mostly on
//! its other users.) `benches/price.py` makes each run and reads its report.
//!
//! `price-torch` does the same with a training loop of PyTorch, which also runs with a budget (`run
//! --budget`). It is a separate benchmark, because each of its rounds takes two minutes. In a round
//! of `price-torch`, the training processes take turns: each does one step, and then waits for the
//! others (`benches/price_in_turns.py` says why). One of them has an observer that does nothing.
//! What it costs to be called for each op is the least that an observer can cost.
//!
//! The figures `true / stated` are the true cost divided by the stated cost. The true cost is noisy
//! and may even be negative, so it must not be the divisor.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Formula, Observe, Of, Plan, USUAL_ROUNDS};
use super::torch::Tools;
use super::tvm_op;
use crate::dist;
use crate::fixtures::{
    self, Fixture, MLP, TINYLOOP, TRANSFORMER_BLOCK, Variant, packages_of as site_packages,
};
use crate::layout::Layout;
use crate::process::output;

/// A fixture, its inputs, and two values for each of [`DEVICES`]: the number of inferences, and a
/// last input for a fixture that takes a number of iterations. With these numbers, a process runs
/// for a large part of a second.
type Model = (&'static Fixture, &'static [&'static str], [u32; 2], [Option<u32>; 2]);
const MODELS: [Model; 3] = [
    // A dispatch of tinyloop takes 0.1 µs on local-sync and 16 µs on local-task, so the number of
    // iterations is smaller on local-task.
    (&TINYLOOP, &["16xf32=0"], [4, 4], [Some(2_000), Some(150)]),
    (&MLP, MLP.inputs, [3_000, 1_500], [None; 2]),
    (&TRANSFORMER_BLOCK, TRANSFORMER_BLOCK.inputs, [2_000, 1_000], [None; 2]),
];
const DEVICES: [&str; 2] = ["local-sync", "local-task"];
const TVM_RUNS: u32 = 3_000;
/// The number of steps of a training loop. In a run with a budget, the first 8 steps are always
/// recorded.
const TRAINING_STEPS: u32 = 32;
/// The number of rounds of `price-torch`: the smallest number that a benchmark may have.
const TRAINING_ROUNDS: usize = 10;
const TRAINING_THREADS: [u32; 2] = [1, 2];
/// The name of a mode, its arguments of `counterpoint run`, and the target for the program's time
/// as a multiple of its time without the recorder.
type Mode = (&'static str, &'static str, Option<f64>);
const COUNTERS: [Mode; 3] = [
    ("timing", "-e none", None),
    ("one", "-e page-faults", None),
    ("three", "-e page-faults,task-clock,context-switches", None),
];
const TRAINING: [Mode; 4] = [
    ("timing", "-e none", Some(1.03)),
    ("budget-2", "-e none --budget 2%", Some(1.02)),
    ("budget-2-exact", "-e none --budget 2% --exact-counts", None),
    ("one", "-e page-faults", Some(1.06)),
];
/// The target for the true cost divided by the stated cost: the stated cost may be up to a fifth
/// less than the true cost (1 / 0.8 = 1.25). It may also be up to a fifth more (1 / 1.2 = 0.83),
/// but a target is only an upper bound: check that the interval is above 0.83.
const AT_MOST: f64 = 1.25;

/// Returns the paths of `counterpoint`, of IREE's benchmark tool and of the compiled models. If
/// environment variables name them, nothing is built or downloaded.
pub(super) fn tools(layout: &Layout) -> Result<(PathBuf, PathBuf, PathBuf)> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let program = dist::given(layout)?.program();
    let (venv, modules) = match (given("COUNTERPOINT_VENV"), given("COUNTERPOINT_FIXTURES")) {
        (Some(venv), Some(modules)) => (venv, modules),
        _ => {
            fixtures::compile(layout)?;
            (layout.venv(), layout.fixtures())
        }
    };
    // IREE's Python package also installs a script of this name, but the script would start Python
    // first.
    let tool = site_packages(&venv)?.join("iree/_runtime_libs/iree-benchmark-module");
    Ok((program, tool, modules))
}

/// A program with its arguments, and the name with which its figures begin.
pub(super) struct Workload {
    pub name: String,
    pub command: Vec<String>,
}

pub(super) fn workloads(layout: &Layout, tool: &Path, modules: &Path) -> Result<Vec<Workload>> {
    let mut all = iree(tool, modules)?;
    all.push(tvm(layout, TVM_RUNS)?);
    Ok(all)
}

fn iree(tool: &Path, modules: &Path) -> Result<Vec<Workload>> {
    let variant = Variant::best().context("no variant of the fixtures runs on this CPU")?;
    let mut all = Vec::new();
    for (fixture, inputs, inferences, iterations) in MODELS {
        let module = modules.join(format!("{}.{}.vmfb", fixture.name, variant.name));
        for ((device, inferences), last) in DEVICES.iter().zip(inferences).zip(iterations) {
            let mut command = vec![
                tool.display().to_string(),
                format!("--module={}", module.display()),
                format!("--device={device}"),
                format!("--function={}", fixture.function),
                "--benchmark_format=json".to_owned(),
                format!("--benchmark_min_time={inferences}x"),
            ];
            command.extend(inputs.iter().map(|input| format!("--input={input}")));
            command.extend(last.map(|last| format!("--input={last}")));
            all.push(Workload { name: format!("{}.{device}", fixture.name), command });
        }
    }
    Ok(all)
}

/// Returns a workload that runs a model of a hundred tiny ops on TVM.
pub(super) fn tvm(layout: &Layout, runs: u32) -> Result<Workload> {
    let python = tvm_op::python(layout)?;
    let scratch = layout.bench()?;
    let script = layout.root.join("benches/tvm/small.py");
    let command = |runs: u32| {
        let paths = [&python, &script, &scratch].map(|path| path.display().to_string());
        paths.into_iter().chain([runs.to_string()]).collect::<Vec<_>>()
    };
    // This first run compiles the model, so that the measured runs need not compile it.
    let first = command(1);
    output(Command::new(&first[0]).args(&first[1..]), "compile TVM's model")?;
    Ok(Workload { name: "small-ops.tvm".to_owned(), command: command(runs) })
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let (program, tool, modules) = tools(layout)?;
    Ok(compare(layout, &program, workloads(layout, &tool, &modules)?, &COUNTERS))
}

/// Each case is for one number of threads. It runs the training loop without the recorder and in
/// each mode of [`TRAINING`].
pub fn prepare_torch(layout: &Layout) -> Result<Plan> {
    let tools = Tools::find(layout)?;
    let (program, python) = (tools.dist.program(), &tools.python);
    let noop = layout.bench()?.join("torch-noop.so");
    tools.compile(layout, "noop.cpp", &noop)?;
    let script = layout.root.join("benches/price_in_turns.py");
    let profiles = layout.target.join("bench/price");
    let training = layout.root.join("benches/torch/training.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for threads in TRAINING_THREADS {
        let label: &'static str = format!("training.torch-{threads}").leak();
        let paths = [&program, &profiles].map(|path| path.display().to_string());
        let ways = TRAINING.iter().map(|(mode, arguments, _)| format!("{mode}={arguments}"));
        let mut arguments: Vec<String> = paths.into_iter().chain(ways).collect();
        arguments.extend(["alone=".to_owned(), format!("noop=+{}", noop.display())]);
        arguments.push("--".to_owned());
        arguments.extend([python, &training].map(|path| path.display().to_string()));
        arguments.extend([TRAINING_STEPS.to_string(), threads.to_string(), "turns".to_owned()]);
        let script = script.clone();
        let command = move || {
            let mut python = Command::new("python3");
            python.arg(&script).args(&arguments);
            python
        };
        cases.push(Case::new(label, Observe::Lines, command));
        let alone = |reading: &str| Of::new(label, format!("alone-{reading}"));
        let noop = |reading: &str| Of::new(label, format!("noop-{reading}"));
        let floors = [
            ("processor time of the steps", "calls-cpu"),
            ("wall time of the steps", "inference-wall"),
            ("processor time of typical steps", "typical-cpu"),
            ("wall time of typical steps", "typical-wall"),
        ];
        figures.extend(floors.map(|(what, reading)| {
            let name = format!("{label}, an observer that does nothing: {what}");
            Figure::ratio(name, "×", noop(reading), alone(reading), None)
        }));
        for (mode, _, at_most) in TRAINING {
            let with = |reading: &str| Of::new(label, format!("{mode}-{reading}"));
            let slowdown = |what: &str, reading: &str, at_most| {
                let name = format!("{label}, {mode}: {what}");
                Figure::ratio(name, "×", with(reading), alone(reading), at_most)
            };
            let over_noop = |what: &str, reading: &str| {
                let name = format!("{label}, {mode} over the observer that does nothing: {what}");
                Figure::ratio(name, "×", with(reading), noop(reading), None)
            };
            let part = |what: &str, reading: &str, stated: &str, at_most| Figure {
                name: format!("{label}, {mode}: {what}"),
                unit: "×",
                formula: Formula::Share {
                    of: with(reading),
                    minus: alone(reading),
                    under: with(stated),
                },
                at_most,
            };
            figures.extend([
                slowdown("processor time of the steps", "calls-cpu", at_most),
                slowdown("wall time of the steps", "inference-wall", at_most),
                slowdown("processor time of the process", "cpu", None),
                part("true / stated, steps", "calls-cpu", "stated-calls", Some(AT_MOST)),
                part("true / stated, process", "cpu", "stated", None),
            ]);
            // With a budget, some steps are recorded and others are not, so none is typical.
            if !mode.starts_with("budget") {
                figures.extend([
                    slowdown("processor time of typical steps", "typical-cpu", at_most),
                    slowdown("wall time of typical steps", "typical-wall", at_most),
                    over_noop("processor time of typical steps", "typical-cpu"),
                    over_noop("wall time of typical steps", "typical-wall"),
                    slowdown("processor time of quiet steps", "quiet-cpu", at_most),
                    slowdown("wall time of quiet steps", "quiet-wall", at_most),
                    part(
                        "true / stated, typical steps",
                        "typical-cpu",
                        "stated-calls",
                        Some(AT_MOST),
                    ),
                ]);
            }
        }
    }
    Ok(Plan {
        cases,
        figures,
        rounds: TRAINING_ROUNDS,
        notes: vec![
            "the processes of a round take turns with their steps, and no two run at the same time".into(),
            "processor time of the steps: of all threads, without the start and the end of the process, divided by that of the process without the recorder".into(),
            "typical steps: the mean of the middle half of the differences between a step and the step of the same number without the recorder, which ran within seconds of it".into(),
            "all processes keep the memory that they free, because returning it to the kernel costs a random part of a step".into(),
            "quiet steps: as if all steps were like the shortest eighth of them".into(),
            "true / stated: the difference of these two, divided by the cost that the report states for the calls; 0.8 to 1.25 is within 25 %".into(),
        ],
    })
}

fn compare(layout: &Layout, program: &Path, workloads: Vec<Workload>, modes: &[Mode]) -> Plan {
    let script = layout.root.join("benches/price.py");
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for Workload { name, command } in workloads {
        let case = |mode: &str, before: Vec<String>| {
            let label: &'static str = format!("{name}.{mode}").leak();
            let (command, script) = (command.clone(), script.clone());
            let command = move || {
                let mut python = Command::new("python3");
                python.arg(&script).args(&before).args(&command);
                python
            };
            Case::new(label, Observe::Lines, command)
        };
        let alone = case("alone", vec!["alone".to_owned()]);
        let without = |reading: &str| Of::new(alone.label, reading);
        for &(mode, arguments, at_most) in modes {
            let profile = layout.target.join("bench/price.cpt");
            let paths = [program, &profile].map(|path| path.display().to_string());
            let before = [arguments.to_owned()].into_iter().chain(paths).collect();
            let case = case(mode, before);
            let with = |reading: &str| Of::new(case.label, reading);
            let slowdown =
                |reading: &str| Formula::Ratio { over: with(reading), under: without(reading) };
            let part = |reading: &str, stated: &str| Formula::Share {
                of: with(reading),
                minus: without(reading),
                under: with(stated),
            };
            let figure = |what: &str, formula, at_most| Figure {
                name: format!("{name}, {mode}: {what}"),
                unit: "×",
                formula,
                at_most,
            };
            figures.push(figure("processor time", slowdown("cpu"), at_most));
            figures.push(figure("wall time of an inference", slowdown("inference-wall"), at_most));
            figures.push(figure("true / stated", part("cpu", "stated"), Some(AT_MOST)));
            figures.push(figure("true / stated, calls", part("calls-cpu", "stated-calls"), None));
            cases.push(case);
        }
        cases.push(alone);
    }
    Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "processor time: of the whole process, divided by that without the recorder in the same round".into(),
            "true / stated: the difference of these two, divided by the cost that the report states; 0.83 to 1.25 is within 20 %".into(),
            "true / stated, calls: the same of the inferences alone, without the start and the end of the process".into(),
            "an interval that is wider than the target says that the cost is lost in the noise between processes".into(),
        ],
    }
}
