//! The exact numbers of calls of a run with a budget, which times only some calls but counts all.
//!
//! ```text
//!  processes/*/counts.cps ─ frames ─┐
//!  tables in the pool ──────────────┴─► Profile::counted, Process::spent
//!                        └─ collect ─► counts.cps
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use model::Loss;
use record::counts::{
    COUNTS_NAME, CountsFrames, CountsRow, Spent, TABLE_HEADER_BYTES, Table, read_frames,
};
use record::pool::PoolFile;

use crate::beneath::Dir;
use crate::error::{Error, Result};
use crate::leftovers::PartId;
use crate::loops::read_data;
use crate::profile::{Process, Profile, Thread};

/// The calls of one export on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedCalls {
    /// Index of the process in the profile.
    pub process: usize,
    /// The thread's number in its process ([`crate::Thread::uid`]). If none of its calls were
    /// recorded, it is a thread without pages.
    pub thread_uid: u32,
    /// The export; [`crate::Ops::of`] gives its op.
    pub export: u32,
    /// All calls: those that were timed, and those that were only counted. Exact, also after a
    /// crash.
    pub calls: u64,
    /// How many of them were timed. If none of their records is lost, this is the number of
    /// records.
    pub timed: u64,
    /// How many of the timed calls had their counters read.
    pub counted: u64,
}

/// What recording took of one thread, by the account that the recorder keeps in order to stay
/// within the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSpent {
    /// The thread's number in its process.
    pub thread_uid: u32,
    /// Processor time of the thread since the recorder attached to it, ns.
    pub cpu_ns: u64,
    /// What recording took of it, ns.
    pub price_ns: u64,
}

impl Profile {
    /// Returns the exact number of calls of each export on each thread, sorted by process, thread
    /// and export. Empty for a run without a budget, in which each call has a record.
    pub fn counted(&self) -> &[CountedCalls] {
        &self.counted
    }

    /// Whether the run had a budget, so that its records are only a sample of its calls.
    pub fn is_sampled(&self) -> bool {
        self.manifest.budget.is_some()
    }
}

/// A table that is still in the pool.
#[derive(Clone, Debug)]
pub(crate) struct LeftTable {
    id: PartId,
    /// Its bytes, copied.
    bytes: Vec<u8>,
}

impl LeftTable {
    /// The part that it belongs to.
    pub fn id(&self) -> PartId {
        self.id
    }

    /// Adds what it says.
    pub fn add_to(&self, frames: &mut CountsFrames) {
        match Table::parse(&self.bytes) {
            Ok(table) => frames.frames.push(table.frame()),
            Err(_) => frames.torn += 1,
        }
    }

    /// Appends what it says to the file of its part.
    pub fn append(&self, part: &Dir) -> Result<()> {
        let bytes = match Table::parse(&self.bytes) {
            Ok(table) => table.frame().to_bytes(),
            // A reader finds something that is not a frame, and counts it.
            Err(_) => vec![0xff; 8],
        };
        let mut file = part.append(COUNTS_NAME)?;
        file.write_all(&bytes).map_err(Error::on("append to", &part.path_of(COUNTS_NAME)))
    }
}

/// Finds the tables in a pool and copies them.
pub(crate) fn find(pool: &PoolFile) -> io::Result<Vec<LeftTable>> {
    let mut found = Vec::new();
    let claimed: Vec<(usize, u32)> = pool.claimed().collect();
    let mut at = 0;
    while let Some((first, row)) = claimed.get(at).copied() {
        at += 1;
        let head = pool.head(first, TABLE_HEADER_BYTES)?;
        let Ok(pages) = Table::pages(&head) else { continue };
        // The rest of it belongs to the same process.
        let follows = |(i, claim): (usize, &(usize, u32))| *claim == (first + 1 + i, row);
        let rest = claimed[at..].iter().enumerate().take(pages - 1).take_while(|c| follows(*c));
        let rest = rest.count();
        let bytes = pool.pages(first, 1 + rest)?;
        let key = |bytes: &[u8]| {
            let table = Table::header_of(bytes);
            Table::pages(bytes).is_ok().then(|| (table.process(), table.thread_uid()))
        };
        // If its thread gave it back meanwhile, its counts are in the part's file or in a later
        // table.
        let is_same =
            key(&bytes) == key(&head) && key(&pool.head(first, TABLE_HEADER_BYTES)?) == key(&head);
        if let Some(((pid, start_time, generation), _)) = key(&head).filter(|_| is_same) {
            at += rest;
            found.push(LeftTable { id: PartId { start_time, pid, generation }, bytes });
        }
    }
    Ok(found)
}

impl Process {
    /// Reads its exact counts: those in its file, and those that `left` has from the pool.
    pub(crate) fn open_counts(&mut self, part: Option<&Dir>, left: CountsFrames) -> Result<()> {
        let mut all = CountsFrames::default();
        if let Some(part) = part
            && let Some(file) = self.unless_refused(part.file(COUNTS_NAME))?
        {
            let bytes = read_data(&file).map_err(Error::on("read", &part.path_of(COUNTS_NAME)))?;
            all = read_frames(&bytes);
            // The last frame of a process that lives may be half written at this moment.
            all.torn = all.torn.saturating_sub(self.alive.into());
        }
        self.lose(Loss::TornCounts, all.torn + left.torn);
        let mut threads: BTreeMap<u32, (Spent, BTreeMap<u32, CountsRow>)> = BTreeMap::new();
        for frame in all.frames.into_iter().chain(left.frames) {
            self.meet_thread(frame.thread_uid, frame.tid);
            let (spent, rows) = threads.entry(frame.thread_uid).or_default();
            if frame.spent.cpu_ns >= spent.cpu_ns {
                *spent = frame.spent;
            }
            for row in frame.rows {
                let known = rows.entry(row.export).or_default();
                if row.calls > known.calls {
                    *known = row;
                }
            }
        }
        for (thread_uid, (spent, rows)) in threads {
            let Spent { cpu_ns, price_ns } = spent;
            self.spent.push(ThreadSpent { thread_uid, cpu_ns, price_ns });
            self.counted.extend(rows.into_values().map(|row| CountedCalls {
                process: 0,
                thread_uid,
                export: row.export,
                calls: row.calls,
                timed: row.timed,
                counted: row.counted,
            }));
        }
        Ok(())
    }
}

impl Process {
    /// Makes sure that a thread of which only counts are known is among the threads.
    fn meet_thread(&mut self, uid: u32, tid: u32) {
        if let Err(place) = self.threads.binary_search_by_key(&uid, |thread| thread.uid) {
            let thread = Thread { uid, tid, name: String::new(), pages: Vec::new() };
            self.threads.insert(place, thread);
        }
    }
}

/// Takes the counts of all processes.
pub(crate) fn of_all(processes: &mut [Process]) -> Vec<CountedCalls> {
    let of_one = |(process, p): (usize, &mut Process)| {
        let counted = std::mem::take(&mut p.counted);
        counted.into_iter().map(move |one| CountedCalls { process, ..one })
    };
    processes.iter_mut().enumerate().flat_map(of_one).collect()
}
