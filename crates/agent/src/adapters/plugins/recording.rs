//! The plugins of one recording. What each of them is doing is written to its file before it is
//! called, so that a file without an end says in which call the program ended.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use plugin_host::stream::Writer;
use plugin_host::{Message, Problem, Session, Setup, Sink};
use record::pool::PluginControl;
use record::run_file::PluginOptions;

use super::path_of;
use crate::os::sys;
use crate::process::events::{self, EventsFile};
use crate::process::part::Process;
use crate::process::plugins::{self, Loaded};
use crate::state::run::Run;

/// Increases with every step that a plugin takes: a call begins, or 64 KiB of events are written.
pub static STEPS: AtomicU64 = AtomicU64::new(0);

/// A file of events whose writes count as steps.
struct Stepping(EventsFile);

impl io::Write for Stepping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        point!(PluginWrite);
        STEPS.fetch_add(1, Ordering::Relaxed);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The plugins of one recording of this process.
pub struct Recording {
    plugins: Vec<One>,
    paused: bool,
}

/// One plugin.
struct One {
    loaded: &'static Loaded,
    sessions: Vec<Session<'static>>,
    writer: Writer<Stepping>,
    /// Its problems when the recording began.
    before: Vec<(Problem, u64)>,
    /// How many of the kinds that it has declared are written.
    kinds: usize,
}

impl Recording {
    /// Loads the plugins, and creates and starts their sessions. Returns `None` if this process has
    /// no part of the profile, which has been counted as a loss.
    pub fn begin(run: &'static Run, options: &PluginOptions) -> Option<Self> {
        let process = Process::current(run)?;
        plugins::set_level(options.log_level);
        if !plugins::are_usable() {
            refuse(process, options);
            return None;
        }
        // Threads that plugins start must not get signals that are meant for the program.
        let _calm = sys::SignalsBlocked::new();
        let mut all: Vec<One> = Vec::new();
        for file in &options.files {
            // The plugin's file is begun before the plugin is loaded, because loading can crash.
            let Some(writer) = writer(process, options) else { continue };
            let mut writer = Writing(writer);
            writer.plugin(file);
            writer.doing("while it was loaded and registered");
            let Some(loaded) = plugins::load(&[file]).pop() else { continue };
            if all.iter().any(|one| one.loaded.number == loaded.number) {
                // The same file under another name: it has a recording already.
                let _ = writer.0.finish();
                continue;
            }
            all.push(One {
                loaded,
                sessions: Vec::new(),
                writer: writer.0,
                before: loaded.plugin.problems.all(),
                kinds: 0,
            });
        }
        let configuration = path_of(&options.configuration);
        all.iter_mut().for_each(|one| one.create(options, &configuration));
        all.iter_mut().for_each(One::start);
        let mut recording = Self { plugins: all, paused: false };
        let word = run.pool.run_row().plugin_control.load(Ordering::SeqCst);
        recording.toggle(PluginControl::of_word(word).paused);
        Some(recording)
    }

    /// Whether some plugin can be paused or can hand over events while it records.
    pub fn can_be_controlled(&self) -> bool {
        let mut sessions = self.plugins.iter().flat_map(|one| &one.sessions);
        sessions.any(|session| {
            let extension = session.profiler().extension;
            extension.is_some_and(|known| known.toggle.is_some() || known.flush.is_some())
        })
    }

