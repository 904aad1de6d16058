//! `probe`: the hot path alone, from a program of the agent's own that times it against the
//! cheapest conceivable pair (the floor) and the usual one (the peer), all in one process.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::plan::{Case, Figure, Formula, Observe, Of, Plan, USUAL_ROUNDS};
use crate::layout::Layout;
use crate::process::{cargo, output};

/// `N` of the readings `ours.N`, `floor.N` and `peer.N`: software counters in the group.
const GROUPS: [u32; 3] = [1, 3, 5];

pub fn prepare(layout: &Layout) -> Result<Plan> {
    let program = build(layout, "counterpoint-agent", "probe")?;
    let reading = |who: &str, group: u32| Of::new("probe", format!("{who}.{group}"));
    let mut figures = Vec::new();
    for group in GROUPS {
        figures.push(Figure {
            name: format!("ours / floor, {group} counters"),
            unit: "x",
            formula: Formula::Ratio {
                over: reading("ours", group),
                under: reading("floor", group),
            },
            at_most: Some(1.10),
        });
    }
    figures.push(Figure {
        name: "ours - floor, no counters".to_owned(),
        unit: "ns",
        formula: Formula::Difference {
            of: reading("ours", 0),
            minus: reading("floor", 0),
            divide: 1.0,
        },
        at_most: Some(25.0),
    });
    for group in GROUPS {
        figures.push(Figure {
            name: format!("peer / ours, {group} counters"),
            unit: "x",
            formula: Formula::Ratio { over: reading("peer", group), under: reading("ours", group) },
            at_most: None,
        });
    }
    Ok(Plan {
        cases: vec![Case {
            label: "probe",
            command: Box::new(move || Command::new(&program)),
            observe: Observe::Lines,
        }],
        figures,
        rounds: USUAL_ROUNDS,
        notes: vec![
            "floor.N: two raw group reads, two clock reads, one record store; floor.0: two clock reads".into(),
            "peer.N: reset and enable each counter, then disable and read each".into(),
        ],
    })
}

/// Builds a benchmark target and says where it is.
fn build(layout: &Layout, package: &str, bench: &str) -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["bench", "--no-run", "--message-format=json", "--target-dir"]).arg(&layout.target);
    build.args(["--package", package, "--bench", bench]);
    let messages = output(&mut build, &format!("build the benchmark {bench} of {package}"))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == *bench)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo bench of {package}: built no executable {bench}"))
}
