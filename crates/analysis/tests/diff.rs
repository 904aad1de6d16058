//! Tests the comparison of runs: on simulated runs that scatter as real runs do, and on small runs
//! for which the expected results were computed on paper.

use analysis::diff::counters::Known;
use analysis::diff::flips::split_mix;
use analysis::diff::matching::Relation;
use analysis::diff::recorded::{By, Identity, Reading, Recorded, RunRow};
use analysis::diff::verdict::Verdict;
use analysis::diff::{Diff, Options, Statistic, Untested, compare};
use analysis::{Estimate, Estimated};

const OPTIONS: Options = Options { by: By::Op, threshold: 0.03 };

struct Random(u64);

impl Random {
    /// Returns a number in (0, 1).
    fn uniform(&mut self) -> f64 {
        (split_mix(&mut self.0) >> 11) as f64 / 2f64.powi(53) + 2f64.powi(-54)
    }

    /// Returns a number from the standard normal distribution, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// One op with 200 dispatches of 4 workgroups. Both the fastest dispatch and the 10 % quantile take
/// `floor` ns.
fn row(name: &str, floor: f64, typical: f64, mean: f64) -> RunRow {
    RunRow {
        identity: Identity { name: name.to_owned(), ..Identity::default() },
        calls: 800,
        dispatches: Some(200),
        total_ns: Some(200.0 * mean),
        own_ns: Some(200.0 * mean),
        call_min_ns: Some(floor / 4.0),
        dispatch_min_ns: Some(floor),
        call_p10_ns: Some(floor / 4.0),
        dispatch_p10_ns: Some(floor),
        dispatch_p50_ns: Some(typical),
        ..RunRow::default()
    }
}

fn run(rows: Vec<RunRow>) -> Recorded {
    let total_ns = rows.iter().map(|row| row.own_ns).sum();
    Recorded { rows, total_ns, ..Recorded::default() }
}

/// How much the values of runs scatter, as measured in the study (docs/diff.md). `common`, `floor`,
/// `typical` and `mean` are coefficients of variation. One random factor (`common`) applies to all
/// ops of a run. `lasting` is its correlation with the factor of the previous run, because
/// frequencies of the processor last for several runs. Each statistic of each op has additional
/// scatter.
#[derive(Clone, Copy)]
struct Spread {
    common: f64,
    lasting: f64,
    floor: f64,
    typical: f64,
    /// The probability that an op's median is slow in a run, and the factor by which it is slower
    /// then.
    slow: (f64, f64),
    mean: f64,
    /// The scatter of an op's fastest call, and the probability that all calls of the op in a run
    /// are disturbed, so that the fastest call takes up to 10 % longer.
    fastest: (f64, f64),
}

const QUIET: Spread = Spread {
    common: 0.025,
    lasting: 0.65,
    floor: 0.015,
    typical: 0.02,
    slow: (0.0, 1.0),
    mean: 0.05,
    fastest: (0.015, 0.0),
};
const BUSY: Spread = Spread { slow: (0.3, 1.25), typical: 0.05, mean: 0.5, floor: 0.018, ..QUIET };
/// Runs of 1.3 s on a virtual processor that shares its core with other machines: calls take 22 or
/// 30 µs, and keep this duration for a tenth of a second or for a whole run.
const SHARED: Spread = Spread {
    common: 0.0,
    lasting: 0.0,
    floor: 0.09,
    typical: 0.12,
    slow: (0.3, 1.2),
    mean: 0.15,
    fastest: (0.003, 0.15),
};

const OPS: usize = 6;
const BASE: [f64; OPS] = [400e3, 250e3, 90e3, 40e3, 12e3, 5e3];

/// Simulates a series of pairs of runs (A and B in random order), and compares A with B. In B, the
/// time of the first op is multiplied by `factor`.
fn series(random: &mut Random, spread: Spread, pairs: usize, factor: f64) -> Diff {
    let mut level = random.normal();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        let b_first = random.uniform() < 0.5;
        for position in 0..2 {
            let is_b = (position == 0) == b_first;
            let keep = spread.lasting;
            level = keep * level + (1.0 - keep * keep).sqrt() * random.normal();
            let common = (spread.common * level).exp();
            let rows = (0..OPS).map(|op| {
                let planted = if is_b && op == 0 { factor } else { 1.0 };
                let base = BASE[op] * common * planted;
                let floor = base * (spread.floor * random.normal()).exp();
                let slow = if random.uniform() < spread.slow.0 { spread.slow.1 } else { 1.0 };
                let typical = 1.05 * base * slow * (spread.typical * random.normal()).exp();
                let mean = 1.1 * base * (spread.mean * random.normal()).exp();
                let (scatter, disturbed) = spread.fastest;
                let is_disturbed = random.uniform() < disturbed;
                let all = if is_disturbed { 1.0 + 0.1 * random.uniform() } else { 1.0 };
                let fastest = 0.97 * base * all * (scatter * random.normal()).exp();
                RunRow {
                    call_min_ns: Some(fastest / 4.0),
                    dispatch_min_ns: Some(fastest),
                    ..row(&format!("op_{op}"), floor, typical, mean)
                }
            });
            let run = run(rows.collect());
            if is_b { b.push(run) } else { a.push(run) }
        }
    }
    let in_pairs: Vec<(usize, usize)> = (0..pairs).map(|pair| (pair, pair)).collect();
    compare(&a, &b, &in_pairs, &OPTIONS)
}

