//! What one thread owns: a page of the pool, its counters, and the state of the bracket.
//!
//! ```text
//!            first call            every call            thread exit
//!  (nothing) ──────────► attached ──────────► attached ──────────────► gone
//!      ▲                    │ fork: the child finds zeroed memory        │ destructors that call
//!      └────────────────────┘                                            ▼ again, up to 3 times
//!                                                                     (nothing)
//! ```
//!
//! The thread-local itself is two words in the static TLS block: reading it never allocates and
//! is safe in a signal handler. Everything else is in memory of its own that is present from the
//! start and zeroed in a forked child.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};

use counters::{Readings, ThreadCounters};
use model::Loss;
use record::Usage;
use record::page::{PageStart, PageWriter};

use crate::adapters::tvm::op::Entry;
use crate::os::sys::{self, AppendError, ErrnoGuard};
use crate::process::part::{self, Process};
use crate::recorder::calibrate;
use crate::recorder::collectors::{Kept, Started};
use crate::recorder::fork;
use crate::state::run;
use crate::state::run::Run;

mod local;
mod usage;

pub use local::current;
pub(crate) use local::{set_saved, take_saved};

/// Nested calls (from a signal handler, a dispatch that dispatches, functions of a model that call
/// one another) that are recorded.
pub const DEEPEST: usize = 32;
/// How often a thread may come back after its exit began, as destructors may call again.
const MOST_LIVES: u32 = 3;
/// Calls to pass through before a thread without a page asks for one again.
const RETRY_CALLS: u32 = 1024;

/// Which bracket a thread is attached for: what is calibrated if it is the process's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Around a dispatch function.
    Dispatch,
    /// Around an op of a virtual machine.
    Op,
}

/// See the module's documentation.
#[repr(C)]
pub struct Thread {
    /// What the state is good for ([`run::epoch`]) while attached; zero before and afterwards, and
    /// in a forked child.
    pub(crate) epoch: AtomicU32,
    /// 1 while the recorder itself runs: a signal handler that calls then passes through.
    pub(crate) busy: AtomicU32,
    pub(crate) depth: u32,
    /// [`OURS`]; zero in a forked child, and in what its parent's state is put back as.
    pub(crate) memory: u32,
    /// Whether counters are read.
    pub(crate) counting: bool,
    /// Bit *i*: call *i* in progress is timed only.
    pub(crate) uncounted: u32,
    /// Whether the calls of the moment are empty ones, for calibration: no loss of theirs counts.
    pub(crate) rehearsing: bool,
    /// Whether the loss of its descriptors was counted.
    pub(crate) lost_noted: bool,
    pub(crate) run: &'static Run,
    pub(crate) writer: PageWriter,
    /// Stack addresses of the calls in progress: one that is passed by was abandoned.
    pub(crate) frames: [usize; DEEPEST],
    /// Bit *i*: call *i* in progress is bracketed by two calls of the runtime, and `hooked[i]`
    /// tells of it.
    pub(crate) is_hooked: u32,
    pub(crate) hooked: [Hooked; DEEPEST],
    /// Bit *i*: call *i* in progress is an op of a virtual machine.
    pub(crate) is_op: u32,
    /// Bit *i*: `entries[i]` and `bytes[i]` are of call *i*: an op, or what an op does.
    pub(crate) has_entry: u32,
    pub(crate) entries: [Option<&'static Entry>; DEEPEST],
    /// Storage and workspace that the calls in progress have allocated.
    pub(crate) bytes: [[u64; 2]; DEEPEST],
    /// Bit *i*: `collected[i]` is of call *i*.
    pub(crate) has_collected: u32,
    pub(crate) collected: Kept,
    pub(crate) next_clock: u64,
    pub(crate) counters: ThreadCounters<'static>,
    pub(crate) after: Readings,
    pub(crate) before: [Readings; DEEPEST],
    page: usize,
    start: PageStart,
    process: Process,
}

/// What the end of a call has to know of its begin, where they are not in one function.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hooked {
    pub(crate) export: u32,
    pub(crate) start: u64,
}

/// The mark of memory that a state may be made in again.
const OURS: u32 = 0x7468_7264;

const THREAD_BYTES: usize = size_of::<Thread>().next_multiple_of(4096);

