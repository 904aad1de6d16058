//! Tests simulated counters with the same calls as for real counters, but without the kernel. The
//! expected values were computed by hand.

use counters::{Coverage, Plan, ReadStatus, Readings, ThreadCounters};
use model::SimReading;
use testkit::counting::sim;

fn step(add: u64, enabled: u64, running: u64) -> SimReading {
    SimReading { add, enabled, running, fails: false }
}

#[test]
fn a_script_starts_over_and_continues_its_values() {
    let plan = Plan::new(vec![sim("calls", 0, &[step(0, 10, 10), step(5, 10, 10)])]).unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    assert_eq!(counters.descriptors().count(), 0);
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    for call in 0..1000 {
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        assert_eq!(counters.read(&mut end), ReadStatus::Complete);
        assert_eq!(begin.value(0), Some(5 * call));
        assert_eq!(end.since(&begin, 0), Some(5));
        assert_eq!(end.coverage(&begin, 0), Coverage::Whole);
    }
    assert_eq!(end.enabled(0), Some(20_000));
}

#[test]
fn values_wrap_as_the_kernels_do() {
    let script = [step(u64::MAX - 1, 1, 1), step(5, 1, 1)];
    let plan = Plan::new(vec![sim("wraps", 0, &script)]).unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
    assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    assert_eq!((begin.value(0), end.value(0)), (Some(u64::MAX - 1), Some(3)));
    assert_eq!(end.since(&begin, 0), Some(5));
}

#[test]
fn failing_and_multiplexed_readings() {
    let fails = SimReading { fails: true, ..step(3, 10, 10) };
    let script = [step(1, 10, 10), step(1, 10, 4), step(1, 10, 0), fails];
    let plan = Plan::new(vec![
        sim("a", 0, &script),
        sim("b", 0, &[step(2, 0, 0)]),
        sim("c", 1, &[step(7, 1, 1)]),
    ])
    .unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let mut r = [const { Readings::new() }; 5];
    let status: Vec<_> = r.iter_mut().map(|r| counters.read(r)).collect();
    use ReadStatus::{Complete, Partial};
    assert_eq!(status, [Complete, Complete, Complete, Partial, Complete]);
    assert_eq!(r[1].coverage(&r[0], 1), Coverage::Part { enabled_ns: 10, running_ns: 4 });
    assert_eq!(r[2].coverage(&r[1], 0), Coverage::Nothing);
    // A failed reading takes away the values of its own group only.
    assert_eq!([0, 1, 2].map(|i| r[3].value(i)), [None, None, Some(28)]);
    assert_eq!(r[3].missing(), !0b100);
    assert_eq!(r[3].coverage(&r[2], 0), Coverage::Nothing);
    assert_eq!([0, 1, 2].map(|i| r[4].since(&r[2], i)), [Some(4), Some(4), Some(14)]);
}
