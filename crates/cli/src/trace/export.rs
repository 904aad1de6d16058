//! `counterpoint trace export`: writes a profile as one timeline.

mod ranks;

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use model::activity::Vocabulary;
use profile::activities::Activities;
use profile::launches::Launches;
use profile::{LossCount, Origin, Profile, merge_losses};
use trace::export::activities::{
    Options, Timeline, Written, export_recorded, write_merged, write_perfetto,
};
use trace::export::calls::{CallsOptions, export_calls};
use trace::export::facts::{self, Found};
use trace::export::filter::{Ends, Filter, First, LeftOut, Noted, Part, Wish};
use trace::export::tracks::export_tracks;
use trace::timeline::TimelineSink;
use trace::{chrome, perfetto};

use super::loops;
use crate::failure::Failure;
use crate::input;
use crate::output::time;
use crate::terminal::{Kind, note, progress, say};
use crate::view::losses;
use crate::view::open::open;
use crate::view::rights::Needs;
use crate::view::units::plural;
use crate::whole::WholeFile;

/// Write a profile as a timeline: Chrome JSON with Kineto's schema, or Perfetto's format.
///
/// Each workgroup call is a slice on its thread, with its counters. Dispatches have rows of their
/// own. docs/traces.md says what each field means.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// File to write: NAME.json, NAME.json.gz, or NAME.pftrace for Perfetto. `-` is standard
    /// output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the file, whatever its name. The default for standard output is json.
    #[arg(long, value_enum)]
    format: Option<Ending>,
    /// Names to use for the kinds of activities. By default a recording gets Kineto's names, and an
    /// imported trace keeps its own.
    #[arg(long, value_enum)]
    vocabulary: Option<Words>,
    /// Do not write counters as time series. The arguments of calls still have them.
    #[arg(long)]
    no_counter_tracks: bool,
    /// Slices have no arguments. The page draws none.
    #[arg(skip)]
    no_arguments: bool,
    /// Write only activities of this category. Use the name that the category has in the output file, which
    /// depends on --vocabulary. `*` matches any text, `?` any character. Repeatable.
    #[arg(long, value_name = "GLOB")]
    category: Vec<String>,
    /// Write only what ends after this time, counted from the beginning of the trace: 1.5s,
    /// 20ms, 300us, 10ns.
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<u64>,
    /// Write only what begins before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<u64>,
    /// Compress the packets (Perfetto's format only).
    #[arg(long)]
    compress: bool,
    /// Of a profile of several ranks, write only this one. Of a profile in which no rank was recorded: its
    /// rank in a distributed job, from 0.
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Number of ranks in the job, if it was not recorded.
    #[arg(long, value_name = "N", requires = "rank")]
    world_size: Option<u32>,
}

/// `--vocabulary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Words {
    /// One word per kind, whichever program produced it: `runtime`, `memcpy`.
    Generic,
    /// The names that tools for Kineto's traces look for: `cuda_runtime`, `gpu_memcpy`.
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

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let ending = Ending::of(args.format, &args.output)?;
    if let Some((rank, size)) = args.rank.zip(args.world_size).filter(|(rank, n)| rank >= n) {
        return Err(Failure::new(format!("--rank {rank}: must be below --world-size {size}")));
    }
    if let Some((from, to)) = args.from.zip(args.to).filter(|(from, to)| from >= to) {
        return Err(Failure::new(format!("--from {from} ns: must be before --to {to} ns")));
    }
    let mut profile = open(&args.profile, &Needs::default().output(&args.output))?;
    ranks::choose(&mut profile, &args)?;
    let name = |e: io::Error| Failure::writing(&args.output, e);
    if profile.manifest.origin == Origin::Import {
        return write_again(&profile, &args, ending);
    }
    let part = Selection::of(&profile, &args).map_err(Failure::new)?;
    let mut file = WholeFile::create(&args.output, ending.kind()).map_err(name)?;
    let writing = progress::writing(&args.output);
    let out = &mut file;
    let done = match ending {
        Ending::Json => {
            write_json(out, &profile, &args, part.as_ref()).map(|done| (done.losses, done.left_out))
        }
        Ending::JsonGz => {
            let gz = GzEncoder::new(out, Compression::default());
            let done = write_json(gz, &profile, &args, part.as_ref());
            done.and_then(|done| done.out.finish().map(|_| (done.losses, done.left_out)))
        }
        Ending::Perfetto => write_perfetto_calls(out, &profile, &args, part.as_ref()),
    };
    let (losses, left_out) = done.map_err(name)?;
    file.finish().map_err(name)?;
    drop(writing);
    say_left_out(&args, left_out);
    loops::say_left_out(&profile).map_err(Failure::new)?;
    losses::say(&losses);
    Ok(ExitCode::SUCCESS)
}

