//! Starts the other program of a release: `libexec/counterpoint`, which has all commands.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::inherited;
use crate::terminal::is_quiet;

/// Replaces this process by the program that has all commands, with the same arguments. Returns the
/// reason if this fails.
pub fn become_it() -> Failure {
    let mut words = std::env::args_os();
    let name = words.next();
    let started = program().and_then(|whole| {
        let mut command = Command::new(&whole);
        command.args(words);
        if let Some(name) = name {
            command.arg0(name);
        }
        inherited::restore_before_start();
        Err::<(), _>(why_not(&whole, &command.exec()))
    });
    Failure::new(started.err().unwrap_or_default())
        .hint("`cargo xtask dist` builds both programs into dist/; copy that folder as a whole")
}

/// Returns a line that summarizes the profile, or the reason why there is no such line. `shown` is
/// the path as the user typed it. `has_page` says that the caller also makes an HTML page of the
/// profile.
pub fn summary(profile: &Path, shown: &Path, has_page: bool) -> String {
    let asked = program().and_then(|whole| {
        let mut command = Command::new(&whole);
        command.args(["session", "summary"]).args(has_page.then_some("--has-page"));
        command.arg("--").arg(profile).arg(shown);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command.output().map_err(|e| why_not(&whole, &e))
    });
    match asked {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
        }
        Ok(output) => format!("the program that sums it up ended with {}", output.status),
        Err(why) => why,
    }
}

/// Returns the command that writes the HTML page of a profile, or of a comparison of repeated runs.
/// The page is written in a separate process: that process gives up rights that this one needs, and
/// this one must go on if writing fails. With `named`, the page may use files whose paths are in
/// the profile.
pub fn page<const WHOLE: bool>(
    command: &str,
    profile: &Path,
    page: &Path,
    named: bool,
) -> Result<Command, String> {
    // `/proc/self/exe` refers to this program even if its file was replaced since its start.
    let whole = if WHOLE { PathBuf::from("/proc/self/exe") } else { program()? };
    let mut start = Command::new(&whole);
    if let Some(name) = std::env::args_os().next() {
        start.arg0(name);
    }
    // The option and the path are one word, because a path may begin with a dash.
    let mut html = OsString::from("--html=");
    html.push(page);
    start.args(is_quiet().then_some("--quiet"));
    start.arg(command).arg(html).args(named.then_some("--code")).arg("--").arg(profile);
    start.stdin(Stdio::null());
    Ok(start)
}

fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("find the path of this program: {e}"))?;
    Ok(own.ancestors().nth(2).unwrap_or(Path::new("/")).join("libexec/counterpoint"))
}

fn why_not(program: &Path, error: &std::io::Error) -> String {
    format!("start {}: {error}", program.display())
}
