//! `counterpoint plugin run`: lets plugins record for some time.
//!
//! Each plugin runs in its own child process. First all children are created, then all start to
//! record, and then all stop. If a plugin crashes or hangs, only its own events are lost.

use std::cell::Cell;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use plugin_host::stream::{Ending, Reader};
use profile::{Host, LossCount, Manifest};
use serde_json::json;
use trace::chrome::event::Raw;
use trace::chrome::read::{EventSink as _, ReadSummary};
use trace::import::trace::Import;

use super::child::{ANSWERS, Answer, Listed};
use super::list::{child, died};
use super::patient::{PATIENCE, Patient, gave_up};
use super::shown;
use crate::failure::Failure;
use crate::input;
use crate::output::{bytes, time};
use crate::plugin_events::{Events, Owner, Window, losses};
use crate::plugin_files::files_or_variable;
use crate::plugin_kinds;
use crate::prepare::{DirectoryLock, make_way};
use crate::terminal::say;
use crate::view::units::plural;

#[derive(clap::Args)]
pub struct Args {
    /// Plugin, directory of plugins, or the name of a plugin that comes with Counterpoint. Without
    /// any, the directory in KINETO_PLUGIN_LIB_DIR_PATH
    #[arg(value_name = "FILE|DIR|NAME")]
    paths: Vec<PathBuf>,
    /// How long to record: 500ms, 10s. Ctrl-C ends it earlier
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration_ns: u64,
    /// How long plugins may prepare themselves before the recording
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    warmup: u64,
    /// Keep at most this much of each plugin's events: 128M. The rest is counted as lost
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_buffer: Option<u64>,
    /// Kinds of events to ask for: kernel, runtime, counter, cuda_runtime and so on. By default each
    /// plugin gives all that it supports
    #[arg(long, value_name = "KIND,…")]
    kinds: Option<String>,
    /// Text for plugins that take a configuration
    #[arg(long, value_name = "TEXT", default_value = "")]
    plugin_config: String,
    /// Profile directory to create. An existing profile is moved to DIR.old
    #[arg(short, long, default_value = "counterpoint.cpt", value_name = "DIR",
          value_parser = input::profile())]
    output: PathBuf,
}

pub fn main(args: &Args) -> Result<ExitCode, Failure> {
    let files = files_or_variable(&args.paths)?;
    let types = args.kinds.as_deref().map(plugin_kinds::parse).transpose()?.unwrap_or_default();
    let lock = DirectoryLock::wait(&args.output);
    make_way(&args.output, &lock)?;
    let interrupted = Interrupted::new();
    fs::create_dir_all(&args.output)
        .map_err(|e| Failure::new(format!("create {}: {e}", args.output.display())))?;
    drop(lock);
    let made = record(args, &files, &types, &interrupted);
    if made.is_err() {
        // An incomplete recording that looks complete would be worse than none.
        let _ = fs::remove_dir_all(&args.output);
    }
    made
}

