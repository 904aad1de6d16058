//! Handles ranks in timelines: chooses the rank that is written, and writes the timelines of the
//! members (the profiles that a merged profile consists of).

use std::io;

use profile::{Job, Manifest, Profile, merge_losses};
use trace::export::facts::Found;
use trace::export::members::{Numbers, OfMember};
use trace::timeline::TimelineSink;

use super::{Args, fill_one};
use crate::failure::Failure;
use crate::terminal::say;

/// Removes from the profile all ranks except the one that the user chose. Does nothing if the user
/// chose no rank, or if no rank was recorded and the user gave `--world-size`.
pub(super) fn choose(profile: &mut Profile, args: &Args) -> Result<(), Failure> {
    let Some(rank) = args.rank else { return Ok(()) };
    let known = profile.known_ranks();
    if known.is_empty() {
        return match args.world_size {
            Some(_) => Ok(()),
            None => Err(Failure::new(format!("--rank {rank}: the profile has no ranks"))
                .hint("add --world-size N if it is one of the ranks of a job")),
        };
    }
    let is_shared = profile.shares_recording(rank);
    if is_shared && !profile.activities().map_err(Failure::new)?.is_empty() {
        say!(
            "--rank {rank}: events of plugins and of other profilers are left out, because the recording \
             is also of other ranks, and such events do not say which rank they are of"
        );
    }
    crate::view::ranks::keep(profile, rank)
}

/// Returns the rank of the profile's processes, and the size of their job. `None` if the rank is
/// not known, or if the profile has several ranks.
pub(super) fn job_of(profile: &Profile, args: &Args) -> Option<Job> {
    let known = profile.known_ranks();
    let said = args.rank.map(|rank| Job { rank, size: args.world_size });
    match known.len() {
        0 => said,
        1 => {
            let mut jobs = profile.processes.iter().filter_map(|process| process.job);
            let job = jobs.next().or(profile.manifest.job())?;
            Some(Job { size: job.size.or(args.world_size), ..job })
        }
        _ => None,
    }
}

/// Returns the manifest. If the manifest has no rank, the rank and the job size that the user gave
/// are added.
pub(super) fn known(profile: &Profile, args: &Args) -> Manifest {
    let mut manifest = profile.manifest.clone();
    if manifest.rank.is_none() {
        (manifest.rank, manifest.world_size) = (args.rank, args.world_size);
    }
    manifest
}

pub(super) fn facts(profile: &Profile) -> serde_json::Value {
    let each = profile.members.iter().map(|member| {
        serde_json::json!({
            "profile": member.name,
            "host": member.host,
            "aligned": member.aligned,
        })
    });
    each.collect()
}

/// Writes the timelines of all members, or of those that have the rank that the user chose. Each
/// member is read with its own clock and its own names of counters, as if it were exported alone.
/// But its times are shifted to align the members, and its rows may get other names and numbers.
pub(super) fn fill_members(
    sink: &mut (impl TimelineSink + Send),
    profile: &Profile,
    args: &Args,
) -> io::Result<Found> {
    let mut numbers = Numbers::default();
    let (mut all, mut of_plugins) = (Found::default(), Vec::new());
    let members = profile.open_members().map_err(io::Error::other)?;
    for (place, (mut one, ahead_ns)) in (0u32..).zip(members) {
        if args.rank.is_some_and(|rank| !one.keep_rank(rank)) {
            continue;
        }
        let name = || profile.members.get(place as usize).map(|member| member.name.clone());
        let label = one.label_of_recording().or_else(name).unwrap_or_default();
        let mut sink = OfMember::new(sink, &mut numbers, place, label, ahead_ns);
        let Found { mut calls, tracks } = fill_one(&mut sink, &one, args)?;
        of_plugins = merge_losses(of_plugins.iter().chain(&calls.pop().unwrap_or_default()));
        all.calls.append(&mut calls);
        all.tracks = merge_losses(all.tracks.iter().chain(&tracks));
    }
    all.calls.push(of_plugins);
    Ok(all)
}
