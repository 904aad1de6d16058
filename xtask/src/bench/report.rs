//! `report-10m`: the time for reading ten million recorded calls.

use std::process::{Command, Stdio};

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output};

const CALLS: u32 = 10_000_000;
const COUNTERS: u32 = 2;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let profile = layout.target.join("bench/ten-million.cpt");
    if profile.exists() {
        std::fs::remove_dir_all(&profile)?;
    }
    let mut generate = cargo();
    generate.args(["run", "--release", "--package", "counterpoint-testkit"]);
    generate.args(["--example", "big-profile", "--target-dir"]).arg(&layout.target).arg("--");
    generate.arg(&profile).args([CALLS.to_string(), COUNTERS.to_string()]);
    output(&mut generate, "make a profile of ten million calls")?;
    let figure = |name: &str, unit, reading: &str, at_most| {
        Figure::value(name, unit, Of::new("report", reading), Some(at_most))
    };
    Ok(Plan {
        cases: vec![Case::new("report", Observe::PrivateMemory, move || {
            let mut command = Command::new(&program);
            command.arg("report").arg(&profile).stdout(Stdio::null());
            command
        })],
        figures: vec![
            figure("wall time", "ms", "wall", 3000.0),
            figure("highest private memory", "KiB", "private", 500.0 * 1024.0),
        ],
        rounds: USUAL_ROUNDS,
        notes: vec![format!(
            "{CALLS} calls with {COUNTERS} counters, made by testkit's example big-profile; files in the page cache"
        )],
    })
}
