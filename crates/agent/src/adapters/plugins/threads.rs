//! Distinguishes the program's threads from those that this adapter or profiler plugins have
//! started. A thread of a plugin must not keep a process alive after the program's own threads have
//! ended. A program may end by making the system call `exit` on each of its threads. Strict seccomp
//! forces it to do so, because it forbids `exit_group`.

use std::ffi::c_long;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::os::sys;

/// The ids of the threads that this adapter has started and registered ([`Own`]).
static OURS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// The known threads of plugins ([`note_guests`]).
static GUESTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// While this value lives, its thread is listed as one that this adapter has started.
pub struct Own(u32);

impl Own {
    pub fn register() -> Self {
        let id = sys::thread_id();
        OURS.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        Self(id)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        OURS.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| *id != self.0);
    }
}

/// Returns the ids of the threads of this process, or `None` if they cannot be listed.
pub fn all() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    let id = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok());
    Some(entries.flatten().filter_map(|entry| id(entry.file_name())).collect())
}

/// Returns whether the process has threads besides the calling one, and none of them belongs to the
/// program.
pub fn others_are_guests() -> bool {
    let Some(all) = all() else { return false };
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let me = sys::thread_id();
    all.len() > 1 && all.iter().all(|id| *id == me || ours.contains(id) || guests.contains(id))
}

pub fn is_only_one() -> bool {
    all().is_some_and(|all| all.len() == 1)
}

/// Called when the plugins have been started. Stores the ids of the threads that the plugins have
/// started, if these threads can be told from the program's. `was_alone` says whether the process
/// had only one thread before the plugins were loaded. If it had more, the program may have started
/// the new threads, and they are regarded as the program's. Returns whether any threads of plugins
/// are known.
pub fn note_guests(was_alone: bool) -> bool {
    let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads from earlier recordings stay in the list while they exist, such as those of a plugin
    // that was given up.
    guests.retain(|id| sys::thread_exists(*id));
    if was_alone && let Some(all) = all() {
        let me = sys::thread_id();
        guests.extend(all.into_iter().filter(|id| *id != me));
    }
    note_main();
    !guests.is_empty()
}

/// The word that the kernel sets to zero when the main thread ends (`set_tid_address(2)`), or null.
static MAIN: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// If called on the main thread, asks the kernel for the word's address and stores this address in
/// [`MAIN`].
fn note_main() {
    const PR_GET_TID_ADDRESS: c_long = 40;
    if sys::thread_id() != sys::process_id() {
        return;
    }
    let mut word: *mut AtomicU32 = std::ptr::null_mut();
    // SAFETY: `word` has space for an address. Kernels without this command return EINVAL.
    let result = unsafe { libc::syscall(libc::SYS_prctl, PR_GET_TID_ADDRESS, &raw mut word) };
    if result == 0 {
        MAIN.store(word, Ordering::Release);
    }
}

fn main_has_ended() -> bool {
    // SAFETY: `MAIN` is null or points into glibc's descriptor of the main thread, which is never
    // freed.
    match unsafe { MAIN.load(Ordering::Acquire).as_ref() } {
        Some(word) => word.load(Ordering::Relaxed) == 0,
        None => main_state().is_some_and(|(state, _)| matches!(state, b'Z' | b'X')),
    }
}

/// Reads the main thread's state, and its exit code as `wait` returns it, from /proc/self/stat.
fn main_state() -> Option<(u8, i32)> {
    let text = sys::read_file(c"/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may contain any characters.
    let rest = &text[text.iter().rposition(|byte| *byte == b')')? + 1..];
    let rest = std::str::from_utf8(rest).ok()?;
    let state = rest.split_ascii_whitespace().next()?.bytes().next()?;
    Some((state, rest.split_ascii_whitespace().last()?.parse().ok()?))
}

/// Returns whether only the threads of this adapter and of plugins are left.
pub fn program_is_over() -> bool {
    if !main_has_ended() {
        return false;
    }
    let Some(all) = all() else { return false };
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let main = sys::process_id();
    all.iter().all(|id| *id == main || ours.contains(id) || guests.contains(id))
}

/// Ends the process with the main thread's exit status, if that thread has ended. A control thread
/// calls this function after the program's threads and the plugins' recording have ended. But if
/// the status is 0 and no other thread is left, this function returns, and the process ends with
/// the calling thread. glibc then calls `exit`, as it does whenever the last thread of a process
/// returns.
pub fn end_what_is_left() {
    let Some((b'Z' | b'X', code)) = main_state() else { return };
    let status = code >> 8 & 0xff;
    if status != 0 {
        sys::end_process_with(status);
    }
    wait_until_only_main();
    let (me, main) = (sys::thread_id(), sys::process_id());
    if all().is_some_and(|all| all.iter().any(|id| *id != me && *id != main)) {
        sys::end_process_with(status);
    }
}

/// Waits, for a limited time, until no thread is left but the calling one and the main thread.
fn wait_until_only_main() {
    let (me, main) = (sys::thread_id(), sys::process_id());
    for _ in 0..2_000 {
        let Some(all) = all() else { return };
        if all.iter().all(|id| *id == me || *id == main) {
            return;
        }
        sys::nap();
    }
}

/// Waits, for a limited time, until the calling thread is the only one of the process.
pub fn wait_until_only_one() {
    for _ in 0..2_000 {
        if is_only_one() {
            return;
        }
        sys::nap();
    }
}

/// Waits until a thread that this adapter has started has ended. A destructor of a plugin may hang
/// on that thread. Returns false if the thread has not ended by the deadline; it is then detached.
pub fn join_until(thread: JoinHandle<()>, deadline: Instant) -> bool {
    let thread = thread.into_pthread_t();
    // SAFETY: `into_pthread_t` made this function the only owner of the thread. The thread is
    // neither joined nor detached yet.
    while unsafe { libc::pthread_tryjoin_np(thread, std::ptr::null_mut()) } == libc::EBUSY {
        if Instant::now() >= deadline {
            // SAFETY: the thread is still not joined, because the call above returned EBUSY.
            unsafe { libc::pthread_detach(thread) };
            return false;
        }
        sys::nap();
    }
    true
}

/// Waits, for a limited time, until the kernel has removed a thread that has ended. Until then, the
/// kernel regards the process as one with several threads.
pub fn wait_until_gone(id: u32) {
    for _ in 0..20_000 {
        if !sys::thread_exists(id) {
            return;
        }
        sys::nap();
    }
}
