//! Records calls of the program, and commands with their times.
//!
//! ```text
//!  enqueue ─► begin ─► the implementation ─► end ─► Queue::pending ─ harvest ─► Store ─► trace
//!  other call ► begin ─► the implementation ─► end ───────────────────────────► Store
//! ```
//!
//! A command's times are read after it is complete, but nothing waits for that. `harvest` examines
//! the oldest pending commands of a queue, and reads the times of those that are complete. It runs
//! when many are pending, after calls that wait, before queues and contexts are released, when the
//! host takes the records, and when the process begins to exit.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use crate::api::{Code, Event, SUCCESS};
use crate::queues::{self, Pending, Queue};
use crate::record::{Call, Command, unix_ns};
use crate::{ask, correlation};

/// The number of bytes that a recording may take unless the host says otherwise.
pub const DEFAULT_LIMIT: u64 = 256 << 20;

/// If the number of a queue's pending commands becomes a multiple of `OFTEN`, the enqueueing call
/// examines up to `2 * OFTEN` of them. So the list of pending commands stays short, as long as the
/// queue's commands end.
const OFTEN: usize = 32;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static GENERATION: AtomicU32 = AtomicU32::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);
/// Set when the process begins to exit, and in a forked child. From then on, the recorder must not
/// call the implementation, which may be unloaded at exit and does not work in the child.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// Set in a forked child, which must take no lock: another thread of the parent may have held it at
/// the fork.
static FORKED: AtomicBool = AtomicBool::new(false);
static STORE: Mutex<Store> = Mutex::new(Store::new());

#[derive(Clone, Debug)]
pub struct Activity {
    pub command: Command,
    pub queue: Arc<Queue>,
    pub correlation: u32,
    /// When the command was queued, submitted, started and ended, in ns of the device's clock.
    pub times: [u64; 4],
}

#[derive(Clone, Debug)]
pub struct Record {
    pub call: Call,
    /// The command that the call enqueued, if its times are known.
    pub activity: Option<Activity>,
}

#[derive(Debug)]
pub struct Store {
    /// The records, in the order in which they were stored. They are in several lists, because
    /// growing one large list would stop the program for milliseconds.
    pub records: Vec<Vec<Record>>,
    length: usize,
    limit: usize,
    /// The names of threads, by the threads' ids.
    pub threads: BTreeMap<i32, String>,
    pub missing: Missing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Calls, with their commands, that were dropped because the store had reached its `limit`.
    pub dropped: u64,
    /// Commands for which no event could be kept, because too many were pending.
    pub untracked: u64,
    /// Commands that had not ended when the recording did.
    pub unfinished: u64,
    /// Commands that ended with an error.
    pub failed: u64,
    /// Commands for which the implementation gave no times.
    pub untimed: u64,
}

const CHUNK: usize = 1024;

impl Store {
    const fn new() -> Self {
        Self {
            records: Vec::new(),
            length: 0,
            limit: 0,
            threads: BTreeMap::new(),
            missing: Missing { dropped: 0, untracked: 0, unfinished: 0, failed: 0, untimed: 0 },
        }
    }

    fn push(&mut self, record: Record) {
        if self.length >= self.limit {
            self.missing.dropped += 1;
            return;
        }
        self.length += 1;
        match self.records.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(record),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(record);
                self.records.push(chunk);
            }
        }
    }
}

fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static THREAD: Cell<i32> = const { Cell::new(0) };
    static NAMED: Cell<u32> = const { Cell::new(0) };
}

/// Returns Linux's id of the calling thread, and stores the thread's name once for each recording.
fn thread(generation: u32) -> i32 {
    let number = THREAD.try_with(|cell| {
        if cell.get() == 0 {
            // SAFETY: gettid has no preconditions.
            cell.set(unsafe { libc::gettid() });
        }
        cell.get()
    });
    let number = number.unwrap_or_default();
    let is_new = NAMED.try_with(|named| named.replace(generation) != generation).unwrap_or(false);
    if is_new {
        let mut name = [0_u8; 16];
        // SAFETY: PR_GET_NAME writes at most 16 bytes, the last of which is zero, and `name` has
        // 16.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        store().threads.insert(number, name);
    }
    number
}

