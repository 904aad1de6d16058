//! Opens a profile: finds its processes, their threads, and the location of each page.
//!
//! Opening a profile reads the files that contain pages, to find the complete pages and the damage
//! between them. Records are decoded later, page by page ([`crate::visit`]). The pool is read
//! before the files. So a page that is moved from the pool to a file meanwhile is found twice,
//! rather than missed.
//!
//! above 600 lines: many of them are the documented fields of a profile and of a process.

mod clock_map;
mod exact;
mod joined;
mod line;
mod members;
mod metadata;
mod ranks;
mod renumber;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use model::Loss;
use record::counts::CountsFrames;
use record::host::Host;
use record::job::{Job, fits};
use record::loops::LOOPS_NAME;
use record::meta::{
    self, Calibration, Frame, Frames, Leaving, Library, META_NAME, OpExport, PAGES_NAME,
    PARTS_NAME, ProcessCost, ValueKey,
};
use record::pool::PoolFile;
use record::thread_times::ThreadCpu;
use record::{Granularity, PageHeader, Snapshot, Timeline, brackets::Brackets};

use crate::counts::{CountedCalls, ThreadSpent};
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::ledger::{Ledger, LossCount, merge_losses};
use crate::leftovers::{LeftPage, Leftovers, PartId};
use crate::manifest::{Manifest, Moment, SwitchCost};
use crate::merged::Member;
use crate::ops::{Exporting, Ops};
use crate::pools::{self, NoPool};
use crate::safe_dir::Dir;
use crate::scan::{Rewritten, Scan, scan};
use crate::tracks::{Times, Tracks};
use record::counts::steps::Steps;

pub(crate) use clock_map::ClockMap;
use line::fit;

/// A profile directory that is open for reading.
#[derive(Debug)]
pub struct Profile {
    /// Path of the directory.
    pub dir: PathBuf,
    pub manifest: Manifest,
    /// The processes that recorded, oldest first.
    pub processes: Vec<Process>,
    /// See [`Profile::counted`].
    pub(crate) counted: Vec<CountedCalls>,
    /// The ops of all processes.
    pub ops: Ops,
    /// The groups of the counters.
    pub groups: Groups,
    /// The conversion of ticks to nanoseconds.
    pub timeline: Timeline,
    /// The clock snapshots of the manifest and of the processes.
    pub snapshots: Vec<Moment>,
    /// The time series of the profile, sorted by the names of their directories.
    pub tracks: Vec<Tracks>,
    /// The profiles that were merged into this one.
    pub members: Vec<Member>,
    /// Losses that belong to no process, such as those of time series. Those of a process are in
    /// [`Process::losses`].
    pub losses: Vec<LossCount>,
    /// For each process and each of its threads, a moment in ticks: calls that began before this
    /// moment are left out. Empty by default.
    pub(crate) left_out: Vec<Vec<u64>>,
    pub(crate) root: Dir,
    /// The directories of the recordings, which may contain activities. Each directory has the
    /// index of its recording in [`Profile::members`] (0 if there are none).
    pub(crate) roots: Vec<(usize, Dir)>,
    /// The pool of each recorded pass; one entry if the profile has no passes, and none if it is
    /// merged.
    pub(crate) pools: Vec<Option<PoolFile>>,
}

