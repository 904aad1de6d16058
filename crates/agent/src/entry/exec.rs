//! Handles programs that the host (the profiled program) starts, with `exec` in its own process or
//! with `posix_spawn`. Some programs cannot be recorded, because this library cannot be loaded into
//! them or their environment lacks our variables. Their starts are usually counted as losses of the
//! run. If a program would not start with the library in `LD_PRELOAD`, or would print a complaint,
//! it gets an environment without the library.
//!
//! ```text
//!  execv…, posix_spawn… ──► look: does the environment bring us along?   no: count
//!  (entry)                        can the program carry us?              no: count
//!                                       │
//!                                       ▼ would it not even start?       without our LD_PRELOAD
//!                           the real call, with its own search, errno and result
//! ```
//!
//! All of this also runs between `vfork` and `exec`, in the memory and on the stack of the parent.
//! Therefore it does not allocate or lock, and it leaves `errno` as the real call does. Files are
//! examined on a separate stack, and a copy of the environment is put into separate memory
//! ([`places`]). If our variables are missing, the agent does not add them, because it assumes that
//! the program has removed them on purpose.
//!
//! If profiler plugins record in this process, they hand over their events before `exec` replaces
//! the program ([`crate::adapters::plugins`]). Handing over the events allocates memory, but it
//! does not happen in a forked child.
//!
//! The agent does not notice programs that are started by a system call without glibc (as Go does),
//! nor the shells that `system` and `popen` start.

mod functions;
mod places;

use std::ffi::{CStr, c_char, c_int};

use model::Loss;
use record::preloadable::{Carrier, examine, link_of};
use record::run_file::RUN_FILE_VARIABLE;

use crate::adapters::plugins;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::losses;
use crate::process::panics::guarded_apart;
use crate::state::{run_file, source};

pub use functions::{
    execl, execle, execlp, execv, execve, execveat, execvp, execvpe, fexecve, posix_spawn,
    posix_spawnp,
};

/// Looks up the real functions. The constructor calls this, because a lookup takes the dynamic
/// linker's lock, which a forked child may find locked forever.
pub fn prepare() {
    functions::prepare();
}

type Strings = *const *const c_char;

/// The program to start, as the caller named it.
#[derive(Clone, Copy)]
enum Program {
    Path(*const c_char),
    /// A path relative to the directory of this descriptor. If the path is empty, the descriptor
    /// itself is the program.
    At(c_int, *const c_char),
    Descriptor(c_int),
    /// A name that is looked up in `PATH` as `execvp` does.
    Search(*const c_char),
}

/// Does what [`launch`] does, for a call that replaces the program of this process. If plugins
/// record in this process and the program exists, they hand over their events before the call. If
/// the call fails, those plugins record again.
///
/// # Safety
/// The requirements of [`launch`] apply.
unsafe fn replace(program: Program, environment: Strings, go: impl Fn(Strings) -> c_int) -> c_int {
    // SAFETY: by this function's contract, the program's pointers are C strings or null.
    let stopped = plugins::record_here() && unsafe { exists(program) } && plugins::before_exec();
    // SAFETY: `launch` has the same contract as this function.
    let result = unsafe { launch(program, environment, go) };
    if stopped {
        let _errno = ErrnoGuard::new();
        plugins::record_again();
    }
    result
}

/// Returns whether there is a program to start, as far as [`carrier`] checks this. Many callers of
/// `exec` try one path after the other, and plugins must not stop recording for a path without a
/// program.
///
/// # Safety
/// The program's pointers must be C strings or null.
unsafe fn exists(program: Program) -> bool {
    let _errno = ErrnoGuard::new();
    // SAFETY: `carrier` has the same contract as this function.
    guarded_apart(|| unsafe { carrier(program, false) }.is_some()).unwrap_or(false)
}

/// Makes the real call, `go`. If the program cannot start with this library in `LD_PRELOAD`, or
/// would print a complaint, `go` gets an environment without the library. If `go` does not return
/// 0, the program was not started.
///
/// # Safety
/// The requirements of the real call apply: pointers refer to C strings, and the environment is
/// null or an array of C strings that ends with a null pointer.
unsafe fn launch(program: Program, environment: Strings, go: impl Fn(Strings) -> c_int) -> c_int {
    if sys::has_more_rights() {
        return go(environment);
    }
    // SAFETY: `look` has the same contract as this function.
    let (counted, refuses) = unsafe { look(program, environment) };
    let result = match refuses {
        // SAFETY: `without_us` has the same contract as this function.
        true => unsafe { without_us(environment, &go) },
        false => go(environment),
    };
    if result != 0
        && let Some(loss) = counted
    {
        let _errno = ErrnoGuard::new();
        losses::with_run_row(|row| row.take_back(loss));
    }
    result
}

