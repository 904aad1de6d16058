//! `counterpoint trace import`: makes a profile of what other programs recorded.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use profile::Manifest;
use trace::chrome::event::{Event, Raw};
use trace::chrome::read::{EventSink, ReadError, ReadSummary};
use trace::import::own::Restore;
use trace::import::trace::{Import, OwnOrigin};
use trace::import::{Imported, read_any};
use trace::round_trip::head::OwnHead;

use crate::failure::Failure;
use crate::input::{self, Input, at_most_one_standard};
use crate::prepare::{Turn, make_way};
use crate::terminal::say;
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;

/// Make a profile from traces: Chrome JSON, as torch, Kineto, TensorFlow and `trace export` write
/// it, or Perfetto's format.
///
/// Files may be compressed with gzip. Slices and asynchronous spans become calls, and counters
/// become tracks; report, stats and export work on them. Everything else is kept, and
/// `trace export` writes it again. Several files become one profile, aligned by their base
/// times. docs/traces.md has the details.
#[derive(clap::Args)]
pub struct Args {
    /// Trace files; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Profile directory to create. An existing profile is moved to DIR.old.
    #[arg(short, long, default_value = "counterpoint.cpt", value_name = "DIR",
          value_parser = input::profile())]
    output: PathBuf,
}

/// Makes the profile.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    at_most_one_standard(args.files.iter().map(PathBuf::as_path))?;
    // Open all files first: if one cannot be opened, an earlier profile must keep its place.
    let files = args.files.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
    let shifts = shifts(&files)?;
    let turn = Turn::wait(&args.output);
    make_way(&args.output, &turn)?;
    let output = &args.output;
    fs::create_dir_all(output)
        .map_err(|e| Failure::new(format!("create {}: {e}", output.display())))?;
    drop(turn);
    confine(None, &Needs { made: Some(output), ..Needs::default() });
    match import(&args, &files, &shifts) {
        Ok((done, ours)) => {
            let (events, calls) = (done.events.into(), done.calls.into());
            let more = [(done.spans, "asynchronous span"), (done.samples, "value of a counter")];
            let more = more.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| match (n, what) {
                (n, "value of a counter") if n > 1 => format!(", {n} values of counters"),
                (n, what) => format!(", {}", plural(n.into(), what)),
            });
            let more = more.collect::<String>();
            let ours = if ours { "; this is the profile that was exported" } else { "" };
            say!(
                "{}, including {}{more}, in {}{ours}",
                plural(events, "event"),
                plural(calls, "call"),
                output.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            // A part of a trace that looks complete would be worse than none.
            let _ = fs::remove_dir_all(output);
            Err(failure)
        }
    }
}

/// Returns what was imported, and whether it is a profile that `trace export` wrote.
fn import(args: &Args, files: &[Input], shifts: &[i64]) -> Result<(Imported, bool), Failure> {
    if let [file] = files
        && let Some(head) = OwnHead::look(file.read())
        && let Some(done) = restore(args, file, head)?
    {
        return Ok((done, true));
    }
    let Plain { done, late, origins } = plain(files, &args.output, shifts)?;
    refuse_several(files, &origins)?;
    // The document's facts come after the events, and they say that `trace export` wrote this file.
    if let ([file], Some(head)) = (files, late) {
        again(&args.output)?;
        if let Some(done) = restore(args, file, head)? {
            return Ok((done, true));
        }
        return Ok((plain(files, &args.output, shifts)?.done, false));
    }
    Ok((done, false))
}

