//! Tests the instrumentation of the LLVM IR that TVM makes for its kernels. TVM's own LLVM compiles
//! the instrumented texts. The compiled kernels must count their loops, and compute the same
//! results as without instrumentation, bit by bit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use support::ran::{instrumented, runtime, watched};
use support::{Llvm, programs, run, without_llvm};
use testkit::{Scratch, skip_this};

fn python() -> Option<PathBuf> {
    let found = std::env::var_os("COUNTERPOINT_VENV_TVM");
    if found.is_none() {
        skip_this("COUNTERPOINT_VENV_TVM is not set");
    }
    found.map(|folder| Path::new(&folder).join("bin/python"))
}

#[test]
fn kernels_of_tvm_compute_the_same_and_count() {
    let Some(python) = python() else { return };
    let Some(llvm) = Llvm::at_least(22, &["opt", "clang"]) else {
        return without_llvm("clang and opt of LLVM 22 or later");
    };
    let scratch = Scratch::new();
    let script = programs().join("tvm_kernels.py");
    let text = scratch.join("kernels.ll");
    run(Command::new(&python).arg(&script).arg("text").arg(&text));
    let runtime = runtime(llvm, scratch.path());
    for mode in [Mode::Sampled, Mode::Timed] {
        let options = Options {
            mode,
            max_depth: Some(99),
            min_height: Some(0),
            functions: Functions::WithLoops,
            ..Options::default()
        };
        let (path, table) = instrumented(&text, &options);
        assert_eq!(llvm.verify(&path), Ok(()), "{mode:?}");
        let mut compare = Command::new(&python);
        compare.arg(&script).arg("compare").arg(&text).arg(&path);
        let ran = watched(table, &runtime, &mut compare);
        assert_eq!(ran.output, "same 11\n", "{mode:?}");
        assert!(ran.registered.starts_with("registered 1 "), "{mode:?}: {}", ran.registered);
        // Each kernel is called once.
        let calls = ran.rows_of(|entry| entry.depth.is_none());
        assert!(!calls.is_empty() && calls.iter().all(|row| row.hits == 1), "{mode:?} {calls:?}");
        let named = ran.table.entries.iter().filter(|entry| entry.variable.is_some()).count();
        assert!(named > 0, "{:?}", ran.table.entries);
    }
}