/// A process from its start or an `exec` to its end or the next `exec` (a *generation*).
#[derive(Debug)]
pub struct Process {
    /// The process's identity, which also names its part (the directory with its files).
    pub id: PartId,
    /// The process's own description; `None` if its metadata is missing.
    pub info: Option<meta::Process>,
    /// The process's hosts (the runtimes whose calls are recorded), each with the number by which
    /// libraries refer to it: at most [`MOST_HOSTS`].
    pub hosts: Vec<(u8, Host)>,
    /// The process's executable libraries, and the virtual machines of its hosts.
    pub libraries: Vec<Library>,
    /// The exports (things whose calls are recorded) that are not functions of a library, such as
    /// ops.
    pub op_exports: Vec<OpExport>,
    /// The meanings of the keys under which calls have values, except keys with a fixed meaning
    /// ([`record::page`]).
    pub value_keys: Vec<ValueKey>,
    /// Texts that values refer to, by number.
    pub texts: HashMap<u32, String>,
    /// The cost of probes (recordings of empty calls), for each calibrated thread and set of
    /// counters.
    pub calibrations: Vec<Calibration>,
    /// The steps by which the process's clock advances, if known.
    pub clock_steps: Option<Granularity>,
    /// The times of brackets (the recorder's work before and after a call). If there are several
    /// entries for the same thread and set of counters, the last one is valid.
    pub brackets: Vec<Brackets>,
    /// The times that the host itself needed to announce ops to the recorder, before and after the
    /// ops. If there are several entries for a thread, the last one is valid.
    pub announced: Vec<Brackets>,
    /// What recording cost the process apart from the work at calls, for example when the recorder
    /// was loaded; `None` if unknown.
    pub cost: Option<ProcessCost>,
    /// The processor time of the process's threads at the end of the process or of the recording
    /// session. `None` if the process did not end in an orderly way.
    pub thread_times: Option<Vec<ThreadCpu>>,
    /// What it cost to append the threads' last pages to the file; `None` if the process did not
    /// end in an orderly way.
    pub leaving: Option<Leaving>,
    /// In a run with a budget: what recording cost on the threads. See [`crate::counts`].
    pub spent: Vec<ThreadSpent>,
    /// The counts of the program's steps, if a host announced its ops only in some of the steps.
    /// Only [`Steps::steps`] and the fields after it are valid here.
    pub steps: Option<Steps>,
    pub(crate) counted: Vec<CountedCalls>,
    /// See [`Manifest::switch_cost`]. In a profile with passes, this is the value from the manifest
    /// of the process's pass.
    pub switch_cost: Option<SwitchCost>,
    /// The threads, in the order of their numbers.
    pub threads: Vec<Thread>,
    /// Whether the process is running and may still record.
    pub alive: bool,
    /// The pass (run of the program) in which the process recorded, from 0.
    pub pass: u32,
    /// Index in [`Profile::members`]; 0 if there are none.
    pub member: usize,
    /// The conversion of the process's ticks to ticks of the profile; `None` if they are the same.
    pub(crate) clock: Option<ClockMap>,
    /// The process's place in a distributed job, if known.
    pub job: Option<Job>,
    /// The name that a launcher gave the job, if any.
    pub job_name: Option<String>,
    /// Losses that the process counted, and missing or damaged data in its files. Damage inside of
    /// pages is found when the pages are visited.
    pub losses: Vec<LossCount>,
    /// The directory that contains the directories of all processes, if it exists.
    parts: Option<Dir>,
}

/// The largest number of hosts that are read for one process.
pub const MOST_HOSTS: usize = 32;

/// One thread that recorded.
#[derive(Debug)]
pub struct Thread {
    /// The thread's number in its process.
    pub uid: u32,
    /// The kernel's id.
    pub tid: u32,
    /// The thread's name at the end of its last page.
    pub name: String,
    /// The pages in the order of their sequence numbers, without duplicates.
    pub(crate) pages: Vec<PageRef>,
}

impl Thread {
    /// Returns the headers of the thread's pages, in the order of their sequence numbers.
    pub fn headers(&self) -> impl DoubleEndedIterator<Item = &PageHeader> + ExactSizeIterator {
        self.pages.iter().map(|page| &page.header)
    }
}

#[derive(Debug)]
pub(crate) struct PageRef {
    pub header: PageHeader,
    pub place: Place,
}

#[derive(Debug)]
pub(crate) enum Place {
    /// In the process's file of pages, at this offset in bytes.
    File(u64),
    /// In the pool, with this number; the page's process is dead.
    Pool(usize),
    /// Copied from the pool, because the page's process is alive.
    Copy(Vec<u8>),
}

impl Profile {
    /// Opens the profile in `dir`, with the content of its pool.
    ///
    /// # Errors
    /// Fails if `dir` is not a profile of this version or cannot be read. Damage in the profile's
    /// files is no error: see [`Process::losses`].
    pub fn open(dir: &Path) -> Result<Self> {
        let root = match Dir::open(dir) {
            Ok(root) => root,
            // For a path that is no directory, reading the manifest gives a better error message.
            Err(e) => return Err(Manifest::read(dir).err().unwrap_or(e)),
        };
        Self::open_at(&root)
    }

