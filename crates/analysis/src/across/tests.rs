//! Tests with numbers that were computed by hand, and with many ranks of which one is slow.

use super::*;

fn measured(calls: i128, own: i128) -> Sums {
    Sums {
        calls: Some(calls),
        total_ns: Some(own),
        total_range_ns: Some((own, own)),
        own_ns: Some(own),
        is_estimate: false,
    }
}

fn add(to: &mut Gathered, rank: u32, name: &str, sums: Sums) {
    to.add("r", rank, Input { key: name, name, sums });
}

#[test]
fn sums_and_imbalance_by_hand() {
    let mut all = Gathered::default();
    for (rank, own) in [(0, 10), (1, 20), (2, 60)] {
        add(&mut all, rank, "matmul", measured(2, own));
    }
    add(&mut all, 2, "add", measured(1, 30));
    all.place("r", 3);
    let found = all.finish();
    let run = &found[0];
    assert_eq!(run.sums.own_ns, Some(120));
    // In `matmul`, rank 2 took 60 ns, which is twice the mean over the three ranks that called it.
    assert_eq!((run.ops[0].imbalance, run.ops[0].most, run.ops[0].ranks), (Some(2.0), Some(2), 3));
    assert_eq!((run.ops[1].imbalance, run.ops[1].ranks), (Some(1.0), 1));
    // In all ops, rank 2 took 90 ns, which is three times the mean over four ranks.
    assert_eq!(run.imbalance, Some(3.0));
    let of_mean: Vec<_> = run.ranks.iter().map(|rank| rank.of_mean).collect();
    assert_eq!(of_mean, [Some(1.0 / 3.0), Some(2.0 / 3.0), Some(3.0), Some(0.0)]);
    // The medians of the two ops are 15 and 0.
    let slow = run.ranks[2].slow.unwrap();
    assert_eq!((slow.op, slow.median_ns, slow.ns(), slow.part()), (0, 15.0, 45.0, Some(3.0)));
    assert!(run.slow().is_empty(), "with four ranks, nobody knows what is usual");
    assert_eq!(run.ranks[0].slow, None);
}

/// One rank computes longer and the other ranks wait for it, so all ranks take the same time.
#[test]
fn a_rank_for_which_others_wait_is_found() {
    let mut all = Gathered::default();
    for rank in 0..64u32 {
        let noise = i128::from(rank * 37 % 11) * 1_000;
        let compute = 1_000_000 + noise + if rank == 17 { 150_000 } else { 0 };
        add(&mut all, rank, "conv", measured(10, compute));
        add(&mut all, rank, "all_reduce", measured(10, 1_500_000 - compute));
        add(&mut all, rank, "norm", measured(10, 50_000 + i128::from(rank * 29 % 7) * 500));
    }
    let found = all.finish();
    let slow = found[0].slow();
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!((slow[0].0.rank, &*found[0].ops[slow[0].1.op].name), (17, "conv"));
    // The noise of rank 17 is 2 µs, and the median noise is 5 µs. So the added 150 µs are found as
    // 147 µs.
    assert_eq!(slow[0].1.ns(), 147_000.0);
    assert!(found[0].imbalance.is_some_and(|imbalance| imbalance < 1.01));
}

#[test]
fn without_a_planted_rank_none_stands_out() {
    let mut random = testkit::Random(0xacc);
    for _ in 0..200 {
        let mut all = Gathered::default();
        for rank in 0..64 {
            for op in ["a", "b", "c", "d"] {
                // The sum of twelve random numbers has nearly a normal distribution.
                let noise: u64 = (0..12).map(|_| random.below(20_000)).sum();
                add(&mut all, rank, op, measured(10, 1_000_000 + i128::from(noise)));
            }
        }
        assert!(all.finish()[0].slow().is_empty());
    }
}

#[test]
fn what_is_not_known_is_not_zero() {
    let mut all = Gathered::default();
    for rank in 0..6 {
        add(&mut all, rank, "a", measured(1, 100));
    }
    let counted = Sums { total_ns: None, total_range_ns: None, own_ns: None, ..measured(9, 0) };
    add(&mut all, 6, "a", counted);
    // The interval of this estimate contains the time of the other ranks.
    let wide = Sums { total_range_ns: Some((100, 900)), is_estimate: true, ..measured(1, 500) };
    add(&mut all, 7, "a", wide);
    let found = all.finish();
    let run = &found[0];
    assert_eq!((run.sums.calls, run.sums.own_ns), (Some(16), None));
    assert_eq!((run.ranks[6].slow, run.ranks[6].of_mean), (None, None));
    let slow = run.ranks[7].slow.unwrap();
    assert!(slow.ns() == 400.0 && !slow.stands_out && slow.is_estimate);
}

#[test]
fn quantiles_are_of_all_calls_or_unknown() {
    let mut all = Gathered::default();
    add(&mut all, 0, "a", measured(3, 300));
    for value in [90, 100, 110] {
        all.histogram("r", "a").add(value);
    }
    add(&mut all, 0, "b", measured(3, 300));
    all.histogram("r", "b").add(100);
    let found = all.finish();
    let of = |name: &str| found[0].ops.iter().find(|op| op.name == name).unwrap();
    assert_eq!((of("a").p50_ns, of("a").p99_ns), (Some(100), Some(110)));
    assert_eq!(of("b").p50_ns, None);
}
