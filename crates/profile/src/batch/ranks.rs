//! The columns with the rank and the machine of each call, for distributed jobs.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{StringDictionaryBuilder, UInt32Builder};
use arrow_array::types::Int32Type;
use arrow_schema::{ArrowError, DataType, Field};

use crate::profile::{Process, Profile};

pub(super) struct RankRows {
    rank: UInt32Builder,
    host: StringDictionaryBuilder<Int32Type>,
}

/// Returns the fields of the two columns; none if [`RankRows::new`] returns `None`.
pub(super) fn fields(profile: &Profile) -> Vec<Field> {
    if RankRows::new(profile).is_none() {
        return Vec::new();
    }
    let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    vec![Field::new("rank", DataType::UInt32, true), Field::new("host", text, false)]
}

impl RankRows {
    /// Returns `None` if no rank is known and the profile is not merged.
    pub fn new(profile: &Profile) -> Option<Self> {
        let is_needed = profile.has_ranks() || !profile.members.is_empty();
        is_needed.then(|| Self { rank: UInt32Builder::new(), host: StringDictionaryBuilder::new() })
    }

    pub fn append(&mut self, profile: &Profile, process: &Process) -> Result<(), ArrowError> {
        self.rank.append_option(process.job.map(|job| job.rank));
        self.host.append(profile.host_of(process)).map(drop)
    }

    pub fn finish(&mut self) -> Vec<ArrayRef> {
        vec![Arc::new(self.rank.finish()), Arc::new(self.host.finish())]
    }
}
