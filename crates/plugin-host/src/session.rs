//! One recording of one profiler: create, start, stop, process and destroy, in this order.
//!
//! The methods for the calls after create take `&mut self`, so only one thread at a time can make
//! these calls for a recording. Several recordings of one profiler may exist at the same time, also
//! on different threads. A lock of the profiler lets only one of its recordings at a time make such
//! a call. Any thread may push and pop correlation ids at any time, through a [`Correlation`].
//!
//! A forked child inherits the recordings but not the plugin's threads. In the child, no method of
//! these recordings calls the plugin.

use std::ffi::{CStr, c_int, c_void};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use abi::kineto::{
    ConfigureParams, CreateParams, Function, HandleParams, ProcessParams, PushParams, ToggleParams,
};

use crate::catch::{self, Left, call_one};
use crate::event_checks::Asked;
use crate::lineage::process_number;
use crate::load::Profiler;
use crate::problem::{Problem, Problems};
use crate::sink::Sink;

/// The settings of a recording.
#[derive(Clone, Debug, Default)]
pub struct Setup<'a> {
    /// The numbers of the event types that the user asked for.
    pub types: &'a [u32],
    /// The configuration text that the user gave for plugins.
    pub configuration: &'a CStr,
    /// Planned time between create and start, in ns.
    pub warmup_ns: i64,
    /// How many bytes the plugin may keep; 0 for no limit.
    pub max_buffer_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Created,
    Started,
    Stopped,
}

/// A recording. Dropping a session stops and destroys the recording, except in a forked child or
/// after a crash of the plugin.
#[derive(Debug)]
pub struct Session<'p> {
    profiler: &'p Profiler,
    handle: *mut c_void,
    asked: Asked,
    state: State,
    correlation: Correlation,
    /// The [`process_number`] of the process that made the session.
    home: u32,
}

// SAFETY: the interface allows any thread to use the handle, if only one thread does so at a time.
unsafe impl Send for Session<'_> {}

/// Pushes and pops correlation ids. The plugin keeps stacks of ids for each thread.
#[derive(Clone, Debug)]
pub struct Correlation {
    /// The plugin's handle; `None` after the session has ended. The lock is held for reading while
    /// the plugin pushes or pops an id.
    handle: Arc<RwLock<Option<Handle>>>,
    push: [Function<PushParams>; 2],
    pop: [Function<HandleParams>; 2],
    problems: Arc<Problems>,
    home: u32,
}

/// What `create` returned.
#[derive(Clone, Copy, Debug)]
struct Handle(*mut c_void);

// SAFETY: the interface allows pushes and pops from any thread at the same time.
unsafe impl Send for Handle {}
// SAFETY: the interface allows pushes and pops from any thread at the same time.
unsafe impl Sync for Handle {}

/// A stack of correlation ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The ids of ops.
    Ops = 0,
    /// The ids of marked ranges.
    User = 1,
}

/// Adds a problem if the call of `function` failed, and returns whether the call succeeded. Returns
/// whether it succeeded.
fn report(problems: &Problems, function: &'static str, end: Result<c_int, Left>) -> bool {
    match end {
        Ok(0) => return true,
        Ok(code) => problems.add(Problem::Failed { function, code }),
        Err(how) => {
            if matches!(how, Left::Fault(_)) {
                problems.note_crash();
            }
            problems.add(Problem::Left { function, how });
        }
    }
    false
}

