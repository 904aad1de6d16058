//! What one process owns: a row in the pool's table of losses and a part of the profile.
//!
//! All of it lives in memory that a forked child finds zeroed, so the child notices at its first
//! call that it is nobody yet and makes its own row and part. It never writes into its parent's.

use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use model::Loss;
use record::Snapshot;
use record::meta::{
    Frame, Leaving, META_NAME, PAGES_NAME, PARTS_NAME, Process as ProcessFrame, part_name,
};
use record::pool::Row;

use crate::adapters::iree;
use crate::os::kept::keep;
use crate::os::sys::{self, AppendError};
use crate::state::run::Run;

/// What this process has of one run. Zero means: nothing done yet.
#[repr(C)]
#[derive(Debug)]
pub struct PartState {
    /// 0 fresh, [`NAMED`] or [`READY`].
    ready: AtomicU32,
    row: AtomicU32,
    next_thread: AtomicU32,
    calibrated: AtomicU32,
    pid: AtomicU32,
    generation: AtomicU32,
    /// Different for each part that this process and its parents have made.
    serial: AtomicU32,
    /// Pages that threads have appended when they ended.
    leaving_pages: AtomicU32,
    /// Processor time that it took them, ns.
    leaving_ns: AtomicU64,
    start_time: AtomicU64,
    paths: AtomicPtr<Paths>,
}

/// It has a row, so that losses can be counted.
const NAMED: u32 = 1;
/// Its metadata is in the profile too: threads may record, and no record is without its names.
const READY: u32 = 2;

/// Files of the process's part.
#[derive(Debug)]
pub struct Paths {
    /// Metadata frames.
    pub meta: CString,
    /// Flushed pages.
    pub pages: CString,
}

/// In memory that a forked child finds zeroed: thread id of the lock's holder, 0 if free; and 1 once
/// the process has closed what it inherited.
static LOCK: AtomicPtr<[AtomicU32; 2]> = AtomicPtr::new(std::ptr::null_mut());
const STATE_BYTES: usize = 4096;

/// Descriptors of counters that threads of this process hold, as a bitmap: what a forked child
/// inherits and must close.
static DESCRIPTORS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

fn lock_words() -> Result<&'static [AtomicU32; 2], i32> {
    let mut at = LOCK.load(Ordering::Acquire);
    if at.is_null() {
        let fresh = sys::map_wiped_on_fork(STATE_BYTES)?.cast::<[AtomicU32; 2]>();
        match LOCK.compare_exchange(at, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => at = fresh,
            Err(other) => {
                sys::unmap(fresh.cast(), STATE_BYTES);
                at = other;
            }
        }
    }
    // SAFETY: mapped above for ever, zeroed.
    Ok(unsafe { &*at })
}

impl PartState {
    /// A fresh one, for ever.
    ///
    /// # Errors
    /// The `errno` of `mmap` or `madvise`.
    pub fn make() -> Result<&'static Self, i32> {
        let at = sys::map_wiped_on_fork(STATE_BYTES)?.cast::<Self>();
        // SAFETY: mapped a moment ago for ever, zeroed, and all fields are atomics.
        Ok(unsafe { &*at })
    }

    /// The same memory for the next session, as if it were fresh. Of a process that uses it no more.
    pub fn begin_anew(&'static self) -> &'static Self {
        let words = [
            &self.ready,
            &self.row,
            &self.next_thread,
            &self.calibrated,
            &self.pid,
            &self.generation,
            &self.serial,
        ];
        words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
        self.start_time.store(0, Ordering::SeqCst);
        // Leaked, as the paths of every part are: a thread may be about to read them.
        self.paths.store(std::ptr::null_mut(), Ordering::SeqCst);
        self
    }
}

/// Held while the process's part is made or a library is taken in.
pub struct Lock {
    word: &'static AtomicU32,
    /// Released after the lock.
    _calm: sys::SignalsBlocked,
}

