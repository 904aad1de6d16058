//! Tests `session prepare` and `session finish`, for programs that start and end their recording
//! themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use profile::{Manifest, Origin, ProcessId, State, boot_id};
use record::RunFile;
use serde_json::{Value, json};
use testkit::make::pool_path;
use testkit::{CallScript, ProfileScript, Scratch};

/// Makes an installation. `session prepare` does not load the library, so a file with the library's
/// name is enough.
fn program(scratch: &Scratch) -> PathBuf {
    let (bin, lib) = (scratch.join("bin"), scratch.join("lib"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&lib).unwrap();
    std::fs::write(lib.join("libcounterpoint.so"), b"").unwrap();
    let program = bin.join("counterpoint");
    std::fs::copy(env!("CARGO_BIN_EXE_counterpoint"), &program).unwrap();
    program
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).arg("session").args(arguments).output().unwrap()
}

fn json_of(output: &Output, code: i32) -> Value {
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_session_is_prepared_for_its_caller_and_finished() {
    let scratch = Scratch::new();
    let program = program(&scratch);
    let dir = scratch.join("x.cpt");
    let place = dir.to_str().unwrap();
    let out = run(&program, &["prepare", "-e", "page-faults,task-clock", "-o", place]);
    let out = json_of(&out, 0);
    assert_eq!(out["profile"], place);
    assert_eq!(out["run_file"], format!("{place}/run.bin"));
    assert_eq!(out["warnings"], json!([]));
    let counters = json!([
        {"name": "page-faults", "unit": "count", "group": 0},
        {"name": "task-clock", "unit": "ns", "group": 0},
    ]);
    assert_eq!(out["counters"], counters);
    let manifest = Manifest::read(&dir).unwrap();
    assert_eq!((manifest.origin, manifest.state), (Origin::Session, State::Recording));
    assert_eq!(
        manifest.watch,
        [ProcessId::current().unwrap()],
        "the caller is watched, not the command"
    );
    let command: Vec<String> = std::env::args().collect();
    assert_eq!(manifest.command, command, "the caller's command line, not that of the command");
    let pool = PathBuf::from(out["pool"].as_str().unwrap());
    assert!(pool.exists());
    let run_file = std::fs::read(out["run_file"].as_str().unwrap()).unwrap();
    assert_eq!(RunFile::from_bytes(&run_file).unwrap().pool, pool.to_str().unwrap());

    let again = run(&program, &["prepare", "-e", "none", "-o", place]);
    assert_eq!(again.status.code(), Some(2), "another session uses this profile");
    assert!(pool.exists());

    for pages in [0, 0] {
        let out = json_of(&run(&program, &["finish", place]), 0);
        assert_eq!(out, json!({"profile": place, "pages": pages, "running": []}));
        let manifest = Manifest::read(&dir).unwrap();
        assert_eq!((manifest.state, manifest.pool), (State::Finished, None));
        assert_eq!(manifest.snapshots.len(), 3, "the snapshot at the end is taken once");
    }
    assert!(!pool.exists());

    let out = json_of(&run(&program, &["prepare", "-e", "none", "-o", place]), 0);
    assert_eq!(out["counters"], json!([]));
    assert!(scratch.join("x.cpt.old").exists());
    json_of(&run(&program, &["finish", place]), 0);
}

#[test]
fn a_missing_counter_fails_or_is_left_out_with_a_warning() {
    let scratch = Scratch::new();
    let program = program(&scratch);
    let dir = scratch.join("x.cpt");
    let place = dir.to_str().unwrap();
    let list = "{page-faults,context-switches:u},no-such-counter,task-clock";
    let out = run(&program, &["prepare", "-e", list, "-o", place]);
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(!dir.exists());
    let out = run(&program, &["prepare", "-e", list, "--skip-missing", "-o", place]);
    let out = json_of(&out, 0);
    let names: Vec<&str> =
        out["counters"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    // A context switch happens in the kernel, so with `:u` its count would be 0.
    assert_eq!(names, ["page-faults", "task-clock"]);
    let warnings = out["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].as_str().unwrap().starts_with("no-such-counter is left out: "));
    let switches = warnings[1].as_str().unwrap();
    assert!(switches.starts_with("context-switches:u is left out: "), "{switches}");
    assert!(switches.contains("count the kernel's part too"), "the remedy: {switches}");
    json_of(&run(&program, &["finish", place]), 0);
}

/// Makes a profile of a session that has not ended. Its recorded process is the test's own process,
/// which is still alive.
fn recorded(scratch: &Scratch) -> PathBuf {
    let me = ProcessId::current().unwrap();
    let mut script = ProfileScript::monotonic();
    script.pool = true;
    script.manifest.origin = Origin::Session;
    script.manifest.state = State::Recording;
    script.manifest.exit = None;
    script.manifest.boot_id = boot_id();
    let process = script.process(me.pid);
    process.start_time = me.start_time;
    process.library("m", &["f"]);
    let thread = process.thread("main");
    thread.unflushed = true;
    thread.call(CallScript::new(0, 1_000, 500));
    let dir = scratch.join("x.cpt");
    script.write(&dir);
    dir
}

#[test]
fn a_session_that_did_not_end_stays() {
    let scratch = Scratch::new();
    let dir = recorded(&scratch);
    let place = dir.to_str().unwrap();
    let out = run(Path::new(env!("CARGO_BIN_EXE_counterpoint")), &["finish", place]);
    let running = [std::process::id()];
    assert_eq!(json_of(&out, 1), json!({"profile": place, "pages": 0, "running": running}));
    assert!(pool_path(&dir).exists());
}

#[test]
fn only_sessions_are_finished() {
    let (_scratch, dir) = ProfileScript::monotonic().written();
    let out =
        run(Path::new(env!("CARGO_BIN_EXE_counterpoint")), &["finish", dir.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("it was not recorded by a session"));
}

/// The test does not run `session finish`, but the pool must be removed together with the scratch
/// directory.
#[test]
fn a_tests_pool_is_removed_with_its_directory() {
    let scratch = Scratch::new();
    let program = program(&scratch);
    let place = scratch.join("x.cpt");
    let out = run(&program, &["prepare", "-e", "none", "-o", place.to_str().unwrap()]);
    let pool = PathBuf::from(json_of(&out, 0)["pool"].as_str().unwrap());
    assert!(pool.exists());
    drop(scratch);
    assert!(!pool.parent().unwrap().exists());
}
