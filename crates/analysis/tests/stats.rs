//! Tests distributions and correlations. Most expected values were computed on paper.

use analysis::stats::{Cell, Number, Options, Samples, Scope, describe, stats};
use analysis::{Key, Stats};
use profile::Profile;
use testkit::{CallScript, Item, ProfileScript, Random};

fn of(columns: &[&[u64]], buckets: usize) -> Scope {
    let columns: Vec<Vec<Option<u64>>> =
        columns.iter().map(|column| column.iter().copied().map(Some).collect()).collect();
    describe(&Samples::new(&columns), buckets, true)
}

fn cells(scope: &Scope, pair: usize) -> Vec<(u8, u8, u32)> {
    let cells = &scope.pairs[pair].table.as_ref().expect("the table was requested").cells;
    cells.iter().map(|Cell { given, of, calls, .. }| (*given, *of, *calls)).collect()
}

#[test]
fn moments_and_buckets() {
    let scope = of(&[&[8, 1, 7, 2, 6, 3, 5, 4]], 4);
    let variable = &scope.variables[0];
    assert_eq!(
        (variable.calls, variable.min, variable.max),
        (8, Some(Number::Whole(1)), Some(Number::Whole(8)))
    );
    assert_eq!(variable.mean, Some(4.5));
    // The squares of the distances from the mean add up to 2 · (3.5² + 2.5² + 1.5² + 0.5²) = 42, so
    // the variance is 42 / 7 = 6.
    assert_eq!(variable.standard_deviation, Some(6.0f64.sqrt()));
    assert_eq!(variable.bucket_means, [Some(1.5), Some(3.5), Some(5.5), Some(7.5)]);

    // In the sorted values, bucket b begins at the index ⌊5·b/4⌋. So the buckets begin at 0, 1, 2
    // and 3, and the last one has two values.
    let scope = of(&[&[50, 40, 30, 20, 10]], 4);
    assert_eq!(scope.variables[0].bucket_means, [Some(10.0), Some(20.0), Some(30.0), Some(45.0)]);
}

/// The first of four buckets is empty: bucket b begins at the index ⌊3·b/4⌋, so the buckets begin
/// at 0, 0, 1 and 2.
#[test]
fn fewer_calls_than_buckets() {
    let scope = of(&[&[3, 1, 2], &[10, 30, 20]], 4);
    assert_eq!(scope.variables[0].bucket_means, [None, Some(1.0), Some(2.0), Some(3.0)]);
    assert_eq!(cells(&scope, 0), [(1, 3, 1), (2, 2, 1), (3, 1, 1)]);
    let rows = scope.pairs[0].table.as_ref().unwrap().probabilities(4);
    let (no, yes) = (Some(0.0), Some(1.0));
    assert_eq!(rows[0], [None, no, no, no]);
    assert_eq!(rows[1], [None, no, no, yes]);
    assert_eq!(rows[3], [None, yes, no, no]);
    assert_eq!(scope.pairs[0].pearson, Some(-1.0));
    assert_eq!(scope.pairs[0].spearman, Some(-1.0));
}

#[test]
fn one_call_and_none() {
    let scope = of(&[&[7], &[9]], 16);
    let variable = &scope.variables[0];
    assert_eq!((variable.mean, variable.standard_deviation), (Some(7.0), None));
    assert_eq!(variable.bucket_means.iter().flatten().count(), 1);
    assert_eq!(variable.bucket_means[15], Some(7.0));
    assert_eq!((scope.pairs[0].pearson, scope.pairs[0].spearman), (None, None));
    assert_eq!(cells(&scope, 0), [(15, 15, 1)], "the only bucket that has a mean");

    let scope = of(&[&[], &[]], 16);
    assert_eq!(scope.calls, 0);
    assert_eq!((scope.variables[1].mean, scope.variables[1].min), (None, None));
    assert_eq!(scope.variables[1].bucket_means, vec![None; 16]);
    assert_eq!((scope.pairs[0].pearson, cells(&scope, 0)), (None, vec![]));
}

