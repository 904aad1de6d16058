//! Checks whether the bridge that records PyTorch's ops is ready. Counterpoint comes with the
//! bridge's compiled C++ part for some versions of PyTorch. For other supported versions, this part
//! is compiled once on the user's machine. A profiled program that waited for the compilation would
//! seem to hang, so `doctor` starts the compilation early, in the background.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use machine::doctor::Level;
use serde::Deserialize;

use super::Row;

/// The output of `_prepare.py`.
#[derive(Deserialize)]
struct Said {
    level: String,
    state: String,
}

/// Returns a row about the PyTorch that belongs to the `python3` of the active virtual environment,
/// or else to the `python3` in `PATH`. Returns `None` if the script cannot be run or reports
/// nothing, for example because there is no PyTorch.
pub fn bridge() -> Option<Row> {
    let script = crate::python::package()?.join("torch/_prepare.py");
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let own =
        environment.map(|folder| folder.join("bin/python3")).filter(|python| python.is_file());
    let mut python = Command::new(own.unwrap_or_else(|| "python3".into()));
    // Python gets the script's path and not `-m` with a module's name, because `-m` would prefer
    // modules of the same names in the working directory.
    python.arg("-B").arg(script).arg("doctor").stdin(Stdio::null()).stderr(Stdio::null());
    // `counterpoint run` sets both variables. If it started `doctor`, they would make the recorder
    // record this Python process, too.
    let said = python.env("COUNTERPOINT_RUN_FILE", "").env_remove("LD_PRELOAD").output().ok()?;
    let said: Said = serde_json::from_slice(&said.stdout).ok()?;
    let levels = [Level::Ok, Level::Note, Level::Problem];
    let level = levels.into_iter().find(|level| level.name() == said.level)?;
    let prevents =
        (level == Level::Problem).then(|| "recording the ops of this PyTorch".to_owned());
    Some(Row {
        name: "PyTorch".to_owned(),
        level: level.name(),
        state: said.state,
        prevents,
        remedy: None,
    })
}
