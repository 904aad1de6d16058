//! Tests the limits of a PMU with six event counters and a cycle counter, and the messages about
//! these limits.

use ::machine::Machine;
use ::machine::check;
use counters::{Coverage, OpenErrorKind, Plan, ReadStatus, Readings, ThreadCounters};
use model::Counter;

use crate::loops::{self, Random};
use crate::report::tests;
use crate::set;

tests![
    limits:
    twelve_are_refused,
    twelve_in_passes,
    twelve_take_turns,
    pinned_without_hardware_is_missing,
    caches_and_branches_are_not_there,
    a_machine_of_six_and_one,
];

/// Returns twelve names for the event INST_RETIRED, which has the number 0x08 in the Arm manual. A
/// counter of this event needs one of the six event counters, not the cycle counter. The names
/// differ, so that messages can name each counter.
fn twelve() -> Vec<String> {
    (0..12).map(|i| format!("armv8_pmuv3/config=0x8,name=i{i}/u")).collect()
}

fn resolve_in(names: &[String], open: &str, close: &str) -> Vec<Counter> {
    set::resolve(&names.iter().map(|n| format!("{open}{n}{close}")).collect::<Vec<_>>().join(","))
}

fn twelve_are_refused() {
    let group = set::resolve(&format!("{{{}}}", twelve().join(",")));
    let report = check::check(&group, &Machine::here());
    assert!(report.counters.iter().all(Result::is_ok), "each counter works alone: {report:?}");
    let problem = report.together.expect_err("twelve counters do not fit six");
    println!("{}", problem.message);
    assert_eq!(problem.error.map(|e| e.kind), Some(OpenErrorKind::Invalid));
    // Six counters work, seven do not.
    let works = |n: usize| check::check(&group[..n], &Machine::here()).problem().is_none();
    assert!(works(6), "six counters fit");
    assert!(!works(7), "seven counters do not fit");
    let check::Cause::TooMany { fits, .. } = problem.cause else { panic!("{problem:?}") };
    let names: Vec<String> = group[..6].iter().map(|counter| counter.name.clone()).collect();
    assert_eq!(fits, names);
}

fn twelve_in_passes() {
    let all = twelve();
    let trips = Random::new("passes").below(1_000_000);
    let mut counted = Vec::new();
    for half in all.chunks(6) {
        let plan = set::plan(&format!("{{{}}}", half.join(",")));
        let mut counters = set::open(&plan);
        let mut pass = |trips| {
            let [begin, end] = set::measure(&mut counters, || loops::spin(trips));
            (0..6).map(|i| end.since(&begin, i).expect("the counter was read")).collect::<Vec<_>>()
        };
        let empty = pass(0);
        counted.extend(pass(trips).iter().zip(empty).map(|(n, constant)| n - constant));
        counters.close();
    }
    assert_eq!(counted, [2 * trips; 12]);
}

/// Each counter is in its own group. Each count, divided by the share of the time in which its
/// counter ran, is within 1 % of the truth.
fn twelve_take_turns() {
    let plan = Plan::new(resolve_in(&twelve(), "{", "}")).expect("twelve groups");
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("open counters that take turns");
    let trips = 400_000 + Random::new("turns").below(100_000);
    let [begin, end] = set::measure(&mut counters, || loops::run(trips));
    for i in 0..12 {
        let Coverage::Part { enabled_ns, running_ns } = end.coverage(&begin, i) else {
            panic!("counter {i} of twelve: {:?}", end.coverage(&begin, i));
        };
        let share = running_ns as f64 / enabled_ns as f64;
        let counted = end.since(&begin, i).expect("the counter was read") as f64;
        let truth = 256.0 * trips as f64;
        let scaled = counted / share;
        println!(
            "i{i}: ran {:.1} %, scaled {:+.3} %",
            100.0 * share,
            100.0 * (scaled / truth - 1.0)
        );
        assert!((0.3..0.7).contains(&share), "six of twelve should run half of the time");
        assert!((scaled / truth - 1.0).abs() < 0.01, "{scaled} of {truth}");
        assert!(
            counted < 0.8 * truth,
            "without scaling, the count is too small: {counted} of {truth}"
        );
    }
    counters.close();
}

/// Pinned counters do not take turns. A pinned counter for which no hardware counter is left has no
/// value.
fn pinned_without_hardware_is_missing() {
    let names: Vec<String> = twelve().iter().map(|name| format!("{name}D")).collect();
    let plan = Plan::new(resolve_in(&names, "", "")).expect("twelve groups of one pinned counter");
    assert_eq!(plan.groups().len(), 12);
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("opening reports no error");
    let mut readings = [const { Readings::new() }; 2];
    let [begin, end] = &mut readings;
    assert_eq!(counters.read(begin), ReadStatus::Partial);
    let trips = Random::new("pinned").below(100_000) + 100;
    loops::spin(trips);
    assert_eq!(counters.read(end), ReadStatus::Partial);
    for i in 0..12 {
        match end.since(begin, i) {
            Some(n) if i < 6 => assert!(n >= 2 * trips, "counter {i}: {n}"),
            None if i >= 6 => assert_eq!(end.coverage(begin, i), Coverage::Nothing),
            other => panic!("counter {i} of twelve pinned ones: {other:?}"),
        }
    }
    assert_eq!(end.missing() & 0xfff, 0xfc0);
    counters.close();
}

/// The emulated PMU counts neither caches nor branches.
fn caches_and_branches_are_not_there() {
    for name in ["cache-misses:u", "branch-misses:u", "L1-dcache-load-misses:u"] {
        let report = check::check(&set::resolve(name), &Machine::here());
        let problem = report.problem().expect("the machine does not have this counter");
        println!("{}", problem.message);
        assert_eq!(problem.error.map(|e| e.kind), Some(OpenErrorKind::NoSuchCounter));
        let expected =
            format!("open {name} on this thread: ENOENT (this machine's PMU has no such counter)");
        assert_eq!(problem.message, expected);
    }
}

/// The cycle counter is a separate register, so six more counters fit beside it.
fn a_machine_of_six_and_one() {
    let names = format!("{{cycles:u,{}}}", twelve()[..6].join(","));
    let report = check::check(&set::resolve(&names), &Machine::here());
    assert!(report.problem().is_none(), "{report:?}");
}
