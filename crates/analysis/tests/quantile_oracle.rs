//! Compares quantiles with numpy, if the test environment has it.

use std::fmt::Write;

use analysis::Durations;
use testkit::{Random, python};

const PROGRAM: &str = "
import sys, numpy
for line in sys.stdin:
    values = numpy.array([int(v) for v in line.split()], dtype=numpy.float64)
    print(*[repr(float(numpy.percentile(values, q))) for q in (0, 1, 25, 50, 75, 99, 99.9, 100)])
";
const PARTS: [f64; 8] = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999, 1.0];

#[test]
fn quantiles_agree_with_numpy() {
    let Some(python) = python::with("quantile_oracle", "numpy") else { return };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut next = move || random.next();
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
    let output = python::run(&python, PROGRAM, &input);
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
