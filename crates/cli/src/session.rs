//! `counterpoint session`: makes profiles for a program that itself starts and stops the recording,
//! by calling functions of the table in `include/counterpoint/agent.h`. The Python package calls
//! this command.
//!
//! ```text
//!  session prepare ─► profile, run file, pool ─► agent->session_begin(run file) … session_end()
//!                                                                          └─► session finish
//! ```

mod available;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::Machine;
use profile::collect::{Closing, collect, discard_pool, is_own};
use profile::manifest::{CounterInfo, Manifest, Origin, State};
use record::run_file::RUN_FILE_NAME;
use record::{ClockKind, Snapshot};
use serde::Serialize;

use crate::asker::command_of;
use crate::failure::Failure;
use crate::inherited::prepare_process;
use crate::metrics::before_run;
use crate::object::object;
use crate::plugin_events::convert_and_say;
use crate::prepare::{Choice, Prepared, Recording, make, place, prepare};
use crate::terminal::{Kind, stdout};
use crate::view::open::{explain, in_one_line};

/// Prepare and finish profiles that a program records by itself.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a profile for the process that starts this command, and print as JSON where it is
    Prepare(Box<PrepareArgs>),
    /// Move everything that was recorded into the profile, after the session has ended
    Finish(FinishArgs),
    /// Print the contents of a profile in one line, for `run`
    Summary(SummaryArgs),
    /// Delete the pool of a profile that is deleted next, if the pool belongs to this profile
    Discard(ProfileArgs),
    /// Write manual pages and completions into a folder, for `cargo xtask dist`
    Manuals(ManualsArgs),
}

#[derive(clap::Args)]
struct PrepareArgs {
    #[command(flatten)]
    recording: Recording,
    /// Leave out each counter that does not work on this machine, with a warning, instead of
    /// failing
    #[arg(long)]
    skip_missing: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct FinishArgs {
    /// Profile directory
    #[arg(value_name = "PROFILE", value_parser = crate::input::profile())]
    profile: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct ManualsArgs {
    /// Folder `share`, in which programs have their manuals
    share: PathBuf,
}

#[derive(clap::Args)]
struct SummaryArgs {
    #[command(flatten)]
    profile: ProfileArgs,
    /// The path as the user writes it
    shown: Option<PathBuf>,
    /// A page of the profile is made in any case, so the line does not say how
    #[arg(long)]
    has_page: bool,
}

#[derive(clap::Args)]
struct ProfileArgs {
    /// Profile directory
    #[arg(value_name = "PROFILE", value_parser = crate::input::profile())]
    profile: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One JSON document
    #[default]
    Json,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.what {
        What::Prepare(args) => prepare_main(&args),
        What::Finish(args) => finish(&args),
        What::Summary(args) => summary(&args),
        What::Manuals(args) => crate::completions::manuals(&args.share),
        What::Discard(args) => {
            discard_pool(&args.profile).map_err(|e| explain(&args.profile, e))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn summary(args: &SummaryArgs) -> Result<ExitCode, Failure> {
    let profile = &args.profile.profile;
    convert_and_say(profile);
    let shown = args.shown.as_ref().unwrap_or(profile);
    let mut out = stdout(Kind::People);
    writeln!(out, "{}", in_one_line(profile, shown, args.has_page))?;
    Ok(ExitCode::SUCCESS)
}

fn prepare_main(args: &PrepareArgs) -> Result<ExitCode, Failure> {
    let Format::Json = args.format;
    prepare_process(args.recording.pool_layout())?;
    let asker = std::os::unix::process::parent_id();
    let command = command_of(asker);
    let prepared = match args.skip_missing {
        true => prepare_available(&args.recording, &command)?,
        false => prepare(&args.recording, &[], Origin::Session, &command)?,
    };
    let prepared = prepared.announce(Some(asker))?;
    let told = tell(&prepared);
    if told.is_err() {
        prepared.discard(); // Its path was never printed.
    }
    told
}

/// Like [`prepare`], but leaves out counters that do not work on this machine (`--skip-missing`).
fn prepare_available(recording: &Recording, command: &[String]) -> Result<Prepared, Failure> {
    let machine = Machine::here();
    let resolver = recording.naming.resolver(&machine);
    let chosen = available::counters_of(recording, &resolver, &machine)?;
    let infos: Vec<CounterInfo> = chosen.threads.iter().map(Into::into).collect();
    let metrics = before_run(&recording.metrics, &infos)?;
    let choice = Choice {
        counters: chosen.threads,
        beside: Vec::new(),
        notes: chosen.notes,
        metrics,
        plugins: recording.plugins.resolve(Origin::Session)?,
    };
    make(recording, choice, &machine, &place(recording.output())?, Origin::Session, command)
}

fn tell(prepared: &Prepared) -> Result<ExitCode, Failure> {
    let manifest = Manifest::read(&prepared.directory).map_err(Failure::new)?;
    // `to_string_lossy` replaces no character: these paths were also written to the run file, for
    // which they must be UTF-8.
    let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let out = object! {
        profile: text(&prepared.directory),
        run_file: text(&prepared.directory.join(RUN_FILE_NAME)),
        pool: manifest.pool.as_deref().map(text).unwrap_or_default(),
        counters: manifest
            .counters
            .iter()
            .map(|c| object! { name: &c.name, unit: &c.unit, group: c.group })
            .collect::<Vec<_>>(),
        warnings: &manifest.notes,
    };
    print(&out)
}

fn print(document: &impl Serialize) -> Result<ExitCode, Failure> {
    let mut out = stdout(Kind::Json);
    let text = serde_json::to_string(document).map_err(Failure::new)?;
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Moves those records of a session that are still in memory into the session's profile. The exit
/// status is 1 if a process is still recording into the profile. The data of processes that have
/// ended is collected in any case.
fn finish(args: &FinishArgs) -> Result<ExitCode, Failure> {
    let Format::Json = args.format;
    let dir = &args.profile;
    let mut manifest = Manifest::read(dir).map_err(|e| explain(dir, e))?;
    if manifest.origin != Origin::Session {
        let why = "it was not recorded by a session; use `counterpoint recover` for other profiles";
        return Err(Failure::new(format!("finish {}: {why}", dir.display())));
    }
    if !is_own(dir).map_err(Failure::new)? {
        let why = "it belongs to another user, or is a copy";
        return Err(Failure::new(format!("finish {}: {why}", dir.display())));
    }
    if manifest.state != State::Finished {
        let clock: ClockKind = manifest.clock.into();
        manifest.state = State::Finished;
        manifest.snapshots.push(Snapshot::take(clock).into());
        manifest.write(dir).map_err(Failure::new)?;
    }
    let collected = collect(dir, Closing::WhenOver).map_err(|e| explain(dir, e))?;
    convert_and_say(dir);
    let running: Vec<u32> = collected.live.iter().map(|process| process.pid).collect();
    let still = !running.is_empty();
    let profile = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    print(&object! {
        profile: profile.display().to_string(),
        pages: collected.pages,
        // The ids of the processes that still record into the profile.
        running,
    })?;
    Ok(if still { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
