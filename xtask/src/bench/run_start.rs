//! `run-start`: measures the time that `counterpoint run` takes for a program that does nothing.
//!
//! `COUNTERPOINT_DIST` names a folder whose `bin/counterpoint` is measured instead of a fresh
//! release. `COUNTERPOINT_BEFORE` names a folder with an earlier version, which is measured in the
//! same rounds.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::exists;

const NOTHING: &str = "/usr/bin/true";

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let named =
        |variable| std::env::var_os(variable).map(|at| PathBuf::from(at).join("bin/counterpoint"));
    let program = dist::given(layout)?.program();
    let profile = layout.target.join("bench/run-start.cpt");
    let case = |label, command: Box<dyn Fn() -> Command>| Case {
        label,
        command,
        observe: Observe::Process,
    };
    let run = |program: PathBuf, events: &'static [&'static str]| -> Box<dyn Fn() -> Command> {
        let profile = profile.clone();
        Box::new(move || {
            // `run` would move an earlier profile away, which takes time.
            let _ = std::fs::remove_dir_all(&profile);
            let mut command = Command::new(&program);
            command.arg("run").args(events).arg("-o").arg(&profile).args(["--", NOTHING]);
            command
        })
    };
    let mut cases = vec![
        case("plain", Box::new(|| Command::new(NOTHING))),
        case("run", run(program.clone(), &[])),
        case("named", run(program, &["-e", "page-faults:u,task-clock:u"])),
    ];
    let added = |name: &str, case: &'static str, reading: &str| {
        Figure::difference(name, "ms", Of::new(case, reading), Of::new("plain", reading), None)
    };
    let ratio = |name: &str, over: &'static str, under: &'static str, at_most| {
        Figure::ratio(name, "", Of::new(over, "wall"), Of::new(under, "wall"), Some(at_most))
    };
    let mut figures = vec![
        added("added wall", "run", "wall"),
        added("added cpu", "run", "cpu-total"),
        added("added wall, counters by name", "named", "wall"),
    ];
    let mut notes =
        vec!["run: the default counters; named: -e page-faults:u,task-clock:u".to_owned()];
    if exists("perf", &["stat", "--", NOTHING]) {
        cases.push(case(
            "perf",
            Box::new(|| {
                let mut command = Command::new("perf");
                command.args(["stat", "--", NOTHING]);
                command
            }),
        ));
        figures.push(ratio("wall, beside perf stat", "run", "perf", 1.0));
    } else {
        notes.push("perf is not installed, so there is nothing to compare with".to_owned());
    }
    if let Some(before) = named("COUNTERPOINT_BEFORE") {
        cases.push(case("before", run(before, &[])));
        figures.push(added("added wall, before", "before", "wall"));
        figures.push(added("added cpu, before", "before", "cpu-total"));
        figures.push(ratio("wall, beside before", "run", "before", 0.5));
    }
    Ok(Plan { cases, figures, rounds: 100, notes })
}
