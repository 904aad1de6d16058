//! Checks the gaps between the calls of threads, on scripted profiles.

use std::collections::BTreeMap;

use analysis::{Gap, Key, Options, Side, Summary, summarize};
use profile::{Calibration, Profile};
use testkit::{CallScript, Item, ProfileScript, Random};

fn with_gaps(profile: &Profile) -> Summary {
    summarize(profile, &Options { gaps: true, ..Options::default() })
}

fn op(op: u32) -> Side {
    Side::Op(Key::Op(op))
}

/// There are 3,000 ns between two calls of 1,000 ns, and a clock record follows 500 ns after the
/// second call. The recorder added 10 ns to each call: half of the duration of an empty call (20
/// ns).
#[test]
fn gaps_and_what_the_recorder_took_are_all_that_is_between() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b"]);
    let empty = Calibration { calls: 9, inside_ticks: 20, total_ticks: 50, ..Default::default() };
    process.calibrations.push(empty);
    let thread = process.thread("t");
    thread.call(CallScript::new(0, 1_000, 1_000));
    thread.call(CallScript::new(1, 5_000, 1_000)).then(Item::Clock(6_500, 0, 6_500));
    let (_scratch, profile) = script.opened();
    assert_eq!(summarize(&profile, &Options::default()).gaps, None, "it was not asked for");
    let found = with_gaps(&profile).gaps.unwrap();
    let row = |after, before, longest_at, ticks| Gap {
        thread: (0, 0),
        after,
        before,
        times: 1,
        total: ticks,
        median: ticks as f64,
        longest: ticks,
        longest_at,
    };
    let expected = [row(op(0), op(1), 2_000, 3_000), row(op(1), Side::End, 6_000, 500)];
    assert_eq!(found.rows, expected);
    assert_eq!((found.wall_ns, found.between_ns, found.recorder_ns), (5_500.0, 3_520.0, 20.0));
    assert_eq!(found.share(&found.rows[0]), Some(3_000.0 / 3_520.0));
    // There is only one thread, so its sums must equal those of the whole table.
    let threads = found.of_threads();
    assert_eq!((threads.len(), threads[0].total_ns, threads[0].wall_ns), (1, 3_520.0, 5_500.0));
}

#[test]
fn a_run_with_a_budget_has_no_gaps() {
    let mut script = ProfileScript::monotonic();
    script.budget(0.02);
    let process = script.process(7);
    process.library("m", &["a"]);
    process.thread("t").call(CallScript::new(0, 0, 10));
    let (_scratch, profile) = script.opened();
    assert_eq!(with_gaps(&profile).gaps, None);
}

/// Adds to `all` a call that begins at `now`, and the calls that it makes, as (op, begin, end).
/// Each call is added after the calls inside of it.
fn called(random: &mut Random, now: &mut u64, depth: u32, all: &mut Vec<(u32, u64, u64)>) {
    let (op, begin) = (random.below(5) as u32, *now);
    *now += 1 + random.below(20);
    for _ in 0..random.below(4) {
        if depth < 4 {
            called(random, now, depth + 1, all);
            *now += random.below(9);
        }
    }
    *now += random.below(20);
    all.push((op, begin, *now));
}

/// A page (a block of a thread's recorded calls) has at most seven calls here. Therefore, many
/// outer calls are on another page than some of the calls inside of them. The expected gaps are
/// computed from the outermost calls.
#[test]
fn gaps_of_nested_calls_on_many_pages() {
    for seed in 1..30 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut script = ProfileScript::monotonic();
        let process = script.process(7);
        process.library("m", &["a", "b", "c", "d", "e"]);
        let mut expected: BTreeMap<(usize, Side, Side), (u64, u64, u64)> = BTreeMap::new();
        for at in 0..3 {
            let thread = process.thread(&format!("t{at}"));
            let mut now = 100;
            let (mut last, mut written) = (None, 0);
            for _ in 0..40 {
                let mut all = Vec::new();
                called(&mut random, &mut now, 0, &mut all);
                for (op, begin, end) in &all {
                    written += 1;
                    if written % 7 == 0 {
                        thread.then(Item::NextPage(*end, 0, *end));
                    }
                    thread.call(CallScript::new(*op, *begin, end - begin));
                }
                let (of, begin, end) = all.last().copied().unwrap();
                if let Some((before, from)) = last.filter(|(_, from)| begin > *from) {
                    let sum = expected.entry((at, op(before), op(of))).or_default();
                    let gap: u64 = begin - from;
                    *sum = (sum.0 + 1, sum.1 + gap, sum.2.max(gap));
                }
                last = Some((of, end));
                now += random.below(30);
            }
        }
        let (_scratch, profile) = script.opened();
        for (workers, round) in [(1, None), (3, Some(5))] {
            let options = Options { gaps: true, workers, round, ..Options::default() };
            let summary = summarize(&profile, &options);
            let found = summary.gaps.clone().unwrap();
            let rows = found.rows.iter().filter(|row| row.before != Side::End);
            let rows: BTreeMap<_, _> = rows
                .map(|row| {
                    let of = (row.thread.1, row.after, row.before);
                    (of, (row.times, row.total, row.longest))
                })
                .collect();
            assert_eq!(rows, expected, "seed {seed}");
            let all: u64 = found.rows.iter().map(|row| row.total).sum();
            assert_eq!(Some(all as f64), summary.between(&profile), "seed {seed}");
            assert_eq!(found.recorder_ns, 0.0);
        }
    }
}
