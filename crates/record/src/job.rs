//! Reads the place of a process in a distributed job, and the name of the job, from the variables
//! that launchers set.

use crate::wire::{Decoder, Encoder, Truncated, Wire};

/// The place of a process in a distributed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job {
    /// The rank of the process in the job, from 0.
    pub rank: u32,
    /// The number of ranks, which is above `rank`; `None` if the launcher does not give it.
    pub size: Option<u32>,
}

/// The variable that the option `--rank` sets.
pub const RANK_VARIABLE: &str = "COUNTERPOINT_RANK";
/// The variable that the option `--world-size` sets.
pub const WORLD_SIZE_VARIABLE: &str = "COUNTERPOINT_WORLD_SIZE";

/// The variables for the rank and for the number of ranks. The flag says whether the first variable
/// is used only if the second is also set. The first usable pair counts. What a person gave comes
/// first. The inner of two launchers comes before the outer one, because `mpirun` may start one
/// `torchrun` per machine.
const LAUNCHERS: [(&str, &str, bool); 6] = [
    (RANK_VARIABLE, WORLD_SIZE_VARIABLE, false),
    // torchrun and its imitators. `RANK` alone may have any meaning.
    ("RANK", "WORLD_SIZE", true),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", false),
    // MPICH and Intel MPI.
    ("PMI_RANK", "PMI_SIZE", false),
    // srun.
    ("SLURM_PROCID", "SLURM_NTASKS", false),
];

/// The variables with the name or number of a job. The first usable value is taken.
const NAMES: [&str; 4] =
    ["COUNTERPOINT_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE"];
/// torchrun's name for a job without a name. It would make all such jobs look like one job.
const UNNAMED: &str = "none";
/// The maximum length of a job's name in bytes. A longer name counts as not set.
pub const LONGEST_JOB_NAME: usize = 400;

/// Returns the job's name or number, the same for all ranks, if a launcher or a person gave one.
/// `variable` returns the value of an environment variable. Invalid UTF-8 is replaced.
pub fn job_name<B: AsRef<[u8]>>(variable: impl Fn(&str) -> Option<B>) -> Option<String> {
    let named = |name: &&str| {
        let value = variable(name)?;
        Some(String::from_utf8_lossy(value.as_ref()).into_owned())
    };
    let is_name = |name: &String| !name.is_empty() && name != UNNAMED && fits(name);
    NAMES.iter().filter_map(named).find(is_name)
}

/// Returns whether a name of a job is short enough to be used.
pub fn fits(name: &str) -> bool {
    name.len() <= LONGEST_JOB_NAME
}

/// Returns a function that finds variables in `bytes`, which have the form of `/proc/PID/environ`:
/// each `NAME=VALUE` is followed by a zero byte.
pub fn variables_in<'a>(bytes: &'a [u8]) -> impl Fn(&str) -> Option<&'a [u8]> {
    move |name| {
        let mut variables = bytes.split(|b| *b == 0);
        variables.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}

impl Job {
    /// Reads a process's place in its job from the process's environment variables, whose values
    /// `variable` returns. A value that is not a number counts as not set, and so does a rank that
    /// is not below the number of ranks.
    pub fn of<B: AsRef<[u8]>>(variable: impl Fn(&str) -> Option<B>) -> Option<Self> {
        let number = |name: &str| -> Option<u32> {
            std::str::from_utf8(variable(name)?.as_ref()).ok()?.trim().parse().ok()
        };
        LAUNCHERS.iter().find_map(|(rank, size, together)| {
            let (rank, size) = (number(rank)?, number(size));
            let is_possible = size.map_or(!together, |size| rank < size);
            is_possible.then_some(Self { rank, size })
        })
    }
}

impl Wire for Job {
    /// An unknown number of ranks is stored as 0. A reader takes any number that is not above the
    /// rank as unknown.
    fn put(&self, e: &mut Encoder) {
        e.u32(self.rank).u32(self.size.unwrap_or(0));
    }
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        let (rank, size) = (d.u32()?, d.u32()?);
        Ok(Self { rank, size: Some(size).filter(|size| *size > rank) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(environment: &str) -> Option<(u32, Option<u32>)> {
        let environment = environment.replace(' ', "\0");
        Job::of(variables_in(environment.as_bytes())).map(|j| (j.rank, j.size))
    }

    fn name(environment: &str) -> Option<String> {
        job_name(variables_in(environment.replace(' ', "\0").as_bytes()))
    }

    #[test]
    fn names_of_jobs() {
        assert_eq!(name("A=b SLURM_JOB_ID=77").as_deref(), Some("77"));
        assert_eq!(name("PMIX_NAMESPACE=p SLURM_JOB_ID=77").as_deref(), Some("77"));
        let all = "PMIX_NAMESPACE=p SLURM_JOB_ID=77 TORCHELASTIC_RUN_ID=t";
        assert_eq!(name(all).as_deref(), Some("t"));
        assert_eq!(name(&format!("{all} COUNTERPOINT_RUN=mine")).as_deref(), Some("mine"));
        assert_eq!(name("TORCHELASTIC_RUN_ID=none SLURM_JOB_ID=77").as_deref(), Some("77"));
        assert_eq!(name("TORCHELASTIC_RUN_ID=none"), None);
        assert_eq!(name("SLURM_JOB_ID="), None);
        assert_eq!(name(&format!("SLURM_JOB_ID={}", "7".repeat(401))), None);
    }

    #[test]
    fn launchers() {
        assert_eq!(job("A=b RANK=3 WORLD_SIZE=8"), Some((3, Some(8))), "torchrun");
        assert_eq!(job("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1"), Some((1, Some(4))));
        assert_eq!(job("PMI_RANK=0 PMI_SIZE=2"), Some((0, Some(2))));
        assert_eq!(job("SLURM_PROCID=5 SLURM_NTASKS=6"), Some((5, Some(6))), "srun");
        assert_eq!(job("SLURM_PROCID=5"), Some((5, None)));
        assert_eq!(job(""), None);
        assert_eq!(job("PATH=/bin"), None);
    }

    #[test]
    fn what_a_person_said_comes_first_and_then_the_inner_launcher() {
        let nested = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 RANK=3 WORLD_SIZE=8";
        assert_eq!(job(nested), Some((3, Some(8))));
        assert_eq!(job(&format!("{nested} COUNTERPOINT_RANK=7")), Some((7, None)));
    }

    #[test]
    fn what_cannot_be_a_rank_is_none() {
        assert_eq!(job("RANK=3"), None, "another program's variable");
        assert_eq!(job("RANK=a WORLD_SIZE=2"), None);
        assert_eq!(job("RANK=-1 WORLD_SIZE=2"), None);
        assert_eq!(job("RANK=8 WORLD_SIZE=8"), None, "not below the number of ranks");
        assert_eq!(job("RANK=8 WORLD_SIZE=8 SLURM_PROCID=1"), Some((1, None)));
        assert_eq!(job("RANKS=1 WORLD_SIZE=8"), None);
    }
}
