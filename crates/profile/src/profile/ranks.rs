//! Finds the ranks of a profile's processes in a distributed job.

use std::collections::{BTreeSet, HashMap};

use record::job::Job;

use super::{Process, Profile};
use crate::leftovers::PartId;
use crate::manifest::Manifest;
use crate::ops::Ops;

/// Completes the ranks and job names of the processes: a process without its own gets those of the
/// recording. For a part with events of plugins, the rank and job name of the process that loaded
/// the plugins come first.
pub(super) fn complete(processes: &mut [Process], of_recording: &Manifest) {
    let own: HashMap<PartId, (Option<Job>, Option<String>)> = processes
        .iter()
        .map(|process| (process.id, (process.job, process.job_name.clone())))
        .collect();
    for process in processes {
        let of_owner = process.id.owner().and_then(|owner| own.get(&owner));
        let rank_of_owner = || of_owner?.0;
        let name_of_owner = || of_owner?.1.clone();
        process.job = process.job.or_else(rank_of_owner).or(of_recording.job());
        let name = process.job_name.take().or_else(name_of_owner);
        process.job_name = name.or_else(|| of_recording.job_name.clone());
    }
}

impl Profile {
    /// Returns, for each process, the index of the first process with the same rank. In each
    /// recording, the processes without a known rank count as one rank.
    pub fn ranks(&self) -> Vec<usize> {
        let mut first = HashMap::new();
        let each = self.processes.iter().enumerate();
        each.map(|(index, process)| {
            let rank = process.job.map(|job| job.rank).ok_or(process.member);
            *first.entry(rank).or_insert(index)
        })
        .collect()
    }

    /// Removes all processes that are not known to have this rank. Time series stay if their
    /// recording has a process of this rank. Activities stay if their recording has processes of
    /// this rank and of no other known rank. Returns whether there is a process of this rank.
    pub fn keep_rank(&mut self, rank: u32) -> bool {
        let shared = self.shared_members(rank);
        let is_kept = |process: &Process| process.job.is_some_and(|job| job.rank == rank);
        let kept: Vec<bool> = self.processes.iter().map(is_kept).collect();
        let mut places = Vec::with_capacity(kept.len());
        let mut next = 0;
        for kept in &kept {
            places.push(kept.then_some(next));
            next += usize::from(*kept);
        }
        let place = |process: usize| places.get(process).copied().flatten();
        self.counted.retain_mut(|one| place(one.process).map(|at| one.process = at).is_some());
        if !self.left_out.is_empty() {
            let mut each = kept.iter();
            self.left_out.retain(|_| each.next() == Some(&true));
        }
        self.processes.retain(is_kept);
        let members: BTreeSet<usize> = self.processes.iter().map(|p| p.member).collect();
        self.tracks.retain(|tracks| members.contains(&tracks.member));
        self.roots.retain(|(member, _)| members.contains(member) && !shared.contains(member));
        self.ops = Ops::new(self.processes.iter().map(Process::exports));
        !self.processes.is_empty()
    }

    /// Returns whether a recording with processes of this rank also has other ranks. Activities
    /// belong to a whole recording, so those of one rank cannot be separated.
    pub fn shares_recording(&self, rank: u32) -> bool {
        !self.shared_members(rank).is_empty()
    }

    /// Returns the indices of the recordings that have processes of this rank and of other ranks.
    fn shared_members(&self, rank: u32) -> BTreeSet<usize> {
        let ranked = || self.processes.iter().filter_map(|p| Some((p.member, p.job?.rank)));
        let mine: BTreeSet<usize> =
            ranked().filter(|(_, other)| *other == rank).map(|(member, _)| member).collect();
        let others = ranked().filter(|(member, other)| *other != rank && mine.contains(member));
        others.map(|(member, _)| member).collect()
    }

    /// Returns the known ranks, in ascending order.
    pub fn known_ranks(&self) -> BTreeSet<u32> {
        let of_processes = self.processes.iter().filter_map(|process| process.job);
        of_processes.chain(self.manifest.job()).map(|job| job.rank).collect()
    }

    /// Returns a label that distinguishes this recording in a merged profile: `rank 3`, or `ranks
    /// 0-3`. `None` if no rank is known.
    pub fn label_of_recording(&self) -> Option<String> {
        let ranks = self.known_ranks();
        match (ranks.first()?, ranks.last()?) {
            (first, last) if first == last => Some(format!("rank {first}")),
            (first, last) => Some(format!("ranks {first}-{last}")),
        }
    }

    /// Returns the name of the machine of a process.
    pub fn host_of(&self, process: &Process) -> &str {
        self.members.get(process.member).map_or(&self.manifest.host, |member| &member.host)
    }

    /// Returns whether the rank of any process is known.
    pub fn has_ranks(&self) -> bool {
        self.processes.iter().any(|process| process.job.is_some())
    }
}
