//! Defines a series: several runs of one program, or alternating runs of two programs, each with
//! its own profile.
//!
//! ```text
//!  x.series/series.json      what was planned
//!           001/a  001/b     the profiles of the first round; each manifest says its round and position
//!           002/a  002/b
//! ```
//!
//! A round is complete if all its profiles exist, belong to this series and are finished, and the
//! programs ended with status 0.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::manifest::{Manifest, Side, State, replace_json};
use crate::safe_dir::Dir;

/// Name of the file that marks a directory as a series.
pub const SERIES_NAME: &str = "series.json";
/// The version of the series file.
pub const SERIES_SCHEMA: &str = "counterpoint.series/1";
/// The most rounds that a series can have.
pub const MOST_ROUNDS: u32 = 999;
const MOST_BYTES: u64 = 1 << 22;

/// The plan of a series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// [`SERIES_SCHEMA`].
    pub schema: String,
    /// Random id of the series: 32 hexadecimal digits.
    pub id: String,
    /// Version of Counterpoint that recorded the series.
    pub program_version: String,
    pub rounds: u32,
    /// How many times each program was run, without being recorded, before the first round.
    pub warm_up: u32,
    /// See [`crate::manifest::Place::seed`].
    pub seed: u64,
    /// One program, or two programs A and B, with their arguments.
    pub commands: Vec<Vec<String>>,
    /// Labels of all runs (`run --label`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Series {
    /// Returns the programs of the series: A, or A and B.
    pub fn sides(&self) -> &'static [Side] {
        if self.commands.len() > 1 { &[Side::A, Side::B] } else { &[Side::A] }
    }

    /// Returns whether the directory contains an entry with the name of the series file.
    pub fn is_at(dir: &Path) -> bool {
        dir.join(SERIES_NAME).symlink_metadata().is_ok()
    }

    /// Reads the file of the series in `dir`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is too long, is not valid JSON for a series, or has
    /// another schema version.
    pub fn read_in(dir: &Dir) -> Result<Self> {
        let path = dir.path_of(SERIES_NAME);
        let text = dir.read(SERIES_NAME, MOST_BYTES)?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(Error::on("read", &path))?;
        let found = value.get("schema").and_then(|s| s.as_str()).unwrap_or_default();
        if found != SERIES_SCHEMA {
            let kind = ErrorKind::Schema { found: found.to_owned(), expected: SERIES_SCHEMA };
            return Err(Error::new("read", &path, kind));
        }
        serde_json::from_value(value).map_err(Error::on("read", &path))
    }

    /// Writes the file of the series into `dir`, which must exist.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full.
    pub fn write(&self, dir: &Path) -> Result<()> {
        replace_json(&Dir::open(dir)?, SERIES_NAME, self)
    }

    /// Returns the directory of the profile of program `side` in this round.
    pub fn run_at(dir: &Path, round: u32, side: Side) -> PathBuf {
        dir.join(format!("{round:03}")).join(side.directory())
    }

    /// Returns the directories of the runs of each complete round, in the order of
    /// [`Series::sides`].
    pub fn complete(&self, dir: &Path) -> Vec<Vec<PathBuf>> {
        let is_complete = |path: &PathBuf| {
            Manifest::read(path).is_ok_and(|manifest| {
                let mine = manifest.series.as_ref().is_some_and(|place| place.series == self.id);
                let ended = manifest.exit.is_some_and(|exit| exit.code == Some(0));
                mine && ended && manifest.state == State::Finished
            })
        };
        (1..=self.rounds.min(MOST_ROUNDS))
            .map(|round| self.sides().iter().map(|side| Self::run_at(dir, round, *side)).collect())
            .filter(|runs: &Vec<PathBuf>| runs.iter().all(is_complete))
            .collect()
    }
}