/// Returns the names of the rows that are reported to differ, and `whole` if whole runs differ.
fn differing(diff: &Diff) -> Vec<String> {
    let rows = diff.rows.iter().filter(|row| row.verdict.change().is_some());
    let rows = rows.map(|row| row.identity().map_or(String::new(), |one| one.name.clone()));
    let whole = diff.whole.verdict.change().map(|_| "whole".to_owned());
    rows.chain(whole).collect()
}

#[test]
fn equal_programs_get_no_verdict_of_difference() {
    for (spread, seed) in [(QUIET, 1), (BUSY, 2), (SHARED, 3)] {
        let mut random = Random(seed);
        let silent = (0..200)
            .filter(|_| differing(&series(&mut random, spread, 10, 1.0)).is_empty())
            .count();
        assert!(silent >= 188, "{silent} of 200 comparisons of equal programs without a verdict");
    }
}

/// On a quiet machine, the study (docs/diff.md) found 55 to 86 % of the differences of 3 % with 10
/// pairs, and at least 94 % with 20 pairs.
#[test]
fn planted_slowdowns_are_found_where_they_are() {
    for (factor, pairs, spread, least) in [
        (1.05, 10, QUIET, 51),
        (1.03, 20, QUIET, 55),
        (1.05, 20, BUSY, 51),
        (1.2, 6, QUIET, 51),
        // If the fastest calls were not compared, two or three of the 60 slowdowns would be found.
        (1.05, 10, SHARED, 36),
        (1.03, 20, SHARED, 45),
    ] {
        let mut random = Random(7);
        let (mut found, mut elsewhere) = (0, 0);
        for _ in 0..60 {
            let diff = series(&mut random, spread, pairs, factor);
            let at = |row: &str| differing(&diff).iter().any(|name| name == row);
            let slower = |row: usize| diff.rows[row].verdict.change().is_some_and(|c| c.by > 0.0);
            found += usize::from(at("op_0") && slower(0));
            elsewhere += usize::from((1..OPS).any(|op| at(&format!("op_{op}"))));
        }
        assert!(found >= least, "{factor} with {pairs} pairs: found in {found} of 60");
        assert!(elsewhere <= 6, "{factor} with {pairs} pairs: elsewhere in {elsewhere} of 60");
    }
}

#[test]
fn intervals_hold_the_truth() {
    let mut random = Random(3);
    let held = (0..200).filter(|_| {
        let diff = series(&mut random, QUIET, 10, 1.05);
        let floor = diff.rows[0].of(Statistic::Floor).and_then(|one| one.interval).unwrap();
        floor[0] <= 0.05 && 0.05 <= floor[1]
    });
    let held = held.count();
    // About 190 of the 200 intervals are expected to contain the true change. By chance, up to 9
    // fewer (three standard deviations) may contain it.
    assert!(held >= 181, "{held} of 200 intervals of 95 %");
}