    /// Pauses (`true`) or continues, if that is a change.
    pub fn toggle(&mut self, paused: bool) {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return;
        }
        for one in &mut self.plugins {
            one.doing(if paused { "while it was paused" } else { "while it was continued" });
            one.sessions.iter_mut().for_each(|session| _ = session.toggle(!paused));
            one.doing("while it recorded");
        }
    }

    /// Writes the events that are complete.
    pub fn flush(&mut self) {
        for one in &mut self.plugins {
            one.doing("in flush");
            one.kinds();
            one.sessions.iter_mut().for_each(|session| _ = session.flush(&mut one.writer));
            one.lines();
            one.doing("while it recorded");
        }
    }

    /// Stops all plugins, takes their events, and ends their files. The recording of a plugin that
    /// cannot go on must not delay the stop of the others, so all of them are stopped first.
    pub fn end(mut self) {
        for one in &mut self.plugins {
            one.doing("in profilerStop");
            one.sessions.iter_mut().for_each(|session| _ = session.stop());
        }
        for mut one in self.plugins {
            one.doing("in profilerProcessEvents");
            one.kinds();
            for session in &mut one.sessions {
                session.process(&mut one.writer);
            }
            one.doing("in profilerDestroy");
            drop(std::mem::take(&mut one.sessions));
            one.problems();
            one.lines();
            STEPS.fetch_add(1, Ordering::Relaxed);
            // A failure is counted where it happens.
            let _ = one.writer.finish();
        }
    }
}

/// A new file of events.
fn writer(process: Process, options: &PluginOptions) -> Option<Writer<Stepping>> {
    let limit = Some(options.max_buffer).filter(|limit| *limit > 0);
    events::create(process, limit, Stepping)
}

/// The beginning of a file of events.
struct Writing(Writer<Stepping>);

impl Writing {
    fn plugin(&mut self, name: &str) {
        self.0.plugin(name.as_bytes());
    }

    fn doing(&mut self, what: &str) {
        STEPS.fetch_add(1, Ordering::Relaxed);
        self.0.doing(what.as_bytes());
        let _ = self.0.flush();
    }
}

/// Says in the profile that this process, a forked child, cannot use plugins.
fn refuse(process: Process, options: &PluginOptions) {
    for file in &options.files {
        let Some(mut writer) = writer(process, options) else { return };
        writer.plugin(file.as_bytes());
        writer.message(&Message {
            level: ERROR,
            loses: true,
            count: 1,
            text: b"cannot be used in a forked child of a process that has loaded plugins",
        });
        let _ = writer.finish();
    }
}

/// The level of errors in KINETO_LOG_LEVEL.
const ERROR: u32 = 4;
/// The level of warnings.
const WARNING: u32 = 2;

impl One {
    fn doing(&mut self, what: &str) {
        STEPS.fetch_add(1, Ordering::Relaxed);
        self.writer.doing(what.as_bytes());
        let _ = self.writer.flush();
    }

    fn create(&mut self, options: &PluginOptions, configuration: &CString) {
        let Loaded { plugin, host, .. } = self.loaded;
        self.doing("in profilerCreate");
        let types = plugin.wanted(host, &options.types);
        let setup = Setup {
            types: &types,
            configuration,
            warmup_ns: 0,
            max_buffer_bytes: options.max_buffer,
        };
        self.sessions = plugin.profilers.iter().filter_map(|p| p.create(&setup)).collect();
    }

    fn start(&mut self) {
        self.doing("in profilerStart");
        self.sessions.iter_mut().for_each(|session| _ = session.start());
        self.doing("while it recorded");
    }

    /// Writes the kinds that the plugin has declared since the last time.
    fn kinds(&mut self) {
        let types = self.loaded.host.types();
        for (index, (name, base)) in types.iter().enumerate().skip(self.kinds) {
            self.writer.kind(abi::kineto::FIRST_OWN_TYPE + index as u32, name, *base);
        }
        self.kinds = types.len();
    }

    /// Writes what it did wrong while it was loaded and in this recording.
    fn problems(&mut self) {
        let since = self.loaded.plugin.problems.since(&self.before);
        for (problem, count) in self.loaded.at_load.iter().chain(&since) {
            let loses = problem.loses();
            let level = if loses { ERROR } else { WARNING };
            let text = problem.to_string();
            self.writer.message(&Message { level, loses, count: *count, text: text.as_bytes() });
        }
    }

    /// Writes the lines that it has logged.
    fn lines(&mut self) {
        for line in plugins::take_lines(self.loaded.number) {
            let (level, text) = (line.level, line.text.as_bytes());
            self.writer.message(&Message { level, loses: false, count: 1, text });
        }
    }
}
