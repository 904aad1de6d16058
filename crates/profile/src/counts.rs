//! Reads how many calls there were in a run with a budget, which times only some calls.
//!
//! ```text
//!  processes/*/counts.cps ─ frames ─┐
//!  tables in the pool ──────────────┴─► `Profile::counted`, `Process::spent`
//!                        └─ collect ─► counts.cps
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};

use record::counts::steps::{SampledCalls, Steps};
use record::counts::{COUNTS_NAME, CountsFrames, CountsRow, Spent, TABLE_HEADER_BYTES, Table};
use record::pool::PoolFile;

use crate::error::{Error, Result};
use crate::safe_dir::Dir;

/// The calls of one export (function of an executable) on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedCalls {
    /// Index of the process in the profile.
    pub process: usize,
    /// The thread's number in its process ([`crate::Thread::uid`]). A thread without recorded calls
    /// may have no pages.
    pub thread_uid: u32,
    /// The export of the calls; [`crate::Ops::of`] returns its op.
    pub export: u32,
    /// Number of calls that were timed, only counted or (if `steps` is set) estimated. The number
    /// is exact, even after a crash, unless `steps` is set.
    pub calls: u64,
    /// Number of calls that were timed.
    pub timed: u64,
    /// Number of timed calls for which counters were read.
    pub counted: u64,
    /// The sample of steps (iterations of the host's loop) from which `calls` is estimated; `None`
    /// if `calls` is exact.
    pub steps: Option<CountedSteps>,
}

impl CountedCalls {
    /// Returns the number of calls that were counted, and not estimated.
    pub fn seen(&self) -> u64 {
        self.calls.saturating_sub(self.steps.map_or(0, |steps| steps.unseen))
    }
}

/// The sample of steps from which the calls in other steps are estimated. In these other steps,
/// which are *away*, the host announces no ops. See [`record::counts::steps`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedSteps {
    /// Number of calls that were estimated. [`CountedCalls::calls`] includes them.
    pub unseen: u64,
    /// Number of steps whose calls were estimated.
    pub away: u64,
    /// Whether the latest of the steps in `away` may still be in progress.
    pub is_open: bool,
    /// Number of steps in the sample.
    pub sampled: u64,
    /// The sum of the weights of the steps in the sample.
    pub weight: u64,
    /// The sum of the squares of the weights.
    pub squared_weight: u64,
    /// The sum of weight · calls over the steps in the sample.
    pub sum: u64,
    /// The sum of weight · calls² over the steps in the sample.
    pub squares: u64,
}

impl CountedSteps {
    /// Creates the sample of one export on one thread. `all_away` is the number of the process's
    /// steps that were away.
    fn new(of: &Steps, row: &SampledCalls, all_away: u64, is_open: bool) -> Self {
        let until = if of.has_ended == 0 { all_away } else { of.away };
        let away = until.saturating_sub(of.away_before);
        let sum = u128::from(row.sum) * u128::from(away) + u128::from(of.weight / 2);
        let estimate = sum.checked_div(of.weight.into()).unwrap_or(0).min(u64::MAX.into()) as u64;
        let estimate = estimate.saturating_sub(row.in_cut);
        Self {
            unseen: row.unseen.max(estimate),
            away,
            is_open: match of.has_ended {
                0 => is_open,
                how => how == Steps::ENDED_AWAY,
            },
            sampled: of.sampled,
            weight: of.weight,
            squared_weight: of.squared_weight,
            sum: row.sum,
            squares: row.squares,
        }
    }
}

/// What recording cost on one thread, as the recorder measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSpent {
    /// The thread's number in its process.
    pub thread_uid: u32,
    /// See [`Spent::cpu_ns`].
    pub cpu_ns: u64,
    /// See [`Spent::price_ns`].
    pub price_ns: u64,
    /// See [`Spent::told_calls`].
    pub told_calls: u64,
    /// See [`Spent::told_ns`].
    pub told_ns: u64,
}

/// A thread's table of counts that is still in the pool.
#[derive(Clone, Debug)]
pub(crate) struct LeftTable {
    /// Process id, start time, generation.
    pub process: (u32, u64, u32),
    bytes: Vec<u8>,
}

impl LeftTable {
    pub fn add_to(&self, frames: &mut CountsFrames) {
        match Table::parse(&self.bytes) {
            Ok(table) => frames.frames.push(table.frame()),
            Err(_) => frames.torn += 1,
        }
    }

