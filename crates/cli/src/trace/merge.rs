//! `counterpoint trace merge`: several traces as one, on one clock.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use trace::chrome::write::{Head, Writer};
use trace::merge::{self, Alignment, By, Look};

use crate::failure::Failure;
use crate::whole::WholeFile;

/// Put Chrome JSON traces of several processes, ranks or machines into one file.
///
/// Times are aligned by clock snapshots where the files have them, else by base times. What that
/// is worth is said for each file. Each file's rows stay together, under its rank or machine.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files: NAME.json or NAME.json.gz of any program.
    #[arg(required = true, num_args = 2.., value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File to write: NAME.json, or NAME.json.gz compressed.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Merges the files.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let to = args.output.display();
    let name = args.output.to_string_lossy().to_lowercase();
    let compress = match name.as_str() {
        n if n.ends_with(".json") => false,
        n if n.ends_with(".json.gz") => true,
        _ => {
            return Err(Failure::new(format!("write {to}: unknown ending"))
                .hint("end its name with .json or .json.gz"));
        }
    };
    if args.files.iter().any(|file| same_file(file, &args.output)) {
        return Err(Failure::new(format!("write {to}: it is one of the files to read")));
    }
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
        write(gz, &args, &files, &alignments).and_then(GzEncoder::finish).map_err(failed)?;
    } else {
        write(&mut file, &args, &files, &alignments).map_err(failed)?;
    }
    file.finish().map_err(failed)?;
    let mut out = io::stdout().lock();
    for alignment in &alignments {
        writeln!(out, "{}", say(alignment))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn write<W: Write>(out: W, args: &Args, files: &[Look], alignments: &[Alignment]) -> io::Result<W> {
    let near_ns = merge::first_ns(files, alignments);
    let head = Head { near_ns, host_name: "", devices: &[], rank: None, facts: None };
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
