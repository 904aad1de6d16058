//! Checks change points in histories: how often one is found although nothing changed, whether a
//! planted change is found, and whether an independent program (`history_oracle.py`) finds the same
//! change points.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::diff::history::{FEWEST, LEVEL, change_points};
use testkit::python;

/// An xorshift generator. `normal` returns the sum of twelve uniform numbers, minus 6: this is
/// nearly normally distributed.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// Makes rows of times with 2 % of noise. Half of the variance is common to all rows, like the
/// noise of a machine.
fn history(random: &mut Random, rows: usize, points: usize) -> Vec<Vec<f64>> {
    let machine: Vec<f64> = (0..points).map(|_| random.normal()).collect();
    let row = |random: &mut Random, scale: f64| {
        let noise = machine.iter().map(|all| 0.02 * (all + random.normal()) / 2f64.sqrt());
        noise.map(|noise| scale * noise.exp()).collect()
    };
    (0..rows).map(|i| row(random, 1e5 * (i + 1) as f64)).collect()
}

/// With [`LEVEL`], at most 2 of 100 histories without a change have a change point on average. Up
/// to 5 are accepted here, because the number is random.
#[test]
fn a_history_without_a_change_has_no_change_point() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut alarms = 0;
    for round in 0..100 {
        let rows = history(&mut random, 5, 20 + round % 10);
        alarms += usize::from(change_points(&rows).iter().any(|points| !points.is_empty()));
    }
    assert!(alarms <= 5, "{alarms} of 100 at a level of {LEVEL}");
}

/// In each history, one of ten rows takes 5 % more from some point on. At least ten points are on
/// each side of this change.
#[test]
fn a_step_of_5_percent_is_found() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut found, mut held) = (0, 0);
    for round in 0..20 {
        let mut rows = history(&mut random, 10, 40);
        let (row, at) = (round % 10, 10 + round);
        rows[row][at..].iter_mut().for_each(|time| *time *= 1.05);
        let all = change_points(&rows);
        if let [one] = all[row].as_slice() {
            found += usize::from(one.at.abs_diff(at) <= 2);
            held += usize::from(one.interval[0] <= 0.05 && 0.05 <= one.interval[1]);
            assert!(one.interval[0] <= one.change && one.change <= one.interval[1]);
        }
    }
    assert!(found >= 19 && held >= 17, "found {found}, in its interval {held} of 20");
}

#[test]
fn two_steps_are_two_change_points() {
    let mut random = Random(77);
    let mut rows = history(&mut random, 3, 60);
    rows[1][20..40].iter_mut().for_each(|time| *time *= 1.2);
    let all = change_points(&rows);
    let [up, down] = all[1].as_slice() else { panic!("{all:?}") };
    assert!(up.at.abs_diff(20) <= 1 && down.at.abs_diff(40) <= 1, "{all:?}");
    assert!((up.change - 0.2).abs() < 0.03 && (down.change + 1.0 / 6.0).abs() < 0.03, "{all:?}");
}

#[test]
fn what_cannot_be_tested_has_none() {
    let step: Vec<f64> = (0..FEWEST - 1).map(|i| if i < 4 { 1.0 } else { 2.0 }).collect();
    assert_eq!(change_points(&[step]), [[]]);
    assert_eq!(change_points(&[vec![3.0; 30]]), [[]]);
    assert!(change_points(&[]).is_empty());
    // Without noise, the position and the size of the step are found exactly.
    let step: Vec<f64> = (0..20).map(|i| if i < 8 { 1.0 } else { 2.0 }).collect();
    let [one] = change_points(&[step])[0].clone().try_into().unwrap();
    assert_eq!((one.at, one.interval), (8, [1.0, 1.0]));
    assert!((one.change - 1.0).abs() < 1e-12);
}

#[test]
fn numpy_finds_the_same() {
    let Some(python) = python::with("history", "json") else { return };
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut histories = Vec::new();
    for round in 0..12usize {
        let mut rows = history(&mut random, 3, 24);
        // One row of each history has a step of 0 % to 5 %, so some steps are invisible and others
        // obvious.
        let step = 1.0 + 0.01 * (round % 6) as f64;
        rows[round % 3][12..].iter_mut().for_each(|time| *time *= step);
        histories.push(rows);
    }
    let text = serde_json::to_string(&histories).unwrap();
    let output = python::run(&python, include_str!("history_oracle.py"), &text);
    let theirs: Vec<(usize, usize, f64, f64)> = serde_json::from_str(&output).unwrap();
    let mut seen = [0, 0];
    for (rows, (row, at, _, p)) in histories.iter().zip(theirs) {
        let ours = change_points(rows);
        // The oracle and Counterpoint compute p from different random orders of the points. So only
        // results with a p far from [`LEVEL`] are compared.
        if p < LEVEL / 3.0 {
            let first = ours[row].iter().find(|one| one.at == at);
            assert!(first.is_some_and(|one| one.p <= 2.0 * LEVEL), "{row} {at} {p}: {ours:?}");
            seen[0] += 1;
        } else if p > LEVEL * 3.0 {
            assert!(ours.iter().all(Vec::is_empty), "{p}: {ours:?}");
            seen[1] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n >= 2), "{seen:?}");
}
