//! `counterpoint trace merge`: merges several traces into one, on one clock.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use profile::Profile;
use trace::chrome::write::{ChromeHead, Writer};
use trace::export::activities::{Options, write_perfetto};
use trace::merge::{self, Alignment, By, Look};

use super::export::{Ending, in_order, say_changes};
use super::import::{self, Whose};
use crate::failure::Failure;
use crate::input::{Input, at_most_one_standard, is_standard};
use crate::stage::Stage;
use crate::terminal::{Kind, progress, say, stdout, visible};
use crate::view::losses;
use crate::view::rights::{Needs, confine};
use crate::whole::WholeFile;

/// Merge Chrome JSON traces of several processes, ranks or machines into one file.
///
/// The name of the output file chooses its format: Chrome JSON or Perfetto's format.
///
/// Times are aligned by clock snapshots if the files have them, and otherwise by base times. A line
/// for each file says how it was aligned and how exact that is. The rows of each file stay
/// together, under its rank or machine.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files of any program: JSON, also compressed with gzip. `-` is standard input.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File to write: NAME.json, NAME.json.gz, or NAME.pftrace for Perfetto. `-` is standard
    /// output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Format of the file, whatever its name. The default for standard output is json.
    #[arg(long, value_enum)]
    format: Option<Ending>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let ending = Ending::of(args.format, &args.output)?;
    at_most_one_standard(args.files.iter().map(PathBuf::as_path))?;
    if args.files.iter().any(|file| same_file(file, &args.output)) {
        let to = args.output.display();
        return Err(Failure::new(format!("write {to}: it is also one of the input files")));
    }
    let inputs = args.files.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
    let alignments = match ending {
        Ending::Perfetto => perfetto(&args, &inputs)?,
        Ending::Json | Ending::JsonGz => chrome(&args, &inputs, ending)?,
    };
    // If the merged trace goes to standard output, the lines about the files are printed to
    // standard error.
    if is_standard(&args.output) {
        alignments.iter().for_each(|alignment| say!("{}", in_words(alignment)));
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = stdout(Kind::People);
    for alignment in &alignments {
        writeln!(out, "{}", visible(&in_words(alignment)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn chrome(args: &Args, inputs: &[Input], ending: Ending) -> Result<Vec<Alignment>, Failure> {
    confine(None, &Needs::default().output(&args.output));
    let mut files = Vec::new();
    for input in inputs {
        progress::phase(progress::reading(format!("reading {}", input.name()), input.bytes()));
        let look = merge::look(input.name(), input.read())
            .map_err(|e| Failure::new(format!("read {}: {e}", input.name())))?;
        if look.summary.truncated {
            say!("{}: is truncated; merged up to its last complete event", look.name);
        }
        files.push(look);
    }
    let alignments = merge::align(&files);
    let failed = |e: io::Error| Failure::writing(&args.output, e);
    let mut file = WholeFile::create(&args.output, ending.kind()).map_err(failed)?;
    progress::phase(progress::writing(&args.output));
    if ending == Ending::JsonGz {
        let gz = GzEncoder::new(&mut file, Compression::default());
        let written = write(gz, args, inputs, &files, &alignments);
        written.and_then(GzEncoder::finish).map_err(failed)?;
    } else {
        write(&mut file, args, inputs, &files, &alignments).map_err(failed)?;
    }
    file.finish().map_err(failed)?;
    Ok(alignments)
}

/// Merges the files into a trace in Perfetto's format. In this format, a row must be described
/// before its slices, and its slices must be ordered. So the files are first imported into a
/// temporary profile.
fn perfetto(args: &Args, inputs: &[Input]) -> Result<Vec<Alignment>, Failure> {
    let failed = |e: io::Error| Failure::writing(&args.output, e);
    let mut file = WholeFile::create(&args.output, Ending::Perfetto.kind()).map_err(failed)?;
    let beside = beside(&args.output).map_err(failed)?;
    confine(None, &Needs { made: Some(beside.path()), ..Needs::default().output(&args.output) });
    import::import(inputs, beside.path(), &import::shifts(inputs)?, Whose::Anybodys)?;
    let profile = Profile::open(beside.path()).map_err(Failure::new)?;
    let traces = in_order(profile.activities().map_err(Failure::new)?);
    let names: Vec<String> = inputs.iter().map(|input| input.name().to_owned()).collect();
    progress::phase(progress::writing(&args.output));
    let done = write_perfetto(&traces, &names, &Options::default(), &mut file, false);
    let done = done.map_err(failed)?;
    say_changes(&done);
    let (losses, alignments) = (done.losses, done.alignments);
    file.finish().map_err(failed)?;
    losses::say(&losses);
    Ok(alignments)
}

/// Makes a temporary directory: beside the output if that is a file or does not exist yet, and
/// otherwise in the system's directory for temporary files. The directory is removed when the
/// returned value is dropped.
fn beside(output: &Path) -> io::Result<Stage> {
    // A pipe or a device may be in a directory in which nothing can be created, such as /dev.
    Stage::create(&match std::fs::metadata(output) {
        Ok(there) if !there.is_file() => std::env::temp_dir(),
        _ if is_standard(output) => std::env::temp_dir(),
        _ => output.parent().unwrap_or(Path::new("")).to_owned(),
    })
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn write<W: Write>(
    out: W,
    args: &Args,
    inputs: &[Input],
    files: &[Look],
    alignments: &[Alignment],
) -> io::Result<W> {
    let near_ns = merge::first_ns(files, alignments);
    let head = ChromeHead { near_ns, ..ChromeHead::default() };
    let writer = Writer::new(out, &head)?;
    let writer = merge::write(files, alignments, writer, |i| Ok(inputs[i].read()))?;
    writer.finish("counterpoint", &merge::facts(files, alignments), &args.output.to_string_lossy())
}

fn in_words(alignment: &Alignment) -> String {
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
        By::BaseTime => {
            "aligned by base time; it is not known how well the machines' clocks agree".to_owned()
        }
        By::FirstEvent => {
            format!(
                "shifted by {shift_ns} ns to align the first events, because there is no base time"
            )
        }
    };
    format!("{file}:{who}{} {how}", if who.is_empty() { "" } else { ";" })
}
