//! Compares totals of sampled calls with numpy and scipy, if the test environment has them. The
//! numbers must be the same, at least 90 of 100 intervals of 95 % must contain the true total, and
//! the estimates must be right on average.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use analysis::Estimate;
use analysis::sampled::Strata;
use testkit::python;

const ORACLE: &str = include_str!("sampled_oracle.py");

#[derive(Debug, Default)]
struct Draws {
    held: u32,
    /// For each draw: the estimated total minus the true total, divided by the true total.
    errors: Vec<f64>,
}

#[test]
fn intervals_hold_what_is_true() {
    let Some(python) = python::with("sampled_oracle", "numpy, scipy.stats") else { return };
    let output = python::run(&python, ORACLE, "");
    let mut populations: BTreeMap<&str, Draws> = BTreeMap::new();
    for draw in output.split("draw ").skip(1) {
        let (name, lines) = draw.split_once('\n').unwrap();
        let mut strata = Strata::default();
        let (mut calls, mut truth) = (0, 0.0);
        for line in lines.lines() {
            let (what, rest) = line.split_once(' ').unwrap();
            let words: Vec<&str> = rest.split(' ').collect();
            let number = |i: usize| words[i].parse::<f64>().unwrap();
            match what {
                "call" => {
                    strata.skip(words[1].parse().unwrap());
                    strata.add(words[0].parse().unwrap(), number(2));
                }
                "calls" => calls = words[0].parse().unwrap(),
                "truth" => truth = number(0),
                "expect" => {
                    let sum = strata.total(calls).unwrap();
                    let everywhere = Estimate {
                        value: sum.value(),
                        low: f64::NEG_INFINITY,
                        high: f64::INFINITY,
                    };
                    let found = sum.interval().unwrap_or(everywhere);
                    let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-9 * truth.abs();
                    let (below, above) = (found.value - found.low, found.high - found.value);
                    let same = close(found.value, number(0))
                        && close(below, number(1))
                        && close(above, number(2));
                    assert!(same, "{name}: {found:?}, numpy: {rest}");
                    let of = populations.entry(name).or_default();
                    // An exact total has an interval of width 0, so rounding errors need a
                    // tolerance.
                    let room = 1e-12 * truth;
                    let held = found.low - room <= truth && truth <= found.high + room;
                    of.held += u32::from(held);
                    of.errors.push((found.value - truth) / truth);
                }
                other => panic!("{other}"),
            }
        }
    }
    assert_eq!(populations.len(), 7 * 4 + 5);
    for (name, draws) in populations {
        let n = draws.errors.len() as f64;
        assert!(n == 100.0 && draws.held >= 90, "{name}: {} of {n}", draws.held);
        let mean = draws.errors.iter().sum::<f64>() / n;
        let squares: f64 = draws.errors.iter().map(|e| (e - mean).powi(2)).sum();
        let standard_error = (squares / (n - 1.0) / n).sqrt();
        assert!(mean.abs() <= 4.0 * standard_error + 1e-12, "{name}: {mean} ± {standard_error}");
    }
}
