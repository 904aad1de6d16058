//! Compares estimates and intervals of loops with numpy and scipy, if the test environment has
//! them. The numbers must be the same, and at least 93 of 100 intervals of 95 % must contain the
//! true time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use analysis::loops::{Estimate, LoopData, LoopTree, identity, loops};
use profile::loops::{LoopModule, LoopRow};
use testkit::python;

const ORACLE: &str = include_str!("loops_oracle.py");

/// Makes a function with one loop.
fn module() -> LoopModule {
    let entry = |id: u32, more: &str| {
        format!(r#"{{"id":{id},{more},"function":"f","height":0,"siblings":0,"text":[1,2]}}"#)
    };
    let entries =
        [entry(0, r#""kind":"function""#), entry(1, r#""kind":"loop","parent":0,"depth":0"#)];
    let table = format!(
        r#"{{"counterpoint_loops":1,"module":"{}","source":"x.ll","mode":"sampled","entries":[{}]}}"#,
        identity(&[0; 16]),
        entries.join(",")
    );
    LoopModule { ids: 2, table: Some(table), ..LoopModule::default() }
}

fn found(tree: &LoopTree, id: u32, what: &str) -> Estimate {
    let times = tree.nodes[id as usize].all.raw.unwrap();
    match what {
        "inclusive" => times.inclusive,
        "self" => times.own.unwrap(),
        "share" => times.share.unwrap(),
        other => panic!("{other}"),
    }
}

#[test]
fn intervals_hold_what_is_true() {
    let Some(python) = python::with("loops_oracle", "numpy, scipy.stats") else { return };
    let output = python::run(&python, ORACLE, "");
    let modules = [module()];
    // For each population and each kind of number: how many intervals contain the true value, and
    // how many intervals there are.
    let mut coverage: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    for draw in output.split("draw ").skip(1) {
        let (name, lines) = draw.split_once('\n').unwrap();
        let mut rows = Vec::new();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        for line in lines.lines().filter(|line| line.starts_with("row ")) {
            let number: Vec<u128> = words(line)[1..].iter().map(|w| w.parse().unwrap()).collect();
            let small = |i: usize| u64::try_from(number[i]).unwrap();
            rows.push(LoopRow {
                id: small(0) as u32,
                tid: small(1) as u32,
                hits: small(2),
                begun: small(3),
                ended: small(4),
                ticks: small(5),
                squares: number[6],
                first_ended: small(7),
                first_ticks: small(8),
                first_squares: number[9],
                child_ticks: small(10),
                ..LoopRow::default()
            });
        }
        let data = LoopData { modules: &modules, rows: &rows, ..LoopData::default() };
        let table = loops(data, &[]);
        for line in lines.lines() {
            let words = words(line);
            match words[0].as_str() {
                "truth" => {
                    let truth: f64 = words[3].parse().unwrap();
                    let estimate = found(&table.modules[0], words[1].parse().unwrap(), &words[2]);
                    let what = (name.to_owned(), format!("{} {}", words[2], words[1]));
                    let (held, of) = coverage.entry(what).or_default();
                    let Some(margin) = estimate.margin else { continue };
                    // An exact estimate has a margin of 0, so rounding errors need a tolerance.
                    let margin = margin + 1e-12 * truth.abs();
                    *held += u32::from((estimate.value - truth).abs() <= margin);
                    *of += 1;
                }
                "expect" => {
                    let expected: f64 = words[2].parse().unwrap();
                    let margin: Option<f64> = words[3].parse().ok();
                    let estimate = found(&table.modules[0], words[1].parse().unwrap(), "inclusive");
                    let close = |a: f64, b: f64| (a - b).abs() <= 1e-8 * b.abs();
                    assert!(
                        close(estimate.value, expected)
                            && estimate.margin.is_some() == margin.is_some()
                            && close(estimate.margin.unwrap_or(0.0), margin.unwrap_or(0.0)),
                        "{name}: {estimate:?}, scipy says {expected} ± {margin:?}"
                    );
                }
                _ => {}
            }
        }
    }
    assert_eq!(coverage.len(), 11 + 4, "{coverage:?}");
    for (what, (held, of)) in coverage {
        let is_stated = what.0 != "nested";
        assert!(if is_stated { of > 80 } else { of == 0 }, "{what:?}: {of}");
        assert!(held * 100 >= 93 * of, "{what:?}: {held} of {of}");
    }
}
