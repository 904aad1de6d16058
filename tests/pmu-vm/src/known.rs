//! Tests compensated counts: counts from which the report has subtracted the count of an empty
//! call. The functions of the program `c/known.c` execute known numbers of instructions, from 10 to
//! 1,000,000.
//!
//! An empty call itself executes two instructions, which set its result and return. So two
//! instructions of each function are subtracted, too.

use std::path::Path;
use std::process::Command;

use analysis::Estimate;
use analysis::table::Key;
use profile::Profile;

use crate::agent::{self, Left};
use crate::report::tests;
use crate::user::user_access;

tests![
    known:
    counts_are_exact_by_reads,
    counts_are_exact_in_user_mode,
    counts_under_a_budget,
    estimates_under_a_budget,
];

const FUNCTIONS: [(&str, u64); 6] = [
    ("take_20", 20),
    ("take_100", 100),
    ("take_1000", 1_000),
    ("take_10000", 10_000),
    ("take_100000", 100_000),
    ("take_1000000", 1_000_000),
];
/// The index of `take_any`, whose calls differ in their number of instructions.
const ANY: usize = 6;
const EMPTY: u64 = 2;
const RUNS: u64 = 100;

struct Found {
    name: String,
    calls: u64,
    /// The number of calls in which counters were read.
    counted: u64,
    /// The compensated total.
    total: Option<Estimate>,
    /// Whether the total has a confidence interval, or needs none because all calls were counted.
    is_bounded: bool,
}

fn op_name(profile: &Profile, key: Key) -> String {
    let Key::Op(id) = key else { panic!("{key:?} is not an op") };
    profile.ops.get(id).expect("the op of a row").name.clone()
}

/// Runs the program, and returns what the report says about each function. Each element of `calls`
/// has the index of a function, and how often to call it.
fn run(name: &str, budget: Option<f64>, calls: &[(usize, u64)]) -> Vec<Found> {
    let mut command = Command::new("/bin/known");
    command.arg("/lib/known.so");
    command.args(
        calls
            .iter()
            .flat_map(|(function, calls)| [*function as u64, *calls])
            .map(|n| n.to_string()),
    );
    let Left { profile: path, output } = agent::record_with(name, &mut command, None, budget);
    assert!(output.status.success(), "{output:?}");
    let profile = Profile::open(Path::new(&path)).expect("open the profile");
    let summary =
        analysis::summarize(&profile, &analysis::Options { workers: 1, ..Default::default() });
    assert_eq!(summary.losses.iter().map(|loss| &loss.name).collect::<Vec<_>>(), [""; 0]);
    let mut found: Vec<Found> = summary
        .rows
        .iter()
        .map(|row| {
            let counter = row.counters[0].as_ref();
            let calibrated = counter.is_none_or(|counter| counter.brackets.is_some());
            assert!(calibrated, "empty calls were calibrated");
            let sampled = row.sampled.as_ref().and_then(|sampled| sampled.counters[0]);
            Found {
                name: op_name(&profile, row.key),
                calls: row.calls,
                counted: sampled.map_or(row.calls, |sampled| sampled.counted),
                total: counter.map(|counter| counter.value),
                is_bounded: sampled.is_none_or(|sampled| sampled.total.interval.is_some()),
            }
        })
        .collect();
    found.sort_by_key(|row| row.name.clone());
    std::fs::remove_dir_all(&path).expect("remove the profile");
    found
}

/// Checks that in at least 80 % of the cases (a case is one function in one process), the mean per
/// call is exactly the function's number of instructions minus two. In the other cases, a reading
/// took another number of instructions than in the calibration. In measurements, these were 0 to 6
/// of 102 cases. Once, most functions of one process differed by 18 instructions, for an unknown
/// reason. The test allows three such processes of seventeen.
fn exact(name: &str) {
    let calls: Vec<(usize, u64)> = (0..FUNCTIONS.len()).map(|function| (function, 20)).collect();
    let (mut held, mut cases) = (0, 0);
    while cases < RUNS {
        let found = run(name, None, &calls);
        assert_eq!(found.len(), FUNCTIONS.len());
        for (op, instructions) in FUNCTIONS {
            let row = found.iter().find(|row| row.name == op).expect("each function has a row");
            let mean = row.total.expect("an interval").times(1.0 / row.calls as f64);
            let more = mean.value - (instructions - EMPTY) as f64;
            let is_right = more.abs() < 1e-6 && mean.is_exact();
            held += u64::from(is_right);
            cases += 1;
            if !is_right {
                println!("{op}: {mean:?}");
            }
        }
    }
    println!("{held} of {cases} means are exact");
    assert!(10 * held >= 8 * cases, "{held} of {cases}");
}

