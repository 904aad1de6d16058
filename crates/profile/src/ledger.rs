//! The ledger of a process: a copy of its row in the process table of the pool (shared memory with
//! the records). The copy remains when the pool is deleted. The ledger is the file `ledger.json` in
//! the process's part (directory). A ledger in the directory of the profile itself contains the
//! losses that belong to no recorded process.

use std::collections::BTreeMap;

use model::{Loss, Severity};
use record::pool::ProcessRow;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::manifest::replace_json;
use crate::safe_dir::Dir;

/// Name of a ledger.
pub const LEDGER_NAME: &str = "ledger.json";
/// Maximum size of a ledger in bytes. The ledgers that we write take a few KiB.
const MOST_BYTES: u64 = 1 << 22;
/// The version of the ledger.
pub const LEDGER_SCHEMA: &str = "counterpoint.ledger/1";

/// The content of a ledger: what a row of the process table contains, or only losses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// [`LEDGER_SCHEMA`].
    pub schema: String,
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Number of earlier parts of the same process, for example from before an `exec`.
    pub generation: u32,
    /// Number of threads that recorded.
    pub threads: u32,
    /// See [`record::pool::Row::calls`].
    pub calls: u64,
    /// The losses that occurred.
    pub losses: Vec<LossCount>,
}

/// The number of occurrences of one loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCount {
    /// The loss's name, or `loss_N` for a number that this version does not know.
    pub name: String,
    /// Number of occurrences. [`Loss::help`] says what counts as one occurrence.
    pub count: u64,
    /// Error number of the first occurrence, if it had one.
    pub errno: Option<i32>,
}

impl LossCount {
    /// Creates a count without an error number.
    pub fn new(loss: Loss, count: u64) -> Self {
        Self { name: loss.name().to_owned(), count, errno: None }
    }

    /// Returns the loss; `None` if this version does not know it.
    pub fn loss(&self) -> Option<Loss> {
        Loss::ALL.iter().copied().find(|loss| loss.name() == self.name)
    }

    /// Returns how serious the loss is. An unknown loss counts as [`Severity::Distorted`].
    pub fn severity(&self) -> Severity {
        self.loss().map_or(Severity::Distorted, Loss::severity)
    }

    /// Returns what happened and what to do about it.
    pub fn help(&self) -> &'static str {
        self.loss().map_or("a loss that only a later version of counterpoint knows", Loss::help)
    }
}

/// Adds up the counts of each loss, and sorts them by the losses' numbers; unknown losses come
/// last. A loss keeps its first error number, and counts of 0 are left out.
pub fn merge_losses<'a>(all: impl IntoIterator<Item = &'a LossCount>) -> Vec<LossCount> {
    let mut merged: Vec<LossCount> = Vec::new();
    // `places` is a map, because a linear search would be slow if a damaged ledger contained very
    // many names.
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

/// Writes losses that a reader of the profile could not find by itself to a ledger in `dir` (a
/// profile or one of its parts). The profile must be one without passes, and `dir` must not contain
/// a ledger yet.
///
/// # Errors
/// Fails if the ledger cannot be written.
pub fn write_losses(dir: &Dir, losses: &[LossCount]) -> Result<()> {
    let losses: Vec<LossCount> = losses.iter().filter(|loss| loss.count > 0).cloned().collect();
    if losses.is_empty() {
        return Ok(());
    }
    Ledger { schema: LEDGER_SCHEMA.to_owned(), losses, ..Ledger::default() }.write(dir)
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

    /// Adds another row with the same process id, start time and generation.
    pub(crate) fn add(&mut self, other: &Self) {
        self.threads = self.threads.max(other.threads);
        self.calls = self.calls.saturating_add(other.calls);
        self.losses = merge_losses(self.losses.iter().chain(&other.losses));
    }

    /// Reads the ledger in `part`; `None` if there is none. A ledger that cannot be read counts as
    /// a loss.
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
