//! Finds out where a trace comes from.

use profile::Job;
use serde_json::Value;

use super::OneTrace;
use crate::export::facts::TRACE_SCHEMA;
use crate::export::filter::PART_SCHEMA;
use crate::merge::MERGE_SCHEMA;

/// Returns whether a trace that has this key and value next to its events contains data that
/// Counterpoint recorded. Such a trace was exported from a profile, or was merged from such traces.
/// A trace of another program that Counterpoint has written again does not count.
pub fn is_of_counterpoint(key: &str, value: &Value) -> bool {
    if key != "counterpoint" {
        return false;
    }
    match value["schema"].as_str() {
        Some(TRACE_SCHEMA) => true,
        // Parts of traces of other programs have this schema, too, but no `members`.
        Some(PART_SCHEMA) => value.get("members").is_some(),
        Some(MERGE_SCHEMA) => {
            let mut files = value["files"].as_array().into_iter().flatten();
            files.any(|file| is_of_counterpoint(key, &file["document"][key]))
        }
        _ => false,
    }
}

impl OneTrace<'_> {
    /// Sets the rank of the trace's processes, and the number of ranks, from Kineto's key
    /// `distributedInfo`.
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
