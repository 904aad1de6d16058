//! Attaches a thread to the recording at its first call, and detaches it when the thread exits,
//! when the process ends, or when the session (a recording that the program itself begins) ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence, fence};

use counters::{Readings, ThreadCounters};
use model::Loss;
use record::meta::Frame;
use record::page::{PageStart, PageWriter};

use crate::os::exit_key::ExitKey;
use crate::os::own_image;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::process::{load, losses, plugin_ids};
use crate::recorder::adapter::Adapter;
use crate::recorder::attach::stages::{ClaimedPage, Counters, Memory, TakenDraws, put_in_words};
use crate::recorder::budget::sampling::Draws;
use crate::recorder::busy::Busy;
use crate::recorder::thread::{
    self, AnnouncedTimes, Announcing, BracketTimes, DEEPEST, FIRST, Halves, NO_PAGE, OURS,
    OpenCall, SPARES, Started, THREAD_BYTES, Thread, Workers,
};
use crate::recorder::{calibrate, collectors, handler_fork, pages, short};
use crate::state::epoch;
use crate::state::run::Run;

mod stages;

/// Maximum number of times that a thread is detached while it exits. The thread attaches again if
/// destructors make calls after its exit began.
const MOST_LIVES: u32 = 3;
/// After a thread could not attach, its next calls, up to this number, are not recorded. A thread
/// cannot attach if, for example, the pool (memory that `counterpoint run` shares with the
/// processes of a run) has no free page.
const RETRY_CALLS: u32 = 1024;

/// Attaches the calling thread. Returns null if the thread cannot be recorded; the adapter must
/// then make the call without recording it. Usually, a loss is then counted.
#[cold]
#[inline(never)]
pub fn attach(adapter: &Adapter) -> *mut Thread {
    let _errno = ErrnoGuard::new();
    let local = thread::local();
    // SAFETY: `local` and the state that it points to are the calling thread's own. A signal
    // handler that calls this function while `attaching` is set changes neither of them.
    unsafe {
        // The epoch (number of the recording) is read before `make` loads the data of the run. If a
        // session begins in between, the new state has the old epoch, so it is not used.
        let epoch = epoch::current();
        if epoch >= epoch::IDLE {
            return std::ptr::null_mut();
        }
        if (*local).attaching != 0 {
            let at = (*local).thread;
            if !at.is_null() && (*at).rehearsing {
                return std::ptr::null_mut(); // The session has ended meanwhile.
            }
            losses::lose(Loss::ProbeReentered, 1, 0);
            return std::ptr::null_mut();
        }
        if u32::from((*local).lives) >= MOST_LIVES {
            losses::lose(Loss::ThreadGone, 1, 0);
            return std::ptr::null_mut();
        }
        if (*local).retry > 0 {
            (*local).retry -= 1;
            losses::lose(Loss::NoPage, 1, 0);
            return std::ptr::null_mut();
        }
        let old = (*local).thread;
        if !old.is_null() && (*old).busy.is_set() && (*old).is_stale() {
            losses::lose(Loss::ProbeReentered, 1, 0);
            return std::ptr::null_mut();
        }
        // No signal handler of the program runs on this thread while it is being attached.
        let _calm = sys::SignalsBlocked::new();
        (*local).attaching = 1;
        ATTACHING.fetch_add(1, Ordering::SeqCst);
        let made = guarded_apart(|| make(epoch, old, adapter));
        ATTACHING.fetch_sub(1, Ordering::SeqCst);
        let thread = match made {
            Some(Ok(thread)) => thread,
            None if !epoch::is_off() => {
                // `None` means that there is no memory for a separate stack.
                (*local).retry = RETRY_CALLS;
                losses::lose(Loss::NoPage, 1, libc::ENOMEM);
                std::ptr::null_mut()
            }
            Some(Err(TryLater)) => {
                // If the session has ended in the meantime, the loss would be counted in the next
                // session, so it is not counted.
                if epoch::current() == epoch {
                    (*local).retry = RETRY_CALLS;
                    losses::lose(Loss::NoPage, 1, 0);
                }
                std::ptr::null_mut()
            }
            None => std::ptr::null_mut(),
        };
        // If attaching has failed, a reusable state of an earlier session is kept.
        if !thread.is_null() || old.is_null() || !(*old).is_reusable() {
            (*local).thread = thread;
        }
        // Touch the stack, so that page faults in the recorder's own stack frames are not counted
        // for the thread's first call.
        own_image::touch_stack::<TOUCHED>();
        compiler_fence(Ordering::SeqCst);
        (*local).attaching = 0;
        thread
    }
}

