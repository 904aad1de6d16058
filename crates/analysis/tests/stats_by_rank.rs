//! Tests statistics by rank (the number of a process in a distributed job), for hundreds of ranks.
//! The calls of all ranks are described together. Each rank must have the same numbers as if it
//! were described alone.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;

use analysis::stats::{OpStats, Options, Scope, Variable, stats};
use analysis::{Key, Stats};
use model::metric::Metric;
use profile::{CounterInfo, Job, Profile, Role};
use testkit::{CallScript, ProfileScript, Random};

/// There are more processes than ranks, so the first ranks have a second process.
const RANKS: u32 = 256;
const PROCESSES: u32 = 300;

/// Makes three ops. One of them is inside of another, and one occurs only in every third process.
/// Every 50th process has no rank.
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for number in 0..PROCESSES {
        let process = script.process(1_000 + number);
        if number % 50 != 49 {
            process.job = Some(Job { rank: number % RANKS, size: Some(RANKS) });
        }
        process.empty_calls(200, 20, 60, &[1]);
        let vm = process.machine("vm");
        let [model, add, rare] =
            ["model", "add", "rare"].map(|name| process.op(vm, Role::Op, name, ""));
        for name in ["main", "other"] {
            let thread = process.thread(name);
            for call in 0..4 {
                let (start, lasts) = (100_000 * call, 1_000 + random.below(5_000));
                let faults = 5 + random.below(40);
                thread.call(CallScript::op(add, start + 10_000, lasts).group(lasts, &[faults]));
                thread.call(CallScript::op(model, start, 80_000).group(80_000, &[faults + 3]));
                if number % 3 == 0 {
                    thread.call(CallScript::op(rare, start + 85_000, lasts).group(lasts, &[9]));
                }
            }
        }
    }
    script
}

fn options(profile: &Profile, by_rank: bool) -> Options {
    let operands: Vec<_> = profile.manifest.counters.iter().map(CounterInfo::operand).collect();
    let metrics =
        vec![Metric::parse("rate=page-faults/duration").unwrap().bind(&operands).unwrap()];
    Options { by_rank, buckets: 4, workers: 2, metrics, ..Options::default() }
}

fn name(profile: &Profile, key: Key) -> String {
    let Key::Op(op) = key else { panic!("{key:?}") };
    profile.ops.get(op).unwrap().name.clone()
}

/// Describes the calls of each op, in the whole profile or in one rank.
fn of(dir: &Path, rank: Option<u32>, by_rank: bool) -> BTreeMap<String, OpStats> {
    let mut profile = Profile::open(dir).unwrap();
    if let Some(rank) = rank {
        assert!(profile.keep_rank(rank));
    }
    let Stats { ops, .. } = stats(&profile, &options(&profile, by_rank)).unwrap();
    ops.into_iter().map(|op| (name(&profile, op.key), op)).collect()
}

/// Whether two values of a metric are nearly equal. They may differ a little: values are rounded to
/// a grid of 2⁵² steps between the smallest and the largest value, and these two differ between one
/// rank alone and all ranks together.
fn near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()).max(1e-3),
        (a, b) => a == b,
    }
}

fn assert_alike(found: &Scope, alone: &Scope, what: &str) {
    let metric = alone.variables.len() - 1;
    for (at, (found, alone)) in found.variables.iter().zip(&alone.variables).enumerate() {
        if at < metric {
            assert_eq!(found, alone, "{what}: variable {at}");
            continue;
        }
        let of = |v: &Variable| [v.mean, v.standard_deviation, v.min.map(|x| x.to_f64())];
        assert_eq!(found.calls, alone.calls, "{what}");
        let alike = of(found).into_iter().zip(of(alone)).all(|(a, b)| near(a, b));
        assert!(alike, "{what}: {found:?}, {alone:?}");
    }
    for (a, b) in found.pairs.iter().zip(&alone.pairs) {
        assert!(near(a.pearson, b.pearson) && near(a.spearman, b.spearman), "{what}: {a:?} {b:?}");
        assert_eq!(
            (&a.table, a.calls, a.of, a.given),
            (&b.table, b.calls, b.of, b.given),
            "{what}"
        );
    }
    let rest = |scope: &Scope| Scope { variables: vec![], pairs: vec![], ..scope.clone() };
    assert_eq!(rest(found), rest(alone), "{what}");
    assert_eq!(
        (found.variables.len(), found.pairs.len()),
        (alone.variables.len(), alone.pairs.len())
    );
}

