//! `counterpoint trace export`: a profile as one timeline.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use model::activity::Vocabulary;
use profile::activities::Activities;
use profile::collect::Closing;
use profile::{LossCount, Origin, Profile, merge_losses};
use trace::activities::{write_merged, write_perfetto};
use trace::facts::{Facts, Found};
use trace::{CallsOptions, Sink, chrome, export_calls, export_tracks, facts, perfetto};

use crate::failure::Failure;
use crate::report;
use crate::whole::WholeFile;

/// Write a profile as a timeline: Chrome JSON with Kineto's schema, or Perfetto's format.
///
/// Each workgroup call is a slice of its thread, with its counters; dispatches have rows of their
/// own. docs/traces.md says what each field means.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE")]
    profile: PathBuf,
    /// File to write: NAME.json, NAME.json.gz, or NAME.pftrace for Perfetto.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Names of kinds of activities.
    #[arg(long, value_enum, default_value_t)]
    vocabulary: Words,
    /// Leave counters out as time series; the arguments of calls have them all the same.
    #[arg(long)]
    no_counter_tracks: bool,
    /// Compress the packets of Perfetto's format.
    #[arg(long)]
    compress: bool,
    /// This profile's place among the ranks of a distributed job, from 0.
    #[arg(long, value_name = "N", requires = "world_size")]
    rank: Option<u32>,
    /// How many ranks the job has.
    #[arg(long, value_name = "N", requires = "rank")]
    world_size: Option<u32>,
}

/// `--vocabulary`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Words {
    /// One word per kind, whoever produced it: `runtime`, `memcpy`.
    Generic,
    /// What tools for Kineto's traces look for: `cuda_runtime`, `gpu_memcpy`.
    #[default]
    Kineto,
}

impl From<Words> for Vocabulary {
    fn from(words: Words) -> Self {
        match words {
            Words::Generic => Self::Generic,
            Words::Kineto => Self::Kineto,
        }
    }
}

/// Writes the timeline.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let ending = Ending::of(&args.output)?;
    if let Some((rank, size)) = args.rank.zip(args.world_size).filter(|(rank, n)| rank >= n) {
        return Err(Failure::new(format!("--rank {rank}: not below --world-size {size}")));
    }
    let profile = report::open(&args.profile, Closing::WhenOver)?;
    let name = |e: io::Error| Failure::new(format!("write {}: {e}", args.output.display()));
    if profile.manifest.origin == Origin::Import {
        return write_again(&profile, &args, ending);
    }
    let mut file = WholeFile::create(&args.output).map_err(name)?;
    let out = &mut file;
    let losses = match ending {
        Ending::Json => write_json(out, &profile, &args).map(|(_, losses)| losses),
        Ending::JsonGz => {
            let gz = GzEncoder::new(out, Compression::default());
            let finish = |(gz, losses): (GzEncoder<_>, _)| gz.finish().map(|_| losses);
            write_json(gz, &profile, &args).and_then(finish)
        }
        Ending::Perfetto => write_perfetto_calls(out, &profile, &args),
    };
    let losses = losses.map_err(name)?;
    file.finish().map_err(name)?;
    report::say_losses(&losses);
    Ok(ExitCode::SUCCESS)
}

/// Writes imported traces: one as it was, several with rows of their own.
fn write_again(profile: &Profile, args: &Args, ending: Ending) -> Result<ExitCode, Failure> {
    let mut traces = Activities::open_all(&profile.dir).map_err(Failure::new)?;
    if traces.is_empty() {
        let dir = profile.dir.display();
        return Err(Failure::new(format!("read {dir}: the traces that were imported are gone")));
    }
    // `chrome-10` comes behind `chrome-9`.
    traces.sort_by_key(|trace| (trace.name.len(), trace.name.clone()));
    // Which files these were stands in the command that imported them.
    let files = &profile.manifest.command;
    let files = files.get(files.len().saturating_sub(traces.len())..).unwrap_or_default();
    let names: Vec<String> = match files.len() == traces.len() {
        true => files.to_vec(),
        false => traces.iter().map(|trace| trace.name.clone()).collect(),
    };
    let words = args.vocabulary.into();
    let name = |e: io::Error| Failure::new(format!("write {}: {e}", args.output.display()));
    let mut file = WholeFile::create(&args.output).map_err(name)?;
    let out = &mut file;
    let losses = match ending {
        Ending::Json => write_json_again(out, &traces, &names, args).map(|(_, losses)| losses),
        Ending::JsonGz => {
            let gz = GzEncoder::new(out, Compression::default());
            let finish = |(gz, losses): (GzEncoder<_>, _)| gz.finish().map(|_| losses);
            write_json_again(gz, &traces, &names, args).and_then(finish)
        }
        Ending::Perfetto => {
            let done = write_perfetto(&traces, &names, words, out, args.compress).map_err(name)?;
            match done.left_out {
                0 => {}
                1 => eprintln!("counterpoint: 1 event has no form that Perfetto knows; left out"),
                n => {
                    eprintln!("counterpoint: {n} events have no form that Perfetto knows; left out")
                }
            }
            if done.shift_ns > 0 {
                eprintln!(
                    "counterpoint: all times are {} ns later than in the trace: it begins before 1970, \
                     and Perfetto's format has no such times",
                    done.shift_ns
                );
            }
            Ok(done.losses)
        }
    };
    let losses = losses.map_err(name)?;
    file.finish().map_err(name)?;
    report::say_losses(&merge_losses(profile.all_losses().iter().chain(&losses)));
    Ok(ExitCode::SUCCESS)
}

