//! Starts a control thread for each profiler plugin that can be paused or can hand over events
//! while the program runs. This thread follows the user's commands to pause, to continue or to hand
//! over events. The commands are in a word of the pool (memory that `counterpoint run` shares with
//! recorded processes). If the user has set an interval and the plugin can hand over events, the
//! control thread also asks for them at this interval. If a plugin hangs, only its control thread
//! hangs with it.
//!
//! The control threads also check whether the program still has a thread of its own. If the program
//! has none, the control threads end the recording and then the process. If plugins have started
//! threads but cannot be controlled, there is one control thread for this check.

use std::ffi::c_long;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use record::pool::{PluginControl, Row};
use record::run_file::PluginOptions;

use super::guest::Guest;
use super::threads;
use crate::os::sys;
use crate::process::panics::guarded;
use crate::state::run::Run;

/// The word with the user's commands. The control threads sleep until it changes or their next
/// check is due. Null while no plugins record.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// Distinguishes the control threads of successive recordings.
static SERIAL: AtomicU32 = AtomicU32::new(0);
/// The longest time that a control thread sleeps before it checks the program's threads again.
const LOOK: Duration = Duration::from_millis(100);

/// Starts the control threads. If a plugin's control thread cannot be started, the user cannot
/// pause this plugin.
pub fn start(
    run: &'static Run,
    options: &PluginOptions,
    guests: &[&'static Guest],
    have_threads: bool,
    stop: fn() -> bool,
) {
    let row: &'static Row = run.pool.run_row();
    let every = Some(options.flush_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    WORD.store(std::ptr::from_ref(&row.plugin_control).cast_mut(), Ordering::Release);
    let mut threads: Vec<(Option<&'static Guest>, Option<Duration>)> = Vec::new();
    for guest in guests {
        let (mut controlled, mut flushes) = (false, false);
        guest.with(|one| (controlled, flushes) = (one.can_be_controlled(), one.can_flush()));
        if controlled {
            threads.push((Some(guest), every.filter(|_| flushes)));
        }
    }
    if threads.is_empty() && have_threads {
        threads.push((None, None));
    }
    // The new threads inherit the mask of blocked signals, so the program's signals are not
    // delivered to them.
    let _calm = sys::SignalsBlocked::for_new_threads();
    let (started, starts) = channel();
    for (guest, every) in threads {
        let started = started.clone();
        let work = move || {
            let own = threads::Own::register();
            let _ = started.send(());
            let over = guarded(|| obey(row, guest, every, serial)).unwrap_or(false);
            if over && stop() {
                threads::end_what_is_left();
            }
            drop(own);
        };
        // The program continues only when the new thread is registered as ours.
        if std::thread::Builder::new().name("cp control".into()).spawn(work).is_ok() {
            let _ = starts.recv();
        }
    }
}

/// Wakes the control threads and tells them that the recording is over.
pub fn wake() {
    let word = WORD.swap(std::ptr::null_mut(), Ordering::AcqRel);
    SERIAL.fetch_add(1, Ordering::Relaxed);
    if !word.is_null() {
        let _ = futex(word, libc::FUTEX_WAKE, c_long::from(i32::MAX), std::ptr::null());
    }
}

/// Follows the user's commands until the recording is over or all of the program's own threads have
/// ended. Returns whether the program's threads have ended.
fn obey(
    row: &'static Row,
    mut guest: Option<&'static Guest>,
    every: Option<Duration>,
    serial: u32,
) -> bool {
    let mut known = PluginControl::default();
    let mut word = 0;
    let mut flushed = Instant::now();
    let mut is_first = true;
    loop {
        let now = row.plugin_control.load(Ordering::SeqCst);
        // The first round does not wait, because the user may have given a command since the
        // recording began.
        if now == word && !is_first {
            let left = every.map_or(LOOK, |every| every.saturating_sub(flushed.elapsed()));
            wait(&row.plugin_control, word, left.min(LOOK));
        }
        if SERIAL.load(Ordering::Relaxed) != serial {
            return false;
        }
        if threads::program_is_over() {
            return true;
        }
        point!(PluginControl);
        word = row.plugin_control.load(Ordering::SeqCst);
        let wanted = PluginControl::of_word(word);
        let is_due = every.is_some_and(|every| flushed.elapsed() >= every);
        let flush = is_due || !is_first && wanted.flushes != known.flushes;
        if flush || is_first || wanted.paused != known.paused {
            // `with` does not call a plugin that was given up, but the control thread continues to
            // check the program's threads.
            guest = guest.filter(|guest| {
                guest.with(|one| {
                    one.toggle(wanted.paused);
                    if flush {
                        one.flush();
                    }
                })
            });
        }
        if is_due {
            flushed = Instant::now();
        }
        (known, is_first) = (wanted, false);
    }
}

/// Sleeps while the word has this value, for at most `most`.
fn wait(word: &AtomicU32, value: u32, most: Duration) {
    let time = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    };
    let _ = futex(word, libc::FUTEX_WAIT, value.into(), &raw const time);
}

fn futex(
    word: *const AtomicU32,
    operation: i32,
    value: c_long,
    time: *const libc::timespec,
) -> Result<c_long, i32> {
    // SAFETY: the word is in the pool, which stays mapped, and `time` is null or outlives the call.
    // If the word were gone, the kernel would only return EFAULT.
    let result = unsafe { libc::syscall(libc::SYS_futex, word, operation, value, time) };
    if result < 0 { Err(record::pool::errno()) } else { Ok(result) }
}
