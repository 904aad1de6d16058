//! Finds out what a recording depends on: the path of the recorder's shared library, a directory
//! for the pool (the file in memory for the records), the clock, and the time that counters add to
//! a context switch.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use counters::Plan;
use machine::Machine;
use model::Counter;
use profile::manifest::SwitchCost;
use profile::pools::{POOL_NAME, SHARED_MEMORY, directory_name, places, user};
use record::ClockKind;

use crate::failure::Failure;

const LIBRARY: &str = "libcounterpoint.so";

pub fn library_places() -> std::io::Result<[PathBuf; 2]> {
    // Linux has resolved the symbolic links in this path.
    let program = std::env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let above = beside.parent().unwrap_or(Path::new("/"));
    Ok([above.join("lib").join(LIBRARY), beside.join(LIBRARY)])
}

pub(super) fn library() -> Result<PathBuf, Failure> {
    let places = library_places()
        .map_err(|e| Failure::new(format!("find the path of this program: {e}")))?;
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Failure::new(format!("found neither {} nor {}", places[0].display(), places[1].display()))
            .hint("`cargo xtask dist` builds both into dist/; copy that folder as a whole")
    })
}

/// Returns the new value of `LD_PRELOAD`: the library, followed by the present value. The dynamic
/// linker splits the value at colons and spaces, so a library path with a colon or white space is
/// replaced by the path of a symbolic link.
pub(super) fn preload(library: &Path, pool_directory: &Path) -> Result<OsString, Failure> {
    let awkward = |path: &Path| path.to_string_lossy().contains([' ', ':', '\t', '\n']);
    let mut value = if awkward(library) {
        let link = pool_directory.join("libcounterpoint.so");
        std::os::unix::fs::symlink(library, &link)
            .map_err(|e| Failure::new(format!("link {}: {e}", link.display())))?;
        link.into_os_string()
    } else {
        library.as_os_str().to_owned()
    };
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// Returns a directory for the pool. The pool should be on a memory file system: writes cause no
/// page faults there once the pool's pages are present. Otherwise, the pool is in the profile's
/// directory, and the second result may be a warning.
pub(super) fn pool_directory(profile: &Path) -> (PathBuf, Option<String>) {
    for base in places(user()) {
        // Everybody can write to `/dev/shm`, but its sticky bit keeps other users from replacing
        // the pool.
        let is_safe = base == Path::new(SHARED_MEMORY) || is_private(&base);
        if is_safe && is_memory(&base) && is_writable(&base) {
            return (base.join(directory_name()), None);
        }
    }
    let note = if is_memory(profile) {
        None
    } else {
        Some(
            "no writable memory file system (/dev/shm): the recorder's own page faults may be \
             counted as the program's"
                .to_owned(),
        )
    };
    (profile.join(POOL_NAME), note)
}

fn is_memory(path: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: `statfs` consists of integers, for which zeros are values.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string, and `stat` lives longer than the call.
    let known = unsafe { libc::statfs(path.as_ptr(), &mut stat) } == 0;
    known && matches!(stat.f_type as i64, TMPFS | RAMFS)
}

/// Whether only this user can replace files in the directory. `XDG_RUNTIME_DIR` may belong to
/// another user (after `su`), who could replace the pool or the link to the preloaded library.
fn is_private(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.uid() == user() && found.mode() & 0o022 == 0)
}

fn is_writable(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a C string that lives longer than the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Chooses the clock, once in this process.
pub(super) fn choose_clock(machine: &Machine) -> ClockKind {
    static CHOSEN: OnceLock<ClockKind> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let clocksource = machine
            .read_trimmed("sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default();
        ClockKind::choose(&clocksource)
    })
}

/// Measures the time that the counters add to each context switch. This takes 5 ms, so it is done
/// before the program starts.
pub(super) fn switch_cost(counters: &[Counter]) -> Option<SwitchCost> {
    let plan = Plan::new(counters.to_vec()).ok()?;
    machine::switches::measure(&plan).map(|found| SwitchCost {
        switches: found.switches,
        bare_ns: found.bare_ns,
        added_ns: found.added_ns,
        added_range_ns: found.added_range_ns,
    })
}