#[derive(Clone, Copy, Debug)]
pub struct Begun {
    generation: u32,
    start_ns: i64,
}

#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Begins a call. Returns `None` if calls are not recorded now.
#[inline]
pub fn begin() -> Option<Begun> {
    is_active()
        .then(|| Begun { generation: GENERATION.load(Ordering::Acquire), start_ns: unix_ns() })
}

impl Begun {
    fn call(self, name: &'static str, code: Code, queue: Option<i32>) -> Call {
        let end_ns = unix_ns();
        let op = correlation::current(self.generation);
        let thread = thread(self.generation);
        Call { name, thread, start_ns: self.start_ns, end_ns, code, queue, op }
    }

    /// Records a call that has returned, without a command.
    pub fn end(self, name: &'static str, code: Code, queue: Option<i32>) {
        let call = self.call(name, code, queue);
        keep(self.generation, Record { call, activity: None });
    }

    /// Adds a call that has returned, and its command, to the pending commands of the queue. The
    /// recorder takes over the caller's reference to `event`.
    pub fn end_enqueued(
        self,
        name: &'static str,
        queue: &Arc<Queue>,
        command: Command,
        event: Event,
        shared: bool,
    ) {
        let call = self.call(name, SUCCESS, Some(queue.number));
        // Hosts of Kineto keep 31 bits of this number. It is also the number of the arrow from the
        // call to the command, which must not be 0.
        let correlation = NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let waiting = queue.push(Pending {
            event: event as usize,
            shared,
            generation: self.generation,
            call,
            command,
            queue: Arc::clone(queue),
            correlation: correlation.max(1),
        });
        if waiting.is_multiple_of(OFTEN) {
            harvest(queue, 2 * OFTEN);
        }
    }

    pub fn untracked(self) {
        let mut store = store();
        if GENERATION.load(Ordering::Acquire) == self.generation {
            store.missing.untracked += 1;
        }
    }
}

fn keep(generation: u32, record: Record) {
    let mut store = store();
    // A call that began in an earlier recording is not stored.
    if GENERATION.load(Ordering::Acquire) == generation {
        store.push(record);
    }
}

/// Examines up to `most` of the oldest commands of a queue, and records those that have ended.
pub fn harvest(queue: &Queue, most: usize) {
    if CLOSED.load(Ordering::Acquire) {
        return;
    }
    for _ in 0..most.min(queue.pending()) {
        let Some(pending) = queue.take_oldest() else { return };
        let status = ask::status(pending.event as Event);
        if status <= 0 {
            record_ended(pending, status);
            continue;
        }
        queue.put_back(pending);
        if !queue.out_of_order {
            // In an in-order queue, later commands cannot have ended.
            return;
        }
    }
}

pub fn harvest_some() {
    if queues::any_pending() {
        for queue in queues::all() {
            // In an in-order queue, the search ends at the first command that has not ended.
            harvest(&queue, if queue.out_of_order { 2 * OFTEN } else { usize::MAX });
        }
    }
}

pub fn harvest_all() {
    if queues::any_pending() {
        for queue in queues::all() {
            harvest(&queue, usize::MAX);
        }
    }
}