/// Attaches the calling thread. Null when it cannot be recorded: the loss has been counted, and
/// the call passes through.
#[cold]
#[inline(never)]
pub fn attach(probe: Probe) -> *mut Thread {
    let _errno = ErrnoGuard::new();
    let local = local::get();
    // SAFETY: this thread's own; a signal handler on it only sees `attaching` set.
    unsafe {
        // Before the run is looked at: a session that begins in between makes the state stale.
        let epoch = run::epoch();
        if epoch >= run::IDLE {
            return std::ptr::null_mut();
        }
        if (*local).attaching != 0 {
            let at = (*local).thread;
            if !at.is_null() && (*at).rehearsing {
                return std::ptr::null_mut(); // The session has ended meanwhile.
            }
            part::lose(Loss::ProbeReentered, 1, 0);
            return std::ptr::null_mut();
        }
        if u32::from((*local).lives) >= MOST_LIVES {
            part::lose(Loss::ThreadGone, 1, 0);
            return std::ptr::null_mut();
        }
        if (*local).retry > 0 {
            (*local).retry -= 1;
            part::lose(Loss::NoPage, 1, 0);
            return std::ptr::null_mut();
        }
        let old = (*local).thread;
        if !old.is_null() && (*old).busy.load(Ordering::Relaxed) != 0 && (*old).is_stale() {
            part::lose(Loss::ProbeReentered, 1, 0);
            return std::ptr::null_mut();
        }
        let _calm = sys::SignalsBlocked::new();
        (*local).attaching = 1;
        ATTACHING.fetch_add(1, Ordering::SeqCst);
        let made = guarded(|| make(epoch, old, probe));
        ATTACHING.fetch_sub(1, Ordering::SeqCst);
        let thread = match made {
            Some(Ok(thread)) => thread,
            Some(Err(TryLater)) => {
                if run::epoch() == epoch {
                    (*local).retry = RETRY_CALLS;
                }
                part::lose(Loss::NoPage, 1, 0);
                std::ptr::null_mut()
            }
            None => std::ptr::null_mut(),
        };
        // A state of an earlier session stays where it is, to be used again.
        if !thread.is_null() || old.is_null() || !(*old).is_reusable() {
            (*local).thread = thread;
        }
        compiler_fence(Ordering::SeqCst);
        (*local).attaching = 0;
        thread
    }
}

/// Threads that are in [`attach`].
static ATTACHING: AtomicU32 = AtomicU32::new(0);

/// Whether no thread is about to become part of what records, or recorded a moment ago.
pub fn nobody_attaches() -> bool {
    ATTACHING.load(Ordering::SeqCst) == 0
}

/// Makes `thread` the calling thread's state while `body` runs: for calibration, which brackets
/// empty calls before the thread is announced as attached.
pub(crate) fn with_current<T>(thread: *mut Thread, body: impl FnOnce() -> T) -> T {
    let local = local::get();
    // SAFETY: this thread's own; a signal handler in between finds a state that is ready.
    unsafe {
        let before = std::mem::replace(&mut (*local).thread, thread);
        let result = body();
        (*local).thread = before;
        result
    }
}

/// Runs code of ours that might panic. A panic switches the agent off. Nothing of the host's may
/// run inside: its exceptions are not ours to stop.
#[inline(always)]
pub fn guarded<T>(body: impl FnOnce() -> T) -> Option<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(result) => Some(result),
        Err(panic) => {
            caught(panic);
            None
        }
    }
}

#[cold]
#[inline(never)]
fn caught(panic: Box<dyn std::any::Any + Send>) {
    // Dropping it could panic again.
    std::mem::forget(panic);
    let _errno = ErrnoGuard::new();
    run::fail();
}

/// No memory for this thread at the moment.
struct TryLater;

