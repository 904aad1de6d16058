//! `counterpoint recover`: moves the records that a crash left in the pool (shared memory) into the
//! profile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use profile::collect::{Closing, Collected, PoolFate, collect};
use profile::safe_dir::Dir;
use profile::{Manifest, Origin, ProcessId, pools};

use crate::failure::Failure;
use crate::input;
use crate::plugin_events::convert_and_say;
use crate::terminal::{note, progress};
use crate::view::open;
use crate::view::rights::{Change, Needs, confine};
use crate::view::units::plural;

/// Recover data left behind by programs that crashed.
///
/// Until a program ends, the last calls that it recorded are in shared memory. If the program and
/// `counterpoint run` were both killed, this command moves these calls into the profile, which is
/// then complete and can be moved. `report` and the other views show these calls before that, too,
/// and leave them where they are. The command can be interrupted and repeated. The exit code is 1
/// if part of the recording is still running, or if its memory is gone.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Instead of recovering a profile, free the memory of recordings whose profile is gone, even
    /// if the profile may only have been moved: it then loses the calls that were not recovered.
    /// Also frees pools of other versions of Counterpoint. Every `recover` and `run` frees damaged
    /// pools, and the memory of profiles that were certainly deleted
    #[arg(long, conflicts_with_all = ["profile", "close"])]
    orphans: bool,
    /// End a recording that `counterpoint env` prepared, so that no further program can
    /// join it. All programs of the recording must have ended.
    #[arg(long)]
    close: bool,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let dir = &args.profile;
    let root = if args.orphans { None } else { Some(Dir::open(dir)) };
    // A pool contains the path of its profile, which can be anywhere. So the confined process must
    // be able to read any path.
    let reads = vec![Path::new("/")];
    let change = Change::Inside;
    let pools = pools::own_directories();
    let opened = root.as_ref().and_then(|root| root.as_ref().ok());
    confine(opened, &Needs { reads, change, pools, ..Needs::default() });
    let left = crate::orphans::remove(args.orphans);
    let Some(root) = root else { return Ok(ExitCode::from(u8::from(left > 0))) };
    // The error from reading the manifest describes better what is at this path.
    let root = root.map_err(|e| open::explain(dir, Manifest::read(dir).err().unwrap_or(e)))?;
    let pools = pools::named_directories(&root).map_err(|e| open::explain(dir, e))?;
    confine(Some(&root), &Needs { change, pools, ..Needs::default() });
    let manifest = Manifest::read_in(&root).map_err(|e| open::explain(dir, e))?;
    // A recording of `run` is over when its program ends. Only a recording that `env` prepared may
    // be closed on request: a program of `run` that has not recorded yet still needs the pool.
    let closing = match args.close && manifest.origin == Origin::Env {
        true => Closing::Now,
        false => Closing::WhenOver,
    };
    progress::phase(progress::step(format!("recovering {}", dir.display())));
    let collected = collect(dir, closing).map_err(|e| open::explain(dir, e))?;
    convert_and_say(dir);
    let (code, done) = outcome(&manifest, &collected);
    note!("{}: {done}; {}", dir.display(), open::in_one_line(dir, dir, false));
    Ok(ExitCode::from(code))
}

fn outcome(manifest: &Manifest, collected: &Collected) -> (u8, String) {
    let pages = format!("{} recovered", plural(collected.pages as u128, "page"));
    match &collected.pool {
        PoolFate::AlreadyCollected => (0, "nothing to recover".to_owned()),
        PoolFate::Removed => (0, format!("{pages}, and the recording is over")),
        PoolFate::Refused(pool, why) => {
            (1, format!("nothing was recovered, because {} was left alone: {why}", pool.display()))
        }
        PoolFate::Vanished(pool) => {
            (1, format!("nothing to recover, because {} is gone", pool.display()))
        }
        PoolFate::Kept => {
            let watched = manifest.watch.iter().copied().filter(|process| process.is_alive());
            let mut running: Vec<ProcessId> = collected.live.clone();
            running.extend(watched.filter(|process| !collected.live.contains(process)));
            if running.is_empty() {
                let open = "the recording is open for further programs (--close ends it)";
                return (0, format!("{pages}; {open}"));
            }
            let pids: Vec<String> = running.iter().map(|process| process.pid.to_string()).collect();
            let who = if pids.len() == 1 { "process" } else { "processes" };
            (1, format!("{pages}, still recording: {who} {}", pids.join(", ")))
        }
    }
}
