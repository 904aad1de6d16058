//! An opened profile: its processes, their threads, and where each page of them is.
//!
//! Opening reads every file of pages once, to find the whole pages and what is damaged between
//! them; records are decoded later, page by page ([`crate::visit`]). The pool is looked at
//! before the files: a page that is flushed in between is then seen twice, not never.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use model::Loss;
use record::meta::{
    self, Calibration, Frame, Leaving, Library, META_NAME, OpExport, PAGES_NAME, PARTS_NAME,
    ValueKey,
};
use record::pool::PoolFile;
use record::{ClockKind, PageHeader, Snapshot, Timeline};

use crate::error::{Error, ErrorKind, Result};
use crate::groups::Groups;
use crate::ledger::{Ledger, LossCount, merge_losses};
use crate::leftovers::{LeftPage, Leftovers, PartId};
use crate::manifest::{Manifest, Moment, SwitchCost};
use crate::ops::Ops;
use crate::scan::{Scan, scan};
use crate::tracks::{Times, Tracks};

/// A profile directory, opened for reading. Nothing in it is changed.
#[derive(Debug)]
pub struct Profile {
    /// Where it is.
    pub dir: PathBuf,
    /// What it says about itself.
    pub manifest: Manifest,
    /// The processes that recorded, oldest first.
    pub processes: Vec<Process>,
    /// The ops of all processes.
    pub ops: Ops,
    /// How the counters are grouped.
    pub groups: Groups,
    /// Ticks to nanoseconds.
    pub timeline: Timeline,
    /// Every moment on all clocks that the manifest and the processes noted.
    pub snapshots: Vec<Moment>,
    /// Time series beside the calls, by the name of their directory.
    pub tracks: Vec<Tracks>,
    /// Losses of the run as a whole, with those of the descriptions of tracks; those of processes
    /// are with them.
    pub losses: Vec<LossCount>,
    /// For each thread of each process the ticks before which calls are left out; none by default.
    pub(crate) left_out: Vec<Vec<u64>>,
    /// Of each pass.
    pub(crate) pools: Vec<Option<PoolFile>>,
}

/// One process (one generation of it: `exec` starts another).
#[derive(Debug)]
pub struct Process {
    /// Who it is; also names its part.
    pub id: PartId,
    /// What it said about itself; `None` if its metadata is missing.
    pub info: Option<meta::Process>,
    /// The executable libraries that it loaded.
    pub libraries: Vec<Library>,
    /// What its virtual machines call.
    pub op_exports: Vec<OpExport>,
    /// What its values mean, beside the keys of fixed meaning ([`record::page`]).
    pub value_keys: Vec<ValueKey>,
    /// Texts that values name, by number.
    pub texts: HashMap<u32, String>,
    /// What its probes cost, one entry per set of counters that was calibrated.
    pub calibrations: Vec<Calibration>,
    /// What the last pages of its threads cost; `None` if it did not end in an orderly way.
    pub leaving: Option<Leaving>,
    /// What its counters add to each context switch, as [`Manifest::switch_cost`] has it; with
    /// passes, that of its pass.
    pub switch_cost: Option<SwitchCost>,
    /// Its threads, in the order of their numbers.
    pub threads: Vec<Thread>,
    /// Whether it still runs.
    pub alive: bool,
    /// In which pass it ran, from 0; 0 in a profile without passes.
    pub pass: u32,
    /// Its losses: its own, and what is missing or damaged in its files. Damage inside pages is
    /// found when they are visited.
    pub losses: Vec<LossCount>,
    pub(crate) pages_path: PathBuf,
}

/// One thread that recorded.
#[derive(Debug)]
pub struct Thread {
    /// Its number in its process.
    pub uid: u32,
    /// The kernel's id.
    pub tid: u32,
    /// Its name when it last flushed.
    pub name: String,
    /// Its pages by sequence number, each once.
    pub(crate) pages: Vec<PageRef>,
}

impl Thread {
    /// The headers of its pages, by sequence number.
    pub fn headers(&self) -> impl DoubleEndedIterator<Item = &PageHeader> + ExactSizeIterator {
        self.pages.iter().map(|page| &page.header)
    }
}

/// A page and where its bytes are.
#[derive(Debug)]
pub(crate) struct PageRef {
    pub header: PageHeader,
    pub place: Place,
}

#[derive(Debug)]
pub(crate) enum Place {
    /// In the part's file of pages, from this byte.
    File(u64),
    /// In the pool, this page; its owner is dead.
    Pool(usize),
    /// Copied out of the pool; its owner lives.
    Copy(Vec<u8>),
}

impl Profile {
    /// Opens the profile in `dir`, with what is left in the pool if that is still there.
    ///
    /// # Errors
    /// Not a profile, another version, not readable. Damage inside it is no error: see
    /// [`Process::losses`].
    pub fn open(dir: &Path) -> Result<Self> {
        let manifest = Manifest::read(dir)?;
        match manifest.passes {
            0 => Self::open_one(dir, manifest),
            _ => crate::passes::open(dir, manifest),
        }
    }