/// Makes six pairs. The changed op takes exactly `factor` times as long in B.
fn exact_pairs(factor: f64) -> (Vec<Recorded>, Vec<Recorded>, Vec<(usize, usize)>) {
    let of = |pair: usize, factor: f64| {
        let base = 1_000.0 * (1.0 + 0.01 * pair as f64);
        run(vec![
            row("changed", factor * base, factor * base, 2.0 * factor * base),
            row("same", base, base, base),
        ])
    };
    let a = (0..6).map(|pair| of(pair, 1.0)).collect();
    let b = (0..6).map(|pair| of(pair, factor)).collect();
    (a, b, (0..6).map(|pair| (pair, pair)).collect())
}

#[test]
fn parts_and_remainder_add_up_to_the_difference() {
    let (a, b, pairs) = exact_pairs(1.1);
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let changed = diff.rows[0].verdict.change().unwrap();
    assert!((changed.by - 0.1).abs() < 1e-12 && !changed.floor_unchanged);
    assert_eq!(diff.rows[1].verdict, Verdict::Same(0.03));
    // The mean of `base` over the pairs is 1,025. An execution of the changed op takes 102.5 ns
    // more in B, so 200 executions take 20,500 ns more. The op's total recorded time increases by
    // twice that, because its mean is twice its typical time.
    let part = |row: usize| diff.rows[row].part.unwrap().ns;
    assert!((part(0) - 20_500.0).abs() < 1e-6, "{}", part(0));
    assert_eq!(part(1), 0.0);
    let whole = &diff.whole;
    assert!((whole.explained.unwrap().ns - 20_500.0).abs() < 1e-6);
    assert!((whole.remainder.unwrap().ns - 20_500.0).abs() < 1e-6);
    let differences: f64 =
        a.iter().zip(&b).map(|(a, b)| b.total_ns.unwrap() - a.total_ns.unwrap()).sum::<f64>() / 6.0;
    let sum = whole.explained.unwrap().ns + whole.remainder.unwrap().ns;
    assert!((differences - sum).abs() < 1e-6);
    // In A, typical executions of both ops take the same time. In B, one of the ops takes 10 %
    // more, so all ops together take 5 % more.
    assert!((whole.verdict.change().unwrap().by - 0.05).abs() < 1e-12);
}