fn counts_are_exact_by_reads() {
    user_access(false);
    exact("known-reads");
}

fn counts_are_exact_in_user_mode() {
    user_access(true);
    exact("known-user");
}

/// All calls of a function are alike, so an estimate is right even if few calls were measured and
/// the table has no interval.
fn counts_under_a_budget() {
    for user in [false, true] {
        user_access(user);
        let calls = [(0, 100_000), (1, 100_000), (2, 20_000), (3, 2_000), (4, 200), (5, 20)];
        let (mut more, mut drawn, mut held) = (Vec::new(), 0, 0);
        for _ in 0..5 {
            for row in run("known-budget", Some(0.5), &calls) {
                let (_, instructions) =
                    FUNCTIONS.into_iter().find(|(op, _)| *op == row.name).expect("its name");
                drawn += u64::from(row.counted < row.calls);
                let Some(total) = row.total else { continue };
                let mean = total.times(1.0 / row.calls as f64);
                let truth = (instructions - EMPTY) as f64;
                let is_inside = mean.high - truth > -1e-6 && mean.low - truth < 1e-6;
                held += usize::from(is_inside);
                if !is_inside {
                    println!("{}: {mean:?}", row.name);
                }
                more.push(mean.value - truth);
            }
        }
        println!("user {user}: of 30 totals, {} were stated, {drawn} were drawn", more.len());
        println!("instructions too many: {more:?}");
        assert!(more.len() > 10 && drawn > 5, "{} {drawn}", more.len());
        // The totals of a few processes may be wrong, as in [`exact`].
        assert!(10 * held >= 7 * more.len(), "{held} of {}", more.len());
    }
}

/// Returns the number of instructions of a call of `take_any`, as `known.c` defines it.
fn of_any(workgroup: u64) -> u64 {
    let mixed = (workgroup as u32).wrapping_mul(0x9e37_79b1);
    2 * (u64::from(mixed >> 22) + 1) + 8
}

/// The calls of `take_any` differ in their numbers of instructions, by factors of up to about 200.
/// The estimates are right on average. With thousands of measured calls, there is an interval,
/// which almost always contains the total.
fn estimates_under_a_budget() {
    const CALLS: u64 = 20_000;
    user_access(true);
    let mut errors = Vec::new();
    for _ in 0..RUNS {
        let (row, truth) = estimated(CALLS);
        assert!((50..CALLS / 2).contains(&row.counted), "{} calls were counted", row.counted);
        errors.push(row.total.expect("a total").value / truth - 1.0);
    }
    let n = RUNS as f64;
    let mean = errors.iter().sum::<f64>() / n;
    let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
    let standard_error = (squares / (n - 1.0) / n).sqrt();
    println!("mean error {mean:.5}, standard error {standard_error:.5}");
    assert!(mean.abs() < 5.0 * standard_error, "{mean} ± {standard_error}");

    // In the following runs, about one of 270 calls is measured. Because measured calls have
    // different weights, each counts as only 0.6 to 1 call. An interval needs 2,000 calls that are
    // counted in this way.
    const LONG: u64 = 2;
    const MANY: u64 = 80 * CALLS;
    let mut held = 0;
    for _ in 0..LONG {
        let (row, truth) = estimated(MANY);
        let total = row.total.expect("a total");
        println!("{} of {MANY} calls were counted: {truth} in {total:?}", row.counted);
        assert!(row.is_bounded, "no interval with {} counted calls", row.counted);
        held += u64::from(total.contains(truth));
    }
    println!("{held} of {LONG} intervals hold the total");
    // On average, 5 of 100 intervals do not contain the total. So in one of 400 runs of this test,
    // neither of its two intervals contains the total.
    assert!(held >= 1, "none of {LONG}");
}

/// Returns the row of `take_any`, and the true number of instructions.
fn estimated(calls: u64) -> (Found, f64) {
    let truth = (0..calls).map(|workgroup| of_any(workgroup) - EMPTY).sum::<u64>() as f64;
    let mut rows = run("known-any", Some(1.0), &[(ANY, calls)]);
    assert_eq!(rows.len(), 1, "one function");
    let row = rows.remove(0);
    assert_eq!((row.name.as_str(), row.calls), ("take_any", calls));
    (row, truth)
}
