//! Readings without the kernel: equal to its own, without a system call, and given up where it
//! does not allow them.

use std::fs;

use counters::{Coverage, Plan, ReadStatus, Readings, ThreadCounters};

use crate::loops::{self, Random};
use crate::report::tests;
use crate::{kernel, machine, set};

tests![
    user:
    known_loops,
    equal_to_read,
    times_are_the_kernels,
    no_system_call,
    no_system_call_under_seccomp,
    across_the_overflow,
    off_means_read,
    taken_turns_are_known,
    another_thread_asks_the_kernel,
    closing_frees_the_counters,
];

/// Debian's kernel has user-space reads switched off at first.
pub fn user_access(on: bool) {
    fs::write(machine::USER_ACCESS, if on { "1" } else { "0" }).expect("root may set it");
}

/// `n` counters of instructions, readable in user mode, that stay away from the cycle counter and
/// have names to tell them apart.
fn many(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("armv8_pmuv3/event=0x8,rdpmc=1,name=i{i}/u")).collect()
}

/// Opened, read in user mode, which is made sure of.
pub fn open(plan: &Plan) -> ThreadCounters<'_> {
    let counters = set::open(plan);
    let leaders = plan.groups().iter().fold(0, |mask, group| mask | 1 << group.first);
    assert_eq!(counters.user_reads(), leaders, "every group can be read in user mode");
    counters
}

fn leader(counters: &ThreadCounters<'_>) -> i32 {
    counters.descriptors().next().expect("something is open")
}

/// Instructions of a reading that had to be repeated: the kernel wrote the page meanwhile, at an
/// overflow or when it switched.
const REPEATED: u64 = 150;

/// Never too little, and exactly `expected` but for a repeated reading, which is not repeated
/// three times in a row.
fn exactly(expected: u64, mut measure: impl FnMut() -> u64) {
    let counted = [(); 3].map(|()| {
        let counted = measure();
        let more = counted.wrapping_sub(expected);
        assert!(more < REPEATED, "{counted} of {expected} were counted");
        counted
    });
    assert!(counted.contains(&expected), "{counted:?} of {expected} were counted");
}

#[inline(never)]
fn spin(counters: &mut ThreadCounters<'_>, trips: u64, counter: usize) -> u64 {
    let [begin, end] = set::measure(counters, || loops::spin(trips));
    assert_eq!(end.coverage(&begin, counter), Coverage::Whole);
    end.since(&begin, counter).expect("was read")
}

/// Exactly as group reads do, with a constant of its own: also as the first thing after opening,
/// when the counter itself is half of its range below zero.
fn known_loops() {
    user_access(true);
    let names = "{instructions:u,cycles:u,r8:u,r11:u}";
    let plan = set::plan(names);
    let mut counters = open(&plan);
    let constants = [0, 1, 2, 3].map(|counter| spin(&mut counters, 0, counter));
    let mut random = Random::new("user loops");
    for digits in [1, 10, 1_000, 100_000, 10_000_000] {
        for (counter, constant) in constants.iter().enumerate() {
            let trips = random.below(digits) + 1;
            exactly(2 * trips + constant, || spin(&mut counters, trips, counter));
        }
    }
    println!("2 n + {constants:?} for {names}");
    counters.close();
    // A fresh counter begins near zero, not near 2³².
    let mut counters = open(&plan);
    let mut first = Readings::new();
    assert_eq!(counters.read(&mut first), ReadStatus::Complete);
    for i in 0..4 {
        let value = first.value(i).expect("was read");
        assert!(value < 1_000_000, "counter {i} begins with {value}");
    }
    counters.close();
}

