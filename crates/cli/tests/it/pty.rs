//! Runs programs on a terminal.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, ExitStatus};

/// Opens a pseudoterminal. Returns the end that the test uses, and the end for the program.
pub fn open(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let null = std::ptr::null_mut();
    // SAFETY: the two descriptors and `size` outlive the call, and openpty takes null for the name
    // and the settings.
    let failed = unsafe { libc::openpty(&mut ours, &mut theirs, null, std::ptr::null(), &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `ours` and `theirs` were just opened, and nobody else has them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Returns how the command ended, and what the terminal received. Line ends become `\n`. Lines
/// about progress are left out, because they appear only on a slow machine.
pub fn shown(command: &mut Command, columns: u16) -> (ExitStatus, String) {
    let (mut ours, theirs) = open(columns);
    // By default, no pager is used, because nobody would end it.
    if !command.get_envs().any(|(name, _)| name == "COUNTERPOINT_PAGER") {
        command.env("COUNTERPOINT_PAGER", "");
    }
    // The program must not inherit the test's end of the terminal.
    //
    // SAFETY: fcntl takes numbers only, and `ours` keeps its descriptor open.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    // `command` must not keep the program's end of the terminal open, because then the loop below
    // would not end.
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match ours.read(&mut part) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The programs that had the terminal open have ended.
            Err(e) if e.raw_os_error() == Some(libc::EIO) => break,
            Err(e) => panic!("{e}"),
        }
    }
    let status = child.wait().unwrap();
    (status, without_progress(&String::from_utf8(bytes).unwrap().replace("\r\n", "\n")))
}

/// Commands write these bytes before a line about progress, and to remove the line.
pub const ERASE: &str = "\r\x1b[K";

pub fn without_progress(text: &str) -> String {
    let mut parts = text.split(ERASE);
    let first = parts.next().unwrap_or_default().to_owned();
    let is_progress = |part: &&str| part.starts_with("counterpoint: ") && !part.contains('\n');
    parts.filter(|part| !is_progress(part)).fold(first, |text, part| text + part)
}