/// Examines the program and its environment. Returns the loss that was counted, if any, and whether
/// this library must be removed from the environment. The loss must be counted before the real
/// call, because after a successful `exec` this code does not exist any more.
///
/// # Safety
/// The requirements of [`launch`] apply.
#[inline(never)]
unsafe fn look(program: Program, environment: Strings) -> (Option<Loss>, bool) {
    let _errno = ErrnoGuard::new();
    let looked = guarded_apart(|| {
        point!(ExecLook);
        // SAFETY: by this function's contract, `environment` is null or an array of C strings that
        // ends with a null pointer.
        let brings = unsafe { Brings::read(environment) };
        // SAFETY: by this function's contract, the program's pointers are C strings or null.
        let Some(carrier) = (unsafe { carrier(program, brings.library) }) else {
            return (None, false); // There is no program to start.
        };
        let carrier = brings.library.then_some(carrier);
        let loss = match carrier {
            Some(carrier) => carrier.loss().or((!brings.variables).then_some(VARIABLES)),
            None => Some(VARIABLES),
        };
        let loss = loss.filter(|_| run_file::is_asked_for() && !brings.declines);
        // SAFETY: by this function's contract, the program's pointers are C strings or null.
        let loss = loss.filter(|_| unsafe { !is_ldconfig(program) });
        if let Some(loss) = loss {
            point!(ExecCount);
            losses::with_run_row(|row| row.lose(loss, 1, 0));
        }
        (loss, carrier.is_some_and(Carrier::refuses))
    });
    looked.unwrap_or((None, false))
}

const VARIABLES: Loss = Loss::ChildWithoutVariables;

/// Returns whether the program is the C library's `ldconfig`, judging by the path. Python's
/// `ctypes.util` starts it with an almost empty environment, for example in each `import torch`.
/// `ldconfig` makes no calls to record, so this is no loss.
///
/// # Safety
/// The requirements of [`carrier`] apply.
unsafe fn is_ldconfig(program: Program) -> bool {
    let Program::Path(path) = program else { return false };
    // SAFETY: by this function's contract, the program's pointers are C strings or null.
    !path.is_null()
        && unsafe {
            matches!(CStr::from_ptr(path).to_bytes(), b"/sbin/ldconfig" | b"/usr/sbin/ldconfig")
        }
}

/// Returns whether this library can be loaded into the program and whether the program starts with
/// it. Returns `None` if there is no program to start; this is checked only for a path and for a
/// search in `PATH`. The program's file is examined only if `is_wanted` is set.
///
/// # Safety
/// The program's pointers must be C strings or null.
unsafe fn carrier(program: Program, is_wanted: bool) -> Option<Carrier> {
    let look = |at, path: &CStr| if is_wanted { examine(at, path) } else { Carrier::Able };
    // SAFETY: by this function's contract, the program's pointers are C strings or null.
    unsafe {
        let text = |path: *const c_char| (!path.is_null()).then(|| CStr::from_ptr(path));
        let of_descriptor = |fd| {
            let link = link_of(fd);
            CStr::from_bytes_until_nul(&link).ok().map(|path| look(libc::AT_FDCWD, path))
        };
        match program {
            // Many callers search for a program themselves: they try one path after the other. A
            // path without a program must not count as a loss.
            Program::Path(path) => {
                let path = text(path).filter(|path| sys::is_executable(path))?;
                Some(look(libc::AT_FDCWD, path))
            }
            Program::At(fd, path) if text(path)?.is_empty() => of_descriptor(fd),
            Program::At(at, path) => Some(look(at, text(path)?)),
            Program::Descriptor(fd) => of_descriptor(fd),
            Program::Search(file) => search(text(file)?, |path| look(libc::AT_FDCWD, path)),
        }
    }
}