/// A reading of ours, a loop, a reading of the kernel's, and the other way round: always 2 n and
/// the same constant.
fn equal_to_read() {
    user_access(true);
    let plan = set::plan("{instructions:u,r8:u}");
    let mut counters = open(&plan);
    let fd = leader(&counters);
    let mut between = |trips, ours_first: bool| -> [u64; 2] {
        let mut ours = Readings::new();
        let kernels = if ours_first {
            assert_eq!(counters.read(&mut ours), ReadStatus::Complete);
            loops::spin(trips);
            kernel::group(fd, 2)
        } else {
            let kernels = kernel::group(fd, 2);
            loops::spin(trips);
            assert_eq!(counters.read(&mut ours), ReadStatus::Complete);
            kernels
        };
        [0, 1].map(|i| kernels.values[i].abs_diff(ours.value(i).expect("was read")))
    };
    let mut random = Random::new("equal");
    for ours_first in [true, false] {
        let constants = between(0, ours_first);
        println!("ours first: {ours_first}, constants {constants:?}");
        assert!(constants.iter().all(|&c| c < 400), "{constants:?}");
        for _ in 0..8 {
            let trips = random.below(1_000_000);
            let expected = 2 * trips + constants[0];
            let apart = constants[1].abs_diff(constants[0]);
            exactly(expected, || {
                let [first, second] = between(trips, ours_first);
                assert_eq!(second.abs_diff(first), apart, "{trips} trips, {ours_first}");
                first
            });
        }
    }
    counters.close();
}

/// Times enabled and running lie between those of two reads of the kernel around ours.
fn times_are_the_kernels() {
    user_access(true);
    let plan = set::plan("instructions:u");
    let mut counters = open(&plan);
    let fd = leader(&counters);
    for trips in [0, 10, 1_000, 1_000_000] {
        loops::run(trips);
        let mut ours = Readings::new();
        let before = kernel::group(fd, 1);
        assert_eq!(counters.read(&mut ours), ReadStatus::Complete);
        let after = kernel::group(fd, 1);
        let enabled = ours.enabled(0).expect("was read");
        let running = ours.running(0).expect("was read");
        // The kernel rounds down where we do, but from another starting point.
        let around = before.enabled.saturating_sub(1)..=after.enabled + 1;
        assert!(around.contains(&enabled), "enabled {enabled} is not in {around:?}");
        assert_eq!(enabled, running);
    }
    counters.close();
}

/// The kernel's own count of this thread's system calls: one, the second look at that count. The
/// same readings by `read` show that it counts.
fn no_system_call() {
    user_access(true);
    let calls = set::plan("raw_syscalls:sys_enter");
    let mut calls = set::open(&calls);
    let [ours, theirs] = [false, true].map(|kernels| {
        let plan = set::plan("{instructions:u,cycles:u}");
        let plan = if kernels { plan.kernel_reads_only() } else { plan };
        let mut counters = set::open(&plan);
        let mut readings = Readings::new();
        let [begin, end] = set::measure(&mut calls, || {
            for _ in 0..1_000 {
                assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
            }
        });
        counters.close();
        end.since(&begin, 0).expect("was read")
    });
    println!("system calls in 1,000 readings: {} by us, {} by read", ours - 1, theirs - 1);
    assert_eq!((ours, theirs), (1, 1_001));
    calls.close();
}

/// The same, forbidden: the kernel would kill us.
fn no_system_call_under_seccomp() {
    user_access(true);
    let plan = set::plan("{instructions:u,cycles:u,r8:u,r11:u}");
    let mut counters = open(&plan);
    let constant = spin(&mut counters, 0, 0);
    let trips = Random::new("seccomp").below(100_000);
    kernel::forbid_reading();
    assert_eq!(spin(&mut counters, trips, 0), 2 * trips + constant);
    // Nothing is closed: that needs an ioctl. The process ends here.
}

/// The kernel starts a counter at half of its 32 bits and sets it back in the interrupt of the
/// overflow. On both sides of it, and across, we agree with the kernel.
fn across_the_overflow() {
    user_access(true);
    let plan = set::plan("instructions:u");
    let mut counters = open(&plan);
    let fd = leader(&counters);
    let mut random = Random::new("overflow");
    let both = |counters: &mut ThreadCounters<'_>| {
        let mut ours = Readings::new();
        assert_eq!(counters.read(&mut ours), ReadStatus::Complete);
        let kernels = kernel::group(fd, 1).values[0];
        let apart = kernels.wrapping_sub(ours.value(0).expect("was read"));
        assert!(apart < 1_000, "we are {apart:#x} before the kernel's {kernels:#x}");
        (kernels, apart)
    };
    // The first one touches new pages of the stack.
    both(&mut counters);
    let (mut total, constant) = both(&mut counters);
    let run = |counters: &mut ThreadCounters<'_>, trips| {
        let [begin, end] = set::measure(counters, || loops::run(trips));
        end.since(&begin, 0).expect("was read")
    };
    let empty = run(&mut counters, 0);
    // Three overflows of half the range, and past 2³².
    while total < 0x1_9000_0000 {
        let trips = 100_000 + random.below(300_000);
        exactly(256 * trips + empty, || run(&mut counters, trips));
        let apart;
        (total, apart) = both(&mut counters);
        assert!(apart.abs_diff(constant) < REPEATED, "{apart}, {constant} before, at {total:#x}");
    }
    println!("up to {total:#x}");
    counters.close();
}