/// Records and writes the profile. The output directory must be empty.
fn record(
    args: &Args,
    files: &[PathBuf],
    types: &[u32],
    interrupted: &Interrupted,
) -> Result<ExitCode, Failure> {
    let mut manifest = Manifest::new();
    manifest.program_version = env!("CARGO_PKG_VERSION").to_owned();
    manifest.command = std::env::args().collect();
    manifest.working_directory = std::env::current_dir().unwrap_or_default().display().to_string();
    manifest.host = host_name();
    // If the recording has events, [`Import::finish`] replaces this time with the time of the first
    // event.
    manifest.created_unix_ns = u64::try_from(unix_now().as_nanos()).unwrap_or(0);
    let mut import = Import::create(&args.output, manifest).map_err(Failure::new)?;

    let begin = |file| Recording::begin(file, args, types, interrupted);
    let mut recordings: Vec<Recording> =
        files.iter().map(|file| begin(file)).collect::<Result<_, _>>()?;
    recordings.iter_mut().for_each(|recording| recording.wait_until_ready(interrupted));
    interrupted.sleep(Duration::from_nanos(args.warmup));
    let (base_ns, begin) = (base_ns(), Moment::now());
    import.begins_at(begin.monotonic_ns.saturating_sub(begin.utc_ns).saturating_add(base_ns));
    recordings.iter_mut().for_each(|recording| recording.tell("start"));
    if interrupted.paused.get() {
        recordings.iter_mut().for_each(|recording| recording.tell("pause"));
    }
    interrupted.sleep_or(Duration::from_nanos(args.duration_ns), |paused| {
        let order = if paused { "pause" } else { "resume" };
        recordings.iter_mut().for_each(|recording| recording.tell(order));
    });
    recordings.iter_mut().for_each(|recording| recording.tell("stop"));

    let mut owner = Owner::alone(
        base_ns,
        Window {
            first_ns: begin.utc_ns,
            last_ns: Moment::now().utc_ns,
            offset_ns: begin.utc_ns.saturating_sub(begin.monotonic_ns),
        },
    );
    let mut trace = import.trace("plugins", 0).map_err(Failure::new)?;
    for (key, value) in [
        ("schemaVersion", json!(1)),
        ("displayTimeUnit", json!("ms")),
        ("host_name", json!(host_name())),
        ("baseTimeNanoseconds", json!(base_ns)),
        ("traceName", json!(args.output.display().to_string())),
    ] {
        trace.top(0, key, Raw::of(&value.to_string())).map_err(Failure::new)?;
    }
    let (mut events, mut not_text, mut plugins) = (0, 0, 0_u32);
    let mut losses = Vec::new();
    for (stream, recording) in recordings.into_iter().enumerate() {
        let file = recording.file.clone();
        owner.begin_stream(stream as u64);
        owner.begin_plugin(&shown(&file), recording.child.id());
        let mut sink = Events::new(&mut trace, &mut owner, &Host::UNKNOWN);
        let outcome = recording.finish(&mut sink);
        if let Some(error) = sink.error {
            return Err(Failure::new(format!("write {}: {error}", args.output.display())));
        }
        events += sink.events;
        not_text += sink.not_text;
        plugins += u32::from(sink.events > 0);
        let (not_json, missing) = ((sink.not_json, sink.example.take()), sink.missing);
        for text in owner.said() {
            say!("{}: {text}", shown(&file));
        }
        losses.extend(outcome.say(&file, not_json, missing));
    }
    owner
        .finish(&mut trace)
        .map_err(|e| Failure::new(format!("write {}: {e}", args.output.display())))?;
    let summary = ReadSummary { events, mended: not_text, ..ReadSummary::default() };
    trace.finish("plugins", &summary).map_err(Failure::new)?;
    import.lose(losses);
    import.finish().map_err(Failure::new)?;
    say!(
        "{} of {} in {}",
        plural(events.into(), "event"),
        plural(plugins.into(), "plugin"),
        args.output.display()
    );
    Ok(if events > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

struct Moment {
    utc_ns: i64,
    monotonic_ns: i64,
}

impl Moment {
    fn now() -> Self {
        let monotonic_ns = record::clock::monotonic_ns() as i64;
        let utc_ns = i64::try_from(unix_now().as_nanos()).unwrap_or(i64::MAX);
        Self { utc_ns, monotonic_ns }
    }
}

/// Returns the moment from which the trace counts its times, in ns since 1970. As in Kineto's
/// traces, this is the start of the current period of three months.
fn base_ns() -> i64 {
    const THREE_MONTHS_S: u64 = 7_889_238;
    ((unix_now().as_secs() / THREE_MONTHS_S) * THREE_MONTHS_S * 1_000_000_000) as i64
}

/// SIGINT (Ctrl-C) and SIGTERM end the recording, and SIGUSR1 pauses or resumes it. They are blocked
/// from the moment at which the output exists, so that none of them can end this process and leave
/// an incomplete profile.
struct Interrupted {
    set: libc::sigset_t,
    /// The signals that were blocked before, which the children get.
    before: libc::sigset_t,
    /// Whether SIGINT or SIGTERM has ended a sleep.
    is_over: Cell<bool>,
    /// Whether SIGUSR1 has paused the recording, which may not have started yet.
    paused: Cell<bool>,
}

impl Interrupted {
    /// Blocks the signals in this thread, and in those that it starts later.
    fn new() -> Self {
        // SAFETY: zeros are a valid `sigset_t`, and both sets outlive the calls.
        unsafe {
            let (mut set, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Self { set, before, is_over: Cell::new(false), paused: Cell::new(false) }
        }
    }

    /// Whether SIGINT or SIGTERM has arrived.
    fn is_over(&self) -> bool {
        // SAFETY: zeros are a valid `sigset_t`, and `pending` outlives the calls.
        let is_pending = unsafe {
            let mut pending = std::mem::zeroed();
            libc::sigpending(&mut pending) == 0
                && [libc::SIGINT, libc::SIGTERM]
                    .into_iter()
                    .any(|signal| libc::sigismember(&pending, signal) == 1)
        };
        self.is_over.get() || is_pending
    }

    /// Sleeps for `duration`, or until SIGINT or SIGTERM arrives.
    fn sleep(&self, duration: Duration) {
        self.sleep_or(duration, |_| {});
    }

    /// Sleeps for `duration`, or until SIGINT or SIGTERM arrives; not at all if one of them has
    /// ended an earlier sleep. At each SIGUSR1, calls `pause` with `true` to pause or `false` to
    /// resume.
    fn sleep_or(&self, duration: Duration, mut pause: impl FnMut(bool)) {
        let until = Instant::now() + duration;
        while !self.is_over.get() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let timeout = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            // SAFETY: the set and `timeout` outlive the call, and null means that no information
            // about the signal is wanted.
            match unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &timeout) } {
                libc::SIGUSR1 => {
                    self.paused.set(!self.paused.get());
                    pause(self.paused.get());
                }
                1.. => self.is_over.set(true),
                _ => {}
            }
        }
    }
}