    /// How many passes recorded something: the last of them decides. Fewer than the manifest has
    /// if a pass failed or `run` was killed; 0 in a profile without passes.
    pub fn passes(&self) -> u32 {
        match self.manifest.passes {
            0 => 0,
            _ => self.processes.iter().map(|process| process.pass + 1).max().unwrap_or(0),
        }
    }

    pub(crate) fn open_one(dir: &Path, manifest: Manifest) -> Result<Self> {
        let mut losses = Vec::new();
        let left =
            match manifest.pool.as_deref().map(|pool| (pool, Leftovers::read(pool, &manifest))) {
                None => None,
                Some((_, Ok(left))) => Some(left),
                // Gone, damaged or somebody else's: what was flushed is readable all the same.
                Some((_, Err(e))) => {
                    if !manifest.pool_collected {
                        let mut vanished = LossCount::new(Loss::PoolVanished, 1);
                        vanished.errno = e.raw_os_error();
                        losses.push(vanished);
                    }
                    None
                }
            };
        let parts = dir.join(PARTS_NAME);
        let mut ids = part_ids(&parts)?;
        let run_ledger = left.as_ref().map(|left| left.run_ledger.clone());
        let run_ledger = run_ledger.or_else(|| Ledger::read(dir)).unwrap_or_default();
        losses = merge_losses(losses.iter().chain(&run_ledger.losses));
        let (mut pages, mut ledgers, mut pool) = (BTreeMap::new(), BTreeMap::new(), None);
        let mut alive: BTreeSet<PartId> = BTreeSet::new();
        if let Some(left) = left {
            ids.extend(left.ledgers.keys());
            ids.extend(left.pages.iter().map(|page| PartId::of(&page.header)));
            alive.extend(ids.iter().filter(|id| left.is_alive(**id)));
            for page in left.pages {
                pages.entry(PartId::of(&page.header)).or_insert_with(Vec::new).push(page);
            }
            (ledgers, pool) = (left.ledgers, Some(left.file));
        }
        let mut processes = Vec::new();
        let mut snapshots: Vec<Snapshot> =
            manifest.snapshots.iter().map(|s| Snapshot::from(*s)).collect();
        for id in ids {
            let left = pages.remove(&id).unwrap_or_default();
            let mut process = Process::open(&parts, id, left, alive.contains(&id), &mut snapshots)?;
            let ledger = ledgers.remove(&id).or_else(|| Ledger::read(&parts.join(id.name())));
            let noted = ledger.map(|ledger| ledger.losses).unwrap_or_default();
            process.losses = merge_losses(noted.iter().chain(&process.losses));
            process.switch_cost = manifest.switch_cost;
            processes.push(process);
        }
        if !alive.is_empty() {
            losses.push(LossCount::new(Loss::WrittenWhileRead, 1));
        }
        let timeline = fit(manifest.clock.into(), &snapshots, &processes);
        let (tracks, damaged) = Tracks::open_all(dir)?;
        let in_ticks = |tracks: &Tracks| tracks.series.values().any(|s| s.times == Times::Ticks);
        let uses_ticks =
            processes.iter().any(|p| !p.threads.is_empty()) || tracks.iter().any(in_ticks);
        if !timeline.calibrated && uses_ticks {
            losses.push(LossCount::new(Loss::ClockUncalibrated, 1));
        }
        let ops = Ops::new(processes.iter().map(Process::exports));
        let groups = Groups::new(&manifest.counters);
        let of_tracks = tracks.iter().flat_map(|tracks| &tracks.losses).chain(&damaged);
        let losses = merge_losses(losses.iter().chain(of_tracks));
        let dir = dir.to_path_buf();
        let snapshots = snapshots.into_iter().map(Moment::from).collect();
        Ok(Self {
            dir,
            manifest,
            processes,
            ops,
            groups,
            timeline,
            snapshots,
            tracks,
            losses,
            left_out: Vec::new(),
            pools: vec![pool],
        })
    }

    /// All losses that opening found, of all processes together.
    pub fn all_losses(&self) -> Vec<LossCount> {
        merge_losses(self.losses.iter().chain(self.processes.iter().flat_map(|p| &p.losses)))
    }

    /// How many calls the page headers promise. Damaged pages may hold fewer.
    pub fn calls(&self) -> u64 {
        let threads = self.processes.iter().flat_map(|p| &p.threads);
        threads.flat_map(Thread::headers).map(|header| u64::from(header.calls)).sum()
    }
}

/// The parts that are there. A profile without any is one in which nothing recorded.
fn part_ids(parts: &Path) -> Result<BTreeSet<PartId>> {
    let entries = match fs::read_dir(parts) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(Error::new("read", parts, e)),
    };
    let mut ids = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(Error::on("read", parts))?;
        ids.extend(entry.file_name().to_str().and_then(PartId::parse));
    }
    Ok(ids)
}

fn missing_is_empty<T: Default>(result: io::Result<T>, path: &Path) -> Result<T> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        other => other.map_err(|e| Error::new("read", path, ErrorKind::Io(e))),
    }
}

