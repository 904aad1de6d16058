//! Finds the implementation of an indirect function (`STT_GNU_IFUNC`) that this machine uses.
//!
//! The symbol of such a function names code that chooses an implementation, once in each process.
//! For the libraries that are loaded here, the dynamic linker of this process makes the same choice
//! as in other processes on this processor. So the dynamic linker is asked for the function's
//! address. The only library that is loaded for this purpose is the libm of the C library. Other
//! files are not loaded, because naming a file must not run its code, so their implementations stay
//! unknown.
//!
//! A program with other `GLIBC_TUNABLES` than this process can choose another implementation.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::symbols::Function;

/// Returns the offset of the implementation in the file. Returns `None` for a file that is neither
/// loaded in this process nor the C library's libm.
pub(super) fn implementation(path: &Path, function: &Function) -> Option<u64> {
    let file = fs::canonicalize(path).ok()?;
    let loaded = mappings()?.into_iter().any(|m| m.path == file);
    if !loaded && !is_libm(&file, &mappings()?) {
        return None;
    }
    let address = chosen(&file, loaded, function)?;
    let all = mappings()?;
    let mapping = all.iter().find(|m| m.start <= address && address < m.end && m.path == file)?;
    (address - mapping.start).checked_add(mapping.offset)
}

fn is_libm(file: &Path, ours: &[Mapping]) -> bool {
    let name = |path: &Path| path.file_name().is_some_and(|name| name == "libm.so.6");
    name(file)
        && ours.iter().any(|m| m.path.ends_with("libc.so.6") && m.path.parent() == file.parent())
}

fn mappings() -> Option<Vec<Mapping>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    Some(maps.lines().filter_map(Mapping::parse).collect())
}

/// A line of `/proc/PID/maps` (proc(5)).
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: PathBuf,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        // The fields are permissions, offset, device, inode, and, after some spaces, the path.
        let mut fields = rest.splitn(5, ' ');
        let _permissions = fields.next()?;
        let offset = hex(fields.next()?)?;
        let path = fields.nth(2)?.trim_start();
        let absolute = path.starts_with('/');
        absolute.then(|| {
            Some(Self { start: hex(start)?, end: hex(end)?, offset, path: PathBuf::from(path) })
        })?
    }
}

/// Asks the dynamic linker for the function's address. `loaded` says that the file is already
/// loaded.
fn chosen(file: &Path, loaded: bool, function: &Function) -> Option<u64> {
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    let name = CString::new(function.name.as_str()).ok()?;
    let version = function.version.as_deref().map(CString::new).transpose().ok()?;
    let load = if loaded { libc::RTLD_NOLOAD } else { 0 };
    // SAFETY: `path` and the names are C strings that stay valid during the calls. The library is
    // loaded already, or is the C library's libm. It stays loaded, so that the mapping that
    // contains the returned address can be looked up.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NODELETE | load);
        if handle.is_null() {
            return None;
        }
        let address = match &version {
            Some(version) => with_version(handle, &name, version),
            None => libc::dlsym(handle, name.as_ptr()),
        };
        libc::dlclose(handle);
        (!address.is_null()).then_some(address as u64)
    }
}

/// # Safety
/// `handle` must be a handle that `dlopen` returned and that was not closed.
#[cfg(target_env = "gnu")]
unsafe fn with_version(
    handle: *mut libc::c_void,
    name: &std::ffi::CStr,
    version: &std::ffi::CStr,
) -> *mut libc::c_void {
    // SAFETY: `name` and `version` are C strings, and by contract dlopen returned `handle`.
    unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) }
}

/// # Safety
/// There are no conditions: on C libraries other than glibc, nothing is looked up by version.
#[cfg(not(target_env = "gnu"))]
unsafe fn with_version(
    _: *mut libc::c_void,
    _: &std::ffi::CStr,
    _: &std::ffi::CStr,
) -> *mut libc::c_void {
    std::ptr::null_mut()
}