    /// Opens the profile whose directory is `root`.
    ///
    /// # Errors
    /// Same as for [`Profile::open`].
    pub fn open_at(root: &Dir) -> Result<Self> {
        let manifest = Manifest::read_in(root)?;
        match (manifest.merged.as_slice(), manifest.passes) {
            ([], 0) => Self::open_one(root, manifest),
            ([], _) => joined::open(root, manifest),
            _ => members::open(root, manifest),
        }
    }

    /// Returns the profile's directory.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Returns the number of passes, up to the last one that recorded something. This number may be
    /// lower than the one in the manifest, if a pass failed or `run` was killed.
    pub fn passes(&self) -> u32 {
        match self.manifest.passes {
            0 => 0,
            _ => self.processes.iter().map(|process| process.pass + 1).max().unwrap_or(0),
        }
    }

    fn open_one(root: &Dir, manifest: Manifest) -> Result<Self> {
        let mut losses = Vec::new();
        let left = left_in_pool(root, &manifest, &mut losses);
        let parts = match root.dir(PARTS_NAME) {
            Ok(parts) => Some(parts),
            // Nothing was recorded.
            Err(e) if e.is_not_found() => None,
            Err(e) if e.is_refused() => {
                losses.push(LossCount::new(Loss::FileRefused, 1));
                None
            }
            Err(e) => return Err(e),
        };
        let mut ids = parts.as_ref().map_or(Ok(BTreeSet::new()), part_ids)?;
        let run_ledger = left.as_ref().map(|left| left.run_ledger.clone());
        let run_ledger = run_ledger.or_else(|| Ledger::read(root)).unwrap_or_default();
        losses = merge_losses(losses.iter().chain(&run_ledger.losses));
        let (mut pages, mut ledgers, mut pool) = (BTreeMap::new(), BTreeMap::new(), None);
        let mut tables: BTreeMap<PartId, CountsFrames> = BTreeMap::new();
        let mut alive: BTreeSet<PartId> = BTreeSet::new();
        if let Some(left) = left {
            ids.extend(left.ledgers.keys());
            ids.extend(left.pages.iter().map(|page| PartId::of(&page.header)));
            ids.extend(left.loops.iter().map(PartId::of_run));
            ids.extend(left.tables.iter().map(PartId::of_table));
            alive.extend(ids.iter().filter(|id| left.is_alive(**id)));
            for page in left.pages {
                pages.entry(PartId::of(&page.header)).or_insert_with(Vec::new).push(page);
            }
            for table in left.tables {
                table.add_to(tables.entry(PartId::of_table(&table)).or_default());
            }
            (ledgers, pool) = (left.ledgers, Some(left.file));
        }
        let mut processes = Vec::new();
        let mut snapshots: Vec<Snapshot> =
            manifest.snapshots.iter().map(|s| Snapshot::from(*s)).collect();
        for id in ids {
            let left = pages.remove(&id).unwrap_or_default();
            let mut process = Process::new(parts.clone(), id, alive.contains(&id));
            let part = process.part()?;
            process.open(part.as_ref(), left, &mut snapshots)?;
            process.open_counts(part.as_ref(), tables.remove(&id).unwrap_or_default())?;
            let ledger = ledgers.remove(&id).or_else(|| Ledger::read(part.as_ref()?));
            let noted = ledger.map(|ledger| ledger.losses).unwrap_or_default();
            process.losses = merge_losses(noted.iter().chain(&process.losses));
            process.switch_cost = manifest.switch_cost;
            let left = process.open_events();
            let left = process.unless_refused(left)?.map_or(0, |files| files.len() as u64);
            process.lose(Loss::PluginEventsLeft, left);
            processes.push(process);
        }
        if !alive.is_empty() {
            losses.push(LossCount::new(Loss::WrittenWhileRead, 1));
        }
        ranks::complete(&mut processes, &manifest);
        let timeline = fit(manifest.clock.into(), &snapshots, &processes);
        let (tracks, damaged) = Tracks::open_in(root)?;
        let in_ticks = |tracks: &Tracks| tracks.series.values().any(|s| s.times == Times::Ticks);
        let uses_ticks =
            processes.iter().any(|p| !p.threads.is_empty()) || tracks.iter().any(in_ticks);
        if !timeline.calibrated && uses_ticks {
            losses.push(LossCount::new(Loss::ClockUncalibrated, 1));
        }
        let counted = exact::of_all(&mut processes);
        let ops = Ops::new(processes.iter().map(Process::exports));
        let groups = Groups::new(&manifest.counters);
        let of_tracks = tracks.iter().flat_map(|tracks| &tracks.losses).chain(&damaged);
        let losses = merge_losses(losses.iter().chain(of_tracks));
        let dir = root.path().to_path_buf();
        let snapshots = snapshots.into_iter().map(Moment::from).collect();
        Ok(Self {
            dir,
            root: root.clone(),
            manifest,
            processes,
            counted,
            ops,
            groups,
            timeline,
            snapshots,
            tracks,
            losses,
            members: Vec::new(),
            left_out: Vec::new(),
            roots: vec![(0, root.clone())],
            pools: vec![pool],
        })
    }

