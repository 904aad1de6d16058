//! Chooses the clock of a run, reads it, and converts its ticks to nanoseconds.
//!
//! The clocks for the records of calls:
//!
//! | kind | begin | end | tick |
//! |---|---|---|---|
//! | [`ClockKind::Tsc`] | `rdtsc` | `rdtscp` (also returns CPU and node) | 1 / TSC frequency |
//! | [`ClockKind::Monotonic`] | `clock_gettime(CLOCK_MONOTONIC)` | the same and `getcpu` | 1 ns |
//!
//! The time-stamp counter is chosen only if the processor calls it invariant *and* the kernel
//! itself uses it to keep time. If the kernel has marked the counter unstable, ticks of different
//! CPUs cannot be compared. At the end of a call, `rdtscp` waits until the measured code has
//! finished. At the start, the processor may execute `rdtsc` a few instructions early. `rdtsc` was
//! measured to take 9.5 ns and `rdtscp` 18 ns. There is no fence at the start: it would add 9 ns to
//! every call, and remove an error of less than 9 ns.
//!
//! Records contain raw ticks.

mod utc;

use crate::wire::{Decoder, Encoder, Truncated, Wire, wire};
use std::fmt;

pub use utc::UtcClock;

model::numbered! {
    /// The clock that counts a run's ticks.
    pub enum ClockKind {
        /// `CLOCK_MONOTONIC` in nanoseconds.
        Monotonic = 0 "monotonic",
        /// The x86-64 time-stamp counter.
        Tsc = 1 "tsc",
    }
}

impl Wire for ClockKind {
    fn put(&self, e: &mut Encoder) {
        e.u8(*self as u8);
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        Self::from_u8(d.u8()?).ok_or(Truncated { at: 0 })
    }
}

