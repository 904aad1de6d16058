//! Selects and lists the ranks of a distributed job.

use std::collections::BTreeSet;

use profile::Profile;

use crate::failure::Failure;
use crate::view::units::plural;

/// The hint of errors about profiles that do not say which ranks their processes have.
pub const ORIGIN: &str = "ranks come from torchrun, mpirun or srun, or from `run --rank N`";

/// `--rank`.
#[derive(clap::Args)]
pub struct RankArgs {
    /// Only the processes of this rank of a distributed job.
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
}

impl RankArgs {
    pub fn given(&self) -> Option<u32> {
        self.rank
    }

    /// If the user chose a rank, keeps only its processes in the opened profile.
    ///
    /// # Errors
    /// Fails if the profile has no such rank.
    pub fn choose(&self, profile: &mut Profile) -> Result<(), Failure> {
        self.rank.map_or(Ok(()), |rank| keep(profile, rank))
    }

    /// Refuses the chosen rank if its recording also has other ranks, because recorded activities
    /// do not say to which rank they belong.
    ///
    /// # Errors
    /// Returns an error if the rank shares its recording with other ranks.
    pub fn refuse_shared(&self, profile: &Profile) -> Result<(), Failure> {
        match self.rank.filter(|rank| profile.shares_recording(*rank)) {
            None => Ok(()),
            Some(rank) => Err(Failure::new(format!(
                "--rank {rank}: its recording is also of other ranks, and events of plugins do not say \
                 which rank they are of"
            ))
            .hint("leave out --rank, or record each rank into its own profile and merge them")),
        }
    }
}

/// Keeps only the processes of `rank` in the opened profile.
///
/// # Errors
/// Fails if the profile has no such rank.
pub fn keep(profile: &mut Profile, rank: u32) -> Result<(), Failure> {
    let known = profile.known_ranks();
    if known.contains(&rank) && profile.keep_rank(rank) {
        return Ok(());
    }
    let failure = Failure::new(format!("--rank {rank}: the profile has no such rank"));
    Err(match known.is_empty() {
        true => failure.hint(ORIGIN),
        false => failure.hint(format!("there are: {}", ranges(&known))),
    })
}

/// Returns the line about ranks above a report. `None` if neither ranks nor the number of ranks of
/// the job are known.
pub fn line(profile: &Profile) -> Option<String> {
    let known = profile.known_ranks();
    let sizes = profile.processes.iter().filter_map(|process| process.job?.size);
    let size = sizes.chain(profile.manifest.world_size).max();
    let hosts: BTreeSet<&str> = profile.members.iter().map(|member| &*member.host).collect();
    let on = match hosts.len() {
        0 | 1 => String::new(),
        n => format!(", on {}", plural(n as u128, "machine")),
    };
    let Some(size) = size else {
        return (!known.is_empty()).then(|| format!("{}{on}", ranges(&known)));
    };
    let missing: BTreeSet<u32> = (0..size).filter(|rank| !known.contains(rank)).collect();
    let of = format!("{} of {size}", ranges(&known));
    Some(match missing.is_empty() {
        true => format!("{of}{on}"),
        false => format!("{of}{on}; not in this profile: {}", ranges(&missing)),
    })
}

fn ranges(ranks: &BTreeSet<u32>) -> String {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match all.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            _ => all.push((*rank, *rank)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    all.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ranks() {
        let text = |ranks: &[u32]| ranges(&ranks.iter().copied().collect());
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[3]), "3");
        assert_eq!(text(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(text(&[u32::MAX, 0]), "0, 4294967295");
    }
}
