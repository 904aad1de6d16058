//! Tests counters of another thread, which exists before the counters are opened.

use std::sync::mpsc;

use counters::{Plan, ReadStatus, Readings, Target, ThreadCounters};

use crate::loops::{self, Random};
use crate::report::tests;
use crate::set;

tests![threads: another_threads_work_is_its_own, our_work_is_not_theirs];

fn tid() -> i32 {
    // SAFETY: `gettid` has no preconditions.
    unsafe { libc::gettid() }
}

fn read(counters: &mut ThreadCounters<'_>) -> Readings {
    let mut readings = Readings::new();
    assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
    readings
}

/// Starts a worker thread, and calls `test` with two arguments: the worker's id, and a function
/// that lets the worker run a number of loop trips and waits for them.
fn with_worker(test: impl FnOnce(i32, &dyn Fn(u64))) {
    let (order, orders) = mpsc::channel::<u64>();
    let (done, reports) = mpsc::channel::<i32>();
    let worker = std::thread::spawn(move || {
        done.send(tid()).expect("send to the test");
        for trips in orders {
            loops::spin(trips);
            done.send(0).expect("send to the test");
        }
    });
    let id = reports.recv().expect("receive from the worker");
    test(id, &|trips| {
        order.send(trips).expect("send to the worker");
        reports.recv().expect("receive from the worker");
    });
    drop(order);
    worker.join().expect("the worker ends");
}

fn plan() -> Plan {
    set::plan("instructions:u")
}

/// The worker's instructions for the channel vary in number, but those for its loop do not.
fn another_threads_work_is_its_own() {
    let plan = plan();
    with_worker(|worker, work| {
        let mut counters = ThreadCounters::closed();
        counters
            .open_for(&plan, Target { pid: worker, cpu: -1 })
            .expect("root may count other threads");
        let mut count = |trips| {
            let begin = read(&mut counters);
            work(trips);
            read(&mut counters).since(&begin, 0).expect("the counter was read")
        };
        count(0);
        let mut random = Random::new("threads");
        for _ in 0..4 {
            let trips = 1_000_000 + random.below(1_000_000);
            let (empty, full) = (count(0), count(trips));
            let error = full.abs_diff(empty + 2 * trips);
            println!("{trips} trips: {full} − {empty}, {error} off");
            assert!(error < 2_000, "{full} − {empty} is not 2 · {trips}");
        }
        counters.close();
    });
}

fn our_work_is_not_theirs() {
    let plan = plan();
    with_worker(|worker, work| {
        work(1);
        let mut counters = ThreadCounters::closed();
        counters
            .open_for(&plan, Target { pid: worker, cpu: -1 })
            .expect("root may count other threads");
        std::thread::sleep(std::time::Duration::from_millis(10));
        let begin = read(&mut counters);
        loops::spin(1_000_000);
        assert_eq!(read(&mut counters).since(&begin, 0), Some(0));
        counters.close();
    });
}