/// The number of bytes of stack below the frame of [`attach`] that are touched. Together with the
/// frames of `attach` and its callers, this is as much stack as `cargo xtask tidy` allows the agent
/// to use.
const TOUCHED: usize = 512;

static ATTACHING: AtomicU32 = AtomicU32::new(0);

pub fn nobody_attaches() -> bool {
    ATTACHING.load(Ordering::SeqCst) == 0
}

/// The error if the thread cannot be attached at the moment.
struct TryLater;

/// Creates the thread's state. `old` is the thread's previous state, or null. If `old` belongs to
/// an earlier session, its memory is reused, so that a call that began in that session finds a
/// valid state when it ends.
///
/// Each stage ([`stages`]) takes a resource, and gives it back if a later stage fails. When no
/// stage can fail any more, the state takes over all resources.
fn make(epoch: u32, old: *mut Thread, adapter: &Adapter) -> Result<*mut Thread, TryLater> {
    point!(Attach);
    // SAFETY: `old` is null or the calling thread's own state.
    let mut old = unsafe { old.as_mut() }.filter(|old| old.is_reusable());
    if let Some(old) = old.as_deref_mut().filter(|old| old.is_stale()) {
        old.discard();
    }
    let run = load::load().ok_or(TryLater)?;
    let begun_ns = record::clock::thread_cpu_ns();
    let process = Process::current(run).ok_or(TryLater)?;
    let page = ClaimedPage::claim(run, &process)?;
    let memory = Memory::take(old, &process)?;
    let mut counters = Counters::open(run, &process);
    let start = page_start(run, &process, counters.are_open);
    let mut draws = TakenDraws::new(&memory);
    draws.prepare(run, &process, &start, counters.are_open, begun_ns)?;
    if draws.draws.is_on() {
        // The counters were opened to find out whether they work. In a run with a budget (a limit
        // for the cost of recording), they are opened again for each call in which they are read.
        counters.close_for_now();
    }
    let draws = draws.keep();
    let parts = Parts { epoch, run, start, draws, counting: counters.are_open };
    // SAFETY: the page was claimed for this thread, and `memory` belongs to this thread and has the
    // size of a state.
    let thread = unsafe { parts.write_to(memory.at, &page, counters.keep(), process) };
    page.keep();
    let is_fresh = memory.is_fresh;
    memory.keep();
    run.threads.fetch_add(1, Ordering::SeqCst);
    if is_fresh {
        EXIT.register(std::ptr::from_mut(thread).cast());
    }
    handler_fork::watch();
    point!(ThreadMade);
    if run.budget != Some(0.0) {
        calibrate::calibrate(thread, &process, adapter);
    }
    // The record of the thread's clocks marks the end of attaching. So readers of the profile do
    // not attribute the processor time of attaching to the program.
    thread.clock_record();
    thread.store_first_usage(begun_ns);
    thread.begin_draws();
    thread.busy.clear();
    Ok(thread)
}

fn page_start(run: &Run, process: &Process, counting: bool) -> PageStart {
    let (pid, start_time, generation) = process.identity();
    PageStart {
        pid,
        generation,
        start_time,
        thread_uid: process.next_thread(),
        tid: sys::thread_id(),
        thread_name: sys::thread_name(),
        sequence: 0,
        counters: if counting { run.counter_mask } else { 0 },
        base_ticks: run.clock.begin(),
        base_cpu_ns: record::clock::thread_cpu_ns(),
        base_monotonic_ns: record::clock::monotonic_ns(),
        flush_ticks: 0,
        flushes: 0,
        attach_ns: 0,
        usage: None,
    }
}

struct Parts {
    epoch: u32,
    run: &'static Run,
    start: PageStart,
    draws: Draws,
    counting: bool,
}

