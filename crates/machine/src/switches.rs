//! Measures how much counters slow down the context switches of a thread.
//!
//! The kernel saves and restores the counters of a thread whenever the thread leaves or enters a
//! processor, even if nobody reads them. This matters for programs whose threads sleep and wake
//! often. To measure it, two threads of this process wake each other in turn on one CPU, in batches
//! with and without counters. This takes about 5 ms.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

use crate::killer;
use counters::plan::{Plan, SourceKind};
use counters::thread::ThreadCounters;

/// The number of batches with counters, and of batches without. The median ignores the few batches
/// that other programs disturbed.
const BATCHES: usize = 7;
/// Turns of each thread in a batch.
const TURNS: u32 = 60;

/// The result, in ns of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switches {
    /// Number of switches with counters, of both threads together.
    pub switches: u64,
    /// Time of a switch without counters: the median of the batches.
    pub bare_ns: f64,
    /// Time that counters add to a switch: the median of the batches, at least 0.
    pub added_ns: f64,
    /// The smallest and the largest time that counters added in a batch.
    pub added_range_ns: [f64; 2],
}

/// Measures switches without and with the counters of `plan`. Returns `None` if no counter of
/// `plan` is opened in the kernel, if the kernel counts no switches for a thread, if threads cannot
/// be kept on one CPU, or if the counters cannot be opened.
pub fn measure(plan: &Plan) -> Option<Switches> {
    if !plan.groups().iter().any(|group| group.kind == SourceKind::Perf) {
        return None;
    }
    killer::may_open(plan).ok()?;
    let pair = Pair { turn: AtomicU32::new(0), threads: [OnceLock::new(), OnceLock::new()] };
    let cpu = current_cpu()?;
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| pair.run(1, cpu, plan));
        let first = scope.spawn(|| pair.run(0, cpu, plan));
        (first.join().ok().flatten(), second.join().ok().flatten())
    });
    let batches: Vec<Batch> =
        first?.into_iter().zip(second?).map(|(a, b)| a.and(b)).collect::<Option<_>>()?;
    let (bare, with): (Vec<_>, Vec<_>) =
        batches.chunks_exact(2).map(|two| (two[0].per_switch(), two[1].per_switch())).unzip();
    let mut added: Vec<f64> = bare.iter().zip(&with).map(|(bare, with)| with - bare).collect();
    added.sort_by(f64::total_cmp);
    Some(Switches {
        switches: batches.chunks_exact(2).map(|two| two[1].switches).sum(),
        bare_ns: median(bare)?,
        added_ns: median(added.clone())?.max(0.0),
        added_range_ns: [*added.first()?, *added.last()?],
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

struct Pair {
    /// Number of turns so far, or [`GIVEN_UP`]. The first thread takes the even turns.
    turn: AtomicU32,
    threads: [OnceLock<Thread>; 2],
}

const GIVEN_UP: u32 = u32::MAX;

/// The processor time and the number of context switches of one thread, or of both threads, in one
/// batch.
#[derive(Clone, Copy)]
struct Batch {
    cpu_ns: u64,
    switches: u64,
}

impl Batch {
    fn per_switch(&self) -> f64 {
        self.cpu_ns as f64 / self.switches as f64
    }

    /// Adds two batches. Returns `None` if there were so few switches that the threads cannot have
    /// been on one CPU.
    fn and(self, other: Self) -> Option<Self> {
        let switches = self.switches + other.switches;
        (switches >= u64::from(TURNS))
            .then_some(Self { cpu_ns: self.cpu_ns + other.cpu_ns, switches })
    }
}

impl Pair {
    /// Runs batches without and with counters in turn.
    fn run(&self, me: u32, cpu: usize, plan: &Plan) -> Option<Vec<Batch>> {
        let _ = self.threads[me as usize].set(thread::current());
        let other = loop {
            match self.threads[1 - me as usize].get() {
                Some(other) => break other,
                None => thread::yield_now(),
            }
        };
        let result = stay_on(cpu).and_then(|()| {
            (0..2 * BATCHES).map(|number| self.batch(me, number, plan, other)).collect()
        });
        if result.is_none() {
            self.turn.store(GIVEN_UP, Ordering::Release);
            other.unpark(); // It may wait for a turn that will not come.
        }
        result
    }

    fn batch(&self, me: u32, number: usize, plan: &Plan, other: &Thread) -> Option<Batch> {
        let mut counters = ThreadCounters::closed();
        if number % 2 == 1 {
            counters.open(plan).ok()?;
        }
        let before = used();
        let first = number as u32 * 2 * TURNS + me;
        let done = (0..TURNS).try_for_each(|turn| self.take(first + 2 * turn, other));
        let after = used();
        counters.close();
        done?;
        let (before, after) = (before?, after?);
        Some(Batch {
            cpu_ns: after.cpu_ns.checked_sub(before.cpu_ns)?,
            switches: after.switches.checked_sub(before.switches)?,
        })
    }

    fn take(&self, number: u32, other: &Thread) -> Option<()> {
        loop {
            match self.turn.load(Ordering::Acquire) {
                GIVEN_UP => return None,
                now if now == number => break,
                _ => thread::park(),
            }
        }
        let next =
            self.turn.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Acquire);
        other.unpark();
        next.is_ok().then_some(())
    }
}

/// Returns the processor time and the number of context switches of the calling thread so far.
fn used() -> Option<Batch> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `rusage` consists of integers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `time` and `usage` outlive the calls.
    let failed = unsafe {
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time)
            | libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage)
    };
    let cpu_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    let switches = (usage.ru_nvcsw + usage.ru_nivcsw) as u64;
    (failed == 0).then_some(Batch { cpu_ns, switches })
}

fn current_cpu() -> Option<usize> {
    // SAFETY: `sched_getcpu` has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

fn stay_on(cpu: usize) -> Option<()> {
    // SAFETY: `cpu_set_t` consists of integers, whose zeros are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return None;
    }
    // SAFETY: `cpu` is within the set, which outlives the call.
    let failed = unsafe {
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    (failed == 0).then_some(())
}
