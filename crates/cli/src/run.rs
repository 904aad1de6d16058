//! `counterpoint run`: starts a program with the agent (the library that records) loaded into it.
//!
//! If another process sends a signal to `run`, `run` sends it to the program, too. Signals from the
//! terminal reach the program directly.

mod begin;
mod dataset;
mod live;
mod passes;
mod sampler;
mod series;
mod wait;

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use machine::Machine;
use model::Counter;
use profile::TracksWriter;
use profile::collect::{Closing, Collected, PoolFate, finish};
use profile::live::ProcessId;
use profile::manifest::{Announcement, Exit, MANIFEST_NAME, Manifest, Origin, State};
use profile::safe_dir::Dir;
use profile::tracks::{Readings, SAMPLED_NAME};
use record::preloadable::{self, Carrier};
use record::{ClockKind, Snapshot};

use crate::failure::Failure;
use crate::inherited::{Inherited, prepare_process};
use crate::plugin_events::convert_and_say;
use crate::prepare::{Beside, PRELOAD_VARIABLE, Prepared, Recording, choose, make, place};
use crate::terminal::{self, is_quiet, say};
use crate::view::open::{in_one_line, is_empty, nothing};
use crate::whole::{Written, written};
use crate::whole_program;

use begin::{Program, Trouble};
use dataset::PeriodicExports;
use sampler::{Sampler, Wanted};
use wait::wait_and_drain;

/// Run a program and record every dispatch in it
///
/// Everything after `--` is the program and its arguments. `run` passes on the program's output
/// and signals, and ends with its exit status. If the program could not be started, the
/// status is 127 if it was not found, 126 if it is not executable, and 2 for any other
/// reason. A line on stderr that begins with `counterpoint:` says why.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    recording: Recording,
    #[command(flatten)]
    beside: Beside,
    /// Run the program several times, each time with as many of the counters as work at once.
    /// With a number, use at most that many passes. Each group of counters in braces is one pass
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["multiplex", "plugins"],
        default_missing_value = "0",
        value_parser = clap::value_parser!(u32).range(..=32)
    )]
    passes: Option<u32>,
    #[command(flatten)]
    repeat: series::Repeat,
    /// Also write a page for browsers to this file when the program has ended: what `report --html`
    /// shows; with --against, what `diff --html` shows; with --repeat alone, the last run. The status is
    /// that of the program, also if the page cannot be written
    #[arg(long, value_name = "FILE", value_parser = page_file)]
    html: Option<PathBuf>,
    #[command(flatten)]
    dataset: dataset::DatasetArgs,
    /// Show ops by time on the terminal while the program runs; `q` ends the view. What the program
    /// writes to the terminal is shown when the view has ended, and it reads nothing from there
    #[arg(long, conflicts_with_all = ["passes", "repeat", "budget"])]
    live: bool,
    /// Do not say what was recorded when the program has ended. What went wrong is said
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

/// Checks before the program runs that an HTML page can be written to this path.
fn page_file(name: &str) -> Result<PathBuf, String> {
    if name == "-" {
        return Err("standard output is the program's".to_owned());
    }
    let path = PathBuf::from(name);
    match written(&path) {
        Err(e) => Err(e.to_string()),
        Ok(Written::In(directory)) if !directory.is_dir() => {
            Err(format!("{} is not a directory", directory.display()))
        }
        // The path names an open descriptor, which the program inherits.
        Ok(Written::Open) => Err("it is open already: the program may write to it".to_owned()),
        Ok(_) => Ok(path),
    }
}

