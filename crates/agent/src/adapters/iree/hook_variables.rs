//! Replaces IREE's original call hook (another profiler), whose users set environment variables
//! that begin with `IREE_HOOK_`. If such a variable is set, the user wants a profile, but there is
//! no run file (the settings of a recording). The program `counterpoint`, which is installed with
//! this library, interprets the variables. The agent runs this program twice: first to make a run
//! file, and then, when the process ends, to write the report.
//!
//! ```text
//!  constructor        sees a variable, remembers the environment
//!  first executable   counterpoint hook prepare PID ──► fd 3: what to do, path of the run file
//!  destructor         counterpoint hook report PROFILE ──► the host's stdout
//! ```
//!
//! Only the process that asked `counterpoint` for the run file also asks for the report. A forked
//! child records into the same profile. A program that the process starts with `exec` asks for a
//! new run file.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::os::hidden_child;
use crate::os::sys;
use crate::state::source::RunSource;

const PREFIX: &[u8] = b"IREE_HOOK_";
/// The variable that asks for a list of counters. If it is set, the host's buffered output is
/// written before the list.
const LISTING_VARIABLE: &[u8] = b"IREE_HOOK_LIST_EVENT_TYPES=";
/// The answers of `counterpoint hook prepare`. `record` is followed by the path of the run file;
/// `exit` asks to end the host.
const RECORD: &[u8] = b"record\n";
const EXIT: &[u8] = b"exit\n";

pub static SOURCE: RunSource = RunSource { prefix: PREFIX, is_asked_for, prepare, report };

/// The environment that the process was started with. The host may replace its current environment
/// at any time, but the first array stays where it is.
static ENVIRONMENT: AtomicPtr<*mut c_char> = AtomicPtr::new(std::ptr::null_mut());
static LISTING: AtomicBool = AtomicBool::new(false);
/// Id of the process that asked for the run file; 0 before that.
static OWNER: AtomicU32 = AtomicU32::new(0);

fn is_asked_for() -> bool {
    // SAFETY: the C library sets `environ` before constructors run, and this function assumes that
    // no other thread changes it meanwhile. `environ` is an array of C strings that ends with a
    // null pointer.
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
/// `text` must be a C string.
unsafe fn starts_with(text: *const c_char, prefix: &[u8]) -> bool {
    // SAFETY: the comparison stops at the first difference, at the latest at the terminating zero.
    prefix.iter().enumerate().all(|(i, b)| unsafe { *text.add(i) } as u8 == *b)
}

/// Runs `counterpoint` to make the run file, and writes the file's NUL-terminated path to `path`.
/// Returns false if nothing can be recorded. Does not return if the user asked for nothing but the
/// list of counters.
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

/// Flushes the host's own output, and runs `counterpoint` to print the report about the profile.
/// Does nothing in a forked child.
fn report(profile: &str) {
    if OWNER.load(Ordering::Acquire) != sys::process_id() {
        return;
    }
    point!(HookReport);
    flush_stdout();
    let profile = sys::path(profile.to_owned());
    ask(&[c"hook", c"report", profile.as_c_str()], &mut []);
}

/// Runs `counterpoint` with these arguments and returns the length of its answer. Returns `None`
/// after an error, which was reported on stderr.
fn ask(arguments: &[&CStr], answer: &mut [u8]) -> Option<usize> {
    let Some(program) = program() else {
        sys::complain("counterpoint: no program counterpoint beside libcounterpoint.so\n");
        return None;
    };
    let all: Vec<&CStr> = [c"counterpoint"].iter().chain(arguments).copied().collect();
    match hidden_child::run(&program, &all, &environment(), answer) {
        Ok(length) => Some(length),
        // `counterpoint` has failed, and has written the reason to stderr.
        Err(libc::EIO) => None,
        Err(errno) => {
            let name = program.to_string_lossy();
            sys::complain(&format!("counterpoint: start {name}: errno {errno}\n"));
            None
        }
    }
}

/// Returns the environment for `counterpoint`, without `LD_PRELOAD`, which would load this library
/// into it.
fn environment() -> Vec<*const c_char> {
    let mut at = ENVIRONMENT.load(Ordering::Acquire);
    let mut all = Vec::new();
    // SAFETY: `ENVIRONMENT` is null or the array that the kernel made for the process
    // (`is_asked_for` stored its address). That array stays mapped, contains C strings and ends
    // with a null pointer.
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

/// Returns the path of `counterpoint`: `../bin/counterpoint` relative to this library's directory,
/// or else `counterpoint` in the library's directory. Tries the path under which the dynamic linker
/// knows this library, and then the path with links resolved.
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

/// Returns the dynamic linker's name of the library at `address` if it is an absolute path. A
/// relative path refers to another file once the host has changed its directory.
fn linker_name(address: usize) -> Option<Vec<u8>> {
    // SAFETY: `Dl_info` consists of pointers, for which zeros are valid values.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call. The name belongs to the linker and is valid while this
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

/// Flushes the C library's buffer of the host's stdout, so that the host's output comes before that
/// of `counterpoint`. Does nothing if another thread is using the stream, because waiting for that
/// thread could take for ever. (`fflush(NULL)` locks every stream, so it would wait even for a
/// thread that waits for input.)
fn flush_stdout() {
    // SAFETY: `stdout` is the C library's own stream, which the C library never closes by itself.
    unsafe {
        if !stdout.is_null() && ftrylockfile(stdout) == 0 {
            libc::fflush(stdout);
            funlockfile(stdout);
        }
    }
}
