//! Collects findings about a trace file.
//!
//! A finding is a place where the file breaks the rules of its format: for example damaged syntax,
//! an event without a field that its kind needs, or an end without a begin. If the file lacks
//! something that the format allows a program to leave out, this is no finding.

use std::collections::BTreeMap;

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place of the problem, in bytes from the start of the uncompressed file.
    pub at: u64,
    pub what: String,
}

/// The largest number of findings of each kind that are kept. Further findings are only counted.
pub const KEPT: usize = 10;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first [`KEPT`] findings of each kind, in the order in which the check found them.
    pub findings: Vec<Finding>,
    /// The number of findings of each kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The numbers of slices, counter samples and so on in the file, by the name of the kind.
    pub contents: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds a problem at byte `at`: `kind` is its kind, and `what` describes it.
    pub fn find(&mut self, at: u64, kind: &'static str, what: impl Into<String>) {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        if *count <= KEPT as u64 {
            self.findings.push(Finding { at, what: what.into() });
        }
    }

    /// Counts one more thing of the kind `name` that the file contains.
    pub fn count(&mut self, name: &'static str) {
        *self.contents.entry(name).or_insert(0) += 1;
    }

    /// Returns the number of all findings, with those that were not kept.
    pub fn wrong(&self) -> u64 {
        self.counts.values().sum()
    }
}