struct Recording {
    file: PathBuf,
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Answer>,
    doing: String,
    done: Option<Listed>,
    /// Why the child was killed; `None` if it was not.
    killed: Option<Killed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// It took too long.
    Late,
    /// The user ended the recording before the plugin was ready.
    Unready,
}

/// Makes a pipe, and returns the reading end and the writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors. The descriptors are new, so nothing else owns
    // them.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

impl Recording {
    fn begin(
        file: &Path,
        args: &Args,
        types: &[u32],
        interrupted: &Interrupted,
    ) -> Result<Self, Failure> {
        let failed =
            |e: io::Error| Failure::new(format!("start a process for {}: {e}", shown(file)));
        let (reads, writes) = pipe().map_err(failed)?;
        let mut command = child(file)?;
        command.arg("record").args(["--warmup-ns", &args.warmup.to_string()]);
        if !types.is_empty() {
            let list: Vec<String> = types.iter().map(u32::to_string).collect();
            command.args(["--types", &list.join(",")]);
        }
        if let Some(limit) = args.max_buffer {
            command.args(["--max-buffer", &limit.to_string()]);
        }
        // The option and its value are one word, because a configuration may begin with a dash.
        command.arg(format!("--configuration={}", args.plugin_config));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C must reach only this process, which then asks the plugin to stop.
        command.process_group(0);
        let from: RawFd = writes.as_raw_fd();
        let mask = interrupted.before;
        // SAFETY: after the fork, the closure only calls dup2, fcntl and pthread_sigmask, which are
        // async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                // If the pipe already has the number [`ANSWERS`], `dup2` would not clear the flag
                // that closes the descriptor at `exec`.
                let result = if from == ANSWERS {
                    libc::fcntl(from, libc::F_SETFD, 0)
                } else {
                    libc::dup2(from, ANSWERS)
                };
                if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
            });
        }
        let mut child = command.spawn().map_err(failed)?;
        drop(writes);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(fs::File::from(reads)).lines() {
                let Ok(line) = line else { return };
                let Ok(answer) = serde_json::from_str(&line) else { return };
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        let orders = child.stdin.take();
        Ok(Self {
            file: file.to_owned(),
            child,
            orders,
            answers,
            doing: "while its process began".to_owned(),
            done: None,
            killed: None,
        })
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Doing(what) => self.doing = what,
            Answer::Done(listed) => self.done = Some(listed),
        }
    }

    /// Waits until the child has created its sessions or has ended, and kills the child if that
    /// takes too long.
    fn wait_until_ready(&mut self, interrupted: &Interrupted) {
        /// How soon a signal of the user is noticed.
        const NOTICED: Duration = Duration::from_millis(100);
        let until = Instant::now() + PATIENCE;
        while self.doing != "while it warmed up" {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left.min(NOTICED)) {
                Ok(answer) => self.take(answer),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return self.give_up(),
                Err(RecvTimeoutError::Timeout) if interrupted.is_over() => {
                    return self.kill(Killed::Unready);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn give_up(&mut self) {
        self.kill(Killed::Late);
    }

    fn kill(&mut self, why: Killed) {
        self.killed = Some(why);
        let _ = self.child.kill();
    }

    /// Sends an order to the child. Errors are ignored, because [`Recording::finish`] detects when
    /// the child has died.
    fn tell(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{order}");
        }
    }

    fn finish(mut self, sink: &mut Events<'_, '_>) -> Outcome {
        self.tell("end");
        drop(self.orders.take());
        let ending = match self.child.stdout.take() {
            Some(pipe) => {
                let reader = Reader::new(Patient::new(pipe));
                reader.replay(sink)
            }
            None => Ok(Ending::Cut),
        };
        if matches!(&ending, Err(error) if error.kind() == io::ErrorKind::TimedOut) {
            self.give_up();
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok(answer) => self.take(answer),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.give_up();
                    break;
                }
            }
        }
        let status = self.child.wait();
        let died = match status {
            _ if self.killed == Some(Killed::Late) => Some(gave_up(PATIENCE)),
            _ if self.killed.is_some() => Some("was ended with the recording".to_owned()),
            // If the status is 0, but [`Answer::Done`] did not arrive, the plugin has called
            // `exit`.
            Ok(status) if !status.success() || self.done.is_none() => Some(died(status)),
            _ => None,
        };
        let is_unready = self.killed == Some(Killed::Unready);
        Outcome { doing: self.doing, died, is_unready, ending, done: self.done }
    }
}