/// Writes imported traces as timelines again. A single trace is written as it was, except for what
/// the options select or rename, and what the output format cannot express. Several traces are
/// merged into one timeline, and each keeps its own rows.
fn write_again(profile: &Profile, args: &Args, ending: Ending) -> Result<ExitCode, Failure> {
    let traces = profile.activities().map_err(Failure::new)?;
    if traces.is_empty() {
        let dir = profile.dir.display();
        return Err(Failure::new(format!("read {dir}: the imported traces are gone")));
    }
    let traces = in_order(traces);
    // The command of an imported profile is that of `trace import`, which ends with the names of
    // the files.
    let files = &profile.manifest.command;
    let files = files.get(files.len().saturating_sub(traces.len())..).unwrap_or_default();
    let names: Vec<String> = match files.len() == traces.len() {
        true => files.to_vec(),
        false => traces.iter().map(|trace| trace.name.clone()).collect(),
    };
    let options = Options { vocabulary: args.vocabulary.map(Vocabulary::from), wish: args.wish() };
    let name = |e: io::Error| Failure::writing(&args.output, e);
    let mut file = WholeFile::create(&args.output, ending.kind()).map_err(name)?;
    let writing = progress::writing(&args.output);
    let out = &mut file;
    let losses = match ending {
        Ending::Json => write_json_again(out, &traces, &names, args, &options)
            .map(|done| (done.losses, done.left_out)),
        Ending::JsonGz => {
            let gz = GzEncoder::new(out, Compression::default());
            let done = write_json_again(gz, &traces, &names, args, &options);
            done.and_then(|done| done.out.finish().map(|_| (done.losses, done.left_out)))
        }
        Ending::Perfetto => {
            let done = write_perfetto(&traces, &names, &options, out, args.compress);
            let done = done.map_err(name)?;
            say_changes(&done);
            Ok((done.losses, done.filtered))
        }
    };
    let (losses, left_out) = losses.map_err(name)?;
    file.finish().map_err(name)?;
    drop(writing);
    say_left_out(args, left_out);
    losses::say(&merge_losses(profile.all_losses().iter().chain(&losses)));
    Ok(ExitCode::SUCCESS)
}

/// Sorts the traces in the order of their import: `chrome-10` comes after `chrome-9`.
pub fn in_order(mut traces: Vec<Activities>) -> Vec<Activities> {
    traces.sort_by_key(|trace| (trace.name.len(), trace.name.clone()));
    traces
}

pub fn say_changes<W>(done: &Timeline<W>) {
    match done.left_out {
        0 => {}
        1 => say!("1 event was left out, because Perfetto's format has no such event"),
        n => say!("{n} events were left out, because Perfetto's format has no such events"),
    }
    if done.shift_ns > 0 {
        say!(
            "all times are {} ns later than in the trace, because it begins before \
             1970 and Perfetto's format has no such times",
            done.shift_ns
        );
    }
}

fn write_json_again<W: Write>(
    out: W,
    traces: &[Activities],
    names: &[String],
    args: &Args,
    options: &Options,
) -> io::Result<Written<W>> {
    match traces {
        [trace] => trace::export::activities::write_again(trace, options, out),
        all => write_merged(all, names, options, out, &args.output.to_string_lossy()),
    }
}

/// Formats of timelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ending {
    /// Chrome's JSON.
    Json,
    /// Chrome's JSON, compressed.
    #[value(name = "json.gz")]
    JsonGz,
    /// Perfetto's format.
    #[value(name = "pftrace")]
    Perfetto,
}

impl Ending {
    /// Returns the format that the user asked for, or else the one that belongs to the file's name
    /// (JSON for standard output).
    ///
    /// # Errors
    /// Returns an error if the user asked for no format and the name has none of the known
    /// extensions.
    pub fn of(asked: Option<Self>, path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        match (asked, name) {
            (Some(asked), _) => Ok(asked),
            (None, n) if n.ends_with(".json") || path.as_os_str() == "-" => Ok(Self::Json),
            (None, n) if n.ends_with(".json.gz") => Ok(Self::JsonGz),
            (None, n) if n.ends_with(".pftrace") => Ok(Self::Perfetto),
            _ => Err(Failure::new(format!("write {}: unknown ending", path.display())).hint(
                "end its name with .json, .json.gz or .pftrace, or choose one with --format",
            )),
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Self::Json => Kind::Json,
            Self::JsonGz | Self::Perfetto => Kind::Binary,
        }
    }
}

