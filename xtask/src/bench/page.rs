//! `page`: measures the page of `report --html`, for profiles of one million and of ten million
//! calls: its size, and the time and memory for writing it. Also measures how fast a browser shows
//! the page of one million calls, and the size of the demo's page.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Observe, Of, Plan};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output, quiet};

const MILLION: u32 = 1_000_000;
const TEN_MILLION: u32 = 10_000_000;
const COUNTERS: u32 = 2;
/// The number of rounds. A round takes about 15 s.
const ROUNDS: usize = 10;

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let folder = layout.bench()?;
    let profile = |name: &str, calls: u32| {
        let profile = folder.join(name);
        if profile.exists() {
            std::fs::remove_dir_all(&profile)?;
        }
        let mut generate = example(layout, "big-profile");
        generate.arg(&profile).args([calls.to_string(), COUNTERS.to_string()]);
        output(&mut generate, "make a profile of many calls")?;
        anyhow::Ok(profile)
    };
    let million = profile("million.cpt", MILLION)?;
    let ten_million = profile("ten-million.cpt", TEN_MILLION)?;
    let mut build = cargo();
    build.args(["build", "--release", "--package", "counterpoint-testkit"]);
    build.args(["--example", "page-in-browser", "--target-dir"]).arg(&layout.target);
    quiet(&mut build, "build what opens pages")?;
    let browser = layout.target.join("release/examples/page-in-browser");
    // `cargo xtask demo` makes this profile.
    let demo = layout.target.join("demo.cpt");
    let has_demo = demo.exists();
    let pages = ["million.html", "ten-million.html", "demo.html"].map(|name| folder.join(name));

    let write = |profile: &Path, page: &Path| {
        let (program, profile, page) = (program.clone(), profile.to_owned(), page.to_owned());
        move || {
            let mut command = Command::new(&program);
            command.arg("report").arg(&profile).arg("--html").arg(&page).stdout(Stdio::null());
            command
        }
    };
    let size = |page: &Path| {
        let page = page.to_owned();
        move || {
            let mut command = Command::new("stat");
            command.args(["--format", "size %s B"]).arg(&page);
            command
        }
    };
    let mut cases = vec![
        Case::new("write-1m", Observe::PrivateMemory, write(&million, &pages[0])),
        Case::new("size-1m", Observe::Lines, size(&pages[0])),
        Case::new("browser-1m", Observe::Lines, {
            let page = pages[0].clone();
            move || {
                let mut command = Command::new(&browser);
                command.arg(&page);
                command
            }
        }),
        Case::new("write-10m", Observe::PrivateMemory, write(&ten_million, &pages[1])),
        Case::new("size-10m", Observe::Lines, size(&pages[1])),
    ];
    let figure = |name: &str, unit, case, reading: &str, at_most: Option<f64>| {
        Figure::value(name, unit, Of::new(case, reading), at_most)
    };
    let mut figures = vec![
        figure("a million calls: size", "B", "size-1m", "size", Some(2e6)),
        figure("a million calls: wall time of writing", "ms", "write-1m", "wall", None),
        figure("a million calls: private memory", "KiB", "write-1m", "private", None),
        figure("in a browser, until it is ready", "ms", "browser-1m", "ready", Some(1_000.0)),
        figure("until the timeline is drawn", "ms", "browser-1m", "timeline", None),
        figure("middle frame of the timeline", "ms", "browser-1m", "frame-middle", None),
        figure("longest frame", "ms", "browser-1m", "frame-longest", Some(50.0)),
        figure("heap", "MB", "browser-1m", "heap", Some(150.0)),
        figure("ten million calls: size", "B", "size-10m", "size", Some(4e6)),
        figure(
            "ten million calls: wall time of writing",
            "ms",
            "write-10m",
            "wall",
            Some(10_000.0),
        ),
        figure("ten million calls: processor time", "ms", "write-10m", "cpu-total", None),
        figure(
            "ten million calls: private memory",
            "KiB",
            "write-10m",
            "private",
            Some(1024.0 * 1024.0),
        ),
    ];
    if has_demo {
        cases.push(Case::new("write-demo", Observe::Process, write(&demo, &pages[2])));
        cases.push(Case::new("size-demo", Observe::Lines, size(&pages[2])));
        figures.push(figure("the demo: size", "B", "size-demo", "size", Some(500e3)));
        figures.push(figure("the demo: wall time of writing", "ms", "write-demo", "wall", None));
    }
    let mut notes = vec![
        format!(
            "profiles with {COUNTERS} counters and 4 threads, made by testkit's example big-profile; files in the page cache"
        ),
        "ready: from the navigation of an empty page of a browser that runs; frames are the time of drawing, in software".into(),
    ];
    if !has_demo {
        notes.push("the demo's page was not measured: `cargo xtask demo` makes its profile".into());
    }
    let version = Command::new("chromium").arg("--version").output().context("run chromium")?;
    notes.push(String::from_utf8_lossy(&version.stdout).trim().to_owned());
    Ok(Plan { cases, figures, rounds: ROUNDS, notes })
}

fn example(layout: &Layout, name: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "counterpoint-testkit"]);
    command.args(["--example", name, "--target-dir"]).arg(&layout.target).arg("--");
    command
}
