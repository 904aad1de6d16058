//! Benchmarks of datasets with many ranks: `dataset-export` measures adding a recording to a
//! dataset, `dataset-merge` measures merging and reading a thousand ranks, and `dataset-query`
//! measures SQL queries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::plan::{Case, Figure, Observe, Of, Plan, USUAL_ROUNDS};
use crate::dist;
use crate::layout::Layout;
use crate::process::{cargo, output};

const RANKS: u32 = 1_000;
/// The number of calls of each rank.
const CALLS: u32 = 1_000_000;
/// The number of ops of each rank.
const OPS: u32 = 200;
/// The number of ranks in `dataset-query` that have a row for each call. These rows take 13 MB per
/// rank.
const RANKS_WITH_CALLS: u32 = 100;
const COUNTERS: u32 = 2;
/// The number of rounds for programs that take up to half a minute.
const FEW_ROUNDS: usize = 10;
const MIB: f64 = 1024.0;

/// For each recording: the names of its cases, and its number of calls.
const RECORDINGS: [([&str; 2], u32); 2] =
    [(["1m", "1m-calls"], 1_000_000), (["10m", "10m-calls"], 10_000_000)];

pub fn export(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let folder = layout.bench()?;
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for ([sums, with_calls], calls) in RECORDINGS {
        let profile = folder.join(format!("dataset-{sums}.cpt"));
        remove(&profile)?;
        let mut generate = cargo();
        generate.args(["run", "--release", "--package", "counterpoint-testkit"]);
        generate.args(["--example", "big-profile", "--target-dir"]).arg(&layout.target).arg("--");
        generate.arg(&profile).args([calls, COUNTERS].map(|n| n.to_string()));
        output(&mut generate, "make a profile of many calls")?;
        for (label, option) in [(sums, None), (with_calls, Some("--calls"))] {
            let (program, profile) = (program.clone(), profile.clone());
            let dataset = folder.join(format!("dataset-{label}"));
            // With `--goes-on`, `export` adds to the dataset as `run --dataset` does while the
            // profiled program still runs.
            cases.push(Case::new(label, Observe::PrivateMemory, move || {
                let _ = fs::remove_dir_all(&dataset);
                let mut command = Command::new(&program);
                command.arg("export").arg(&profile).arg("--dataset").arg(&dataset);
                command.args(["--goes-on", "--run", "r", "--rank", "0"]).args(option);
                command.stdout(Stdio::null());
                command
            }));
            let calls = if option.is_some() { ", with rows of calls" } else { "" };
            let of = format!("{} million calls{calls}", calls_in_millions(label));
            let figure = |what: &str, unit, reading: &str| {
                Figure::value(format!("{of}: {what}"), unit, Of::new(label, reading), None::<f64>)
            };
            figures.push(figure("wall time", "ms", "wall"));
            figures.push(figure("processor time", "ms", "cpu-total"));
            figures.push(figure("highest private memory", "KiB", "private"));
            figures.push(figure("highest memory, with mapped files", "KiB", "max-rss"));
        }
    }
    let notes = vec![format!(
        "profiles with {COUNTERS} counters and 4 threads, made by testkit's example big-profile; each export makes a new dataset, as the first export of `run --dataset` does; files in the page cache"
    )];
    Ok(Plan { cases, figures, rounds: USUAL_ROUNDS, notes })
}

fn calls_in_millions(label: &str) -> &str {
    label.split_once('m').map_or(label, |(millions, _)| millions)
}