impl Lock {
    /// Waits for the lock, however long its holder takes. `None` only if this very thread holds it:
    /// a signal handler has interrupted it.
    pub fn take() -> Option<Self> {
        let [word, _] = lock_words().ok()?;
        let me = sys::thread_id();
        let calm = sys::SignalsBlocked::new();
        loop {
            match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Self { word, _calm: calm }),
                Err(holder) if holder == me => return None,
                Err(_) => sys::nap(),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}

/// This process, ready to record.
#[derive(Clone, Copy)]
pub struct Process {
    state: &'static PartState,
    run: &'static Run,
}

impl Process {
    /// This process; made ready now if it is fresh (first executable, or first call after fork).
    pub fn current(run: &'static Run) -> Option<Self> {
        let process = Self { state: run.part, run };
        if process.state.ready.load(Ordering::Acquire) != READY {
            let lock = Lock::take()?;
            return Self::current_locked(run, &lock);
        }
        Some(process)
    }

    /// As [`Process::current`], for a caller that holds the lock.
    pub fn current_locked(run: &'static Run, _: &Lock) -> Option<Self> {
        let process = Self { state: run.part, run };
        process.start();
        (process.state.ready.load(Ordering::Relaxed) == READY).then_some(process)
    }

    /// This process if it has a row. For signal handlers and losses.
    pub fn existing(run: &'static Run) -> Option<Self> {
        let state = run.part;
        (state.ready.load(Ordering::Acquire) >= NAMED).then_some(Self { state, run })
    }

    fn start(&self) {
        let state = self.state;
        if state.ready.load(Ordering::Relaxed) == READY || self.run.ended.load(Ordering::Relaxed) {
            return;
        }
        point!(ProcessStart);
        close_inherited();
        let (pid, start_time) = (sys::process_id(), sys::start_time());
        state.pid.store(pid, Ordering::Relaxed);
        state.start_time.store(start_time, Ordering::Relaxed);
        let number = self.run.pool.claim_row();
        state.row.store(number, Ordering::Relaxed);
        let (generation, made) = self.make_part(pid, start_time);
        state.generation.store(generation, Ordering::Relaxed);
        let row = self.row();
        row.generation.store(generation, Ordering::Relaxed);
        row.start_time.store(start_time, Ordering::Relaxed);
        row.pid.store(pid, Ordering::Release);
        match made {
            Ok(paths) => {
                let paths = std::ptr::from_ref(keep(paths)).cast_mut();
                state.paths.store(paths, Ordering::Release);
            }
            Err(errno) => row.lose(Loss::PartUnwritable, 1, errno),
        }
        state.ready.store(NAMED, Ordering::Release);
        self.append(&Frame::Process(ProcessFrame {
            pid,
            parent: sys::parent_id(),
            start_time,
            generation,
            clock: self.run.clock,
            program: sys::lossy(sys::read_link(c"/proc/self/exe").unwrap_or_default()),
            arguments: arguments(),
        }));
        self.append(&Frame::Snapshot(Snapshot::take(self.run.clock)));
        static LAST: AtomicU32 = AtomicU32::new(0);
        state.serial.store(LAST.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        iree::library::for_each_known(|frame| self.append_bytes(frame));
        state.ready.store(READY, Ordering::Release);
    }

    /// Makes the directory of the part: the first generation that is not there yet is ours.
    fn make_part(&self, pid: u32, start_time: u64) -> (u32, Result<Paths, i32>) {
        for generation in 0..10_000 {
            let name = part_name(pid, start_time, generation);
            let directory = format!("{}/{PARTS_NAME}/{name}", self.run.profile);
            match sys::make_directory(&sys::path(directory.clone())) {
                Ok(()) => {
                    let meta = sys::path(format!("{directory}/{META_NAME}"));
                    let pages = sys::path(format!("{directory}/{PAGES_NAME}"));
                    return (generation, Ok(Paths { meta, pages }));
                }
                Err(libc::EEXIST) => {}
                Err(errno) => return (0, Err(errno)),
            }
        }
        (0, Err(libc::EEXIST))
    }

    /// Its row in the table of losses.
    pub fn row(&self) -> &'static Row {
        self.run.pool.row(self.row_number())
    }

    /// What it records into.
    pub fn run(&self) -> &'static Run {
        self.run
    }

    /// The number of that row.
    pub fn row_number(&self) -> u32 {
        self.state.row.load(Ordering::Relaxed)
    }

