//! Opens a profile of several passes as one profile: see [`crate::passes`].

use model::Loss;

use super::renumber::renumber;
use super::{Process, Profile, fit};
use crate::counts::CountedCalls;
use crate::error::{Error, ErrorKind, Result};
use crate::groups::Groups;
use crate::ledger::{LossCount, merge_losses};
use crate::manifest::Manifest;
use crate::ops::Ops;
use crate::passes::{is_not_begun, join_counters, open_dir};
use crate::safe_dir::Dir;
use crate::tracks::Tracks;

/// Opens the passes before the first one that is missing, not valid or refused, and joins them into
/// one profile.
pub(super) fn open(root: &Dir, mut manifest: Manifest) -> Result<Profile> {
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
    let mut counted = Vec::new();
    for (pass, mut profile) in (0u32..).zip(passes) {
        let first = processes.len();
        // Counter *i* of the pass becomes counter *i* + `before` of the profile.
        let places: Vec<usize> = (before..before + profile.manifest.counters.len()).collect();
        let moved = |one: CountedCalls| CountedCalls { process: first + one.process, ..one };
        counted.extend(profile.counted.drain(..).map(moved));
        for mut process in profile.processes.drain(..) {
            process.pass = pass;
            renumber(&mut process, &places);
            processes.push(process);
        }
        moments.append(&mut profile.snapshots);
        losses.append(&mut profile.losses);
        pools.append(&mut profile.pools);
        before += profile.manifest.counters.len();
    }
    let snapshots: Vec<_> = moments.iter().map(|m| (*m).into()).collect();
    let timeline = fit(manifest.clock.into(), &snapshots, &processes);
    // The times of all passes are converted with the timeline of the whole profile. So it is no
    // loss if the clock of a single pass could not be calibrated.
    losses.retain(|loss: &LossCount| loss.loss() != Some(Loss::ClockUncalibrated));
    if !timeline.calibrated && processes.iter().any(|p| !p.threads.is_empty()) {
        losses.push(LossCount::new(Loss::ClockUncalibrated, 1));
    }
    let (tracks, damaged) = Tracks::open_in(root)?;
    losses.append(&mut refused);
    let of_tracks = tracks.iter().flat_map(|tracks| &tracks.losses).chain(&damaged);
    let losses = merge_losses(losses.iter().chain(of_tracks));
    let ops = Ops::new(processes.iter().map(Process::exports));
    let groups = Groups::new(&manifest.counters);
    Ok(Profile {
        dir: dir.to_path_buf(),
        root: root.clone(),
        manifest,
        processes,
        counted,
        ops,
        groups,
        timeline,
        snapshots: moments,
        tracks,
        losses,
        members: Vec::new(),
        left_out: Vec::new(),
        roots: vec![(0, root.clone())],
        pools,
    })
}
