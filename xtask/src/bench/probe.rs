//! `probe`: measures only the code that runs at each recorded call. `tests/programs/probe_bench.c`
//! calls an empty function of an IREE executable library, and `libcounterpoint.so` intercepts these
//! calls. The time that the recorder adds to a call is compared with the cheapest possible pair of
//! readings (the floor), and with counters that are reset and enabled before a call, and disabled
//! and read after it (the peer). All of them are measured in one process, in batches that take
//! turns.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;

/// The number of software counters, the label of the case, and the value of the option `-e` of
/// `counterpoint run`.
const GROUPS: [(u32, &str, &str); 4] = [
    (0, "none", "none"),
    (1, "one", "page-faults"),
    (3, "three", "page-faults,task-clock,context-switches"),
    (5, "five", "page-faults,task-clock,context-switches,cpu-migrations,minor-faults"),
];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let scratch = layout.bench()?;
    let sources = layout.root.join("tests/programs");
    let bench = compile(&sources.join("probe_bench.c"), &scratch.join("probe_bench"), &["-ldl"])?;
    let shared = ["-shared", "-fPIC"];
    let library = compile(&sources.join("library.c"), &scratch.join("library.so"), &shared)?;

    let mut cases = Vec::new();
    let mut figures = Vec::new();
    for (counters, label, list) in GROUPS {
        let (program, bench, library) = (program.clone(), bench.clone(), library.clone());
        let profile = scratch.join(format!("probe-{label}.cpt"));
        cases.push(Case::new(label, Observe::Lines, move || {
            let mut command = Command::new(&program);
            command.args(["run", "-e", list, "-o"]).arg(&profile).arg("--");
            command.arg(&bench).arg(&library).arg(counters.to_string());
            command
        }));
        let reading = |who: &str| Of::new(label, format!("{who}.{counters}"));
        if counters == 0 {
            figures.push(Figure::difference(
                "ours - two clock reads, no counters",
                "ns",
                reading("ours"),
                reading("clocks"),
                Some(25.0),
            ));
            figures.push(Figure::value(
                "200,000 calls, all included, cpu",
                "ns",
                Of::new(label, "all.0"),
                Some(45.0),
            ));
            continue;
        }
        figures.push(Figure::ratio(
            format!("ours / floor, {label} software counters"),
            "x",
            reading("ours"),
            reading("floor"),
            Some(1.10),
        ));
        figures.push(Figure::ratio(
            format!("reset-enable-disable-read / ours, {label} counters"),
            "x",
            reading("cycle"),
            reading("ours"),
            None,
        ));
    }
    let counting = scratch.join("probe-counted.cpt");
    cases.push(Case::new("counted", Observe::Lines, move || {
        let mut command = Command::new(&program);
        command.args(["run", "--budget=0", "-e", "none", "-o"]).arg(&counting).arg("--");
        command.arg(&bench).arg(&library).arg("0");
        command
    }));
    figures.push(Figure::value(
        "a call that is only counted",
        "ns",
        Of::new("counted", "ours.0"),
        Some(5.0),
    ));
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "floor.N: two direct reads of the recorder's own group, two clock reads, and storing one record".into(),
            "cycle.N: reset and enable each counter, then disable and read each".into(),
            "ours.N: the time of an intercepted empty call minus the time of the same call through an unchanged pointer".into(),
            "a floor of two consecutive system calls was measured as more expensive than ours, although ours executes more instructions between them; this happens with glibc's read and with an inlined syscall instruction, and with own and shared groups; the reason is unknown".into(),
        ],
    })
}

fn compile(source: &Path, program: &Path, flags: &[&str]) -> Result<PathBuf> {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-o"]).arg(program).arg(source).args(flags);
    output(&mut cc, &format!("compile {}", source.display()))?;
    Ok(program.to_owned())
}