impl Parts {
    /// Writes the new state to `memory`. The state is busy until [`make`] has finished, so that no
    /// call is recorded with it before.
    ///
    /// # Safety
    /// `memory` must have the size of a state and belong to the calling thread, and `page` must
    /// have been claimed for this thread.
    unsafe fn write_to<'a>(
        self,
        memory: *mut Thread,
        page: &ClaimedPage,
        counters: ThreadCounters<'static>,
        process: Process,
    ) -> &'a mut Thread {
        let Self { epoch, run, start, draws, counting } = self;
        let ticks = start.base_ticks;
        let mut writer = PageWriter::detached();
        // SAFETY: by contract, the page was claimed for this thread; claimed pages are present in
        // memory.
        unsafe { writer.attach(run.pool.page(page.number), &start) };
        let gives_ids =
            run.plugins.as_ref().is_some_and(|plugins| plugins.ids) && !plugin_ids::are_inherited();
        let short_calls =
            short::has_short_calls(run.clock, counting) && !draws.is_on() && !gives_ids;
        let short_ops = short::has_short_ops() && !draws.is_on();
        // SAFETY: by contract, the memory has the right size. Every field of the state is set, and
        // `Thread` is plain data without a destructor.
        unsafe {
            // The fields are written one by one, because the whole struct would not fit on a small
            // stack.
            macro_rules! set {
                ($field:ident $([$index:ident])?, $value:expr) => {
                    (&raw mut (*memory).$field$([$index])?).write($value)
                };
            }
            set!(busy, Busy::while_made());
            set!(depth, 0);
            put_in_words(&raw mut (*memory).draws, &draws);
            set!(memory, OURS);
            set!(counting, counting);
            set!(rehearsing, false);
            set!(clock, run.clock);
            set!(serial, process.serial());
            set!(lost_noted, false);
            set!(counters_of_run, run.plan.counters().len() as u8);
            set!(one_group, if let [group] = run.plan.groups() { group.len } else { 0 });
            set!(short_calls, short_calls);
            set!(short_ops, short_ops);
            set!(run, run);
            set!(writer, writer);
            set!(halves, Halves::NONE);
            set!(next_clock, ticks + run.ticks_per_ms);
            set!(counters, counters);
            set!(after, Readings::new());
            set!(page, page.number);
            set!(spares, [NO_PAGE; SPARES]);
            set!(has_appended, false);
            set!(start, start);
            set!(process, process);
            for call in 0..DEEPEST {
                set!(calls[call], OpenCall::NONE);
                set!(workers[call], Workers::NONE);
                set!(collected[call], Started::NONE);
                set!(before[call], Readings::new());
            }
            set!(until_timed, [FIRST; 2]);
            set!(announcing, Announcing::NEW);
            BracketTimes::reset(&raw mut (*memory).brackets, ticks as u32);
            AnnouncedTimes::reset(&raw mut (*memory).announced, ticks as u32);
            set!(epoch, AtomicU32::new(epoch));
            &mut *memory
        }
    }
}

/// Does not compile if `Thread` has a field that is not listed here. [`Parts::write_to`] must set
/// all of them.
const _: fn(&Thread) = |thread| {
    let Thread {
        after: _,
        announced: _,
        announcing: _,
        before: _,
        brackets: _,
        busy: _,
        calls: _,
        clock: _,
        collected: _,
        counters: _,
        counters_of_run: _,
        counting: _,
        depth: _,
        draws: _,
        epoch: _,
        halves: _,
        has_appended: _,
        lost_noted: _,
        memory: _,
        next_clock: _,
        one_group: _,
        page: _,
        process: _,
        rehearsing: _,
        run: _,
        serial: _,
        short_calls: _,
        short_ops: _,
        spares: _,
        start: _,
        until_timed: _,
        workers: _,
        writer: _,
    } = thread;
};

static EXIT: ExitKey = ExitKey::new(leave_c);

unsafe extern "C" fn leave_c(thread: *mut c_void) {
    let _errno = ErrnoGuard::new();
    let _calm = sys::SignalsBlocked::new();
    let local = thread::local();
    let thread = thread.cast::<Thread>();
    // SAFETY: `thread` is the pointer that this thread registered. In a forked child, the state is
    // zeroed, so `epoch` is 0 and nothing is written: the page belongs to the parent.
    unsafe {
        if (*local).thread == thread {
            (*local).thread = std::ptr::null_mut();
        }
        (*local).lives = (*local).lives.saturating_add(1);
        // `LEAVING` is incremented before the epoch is read; see `wait_for_leaving`.
        LEAVING.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let of = (*thread).epoch.load(Ordering::SeqCst);
        if of != 0 && (of == epoch::current() || epoch::is_off()) {
            leave(thread, Loss::CallAbandoned);
        } else if of != 0 {
            guarded_apart(|| (*thread).discard());
        }
        LEAVING.fetch_sub(1, Ordering::SeqCst);
        (*thread).draws.unmap();
        sys::unmap(thread.cast(), THREAD_BYTES);
    }
}

