//! Runs threads that are pinned to cores, start together and work for the same time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Core, RoofError};

/// The time for which threads work if one step takes microseconds. It is usually shorter than the
/// time after which the kernel gives the processor to another program.
pub const SHORT: Duration = Duration::from_millis(2);

/// Before the measurement, each thread warms up: it works for the time of the measurement divided
/// by this number. After the warm-up, the core runs at the frequency that it keeps during such
/// work, and the data is in the core's cache.
const WARM: u32 = 4;

/// Calls `step` on all of these cores at the same time, again and again for the given time. Returns
/// the work of all cores per second. `step` gets the index of the core, and returns its amount of
/// work, for example a number of bytes.
pub fn rate(
    cores: &[Core],
    time: Duration,
    step: impl Fn(usize) -> f64 + Sync,
) -> Result<f64, RoofError> {
    let waiting = AtomicU32::new(cores.len() as u32);
    let one = |at: usize| {
        pin(cores[at]);
        work(time / WARM, || step(at));
        waiting.fetch_sub(1, Ordering::AcqRel);
        // Waits for the other threads for at most a second, without giving up the processor, so
        // that all threads start together.
        let until = Instant::now() + Duration::from_secs(1);
        while waiting.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::hint::spin_loop();
        }
        work(time, || step(at))
    };
    std::thread::scope(|scope| {
        let start = |at| {
            let thread = std::thread::Builder::new().name("roofline".into());
            let one = &one;
            thread.spawn_scoped(scope, move || one(at))
        };
        let threads: Vec<_> = (0..cores.len()).map(start).collect();
        // If a thread could not start, the other threads wait a second for it, and then work and
        // end.
        let mut sum = 0.0;
        for thread in threads {
            let thread = thread.map_err(|error| RoofError::Thread(error.to_string()))?;
            sum += thread.join().map_err(|_| RoofError::Thread("it panicked".to_owned()))?;
        }
        Ok(sum)
    })
}

/// Repeats `step` for this time, at least once, and returns the work per second.
fn work(time: Duration, step: impl Fn() -> f64) -> f64 {
    let start = Instant::now();
    let mut done = 0.0;
    loop {
        done += step();
        let taken = start.elapsed();
        if taken >= time {
            return done / taken.as_secs_f64();
        }
    }
}

pub fn on<T: Send>(core: Core, what: impl FnOnce() -> T + Send) -> Result<T, RoofError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("roofline".into());
        let thread = thread.spawn_scoped(scope, move || {
            pin(core);
            what()
        });
        let thread = thread.map_err(|error| RoofError::Thread(error.to_string()))?;
        thread.join().map_err(|_| RoofError::Thread("it panicked".to_owned()))
    })
}

/// Pins the calling thread to a core. If the kernel refuses this, as in some sandboxes, the thread
/// runs where it is, and the measurement is about that core.
fn pin(core: Core) {
    let mut set = [0u64; 1024];
    if let Some(word) = set.get_mut(core.cpu as usize / 64) {
        *word |= 1 << (core.cpu % 64);
    }
    // SAFETY: the kernel reads `size_of_val(&set)` bytes of `set`; 0 stands for the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&set), set.as_ptr()) };
}
