//! Tests recordings with small limits, small file systems and few permissions.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Programs, counterpoint, skip};
use serde_json::Value;

/// Runs `SETUP; counterpoint run … -- host MODE` in a shell.
fn record(program: &Path, profile: &Path, setup: &str, events: &str, mode: &str) -> Output {
    let programs = Programs::get();
    let script =
        format!("{setup}\n\"$0\" run -e {events} -o \"$P\" -- \"$1\" \"$2\" {mode}\nexit $?");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(program).arg(&programs.host).arg(&programs.library);
    shell.env("P", profile).output().unwrap()
}

fn report(program: &Path, profile: &Path) -> Value {
    let mut report = Command::new(program);
    let output = report.args(["report", "--format", "json"]).arg(profile).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn losses(report: &Value) -> Vec<(String, u64)> {
    let all = report["losses"].as_array().unwrap();
    all.iter()
        .map(|l| (l["name"].as_str().unwrap().to_owned(), l["count"].as_u64().unwrap()))
        .collect()
}

/// Full pages of records that cannot be written to the profile's files stay in shared memory.
#[test]
fn a_file_size_limit_loses_nothing_while_memory_lasts() {
    let Some(program) = counterpoint("file-size") else { return };
    let scratch = testkit::Scratch::new();
    let profile = scratch.join("p.cpt");
    let output = record(&program, &profile, "ulimit -S -f 64", "none", "calls 500000");
    assert!(output.status.success(), "{output:?}");
    let report = report(&program, &profile);
    assert_eq!(report["total"]["calls"], 500_000);
    assert_eq!(losses(&report), []);
}

/// The limit on the size of files also applies to the pool, the shared memory for recorded calls.
#[test]
fn a_pool_above_the_hard_limit_on_file_sizes_is_refused() {
    let test = "a_pool_above_the_hard_limit_on_file_sizes_is_refused";
    let Some(program) = counterpoint(test) else { return };
    let scratch = testkit::Scratch::new();
    let profile = scratch.join("p.cpt");
    // `ulimit -f` takes units of 512 bytes, so the limit is 1 GiB.
    let of = |threads: &str| {
        let events = format!("none --max-threads {threads}");
        record(&program, &profile, "ulimit -f 2097152", &events, "calls 10")
    };
    let refused = of("60000");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("the hard limit on file sizes is 1073741824 bytes"), "{said}");
    assert!(!profile.exists());
    let recorded = of("3000");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
}

