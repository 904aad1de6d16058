//! Opens a merged profile: see [`crate::merged`].

use super::{ClockMap, Process, Profile, fit};
use crate::counts::CountedCalls;
use crate::error::{Error, ErrorKind, Result};
use crate::groups::Groups;
use crate::ledger::merge_losses;
use crate::manifest::Manifest;
use crate::merged::{Aligned, AlignedBy, MERGED_NAME, Member, unite};
use crate::ops::Ops;
use crate::profile::renumber::renumber;
use crate::safe_dir::Dir;
use model::Loss;
use record::Timeline;

/// Opens the members (the profiles that were merged), and joins them into one profile.
pub(super) fn open(root: &Dir, mut manifest: Manifest) -> Result<Profile> {
    let all = root.dir(MERGED_NAME)?;
    let mut members = Vec::new();
    for number in 1..=manifest.merged.len() {
        let place = all.dir(number.to_string())?;
        let of_member = Manifest::read_in(&place)?;
        if !of_member.merged.is_empty() {
            let why = ErrorKind::NotAProfile("it is merged, but inside of a merged profile");
            return Err(Error::new("open", place.path(), why));
        }
        members.push(Profile::open_at(&place)?);
    }
    let counters: Vec<_> = members.iter().map(|one| one.manifest.counters.as_slice()).collect();
    let (united, places) = unite(&counters).ok_or_else(|| {
        let why = ErrorKind::NotAProfile("the counters of its members do not fit together");
        Error::new("open", root.path(), why)
    })?;
    manifest.counters = united;
    let first = first(&members);
    let clock = members.get(first).map(|one| one.manifest.clock).unwrap_or_default();
    manifest.clock = clock;
    // The number of passes is set only in memory. In a manifest on disk, it would mean that the
    // directories of the passes are next to the manifest.
    manifest.passes = members.iter().map(|one| one.manifest.passes).max().unwrap_or(0);
    let timeline = common(&members, first);
    let described = describe(&manifest, &members, first);
    let maps: Vec<Option<ClockMap>> = members
        .iter()
        .zip(&described)
        .map(|(one, member)| match member.aligned.by {
            AlignedBy::First | AlignedBy::SameClock => None,
            by => Some(ClockMap::new(&one.timeline, &timeline, by == AlignedBy::Monotonic)),
        })
        .collect();
    let mut joined = Profile {
        dir: root.path().to_path_buf(),
        root: root.clone(),
        groups: Groups::new(&manifest.counters),
        manifest,
        processes: Vec::new(),
        counted: Vec::new(),
        ops: Ops::default(),
        timeline,
        snapshots: Vec::new(),
        tracks: Vec::new(),
        members: described,
        losses: Vec::new(),
        left_out: Vec::new(),
        roots: Vec::new(),
        // There are no pools, because the members' recordings had ended before the merge.
        pools: Vec::new(),
    };
    for (member, ((one, map), places)) in members.into_iter().zip(maps).zip(places).enumerate() {
        add(&mut joined, one, member, map, &places);
    }
    joined.losses = merge_losses(&joined.losses);
    joined.ops = Ops::new(joined.processes.iter().map(Process::exports));
    Ok(joined)
}

impl Profile {
    /// Returns whether the profile still has a pool.
    pub fn has_pools(&self) -> bool {
        self.pools.iter().any(Option::is_some)
    }

    /// Opens the merged profiles as separate profiles. With each profile, returns how many ns to
    /// add to its `CLOCK_REALTIME` times to align them with this merged profile.
    ///
    /// # Errors
    /// Same as for [`Profile::open`].
    pub fn open_members(&self) -> Result<Vec<(Self, i64)>> {
        if self.members.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.root.dir(MERGED_NAME)?;
        let each = self.members.iter().enumerate();
        each.map(|(at, member)| {
            let one = Self::open_at(&all.dir((at + 1).to_string())?)?;
            let ticks = one.timeline.origin_ticks();
            let moved = match member.aligned.by {
                AlignedBy::First | AlignedBy::SameClock => ticks,
                by => ClockMap::new(&one.timeline, &self.timeline, by == AlignedBy::Monotonic)
                    .ticks(ticks),
            };
            let of_member = one.timeline.realtime_ns(ticks);
            Ok((one, self.timeline.realtime_ns(moved).saturating_sub(of_member)))
        })
        .collect()
    }
}

