//! Waits until the recorded program has ended. Meanwhile, takes the pages that the program's
//! threads have filled with records, and appends them to the profile.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use profile::drain::Drain;

use super::begin::{exit_of, wait_for};

/// Points to a counter in the pool (memory shared with the program): the number of full pages that
/// the program's threads have offered to this process. The handler of SIGCHLD adds 1 to it, too.
static OFFERS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// Waits for the end of the program. Meanwhile, if the pool can be used and there are several
/// processors, appends full pages to the profile. This function makes no file of the profile longer
/// than `longest` bytes.
///
/// # Errors
/// Returns the errors of [`wait_for`].
pub fn wait_and_drain(
    pid: libc::pid_t,
    directory: &Path,
    pool: Option<&Path>,
    longest: u64,
) -> std::io::Result<ExitStatus> {
    let drain = pool.filter(|_| has_processors()).and_then(|p| Drain::begin(directory, p, longest));
    let Some(mut drain) = drain else { return wait_for(pid) };
    OFFERS.store(std::ptr::from_ref(drain.offers()).cast_mut(), Ordering::SeqCst);
    handle_children(Some(note));
    let status = loop {
        // The number of offers is read before the pages are taken. If a page is offered or a child
        // ends after this reading, the number changes and `drain.wait` returns.
        let seen = drain.offers().load(Ordering::SeqCst);
        drain.take_all();
        match exit_of(pid) {
            Ok(None) => {}
            Ok(Some(status)) => break Ok(status),
            Err(e) => break Err(e),
        }
        if drain.wait(seen).is_err() {
            break wait_for(pid);
        }
    };
    handle_children(None);
    status
}

/// Whether this process may run on several processors; true if this is not known. On a single one,
/// draining would only take time from the program.
fn has_processors() -> bool {
    // SAFETY: zeros are a valid `cpu_set_t`, and the kernel writes no more bytes than the size that
    // is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let known = libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0;
        // The call fails if there are more processors than fit into the set.
        !known || libc::CPU_COUNT(&set) > 1
    }
}

/// Handles SIGCHLD: makes `drain.wait` return, at once if that call begins only later.
extern "C" fn note(_: i32) {
    let offers = OFFERS.load(Ordering::SeqCst);
    // SAFETY: `OFFERS` is set before the handler is installed, to a word of the pool, which is
    // never unmapped.
    unsafe { &*offers }.fetch_add(1, Ordering::SeqCst);
}

fn handle_children(handler: Option<extern "C" fn(i32)>) {
    // SAFETY: zeros are a valid `sigaction`, and `action` outlives the call. The handler makes only
    // atomic accesses, so it is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction =
            handler.map_or(libc::SIG_DFL, |handler| handler as *const () as usize);
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
    }
}
