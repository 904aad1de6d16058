//! Checks whether the bridge that records PyTorch's ops is ready. Its C++ part is compiled once for
//! each version of PyTorch. That takes so long that a program seems to hang, so `doctor` starts it
//! in the background.

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

/// Returns a row about the PyTorch that the user's `python3` imports; `None` without PyTorch.
pub fn bridge() -> Option<Row> {
    let script = crate::python::package()?.join("torch/_prepare.py");
    let environment = std::env::var_os("VIRTUAL_ENV").map(PathBuf::from);
    let own =
        environment.map(|folder| folder.join("bin/python3")).filter(|python| python.is_file());
    let mut python = Command::new(own.unwrap_or_else(|| "python3".into()));
    // Python gets a file and not a module, because the working directory may have modules of the
    // same names.
    python.arg("-B").arg(script).arg("doctor").stdin(Stdio::null()).stderr(Stdio::null());
    // This process of Python must not be recorded.
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