struct Outcome {
    doing: String,
    died: Option<String>,
    /// Whether the user ended the recording before the plugin was ready. This is no loss.
    is_unready: bool,
    ending: io::Result<Ending>,
    done: Option<Listed>,
}

impl Outcome {
    /// Prints what went wrong, and returns the losses. `not_json` is the number of metadata values
    /// that are not JSON, and the first such value. The last argument is [`Events::missing`].
    fn say(
        self,
        file: &Path,
        not_json: (u64, Option<String>),
        [mut dropped, untimed, uncounted]: [u64; 3],
    ) -> [LossCount; 4] {
        let file = shown(file);
        let mut failed = 0;
        for said in self.done.iter().flat_map(|listed| &listed.problems) {
            let times = if said.count == 1 { String::new() } else { times(said.count) };
            say!("{file}: {}{times}", said.what);
            failed += if said.serious { said.count } else { 0 };
        }
        if let (count @ 1.., Some(example)) = not_json {
            let times = if count == 1 { String::new() } else { times(count) };
            say!("{file}: added metadata that is not JSON, kept as text: {example:.100}{times}");
            failed += count;
        }
        if let Some(died) = &self.died {
            say!("{file}: {died} {}", self.doing);
            failed += u64::from(!self.is_unready);
        } else if let Some(listed) = self.done.as_ref().filter(|done| done.profilers.is_empty()) {
            failed += u64::from(listed.problems.is_empty());
        }
        match self.ending {
            Ok(Ending::Whole { dropped: count }) => dropped += count,
            Ok(Ending::Cut) => failed += u64::from(self.died.is_none()),
            Ok(Ending::Damaged { at }) => {
                say!("{file}: its events are damaged after byte {at}");
                failed += 1;
            }
            Err(error) if self.died.is_none() => {
                say!("{file}: its events cannot be read: {error}");
                failed += 1;
            }
            Err(_) => {}
        }
        if dropped > 0 {
            say!("{file}: {} did not fit into --max-buffer", plural(dropped.into(), "event"));
        }
        losses(failed, dropped, untimed, uncounted)
    }
}

fn times(count: u64) -> String {
    format!(" ({count} times)")
}
