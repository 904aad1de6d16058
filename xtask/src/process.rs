//! Runs other programs, with visible output or quietly.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::layout::Layout;

pub fn say(line: impl std::fmt::Display) {
    eprintln!("xtask: {line}");
}

thread_local! {
    /// The lines that [`pass_on`] has collected for [`whole`].
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line of another program's output, or keeps the line if [`whole`] runs on this thread.
pub fn pass_on(line: &str) {
    let kept =
        KEPT.with_borrow_mut(|kept| kept.as_mut().map(|text| text.extend([line, "\n"])).is_some());
    if !kept {
        eprintln!("{line}");
    }
}

/// Runs a step whose output must not mix with that of parallel steps. At the step's end, prints all
/// lines that the step's thread gave to [`pass_on`].
pub fn whole<T>(name: &str, step: impl FnOnce() -> T) -> T {
    KEPT.set(Some(String::new()));
    let value = step();
    if let Some(text) = KEPT.take().filter(|text| !text.is_empty()) {
        eprint!("xtask: the output of {name}:\n{text}");
    }
    value
}

/// Runs a command, and shows its output only if it fails.
pub fn quiet(command: &mut Command, what: &str) -> Result<()> {
    output(command, what).map(drop)
}

/// Like [`quiet`], but returns what the command wrote to stdout.
pub fn output(command: &mut Command, what: &str) -> Result<String> {
    let program = command.get_program().to_owned();
    let result = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{what}: start {}", Path::new(&program).display()))?;
    let stdout = String::from_utf8_lossy(&result.stdout);
    if !result.status.success() {
        eprint!("{stdout}{}", String::from_utf8_lossy(&result.stderr));
        bail!("{what}: {} {}", Path::new(&program).display(), describe(result.status));
    }
    Ok(stdout.into_owned())
}

pub fn loud(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_owned();
    let status = command
        .status()
        .with_context(|| format!("{what}: start {}", Path::new(&program).display()))?;
    if !status.success() {
        bail!("{what}: {} {}", Path::new(&program).display(), describe(status));
    }
    Ok(())
}

pub fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended with {status}"),
    }
}

/// Returns the command as a person in the repository's root would type it.
pub fn shell_form(layout: &Layout, command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.display(), quote(layout, value)));
        }
    }
    words.push(quote(layout, command.get_program()));
    words.extend(command.get_args().map(|argument| quote(layout, argument)));
    words.join(" ")
}

/// Quotes a word for a POSIX shell. Removes the root's path and writes the home folder as `~`,
/// because printed and stored commands must be usable in another checkout.
fn quote(layout: &Layout, word: &OsStr) -> String {
    let root = format!("{}/", layout.root.display());
    let mut text = word.to_string_lossy().replace(&root, "");
    let home = std::env::var("HOME").unwrap_or_default();
    if let Some(below) = text.strip_prefix(&home)
        && below.starts_with('/')
        && !home.is_empty()
    {
        text = format!("~{below}");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Returns whether the program runs with `version_arguments` and succeeds.
pub fn exists(program: &str, version_arguments: &[&str]) -> bool {
    Command::new(program)
        .args(version_arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Makes a command of the same cargo that runs xtask, without the variables `CARGO_PKG_…` and
/// `CARGO_MANIFEST_…`, which cargo sets for the xtask package. With these variables, build scripts
/// would run again, because their environment would seem to have changed.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns a duration as text, such as `1.2 s` or `3 min 04 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

/// Prints how long a successful step took, if that was more than half a second.
pub fn timed<T>(what: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let value = step()?;
    let time = start.elapsed();
    if time > Duration::from_millis(500) {
        say(format_args!("{what}: {}", duration(time)));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_kept_is_of_this_thread_and_of_one_step() {
        let kept = whole("a step", || {
            pass_on("one");
            std::thread::spawn(|| pass_on("of another thread, which is printed at once"))
                .join()
                .unwrap();
            pass_on("two");
            KEPT.with_borrow(Clone::clone)
        });
        assert_eq!(kept.as_deref(), Some("one\ntwo\n"));
        assert_eq!(KEPT.with_borrow(Clone::clone), None);
    }

    #[test]
    fn shell_form_is_relative_and_quoted() {
        let layout = Layout { root: PathBuf::from("/src/cp"), target: "/src/cp/target".into() };
        let mut command = Command::new("/src/cp/target/venv/bin/iree-compile");
        command.args(["--path=/src/cp/target/lld -flavor gnu", "it's", "", "a=b"]);
        assert_eq!(
            shell_form(&layout, &command),
            r"target/venv/bin/iree-compile '--path=target/lld -flavor gnu' 'it'\''s' '' a=b"
        );
    }
}
