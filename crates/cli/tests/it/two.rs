//! Tests two copies of Counterpoint in one process. Only one copy may record, and the other one
//! must be inactive.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Programs, Recorded, counterpoint};

/// The numbers for the states of a copy come from `include/counterpoint/agent.h`.
const WAITING: &str = "1";
const RECORDING: &str = "2";
const QUIET: &str = "4";

fn library_of(program: &Path) -> PathBuf {
    program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
}

fn copies(program: &Path, scratch: &testkit::Scratch) -> [PathBuf; 2] {
    ["a", "b"].map(|name| {
        std::fs::create_dir(scratch.join(name)).unwrap();
        let copy = scratch.join(name).join("libcounterpoint.so");
        std::fs::copy(library_of(program), &copy).unwrap();
        copy
    })
}

fn two(copies: &[&Path]) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.two);
    command.arg(&programs.library).args(copies);
    command
}

/// Returns the states of the copies. A star marks the copy whose symbol `counterpoint_agent` the
/// dynamic linker finds by name.
fn states(stderr: &str) -> Vec<String> {
    let line = stderr.lines().find(|line| line.starts_with("found ")).unwrap();
    let (found, states) = line.split_once(':').unwrap();
    assert_eq!(found, format!("found {}", env!("CARGO_PKG_VERSION")));
    states.split_whitespace().map(str::to_owned).collect()
}

fn once() -> BTreeMap<String, u64> {
    BTreeMap::from([("second_agent".to_owned(), 1)])
}

#[test]
fn preloaded_next_to_ours() {
    let Some(program) = counterpoint("two preloaded") else { return };
    let scratch = testkit::Scratch::new();
    let [a, _] = copies(&program, &scratch);
    let mut command = two(&[&library_of(&program), &a]);
    let recorded = Recorded::run(&program, "none", command.env("LD_PRELOAD", &a));
    assert_eq!(recorded.output.status.code(), Some(11), "{}", recorded.stderr());
    assert_eq!(recorded.stdout(), "done\n");
    assert_eq!(states(&recorded.stderr()), [format!("{RECORDING}*"), QUIET.to_owned()]);
    assert_eq!(recorded.calls_per_process(), [100]);
    assert_eq!(recorded.losses(), once());
}

#[test]
fn loaded_into_a_process_that_has_ours() {
    let Some(program) = counterpoint("two loaded") else { return };
    let scratch = testkit::Scratch::new();
    let [a, _] = copies(&program, &scratch);
    let recorded = Recorded::run(&program, "none", &mut two(&[&a, &library_of(&program)]));
    assert_eq!(recorded.output.status.code(), Some(11), "{}", recorded.stderr());
    assert_eq!(states(&recorded.stderr()), [QUIET.to_owned(), format!("{RECORDING}*")]);
    assert_eq!(recorded.calls_per_process(), [100]);
    assert_eq!(recorded.losses(), once());
}

/// No copy is preloaded, and both are loaded with local scope.
#[test]
fn two_copies_that_are_loaded_late() {
    let Some(program) = counterpoint("two that are loaded") else { return };
    let scratch = testkit::Scratch::new();
    let [a, b] = copies(&program, &scratch);
    let path = scratch.join("p.cpt");
    let made =
        Command::new(&program).args(["env", "-e", "none", "-o"]).arg(&path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut command = two(&[&a, &b]);
    let output = command.env("COUNTERPOINT_RUN_FILE", path.join("run.bin")).output().unwrap();
    assert_eq!(output.status.code(), Some(11), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Copies that are not preloaded do not intercept the program's calls, so the first copy still
    // waits for something to record.
    assert_eq!(states(&said), [format!("{WAITING}*"), QUIET.to_owned()]);
    let closed = Command::new(&program).args(["recover", "--close"]).arg(&path).output().unwrap();
    assert!(closed.status.success(), "{closed:?}");
    let losses: BTreeMap<_, _> = profile::Profile::open(&path)
        .unwrap()
        .all_losses()
        .into_iter()
        .map(|loss| (loss.name, loss.count))
        .collect();
    assert_eq!(losses, once());
}

/// The two `run` commands are of different installations. The inner one records, because it sets
/// the variable `COUNTERPOINT_RUN_FILE` last.
#[test]
fn run_inside_run() {
    let Some(program) = counterpoint("run inside run") else { return };
    let scratch = testkit::Scratch::new();
    let [a, _] = copies(&program, &scratch);
    let other = scratch.join("bin");
    std::fs::create_dir(&other).unwrap();
    std::fs::copy(&program, other.join("counterpoint")).unwrap();
    std::fs::create_dir(scratch.join("lib")).unwrap();
    std::fs::rename(&a, scratch.join("lib/libcounterpoint.so")).unwrap();
    let programs = Programs::get();
    let inner = scratch.join("inner.cpt");
    let mut command = Command::new(other.join("counterpoint"));
    command.args(["run", "-e", "none", "-o"]).arg(&inner).arg("--");
    command.arg(&programs.host).arg(&programs.library).args(["calls", "30"]);
    let outer = Recorded::run(&program, "none", &mut command);
    assert!(outer.output.status.success(), "{}", outer.stderr());
    assert_eq!(outer.profile().calls(), 0);
    let inner = profile::Profile::open(&inner).unwrap();
    assert_eq!(inner.calls(), 30);
    let losses = inner.all_losses();
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!((losses[0].name.as_str(), losses[0].count), ("second_agent", 1));
}

/// Each of these headers must compile alone without a warning.
#[test]
fn the_headers_compile() {
    let scratch = testkit::Scratch::new();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let (languages, headers) = ([("c", "c11"), ("c++", "c++17")], ["agent", "collector", "tvm"]);
    for ((language, standard), header) in
        languages.into_iter().flat_map(|l| headers.map(|header| (l, header)))
    {
        let source = scratch.join(&format!("header.{}", if language == "c" { "c" } else { "cc" }));
        let text = format!(
            "#include <counterpoint/{header}.h>\nint one(void);\nint one(void) {{ return 1; }}\n"
        );
        std::fs::write(&source, text).unwrap();
        let output = Command::new("cc")
            .args(["-x", language, &format!("-std={standard}"), "-pedantic", "-Wall", "-Wextra"])
            .args(["-Werror", "-fsyntax-only", "-I"])
            .arg(&include)
            .arg(&source)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
