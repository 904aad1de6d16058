//! Tests the output and the effects of `recover`.

use std::path::{Path, PathBuf};

use profile::{Manifest, Origin, ProcessId, State, boot_id};
use testkit::make::pool_path;
use testkit::{CallScript, Golden, ProfileScript, Scratch};

/// Returns an unfinished profile whose process no longer exists. Each of the process's two threads
/// has 2 calls that were not yet written to a file.
fn crashed() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.pool = true;
    script.manifest.state = State::Recording;
    script.manifest.exit = None;
    script.manifest.snapshots.truncate(1);
    let process = script.process(4_000_711);
    process.library("m", &["f"]);
    for name in ["main", "worker"] {
        let thread = process.thread(name);
        thread.unflushed = true;
        for i in 0..2 {
            thread.call(CallScript::new(0, 1_000 * i, 500));
        }
    }
    script
}

fn write(script: &ProfileScript) -> (Scratch, PathBuf, Golden) {
    let (scratch, dir) = script.written();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/recover");
    let golden = Golden::new(env!("CARGO_BIN_EXE_counterpoint"), root)
        .scrub(scratch.path().display().to_string(), "DIR")
        .scrub(format!("process {}", std::process::id()), "process PID");
    (scratch, dir, golden)
}

#[test]
fn after_a_crash() {
    let (_scratch, dir, golden) = write(&crashed());
    let text = dir.to_str().unwrap();
    golden.check("recovered", 0, &["recover", text]);
    assert!(!pool_path(&dir).exists());
    assert_eq!(Manifest::read(&dir).unwrap().pool, None);
    golden.check("nothing", 0, &["recover", text]);
}

#[test]
fn a_recording_of_env_stays_open_unless_it_is_closed() {
    let mut script = crashed();
    script.manifest.origin = Origin::Env;
    let (_scratch, dir, golden) = write(&script);
    let text = dir.to_str().unwrap();
    golden.check("open", 0, &["recover", text]);
    assert!(pool_path(&dir).exists());
    golden.check("closed", 0, &["recover", text, "--close"]);
    assert!(!pool_path(&dir).exists());
}

/// The recorded process has ended. But a recording is not over while a process in the manifest's
/// `watch` (here the test itself) is alive.
#[test]
fn a_running_recording_is_not_closed() {
    let mut script = crashed();
    script.manifest.watch = vec![ProcessId::current().unwrap()];
    script.manifest.boot_id = boot_id();
    let (_scratch, dir, golden) = write(&script);
    let text = dir.to_str().unwrap();
    golden.check("running", 1, &["recover", text, "--close"]);
    assert!(pool_path(&dir).exists());
    assert_eq!(golden.run(&["report", text]).code, Some(0));
    assert!(pool_path(&dir).exists(), "a report does not close it either");
}

#[test]
fn the_memory_is_gone() {
    let (_scratch, dir, golden) = write(&crashed());
    std::fs::remove_file(pool_path(&dir)).unwrap();
    golden.check("gone", 1, &["recover", dir.to_str().unwrap()]);
}

#[test]
fn errors() {
    let (scratch, _, golden) = write(&crashed());
    golden.check("missing", 2, &["recover", scratch.join("none.cpt").to_str().unwrap()]);
    golden.check("not-a-profile", 2, &["recover", scratch.path().to_str().unwrap()]);
}
