//! Loads one profiler plugin, calls its functions, and writes its file of events. Before most
//! calls, the call's name is written to the plugin's file of events. So if the file has no end
//! mark, the last name in it usually tells in which call the program ended or the plugin was given
//! up.

use std::ffi::{CString, c_void};
use std::io;
use std::sync::Arc;

use plugin_host::load::TakeEvents;
use plugin_host::stream::Writer;
use plugin_host::{Correlation, Message, Problem, Session, Setup, Sink};
use record::run_file::PluginOptions;

use super::progress::Progress;
use crate::process::events::{self, EventsFile};
use crate::process::part::Process;
use crate::process::plugins::{self, Loaded, Loader};

/// A file of events. A write to it counts as a step of the plugin ([`Progress`]).
struct Stepping {
    file: EventsFile,
    progress: Arc<Progress>,
}

impl io::Write for Stepping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        point!(PluginWrite);
        self.progress.step();
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub struct One {
    /// `None` if the plugin is not loaded (yet), or if it already takes part in this recording
    /// under another file name.
    loaded: Option<&'static Loaded>,
    sessions: Vec<Session<'static>>,
    /// `None` after the plugin's file has been ended.
    writer: Option<Writer<Stepping>>,
    progress: Arc<Progress>,
    /// The problems that the plugin had before this recording, and how many times each of them had
    /// occurred.
    before: Vec<(Problem, u64)>,
    /// Number of the plugin's own kinds of events that were already written to the file.
    kinds: usize,
    paused: bool,
}

/// The level of errors in KINETO_LOG_LEVEL.
const ERROR: u32 = 4;
/// The level of warnings in KINETO_LOG_LEVEL.
const WARNING: u32 = 2;

impl One {
    /// Begins the plugin's file. Returns `None` if the process has no part of the profile.
    pub fn new(
        process: Process,
        options: &PluginOptions,
        file: &str,
        progress: Arc<Progress>,
    ) -> Option<Self> {
        let limit = Some(options.max_buffer).filter(|limit| *limit > 0);
        let its = Arc::clone(&progress);
        let mut writer = events::create(process, limit, |file| Stepping { file, progress: its })?;
        writer.plugin(file.as_bytes());
        Some(Self {
            loaded: None,
            sessions: Vec::new(),
            writer: Some(writer),
            progress,
            before: Vec::new(),
            kinds: 0,
            paused: false,
        })
    }

    /// Writes to the profile why the plugin does not take part, and ends its file.
    pub fn refuse(mut self, why: &str) {
        self.message(ERROR, true, 1, why);
        self.finish();
    }

    fn doing(&mut self, what: &str) {
        self.progress.step();
        if let Some(writer) = &mut self.writer {
            writer.doing(what.as_bytes());
            let _ = writer.flush();
        }
    }

    fn message(&mut self, level: u32, loses: bool, count: u64, text: &str) {
        if let Some(writer) = &mut self.writer {
            writer.message(&Message { level, loses, count, text: text.as_bytes() });
        }
    }

    /// Ends the file. If a write fails, [`EventsFile`] counts a loss.
    fn finish(&mut self) {
        self.progress.step();
        if let Some(writer) = self.writer.take() {
            let _ = writer.finish();
        }
    }

    /// Loads the plugin. If it already takes part in this recording under another file name, only
    /// ends this file of events. `others` contains the numbers of the plugins that already take
    /// part.
    pub fn load(&mut self, file: &str, loader: &Loader, others: &[u32]) {
        self.doing("while it was loaded and registered");
        let Some(loaded) = loader.load(&[file]).pop() else { return };
        if others.contains(&loaded.number) {
            return self.finish();
        }
        self.before = loaded.plugin.problems.all();
        self.loaded = Some(loaded);
    }

    /// Returns the plugin's number in this process, if it was loaded and takes part in this
    /// recording.
    pub fn number(&self) -> Option<u32> {
        self.loaded.map(|loaded| loaded.number)
    }

    pub fn take_events_with(&self, take: TakeEvents) {
        if let Some(loaded) = self.loaded {
            loaded.host.take_events_with(take);
        }
    }

    pub fn create(&mut self, options: &PluginOptions) {
        let Some(Loaded { plugin, host, .. }) = self.loaded else { return };
        self.doing("in profilerCreate");
        let types = plugin.wanted(host, &options.types);
        let configuration = CString::new(options.configuration.as_str()).unwrap_or_default();
        let setup = Setup {
            types: &types,
            configuration: &configuration,
            warmup_ns: 0,
            max_buffer_bytes: options.max_buffer,
        };
        self.sessions = plugin.profilers.iter().filter_map(|p| p.create(&setup)).collect();
    }

