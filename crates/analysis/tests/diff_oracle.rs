//! Compares the statistics of `diff` with numpy and scipy, on random differences, some of which
//! contain an outlier. `diff_oracle.py` checks the ends of each interval with scipy's exact
//! Wilcoxon test. It computes the expected p-values of the step-down procedure from scipy's t for
//! every combination of flipped signs.

use std::fmt::Write;

use analysis::diff::flips::{adjusted_p, paired_t, split_mix, winsorised};
use analysis::diff::ranks::{deviation, hodges_lehmann, interval};
use testkit::python;

const PROGRAM: &str = include_str!("diff_oracle.py");

#[test]
fn agrees_with_scipy() {
    let Some(python) = python::with("diff_oracle", "numpy, scipy.stats") else { return };
    let mut state = 29;
    let mut uniform = move || split_mix(&mut state) as f64 / 2f64.powi(64);
    let mut cases: Vec<Vec<Vec<f64>>> = Vec::new();
    for case in 0..40 {
        let n = 6 + case % 5;
        let rows = 1 + case % 4;
        let shift = [0.0, 0.02, 0.1, -0.05][case % 4];
        let mut common: Vec<f64> = (0..n).map(|_| uniform() - 0.5).collect();
        if case % 3 == 0 {
            // One pair is far off, as if the machine had been disturbed.
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
    let output = python::run(&python, PROGRAM, &input);
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