/// Sorted, x is 1 1 | 1 1 | 1 2 | 3 4. The values 1 span three buckets, and all of them are counted
/// in the first. The 2 is the last value of the third bucket.
#[test]
fn ties_count_for_the_lowest_bucket_that_holds_the_value() {
    let scope = of(&[&[1, 1, 1, 1, 1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]], 4);
    let means = [Some(1.0), Some(1.0), Some(1.5), Some(3.5)];
    assert_eq!(scope.variables[0].bucket_means, means);
    assert_eq!(
        cells(&scope, 0),
        [(0, 0, 2), (1, 0, 2), (2, 0, 1), (2, 2, 1), (3, 3, 2)],
        "given the bucket of y"
    );
    let rows = scope.pairs[0].table.as_ref().unwrap().probabilities(4);
    assert_eq!(rows[0], [Some(1.0), Some(1.0), Some(0.5), Some(0.0)]);
    assert_eq!(rows[2], [Some(0.0), Some(0.0), Some(0.5), Some(0.0)]);
}

/// Each value is counted in the bucket that contains it, even if it is the first value of the
/// bucket.
#[test]
fn values_without_ties_stay_in_their_bucket() {
    let values: Vec<u64> = (0..16).map(|i| 1_000 * i).collect();
    let scope = of(&[&values, &values], 16);
    let diagonal: Vec<(u8, u8, u32)> = (0..16).map(|i| (i, i, 1)).collect();
    assert_eq!(cells(&scope, 0), diagonal);
    let many: Vec<u64> = (0..256 * 3).collect();
    let scope = of(&[&many, &many], 256);
    assert_eq!(cells(&scope, 0), (0..=255).map(|i| (i, i, 3)).collect::<Vec<_>>());
}

#[test]
fn correlations() {
    // The products of the differences from the means add up to 2.25 − 0.25 − 0.25 + 2.25 = 4, and
    // the squares to 5 and 5.
    let pair = of(&[&[1, 2, 3, 4], &[1, 3, 2, 4]], 2).pairs[0].clone();
    assert_eq!((pair.of, pair.given, pair.calls), (0, 1, 4));
    assert!((pair.pearson.unwrap() - 0.8).abs() < 1e-15);
    assert_eq!(pair.spearman, Some(0.8));
    // The ranks of x are 1, 2.5, 2.5, 4. The products add up to 4.5, and the squares to 4.5 and 5,
    // so the correlation is 3/√10.
    let pair = of(&[&[1, 2, 2, 3], &[1, 2, 3, 4]], 2).pairs[0].clone();
    assert!((pair.spearman.unwrap() - 3.0 / 10.0f64.sqrt()).abs() < 1e-15);
    // x³ increases with x, so both have the same ranks. Pearson's correlation is below 1, because
    // x³ is not linear in x.
    let pair = of(&[&[1, 2, 3], &[1, 8, 27]], 2).pairs[0].clone();
    assert_eq!(pair.spearman, Some(1.0));
    // The differences from the means are −1, 0, 1 and −11, −4, 15, so Pearson's correlation is 26 /
    // √(2 · 362).
    assert!((pair.pearson.unwrap() - 26.0 / 724.0f64.sqrt()).abs() < 1e-15);
}

#[test]
fn a_constant_has_no_correlation() {
    for constant in [0, 7, u64::MAX] {
        let scope = of(&[&[1, 2, 3], &[constant; 3], &[constant; 3]], 2);
        for pair in &scope.pairs {
            assert_eq!((pair.pearson, pair.spearman), (None, None));
        }
        assert_eq!(scope.variables[1].standard_deviation, Some(0.0));
        assert_eq!(cells(&scope, 0), [(0, 0, 1), (0, 1, 2)], "3·b/2 = 0, 1, 3");
    }
}