impl Process {
    /// Everything that its calls may name.
    pub(crate) fn exports(&self) -> (&[Library], &[OpExport]) {
        (&self.libraries, &self.op_exports)
    }

    fn open(
        parts: &Path,
        id: PartId,
        left: Vec<LeftPage>,
        alive: bool,
        snapshots: &mut Vec<Snapshot>,
    ) -> Result<Self> {
        let part = parts.join(id.name());
        let pages_path = part.join(PAGES_NAME);
        let found = missing_is_empty(File::open(&pages_path).and_then(scan), &pages_path)?;
        let mut process = Self {
            id,
            info: None,
            libraries: Vec::new(),
            op_exports: Vec::new(),
            value_keys: Vec::new(),
            texts: HashMap::new(),
            calibrations: Vec::new(),
            leaving: None,
            switch_cost: None,
            threads: Vec::new(),
            alive,
            pass: 0,
            losses: Vec::new(),
            pages_path,
        };
        let recorded = !found.pages.is_empty() || !left.is_empty();
        process.index(found, left);
        let meta_path = part.join(META_NAME);
        let bytes = missing_is_empty(fs::read(&meta_path), &meta_path)?;
        process.take_metadata(&bytes, recorded, snapshots);
        Ok(process)
    }

    fn lose(&mut self, loss: Loss, count: u64) {
        let one = LossCount::new(loss, count);
        self.losses = merge_losses(self.losses.iter().chain([&one]));
    }

    fn take_metadata(&mut self, bytes: &[u8], recorded: bool, snapshots: &mut Vec<Snapshot>) {
        let read = meta::read_frames(bytes);
        // The last frame of a process that lives may be half written at this moment.
        let torn = read.torn_at.is_some() && !self.alive;
        // A frame says the most important thing first: a file without any is damage too.
        if torn || (recorded && read.frames.is_empty()) {
            self.lose(Loss::TornMetadata, 1);
        }
        for frame in read.frames {
            match frame {
                Frame::Process(info) => self.info = self.info.take().or(Some(info)),
                Frame::Snapshot(snapshot) => snapshots.push(snapshot),
                Frame::Library(library) => self.libraries.push(library),
                Frame::Calibration(calibration) => self.calibrations.push(calibration),
                Frame::Op(export) => self.op_exports.push(export),
                Frame::Value(key) => self.value_keys.push(key),
                Frame::Text(text) => {
                    self.texts.insert(text.id, text.text);
                }
                Frame::Leaving(leaving) => self.leaving = Some(leaving),
            }
        }
    }

    /// Sorts pages by thread and sequence, drops copies, counts what is missing.
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
        // Stable: of equally long copies the one in the file comes first.
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

    /// Fragments whose page is nowhere whole, and whole pages of somebody else.
    fn torn_pages(&self, found: &Scan, left: &[LeftPage]) -> u64 {
        let foreign = found.pages.iter().filter(|p| PartId::of(&p.header) != self.id).count();
        let fragments = found.fragments.iter().filter(|fragment| {
            // A write that was cut short is done again behind it, or its page is in the pool.
            let whole = found.pages.iter().filter(|p| p.offset > fragment.offset);
            let rewritten = whole.map(|p| &p.header).any(|h| fragment.is_start_of(h))
                || left.iter().any(|p| fragment.is_start_of(&p.header));
            let behind_it = found.pages.last().is_some_and(|p| p.offset > fragment.offset);
            let being_written = self.alive && !behind_it;
            !rewritten && !being_written
        });
        (foreign + fragments.count()) as u64
    }
}

/// The line through all snapshots. Page headers hold pairs of ticks and `CLOCK_MONOTONIC` too:
/// less exact ones, used where the snapshots are too few or much closer together (after a
/// crash, there is none from the end).
pub(crate) fn fit(kind: ClockKind, snapshots: &[Snapshot], processes: &[Process]) -> Timeline {
    let exact = Timeline::fit(kind, snapshots);
    if kind == ClockKind::Monotonic {
        return exact;
    }
    let headers = || processes.iter().flat_map(|p| &p.threads).flat_map(Thread::headers);
    let offset = snapshots.first().map_or(0, |s| s.realtime_ns.wrapping_sub(s.monotonic_ns));
    let moment = |header: &PageHeader| Snapshot {
        ticks: header.start.base_ticks,
        monotonic_ns: header.start.base_monotonic_ns,
        realtime_ns: header.start.base_monotonic_ns.wrapping_add(offset),
        uncertainty_ticks: u64::MAX,
    };
    let span = |all: &[Snapshot]| {
        let ticks = || all.iter().map(|s| s.ticks);
        ticks().max().unwrap_or(0) - ticks().min().unwrap_or(0)
    };
    let with_pages: Vec<Snapshot> = snapshots
        .iter()
        .copied()
        .chain(headers().max_by_key(|h| h.start.base_ticks).map(moment))
        .chain(headers().min_by_key(|h| h.start.base_ticks).map(moment))
        .collect();
    if exact.calibrated && span(snapshots) >= span(&with_pages) / 2 {
        return exact;
    }
    let wider = Timeline::fit(kind, &with_pages);
    if wider.calibrated { wider } else { exact }
}