/// Switched off: the same counts, and the kernel is asked for each. (The pages still allow it, but
/// name no counter.)
fn off_means_read() {
    user_access(false);
    let calls = set::plan("raw_syscalls:sys_enter");
    let mut calls = set::open(&calls);
    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    let mut readings = Readings::new();
    let [begin, end] = set::measure(&mut calls, || {
        for _ in 0..100 {
            assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
        }
    });
    assert_eq!(end.since(&begin, 0), Some(101));
    calls.close();
    let constant = spin(&mut counters, 0, 0);
    let mut random = Random::new("off");
    for _ in 0..4 {
        let trips = random.below(1_000_000);
        assert_eq!(spin(&mut counters, trips, 0), 2 * trips + constant);
    }
    counters.close();
}

/// Twelve on six, each a group: those that are not on the processor at the moment are read by the
/// kernel, and the times tell how much was counted.
fn taken_turns_are_known() {
    user_access(true);
    let names: Vec<String> = many(12).iter().map(|name| format!("{{{name}}}")).collect();
    let plan = set::plan(&names.join(","));
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("the kernel takes turns");
    assert_eq!(counters.user_reads(), 0xfff);
    let trips = 400_000 + Random::new("user turns").below(100_000);
    let [begin, end] = set::measure(&mut counters, || loops::run(trips));
    for i in 0..12 {
        let Coverage::Part { enabled_ns, running_ns } = end.coverage(&begin, i) else {
            panic!("counter {i} of twelve: {:?}", end.coverage(&begin, i));
        };
        let share = running_ns as f64 / enabled_ns as f64;
        let scaled = end.since(&begin, i).expect("was read") as f64 / share;
        let truth = 256.0 * trips as f64;
        println!(
            "{i}: ran {:.1} %, scaled {:+.3} %",
            100.0 * share,
            100.0 * (scaled / truth - 1.0)
        );
        assert!((0.3..0.7).contains(&share), "six of twelve should run half of the time");
        assert!((scaled / truth - 1.0).abs() < 0.01, "{scaled} of {truth}");
    }
    counters.close();
}

/// The processor's counters are those of whoever runs: another thread that reads them for us would
/// get its own.
fn another_thread_asks_the_kernel() {
    user_access(true);
    let plan = set::plan("instructions:u");
    let mut counters = open(&plan);
    let fd = leader(&counters);
    let here = kernel::group(fd, 1).values[0];
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            loops::spin(1_000_000);
            let mut readings = Readings::new();
            assert_eq!(counters.read(&mut readings), ReadStatus::Complete);
            readings.value(0).expect("was read")
        });
        other.join().expect("the other thread ends")
    });
    // What we did in between is starting a thread and waiting for it.
    assert!((here..here + 100_000).contains(&theirs), "{theirs} read elsewhere, {here} before");
    counters.close();
}

/// A counter whose page is still mapped goes on counting after its descriptor was closed: six
/// such would leave nothing for the next six.
fn closing_frees_the_counters() {
    user_access(true);
    let six = format!("{{{}}}", many(6).join(","));
    let plan = set::plan(&six);
    let whole = |counters: &mut ThreadCounters<'_>| {
        let [begin, end] = set::measure(counters, || loops::run(100_000));
        end.coverage(&begin, 0)
    };
    for _ in 0..5 {
        let mut counters = open(&plan);
        assert_eq!(whole(&mut counters), Coverage::Whole);
        counters.close();
    }
    // That the test can see it: the same without unmapping.
    let pages = kernel::open_and_map(&six);
    pages.iter().for_each(|page| page.close());
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("six more may wait");
    assert_ne!(whole(&mut counters), Coverage::Whole, "six mapped ones hold the PMU");
    pages.iter().for_each(|page| page.unmap());
    loops::run(100_000); // Until the waiting ones' next turn.
    assert_eq!(whole(&mut counters), Coverage::Whole);
    counters.close();
}