#[test]
fn without_descriptors_calls_are_timed() {
    let Some(program) = counterpoint("descriptors") else { return };
    let scratch = testkit::Scratch::new();
    let (profile, wrapper) = (scratch.join("p.cpt"), scratch.join("few"));
    // Only the program gets the small limit on open files, and `run` does not.
    std::fs::write(&wrapper, "#!/bin/sh\nulimit -n 6\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let programs = Programs::get();
    let output = Command::new(&program)
        .args(["run", "-e", "page-faults:u,task-clock:u,minor-faults:u,cpu-clock:u", "-o"])
        .arg(&profile)
        .arg("--")
        .arg(&wrapper)
        .arg(&programs.host)
        .arg(&programs.library)
        .args(["calls", "100"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = report(&program, &profile);
    assert_eq!(report["total"]["calls"], 100);
    assert_eq!(losses(&report), [("counter_open_failed".to_owned(), 1)]);
    let counter = &report["rows"][0]["counters"][0];
    assert_eq!(counter["total"], Value::Null, "a missing counter is not zero: {counter}");
}

/// The program has many threads and many open files.
#[test]
fn counters_leave_the_programs_descriptors_alone() {
    let Some(program) = counterpoint("own-descriptors") else { return };
    let scratch = testkit::Scratch::new();
    let events = "page-faults:u,minor-faults:u,major-faults:u,task-clock:u,cpu-clock:u";
    let profile = scratch.join("p.cpt");
    let output = record(&program, &profile, "ulimit -n 1024", events, "descriptors 200 600");
    assert!(output.status.success(), "{output:?}");
    let report = report(&program, &profile);
    assert_eq!(report["total"]["calls"], 200);
    // 256 of the 1,024 descriptors are reserved for counters: enough for 51 threads with five
    // counters each.
    assert_eq!(losses(&report), [("counter_open_failed".to_owned(), 149)]);
}

/// A user without privileges can use a counter with `:u`.
#[test]
fn an_unprivileged_user() {
    let Some(program) = counterpoint("unprivileged") else { return };
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skip("unprivileged", "only root can become somebody else");
    }
    let scratch = testkit::Scratch::new();
    for place in [scratch.path(), Programs::get().host.parent().unwrap()] {
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Everybody can read this copy of Counterpoint.
    let dist = scratch.join("dist");
    let built = program.ancestors().nth(2).unwrap();
    assert!(Command::new("cp").arg("-r").arg(built).arg(&dist).status().unwrap().success());
    assert!(Command::new("chmod").args(["-R", "a+rX"]).arg(&dist).status().unwrap().success());
    let nobody = scratch.join("nobody");
    let programs = Programs::get();
    let run = |events: &str, profile: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
        command.arg(dist.join("bin/counterpoint")).args(["run", "-e", events, "-o"]);
        command.arg(nobody.join(profile)).arg("--").arg(&programs.host).arg(&programs.library);
        command.args(["calls", "10"]).output()
    };
    std::fs::create_dir(&nobody).unwrap();
    std::os::unix::fs::chown(&nobody, Some(65534), Some(65534)).unwrap();
    let Ok(output) = run("page-faults:u", "u.cpt") else {
        return skip("unprivileged", "no setpriv (util-linux)");
    };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&program, &nobody.join("u.cpt"))["total"]["calls"], 10);
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let output = run("page-faults", "k.cpt").unwrap();
    if paranoid.trim().parse::<i32>().unwrap() >= 2 {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("EACCES") && words.contains("page-faults:u"), "{words}");
        assert!(!nobody.join("k.cpt").exists(), "no profile is created");
    }
}

/// Runs a script in its own mount namespace, in which it can mount a small tmpfs over directories.
fn in_own_mounts(test: &str, script: &str, arguments: &[&Path]) -> Option<Output> {
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .args(arguments)
        .output()
        .ok()?;
    if String::from_utf8_lossy(&output.stderr).contains("unshare failed") {
        skip(test, "mount namespaces are not permitted here");
        return None;
    }
    Some(output)
}

/// The calls that did not fit on the disk are still in memory.
#[test]
fn a_full_disk_keeps_what_is_in_memory() {
    let Some(program) = counterpoint("full-disk") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    let script = r#"
        mount -t tmpfs -o size=1m none "$3" || { echo "unshare failed" >&2; exit 9; }
        "$0" run -e none -o "$3/p.cpt" -- "$1" "$2" calls 1000000; echo "status $?"
        mount -o remount,size=64m none "$3"
        "$0" report --format json "$3/p.cpt"
    "#;
    let places = [program.as_path(), &programs.host, &programs.library, scratch.path()];
    let Some(output) = in_own_mounts("full-disk", script, &places) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, json) = text.split_once("status 0\n").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(first, "calls 1000000 0 done\n");
    let report: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(report["total"]["calls"], 1_000_000, "{output:?}");
}

/// `/dev/shm` has room for little more than one page (block of records) of the recorder.
#[test]
fn little_shared_memory_is_a_named_loss() {
    let Some(program) = counterpoint("shared-memory") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    let script = r#"
        mount -t tmpfs -o size=400k none /dev/shm || { echo "unshare failed" >&2; exit 9; }
        "$0" run -e none -o "$3/p.cpt" -- "$1" "$2" threads 40 2000; echo "status $?"
        "$0" report --format json "$3/p.cpt"
    "#;
    let places = [program.as_path(), &programs.host, &programs.library, scratch.path()];
    let Some(output) = in_own_mounts("shared-memory", script, &places) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, json) = text.split_once("status 0\n").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(first, "threads 40 2000 done\n");
    let report: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let recorded = report["total"]["calls"].as_u64().unwrap();
    let lost: u64 =
        losses(&report).iter().filter(|(name, _)| name == "no_page").map(|(_, n)| n).sum();
    assert_eq!(recorded + lost, 80_000, "each call is recorded or a named loss: {report}");
}