impl Process {
    /// Returns whether the process's directory contains files with plugin events that are not part
    /// of this profile.
    pub fn has_events(&self) -> bool {
        self.losses.iter().any(|loss| loss.loss() == Some(Loss::PluginEventsLeft))
    }
}

fn add(to: &mut Profile, one: Profile, member: usize, map: Option<ClockMap>, places: &[usize]) {
    let before = to.processes.len();
    let label = one.label_of_recording().unwrap_or_else(|| to.members[member].name.clone());
    let moved = |one: CountedCalls| CountedCalls { process: before + one.process, ..one };
    to.counted.extend(one.counted.into_iter().map(moved));
    for mut process in one.processes {
        process.member = member;
        process.clock = map;
        if let Some(map) = &map {
            map.process(&mut process);
        }
        renumber(&mut process, places);
        to.processes.push(process);
    }
    let line = to.timeline;
    to.snapshots.extend(
        one.snapshots.iter().map(|moment| map.map_or(*moment, |map| map.moment(moment, &line))),
    );
    for mut tracks in one.tracks {
        (tracks.clock, tracks.member) = (map, member);
        for series in tracks.series.values_mut() {
            series.name = format!("{label} {}", series.name).trim_end().to_owned();
        }
        to.tracks.push(tracks);
    }
    to.losses.extend(one.losses);
    to.roots.extend(one.roots.into_iter().map(|(_, root)| (member, root)));
}

fn same_boot(a: &Profile, b: &Profile) -> bool {
    !a.manifest.boot_id.is_empty() && a.manifest.boot_id == b.manifest.boot_id
}

/// Returns the index of the first member from the machine that was started earliest. On that
/// machine's clock, moments on other machines have no negative times.
fn first(members: &[Profile]) -> usize {
    let started = |one: &Profile| one.timeline.monotonic_to_realtime_ns(0);
    let Some(oldest) = members.iter().min_by_key(|one| started(one)) else { return 0 };
    let is_of_oldest = |one: &Profile| std::ptr::eq(one, oldest) || same_boot(one, oldest);
    members.iter().position(is_of_oldest).unwrap_or(0)
}

/// Returns whether ticks of both profiles can be compared without conversion.
fn same_clock(a: &Profile, b: &Profile) -> bool {
    same_boot(a, b) && a.manifest.clock == b.manifest.clock
}

/// Fits the timeline through the snapshots of the members that have the same clock as the member
/// `first`.
fn common(members: &[Profile], first: usize) -> Timeline {
    let Some(reference) = members.get(first) else {
        return Timeline::fit(record::ClockKind::Monotonic, &[]);
    };
    let mut alike = members.iter().filter(|one| same_clock(one, reference));
    let snapshots: Vec<_> = alike.by_ref().flat_map(|one| &one.snapshots).collect();
    let snapshots: Vec<record::Snapshot> = snapshots.into_iter().map(|m| (*m).into()).collect();
    // `fit` uses the headers of pages only if the snapshots are too few or too close together.
    let line = fit(reference.manifest.clock.into(), &snapshots, &reference.processes);
    if line.calibrated { line } else { reference.timeline }
}

fn describe(manifest: &Manifest, members: &[Profile], first: usize) -> Vec<Member> {
    let reference = &members[first.min(members.len() - 1)];
    let uncertainty = |one: &Profile| {
        let least = one.snapshots.iter().map(|moment| moment.uncertainty_ticks).min();
        least.map(|ticks| one.timeline.duration_ns(ticks))
    };
    let align = |at: usize, one: &Profile| {
        let (by, uncertainty_ns) = match () {
            () if at == first => (AlignedBy::First, Some(0.0)),
            () if same_clock(one, reference) => (AlignedBy::SameClock, Some(0.0)),
            () if same_boot(one, reference) => {
                let both = uncertainty(one).zip(uncertainty(reference));
                (AlignedBy::Monotonic, both.map(|(one, other)| one + other))
            }
            () => (AlignedBy::Realtime, None),
        };
        Aligned { by, uncertainty_ns }
    };
    let each = members.iter().zip(&manifest.merged).enumerate();
    each.map(|(at, (one, name))| Member {
        name: name.clone(),
        host: one.manifest.host.clone(),
        aligned: align(at, one),
    })
    .collect()
}
