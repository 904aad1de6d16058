//! Makes a profile of calls that Counterpoint did not record itself.
//!
//! ```text
//!  process ─► export, thread ─► call, call, …  ─► pages, appended to the process's part when full
//!                                    finish    ─► last pages, names of libraries and exports
//! ```
//!
//! The clock of a new profile is [`ClockKind::Monotonic`], so ticks are nanoseconds. Parts
//! (directories of processes) that are added to a recorded profile have that profile's clock. The
//! calls of a thread may be added in any order. The written parts contain no counters, no losses
//! and no readings of threads' clocks.
//!
//! The writer keeps the names of all functions in memory, and the pages of at most [`MOST_PAGES`]
//! threads.

use std::collections::HashMap;
use std::io::Write;

use record::host::Host;
use record::job::Job;
use record::meta::{
    self, Export, Frame, LONGEST_NAME, Library, META_NAME, OpExport, PAGES_NAME, PARTS_NAME, Role,
    part_name,
};
use record::page::{Call, OwnedPage, PageStart};
use record::{ClockKind, Timeline};

use crate::error::{Error, Result};
use crate::leftovers::PartId;
use crate::manifest::Clock;
use crate::safe_dir::Dir;

/// Maximum number of pages in memory. Together they take 64 MiB.
pub const MOST_PAGES: usize = 1024;

/// Writes the parts of a profile (the directories of its processes), without the manifest.
#[derive(Debug)]
pub struct CallsWriter {
    parts: Dir,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    /// Number of threads with a page in memory.
    paged: usize,
    calls: u64,
    /// The clock of a recorded profile; `None` for a new profile.
    clock: Option<(ClockKind, Timeline)>,
}

/// A process of a [`CallsWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessKey(usize);

/// A thread of a [`CallsWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadKey(usize);

/// A function of one process of a [`CallsWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportKey(u32);

#[derive(Debug)]
struct Process {
    pid: u32,
    /// Distinguishes processes with the same id.
    start_time: u64,
    generation: u32,
    name: String,
    arguments: Vec<String>,
    job: Option<Job>,
    /// The name of the process's directory, which is opened for each write: a trace may have more
    /// processes than we may have open files.
    part: String,
    threads: u32,
    exports: u32,
    libraries: Vec<Library>,
    by_name: HashMap<String, usize>,
    /// Exports whose calls have another role (kind) than [`Role::Workgroup`].
    ops: Vec<OpExport>,
}

#[derive(Debug)]
struct Thread {
    process: usize,
    start: PageStart,
    page: Option<Box<OwnedPage>>,
}

