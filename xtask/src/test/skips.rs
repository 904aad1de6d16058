//! Reads which tests skipped themselves, and lists the skips that are expected in CI.
//!
//! A test that skips itself counts as passed. So if CI's machine lost Python or the permission to
//! use counters, everything would still seem to work. `cargo xtask test --strict` fails on a skip
//! that is not in [`EXPECTED`].

use std::path::Path;

struct Expected {
    /// The name of the test: the text before the first colon in a line of the log of skipped tests.
    test: &'static str,
    /// The words with which the logged reason for the skip must end. A skip of the test for another
    /// reason is not expected.
    reason: &'static str,
    /// What CI's machine lacks.
    why: &'static str,
}

/// Keep this list short.
const EXPECTED: &[Expected] = &[
    Expected {
        test: "documented",
        reason: "needs PMU",
        why: "one example of docs/metrics.md counts with a PMU",
    },
    Expected {
        test: "programs of every kind, docker",
        reason: "no docker",
        why: "installing docker would start a service on the machine",
    },
    Expected {
        test: "output_files kernel",
        reason: "needs root, and fs.protected_symlinks at 1",
        why: "the test compares with the kernel's protection of links, which CI's kernel lacks",
    },
    Expected {
        test: "queries on a cluster",
        reason: "COUNTERPOINT_QUERY_BALLISTA is not set (cargo xtask test --ballista sets it)",
        why: "half an hour of building for tests of a feature that no release has",
    },
    Expected {
        test: "book/pages_of_the_book_fit_windows",
        reason: "COUNTERPOINT_BOOK is not set (cargo xtask test sets it once cargo xtask book has run)",
        why: "building mdBook takes minutes of both processors",
    },
    Expected {
        test: "book/the_search_of_the_book_finds_pages",
        reason: "COUNTERPOINT_BOOK is not set (cargo xtask test sets it once cargo xtask book has run)",
        why: "building mdBook takes minutes of both processors",
    },
    Expected {
        test: "a_tracefs_that_may_not_be_read",
        reason: "root may read everything",
        why: "CI runs as root, who may read every file",
    },
];

pub struct Skip {
    pub test: String,
    pub reason: String,
}

impl Skip {
    pub fn expected(&self) -> Option<&'static str> {
        let known = EXPECTED
            .iter()
            .find(|known| known.test == self.test && self.reason.ends_with(known.reason));
        known.map(|known| known.why)
    }
}

/// The lines of the file that `COUNTERPOINT_SKIP_LOG` names, in order, without duplicates.
pub fn read(log: &Path) -> Vec<Skip> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut skips: Vec<Skip> = Vec::new();
    for line in text.lines() {
        let (test, reason) = line.split_once(": ").unwrap_or((line, "no reason given"));
        if !skips.iter().any(|skip| skip.test == test && skip.reason == reason) {
            skips.push(Skip { test: test.to_string(), reason: reason.to_string() });
        }
    }
    skips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_and_judged_by_name_and_reason() {
        let log = std::env::temp_dir().join(format!("xtask-skips-{}", std::process::id()));
        std::fs::write(&log, "documented: a.md:8 needs PMU\nnumbers: no PMU\ndocumented: a.md:8 needs PMU\ndocumented: a.md:9 needs IREE\n").unwrap();
        let skips = read(&log);
        std::fs::remove_file(&log).unwrap();
        let judged: Vec<(&str, &str, bool)> = skips
            .iter()
            .map(|skip| (&*skip.test, &*skip.reason, skip.expected().is_some()))
            .collect();
        let expected = [
            ("documented", "a.md:8 needs PMU", true),
            ("numbers", "no PMU", false),
            ("documented", "a.md:9 needs IREE", false),
        ];
        assert_eq!(judged, expected);
    }
}
