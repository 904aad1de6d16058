//! The exact numbers of calls of a run with a budget, which times only some calls but counts all.
//!
//! ```text
//!  processes/*/counts.cps ─ frames ─┐
//!  tables in the pool ──────────────┴─► `Profile::counted`, `Process::spent`
//!                        └─ collect ─► counts.cps
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use record::counts::{COUNTS_NAME, CountsFrames, CountsRow, Spent, TABLE_HEADER_BYTES, Table};
use record::pool::PoolFile;

use crate::error::{Error, Result};
use crate::safe_dir::Dir;

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
    /// See [`Spent::told_calls`].
    pub told_calls: u64,
    /// See [`Spent::told_ns`].
    pub told_ns: u64,
}

/// A table that is still in the pool.
#[derive(Clone, Debug)]
pub(crate) struct LeftTable {
    /// Whose it is: process id, start time, generation.
    pub process: (u32, u64, u32),
    /// The table's bytes, copied.
    bytes: Vec<u8>,
}

impl LeftTable {
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
        if let Some((process, _)) = key(&head).filter(|_| is_same) {
            at += rest;
            found.push(LeftTable { process, bytes });
        }
    }
    Ok(found)
}

/// Adds up what the frames of a process say: of each export of a thread, the largest number of calls.
pub(crate) fn join(frames: CountsFrames) -> (Vec<CountedCalls>, Vec<ThreadSpent>) {
    let mut threads: BTreeMap<u32, (Spent, BTreeMap<u32, CountsRow>)> = BTreeMap::new();
    for frame in frames.frames {
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
    let (mut counted, mut all_spent) = (Vec::new(), Vec::new());
    for (thread_uid, (spent, rows)) in threads {
        let Spent { cpu_ns, price_ns, told_calls, told_ns } = spent;
        all_spent.push(ThreadSpent { thread_uid, cpu_ns, price_ns, told_calls, told_ns });
        counted.extend(rows.into_values().map(|row| CountedCalls {
            process: 0,
            thread_uid,
            export: row.export,
            calls: row.calls,
            timed: row.timed,
            counted: row.counted,
        }));
    }
    (counted, all_spent)
}