/// A runs an op 1,000 times for 1,000 ns and 100 times for 100,000 ns. B does not run the short
/// ones, so its typical execution takes 100 times as long, but a run takes 1 ms less.
#[test]
fn fewer_executions_are_compared_by_their_sum() {
    let of = |pair: usize, is_b: bool| {
        let base = 1.0 + 0.01 * pair as f64;
        let [short, long] = [1_000.0, 100_000.0].map(|ns| base * ns);
        let typical = if is_b { long } else { short };
        let n = if is_b { 100 } else { 1_100 };
        let own = 100.0 * long + if is_b { 0.0 } else { 1_000.0 * short };
        let changed = RunRow {
            calls: n,
            dispatches: None,
            total_ns: Some(own),
            own_ns: Some(own),
            ..row("fill", short, typical, 0.0)
        };
        run(vec![changed, row("matmul", 900.0 * base, 1_000.0 * base, 2_000.0 * base)])
    };
    let side = |is_b: bool| (0..6).map(|pair| of(pair, is_b)).collect::<Vec<_>>();
    let (a, b) = (side(false), side(true));
    let pairs: Vec<(usize, usize)> = (0..6).map(|pair| (pair, pair)).collect();
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let [fill, matmul] = &diff.rows[..] else { panic!("two rows") };
    assert_eq!((fill.other_executions, matmul.other_executions), (Some([1_100.0, 100.0]), None));
    assert_eq!(diff.factor, None);
    // All executions together take 10 instead of 11 ms.
    let change = fill.verdict.change().expect("they take less time");
    assert_eq!((change.statistic, fill.compared.len()), (Statistic::Run, 1));
    assert!((change.by + 1.0 / 11.0).abs() < 1e-9, "{change:?}");
    // The mean of `base` over the pairs is 1.025, and 1,000 short executions are missing.
    let near = |ns: f64| (ns + 1_025_000.0).abs() < 1e-3;
    assert!(near(fill.part.unwrap().ns), "{:?}", fill.part);
    let whole = &diff.whole;
    assert!(whole.counts_all);
    assert!(near(whole.explained.unwrap().ns) && near(whole.difference.unwrap().ns), "{whole:?}");
    assert!(whole.remainder.unwrap().ns.abs() < 1e-3);
    // Of a run of A, 11 ms are those of fill, and 0.2 ms those of typical executions of matmul.
    assert!((whole.verdict.change().unwrap().by + 1.0 / 11.2).abs() < 1e-9, "{:?}", whole.verdict);
    // The rows of ops are used for the whole of another kind of rows, too.
    let as_ops = |runs: &[Recorded]| {
        let other = |run: &Recorded| Recorded { ops: run.rows.clone(), ..run.clone() };
        runs.iter().map(other).collect::<Vec<_>>()
    };
    let options = Options { by: By::Activity, ..OPTIONS };
    let by_activity = compare(&as_ops(&a), &as_ops(&b), &pairs, &options);
    assert!(near(by_activity.whole.explained.unwrap().ns) && by_activity.whole.counts_all);
}

/// In B, each execution takes 20 % less time. The program runs for a fixed time, so there are 25 %
/// more executions of both ops, and all of them together take as long as in A.
#[test]
fn programs_of_a_fixed_duration_are_compared_by_single_executions() {
    let (mut a, mut b, pairs) = exact_pairs(0.8);
    for run in &mut b {
        run.rows[1] = run.rows[0].clone();
        run.rows[1].identity.name = "other".to_owned();
        for row in &mut run.rows {
            (row.calls, row.dispatches) = (1_000, Some(250));
            row.total_ns = row.total_ns.map(|ns| 1.25 * ns);
            row.own_ns = row.total_ns;
        }
    }
    for run in &mut a {
        run.rows[1] = RunRow { identity: b[0].rows[1].identity.clone(), ..run.rows[0].clone() };
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.factor, Some(1.25));
    assert!(!diff.whole.counts_all);
    for row in &diff.rows {
        assert_eq!(row.other_executions, None);
        let change = row.verdict.change().expect("single executions are faster");
        assert!((change.by + 0.2).abs() < 1e-9, "{change:?}");
    }
}

/// A row whose self time is not known in some run is left out of the whole in all runs.
#[test]
fn a_self_time_that_one_run_lacks_is_no_difference() {
    let (a, mut b, pairs) = exact_pairs(1.0);
    b[2].rows[0].own_ns = None;
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.rows[0].part, None);
    let explained = diff.whole.explained.unwrap();
    assert_eq!(explained.ns, diff.rows[1].part.unwrap().ns);
    assert!(explained.ns.abs() < 1e-6, "{explained:?}");
    assert_eq!(diff.whole.verdict, Verdict::Same(0.03));
}

/// An execution is a dispatch only if both sides know their dispatches, and numbers of a sample
/// differ only if their intervals do.
#[test]
fn numbers_of_executions_are_compared_in_one_unit() {
    let numbers = |change: &dyn Fn(&mut RunRow)| {
        let (a, mut b, pairs) = exact_pairs(1.0);
        b.iter_mut().for_each(|run| change(&mut run.rows[0]));
        compare(&a, &b, &pairs, &OPTIONS).rows[0].other_executions
    };
    // Each dispatch has four calls.
    assert_eq!(numbers(&|row| row.dispatches = None), None);
    assert_eq!(
        numbers(&|row| (row.calls, row.dispatches) = (400, Some(100))),
        Some([200.0, 100.0])
    );
    assert_eq!(numbers(&|row| (row.calls, row.dispatches) = (0, None)), None);
    let about = |value: f64, half: f64| {
        let interval =
            (half > 0.0).then_some(Estimate { value, low: value - half, high: value + half });
        move |row: &mut RunRow| {
            (row.calls, row.dispatches) = (value as u64, None);
            row.estimated_calls = Some(Estimated { value, interval });
        }
    };
    assert_eq!(numbers(&about(600.0, 100.0)), Some([800.0, 600.0]));
    assert_eq!(numbers(&about(600.0, 250.0)), None);
    assert_eq!(numbers(&about(600.0, 0.0)), None);
}