    /// Returns the losses that were found when the profile was opened.
    pub fn all_losses(&self) -> Vec<LossCount> {
        merge_losses(self.losses.iter().chain(self.processes.iter().flat_map(|p| &p.losses)))
    }

    /// Returns the number of calls according to the page headers. If pages are damaged, fewer calls
    /// can be read.
    pub fn calls(&self) -> u64 {
        self.processes.iter().map(Process::calls).sum()
    }

    /// Returns the number of calls that the recorder recorded, without those of profiler plugins.
    pub fn bracketed_calls(&self) -> u64 {
        let bracketed = self.processes.iter().filter(|process| !process.id.is_of_plugins());
        bracketed.map(Process::calls).sum()
    }
}

fn left_in_pool(root: &Dir, manifest: &Manifest, losses: &mut Vec<LossCount>) -> Option<Leftovers> {
    manifest.pool.as_ref()?;
    let found = pools::find(root, manifest).and_then(|found| {
        let is_of_profile = found.is_of_profile;
        let left = Leftovers::read(found.file, manifest).map_err(NoPool::Unreadable)?;
        Ok((left, is_of_profile))
    });
    let (loss, errno) = match found {
        Ok((left, true)) => return Some(left),
        Ok((left, false)) => {
            losses.push(LossCount::new(Loss::PoolOfOriginal, 1));
            return Some(left);
        }
        Err(NoPool::Refused(_)) => (Loss::PoolRefused, None),
        // Everything in the pool was already moved to the profile.
        Err(_) if manifest.pool_collected => return None,
        Err(NoPool::Gone) => (Loss::PoolVanished, Some(rustix::io::Errno::NOENT.raw_os_error())),
        Err(NoPool::Unreadable(e)) => (Loss::PoolVanished, e.raw_os_error()),
    };
    losses.push(LossCount { errno, ..LossCount::new(loss, 1) });
    None
}

fn part_ids(parts: &Dir) -> Result<BTreeSet<PartId>> {
    Ok(parts.names()?.iter().filter_map(|name| PartId::parse(name.to_str()?)).collect())
}

impl Process {
    /// Returns the process id; for a device that a plugin recorded, the number that the plugin gave
    /// it.
    pub fn number(&self) -> u32 {
        let info = self.info.as_ref().filter(|_| self.id.is_of_plugins());
        let said = info.and_then(|info| info.arguments.get(1)?.parse().ok());
        said.unwrap_or(self.id.pid)
    }

