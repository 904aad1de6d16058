//! Tests that group reads count exactly: k n + c instructions for n trips of a loop of k
//! instructions, with the same c for every n. c is measured with zero trips.

use counters::{Coverage, ThreadCounters};

use crate::loops::{self, Random};
use crate::report::tests;
use crate::set;

tests![exact: known_loops, cycles_are_instructions, two_slopes];

/// Returns the count of the counter with index `counter` for a loop of `trips` iterations. The
/// function is not inlined, so that the loop is in only one place, and all counts contain the same
/// constant.
#[inline(never)]
fn spin(counters: &mut ThreadCounters<'_>, trips: u64, counter: usize) -> u64 {
    let [begin, end] = set::measure(counters, || loops::spin(trips));
    assert_eq!(end.coverage(&begin, counter), Coverage::Whole);
    end.since(&begin, counter).expect("the counter was read")
}

fn known_loops() {
    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    let constant = spin(&mut counters, 0, 0);
    // The constant contains two instructions around the loop, and those of the readings.
    assert!((2..200).contains(&constant), "an empty loop counts {constant}");
    let mut random = Random::new("known_loops");
    for digits in [1, 10, 1_000, 100_000, 10_000_000] {
        for _ in 0..4 {
            let trips = random.below(digits) + 1;
            let counted = spin(&mut counters, trips, 0);
            assert_eq!(counted, 2 * trips + constant, "{trips} trips, constant {constant}");
        }
    }
    println!("2 n + {constant} for 20 random n up to 10⁷");
    counters.close();
}

/// In the emulator, each instruction takes one cycle. So the cycle counter, which a PMU has besides
/// the counter of instructions, also counts 2 n plus a constant.
fn cycles_are_instructions() {
    let plan = set::plan("{cycles:u,instructions:u}");
    let mut counters = set::open(&plan);
    let [cycles, instructions] = [0, 1].map(|counter| spin(&mut counters, 0, counter));
    let mut random = Random::new("cycles");
    for _ in 0..8 {
        let trips = random.below(1_000_000);
        assert_eq!(spin(&mut counters, trips, 0), 2 * trips + cycles, "cycles");
        assert_eq!(spin(&mut counters, trips, 1), 2 * trips + instructions, "instructions");
    }
    counters.close();
}

/// A loop of three instructions shows that the factor of n comes from the loop.
fn two_slopes() {
    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    let mut three = |trips| {
        let [begin, end] = set::measure(&mut counters, || loops::spin3(trips));
        end.since(&begin, 0).expect("the counter was read")
    };
    let constant = three(0);
    let mut random = Random::new("two_slopes");
    for _ in 0..8 {
        let trips = random.below(1_000_000);
        assert_eq!(three(trips), 3 * trips + constant, "{trips} trips");
    }
    counters.close();
}
