//! Compiles, instruments and runs test programs in C and C++.

use std::path::{Path, PathBuf};
use std::process::Command;

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use testkit::Scratch;

use super::ran::{Ran, instrumented, runtime, watched};
use super::{Llvm, programs, run, without_llvm};

/// Options that instrument everything.
pub fn all(mode: Mode) -> Options<'static> {
    let (max_depth, min_height) = (Some(99), Some(0));
    Options { mode, max_depth, min_height, functions: Functions::All, ..Options::default() }
}

/// What is needed to compile and run test programs.
pub struct Bench {
    pub llvm: Llvm,
    pub scratch: Scratch,
    /// The compiled runtime of the test programs (`runtime.c`).
    pub runtime: PathBuf,
}

impl Bench {
    /// Uses the first LLVM, in the order of preference, that has clang and opt. Without one, the
    /// test is reported as skipped.
    pub fn new() -> Option<Self> {
        let Some(llvm) = Llvm::with(&["clang", "opt"]) else {
            without_llvm("clang and opt of LLVM 15 or later");
            return None;
        };
        let scratch = Scratch::new();
        let runtime = runtime(llvm, scratch.path());
        Some(Self { llvm, scratch, runtime })
    }

    pub fn text(&self, file: &str, options: &[&str]) -> PathBuf {
        let path = self.scratch.join(&format!("{file}{}.ll", options.concat()));
        let mut clang = self.llvm.command("clang");
        clang.args(["-S", "-emit-llvm", "-ffp-contract=off", "-o"]).arg(&path).args(options);
        run(clang.arg(programs().join(file)));
        path
    }

    pub fn link(&self, text: &Path, options: &[&str]) -> PathBuf {
        let path = text.with_extension("out");
        let mut clang = self.llvm.command("clang");
        clang.args(["-ffp-contract=off", "-Wno-override-module"]).args(options).arg("-o");
        run(clang.arg(&path).arg(text).args(["-lstdc++", "-lpthread"]));
        path
    }

    pub fn watch(
        &self,
        text: &Path,
        options: &Options,
        compile: &[&str],
        arguments: &[&str],
    ) -> Ran {
        let (path, table) = instrumented(text, options);
        let program = self.link(&path, compile);
        watched(table, &self.runtime, Command::new(program).args(arguments))
    }
}
