//! A thread that waits for what the user wants of the plugins while the program runs: to pause, to
//! continue, to hand over the events that are complete. It exists only if some plugin can do any of
//! that, and sleeps in the kernel until the user changes a word in the pool.

use std::ffi::c_long;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use record::pool::{PluginControl, Row};
use record::run_file::PluginOptions;

use super::held;
use crate::os::sys;
use crate::process::guard::guarded;
use crate::state::run::Run;

/// The word that the thread waits for; null while there is no thread.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// Distinguishes the threads of one recording after the other.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Starts the thread. Without it, plugins record until the end.
pub fn start(run: &'static Run, options: &PluginOptions) {
    let row: &'static Row = run.pool.run_row();
    let every = Some(options.flush_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    WORD.store(std::ptr::from_ref(&row.plugin_control).cast_mut(), Ordering::Release);
    let work = move || _ = guarded(|| obey(row, every, serial));
    // The thread inherits the mask, so it gets none of the program's signals.
    let _calm = sys::SignalsBlocked::new();
    let _ = std::thread::Builder::new().name("plugins control".into()).spawn(work);
}

/// Wakes the thread, which ends if the recording is over.
pub fn wake() {
    let word = WORD.swap(std::ptr::null_mut(), Ordering::AcqRel);
    SERIAL.fetch_add(1, Ordering::Relaxed);
    if !word.is_null() {
        let _ = futex(word, libc::FUTEX_WAKE, c_long::from(i32::MAX), std::ptr::null());
    }
}

/// Waits for changes of the word until the recording is over.
fn obey(row: &'static Row, every: Option<Duration>, serial: u32) {
    // The user may have changed it since the recording began.
    let mut word = row.plugin_control.load(Ordering::SeqCst);
    let mut known = PluginControl::of_word(word);
    held::with(|recording| recording.toggle(known.paused));
    loop {
        let now = row.plugin_control.load(Ordering::SeqCst);
        let timed_out = now == word && wait(&row.plugin_control, word, every);
        if SERIAL.load(Ordering::Relaxed) != serial {
            return;
        }
        point!(PluginControl);
        word = row.plugin_control.load(Ordering::SeqCst);
        let wanted = PluginControl::of_word(word);
        let goes_on = held::with(|recording| {
            recording.toggle(wanted.paused);
            if timed_out || wanted.flushes != known.flushes {
                recording.flush();
            }
        });
        known = wanted;
        if !goes_on {
            return;
        }
    }
}

/// Sleeps while the word has this value. Returns whether the time is over.
fn wait(word: &AtomicU32, value: u32, every: Option<Duration>) -> bool {
    let time = every.map(|every| libc::timespec {
        tv_sec: every.as_secs() as libc::time_t,
        tv_nsec: every.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    futex(word, libc::FUTEX_WAIT, value.into(), time) == Err(libc::ETIMEDOUT)
}

fn futex(
    word: *const AtomicU32,
    operation: i32,
    value: c_long,
    time: *const libc::timespec,
) -> Result<c_long, i32> {
    // SAFETY: the word is in the pool, which stays mapped; the time outlives the call. If the word
    // were gone, the kernel would only return EFAULT.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, time) };
    if result < 0 { Err(record::pool::errno()) } else { Ok(result) }
}
