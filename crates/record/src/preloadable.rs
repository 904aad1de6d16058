//! Determines from a program's file whether the program can be started with our library (the agent)
//! in `LD_PRELOAD`.
//!
//! ```text
//!  file ──► #! line? ──► its interpreter, up to five times
//!       └─► ELF ──► class, machine ──► PT_INTERP ──► our own dynamic linker?   carries it, unless it
//!                                          │                                   needs a sanitizer
//!                                          │ none      another glibc's?        libc.so.6 beside it:
//!                                          ▼                                   new enough?
//!                                       static         anything else           another libc
//! ```
//!
//! The dynamic linkers of musl and of a glibc before 2.17 refuse to start a program with our
//! library in `LD_PRELOAD`. So `counterpoint run` and the agent examine each program before they
//! start it.
//!
//! The agent also calls this code between `vfork` and `exec`. So it does not allocate, take locks,
//! or call a library function that could do either. It uses about 12 KiB of stack and, for most
//! programs, a few dozen system calls. The caller must preserve `errno`. Decisions that only the
//! kernel makes (binfmt_misc, security modules) are not predicted.

use std::ffi::{CStr, c_char, c_int, c_long};

use model::Loss;

mod elf;

use elf::{Header, PT_INTERP};

/// How a program reacts to our library in `LD_PRELOAD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The program loads the library, its file cannot be read to find out, or `exec` will refuse
    /// the file.
    Able,
    /// The program has no dynamic linker, so it ignores the library.
    Static,
    /// The program gets more rights than its user has, so its dynamic linker ignores the library.
    Privileged,
    /// The program's dynamic linker does not belong to glibc.
    OtherLibc,
    /// The program's glibc is older than 2.17 or of an unknown version.
    OldGlibc,
    /// The program is for another processor architecture or word size.
    OtherMachine,
    /// The program uses a sanitizer, which ends the program if our library is loaded before the
    /// sanitizer's library.
    Sanitized,
}

impl Carrier {
    /// Returns the loss to count if the program cannot be recorded.
    pub fn loss(self) -> Option<Loss> {
        match self {
            Self::Able => None,
            Self::Static => Some(Loss::ChildStatic),
            Self::Privileged => Some(Loss::ChildPrivileged),
            Self::OtherLibc => Some(Loss::ChildOtherLibc),
            Self::OldGlibc => Some(Loss::ChildOldGlibc),
            Self::OtherMachine => Some(Loss::ChildOtherMachine),
            Self::Sanitized => Some(Loss::ChildSanitized),
        }
    }

    /// Returns whether our library must be removed from `LD_PRELOAD` in the program's environment.
    /// With our library, a program that refuses it would not start, or would print a complaint.
    pub fn refuses(self) -> bool {
        matches!(self, Self::OtherLibc | Self::OldGlibc | Self::OtherMachine | Self::Sanitized)
    }
}

/// The symbol version that a program's `libc.so.6` must define so that our library can be loaded.
const FLOOR: &[u8] = b"GLIBC_2.17";
const FLOOR_MINOR: u32 = 17;
/// A symbol version that every dynamic linker of glibc defines, and no dynamic linker of another C
/// library.
const GLIBCS_OWN: &[u8] = b"GLIBC_PRIVATE";
/// Maximum number of nested `#!` lines that the kernel follows.
const DEEPEST: u32 = 5;
/// Number of bytes that the kernel reads to find `#!`.
const START_BYTES: usize = 256;
const PATH_BYTES: usize = 4096;