    /// The part's files, if the part could be made.
    pub fn paths(&self) -> Option<&'static Paths> {
        // SAFETY: null or leaked.
        unsafe { self.state.paths.load(Ordering::Acquire).as_ref() }
    }

    /// Process id, start time, generation.
    pub fn identity(&self) -> (u32, u64, u32) {
        (
            self.state.pid.load(Ordering::Relaxed),
            self.state.start_time.load(Ordering::Relaxed),
            self.state.generation.load(Ordering::Relaxed),
        )
    }

    /// A number for a new thread.
    pub fn next_thread(&self) -> u32 {
        self.row().threads.fetch_add(1, Ordering::Relaxed);
        self.state.next_thread.fetch_add(1, Ordering::Relaxed)
    }

    /// True for the first caller: that one calibrates.
    pub fn should_calibrate(&self) -> bool {
        self.state.calibrated.swap(1, Ordering::Relaxed) == 0
    }

    /// A number that no other part has that this process or one of its parents made; what is
    /// inherited at a fork can be told from what this part has been told.
    #[inline(always)]
    pub fn serial(&self) -> u32 {
        self.state.serial.load(Ordering::Relaxed)
    }

    /// Appends a frame to the metadata.
    pub fn append(&self, frame: &Frame) {
        self.append_bytes(&frame.to_bytes());
    }

    pub(crate) fn append_bytes(&self, bytes: &[u8]) {
        let Some(paths) = self.paths() else { return };
        match sys::append(&paths.meta, bytes) {
            Ok(()) => {}
            Err(AppendError::FileSizeLimit) => {
                self.row().lose(Loss::PartUnwritable, 1, libc::EFBIG);
            }
            Err(AppendError::Errno(errno)) => self.row().lose(Loss::PartUnwritable, 1, errno),
        }
    }

    /// A thread has appended its last page.
    pub fn note_leaving(&self, cpu_ns: u64) {
        self.state.leaving_pages.fetch_add(1, Ordering::Relaxed);
        self.state.leaving_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// The process ends in an orderly way: the second snapshot of its clocks, and what the ends of
    /// its threads have cost.
    pub fn at_exit(&self) {
        let pages = self.state.leaving_pages.load(Ordering::Relaxed);
        if pages > 0 {
            let cpu_ns = self.state.leaving_ns.load(Ordering::Relaxed);
            self.append(&Frame::Leaving(Leaving { pages, cpu_ns }));
        }
        self.append(&Frame::Snapshot(Snapshot::take(self.run.clock)));
    }

    /// Its session is over: whoever collects need not wait until the process ends.
    pub fn leave(&self) {
        self.at_exit();
        self.row().left.store(1, Ordering::Release);
    }

    /// Counts a loss.
    pub fn lose(&self, loss: Loss, count: u64, errno: i32) {
        // What a signal handler's fork left to its child to end has no row there.
        let is_ours = self.state.ready.load(Ordering::Relaxed) != 0;
        let row = if is_ours { self.row() } else { self.run.pool.run_row() };
        row.lose(loss, count, errno);
    }
}

fn arguments() -> Vec<String> {
    let raw = sys::read_file(c"/proc/self/cmdline").unwrap_or_default();
    let text = raw.strip_suffix(&[0]).unwrap_or(&raw);
    text.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}

/// Notes that a thread of this process holds `fd`, or does no more.
pub fn note_descriptor(fd: i32, held: bool) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| DESCRIPTORS.get(fd / 64)) else {
        return;
    };
    let bit = 1u64 << (fd % 64);
    if held {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// In a forked child: closes the counters of the parent's threads, which would otherwise count
/// on in the parent for as long as the child lives.
fn close_inherited() {
    // In a later session of the same process, other threads' counters are theirs to close.
    if lock_words().is_ok_and(|[_, done]| done.swap(1, Ordering::Relaxed) == 1) {
        return;
    }
    for (i, word) in DESCRIPTORS.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            point!(ForkedChild);
            sys::close_counter((i * 64) as i32 + bits.trailing_zeros() as i32);
            bits &= bits - 1;
        }
    }
}

/// Counts a loss of this process wherever that is possible.
#[cold]
#[inline(never)]
pub fn lose(loss: Loss, count: u64, errno: i32) {
    if let Some(process) = crate::state::run::current().and_then(Process::existing) {
        process.lose(loss, count, errno);
    }
}
