//! Finds gaps in a dataset, such as missing ranks, and describes them in words. Ranks are listed as
//! ranges, because a million ranks may be missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::layout::Member;

const MOST_NAMED: usize = 16;

/// Something that readers of a dataset must know: missing, repeated, unfinished or unreadable
/// recordings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// Some ranks of a run have no recording, although the run had `size` ranks.
    NoPart {
        run: String,
        /// The number of ranks of the run.
        size: u32,
        ranks: Ranks,
    },
    /// Some ranks have several recordings in one run. Sums include all of them.
    Several { run: String, ranks: Ranks },
    /// Some ranks have a recording that had not ended when it was added.
    Unfinished { run: String, ranks: Ranks },
    /// A recording that is left out, because a file of its part does not match the part's
    /// description.
    Broken {
        run: String,
        rank: u32,
        /// The id of the recording.
        part: String,
        /// The file, and how it does not match.
        why: String,
    },
    /// Something in the directory of parts that is left out: it is not a valid part, or it repeats
    /// recordings of another part.
    Unreadable {
        /// The path of what is left out, and the reason.
        why: String,
    },
}

impl Gap {
    /// Returns whether something of the dataset is left out.
    pub fn is_left_out(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Unreadable { .. })
    }

    /// Returns the run that the gap is about, or `None` if the run is not known.
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::NoPart { run, .. }
            | Self::Several { run, .. }
            | Self::Unfinished { run, .. }
            | Self::Broken { run, .. } => Some(run),
            Self::Unreadable { .. } => None,
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPart { run, size, ranks } => {
                let count = ranks.count();
                let are = if count == 1 { "is" } else { "are" };
                write!(f, "run {run}: {count} of {size} ranks {are} missing: {ranks}")
            }
            Self::Several { run, ranks } => {
                let count = ranks.count();
                let have = if count == 1 { "rank has" } else { "ranks have" };
                write!(
                    f,
                    "run {run}: {count} {have} several recordings, which sums add up: {ranks}"
                )
            }
            Self::Unfinished { run, ranks } => {
                let count = ranks.count();
                let (are, their) = match count {
                    1 => ("rank is", "its recording"),
                    _ => ("ranks are", "their recordings"),
                };
                write!(
                    f,
                    "run {run}: {count} {are} incomplete, because {their} had not ended: {ranks}"
                )
            }
            Self::Broken { run, rank, why, .. } => {
                write!(f, "run {run}: rank {rank} is incomplete and left out: {why}")
            }
            Self::Unreadable { why } => write!(f, "left out: {why}"),
        }
    }
}

/// Ranges of ranks, each with its first and its last rank, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranks(pub Vec<(u32, u32)>);

impl Ranks {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    fn without(size: u32, there: &BTreeSet<u32>) -> Self {
        let mut ranges = Vec::new();
        let mut next = 0;
        for rank in there.range(..size) {
            if next < *rank {
                ranges.push((next, rank - 1));
            }
            next = rank + 1;
        }
        if next < size {
            ranges.push((next, size - 1));
        }
        Self(ranges)
    }

    /// Makes ranges of ranks, which must be in ascending order.
    pub fn of(ranks: impl Iterator<Item = u32>) -> Self {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match ranges.last_mut() {
                Some((_, last)) if rank.checked_sub(1) == Some(*last) => *last = rank,
                _ => ranges.push((rank, rank)),
            }
        }
        Self(ranges)
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().take(MOST_NAMED).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first} to {last}")?,
            }
        }
        match self.0.len().saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, ", and {more} more ranges"),
        }
    }
}

/// Finds ranks with no recording, with several, or with an unfinished one. A rank whose broken part
/// is in `named` does not count as missing.
pub(crate) fn of_ranks<'a>(members: impl Iterator<Item = &'a Member>, named: &[Gap]) -> Vec<Gap> {
    #[derive(Default)]
    struct Run {
        size: u32,
        there: BTreeSet<u32>,
        several: BTreeSet<u32>,
        unfinished: BTreeSet<u32>,
    }
    let mut runs: BTreeMap<String, Run> = BTreeMap::new();
    for member in members {
        let run = runs.entry(member.run.clone()).or_default();
        run.size = run.size.max(member.world_size.unwrap_or(0));
        if !run.there.insert(member.rank) {
            run.several.insert(member.rank);
        }
        if member.unfinished {
            run.unfinished.insert(member.rank);
        }
    }
    for gap in named {
        if let Gap::Broken { run, rank, .. } = gap {
            runs.entry(run.clone()).or_default().there.insert(*rank);
        }
    }
    let mut found = Vec::new();
    for (run, Run { size, there, several, unfinished }) in runs {
        let missing = Ranks::without(size, &there);
        if !missing.0.is_empty() {
            found.push(Gap::NoPart { run: run.clone(), size, ranks: missing });
        }
        let several = Ranks::of(several.into_iter());
        if !several.0.is_empty() {
            found.push(Gap::Several { run: run.clone(), ranks: several });
        }
        let unfinished = Ranks::of(unfinished.into_iter());
        if !unfinished.0.is_empty() {
            found.push(Gap::Unfinished { run, ranks: unfinished });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_and_named_as_ranges() {
        let member = |rank| Member { rank, world_size: Some(1 << 20), ..Member::default() };
        let mut members = [member(0), member(1), member(1), member(4), member(5), member(5)];
        members[3].unfinished = true;
        let found: Vec<String> =
            of_ranks(members.iter(), &[]).iter().map(|gap| gap.to_string()).collect();
        let expected = [
            "run : 1048572 of 1048576 ranks are missing: 2 to 3, 6 to 1048575",
            "run : 2 ranks have several recordings, which sums add up: 1, 5",
            "run : 1 rank is incomplete, because its recording had not ended: 4",
        ];
        assert_eq!(found, expected);
        let even: Vec<Member> = (0..500).map(|rank| member(2 * rank)).collect();
        let found = of_ranks(even.iter(), &[])[0].to_string();
        assert!(found.contains("1048076 of 1048576 ranks"), "{found}");
        assert!(found.ends_with(", 29, 31, and 484 more ranges"), "{found}");
    }
}