/// As 64-bit floats, the three values of the first variable would be equal.
#[test]
fn large_values_with_small_differences() {
    let scope = of(&[&[u64::MAX, u64::MAX - 1, u64::MAX - 2], &[0, 1, 2]], 3);
    assert_eq!((scope.pairs[0].pearson, scope.pairs[0].spearman), (Some(-1.0), Some(-1.0)));
    assert_eq!(scope.variables[0].standard_deviation, Some(1.0));
    assert_eq!(scope.variables[0].min, Some(Number::Whole(u64::MAX - 2)));
    // The sum of the values does not fit into 64 bits.
    assert_eq!(scope.variables[0].mean, Some(u64::MAX as f64));
    let scope = of(&[&[0, u64::MAX]], 1);
    assert_eq!(scope.variables[0].mean, Some(u64::MAX as f64 / 2.0));
}

#[test]
fn missing_values_are_left_out_pair_by_pair() {
    let x = vec![Some(1), None, Some(3), Some(4), Some(9)];
    let y = vec![Some(2), Some(5), None, Some(8), Some(6)];
    let none = vec![None; 5];
    let once = vec![None, Some(3), None, None, None];
    let scope = describe(&Samples::new(&[x, y, none, once]), 2, true);
    let calls: Vec<u64> = scope.variables.iter().map(|v| v.calls).collect();
    assert_eq!((scope.calls, calls), (5, vec![4, 4, 0, 1]));
    assert_eq!(scope.variables[0].mean, Some(4.25));
    // The calls that have both values are (1, 2), (4, 8), (9, 6). The means are 14/3 and 16/3. The
    // products add up to 1·2 + 4·8 + 9·6 − 14·16/3 = 40/3, and the squares to 98 − 196/3 = 98/3 and
    // 104 − 256/3 = 56/3.
    let pair = &scope.pairs[0];
    assert_eq!(pair.calls, 3);
    assert!((pair.pearson.unwrap() - 40.0 / (98.0f64 * 56.0).sqrt()).abs() < 1e-15);
    // The ranks are 1 2 3 and 1 3 2. The products add up to 1, and the squares to 2 and 2.
    assert_eq!(pair.spearman, Some(0.5));
    // The buckets come from all values of a variable: those of x are 1 3 | 4 9, and those of y are
    // 2 5 | 6 8.
    assert_eq!(cells(&scope, 0), [(0, 0, 1), (1, 1, 2)]);
    let empty = &scope.pairs[1];
    assert_eq!((empty.of, empty.given, empty.calls), (0, 2, 0));
    assert_eq!((empty.pearson, empty.spearman), (None, None));
    assert!(cells(&scope, 1).is_empty());
    assert_eq!(scope.variables[2].mean, None);
    assert_eq!((scope.pairs[4].of, scope.pairs[4].given, scope.pairs[4].calls), (1, 3, 1));
}

/// In the three calls that have both values, x is constant. In the call without y, x has another
/// value.
#[test]
fn constant_in_the_calls_that_have_both_values() {
    let x = vec![Some(5), Some(5), Some(5), Some(1 << 60)];
    let y = vec![Some(1), Some(2), Some(3), None];
    let scope = describe(&Samples::new(&[x, y]), 2, false);
    assert_eq!((scope.pairs[0].pearson, scope.pairs[0].spearman), (None, None));
    assert_eq!(scope.pairs[0].table, None, "the table was not requested");
}

fn open(script: &ProfileScript, options: &Options) -> (Stats, Profile) {
    let (_scratch, profile) = script.opened();
    let stats = stats(&profile, options).expect("at most MOST_CALLS calls");
    (stats, profile)
}

