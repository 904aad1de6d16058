//! `idle-start`: measures the cost of preloading `libcounterpoint.so` into a process in which it
//! has nothing to record.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::output;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let library = dist::release(layout)?.library();
    let python = python()?;
    let plain = python.clone();
    let difference = |name: &str, case: &'static str, reading: &str, at_most| {
        Figure::difference(name, "ms", Of::new(case, reading), Of::new("plain", reading), at_most)
    };
    Ok(Plan {
        cases: vec![
            Case::new("plain", Observe::Process, move || pass(&plain)),
            Case::new("preloaded", Observe::Process, {
                    let (python, library) = (python.clone(), library.clone());
                    move || {
                        let mut command = pass(&python);
                        command.env("LD_PRELOAD", &library);
                        command
                    }
                }),
            Case::new("configured", Observe::Process, move || {
                    let mut command = pass(&python);
                    command.env("LD_PRELOAD", &library);
                    // The preloaded library reads this file only when the program first does
                    // something that can be recorded, which never happens here.
                    command.env("COUNTERPOINT_RUN_FILE", "/nowhere/run.bin");
                    command
                }),
        ],
        figures: vec![
            difference("added wall", "preloaded", "wall", Some(2.0)),
            difference("added wall, under a profile", "configured", "wall", Some(2.0)),
            difference("added cpu", "preloaded", "cpu-total", None),
        ],
        // The scheduler's noise is as large as the effect, so many rounds are necessary. They take
        // little time, because a process takes only ten milliseconds.
        rounds: 100,
        notes: vec![
            "preloaded: no profile is configured; configured: with a profile, like every child of `counterpoint run`"
                .into(),
        ],
    })
}

/// Returns a command that starts Python without `-I` and `-S`, because the initialisation of `site`
/// is part of a normal start.
fn pass(python: &PathBuf) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", "pass"]);
    command
}

/// Returns the path of the interpreter itself. Version managers put shell scripts with the name
/// `python3` into `PATH`, and the library would also be preloaded into their shells.
fn python() -> Result<PathBuf> {
    let mut ask = Command::new("python3");
    ask.args(["-c", "import os, sys; print(os.path.realpath(sys.executable))"]);
    Ok(PathBuf::from(output(&mut ask, "ask python3 where it is")?.trim()))
}