/// The home directory or TMPDIR may be read-only, missing or not set.
#[test]
fn no_home_and_no_place_for_temporary_files() {
    let Some(program) = counterpoint("home") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    std::fs::create_dir(scratch.join("home")).unwrap();
    let script = r#"
        mount -t tmpfs none "$3/home" && mount -o remount,ro none "$3/home" || {
            echo "unshare failed" >&2; exit 9; }
        touch "$3/home/x" 2>/dev/null && exit 8
        cd "$3"
        one() {
            profile=$1; shift
            "$@" "$P" run -e page-faults:u -o "$profile" -- "$HOST" "$LIBRARY" calls 100
            echo "status $?"
            "$@" "$P" report --format csv "$profile" | sed -n 2p
        }
        P=$0 HOST=$1 LIBRARY=$2
        one ro.cpt env HOME="$3/home" TMPDIR="$3/home" XDG_RUNTIME_DIR="$3/home"
        one none.cpt env -u HOME -u TMPDIR -u XDG_RUNTIME_DIR
        one gone.cpt env HOME=/nonexistent TMPDIR=/nonexistent/tmp
        one bare.cpt env -i
        "$P" run -o "$3/home/p.cpt" -- "$1" "$2" calls 1; echo "status $?"
    "#;
    let places = [program.as_path(), &programs.host, &programs.library, scratch.path()];
    let Some(output) = in_own_mounts("home", script, &places) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    for (number, lines) in lines.chunks(3).take(4).enumerate() {
        assert_eq!(lines[..2], ["calls 100 0 done", "status 0"], "{number}: {output:?}");
        assert!(lines[2].starts_with("nothing,test_linked,test.mlir:10,100,"), "{}", lines[2]);
    }
    assert_eq!(lines[12..], ["status 2"], "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("Read-only file system"), "{words}");
}

/// `/dev/shm` is not writable, and `XDG_RUNTIME_DIR` is not set. In this case, the pool (the memory
/// for recorded calls) is a file in the profile's directory.
#[test]
fn no_shared_memory_at_all() {
    let Some(program) = counterpoint("no-shm") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    let script = r#"
        mount -t tmpfs none /dev/shm && mount -o remount,ro none /dev/shm || {
            echo "unshare failed" >&2; exit 9; }
        unset XDG_RUNTIME_DIR
        "$0" run -e none -o "$3/p.cpt" -- "$1" "$2" threads 20 2000; echo "status $?"
        "$0" report --format json "$3/p.cpt"
    "#;
    let places = [program.as_path(), &programs.host, &programs.library, scratch.path()];
    let Some(output) = in_own_mounts("no-shm", script, &places) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, json) = text.split_once("status 0\n").unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(first, "threads 20 2000 done\n");
    let report: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(report["total"]["calls"], 40_000);
    assert_eq!(losses(&report), []);
    assert!(report["notes"].to_string().contains("no writable memory file system"), "{report}");
    assert!(!scratch.join("p.cpt/pool").exists(), "the pool is gone when all is collected");
}

/// Root has the `XDG_RUNTIME_DIR` of another user, as after `su`, or one that a group can write to.
/// `run` must create neither the pool nor the link to a library in this directory, because other
/// users could replace them.
#[test]
fn a_runtime_directory_of_another_user() {
    let Some(program) = counterpoint("runtime-directory") else { return };
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skip("runtime-directory", "only root can make a directory of another user");
    }
    let scratch = testkit::Scratch::new();
    let script = r#"
        mount -t tmpfs none /dev/shm && mount -o remount,ro none /dev/shm &&
            mkdir "$1/theirs" "$1/open" && mount -t tmpfs -o uid=1,mode=700 none "$1/theirs" &&
            mount -t tmpfs -o mode=770 none "$1/open" || { echo "unshare failed" >&2; exit 9; }
        for place in theirs open; do
            XDG_RUNTIME_DIR="$1/$place" "$0" run -e none -o "$1/$place.cpt" -- ls "$1/$place"
            echo "status $?"
        done
    "#;
    let places = [program.as_path(), scratch.path()];
    let Some(output) = in_own_mounts("runtime-directory", script, &places) else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "status 0\nstatus 0\n", "the directories are empty: {output:?}");
}

