//! Defines profiles of several passes: runs of the same program with different counters.
//!
//! ```text
//!  x.cpt/manifest.json   passes = 2
//!        passes/1/       a whole profile: manifest, run file, parts, its own pool
//!        passes/2/
//!        tracks/         sampled over all passes
//! ```
//!
//! A pass is recorded, collected and recovered as a separate profile. The opened profile has the
//! processes and the counters of all passes, in the order of the passes. The counters get new group
//! numbers, so no group and no ratio combines counters of two passes. If an earlier pass has a
//! counter with the same name, the number of the pass is appended to the name: `task-clock@2`.

use std::path::{Path, PathBuf};

use model::MAX_COUNTERS;

use crate::error::{Error, ErrorKind, Result};
use crate::manifest::CounterInfo;
use crate::safe_dir::Dir;

/// The directory in a profile that contains the passes.
pub const PASSES_NAME: &str = "passes";

/// Returns the directory of pass `number` (from 1) of the profile in `dir`.
pub fn pass_dir(dir: &Path, number: u32) -> PathBuf {
    dir.join(PASSES_NAME).join(number.to_string())
}

/// Returns the counters of all passes, in the order in which a profile lists them; `None` if there
/// are too many, or if their groups cannot be renumbered.
pub fn join_counters(passes: &[Vec<CounterInfo>]) -> Option<Vec<CounterInfo>> {
    let mut all: Vec<CounterInfo> = Vec::new();
    for (number, counters) in (1u32..).zip(passes) {
        // The group numbers in a manifest may be any numbers in any order.
        let highest = all.iter().map(|known| known.group).max();
        let first = highest.map_or(Some(0), |highest| highest.checked_add(1));
        for counter in counters {
            let taken = all.iter().any(|known| known.name == counter.name);
            let name = match taken {
                true => format!("{}@{number}", counter.name),
                false => counter.name.clone(),
            };
            let group = first?.checked_add(counter.group)?;
            all.push(CounterInfo { name, group, pass: Some(number), ..counter.clone() });
        }
    }
    (all.len() <= MAX_COUNTERS).then_some(all)
}

/// Returns whether the error says that the pass's profile is missing or not valid. This is so if
/// `counterpoint run` was killed before the pass was ready.
pub(crate) fn is_not_begun(error: &Error) -> bool {
    error.is_not_found() || matches!(error.kind(), ErrorKind::NotAProfile(_))
}

pub(crate) fn open_dir(root: &Dir, number: u32) -> Result<Dir> {
    root.dir(PASSES_NAME)?.dir(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(name: &str, group: u16) -> CounterInfo {
        CounterInfo { name: name.to_owned(), group, ..CounterInfo::default() }
    }

    #[test]
    fn counters_of_passes_follow_one_another() {
        let passes = [
            vec![counter("a", 0), counter("t", 0), counter("s", 1)],
            vec![counter("b", 0), counter("t", 0)],
            vec![counter("t", 0)],
        ];
        let joined = join_counters(&passes).expect("six counters");
        let seen: Vec<_> =
            joined.iter().map(|c| (c.name.as_str(), c.group, c.pass.unwrap_or(0))).collect();
        let expected =
            [("a", 0, 1), ("t", 0, 1), ("s", 1, 1), ("b", 2, 2), ("t@2", 2, 2), ("t@3", 3, 3)];
        assert_eq!(seen, expected);
        assert_eq!(join_counters(&[]), Some(vec![]));
        let many: Vec<_> = (0..17).map(|i| counter(&format!("c{i}"), 0)).collect();
        assert_eq!(join_counters(&[many.clone(), many]), None, "34 counters do not fit in a mask");
    }

    /// If groups of two passes were combined, a report could divide a counter of one pass by a
    /// counter of another. (`crates/cli/tests/mutated` found this.)
    #[test]
    fn groups_of_damaged_passes_stay_apart() {
        let groups = |passes: &[Vec<CounterInfo>]| -> Option<Vec<u16>> {
            Some(join_counters(passes)?.iter().map(|counter| counter.group).collect())
        };
        let last = vec![counter("a", u16::MAX)];
        assert_eq!(groups(&[last.clone(), vec![counter("b", 0)]]), None, "there is no group 65536");
        assert_eq!(groups(&[last, vec![]]), Some(vec![u16::MAX]));
        let descending = vec![counter("a", 5), counter("b", 0)];
        assert_eq!(groups(&[descending, vec![counter("c", 4)]]), Some(vec![5, 0, 10]));
    }
}
