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
    let difference = |name: &str, reading: &str, at_most| Figure {
        name: name.to_owned(),
        unit: "ms",
        formula: Formula::Difference {
            of: Of::new("preloaded", reading),
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
                command: Box::new(move || {
                    let mut command = pass(&python);
                    command.env("LD_PRELOAD", &library);
                    command
                }),
                observe: Observe::Process,
            },
        ],
        figures: vec![
            difference("added wall", "wall", Some(2.0)),
            difference("added cpu", "cpu-total", None),
        ],
        // A process of ten milliseconds: many are cheap, and the scheduler's noise is of the
        // size of what is measured.
        rounds: 100,
        notes: vec![
            "no profile is configured: the library is loaded and finds nothing to do".into(),
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