/// Runs the command. If `WHOLE` is false, this process is the small program
/// (`bin/counterpoint-start.rs`). If the user asks for something that the small program lacks, the
/// program with all commands replaces this process.
pub fn main<const WHOLE: bool>(mut args: Args) -> Result<ExitCode, Failure> {
    let needs_all =
        args.passes.is_some() || args.repeat.repeat.is_some() || args.dataset.dir.is_some();
    if !WHOLE && (needs_all || args.live) {
        return Err(whole_program::become_it());
    }
    if args.quiet {
        terminal::choose_words(true, false);
    }
    args.recording.configure()?;
    if let (Some(dir), true) = (&args.dataset.dir, WHOLE) {
        dataset::check(dir)?;
        dataset::choose_output(&mut args.recording);
    }
    let program = find(Path::new(&args.command[0]))?;
    let view = (WHOLE && args.live).then(live::Prepared::new).transpose()?;
    let words: Vec<String> =
        args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let inherited = prepare_process(args.recording.pool_layout())?;
    if let (Some(rounds), true) = (args.repeat.repeat, WHOLE) {
        return series::main(&args, rounds, inherited);
    }
    if let (Some(passes), true) = (args.passes, WHOLE) {
        return passes::main(&args, passes, &program, &words, inherited);
    }
    let machine = Machine::here();
    let choice = choose(&args.recording, &args.beside.system, Origin::Run, &machine)?;
    if !WHOLE && !choice.beside.is_empty() {
        inherited.restore();
        return Err(whole_program::become_it());
    }
    let place = place(args.recording.output())?;
    let prepared = make(&args.recording, choice, &machine, &place, Origin::Run, &words)?;
    forward_signals();
    let wanted = (prepared.clock, prepared.beside.clone());
    let sampler = match sampler::<WHOLE>(&prepared.directory, wanted, args.beside.sample_interval) {
        Ok(sampler) => sampler,
        Err(failure) => {
            prepared.discard();
            return Err(failure);
        }
    };
    let redirected = view.as_ref().map(live::Prepared::redirect);
    let running = start(&program, &args.command, prepared, inherited);
    drop(redirected);
    let running = running?;
    sampler.iter().for_each(Sampler::manifest_is_free);
    let view = view.and_then(|view| {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match view.begin(running.prepared.directory.clone(), name) {
            Ok(view) => Some(view),
            Err(e) => {
                say!("run --live: start a thread: {e}");
                None
            }
        }
    });
    let periodic = match WHOLE {
        true => {
            let directory = &running.prepared.directory;
            PeriodicExports::begin(&args.dataset, directory, args.recording.rank)
        }
        false => None,
    };
    let status = running.wait(&program);
    periodic.iter().for_each(PeriodicExports::end);
    view.into_iter().for_each(live::Running::end);
    let status = status?;
    let is_sampled = sampler.is_some();
    let trouble = sampler.and_then(Sampler::finish);
    let Running { prepared, mut manifest, .. } = running;
    let directory = &prepared.directory;
    if is_sampled {
        // The manifest is read again, because the sampler may have added a snapshot to it.
        manifest = Manifest::read(directory).unwrap_or(manifest);
    }
    let closed = close(directory, manifest, status, trouble);
    prepared.tidy();
    drop(periodic);
    say::<WHOLE>(closed, directory, &args);
    Ok(end_as(status))
}

struct Running {
    pid: libc::pid_t,
    prepared: Prepared,
    manifest: Manifest,
    /// The program's `RLIMIT_FSIZE`, in bytes.
    longest_file: u64,
}

/// Starts the program. On failure, removes the profile's directory and the pool.
fn start(
    program: &Path,
    words: &[std::ffi::OsString],
    mut prepared: Prepared,
    inherited: Inherited,
) -> Result<Running, Failure> {
    let carrier = carrier_of(program);
    let longest_file = inherited.longest_file();
    match begin(program, words, &carrier, &mut prepared, inherited) {
        Ok((process, mut manifest)) => {
            prepared.is_announced();
            if let Some(loss) = carrier.loss() {
                prepared.lose(loss);
            }
            // The pools of recordings that nobody finished are removed only now, so that the
            // program does not wait for this.
            crate::orphans::remove_old();
            manifest.watch.push(process);
            Ok(Running { pid: process.pid.cast_signed(), prepared, manifest, longest_file })
        }
        Err(failure) => {
            prepared.discard();
            Err(failure)
        }
    }
}

