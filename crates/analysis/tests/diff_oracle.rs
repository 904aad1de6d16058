//! The statistics of `diff` against numpy and scipy, on random and awkward differences. The interval is
//! judged by inverting scipy's exact Wilcoxon test, and the step-down by a program that goes through all
//! flips with scipy's t.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use analysis::diff::flips::{adjusted_p, paired_t, split_mix, winsorised};
use analysis::diff::ranks::{deviation, hodges_lehmann, interval};

/// Each line has the rows of one case, separated by `;`. Prints the estimate of the first row, whether
/// the interval given after `|` is that of scipy's exact test, t, the deviation, and the adjusted p of
/// all rows.
const PROGRAM: &str = r#"
import itertools, sys, warnings
import numpy as np
from scipy import stats
warnings.simplefilter("ignore")
for line in sys.stdin:
    cases, ends = line.split("|")
    rows = np.array([[float(v) for v in row.split()] for row in cases.split(";")])
    first, n = rows[0], rows.shape[1]
    walsh = [(first[i] + first[j]) / 2 for i in range(n) for j in range(i, n)]
    low, high = (float(v) for v in ends.split())
    step = 1e-7
    def p(shift):
        return stats.wilcoxon(first - shift, method="exact").pvalue
    inside = p(low + step) > 0.05 and p(high - step) > 0.05
    outside = p(low - step) <= 0.05 and p(high + step) <= 0.05
    wins = []
    for row in rows:
        cap = np.sort(np.abs(row))[::-1][n // 4]
        wins.append(np.clip(row, -cap, cap))
    wins = np.array(wins)
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=n)))
    observed = np.abs(stats.ttest_1samp(wins, 0, axis=1).statistic)
    flipped = np.abs(np.array([stats.ttest_1samp(signs * row, 0, axis=1).statistic for row in wins]))
    order = np.argsort(-observed)
    adjusted, before = np.zeros(len(rows)), 0.0
    for k, row in enumerate(order):
        largest = flipped[order[k:]].max(axis=0)
        before = max(before, float(np.mean(largest >= observed[row] * (1 - 1e-9))))
        adjusted[row] = before
    t = abs(stats.ttest_rel(first, np.zeros(n)).statistic)
    print(repr(float(np.median(walsh))), int(inside and outside), repr(float(t)),
          repr(float(np.std(first, ddof=1))), *[repr(float(v)) for v in adjusted])
"#;

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
