//! Adds the recording to a dataset at intervals while the program runs.
//!
//! ```text
//!  program ─► pool ─► run drains ─► profile ──────────────────────────┐
//!                                       │ every 5 minutes, or when     │ at the end
//!                                       ▼ 64 MiB of calls are new      ▼
//!                            export --dataset --goes-on        export --dataset
//!                              ├─ one more file of calls         ├─ the last file of calls
//!                              └─ statistics so far, replaced    └─ statistics
//! ```
//!
//! The exports are processes with a low priority. Each export computes the statistics from the
//! whole recording, because quantiles and self times of parts cannot be added up. So exports take
//! longer and longer. The pauses between them become longer too, and limit the exports to the share
//! `--dataset-share` of a processor (by default a twentieth). `run` waits for the last export,
//! which has a normal priority.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use record::meta::{PAGES_NAME, PARTS_NAME};

use super::DatasetArgs;
use crate::terminal::say;

/// The time between two checks whether an export is due.
const LOOK: Duration = Duration::from_secs(1);
/// The size of a file of calls divided by the size of the recording, as assumed until the first
/// such file is written. With a higher value, the first export would often begin before there are
/// enough calls for a whole file.
const FIRST_RATIO: f64 = 0.25;

pub struct PeriodicExports {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicExports {
    /// Starts the thread that runs the exports. Returns `None` without `--dataset`, or if no thread
    /// can be started.
    pub fn begin(args: &DatasetArgs, directory: &Path, rank: Option<u32>) -> Option<Self> {
        let dir = args.dir.as_ref()?;
        let mut adding = args.adding(dir, directory, rank, true);
        // Signals from the terminal are meant for the program, so the exports are in another
        // process group. Errors of these exports are not shown: the last export usually has the
        // same error and shows it.
        adding.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
        ends_with_its_parent(&mut adding);
        let exports = Exports {
            adding,
            recording: directory.join(PARTS_NAME),
            interval: args.dataset_interval,
            bytes: if args.calls { args.dataset_bytes } else { u64::MAX },
            share: args.dataset_share,
        };
        let is_over = Arc::<(Mutex<bool>, Condvar)>::default();
        let told = is_over.clone();
        let builder = std::thread::Builder::new().name("cpt-dataset".to_owned());
        // The new thread blocks signals, because they have to interrupt the main thread, which
        // waits for the program.
        let before = super::super::sampler::block_signals();
        let thread = builder.spawn(move || exports.run(&told));
        // SAFETY: `block_signals` filled the set with this thread's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        match thread {
            Ok(thread) => Some(Self { is_over, thread: Some(thread) }),
            Err(e) => {
                say!("run --dataset: start a thread: {e}");
                None
            }
        }
    }

    /// Tells the thread to begin no further export.
    pub fn end(&self) {
        let (is_over, changed) = &*self.is_over;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for PeriodicExports {
    /// Waits for the export that has begun, because the last export continues from its result.
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Exports {
    adding: Command,
    recording: PathBuf,
    interval: Duration,
    /// An export begins when the new calls would make a file of this size, in bytes.
    bytes: u64,
    share: f64,
}

impl Exports {
    fn run(mut self, told: &(Mutex<bool>, Condvar)) {
        if self.share < 1.0 {
            // The processes that a thread starts inherit its priority. With the lowest priority, an
            // export might never end while other programs compute.
            // SAFETY: the system call takes only numbers and changes only the calling thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
        }
        let (is_over, changed) = told;
        let (mut since, mut pause, mut ratio) = (Instant::now(), Duration::ZERO, FIRST_RATIO);
        let mut written = 0;
        loop {
            let look = LOOK.min(self.interval);
            let over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(over, look, |over| !*over);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            if since.elapsed() < pause {
                continue;
            }
            let recorded = if self.bytes < u64::MAX { size_of_pages(&self.recording) } else { 0 };
            let new = recorded.saturating_sub(written) as f64 * ratio;
            if since.elapsed() < self.interval && new < self.bytes as f64 {
                continue;
            }
            since = Instant::now();
            let before = children_cpu();
            if let Some(bytes) = self.export()
                && recorded > 0
            {
                ratio = (bytes as f64 / recorded as f64).max(0.01);
            }
            written = recorded;
            pause = children_cpu().saturating_sub(before).div_f64(self.share.max(0.001));
        }
    }

    /// Runs one export. Returns the number that the export prints: the size in bytes of the calls
    /// that it wrote. Returns `None` if the export failed.
    fn export(&mut self) -> Option<u64> {
        let done = self.adding.spawn().ok()?.wait_with_output().ok()?;
        String::from_utf8(done.stdout).ok()?.lines().last()?.parse().ok()
    }
}

/// Kills the process of `command` when the thread that started it ends: if `run` is killed, nobody
/// waits for its export.
fn ends_with_its_parent(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let tie = move || {
        // SAFETY: the two system calls take no pointers and are allowed between `fork` and `exec`.
        let (failed, present) = unsafe {
            (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid())
        };
        match failed {
            // The parent was killed before prctl(2) took effect.
            0 if present != parent => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes only two system calls. The closure does not allocate memory,
    // because its errors are numbers.
    unsafe { command.pre_exec(tie) };
}

fn size_of_pages(parts: &Path) -> u64 {
    let Ok(entries) = parts.read_dir() else { return 0 };
    let size = |part: PathBuf| part.join(PAGES_NAME).metadata().map_or(0, |found| found.len());
    entries.flatten().map(|entry| size(entry.path())).sum()
}

fn children_cpu() -> Duration {
    // SAFETY: zeros are a valid `rusage`, and `usage` outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let time = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