/// Examines the program at `path`. A relative path begins at the open directory `at` (a file
/// descriptor, or `AT_FDCWD`).
pub fn examine(at: c_int, path: &CStr) -> Carrier {
    let mut start = [0u8; START_BYTES];
    let Some(mut file) = File::open(at, path) else { return Carrier::Able };
    if !file.is_readable() {
        // Some systems install `sudo` as executable but not readable.
        return if file.gains_rights() { Carrier::Privileged } else { Carrier::Able };
    }
    let mut length = file.read(0, &mut start);
    for _ in 0..DEEPEST {
        if start.get(..2) != Some(b"#!") {
            break;
        }
        let Some(interpreter) = script_interpreter(&mut start, length) else {
            return Carrier::Able;
        };
        let Some(next) = File::open(libc::AT_FDCWD, interpreter) else { return Carrier::Able };
        file = next;
        length = file.read(0, &mut start);
    }
    if start.get(..4) == Some(b"\x7fELF") {
        return examine_elf(&file, &start);
    }
    // The file is not an ELF file and, unless too many `#!` lines are nested, has no `#!` line.
    // `execve` refuses a file with neither, but shells and `execvp` run it with /bin/sh.
    match File::open(libc::AT_FDCWD, c"/bin/sh") {
        Some(shell) if shell.read(0, &mut start) > 0 && start.get(..4) == Some(b"\x7fELF") => {
            examine_elf(&shell, &start)
        }
        _ => Carrier::Able,
    }
}

/// Returns the path in a `#!` line, found as the kernel finds it (fs/binfmt_script.c).
fn script_interpreter(start: &mut [u8; START_BYTES], length: usize) -> Option<&CStr> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let line = start.get_mut(2..length)?;
    let from = line.iter().position(|b| !blank(b))?;
    let word = line.get_mut(from..)?;
    let end = word.iter().position(|b| blank(b) || matches!(b, b'\n' | 0))?;
    *word.get_mut(end)? = 0;
    if end == 0 {
        return None;
    }
    CStr::from_bytes_until_nul(word).ok()
}

fn examine_elf(file: &File, start: &[u8; START_BYTES]) -> Carrier {
    let Some(header) = Header::read(start) else { return Carrier::OtherMachine };
    let mut interpreter = [0u8; PATH_BYTES];
    let Some(named) = header.interpreter(file, &mut interpreter) else {
        // The dynamic linker itself may be started as a program. Then it also loads the libraries
        // in `LD_PRELOAD`.
        return if is_glibcs(file, &header) { by_libc(file, &header) } else { Carrier::Static };
    };
    if file.gains_rights() {
        return Carrier::Privileged;
    }
    let Some(linker) = File::open(libc::AT_FDCWD, named) else { return Carrier::Able };
    let by_linker = match linker.is_our_own() {
        true => Carrier::Able,
        false => {
            let mut start = [0u8; START_BYTES];
            linker.read(0, &mut start);
            match Header::read(&start) {
                Some(header) if is_glibcs(&linker, &header) => by_libc(&linker, &header),
                _ => Carrier::OtherLibc,
            }
        }
    };
    if by_linker == Carrier::Able && insists_on_being_first(file, &header) {
        return Carrier::Sanitized;
    }
    by_linker
}

/// Returns whether the program uses a shared runtime of AddressSanitizer that ends the program if
/// our library is loaded before the runtime. Our library asks the runtime to go on
/// (`__asan_default_options` in the agent). The request has no effect if the program defines
/// `__asan_default_options` itself. It also has no effect on runtimes older than that of GCC 8
/// (`libasan.so.5`).
#[inline(never)]
fn insists_on_being_first(file: &File, header: &Header) -> bool {
    let (mut has_runtime, mut is_old) = (false, false);
    header.any_needed(file, |name| {
        let gcc = name.strip_prefix(b"libasan.so.");
        has_runtime |= gcc.is_some() || name.starts_with(b"libclang_rt.asan");
        is_old |= matches!(gcc, Some([b'0'..=b'4']));
        is_old
    });
    is_old || has_runtime && header.names_symbol(file, b"__asan_default_options")
}

fn is_glibcs(linker: &File, header: &Header) -> bool {
    header.defines_version(linker, GLIBCS_OWN)
}

