//! Tests readings without the kernel. Such readings return the same counts as readings by the
//! kernel, and make no system call. If the kernel does not allow readings in user mode, each
//! reading is a system call.

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

/// Allows or forbids user-space reads. Debian's kernel forbids them by default.
pub fn user_access(on: bool) {
    fs::write(machine::USER_ACCESS, if on { "1" } else { "0" })
        .expect("set perf_user_access as root");
}

/// Returns `n` different names of counters that count instructions. These counters do not use the
/// PMU's cycle counter.
fn many(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("armv8_pmuv3/event=0x8,rdpmc=1,name=i{i}/u")).collect()
}

/// Opens counters, and checks that they are read in user mode.
pub fn open(plan: &Plan) -> ThreadCounters<'_> {
    let counters = set::open(plan);
    let leaders = plan.groups().iter().fold(0, |mask, group| mask | 1 << group.first);
    assert_eq!(counters.user_reads(), leaders, "every group can be read in user mode");
    counters
}

fn leader(counters: &ThreadCounters<'_>) -> i32 {
    counters.descriptors().next().expect("a counter is open")
}

/// A reading in user mode is repeated if the kernel writes the counter's shared page meanwhile, at
/// an overflow or a context switch. The repetition takes fewer instructions than this constant.
const REPEATED: u64 = 150;

/// Checks that at least one of three readings returns exactly `expected`. A repeated reading
/// returns a larger count, and three readings in a row are hardly ever repeated.
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
    end.since(&begin, counter).expect("the counter was read")
}

/// Counts are exact directly after opening, although the kernel starts the hardware counter at half
/// of its range and not at zero.
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
    // A new counter begins near zero, not near 2³².
    let mut counters = open(&plan);
    let mut first = Readings::new();
    assert_eq!(counters.read(&mut first), ReadStatus::Complete);
    for i in 0..4 {
        let value = first.value(i).expect("the counter was read");
        assert!(value < 1_000_000, "counter {i} begins with {value}");
    }
    counters.close();
}

/// Reads the counters in user mode before a loop of n trips and by the kernel after it, and the
/// reverse. For each order, the two counts differ by 2 n plus a constant.
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
        [0, 1].map(|i| kernels.values[i].abs_diff(ours.value(i).expect("the counter was read")))
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

/// The times of a reading in user mode are between those of readings by the kernel directly before
/// and after it.
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
        let enabled = ours.enabled(0).expect("the counter was read");
        let running = ours.running(0).expect("the counter was read");
        // The kernel and our reading both round down, but from different starting points, so their
        // times may differ by one nanosecond.
        let around = before.enabled.saturating_sub(1)..=after.enabled + 1;
        assert!(around.contains(&enabled), "enabled {enabled} is not in {around:?}");
        assert_eq!(enabled, running);
    }
    counters.close();
}

/// The kernel's own tracepoint counts this thread's system calls. During our readings, it counts
/// only one call: the second reading of the tracepoint itself. During readings by the kernel, it
/// also counts one call for each reading, which shows that the tracepoint works.
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
        end.since(&begin, 0).expect("the counter was read")
    });
    println!("system calls in 1,000 readings: {} by us, {} by read", ours - 1, theirs - 1);
    assert_eq!((ours, theirs), (1, 1_001));
    calls.close();
}

/// If a reading made a system call for reading, the kernel would kill the process.
fn no_system_call_under_seccomp() {
    user_access(true);
    let plan = set::plan("{instructions:u,cycles:u,r8:u,r11:u}");
    let mut counters = open(&plan);
    let constant = spin(&mut counters, 0, 0);
    let trips = Random::new("seccomp").below(100_000);
    kernel::forbid_reading();
    assert_eq!(spin(&mut counters, trips, 0), 2 * trips + constant);
    // The counters are not closed, because closing needs an ioctl, which is forbidden now.
}

/// The kernel starts a counter of 32 bits at half of its range, and resets it in the interrupt of
/// its overflow.
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
        let apart = kernels.wrapping_sub(ours.value(0).expect("the counter was read"));
        assert!(apart < 1_000, "our count is {apart:#x} below the kernel's {kernels:#x}");
        (kernels, apart)
    };
    // The first reading touches new pages of the stack, so its result is not used.
    both(&mut counters);
    let (mut total, constant) = both(&mut counters);
    let run = |counters: &mut ThreadCounters<'_>, trips| {
        let [begin, end] = set::measure(counters, || loops::run(trips));
        end.since(&begin, 0).expect("the counter was read")
    };
    let empty = run(&mut counters, 0);
    // The hardware counter overflows three times, each time after half of its range, and the total
    // count passes 2³².
    while total < 0x1_9000_0000 {
        let trips = 100_000 + random.below(300_000);
        exactly(256 * trips + empty, || run(&mut counters, trips));
        let apart;
        (total, apart) = both(&mut counters);
        assert!(
            apart.abs_diff(constant) < REPEATED,
            "the difference was {constant} and is {apart} at {total:#x}"
        );
    }
    println!("up to {total:#x}");
    counters.close();
}

/// If user-space reads are disabled, each reading asks the kernel. (The kernel's page for each
/// counter still allows user-space reads, but contains no register number.)
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

/// Twelve counters, each in its own group, take turns on six hardware counters.
fn taken_turns_are_known() {
    user_access(true);
    let names: Vec<String> = many(12).iter().map(|name| format!("{{{name}}}")).collect();
    let plan = set::plan(&names.join(","));
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("open counters that take turns");
    assert_eq!(counters.user_reads(), 0xfff);
    let trips = 400_000 + Random::new("user turns").below(100_000);
    let [begin, end] = set::measure(&mut counters, || loops::run(trips));
    for i in 0..12 {
        let Coverage::Part { enabled_ns, running_ns } = end.coverage(&begin, i) else {
            panic!("counter {i} of twelve: {:?}", end.coverage(&begin, i));
        };
        let share = running_ns as f64 / enabled_ns as f64;
        let scaled = end.since(&begin, i).expect("the counter was read") as f64 / share;
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

/// The CPU's registers contain the counts of the running thread. Another thread that read them
/// would get its own counts.
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
            readings.value(0).expect("the counter was read")
        });
        other.join().expect("the other thread ends")
    });
    assert!((here..here + 100_000).contains(&theirs), "{theirs} read elsewhere, {here} before");
    counters.close();
}

/// A counter whose page is still mapped continues to count after its descriptor was closed. Six
/// such counters would leave no hardware for the next six.
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
    // This shows that the test would notice missing hardware: six counters whose pages stay mapped
    // leave none for six more.
    let pages = kernel::open_and_map(&six);
    pages.iter().for_each(|page| page.close());
    let mut counters = ThreadCounters::closed();
    counters.open(&plan).expect("open six more counters");
    assert_ne!(whole(&mut counters), Coverage::Whole, "the six mapped counters still use the PMU");
    pages.iter().for_each(|page| page.unmap());
    loops::run(100_000); // Until the next turn of the waiting counters.
    assert_eq!(whole(&mut counters), Coverage::Whole);
    counters.close();
}