/// Refuses what would make less of profiles than they are: counters, the names of threads and ranks are
/// only restored from the export of a single profile.
fn refuse_several(files: &[Input], origins: &[OwnOrigin]) -> Result<(), Failure> {
    let each = files.iter().zip(origins);
    let is_alone = files.len() == 1;
    let mut refused = each.filter(|(_, origin)| match origin {
        OwnOrigin::Profile => !is_alone,
        OwnOrigin::Profiles => true,
        OwnOrigin::Other => false,
    });
    let Some((file, origin)) = refused.next() else { return Ok(()) };
    let (what, how) = match origin {
        OwnOrigin::Profiles => ("timeline of several profiles of Counterpoint", ""),
        _ => (
            "timeline of a profile of Counterpoint, which can only be imported alone",
            "import each by itself if the profile is gone, and then ",
        ),
    };
    Err(Failure::new(format!("read {}: it is the {what}", file.name())).hint(format!(
        "{how}merge the profiles, so that counters, threads and ranks are kept: \
         counterpoint merge A.cpt B.cpt -o ALL.cpt"
    )))
}

/// Empties the profile that is being made.
fn again(output: &Path) -> Result<(), Failure> {
    // The directory itself stays: it is the one in which this process may write.
    let empty = || {
        for entry in fs::read_dir(output)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    };
    empty().map_err(|e: io::Error| Failure::new(format!("empty {}: {e}", output.display())))
}

/// Restores the profile that was exported. `None` if its head contradicts itself; the output
/// directory is then empty.
fn restore(args: &Args, file: &Input, head: OwnHead) -> Result<Option<Imported>, Failure> {
    let Ok(mut one) = Restore::create(&args.output, head) else {
        again(&args.output)?;
        return Ok(None);
    };
    let (summary, _) = read_any(&mut file.read(), &mut one).map_err(|e| unreadable(file, e))?;
    stops_early(file, &summary);
    one.finish(&summary).map(Some).map_err(Failure::new)
}

fn stops_early(file: &Input, summary: &ReadSummary) {
    if summary.truncated {
        let at = summary.bytes;
        say!("{}: is truncated after byte {at}", file.name());
    }
}

/// What was made of traces from any program.
pub struct Plain {
    done: Imported,
    /// The head of the last file, if `trace export` wrote it.
    late: Option<OwnHead>,
    /// What each file is.
    origins: Vec<OwnOrigin>,
}

/// Makes a profile of traces from any program. `shifts` comes from [`shifts`].
pub fn plain(files: &[Input], output: &Path, shifts: &[i64]) -> Result<Plain, Failure> {
    let (mut late, mut origins) = (None, Vec::new());
    let mut manifest = Manifest::new();
    manifest.program_version = env!("CARGO_PKG_VERSION").to_owned();
    let command = ["counterpoint", "trace", "import"].map(str::to_owned).into_iter();
    manifest.command = command.chain(files.iter().map(|f| f.name().to_owned())).collect();
    manifest.working_directory = std::env::current_dir().unwrap_or_default().display().to_string();
    let mut all = Import::create(output, manifest).map_err(Failure::new)?;
    for (number, (file, shift)) in files.iter().zip(shifts).enumerate() {
        let mut one = all.trace(&format!("chrome-{number}"), *shift).map_err(Failure::new)?;
        let (summary, perfetto) =
            read_any(&mut file.read(), &mut one).map_err(|e| unreadable(file, e))?;
        stops_early(file, &summary);
        origins.push(one.origin());
        late = one.head().map(|head| OwnHead { whole: perfetto, ..head });
        one.finish(file.name(), &summary).map_err(Failure::new)?;
    }
    Ok(Plain { done: all.finish().map_err(Failure::new)?, late, origins })
}

fn unreadable(file: &Input, error: ReadError) -> Failure {
    Failure::new(format!("read {}: {error}", file.name()))
}

/// The offset in ns from each file's time to the time of the first file. A file may say only after
/// its events what its times count from, so several files are read twice.
pub fn shifts(files: &[Input]) -> Result<Vec<i64>, Failure> {
    struct Base(i64);
    impl EventSink for Base {
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
    for file in files {
        let mut base = Base(0);
        read_any(&mut file.read(), &mut base).map_err(|e| unreadable(file, e))?;
        bases.push(base.0);
    }
    let first = bases.first().copied().unwrap_or(0);
    Ok(bases.iter().map(|base| base.saturating_sub(first)).collect())
}