fn begin(
    program: &Path,
    words: &[std::ffi::OsString],
    carrier: &Carrier,
    prepared: &mut Prepared,
    inherited: Inherited,
) -> Result<(ProcessId, Manifest), Failure> {
    let brought = prepared.variables.iter().filter(|(name, _)| {
        // If the program would not start with the agent in it, `LD_PRELOAD` keeps the value that it
        // has in this process's environment.
        !(carrier.refuses() && *name == PRELOAD_VARIABLE)
    });
    let to_begin = Program::new(program, words, brought)?;
    let manifest = prepared.manifest.clone();
    let mut announcement =
        Announcement::new(&manifest, &prepared.directory).map_err(Failure::new)?;
    let process = to_begin.begin(&mut announcement, inherited).map_err(|trouble| {
        let start = |e| format!("start {}: {e}", program.display());
        match trouble {
            Trouble::Manifest(e) => {
                let path = prepared.directory.join(MANIFEST_NAME);
                Failure::new(format!("write {}: {e}", path.display()))
            }
            Trouble::Process(e) => Failure::new(start(e)),
            Trouble::Execute(e) if e.kind() == ErrorKind::NotFound => {
                Failure::new(start(e)).exit_code(NOT_FOUND)
            }
            Trouble::Execute(e) => Failure::new(start(e)).exit_code(NOT_EXECUTABLE),
        }
    })?;
    Ok((process, manifest))
}

impl Running {
    /// Waits for the end of the program. Until then, appends to the profile the pages of the pool
    /// that the program has filled.
    fn wait(&self, program: &Path) -> Result<ExitStatus, Failure> {
        let (directory, pool) = (&self.prepared.directory, self.manifest.pool.as_deref());
        let status = wait_and_drain(self.pid, directory, pool, self.longest_file);
        CHILD.store(0, Ordering::SeqCst);
        status.map_err(|e| Failure::new(format!("wait for {}: {e}", program.display())))
    }
}

/// Starts the sampler. Returns `None` if there are no counters to sample.
fn sampler<const WHOLE: bool>(
    directory: &Path,
    (clock, counters): (ClockKind, Vec<Counter>),
    interval: Duration,
) -> Result<Option<Sampler>, Failure> {
    if !WHOLE || counters.is_empty() {
        return Ok(None);
    }
    let writer = Dir::open(directory)
        .and_then(|root| TracksWriter::create(&root, SAMPLED_NAME, Readings::Counts));
    let writer = writer.map_err(Failure::new)?;
    let directory = directory.to_owned();
    Sampler::start(Wanted { counters, interval, clock, directory }, writer).map(Some)
}

