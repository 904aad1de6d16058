//! `counterpoint export`: writes calls, samples of tracks, counts or loops as rows for other
//! programs, writes the tree of all calls as stacks, or adds the profile to a dataset.

mod clock;
mod compensation;
mod counts;
mod dataset;
mod lines;
mod loops;
mod parquet;
mod stacks;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use clap::ValueEnum;
use clock::ExportClock;
use lines::Texts;
use model::metric::Bound;
use profile::batch::unknown_op;
use profile::tracks::batches::SeriesChooser;
use profile::{LossCount, Profile, merge_losses};

use crate::failure::Failure;
use crate::input;
use crate::matching;
use crate::metrics::{MetricArgs, Offer, of_profile};
use crate::terminal::{Kind, progress, say};
use crate::view::head::ProfileHead;
use crate::view::loops::Loops;
use crate::view::losses;
use crate::view::metrics::metrics_out;
use crate::view::open::open;
use crate::view::ranks::RankArgs;
use crate::view::rights::Needs;
use crate::whole::WholeFile;

const EXPORT_SCHEMA: &str = "counterpoint.export/1";
const TRACKS_SCHEMA: &str = "counterpoint.tracks/1";
const COUNTS_SCHEMA: &str = "counterpoint.counts/1";
const LOOP_ROWS_SCHEMA: &str = "counterpoint.loop_rows/1";
const LOOP_EVENTS_SCHEMA: &str = "counterpoint.loop_events/1";

/// Write every call, sample or count of a loop as a row, or the tree of calls as stacks; or add the
/// profile to a dataset of many ranks.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE", value_parser = input::profile())]
    profile: PathBuf,
    /// Format of the output.
    #[arg(long, value_enum, required_unless_present = "dataset")]
    format: Option<ExportFormat>,
    /// What each row describes.
    #[arg(long, value_enum, default_value_t)]
    what: What,
    /// File to write to. The default is standard output, which is also written `-`. Parquet and
    /// pprof need this option.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only ops, tracks or loops (FUNCTION:LOOP) whose name matches. `*` matches any text, `?` any character.
    #[arg(long, alias = "op", value_name = "GLOB")]
    filter: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// The clock of the points in time in the rows.
    #[arg(long, value_enum, default_value_t)]
    clock: ExportClock,
    #[command(flatten)]
    metrics: MetricArgs,
    #[command(flatten)]
    dataset: dataset::DatasetArgs,
}

impl Args {
    /// Returns the format. The parser of options requires a format unless `--dataset` is given, and
    /// this function is not called with `--dataset`.
    fn format(&self) -> ExportFormat {
        self.format.unwrap_or(ExportFormat::Csv)
    }
}

/// `--what`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum What {
    /// One row per call.
    #[default]
    Calls,
    /// One row per sample of a time series.
    Tracks,
    /// One row per op and thread of a run with a budget: how many calls there were.
    Counts,
    /// One row per loop (or function) and thread, as it was counted.
    Loops,
    /// One row per start and end of a loop in mode log.
    LoopEvents,
}

impl What {
    /// Returns the name of the output's schema, and the name of the field that contains the rows in
    /// JSON.
    fn schema(self) -> (&'static str, &'static str) {
        match self {
            Self::Calls => (EXPORT_SCHEMA, "calls"),
            Self::Tracks => (TRACKS_SCHEMA, "samples"),
            Self::Counts => (COUNTS_SCHEMA, "rows"),
            Self::Loops => (LOOP_ROWS_SCHEMA, "rows"),
            Self::LoopEvents => (LOOP_EVENTS_SCHEMA, "events"),
        }
    }
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// RFC 4180 with one header line. An empty field is a missing value.
    Csv,
    /// One document: a header, then `calls` (or `samples`, `rows`, `events`), one per line.
    Json,
    /// Columns compressed with Snappy. The file's metadata describes the profile.
    Parquet,
    /// Stacks with own times and counters for `go tool pprof` (gzip and protobuf).
    Pprof,
    /// Stacks with own times in ns, one per line, for inferno and flamegraph.pl.
    Folded,
    /// Stacks with own times and counters for speedscope.app (JSON).
    Speedscope,
}

