//! `counterpoint trace import`: a profile of what other programs recorded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use profile::Manifest;
use trace::chrome::event::{Event, Raw};
use trace::chrome::read::{ReadError, Sink, Summary};
use trace::import::{Import, Imported, read_any};
use trace::restore::{Head, Restore};

use crate::failure::Failure;
use crate::prepare::make_way;
use crate::report::plural;

/// Make a profile of traces: Chrome JSON, as torch, Kineto, TensorFlow and `trace export` write it, or
/// Perfetto's format.
///
/// Files may be compressed with gzip. Slices and asynchronous spans become calls, counters tracks:
/// report, stats and export work on them. Everything else is kept and comes out again with `trace
/// export`. Several files become one
/// profile, aligned by their base times. docs/traces.md says more.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Profile directory to make. An earlier profile there is moved to DIR.old.
    #[arg(short, long, default_value = "counterpoint.cpt", value_name = "DIR")]
    output: PathBuf,
}

/// Makes the profile.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    // What cannot be opened must not cost an earlier profile its place.
    for path in &args.files {
        open(path)?;
    }
    let shifts = shifts(&args.files)?;
    make_way(&args.output)?;
    let output = &args.output;
    fs::create_dir_all(output)
        .map_err(|e| Failure::new(format!("create {}: {e}", output.display())))?;
    match import(&args, &shifts) {
        Ok((done, ours)) => {
            let (events, calls) = (done.events.into(), done.calls);
            let more = [(done.spans, "asynchronous span"), (done.samples, "value of a counter")];
            let more = more.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| match (n, what) {
                (n, "value of a counter") if n > 1 => format!(", {n} values of counters"),
                (n, what) => format!(", {}", plural(n.into(), what)),
            });
            let more = more.collect::<String>();
            let ours = if ours { "; the profile that was exported" } else { "" };
            eprintln!(
                "counterpoint: {}, {} of them calls{more}, in {}{ours}",
                plural(events, "event"),
                calls,
                output.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            // Half a trace that looks like a whole one would be worse than none.
            let _ = fs::remove_dir_all(output);
            Err(failure)
        }
    }
}

/// Returns what was imported, and whether it is a profile that `trace export` wrote.
fn import(args: &Args, shifts: &[i64]) -> Result<(Imported, bool), Failure> {
    if let [path] = args.files.as_slice()
        && let Some(head) = Head::look(open(path)?)
        && let Some(done) = restore(args, path, head)?
    {
        return Ok((done, true));
    }
    let (done, late) = plain(args, shifts)?;
    // What says so stood behind the events.
    if let ([path], Some(head)) = (args.files.as_slice(), late) {
        again(&args.output)?;
        if let Some(done) = restore(args, path, head)? {
            return Ok((done, true));
        }
        return Ok((plain(args, shifts)?.0, false));
    }
    Ok((done, false))
}

/// Empties the profile that is being made.
fn again(output: &Path) -> Result<(), Failure> {
    fs::remove_dir_all(output)
        .and_then(|()| fs::create_dir_all(output))
        .map_err(|e| Failure::new(format!("create {}: {e}", output.display())))
}

/// Makes the profile that was exported; `None`, and nothing is left, if its head contradicts
/// itself.
fn restore(args: &Args, path: &Path, head: Head) -> Result<Option<Imported>, Failure> {
    let Ok(mut one) = Restore::create(&args.output, head) else {
        again(&args.output)?;
        return Ok(None);
    };
    let (summary, _) = read_any(open(path)?, &mut one).map_err(|e| unreadable(path, e))?;
    stops_early(path, &summary);
    one.finish(&summary).map(Some).map_err(Failure::new)
}

fn stops_early(path: &Path, summary: &Summary) {
    if summary.truncated {
        let at = summary.bytes;
        eprintln!("counterpoint: {}: stops early, after byte {at}", path.display());
    }
}

/// Returns also what makes the trace one of ours.
fn plain(args: &Args, shifts: &[i64]) -> Result<(Imported, Option<Head>), Failure> {
    let mut late = None;
    let mut manifest = Manifest::new();
    manifest.program_version = env!("CARGO_PKG_VERSION").to_owned();
    let command = ["counterpoint", "trace", "import"].map(str::to_owned).into_iter();
    manifest.command = command.chain(args.files.iter().map(|f| f.display().to_string())).collect();
    manifest.working_directory = std::env::current_dir().unwrap_or_default().display().to_string();
    let mut all = Import::create(&args.output, manifest).map_err(Failure::new)?;
    for (number, (path, shift)) in args.files.iter().zip(shifts).enumerate() {
        let mut one = all.trace(&format!("chrome-{number}"), *shift).map_err(Failure::new)?;
        let (summary, perfetto) =
            read_any(open(path)?, &mut one).map_err(|e| unreadable(path, e))?;
        stops_early(path, &summary);
        late = one.head().map(|head| Head { whole: perfetto, ..head });
        one.finish(&path.display().to_string(), &summary).map_err(Failure::new)?;
    }
    Ok((all.finish().map_err(Failure::new)?, late))
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::Error::other(trace::kind::of_directory(path))),
        false => Ok(file),
    });
    file.map_err(|e| Failure::new(format!("open {}: {e}", path.display())))
}

fn unreadable(path: &Path, error: ReadError) -> Failure {
    Failure::new(format!("read {}: {error}", path.display()))
}

/// From each file's time to the first one's, ns. A file says only somewhere what its times count
/// from, perhaps behind its events: several files are read twice.
fn shifts(files: &[PathBuf]) -> Result<Vec<i64>, Failure> {
    struct Base(i64);
    impl Sink for Base {
        fn event(&mut self, _: u64, _: &Event<'_>) -> Result<(), String> {
            Ok(())
        }
        fn top(&mut self, _: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
            if key == "baseTimeNanoseconds" {
                self.0 = value.get().parse().unwrap_or(0);
            }
            Ok(())
        }
    }
    if files.len() == 1 {
        return Ok(vec![0]);
    }
    let mut bases = Vec::new();
    for path in files {
        let mut base = Base(0);
        read_any(open(path)?, &mut base).map_err(|e| unreadable(path, e))?;
        bases.push(base.0);
    }
    let first = bases.first().copied().unwrap_or(0);
    Ok(bases.iter().map(|base| base.saturating_sub(first)).collect())
}
