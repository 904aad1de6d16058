//! Profiles of several passes: runs of one program, each with other counters.
//!
//! ```text
//!  x.cpt/manifest.json   passes = 2
//!        passes/1/       a whole profile: manifest, run file, parts, its own pool
//!        passes/2/
//!        tracks/         sampled over all passes
//! ```
//!
//! Each pass is recorded, collected and recovered as a profile of its own; opened together they
//! are one. Its processes are those of all passes, its counters the counters of all passes one
//! after the other, groups numbered anew: so no group, and no ratio, has counters of two passes.
//! A name that a former pass has already gets its pass behind it: `task-clock@2`. Functions are
//! joined as those of several processes always are: an op is an op in whatever pass.

use std::path::{Path, PathBuf};

use model::{Loss, MAX_COUNTERS};

use crate::beneath::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::groups::Groups;
use crate::ledger::{LossCount, merge_losses};
use crate::manifest::{CounterInfo, Manifest};
use crate::ops::Ops;
use crate::profile::{Process, Profile, fit};
use crate::tracks::Tracks;

/// The directory of passes in a profile.
pub const PASSES_NAME: &str = "passes";

/// Where pass `number`, from 1, of the profile in `dir` is.
pub fn pass_dir(dir: &Path, number: u32) -> PathBuf {
    dir.join(PASSES_NAME).join(number.to_string())
}

/// The counters of all passes in the order of a profile. `None` if there are too many.
pub fn join_counters(passes: &[Vec<CounterInfo>]) -> Option<Vec<CounterInfo>> {
    let mut all: Vec<CounterInfo> = Vec::new();
    for (number, counters) in (1u32..).zip(passes) {
        let before = all.last().map_or(0, |last| last.group + 1);
        for counter in counters {
            let taken = all.iter().any(|known| known.name == counter.name);
            let name = match taken {
                true => format!("{}@{number}", counter.name),
                false => counter.name.clone(),
            };
            let group = before.checked_add(counter.group)?;
            all.push(CounterInfo { name, group, pass: Some(number), ..counter.clone() });
        }
    }
    (all.len() <= MAX_COUNTERS).then_some(all)
}

/// Whether this error says that `run` was killed before the pass was ready.
pub(crate) fn is_not_begun(error: &Error) -> bool {
    error.is_not_found() || matches!(error.kind(), ErrorKind::NotAProfile(_))
}

/// Opens the directory of a pass.
pub(crate) fn open_dir(root: &Dir, number: u32) -> Result<Dir> {
    root.dir(PASSES_NAME)?.dir(number.to_string())
}

pub(crate) fn open(root: &Dir, mut manifest: Manifest) -> Result<Profile> {
    let dir = root.path();
    let mut passes: Vec<Profile> = Vec::new();
    let mut refused = Vec::new();
    for number in 1..=manifest.passes {
        let read = open_dir(root, number).and_then(|place| Ok((Manifest::read_in(&place)?, place)));
        match read {
            Ok((one, place)) => passes.push(Profile::open_one(&place, one)?),
            Err(e) if e.is_refused() => {
                refused.push(LossCount::new(Loss::FileRefused, 1));
                break;
            }
            Err(e) if is_not_begun(&e) => break,
            Err(e) => return Err(e),
        }
    }
    let counters: Vec<_> = passes.iter().map(|p| p.manifest.counters.clone()).collect();
    manifest.counters = join_counters(&counters).ok_or_else(|| {
        Error::new("open", dir, ErrorKind::NotAProfile("its passes have too many counters"))
    })?;
    let (mut processes, mut moments, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    let (mut pools, mut before) = (Vec::new(), 0);
    moments.extend(manifest.snapshots.iter().copied());
    for (pass, mut profile) in (0u32..).zip(passes) {
        for mut process in profile.processes.drain(..) {
            process.pass = pass;
            shift(&mut process, before);
            processes.push(process);
        }
        moments.append(&mut profile.snapshots);
        losses.append(&mut profile.losses);
        pools.append(&mut profile.pools);
        before += profile.manifest.counters.len();
    }
    let snapshots: Vec<_> = moments.iter().map(|m| (*m).into()).collect();
    let timeline = fit(manifest.clock.into(), &snapshots, &processes);
    // Of the whole: whether the clock of a single pass could be fitted does not matter.
    losses.retain(|loss: &LossCount| loss.loss() != Some(Loss::ClockUncalibrated));
    if !timeline.calibrated && processes.iter().any(|p| !p.threads.is_empty()) {
        losses.push(LossCount::new(Loss::ClockUncalibrated, 1));
    }
    let (tracks, damaged) = Tracks::open_in(root)?;
    losses.append(&mut refused);
    let of_tracks = tracks.iter().flat_map(|tracks| &tracks.losses).chain(&damaged);
    let losses = merge_losses(losses.iter().chain(of_tracks));
    let ops = Ops::new(processes.iter().map(crate::profile::Process::exports));
    let groups = Groups::new(&manifest.counters);
    Ok(Profile {
        dir: dir.to_path_buf(),
        root: root.clone(),
        manifest,
        processes,
        ops,
        groups,
        timeline,
        snapshots: moments,
        tracks,
        losses,
        left_out: Vec::new(),
        pools,
    })
}

/// Counter *i* of its pass is counter *i* + `before` of the profile. Both fit in a mask, since
/// there are at most [`MAX_COUNTERS`] in all; a page that names more than its pass has is torn.
fn shift(process: &mut Process, before: usize) {
    let moved = |mask: u32| u32::try_from(u64::from(mask) << before).unwrap_or(u32::MAX);
    for page in process.threads.iter_mut().flat_map(|thread| &mut thread.pages) {
        page.header.start.counters = moved(page.header.start.counters);
    }
    for calibration in &mut process.calibrations {
        calibration.counters = moved(calibration.counters);
        calibration.inside_values.splice(0..0, std::iter::repeat_n(0, before));
        if let Some(spread) = &mut calibration.spread {
            spread.inside_values.splice(0..0, std::iter::repeat_n([0, 0], before));
        }
    }
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
        assert_eq!(join_counters(&[many.clone(), many]), None, "34 do not fit a mask");
    }
}
