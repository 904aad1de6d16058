//! Tests that instrumented code finds the recorder, whichever loader has loaded the code
//! (docs/loops.md has a table). The code is `tests/programs/loops/nest.ll`, a handwritten module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Recorded};

/// These lines are put before the text of the module, because TVM requires a data layout.
const TARGET: &str = "target datalayout = \
     \"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128\"\n\
     target triple = \"x86_64-unknown-linux-gnu\"\n";

const MAIN: &str = "#include <stdio.h>\nlong nest(long, long);\n\
     int main(void) { printf(\"%ld\\n\", nest(10, 32)); return 0; }\n";

const RUST: &str = "unsafe extern \"C\" { fn nest(n: i64, m: i64) -> i64; }\n\
     fn main() { println!(\"{}\", unsafe { nest(10, 32) }); }\n";

const PYTHON: &str = "import sys, tvm\nmodule = tvm.runtime.load_module(sys.argv[1])\n\
     if len(sys.argv) > 2:\n    module.export_library(sys.argv[2])\n    \
     module = tvm.runtime.load_module(sys.argv[2])\nprint(module['nest'](10, 32))\n";

/// Returns clang 15 or newer: older versions do not have opaque pointers, which `nest.ll` uses.
fn clang(test: &str) -> Option<PathBuf> {
    let found = testkit::c::clang(15);
    if found.is_none() {
        testkit::skip(test, "no clang of LLVM 15 or later");
    }
    found
}

fn write(scratch: &Path, name: &str, text: &str) -> PathBuf {
    let path = scratch.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// Writes the text of the module with the target [`TARGET`], and returns the path of the file.
fn module(scratch: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/loops/nest.ll");
    write(scratch, "nest.ll", &(TARGET.to_owned() + &fs::read_to_string(source).unwrap()))
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// nest(10, 32) returns 320. The profile must contain the hits (executions) that this call causes:
/// one of the function, one of its outer loop, and ten of its inner loop.
fn counts(program: &Path, what: &str, arguments: &[&str], loader: &Path) {
    let mut command = Command::new(loader);
    command.args(arguments);
    let alone = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "320\n", "{what} alone: {alone:?}");
    let recorded = Recorded::run_with(program, "none", &["--loops"], &mut command);
    assert_eq!(recorded.stdout(), "320\n", "{what}: {}", recorded.stderr());
    let rows = recorded.profile().loops().unwrap().rows;
    let seen: Vec<_> =
        rows.iter().map(|row| (row.id, row.hits, row.begun, row.ended, row.ticks > 0)).collect();
    assert_eq!(seen, [(0, 1, 1, 1, true), (1, 1, 1, 1, true), (2, 10, 10, 10, true)], "{what}");
    assert!(recorded.losses().is_empty(), "{what}: {:?}", recorded.losses());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn executables_of_clang_and_of_rustc_find_the_recorder() {
    let test = "loops_loaders";
    let Some(program) = support::counterpoint(test) else { return };
    let Some(clang) = clang(test) else { return };
    let scratch = testkit::Scratch::new();
    let (text, main) = (module(scratch.path()), write(scratch.path(), "main.c", MAIN));
    let executable = scratch.join("executable");
    for flags in [
        &["-O2", "-fPIE", "-pie"][..],
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O0"],
        &["-O2", "-ffunction-sections", "-Wl,--gc-sections"],
    ] {
        done(Command::new(&clang).args(flags).arg(&main).arg(&text).arg("-o").arg(&executable));
        counts(&program, &flags.join(" "), &[], &executable);
    }
    // No library can be preloaded into a static program, so the test runs it without the recorder.
    done(
        Command::new(&clang)
            .args(["-O2", "-static"])
            .arg(&main)
            .arg(&text)
            .arg("-o")
            .arg(&executable),
    );
    let alone = Command::new(&executable).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "320\n", "static");

    let object = scratch.join("nest.o");
    done(Command::new(&clang).args(["-O2", "-fPIC", "-c"]).arg(&text).arg("-o").arg(&object));
    let source = write(scratch.path(), "main.rs", RUST);
    for model in ["pic", "static"] {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "-O", "-C", &format!("relocation-model={model}")]);
        rustc.arg("-C").arg(format!("link-arg={}", object.display()));
        done(rustc.arg(&source).arg("-o").arg(&executable));
        counts(&program, &format!("rustc, {model}"), &[], &executable);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn modules_of_tvm_find_the_recorder() {
    let test = "loops_loaders TVM";
    let Some(program) = support::counterpoint(test) else { return };
    let Some(python) = support::tvm(test) else { return };
    let scratch = testkit::Scratch::new();
    let text = module(scratch.path());
    let script = write(scratch.path(), "load.py", PYTHON);
    let (script, library) = (script.to_str().unwrap(), scratch.join("nest.so"));
    let orc = text.to_str().unwrap();
    counts(&program, "ORC", &[script, orc], &python);
    // The flag selects MCJIT, the older one of TVM's two JITs.
    let flag = "!llvm.module.flags = !{!90}\n\
         !90 = !{i32 4, !\"tvm_target\", !\"{\\22kind\\22:\\22llvm\\22,\\22jit\\22:\\22mcjit\\22}\"}\n";
    let older = fs::read_to_string(&text).unwrap() + flag;
    let older = write(scratch.path(), "older.ll", &older);
    counts(&program, "MCJIT", &[script, older.to_str().unwrap()], &python);
    counts(&program, "exported", &[script, orc, library.to_str().unwrap()], &python);
}
