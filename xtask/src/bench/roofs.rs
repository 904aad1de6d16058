//! `roofs`: compares the roofs (peak rates) that `counterpoint roofline` measures with the results
//! of likwid-bench, which has its own kernels for the same instructions. `benches/roofs.py` runs
//! both in turns.

use std::process::Command;

use anyhow::{Result, ensure};

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::{exists, output};
use crate::setup::packages;

/// The number of rounds. A round takes about a minute.
const ROUNDS: usize = 10;
const SECONDS: &str = "5";
/// The largest allowed difference, as a fraction of likwid-bench's rate.
const APART: f64 = 0.1;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    packages::install(&[packages::ROOFS]);
    ensure!(exists("likwid-bench", &["-h"]), "likwid-bench (package likwid) is needed");
    let program = dist::given(layout)?.program();
    let script = layout.root.join("benches/roofs.py");
    let command = move || {
        let mut python = Command::new("python3");
        python.arg(&script).arg(&program).arg(SECONDS);
        python
    };
    // A first measurement finds the levels of memory and the widths of vectors.
    let first = output(&mut command(), "measure the roofs once")?;
    let names = first.lines().filter_map(|line| line.split_once(".apart ")).map(|(name, _)| name);
    let mut figures = Vec::new();
    for name in names {
        let of = |what: &str| Of::new("roofs", format!("{name}.{what}"));
        figures.push(Figure::value(format!("{name}: apart"), "of-likwid", of("apart"), APART));
        figures.push(Figure::ratio(
            format!("{name}: ours / likwid"),
            "x",
            of("ours"),
            of("likwid"),
            None,
        ));
    }
    Ok(Plan {
        cases: vec![Case::new("roofs", Observe::Lines, command)],
        figures,
        rounds: ROUNDS,
        notes: vec![
            "names: the number or the loop, the level of memory, the number of cores; triad is likwid-bench's `stream`".into(),
            "of each program, the best repetition of a round counts; those of likwid-bench take a twentieth of a second, ours 2 ms (10 ms in memory)".into(),
        ],
    })
}
