//! Finds iree-compile and runs it twice: the two steps of `loops compile-iree`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::Failure;

/// The phase of iree-compile after which the first step stops, and from which the second step
/// continues.
const PHASE: &str = "executable-targets";
/// The flag that adds locations in the model's source to the text that iree-compile prints. The
/// line numbers of loops, and the debug information of the compiled code, come from these
/// locations.
const LOCATIONS: &str = "--mlir-print-debuginfo";
/// The flags that select the CPU as target.
const CPU: [&str; 2] =
    ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"];
/// The names of flags that select a target: if the user gives one of them, [`CPU`] is not added.
const SELECTS: [&str; 3] =
    ["iree-hal-target-device", "iree-hal-target-backends", "iree-hal-local-target-device-backends"];
const VARIABLE: &str = "IREE_COMPILE";

/// The flags for both steps.
pub struct Flags {
    all: Vec<OsString>,
    locations: bool,
}

impl Flags {
    /// Adds [`CPU`] if none of the user's flags selects a target. Returns an error for a flag that
    /// Counterpoint itself sets, or with which the two steps cannot work.
    pub fn new(given: &[OsString]) -> Result<Self, Failure> {
        let mut all = given.to_vec();
        for flag in given {
            let (name, _) = split(flag);
            let ours = match name.as_str() {
                "compile-to" | "compile-from" => "it selects the steps",
                "o" => "the output is given before --",
                "mlir-print-op-generic" => "the generic form of the text cannot be read",
                "emit-mlir-bytecode" => "the instrumenter reads text",
                "h" | "help" | "help-hidden" | "help-list" | "help-list-hidden" | "version" => {
                    "it compiles nothing"
                }
                _ => continue,
            };
            let flag = flag.to_string_lossy();
            return Err(Failure::new(format!("iree-compile flag {flag} cannot be used: {ours}")));
        }
        if !given.iter().any(|flag| SELECTS.contains(&split(flag).0.as_str())) {
            all.extend(CPU.map(OsString::from));
        }
        let locations = given.iter().any(|flag| format!("--{}", split(flag).0) == LOCATIONS);
        Ok(Self { all, locations })
    }
}

/// Splits a flag into its name, without dashes, and its value.
fn split(flag: &OsStr) -> (String, Option<String>) {
    let flag = flag.to_string_lossy();
    let Some(name) = flag.strip_prefix("--").or_else(|| flag.strip_prefix('-')) else {
        return (String::new(), None);
    };
    match name.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (name.to_owned(), None),
    }
}

pub struct Compiler {
    program: PathBuf,
}

impl Compiler {
    /// Finds iree-compile: the program that `IREE_COMPILE` names, or else the first one in `PATH`,
    /// in the active Python environment, or in the package `iree.compiler`.
    pub fn find() -> Result<Self, Failure> {
        if let Some(named) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            let program = PathBuf::from(named);
            // A name without a directory is looked up in PATH.
            return match program.components().count() > 1 || in_path(&program).is_some() {
                true => Ok(Self { program }),
                false => Err(Failure::new(format!(
                    "{VARIABLE}={}: no such program in PATH",
                    program.display()
                ))),
            };
        }
        let program = in_path(Path::new("iree-compile")).or_else(in_environment).or_else(in_python);
        program.map(|program| Self { program }).ok_or_else(|| {
            Failure::new(format!(
                "iree-compile was not found: not in PATH, not in {VARIABLE}, and python3 has no \
                 package iree.compiler"
            ))
            .hint(format!(
                "pip install iree-base-compiler, or set {VARIABLE} to the path of iree-compile"
            ))
        })
    }

    /// Runs the first step: compiles the model to the text of its executables.
    pub fn first(&self, model: &Path, flags: &Flags) -> Result<Vec<u8>, Failure> {
        if let Err(e) = std::fs::metadata(model) {
            return Err(Failure::new(format!("read {}: {e}", model.display())));
        }
        let mut command = Command::new(&self.program);
        // A model file whose name begins with a dash must not be read as a flag.
        let dashed = model.as_os_str().as_encoded_bytes().starts_with(b"-");
        command.arg(if dashed { Path::new(".").join(model) } else { model.to_owned() });
        command.args(&flags.all);
        command.arg(format!("--compile-to={PHASE}"));
        if !flags.locations {
            command.arg(LOCATIONS);
        }
        command.args(["-o", "-"]).stdin(Stdio::null());
        self.run(command, None, &format!("{} to {PHASE}", model.display()))
    }

    /// Runs the second step: compiles the instrumented text to the module.
    pub fn second(&self, text: Vec<u8>, model: &str, flags: &Flags) -> Result<Vec<u8>, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("-").args(&flags.all).arg(format!("--compile-from={PHASE}"));
        command.args(["-o", "-"]).stdin(Stdio::piped());
        self.run(command, Some(text), &format!("{model} from {PHASE}, instrumented"))
    }

    /// Runs a step and returns what it writes to standard output.
    fn run(
        &self,
        mut command: Command,
        input: Option<Vec<u8>>,
        what: &str,
    ) -> Result<Vec<u8>, Failure> {
        let program = self.program.display().to_string();
        let failed =
            |why: &dyn std::fmt::Display| Failure::new(format!("{program}: compile {what}: {why}"));
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| failed(&e))?;
        // A separate thread writes the input, because iree-compile may write output before it has
        // read all of its input.
        let feeder = child.stdin.take().zip(input).map(|(mut pipe, input)| {
            std::thread::spawn(move || -> io::Result<()> { pipe.write_all(&input) })
        });
        let mut output = Vec::new();
        let read = match child.stdout.take() {
            Some(mut pipe) => pipe.read_to_end(&mut output).map(|_| ()),
            None => Ok(()),
        };
        let status = child.wait().map_err(|e| failed(&e))?;
        let fed = feeder.map_or(Ok(()), |feeder| feeder.join().unwrap_or(Ok(())));
        if !status.success() {
            return Err(failed(&ended(status)));
        }
        read.and(fed).map_err(|e| failed(&e))?;
        if output.is_empty() {
            return Err(failed(&"it succeeded, but wrote nothing to its standard output"));
        }
        Ok(output)
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code} (its messages are above)"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "it ended without a status".to_owned(),
    }
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

/// Finds iree-compile in the active Python environment (venv or Conda).
fn in_environment() -> Option<PathBuf> {
    let folders = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    folders
        .map(|folder| PathBuf::from(folder).join("bin/iree-compile"))
        .find(|file| is_program(file))
}

/// Finds iree-compile in the package `iree.compiler` of the `python3` in PATH.
fn in_python() -> Option<PathBuf> {
    const SAY: &str = "import os, iree.compiler._mlir_libs as m; \
                       print(os.path.join(list(m.__path__)[0], 'iree-compile'))";
    let found = Command::new("python3").args(["-c", SAY]).stderr(Stdio::null()).output().ok()?;
    let file = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim_end().to_owned());
    (found.status.success() && is_program(&file)).then_some(file)
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
