//! Which programs can carry the preloaded library, told from their files before they start.
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
//! A library in `LD_PRELOAD` that a program cannot load is more than a loss: musl's dynamic linker
//! and that of an older glibc refuse to start the program. So `run` and the agent look first.
//!
//! Called between `vfork` and `exec` too: no allocation, no lock, no library call that could have
//! either, about 6 KiB of stack, and some dozen system calls. `errno` is the caller's to
//! keep. What the kernel alone decides (binfmt_misc, security modules) is not seen.

use std::ffi::{CStr, c_char, c_int, c_long};

use model::Loss;

mod elf;

use elf::{Header, PT_INTERP};

/// What a program is to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// It loads the library. Also what is not a program at all, which `exec` will refuse.
    Able,
    /// No dynamic linker: starts, and ignores the library.
    Static,
    /// More rights than its user: its dynamic linker ignores the library and forgets it.
    Privileged,
    /// A dynamic linker that is not glibc's.
    OtherLibc,
    /// A glibc older than 2.17, or of an unknown version.
    OldGlibc,
    /// Another processor or word size.
    OtherMachine,
    /// A sanitizer that ends the program when a library comes before it.
    Sanitized,
}

impl Carrier {
    /// How its not being recorded is counted.
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

    /// Whether the library must not be in its environment: it would not start, or complain. The
    /// others start as they would without it.
    pub fn refuses(self) -> bool {
        matches!(self, Self::OtherLibc | Self::OldGlibc | Self::OtherMachine | Self::Sanitized)
    }
}

/// The version that glibc's own `libc.so.6` defines if the library can run on it.
const FLOOR: &[u8] = b"GLIBC_2.17";
const FLOOR_MINOR: u32 = 17;
/// A version that every glibc's dynamic linker defines, and nothing else does.
const GLIBCS_OWN: &[u8] = b"GLIBC_PRIVATE";
/// How many `#!` lines the kernel follows.
const DEEPEST: u32 = 5;
/// As much of a file as the kernel looks at for `#!`.
const START_BYTES: usize = 256;
const PATH_BYTES: usize = 4096;

/// Looks at the program at `path`, relative to the directory `at` (or `AT_FDCWD`).
pub fn examine(at: c_int, path: &CStr) -> Carrier {
    let mut start = [0u8; START_BYTES];
    let Some(mut file) = File::open(at, path) else { return Carrier::Able };
    if !file.is_readable() {
        // May still be executed: `sudo` is installed like this on some systems.
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
    // Neither: shells and `execvp` have /bin/sh read it, and `execve` refuses it.
    match File::open(libc::AT_FDCWD, c"/bin/sh") {
        Some(shell) if shell.read(0, &mut start) > 0 && start.get(..4) == Some(b"\x7fELF") => {
            examine_elf(&shell, &start)
        }
        _ => Carrier::Able,
    }
}

/// The path in a `#!` line, cut out of the start of the file as the kernel does
/// (fs/binfmt_script.c): blanks around it, then an argument or the end of the line.
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
        // The dynamic linker itself, started as a program, loads what its environment says.
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

/// Whether the program needs a shared runtime of AddressSanitizer that ends it because we come
/// first. The library asks it not to (`__asan_default_options` in the agent), which does not help
/// where the program has options of its own, or where the runtime is older than that option (GCC 8,
/// whose runtime is `libasan.so.5`).
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

/// Whether the glibc that `linker` is part of is new enough: by the `libc.so.6` beside it, else by
/// its own name, which had the version in it before 2.34, else by what it defines since.
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

/// 12 of `ld-2.12.so`.
fn minor_version(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(b"ld-2.")?;
    let end = digits.iter().position(|b| !b.is_ascii_digit())?;
    std::str::from_utf8(digits.get(..end)?).ok()?.parse().ok()
}

/// A regular file, open for the length of the look.
struct File {
    fd: c_int,
    stat: libc::stat,
}

impl File {
    /// `None` for what is not there or not a regular file. Nothing but a regular file is opened:
    /// that can block, or do something.
    fn open(at: c_int, path: &CStr) -> Option<Self> {
        // SAFETY: an all-zero `stat` is a valid value to be overwritten.
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

    /// How many bytes came.
    fn read(&self, at: u64, to: &mut [u8]) -> usize {
        let (start, length) = (address(to.as_mut_ptr()), to.len() as c_long);
        let read = call(libc::SYS_pread64, [self.fd.into(), start, length, at as c_long]);
        read.map_or(0, |count| count as usize)
    }

    /// Its path without links, as long as `/proc` is there.
    fn real_path(&self, to: &mut [u8; PATH_BYTES]) -> Option<usize> {
        let link = link_of(self.fd);
        let room = PATH_BYTES as c_long - 16;
        let (name, place) = (address(link.as_ptr()), address(to.as_mut_ptr()));
        let length = call(libc::SYS_readlinkat, [libc::AT_FDCWD.into(), name, place, room])?;
        Some(length as usize)
    }

    /// Whether this is the dynamic linker that the calling program was started with.
    fn is_our_own(&self) -> bool {
        let Some(path) = own_interpreter() else { return false };
        // SAFETY: an all-zero `stat` is a valid value to be overwritten.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let place = address(&raw mut stat);
        let found = call(libc::SYS_newfstatat, [libc::AT_FDCWD.into(), address(path), place, 0]);
        found.is_some() && (stat.st_dev, stat.st_ino) == (self.stat.st_dev, self.stat.st_ino)
    }

    /// Whether a process that executes it gets rights that its user lacks (`AT_SECURE`,
    /// security/commoncap.c).
    fn gains_rights(&self) -> bool {
        // SAFETY: no arguments, cannot fail.
        let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
        // SAFETY: as above.
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

    /// The file system or the process says that marks of more rights mean nothing.
    fn gains_nothing(&self) -> bool {
        // The kernel's `statfs` of 64-bit machines: fifteen words, `f_flags` the eleventh.
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

/// `/proc/self/fd/N`, terminated.
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

/// The path of the dynamic linker that the kernel started this program with, in the program's own
/// memory. `None` in a static one.
fn own_interpreter() -> Option<*const c_char> {
    // SAFETY: `getauxval` reads what the kernel passed; the program headers that it names stay
    // mapped, and their addresses are relative to where PT_PHDR says that they are themselves.
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

/// A system call that is not a cancellation point.
fn call(number: c_long, a: [c_long; 4]) -> Option<c_long> {
    // SAFETY: each use passes what its system call documents; pointers outlive the call.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], 0 as c_long) };
    (result >= 0).then_some(result)
}