    pub(crate) fn exports(&self) -> Exporting<'_> {
        (&self.hosts, &self.libraries, &self.op_exports)
    }

    /// Returns the description of a library's host.
    pub fn host_of(&self, library: &Library) -> &Host {
        let known = self.hosts.iter().find(|(number, _)| *number == library.host);
        known.map_or(&Host::UNKNOWN, |(_, host)| host)
    }

    /// Returns the hosts of the process's libraries, without duplicates.
    pub fn seen_hosts(&self) -> impl Iterator<Item = &Host> {
        let mut seen = [false; 1 << u8::BITS];
        let first = move |library: &&Library| {
            !std::mem::replace(&mut seen[usize::from(library.host)], true)
        };
        self.libraries.iter().filter(first).map(|library| self.host_of(library))
    }

    fn new(parts: Option<Dir>, id: PartId, alive: bool) -> Self {
        Self {
            id,
            info: None,
            hosts: Vec::new(),
            libraries: Vec::new(),
            op_exports: Vec::new(),
            value_keys: Vec::new(),
            texts: HashMap::new(),
            calibrations: Vec::new(),
            clock_steps: None,
            brackets: Vec::new(),
            announced: Vec::new(),
            cost: None,
            thread_times: None,
            leaving: None,
            spent: Vec::new(),
            steps: None,
            counted: Vec::new(),
            switch_cost: None,
            threads: Vec::new(),
            alive,
            pass: 0,
            member: 0,
            clock: None,
            job: None,
            job_name: None,
            losses: Vec::new(),
            parts,
        }
    }

    fn calls(&self) -> u64 {
        self.threads.iter().flat_map(Thread::headers).map(|header| u64::from(header.calls)).sum()
    }

    fn part(&mut self) -> Result<Option<Dir>> {
        let Some(parts) = &self.parts else { return Ok(None) };
        let part = parts.dir(self.id.name());
        self.unless_refused(part)
    }

    /// Returns what was opened; `None` if it does not exist or was refused. A refusal is counted as
    /// a loss.
    fn unless_refused<T>(&mut self, opened: Result<T>) -> Result<Option<T>> {
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) if e.is_refused() => {
                self.lose(Loss::FileRefused, 1);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn open_pages(&self) -> Result<File> {
        let gone =
            || Error::new("open", Path::new(PARTS_NAME), io::Error::from(io::ErrorKind::NotFound));
        self.parts.as_ref().ok_or_else(gone)?.dir(self.id.name())?.file(PAGES_NAME)
    }

    /// Opens the files that contain events of plugins or recordings of PyTorch's profiler, in the
    /// order of the numbers in their names.
    ///
    /// # Errors
    /// Fails if the process's directory cannot be read, or if a file is not a regular file.
    pub fn open_events(&self) -> Result<Vec<(String, File)>> {
        let Some(parts) = &self.parts else { return Ok(Vec::new()) };
        let part = match parts.dir(self.id.name()) {
            Err(e) if e.is_not_found() => return Ok(Vec::new()),
            part => part?,
        };
        let names = part.names()?;
        let number = |name: &std::ffi::OsString| {
            let name = name.to_str()?;
            let number = meta::events_number(name).or_else(|| meta::trace_number(name))?;
            Some((number, name.to_owned()))
        };
        let mut found: Vec<(u32, String)> = names.iter().filter_map(number).collect();
        found.sort();
        found.into_iter().map(|(_, name)| Ok((name.clone(), part.file(&name)?))).collect()
    }

    pub(crate) fn open_loops(&self) -> Result<Option<File>> {
        self.open_in_part(LOOPS_NAME)
    }

    /// Returns the file with this name in the process's directory, if there is one.
    pub(crate) fn open_in_part(&self, name: &str) -> Result<Option<File>> {
        let Some(parts) = &self.parts else { return Ok(None) };
        match parts.dir(self.id.name()).and_then(|part| part.file(name)) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open(
        &mut self,
        part: Option<&Dir>,
        left: Vec<LeftPage>,
        snapshots: &mut Vec<Snapshot>,
    ) -> Result<()> {
        let (mut found, mut frames) = (Scan::default(), Frames::default());
        if let Some(part) = part {
            if let Some(file) = self.unless_refused(part.file(PAGES_NAME))? {
                found = scan(&file).map_err(Error::on("read", &part.path_of(PAGES_NAME)))?;
            }
            if let Some(file) = self.unless_refused(part.file(META_NAME))? {
                let read = metadata::read(file);
                frames = read.map_err(Error::on("read", &part.path_of(META_NAME)))?;
            }
        }
        let recorded = !found.pages.is_empty() || !left.is_empty();
        self.index(found, left);
        self.take_metadata(frames, recorded, snapshots);
        Ok(())
    }

    fn lose(&mut self, loss: Loss, count: u64) {
        let one = LossCount::new(loss, count);
        self.losses = merge_losses(self.losses.iter().chain([&one]));
    }

    fn take_metadata(&mut self, read: Frames, recorded: bool, snapshots: &mut Vec<Snapshot>) {
        // A live process may have written only half of its last frame (entry of the file).
        let torn = read.torn_at.is_some() && !self.alive;
        // The first frame describes the process, so a process that recorded must have at least one
        // frame in its file.
        if torn || (recorded && read.frames.is_empty()) {
            self.lose(Loss::TornMetadata, 1);
        }
        for frame in read.frames {
            match frame {
                Frame::Process(info) => self.info = self.info.take().or(Some(info)),
                Frame::Snapshot(snapshot) => snapshots.push(snapshot),
                Frame::Library(library) => self.libraries.push(library),
                Frame::Host(number, host) => {
                    let known = self.hosts.iter().any(|(known, _)| *known == number);
                    if !known && self.hosts.len() < MOST_HOSTS {
                        self.hosts.push((number, *host));
                    }
                }
                Frame::Calibration(calibration) => self.calibrations.push(calibration),
                Frame::Op(export) => self.op_exports.push(export),
                Frame::Value(key) => self.value_keys.push(key),
                Frame::Text(text) => {
                    self.texts.insert(text.id, text.text);
                }
                Frame::Leaving(leaving) => self.leaving = Some(leaving),
                Frame::Clock(steps) => self.clock_steps = Some(steps),
                Frame::Brackets(brackets) => self.brackets.push(brackets),
                Frame::Announced(times) => self.announced.push(times),
                Frame::Cost(cost) => self.cost = Some(cost),
                Frame::Job(job) => self.job = Some(job),
                Frame::JobName(name) => self.job_name = Some(name).filter(|name| fits(name)),
                Frame::Threads(threads) => self.thread_times = Some(threads),
            }
        }
    }

    /// Sorts pages by thread and sequence number and removes duplicates. Counts torn pages, missing
    /// pages, and calls that had not ended when their process did.
    fn index(&mut self, found: Scan, left: Vec<LeftPage>) {
        let torn = self.torn_pages(&found, &left);
        let in_file = found
            .pages
            .into_iter()
            .map(|page| PageRef { header: page.header, place: Place::File(page.offset) });
        let in_pool = left.into_iter().map(|page| PageRef {
            header: page.header,
            place: page.copy.map_or(Place::Pool(page.number), Place::Copy),
        });
        let mut pages: Vec<PageRef> =
            in_file.filter(|p| PartId::of(&p.header) == self.id).chain(in_pool).collect();
        let key = |p: &PageRef| (p.header.start.thread_uid, p.header.start.sequence);
        // The sort is stable: of copies with the same length, the one in the file comes first.
        pages.sort_by_key(|p| (key(p), std::cmp::Reverse(p.header.committed)));
        pages.dedup_by_key(|p| key(p));

        let (mut missing, mut cut_short) = (0, 0);
        for page in pages {
            let start = &page.header.start;
            if self.threads.last().is_none_or(|t| t.uid != start.thread_uid) {
                let (uid, tid) = (start.thread_uid, start.tid);
                self.threads.push(Thread { uid, tid, name: String::new(), pages: vec![] });
            }
            let Some(thread) = self.threads.last_mut() else { continue };
            let expected =
                thread.pages.last().map_or(0, |p| u64::from(p.header.start.sequence) + 1);
            missing += u64::from(start.sequence).saturating_sub(expected);
            thread.pages.push(page);
        }
        for thread in &mut self.threads {
            let Some(last) = thread.pages.last() else { continue };
            thread.name = last.header.thread_name();
            if !self.alive {
                cut_short += u64::from(last.header.open_calls);
            }
        }
        for (loss, count) in
            [(Loss::TornPage, torn), (Loss::MissingPage, missing), (Loss::CallCutShort, cut_short)]
        {
            self.lose(loss, count);
        }
    }

    /// Counts fragments of pages that do not exist as a whole anywhere, and pages of other
    /// processes.
    fn torn_pages(&self, found: &Scan, left: &[LeftPage]) -> u64 {
        let foreign = found.pages.iter().filter(|p| PartId::of(&p.header) != self.id).count();
        let whole = found.pages.iter().map(|p| (p.offset, &p.header));
        // A fragment does not count if its page is complete in the pool. Such pages get an offset
        // after all fragments.
        let whole = whole.chain(left.iter().map(|p| (u64::MAX, &p.header)));
        let mut rewritten = Rewritten::new(whole);
        let last = found.pages.last().map_or(0, |p| p.offset);
        let fragments = found.fragments.iter().filter(|fragment| {
            // A fragment does not count if a live process may still be writing it, or if the page
            // was written again later in the file.
            let being_written = self.alive && last <= fragment.offset;
            !being_written && !rewritten.is_after(fragment)
        });
        foreign as u64 + fragments.count() as u64 + found.more_fragments
    }
}
