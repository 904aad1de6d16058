//! Asks a child about a plugin, which may do anything to it: write to its pipe, close the pipe and hang,
//! fork, or stop it.
//!
//! The child answers with one line and ends. It leads a group of processes, so that what the plugin has
//! started ends with it, unless it has left the group, also when a signal ends us, be it while the child is
//! started. Nothing waits for longer than the time that was given, and of the answer nothing is kept beyond
//! [`LONGEST_ANSWER`].

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::patient::Patient;
use crate::ending::Group;

/// Longer answers are not read. A plugin has some profilers with some kinds each, or some findings.
pub const LONGEST_ANSWER: u64 = 1 << 20;
/// How often a child that has not answered is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(50);
/// How often a child that has answered is asked whether it has ended. It ends at once.
const EACH: Duration = Duration::from_millis(2);

/// The result of a question.
pub enum Answer {
    /// What the child wrote until the end of the first line, or until it closed its pipe, and how it ended.
    Said { line: Vec<u8>, status: ExitStatus },
    /// More than [`LONGEST_ANSWER`].
    TooMuch,
    /// The child did not answer, or did not end, in time.
    TooLate,
}

/// Starts the child, and waits for its answer and its end, together for `patience`.
///
/// # Errors
/// It cannot be started, or the kernel does not tell about it.
pub fn to(command: &mut Command, patience: Duration) -> io::Result<Answer> {
    let deadline = Instant::now() + patience;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let (mut child, group) = Group::start(command)?;
    let asked = listen(&mut child, deadline);
    // Before the child is waited for, its number is not that of another process.
    drop(group);
    let status = child.wait()?;
    Ok(match asked? {
        Heard::Line(line) => Answer::Said { line, status },
        Heard::TooMuch => Answer::TooMuch,
        Heard::TooLate => Answer::TooLate,
    })
}

enum Heard {
    Line(Vec<u8>),
    TooMuch,
    TooLate,
}

fn listen(child: &mut Child, deadline: Instant) -> io::Result<Heard> {
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut line = Vec::new();
    let Some(pipe) = child.stdout.take() else { return Ok(Heard::TooLate) };
    let mut pipe = Patient::new(pipe);
    let (mut part, mut is_over) = (vec![0; 1 << 16], false);
    while line.last() != Some(&b'\n') {
        // A process that the child has forked may keep the pipe open after its end. All that it wrote is there by then.
        pipe.wait_at_most(if is_over { Duration::ZERO } else { left().min(LOOK) });
        match pipe.read(&mut part) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut && is_over => break,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                is_over = has_ended(child)?;
                if !is_over && left().is_zero() {
                    return Ok(Heard::TooLate);
                }
            }
            Err(error) => return Err(error),
        }
        if line.len() as u64 > LONGEST_ANSWER {
            return Ok(Heard::TooMuch);
        }
    }
    while !has_ended(child)? {
        if left().is_zero() {
            return Ok(Heard::TooLate);
        }
        std::thread::sleep(EACH.min(left()));
    }
    Ok(Heard::Line(line))
}

/// Whether the child has ended. It can still be waited for.
fn has_ended(child: &Child) -> io::Result<bool> {
    // SAFETY: a structure of integers.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the structure lives for the call.
    if unsafe { libc::waitid(libc::P_PID, child.id(), &mut about, how) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled it, or it is all zero.
    Ok(unsafe { about.si_pid() } != 0)
}
