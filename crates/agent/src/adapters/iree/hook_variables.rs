//! The drop-in for IREE's original call hook: variables that begin with `IREE_HOOK_`, in the place of a
//! run file. They are not interpreted here. The program `counterpoint`, found beside this
//! library, makes the run file from them and writes the report when the process ends.
//!
//! ```text
//!  constructor        sees a variable, remembers the environment
//!  first executable   counterpoint hook prepare PID ──► fd 3: what to do, path of the run file
//!  destructor         counterpoint hook report PROFILE ──► the host's stdout
//! ```
//!
//! The report belongs to the process that had the profile made: a forked child records into the
//! same profile and reports nothing; a program that it execs begins anew.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::os::hidden_child;
use crate::os::sys;
use crate::state::source::RunSource;

/// How the variables begin.
const PREFIX: &[u8] = b"IREE_HOOK_";
/// The one variable that lets the host print what it has before anything else is done.
const LISTING_VARIABLE: &[u8] = b"IREE_HOOK_LIST_EVENT_TYPES=";
/// What the program answers: to record, followed by the run file's path; or to end the host.
const RECORD: &[u8] = b"record\n";
const EXIT: &[u8] = b"exit\n";

/// This way of asking for a profile, as the constructor uses it.
pub static SOURCE: RunSource = RunSource { prefix: PREFIX, is_asked_for, prepare, report };

/// The environment that the process was started with. Programs that change theirs later are not
/// followed: the array may move under us then, this one never does.
static ENVIRONMENT: AtomicPtr<*mut c_char> = AtomicPtr::new(std::ptr::null_mut());
static LISTING: AtomicBool = AtomicBool::new(false);
/// Process that had the profile made; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// In the constructor: whether the environment has a variable of the hook. Not called in a process
/// with more rights than its user.
fn is_asked_for() -> bool {
    // SAFETY: `environ` is set before constructors run, and nothing changes it meanwhile; it is
    // an array of C strings that ends with a null pointer.
    unsafe {
        let first = libc::environ;
        let mut at = first;
        let mut found = false;
        while !at.is_null() && !(*at).is_null() {
            if starts_with(*at, PREFIX) {
                found = true;
                if starts_with(*at, LISTING_VARIABLE) {
                    LISTING.store(true, Ordering::Relaxed);
                }
            }
            at = at.add(1);
        }
        if !found {
            return false;
        }
        ENVIRONMENT.store(first, Ordering::Release);
        true
    }
}

/// # Safety
/// `text` is a C string.
unsafe fn starts_with(text: *const c_char, prefix: &[u8]) -> bool {
    // SAFETY: the comparison ends at the first difference, at the terminating zero at the latest.
    prefix.iter().enumerate().all(|(i, b)| unsafe { *text.add(i) } as u8 == *b)
}

/// At the first executable: has the program make the run file, and puts its path into `path`,
/// terminated. False: nothing can be recorded, and the user has been told why. Does not return if the
/// user asked for the list of counters.
fn prepare(path: &mut [u8]) -> bool {
    point!(HookPrepare);
    if LISTING.load(Ordering::Relaxed) {
        flush_stdout();
    }
    let pid = sys::path(sys::process_id().to_string());
    let mut answer = [0u8; 4096 + RECORD.len()];
    let Some(length) = ask(&[c"hook", c"prepare", pid.as_c_str()], &mut answer) else {
        return false;
    };
    let answer = answer.get(..length).unwrap_or_default();
    if answer == EXIT {
        sys::end_process();
    }
    let Some(found) = answer.strip_prefix(RECORD).filter(|p| !p.is_empty()) else { return false };
    let Some(place) = path.get_mut(..=found.len()) else { return false };
    let (bytes, end) = place.split_at_mut(found.len());
    bytes.copy_from_slice(found);
    end.fill(0);
    OWNER.store(sys::process_id(), Ordering::Release);
    true
}

/// In the destructor: runs the program that prints the report, after what the host printed.
fn report(profile: &str) {
    if OWNER.load(Ordering::Acquire) != sys::process_id() {
        return;
    }
    point!(HookReport);
    flush_stdout();
    let profile = sys::path(profile.to_owned());
    ask(&[c"hook", c"report", profile.as_c_str()], &mut []);
}

/// Runs the program. `None` if that did not work; it has said so, or it is said here.
fn ask(arguments: &[&CStr], answer: &mut [u8]) -> Option<usize> {
    let Some(program) = program() else {
        sys::complain("counterpoint: no program counterpoint beside libcounterpoint.so\n");
        return None;
    };
    let all: Vec<&CStr> = [c"counterpoint"].iter().chain(arguments).copied().collect();
    match hidden_child::run(&program, &all, &environment(), answer) {
        Ok(length) => Some(length),
        // It ended with a status of its own, and with a line on stderr.
        Err(libc::EIO) => None,
        Err(errno) => {
            let name = program.to_string_lossy();
            sys::complain(&format!("counterpoint: start {name}: errno {errno}\n"));
            None
        }
    }
}

/// The environment for the program: without what would preload us into it.
fn environment() -> Vec<*const c_char> {
    let mut at = ENVIRONMENT.load(Ordering::Acquire);
    let mut all = Vec::new();
    // SAFETY: the array that the process was started with, as in `is_asked_for`.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if !starts_with(*at, b"LD_PRELOAD=") {
                all.push((*at).cast_const());
            }
            at = at.add(1);
        }
    }
    all
}

/// `../bin/counterpoint` of this library, or in its own directory; as the dynamic linker names
/// it, or with links resolved.
fn program() -> Option<CString> {
    let here = program as *const () as usize;
    let names = [linker_name(here), sys::file_at(here)];
    for name in names.into_iter().flatten() {
        let Some(slash) = name.iter().rposition(|b| *b == b'/') else { continue };
        let directory = name.get(..slash).unwrap_or_default();
        for place in [b"/../bin/counterpoint".as_slice(), b"/counterpoint"] {
            let path = CString::new([directory, place].concat()).unwrap_or_default();
            if sys::is_executable(&path) {
                return Some(path);
            }
        }
    }
    None
}

/// What the dynamic linker calls the library at `address`, if that is an absolute path: a relative
/// one means another file once the host has changed its directory.
fn linker_name(address: usize) -> Option<Vec<u8>> {
    // SAFETY: all-zero is a valid value to be overwritten.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call; the name belongs to the linker, for as long as this
    // library is loaded, which is until the process ends.
    unsafe {
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname).to_bytes();
        name.starts_with(b"/").then(|| name.to_vec())
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    fn ftrylockfile(file: *mut libc::FILE) -> c_int;
    fn funlockfile(file: *mut libc::FILE);
}

/// Writes out what the host has printed and C still holds, so that it comes before what the
/// program prints. Not if another thread is using the stream just now: waiting for it could take
/// for ever. (`fflush(NULL)` would: for a thread that waits for input, too.)
fn flush_stdout() {
    // SAFETY: the C library's own stream, which it never closes by itself.
    unsafe {
        if !stdout.is_null() && ftrylockfile(stdout) == 0 {
            libc::fflush(stdout);
            funlockfile(stdout);
        }
    }
}
