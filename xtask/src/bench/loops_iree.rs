//! `loops-iree`: measures how much instrumented loops slow down a matrix product of IREE
//! (`fixtures/iree/mmst.mlir`, 256×512 by 512×256, 16 workgroups of 64×64), with and without the
//! recorder. `local-sync` runs the product on one thread.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::fixtures::site_packages;
use crate::layout::Layout;
use crate::process::output;

/// Products in one process.
const TIMES: u32 = 1000;
/// The name of each case, and the depth of the innermost loop that is instrumented in it. The
/// kernel has one loop of each depth. For each entry of the loop of depth 1, the loop of depth 2 is
/// entered four times. At each entry, the loop of depth 2 runs over all 512 terms.
const DEPTHS: [(&str, &str); 3] = [("depth0", "0"), ("depth1", "1"), ("depth2", "2")];
/// A Python program that prints what it costs to enter an instrumented loop, without the work of
/// the loop.
const COST: &str = "\
import json, sys
module = json.load(sys.stdin)['modules'][0]
cost, rate = module['registrations'][0]['cost'], module['ticks_per_second']
for name in ['timed', 'counted']:
    print(name, cost[name + '_ticks'] * 1e9 / rate, 'ns')
";

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::given(layout)?.program();
    let packages = site_packages(layout)?;
    let compiler = packages.join("iree/compiler/_mlir_libs/iree-compile");
    let tool = packages.join("iree/_runtime_libs/iree-benchmark-module");
    let scratch = layout.bench()?;
    let model = layout.root.join("fixtures/iree/mmst.mlir");
    let cpu = "--iree-llvmcpu-target-cpu=host";
    let plain = scratch.join("mmst-plain.vmfb");
    let mut compile = Command::new(&compiler);
    compile.arg(&model).args(["--iree-hal-target-device=local", cpu]);
    compile.arg("--iree-hal-local-target-device-backends=llvm-cpu").arg("-o").arg(&plain);
    output(&mut compile, "compile mmst.mlir")?;
    for (name, depth) in DEPTHS {
        let mut compile = Command::new(&program);
        compile.args(["loops", "compile-iree", "--min-height", "0", "--max-depth", depth]);
        compile.arg(&model).arg("-o").arg(scratch.join(format!("mmst-{name}.vmfb")));
        compile.args(["--", cpu]).env("IREE_COMPILE", &compiler);
        output(&mut compile, "compile mmst.mlir with instrumented loops")?;
    }
    let alone = move |module: &Path| {
        let mut command = Command::new(&tool);
        command.arg(format!("--module={}", module.display()));
        command.args(["--device=local-sync", "--function=mm"]);
        command.args(["--input=256x512xf32=1", "--input=512x256xf32=2"]);
        command.arg(format!("--benchmark_min_time={TIMES}x")).arg("--benchmark_format=json");
        command
    };
    let benchmark = |label: &'static str, command: Box<dyn Fn() -> Command>| Case {
        label,
        command,
        observe: Observe::GoogleBenchmark,
    };
    let recorded = |name: &str| -> Box<dyn Fn() -> Command> {
        let (alone, program) = (alone.clone(), program.clone());
        let module = scratch.join(format!("mmst-{name}.vmfb"));
        let profile = scratch.join(format!("mmst-{name}.cpt"));
        Box::new(move || {
            let alone = alone(&module);
            let mut command = Command::new(&program);
            command.args(["run", "--loops", "-e", "none", "-o"]).arg(&profile).arg("--");
            command.arg(alone.get_program()).args(alone.get_args());
            command
        })
    };
    let unrecorded = |name: &str| -> Box<dyn Fn() -> Command> {
        let (alone, module) = (alone.clone(), scratch.join(format!("mmst-{name}.vmfb")));
        Box::new(move || alone(&module))
    };
    let (reporter, profile) = (program.clone(), scratch.join("mmst-depth2.cpt"));
    let mut cases = vec![
        benchmark("plain", unrecorded("plain")),
        benchmark("unfilled", unrecorded("depth2")),
        benchmark("recorded", recorded("plain")),
    ];
    cases.extend(DEPTHS.map(|(name, _)| benchmark(name, recorded(name))));
    // This case reads the profile of the case `depth2`, so it comes after that case.
    cases.push(Case::new("cost", Observe::Lines, move || {
        let mut command = Command::new("sh");
        let script = "\"$1\" loops report \"$2\" --format json | python3 -c \"$3\"";
        command.args(["-c", script, "sh"]).arg(&reporter).arg(&profile).arg(COST);
        command
    }));
    let ratio = |name: &str, case: &'static str, under: &'static str, at_most: f64| {
        Figure::ratio(name, "x", Of::new(case, "cpu"), Of::new(under, "cpu"), Some(at_most))
    };
    let value = |name: &str, reading: &str, at_most| {
        Figure::value(name, "ns", Of::new("cost", reading), at_most)
    };
    Ok(Plan {
        cases,
        figures: vec![
            ratio("without a recorder, depth 0 to 2", "unfilled", "plain", 1.02),
            ratio("depth 0, sampled", "depth0", "recorded", 1.02),
            ratio("depth 0 and 1, sampled", "depth1", "recorded", 1.02),
            ratio("depth 0 to 2, sampled", "depth2", "recorded", 1.15),
            value("an empty hit that is timed", "timed", None),
            value("an empty hit that is counted", "counted", Some(3.0)),
        ],
        rounds: USUAL_ROUNDS,
        notes: vec![format!(
            "times are processor time per product, means over {TIMES} products in one process; a \
             product has 16 hits of the function and of the loop of depth 0, 128 of that of depth 1 \
             and 512 of that of depth 2, on a CPU with AVX-512"
        )],
    })
}