    pub fn start(&mut self, paused: bool) {
        if self.loaded.is_none() {
            return;
        }
        self.doing("in profilerStart");
        self.sessions.iter_mut().for_each(|session| _ = session.start());
        self.doing("while it recorded");
        self.toggle(paused);
    }

    /// Returns the objects through which the plugin's sessions get the ids of ops.
    pub fn correlations(&self) -> impl Iterator<Item = Correlation> {
        self.sessions.iter().map(Session::correlation)
    }

    /// Returns whether the plugin can be paused or can hand over events while it records.
    pub fn can_be_controlled(&self) -> bool {
        self.sessions.iter().any(|session| {
            let extension = session.profiler().extension;
            extension.is_some_and(|known| known.toggle.is_some() || known.flush.is_some())
        })
    }

    pub fn can_flush(&self) -> bool {
        self.sessions
            .iter()
            .any(|session| session.profiler().extension.is_some_and(|known| known.flush.is_some()))
    }

    /// Pauses the plugin (`true`) or lets it continue.
    pub fn toggle(&mut self, paused: bool) {
        if std::mem::replace(&mut self.paused, paused) == paused {
            return;
        }
        self.doing(if paused { "while it was paused" } else { "while it was continued" });
        self.sessions.iter_mut().for_each(|session| _ = session.toggle(!paused));
        self.doing("while it recorded");
    }

    /// Asks the plugin for the events that are complete, and writes them.
    pub fn flush(&mut self) {
        if self.loaded.is_none() || self.writer.is_none() {
            return;
        }
        self.doing("in flush");
        self.kinds();
        if let Some(writer) = &mut self.writer {
            self.sessions.iter_mut().for_each(|session| _ = session.flush(writer));
        }
        self.lines();
        self.doing("while it recorded");
    }

    /// Called when the plugin asks to hand over events: takes the complete events of one session
    /// and writes them. Returns whether they were written. Unlike most calls, this one is not named
    /// in the file: the plugin itself asks for it, on its own thread, and no thread of the program
    /// waits for it.
    pub fn take_events(&mut self, session: *mut c_void) -> bool {
        self.kinds();
        let Some(writer) = &mut self.writer else { return false };
        let Some(session) = self.sessions.iter_mut().find(|one| one.is(session)) else {
            return false;
        };
        session.flush(writer) && writer.flush().is_ok()
    }

    pub fn stop(&mut self) {
        if self.loaded.is_none() {
            return;
        }
        self.doing("in profilerStop");
        self.sessions.iter_mut().for_each(|session| _ = session.stop());
    }

    /// Writes the plugin's events, destroys its sessions, and ends the file.
    pub fn end(&mut self) {
        if self.loaded.is_none() {
            return;
        }
        self.doing("in profilerProcessEvents");
        self.kinds();
        if let Some(writer) = &mut self.writer {
            self.sessions.iter_mut().for_each(|session| _ = session.process(writer));
        }
        self.doing("in profilerDestroy");
        drop(std::mem::take(&mut self.sessions));
        self.problems();
        self.lines();
        self.finish();
    }

    /// Writes the kinds of events that the plugin has declared since this function was last called.
    fn kinds(&mut self) {
        let (Some(loaded), Some(writer)) = (self.loaded, &mut self.writer) else { return };
        let types = loaded.host.types();
        for (index, (name, base)) in types.iter().enumerate().skip(self.kinds) {
            writer.kind(abi::kineto::FIRST_OWN_TYPE + index as u32, name, *base);
        }
        self.kinds = types.len();
    }

    /// Writes the problems that occurred while the plugin was loaded and during this recording.
    fn problems(&mut self) {
        let Some(loaded) = self.loaded else { return };
        let since = loaded.plugin.problems.since(&self.before);
        for (problem, count) in loaded.at_load.iter().chain(&since) {
            let loses = problem.loses();
            let level = if loses { ERROR } else { WARNING };
            self.message(level, loses, *count, &problem.to_string());
        }
    }

    /// Writes the lines that the plugin has logged since this function was last called.
    fn lines(&mut self) {
        let Some(loaded) = self.loaded else { return };
        for line in plugins::take_lines(loaded.number) {
            self.message(line.level, false, 1, &line.text);
        }
    }
}