/// The environment has about 1 MB in a few long variables or in many short ones.
#[test]
fn a_large_environment_and_many_arguments() {
    let Some(program) = counterpoint("environment") else { return };
    let scratch = testkit::Scratch::new();
    let long: Vec<(String, String)> =
        (0..10).map(|i| (format!("LONG_{i}"), "x".repeat(100_000))).collect();
    let many: Vec<(String, String)> =
        (0..40_000).map(|i| (format!("VARIABLE_{i}"), i.to_string())).collect();
    let arguments: Vec<String> = (0..5_000).map(|i| format!("{i}-{}", "y".repeat(60))).collect();
    for (what, variables) in [("long", long), ("many", many)] {
        // The shell prints how many of the variables and how many arguments it received, and then
        // executes the host program.
        let script = r#"env | grep -cE '^(LONG|VARIABLE)_'; host=$1; shift
            echo $#; exec "$host" "$@""#;
        let mut run = Command::new(&program);
        let profile = scratch.join(&format!("{what}.cpt"));
        run.args(["run", "-e", "page-faults:u", "-o"]).arg(&profile).args(["--", "sh", "-c"]);
        run.arg(script).arg("sh").arg(&Programs::get().host).arg(&Programs::get().library);
        run.args(["calls", "100", "0"]).args(&arguments);
        let output = run.envs(variables.iter().cloned()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{what}: {output:?}");
        let expected = format!("{}\n{}\ncalls 100 0 done\n", variables.len(), 4 + arguments.len());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{what}");
        let report = report(&program, &profile);
        assert_eq!(report["total"]["calls"], 100);
        assert_eq!(losses(&report), []);
        let profile = profile::Profile::open(&profile).unwrap();
        let process = profile.processes[0].info.as_ref().unwrap();
        assert_eq!(process.arguments[5..], arguments, "{what}");
        assert!(profile.manifest.command.ends_with(&arguments), "{what}");
    }
}

/// Several commands with the same output start at the same moment, and one of them records.
#[test]
fn several_runs_into_one_output() {
    let Some(program) = counterpoint("one-output") else { return };
    let scratch = testkit::Scratch::new();
    for round in 0..8 {
        let profile = scratch.join(&format!("{round}.cpt"));
        let over = scratch.join(&format!("{round}.over"));
        let start = || {
            let mut command = Command::new(&program);
            command.args(["run", "-e", "none", "-o"]).arg(&profile);
            // The recorded program runs until the file `over` exists, so the first recording still
            // runs when the other commands try to record.
            command
                .args(["--", "sh", "-c", r#"while [ ! -e "$0" ]; do sleep 0.01; done"#])
                .arg(&over);
            command.stderr(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..5).map(|_| start()).collect();
        let begun = std::time::Instant::now();
        let mut running = || -> usize {
            children.iter_mut().map(|c| usize::from(c.try_wait().unwrap().is_none())).sum()
        };
        while running() > 1 && begun.elapsed() < std::time::Duration::from_secs(60) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::fs::write(&over, "").unwrap();
        let mut recorded = 0;
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            match output.status.code() {
                Some(0) => recorded += 1,
                code => {
                    assert_eq!(code, Some(2), "{said}");
                    assert!(
                        said.contains(".cpt: a program is still recording into it\n"),
                        "{said}"
                    );
                }
            }
        }
        assert_eq!(recorded, 1, "round {round}");
        assert!(profile.join("manifest.json").is_file());
    }
}