/// Determines whether the linker's glibc is new enough. The symbol versions of the `libc.so.6` in
/// the linker's directory decide. Without such a file, the file name of the linker decides: before
/// glibc 2.34, it contained the version. If the file name contains no version, the symbol versions
/// of the linker decide.
#[inline(never)]
fn by_libc(linker: &File, header: &Header) -> Carrier {
    let mut path = [0u8; PATH_BYTES];
    let Some(length) = linker.real_path(&mut path) else { return Carrier::OldGlibc };
    let name_at = path[..length].iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let minor = minor_version(&path[name_at..length]);
    let beside = b"libc.so.6\0";
    let found = path.get_mut(name_at..name_at + beside.len()).is_some_and(|place| {
        place.copy_from_slice(beside);
        true
    });
    let libc = CStr::from_bytes_until_nul(&path).ok().filter(|_| found);
    let libc = libc.and_then(|libc| File::open(libc::AT_FDCWD, libc));
    let able = match (libc, minor) {
        (Some(libc), _) => {
            let mut start = [0u8; START_BYTES];
            libc.read(0, &mut start);
            Header::read(&start).is_some_and(|header| header.defines_version(&libc, FLOOR))
        }
        (None, Some(minor)) => minor >= FLOOR_MINOR,
        (None, None) => header.defines_version(linker, b"GLIBC_2.35"),
    };
    if able { Carrier::Able } else { Carrier::OldGlibc }
}