impl Profiler {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a recording. Returns `None` if the profiler failed, or supports none of the types.
    pub fn create(&self, setup: &Setup<'_>) -> Option<Session<'_>> {
        let mut types: Vec<u32> =
            self.types.iter().copied().filter(|number| setup.types.contains(number)).collect();
        if types.is_empty() {
            return None;
        }
        let mut arguments = CreateParams {
            size: CreateParams::SIZE,
            profiler: std::ptr::null_mut(),
            types: types.as_mut_ptr(),
            types_length: types.len(),
        };
        let lock = self.lock();
        // SAFETY: the plugin registered `create` for these arguments, which outlive the call.
        let code = unsafe { call_one(self.interface.create?, &mut arguments) };
        if !report(&self.problems, "profilerCreate", code) {
            return None;
        }
        // The plugin could have overwritten the list that it got, so the list is made again.
        let asked: Vec<u32> =
            self.types.iter().copied().filter(|number| setup.types.contains(number)).collect();
        let interface = &self.interface;
        let home = process_number();
        let session = Session {
            profiler: self,
            handle: arguments.profiler,
            asked: Asked::of(&asked),
            state: State::Created,
            correlation: Correlation {
                handle: Arc::new(RwLock::new(Some(Handle(arguments.profiler)))),
                push: [interface.push_correlation, interface.push_user_correlation],
                pop: [interface.pop_correlation, interface.pop_user_correlation],
                problems: Arc::clone(&self.problems),
                home,
            },
            home,
        };
        if let Some(configure) = self.extension.and_then(|extension| extension.configure) {
            let arguments = ConfigureParams {
                size: ConfigureParams::SIZE,
                profiler: session.handle,
                configuration: setup.configuration.as_ptr(),
                warmup_ns: setup.warmup_ns,
                max_buffer_bytes: setup.max_buffer_bytes,
            };
            // SAFETY: the plugin's extension registered `configure` for these arguments, which
            // outlive the call.
            let configured = unsafe {
                catch::call(
                    configure as *const c_void,
                    (&raw const arguments).cast(),
                    std::ptr::null(),
                )
            };
            report(&self.problems, "configure", configured.map(|code| code as c_int));
        }
        drop(lock);
        Some(session)
    }
}

impl Session<'_> {
    /// Returns whether this process made the session, and the plugin has not crashed in this
    /// process.
    fn is_at_home(&self) -> bool {
        process_number() == self.home && !self.profiler.problems.has_crashed()
    }

    fn call(&self, function: Function<HandleParams>, name: &'static str) -> bool {
        let Some(function) = function else { return false };
        let mut arguments = HandleParams { size: HandleParams::SIZE, profiler: self.handle };
        let _lock = self.profiler.lock();
        // SAFETY: the plugin registered `function` for these arguments, which outlive the call,
        // with a handle that it made.
        report(&self.profiler.problems, name, unsafe { call_one(function, &mut arguments) })
    }

    /// Starts to collect. Returns whether the plugin returned success; the recording continues in
    /// any case.
    pub fn start(&mut self) -> bool {
        if self.state != State::Created || !self.is_at_home() {
            return false;
        }
        self.state = State::Started;
        self.call(self.profiler.interface.start, "profilerStart")
    }

    /// Stops collecting. Returns whether the plugin returned success.
    pub fn stop(&mut self) -> bool {
        if self.state != State::Started || !self.is_at_home() {
            return false;
        }
        self.state = State::Stopped;
        self.call(self.profiler.interface.stop, "profilerStop")
    }

    /// Pauses collecting (`false`) or continues it (`true`), if the plugin can. Returns whether
    /// the plugin returned success.
    pub fn toggle(&mut self, enabled: bool) -> bool {
        let toggle = self.profiler.extension.and_then(|extension| extension.toggle);
        let may = self.state == State::Started && self.is_at_home();
        let Some(toggle) = toggle.filter(|_| may) else { return false };
        let _lock = self.profiler.lock();
        let arguments = ToggleParams {
            size: ToggleParams::SIZE,
            profiler: self.handle,
            enabled: u32::from(enabled),
        };
        // SAFETY: the plugin's extension registered `toggle` for these arguments, which outlive the
        // call.
        let toggled = unsafe {
            catch::call(toggle as *const c_void, (&raw const arguments).cast(), std::ptr::null())
        };
        report(&self.profiler.problems, "toggle", toggled.map(|code| code as c_int))
    }