/// Calls `body` with the path of the file that `execvp` will find. (A `posix_spawn` that changes
/// the directory first may find another file.)
#[inline(never)]
fn search<T>(file: &CStr, body: impl FnOnce(&CStr) -> T) -> Option<T> {
    let name = file.to_bytes_with_nul();
    if name.contains(&b'/') {
        return Some(body(file));
    }
    // SAFETY: `c"PATH"` is a C string, so `getenv` returns null or a C string. The bytes of that
    // string stay valid as long as the program does not change `PATH` while this function runs.
    let path = unsafe { libc::getenv(c"PATH".as_ptr()) };
    let path = match path.is_null() {
        true => c"/bin:/usr/bin",
        // SAFETY: `getenv` returned a C string.
        false => unsafe { CStr::from_ptr(path) },
    };
    let mut buffer = [0u8; 4096];
    for directory in path.to_bytes().split(|b| *b == b':') {
        let slash = usize::from(!directory.is_empty());
        let length = directory.len() + slash + name.len();
        let Some(place) = buffer.get_mut(..length) else { continue };
        place[..directory.len()].copy_from_slice(directory);
        place[directory.len()..directory.len() + slash].fill(b'/');
        place[directory.len() + slash..].copy_from_slice(name);
        if let Ok(candidate) = CStr::from_bytes_with_nul(place)
            && sys::is_executable(candidate)
        {
            return Some(body(candidate));
        }
    }
    None
}

/// Which of our settings an environment contains.
struct Brings {
    library: bool,
    variables: bool,
    /// Whether the run file's variable is set but empty. This means that Counterpoint itself starts
    /// the program, which is not to be recorded.
    declines: bool,
}

impl Brings {
    /// # Safety
    /// `environment` must be null or an array of C strings that ends with a null pointer.
    unsafe fn read(environment: Strings) -> Self {
        let source = source::current();
        let mut brings = Self { library: false, variables: false, declines: false };
        // SAFETY: `each` has the same contract as this function.
        unsafe {
            each(environment, |text| {
                let run_file = text
                    .strip_prefix(RUN_FILE_VARIABLE.as_bytes())
                    .and_then(|rest| rest.strip_prefix(b"="));
                brings.declines |= run_file.is_some_and(<[u8]>::is_empty);
                if let Some(list) = text.strip_prefix(PRELOAD) {
                    brings.library |= elements(list).any(is_ours);
                } else if let Some(source) = source {
                    brings.variables |= text.starts_with(source.prefix);
                } else {
                    brings.variables |= run_file.is_some();
                }
            });
        }
        brings
    }
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Returns the libraries in a list of `LD_PRELOAD`, which glibc splits at colons and spaces.
fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| matches!(b, b':' | b' ')).filter(|element| !element.is_empty())
}

/// Returns whether `library` is this library, judging by the file name. Version and path are not
/// compared, because a program that does not start with this copy would not start with another one
/// either.
fn is_ours(library: &[u8]) -> bool {
    let name = library.rsplit(|b| *b == b'/').next().unwrap_or_default();
    name.strip_prefix(b"libcounterpoint.so").is_some_and(|rest| matches!(rest, [] | [b'.', ..]))
}

/// Calls `body` with each string of the environment. Returns the number of strings.
///
/// # Safety
/// The requirements of [`Brings::read`] apply; in addition, the strings must stay valid as long as
/// `body` uses them.
unsafe fn each<'a>(environment: Strings, mut body: impl FnMut(&'a [u8])) -> usize {
    let mut count = 0;
    // SAFETY: by contract, `environment` is null or an array of C strings that ends with a null
    // pointer, where this loop ends.
    unsafe {
        while !environment.is_null() && !(*environment.add(count)).is_null() {
            body(CStr::from_ptr(*environment.add(count)).to_bytes());
            count += 1;
        }
    }
    count
}

/// Makes the real call with a copy of the environment without this library. If there is no memory
/// for the copy, passes the environment unchanged.
///
/// # Safety
/// The requirements of [`launch`] apply.
unsafe fn without_us(environment: Strings, go: &impl Fn(Strings) -> c_int) -> c_int {
    let mut bytes = 0;
    // SAFETY: by this function's contract, `environment` is null or an array of C strings that ends
    // with a null pointer.
    let count = unsafe {
        each(environment, |text| {
            if text.starts_with(PRELOAD) {
                bytes += text.len() + 1;
            }
        })
    };
    let bytes = bytes + (count + 1) * size_of::<*const c_char>();
    match places::Place::take(bytes) {
        // SAFETY: the place has `bytes` bytes, which is what `copy` needs for `count` strings.
        Some(place) => unsafe { go(copy(environment, count, place.at())) },
        None => go(environment),
    }
}

