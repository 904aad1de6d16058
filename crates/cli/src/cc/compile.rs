//! Compiles source files in two steps, and links what they became.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::arguments::{Line, Source, Steps};
use crate::compiler::{Text, assemble, first_error, instrumented, passed_on, step};
use crate::failure::Failure;
use crate::selection::Selection;
use crate::temporary::Temporary;
use crate::terminal::say;

/// How it ended.
pub enum Done {
    /// With the status of the compiler.
    Ended(ExitCode),
    /// Two steps are impossible. One line said so.
    Untouched,
}

/// Compiles, and links if that was asked for.
pub fn run(compiler: &Path, line: &Line, steps: &Steps) -> Result<Done, Failure> {
    let selection = Selection::from_variable().map_err(|failure| failure.exit_code(1))?;
    let folder = if steps.links { Some(Temporary::new()?) } else { None };
    let mut objects: Vec<PathBuf> = Vec::new();
    for (number, source) in steps.sources.iter().enumerate() {
        let object = match (&source.object, &folder) {
            (Some(object), _) => object.clone(),
            // The name that the linker shows if something is undefined.
            (None, folder) => {
                let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
                let folder = folder.as_ref().map_or(Path::new("."), |folder| folder.path());
                folder.join(format!("{stem}-{number}.o"))
            }
        };
        match compile(compiler, line, source, steps.links, &object, &selection)? {
            Some(done) => return Ok(done),
            None => objects.push(object),
        }
    }
    if !steps.links {
        return Ok(Done::Ended(ExitCode::SUCCESS));
    }
    let linked = Command::new(compiler).args(line.linking(steps, &objects)).status();
    Ok(Done::Ended(passed_on(linked.map_err(|e| failed(compiler, &e))?)))
}

/// Compiles a file to an object. Returns how everything ends, if it does.
fn compile(
    compiler: &Path,
    line: &Line,
    source: &Source,
    links: bool,
    object: &Path,
    selection: &Selection,
) -> Result<Option<Done>, Failure> {
    let mut first = Command::new(compiler);
    first.args(line.first(source, links));
    let first = step(first, None, false).map_err(|e| failed(compiler, &e))?;
    if !first.status.success() {
        return Ok(Some(Done::Ended(passed_on(first.status))));
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
    let flags = line.second();
    let second = |text: &[u8]| {
        step(assemble(compiler, &flags, object), Some(text), true).map_err(|e| failed(compiler, &e))
    };
    if let Some(text) = text {
        let ended = second(&text)?;
        if ended.status.success() {
            return Ok(None);
        }
        left(&format!("the compiler does not accept it: {}", first_error(&ended.messages)));
    }
    // The text as it was: the same code, without saying every warning a second time.
    if second(&first.output)?.status.success() {
        return Ok(None);
    }
    let _ = std::fs::remove_file(object);
    Ok(Some(Done::Untouched))
}

fn failed(compiler: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("run {}: {error}", compiler.display())).exit_code(1)
}
