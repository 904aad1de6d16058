//! Measures what two readings of counters cost, one at the beginning and one at the end of an
//! interval. Compares this cost with a lower bound and with the cost of the usual way to count an
//! interval.
//!
//! Prints lines `name.N value ns` for N software counters, where each value is the median of many
//! batches. The batches of `floor` and `ours` alternate. `floor.N` is two raw group reads without
//! any check. `ours.N` is two calls of [`ThreadCounters::read`] and the differences of the counts.
//! `ioctl.N` resets and enables each counter, and then disables and reads each.

use std::time::Instant;

use counters::{Plan, ReadStatus, Readings, Target, ThreadCounters, perf};
use model::{Counter, PerfAttr, Source, Unit};

const BATCHES: usize = 301;
const PAIRS: u32 = 200;

fn counter(config: u64) -> Counter {
    let attr =
        PerfAttr { kind: 1, config, exclude_kernel: true, exclude_hv: true, ..Default::default() };
    Counter::new("", Unit::Count, 0, Source::Perf(attr))
}

/// Does the least that a C program has to do to count an interval.
fn floor(fd: i32, n: usize) -> u64 {
    let (mut begin, mut end) = ([0u64; 16], [0u64; 16]);
    // SAFETY: a group of at most 5 counters needs 13 words, and both buffers have 16.
    unsafe {
        raw_read(fd, begin.as_mut_ptr(), (3 + 2 * n) * 8);
        raw_read(fd, end.as_mut_ptr(), (3 + 2 * n) * 8);
    }
    (0..n).map(|i| end[3 + 2 * i].wrapping_sub(begin[3 + 2 * i])).sum()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn raw_read(fd: i32, buf: *mut u64, len: usize) {
    // SAFETY: the registers follow the x86-64 convention for read(2), and the caller's buffer has
    // room for `len` bytes.
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") libc::SYS_read => _,
            in("rdi") fd, in("rsi") buf, in("rdx") len,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn raw_read(fd: i32, buf: *mut u64, len: usize) {
    // SAFETY: the caller's buffer has room for `len` bytes.
    unsafe { libc::read(fd, buf.cast(), len) };
}

fn ours(counters: &mut ThreadCounters, state: &mut [Readings; 2], n: usize) -> u64 {
    let [begin, end] = state;
    let ok = counters.read(begin) == ReadStatus::Complete;
    if !(counters.read(end) == ReadStatus::Complete && ok) {
        return 0;
    }
    (0..n).filter_map(|i| end.since(begin, i)).sum()
}

/// The counters have the group format, so a read copies 32 bytes more than with the plain format
/// (the count alone) that programs usually choose. These bytes have no visible effect on the time.
fn ioctl(fds: &[i32]) -> u64 {
    const ENABLE: libc::c_ulong = 0x2400;
    const DISABLE: libc::c_ulong = 0x2401;
    const RESET: libc::c_ulong = 0x2403;
    let mut sum = 0;
    let mut buf = [0u64; 8];
    // SAFETY: the ioctls take no argument, and a group of one counter has 5 words, for which `buf`
    // has room.
    unsafe {
        for &fd in fds {
            libc::ioctl(fd, RESET as _, 0);
            libc::ioctl(fd, ENABLE as _, 0);
        }
        for &fd in fds {
            libc::ioctl(fd, DISABLE as _, 0);
            libc::read(fd, buf.as_mut_ptr().cast(), 64);
            sum += buf[3];
        }
    }
    sum
}

fn batch(mut pair: impl FnMut() -> u64) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        std::hint::black_box(pair());
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    for n in [1usize, 3, 5] {
        // The numbers select the software counters page-faults, task-clock, dummy, minor-faults and
        // major-faults.
        let plan = Plan::new([2, 1, 9, 5, 6].map(counter)[..n].to_vec()).expect("one group");
        let mut counters = ThreadCounters::closed();
        if let Err(failure) = counters.open(&plan) {
            println!("SKIPPED: {failure}");
            return;
        }
        let leader = counters.descriptors().next().expect("opened");
        let mut state = [const { Readings::new() }; 2];
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..BATCHES {
            times[0].push(batch(|| floor(leader, n)));
            times[1].push(batch(|| ours(&mut counters, &mut state, n)));
        }
        counters.close();
        let fds: Vec<i32> = plan
            .counters()
            .iter()
            .filter_map(|c| match &c.source {
                Source::Perf(attr) => perf::open(attr, Target::CALLING_THREAD, -1).ok(),
                Source::Sim(_) => None,
            })
            .collect();
        for _ in 0..BATCHES / 10 {
            times[2].push(batch(|| ioctl(&fds)));
        }
        for fd in fds {
            // SAFETY: `fd` was opened above, and nobody uses it after this.
            unsafe { libc::close(fd) };
        }
        for (name, times) in ["floor", "ours", "ioctl"].iter().zip(times) {
            println!("{name}.{n} {:.1} ns", median(times));
        }
    }
}