impl Args {
    fn of(profile: &Path) -> Self {
        Self {
            profile: profile.to_owned(),
            output: PathBuf::new(),
            format: None,
            vocabulary: None,
            no_counter_tracks: false,
            no_arguments: false,
            category: Vec::new(),
            from: None,
            to: None,
            compress: false,
            rank: None,
            world_size: None,
        }
    }

    fn wish(&self) -> Wish {
        Wish { categories: self.category.clone(), from_ns: self.from, to_ns: self.to }
    }
}

/// The part of a timeline that `--category`, `--from` and `--to` select.
struct Selection {
    filter: Filter,
    /// The ids of the arrows of which both ends are written.
    arrows: HashSet<u64>,
}

impl Selection {
    /// Returns what the options select; `None` if everything is written.
    fn of(profile: &Profile, args: &Args) -> io::Result<Option<Self>> {
        let wish = args.wish();
        if wish.is_all() {
            return Ok(None);
        }
        let mut first = First::default();
        if wish.from_ns.is_some() || wish.to_ns.is_some() {
            fill_all(&mut first, profile, args)?;
        }
        let filter = wish.since(first.at_ns.unwrap_or(0));
        let mut ends = Ends::new(&filter);
        fill_all(&mut ends, profile, args)?;
        let arrows = ends.whole();
        Ok(Some(Self { filter, arrows }))
    }
}

fn say_left_out(args: &Args, left_out: LeftOut) {
    if args.wish().is_all() {
        return;
    }
    let LeftOut { slices, points, arrow_ends } = left_out;
    note!(
        "left out, because of --category, --from or --to: {}, {}, {}",
        plural(slices.into(), "slice"),
        plural(points.into(), "value") + " of counters",
        plural(arrow_ends.into(), "end") + " of arrows",
    );
}

/// Writes the selected part of the timeline, or the whole timeline if `part` is `None`. Returns the
/// losses that were found while reading, and how much was left out.
fn fill(
    sink: &mut (impl TimelineSink + Send),
    profile: &Profile,
    args: &Args,
    part: Option<&Selection>,
) -> io::Result<(Found, LeftOut)> {
    let Some(Selection { filter, arrows }) = part else {
        return Ok((fill_all(sink, profile, args)?, LeftOut::default()));
    };
    let mut part = Part::new(sink, filter, arrows.clone());
    let found = fill_all(&mut part, profile, args)?;
    Ok((found, part.finish()?))
}

/// Writes the whole timeline, but calls have no arguments, counters or arrows.
pub fn everything(sink: &mut (impl TimelineSink + Send), profile: &Profile) -> io::Result<()> {
    let args = Args { no_counter_tracks: true, no_arguments: true, ..Args::of(&profile.dir) };
    fill_all(sink, profile, &args).map(drop)
}

fn fill_all(
    sink: &mut (impl TimelineSink + Send),
    profile: &Profile,
    args: &Args,
) -> io::Result<Found> {
    match profile.members.is_empty() {
        true => fill_one(sink, profile, args),
        false => ranks::fill_members(sink, profile, args),
    }
}

/// Writes the timeline of one profile, which must not be a merged one.
fn fill_one(
    sink: &mut (impl TimelineSink + Send),
    profile: &Profile,
    args: &Args,
) -> io::Result<Found> {
    let options = CallsOptions {
        vocabulary: args.vocabulary.map_or(Vocabulary::Kineto, Vocabulary::from),
        counter_tracks: !args.no_counter_tracks,
        arguments: !args.no_arguments,
    };
    let traces = match profile.manifest.origin {
        // The slices of an imported trace are calls of the profile, so they are written with the
        // calls below.
        Origin::Import => Vec::new(),
        _ => in_order(profile.activities().map_err(io::Error::other)?),
    };
    let launches = Launches::read(profile, &traces).map_err(io::Error::other)?;
    let calls = export_calls(profile, &options, &launches, sink)?;
    loops::fill(profile, sink)?;
    let mut of_plugins = Vec::new();
    for trace in traces {
        let words = args.vocabulary.map(Vocabulary::from);
        of_plugins.extend(export_recorded(&trace, words, &launches, sink)?);
    }
    let calls = calls.into_iter().chain([of_plugins]).collect();
    Ok(Found { calls, tracks: export_tracks(profile, options.vocabulary, sink)? })
}

fn losses(profile: &Profile, found: &Found) -> Vec<LossCount> {
    let known = profile.all_losses();
    merge_losses(known.iter().chain(found.calls.iter().flatten()).chain(&found.tracks))
}

