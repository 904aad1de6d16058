//! Tests the recording of IREE 3.7.0, which is installed from its Python wheels. IREE 3.7.0 is the
//! last release whose executable libraries have version 5.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Expected, Recorded, counterpoint, plain, venv_v5};

#[cfg(target_arch = "x86_64")]
const CPU: (&str, &str) = ("v3", "x86-64-v3");
#[cfg(not(target_arch = "x86_64"))]
const CPU: (&str, &str) = ("generic", "generic");

/// Returns the path of the linker `iree-lld` in the wheel of IREE's compiler.
fn linker(venv: &Path) -> PathBuf {
    let lib = std::fs::read_dir(venv.join("lib")).unwrap().next().unwrap().unwrap();
    lib.path().join("site-packages/iree/compiler/_mlir_libs/iree-lld")
}

/// By default, IREE 3.7.0 uses data tiling, and IREE 3.13.0 does not. Without data tiling, both
/// versions have the same dispatches.
fn compile(venv: &Path, fixture: &str, system: bool, to: &Path) {
    let mut command = Command::new(venv.join("bin/iree-compile"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.arg(format!("fixtures/iree/{fixture}.mlir"));
    command.args([
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-opt-data-tiling=false",
    ]);
    command.arg(format!("--iree-llvmcpu-target-cpu={}", CPU.1));
    if system {
        let linker = linker(venv);
        command.arg("--iree-llvmcpu-link-embedded=false");
        command.arg(format!("--iree-llvmcpu-system-linker-path={} -flavor gnu", linker.display()));
    }
    let output = command.arg("-o").arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Executables in embedded ELF files and in system libraries run on `local-sync` and on
/// `local-task`. The expected counts come from the profiler of IREE 3.13.
#[test]
fn every_call_of_version_5() {
    let Some(program) = counterpoint("iree v5") else { return };
    let Some(venv) = venv_v5("iree v5") else { return };
    let scratch = testkit::Scratch::new();
    let cases = [("mlp", false), ("mlp", true), ("tinyloop", false), ("tinyloop", true)];
    let module = |(fixture, system): (&str, bool)| scratch.join(&format!("{fixture}.{system}"));
    std::thread::scope(|scope| {
        let (venv, module) = (&venv, &module);
        for case in cases {
            scope.spawn(move || compile(venv, case.0, case.1, &module(case)));
        }
    });
    for case in cases {
        let expected = Expected::of_variant(case.0, CPU.0);
        for device in ["local-sync", "local-task"] {
            let what = format!("{case:?} {device}");
            let mut command = Command::new(venv.join("bin/iree-run-module"));
            command.arg(format!("--module={}", module(case).display()));
            command.arg(format!("--device={device}")).args(expected.arguments());
            let recorded = Recorded::run(&program, "page-faults,task-clock", &mut command);
            let alone = plain(&mut command, recorded.directory.path());
            assert!(alone.status.success(), "{what}: {alone:?}");
            assert_eq!(recorded.output.status.code(), Some(0), "{what}: {}", recorded.stderr());
            assert_eq!(recorded.output.stdout, alone.stdout, "{what}");
            assert_eq!(recorded.ops(), expected.ops, "{what}");
            assert!(recorded.losses().is_empty(), "{what}: {:?}", recorded.losses());
            let profile = recorded.profile();
            assert_eq!(profile.processes[0].libraries[0].abi, 5, "{what}");
        }
    }
}
