//! Asks a child process about a plugin. The child's standard output is a pipe to this process. The
//! plugin may do anything in the child: write to the pipe, close the pipe and hang, fork, or stop
//! the child.
//!
//! The child answers with one line and ends. The child leads a process group. Once the child has
//! answered and ended, or this process gives up, this process kills the whole group. So processes
//! that the plugin has started end too, unless they have left the group.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::patient::Patient;
use crate::ending::Group;

/// The maximum number of bytes of an answer.
pub const LONGEST_ANSWER: u64 = 1 << 20;
/// The time between two checks whether a child without an answer has ended.
const LOOK: Duration = Duration::from_millis(50);
/// The time between two checks whether a child that has answered has ended. It is short, because
/// the child ends soon after its answer.
const EACH: Duration = Duration::from_millis(2);

pub enum Answer {
    /// The bytes that the child wrote until a read ended with a line break, or until the child
    /// ended; and the child's exit status.
    Said { line: Vec<u8>, status: ExitStatus },
    /// The child wrote more than [`LONGEST_ANSWER`] bytes.
    TooMuch,
    /// The child did not answer in time, or did not end in time.
    TooLate,
}

/// Starts a child and returns its answer. The answer and the end of the child together may take at
/// most `patience`.
///
/// # Errors
/// Returns an error if the child cannot be started, if its answer cannot be read, or if the
/// operating system does not report the child's state.
pub fn to(command: &mut Command, patience: Duration) -> io::Result<Answer> {
    let deadline = Instant::now() + patience;
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let (mut child, group) = Group::start(command)?;
    let asked = listen(&mut child, deadline);
    // The group is killed before `wait` frees the child's process id, which is also the group's id.
    // So this id cannot belong to another group yet.
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
        // A process that the child has forked may keep the pipe open after the child's end. By
        // then, all that the child wrote is in the pipe, so reads no longer wait.
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

/// Whether the child has ended. The child is not reaped, so the caller can still wait for it.
fn has_ended(child: &Child) -> io::Result<bool> {
    // SAFETY: `siginfo_t` consists of integers, for which zeros are values.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `about` outlives the call.
    if unsafe { libc::waitid(libc::P_PID, child.id(), &mut about, how) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `about` was filled by waitid, or consists of zeros, so the field that is read is set.
    Ok(unsafe { about.si_pid() } != 0)
}