/// Makes two ops on two threads, and one counter. One tick is 1 ns.
///
/// ```text
///  main    f  1,000 + 100, cpu 1, counter 5      worker  f  1,500 + 300, cpu 2 of node 1,
///          g  2,000 +  50, cpu 1, counter 6                 not read
///          f  9,000 + 200, cpu 0, multiplexed            f  3,500 + 400, cpu 2 of node 1, 2⁴⁰
/// ```
fn script() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("c", 0);
    let process = script.process(10);
    process.library("m", &["f", "g"]);
    process
        .thread("main")
        .call(CallScript::new(0, 1_000, 100).on(1, 0).group(100, &[5]))
        .call(CallScript::new(1, 2_000, 50).on(1, 0).group(50, &[6]))
        .call(CallScript::new(0, 9_000, 200).on(0, 0).scaled(200, 100, &[7]));
    process
        .thread("worker")
        .call(CallScript::new(0, 1_500, 300).on(2, 1).unread())
        .then(Item::NextPage(3_000, 0, 0))
        .call(CallScript::new(0, 3_500, 400).on(2, 1).group(400, &[1 << 40]));
    script
}

#[test]
fn calls_are_grouped_by_op_and_thread() {
    let (stats, _) = open(&script(), &Options { buckets: 2, ..Options::default() });
    assert_eq!(stats.ops.len(), 2, "calls of different ops are not mixed");
    let f = &stats.ops[0];
    assert_eq!((f.key, f.total_ticks, f.all.calls), (Key::Op(0), 1_000.0, 4));
    let duration = &f.all.variables[0];
    assert_eq!(
        (duration.mean, duration.min, duration.max),
        (Some(250.0), Some(Number::Whole(100)), Some(Number::Whole(400)))
    );
    assert_eq!(duration.bucket_means, [Some(150.0), Some(350.0)]);
    let counter = &f.all.variables[1];
    assert_eq!(
        (counter.calls, counter.min, counter.max),
        (2, Some(Number::Whole(5)), Some(Number::Whole(1 << 40)))
    );
    assert_eq!(f.all.pairs[0].calls, 2);
    let locations: Vec<(u32, u64)> = f.all.locations.clone().into_iter().collect();
    assert_eq!(locations, [(0, 1), (1, 1), (1 << 12 | 2, 2)]);
    let threads: Vec<_> = f.threads.iter().map(|t| (t.process, t.thread, t.scope.calls)).collect();
    assert_eq!(threads, [(0, 0, 2), (0, 1, 2)]);
    assert_eq!(f.threads[1].scope.variables[0].mean, Some(350.0));
    assert_eq!(f.threads[0].scope.variables[1].calls, 1, "a multiplexed reading is not a value");
    let g = &stats.ops[1];
    assert_eq!((g.key, g.all.calls, g.threads.len()), (Key::Op(1), 1, 1));
    assert_eq!(g.all, g.threads[0].scope);
}

#[test]
fn calls_are_chosen_by_op_thread_and_time() {
    let calls = |options: Options| -> Vec<(Key, u64)> {
        let (stats, _) = open(&script(), &options);
        stats.ops.iter().map(|op| (op.key, op.all.calls)).collect()
    };
    let base = Options::default;
    assert_eq!(calls(Options { op: Some("g*".into()), ..base() }), [(Key::Op(1), 1)]);
    assert_eq!(calls(Options { op: Some("h".into()), ..base() }), []);
    let worker = [(Key::Op(0), 2)];
    assert_eq!(calls(Options { thread: Some("work*".into()), ..base() }), worker);
    assert_eq!(calls(Options { thread: Some("11".into()), ..base() }), worker, "by kernel id");
    assert_eq!(calls(Options { thread: Some("12".into()), ..base() }), []);
    // `main` starts at 1,000 and `worker` at 1,500. A call that begins exactly 1,000 ns after the
    // start of its thread is included.
    let kept = [(Key::Op(0), 2), (Key::Op(1), 1)];
    assert_eq!(calls(Options { skip_ns: 1_000, ..base() }), kept);
    assert_eq!(calls(Options { skip_ns: 1_001, ..base() }), [(Key::Op(0), 2)]);
    assert_eq!(calls(Options { skip_ns: u64::MAX, ..base() }), []);
}

