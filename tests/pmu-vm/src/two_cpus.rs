//! Tests that need two CPUs. The emulator computes the counts from one clock for both CPUs, so a
//! count can also contain instructions of the other CPU. A count can therefore be too large, but
//! not too small. The smallest count of many short attempts is correct.

use counters::ThreadCounters;

use crate::loops::{self, Random};
use crate::report::tests;
use crate::set;
use crate::user::{self, user_access};

tests![two_cpus: migration_loses_nothing, user_reads_follow_the_thread];

fn go_to(cpu: usize) {
    // SAFETY: a set of CPUs is plain bits, and the call reads a set of the given size.
    let moved = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(moved, 0, "move to processor {cpu}");
    // SAFETY: `sched_getcpu` has no preconditions.
    assert_eq!(unsafe { libc::sched_getcpu() }, cpu as i32);
}

/// Returns the count of two loops, of which the first runs on CPU 0 and the second on CPU 1.
#[inline(never)]
fn travel(counters: &mut ThreadCounters<'_>, trips: [u64; 2]) -> u64 {
    let [begin, end] = set::measure(counters, || {
        loops::spin(trips[0]);
        go_to(1);
        loops::spin(trips[1]);
        go_to(0);
    });
    end.since(&begin, 0).expect("the counter was read")
}

fn migration_loses_nothing() {
    user_access(false);
    go_to(0);
    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    journeys(&mut counters, 200);
    counters.close();
}

/// After the thread has moved, its counter is a register of the other CPU, and the number of that
/// register may be different.
fn user_reads_follow_the_thread() {
    user_access(true);
    go_to(0);
    let plan = set::plan("instructions:u");
    let mut counters = user::open(&plan);
    journeys(&mut counters, 200);
    counters.close();
}

fn journeys(counters: &mut ThreadCounters<'_>, count: usize) {
    let constant = (0..100).map(|_| travel(counters, [0, 0])).min().expect("at least one journey");
    let mut random = Random::new("migration");
    let mut excess = Vec::new();
    for _ in 0..count {
        let trips = [random.below(1_000), random.below(1_000)];
        let expected = 2 * (trips[0] + trips[1]) + constant;
        let counted = travel(counters, trips);
        assert!(counted >= expected, "{trips:?} trips: {counted} of {expected} were counted");
        excess.push(counted - expected);
    }
    excess.sort_unstable();
    let exact = excess.iter().filter(|&&more| more == 0).count();
    println!("{exact} of {count} journeys exact, the largest excess {}", excess[count - 1]);
    assert!(exact > 0, "every journey counted too much, by at least {}", excess[0]);
}
