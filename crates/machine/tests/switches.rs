//! Tests what must hold for every measurement of context switches.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use counters::Plan;
use machine::Machine;
use machine::switches;
use model::{Counter, PerfAttr, SimReading};
use names::Resolver;
use testkit::counting::*;

#[test]
fn two_threads_take_turns_with_and_without_counters() {
    if !can_count() {
        return;
    }
    let plan =
        Plan::new(Resolver::new(&Machine::here()).resolve("page-faults:u").unwrap()).unwrap();
    let cpus = std::thread::available_parallelism().unwrap();
    let Some(found) = switches::measure(&plan) else {
        return skip("threads cannot be kept on one CPU");
    };
    // Seven batches have counters, and each of the two threads has 60 turns in a batch. A turn
    // needs no switch if the other thread is still awake, so there can be fewer switches than
    // turns.
    assert!(found.switches > 7 * 60, "{found:?}");
    assert!(found.bare_ns > 0.0 && found.added_ns >= 0.0, "{found:?}");
    let [least, most] = found.added_range_ns;
    assert!(least <= most && found.added_ns <= most.max(0.0), "{found:?}");
    // The caller may still run on as many CPUs as before.
    assert_eq!(cpus, std::thread::available_parallelism().unwrap());
}

/// `measure` returns `None` if the plan has no counter of the kernel, or has one that cannot be
/// opened.
#[test]
fn nothing_to_measure() {
    let plan = |counters: Vec<Counter>| Plan::new(counters).unwrap();
    assert_eq!(switches::measure(&plan(vec![])), None);
    let simulated = sim("simulated", 0, &[SimReading { add: 1, ..SimReading::default() }]);
    assert_eq!(switches::measure(&plan(vec![simulated])), None);
    if can_count() {
        // No PMU has this type.
        let nowhere = perf("nowhere", 0, PerfAttr { kind: u32::MAX, ..software(2) });
        assert_eq!(switches::measure(&plan(vec![nowhere])), None);
    }
}
