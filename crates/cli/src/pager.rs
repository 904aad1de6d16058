//! Starts a pager for commands that print text for people (for example `report`), as git does.
//!
//! The pager is named by `COUNTERPOINT_PAGER`, or else `PAGER`, or else the user's own
//! `counterpoint.toml` (not a project's). Otherwise it is `less`, if that is installed and `TERM`
//! is set and not `dumb`. An empty name or `cat` means no pager. A shell starts the pager, so its
//! name may contain arguments.
//!
//! Unless `LESS` is set already, it is set to `FRX`: `less` ends at once if the text fits on the
//! screen, shows colours, and leaves the text on the screen. The text is written as for a terminal
//! ([`terminal::is_paged`]): escape sequences in recorded names are replaced, because `less -R`
//! would pass some of them on to the terminal.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::config::{self, Key};
use crate::terminal::{self, say};

/// With these options, the output goes to a file, so no pager is started.
const NOT_READ: [&str; 2] = ["--html", "--output"];

pub struct Pager {
    child: Child,
    name: String,
}

/// The process id of the pager, for the handler of SIGINT; 0 without a pager.
static PAGER: AtomicI32 = AtomicI32::new(0);

/// Starts the pager and connects stdout to it. Returns `None` if no pager is used.
pub fn begin() -> Option<Pager> {
    let columns = terminal::known_width()?;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let goes_elsewhere = |word: std::ffi::OsString| {
        let word = word.to_string_lossy().into_owned();
        NOT_READ.iter().any(|option| word.starts_with(option))
    };
    if std::env::args_os().skip(1).any(goes_elsewhere) {
        return None;
    }
    let variable = |name: &str| {
        let set = || config::text(Key::Pager).filter(|_| name == "PAGER").map(str::to_owned);
        std::env::var(name).ok().or_else(set)
    };
    let name = chosen(&variable, is_installed)?;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &name]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let mut child = command.spawn().ok()?;
    let pipe = child.stdin.take()?;
    // SAFETY: dup2 takes two open descriptors. Nothing else in this process owns the descriptor of
    // stdout.
    let moved = unsafe { libc::dup2(pipe.as_raw_fd(), libc::STDOUT_FILENO) };
    if moved < 0 {
        drop(pipe);
        let _ = child.wait();
        return None;
    }
    terminal::is_paged(columns);
    PAGER.store(child.id().cast_signed(), Ordering::SeqCst);
    // The terminal sends SIGINT to the pager and to this process. The pager treats SIGINT as one of
    // its own commands, and still needs the output of this process. So the signal ends both only if
    // nothing has been written yet.
    extern "C" fn interrupted(signal: libc::c_int) {
        if terminal::has_begun() {
            return;
        }
        let pager = PAGER.load(Ordering::SeqCst);
        // SAFETY: the calls are async-signal-safe. `PAGER` is set to 0 right after the child was
        // waited for; for `kill`, 0 would mean the whole process group.
        unsafe {
            if pager > 0 {
                libc::kill(pager, libc::SIGTERM);
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    // SAFETY: `interrupted` has the type of a handler and only makes async-signal-safe calls.
    unsafe { libc::signal(libc::SIGINT, interrupted as *const () as libc::sighandler_t) };
    Some(Pager { child, name })
}

/// Returns the pager's command; `None` for no pager. `variable` reads the environment and, for
/// `PAGER`, the user's configuration.
fn chosen(
    variable: &dyn Fn(&str) -> Option<String>,
    is_installed: impl Fn(&str) -> bool,
) -> Option<String> {
    let named = variable("COUNTERPOINT_PAGER").or_else(|| variable("PAGER"));
    let name = match named {
        Some(name) => name.trim().to_owned(),
        None if is_installed("less") && variable("TERM").is_some_and(|term| term != "dumb") => {
            "less".to_owned()
        }
        None => return None,
    };
    (!name.is_empty() && name != "cat").then_some(name)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .any(|folder| folder.is_absolute() && folder.join(program).is_file())
}

impl Pager {
    /// Closes the pipe, and waits until the pager has ended. Returns `code`, or 2 if the pager
    /// could not be started.
    pub fn end(mut self, code: ExitCode) -> ExitCode {
        let _ = std::io::stdout().flush();
        if let Ok(nothing) = std::fs::File::open("/dev/null") {
            // This closes the pipe: the pager reads until no process has it open for writing.
            // SAFETY: dup2 takes two open descriptors.
            unsafe { libc::dup2(nothing.as_raw_fd(), libc::STDOUT_FILENO) };
        } else {
            // SAFETY: nothing is written to stdout after this, and nothing else owns its
            // descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(libc::STDOUT_FILENO) });
        }
        let status = self.child.wait();
        PAGER.store(0, Ordering::SeqCst);
        match status {
            // The shell ends with 126 if the program is not executable, and with 127 if it was not
            // found.
            Ok(status) if matches!(status.code(), Some(126 | 127)) => {
                say!("the pager {} cannot be started; --no-pager prints without one", self.name);
                ExitCode::from(2)
            }
            _ => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn whose_pager() {
        let of = |variables: &[(&str, &str)], less: bool| {
            let variables: Vec<(String, String)> = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let variable = move |name: &str| {
                variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            chosen(&variable, |program| less && program == "less")
        };
        let term = ("TERM", "xterm");
        assert_eq!(of(&[term], true).as_deref(), Some("less"));
        assert_eq!(of(&[term], false), None);
        assert_eq!(of(&[("TERM", "dumb")], true), None);
        assert_eq!(of(&[], true), None);
        assert_eq!(of(&[term, ("PAGER", "most -s")], true).as_deref(), Some("most -s"));
        assert_eq!(of(&[term, ("PAGER", "cat")], true), None);
        let both = [term, ("PAGER", "most"), ("COUNTERPOINT_PAGER", "")];
        assert_eq!(of(&both, true), None, "our own comes first, also if it says none");
    }
}
