//! Finds and runs the real compilers behind `counterpoint cc`, `counterpoint c++` and `counterpoint
//! rustc`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use ir::choice::Options;
use ir::instrument::instrument;

use crate::failure::Failure;
use crate::selection::{Selection, summary};

/// The environment variable that asks for a line about each instrumented file.
const VERBOSE: &str = "COUNTERPOINT_VERBOSE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    C,
    Plus,
}

impl Language {
    const fn variable(self) -> &'static str {
        match self {
            Self::C => "COUNTERPOINT_CC",
            Self::Plus => "COUNTERPOINT_CXX",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::C => "clang",
            Self::Plus => "clang++",
        }
    }
}

/// Returns the compiler that `COUNTERPOINT_CC` or `COUNTERPOINT_CXX` names, or else the `clang` or
/// `clang++` in `PATH`, or else the newest `clang-N` or `clang++-N` there.
pub fn find(language: Language) -> Result<PathBuf, Failure> {
    let variable = language.variable();
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    installed(language).ok_or_else(|| {
        let program = language.program();
        Failure::new(format!("no {program} was found in PATH, and {variable} is not set"))
            .hint("install clang (LLVM 15 or later); loops are instrumented in its text of LLVM IR")
            .exit_code(1)
    })
}

fn installed(language: Language) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let in_path =
        |name: &str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    let program = language.program();
    let versions = (15..60).rev().map(|version| format!("{program}-{version}"));
    in_path(program).or_else(|| versions.filter_map(|name| in_path(&name)).next())
}

/// Whether a program is clang, by its name or by its `--version`: `cc` may be clang or another
/// compiler.
pub fn is_clang(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.contains("clang") {
        return true;
    }
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("clang version"))
}

/// Finds a clang that can read the IR of version `llvm` of LLVM.
pub fn reads(llvm: u32) -> Option<PathBuf> {
    let version = |program: &Path| -> Option<u32> {
        let said = Command::new(program).arg("-dumpversion").stdin(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&said.stdout).split('.').next()?.trim().parse().ok()
    };
    let named = std::env::var_os(Language::C.variable()).filter(|named| !named.is_empty());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versioned = (llvm.max(15)..60).flat_map(|version| {
        let name = format!("clang-{version}");
        std::env::split_paths(&path).map(move |folder| folder.join(&name)).collect::<Vec<_>>()
    });
    let plain = std::env::split_paths(&path).map(|folder| folder.join("clang"));
    let all = named.map(PathBuf::from).into_iter().chain(plain).chain(versioned);
    all.filter(|file| file.components().count() == 1 || file.is_file())
        .find(|file| version(file).is_some_and(|version| version >= llvm) && is_clang(file))
}

/// The result of instrumenting LLVM IR.
pub enum Text {
    /// The instrumented IR, and a line about what was instrumented if the user asked for one.
    Instrumented(Vec<u8>, Option<String>),
    NoLoops,
    /// Why the IR cannot be instrumented.
    Cannot(String),
}

/// Instruments the LLVM IR of one source file or crate.
pub fn instrumented(text: &[u8], source: &str, selection: &Selection) -> Text {
    let filter = |name: &str| selection.names(name);
    let options = Options {
        filter: selection.has_filter().then_some(&filter),
        source,
        ..selection.options()
    };
    match instrument(text, &options) {
        Ok(done) if done.counts.instrumented_loops + done.counts.instrumented_functions == 0 => {
            Text::NoLoops
        }
        Ok(done) => {
            let wanted = std::env::var_os(VERBOSE).is_some_and(|on| !on.is_empty());
            let line =
                || summary(done.counts, &done.table.skipped, Path::new(source), selection.mode);
            let line = wanted.then(line);
            Text::Instrumented(done.text, line)
        }
        Err(error) => Text::Cannot(error.to_string()),
    }
}

pub struct Ended {
    pub status: ExitStatus,
    pub output: Vec<u8>,
    pub messages: Vec<u8>,
}

