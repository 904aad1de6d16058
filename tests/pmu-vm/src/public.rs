//! Tests the public interface for counting, with a closure and counter names.

use measure::Counters;
use measure::ErrorKind;

use crate::loops::{self, Random};
use crate::report::tests;
use crate::user::user_access;

tests![public: a_closure, more_than_there_are];

/// Both counts grow by two for each trip, because the emulator executes one instruction per cycle.
fn a_closure() {
    let mut random = Random::new("closure");
    for on in [false, true] {
        user_access(on);
        let mut counters =
            Counters::open(["cycles:u", "instructions:u"]).expect("open both counters");
        let mut spin = |trips| {
            let ((), m) = counters.measure(|| loops::spin(trips));
            ["cycles:u", "instructions:u"].map(|name| m.value(name).expect("was counted"))
        };
        let empty = spin(0);
        for _ in 0..4 {
            let trips = random.below(1_000_000);
            assert_eq!(spin(trips), empty.map(|constant| 2 * trips + constant), "user mode: {on}");
        }
    }
}

/// Twelve counters take turns on six hardware counters, so their values are not exact, but
/// estimates within 1 % of the truth.
fn more_than_there_are() {
    user_access(false);
    let names: Vec<String> =
        (0..12).map(|i| format!("armv8_pmuv3/config=0x8,name=i{i}/u")).collect();
    let Err(refused) = Counters::open(&names) else { panic!("twelve do not fit six") };
    println!("{refused}");
    assert!(!matches!(refused.kind(), ErrorKind::Name(_)), "{refused}");
    assert!(refused.to_string().ends_with("i0,i1,i2,i3,i4,i5} fit together"), "{refused}");

    let builder = names.iter().fold(Counters::builder(), |builder, name| builder.group([name]));
    let mut counters = builder.multiplex().open().expect("open counters that take turns");
    let trips = 400_000 + Random::new("public turns").below(100_000);
    let ((), m) = counters.measure(|| loops::run(trips));
    let truth = 256.0 * trips as f64;
    assert_eq!(m.counts().count(), 12);
    for count in m.counts() {
        assert_eq!(count.exact(), None, "counted only part of the time");
        let estimate = count.estimate().expect("each counter had a turn") as f64;
        assert!((estimate / truth - 1.0).abs() < 0.01, "{estimate} of {truth}");
        assert!((0.3..0.7).contains(&count.covered()), "{}", count.covered());
    }
}
