//! `trace-export` and `trace-import`: measure how long it takes to export and to import a million
//! events of torch. All files are on tmpfs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output, quiet, timed};
use crate::setup::{self, List};

/// The number of rounds. A round takes about ten seconds, because torch must also process what it
/// records.
const ROUNDS: usize = 10;
const CALLS: u32 = 1_000_000;
const COUNTERS: u32 = 2;

const TORCH: &str = include_str!("../../../benches/torch/traces.py");

const JSON_LOAD: &str = r#"
import json, sys, time
start, cpu = time.perf_counter(), time.process_time()
with open(sys.argv[1]) as file:
    loaded = json.load(file)
print("load", (time.perf_counter() - start) * 1e3, "ms")
print("load-cpu", (time.process_time() - cpu) * 1e3, "ms")
print("events", len(loaded["traceEvents"]), "events")
"#;

const HTA: &str = r#"
import sys, time
from hta.trace_analysis import TraceAnalysis
start = time.perf_counter()
loaded = TraceAnalysis(trace_files={0: sys.argv[1]})
print("load", (time.perf_counter() - start) * 1e3, "ms")
print("events", len(loaded.t.get_trace(0)), "events")
"#;

/// A folder on tmpfs, which is removed when its last user is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Rc<Self>> {
        let path = Path::new("/dev/shm").join(format!("counterpoint-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Rc::new(Self(path)))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What both benchmarks need.
struct Ground {
    program: PathBuf,
    python: PathBuf,
    folder: Rc<Folder>,
    bytes: u64,
}

impl Ground {
    fn prepare(layout: &Layout) -> Result<Self> {
        setup::install(layout, &[List::Torch, List::Hta])?;
        let program = dist::release(layout)?.program();
        let python = layout.venv_torch().join("bin/python");
        let folder = Folder::new()?;
        let traced = folder.file("torch.json");
        timed("record a million events with torch", || {
            let mut torch = Command::new(&python);
            quiet(torch.args(["-c", TORCH]).arg(&traced), "record a million events with torch")
        })?;
        let bytes = size(&traced)?;
        Ok(Self { program, python, folder, bytes })
    }

    fn python(&self, label: &'static str, script: &'static str, file: &str) -> Case {
        self.script(self.python.clone(), label, script, file)
    }

    fn script(
        &self,
        python: PathBuf,
        label: &'static str,
        script: &'static str,
        file: &str,
    ) -> Case {
        let (folder, path) = (Rc::clone(&self.folder), self.folder.file(file));
        Case::new(label, Observe::Lines, move || {
            let _folder = &folder;
            let mut command = Command::new(&python);
            command.args(["-c", script]).arg(&path);
            command
        })
    }

    /// Returns a case that runs `counterpoint trace VERB FROM -o TO`, with both files in the
    /// folder.
    fn trace(&self, label: &'static str, verb: &'static str, from: &str, to: &str) -> Case {
        let (program, folder) = (self.program.clone(), Rc::clone(&self.folder));
        let (from, to) = (folder.file(from), folder.file(to));
        Case::new(label, Observe::PrivateMemory, move || {
            let _folder = &folder;
            // `trace import` would keep an earlier profile next to the new one.
            if to.is_dir() {
                let _ = std::fs::remove_dir_all(&to);
            }
            let mut command = Command::new(&program);
            command.args(["trace", verb]).arg(&from).arg("-o").arg(&to);
            command
        })
    }

    fn slices(&self, file: &str) -> Result<u64> {
        let mut check = Command::new(&self.program);
        check.args(["trace", "check", "--format", "json"]).arg(self.folder.file(file));
        let found = output(&mut check, "count slices")?;
        let found: serde_json::Value = serde_json::from_str(&found)?;
        let slices = found["files"][0]["contents"]["slices"].as_u64();
        slices.with_context(|| format!("trace check {file}: no slices in {found}"))
    }

    /// Runs a case once, before the rounds.
    fn once(case: &Case) -> Result<()> {
        quiet(&mut (case.command)(), case.label)
    }
}

fn size(path: &Path) -> Result<u64> {
    let found = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    Ok(found.len())
}

fn value(name: &str, unit: &'static str, of: Of, at_most: Option<f64>) -> Figure {
    Figure::value(name, unit, of, at_most)
}

fn ratio(name: &str, over: Of, under: Of, at_most: f64) -> Figure {
    Figure::ratio(name, "", over, under, Some(at_most))
}

fn wall(case: &'static str) -> Of {
    Of::new(case, "wall")
}

pub fn export(layout: &Layout) -> Result<Plan> {
    let ground = Ground::prepare(layout)?;
    Ground::once(&ground.trace("import", "import", "torch.json", "torch.cpt"))?;
    let mut generate = cargo();
    generate.args(["run", "--release", "--package", "counterpoint-testkit"]);
    generate.args(["--example", "big-profile", "--target-dir"]).arg(&layout.target).arg("--");
    generate.arg(ground.folder.file("calls.cpt"));
    generate.args([CALLS.to_string(), COUNTERS.to_string()]);
    quiet(&mut generate, "make a profile of a million calls")?;
    let cases = vec![
        ground.python("torch", TORCH, "torch-again.json"),
        ground.trace("same", "export", "torch.cpt", "same.json"),
        ground.trace("json", "export", "calls.cpt", "calls.json"),
        ground.trace("pftrace", "export", "calls.cpt", "calls.pftrace"),
    ];
    cases.iter().skip(1).try_for_each(Ground::once)?;
    Ground::once(&ground.trace("same-pftrace", "export", "torch.cpt", "same.pftrace"))?;
    let bytes = |name: &str| size(&ground.folder.file(name));
    let json = bytes("calls.json")?;
    let per_slice = |name: &str| -> Result<String> {
        let (bytes, slices) = (bytes(name)?, ground.slices(name)?);
        Ok(format!(
            "{bytes} bytes, {:.1} for each of {slices} slices",
            bytes as f64 / slices as f64
        ))
    };
    let (pftrace, same_pftrace) = (per_slice("calls.pftrace")?, per_slice("same.pftrace")?);
    Ok(Plan {
        cases,
        figures: vec![
            ratio(
                "torch's million events, ours over torch's",
                wall("same"),
                Of::new("torch", "export"),
                0.25,
            ),
            ratio("Perfetto over JSON, the same calls", wall("pftrace"), wall("json"), 0.5),
            value("torch's export_chrome_trace", "ms", Of::new("torch", "export"), None),
            value("ours of torch's events", "ms", wall("same"), None),
            value("its highest private memory", "KiB", Of::new("same", "private"), None),
            value("calls as JSON", "ms", wall("json"), None),
            value("their highest private memory", "KiB", Of::new("json", "private"), None),
            value("calls as Perfetto", "ms", wall("pftrace"), None),
            value("their highest private memory there", "KiB", Of::new("pftrace", "private"), None),
        ],
        rounds: ROUNDS,
        notes: vec![
            format!(
                "torch: 500,000 calls of torch.relu, profiled anew in each process, in a file of {} bytes; for torch, only export_chrome_trace is timed, and for us the whole process",
                ground.bytes
            ),
            "same: the profile that trace import made of torch's file, exported as JSON".into(),
            format!(
                "json, pftrace: {CALLS} calls with {COUNTERS} counters, made by testkit's example big-profile, with their dispatches and counter tracks; JSON: {json} bytes; Perfetto: {pftrace}"
            ),
            format!("the profile of \"same\" in Perfetto's format, not timed: {same_pftrace}"),
            "our exports use two threads, and torch's uses one".into(),
            "all files are on tmpfs and uncompressed".into(),
        ],
    })
}

pub fn import(layout: &Layout) -> Result<Plan> {
    let ground = Ground::prepare(layout)?;
    let mut cases = vec![
        ground.trace("import", "import", "torch.json", "torch.cpt"),
        ground.python("python", JSON_LOAD, "torch.json"),
    ];
    let bytes = ground.bytes as f64;
    let cpu = || Of::new("import", "cpu-total");
    let load = || Of::new("python", "load");
    let mut figures = vec![
        // The target for both times is the time in which the file could be read at 300 MB/s.
        value("wall time", "ms", wall("import"), Some(bytes / 300e3)),
        value("processor time", "ms", cpu(), Some(bytes / 300e3)),
        ratio("over json.load", wall("import"), load(), 0.1),
        ratio("processor time over json.load's", cpu(), Of::new("python", "load-cpu"), 0.1),
        value("highest private memory", "KiB", Of::new("import", "private"), {
            Some(0.2 * bytes / 1024.0)
        }),
        value("json.load", "ms", load(), None),
    ];
    let mut notes = vec![
        format!(
            "torch's file: 500,000 calls of torch.relu, {bytes} bytes; the targets are 300 MB/s and memory of 0.2 times the file"
        ),
        "for json.load, only the call is timed; for us, the whole process, which has one thread"
            .into(),
        "all files are on tmpfs and uncompressed".into(),
    ];
    let hta = layout.venv_hta().join("bin/python");
    cases.push(ground.script(hta, "hta", HTA, "torch.json"));
    figures.push(value("HolisticTraceAnalysis", "ms", Of::new("hta", "load"), None));
    notes.push("for HolisticTraceAnalysis, only TraceAnalysis(…) is timed".into());
    cases.iter().try_for_each(Ground::once)?;
    ensure!(ground.folder.file("torch.cpt").is_dir(), "trace import left no profile");
    Ok(Plan { cases, figures, rounds: ROUNDS, notes })
}