/// The result must be the same to the last bit with any number of workers. It must also be the same
/// if the memory limit divides the ops into several batches.
#[test]
fn workers_and_memory_do_not_matter() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    script.counter("b", 1);
    let process = script.process(1);
    process.library("m", &["f", "g", "h"]);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut next = move || random.next();
    for name in ["s", "t"] {
        let thread = process.thread(name);
        for page in 0..150u64 {
            for i in 0..40u64 {
                let call = CallScript::new((i % 3) as u32, page * 10_000 + i * 100, next() % 90)
                    .on((next() % 4) as u32, 0)
                    .group(50, &[next() % 1_000_000]);
                thread.call(match next() % 3 {
                    0 => call.unread(),
                    _ => call.group(50, &[next() >> (next() % 64)]),
                });
            }
            thread.then(Item::NextPage((page + 1) * 10_000, 0, 0));
        }
    }
    let (_scratch, profile) = script.opened();
    let with = |workers, memory| {
        let options = Options { workers, memory, ..Options::default() };
        let stats = stats(&profile, &options).unwrap();
        let scopes = stats.ops.into_iter().map(|op| {
            let threads: Vec<Scope> = op.threads.into_iter().map(|t| t.scope).collect();
            (op.key, op.total_ticks, op.all, threads)
        });
        scopes.collect::<Vec<_>>()
    };
    let one = with(1, None);
    assert_eq!(one.iter().map(|(_, _, all, _)| all.calls).sum::<u64>(), 12_000);
    for (workers, memory) in [(2, None), (7, None), (1, Some(0)), (2, Some(0)), (2, Some(100_000))]
    {
        assert_eq!(with(workers, memory), one, "{workers} workers, {memory:?}");
    }
}

/// Compares the means of buckets and Spearman's correlations with those computed from sorted copies
/// of the values.
#[test]
fn many_values_are_ranked() {
    const CALLS: usize = 50_000;
    let mut random = Random(0x5eed_5047);
    let mut column = |value: &dyn Fn(u64, usize) -> u64| -> Vec<u64> {
        (0..CALLS).map(|i| value(random.next(), i)).collect()
    };
    let columns = [
        column(&|r, _| r >> 40),
        // Most values are close together, and a few are far away.
        column(&|r, i| if i % 1_000 == 0 { r >> 30 } else { r % 9_000 }),
        column(&|r, _| r >> 24),
        column(&|r, _| r >> (r % 64)),
        column(&|r, i| ((i as u64 / 7) << 33) | (r % 3)),
    ];
    let scope = of(&columns.each_ref().map(Vec::as_slice), 8);
    // The ranks are doubled, so that all of them are whole numbers. The smallest doubled rank is 2,
    // and equal values get the mean of their ranks.
    let ranks = columns.each_ref().map(|column| {
        let mut sorted = column.clone();
        sorted.sort_unstable();
        let rank = |value: &u64| {
            let below = sorted.partition_point(|other| other < value);
            let until = sorted.partition_point(|other| other <= value);
            (below + 1 + until) as f64
        };
        column.iter().map(rank).collect::<Vec<f64>>()
    });
    for (column, variable) in columns.iter().zip(&scope.variables) {
        let mut sorted = column.clone();
        sorted.sort_unstable();
        for (bucket, mean) in variable.bucket_means.iter().enumerate() {
            let part = &sorted[CALLS * bucket / 8..CALLS * (bucket + 1) / 8];
            let sum: u128 = part.iter().map(|value| u128::from(*value)).sum();
            let expected = sum as f64 / part.len() as f64;
            let found = mean.unwrap();
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        }
    }
    let middle = CALLS as f64 + 1.0;
    let products = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    for pair in &scope.pairs {
        let (a, b) = (&ranks[pair.of], &ranks[pair.given]);
        let expected = products(a, b) / (products(a, a) * products(b, b)).sqrt();
        let found = pair.spearman.unwrap();
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
}