    pub fn append(&self, part: &Dir) -> Result<()> {
        let bytes = match Table::parse(&self.bytes) {
            Ok(table) => table.frame().to_bytes(),
            // These bytes are not a frame, so a reader counts them as damage.
            Err(_) => vec![0xff; 8],
        };
        let mut file = part.append(COUNTS_NAME)?;
        file.write_all(&bytes).map_err(Error::on("append to", &part.path_of(COUNTS_NAME)))
    }
}

pub(crate) fn find(pool: &PoolFile) -> io::Result<Vec<LeftTable>> {
    let mut found = Vec::new();
    let claimed: Vec<(usize, u32)> = pool.claimed().collect();
    let mut at = 0;
    while let Some((first, row)) = claimed.get(at).copied() {
        at += 1;
        let head = pool.head(first, TABLE_HEADER_BYTES)?;
        let Ok(pages) = Table::pages(&head) else { continue };
        // The other pages of the table come next and are claimed by the same process.
        let follows = |(i, claim): (usize, &(usize, u32))| *claim == (first + 1 + i, row);
        let rest = claimed[at..].iter().enumerate().take(pages - 1).take_while(|c| follows(*c));
        let rest = rest.count();
        let bytes = pool.pages(first, 1 + rest)?;
        let key = |bytes: &[u8]| {
            let table = Table::header_of(bytes);
            Table::pages(bytes).is_ok().then(|| (table.process(), table.thread_uid()))
        };
        // If the thread has meanwhile given the table back to the pool, `bytes` is not used: the
        // counts are in the process's `counts.cps` or in a later table.
        let is_same =
            key(&bytes) == key(&head) && key(&pool.head(first, TABLE_HEADER_BYTES)?) == key(&head);
        if let Some((process, _)) = key(&head).filter(|_| is_same) {
            at += rest;
            found.push(LeftTable { process, bytes });
        }
    }
    Ok(found)
}

/// Joins the frames (records of `counts.cps` or of the pool) of a process. If a thread has several
/// rows for an export, the row with the most calls is used.
///
/// The numbers about a thread's steps come from its latest frame, which is the one with the highest
/// counts of steps. A thread updates its number of steps that were away only when it makes calls.
/// So other threads of the process may have a higher number. The highest one is used for threads
/// that have not ended.
pub(crate) fn join(frames: CountsFrames) -> (Vec<CountedCalls>, Vec<ThreadSpent>, Option<Steps>) {
    let mut threads: BTreeMap<u32, (Spent, BTreeMap<u32, CountsRow>)> = BTreeMap::new();
    let mut by_steps: BTreeMap<u32, (Steps, Vec<SampledCalls>)> = BTreeMap::new();
    for frame in frames.frames {
        if let Some(found) = frame.steps {
            let known = by_steps.entry(frame.thread_uid).or_default();
            let number = |of: &Steps| (of.away, of.sampled, of.steps, of.has_ended);
            if number(&found.steps) >= number(&known.0) {
                *known = (found.steps, found.rows);
            }
        }
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
    let all_away = by_steps.values().map(|(steps, _)| steps.away).max().unwrap_or(0);
    let of_process = by_steps.values().map(|(steps, _)| *steps).max_by_key(|steps| steps.steps);
    let is_open = of_process.is_some_and(|steps| steps.is_away != 0);
    let (mut counted, mut all_spent) = (Vec::new(), Vec::new());
    for (thread_uid, (spent, rows)) in threads {
        let Spent { cpu_ns, price_ns, told_calls, told_ns } = spent;
        all_spent.push(ThreadSpent { thread_uid, cpu_ns, price_ns, told_calls, told_ns });
        let own = by_steps.get(&thread_uid);
        let sampled: BTreeMap<u32, &SampledCalls> =
            own.iter().flat_map(|(_, rows)| rows).map(|row| (row.export, row)).collect();
        counted.extend(rows.into_values().map(|row| {
            let of = own.zip(sampled.get(&row.export));
            let steps = of.map(|((steps, _), of)| CountedSteps::new(steps, of, all_away, is_open));
            let steps = steps.filter(|steps| steps.unseen > 0);
            // The thread itself has already added `of.unseen` of the estimated calls to
            // `row.calls`.
            let more = steps.zip(of).map_or(0, |(steps, (_, of))| steps.unseen - of.unseen);
            CountedCalls {
                process: 0,
                thread_uid,
                export: row.export,
                calls: row.calls.saturating_add(more),
                timed: row.timed,
                counted: row.counted,
                steps,
            }
        }));
    }
    (counted, all_spent, of_process.filter(|steps| steps.steps > 0))
}