/// The exit codes with which shells and env(1) tell that a program cannot be started.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Returns the path of the program. Callers call this before they create files, so that nothing has
/// to be removed if the program is missing.
fn find(name: &Path) -> Result<PathBuf, Failure> {
    let is_program = |path: &Path| {
        std::ffi::CString::new(path.as_os_str().as_bytes())
            // SAFETY: `c` is a C string that lives longer than the call.
            .is_ok_and(|c| path.is_file() && unsafe { libc::access(c.as_ptr(), libc::X_OK) } == 0)
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        if is_program(name) {
            return Ok(name.to_owned());
        }
        // The exit codes 127 and 126 tell the caller that the program was not started, because most
        // programs do not use them for their own errors.
        let (why, code) = match name.metadata() {
            Err(e) if e.kind() == ErrorKind::NotFound => ("no such file".to_owned(), NOT_FOUND),
            Err(e) => (e.to_string(), NOT_EXECUTABLE),
            Ok(_) => ("not an executable file".to_owned(), NOT_EXECUTABLE),
        };
        return Err(Failure::new(format!("start {}: {why}", name.display())).exit_code(code));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let candidates = || std::env::split_paths(&path).map(|directory| directory.join(name));
    candidates().find(|candidate| is_program(candidate)).ok_or_else(|| {
        match candidates().find(|candidate| candidate.is_file()) {
            Some(found) => {
                Failure::new(format!("start {}: not an executable file", found.display()))
                    .exit_code(NOT_EXECUTABLE)
            }
            None => Failure::new(format!("start {}: not found in PATH", name.display()))
                .exit_code(NOT_FOUND),
        }
    })
}

fn carrier_of(program: &Path) -> Carrier {
    let path = std::ffi::CString::new(program.as_os_str().as_bytes());
    path.map_or(Carrier::Able, |path| preloadable::examine(libc::AT_FDCWD, &path))
}

/// The child process to which signals are passed on: the recorded program, or a program that
/// [`attend`] runs. 0 if there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// A signal that arrived while [`CHILD`] was 0, and that the next child will get; 0 if there is
/// none.
static EARLY: AtomicI32 = AtomicI32::new(0);
/// The signals with which people and their tools end a command.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// The last signal of [`ENDING`] that arrived; 0 if there was none. It is not cleared.
static SIGNALLED: AtomicI32 = AtomicI32::new(0);

const FORWARDED: [i32; 10] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// Installs handlers that pass signals on to the program. Ignoring the signals in this process
/// (`SIG_IGN`) would be wrong: the program would inherit that, and ignore them too. A signal that
/// this process's parent ignored (nohup) stays ignored.
fn forward_signals() {
    extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // A positive `si_code` means that the kernel sent the signal, for example because of
        // Ctrl-C.
        // SAFETY: the kernel passes a valid pointer to handlers with SA_SIGINFO.
        let from_kernel = unsafe { (*info).si_code } > 0;
        let child = CHILD.load(Ordering::SeqCst);
        let ending = ENDING.contains(&signal);
        if ending {
            SIGNALLED.store(signal, Ordering::SeqCst);
        }
        if child > 0 && from_kernel {
            // The terminal has also sent the signal to the program.
        } else if child > 0 {
            // SAFETY: `kill` is async-signal-safe and takes no pointer. `CHILD` is set to 0 right
            // after the child was waited for. In the short time between, the id may already belong
            // to another process.
            unsafe { libc::kill(child, signal) };
        } else if ending || !from_kernel {
            // The next child gets this signal, so the program may receive a signal of the terminal
            // twice: from the terminal and from this process. Losing the signal would be worse.
            EARLY.store(signal, Ordering::SeqCst);
        }
        if signal == libc::SIGTSTP {
            stop(forward as *const () as usize);
        }
    }
    // Stops this process until SIGCONT, as if it had no handler of SIGTSTP. In an orphaned process
    // group, the kernel does not stop this process, so this function returns at once. Makes
    // async-signal-safe calls only.
    fn stop(handler: usize) {
        // SAFETY: zeros are valid for `sigaction` and for sets, and all variables outlive the
        // calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut only: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGTSTP, &action, std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGTSTP);
            libc::sigemptyset(&mut only);
            libc::sigaddset(&mut only, libc::SIGTSTP);
            libc::sigprocmask(libc::SIG_UNBLOCK, &only, &mut before);
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            action.sa_sigaction = handler;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGTSTP, &action, std::ptr::null_mut());
        }
    }
    for signal in FORWARDED {
        // SAFETY: zeros are a valid `sigaction`, and the handler only makes async-signal-safe
        // calls.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            if before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = forward as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

fn pass_on_early_signal() {
    let signal = EARLY.swap(0, Ordering::SeqCst);
    if signal != 0 {
        // SAFETY: `kill` takes numbers only. The child was just started and has not been waited
        // for, so the id is that of the child.
        unsafe { libc::kill(CHILD.load(Ordering::SeqCst), signal) };
    }
}

/// Marks the recording as finished, and moves to the profile the records that are still in memory.
/// If this fails after a single run, the caller prints the error and continues, because `run` must
/// end with the program's status.
fn close(
    directory: &Path,
    mut manifest: Manifest,
    status: ExitStatus,
    trouble: Option<String>,
) -> profile::Result<Collected> {
    let clock: ClockKind = manifest.clock.into();
    manifest.state = State::Finished;
    manifest.run_cpu_ns = Some(record::clock::process_cpu_ns());
    manifest.snapshots.push(Snapshot::take(clock).into());
    manifest.exit =
        Some(Exit { code: status.code(), signal: status.signal(), core: status.core_dumped() });
    manifest.notes.extend(trouble.map(|t| format!("samples of tracks were lost: {t}")));
    finish(directory, manifest, Closing::WhenOver)
}

fn say<const WHOLE: bool>(closed: profile::Result<Collected>, directory: &Path, args: &Args) {
    let output = args.recording.output();
    match closed {
        Ok(collected) => {
            let running = collected.live.len();
            if let PoolFate::Vanished(path) = &collected.pool {
                say!("{} is gone, and the unfinished pages in it are lost", path.display());
            }
            if let PoolFate::Refused(path, why) = &collected.pool {
                say!("the pool {} was left alone: {why}", path.display());
            }
            let summary = match is_empty(directory) {
                true => nothing(output),
                false if WHOLE => {
                    convert_and_say(directory);
                    in_one_line(directory, output, args.html.is_some())
                }
                false => whole_program::summary(directory, output, args.html.is_some()),
            };
            let still = match running {
                0 => String::new(),
                1 => "; one of its processes is still running and recording".to_owned(),
                n => format!("; {n} of its processes are still running and recording"),
            };
            if !is_quiet() || running > 0 {
                say!("{}: {summary}{still}", output.display());
            }
            write_page::<WHOLE>(args, "report", directory);
            if let (Some(dir), true) = (&args.dataset.dir, WHOLE) {
                let adding = args.dataset.adding(dir, directory, args.recording.rank, false);
                dataset::add(dir, adding, output, running);
            }
        }
        Err(e) => say!("{e}"),
    }
}

/// Writes the HTML page (`--html`). An error is printed and not returned, because the profile is
/// complete without the page.
fn write_page<const WHOLE: bool>(args: &Args, command: &str, of: &Path) {
    let Some(page) = &args.html else { return };
    // This program has just made the profile, so the program that writes the page may open the
    // files that the profile names.
    let named = command == "report" && args.recording.loops.is_some();
    let name = page.display();
    let start = whole_program::page::<WHOLE>(command, of, page, named);
    match start.map(|mut start| attend(&mut start)) {
        // The program that writes the page has already reported success or failure.
        Ok(Ok(status)) if status.code().is_some() => {}
        Ok(Ok(status)) => say!("{name}: the program that writes it ended with {status}"),
        Ok(Err(e)) => say!("{name}: the program that writes it: {e}"),
        Err(why) => say!("{name}: {why}"),
    }
}

/// Runs a command. Signals to this process are passed on to the command, as they are to the
/// recorded program.
fn attend(command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let pid = child.id();
    CHILD.store(pid.cast_signed(), Ordering::SeqCst);
    pass_on_early_signal();
    // `WNOWAIT` does not reap the child, so no other process gets its id before `CHILD` is 0.
    let flags = libc::WEXITED | libc::WNOWAIT;
    loop {
        // SAFETY: zeros are a valid `siginfo_t`, and `info` outlives the call.
        let failed = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &raw mut info, flags)
        };
        if failed == 0 || std::io::Error::last_os_error().kind() != ErrorKind::Interrupted {
            break;
        }
    }
    CHILD.store(0, Ordering::SeqCst);
    child.wait()
}

/// If a signal ended the program, ends this process with the same signal.
fn end_as(status: ExitStatus) -> ExitCode {
    match status.signal() {
        Some(signal) => end_by(signal),
        None => ExitCode::from(status.code().unwrap_or(2) as u8),
    }
}

/// Ends this process as if it had no handler for the signal.
fn end_by(signal: i32) -> ExitCode {
    // SAFETY: `none` outlives the call, and the other calls take numbers only. The limit prevents a
    // core dump of this process, which would only hide the program's core dump.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    ExitCode::from(128u8.saturating_add(signal as u8))
}