/// Copies the array of pointers to `place`. Writes the texts of all `LD_PRELOAD` variables after
/// the array, and leaves our library out of their lists. If a list becomes empty, its variable is
/// left out.
///
/// # Safety
/// `environment` must have `count` strings. `place` must be aligned for pointers, and have space
/// for `count + 1` pointers and for the texts of all `LD_PRELOAD` variables.
unsafe fn copy(environment: Strings, count: usize, place: *mut u8) -> Strings {
    // SAFETY: by contract, `environment` has `count` strings, and `place` has space for the array
    // and for the texts that are copied.
    unsafe {
        let array = place.cast::<*const c_char>();
        let mut text = array.add(count + 1).cast::<u8>();
        let mut kept = 0;
        for i in 0..count {
            let entry = *environment.add(i);
            let mut replaced = entry;
            if let Some(list) = CStr::from_ptr(entry).to_bytes().strip_prefix(PRELOAD) {
                let start = text;
                for part in elements(list).filter(|element| !is_ours(element)) {
                    let before = if text == start { PRELOAD } else { b":" };
                    for piece in [before, part] {
                        text.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                        text = text.add(piece.len());
                    }
                }
                if text == start {
                    continue;
                }
                text.write(0);
                text = text.add(1);
                replaced = start.cast();
            }
            array.add(kept).write(replaced);
            kept += 1;
        }
        array.add(kept).write(std::ptr::null());
        array
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(entries: &[&CStr]) -> Vec<String> {
        let pointers: Vec<_> =
            entries.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
        let mut found = Vec::new();
        // SAFETY: `pointers` contains C strings and ends with a null pointer.
        let result = unsafe {
            let look = |environment: Strings| {
                each(environment, |text| found.push(String::from_utf8_lossy(text).into_owned()));
                0
            };
            let look = std::cell::RefCell::new(look);
            without_us(pointers.as_ptr(), &|environment| (look.borrow_mut())(environment))
        };
        assert_eq!(result, 0);
        found
    }

    #[test]
    fn only_our_library_is_removed() {
        let ours = c"LD_PRELOAD=/opt/x/lib/libcounterpoint.so";
        assert_eq!(filtered(&[c"A=1", ours, c"B="]), ["A=1", "B="]);
        let among = c"LD_PRELOAD=/a.so:/x/libcounterpoint.so.1 /b.so::libcounterpoint.so";
        assert_eq!(filtered(&[among]), ["LD_PRELOAD=/a.so:/b.so"]);
        let others = c"LD_PRELOAD=/x/libcounterpoint.sox:/libcounterpoint.so/y.so";
        assert_eq!(
            filtered(&[others, c"LD_PRELOADS=libcounterpoint.so"]),
            [
                "LD_PRELOAD=/x/libcounterpoint.sox:/libcounterpoint.so/y.so",
                "LD_PRELOADS=libcounterpoint.so"
            ]
        );
        assert!(filtered(&[]).is_empty());
    }

    #[test]
    fn environments_of_any_size_are_copied() {
        for count in [1, 500, 600, 4_000, 30_000, 60_000] {
            let mut entries = vec![c"NAME=value"; count];
            entries.insert(count / 2, c"LD_PRELOAD=libcounterpoint.so");
            assert_eq!(filtered(&entries).len(), count);
        }
    }

    #[test]
    fn lists_of_libraries_are_split_as_the_linker_does() {
        let environment = |entries: &[&CStr]| {
            let pointers: Vec<_> =
                entries.iter().map(|e| e.as_ptr()).chain([std::ptr::null()]).collect();
            // SAFETY: `pointers` contains C strings and ends with a null pointer.
            let brings = unsafe { Brings::read(pointers.as_ptr()) };
            (brings.library, brings.variables)
        };
        assert_eq!(environment(&[]), (false, false));
        assert_eq!(environment(&[c"LD_PRELOAD=a:b/libcounterpoint.so"]), (true, false));
        assert_eq!(environment(&[c"LD_PRELOAD=a", c"COUNTERPOINT_RUN_FILE=/r"]), (false, true));
        assert_eq!(environment(&[c"COUNTERPOINT_RUN_FILES=/r"]), (false, false));
    }
}
