//! Compares quantiles with numpy, if the test environment has it.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use analysis::Durations;

const PROGRAM: &str = "
import sys, numpy
for line in sys.stdin:
    values = numpy.array([int(v) for v in line.split()], dtype=numpy.float64)
    print(*[repr(float(numpy.percentile(values, q))) for q in (0, 1, 25, 50, 75, 99, 99.9, 100)])
";
const PARTS: [f64; 8] = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999, 1.0];

#[test]
fn quantiles_agree_with_numpy() {
    let Some(venv) = std::env::var_os("COUNTERPOINT_VENV") else {
        testkit::skip("quantile_oracle", "COUNTERPOINT_VENV is not set (cargo xtask test sets it)");
        return;
    };
    let python = PathBuf::from(venv).join("bin/python");
    let has_numpy = Command::new(&python).args(["-c", "import numpy"]).status();
    if !has_numpy.is_ok_and(|status| status.success()) {
        testkit::skip("quantile_oracle", &format!("{} has no numpy", python.display()));
        return;
    }
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut cases: Vec<Vec<u64>> = vec![vec![5], vec![3, 3, 3], vec![1, 2], vec![1 << 40, 1]];
    for round in 0..60u64 {
        let largest = [10, 1_000, 1 << 31, 1 << 34, 1 << 50][round as usize % 5];
        cases.push((0..1 + next() % 400).map(|_| next() % largest).collect());
    }
    let mut input = String::new();
    for case in &cases {
        let words: Vec<String> = case.iter().map(u64::to_string).collect();
        writeln!(input, "{}", words.join(" ")).unwrap();
    }
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        std::io::Write::write_all(&mut stdin, input.as_bytes()).unwrap();
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.lines().count(), cases.len());
    for (case, line) in cases.iter().zip(output.lines()) {
        let mut durations = Durations::default();
        case.iter().for_each(|value| durations.push(*value));
        for (part, expected) in PARTS.iter().zip(line.split(' ')) {
            let expected: f64 = expected.parse().unwrap();
            let found = durations.quantile(*part).unwrap();
            let close = (found - expected).abs() <= 1e-9 * expected.abs().max(1.0);
            assert!(close, "{part} of {case:?}: {found}, numpy says {expected}");
        }
    }
}
