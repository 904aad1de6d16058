//! Opens and reads real counters. Counts are checked exactly where the source is exact.

use counters::{Coverage, OpenErrorKind, Plan, ReadStatus, Readings, Target, ThreadCounters};
use testkit::counting::*;

#[test]
fn page_faults_of_touched_pages_are_exact() {
    if !can_count() {
        return;
    }
    let plan = Plan::new(vec![perf("page-faults:u", 0, PAGE_FAULTS)]).unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    // The first round faults in code, stack and buffers.
    for round in 0..5 {
        let memory = Fresh::new(1000 * 4096);
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        memory.touch(4096);
        assert_eq!(counters.read(&mut end), ReadStatus::Complete);
        if round > 0 {
            assert_eq!(end.since(&begin, 0), Some(1000));
            assert_eq!(end.coverage(&begin, 0), Coverage::Whole);
        }
    }
    // An empty region counts exactly zero.
    assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
    assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    assert_eq!(end.since(&begin, 0), Some(0));
    counters.close();
    assert_eq!(counters.read(&mut end), ReadStatus::Closed);
    assert_eq!(end.value(0), None);
}

#[test]
fn several_groups_and_a_simulated_one_read_together() {
    if !can_count() {
        return;
    }
    let ten = model::SimReading { add: 10, enabled: 1, running: 1, fails: false };
    let plan = Plan::new(vec![
        perf("dummy:u", 0, DUMMY),
        perf("page-faults:u", 0, PAGE_FAULTS),
        sim("sim", 1, &[ten]),
        perf("minor-faults:u", 2, software(5)),
    ])
    .unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    assert_eq!(counters.descriptors().count(), 3);
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    for _ in 0..2 {
        let memory = Fresh::new(100 * 4096);
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        memory.touch(4096);
        assert_eq!(counters.read(&mut end), ReadStatus::Complete);
    }
    let counts = [0, 1, 2, 3, 4].map(|i| end.since(&begin, i));
    assert_eq!(counts, [Some(0), Some(100), Some(10), Some(100), None]);
    assert_eq!(end.missing(), !0b1111);
    assert_eq!(end.coverage(&begin, 3), Coverage::Whole);
    counters.close();
}

#[test]
fn the_fullest_plans_open() {
    if !can_count() {
        return;
    }
    for group_of in [(|_| 0) as fn(u16) -> u16, |i| i, |i| i / 5] {
        let all = (0..32).map(|i| perf("page-faults:u", group_of(i), PAGE_FAULTS)).collect();
        let plan = Plan::new(all).unwrap();
        let mut counters = ThreadCounters::closed();
        counters.open(&plan).unwrap();
        let (mut begin, mut end) = (Readings::new(), Readings::new());
        for _ in 0..2 {
            let memory = Fresh::new(7 * 4096);
            assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
            memory.touch(4096);
            assert_eq!(counters.read(&mut end), ReadStatus::Complete);
        }
        assert!((0..32).all(|i| end.since(&begin, i) == Some(7)));
        assert_eq!(end.missing(), 0);
        counters.close();
    }
}

#[test]
fn a_plan_without_counters_is_valid() {
    let plan = Plan::new(vec![]).unwrap();
    let mut counters = ThreadCounters::closed();
    let mut out = Readings::new();
    assert_eq!(counters.read(&mut out), ReadStatus::Closed);
    counters.open(&plan).unwrap();
    assert_eq!(counters.read(&mut out), ReadStatus::Complete);
    assert_eq!(out.missing(), !0);
    counters.close();
}

/// Imitates multiplexing with a counter that is bound to one CPU while the thread also runs on
/// another. The reader sees the same words as when counters take turns.
#[test]
fn a_counter_that_ran_part_of_the_time_reports_it() {
    if !can_count() {
        return;
    }
    // The lowest and the highest CPU that we may use.
    // SAFETY: cpu_set_t is plain data, which sched_getaffinity fills.
    let allowed: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..1024).filter(|&c| libc::CPU_ISSET(c, &set)).collect()
    };
    let [here, .., there] = allowed[..] else {
        return skip("one processor only");
    };
    let task_clock = software(1);
    let plan = Plan::new(vec![perf("task-clock:u", 0, task_clock)]).unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open_for(&plan, Target { pid: 0, cpu: here as i32 }).unwrap();
    let (mut a, mut b, mut c) = (Readings::new(), Readings::new(), Readings::new());
    pin(there);
    assert_eq!(counters.read(&mut a), ReadStatus::Complete);
    spin();
    assert_eq!(counters.read(&mut b), ReadStatus::Complete);
    assert_eq!(b.coverage(&a, 0), Coverage::Nothing);
    pin(here);
    spin();
    assert_eq!(counters.read(&mut c), ReadStatus::Complete);
    let Coverage::Part { enabled_ns, running_ns } = c.coverage(&a, 0) else {
        panic!("{:?}", c.coverage(&a, 0));
    };
    assert!(0 < running_ns && running_ns < enabled_ns, "{running_ns} of {enabled_ns} ns");
    counters.close();
}

