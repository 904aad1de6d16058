//! `counterpoint trace merge`: several traces as one, on one clock.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use profile::activities::Activities;
use trace::activities::{Options, write_perfetto};
use trace::chrome::write::{Head, Writer};
use trace::merge::{self, Alignment, By, Look};

use super::export::{Ending, in_order, say_changes};
use super::import;
use crate::failure::Failure;
use crate::report;
use crate::whole::WholeFile;

/// Put Chrome JSON traces of several processes, ranks or machines into one file.
///
/// The file is Chrome JSON again, or in Perfetto's format, by its name.
///
/// Times are aligned by clock snapshots where the files have them, else by base times. What that
/// is worth is said for each file. Each file's rows stay together, under its rank or machine.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files: NAME.json or NAME.json.gz of any program.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File to write: NAME.json, NAME.json.gz, or NAME.pftrace for Perfetto.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Merges the files.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let to = args.output.display();
    let ending = Ending::of(&args.output)?;
    if args.files.iter().any(|file| same_file(file, &args.output)) {
        return Err(Failure::new(format!("write {to}: it is one of the files to read")));
    }
    let alignments = match ending {
        Ending::Perfetto => perfetto(&args)?,
        Ending::Json | Ending::JsonGz => chrome(&args, ending == Ending::JsonGz)?,
    };
    let mut out = io::stdout().lock();
    for alignment in &alignments {
        writeln!(out, "{}", say(alignment))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes Chrome JSON.
fn chrome(args: &Args, compress: bool) -> Result<Vec<Alignment>, Failure> {
    let to = args.output.display();
    let mut files = Vec::new();
    for path in &args.files {
        let failed =
            |e: &dyn std::fmt::Display| Failure::new(format!("read {}: {e}", path.display()));
        let file = File::open(path).map_err(|e| failed(&e))?;
        let look = merge::look(&path.to_string_lossy(), file).map_err(|e| failed(&e))?;
        if look.summary.truncated {
            eprintln!("counterpoint: {}: ends in the middle; merged as far as it goes", look.name);
        }
        files.push(look);
    }
    let alignments = merge::align(&files);
    let failed = |e: io::Error| Failure::new(format!("write {to}: {e}"));
    let mut file = WholeFile::create(&args.output).map_err(failed)?;
    if compress {
        let gz = GzEncoder::new(&mut file, Compression::default());
        write(gz, args, &files, &alignments).and_then(GzEncoder::finish).map_err(failed)?;
    } else {
        write(&mut file, args, &files, &alignments).map_err(failed)?;
    }
    file.finish().map_err(failed)?;
    Ok(alignments)
}

/// Writes Perfetto's format. It has rows before what happens in them, and slices of a row in an
/// order, so the files are imported first, into a profile that is not kept.
fn perfetto(args: &Args) -> Result<Vec<Alignment>, Failure> {
    let failed = |e: io::Error| Failure::new(format!("write {}: {e}", args.output.display()));
    let mut file = WholeFile::create(&args.output).map_err(failed)?;
    let beside = Beside::create(&args.output).map_err(failed)?;
    import::plain(&args.files, &beside.0, &import::shifts(&args.files)?)?;
    let traces = Activities::open_all(&beside.0).map_err(Failure::new)?;
    let names: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
    let done = write_perfetto(&in_order(traces), &names, &Options::default(), &mut file, false);
    let done = done.map_err(failed)?;
    say_changes(&done);
    let (losses, alignments) = (done.losses, done.alignments);
    file.finish().map_err(failed)?;
    report::say_losses(&losses);
    Ok(alignments)
}

/// A directory beside the output, for as long as it is written.
struct Beside(PathBuf);

impl Beside {
    fn create(output: &Path) -> io::Result<Self> {
        // The output may be a pipe or a device, beside which nothing is to be put.
        let at = match std::fs::metadata(output) {
            Ok(there) if !there.is_file() => std::env::temp_dir().join("counterpoint"),
            _ => output.to_owned(),
        };
        let mut name = at.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        name.push(format!(".{}.cpt.tmp", std::process::id()));
        let at = at.with_file_name(name);
        std::fs::create_dir(&at)?;
        Ok(Self(at))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn write<W: Write>(out: W, args: &Args, files: &[Look], alignments: &[Alignment]) -> io::Result<W> {
    let near_ns = merge::first_ns(files, alignments);
    let head = Head { near_ns, ..Head::default() };
    let writer = Writer::new(out, &head)?;
    let writer = merge::write(files, alignments, writer, |i| File::open(&args.files[i]))?;
    writer.finish("counterpoint", &merge::facts(files, alignments), &args.output.to_string_lossy())
}

fn say(alignment: &Alignment) -> String {
    let Alignment { file, rank, host, shift_ns, uncertainty_ns, by } = alignment;
    let rank = rank.map(|rank| format!(" rank {rank}"));
    let host = host.as_ref().map(|host| format!(" on {host}"));
    let who = [rank, host].into_iter().flatten().collect::<String>();
    let how = match by {
        By::First => "the others are aligned to it".to_owned(),
        By::Monotonic => format!(
            "shifted by {shift_ns} ns ± {:.0} ns, by snapshots of one machine's clocks",
            uncertainty_ns.unwrap_or(0.0)
        ),
        By::BaseTime => "by base time; how well the machines' clocks agree is not known".to_owned(),
        By::FirstEvent => {
            format!("shifted by {shift_ns} ns: no base time, first events put at one moment")
        }
    };
    format!("{file}:{who}{} {how}", if who.is_empty() { "" } else { ";" })
}