/// `old`: the thread's state so far, or null. It is used again if it is of an earlier session, so
/// that a call which began then finds memory that is a state when it ends.
fn make(epoch: u32, old: *mut Thread, probe: Probe) -> Result<*mut Thread, TryLater> {
    point!(Attach);
    // SAFETY: null or this thread's own.
    let mut old = unsafe { old.as_mut() }.filter(|old| old.is_reusable());
    if let Some(old) = old.as_deref_mut().filter(|old| old.is_stale()) {
        old.discard();
    }
    let run = run::load().ok_or(TryLater)?;
    let begun_ns = record::clock::thread_cpu_ns();
    let process = Process::current(run).ok_or(TryLater)?;
    let page = claim(run, &process).ok_or(TryLater)?;
    let fresh = old.is_none();
    let memory = match old.map_or_else(
        || sys::map_wiped_on_fork(THREAD_BYTES).map(<*mut u8>::cast::<Thread>),
        |old| Ok(std::ptr::from_mut(old)),
    ) {
        Ok(memory) => memory,
        Err(errno) => {
            run.pool.release_page(page);
            process.lose(Loss::AgentDisabled, 1, errno);
            if errno == libc::EINVAL {
                run::switch_off(); // Linux before 4.14: a fork could not be noticed.
            }
            return Err(TryLater);
        }
    };
    let mut counters = ThreadCounters::closed();
    let mut counting = false;
    if run.counter_mask != 0 {
        match counters.open(&run.plan) {
            Ok(()) => {
                counters.descriptors().for_each(|fd| part::note_descriptor(fd, true));
                counting = true;
            }
            Err(failure) => {
                process.lose(Loss::CounterOpenFailed, 1, failure.error.errno);
            }
        }
    }
    let (pid, start_time, generation) = process.identity();
    let ticks = run.clock.begin();
    let start = PageStart {
        pid,
        generation,
        start_time,
        thread_uid: process.next_thread(),
        tid: sys::thread_id(),
        thread_name: sys::thread_name(),
        sequence: 0,
        counters: if counting { run.counter_mask } else { 0 },
        base_ticks: ticks,
        base_cpu_ns: record::clock::thread_cpu_ns(),
        base_monotonic_ns: record::clock::monotonic_ns(),
        flush_ticks: 0,
        flushes: 0,
        attach_ns: 0,
        usage: None,
    };
    let mut writer = PageWriter::detached();
    // SAFETY: the page was claimed for this thread and populated.
    unsafe { writer.attach(run.pool.page(page), &start) };
    // SAFETY: fresh memory of the right size; a `Thread` is plain data without destructor work.
    unsafe {
        memory.write(Thread {
            epoch: AtomicU32::new(epoch),
            busy: AtomicU32::new(1),
            depth: 0,
            memory: OURS,
            counting,
            uncounted: 0,
            rehearsing: false,
            lost_noted: false,
            run,
            writer,
            frames: [0; DEEPEST],
            is_hooked: 0,
            hooked: [Hooked { export: 0, start: 0 }; DEEPEST],
            is_op: 0,
            has_entry: 0,
            entries: [None; DEEPEST],
            bytes: [[0; 2]; DEEPEST],
            has_collected: 0,
            collected: [Started::NONE; DEEPEST],
            next_clock: ticks + run.ticks_per_ms,
            counters,
            after: Readings::new(),
            before: [const { Readings::new() }; DEEPEST],
            page,
            start,
            process,
        });
        run.threads.fetch_add(1, Ordering::SeqCst);
        if fresh {
            register_exit(memory);
        }
        fork::watch();
        point!(ThreadMade);
        if process.should_calibrate() {
            calibrate::calibrate(&mut *memory, &process, probe);
        }
        // The first clock record closes the attaching itself, so that its CPU time is not taken
        // for the program's.
        (*memory).clock_record();
        (*memory).begin_usage(begun_ns);
        (*memory).busy.store(0, Ordering::Relaxed);
    }
    Ok(memory)
}

/// Where to look for a free page first: one that this process released is already present in it.
static HINT: AtomicUsize = AtomicUsize::new(0);

fn claim(run: &Run, process: &Process) -> Option<usize> {
    let page = run.pool.claim_page(process.row_number(), HINT.load(Ordering::Relaxed))?;
    if !fork::share(run, page) {
        return None; // Stays claimed: nobody in this process can use it.
    }
    match run.pool.populate(page, &run.pool_path) {
        Ok(()) => Some(page),
        Err(errno) => {
            run.pool.release_page(page);
            process.lose(Loss::PoolTooSmall, 1, errno);
            None
        }
    }
}

static EXIT_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Has [`leave`] called when the thread exits.
fn register_exit(thread: *mut Thread) {
    let mut key = EXIT_KEY.load(Ordering::Acquire);
    if key == u32::MAX {
        let mut fresh: libc::pthread_key_t = 0;
        // SAFETY: `leave_c` has the signature that pthread wants and lives as long as we do
        // (this library is never unloaded).
        if unsafe { libc::pthread_key_create(&mut fresh, Some(leave_c)) } != 0 {
            return;
        }
        match EXIT_KEY.compare_exchange(key, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => key = fresh,
            Err(other) => {
                // SAFETY: just created, unused.
                unsafe { libc::pthread_key_delete(fresh) };
                key = other;
            }
        }
    }
    // SAFETY: the key exists.
    unsafe { libc::pthread_setspecific(key, thread.cast()) };
}

