//! `counterpoint export`: every call, one row each, for other programs.

mod parquet;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use arrow_array::RecordBatch;
use arrow_json::writer::{LineDelimited, WriterBuilder};
use arrow_schema::ArrowError;
use clap::ValueEnum;
use model::metric::Bound;
use profile::batch::unknown_op;
use profile::collect::Closing;
use profile::{LossCount, Profile, merge_losses};

use crate::failure::Failure;
use crate::metrics::{MetricArgs, Offer, metrics_out, of_profile};
use crate::report::{self, ProfileHead};

/// The version of the JSON document.
const EXPORT_SCHEMA: &str = "counterpoint.export/1";

/// Write every recorded call as a row of CSV, JSON or Parquet.
#[derive(clap::Args)]
pub struct Args {
    /// Profile directory.
    #[arg(default_value = "counterpoint.cpt", value_name = "PROFILE")]
    profile: PathBuf,
    /// What to write.
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// File to write to instead of stdout; Parquet needs one.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only ops whose name matches; `*` and `?` are wild.
    #[arg(long, value_name = "GLOB")]
    filter: Option<String>,
    #[command(flatten)]
    metrics: MetricArgs,
}

/// `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// RFC 4180 with one header line; an empty field is a missing value.
    Csv,
    /// One document: the head, then `calls` with one call per line.
    Json,
    /// Arrow columns, compressed with Snappy; the profile's head is in the file's metadata.
    Parquet,
}

/// Writes the calls.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    if args.format == ExportFormat::Parquet && args.output.is_none() {
        return Err(Failure::new("export --format parquet: no file to write to")
            .hint("name one with -o FILE"));
    }
    let profile = report::open(&args.profile, Closing::WhenOver)?;
    let metrics = of_profile(&args.metrics, &profile, Offer::Nothing)?;
    let losses = match &args.output {
        Some(path) => {
            let name = |e: io::Error| Failure::new(format!("write {}: {e}", path.display()));
            let mut out = BufWriter::with_capacity(1 << 16, File::create(path).map_err(name)?);
            let losses = write(&mut out, &profile, &args, metrics).map_err(name)?;
            out.flush().map_err(name)?;
            losses
        }
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, io::stdout());
            let losses = write(&mut out, &profile, &args, metrics)?;
            out.flush()?;
            losses
        }
    };
    report::say_losses(&losses);
    Ok(ExitCode::SUCCESS)
}

/// Writes what was asked for; returns every loss of the profile.
fn write(
    out: &mut (impl Write + Send),
    profile: &Profile,
    args: &Args,
    metrics: Vec<Bound>,
) -> io::Result<Vec<LossCount>> {
    let filter = args.filter.as_deref();
    let choose = filter.map(|glob| -> profile::batch::Chooser<'_> {
        let wanted: Vec<bool> =
            profile.ops.all().iter().map(|op| model::glob::matches(glob, &op.name)).collect();
        Box::new(move |process, export| match profile.ops.of(process, export) {
            Some(op) => wanted[op as usize],
            None => model::glob::matches(glob, &unknown_op(export)),
        })
    });
    let described = serde_json::to_string(&metrics_out(&metrics))?;
    let mut batches = profile.batches(choose).with_metrics(metrics);
    match args.format {
        ExportFormat::Csv => csv(out, &mut batches)?,
        ExportFormat::Json => json(out, profile, &described, &mut batches)?,
        ExportFormat::Parquet => parquet::write(out, profile, described, &mut batches)?,
    }
    Ok(merge_losses(profile.all_losses().iter().chain(batches.losses())))
}

fn csv(out: &mut impl Write, batches: &mut profile::Batches<'_>) -> io::Result<()> {
    // The header line, also when there is no call.
    csv_lines(out, &RecordBatch::new_empty(batches.schema()), true)?;
    for batch in batches {
        csv_lines(out, &batch.map_err(io_error)?, false)?;
    }
    Ok(())
}

/// By way of memory: the writer makes text of an error of `out`, and a broken pipe would be lost.
fn csv_lines(out: &mut impl Write, batch: &RecordBatch, header: bool) -> io::Result<()> {
    let mut lines = Vec::new();
    let mut writer = arrow_csv::WriterBuilder::new().with_header(header).build(&mut lines);
    writer.write(batch).map_err(io_error)?;
    drop(writer);
    out.write_all(&lines)
}

fn json(
    out: &mut impl Write,
    profile: &Profile,
    metrics: &str,
    batches: &mut profile::Batches<'_>,
) -> io::Result<()> {
    let head = serde_json::to_string(&ProfileHead::new(&profile.manifest, profile))?;
    write!(
        out,
        "{{\"schema\":\"{EXPORT_SCHEMA}\",\n\"profile\":{head},\n\"metrics\":{metrics},\n"
    )?;
    write!(out, "\"calls\":[")?;
    let mut first = true;
    for batch in batches {
        let batch = batch.map_err(io_error)?;
        // Lines, to which the commas of an array are added here: the writer's own array form
        // cannot follow a head.
        let mut lines = Vec::new();
        let builder = WriterBuilder::new().with_explicit_nulls(true);
        let mut writer = builder.build::<_, LineDelimited>(&mut lines);
        writer.write(&batch).and_then(|()| writer.finish()).map_err(io_error)?;
        drop(writer);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            out.write_all(if first { b"\n" } else { b",\n" })?;
            out.write_all(line)?;
            first = false;
        }
    }
    writeln!(out, "\n]}}")
}

/// Keeps a broken pipe what it is.
fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, io) => io,
        other => io::Error::other(other),
    }
}
