//! The ledger of a process: what the pool's process table said about it, kept when the pool
//! goes. `ledger.json` in the process's part, written by [`crate::collect()`] only. One in the
//! profile itself, with no process id, holds what happened outside of processes that record.

use std::collections::BTreeMap;

use model::{Loss, Severity};
use record::pool::ProcessRow;
use serde::{Deserialize, Serialize};

use crate::beneath::Dir;
use crate::error::Result;
use crate::manifest::replace_json;

/// Name of the ledger in a process's part.
pub const LEDGER_NAME: &str = "ledger.json";
/// A longer one is not read; ours take some KiB.
const MOST_BYTES: u64 = 1 << 22;
/// The version of the ledger that this program writes and reads.
pub const LEDGER_SCHEMA: &str = "counterpoint.ledger/1";

/// What the process table said about one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// [`LEDGER_SCHEMA`].
    pub schema: String,
    /// Process id.
    pub pid: u32,
    /// Clock ticks since boot.
    pub start_time: u64,
    /// How many times it had recorded before an `exec`.
    pub generation: u32,
    /// Threads that recorded.
    pub threads: u32,
    /// Calls in pages that the process itself flushed or released.
    pub calls: u64,
    /// Its losses, none of them zero.
    pub losses: Vec<LossCount>,
}

/// How often one loss happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCount {
    /// The name in the table of losses, `loss_N` for a number that this version does not know.
    pub name: String,
    /// How often; what is counted differs per loss and stands in its help.
    pub count: u64,
    /// Error number of the first time, if there was one.
    pub errno: Option<i32>,
}

impl LossCount {
    /// `count` times `loss`.
    pub fn new(loss: Loss, count: u64) -> Self {
        Self { name: loss.name().to_owned(), count, errno: None }
    }

    /// The loss, or `None` if a later version named it.
    pub fn loss(&self) -> Option<Loss> {
        Loss::ALL.iter().copied().find(|loss| loss.name() == self.name)
    }

    /// How much it matters; a loss that this version does not know may distort.
    pub fn severity(&self) -> Severity {
        self.loss().map_or(Severity::Distorted, Loss::severity)
    }

    /// What happened and what to do.
    pub fn help(&self) -> &'static str {
        self.loss().map_or("a loss that only a later version of counterpoint knows", Loss::help)
    }
}

/// Adds losses of one kind together, in the order of the table of losses; keeps the first
/// error number. Zeros are left out.
pub fn merge_losses<'a>(all: impl IntoIterator<Item = &'a LossCount>) -> Vec<LossCount> {
    let mut merged: Vec<LossCount> = Vec::new();
    // A ledger may come from anywhere, with any number of names.
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for one in all.into_iter().filter(|one| one.count > 0) {
        match places.get(one.name.as_str()) {
            Some(place) => {
                let known = &mut merged[*place];
                known.count = known.count.saturating_add(one.count);
                known.errno = known.errno.or(one.errno);
            }
            None => {
                places.insert(&one.name, merged.len());
                merged.push(one.clone());
            }
        }
    }
    merged.sort_by_cached_key(|one| one.loss().map_or(usize::MAX, Loss::number));
    merged
}

impl Ledger {
    pub(crate) fn of(row: &ProcessRow) -> Self {
        let losses = row.losses.iter().map(|&(number, count, errno)| LossCount {
            name: Loss::from_number(number)
                .map_or_else(|| format!("loss_{number}"), |loss| loss.name().to_owned()),
            count,
            errno: i32::try_from(errno).ok().filter(|e| *e > 0),
        });
        Self {
            schema: LEDGER_SCHEMA.to_owned(),
            pid: row.pid,
            start_time: row.start_time,
            generation: row.generation,
            threads: row.threads,
            calls: row.calls,
            losses: losses.collect(),
        }
    }

    /// Two rows of one process (a row shared because the table was full): losses add up.
    pub(crate) fn add(&mut self, other: &Self) {
        self.threads = self.threads.max(other.threads);
        self.calls = self.calls.saturating_add(other.calls);
        self.losses = merge_losses(self.losses.iter().chain(&other.losses));
    }

    /// The ledger in `part`; `None` where there is none yet. One that cannot be read has itself
    /// become a loss.
    pub(crate) fn read(part: &Dir) -> Option<Self> {
        let (text, loss) = match part.read(LEDGER_NAME, MOST_BYTES) {
            Err(e) if e.is_not_found() => return None,
            Err(e) if e.is_refused() => (Vec::new(), Loss::FileRefused),
            other => (other.unwrap_or_default(), Loss::TornMetadata),
        };
        let ledger = serde_json::from_slice(&text).ok();
        ledger
            .filter(|ledger: &Self| ledger.schema == LEDGER_SCHEMA)
            .or_else(|| Some(Self { losses: vec![LossCount::new(loss, 1)], ..Self::default() }))
    }

    pub(crate) fn write(&self, part: &Dir) -> Result<()> {
        replace_json(part, LEDGER_NAME, self)
    }
}