unsafe extern "C" fn leave_c(thread: *mut c_void) {
    let _errno = ErrnoGuard::new();
    let _calm = sys::SignalsBlocked::new();
    let local = local::get();
    let thread = thread.cast::<Thread>();
    // SAFETY: `thread` is what this thread registered. In a forked child its memory is zeroed
    // (`ready` is 0) and nothing is to be done: the page is the parent's.
    unsafe {
        if (*local).thread == thread {
            (*local).thread = std::ptr::null_mut();
        }
        (*local).lives = (*local).lives.saturating_add(1);
        let of = (*thread).epoch.load(Ordering::Relaxed);
        if of != 0 && (of == run::epoch() || run::is_off()) {
            guarded(|| (*thread).leave(Loss::CallAbandoned));
        } else if of != 0 {
            guarded(|| (*thread).discard());
        }
        sys::unmap(thread.cast(), THREAD_BYTES);
    }
}

/// At the end of the process, for the thread that ends it: it leaves, so that its page goes to the
/// profile and is free for other processes of the run. Pages of other threads, which may still be
/// writing, stay in the pool, whence `run` or `report` collects them.
pub fn at_process_exit() {
    let _calm = sys::SignalsBlocked::new();
    let local = local::get();
    // SAFETY: the calling thread's own state, not used any more once the pointer is cleared. Its
    // memory stays mapped: the thread may have been ending the process from inside a call.
    unsafe {
        let thread = (*local).thread;
        if !thread.is_null() && (*thread).is_attached() {
            (*local).thread = std::ptr::null_mut();
            (*thread).leave(Loss::CallAbandoned);
        }
    }
}

/// At the end of a session, for the thread that ends it: it leaves, but may come back. Before the
/// epoch ends.
pub fn at_session_end() {
    let thread = current();
    // SAFETY: null or the calling thread's own state. A call that it is in the middle of finds it
    // detached.
    unsafe {
        if !thread.is_null()
            && (*thread).is_attached()
            && (*thread).busy.load(Ordering::Relaxed) == 0
        {
            (*thread).leave(Loss::CallCutShort);
        }
    }
}

