//! Tells the program's threads from ours and our guests'. A thread of a guest must not keep a
//! process alive that has no thread of its own any more: a program may end by the bare system call
//! `exit` in each of its threads, as strict seccomp demands.

use std::ffi::c_long;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::os::sys;

/// The threads that this adapter has started and that have not ended.
static OURS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// The threads that the plugins had started when the recording began.
static GUESTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A thread of ours, as long as this value lives.
pub struct Own(u32);

impl Own {
    /// Registers the calling thread.
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

/// Returns the ids of all threads of this process, or `None` if they cannot be listed.
pub fn all() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc/self/task").ok()?;
    let id = |name: std::ffi::OsString| name.to_str().and_then(|name| name.parse().ok());
    Some(entries.flatten().filter_map(|entry| id(entry.file_name())).collect())
}

/// Returns whether the process has other threads than the calling one, none of which is the
/// program's.
pub fn others_are_guests() -> bool {
    let Some(all) = all() else { return false };
    let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let me = sys::thread_id();
    all.len() > 1 && all.iter().all(|id| *id == me || ours.contains(id) || guests.contains(id))
}

/// Returns whether the calling thread is the only one of its process.
pub fn is_only_one() -> bool {
    all().is_some_and(|all| all.len() == 1)
}

/// Notes which threads the plugins have started while they began. `was_alone` says that the program
/// had one thread before that. If it had more, it is not known whose a new thread is, and it counts
/// as the program's.
pub fn note_guests(was_alone: bool) -> bool {
    let mut guests = GUESTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads of a plugin that was given up earlier stay in the list.
    guests.retain(|id| sys::thread_exists(*id));
    if was_alone && let Some(all) = all() {
        let me = sys::thread_id();
        guests.extend(all.into_iter().filter(|id| *id != me));
    }
    note_main();
    !guests.is_empty()
}

/// The word in which the kernel puts zero when the main thread ends (`set_tid_address(2)`); null if
/// it is not known.
static MAIN: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// On the main thread, asks the kernel for the address of the word, and stores it in [`MAIN`].
fn note_main() {
    const PR_GET_TID_ADDRESS: c_long = 40;
    if sys::thread_id() != sys::process_id() {
        return;
    }
    let mut word: *mut AtomicU32 = std::ptr::null_mut();
    // SAFETY: `word` has room for an address. Kernels without this command return EINVAL.
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

/// Reads the state of the main thread and its exit code, as `wait` returns it, from
/// /proc/self/stat.
fn main_state() -> Option<(u8, i32)> {
    let text = sys::read_file(c"/proc/self/stat").ok()?;
    // The name, in parentheses, may have any characters.
    let rest = &text[text.iter().rposition(|byte| *byte == b')')? + 1..];
    let rest = std::str::from_utf8(rest).ok()?;
    let state = rest.split_ascii_whitespace().next()?.bytes().next()?;
    Some((state, rest.split_ascii_whitespace().last()?.parse().ok()?))
}

/// Returns whether all threads of the program itself have ended, so that only ours and our guests'
/// are left.
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

/// Ends the process with the main thread's status. Called by a thread of ours in a program whose
/// own threads have all ended, after the plugins have ended. If the status is 0, the process ends
/// with the calling thread, unless a guest's thread is left: glibc may have to call `exit`, which
/// it does when the last thread ends in an orderly way.
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

/// Waits for a moment until the other threads of ours have ended.
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

/// Waits for a moment until the threads of a recording that has ended are gone.
pub fn wait_until_only_one() {
    for _ in 0..2_000 {
        if is_only_one() {
            return;
        }
        sys::nap();
    }
}

/// Waits until a thread of ours has ended, which it cannot while a destructor of a plugin hangs.
/// Returns false if it has not ended by the deadline; then it is not waited for any more.
pub fn join_until(thread: JoinHandle<()>, deadline: Instant) -> bool {
    let thread = thread.into_pthread_t();
    // SAFETY: `into_pthread_t` made this function the only owner of the thread, which is neither
    // joined nor detached yet.
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

/// Waits until the kernel has removed a thread that has ended. Until then, the process does not
/// count as one with a single thread.
pub fn wait_until_gone(id: u32) {
    for _ in 0..20_000 {
        if !sys::thread_exists(id) {
            return;
        }
        sys::nap();
    }
}
