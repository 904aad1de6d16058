//! What is wrong with a trace file, and at which byte.
//!
//! Only what every reader must stumble over is a finding: damaged syntax, events without what
//! their kind needs, ends without begins. What a producer may leave out is none.

use std::collections::BTreeMap;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, in bytes from the start of the uncompressed file.
    pub at: u64,
    /// What.
    pub what: String,
}

/// Findings of one kind that are kept; the rest is counted.
pub const KEPT: usize = 10;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first [`KEPT`] of each kind, by place.
    pub findings: Vec<Finding>,
    /// How often each kind was found.
    pub counts: BTreeMap<&'static str, u64>,
    /// What the file holds: slices, counters, … by name.
    pub contents: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Notes something wrong. `kind` says what in general, `what` this one.
    pub fn find(&mut self, at: u64, kind: &'static str, what: impl Into<String>) {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        if *count <= KEPT as u64 {
            self.findings.push(Finding { at, what: what.into() });
        }
    }

    /// Counts something that is there.
    pub fn count(&mut self, name: &'static str) {
        *self.contents.entry(name).or_insert(0) += 1;
    }

    /// How many things are wrong.
    pub fn wrong(&self) -> u64 {
        self.counts.values().sum()
    }
}
