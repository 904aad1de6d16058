//! Starts the program in a child process. The child shares the memory of this process until it
//! executes the program.
//!
//! ```text
//!  run                                   child (run's memory, its own stack and descriptors)
//!  all signals blocked
//!  clone(CLONE_VM | CLONE_VFORK) ──────► writes the manifest, which names it as watched
//!    waits                               restores the settings that the program must find
//!                                        signals as they were before, execve
//!  signals as before  ◄────────────────  is the program, or says what failed
//! ```
//!
//! `fork` would copy the page tables, and then both processes would copy the pages that they write
//! to. That takes a quarter of a millisecond. The child makes only system calls: another thread of
//! this process may hold a lock, and changes of memory in the child remain in this process.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use profile::live::ProcessId;
use profile::manifest::Announcement;

use super::{CHILD, FORWARDED, pass_on_early_signal};
use crate::failure::Failure;
use crate::inherited::Inherited;

pub struct Program {
    path: CString,
    words: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// Stores what `execve` needs. `words` are the arguments, with the program's name first. The
    /// program gets the environment of this process, with `variables` added.
    ///
    /// # Errors
    /// Returns an error if the path, an argument or a variable contains a zero byte.
    pub fn new<'a>(
        path: &Path,
        words: &[OsString],
        variables: impl Iterator<Item = &'a (&'static str, OsString)>,
    ) -> Result<Self, Failure> {
        let text = |bytes: &[u8]| {
            CString::new(bytes)
                .map_err(|_| Failure::new(format!("start {}: a byte 0 in it", path.display())))
        };
        let set: Vec<(&str, &OsStr)> = variables.map(|(n, v)| (*n, v.as_os_str())).collect();
        let kept = std::env::vars_os().filter(|(name, _)| set.iter().all(|(n, _)| name != n));
        let join =
            |name: &OsStr, value: &OsStr| text(&[name.as_bytes(), b"=", value.as_bytes()].concat());
        let kept = kept.map(|(name, value)| join(&name, &value));
        let ours = set.iter().map(|(name, value)| join(OsStr::new(name), value));
        Ok(Self {
            path: text(path.as_os_str().as_bytes())?,
            words: words.iter().map(|word| text(word.as_bytes())).collect::<Result<_, _>>()?,
            environment: kept.chain(ours).collect::<Result<_, _>>()?,
        })
    }

    /// Starts the program. `announcement` writes the manifest, which contains the id of the child.
    ///
    /// # Errors
    /// Returns the reason why the program does not run.
    pub fn begin(
        &self,
        announcement: &mut Announcement,
        inherited: Inherited,
    ) -> Result<ProcessId, Trouble> {
        let stack = stack().map_err(Trouble::Process)?;
        let words = pointers(&self.words);
        let environment = pointers(&self.environment);
        // SAFETY: sets consist of integers, for which zeros are values.
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: both sets outlive the calls.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        }
        let mut child = Child {
            program: self,
            words: &words,
            environment: &environment,
            announcement,
            inherited,
            mask: before,
            process: None,
            trouble: None,
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: `stack` is the upper end of memory that only the new process uses. The call
        // returns only when the new process has executed another program or has ended, so `child`
        // outlives the use of the pointer. Until then, nothing else accesses `child`.
        let pid = unsafe { libc::clone(become_it, stack, flags, (&raw mut child).cast()) };
        let error = io::Error::last_os_error();
        let trouble = match pid {
            ..0 => Some(Trouble::Process(error)),
            _ => child.trouble.take(),
        };
        let process = child.process;
        if trouble.is_none() {
            CHILD.store(pid, Ordering::SeqCst);
        }
        // The handlers now receive the signals that arrived while signals were blocked.
        // SAFETY: `before` outlives the call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
        if let Some(trouble) = trouble {
            if pid > 0 {
                let _ = wait_for(pid);
            }
            return Err(trouble);
        }
        pass_on_early_signal();
        let pid = pid.cast_unsigned();
        // An emulator of a processor treats this `clone` as `fork`: the child cannot store
        // `process` in this process's memory, so `process` stays `None`.
        let process = process.or_else(|| ProcessId::of(pid));
        Ok(process.unwrap_or(ProcessId { pid, start_time: 0 }))
    }
}

/// Returns how a child has ended; `None` if it still runs.
///
/// # Errors
/// Returns an error if the process is no child, or has been waited for.
pub fn exit_of(pid: libc::pid_t) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
        0 => Ok(None),
        ended if ended > 0 => Ok(Some(ExitStatus::from_raw(status))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the end of a child.
///
/// # Errors
/// Returns an error if the process is no child, or has been waited for.
pub fn wait_for(pid: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call.
        if unsafe { libc::waitpid(pid, &mut status, 0) } >= 0 {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[derive(Debug)]
pub enum Trouble {
    Process(io::Error),
    Manifest(io::Error),
    Execute(io::Error),
}

struct Child<'a> {
    program: &'a Program,
    words: &'a [*const c_char],
    environment: &'a [*const c_char],
    announcement: &'a mut Announcement,
    inherited: Inherited,
    mask: libc::sigset_t,
    process: Option<ProcessId>,
    trouble: Option<Trouble>,
}

/// Runs in the child, and executes the program. Returns only if that fails.
extern "C" fn become_it(child: *mut c_void) -> c_int {
    // SAFETY: `begin` passes a pointer to its variable `child`, and the thread that runs `begin` is
    // suspended until this process executes another program or ends.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    match child.announcement.write() {
        Ok(process) => child.process = Some(process),
        Err(e) => {
            child.trouble = Some(Trouble::Manifest(e));
            return 1;
        }
    }
    // SAFETY: the actions and the mask outlive the calls, and the arrays of words end with null
    // pointers. The child has a copy of the table of handlers. No handler of this program may run
    // in the child, so signals with a handler are set to the default, as `execve` would do.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in FORWARDED {
            let mut now: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut now);
            if now.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
        child.inherited.restore();
        libc::pthread_sigmask(libc::SIG_SETMASK, &child.mask, std::ptr::null_mut());
        // Unlike `execve`, `execvpe` passes a script without a `#!` line to a shell.
        libc::execvpe(
            child.program.path.as_ptr(),
            child.words.as_ptr(),
            child.environment.as_ptr(),
        );
    }
    child.trouble = Some(Trouble::Execute(io::Error::last_os_error()));
    1
}

/// Returns pointers to the texts, with a null pointer at the end, as `execve` needs.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Returns the top of the child's stack. A guard area lies below the stack. The stack stays mapped:
/// to unmap it, the kernel would interrupt the processor on which the program has just started (to
/// flush its TLB).
fn stack() -> io::Result<*mut c_void> {
    /// For a script without a `#!` line, `execvpe` copies the list of arguments to the stack, and
    /// the list may be long. Unused pages take no memory.
    const BYTES: usize = 8 << 20;
    const GUARD: usize = 64 << 10;
    static TOP: OnceLock<usize> = OnceLock::new();
    if let Some(top) = TOP.get() {
        return Ok(std::ptr::with_exposed_provenance_mut(*top));
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the address is null, so the kernel chooses a free address.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the lowest part of the new mapping, which nothing uses.
    if unsafe { libc::mprotect(start, GUARD, libc::PROT_NONE) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the result is one past the end of the mapping.
    let top = unsafe { start.byte_add(BYTES) };
    TOP.get_or_init(|| top.expose_provenance());
    Ok(top)
}
