//! Sets of counters by name, opened for the calling thread.

use ::machine::Machine;
use counters::{Plan, ReadStatus, Readings, ThreadCounters};
use model::Counter;
use names::Resolver;

/// What was typed, as `-e` resolves it.
pub fn resolve(names: &str) -> Vec<Counter> {
    let machine = Machine::here();
    Resolver::new(&machine).resolve(names).unwrap_or_else(|e| panic!("resolve {names}: {e}"))
}

/// A plan of it.
pub fn plan(names: &str) -> Plan {
    Plan::new(resolve(names)).unwrap_or_else(|e| panic!("plan {names}: {e}"))
}

/// Opened and warmed up: every page that a reading touches is there.
pub fn open(plan: &Plan) -> ThreadCounters<'_> {
    let mut counters = ThreadCounters::closed();
    counters.open(plan).unwrap_or_else(|e| panic!("{e}"));
    let mut readings = Readings::new();
    for _ in 0..3 {
        assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
    }
    counters
}

/// What the counters of `open` counted while `work` ran, with the readings' own share.
#[inline(always)]
pub fn measure(counters: &mut ThreadCounters<'_>, work: impl FnOnce()) -> [Readings; 2] {
    let mut readings = [const { Readings::new() }; 2];
    let [begin, end] = &mut readings;
    let first = counters.read(begin);
    work();
    let second = counters.read(end);
    assert_eq!((first, second), (ReadStatus::Complete, ReadStatus::Complete));
    readings
}
