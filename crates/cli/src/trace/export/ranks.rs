//! Ranks in timelines: which one is written, and the timelines of the members of a merged profile.

use std::io;

use profile::{Job, Manifest, Profile, merge_losses};
use trace::export::facts::Found;
use trace::export::members::{Numbers, OfMember};
use trace::timeline::TimelineSink;

use super::{Args, fill_one};
use crate::failure::Failure;
use crate::terminal::say;

/// Leaves the chosen rank in the profile, if it has ranks.
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

/// The rank of the profile, if it has one.
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

/// The manifest, with the rank that was asked for if none was recorded.
pub(super) fn known(profile: &Profile, args: &Args) -> Manifest {
    let mut manifest = profile.manifest.clone();
    if manifest.rank.is_none() {
        (manifest.rank, manifest.world_size) = (args.rank, args.world_size);
    }
    manifest
}

/// What the output says of the members.
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

/// Gives `sink` the timelines of all members. Each member is read with its own clock and its own names
/// of counters, so it looks as it would alone.
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
