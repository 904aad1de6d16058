//! `export --dataset`: adds the ranks of a profile to a dataset.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::dataset::{Exported, Options, export};
use profile::merged::MERGED_NAME;
use profile::{Manifest, Origin, Profile, is_over};

use super::Args;
use crate::failure::Failure;
use crate::plugin_events::show;
use crate::terminal::{Kind, progress, stdout};
use crate::view::open::{explain, open};
use crate::view::ranks::ORIGIN;
use crate::view::rights::Needs;

/// Options of a dataset.
#[derive(clap::Args)]
pub struct DatasetArgs {
    /// Add the profile to this dataset, which is a directory of Parquet files for query engines. It is
    /// made if it does not exist. docs/datasets.md describes it.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["format", "what", "output", "filter", "clock", "metric", "metrics_file"])]
    pub dataset: Option<PathBuf>,
    /// With --dataset: the name of the run that the ranks are of. The default is the label `run` of the recording,
    /// what its launcher called the job, or else the id of the recording.
    #[arg(long, value_name = "NAME", requires = "dataset")]
    pub run: Option<String>,
    /// With --dataset: also write each call as a row.
    #[arg(long, requires = "dataset")]
    pub calls: bool,
    /// With --dataset: leave out names of ops, libraries, programs and machines. Numbers and names of
    /// counters stay.
    #[arg(long, requires = "dataset")]
    pub redact: bool,
    /// For `run --dataset`: the program still runs, also if its end can be seen at this moment. The last line
    /// is then the size of all files of calls.
    #[arg(long, hide = true, requires = "dataset")]
    pub goes_on: bool,
}

pub fn main(args: &Args, dir: &Path) -> Result<ExitCode, Failure> {
    let is_new = !dir.exists();
    fs::create_dir_all(dir)
        .map_err(|e| Failure::new(format!("make directory {}: {e}", dir.display())))?;
    let done = add(args, dir);
    if done.is_err() && is_new {
        // This removes the directory only if it is empty.
        let _ = fs::remove_dir(dir);
    }
    done
}

fn add(args: &Args, dir: &Path) -> Result<ExitCode, Failure> {
    let mut first = open(&args.profile, &Needs { made: Some(dir), ..Needs::default() })?;
    if args.dataset.goes_on || goes_on(&first) {
        first.calibrate_now();
    }
    let given = args.ranks.given();
    let known = first.known_ranks();
    // If the profile has no ranks, the option `--rank` or the label `rank` names its rank. The
    // manifest of a profile can state a rank even if no process was recorded.
    let is_of =
        |rank: &&u32| first.processes.is_empty() && given.is_none_or(|given| given == **rank);
    let of_nothing = known.iter().find(is_of).copied();
    let ranks: Vec<(u32, Option<Profile>)> = match known.is_empty() {
        _ if of_nothing.is_some() => of_nothing.map(|rank| (rank, None)).into_iter().collect(),
        true => {
            let rank = given.or_else(|| label(&first, "rank")?.parse().ok());
            let rank = rank.ok_or_else(|| {
                let path = args.profile.display();
                Failure::new(format!("{path}: it is not known which rank it is of"))
                    .hint(format!("say it with --rank N; {ORIGIN}"))
            })?;
            vec![(rank, None)]
        }
        false => {
            let mut all = Vec::new();
            for rank in known.iter().filter(|rank| given.is_none_or(|given| given == **rank)) {
                let again =
                    Profile::open_at(first.root()).map_err(|e| explain(&args.profile, e))?;
                let mut one = show(again);
                one.timeline = first.timeline;
                crate::view::ranks::keep(&mut one, *rank)?;
                all.push((*rank, Some(one)));
            }
            if let (Some(rank), true) = (given, all.is_empty()) {
                let mut none = first;
                crate::view::ranks::keep(&mut none, rank)?;
                return Ok(ExitCode::from(1));
            }
            all
        }
    };
    let mut out = stdout(Kind::People);
    let mut bytes = 0;
    let adding = progress::step_of("adding to the dataset", ranks.len() as u64, "ranks");
    for (rank, of_rank) in &ranks {
        let one = of_rank.as_ref().unwrap_or(&first);
        let unfinished = args.dataset.goes_on || goes_on(one);
        let part = part_of(one);
        let run = args.dataset.run.clone().or_else(|| label(one, "run")).or_else(|| job_name(one));
        let size = one.processes.iter().filter_map(|process| process.job?.size).max();
        let options = Options {
            run: run.unwrap_or_else(|| part.clone()),
            rank: *rank,
            part,
            world_size: size.or(one.manifest.world_size),
            calls: args.dataset.calls,
            redacted: args.dataset.redact,
            unfinished,
        };
        let done = export(one, dir, &options).map_err(Failure::new)?;
        let done = match done {
            Exported::New { bytes_of_calls } => {
                bytes += bytes_of_calls;
                if unfinished { "added as far as it has come" } else { "added" }
            }
            Exported::AlreadyThere => "is already there",
        };
        adding.done(1);
        let run = crate::terminal::visible(&options.run).into_owned();
        writeln!(out, "{}: rank {rank} of run {run} {done}", dir.display())?;
    }
    if args.dataset.goes_on {
        // `counterpoint run` reads this number to estimate how large the next export's files of
        // calls will be.
        writeln!(out, "{bytes}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the recording is still going on, as far as this process can find out.
fn goes_on(profile: &Profile) -> bool {
    // Nothing marks the end of a recording that `counterpoint env` prepared, so such a recording
    // goes on only while one of its processes is alive.
    let is_watched = profile.manifest.origin != Origin::Env;
    let is_alive = profile.processes.iter().any(|process| process.alive);
    is_alive || (is_watched && !is_over(&profile.manifest))
}

/// Returns the job's name, which the launcher (such as Slurm) chose and the recorder stored in the
/// profile. This command's environment is not used, because a recording that is added from two
/// different jobs would then have two names in the dataset.
fn job_name(profile: &Profile) -> Option<String> {
    let mut of_processes = profile.processes.iter().filter_map(|process| process.job_name.clone());
    of_processes.next().or_else(|| profile.manifest.job_name.clone())
}

fn label(profile: &Profile, name: &str) -> Option<String> {
    profile.manifest.labels.get(name).cloned().or_else(|| {
        // In a merged profile, each of the profiles in it has its own labels.
        member_manifest(profile)?.labels.get(name).cloned()
    })
}

/// Returns the manifest of the original profile that the first process of a merged profile comes
/// from. Returns `None` if the profile is not merged or the manifest cannot be read.
fn member_manifest(profile: &Profile) -> Option<Manifest> {
    let member = profile.processes.first()?.member;
    profile.members.get(member)?;
    let all = profile.root().dir(MERGED_NAME).ok()?;
    Manifest::read_in(&all.dir((member + 1).to_string()).ok()?).ok()
}

/// Returns the id of the profile or, if the profile is merged, of the original profile that its
/// first process comes from.
fn part_of(profile: &Profile) -> String {
    let id = member_manifest(profile).map(|manifest| manifest.id);
    let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| profile.manifest.id.clone());
    match id.is_empty() {
        // Profiles of earlier versions have no id.
        true => format!("created-{}", profile.manifest.created_unix_ns),
        false => id,
    }
}