    fn hand_over(
        &mut self,
        function: Function<ProcessParams>,
        name: &'static str,
        sink: &mut dyn Sink,
    ) -> bool {
        let Some(function) = function.filter(|_| self.is_at_home()) else { return false };
        let handle = self.handle;
        let _lock = self.profiler.lock();
        let code = self.profiler.builder.with(sink, &self.asked, |builder| {
            let mut arguments =
                ProcessParams { size: ProcessParams::SIZE, profiler: handle, builder };
            // SAFETY: the plugin registered `function` for these arguments, which outlive the call;
            // the builder is valid during the call.
            unsafe { call_one(function, &mut arguments) }
        });
        report(&self.profiler.problems, name, code)
    }

    /// Passes the events to `sink`. Call this after [`Session::stop`], on the same thread. If the
    /// plugin returns an error, the events handed over before stay in `sink`.
    pub fn process(&mut self, sink: &mut dyn Sink) -> bool {
        self.state == State::Stopped
            && self.hand_over(self.profiler.interface.process_events, "profilerProcessEvents", sink)
    }

    /// If the plugin supports flushing, passes the complete events to `sink` while the recording
    /// continues.
    pub fn flush(&mut self, sink: &mut dyn Sink) -> bool {
        let flush = self.profiler.extension.and_then(|extension| extension.flush);
        flush.is_some() && self.state == State::Started && self.hand_over(flush, "flush", sink)
    }

    /// Returns whether `handle` is the plugin's handle for this recording.
    pub fn is(&self, handle: *mut c_void) -> bool {
        self.handle == handle
    }

    /// Returns a value for pushing and popping ids. After the end of the session, the value does
    /// nothing.
    pub fn correlation(&self) -> Correlation {
        self.correlation.clone()
    }

    pub fn profiler(&self) -> &Profiler {
        self.profiler
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !self.is_at_home() {
            return;
        }
        self.stop();
        // Taking the write lock waits for threads that are inside of a push or pop.
        *self.correlation.handle.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.call(self.profiler.interface.destroy, "profilerDestroy");
    }
}

impl Correlation {
    fn is_at_home(&self) -> bool {
        process_number() == self.home && !self.problems.has_crashed()
    }

    /// Locks the handle for reading, or returns `None` while the session's end holds the lock or
    /// waits for it. This function must not wait for the lock: a signal handler that interrupted a
    /// push on the same thread may call this function. If the session's end already waits for that
    /// push, waiting here would be a deadlock.
    fn usable(&self) -> Option<RwLockReadGuard<'_, Option<Handle>>> {
        match self.handle.try_read() {
            Ok(handle) => Some(handle),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns whether the plugin has a function that pushes or pops ids of this stack.
    pub fn wants(&self, stack: Stack) -> bool {
        self.push[stack as usize].is_some() || self.pop[stack as usize].is_some()
    }

    /// Pushes an id on the calling thread's stack.
    pub fn push(&self, stack: Stack, id: u64) {
        let name = ["profilerPushCorrelationId", "profilerPushUserCorrelationId"][stack as usize];
        let Some(push) = self.push[stack as usize].filter(|_| self.is_at_home()) else { return };
        let Some(handle) = self.usable() else { return };
        let Some(Handle(profiler)) = *handle else { return };
        let mut arguments = PushParams { size: PushParams::SIZE, id, profiler };
        // SAFETY: the plugin registered `push` for these arguments, which outlive the call, with a
        // handle that it made.
        report(&self.problems, name, unsafe { call_one(push, &mut arguments) });
    }

    /// Pops the last id from the calling thread's stack.
    pub fn pop(&self, stack: Stack) {
        let name = ["profilerPopCorrelationId", "profilerPopUserCorrelationId"][stack as usize];
        let Some(pop) = self.pop[stack as usize].filter(|_| self.is_at_home()) else { return };
        let Some(handle) = self.usable() else { return };
        let Some(Handle(profiler)) = *handle else { return };
        let mut arguments = HandleParams { size: HandleParams::SIZE, profiler };
        // SAFETY: the plugin registered `pop` for these arguments, which outlive the call, with a
        // handle that it made.
        report(&self.problems, name, unsafe { call_one(pop, &mut arguments) });
    }
}
