//! Opens and reads real counters. Where the events can be counted exactly, the tests expect exact
//! counts.

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
    // The first round also counts faults of code, stack and buffers.
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
/// another.
#[test]
fn a_counter_that_ran_part_of_the_time_reports_it() {
    if !can_count() {
        return;
    }
    // SAFETY: `set` consists of integers, for which zero is a valid value, and outlives the call
    // that fills it.
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
    // SAFETY: the set is a local variable, and the CPU in it is one that sched_getaffinity
    // returned.
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
    // The test runs in a child process, because other tests in this process open descriptors at the
    // same time.
    let code = in_child(|| {
        let before = count_descriptors();
        let mut counters = ThreadCounters::closed();
        let failure = counters.open(&plan).unwrap_err();
        let mut ok = failure.counter == 2;
        ok &= failure.error.kind == OpenErrorKind::NoSuchCounter;
        ok &= !counters.is_open() && counters.descriptors().count() == 0;
        ok &= count_descriptors() == before;
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

/// Counts the open descriptors without a directory stream, which would itself use a descriptor.
fn count_descriptors() -> usize {
    // SAFETY: F_GETFD takes any number.
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
    // SAFETY: getrlimit writes to `limit`, which outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let lowest = (limit.rlim_cur.min(8192) / 4 * 3) as i32;
    for fd in counters.descriptors() {
        assert!(fd >= lowest, "{fd} is below {lowest}");
        // SAFETY: F_GETFD takes any number.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert!(counters.owns(fd));
    }
    assert!(!counters.owns(0) && !counters.owns(-1));
    counters.close();
}

/// If a group's member has another PMU than the leader, Linux 6.18 starts this member only at the
/// next context switch. In whatever order a group lists its counters, all of them must count from
/// the first reading on.
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

/// Measures the nanoseconds in a tick of the time-stamp counter, times 2³². Returns 0 if the
/// processor is not x86-64.
fn ns_per_tick() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction `rdtsc`.
    unsafe {
        use std::arch::x86_64::_rdtsc;
        let (begin, ticks) = (std::time::Instant::now(), _rdtsc());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (ns, ticks) = (begin.elapsed().as_nanos(), _rdtsc() - ticks);
        ((ns << 32) / u128::from(ticks)) as u64
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

#[test]
fn software_counters_read_without_the_kernel_are_those_of_the_kernel() {
    if !can_count() {
        return;
    }
    for number in [2, 3, 4, 5, 6] {
        // The kernel switches threads, so a counter of user mode never counts a context switch.
        let with_kernel = model::PerfAttr { exclude_kernel: false, ..software(number) };
        let with_kernel = [with_kernel].into_iter().find(|attr| {
            let fd = counters::perf::open(attr, Target::CALLING_THREAD, -1);
            // SAFETY: `fd` was just opened, and nobody else has it.
            fd.map(|fd| unsafe { libc::close(fd) }).is_ok()
        });
        let counts_kernel = with_kernel.is_some();
        let attr = with_kernel.unwrap_or(software(number));
        let plan = Plan::new(vec![perf("counted", 0, attr)]).unwrap();
        let (in_user, by_kernel) = (plan.clone().with_steady_ticks(ns_per_tick()), plan);
        let mut counters = [ThreadCounters::closed(), ThreadCounters::closed()];
        counters[0].open(&in_user).unwrap();
        counters[1].open(&by_kernel).unwrap();
        assert_eq!(counters[1].user_reads(), 0);
        if counters[0].user_reads() == 0 {
            eprintln!("SKIPPED: this machine has no ring buffer for {number}");
            continue;
        }
        let mut before = [Readings::new(), Readings::new()];
        let mut after = before.clone();
        let mut random = u64::from(std::process::id());
        let (mut sum, mut differences) = (0, Vec::new());
        for round in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            let pages = (random >> 33) as usize % 700 + 1;
            let memory = Fresh::new(pages * 4096);
            for i in [0, 1] {
                assert_eq!(counters[i].read(&mut before[i]), ReadStatus::Complete);
            }
            memory.touch(4096);
            if round % 20 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            for i in [0, 1] {
                assert_eq!(counters[i].read(&mut after[i]), ReadStatus::Complete);
            }
            let counts = [0, 1].map(|i| after[i].since(&before[i], 0).unwrap());
            // Between the readings of the two counters, there can be a context switch or a
            // migration, and in the first round a fault of the test's own memory.
            if round > 0 && number != 3 && number != 4 {
                assert_eq!(counts[0], counts[1], "event {number}, round {round}");
            }
            if round > 0 && (number == 2 || number == 5) {
                assert_eq!(counts[0], pages as u64);
            }
            sum += counts[0];
            assert_eq!(after[0].coverage(&before[0], 0), Coverage::Whole);
            let enabled =
                [0, 1].map(|i| after[i].enabled(0).unwrap() - before[i].enabled(0).unwrap());
            differences.push(enabled[0].abs_diff(enabled[1]));
        }
        differences.sort_unstable();
        assert!(differences[differences.len() / 2] < 20_000, "{differences:?} ns");
        // The thread slept ten times.
        assert!(number != 3 || !counts_kernel || sum >= 10, "{sum} context switches");
        let values = [0, 1].map(|i| after[i].value(0).unwrap());
        assert!(number == 3 || number == 4 || values[0].abs_diff(values[1]) <= 20, "{values:?}");
    }
}

#[test]
fn a_forked_child_does_not_read_its_parents_rings() {
    if !can_count() {
        return;
    }
    let plan = Plan::new(vec![perf("page-faults:u", 0, PAGE_FAULTS)]).unwrap();
    let plan = plan.with_steady_ticks(ns_per_tick());
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    if counters.user_reads() == 0 {
        eprintln!("SKIPPED: software counters are not read in user mode here");
        return;
    }
    let mut readings = Readings::new();
    // SAFETY: the child only reads counters, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = counters.read(&mut readings) != ReadStatus::Complete;
        // SAFETY: `_exit` ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `child` was forked above, and `status` has room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
}

/// Between two context switches, readings of software counters make no system call, so they still
/// work while the counters' descriptors refer to another file.
#[test]
fn software_counters_are_read_without_their_descriptors() {
    if !can_count() {
        return;
    }
    let plan =
        Plan::new(vec![perf("page-faults", 0, PAGE_FAULTS), perf("minor-faults", 0, software(5))]);
    let plan = plan.unwrap().with_steady_ticks(ns_per_tick());
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).unwrap();
    if counters.user_reads() == 0 {
        eprintln!("SKIPPED: software counters are not read in user mode here");
        return;
    }
    let (mut begin, mut end) = (Readings::new(), Readings::new());
    let mut last = 0;
    for _ in 0..100_000 {
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        let now = begin.enabled(0).unwrap();
        assert!(now >= last && begin.running(0) == Some(now));
        last = now;
    }
    let mut in_user = 0;
    for _ in 0..50 {
        let memory = Fresh::new(3 * 4096);
        assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        // For a moment, the descriptors refer to a file that cannot be read.
        // SAFETY: fcntl takes numbers only. It makes copies, which are closed below.
        let moved: Vec<(i32, i32)> = counters
            .descriptors()
            .map(|fd| unsafe { (fd, libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)) })
            .collect();
        // SAFETY: the path is a C string.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
        // SAFETY: dup2 takes numbers only. Only the counters use these descriptors, which are put
        // back below.
        moved.iter().for_each(|(fd, _)| assert!(unsafe { libc::dup2(null, *fd) } == *fd));
        memory.touch(4096);
        let status = counters.read(&mut end);
        for (fd, copy) in moved {
            // SAFETY: both calls take descriptors only: that of a counter, and its copy, which was
            // made above.
            unsafe { (libc::dup2(copy, fd), libc::close(copy)) };
        }
        // SAFETY: `null` was opened above, and nobody uses it after this.
        unsafe { libc::close(null) };
        if status == ReadStatus::Complete {
            in_user += 1;
            assert_eq!([0, 1].map(|i| end.since(&begin, i)), [Some(3); 2]);
        } else {
            // After a context switch between the two readings, the kernel had to read, so the
            // counters were lost.
            counters.open(&plan).unwrap();
            assert_eq!(counters.read(&mut begin), ReadStatus::Complete);
        }
    }
    assert!(in_user > 10, "{in_user}");
}

/// Makes more page faults in a second than the kernel's limit for samples allows
/// (`kernel.perf_event_max_sample_rate`, usually 100,000), and hundreds of times more than fit in
/// the ring buffer.
#[test]
fn no_event_is_lost_however_many_there_are() {
    if !can_count() {
        return;
    }
    let plan = Plan::new(vec![perf("page-faults:u", 0, PAGE_FAULTS)]).unwrap();
    let (in_user, by_kernel) = (plan.clone().with_steady_ticks(ns_per_tick()), plan);
    let mut counters = [ThreadCounters::closed(), ThreadCounters::closed()];
    counters[0].open(&in_user).unwrap();
    counters[1].open(&by_kernel).unwrap();
    let mut before = [Readings::new(), Readings::new()];
    let mut after = before.clone();
    for round in 0..3 {
        // The interval of the counter that the kernel reads begins before the interval of the other
        // counter and ends after it. Events between the ends of the two intervals, such as copies
        // of pages after a fork in another thread, are only in the kernel's count.
        for i in [1, 0] {
            assert_eq!(counters[i].read(&mut before[i]), ReadStatus::Complete);
        }
        for _ in 0..100 {
            Fresh::new(2000 * 4096).touch(4096);
        }
        for i in [0, 1] {
            assert_eq!(counters[i].read(&mut after[i]), ReadStatus::Complete);
        }
        let counts = [0, 1].map(|i| after[i].since(&before[i], 0).unwrap());
        // The first round also faults in this function's own memory.
        if round > 0 {
            assert!(200_000 <= counts[0] && counts[0] <= counts[1], "{counts:?}");
        }
    }
}

/// An unprivileged user may lock little memory. When this memory is used up, the kernel makes the
/// readings, and the counts stay exact.
#[test]
fn without_locked_memory_the_kernel_is_asked() {
    if !can_count() {
        return;
    }
    let plan = Plan::new(vec![perf("page-faults:u", 0, PAGE_FAULTS)]).unwrap();
    let plan = plan.with_steady_ticks(ns_per_tick());
    // SAFETY: the child has only this thread, opens and reads counters, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `none` outlives the calls. If `setresuid` fails, the child keeps its rights, and
        // its status is 3.
        let status = unsafe {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &none);
            match libc::setresuid(65_534, 65_534, 65_534) {
                0 => exhausted(&plan),
                _ => 3,
            }
        };
        // SAFETY: `_exit` ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: `child` was forked above, and `status` has room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    match libc::WEXITSTATUS(status) {
        _ if !libc::WIFEXITED(status) => panic!("the child ended with status {status}"),
        3 => eprintln!("SKIPPED: a user without rights may not count here"),
        status => assert_eq!(status, 0, "1: a wrong count; 2: memory was never used up"),
    }
}

/// Opens counters until the memory that the user may lock is used up. Returns 0 if that happened
/// and all counts were right.
fn exhausted(plan: &Plan) -> i32 {
    let mut open = Vec::new();
    for _ in 0..400 {
        let mut counters = ThreadCounters::closed();
        if counters.open(plan).is_err() {
            return if open.is_empty() { 3 } else { 2 };
        }
        let (mut begin, mut end) = (Readings::new(), Readings::new());
        let mut count = || {
            let memory = Fresh::new(100 * 4096);
            let complete = counters.read(&mut begin) == ReadStatus::Complete;
            memory.touch(4096);
            let found = (counters.read(&mut end) == ReadStatus::Complete && complete)
                .then(|| end.since(&begin, 0))
                .flatten();
            drop(memory);
            found
        };
        // The first count also contains page faults in the memory of this function.
        count();
        if count() != Some(100) {
            return 1;
        }
        if counters.user_reads() == 0 {
            return 0;
        }
        open.push(counters);
    }
    2
}