impl ClockKind {
    /// Returns the best clock of this machine. `kernel_clocksource` is the content of
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`.
    pub fn choose(kernel_clocksource: &str) -> Self {
        // The clocks of KVM and Hyper-V are scaled time-stamp counters, so a kernel that uses such
        // a clock trusts the counter.
        let kept_by_tsc = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"]
            .contains(&kernel_clocksource.trim());
        if kept_by_tsc && tsc_is_invariant() { Self::Tsc } else { Self::Monotonic }
    }

    /// Returns the current ticks, for the beginning of a measured interval.
    #[inline(always)]
    pub fn begin(self) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `rdtsc` reads a register that every x86-64 processor has. If a process has
            // forbidden it (prctl PR_SET_TSC), the instruction raises SIGSEGV and accesses no
            // memory.
            Self::Tsc => unsafe { core::arch::x86_64::_rdtsc() },
            _ => monotonic_ns(),
        }
    }

    /// Returns the current ticks, for the end of a measured interval, and the thread's location:
    /// `node << 12 | cpu`, as Linux stores it in the register `TSC_AUX`, which `rdtscp` also reads.
    /// With [`ClockKind::Monotonic`], the node is 0.
    #[inline(always)]
    pub fn end(self) -> (u64, u32) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tsc => {
                let mut aux = 0;
                // SAFETY: this clock is chosen only if `tsc_is_invariant` found that the processor
                // has `rdtscp`.
                let ticks = unsafe { core::arch::x86_64::__rdtscp(&mut aux) };
                (ticks, aux)
            }
            _ => (monotonic_ns(), where_am_i()),
        }
    }
}

/// The steps by which a clock advances, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granularity {
    /// The smallest difference between two consecutive readings that differ.
    pub smallest_ticks: u64,
    /// The median of the differences between consecutive readings that differ. If a reading takes
    /// longer than the clock's own step, this is the time of a reading.
    pub typical_ticks: u64,
}

wire!(Granularity { smallest_ticks, typical_ticks });

const READINGS: usize = 128;
/// Maximum number of readings. If a reading takes 20 ns, these readings take 0.4 ms.
const MOST_READINGS: usize = 20_000;

impl ClockKind {
    /// Measures the steps of this clock. This takes a few µs, or up to 0.4 ms if the clock is
    /// coarse. Both fields of the result are 0 if the clock did not advance.
    pub fn granularity(self) -> Granularity {
        Granularity::of(|| self.begin())
    }
}

impl Granularity {
    fn of(mut read: impl FnMut() -> u64) -> Self {
        let mut steps = [0u64; READINGS];
        let (mut found, mut last) = (0, read());
        for _ in 0..MOST_READINGS {
            let now = read();
            // A reading below the last one is not counted as a step.
            let step = now.checked_sub(last).filter(|step| *step > 0);
            last = now;
            if let (Some(step), Some(place)) = (step, steps.get_mut(found)) {
                *place = step;
                found += 1;
            }
            if found == READINGS {
                break;
            }
        }
        let found = &mut steps[..found];
        found.sort_unstable();
        Self {
            smallest_ticks: found.first().copied().unwrap_or(0),
            typical_ticks: found.get(found.len() / 2).copied().unwrap_or(0),
        }
    }
}

/// Returns whether the processor has `rdtscp` and an invariant time-stamp counter.
pub fn tsc_is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // The result is cached, because in a virtual machine each CPUID instruction takes tens of
        // microseconds.
        static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *KNOWN.get_or_init(ask_the_processor)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
fn ask_the_processor() -> bool {
    use core::arch::x86_64::__cpuid;
    if __cpuid(0x8000_0000).eax < 0x8000_0007 {
        return false;
    }
    let rdtscp = __cpuid(0x8000_0001).edx & (1 << 27) != 0;
    let invariant = __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    rdtscp && invariant
}

/// Returns `CLOCK_MONOTONIC` in ns since an unspecified start (usually boot). Usually makes no
/// system call. Does not change `errno`.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the calling thread in ns. Makes a system call (about 250 ns).
#[inline]
pub fn thread_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of the process, including threads that have ended, in ns. Makes a system
/// call.
pub fn process_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[inline]
fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call; the clock ids used here always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cold]
fn where_am_i() -> u32 {
    // SAFETY: the call takes no arguments and touches no memory.
    let cpu = unsafe { libc::sched_getcpu() };
    // The node stays 0, because finding it would need a system call. It can be derived from the CPU
    // later.
    cpu.max(0) as u32
}

/// The readings of the run's clock and of two clocks of the operating system, at almost the same
/// moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Ticks of the run's clock.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, ns since 1970-01-01 UTC.
    pub realtime_ns: u64,
    /// When the other two clocks were read, the run's clock was within `ticks ± uncertainty_ticks`.
    pub uncertainty_ticks: u64,
}

wire!(Snapshot { ticks, monotonic_ns, realtime_ns, uncertainty_ticks });

impl Snapshot {
    /// Reads the clocks five times and returns the attempt whose readings were closest together.
    /// Takes about 1 µs.
    pub fn take(kind: ClockKind) -> Self {
        let mut best: Option<Snapshot> = None;
        for _ in 0..5 {
            let before = kind.end().0;
            let monotonic_ns = monotonic_ns();
            let realtime_ns = read_clock(libc::CLOCK_REALTIME);
            let after = kind.end().0;
            let half = after.wrapping_sub(before) / 2;
            if best.is_none_or(|b| half < b.uncertainty_ticks) {
                best = Some(Snapshot {
                    ticks: before.wrapping_add(half),
                    monotonic_ns,
                    realtime_ns,
                    uncertainty_ticks: half,
                });
            }
        }
        best.unwrap_or(Snapshot { ticks: 0, monotonic_ns: 0, realtime_ns: 0, uncertainty_ticks: 0 })
    }
}

/// The straight line that converts ticks to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    origin: Snapshot,
    ns_per_tick: f64,
    /// If false, the number of nanoseconds per tick is an assumption.
    pub calibrated: bool,
}

/// Snapshots that are closer together than this cannot calibrate a [`Timeline`]: over 1 ms, an
/// error of 22 ns in a reading changes the result by 22 ppm.
const SHORTEST_BASELINE_NS: u64 = 1_000_000;

impl Timeline {
    /// Fits the line through the first and the last snapshot. If they are too close together to
    /// calibrate the time-stamp counter, one tick is assumed to be 1 ns.
    pub fn fit(kind: ClockKind, snapshots: &[Snapshot]) -> Self {
        let origin = snapshots.iter().copied().min_by_key(|s| s.ticks).unwrap_or(Snapshot {
            ticks: 0,
            monotonic_ns: 0,
            realtime_ns: 0,
            uncertainty_ticks: 0,
        });
        if kind == ClockKind::Monotonic {
            return Self { origin, ns_per_tick: 1.0, calibrated: true };
        }
        let last = snapshots.iter().copied().max_by_key(|s| s.ticks).unwrap_or(origin);
        let ns = last.monotonic_ns.saturating_sub(origin.monotonic_ns);
        let ticks = last.ticks.saturating_sub(origin.ticks);
        if ns < SHORTEST_BASELINE_NS || ticks == 0 {
            return Self { origin, ns_per_tick: 1.0, calibrated: false };
        }
        Self { origin, ns_per_tick: ns as f64 / ticks as f64, calibrated: true }
    }

    /// Returns the number of nanoseconds in one tick.
    pub fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Returns the ticks of the first snapshot.
    pub fn origin_ticks(&self) -> u64 {
        self.origin.ticks
    }

    /// Converts a duration in ticks to ns.
    pub fn duration_ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Converts a moment in ticks to `CLOCK_MONOTONIC` in ns.
    pub fn monotonic_ns(&self, ticks: u64) -> i64 {
        let delta = ticks.wrapping_sub(self.origin.ticks) as i64;
        // A tick of 1 ns needs no conversion to `f64`, which would round.
        let ns = match self.ns_per_tick {
            1.0 => delta,
            ns_per_tick => (delta as f64 * ns_per_tick).round() as i64,
        };
        // The sum saturates, because a damaged file can contain any number of ticks.
        (self.origin.monotonic_ns as i64).saturating_add(ns)
    }

    /// Converts a moment in ticks to `CLOCK_REALTIME` in ns since 1970.
    pub fn realtime_ns(&self, ticks: u64) -> i64 {
        self.monotonic_to_realtime_ns(self.monotonic_ns(ticks))
    }

    /// Converts a moment on `CLOCK_MONOTONIC` to `CLOCK_REALTIME`, both in ns.
    pub fn monotonic_to_realtime_ns(&self, monotonic_ns: i64) -> i64 {
        let offset = self.origin.realtime_ns.wrapping_sub(self.origin.monotonic_ns) as i64;
        monotonic_ns.saturating_add(offset)
    }

    /// Converts a moment on `CLOCK_REALTIME` to `CLOCK_MONOTONIC`, both in ns.
    pub fn realtime_to_monotonic_ns(&self, realtime_ns: i64) -> i64 {
        let offset = self.origin.realtime_ns.wrapping_sub(self.origin.monotonic_ns) as i64;
        realtime_ns.saturating_sub(offset)
    }

    /// Converts a moment on `CLOCK_MONOTONIC` in ns to ticks.
    pub fn ticks(&self, monotonic_ns: i64) -> u64 {
        let delta = monotonic_ns.wrapping_sub(self.origin.monotonic_ns as i64);
        let ticks = match self.ns_per_tick {
            1.0 => delta,
            ns_per_tick => (delta as f64 / ns_per_tick).round() as i64,
        };
        self.origin.ticks.saturating_add_signed(ticks)
    }
}

impl fmt::Display for ClockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ticks: u64, monotonic_ns: u64) -> Snapshot {
        Snapshot { ticks, monotonic_ns, realtime_ns: monotonic_ns + 1_000, uncertainty_ticks: 10 }
    }

    /// The clock advances by 41, 42, 40, 41, …. Most values are read twice.
    #[test]
    fn steps_of_a_coarse_clock() {
        let (mut now, mut reads) = (1_000, 0u64);
        let steps = Granularity::of(|| {
            reads += 1;
            if reads.is_multiple_of(2) {
                now += 40 + reads / 2 % 3;
            }
            now
        });
        assert_eq!(steps, Granularity { smallest_ticks: 40, typical_ticks: 41 });
        assert_eq!(Granularity::of(|| 7), Granularity::default(), "it stands still");
    }

    #[test]
    fn a_line_through_two_snapshots() {
        // There are 3 ticks per ns, and tick 3000 is at 500 ns.
        let line = Timeline::fit(ClockKind::Tsc, &[at(30_003_000, 10_000_500), at(3_000, 500)]);
        assert!(line.calibrated);
        assert!((line.ns_per_tick() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(line.monotonic_ns(3_000), 500);
        assert_eq!(line.monotonic_ns(3_300), 600);
        assert_eq!(line.monotonic_ns(2_700), 400, "before the first snapshot");
        assert_eq!(line.realtime_ns(3_300), 1_600);
    }

    #[test]
    fn one_snapshot_is_not_a_calibration() {
        assert!(!Timeline::fit(ClockKind::Tsc, &[at(1, 1)]).calibrated);
        assert!(!Timeline::fit(ClockKind::Tsc, &[]).calibrated);
        assert!(!Timeline::fit(ClockKind::Tsc, &[at(1, 1), at(2, 2)]).calibrated);
        assert!(Timeline::fit(ClockKind::Monotonic, &[]).calibrated);
    }

    #[test]
    fn only_a_clock_that_the_kernel_trusts_is_chosen() {
        assert_eq!(ClockKind::choose("hpet\n"), ClockKind::Monotonic);
        assert_eq!(ClockKind::choose(""), ClockKind::Monotonic);
        let expected = if tsc_is_invariant() { ClockKind::Tsc } else { ClockKind::Monotonic };
        assert_eq!(ClockKind::choose("tsc\n"), expected);
    }

    #[test]
    fn both_clocks_go_forward_and_agree() {
        for kind in [ClockKind::Monotonic, ClockKind::Tsc] {
            if kind == ClockKind::Tsc && !tsc_is_invariant() {
                eprintln!("skipped: no invariant time-stamp counter");
                continue;
            }
            let first = Snapshot::take(kind);
            std::thread::sleep(std::time::Duration::from_millis(20));
            let last = Snapshot::take(kind);
            let line = Timeline::fit(kind, &[first, last]);
            assert!(line.calibrated);
            let error = line.monotonic_ns(last.ticks) - last.monotonic_ns as i64;
            let known = (first.uncertainty_ticks + last.uncertainty_ticks) as i64 + 1;
            assert!(error.abs() <= known, "{error} ns off, {known} allowed");
        }
    }
}
