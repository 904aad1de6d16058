//! Tests details of `run`: signals that stop it, scripts without a `#!` line, outputs that are
//! links, and what a killed `run` left.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Recorded, counterpoint, plain};

/// Returns the state of a process: field 3 of `/proc/PID/stat`.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Twice, SIGTSTP to `run` stops `run` and its program, and SIGCONT to `run` continues both.
#[test]
fn stopped_and_continued() {
    let Some(program) = counterpoint("stopped") else { return };
    let scratch = testkit::Scratch::new();
    let mut run = Command::new(&program)
        .args(["run", "-e", "none", "-o"])
        .arg(scratch.join("p.cpt"))
        .args(["--", "sh", "-c", "echo $$ > pid; while [ ! -e end ]; do sleep 0.02; done; exit 6"])
        .current_dir(scratch.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = 0;
    until("the program does not start", || {
        let text = std::fs::read_to_string(scratch.join("pid")).unwrap_or_default();
        child = text.trim().parse().unwrap_or(0);
        child != 0
    });
    // SAFETY: `kill` takes numbers only. Our child has not been waited for, so the process id still
    // belongs to it.
    let signal = |number| unsafe { libc::kill(run.id() as i32, number) };
    for _ in 0..2 {
        signal(libc::SIGTSTP);
        until("not stopped", || (state(run.id()), state(child)) == ('T', 'T'));
        signal(libc::SIGCONT);
        until("not continued", || state(run.id()) != 'T' && state(child) != 'T');
    }
    std::fs::write(scratch.join("end"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(6));
}

/// `/bin/sh` runs a script without a `#!` line, as with `execvp`.
#[test]
fn a_script_without_interpreter() {
    let Some(program) = counterpoint("bare script") else { return };
    let scratch = testkit::Scratch::new();
    let script = scratch.join("script");
    std::fs::write(&script, "echo \"$1 and $2\"\nexit 9\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("env");
    // For comparison, `env` starts the script without Counterpoint, by `execvp`.
    let bare = plain(command.arg(&script).args(["one", "two three"]), scratch.path());
    assert_eq!(bare.status.code(), Some(9));
    let mut command = Command::new(&script);
    let recorded = Recorded::run(&program, "none", command.args(["one", "two three"]));
    assert_eq!(recorded.output.status.code(), Some(9), "{}", recorded.stderr());
    assert_eq!(recorded.output.stdout, bare.stdout);
    assert!(recorded.losses().is_empty());
}

/// If the output is a link to a profile, `run` keeps the link, renames that profile, and writes the
/// new one under its old name. A link to nothing is an error.
#[test]
fn an_output_that_is_a_link() {
    let Some(program) = counterpoint("link") else { return };
    let scratch = testkit::Scratch::new();
    let run = |output: &str| {
        let output = Command::new(&program)
            .args(["run", "-e", "none", "-o"])
            .arg(scratch.join(output))
            .args(["--", "true"])
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(run("real.cpt").0);
    std::os::unix::fs::symlink("real.cpt", scratch.join("link.cpt")).unwrap();
    let (worked, words) = run("link.cpt");
    assert!(worked, "{words}");
    assert!(scratch.join("link.cpt").is_symlink());
    for name in ["link.cpt", "real.cpt", "real.cpt.old"] {
        assert!(profile::Profile::open(&scratch.join(name)).is_ok(), "{name}");
    }
    std::os::unix::fs::symlink("nowhere", scratch.join("dangling.cpt")).unwrap();
    let (worked, words) = run("dangling.cpt");
    assert!(!worked && words.contains("dangling.cpt"), "{words}");
}

/// A killed `run` can leave a directory without a manifest, into which the next `run` writes its
/// profile. `run` refuses such a directory if it contains a file that `run` did not write, or if
/// its pool is open in a process.
#[test]
fn a_profile_without_its_manifest_is_made_again() {
    let Some(program) = counterpoint("unfinished") else { return };
    let scratch = testkit::Scratch::new();
    let dir = scratch.join("p.cpt");
    let run = || {
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&dir).args(["--", "sh", "-c", "exit 6"]);
        run.output().unwrap()
    };
    let begin = || {
        let mut env = Command::new(&program);
        assert!(env.args(["env", "-e", "none", "-o"]).arg(&dir).output().unwrap().status.success());
        let pool = profile::Manifest::read(&dir).unwrap().pool.unwrap();
        std::fs::remove_file(dir.join("manifest.json")).unwrap();
        pool
    };
    let end = |pool: &std::path::Path| {
        std::fs::remove_dir_all(&dir).unwrap();
        let _ = std::fs::remove_dir_all(pool.parent().unwrap());
    };

    let pool = begin();
    std::fs::write(dir.join(format!(".manifest.json.{}.tmp", "0a".repeat(16))), "{").unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert!(profile::Manifest::read(&dir).is_ok() && !pool.exists());
    std::fs::remove_dir_all(&dir).unwrap();

    // Without a file system in memory such as /dev/shm, the pool is in the profile's directory.
    std::fs::create_dir_all(dir.join("pool")).unwrap();
    record::pool::create(&dir.join("pool/pool"), &record::pool::Owner::default()).unwrap();
    assert_eq!(run().status.code(), Some(6));
    std::fs::remove_dir_all(&dir).unwrap();

    let refused = |pool: &std::path::Path, what: &str| {
        let output = run();
        assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("is not a Counterpoint profile"), "{what}: {said}");
        assert!(pool.exists() && dir.join("run.bin").exists(), "{what}");
    };
    let pool = begin();
    std::fs::write(dir.join("notes"), "mine").unwrap();
    refused(&pool, "a file of the user's");
    end(&pool);
    let pool = begin();
    std::fs::write(dir.join("run.bin"), "mine").unwrap();
    refused(&pool, "another run file");
    end(&pool);
    let pool = begin();
    let writer = std::fs::File::options().write(true).open(&pool).unwrap();
    refused(&pool, "its pool is open");
    drop(writer);
    end(&pool);
}