impl ExportFormat {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn kind(self) -> Kind {
        match self {
            Self::Csv => Kind::Csv,
            Self::Json | Self::Speedscope => Kind::Json,
            Self::Folded => Kind::Lines,
            Self::Parquet | Self::Pprof => Kind::Binary,
        }
    }
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    if let Some(dir) = &args.dataset.dataset {
        return dataset::main(&args, dir);
    }
    if args.format().kind() == Kind::Binary && args.output.is_none() {
        let name = args.format().name();
        return Err(Failure::new(format!("export --format {name}: needs a file to write to"))
            .hint("name one with -o FILE; -o - is standard output"));
    }
    if let Some(format) = stacks::format(args.format()) {
        return stacks::main(&args, format);
    }
    let path = args.output.as_deref().unwrap_or(Path::new("-"));
    let mut profile = open(&args.profile, &Needs::files(&args.metrics.metrics_file).output(path))?;
    args.ranks.choose(&mut profile)?;
    let metrics = of_profile(&args.metrics, &profile, Offer::Nothing)?;
    let name = |e: io::Error| Failure::writing(path, e);
    let mut file = WholeFile::create(path, args.format().kind()).map_err(name)?;
    let writing = progress::writing(path);
    let mut out = BufWriter::with_capacity(1 << 16, &mut file);
    let (lost, rows) = write(&mut out, &profile, &args, metrics).map_err(name)?;
    out.flush().map_err(name)?;
    drop(out);
    file.finish().map_err(name)?;
    drop(writing);
    losses::say(&lost);
    match (&args.filter, args.what) {
        (Some(glob), What::Calls) if rows == 0 && profile.calls() > 0 => {
            matching::no_op(&profile, "--filter", glob);
            Ok(ExitCode::from(1))
        }
        (Some(glob), What::Counts) if rows == 0 && !profile.counted().is_empty() => {
            matching::no_op(&profile, "--filter", glob);
            Ok(ExitCode::from(1))
        }
        (Some(glob), What::Tracks) if rows == 0 => {
            say!("--filter {glob}: no track matches");
            Ok(ExitCode::from(1))
        }
        (Some(glob), What::Loops | What::LoopEvents) if rows == 0 => {
            say!("--filter {glob}: no loop matches");
            Ok(ExitCode::from(1))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

struct Rows<'a> {
    what: What,
    profile: &'a Profile,
    /// The definitions of the metric columns, as JSON.
    metrics: Option<String>,
    /// What the recorder adds to the duration and the counters of a call (measured with empty
    /// calls), as JSON. `None` if the output does not contain this.
    compensation: Option<String>,
    schema: SchemaRef,
    batches: &'a mut dyn Iterator<Item = Result<RecordBatch, ArrowError>>,
}

/// Writes the rows. Returns the losses of the profile and the number of rows.
fn write(
    out: &mut (impl Write + Send),
    profile: &Profile,
    args: &Args,
    metrics: Vec<Bound>,
) -> io::Result<(Vec<LossCount>, u64)> {
    let mut written = 0;
    let (what, filter) = (args.what, args.filter.as_deref());
    let found = match what {
        What::Calls => {
            let described = serde_json::to_string(&metrics_out(&metrics))?;
            let choose = filter.map(|glob| calls_like(profile, glob));
            let corrections = compensation::corrections(profile, &metrics);
            let mut batches =
                profile.batches(choose).with_metrics(metrics).with_corrections(corrections);
            let schema = batches.schema();
            let metrics = Some(described);
            let doing = (filter.is_none())
                .then(|| progress::step_of("writing calls", profile.calls(), "calls"));
            let mut counted = batches.by_ref().inspect(|batch| {
                written += rows_of(batch);
                doing.iter().for_each(|doing| doing.done(rows_of(batch)));
            });
            let compensation = match args.format() {
                ExportFormat::Csv => None,
                _ => Some(serde_json::to_string(&compensation::out(profile))?),
            };
            let all = Rows { what, profile, metrics, compensation, schema, batches: &mut counted };
            rows(out, all, args)?;
            batches.losses().to_vec()
        }
        What::Tracks => {
            let choose = filter.map(|glob| -> SeriesChooser<'_> {
                Box::new(move |series| model::glob::matches(glob, &series.track))
            });
            let mut batches = profile.track_batches(choose);
            let schema = profile::tracks::batches::schema();
            let mut counted = batches.by_ref().inspect(|batch| written += rows_of(batch));
            let (metrics, compensation) = (None, None);
            let all = Rows { what, profile, metrics, compensation, schema, batches: &mut counted };
            rows(out, all, args)?;
            batches.losses().to_vec()
        }
        What::Counts => {
            let batch = counts::rows(profile, filter)?;
            written = batch.num_rows() as u64;
            let (schema, mut batches) = (batch.schema(), std::iter::once(Ok(batch)));
            let (metrics, compensation) = (None, None);
            let all = Rows { what, profile, metrics, compensation, schema, batches: &mut batches };
            rows(out, all, args)?;
            Vec::new()
        }
        What::Loops | What::LoopEvents => {
            let recorded = profile.loops().map_err(io::Error::other)?;
            let loops = Loops::new(profile, &recorded, &[], true);
            let batch = match what {
                What::Loops => loops::rows(&loops, filter)?,
                _ => loops::events(&loops, filter)?,
            };
            written = batch.num_rows() as u64;
            let (schema, mut batches) = (batch.schema(), std::iter::once(Ok(batch)));
            let (metrics, compensation) = (None, None);
            let all = Rows { what, profile, metrics, compensation, schema, batches: &mut batches };
            rows(out, all, args)?;
            recorded.losses.clone()
        }
    };
    Ok((merge_losses(profile.all_losses().iter().chain(&found)), written))
}

fn rows_of(batch: &Result<RecordBatch, ArrowError>) -> u64 {
    batch.as_ref().map_or(0, |batch| batch.num_rows() as u64)
}

fn calls_like<'a>(profile: &'a Profile, glob: &'a str) -> profile::batch::Chooser<'a> {
    let wanted: Vec<bool> =
        profile.ops.all().iter().map(|op| profile::demangle::matches(glob, &op.name)).collect();
    Box::new(move |process, export| match profile.ops.of(process, export) {
        Some(op) => wanted[op as usize],
        None => model::glob::matches(glob, &unknown_op(export)),
    })
}

fn rows(out: &mut (impl Write + Send), rows: Rows<'_>, args: &Args) -> io::Result<()> {
    let (clock, timeline) = (args.clock, &rows.profile.timeline);
    let mut batches = rows.batches.map(|batch| clock.convert(batch?, timeline));
    let mut rows = Rows { schema: clock.schema(&rows.schema), batches: &mut batches, ..rows };
    match args.format() {
        ExportFormat::Csv => csv(out, &mut rows),
        ExportFormat::Json => json(out, &mut rows),
        ExportFormat::Parquet => parquet::write(out, &mut rows),
        // `main` leaves these formats to `stacks.rs`, because they contain no rows.
        ExportFormat::Pprof | ExportFormat::Folded | ExportFormat::Speedscope => Ok(()),
    }
}

fn csv(out: &mut impl Write, rows: &mut Rows<'_>) -> io::Result<()> {
    // The header line is written even if there are no rows.
    out.write_all(lines::csv_header(&rows.schema).as_bytes())?;
    let mut texts = Texts::default();
    for batch in &mut *rows.batches {
        out.write_all(&lines::csv(&batch.map_err(io_error)?, &mut texts)?)?;
    }
    say_cut(&texts);
    Ok(())
}

fn say_cut(texts: &Texts) {
    if texts.were_cut {
        let (longest, all) = (lines::LONG, lines::MOST_OF_LONG >> 20);
        say!(
            "texts of more than {longest} bytes are cut after the first {all} MiB of them; --format \
             parquet has each text once, and in full"
        );
    }
}

fn json(out: &mut impl Write, rows: &mut Rows<'_>) -> io::Result<()> {
    let head = serde_json::to_string(&ProfileHead::new(&rows.profile.manifest, rows.profile))?;
    let (schema, name) = rows.what.schema();
    write!(out, "{{\"schema\":\"{schema}\",\n\"profile\":{head},\n")?;
    if let Some(metrics) = &rows.metrics {
        writeln!(out, "\"metrics\":{metrics},")?;
    }
    if let Some(compensation) = &rows.compensation {
        writeln!(out, "\"compensation\":{compensation},")?;
    }
    write!(out, "\"{name}\":[")?;
    let (mut first, mut texts) = ("\n", Texts::default());
    for batch in &mut *rows.batches {
        out.write_all(&lines::json(&batch.map_err(io_error)?, first, ",\n", &mut texts)?)?;
        first = ",\n";
    }
    writeln!(out, "\n]}}")?;
    say_cut(&texts);
    Ok(())
}

/// Converts an error of Arrow. If it contains an I/O error, returns that I/O error, because callers
/// must recognise a broken pipe.
fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, io) => io,
        other => io::Error::other(other),
    }
}