impl Thread {
    /// Whether calls can be recorded: attached to what is being recorded now.
    #[inline(always)]
    pub(crate) fn is_attached(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) == run::epoch()
    }

    /// Whether it was attached to what is recorded no more.
    fn is_stale(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        epoch != 0 && epoch != run::epoch()
    }

    /// Whether its memory can take the thread's next state. In a forked child, what a handler had
    /// interrupted still ends in it.
    fn is_reusable(&self) -> bool {
        self.memory == OURS
    }

    /// Its session has ended. The page is left to whoever collects, the counters are closed.
    fn discard(&mut self) {
        self.epoch.store(0, Ordering::Relaxed);
        self.close_counters();
        self.writer.detach();
        // SAFETY: this thread alone wrote to it, and does no more.
        unsafe { self.run.pool.unmap_page(self.page) };
        self.run.threads.fetch_sub(1, Ordering::SeqCst);
    }

    fn close_counters(&mut self) {
        self.counters.descriptors().for_each(|fd| part::note_descriptor(fd, false));
        self.counters.close();
    }

    /// Records where the thread's clocks stand, and plans the next such record in a millisecond.
    #[cold]
    #[inline(never)]
    pub(crate) fn clock_record(&mut self) {
        point!(ClockRecord);
        if !self.writer.has_room() {
            self.flush();
        }
        let cpu_ns = record::clock::thread_cpu_ns();
        let monotonic_ns = record::clock::monotonic_ns();
        let ticks = self.run.clock.begin();
        // SAFETY: a page with room is attached.
        unsafe { self.writer.thread_clock(ticks, cpu_ns, monotonic_ns) };
        self.next_clock = ticks + self.run.ticks_per_ms;
    }

    /// Appends the page to the profile and starts the next one. When the file cannot be written,
    /// the page stays in the pool and another one is used, for as long as there are any.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if self.epoch.load(Ordering::Relaxed) == 0 {
            // In a forked child, what a handler had interrupted: see `fork`.
            // SAFETY: attached; private memory by now.
            return unsafe { self.writer.next_page(&self.start) };
        }
        let _errno = ErrnoGuard::new();
        let _calm = sys::SignalsBlocked::new();
        point!(Flush);
        let begun = self.run.clock.begin();
        let calls = self.writer.calls();
        self.end_usage();
        let failure = self.append_page(false).err();
        let mut start = self.start;
        start.sequence += 1;
        start.base_cpu_ns = record::clock::thread_cpu_ns();
        start.base_monotonic_ns = record::clock::monotonic_ns();
        start.base_ticks = self.run.clock.begin();
        start.flush_ticks += start.base_ticks.wrapping_sub(begun);
        start.flushes += 1;
        // What the flush itself used lies between two pages, so it is not the program's.
        start.usage = Usage::of_thread(start.base_ticks);
        self.start = start;
        // Not recorded in this thread's page but in the process's total.
        self.process.row().calls.fetch_add(calls.into(), Ordering::Relaxed);
        if let Some(error) = failure {
            if let Some(other) = claim(self.run, &self.process) {
                // SAFETY: claimed and populated for this thread.
                unsafe { self.writer.attach(self.run.pool.page(other), &start) };
                self.page = other;
                return;
            }
            self.lose_calls(error, calls);
        }
        // SAFETY: the page is attached and its content was written or given up.
        unsafe { self.writer.next_page(&start) };
    }

    fn lose_calls(&self, error: AppendError, calls: u32) {
        let (loss, errno) = match error {
            AppendError::FileSizeLimit => (Loss::FileSizeLimit, 0),
            AppendError::Errno(errno) => (Loss::FlushFailed, errno),
        };
        self.process.lose(loss, calls.into(), errno);
    }

    fn append_page(&mut self, last: bool) -> Result<(), AppendError> {
        let paths = self.process.paths().ok_or(AppendError::Errno(libc::ENOENT))?;
        // SAFETY: the page is attached and nothing else writes it meanwhile: a signal handler on
        // this thread finds `busy` set.
        let bytes = unsafe { self.writer.seal(last, sys::thread_name()) };
        point!(Append);
        let result = sys::append(&paths.pages, bytes);
        if result.is_err() {
            // SAFETY: attached.
            unsafe { self.writer.unseal(last) };
        }
        result
    }

    /// The thread exits: its last page goes to the profile, its counters are closed. Calls in
    /// progress are lost as `open`.
    fn leave(&mut self, open: Loss) {
        self.busy.store(1, Ordering::Relaxed);
        point!(ThreadExit);
        if self.depth > 0 {
            (0..self.depth as usize).rev().for_each(|at| crate::adapters::tvm::abandon(self, at));
            self.process.lose(open, self.depth.into(), 0);
            // SAFETY: a page is attached.
            unsafe { self.writer.set_open(0, 0) };
        }
        self.clock_record();
        self.end_usage();
        self.process.row().calls.fetch_add(self.writer.calls().into(), Ordering::Relaxed);
        let begun_ns = record::clock::thread_cpu_ns();
        let appended = self.append_page(true).is_ok();
        self.process.note_leaving(record::clock::thread_cpu_ns().wrapping_sub(begun_ns));
        if appended {
            // SAFETY: attached; retired before it is released.
            unsafe { self.writer.retire() };
            self.run.pool.release_page(self.page);
            HINT.store(self.page, Ordering::Relaxed);
        }
        self.close_counters();
        self.epoch.store(0, Ordering::Relaxed);
        self.run.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Its page of the pool.
    pub(crate) fn page_number(&self) -> usize {
        self.page
    }

    /// The process that the thread belongs to.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// An empty bracket, recorded nowhere: `scratch` takes the place of the thread's page.
    pub(crate) fn with_scratch<T>(
        &mut self,
        scratch: *mut u8,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let mut writer = PageWriter::detached();
        // SAFETY: the caller's scratch is a whole page of its own.
        unsafe { writer.attach(scratch, &self.start) };
        std::mem::swap(&mut self.writer, &mut writer);
        self.rehearsing = true;
        self.busy.store(0, Ordering::Relaxed);
        let result = body(self);
        self.busy.store(1, Ordering::Relaxed);
        self.rehearsing = false;
        // A session that ended meanwhile leaves an empty call without an end.
        (self.depth, self.is_hooked, self.is_op, self.has_entry) = (0, 0, 0, 0);
        self.uncounted = 0;
        std::mem::swap(&mut self.writer, &mut writer);
        result
    }
}

// The bracket's state must not need dropping: its memory is unmapped, not dropped.
const _: () = assert!(!std::mem::needs_drop::<Thread>());
