//! Sets of counters by name, opened for the calling thread.

use ::machine::Machine;
use counters::{Plan, ReadStatus, Readings, ThreadCounters};
use model::Counter;
use names::Resolver;

/// Resolves counter names as the option `-e` of `counterpoint` does.
pub fn resolve(names: &str) -> Vec<Counter> {
    let machine = Machine::here();
    Resolver::new(&machine).resolve(names).unwrap_or_else(|e| panic!("resolve {names}: {e}"))
}

pub fn plan(names: &str) -> Plan {
    Plan::new(resolve(names)).unwrap_or_else(|e| panic!("plan {names}: {e}"))
}

/// Opens counters and reads them a few times, so that later readings cause no page faults.
pub fn open(plan: &Plan) -> ThreadCounters<'_> {
    let mut counters = ThreadCounters::closed();
    counters.open(plan).unwrap_or_else(|e| panic!("{e}"));
    let mut readings = Readings::new();
    for _ in 0..3 {
        assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
    }
    counters
}

/// Returns the readings before and after `work`. Their difference includes the readings' own cost.
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