/// Checks that each rank in `ranks` has the same numbers as when it is described alone. Returns the
/// statistics of the whole profile for each op, with those of each rank.
fn compared(script: &ProfileScript, ranks: &[u32]) -> BTreeMap<String, OpStats> {
    let (_scratch, dir) = script.written();
    let all = of(&dir, None, true);
    for rank in ranks {
        let alone = of(&dir, Some(*rank), false);
        for (name, op) in &all {
            let found = op.ranks.iter().find(|(of, _)| of == rank);
            match (found, alone.get(name)) {
                (Some((_, found)), Some(alone)) => {
                    assert_alike(found, &alone.all, &format!("{name} in rank {rank}"));
                }
                (None, None) => {}
                (found, alone) => panic!("{name} in rank {rank}: {found:?}, {alone:?}"),
            }
        }
    }
    // The statistics over all processes, including those without a rank, must be the same whether
    // calls are described by rank or by thread.
    for (name, op) in of(&dir, None, false) {
        assert_alike(&all[&name].all, &op.all, &name);
    }
    all
}

#[test]
fn each_of_hundreds_of_ranks_has_the_numbers_that_it_has_alone() {
    let all = compared(&script(), &[0, 1, 2, 3, 42, 43, 48, 50, 128, 255]);
    // The five ranks 49, 99, 149, 199 and 249 are missing. Each of them would belong to only one
    // process, which has no rank.
    let add = &all["add"];
    assert_eq!((add.ranks.len(), add.threads.len()), (RANKS as usize - 5, 0));
    assert!(add.ranks.is_sorted_by_key(|(rank, _)| *rank));
    let calls = |name: &str| all[name].all.calls;
    assert_eq!((calls("add"), calls("rare")), (8 * u64::from(PROCESSES), 8 * 100));
}

/// In each process, 42 of 162 calls were timed: the first two, and then every fourth call.
#[test]
fn a_run_with_a_budget_as_well() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.budget(0.02);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..PROCESSES {
        let process = script.process(1_000 + number);
        process.job = Some(Job { rank: number % RANKS, size: Some(RANKS) });
        process.library("mlp", &["matmul"]);
        let thread = process.thread("main");
        for call in 0..42 {
            let lasts = 1_000 + random.below(100);
            let (period, skipped) = if call < 2 { (1, 0) } else { (4, 3) };
            let one = CallScript::new(0, 10_000 * (1 + call), lasts).group(lasts, &[7 + call % 3]);
            thread.call(one.drawn(period, period, skipped));
        }
        thread.counted(0, 162, 42, 42);
    }
    let all = compared(&script, &[0, 7, 43, 44, 255]);
    let counted = |rank: usize| all["matmul"].ranks[rank].1.counted();
    assert_eq!((counted(0), counted(255)), (Some(324), Some(162)));
}

/// Makes one process for each element of `ranks`. Each process has two calls.
fn of_ranks(ranks: &[Option<u32>]) -> BTreeMap<String, OpStats> {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    for (number, rank) in (0u32..).zip(ranks) {
        let process = script.process(1_000 + number);
        process.job = rank.map(|rank| Job { rank, size: None });
        process.library("mlp", &["matmul"]);
        let thread = process.thread("main");
        for call in 0..2 {
            let lasts = 100 * (u64::from(number) + 1);
            thread.call(CallScript::new(0, 10_000 * (1 + call), lasts).group(lasts, &[7]));
        }
    }
    let known: Vec<u32> = ranks.iter().copied().flatten().collect();
    compared(&script, &known)
}

#[test]
fn one_rank_only_is_all_that_has_a_rank() {
    let found = |ranks: &[Option<u32>]| {
        let of = of_ranks(ranks);
        let op = &of["matmul"];
        assert!(op.threads.is_empty());
        let mean = |scope: &Scope| scope.variables[0].mean.unwrap();
        let ranks: Vec<_> = op.ranks.iter().map(|(of, s)| (*of, s.calls, mean(s))).collect();
        (op.all.calls, mean(&op.all), ranks)
    };
    assert_eq!(found(&[Some(3)]), (2, 100.0, vec![(3, 2, 100.0)]));
    assert_eq!(found(&[Some(3), Some(3)]), (4, 150.0, vec![(3, 4, 150.0)]));
    // A process without a rank counts for the total, whether it comes after or before the process
    // with a rank.
    assert_eq!(found(&[Some(3), None]), (4, 150.0, vec![(3, 2, 100.0)]));
    assert_eq!(found(&[None, Some(3)]), (4, 150.0, vec![(3, 2, 200.0)]));
    assert_eq!(found(&[None, None]), (4, 150.0, vec![]));
    // Processes of two ranks alternate, and one process has no rank.
    let in_turn = [Some(1), Some(0), None, Some(1), Some(0)];
    assert_eq!(found(&in_turn), (10, 300.0, vec![(0, 4, 350.0), (1, 4, 250.0)]));
}