#[test]
fn without_pairs_or_with_few_of_them_nothing_is_tested() {
    let (a, b, pairs) = exact_pairs(1.1);
    for (used, why) in [(0, Untested::NotPaired), (5, Untested::TooFew(5))] {
        let diff = compare(&a, &b, &pairs[..used], &OPTIONS);
        assert_eq!(diff.untested, Some(why));
        assert_eq!(diff.rows[0].verdict, Verdict::Untested(why));
        let floor = diff.rows[0].of(Statistic::Floor).unwrap();
        assert_eq!((floor.p, floor.interval.is_some() && used == 0), (None, false));
        assert!((floor.change - 0.1).abs() < 1e-12);
    }
}

/// In B, each dispatch of an op is divided into twice as many calls. So the op is compared by the
/// times of whole dispatches, and not by those of calls.
#[test]
fn another_tiling_is_compared_by_dispatch() {
    let (a, mut b, pairs) = exact_pairs(1.1);
    for run in &mut b {
        run.rows[0].calls = 1600;
        run.rows[0].call_p10_ns = run.rows[0].call_p10_ns.map(|ns| ns / 2.0);
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    // B has twice as many calls, so its fastest call is expected to be faster, and the fastest
    // calls are not compared.
    assert_eq!(diff.rows[0].of(Statistic::Fastest), None);
    assert!(diff.rows[1].of(Statistic::Fastest).is_some());
    assert!((diff.rows[0].of(Statistic::Floor).unwrap().change - 0.1).abs() < 1e-12);
    assert!(diff.rows[0].calls_differ && !diff.rows[1].calls_differ);
}

#[test]
fn a_split_op_is_compared_with_the_sum() {
    let (a, mut b, pairs) = exact_pairs(1.1);
    for run in &mut b {
        let whole = run.rows.remove(0);
        for name in ["first", "second"] {
            let half = |ns: Option<f64>| ns.map(|ns| ns / 2.0);
            let mut part = whole.clone();
            part.identity.name = name.to_owned();
            part.identity.source = Some("m.mlir:3".to_owned());
            (part.total_ns, part.own_ns) = (half(part.total_ns), half(part.own_ns));
            part.dispatch_min_ns = half(part.dispatch_min_ns);
            part.dispatch_p10_ns = half(part.dispatch_p10_ns);
            part.dispatch_p50_ns = half(part.dispatch_p50_ns);
            run.rows.push(part);
        }
    }
    let mut a = a;
    a.iter_mut().for_each(|run| run.rows[0].identity.source = Some("m.mlir:3".to_owned()));
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let split = diff.rows.iter().find(|row| row.relation == Relation::Split).unwrap();
    assert_eq!((split.a.len(), split.b.len()), (1, 2));
    assert!((split.verdict.change().unwrap().by - 0.1).abs() < 1e-12);
    assert!((split.part.unwrap().ns - 20_500.0).abs() < 1e-6);
}

/// Returns a counter of a row with 800 calls.
fn reading(name: &str, sum: u128, scatter: u128) -> Reading {
    reading_of(800, name, sum + scatter)
}

fn reading_of(calls: u64, name: &str, sum: u128) -> Reading {
    Reading {
        name: name.to_owned(),
        unit: "count".to_owned(),
        exact: Some((sum, calls)),
        value: sum as f64 / calls as f64,
        is_metric: false,
    }
}

/// B makes 100 calls instead of 800. Per call, each counter counts more, but not in a run.
#[test]
fn counters_of_fewer_executions_are_compared_by_their_sums() {
    let (mut a, mut b, pairs) = exact_pairs(1.0);
    for (at, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
        let noise = at as u128 * 7919 % 13;
        a.rows[0].dispatches = None;
        a.rows[0].readings = vec![
            reading("page-faults", 2_400, 0),
            reading("major-faults", 800, 0),
            reading("cache-misses", 8_000, noise),
        ];
        (b.rows[0].calls, b.rows[0].dispatches) = (100, None);
        b.rows[0].readings = vec![
            reading_of(100, "page-faults", 2_400),
            reading_of(100, "major-faults", 200),
            reading_of(100, "cache-misses", 4_000 + noise),
        ];
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.rows[0].other_executions, Some([800.0, 100.0]));
    let found = &diff.rows[0].readings;
    assert!(found.iter().all(|one| one.statistic == Statistic::Run));
    assert_eq!(found[0].reading, Known::Equal);
    assert_eq!(found[0].compared.as_ref().unwrap().medians, [2_400.0; 2]);
    let fact = Known::Fact { sums: [800, 200], calls: [800, 100] };
    assert_eq!(found[1].reading, fact);
    assert!((found[1].compared.as_ref().unwrap().change + 0.75).abs() < 1e-12);
    let Known::Tested(Verdict::Differs(misses)) = found[2].reading else {
        panic!("{:?}", found[2].reading)
    };
    assert!((misses.by + 0.5).abs() < 0.002, "{misses:?}");
}

#[test]
fn counters_that_are_exact_are_facts() {
    let (mut a, mut b, pairs) = exact_pairs(1.0);
    for (at, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
        let noise = at as u128 * 7919 % 13;
        a.rows[0].readings = vec![
            reading("page-faults", 2_400, 0),
            reading("instructions", 80_000, 0),
            reading("cache-misses", 8_000, noise),
            reading("major-faults", 0, 0),
        ];
        b.rows[0].readings = vec![
            reading("page-faults", 412_000, 0),
            reading("instructions", 80_000, 0),
            reading("cache-misses", 9_000, noise),
            reading_of(790, "major-faults", 0),
        ];
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let found = &diff.rows[0].readings;
    assert_eq!(found[3].reading, Known::Equal, "none in 800 calls, and none in 790");
    let fact = Known::Fact { sums: [2_400, 412_000], calls: [800, 800] };
    assert_eq!((found[0].name.as_str(), found[0].reading), ("page-faults", fact));
    assert_eq!(found[1].reading, Known::Equal);
    let Known::Tested(Verdict::Differs(misses)) = found[2].reading else {
        panic!("{:?}", found[2].reading)
    };
    assert!((misses.by - 0.125).abs() < 0.002, "{misses:?}");
    // A single run cannot show whether a counter is exact.
    let alone = compare(&a[..1], &b[..1], &[], &OPTIONS);
    assert!(matches!(alone.rows[0].readings[0].reading, Known::Tested(Verdict::Untested(_))));
}

/// If a counter is 0 in some run, the ratios of A and B cannot be tested. The medians are reported
/// without a test.
#[test]
fn counters_with_zeros_keep_their_medians() {
    let (mut a, mut b, pairs) = exact_pairs(1.0);
    let reading = |name: &str, sum: u128| Reading {
        name: name.to_owned(),
        unit: "count".to_owned(),
        exact: Some((sum, 10)),
        value: sum as f64 / 10.0,
        is_metric: false,
    };
    for (at, (a, b)) in (0..).zip(a.iter_mut().zip(&mut b)) {
        a.rows[0].readings = vec![reading("faults", 0), reading("misses", at)];
        b.rows[0].readings = vec![reading("faults", 50), reading("misses", 10 + at)];
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let [faults, misses] = diff.rows[0].readings.as_slice() else { panic!() };
    assert_eq!(faults.reading, Known::Fact { sums: [0, 50], calls: [10, 10] });
    let shown = faults.compared.as_ref().unwrap();
    assert_eq!((shown.medians, shown.change, shown.p), ([0.0, 5.0], f64::INFINITY, None));
    assert_eq!(misses.reading, Known::Tested(Verdict::Missing));
    let shown = misses.compared.as_ref().unwrap();
    assert_eq!((shown.medians, shown.interval), ([0.25, 1.25], None));
}

/// A time that is 0 after the recorder's time was subtracted counts as 0 in the sum over all ops,
/// and not as unknown.
#[test]
fn the_whole_is_known_without_what_is_shorter_than_an_empty_call() {
    let (mut a, mut b, pairs) = exact_pairs(1.1);
    for run in a.iter_mut().chain(&mut b) {
        run.rows.push(row("tiny", 0.0, 0.0, 0.0));
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.rows[2].verdict, Verdict::Missing);
    assert!((diff.whole.verdict.change().unwrap().by - 0.05).abs() < 1e-12);
    a[3].rows[2].total_ns = None;
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.whole.verdict, Verdict::Missing);
}

#[test]
fn new_gone_and_missing_rows() {
    let (mut a, mut b, pairs) = exact_pairs(1.0);
    a.iter_mut().for_each(|run| run.rows.insert(0, row("only_a", 10.0, 10.0, 10.0)));
    a.iter_mut().for_each(|run| run.rows.insert(1, row("also_a", 10.0, 10.0, 10.0)));
    b.iter_mut().for_each(|run| run.rows.push(row("only_b", 10.0, 10.0, 10.0)));
    // In one run of B, the op `changed` was shorter than an empty call, so nothing is left of its
    // times.
    b[2].rows[0].call_min_ns = Some(0.0);
    b[2].rows[0].call_p10_ns = Some(0.0);
    b[2].rows[0].dispatch_p50_ns = None;
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let of = |name: &str| {
        let is = |one: &Identity| one.name == name;
        diff.rows.iter().find(|row| row.a.iter().chain(&row.b).any(is)).unwrap()
    };
    assert_eq!(of("only_a").verdict, Verdict::Gone);
    assert_eq!(of("only_b").verdict, Verdict::New);
    assert!(of("only_b").part.is_some_and(|part| (part.ns - 2_000.0).abs() < 1e-9));
    assert_eq!(of("changed").verdict, Verdict::Missing);
    assert_eq!(of("same").verdict, Verdict::Same(0.03));
}

/// B uses 10 % less processor time in each pair. The differences of six pairs have 64 combinations
/// of signs. Two of these have six equal signs, so p is 2/64.
#[test]
fn processor_time_is_compared_beside_the_whole() {
    let (mut a, mut b, pairs) = exact_pairs(1.0);
    let without = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(without.processor.verdict, Verdict::Missing);
    for (at, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
        let scatter = 1.0 + 0.01 * at as f64;
        (a.processor_ns, b.processor_ns) = (Some(100e6 * scatter), Some(90e6 * scatter));
    }
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    let change = diff.processor.verdict.change().unwrap();
    assert_eq!(change.statistic, Statistic::ProcessorTime);
    assert!(
        [change.by, change.interval[0], change.interval[1]]
            .iter()
            .all(|part| (part + 0.1).abs() < 1e-12)
    );
    assert_eq!(diff.processor.compared[0].p, Some(2.0 / f64::from(1 << pairs.len())));
    // The comparison of the ops' times does not depend on the processor time.
    assert_eq!(diff.whole.verdict, without.whole.verdict);
    assert_eq!(diff.whole.compared, without.whole.compared);
    // Without pairs, there is a ratio but no test.
    let diff = compare(&a, &b, &[], &OPTIONS);
    assert_eq!(diff.processor.verdict, Verdict::Untested(Untested::NotPaired));
    assert!((diff.processor.compared[0].change + 0.1).abs() < 1e-12);
    // This run was killed, so its processor time is not known.
    b[1].processor_ns = None;
    let diff = compare(&a, &b, &pairs, &OPTIONS);
    assert_eq!(diff.processor.verdict, Verdict::Missing);
}