/// Returns the minor version in the name of a dynamic linker: 12 for `ld-2.12.so`.
fn minor_version(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(b"ld-2.")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// A regular file that is examined. It is open if it can be read.
struct File {
    fd: c_int,
    stat: libc::stat,
}

impl File {
    /// Opens a file. Returns `None` if `stat` fails or the file is not a regular file: opening
    /// another kind of file can block or have side effects.
    fn open(at: c_int, path: &CStr) -> Option<Self> {
        // SAFETY: `stat` consists of integers, for which zeros are valid values.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        call(libc::SYS_newfstatat, [at.into(), address(path.as_ptr()), address(&raw mut stat), 0])?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let fd = call(libc::SYS_openat, [at.into(), address(path.as_ptr()), flags.into(), 0]);
        Some(Self { fd: fd.map_or(-1, |fd| fd as c_int), stat })
    }

    fn is_readable(&self) -> bool {
        self.fd >= 0
    }

    /// Reads bytes from offset `at` on, and returns how many were read.
    fn read(&self, at: u64, to: &mut [u8]) -> usize {
        let (start, length) = (address(to.as_mut_ptr()), to.len() as c_long);
        let read = call(libc::SYS_pread64, [self.fd.into(), start, length, at as c_long]);
        read.map_or(0, |count| count as usize)
    }

    /// Stores the file's path in `to`, with links resolved, and returns the path's length. Needs
    /// `/proc`.
    fn real_path(&self, to: &mut [u8; PATH_BYTES]) -> Option<usize> {
        let link = link_of(self.fd);
        let room = PATH_BYTES as c_long - 16;
        let (name, place) = (address(link.as_ptr()), address(to.as_mut_ptr()));
        let length = call(libc::SYS_readlinkat, [libc::AT_FDCWD.into(), name, place, room])?;
        Some(length as usize)
    }

    /// Returns whether this file is the dynamic linker of the program in which this code runs.
    fn is_our_own(&self) -> bool {
        let Some(path) = own_interpreter() else { return false };
        // SAFETY: `stat` consists of integers, for which zeros are valid values.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let place = address(&raw mut stat);
        let found = call(libc::SYS_newfstatat, [libc::AT_FDCWD.into(), address(path), place, 0]);
        found.is_some() && (stat.st_dev, stat.st_ino) == (self.stat.st_dev, self.stat.st_ino)
    }

    /// Returns whether the kernel will set `AT_SECURE` if this process executes the file, for
    /// example because of a set-user-id bit (security/commoncap.c).
    fn gains_rights(&self) -> bool {
        // SAFETY: both calls have no preconditions.
        let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
        // SAFETY: both calls have no preconditions.
        let (mut new_user, mut new_group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let capable = || {
            let name = c"security.capability".as_ptr();
            user != 0
                && call(libc::SYS_fgetxattr, [self.fd.into(), address(name), 0, 0])
                    .is_some_and(|bytes| bytes > 0)
        };
        let mode = self.stat.st_mode;
        let for_group = libc::S_ISGID | libc::S_IXGRP;
        let marked = mode & libc::S_ISUID != 0 || mode & for_group == for_group;
        let may_gain = (marked || capable()) && !self.gains_nothing();
        if may_gain && mode & libc::S_ISUID != 0 {
            new_user = self.stat.st_uid;
        }
        if may_gain && mode & for_group == for_group {
            new_group = self.stat.st_gid;
        }
        new_user != user || new_group != group || (may_gain && capable())
    }

    /// Returns whether the file's set-user-id and set-group-id bits and its capabilities have no
    /// effect: its file system is mounted with `nosuid`, or this process has set `no_new_privs`.
    fn gains_nothing(&self) -> bool {
        // The kernel's `statfs` struct of 64-bit machines has fifteen words; `f_flags` is the
        // eleventh.
        let mut system = [0u64; 15];
        let place = address(system.as_mut_ptr());
        let known = call(libc::SYS_fstatfs, [self.fd.into(), place, 0, 0]).is_some();
        let no_new = call(libc::SYS_prctl, [libc::PR_GET_NO_NEW_PRIVS.into(), 0, 0, 0]);
        known && system[10] & libc::ST_NOSUID != 0 || no_new == Some(1)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.is_readable() {
            return;
        }
        call(libc::SYS_close, [self.fd.into(), 0, 0, 0]);
    }
}

/// Returns `/proc/self/fd/N` with a terminating zero.
pub fn link_of(fd: c_int) -> [u8; 32] {
    let mut path = [0u8; 32];
    let prefix = b"/proc/self/fd/";
    path[..prefix.len()].copy_from_slice(prefix);
    let (mut number, mut digits) = (fd.max(0), [0u8; 10]);
    let mut count = 0;
    loop {
        digits[count] = b'0' + (number % 10) as u8;
        number /= 10;
        count += 1;
        if number == 0 {
            break;
        }
    }
    for (place, digit) in path[prefix.len()..].iter_mut().zip(digits[..count].iter().rev()) {
        *place = *digit;
    }
    path
}

/// Returns the path of the dynamic linker of this program, a string in the program's memory. `None`
/// in a static program.
fn own_interpreter() -> Option<*const c_char> {
    // SAFETY: `getauxval` reads values that the kernel passed. `AT_PHDR` is the address of the
    // program headers, which stay mapped. Its difference from the address in PT_PHDR is the load
    // offset, which is added to the address in PT_INTERP.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as usize;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers == 0 || libc::getauxval(libc::AT_PHENT) != size_of::<libc::Elf64_Phdr>() as u64 {
            return None;
        }
        let all = std::slice::from_raw_parts(headers as *const libc::Elf64_Phdr, count);
        let own = all.iter().find(|h| h.p_type == libc::PT_PHDR)?;
        let bias = headers.wrapping_sub(own.p_vaddr as usize);
        let interpreter = all.iter().find(|h| h.p_type == PT_INTERP)?;
        Some(bias.wrapping_add(interpreter.p_vaddr as usize) as *const c_char)
    }
}

fn address<T>(pointer: *const T) -> c_long {
    pointer as c_long
}

/// Makes a system call with `syscall`, because the C library's function for that system call could
/// be a cancellation point.
fn call(number: c_long, a: [c_long; 4]) -> Option<c_long> {
    // SAFETY: each use passes the arguments that its system call documents, with pointers that
    // outlive the call.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], 0 as c_long) };
    (result >= 0).then_some(result)
}
