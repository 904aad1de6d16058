//! `read`: measures a pair of `begin` and `end` of the crate `measure` with software counters,
//! compared with PAPI and the crate `perf-event2`. The program in `benches/peers` (a separate
//! workspace) measures all of them in one process, in batches that take turns.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::layout::Layout;
use crate::process::{output, quiet, say};

const GROUPS: [(u32, &str); 3] = [(1, "one"), (3, "three"), (5, "five")];
const PACKAGES: [&str; 4] = ["libpapi-dev", "libpapi7.0", "libpfm4", "libpfm4-dev"];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let sources = layout.root.join("benches/peers");
    let built = layout.target.join("peers");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--manifest-path"]).arg(sources.join("Cargo.toml"));
    quiet(build.env("CARGO_TARGET_DIR", &built), "build benches/peers")?;
    let program = built.join("release/counterpoint-peers");
    let mut notes = vec![
        "ours.N: Counters::begin and end, including the differences; papi.N: PAPI_read twice; \
         perf-event2.N: Group::read twice; all count user mode only"
            .to_owned(),
    ];
    let papi = match Papi::get(layout, &sources) {
        Ok(papi) => {
            notes.push(
                "a preloaded library (benches/peers/papi_default_pmu.c) presents libpfm's PMU \
                 `perf` as that of the processor; otherwise PAPI disables its component \
                 perf_event on machines without a PMU"
                    .into(),
            );
            Some(papi)
        }
        Err(error) => {
            say(format_args!("read: without PAPI: {error:#}"));
            notes.push(format!("without PAPI: {error:#}"));
            None
        }
    };
    let mut cases = Vec::new();
    let mut figures = Vec::new();
    for (counters, label) in GROUPS {
        let (program, papi) = (program.clone(), papi.clone());
        let peers: &[&str] =
            if papi.is_some() { &["papi", "perf-event2"] } else { &["perf-event2"] };
        figures.extend(peers.iter().map(|peer| {
            Figure::ratio(
                format!("ours / {peer}, {label} software counters"),
                "x",
                Of::new(label, format!("ours.{counters}")),
                Of::new(label, format!("{peer}.{counters}")),
                Some(1.0),
            )
        }));
        cases.push(Case::new(label, Observe::Lines, move || {
            let mut command = Command::new(&program);
            command.arg(counters.to_string());
            if let Some(papi) = &papi {
                command.arg(papi.libraries.join("libpapi.so.7.0"));
                command.env("LD_LIBRARY_PATH", &papi.libraries);
                command.env("LD_PRELOAD", &papi.preload);
            }
            command
        }));
    }
    Ok(Plan { cases, figures, rounds: USUAL_ROUNDS, notes })
}

/// PAPI from the distribution's packages, unpacked below `target` and not installed.
#[derive(Clone)]
struct Papi {
    libraries: PathBuf,
    preload: PathBuf,
}

impl Papi {
    fn get(layout: &Layout, sources: &Path) -> Result<Self> {
        let place = layout.target.join("bench/papi");
        let root = place.join("root");
        if !root.is_dir() {
            std::fs::create_dir_all(&place)
                .with_context(|| format!("create {}", place.display()))?;
            let mut fetch = Command::new("apt-get");
            quiet(fetch.arg("download").args(PACKAGES).current_dir(&place), "fetch PAPI")?;
            let unpacked = place.join("unpacking");
            for entry in std::fs::read_dir(&place).context("list PAPI's packages")? {
                let package = entry.context("list PAPI's packages")?.path();
                if package.extension().is_some_and(|ending| ending == "deb") {
                    let mut unpack = Command::new("dpkg");
                    quiet(unpack.arg("-x").arg(&package).arg(&unpacked), "unpack PAPI")?;
                }
            }
            std::fs::rename(&unpacked, &root).context("keep PAPI")?;
        }
        let machine = output(Command::new("cc").arg("-print-multiarch"), "ask the C compiler")?;
        let libraries = root.join("usr/lib").join(machine.trim());
        ensure!(
            libraries.join("libpapi.so.7.0").exists(),
            "no libpapi.so.7.0 in {}",
            libraries.display()
        );
        let preload = place.join("papi_default_pmu.so");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O2", "-I"]).arg(root.join("usr/include"));
        compile.arg(sources.join("papi_default_pmu.c")).arg("-o").arg(&preload).arg("-ldl");
        quiet(&mut compile, "compile the preload for PAPI")?;
        Ok(Self { libraries, preload })
    }
}
