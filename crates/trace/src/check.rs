//! Collects findings about a trace file, each with the byte where it is.
//!
//! A finding is only something that every reader must fail on: damaged syntax, events without the
//! fields that their kind needs, and ends without begins. The absence of anything that a producer
//! may leave out is not a finding.

use std::collections::BTreeMap;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place, in bytes from the start of the uncompressed file.
    pub at: u64,
    /// A description.
    pub what: String,
}

/// Number of findings of each kind that are kept. The others are only counted.
pub const KEPT: usize = 10;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first [`KEPT`] findings of each kind, in the order of the file.
    pub findings: Vec<Finding>,
    /// The number of findings of each kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The numbers of slices, counters and so on in the file, by name.
    pub contents: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds a finding. `kind` is its general kind, and `what` describes this finding.
    pub fn find(&mut self, at: u64, kind: &'static str, what: impl Into<String>) {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        if *count <= KEPT as u64 {
            self.findings.push(Finding { at, what: what.into() });
        }
    }

    /// Counts something that the file contains.
    pub fn count(&mut self, name: &'static str) {
        *self.contents.entry(name).or_insert(0) += 1;
    }

    /// Returns the number of all findings.
    pub fn wrong(&self) -> u64 {
        self.counts.values().sum()
    }
}
