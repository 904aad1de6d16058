//! `report-10m`: measures the time and the memory for a report of ten million recorded calls. One
//! profile contains workgroups, the other one ops inside the runs of a virtual machine.

use std::process::{Command, Stdio};

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output};

const CALLS: u32 = 10_000_000;
const COUNTERS: u32 = 2;

/// For each profile: its name, the example of testkit that makes it, and the targets for its report
/// in ms and MiB.
const PROFILES: [(&str, &str, f64, f64); 2] =
    [("flat", "big-profile", 500.0, 100.0), ("nested", "big-ops", 1000.0, 200.0)];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for (label, example, ms, mib) in PROFILES {
        let profile = layout.bench()?.join(format!("ten-million-{label}.cpt"));
        if profile.exists() {
            std::fs::remove_dir_all(&profile)?;
        }
        let mut generate = cargo();
        generate.args(["run", "--release", "--package", "counterpoint-testkit"]);
        generate.args(["--example", example, "--target-dir"]).arg(&layout.target).arg("--");
        generate.arg(&profile).args([CALLS, COUNTERS].map(|n| n.to_string()));
        output(&mut generate, "make a profile of ten million calls")?;
        let figure = |name: &str, unit, reading: &str, at_most| {
            let name = format!("{label}: {name}");
            Figure::value(&name, unit, Of::new(label, reading), Some(at_most))
        };
        figures.push(figure("wall time", "ms", "wall", ms));
        figures.push(figure("highest private memory", "KiB", "private", mib * 1024.0));
        let program = program.clone();
        cases.push(Case::new(label, Observe::PrivateMemory, move || {
            let mut command = Command::new(&program);
            command.arg("report").arg(&profile).stdout(Stdio::null());
            command
        }));
    }
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![format!(
            "{CALLS} calls with {COUNTERS} counters, made by testkit's examples big-profile (flat: workgroups) and big-ops (nested: runs of a virtual machine with their ops); files in the page cache"
        )],
    })
}
