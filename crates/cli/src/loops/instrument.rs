//! `counterpoint loops instrument`: LLVM IR in, instrumented LLVM IR out.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ir::choice::{Functions, Options};
use ir::error::IrError;
use ir::instrument::{Counts, Instrumented, instrument};

use crate::failure::Failure;
use crate::input::{Input, is_standard};
use crate::terminal::{Kind, say};
use crate::whole::WholeFile;

/// Instrument the loops and functions of LLVM IR text.
///
/// Reads the text that a compiler prints (clang -S -emit-llvm, rustc --emit=llvm-ir, TVM's
/// inspect_source("ll"); LLVM 15 or later), and writes the same text with code that counts and
/// times its loops. Compile the result with the compiler that made the text, and run the program
/// under `counterpoint run --loops`. Without Counterpoint the program runs as before.
///
/// Without options, outermost loops are instrumented, and loops inside of one or two others unless
/// they are innermost. Each function with such a loop is instrumented, too.
#[derive(clap::Args)]
pub struct Args {
    /// The text of LLVM IR to read. `-` is standard input.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// File to write [default: NAME.lwp.ll for NAME.ll]. `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How hits are recorded. `sampled` counts every hit and times the first 100 and then random
    /// ones; `timed` times every hit; `count` times none; `log` calls the runtime at each begin
    /// and end.
    #[arg(long, value_enum, default_value_t = Mode::Sampled)]
    mode: Mode,
    /// Leave out loops with more than N loops around them: 0 takes outermost loops only [default:
    /// 2, or no limit with --siblings].
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,
    /// Leave out loops with fewer than N levels of loops inside: 0 takes innermost loops, too
    /// [default: 1, but outermost loops are always taken].
    #[arg(long, value_name = "N")]
    min_height: Option<u32>,
    /// Take only loops that have siblings: other loops directly in the same loop or function.
    #[arg(long)]
    siblings: bool,
    /// Instrument all functions, also those without an instrumented loop.
    #[arg(long, conflicts_with = "no_functions")]
    functions: bool,
    /// Instrument loops only.
    #[arg(long)]
    no_functions: bool,
    /// Only functions whose name matches, as the text has it: `*` is any text, `?` one character.
    /// May be given several times.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
    /// The target of a text that names none, such as x86_64-linux-gnu or aarch64-linux-gnu.
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// File for the side table, which says what each id is [default: NAME.loops.json for an output
    /// NAME.ll]. The table is also a part of the output.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

/// How hits are recorded.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mode {
    Sampled,
    Timed,
    Count,
    Log,
}

impl From<Mode> for abi::loops::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Sampled => Self::Sampled,
            Mode::Timed => Self::Timed,
            Mode::Count => Self::Count,
            Mode::Log => Self::Log,
        }
    }
}

/// Instruments a text.
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
    let filter = |name: &str| args.filter.iter().any(|glob| model::glob::matches(glob, name));
    let options = Options {
        mode: args.mode.into(),
        max_depth: args.max_depth,
        min_height: args.min_height,
        siblings: args.siblings,
        functions: match (args.functions, args.no_functions) {
            (true, _) => Functions::All,
            (_, true) => Functions::None,
            _ => Functions::WithLoops,
        },
        filter: if args.filter.is_empty() { None } else { Some(&filter) },
        target: args.target.as_deref(),
        source: input.name(),
    };
    let done = instrument(&text, &options).map_err(|e| failed(input.name(), e))?;
    write(&output, &done.text)?;
    if let Some(table) = &table {
        write(table, format!("{}\n", done.json).as_bytes())?;
    }
    say!("{}", summary(&done, &output, args.mode));
    Ok(ExitCode::SUCCESS)
}

/// The file beside another one whose last ending is replaced; `-` stays.
fn beside(path: &Path, ending: &str) -> PathBuf {
    if is_standard(path) { path.to_owned() } else { path.with_extension(ending) }
}

/// Whether two names are of one file. Standard input and output are not files.
fn same_file(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    !is_standard(a) && !is_standard(b) && real(a) == real(b)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |e| Failure::writing(path, e);
    let mut file = WholeFile::create(path, Kind::Lines).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.finish().map_err(failed)
}

/// An error of the instrumenter, with advice.
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

/// `1 loop`, `2 loops`.
fn number(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// What was done and what was not, in a line.
fn summary(done: &Instrumented, output: &Path, mode: Mode) -> String {
    let Counts { instrumented_functions, instrumented_loops, left_loops, left_functions, .. } =
        done.counts;
    let mode = abi::loops::Mode::from(mode).name();
    let mut line = format!(
        "instrumented {} and {} ({mode}) in {}",
        number(instrumented_functions, "function"),
        number(instrumented_loops, "loop"),
        if is_standard(output) {
            "standard output".to_owned()
        } else {
            output.display().to_string()
        },
    );
    let mut left = Vec::new();
    if left_loops > 0 {
        left.push(format!("{} by depth or height", number(left_loops, "loop")));
    }
    if left_functions > 0 {
        left.push(format!("{} by name", number(left_functions, "function")));
    }
    if !left.is_empty() {
        line += &format!("; left out: {}", left.join(", "));
    }
    let mut reasons: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for skipped in &done.table.skipped {
        *reasons.entry((&skipped.why, skipped.label.is_some())).or_default() += 1;
    }
    if !reasons.is_empty() {
        let reasons: Vec<String> = reasons
            .into_iter()
            .map(|((why, within), count)| {
                format!("{} ({why})", number(count, if within { "loop" } else { "function" }))
            })
            .collect();
        line += &format!("; skipped: {}", reasons.join(", "));
    }
    line
}
