//! `cargo xtask demo`: goes from a fresh checkout to a report about a real model.
//!
//! The profiled program is `iree-benchmark-module` with a fixed number of inferences. A single
//! inference (`iree-run-module`) takes 0.3 ms, and its profile shows little more than page faults
//! on first accesses. A few hundred inferences give meaningful percentiles.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::dist;
use crate::fixtures::{self, Fixture};
use crate::layout::Layout;
use crate::process::{loud, shell_form};
use crate::setup::{self, List};

/// Profiles a transformer block, from nothing to the report.
#[derive(clap::Args)]
pub struct Args {
    /// How many inferences to profile.
    #[arg(long, default_value_t = 300)]
    inferences: u32,
}

pub fn main(layout: &Layout, args: &Args) -> Result<()> {
    setup::install(layout, &[List::Build, List::Iree])?;
    let dist = dist::release(layout)?;
    let model = &fixtures::TRANSFORMER_BLOCK;
    let module = layout.target.join("demo.vmfb");
    let profile = layout.target.join("demo.cpt");
    let program_output = layout.target.join("demo.out");

    let mut compile = fixtures::compiler(layout, model, "host");
    compile.arg("-o").arg(&module);
    show_and_run(layout, "compile the model (stock wheel, no extra flags)", &mut compile, None)?;

    let mut run = Command::new(dist.program());
    run.arg("run").arg("-o").arg(&profile).arg("--");
    run.args(benchmark(layout, model, &module, args.inferences));
    show_and_run(
        layout,
        "run it under the profiler; what the program prints goes to a file",
        &mut run,
        Some(&program_output),
    )?;

    let mut report = Command::new(dist.program());
    report.arg("report").arg(&profile);
    show_and_run(layout, "read the profile", &mut report, None)?;

    let page = layout.target.join("demo.html");
    let mut report = Command::new(dist.program());
    report.arg("report").arg(&profile).arg("--html").arg(&page);
    show_and_run(layout, "write a page of it for a browser", &mut report, None)?;
    eprintln!("\nlook at it: {}", page.display());
    Ok(())
}

fn benchmark(layout: &Layout, model: &Fixture, module: &Path, inferences: u32) -> Vec<String> {
    let mut words = vec![layout.venv_bin("iree-benchmark-module").display().to_string()];
    words.push(format!("--module={}", module.display()));
    words.push("--device=local-task".to_owned());
    words.push(format!("--function={}", model.function));
    words.extend(model.inputs.iter().map(|input| format!("--input={input}")));
    words.push(format!("--benchmark_min_time={inferences}x"));
    // Without this flag, `iree-benchmark-module` would describe the machine on stderr.
    words.push("--benchmark_format=json".to_owned());
    words
}

fn show_and_run(
    layout: &Layout,
    why: &str,
    command: &mut Command,
    to: Option<&Path>,
) -> Result<()> {
    let shown = shell_form(layout, command);
    eprintln!("\n# {why}");
    match to {
        None => eprintln!("$ {shown}"),
        Some(path) => {
            eprintln!("$ {shown} > {}", layout.show(path));
            let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
            command.stdout(Stdio::from(file));
        }
    }
    loud(command, why)
}
