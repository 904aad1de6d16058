//! The state that one process owns: a row in the table of losses, and a part of the profile (a
//! directory with this process's files). The table is in the pool, which is the memory that
//! `counterpoint run` shares with the processes of a run.
//!
//! The words that describe the row and the part ([`PartWords`]) are in memory that is zeroed in a
//! forked child. So the child finds at its first recorded call that it has neither a row nor a
//! part, and creates both. It does not write to its parent's part.

use std::sync::atomic::{AtomicU32, Ordering};

use model::Loss;
use record::Snapshot;
use record::job::{Job, job_name, variables_in};
use record::loops::LOOPS_NAME;
use record::meta::{
    Frame, Leaving, META_NAME, PAGES_NAME, PARTS_NAME, Process as ProcessFrame, part_name,
};
use record::pool::Row;

use crate::os::kept::keep;
use crate::os::own_image;
use crate::os::sys::{self, AppendError};
use crate::process::hosts::Described;
use crate::process::lock::Lock;
use crate::process::{cost, descriptors, names, thread_times};
use crate::state::part_words::{NAMED, PartWords, Paths, READY};
use crate::state::run::Run;

/// This process. Other modules get a value of this type only if the process has a row in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    state: &'static PartWords,
    run: &'static Run,
}

impl Process {
    /// Returns this process. Creates its row and its part first, if they do not exist yet (for
    /// example, at the first call after a fork).
    pub fn current(run: &'static Run) -> Option<Self> {
        let process = Self { state: run.part, run };
        if process.state.ready.load(Ordering::Acquire) != READY {
            let lock = Lock::take()?;
            return Self::current_locked(run, &lock);
        }
        Some(process)
    }

    pub fn current_locked(run: &'static Run, _: &Lock) -> Option<Self> {
        let process = Self { state: run.part, run };
        process.start();
        (process.state.ready.load(Ordering::Relaxed) == READY).then_some(process)
    }

    /// Returns this process if it already has a row. Takes no lock, so signal handlers can call it.
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
        own_image::make_present();
        descriptors::close_inherited();
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
        // This is the environment with which the process was started. The present environment is
        // not read, because threads of the program may be changing it.
        let environment = sys::read_file(c"/proc/self/environ").unwrap_or_default();
        if let Some(job) = Job::of(variables_in(&environment)) {
            self.append(&Frame::Job(job));
        }
        if let Some(name) = job_name(variables_in(&environment)) {
            self.append(&Frame::JobName(name));
        }
        self.append(&Frame::Snapshot(Snapshot::take(self.run.clock)));
        static LAST: AtomicU32 = AtomicU32::new(0);
        state.serial.store(LAST.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        names::for_each_known(|host, frame| {
            self.tell(host);
            self.append_bytes(frame);
        });
        state.ready.store(READY, Ordering::Release);
    }

    /// Creates the directory of the part, with the lowest number (*generation*) that is not taken
    /// yet. The first process that records into a profile also creates the directory that contains
    /// all parts.
    fn make_part(&self, pid: u32, start_time: u64) -> (u32, Result<Paths, i32>) {
        let parts = format!("{}/{PARTS_NAME}", self.run.profile);
        let (mut generation, mut tried) = (0, false);
        while generation < 10_000 {
            let name = part_name(pid, start_time, generation);
            let directory = format!("{parts}/{name}");
            match sys::make_directory(&sys::path(directory.clone())) {
                Ok(()) => {
                    let meta = sys::path(format!("{directory}/{META_NAME}"));
                    let pages = sys::path(format!("{directory}/{PAGES_NAME}"));
                    let loops = sys::path(format!("{directory}/{LOOPS_NAME}"));
                    return (generation, Ok(Paths { meta, pages, loops, directory }));
                }
                Err(libc::EEXIST) => generation += 1,
                Err(libc::ENOENT) if !tried => {
                    tried = true;
                    match sys::make_directory_for_all(&sys::path(parts.clone())) {
                        Ok(()) | Err(libc::EEXIST) => {}
                        Err(errno) => return (0, Err(errno)),
                    }
                }
                Err(errno) => return (0, Err(errno)),
            }
        }
        (0, Err(libc::EEXIST))
    }

