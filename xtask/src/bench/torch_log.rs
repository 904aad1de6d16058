//! `torch-log`: measures the time for writing a million events of torch into a profile, compared
//! with torch's own export of the same events in the same process. All files are on tmpfs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::{quiet, timed};
use crate::setup::{self, List};

/// The number of rounds. A round takes about ten seconds.
const ROUNDS: usize = 10;

const SCRIPT: &str = include_str!("../../../benches/torch/log.py");

/// A folder on tmpfs, which is removed when its last user is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn prepare(layout: &Layout) -> Result<Plan> {
    setup::install(layout, &[List::Torch])?;
    let program = dist::quick(layout, dist::Built::Alone)?.program();
    let python = layout.venv_torch().join("bin/python");
    let path = Path::new("/dev/shm").join(format!("counterpoint-torch-{}", std::process::id()));
    std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
    let folder = Rc::new(Folder(path));
    let case = Case::new("torch", Observe::Lines, move || {
        let at = |name: &str| folder.0.join(name);
        let profile = at("run.cpt");
        // `run` would keep an earlier profile next to the new one.
        if profile.is_dir() {
            let _ = std::fs::remove_dir_all(&profile);
        }
        let mut command = Command::new(&program);
        command.arg("run").arg("-o").arg(profile).arg("--").arg(&python);
        command.args(["-c", SCRIPT]).arg(at("torch.json"));
        command
    });
    timed("record a million events with torch", || quiet(&mut (case.command)(), "torch"))?;
    let value =
        |name: &str, of: &'static str| Figure::value(name, "ms", Of::new("torch", of), None);
    let ratio = |name: &str, under: &'static str, at_most| {
        Figure::ratio(name, "", Of::new("torch", "log"), Of::new("torch", under), at_most)
    };
    Ok(Plan {
        cases: vec![case],
        figures: vec![
            ratio("streaming over torch's export_chrome_trace", "export", Some(0.5)),
            ratio("streaming over torch's own stop()", "stop", None),
            value("streaming", "log"),
            value("torch's export_chrome_trace", "export"),
            value("torch's own stop()", "stop"),
        ],
        rounds: ROUNDS,
        notes: vec![
            "500,000 calls of torch.relu, two events each; all three times are of the same process and the same events".into(),
            "streaming: from the end of torch's stop() until the last byte is in the file of the process's part, which is on tmpfs, as is torch's file".into(),
            "the library is built without link-time optimisation (as for cargo xtask test --quick)".into(),
            "what counterpoint run does with the file when the program has ended is not timed".into(),
        ],
    })
}