impl CallsWriter {
    /// Creates a writer for the profile `dir`.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn create(dir: &Dir) -> Result<Self> {
        let parts = dir.make_dir(PARTS_NAME)?;
        let (processes, threads) = (Vec::new(), Vec::new());
        Ok(Self { parts, processes, threads, paged: 0, calls: 0, clock: None })
    }

    /// Creates a writer for parts of a recorded profile with this clock.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn create_for(dir: &Dir, clock: Clock, timeline: Timeline) -> Result<Self> {
        Ok(Self { clock: Some((clock.into(), timeline)), ..Self::create(dir)? })
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Adds a process. If this function is called twice with the same id, it adds two processes.
    ///
    /// # Errors
    /// Fails if the process's part cannot be created.
    pub fn process(&mut self, pid: u32) -> Result<ProcessKey> {
        let start_time = self.processes.iter().filter(|p| p.pid == pid).count() as u64;
        self.part(PartId { pid, start_time, generation: 0 }, &[])
    }

    /// Adds a process whose part gets this id, which must be new. `arguments` are stored as the
    /// arguments of the process's program.
    ///
    /// # Errors
    /// Fails if the process's part cannot be created.
    pub fn part(&mut self, id: PartId, arguments: &[String]) -> Result<ProcessKey> {
        let PartId { pid, start_time, generation } = id;
        let part = part_name(pid, start_time, generation);
        self.parts.create_dir(&part)?;
        self.processes.push(Process {
            pid,
            start_time,
            generation,
            name: String::new(),
            arguments: arguments.to_vec(),
            job: None,
            part,
            threads: 0,
            exports: 0,
            libraries: Vec::new(),
            by_name: HashMap::new(),
            ops: Vec::new(),
        });
        Ok(ProcessKey(self.processes.len() - 1))
    }

    /// Returns the id of a process.
    pub fn pid(&self, process: ProcessKey) -> u32 {
        self.processes[process.0].pid
    }

    /// Sets the name of a process, which is stored in place of the path of its program.
    pub fn name_process(&mut self, process: ProcessKey, name: &str) {
        self.processes[process.0].name = kept(name);
    }

    /// Sets the place of a process in a distributed job.
    pub fn set_job(&mut self, process: ProcessKey, job: Job) {
        self.processes[process.0].job = Some(job);
    }

    /// Adds a thread to a process.
    pub fn thread(&mut self, process: ProcessKey, tid: u32) -> ThreadKey {
        let of = &mut self.processes[process.0];
        let start = PageStart {
            pid: of.pid,
            start_time: of.start_time,
            generation: of.generation,
            thread_uid: of.threads,
            tid,
            ..PageStart::default()
        };
        of.threads += 1;
        self.threads.push(Thread { process: process.0, start, page: None });
        ThreadKey(self.threads.len() - 1)
    }

    /// Adds a thread that has a name but no thread id of the operating system.
    pub fn named_thread(&mut self, process: ProcessKey, name: &str) -> ThreadKey {
        let thread = self.thread(process, 0);
        self.name_thread(thread, name);
        thread
    }

    /// Names a thread. At most 15 bytes of the name are kept.
    pub fn name_thread(&mut self, thread: ThreadKey, name: &str) {
        let thread = &mut self.threads[thread.0];
        let mut end = name.len().min(15);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        thread.start.thread_name = [0; 16];
        thread.start.thread_name[..end].copy_from_slice(&name.as_bytes()[..end]);
    }

    /// Adds a function to a library, which is created if necessary. A function that was already
    /// added is added again, so the caller must remember the functions that it has added.
    pub fn export(
        &mut self,
        process: ProcessKey,
        role: Role,
        library: &str,
        name: &str,
    ) -> ExportKey {
        let of = &mut self.processes[process.0];
        let next = of.libraries.len();
        let at = *of.by_name.entry(library.to_owned()).or_insert(next);
        if at == next {
            of.libraries.push(Library {
                id: next as u32,
                name: kept(library),
                host: IMPORTED,
                abi: 0,
                features: 0,
                sanitizer: 0,
                ticks: 0,
                exports: Vec::new(),
            });
        }
        let id = of.exports;
        of.exports += 1;
        let name = kept(name);
        if role != Role::Workgroup {
            of.ops.push(OpExport { id, library: at as u32, role, name, ..OpExport::default() });
            return ExportKey(id);
        }
        let exports = &mut of.libraries[at].exports;
        let ordinal = exports.len() as u32;
        exports.push(Export { id, ordinal, recorded: true, name, ..Export::default() });
        ExportKey(id)
    }

    /// Adds a call.
    ///
    /// # Errors
    /// Fails if a page cannot be written: this thread's full page, or those of all threads if too
    /// many are in memory.
    #[inline]
    pub fn call(
        &mut self,
        thread: ThreadKey,
        export: ExportKey,
        start: u64,
        end: u64,
    ) -> Result<()> {
        if !self.threads[thread.0].page.as_ref().is_some_and(|page| page.has_room()) {
            self.turn_page(thread, start)?;
        }
        if let Some(page) = &mut self.threads[thread.0].page {
            page.call(&Call { export: export.0, start, end, ..Call::default() }, false, []);
            self.calls += 1;
        }
        Ok(())
    }

    /// Writes the thread's page, if it has one, and gives the thread an empty page. If there are
    /// too many pages in memory, it writes those of all threads first.
    #[cold]
    fn turn_page(&mut self, thread: ThreadKey, at: u64) -> Result<()> {
        self.flush(thread.0, false)?;
        if self.paged >= MOST_PAGES {
            for other in 0..self.threads.len() {
                self.flush(other, false)?;
            }
        }
        let thread = &mut self.threads[thread.0];
        thread.start.base_ticks = at;
        thread.start.base_monotonic_ns = match &self.clock {
            Some((_, timeline)) => timeline.monotonic_ns(at).max(0) as u64,
            None => at,
        };
        thread.page = Some(Box::new(OwnedPage::new(thread.start)));
        self.paged += 1;
        Ok(())
    }

    fn flush(&mut self, thread: usize, last: bool) -> Result<()> {
        let thread = &mut self.threads[thread];
        let Some(mut page) = thread.page.take() else { return Ok(()) };
        self.paged -= 1;
        thread.start.sequence += 1;
        page.set_thread_name(thread.start.thread_name);
        let part = self.parts.dir(&self.processes[thread.process].part)?;
        let written = part.append(PAGES_NAME)?.write_all(page.seal(last));
        written.map_err(Error::on("write", &part.path_of(PAGES_NAME)))
    }

    /// Writes the pages that are still in memory, and the names of functions. If this function is
    /// not called, the written calls have no names.
    ///
    /// # Errors
    /// Fails if the files cannot be written, for example because the disk is full.
    pub fn finish(mut self) -> Result<()> {
        for thread in 0..self.threads.len() {
            self.flush(thread, true)?;
        }
        for process in self.processes {
            let info = meta::Process {
                pid: process.pid,
                parent: 0,
                start_time: process.start_time,
                generation: process.generation,
                clock: self.clock.map_or(ClockKind::Monotonic, |(kind, _)| kind),
                program: process.name,
                arguments: process.arguments,
            };
            let mut bytes = Frame::Process(info).to_bytes();
            bytes.extend(process.job.into_iter().flat_map(|job| Frame::Job(job).to_bytes()));
            bytes.extend(Frame::Host(IMPORTED, Box::new(imported())).to_bytes());
            for library in process.libraries {
                bytes.extend(Frame::Library(library).to_bytes());
            }
            for op in process.ops {
                bytes.extend(Frame::Op(op).to_bytes());
            }
            let part = self.parts.dir(&process.part)?;
            let written = part.create(META_NAME)?.write_all(&bytes);
            written.map_err(Error::on("write", &part.path_of(META_NAME)))?;
        }
        Ok(())
    }
}

const IMPORTED: u8 = 0;

/// Returns the one host (runtime) that all imported calls have, because a trace does not describe
/// hosts.
fn imported() -> Host {
    Host {
        name: "imported".into(),
        title: "an imported trace".into(),
        dispatches: false,
        // The names of torch.profiler's steps differ only in a number, and its own tables show all
        // steps as one row.
        numbered: vec!["ProfilerStep#".into()].into(),
        ..Host::UNKNOWN
    }
}

/// Shortens a name to what the metadata can store.
fn kept(name: &str) -> String {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}