    pub fn row(&self) -> &'static Row {
        self.run.pool.row(self.row_number())
    }

    pub fn run(&self) -> &'static Run {
        self.run
    }

    pub fn row_number(&self) -> u32 {
        self.state.row.load(Ordering::Relaxed)
    }

    /// Returns the paths of the part's files, or `None` if the part could not be created.
    pub fn paths(&self) -> Option<&'static Paths> {
        // SAFETY: `paths` is null or a value that is kept until the process ends.
        unsafe { self.state.paths.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the process's id, start time (in clock ticks since boot) and generation.
    pub fn identity(&self) -> (u32, u64, u32) {
        (
            self.state.pid.load(Ordering::Relaxed),
            self.state.start_time.load(Ordering::Relaxed),
            self.state.generation.load(Ordering::Relaxed),
        )
    }

    /// Returns the number for a new thread, and increments the row's number of threads.
    pub fn next_thread(&self) -> u32 {
        self.row().threads.fetch_add(1, Ordering::Relaxed);
        self.state.next_thread.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number for a new block of tables of loops (contiguous pages of one thread).
    pub fn next_loops(&self) -> u32 {
        self.state.next_loops.fetch_add(1, Ordering::Relaxed)
    }

    pub fn next_events(&self) -> u32 {
        self.state.next_events.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends frames (records as bytes) to the part's file of loops. A failed write is counted as
    /// a loss.
    pub fn append_loops(&self, frames: &[u8]) -> Result<(), AppendError> {
        let paths = self.paths().ok_or(AppendError::Errno(libc::ENOENT))?;
        sys::append(&paths.loops, frames).inspect_err(|error| match error {
            AppendError::FileSizeLimit => self.lose(Loss::PartUnwritable, 1, libc::EFBIG),
            AppendError::Errno(errno) => self.lose(Loss::PartUnwritable, 1, *errno),
        })
    }

    /// Appends `bytes` to the file `name` of the part. A failure is not counted as a loss.
    pub fn append_to(&self, name: &str, bytes: &[u8]) -> Result<(), AppendError> {
        let paths = self.paths().ok_or(AppendError::Errno(libc::ENOENT))?;
        let loops = paths.loops.to_str().map_err(|_| AppendError::Errno(libc::EINVAL))?;
        let part = loops.strip_suffix(LOOPS_NAME).unwrap_or(loops);
        sys::append(&sys::path(format!("{part}{name}")), bytes)
    }

    /// Returns true at the first call for this part.
    pub fn is_first_to_calibrate(&self) -> bool {
        self.state.calibrated.swap(1, Ordering::Relaxed) == 0
    }

    /// Returns the serial number of the part, which differs between the parts that this process and
    /// its ancestors have made. With it, the agent remembers which part already contains a frame (a
    /// record of metadata).
    #[inline(always)]
    pub fn serial(&self) -> u32 {
        self.state.serial.load(Ordering::Relaxed)
    }

    pub fn append(&self, frame: &Frame) {
        self.append_bytes(&frame.to_bytes());
    }

    /// Writes the description of a host, at most once per part.
    pub fn tell(&self, host: &Described) {
        if let Some(frame) = host.untold(self.serial()) {
            self.append_bytes(&frame);
        }
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

    /// Counts a detached thread that has appended its last page of records, and adds the processor
    /// time of detaching this thread (`cpu_ns`).
    pub fn note_leaving(&self, cpu_ns: u64) {
        self.state.leaving_pages.fetch_add(1, Ordering::Relaxed);
        self.state.leaving_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Called at the orderly end of the process.
    pub fn at_exit(&self) {
        self.finish(true);
    }

    fn finish(&self, process_ends: bool) {
        let pages = self.state.leaving_pages.load(Ordering::Relaxed);
        if pages > 0 {
            let cpu_ns = self.state.leaving_ns.load(Ordering::Relaxed);
            self.append(&Frame::Leaving(Leaving { pages, cpu_ns }));
        }
        // The processor time of the process is read before that of its threads. So if the threads'
        // times are subtracted from it, the rest is only the time of threads that have ended.
        let cost = cost::take(process_ends);
        if let Some(threads) = thread_times::read() {
            self.append(&Frame::Threads(threads));
        }
        self.append(&Frame::Cost(cost));
        self.append(&Frame::Snapshot(Snapshot::take(self.run.clock)));
    }

    /// Ends the part at the end of a session (a recording that the program itself begins), so that
    /// the command that collects the profile does not have to wait until the process ends.
    pub fn leave(&self) {
        // The program continues, and its processor time includes time outside of the session. So
        // `finish` must not store this time.
        self.finish(false);
        self.row().left.store(1, Ordering::Release);
    }

    pub fn lose(&self, loss: Loss, count: u64, errno: i32) {
        // A signal handler may fork while it interrupts the recorder. The interrupted work then
        // finishes in the child. The child has no row yet, so the loss is counted in the run's row.
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
