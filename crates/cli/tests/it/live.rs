//! Tests `run --live` on pseudo-terminals, and that it refuses to run without a terminal.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::Scratch;

use crate::pty;
use crate::support::{Iree, counterpoint};

/// A command on a pseudo-terminal. `shown` is what the terminal has received so far.
struct Session {
    ours: File,
    theirs: OwnedFd,
    child: Child,
    shown: String,
}

impl Session {
    fn start(command: &mut Command, columns: u16) -> Self {
        let (ours, theirs) = pty::open(columns);
        // SAFETY: fcntl takes numbers only, and `ours` keeps its descriptor open.
        unsafe {
            libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(ours.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        }
        let of = || theirs.try_clone().unwrap();
        command.stdin(of()).stdout(of()).stderr(of());
        // The program gets a session of its own, so that pressed keys become signals for it.
        let setup = || {
            // SAFETY: the calls take numbers only, and change the child in which they run.
            let done = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec, `setup` only makes system calls.
        unsafe { std::os::unix::process::CommandExt::pre_exec(command, setup) };
        let child = command.spawn().unwrap();
        Self { ours, theirs, child, shown: String::new() }
    }

    fn read(&mut self) {
        let mut part = [0; 65_536];
        match self.ours.read(&mut part) {
            Ok(n) => self.shown.push_str(&String::from_utf8_lossy(&part[..n])),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits until `text` occurs in `shown` after position `from`. Returns the position after
    /// `text`.
    fn until(&mut self, from: usize, text: &str) -> usize {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.shown[from..].find(text) {
                return from + at + text.len();
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "no {text:?} in {:?}", self.shown);
            self.read();
        }
    }

    fn settings(&self) -> (libc::tcflag_t, [libc::cc_t; 32]) {
        // SAFETY: `termios` consists of integers, so zeros are a valid value of it, and `settings`
        // outlives the call.
        unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.theirs.as_raw_fd(), &mut settings), 0);
            (settings.c_lflag, settings.c_cc)
        }
    }

    fn size(&self, columns: u16, lines: u16) {
        let size = libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: `size` outlives the call.
        assert_eq!(unsafe { libc::ioctl(self.ours.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
    }

    fn end(&mut self) -> std::process::ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                (0..3).for_each(|_| self.read());
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", self.shown);
            self.read();
        }
    }
}

/// A Python program that executes an IREE module again and again, until the file that its second
/// argument names exists.
const PROGRAM: &str = r#"
import os, sys, time
import numpy as np
import iree.runtime as rt
config = rt.Config("local-task")
context = rt.SystemContext(config=config)
context.add_vm_module(rt.VmModule.mmap(context.instance, sys.argv[1]))
x = np.ones((64, 784), dtype=np.float32)
print("line of the program", sys.stdin.isatty(), sys.stdout.isatty(), flush=True)
while not os.path.exists(sys.argv[2]):
    context.modules.module["mlp"](x).to_host()
    time.sleep(0.002)
print("the program has ended", flush=True)
sys.exit(7)
"#;

struct Setup {
    scratch: Scratch,
    command: Command,
    stop: std::path::PathBuf,
}

fn setup(test: &str, options: &[&str]) -> Option<Setup> {
    let (program, iree) = (counterpoint(test)?, Iree::new(test)?);
    let scratch = Scratch::new();
    let script = scratch.join("p.py");
    std::fs::write(&script, PROGRAM).unwrap();
    let stop = scratch.join("stop");
    let mut command = Command::new(program);
    command.args(["run", "--live", "-e", "none", "-o"]).arg(scratch.join("x.cpt")).args(options);
    command.arg("--").arg(iree.tool("python")).arg(script);
    command.arg(iree.module("mlp", false)).arg(&stop);
    Some(Setup { scratch, command, stop })
}

fn calls(dir: &Path) -> u64 {
    profile::Profile::open(dir).unwrap().calls()
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn the_view_is_refreshed_and_left_by_q() {
    let Some(mut of) = setup("live", &[]) else { return };
    let mut session = Session::start(&mut of.command, 100);
    let before = session.settings();
    let entered = session.until(0, ENTER);
    let first = session.until(entered, "_matmul_64x256x784_f32");
    assert_ne!(session.settings(), before);
    // The terminal becomes smaller, and the next view must fit into it.
    let second = session.until(first, "_matmul_64x256x784_f32");
    session.size(50, 8);
    let small = session.until(second, "\x1b[H");
    let small = session.until(small, "\x1b[J");
    let last = session.shown[..small].rfind("\x1b[H").unwrap();
    let lines: Vec<String> = session.shown[last..small]
        .split("\r\n")
        .map(|line| line.replace("\x1b[H", "").replace("\x1b[K", "").replace("\x1b[J", ""))
        .map(|line| line.trim_end_matches('\r').to_owned())
        .collect();
    assert!(lines.len() <= 8, "{lines:?}");
    let plain = |line: &String| line.replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert!(lines.iter().all(|line| plain(line).chars().count() <= 50), "{lines:?}");
    // The program's output appears when the user leaves the live view.
    assert!(!session.shown.contains("line of the program"));
    session.ours.write_all(b"xq").unwrap();
    let left = session.until(small, LEAVE);
    session.until(left, "line of the program False False");
    assert_eq!(session.settings(), before);
    assert!(session.child.try_wait().unwrap().is_none());
    std::fs::write(&of.stop, "").unwrap();
    assert_eq!(session.end().code(), Some(7), "{}", session.shown);
    session.until(left, "the program has ended");
    assert_eq!(session.shown.matches(ENTER).count(), 1);
    assert_eq!(session.shown.matches("line of the program").count(), 1);
    let of_one_run = 48u64;
    let calls = calls(&of.scratch.join("x.cpt"));
    assert!(calls > 0 && calls.is_multiple_of(of_one_run), "{calls}");
}

#[test]
fn ctrl_c_ends_the_program() {
    let Some(mut of) = setup("live", &["-q"]) else { return };
    let mut session = Session::start(&mut of.command, 80);
    let before = session.settings();
    session.until(0, "_matmul_");
    session.ours.write_all(b"\x03").unwrap();
    let status = session.end();
    // Python prints the exception, and ends by SIGINT.
    assert!(session.shown.contains("KeyboardInterrupt"), "{}", session.shown);
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert!(signal == Some(libc::SIGINT) || status.code() == Some(130), "{status:?}");
    let left = session.shown.find(LEAVE).unwrap();
    assert!(session.shown[..left].find("KeyboardInterrupt").is_none());
    assert_eq!(session.settings(), before);
    assert!(calls(&of.scratch.join("x.cpt")) > 0);
}

#[test]
fn a_program_that_ends_at_once_and_no_terminal() {
    let Some(program) = counterpoint("live") else { return };
    let scratch = Scratch::new();
    let run = |dir: &str| {
        let mut command = Command::new(&program);
        command.args(["run", "--live", "-e", "none", "-o"]).arg(scratch.join(dir));
        command.args(["--", "echo", "one line"]);
        command
    };
    let (status, shown) = pty::shown(&mut run("a.cpt"), 80);
    assert!(status.success(), "{shown}");
    assert_eq!(shown.matches("one line").count(), 1, "{shown}");
    if let Some(left) = shown.find(LEAVE) {
        assert!(shown.find("one line").unwrap() > left, "{shown:?}");
    }
    let output = run("b.cpt").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("neither stdout nor stderr is a terminal"), "{said}");
    assert!(output.stdout.is_empty() && !scratch.join("b.cpt").exists());
}