fn pin(cpu: usize) {
    // SAFETY: a local set with one CPU that sched_getaffinity returned.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn spin() {
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 5 {}
}

#[test]
fn a_failed_open_leaks_nothing_and_names_the_counter() {
    if !can_count() {
        return;
    }
    let before = open_descriptors();
    let absent = model::PerfAttr { config: 999, ..PAGE_FAULTS };
    let plan = Plan::new(vec![
        perf("page-faults:u", 0, PAGE_FAULTS),
        perf("dummy:u", 1, DUMMY),
        perf("absent", 1, absent),
    ])
    .unwrap();
    // This runs in a child, because other tests of this process open descriptors at the same time.
    let code = in_child(|| {
        let before = count_descriptors();
        let mut counters = ThreadCounters::closed();
        let failure = counters.open(&plan).unwrap_err();
        let mut ok = failure.counter == 2;
        ok &= failure.error.kind == OpenErrorKind::NoSuchCounter;
        ok &= !counters.is_open() && counters.descriptors().count() == 0;
        ok &= count_descriptors() == before;
        // Opening and closing does not leak either.
        let good = Plan::new(plan.counters()[..2].to_vec()).unwrap();
        for _ in 0..100 {
            counters.open(&good).unwrap();
        }
        counters.close();
        ok &= count_descriptors() == before;
        i32::from(!ok)
    });
    assert_eq!(code, 0);
    assert!(before > 0);
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, |d| d.count())
}

/// Counts without a directory stream, which would itself be a descriptor.
fn count_descriptors() -> usize {
    // SAFETY: F_GETFD accepts any number.
    (0..20_000).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).count()
}

#[test]
fn descriptors_are_high_and_close_on_exec() {
    if !can_count() {
        return;
    }
    let plan = Plan::new(vec![perf("dummy:u", 0, DUMMY); 3]).unwrap();
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to the struct that it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let lowest = (limit.rlim_cur.min(8192) / 4 * 3) as i32;
    for fd in counters.descriptors() {
        assert!(fd >= lowest, "{fd} is below {lowest}");
        // SAFETY: F_GETFD accepts any number.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert!(counters.owns(fd));
    }
    assert!(!counters.owns(0) && !counters.owns(-1));
    counters.close();
}

/// Linux 6.18 schedules a member whose PMU differs from its leader's only after a context switch.
/// Every order must count from the first reading on.
#[test]
fn every_member_counts_at_once_whatever_the_order() {
    if !can_count() {
        return;
    }
    let clock = || perf("task-clock:u", 0, software(1));
    let other_clock = || perf("cpu-clock:u", 0, software(0));
    let faults = || perf("page-faults:u", 0, PAGE_FAULTS);
    let dummy = || perf("dummy:u", 0, DUMMY);
    for group in [
        vec![faults(), clock()],
        vec![clock(), faults()],
        vec![dummy(), clock(), faults(), other_clock()],
        vec![other_clock(), clock(), dummy(), faults()],
    ] {
        let plan = Plan::new(group).unwrap();
        for round in 0..5 {
            let mut counters = ThreadCounters::closed();
            counters.open(&plan).unwrap();
            let (mut begin, mut end) = (Readings::new(), Readings::new());
            let memory = Fresh::new(50 * 4096);
            assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
            memory.touch(4096);
            assert_eq!(counters.read(&mut end), ReadStatus::Complete);
            for (i, counter) in plan.counters().iter().enumerate() {
                let value = end.since(&begin, i).unwrap();
                match counter.name.as_str() {
                    "dummy:u" => assert_eq!(value, 0),
                    "page-faults:u" if round > 0 => assert_eq!(value, 50, "{:?}", plan.counters()),
                    "page-faults:u" => assert!(value >= 50, "{:?}", plan.counters()),
                    name => assert!(value > 0, "{name} stood still in {:?}", plan.counters()),
                }
            }
            counters.close();
        }
    }
}
