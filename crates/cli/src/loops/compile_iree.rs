//! `counterpoint loops compile-iree`: compiles a model to a module of IREE with instrumented loops.
//!
//! ```text
//!  iree-compile --compile-to=executable-targets ─► MLIR's llvm dialect ─► ir::mlir::instrument
//!                                                        │                        │
//!                       NAME.loops.mlir ◄────────────────┘       NAME.loops.json ◄┤
//!  iree-compile --compile-from=executable-targets ◄───────────────────────────────┘
//!       └─► NAME.vmfb
//! ```
//!
//! The text passes between the steps through pipes, so no files remain if a step fails or is
//! killed. The output files are written only after both steps have succeeded.

mod compiler;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use ir::choice::Options;
use ir::error::IrError;
use ir::mlir::instrument::instrument;

use self::compiler::{Compiler, Flags};
use super::instrument::{beside, same_file, write};
use crate::failure::Failure;
use crate::input::is_standard;
use crate::selection::{Selection, summary};
use crate::terminal::note;

/// Compile a model for IREE with instrumented loops.
///
/// Runs iree-compile in two steps, and instruments the text of MLIR's llvm dialect between them.
/// The result is a module like any other: run it under `counterpoint run --loops` to find out what
/// its loops do, or without Counterpoint. Flags of iree-compile follow after `--`. Without a flag
/// that selects a device, the target is the CPU.
///
/// iree-compile is the program that the variable IREE_COMPILE names, or the one in PATH, or that of
/// the Python package iree-base-compiler. Version 3.13 is tested.
#[derive(clap::Args)]
pub struct Args {
    /// The model: a file that iree-compile reads.
    #[arg(value_name = "MODEL")]
    input: PathBuf,
    /// File to write [default: NAME.vmfb for NAME.mlir].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// File for the side tables, which say what each id is: one line for each executable [default:
    /// NAME.loops.json for an output NAME.vmfb]. The tables are also a part of the output.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// File for the text that was instrumented, to which the lines in the side tables refer
    /// [default: NAME.loops.mlir for an output NAME.vmfb].
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Flags of iree-compile.
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<OsString>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    if is_standard(&args.input) || args.output.as_ref().is_some_and(|path| is_standard(path)) {
        return Err(Failure::new("the model and the module must be files, not -"));
    }
    let output = args.output.clone().unwrap_or_else(|| args.input.with_extension("vmfb"));
    let table = args.table.clone().unwrap_or_else(|| beside(&output, "loops.json"));
    let kept = args.text.clone().unwrap_or_else(|| beside(&output, "loops.mlir"));
    let files = [&args.input, &output, &table, &kept];
    for (i, written) in files.iter().enumerate().skip(1) {
        if let Some(other) = files[..i].iter().find(|other| same_file(written, other)) {
            let (written, other) = (written.display(), other.display());
            return Err(Failure::new(format!("write {written}: it is the same file as {other}")));
        }
    }
    let flags = Flags::new(&args.flags)?;
    let compiler = Compiler::find()?;
    let text = compiler.first(&args.input, &flags)?;
    let source = kept.display().to_string();
    let filter = |name: &str| args.selection.names(name);
    let options = Options {
        filter: args.selection.has_filter().then_some(&filter),
        source: &source,
        ..args.selection.options()
    };
    let model = args.input.display().to_string();
    let done = instrument(&text, &options).map_err(|e| failed(&model, &e))?;
    let module = compiler.second(done.text, &model, &flags)?;
    write(&kept, &text)?;
    write(&table, done.json.iter().map(|json| format!("{json}\n")).collect::<String>().as_bytes())?;
    write(&output, &module)?;
    let mut skipped: Vec<_> = done.tables.into_iter().flat_map(|table| table.skipped).collect();
    skipped.extend(done.skipped);
    note!("{}", summary(done.counts, &skipped, &output, args.selection.mode));
    Ok(ExitCode::SUCCESS)
}

fn failed(model: &str, error: &IrError) -> Failure {
    let failure = Failure::new(format!("{model}: instrument the text of iree-compile: {error}"));
    match error {
        IrError::NoFunctions => failure.hint(
            "only executables for CPUs (llvm-cpu) can be instrumented; their flags are \
             --iree-hal-target-device=local --iree-hal-local-target-device-backends=llvm-cpu",
        ),
        IrError::Instrumented(_) => failure.hint("compile the model that is not instrumented"),
        _ => failure,
    }
}