fn write_json_again<W: Write>(
    out: W,
    traces: &[Activities],
    names: &[String],
    args: &Args,
) -> io::Result<(W, Vec<LossCount>)> {
    let words = args.vocabulary.into();
    match traces {
        [trace] => trace::activities::write_again(trace, words, out),
        all => write_merged(all, names, words, out, &args.output.to_string_lossy()),
    }
}

/// What a file's name says about its format.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Json,
    JsonGz,
    Perfetto,
}

impl Ending {
    fn of(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        match name {
            n if n.ends_with(".json") => Ok(Self::Json),
            n if n.ends_with(".json.gz") => Ok(Self::JsonGz),
            n if n.ends_with(".pftrace") => Ok(Self::Perfetto),
            _ => Err(Failure::new(format!("write {}: unknown ending", path.display()))
                .hint("end its name with .json, .json.gz or .pftrace")),
        }
    }
}

/// Gives `sink` the timeline; returns the losses that were found on the way.
fn fill(sink: &mut (impl Sink + Send), profile: &Profile, args: &Args) -> io::Result<Found> {
    let options = CallsOptions {
        vocabulary: args.vocabulary.into(),
        counter_tracks: !args.no_counter_tracks,
    };
    let calls = export_calls(profile, &options, sink)?;
    Ok(Found { calls, tracks: export_tracks(profile, options.vocabulary, sink)? })
}

/// Every loss of the profile.
fn losses(profile: &Profile, found: &Found) -> Vec<LossCount> {
    let known = profile.all_losses();
    merge_losses(known.iter().chain(found.calls.iter().flatten()).chain(&found.tracks))
}

fn write_json<W: Write + Send>(
    out: W,
    profile: &Profile,
    args: &Args,
) -> io::Result<(W, Vec<LossCount>)> {
    let manifest = &profile.manifest;
    let device = serde_json::json!({
        "id": 0,
        "name": manifest.cpu_model,
        "type": "cpu",
        "logical_cpus": manifest.logical_cpus,
    });
    let facts = facts::of_profile(profile);
    let head = chrome::write::Head {
        near_ns: i64::try_from(manifest.created_unix_ns).unwrap_or(i64::MAX),
        host_name: &manifest.host,
        devices: &[device],
        rank: args.rank.zip(args.world_size),
        facts: Some(&facts),
    };
    let mut writer = chrome::write::Writer::new(out, &head)?;
    let found = fill(&mut writer, profile, args)?;
    let end = facts::end(profile, &found);
    let out = writer.finish("counterpoint_end", &end, &args.output.to_string_lossy())?;
    Ok((out, losses(profile, &found)))
}

fn write_perfetto_calls(
    out: impl Write + Send,
    profile: &Profile,
    args: &Args,
) -> io::Result<Vec<LossCount>> {
    let clocks = profile.snapshots.iter().map(|s| (s.realtime_ns, s.monotonic_ns)).collect();
    let head = perfetto::write::Head { clocks, compress: args.compress };
    let mut writer = perfetto::write::Writer::new(out, &head)?;
    let found = fill(&mut writer, profile, args)?;
    // Nothing comes behind it there.
    let facts = Facts { losses: facts::end(profile, &found).losses, ..facts::of_profile(profile) };
    writer.finish([("counterpoint", &serde_json::to_value(facts)?)])?;
    Ok(losses(profile, &found))
}
