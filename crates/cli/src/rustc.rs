//! `counterpoint rustc`: runs rustc so that crates count and time their loops. Cargo starts this
//! command instead of rustc if `RUSTC_WORKSPACE_WRAPPER` (for the crates of the workspace) or
//! `RUSTC_WRAPPER` (for all crates) is `counterpoint`.
//!
//! ```text
//!  counterpoint /…/rustc --crate-name x … --emit=link,…
//!     │ rustc/arguments.rs: is it a crate that becomes code? if not, rustc with the same arguments
//!     ▼
//!  rustc … -C codegen-units=1 --emit=llvm-ir=TEXT -C linker=SCRIPT
//!     │   bin, cdylib, dylib: SCRIPT is `counterpoint rustc-link`, which replaces the crate's object and
//!     │                       becomes the linker
//!     ▼   rlib, staticlib:    afterwards, `ar` replaces the object in the archive
//!  TEXT ─► ir::instrument ─► clang -x ir, or llc of rustup's llvm-tools ─► object
//! ```
//!
//! rustc cannot read LLVM IR, so clang (with an LLVM that is at least as new as rustc's) or llc
//! compiles the IR to an object. With one unit of code generation, there is only one file of IR and
//! one object to replace. If a step is impossible, the object that rustc made is kept, and one line
//! says why.

mod arguments;
mod object;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::arguments::{Line, Plan};
use crate::compiler::{end_if_interrupted, passed_on, status};
use crate::failure::Failure;
use crate::selection::Selection;
use crate::temporary::Temporary;
use crate::terminal::say;

/// Compile Rust with instrumented loops, in place of rustc
///
/// Takes the arguments of rustc: RUSTC_WORKSPACE_WRAPPER=counterpoint cargo build --release instruments the
/// crates of the workspace, RUSTC_WRAPPER=counterpoint also those that they depend on. A clang whose LLVM is at least
/// as new as that of rustc must be in PATH (or COUNTERPOINT_CC), or rustup's llvm-tools. Crates that cannot be
/// instrumented are compiled as ever, and one line says why. COUNTERPOINT_LOOPS has options of `counterpoint loops
/// instrument`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Arguments of rustc
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    words: Vec<OsString>,
}

/// `counterpoint rustc-link`: what the script starts in place of the linker.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct LinkArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Compiles a crate with the `rustc` of `PATH`.
pub fn main(args: Args) -> Result<ExitCode, Failure> {
    compile(OsStr::new("rustc"), &args.words)
}

/// Runs `counterpoint rustc` or `rustc-link` if the first argument is a path of rustc or the word
/// `rustc-link`. Otherwise returns `None`. Cargo passes the path of rustc to its wrapper as the
/// first argument.
pub fn alone(words: &[OsString]) -> Option<Result<ExitCode, Failure>> {
    let first = words.get(1)?;
    if first == "rustc-link" {
        return Some(link(&words[2..]));
    }
    let is_rustc = Path::new(first).file_name().is_some_and(|name| name == "rustc");
    is_rustc.then(|| compile(first, &words[2..]))
}

fn compile(rustc: &OsStr, words: &[OsString]) -> Result<ExitCode, Failure> {
    let become_rustc = || {
        let error = Command::new(rustc).args(words).exec();
        Failure::new(format!("start {}: {error}", rustc.to_string_lossy()))
    };
    let Ok(line) = Line::read(words) else { return Err(become_rustc()) };
    let plan = line.plan();
    if !matches!(plan, Plan::Nothing) {
        // A mistake in COUNTERPOINT_LOOPS is an error even if this crate cannot be instrumented.
        Selection::from_variable().map_err(|failure| failure.exit_code(1))?;
    }
    match plan {
        Plan::Nothing => return Err(become_rustc()),
        Plan::Cannot(why) => {
            say!("not instrumented: crate {}: {why}", line.name());
            return Err(become_rustc());
        }
        Plan::Compile => {}
    }
    let llvm = object::llvm(rustc)?;
    let assembler = match object::assembler(rustc, &llvm) {
        Ok(assembler) => assembler,
        Err(why) => {
            say!("not instrumented: crate {}: {why}", line.name());
            return Err(become_rustc());
        }
    };
    let folder = Temporary::new()?;
    let text = folder.path().join("text.ll");
    let mut command = Command::new(rustc);
    command.args(line.first()).args(["-C", "codegen-units=1"]);
    // Without `--emit`, rustc links. With `--emit`, rustc makes only what the option names, so
    // `link` is added unless the user's own `--emit` says what to make.
    let kinds = if line.says_what() { "--emit=llvm-ir=" } else { "--emit=link,llvm-ir=" };
    let mut emit = OsString::from(kinds);
    emit.push(&text);
    command.arg(emit);
    if line.links() {
        let mut linker = OsString::from("-Clinker=");
        linker.push(script(folder.path(), &line, &assembler)?);
        command.arg(linker);
    }
    let status = match status(command) {
        Ok(status) => status,
        Err(e) => {
            drop(folder);
            end_if_interrupted();
            return Err(Failure::new(format!("start {}: {e}", rustc.to_string_lossy())));
        }
    };
    let notes = || object::notes(folder.path()).iter().for_each(|line| say!("{line}"));
    if !status.success() {
        notes();
        return Ok(passed_on(status));
    }
    for archive in line.archives() {
        if let Err(why) = object::replace(&archive, folder.path(), &line.name(), &assembler) {
            say!("not instrumented: {}: {why}", archive.display());
        }
    }
    notes();
    drop(folder);
    end_if_interrupted();
    Ok(ExitCode::SUCCESS)
}

/// Writes the script that rustc starts as its linker. The script has the file name of the linker,
/// because rustc infers from this name which options the linker takes.
fn script(folder: &Path, line: &Line, assembler: &object::Assembler) -> Result<PathBuf, Failure> {
    let linker = line.linker();
    let name = Path::new(&linker).file_name().unwrap_or(OsStr::new("cc"));
    let bin = folder.join("bin");
    let path = bin.join(name);
    let quoted = |text: &OsStr| format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"));
    let failed = |e: std::io::Error| Failure::new(format!("write {}: {e}", path.display()));
    let own = std::env::current_exe().map_err(failed)?;
    let words: Vec<String> =
        [own.as_os_str(), "rustc-link".as_ref(), folder.as_os_str(), line.name().as_ref()]
            .into_iter()
            .chain([assembler.kind().as_ref(), assembler.program().as_os_str(), &linker])
            .map(quoted)
            .collect();
    fs::create_dir_all(&bin).map_err(failed)?;
    fs::write(&path, format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    Ok(path)
}

/// Overwrites the crate's object file, which is one of the linker's arguments, with the
/// instrumented object. Then replaces this process by the linker.
fn link(words: &[OsString]) -> Result<ExitCode, Failure> {
    let [folder, name, kind, program, linker, words @ ..] = words else {
        return Err(Failure::new("rustc-link is for the script that `counterpoint rustc` writes"));
    };
    let name = name.to_string_lossy();
    let assembler = object::Assembler::new(&kind.to_string_lossy(), program.into());
    let folder = Path::new(folder);
    if let Err(why) = object::replace_loose(words, folder, &name, &assembler) {
        object::note(folder, &format!("not instrumented: crate {name}: {why}"));
    }
    let error = Command::new(linker).args(words).exec();
    Err(Failure::new(format!("start {}: {error}", linker.to_string_lossy())))
}

/// Runs `rustc-link` if other words precede it on the command line, so that [`alone`] did not
/// recognize it.
pub fn link_main(args: LinkArgs) -> Result<ExitCode, Failure> {
    link(&args.words)
}
