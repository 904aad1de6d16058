//! Profiles of several recordings: the ranks of a distributed job, or programs on several machines.
//!
//! ```text
//!  x.cpt/manifest.json   merged = ["rank0.cpt", "rank1.cpt"]
//!        merged/1/       a whole profile: manifest, parts, tracks, activities, passes
//!        merged/2/
//! ```
//!
//! A profile in `merged/` is a *member*, kept as it was recorded. The merged profile has the
//! processes of all members.
//!
//! **Clocks.** Ticks of members from the same boot of the same machine with the same clock can be
//! compared directly. Other ticks are converted when they are read, to the clock of the member
//! whose machine was started first. Within one boot, the conversion uses `CLOCK_MONOTONIC`;
//! otherwise, it uses `CLOCK_REALTIME`. How well `CLOCK_REALTIME` agrees between machines is not
//! known.
//!
//! **Counters.** The profile has the counters of all members. Counters of two members are the same
//! if their names, units and passes are equal, and if both or none are simulated. Groups with a
//! common counter become one group. Where a member did not count a counter, its values are missing,
//! and not 0.

use model::MAX_COUNTERS;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::manifest::CounterInfo;
use crate::safe_dir::Dir;
use crate::sparse;

/// The directory in a profile that contains the members.
pub const MERGED_NAME: &str = "merged";

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name of the profile that was merged.
    pub name: String,
    /// The machine on which it was recorded.
    pub host: String,
    /// How the member's times were converted to the clock of the profile.
    pub aligned: Aligned,
}

/// Copies the directories and regular files of a profile. Holes in files stay holes.
///
/// # Errors
/// Fails if the profile contains anything else, if its directories are nested too deeply, or if
/// `to` is not writable.
pub fn copy(from: &Dir, to: &Dir) -> Result<()> {
    copy_within(from, to, MOST_DEPTH)
}

/// The largest number of directory levels that are copied, with the directory itself. A profile has
/// at most five levels: its own, and those of `passes/1/activities/NAME`.
const MOST_DEPTH: u32 = 8;

fn copy_within(from: &Dir, to: &Dir, depth: u32) -> Result<()> {
    for name in from.names()? {
        let path = from.path_of(&name);
        let Some(text) = name.to_str().filter(|_| depth > 0) else {
            return Err(Error::new(
                "copy",
                &path,
                ErrorKind::Refused("it has no place in a profile"),
            ));
        };
        let found = from.look(&name)?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
            copy_within(&from.dir(&name)?, &to.make_dir(text)?, depth - 1)?;
            continue;
        }
        let copied = sparse::copy(&from.file(&name)?, &mut to.create(text)?);
        copied.map_err(Error::on("copy", &path))?;
    }
    Ok(())
}

/// How the times of a member were converted to the clock of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aligned {
    /// The method of the conversion.
    pub by: AlignedBy,
    /// The largest possible error of the member's times relative to the first member's, in ns;
    /// `None` if unknown.
    pub uncertainty_ns: Option<f64>,
}

/// The method by which the clock of a member was aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignedBy {
    /// No conversion: this is the member to whose clock the others are converted.
    First,
    /// The member has the profile's clock, in the same boot of the same machine. No conversion is
    /// needed.
    SameClock,
    /// The times were converted with the values of `CLOCK_MONOTONIC` in the snapshots of both
    /// members, which are from the same boot of the same machine.
    Monotonic,
    /// The times were converted with the values of `CLOCK_REALTIME` in the snapshots of both
    /// members.
    Realtime,
}

