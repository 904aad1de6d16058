//! Finds the tools of LLVM, and compiles the test programs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses some of it")]

pub mod bench;
pub mod ran;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::Scratch;

/// The versions of LLVM that are looked for, in the order of preference.
const VERSIONS: [u32; 10] = [19, 22, 21, 20, 23, 24, 18, 17, 16, 15];

/// One version of LLVM.
#[derive(Clone, Copy, Debug)]
pub struct Llvm {
    pub version: u32,
}

impl Llvm {
    /// Returns the first LLVM that has all of these tools.
    pub fn with(tools: &[&str]) -> Option<Self> {
        Self::at_least(0, tools)
    }

    /// Returns the first LLVM of at least this version that has all of these tools.
    pub fn at_least(least: u32, tools: &[&str]) -> Option<Self> {
        VERSIONS
            .into_iter()
            .filter(|version| *version >= least)
            .map(|version| Self { version })
            .find(|llvm| tools.iter().all(|tool| llvm.tool(tool).is_some()))
    }

    fn tool(self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}-{}", self.version);
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(&file)).find(|path| path.exists())
    }

    pub fn command(self, name: &str) -> Command {
        Command::new(self.tool(name).expect("this LLVM has the tool"))
    }

    /// Checks a text with `opt -passes=verify`. The error has the objections of `opt`.
    pub fn verify(self, text: &Path) -> Result<(), String> {
        let mut opt = self.command("opt");
        let output = opt.args(["-passes=verify", "-disable-output"]).arg(text).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// Prints that a test is skipped because a tool is not installed on this machine.
pub fn without_llvm(what: &str) {
    testkit::skip("loops and LLVM", &format!("{what} is not installed"));
}

pub fn programs() -> PathBuf {
    root().join("tests/programs/loops")
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{words}", output.status);
    output
}

/// A text of LLVM IR that a compiler made.
#[derive(Debug)]
pub struct Made {
    /// The program, and how it was compiled.
    pub name: String,
    pub path: PathBuf,
    /// The oldest LLVM that can read the text.
    pub version: u32,
}

pub fn by_clang(llvm: Llvm, scratch: &Scratch) -> Vec<Made> {
    let mut all = Vec::new();
    for (file, debug) in [("kernels.c", true), ("exceptions.cpp", false)] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            let path = scratch.path().join(format!("{file}{level}.ll"));
            let mut clang = llvm.command("clang");
            clang.args(["-S", "-emit-llvm", "-ffp-contract=off", level, "-o"]).arg(&path);
            clang.args(debug.then_some("-g"));
            run(clang.arg(programs().join(file)));
            all.push(Made { name: format!("{file} {level}"), path, version: llvm.version });
        }
    }
    all
}

/// Compiles the test program in Rust. The texts need an LLVM that is not older than rustc's.
pub fn by_rustc(scratch: &Scratch) -> Option<Vec<Made>> {
    let version = Command::new("rustc").arg("-vV").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    let version = llvm.split('.').next()?.parse().ok()?;
    let mut all = Vec::new();
    for (name, options) in [
        ("rustc", &[][..]),
        ("rustc -g -O1", &["-g", "-Copt-level=1"][..]),
        ("rustc -g -O3", &["-g", "-Copt-level=3"][..]),
    ] {
        let path = scratch.path().join(format!("{}.ll", name.replace(' ', "")));
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-Ccodegen-units=1", "--emit=llvm-ir", "-o"]).arg(&path);
        run(rustc.args(options).arg(programs().join("iterators.rs")));
        all.push(Made { name: name.to_owned(), path, version });
    }
    Some(all)
}