pub fn merge(layout: &Layout) -> Result<Plan> {
    let program = dist::release(layout)?.program();
    let many = ranks(layout, "many-ranks", 0)?;
    let merged = layout.bench()?.join("many-ranks-merged");
    let cases = vec![
        Case::new("merge", Observe::PrivateMemory, {
            let (program, many) = (program.clone(), many.clone());
            move || {
                let _ = fs::remove_dir_all(&merged);
                let mut command = Command::new(&program);
                command.arg("merge").arg("-o").arg(&merged).arg(&many).stdout(Stdio::null());
                command
            }
        }),
        Case::new("report", Observe::PrivateMemory, move || {
            let mut command = Command::new(&program);
            command.arg("report").arg(&many).stdout(Stdio::null());
            command
        }),
    ];
    let figures = vec![
        Figure::value("merge: wall time", "ms", Of::new("merge", "wall"), 30_000.0),
        Figure::value("merge: memory", "KiB", Of::new("merge", "max-rss"), 512.0 * MIB),
        Figure::value("report: wall time", "ms", Of::new("report", "wall"), None::<f64>),
        Figure::value("report: memory", "KiB", Of::new("report", "max-rss"), None::<f64>),
    ];
    Ok(Plan { cases, figures, rounds: FEW_ROUNDS, notes: vec![about(0)] })
}

/// The name, the arguments and the target in ms of each query.
const QUERIES: [(&str, &[&str], Option<f64>); 4] = [
    ("totals", &["--kept", "totals", "--memory", "512M"], Some(60_000.0)),
    ("quantiles", &["--kept", "quantiles", "--memory", "512M"], Some(5_000.0)),
    (
        "totals-of-calls",
        &[
            "SELECT op_key, count(*), sum(duration_ns) FROM calls GROUP BY op_key",
            "--memory",
            "512M",
        ],
        None,
    ),
    // A million groups need more memory than `--memory` allows here, so the query uses temporary
    // files.
    (
        "temporary-files",
        &[
            "SELECT max(ns) FROM (SELECT start_unix_ns, thread, sum(duration_ns) AS ns FROM calls \
             WHERE rank = 0 GROUP BY start_unix_ns, thread)",
            "--memory",
            "16M",
        ],
        None,
    ),
];

pub fn query(layout: &Layout) -> Result<Plan> {
    let engine = dist::query_release(layout)?;
    let many = ranks(layout, "many-ranks-with-calls", RANKS_WITH_CALLS)?;
    let (mut cases, mut figures) = (Vec::new(), Vec::new());
    for (label, arguments, most_ms) in QUERIES {
        let (engine, many) = (engine.clone(), many.clone());
        cases.push(Case::new(label, Observe::Process, move || {
            let mut command = Command::new(&engine);
            command.arg("--dataset").arg(&many).args(arguments).args(["--format", "csv"]);
            command
        }));
        let figure = |what: &str, unit, reading: &str, at_most: Option<f64>| {
            Figure::value(format!("{label}: {what}"), unit, Of::new(label, reading), at_most)
        };
        figures.push(figure("wall time", "ms", "wall", most_ms));
        figures.push(figure("processor time", "ms", "cpu-total", None));
        figures.push(figure("memory", "KiB", "max-rss", Some(1024.0 * MIB)));
    }
    let notes = vec![
        about(RANKS_WITH_CALLS),
        "counterpoint-query as it is built for users; --memory 512M, and 16M for temporary-files, which groups a million calls into a million groups".into(),
    ];
    Ok(Plan { cases, figures, rounds: FEW_ROUNDS, notes })
}

/// Makes a dataset, and returns its path. Its first `with_calls` ranks also have a row for each
/// call.
fn ranks(layout: &Layout, name: &str, with_calls: u32) -> Result<PathBuf> {
    let folder = layout.bench()?.join(name);
    remove(&folder)?;
    let mut generate = cargo();
    generate.args(["run", "--release", "--package", "counterpoint-dataset"]);
    generate.args(["--example", "scale", "--target-dir"]).arg(&layout.target).arg("--");
    generate.arg("--make").arg(&folder);
    generate.args([RANKS, CALLS, OPS, with_calls].map(|n| n.to_string()));
    output(&mut generate, "make a dataset of many ranks")?;
    Ok(folder.join("many"))
}

fn about(with_calls: u32) -> String {
    let calls = match with_calls {
        0 => "no rank has rows of calls".to_owned(),
        n => format!("the first {n} ranks have rows of calls"),
    };
    format!(
        "a dataset of {RANKS} ranks with {CALLS} calls of {OPS} ops each, made by dataset's example scale; {calls}; files in the page cache as far as it holds them"
    )
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