/// Returns the description of the profile that the output contains under the key `counterpoint`.
fn facts(
    profile: &Profile,
    args: &Args,
    part: Option<&Selection>,
    found: &Found,
) -> io::Result<serde_json::Value> {
    let mut facts = match profile.members.is_empty() {
        true => facts::of_profile(profile, &ranks::known(profile, args), found),
        false => {
            let filter = part.map(|part| &part.filter);
            let mut facts = filter.unwrap_or(&Filter::default()).facts();
            facts["members"] = ranks::facts(profile);
            if !profile.manifest.plugins.is_empty() {
                facts["plugins"] = serde_json::json!(profile.manifest.plugins);
            }
            facts
        }
    };
    if let Some(part) = part {
        facts["filter"] = serde_json::to_value(&part.filter)?;
    }
    let kinds = trace::export::kinds::listed(profile);
    if !kinds.is_empty() {
        facts["kinds"] = kinds.into();
    }
    Ok(facts)
}

/// Returns the base of the times in an exported `.json`, in ns since 1970. `None` for an imported
/// profile, unless it has exactly one trace.
pub fn json_base_ns(profile: &Profile) -> io::Result<Option<i64>> {
    if profile.manifest.origin != Origin::Import {
        return Ok(Some(chrome::write::base_time_ns(near_ns(profile))));
    }
    // A single imported trace keeps its own base.
    let traces = profile.activities().map_err(io::Error::other)?;
    let [trace] = traces.as_slice() else { return Ok(None) };
    Ok(Some(chrome::write::base_of(trace.document.get("baseTimeNanoseconds"))))
}

/// Returns the time in ns since 1970 from which the base of an exported `.json` is computed.
fn near_ns(profile: &Profile) -> i64 {
    // Readers drop events before the base, so the earliest of the known times is used.
    let clocks = profile.snapshots.iter().map(|snapshot| snapshot.realtime_ns);
    let near_ns = clocks.chain([profile.manifest.created_unix_ns]).min().unwrap_or(0);
    i64::try_from(near_ns).unwrap_or(i64::MAX)
}

fn write_json<W: Write + Send>(
    out: W,
    profile: &Profile,
    args: &Args,
    part: Option<&Selection>,
) -> io::Result<Written<W>> {
    let manifest = &profile.manifest;
    let device = serde_json::json!({
        "id": 0,
        "name": manifest.cpu_model,
        "type": "cpu",
        "logical_cpus": manifest.logical_cpus,
    });
    let facts = facts(profile, args, part, &Found::default())?;
    let head = chrome::write::ChromeHead {
        near_ns: near_ns(profile),
        host_name: &manifest.host,
        devices: &[device],
        rank: ranks::job_of(profile, args),
        facts: Some(&facts),
    };
    let mut writer = chrome::write::Writer::new(out, &head)?;
    let mut noted = Noted::new(&mut writer);
    let (found, left_out) = fill(&mut noted, profile, args, part)?;
    let mut end = serde_json::json!({
        "losses": facts::losses(profile, &found),
        "page": facts::page(noted.first()),
    });
    if part.is_some() {
        end["left_out"] = serde_json::to_value(left_out)?;
    }
    if let Some(totals) = loops::facts(profile)? {
        end["loops"] = totals;
    }
    let out = writer.finish("counterpoint_end", &end, &args.output.to_string_lossy())?;
    Ok(Written { out, losses: losses(profile, &found), left_out })
}

fn write_perfetto_calls(
    out: impl Write + Send,
    profile: &Profile,
    args: &Args,
    part: Option<&Selection>,
) -> io::Result<(Vec<LossCount>, LeftOut)> {
    let clocks = profile.snapshots.iter().map(|s| (s.realtime_ns, s.monotonic_ns)).collect();
    let head = perfetto::write::PerfettoHead { clocks, compress: args.compress };
    let mut writer = perfetto::write::Writer::new(out, &head)?;
    let mut noted = Noted::new(&mut writer);
    let (found, left_out) = fill(&mut noted, profile, args, part)?;
    let first = noted.first();
    // The facts are at the end of the file, so they can include losses that were found while the
    // events were written.
    let mut facts = facts(profile, args, part, &found)?;
    facts["losses"] = facts::losses(profile, &found);
    facts["page"] = facts::page(first);
    if part.is_some() {
        facts["left_out"] = serde_json::to_value(left_out)?;
    }
    if let Some(totals) = loops::facts(profile)? {
        facts["loops"] = totals;
    }
    writer.finish([("counterpoint", &facts)])?;
    Ok((losses(profile, &found), left_out))
}