/// Records a command that has ended; `status` is 0 or an error.
fn record_ended(pending: Pending, status: Code) {
    let Pending { event, generation, call, command, queue, correlation, .. } = pending;
    let times = if status == SUCCESS { ask::times(event as Event) } else { None };
    ask::release(event as Event);
    queues::one_ended();
    let activity = times.map(|times| {
        queue.device.learn(&times, call.start_ns, call.end_ns);
        Activity { command, queue, correlation, times }
    });
    let mut store = store();
    if GENERATION.load(Ordering::Acquire) == generation {
        match (status, times) {
            (SUCCESS, Some(_)) => {}
            (SUCCESS, None) => store.missing.untimed += 1,
            _ => store.missing.failed += 1,
        }
        store.push(Record { call, activity });
    }
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
    CLOSED.store(true, Ordering::Relaxed);
    ACTIVE.store(false, Ordering::Relaxed);
}

/// Returns whether this is a forked child of a process that has made a recording. The child must
/// not use the recording; OpenCL itself does not work in such a child either.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Makes a new recording, and returns its number. [`set_active`] begins to record.
pub fn open() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `forked` stays valid, because hosts never close a plugin that has registered. It
        // only stores three flags.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    let mut store = store();
    let generation = GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
    *store = Store::new();
    drop(store);
    set_limit(DEFAULT_LIMIT);
    generation
}

pub fn set_limit(bytes: u64) {
    // Outside its `Record`, a kernel has some 100 bytes more, for the sizes of its index space.
    // Names are shared.
    let each = size_of::<Record>() as u64 + 128;
    store().limit = usize::try_from(bytes / each).unwrap_or(usize::MAX);
}

pub fn set_active(active: bool) {
    if active {
        for device in queues::devices() {
            device.read_clock();
        }
    }
    ACTIVE.store(active, Ordering::Release);
}

/// Takes the records so far, and returns them with a time in UTC. All commands that were enqueued
/// before this time have been returned by this call or earlier ones. With `last`, commands that
/// have not ended are given up.
pub fn take(last: bool) -> (Store, i64) {
    let now_ns = unix_ns();
    harvest_all();
    let pending_ns = queues::all().iter().filter_map(|queue| queue.oldest_ns()).min();
    let complete_ns = if last { i64::MAX } else { pending_ns.unwrap_or(now_ns).min(now_ns) };
    if !CLOSED.load(Ordering::Acquire) {
        for device in queues::devices() {
            device.read_clock();
        }
    }
    if last {
        give_up();
    }
    let mut store = store();
    let mut taken = Store::new();
    taken.limit = store.limit;
    taken.threads = store.threads.clone();
    std::mem::swap(&mut *store, &mut taken);
    // Each thread stores its name only once per recording, so the emptied store keeps the names.
    store.threads = taken.threads.clone();
    (taken, complete_ns)
}

/// Gives up all pending commands, and records the calls of those that belong to the current
/// recording.
pub fn give_up() {
    for queue in queues::all() {
        while let Some(pending) = queue.take_oldest() {
            if !CLOSED.load(Ordering::Acquire) {
                ask::release(pending.event as Event);
            }
            queues::one_ended();
            let mut store = store();
            if GENERATION.load(Ordering::Acquire) == pending.generation {
                store.missing.unfinished += 1;
                store.push(Record { call: pending.call, activity: None });
            }
        }
    }
}

/// Makes [`close`] run when the process exits. Exit functions run in the reverse order of their
/// registration. So `close` runs before the exit functions that the implementation registered
/// before it made the first queue.
pub fn watch_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `close` stays valid, because a loader never closes its layers.
        unsafe { libc::atexit(close) };
    });
}

/// Ends the recording, and gives up commands that have not ended.
pub fn end_recording() {
    ACTIVE.store(false, Ordering::Release);
    give_up();
    let mut store = store();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    *store = Store::new();
}

/// Reads the times of commands and, during a recording, the devices' clocks for the last time.
/// After the process has begun to exit, the implementation may be unloaded.
pub extern "C" fn close() {
    let closed = std::panic::catch_unwind(|| {
        harvest_all();
        if is_active() {
            for device in queues::devices() {
                device.read_clock();
            }
        }
    });
    if let Err(panic) = closed {
        std::mem::forget(panic);
    }
    CLOSED.store(true, Ordering::Release);
}
