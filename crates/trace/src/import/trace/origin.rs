//! What a trace says about where it comes from.

use profile::Job;
use serde_json::Value;

use super::OneTrace;
use crate::export::filter::PART_SCHEMA;
use crate::merge::MERGE_SCHEMA;
use crate::round_trip::document::TRACE_SCHEMA;
use crate::round_trip::head::OwnHead;

/// What a trace is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnOrigin {
    /// A profile of ours.
    Profile,
    /// Several profiles of ours in one file.
    Profiles,
    /// Anything else.
    Other,
}

impl OneTrace<'_> {
    /// The head of the trace, if it is an export of ours that contains everything to restore the
    /// profile.
    pub fn head(&self) -> Option<OwnHead> {
        // If calls have no pages, the export is an older one or incomplete.
        let whole = self.has_pages || self.all.calls.calls() == 0;
        let facts = self.document.get("counterpoint").filter(|_| whole)?;
        OwnHead::of(facts.clone(), self.document.get("baseTimeNanoseconds"))
    }

    /// What the trace is made of, as far as its document says.
    pub fn origin(&self) -> OwnOrigin {
        let Some(facts) = self.document.get("counterpoint") else { return OwnOrigin::Other };
        let is = |facts: &Value, schema: &str| facts["schema"] == schema;
        let of_profile = |file: &Value| is(&file["document"]["counterpoint"], TRACE_SCHEMA);
        let mut files = facts["files"].as_array().into_iter().flatten();
        match () {
            () if is(facts, TRACE_SCHEMA) => OwnOrigin::Profile,
            () if is(facts, PART_SCHEMA) && facts.get("members").is_some() => OwnOrigin::Profiles,
            () if is(facts, MERGE_SCHEMA) && files.any(of_profile) => OwnOrigin::Profiles,
            () => OwnOrigin::Other,
        }
    }

    /// Gives its processes the rank that the trace names: `distributedInfo`, as Kineto writes it.
    pub(super) fn name_rank(&mut self) {
        let Some(of) = self.document.get("distributedInfo") else { return };
        let number = |key: &str| u32::try_from(of.get(key)?.as_u64()?).ok();
        let Some(rank) = number("rank") else { return };
        let job = Job { rank, size: number("world_size").filter(|size| *size > rank) };
        for process in self.processes.values() {
            self.all.calls.set_job(process.key, job);
        }
    }
}
