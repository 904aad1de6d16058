//! Compiles instrumented object files with clang, for x86-64 and for AArch64.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod listing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::table::SideTable;
use testkit::Scratch;

/// One version of clang that compiles for one machine (x86-64 or AArch64).
pub struct Compiler {
    version: u32,
    /// Whether the machine is AArch64 instead of x86-64.
    pub is_arm: bool,
    scratch: Scratch,
}

pub fn compilers(test: &str) -> Vec<Compiler> {
    let mut found = Vec::new();
    for version in [19, 22] {
        let exists =
            |tool: &str| Command::new(format!("{tool}-{version}")).arg("--version").output();
        if exists("clang").is_ok() && exists("llvm-objdump").is_ok() {
            for is_arm in [false, true] {
                found.push(Compiler { version, is_arm, scratch: Scratch::new() });
            }
        }
    }
    if found.is_empty() {
        testkit::skip(test, "neither clang-19 nor clang-22 is installed with its llvm-objdump");
    }
    found
}

impl Compiler {
    pub fn name(&self) -> String {
        let machine = if self.is_arm { "aarch64" } else { "x86-64" };
        format!("clang {} for {machine}", self.version)
    }

    fn clang(&self) -> Command {
        let mut clang = Command::new(format!("clang-{}", self.version));
        let machine = if self.is_arm { "aarch64" } else { "x86_64" };
        clang.arg(format!("--target={machine}-linux-gnu"));
        // The installed headers of the C library are for one machine only, so the test programs
        // have headers of their own.
        clang.arg("-nostdlibinc").arg("-isystem").arg(programs().join("headers"));
        clang
    }

    /// Compiles and instruments a program of `tests/programs/loops`.
    pub fn instrumented(&self, source: &str, level: &str, mode: Mode) -> (PathBuf, SideTable) {
        self.instrumented_with(source, level, mode, &[])
    }

    /// Does the same as [`Self::instrumented`], with more flags for clang.
    pub fn instrumented_with(
        &self,
        source: &str,
        level: &str,
        mode: Mode,
        more: &[&str],
    ) -> (PathBuf, SideTable) {
        let base = format!("{source}{level}-{}{}", mode.name(), more.concat());
        let [plain, text, object] =
            ["ll", "lwp.ll", "o"].map(|end| self.scratch.join(&format!("{base}.{end}")));
        let flags = [level, "-S", "-emit-llvm", "-g0", "-o"];
        run(self.clang().args(more).args(flags).arg(&plain).arg(programs().join(source)));
        let options = Options {
            mode,
            max_depth: Some(u32::MAX),
            min_height: Some(0),
            siblings: false,
            functions: Functions::WithLoops,
            filter: None,
            schedule: None,
            target: None,
            source,
        };
        let done = ir::instrument::instrument(&std::fs::read(&plain).unwrap(), &options).unwrap();
        std::fs::write(&text, &done.text).unwrap();
        let flags = [level, "-Xclang", "-disable-llvm-passes", "-c", "-o"];
        run(self.clang().args(more).args(flags).arg(&object).arg(&text));
        (object, done.table)
    }

    /// Links an object file for x86-64 into a shared library. The linker gets the option `-z` with
    /// the value `flag`.
    pub fn linked(&self, object: &Path, flag: &str) -> PathBuf {
        let library = object.with_extension(format!("{flag}.so"));
        let flags = ["-shared", "-nostdlib", "-Wl,-z", &format!("-Wl,{flag}"), "-o"];
        run(self.clang().args(flags).arg(&library).arg(object));
        library
    }

    pub fn disassembled(&self, object: &Path) -> String {
        // GNU's objdump disassembles code of the host only.
        let mut objdump = match self.is_arm {
            false => Command::new("objdump"),
            true => Command::new(format!("llvm-objdump-{}", self.version)),
        };
        let output = run(objdump.arg("-d").arg(object));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/loops")
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{words}", output.status);
    output
}
