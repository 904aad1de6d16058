//! Compiles source files in two steps (to LLVM IR, and from the instrumented IR to an object), and
//! links the objects.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::arguments::{Line, Source, Steps};
use crate::compiler::{Ended, Text, assemble, first_error, instrumented, passed_on, status, step};
use crate::failure::Failure;
use crate::selection::Selection;
use crate::temporary::Temporary;
use crate::terminal::say;

pub enum Done {
    Ended(ExitCode),
    /// A source file cannot be compiled in two steps.
    Untouched,
}

/// Compiles all source files, and links the objects if the command line asks for it. As with clang,
/// the other files are compiled even if one file has an error.
pub fn run(compiler: &Path, line: &Line, steps: &Steps) -> Result<Done, Failure> {
    let selection = Selection::from_variable().map_err(|failure| failure.exit_code(1))?;
    let folder = if steps.links { Some(Temporary::new()?) } else { None };
    let mut objects: Vec<PathBuf> = Vec::new();
    let mut messages = Vec::new();
    let mut error = None;
    for (number, source) in steps.sources.iter().enumerate() {
        let object = match (&source.object, &folder) {
            (Some(object), _) => object.clone(),
            // The object's name contains the name of the source, because the linker shows the
            // object's name in messages about undefined symbols.
            (None, folder) => {
                let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
                let folder = folder.as_ref().map_or(Path::new("."), |folder| folder.path());
                folder.join(format!("{stem}-{number}.o"))
            }
        };
        match compile(compiler, line, source, steps.links, &object, &selection)? {
            Object::Made(said) => messages.extend(said),
            Object::Error(ended) => {
                messages.extend(ended.messages);
                error = error.or(Some(ended.status));
                remove(&object);
            }
            Object::Untouched => return Ok(Done::Untouched),
        }
        objects.push(object);
    }
    // `messages` come from clang and may be coloured, so their control characters are not escaped.
    let _ = std::io::stderr().write_all(&messages);
    if let Some(status) = error {
        return Ok(Done::Ended(passed_on(status)));
    }
    if !steps.links {
        return Ok(Done::Ended(ExitCode::SUCCESS));
    }
    let mut linker = Command::new(compiler);
    linker.args(line.linking(steps, &objects));
    Ok(Done::Ended(passed_on(status(linker).map_err(|e| failed(compiler, &e))?)))
}

enum Object {
    Made(Vec<u8>),
    Error(Ended),
    /// Even with IR that is not instrumented, the second step fails or prints a message that the
    /// first step did not print.
    Untouched,
}

fn compile(
    compiler: &Path,
    line: &Line,
    source: &Source,
    links: bool,
    object: &Path,
    selection: &Selection,
) -> Result<Object, Failure> {
    let mut first = Command::new(compiler);
    first.args(colours()).args(line.first(source, links));
    let first = step(first, None).map_err(|e| failed(compiler, &e))?;
    if !first.status.success() {
        return Ok(Object::Error(first));
    }
    let named = source.path.display().to_string();
    let left = |why: &str| say!("not instrumented: {named}: {why}");
    let text = match instrumented(&first.output, &format!("{named} (LLVM IR)"), selection) {
        Text::Instrumented(text, line) => {
            if let Some(line) = line {
                say!("{line}");
            }
            Some(text)
        }
        Text::NoLoops => None,
        Text::Cannot(why) => {
            left(&why);
            None
        }
    };
    let mut flags: Vec<OsString> = colours().map(OsString::from).collect();
    flags.extend(line.second());
    let second = |text: &[u8]| {
        step(assemble(compiler, &flags, object), Some(text)).map_err(|e| failed(compiler, &e))
    };
    let accepted = |ended: &Ended| ended.status.success() && !says_more(ended, &first);
    if let Some(text) = text {
        let ended = second(&text)?;
        if accepted(&ended) {
            return Ok(Object::Made(first.messages));
        }
        left(&format!("the compiler does not accept it: {}", first_error(&ended.messages)));
    }
    // Try the IR without instrumentation.
    if accepted(&second(&first.output)?) {
        return Ok(Object::Made(first.messages));
    }
    remove(object);
    Ok(Object::Untouched)
}

fn says_more(second: &Ended, first: &Ended) -> bool {
    let lines = |ended: &Ended| {
        let text = String::from_utf8_lossy(&ended.messages).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let said = lines(first);
    lines(second).iter().any(|line| !said.contains(line) && !line.ends_with(" generated."))
}

/// Makes clang colour its messages if stderr is a terminal and `TERM` names a terminal other than
/// `dumb`. Clang cannot find this out, because its own stderr is a pipe to this process. The user's
/// options come later, so they take precedence.
fn colours() -> impl Iterator<Item = &'static str> {
    let able = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    (able && std::io::stderr().is_terminal()).then_some("-fcolor-diagnostics").into_iter()
}

/// Removes the object after a failure, as clang does. A file that is not regular is kept.
fn remove(object: &Path) {
    if std::fs::metadata(object).is_ok_and(|about| about.is_file()) {
        let _ = std::fs::remove_file(object);
    }
}

fn failed(compiler: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("run {}: {error}", compiler.display())).exit_code(1)
}
