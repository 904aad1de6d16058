//! `plugin`: measures the cost of an event that a profiler plugin hands to its host. A plugin in C
//! (`tests/programs/plugins/price.c`) measures the time per event of the host's trace builder, of a
//! mere copy of the same bytes (the floor), and of writing Chrome's JSON with `fprintf`, as Kineto
//! does. Then `counterpoint plugin run` records a plugin with a million events and one with a
//! single event. The difference between the times of these two recordings is the cost of moving
//! events into the profile.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output};

const EVENTS: u32 = 1_000_000;
/// For each kind of event: its name in the readings, its name in the result, and the target in ns.
const KINDS: [(&str, &str, Option<f64>); 4] = [
    ("named", "an event with a name", Some(60.0)),
    ("flow", "… and a flow", None),
    ("metadata", "an event with a name and two pairs of metadata", None),
    ("all", "… and a flow", None),
];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = dist::given(layout)?.program();
    let scratch = layout.bench()?;
    let price = compile(layout, "price.c", &scratch.join("price.so"), "-DPRICE")?;
    let million = compile(layout, "odd.c", &scratch.join("million.so"), "-DEVENTS=1000000")?;
    let none = compile(layout, "odd.c", &scratch.join("none.so"), "-DEVENTS=1")?;
    let host = match std::env::var_os("COUNTERPOINT_PRICE") {
        Some(host) => PathBuf::from(host),
        None => {
            let mut build = cargo();
            build.args(["build", "--quiet", "--release", "--example", "price", "--target-dir"]);
            build.arg(&layout.target).args(["--package", "counterpoint-plugin-host"]);
            output(&mut build, "build the host that the plugin measures")?;
            layout.target.join("release/examples/price")
        }
    };

    let record = |label: &'static str, plugin: PathBuf| {
        let program = program.clone();
        let profile = PathBuf::from("/dev/shm").join(format!("counterpoint-bench-{label}.cpt"));
        Case::new(label, Observe::Process, move || {
            let _ = std::fs::remove_dir_all(&profile);
            let mut command = Command::new(&program);
            command.args(["plugin", "run", "--for", "1ms", "-o"]).arg(&profile).arg(&plugin);
            command.stderr(Stdio::null());
            command
        })
    };
    let cases = vec![
        Case::new("events", Observe::Lines, move || {
            let mut command = Command::new(&host);
            command.arg(&price).stderr(Stdio::null());
            command
        }),
        record("million", million),
        record("none", none),
    ];
    let mut figures = Vec::new();
    for (kind, what, at_most) in KINDS {
        let of = |who: &str| Of::new("events", format!("{who}.{kind}"));
        figures.push(Figure::value(what, "ns", of("builder"), at_most));
        figures.push(Figure::value(
            format!("{kind}: a copy of the bytes"),
            "ns",
            of("floor"),
            None,
        ));
        figures.push(Figure::ratio(
            format!("{kind}: over fprintf of Chrome's JSON"),
            "",
            of("builder"),
            of("fprintf"),
            Some(1.0),
        ));
    }
    let wall = |case| Of::new(case, "wall");
    figures.push(Figure::difference(
        "a million events into a profile",
        "ms",
        wall("million"),
        wall("none"),
        Some(500.0),
    ));
    Ok(Plan {
        cases,
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "price.c hands over batches of 20,000 events in turn with its floor and its peer, all on \
             one thread; events go through the writer of streams to /dev/null"
                .into(),
            format!(
                "a million: wall time of `plugin run` with {EVENTS} kernels of three names, minus that \
                 with one event; the profile is on tmpfs"
            ),
        ],
    })
}

fn compile(layout: &Layout, source: &str, to: &Path, flag: &str) -> Result<PathBuf> {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O2", "-fPIC", "-shared", flag, "-I"]);
    compiler.arg(layout.root.join("include")).arg("-o").arg(to);
    compiler.arg(layout.root.join("tests/programs/plugins").join(source));
    output(&mut compiler, &format!("compile {source}"))?;
    Ok(to.to_owned())
}