/// Runs a step (one run of a compiler), and collects its output and messages. Its standard input is
/// `input`, or that of this process if `input` is `None`.
pub fn step(mut command: Command, input: Option<&[u8]>) -> io::Result<Ended> {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut command)?;
    let (pipe, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // All pipes are served at the same time, because the compiler may write before it has read all
    // of its input. An error of `write_all` is ignored, because a compiler that stops reading has
    // failed and reports that itself.
    let (output, messages) = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let (Some(mut pipe), Some(input)) = (pipe, input) {
                let _ = pipe.write_all(input);
            }
        });
        let messages = scope.spawn(move || all(err));
        let output = all(out);
        (output, messages.join().unwrap_or_else(|_| Ok(Vec::new())))
    });
    Ok(Ended { status: end(child)?, output: output?, messages: messages? })
}

/// Runs a step whose output and messages go to the user.
pub fn status(mut command: Command) -> io::Result<ExitStatus> {
    end(start(&mut command)?)
}

/// The process id of the running step, or 0.
static CHILD: AtomicI32 = AtomicI32::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Starts a step. From then on, SIGINT, SIGTERM, SIGHUP and SIGQUIT end the step instead of this
/// process, and later steps fail. The caller can then remove its temporary files and call
/// [`end_if_interrupted`], which ends this process with the same signal.
fn start(command: &mut Command) -> io::Result<Child> {
    extern "C" fn interrupt(signal: libc::c_int) {
        SIGNAL.store(signal, Ordering::SeqCst);
        let child = CHILD.load(Ordering::SeqCst);
        if child != 0 {
            // SAFETY: `kill` is async-signal-safe and takes numbers only.
            unsafe { libc::kill(child, signal) };
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: a `sigaction` may consist of zeros, and `action` outlives both calls. Signals
        // that are ignored or already have a handler are not changed.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            if action.sa_sigaction == libc::SIG_DFL {
                action.sa_sigaction = interrupt as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
    let child = command.spawn()?;
    CHILD.store(child.id().cast_signed(), Ordering::SeqCst);
    let signal = SIGNAL.load(Ordering::SeqCst);
    if signal != 0 {
        // The signal arrived before `CHILD` contained the process id.
        // SAFETY: `kill` takes numbers only.
        unsafe { libc::kill(child.id().cast_signed(), signal) };
    }
    Ok(child)
}

/// Waits until a step has ended. Returns an error if a signal has asked this process to end.
fn end(mut child: Child) -> io::Result<ExitStatus> {
    let status = child.wait();
    CHILD.store(0, Ordering::SeqCst);
    match SIGNAL.load(Ordering::SeqCst) {
        0 => status,
        _ => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Ends this process with the signal that [`start`] has caught, if there was one.
pub fn end_if_interrupted() {
    let signal = SIGNAL.load(Ordering::SeqCst);
    if signal != 0 {
        // SAFETY: `signal` gets SIG_DFL and no handler function, and `raise` takes a number only.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

fn all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Returns the exit status of a program that ended by itself, or 128 plus the number of the signal
/// that ended it.
pub fn passed_on(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Returns the first line of a compiler's messages that contains the word `error`, or else the
/// first line.
pub fn first_error(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let telling = text.lines().find(|line| line.contains("error"));
    telling.or_else(|| text.lines().next()).unwrap_or("it said nothing").trim().to_owned()
}

/// Builds the command that compiles LLVM IR from standard input to an object. `flags` are placed
/// before the input.
pub fn assemble(compiler: &Path, flags: &[OsString], output: &Path) -> Command {
    let mut command = Command::new(compiler);
    // The IR is already optimised. Optimising it again would move code into and out of loops.
    command.args(flags).args(["-Wno-override-module", "-Wno-unknown-warning-option"]);
    command.args(["-Qunused-arguments", "-Xclang", "-disable-llvm-passes"]);
    command.args(["-x", "ir", "-", "-c", "-o"]).arg(output);
    command
}
