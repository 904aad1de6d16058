//! One profiler plugin in one recording, and the threads on which it is called. A plugin may hang,
//! and it may end the thread on which it is called, or change that thread's state. So the agent
//! usually does not call a plugin on a thread of the program. For each call at the beginning or the
//! end of a recording, the agent usually starts a separate thread, which exists only during this
//! call. Calls in between run on the plugin's control thread ([`super::control`]), or on a thread
//! of the plugin that wants to hand over events.
//!
//! ```text
//!  begin_call ─► thread "cp plugin": the plugin's function ─► returns ─► destructors ─► the thread ends
//!       │                                    │ hangs
//!  wait ◄── done, or no step for as long as a call may take: the plugin is given up
//! ```
//!
//! A plugin that was given up is not called again. The thread that hangs and the plugin's memory
//! stay, because the plugin may continue at any time. While the plugin hangs, its file of events
//! has no end mark. The last call named in the file is usually the one that did not return.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plugin_host::catch::crash;

use super::one::One;
use super::progress::Progress;
use super::threads;
use crate::os::sys;
use crate::process::panics::guarded;

/// The size in bytes of the stack of a thread that calls a plugin: the default for a program's main
/// thread.
pub const STACK: usize = 8 << 20;

/// A plugin in a recording. This value is never freed, because a thread that hangs in the plugin
/// may continue at any time and use it.
pub struct Guest {
    one: Mutex<One>,
    /// One more than the plugin's number; 0 while the number is not known.
    number: AtomicU32,
    progress: Arc<Progress>,
    /// The longest time that one step of a call ([`Progress`]) may take.
    patience: Duration,
}

type Body = Box<dyn FnOnce(&mut One) + Send>;

impl Guest {
    pub fn new(one: One, progress: Arc<Progress>, patience: Duration) -> Self {
        Self { one: Mutex::new(one), number: AtomicU32::new(0), progress, patience }
    }

    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the plugin's number in this process, if it is known already.
    pub fn number(&self) -> Option<u32> {
        self.number.load(Ordering::Acquire).checked_sub(1)
    }

    pub fn set_number(&self, number: Option<u32>) {
        self.number.store(number.map_or(0, |number| number + 1), Ordering::Release);
    }

    /// Runs `body`, which calls the plugin, on the calling thread. Returns false if the plugin was
    /// given up before or during the call.
    pub fn with(&self, body: impl FnOnce(&mut One)) -> bool {
        if self.progress.is_given_up() {
            return false;
        }
        self.progress.begins();
        {
            let mut one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
            self.progress.step();
            guarded(|| body(&mut one));
            self.progress.ends();
        }
        !self.progress.is_given_up()
    }

    /// Runs `body` as [`Guest::with`] does, unless another thread is calling the plugin: this
    /// function does not wait. Returns whether `body` ran.
    pub fn try_with(&self, body: impl FnOnce(&mut One)) -> bool {
        if self.progress.is_given_up() {
            return false;
        }
        let Ok(mut one) = self.one.try_lock() else { return false };
        self.progress.step();
        guarded(|| body(&mut one));
        self.progress.ends();
        true
    }

    /// Does what [`Guest::begin_call`] does. In addition, while a [`crash::Caught`] exists, a fault
    /// (such as SIGSEGV) in the plugin ends only the call, not the process.
    pub fn begin_last_call(&'static self, body: impl FnOnce(&mut One) + Send + 'static) -> Call {
        self.begin_call(|one| {
            let _on_thread = crash::OnThread::new();
            body(one);
        })
    }

    /// Runs `body`, which calls the plugin, on a separate thread. If no thread can be started
    /// (RLIMIT_NPROC, seccomp), runs `body` on the calling thread, without a time limit.
    pub fn begin_call(&'static self, body: impl FnOnce(&mut One) + Send + 'static) -> Call {
        if self.progress.is_given_up() {
            return Call { guest: self, thread: None };
        }
        self.progress.begins();
        let (done, ended) = channel();
        // The new thread takes the body out of the mutex. If no thread can be started, the calling
        // thread does.
        let body: Arc<Mutex<Option<Body>>> = Arc::new(Mutex::new(Some(Box::new(body))));
        let take = |body: &Mutex<Option<Body>>| body.lock().ok().and_then(|mut body| body.take());
        let its = Arc::clone(&body);
        let work = move || {
            let _own = threads::Own::register();
            if let Some(body) = take(&its) {
                self.with(body);
            }
            let _ = done.send(sys::thread_id());
        };
        // The new thread, and the threads that the plugin starts, inherit the mask of blocked
        // signals, so the program's signals are not delivered to them.
        let _calm = sys::SignalsBlocked::for_new_threads();
        let thread = std::thread::Builder::new().name("cp plugin".into()).stack_size(STACK);
        match thread.spawn(work) {
            Ok(thread) => Call { guest: self, thread: Some((thread, ended)) },
            Err(_) => {
                if let Some(body) = take(&body) {
                    self.with(body);
                }
                Call { guest: self, thread: None }
            }
        }
    }
}

#[must_use]
pub struct Call {
    guest: &'static Guest,
    thread: Option<(JoinHandle<()>, Receiver<u32>)>,
}

impl Call {
    /// Waits until the call has returned and its thread is gone, or until the plugin is given up.
    /// Returns false if the plugin was given up, in this call or an earlier one.
    pub fn wait(self) -> bool {
        let progress = &self.guest.progress;
        if let Some((thread, ended)) = self.thread {
            loop {
                const LEAST: Duration = Duration::from_millis(1);
                let left = progress.left(self.guest.patience).max(LEAST);
                match ended.recv_timeout(left) {
                    Ok(id) => {
                        let left = progress.left_for_end(self.guest.patience).max(LEAST);
                        let deadline = Instant::now() + left;
                        if threads::join_until(thread, deadline) {
                            threads::wait_until_gone(id);
                        } else {
                            progress.give_up();
                        }
                        break;
                    }
                    // The call's thread ended without sending its id, for example by
                    // `pthread_exit`.
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        if progress.left(self.guest.patience).is_zero() {
                            progress.give_up();
                            break;
                        }
                    }
                }
            }
        }
        !progress.is_given_up()
    }
}
