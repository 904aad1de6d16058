//! `stats-10m`: measures how long `counterpoint stats` takes for ten million recorded calls with
//! four counters, and how much memory it needs. For comparison, numpy and scipy compute the same
//! from the exported Parquet file.

use std::process::{Command, Stdio};

use anyhow::Result;

use super::plan::{Case, Figure, Formula, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output, quiet};
use crate::setup::{self, List};

const CALLS: u32 = 10_000_000;
const COUNTERS: u32 = 4;
/// The number of rounds. A round takes some seconds.
const ROUNDS: usize = 10;

const PEER: &str = include_str!("../../../benches/stats_10m.py");

pub fn prepare(layout: &Layout) -> Result<Plan> {
    setup::install(layout, &[List::Iree, List::Test])?;
    let program = dist::release(layout)?.program();
    let profile = layout.target.join("bench/ten-million-four.cpt");
    let parquet = profile.with_extension("parquet");
    if profile.exists() {
        std::fs::remove_dir_all(&profile)?;
    }
    let mut generate = cargo();
    generate.args(["run", "--release", "--package", "counterpoint-testkit"]);
    generate.args(["--example", "big-profile", "--target-dir"]).arg(&layout.target).arg("--");
    generate.arg(&profile).args([CALLS.to_string(), COUNTERS.to_string()]);
    output(&mut generate, "make a profile of ten million calls")?;
    let mut export = Command::new(&program);
    export.arg("export").arg(&profile).args(["--format", "parquet", "-o"]).arg(&parquet);
    quiet(&mut export, "export it as Parquet")?;
    let python = layout.venv_bin("python");
    let figure = |name: &str, unit, formula, at_most| Figure {
        name: name.to_owned(),
        unit,
        formula,
        at_most,
    };
    let value = |case, reading: &str| Formula::Value(Of::new(case, reading));
    let ratio = Formula::Ratio { over: Of::new("stats", "wall"), under: Of::new("numpy", "wall") };
    Ok(Plan {
        cases: vec![
            Case::new("stats", Observe::PrivateMemory, move || {
                    let mut command = Command::new(&program);
                    command.arg("stats").arg(&profile).stdout(Stdio::null());
                    command
                }),
            Case::new("numpy", Observe::PrivateMemory, move || {
                    let mut command = Command::new(&python);
                    command.args(["-c", PEER]).arg(&parquet).stdout(Stdio::null());
                    command
                }),
        ],
        figures: vec![
            figure("wall time", "ms", value("stats", "wall"), Some(10_000.0)),
            figure(
                "highest private memory",
                "KiB",
                value("stats", "private"),
                Some(1024.0 * 1024.0),
            ),
            figure("wall time of numpy and scipy", "ms", value("numpy", "wall"), None),
            figure("their highest private memory", "KiB", value("numpy", "private"), None),
            figure("wall time, stats over numpy", "", ratio, None),
        ],
        rounds: ROUNDS,
        notes: vec![
            format!(
                "{CALLS} calls with {COUNTERS} counters, made by testkit's example big-profile; files in the page cache"
            ),
            "numpy and scipy read the exported Parquet file and compute, for each op over all threads and for each thread, means, deviations, extremes and 16 buckets, and for each pair both correlations and the table".into(),
        ],
    })
}