/// Combines the counters of several recordings. Also returns, for each recording, the index of each
/// of its counters in the result. Returns `None` if there are too many counters, if two recordings
/// list the same counters in different orders, or if different counters have the same name.
pub fn unite(all: &[&[CounterInfo]]) -> Option<(Vec<CounterInfo>, Vec<Vec<usize>>)> {
    let mut groups: Vec<Vec<CounterInfo>> = Vec::new();
    for counters in all {
        let mut from = 0;
        for group in counters.chunk_by(|a, b| a.group == b.group) {
            let woven = groups[from..].iter().position(|known| has_common(known, group));
            let at = match woven {
                Some(at) => {
                    groups[from + at] = weave(&groups[from + at], group)?;
                    from + at
                }
                None => {
                    groups.insert(from, group.to_vec());
                    from
                }
            };
            from = at + 1;
        }
    }
    let numbered = (0u16..).zip(&groups).flat_map(|(number, group)| {
        group.iter().map(move |counter| CounterInfo { group: number, ..counter.clone() })
    });
    let united: Vec<CounterInfo> = numbered.collect();
    let repeated = |at: usize| united[..at].iter().any(|known| known.name == united[at].name);
    if united.len() > MAX_COUNTERS || (0..united.len()).any(repeated) {
        return None;
    }
    let place = |counter: &CounterInfo| united.iter().position(|known| is_same(known, counter));
    let places = all.iter().map(|counters| counters.iter().map(place).collect());
    Some((united.clone(), places.collect::<Option<_>>()?))
}

/// Whether two counters are the same, apart from their group's number.
fn is_same(a: &CounterInfo, b: &CounterInfo) -> bool {
    (&a.name, &a.unit, a.simulated, a.pass) == (&b.name, &b.unit, b.simulated, b.pass)
}

fn has_common(a: &[CounterInfo], b: &[CounterInfo]) -> bool {
    a.iter().any(|counter| b.iter().any(|other| is_same(counter, other)))
}

/// Returns the counters of both groups, in an order that contradicts neither; `None` if there is no
/// such order.
fn weave(known: &[CounterInfo], more: &[CounterInfo]) -> Option<Vec<CounterInfo>> {
    let (mut all, mut from) = (known.to_vec(), 0);
    for counter in more {
        match all.iter().position(|other| is_same(other, counter)) {
            Some(at) if at < from => return None,
            Some(at) => from = at + 1,
            None => {
                all.insert(from, counter.clone());
                from += 1;
            }
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(text: &str) -> Vec<CounterInfo> {
        let groups = (0u16..).zip(text.split('|').filter(|group| !group.is_empty()));
        let one = |(group, names): (u16, &str)| -> Vec<CounterInfo> {
            let names = names.split(',').map(str::to_owned);
            names.map(|name| CounterInfo { name, group, ..CounterInfo::default() }).collect()
        };
        groups.flat_map(one).collect()
    }

    fn united(all: &[&str]) -> Option<(String, Vec<Vec<usize>>)> {
        let all: Vec<Vec<CounterInfo>> = all.iter().map(|text| counters(text)).collect();
        let (united, places) = unite(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        let groups = united.chunk_by(|a, b| a.group == b.group).map(|group| {
            group.iter().map(|counter| counter.name.as_str()).collect::<Vec<_>>().join(",")
        });
        Some((groups.collect::<Vec<_>>().join("|"), places))
    }

    #[test]
    fn counters_of_all_members() {
        let same = united(&["a,b|c", "a,b|c"]);
        assert_eq!(same, Some(("a,b|c".into(), vec![vec![0, 1, 2], vec![0, 1, 2]])));
        assert_eq!(united(&["a|b", "b"]), Some(("a|b".into(), vec![vec![0, 1], vec![1]])));
        assert_eq!(united(&["b", "a|b"]), Some(("a|b".into(), vec![vec![1], vec![0, 1]])));
        let part = united(&["a,b", "a", "a,c"]);
        assert_eq!(part, Some(("a,c,b".into(), vec![vec![0, 2], vec![0], vec![0, 1]])));
        assert_eq!(united(&["", "a"]), Some(("a".into(), vec![vec![], vec![0]])));
        assert_eq!(united(&["a", ""]), Some(("a".into(), vec![vec![0], vec![]])));
        assert_eq!(united(&[]), Some((String::new(), vec![])));
    }

    #[test]
    fn counters_that_contradict_each_other() {
        assert_eq!(united(&["a,b", "b,a"]), None, "another order in a group");
        assert_eq!(united(&["a|b", "b|a"]), None, "another order of groups");
        assert_eq!(united(&["a,b", "a|b"]), None, "once in one group, once in two");
        let many = |prefix: &str| -> String {
            (0..17).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(united(&[&many("a"), &many("b")]), None, "34 counters");
    }
}
