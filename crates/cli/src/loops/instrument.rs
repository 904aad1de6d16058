//! `counterpoint loops instrument`: reads LLVM IR and writes instrumented LLVM IR.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ir::choice::Options;
use ir::error::IrError;
use ir::instrument::instrument;
use ir::schedule::Schedule;

use crate::failure::Failure;
use crate::input::{Input, is_standard};
use crate::selection::{Selection, summary};
use crate::terminal::{Kind, note};
use crate::whole::WholeFile;

/// Instrument the loops and functions of LLVM IR text.
///
/// Reads the text that a compiler prints (clang -S -emit-llvm, rustc --emit=llvm-ir, TVM's
/// inspect_source("ll"); LLVM 15 or later), and writes the same text with code that counts and
/// times its loops. Compile the result with the compiler that made the text, and run the program
/// under `counterpoint run --loops`. Without Counterpoint the program runs as before.
///
/// Without options, this instruments outermost loops, loops inside of one or two other loops if
/// they contain loops themselves, and each function with such a loop.
#[derive(clap::Args)]
pub struct Args {
    /// The text of LLVM IR to read. `-` is standard input.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// File to write [default: NAME.lwp.ll for NAME.ll]. `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// The target, for a text that does not name one, such as x86_64-linux-gnu or aarch64-linux-gnu.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The loops of the TVM schedule that the text was compiled from, as `counterpoint.tvm.loops`
    /// writes them. It says which loops are instrumented, instead of --max-depth, --min-height and
    /// --siblings.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["max_depth", "min_height", "siblings"])]
    schedule: Option<PathBuf>,
    /// File for the side table, which says what each id is [default: NAME.loops.json for an output
    /// NAME.ll]. The table is also a part of the output.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let input = Input::open(&args.input)?;
    let mut text = Vec::new();
    input
        .read()
        .read_to_end(&mut text)
        .map_err(|e| Failure::new(format!("read {}: {e}", input.name())))?;
    let output = args.output.clone().unwrap_or_else(|| beside(&args.input, "lwp.ll"));
    let table = args
        .table
        .clone()
        .or_else(|| (!is_standard(&output)).then(|| beside(&output, "loops.json")));
    for (written, other) in [
        (Some(&output), Some(&args.input)),
        (table.as_ref(), Some(&args.input)),
        (table.as_ref(), Some(&output)),
    ] {
        if let (Some(written), Some(other)) = (written, other)
            && same_file(written, other)
        {
            let (written, other) = (written.display(), other.display());
            return Err(Failure::new(format!("write {written}: it is the same file as {other}")));
        }
    }
    let filter = |name: &str| args.selection.names(name);
    let schedule = args.schedule.as_deref().map(schedule).transpose()?;
    let options = Options {
        schedule: schedule.as_ref(),
        filter: args.selection.has_filter().then_some(&filter),
        target: args.target.as_deref(),
        source: input.name(),
        ..args.selection.options()
    };
    let done = instrument(&text, &options).map_err(|e| failed(input.name(), e))?;
    write(&output, &done.text)?;
    if let Some(table) = &table {
        write(table, format!("{}\n", done.json).as_bytes())?;
    }
    note!("{}", summary(done.counts, &done.table.skipped, &output, args.selection.mode));
    Ok(ExitCode::SUCCESS)
}

fn schedule(path: &Path) -> Result<Schedule, Failure> {
    let input = Input::open(path)?;
    let mut text = Vec::new();
    let failed =
        |why: &dyn std::fmt::Display| Failure::new(format!("--schedule {}: {why}", input.name()));
    input.read().read_to_end(&mut text).map_err(|e| failed(&e))?;
    Schedule::from_json(&text).map_err(|e| failed(&e))
}

/// Returns `path` with its extension replaced by `ending`. The path `-` is returned unchanged.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    if is_standard(path) { path.to_owned() } else { path.with_extension(ending) }
}

/// Whether two paths name the same file. The path `-` (standard input or output) names no file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    !is_standard(a) && !is_standard(b) && real(a) == real(b)
}

pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |e| Failure::writing(path, e);
    let mut file = WholeFile::create(path, Kind::Lines).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.finish().map_err(failed)
}

fn failed(name: &str, error: IrError) -> Failure {
    let hint = match &error {
        IrError::Other("LLVM bitcode") => Some("llvm-dis of the same LLVM makes text of it"),
        IrError::Other("MLIR bytecode") | IrError::Other("an ELF file") | IrError::Unknown(_) => {
            Some("clang -S -emit-llvm and rustc --emit=llvm-ir write the text of LLVM IR")
        }
        IrError::Truncated { .. } => Some("is the file complete?"),
        IrError::TypedPointers { .. } => Some("use LLVM 15 or later to make the text"),
        IrError::NoTarget => Some("say what it is for, as in --target x86_64-linux-gnu"),
        IrError::Instrumented(_) => Some("instrument the text that the compiler wrote"),
        _ => None,
    };
    let failure = Failure::new(format!("{name}: {error}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
