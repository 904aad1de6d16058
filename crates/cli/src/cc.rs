//! `counterpoint cc` and `counterpoint c++`: run clang so that the compiled code counts and times
//! its loops.
//!
//! ```text
//!  a command line of clang
//!     │ arguments.rs: what does it ask for?
//!     ├─ no source file is compiled (-E, -M, linking, …) ──────────────► clang, with the same arguments
//!     ├─ something that cannot be instrumented (-S, -flto, …), or an option that is not known: a line ─► clang, with the same arguments
//!     └─ for each source file (compile.rs):
//!          clang … -S -emit-llvm -o -  ─►  text  ─►  ir::instrument  ─►  clang … -x ir - -c -o OBJECT
//!        and, without -c, clang with objects in place of the sources, which links
//! ```
//!
//! A build must never fail because of the instrumentation. If a file's LLVM IR cannot be
//! instrumented, or clang rejects the instrumented IR, the second step (from IR to an object) gets
//! the original IR, and one line says so. If the second step then still fails or prints a message
//! that the first step did not print (a stack frame is too large, the assembler finds an error),
//! clang runs again with the original arguments.

mod arguments;
mod compile;
mod options;

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use self::arguments::{Line, Plan};
use crate::compiler::{Language, end_if_interrupted, find, is_clang};
use crate::failure::Failure;
use crate::selection::Selection;
use crate::terminal::say;

/// Compile C with instrumented loops, in place of clang
///
/// Takes the arguments of clang: CC="counterpoint cc" make. What it compiles counts and times its loops under
/// `counterpoint run --loops`, and runs as before without it. Everything else that clang is asked for is left to
/// clang; if a source file cannot be instrumented, one line says why.
///
/// COUNTERPOINT_CC names the compiler. Without it, clang is used, or else the newest clang-N in PATH.
/// COUNTERPOINT_LOOPS has options of `counterpoint loops instrument`, such as --mode timed.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Arguments of the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<OsString>,
}

/// Compile C++ with instrumented loops, in place of clang++
///
/// As `counterpoint cc`: CXX="counterpoint c++" make. COUNTERPOINT_CXX names the compiler.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct PlusArgs {
    /// Arguments of the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<OsString>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    compile(Language::C, args.words)
}

pub fn plus_main(args: PlusArgs) -> Result<ExitCode, Failure> {
    compile(Language::Plus, args.words)
}

/// Runs `cc` or `c++`. The arguments of these two commands are not parsed as options of
/// Counterpoint, because `--color`, `--help` and `--version` are also options of clang.
pub fn alone(words: &[OsString]) -> Option<Result<ExitCode, Failure>> {
    let language = match words.get(1)?.to_str()? {
        "cc" => Language::C,
        "c++" => Language::Plus,
        _ => return None,
    };
    Some(compile(language, words[2..].to_vec()))
}

fn compile(language: Language, mut words: Vec<OsString>) -> Result<ExitCode, Failure> {
    // If `counterpoint cc` is CMake's launcher (CMAKE_C_COMPILER_LAUNCHER), its first argument is
    // the compiler.
    let named = words.first().filter(|word| is_program(word)).cloned();
    let compiler = match named {
        Some(program) => {
            words.remove(0);
            program.into()
        }
        None => find(language)?,
    };
    let has_sources = Line::read(&words).is_ok_and(|line| line.has_sources());
    if has_sources {
        // A mistake in the variable COUNTERPOINT_LOOPS is an error even if the source files cannot
        // be instrumented.
        Selection::from_variable().map_err(|failure| failure.exit_code(1))?;
    }
    if !is_clang(&compiler) {
        let name = compiler.display();
        if has_sources {
            say!("not instrumented: {name} is not clang, whose text of LLVM IR is instrumented");
        }
        return Err(become_compiler(&compiler, &words));
    }
    let line = match Line::read(&words) {
        Ok(line) => line,
        // Counterpoint cannot read a response file (`@FILE`). Clang gets the same arguments, and
        // reads the file or reports the error.
        Err(_) => return Err(become_compiler(&compiler, &words)),
    };
    let plan = match line.plan() {
        Plan::Compile(steps) => line.stopped_by_files(&steps).unwrap_or(Plan::Compile(steps)),
        plan => plan,
    };
    match plan {
        Plan::Nothing => Err(become_compiler(&compiler, &words)),
        Plan::Cannot(why) => {
            say!("not instrumented: {}: {why}", line.sources());
            Err(become_compiler(&compiler, &words))
        }
        Plan::Compile(steps) => {
            let done = compile::run(&compiler, &line, &steps);
            end_if_interrupted();
            match done? {
                compile::Done::Ended(code) => Ok(code),
                compile::Done::Untouched => Err(become_compiler(&compiler, &words)),
            }
        }
    }
}

fn is_program(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
    ["clang", "clang++", "gcc", "g++", "cc", "c++"].iter().any(|known| {
        stem.strip_suffix(known).is_some_and(|prefix| {
            prefix.is_empty() || prefix.ends_with('-') && !prefix.starts_with('-')
        })
    })
}

/// Replaces this process by the compiler. Returns only if the compiler cannot be started.
fn become_compiler(compiler: &Path, words: &[OsString]) -> Failure {
    let error = Command::new(compiler).args(words).exec();
    Failure::new(format!("start {}: {error}", compiler.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_in_front_is_told_from_arguments() {
        for program in ["clang", "/usr/bin/clang-19", "clang++", "x86_64-linux-gnu-gcc-12", "c++"] {
            assert!(is_program(OsStr::new(program)), "{program}");
        }
        for argument in ["-c", "-cc1", "cc.c", "a.o", "occ", "--version", "", "libgcc.a", "@cc"] {
            assert!(!is_program(OsStr::new(argument)), "{argument}");
        }
    }
}
