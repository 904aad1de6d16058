//! The statistics of `diff` against numpy and scipy, on random and awkward differences. The interval is
//! judged by inverting scipy's exact Wilcoxon test, and the step-down by a program that goes through all
//! flips with scipy's t.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use analysis::diff::flips::{adjusted_p, paired_t, split_mix, winsorised};
use analysis::diff::ranks::{deviation, hodges_lehmann, interval};

const PROGRAM: &str = include_str!("diff_oracle.py");

fn python() -> Option<PathBuf> {
    let Some(venv) = std::env::var_os("COUNTERPOINT_VENV") else {
        testkit::skip("diff_oracle", "COUNTERPOINT_VENV is not set (cargo xtask test sets it)");
        return None;
    };
    let python = PathBuf::from(venv).join("bin/python");
    let has = Command::new(&python).args(["-c", "import numpy, scipy.stats"]).status();
    if !has.is_ok_and(|status| status.success()) {
        testkit::skip("diff_oracle", &format!("{} has no numpy and scipy", python.display()));
        return None;
    }
    Some(python)
}

#[test]
fn agrees_with_scipy() {
    let Some(python) = python() else { return };
    let mut state = 29;
    let mut uniform = move || split_mix(&mut state) as f64 / 2f64.powi(64);
    let mut cases: Vec<Vec<Vec<f64>>> = Vec::new();
    for case in 0..40 {
        let n = 6 + case % 5;
        let rows = 1 + case % 4;
        let shift = [0.0, 0.02, 0.1, -0.05][case % 4];
        let mut common: Vec<f64> = (0..n).map(|_| uniform() - 0.5).collect();
        if case % 3 == 0 {
            // One pair in which the machine did something else.
            common[0] = 40.0;
        }
        let row = |_| common.iter().map(|c| 0.1 * c + shift + 0.05 * (uniform() - 0.5)).collect();
        cases.push((0..rows).map(row).collect());
    }
    let mut input = String::new();
    for rows in &cases {
        let found = interval(&rows[0], 0.95).expect("at least 6");
        let text = |row: &Vec<f64>| row.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        let all = rows.iter().map(text).collect::<Vec<_>>().join(";");
        writeln!(input, "{all}|{} {}", found.low, found.high).unwrap();
    }
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    drop(stdin);
    let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(output.lines().count(), cases.len());
    for (number, (rows, line)) in cases.iter().zip(output.lines()).enumerate() {
        let expected: Vec<f64> = line.split(' ').map(|v| v.parse().unwrap()).collect();
        let first = &rows[0];
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
        assert!(close(hodges_lehmann(first).unwrap(), expected[0]), "case {number}");
        assert_eq!(expected[1], 1.0, "case {number}: the interval {:?}", interval(first, 0.95));
        assert!(close(paired_t(first), expected[2]), "case {number}: {}", paired_t(first));
        assert!(close(deviation(first).unwrap(), expected[3]), "case {number}");
        let found = adjusted_p(rows);
        for (p, expected) in found.iter().zip(&expected[4..]) {
            assert!(close(*p, *expected), "case {number}: {found:?}, scipy says {expected}");
        }
        assert!(winsorised(first).iter().all(|d| d.abs() <= 40.0));
    }
}
