//! `dispatch-e2e`: measures the cost per dispatch in a real program.
//!
//! `tinyloop` makes 100,000 dispatches of one workgroup per inference, and `local-sync` runs them
//! on one thread. (On `local-task`, a tiny dispatch takes 16 µs, so the cost of recording could not
//! be seen.) `iree-benchmark-module` times its inferences itself, so the result includes neither
//! its start-up nor what `counterpoint run` does before and after the program. The benchmark does
//! not use the difference between two runs of `iree-run-module` (2,000 and 12,000 iterations),
//! because this difference has the noise of two processes.
//!
//! The transformer is a real program: its calls take 1.5 µs on average and fill the processor's
//! caches with their own data.

use std::process::Command;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::fixtures::{self, Kind, TINYLOOP, TRANSFORMER_BLOCK, Variant};
use crate::layout::Layout;
use crate::{dist, fixtures::site_packages};

const ITERATIONS: u32 = 2000;
const INFERENCES: u32 = 8;
/// The number of inferences of the transformer per process. Each inference makes 134 calls. With so
/// many calls, starting the recording is only a hundredth of the cost of recording.
const BLOCKS: u32 = 3000;
/// 50 dispatches per iteration, according to `fixtures/iree/expected.json`.
const DISPATCHES: f64 = 50.0 * ITERATIONS as f64;

/// Makes the command without the profiler.
type Alone = Box<dyn Fn() -> Command>;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    fixtures::compile(layout)?;
    let variant = Variant::best().context("no variant of the fixtures runs on this CPU")?;
    let module = fixtures::module(layout, &TINYLOOP, variant, Kind::Embedded);
    // IREE's Python package also installs a script of this name, but the script would start Python
    // first.
    let tool = site_packages(layout)?.join("iree/_runtime_libs/iree-benchmark-module");
    let profile = layout.target.join("bench/dispatch.cpt");

    let plain = move || {
        let mut command = Command::new(&tool);
        command.arg(format!("--module={}", module.display()));
        command.args(["--device=local-sync", "--function=tinyloop", "--input=16xf32=0"]);
        command.arg(format!("--input={ITERATIONS}"));
        command.arg(format!("--benchmark_min_time={INFERENCES}x"));
        command.arg("--benchmark_format=json");
        command
    };
    let block = {
        let module = fixtures::module(layout, &TRANSFORMER_BLOCK, variant, Kind::Embedded);
        let tool = site_packages(layout)?.join("iree/_runtime_libs/iree-benchmark-module");
        move || {
            let mut command = Command::new(&tool);
            command.arg(format!("--module={}", module.display()));
            command.args(["--device=local-sync", "--benchmark_format=json"]);
            command.arg(format!("--function={}", TRANSFORMER_BLOCK.function));
            command.args(TRANSFORMER_BLOCK.inputs.iter().map(|input| format!("--input={input}")));
            command.arg(format!("--benchmark_min_time={BLOCKS}x"));
            command
        }
    };
    let recorded = |label: &'static str, counters: &'static str, alone: Alone| {
        let (program, profile) = (program.clone(), profile.clone());
        let command = move || {
            let plain = alone();
            let mut command = Command::new(&program);
            command.args(["run", "-e", counters, "-o"]).arg(&profile).arg("--");
            command.arg(plain.get_program()).args(plain.get_args());
            command
        };
        Case::new(label, Observe::GoogleBenchmark, command)
    };
    let under = |label, counters| recorded(label, counters, Box::new(plain.clone()));
    let share = |name: &str, reading, at_most| {
        Figure::ratio(
            name,
            "x",
            Of::new("transformer timing", reading),
            Of::new("transformer", reading),
            at_most,
        )
    };
    let added = |name: &str, case: &'static str, reading: &str, divide: f64, at_most| {
        Figure::mean_difference(
            name,
            "ns",
            Of::new(case, reading),
            Of::new("plain", reading),
            divide,
            at_most,
        )
    };
    // The times of a whole command are in ms, and cover all inferences.
    let whole = DISPATCHES * f64::from(INFERENCES) / 1e6;
    Ok(Plan {
        cases: vec![
            Case::new("plain", Observe::GoogleBenchmark, plain.clone()),
            under("timing", "none"),
            under("counters", "page-faults,task-clock"),
            Case::new("transformer", Observe::GoogleBenchmark, block.clone()),
            recorded("transformer timing", "none", Box::new(block)),
        ],
        figures: vec![
            added("timing only", "timing", "real", DISPATCHES, Some(90.0)),
            added("timing only, cpu", "timing", "cpu", DISPATCHES, Some(45.0)),
            added("two counters", "counters", "real", DISPATCHES, None),
            added("two counters, cpu", "counters", "cpu", DISPATCHES, None),
            added("timing only, whole command's cpu", "timing", "cpu-total", whole, None),
            added("two counters, whole command's cpu", "counters", "cpu-total", whole, None),
            share("transformer, timing only, cpu", "cpu", Some(1.02)),
            share("transformer, timing only, whole command's cpu", "cpu-total", None),
        ],
        // On a virtual machine, single rounds differ by 30 ns. With twenty rounds, the interval of
        // the median is a third of that.
        rounds: 20,
        notes: vec![
            "unit: nanoseconds added per dispatch; real and cpu are timed inside the program, per inference of 100,000 dispatches, as means of 8 inferences".into(),
            "the cpu of a whole command is the user and system time of all its processes, including counterpoint run".into(),
        ],
    })
}
