//! `counterpoint trace import`: makes a profile from the traces of other programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use profile::Manifest;
use trace::chrome::event::{Event, Raw};
use trace::chrome::read::{EventSink, ReadError};
use trace::import::trace::{Import, OneTrace, is_of_counterpoint};
use trace::import::{Imported, read_any};

use crate::failure::Failure;
use crate::input::{self, Input, at_most_one_standard};
use crate::prepare::{DirectoryLock, make_way};
use crate::stage::Stage;
use crate::terminal::{note, progress, say};
use crate::view::rights::{Needs, confine};
use crate::view::units::plural;
use crate::whole::directory;

/// Make a profile from traces of other programs: Chrome JSON, as torch, Kineto and TensorFlow write
/// it, Perfetto's format, or what IREE's own profiler recorded.
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
    /// Add what IREE's profiler recorded (`iree-profile export --format=ireeperf-jsonl`) to this
    /// profile of the same run, on its clock. Each dispatch of the file is found among those of the
    /// profile.
    #[arg(long, value_name = "PROFILE", conflicts_with = "output", value_parser = input::profile())]
    into: Option<PathBuf>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    at_most_one_standard(args.files.iter().map(PathBuf::as_path))?;
    let files = args.files.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(profile) = &args.into {
        return super::into::main(&files, profile);
    }
    let output = &args.output;
    let failed = |e| Failure::new(format!("create {}: {e}", output.display()));
    fs::create_dir_all(directory(output)).map_err(failed)?;
    let stage = Stage::create(directory(output)).map_err(failed)?;
    // Only a new thread gives up its rights, because the calling thread still has to move the
    // finished profile to its place.
    let done = thread::scope(|scope| {
        let importing = scope.spawn(|| {
            confine(None, &Needs { made: Some(stage.path()), ..Needs::default() });
            import(&files, stage.path(), &shifts(&files)?, Whose::NotOurs)
        });
        importing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let lock = DirectoryLock::wait(output);
    make_way(output, &lock)?;
    fs::rename(stage.path(), output).map_err(failed)?;
    drop(lock);
    let more = [(done.spans, "asynchronous span"), (done.samples, "value of a counter")];
    let more = more.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| match (n, what) {
        (n, "value of a counter") if n > 1 => format!(", {n} values of counters"),
        (n, what) => format!(", {}", plural(n.into(), what)),
    });
    note!(
        "{}, including {}{}, in {}",
        plural(done.events.into(), "event"),
        plural(done.calls.into(), "call"),
        more.collect::<String>(),
        output.display()
    );
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The trace is accepted, whichever program has written it.
    Anybodys,
    /// A trace that Counterpoint exported is refused, because the profile from which it was
    /// exported contains more data.
    NotOurs,
}

/// Passes the contents of a trace file on to `trace`, and fails if `whose` does not allow this
/// file.
struct Accepted<'a, 'b> {
    trace: &'a mut OneTrace<'b>,
    whose: Whose,
    refused: bool,
}

impl EventSink for Accepted<'_, '_> {
    fn event(&mut self, at: u64, event: &Event<'_>) -> Result<(), String> {
        self.trace.event(at, event)
    }

    fn top(&mut self, at: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        self.refused = self.whose == Whose::NotOurs
            && value.parse().is_ok_and(|value| is_of_counterpoint(key, &value));
        match self.refused {
            true => Err(format!("Counterpoint wrote this trace, as its key \"{key}\" says")),
            false => self.trace.top(at, key, value),
        }
    }
}

/// Makes a profile from the traces. `shifts` are the offsets that [`shifts`] returned.
pub fn import(
    files: &[Input],
    output: &Path,
    shifts: &[i64],
    whose: Whose,
) -> Result<Imported, Failure> {
    let mut manifest = Manifest::new();
    manifest.program_version = env!("CARGO_PKG_VERSION").to_owned();
    let command = ["counterpoint", "trace", "import"].map(str::to_owned).into_iter();
    manifest.command = command.chain(files.iter().map(|f| f.name().to_owned())).collect();
    manifest.working_directory = std::env::current_dir().unwrap_or_default().display().to_string();
    let mut all = Import::create(output, manifest).map_err(Failure::new)?;
    for (number, (file, shift)) in files.iter().zip(shifts).enumerate() {
        let mut trace = all.trace(&format!("chrome-{number}"), *shift).map_err(Failure::new)?;
        let mut sink = Accepted { trace: &mut trace, whose, refused: false };
        progress::phase(progress::reading(format!("reading {}", file.name()), file.bytes()));
        let summary = read_any(&mut file.read(), &mut sink).map_err(|e| match sink.refused {
            true => unreadable(file, e).hint(
                "the profile that it was exported from has more in it: use that profile; \
                 `counterpoint merge A.cpt B.cpt -o ALL.cpt` makes one profile of several",
            ),
            false => unreadable(file, e),
        })?;
        if summary.truncated {
            say!("{}: is truncated after byte {}", file.name(), summary.bytes);
        }
        trace.finish(file.name(), &summary).map_err(Failure::new)?;
    }
    all.finish().map_err(Failure::new)
}

fn unreadable(file: &Input, error: ReadError) -> Failure {
    Failure::new(format!("read {}: {error}", file.name()))
}

/// Returns, for each file, the offset in ns that converts its times to those of the first file. A
/// file may store the base of its times after its events. So if there are several files, each is
/// read twice: here for the base, and later for the events.
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
