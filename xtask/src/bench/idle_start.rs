//! `idle-start`: the library is preloaded into a process that it has nothing to do in.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Formula, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let library = dist::release(layout)?.library();
    let python = python()?;
    let plain = python.clone();
    let difference = |name: &str, case: &'static str, reading: &str, at_most| Figure {
        name: name.to_owned(),
        unit: "ms",
        formula: Formula::Difference {
            of: Of::new(case, reading),
            minus: Of::new("plain", reading),
            divide: 1.0,
        },
        at_most,
    };
    Ok(Plan {
        cases: vec![
            Case {
                label: "plain",
                command: Box::new(move || pass(&plain)),
                observe: Observe::Process,
            },
            Case {
                label: "preloaded",
                command: Box::new({
                    let (python, library) = (python.clone(), library.clone());
                    move || {
                        let mut command = pass(&python);
                        command.env("LD_PRELOAD", &library);
                        command
                    }
                }),
                observe: Observe::Process,
            },
            Case {
                label: "configured",
                command: Box::new(move || {
                    let mut command = pass(&python);
                    command.env("LD_PRELOAD", &library);
                    // Looked at when the first executable is loaded, which never happens.
                    command.env("COUNTERPOINT_RUN_FILE", "/nowhere/run.bin");
                    command
                }),
                observe: Observe::Process,
            },
        ],
        figures: vec![
            difference("added wall", "preloaded", "wall", Some(2.0)),
            difference("added wall, under a profile", "configured", "wall", Some(2.0)),
            difference("added cpu", "preloaded", "cpu-total", None),
        ],
        // A process of ten milliseconds: many are cheap, and the scheduler's noise is of the
        // size of what is measured.
        rounds: 100,
        notes: vec![
            "preloaded: no profile is configured; configured: as every child of `counterpoint run`"
                .into(),
        ],
    })
}

/// `-I -S`-free on purpose: site initialisation is part of every user's start.
fn pass(python: &PathBuf) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", "pass"]);
    command
}

/// The interpreter itself: version managers put shell scripts in front, whose shells would be
/// preloaded and counted too.
fn python() -> Result<PathBuf> {
    let mut ask = Command::new("python3");
    ask.args(["-c", "import os, sys; print(os.path.realpath(sys.executable))"]);
    Ok(PathBuf::from(output(&mut ask, "ask python3 where it is")?.trim()))
}
