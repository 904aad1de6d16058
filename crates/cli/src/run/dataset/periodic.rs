//! Adds to a dataset while the program runs.
//!
//! ```text
//!  program ─► pool ─► run drains ─► profile ──────────────────────────┐
//!                                       │ every 5 minutes, or when     │ at the end
//!                                       ▼ 64 MB of calls are new       ▼
//!                            export --dataset --goes-on        export --dataset
//!                              ├─ one more file of calls         ├─ the last file of calls
//!                              └─ statistics so far, replaced    └─ statistics
//! ```
//!
//! The program's threads do nothing for it. The exports are processes with a low priority, and each of them
//! reads the profile as any view does. Statistics are computed from the whole recording each time, because
//! quantiles and self times of a part of it cannot be added up. So an export takes longer and longer, and pauses
//! become longer with it: all of them together take a twentieth of a processor at most. The last export, when the
//! program has ended, is not one of them: it has the priority of `run`, which waits for it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use record::meta::{PAGES_NAME, PARTS_NAME};

use super::DatasetArgs;
use crate::terminal::say;

/// How often the size of the recording is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How many bytes of a file of calls are taken to come of a byte of the recording, before the first one is
/// known: few, so that the first file is not too small.
const FIRST_RATIO: f64 = 0.25;

/// A thread that starts the exports.
pub struct PeriodicExports {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl PeriodicExports {
    /// Begins to add the profile in `directory`. `None` without `--dataset`.
    pub fn begin(args: &DatasetArgs, directory: &Path, rank: Option<u32>) -> Option<Self> {
        let dir = args.dir.as_ref()?;
        let mut adding = args.adding(dir, directory, rank, true);
        // Signals of the terminal are for the program. What fails now fails at the end, too, and is said then.
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
        // Signals that end the wait for the program are not for the new thread.
        let before = super::super::sampler::block_signals();
        let thread = builder.spawn(move || exports.run(&told));
        // SAFETY: the set was filled by the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        match thread {
            Ok(thread) => Some(Self { is_over, thread: Some(thread) }),
            Err(e) => {
                say!("run --dataset: start a thread: {e}");
                None
            }
        }
    }

    /// No export begins after this.
    pub fn end(&self) {
        let (is_over, changed) = &*self.is_over;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

impl Drop for PeriodicExports {
    /// Waits for the export that has begun: the last one goes on from it.
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Exports {
    adding: Command,
    /// The directory of what the processes have recorded.
    recording: PathBuf,
    interval: Duration,
    /// The size of a file of calls that makes an export due.
    bytes: u64,
    share: f64,
}

impl Exports {
    fn run(mut self, told: &(Mutex<bool>, Condvar)) {
        if self.share < 1.0 {
            // What a thread starts inherits its priority. The lowest one could keep an export from ever ending
            // while other programs compute.
            // SAFETY: a system call that changes the calling thread only.
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

    /// Runs an export to its end. Returns the size of all calls that are in the dataset then.
    fn export(&mut self) -> Option<u64> {
        let done = self.adding.spawn().ok()?.wait_with_output().ok()?;
        String::from_utf8(done.stdout).ok()?.lines().last()?.parse().ok()
    }
}

/// Has the kernel kill the process that `command` starts when the thread that starts it is gone. If `run` is killed,
/// nobody waits for the export any more, and somebody else may complete the dataset: an export that goes on would
/// keep them waiting for nothing.
fn ends_with_its_parent(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let tie = move || {
        // SAFETY: two system calls without pointers, as are allowed between `fork` and `exec`. The variable is
        // copied into the closure.
        let (failed, present) = unsafe {
            (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid())
        };
        match failed {
            // The parent was killed before the kernel knew.
            0 if present != parent => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes two system calls and does not allocate: its errors are numbers.
    unsafe { command.pre_exec(tie) };
}

/// The bytes of all pages that were appended to files.
fn size_of_pages(parts: &Path) -> u64 {
    let Ok(entries) = parts.read_dir() else { return 0 };
    let size = |part: PathBuf| part.join(PAGES_NAME).metadata().map_or(0, |found| found.len());
    entries.flatten().map(|entry| size(entry.path())).sum()
}

/// The processor time of the children that have ended and were waited for.
fn children_cpu() -> Duration {
    // SAFETY: a zeroed `rusage` is valid, and lives for the call.
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