/// Number of threads in [`leave_c`], where an ending thread writes its last page.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// Waits until no thread writes its last page any more, but gives up after 10,000 pauses of 100 µs.
/// Called after the epoch of a session has ended, so no further thread begins to write. A thread
/// may still be writing its last page after the program has joined it, because Python joins threads
/// before their destructors have run. Without this wait, a reader of the profile might find only a
/// part of the page, or nothing.
pub fn wait_for_leaving() {
    const STEP_NS: libc::c_long = 100_000;
    for _ in 0..10_000 {
        if LEAVING.load(Ordering::SeqCst) == 0 {
            return;
        }
        let step = libc::timespec { tv_sec: 0, tv_nsec: STEP_NS };
        // SAFETY: `step` outlives the call.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const step, 0usize) };
    }
}

/// Called at the end of the process, on the thread that ends it. Detaches the thread, so that its
/// page is appended to the profile and becomes free for other processes of the run. Other threads
/// may still be writing to their pages. These pages stay in the pool, from which `counterpoint run`
/// or `counterpoint report` collects them.
pub fn at_process_exit() {
    let _calm = sys::SignalsBlocked::new();
    let local = thread::local();
    // SAFETY: `local` and the state that it points to are the calling thread's own. After the
    // pointer is cleared, only `leave` uses the state. The state's memory stays mapped, because the
    // thread may be ending the process from inside a call.
    unsafe {
        let thread = (*local).thread;
        if !thread.is_null() && (*thread).is_attached() {
            (*local).thread = std::ptr::null_mut();
            leave(thread, Loss::CallAbandoned);
        }
    }
}

/// Detaches the thread that ends a session, before the session's epoch ends. In the next session,
/// the thread can attach again.
pub fn at_session_end() {
    let thread = thread::current();
    // SAFETY: `thread` is null or the calling thread's own state. If the thread is inside a call,
    // the end of that call will find it detached.
    unsafe {
        if !thread.is_null() && (*thread).is_attached() && !(*thread).busy.is_set() {
            leave(thread, Loss::CallCutShort);
        }
    }
}

/// Detaches the thread: appends its last page to the profile and closes its counters. Calls that
/// are still open are counted as the loss `open`.
///
/// # Safety
/// `thread` must be the calling thread's attached state.
unsafe fn leave(thread: *mut Thread, open: Loss) {
    // SAFETY: by contract, `thread` is the calling thread's attached state.
    unsafe {
        (*thread).busy.set();
        // `abandon` may call functions of users' collectors (which measure values for each op).
        // They are the program's code, so `abandon` runs on the program's stack.
        guarded(|| {
            let depth = (*thread).depth as usize;
            // If the thread is exiting, the plugins' thread-local values (C++ objects) have been
            // destroyed by now. Popping the ids of open calls would use these values, so the ids
            // are set to 0.
            (0..depth).for_each(|at| (*thread).collected[at].plugin_id = 0);
            (0..depth).rev().for_each(|at| collectors::abandon(&mut *thread, at));
        });
        if guarded_apart(|| (*thread).leave(open)).is_none() && !epoch::is_off() {
            // `None` means that there is no memory for a separate stack. The page stays in the
            // pool, from which `counterpoint run` or `counterpoint report` collects it.
            (*thread).close_counters();
            (*thread).epoch.store(0, Ordering::Relaxed);
            (*thread).run.threads.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Thread {
    /// The part of [`leave`] that runs on a separate stack.
    fn leave(&mut self, open: Loss) {
        point!(ThreadExit);
        if self.depth > 0 {
            self.process.lose(open, self.depth.into(), 0);
            // SAFETY: this thread is attached, so its writer has a page.
            unsafe { self.writer.set_open(0, 0) };
        }
        self.clock_record();
        self.store_last_usage();
        self.process.row().calls.fetch_add(self.writer.calls().into(), Ordering::Relaxed);
        let begun_ns = record::clock::thread_cpu_ns();
        self.leave_spares();
        let appended = self.append_page(true).is_ok();
        for brackets in self.bracket_times(false) {
            self.process.append(&Frame::Brackets(brackets));
        }
        if let Some(times) = self.announced_times() {
            self.process.append(&Frame::Announced(times));
        }
        self.leave_draws();
        self.process.note_leaving(record::clock::thread_cpu_ns().wrapping_sub(begun_ns));
        if appended {
            // SAFETY: the writer still has its page, and the page is retired before it is released.
            unsafe { self.writer.retire() };
            self.run.pool.release_page(self.page);
            pages::note_released(self.page);
        }
        self.close_counters();
        self.epoch.store(0, Ordering::Relaxed);
        self.run.threads.fetch_sub(1, Ordering::SeqCst);
    }
}
