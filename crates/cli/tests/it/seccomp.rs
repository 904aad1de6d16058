//! Tests recordings under a seccomp filter that forbids `perf_event_open`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{Programs, Recorded, counterpoint, plain, skip};
use serde_json::Value;

const EVENTS: &str = "page-faults:u,task-clock:u";

/// The error numbers that the filter can return, each with its name and the word that stands for it
/// in messages.
const NUMBERS: [(i32, &str, &str); 2] =
    [(libc::EPERM, "EPERM", "forbids"), (libc::ENOSYS, "ENOSYS", "hides")];

/// With these numbers, the filter of `without_perf` returns no error, but kills the thread or the
/// process, or raises SIGSYS.
const KILLERS: [i32; 3] = [-2, -3, -4];

/// Returns the command under a filter that makes perf_event_open fail with `number`. A negative
/// `number` selects another reaction of the filter (`forbid_perf.h`).
fn without_perf(number: i32, command: &Command) -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| Programs::get().other("without_perf"));
    let mut filtered = Command::new(program);
    filtered.arg(number.to_string()).arg(command.get_program()).args(command.get_args());
    filtered
}

fn host(mode: &str) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(mode.split(' '));
    command
}

/// Returns the path of `counterpoint`, or `None` if the test must be skipped, for example because
/// seccomp filters do not work here.
fn program(test: &str) -> Option<PathBuf> {
    let program = counterpoint(test)?;
    let tried = without_perf(libc::EPERM, &Command::new("true")).status().unwrap();
    if tried.code() == Some(77) {
        skip(test, "seccomp filters are not available");
        return None;
    }
    assert!(tried.success());
    Some(program)
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The filter is active only in the program, so `run` does not notice it before the program starts.
#[test]
fn only_the_program_is_filtered() {
    let Some(run) = program("seccomp program") else { return };
    for (number, name, _) in NUMBERS {
        let mut command = without_perf(number, &host("threads 3 100"));
        let recorded = Recorded::run(&run, EVENTS, &mut command);
        let alone = plain(&mut host("threads 3 100"), recorded.directory.path());
        assert_eq!(recorded.output.status.code(), alone.status.code());
        assert_eq!(recorded.output.stdout, alone.stdout);
        let report = recorded.report(&[]);
        assert_eq!(report["total"]["calls"], 300);
        assert!(report["total"]["duration_ns"].as_f64().unwrap() > 0.0, "{report}");
        let losses = report["losses"].as_array().unwrap();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(losses[0]["name"], "counter_open_failed");
        assert_eq!(losses[0]["count"], 3, "one loss per thread");
        assert_eq!(losses[0]["errno"], number, "{name}");
        for counter in report["rows"][0]["counters"].as_array().unwrap() {
            assert_eq!(counter["total"], Value::Null, "a missing counter is not zero: {counter}");
        }
    }
}

/// The program installs the filter after its first calls. Counters that are already open continue
/// to count. The counters of later threads and of a forked child are missing.
#[test]
fn the_program_filters_itself() {
    let Some(run) = program("seccomp later") else { return };
    for (number, name, _) in NUMBERS {
        let mode = format!("seccomp {number}");
        let recorded = Recorded::run(&run, EVENTS, &mut host(&mode));
        let alone = plain(&mut host(&mode), recorded.directory.path());
        assert_eq!(alone.status.code(), Some(0));
        assert_eq!(recorded.output.status.code(), Some(0), "{name}");
        assert_eq!(recorded.output.stdout, alone.stdout, "{name}");
        assert_eq!(recorded.calls_per_process(), [10, 40], "{name}");
        let lost = BTreeMap::from([("counter_open_failed".to_owned(), 3)]);
        assert_eq!(recorded.losses(), lost, "{name}");
        let calls = recorded.calls();
        assert!(calls.iter().all(|c| !c["duration_ns"].is_empty()));
        let counted = calls.iter().filter(|c| !c["task-clock:u"].is_empty()).count();
        assert_eq!(counted, 20, "only the first thread counts");
    }
}

/// The filter is active in `run` itself, as in a container with such a filter. If the user requests
/// counters, `run` then fails before it starts the program.
#[test]
fn run_is_filtered_too() {
    let Some(program) = program("seccomp run") else { return };
    let scratch = testkit::Scratch::new();
    let profile = scratch.join("p.cpt");
    for (number, name, does) in NUMBERS {
        let run = |events: &[&str]| {
            let mut run = Command::new(&program);
            run.arg("run").args(events).arg("-o").arg(&profile).arg("--");
            run.arg(&Programs::get().host).args(host("calls 100").get_args());
            without_perf(number, &run).output().unwrap()
        };
        let refused = run(&["-e", EVENTS]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stdout.is_empty(), "the program was not started");
        let why =
            format!("open page-faults:u on this thread: {name} (a seccomp filter {does} perf)");
        assert!(err(&refused).contains(&why), "{}", err(&refused));
        assert!(err(&refused).contains("seccomp profile that allows perf_event_open"));
        assert!(!profile.exists());

        let timed = run(&[]);
        assert_eq!(timed.status.code(), Some(0), "{timed:?}");
        assert_eq!(timed.stdout, b"calls 100 0 done\n");
        let report = report(&program, profile.as_os_str());
        assert_eq!(report["total"]["calls"], 100);
        assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{report}");
        let notes = report["notes"].to_string();
        let note = format!(
            "only times are recorded, because hardware counters are missing: open cycles on this \
             thread: {name}"
        );
        assert!(notes.contains(&note), "{notes}");
        // Under this filter, no other counter works either, so the note must not suggest one.
        assert!(!notes.contains("-e page-faults"), "{notes}");
        std::fs::remove_dir_all(&profile).unwrap();
    }
}

fn report(program: &std::path::Path, profile: &OsStr) -> Value {
    let mut report = Command::new(program);
    let output = report.args(["report", "--format", "json"]).arg(profile).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn doctor_says_what_forbids_counting() {
    let Some(program) = program("seccomp doctor") else { return };
    let doctor = |number: i32, arguments: &[&str]| {
        let mut doctor = Command::new(&program);
        doctor.arg("doctor").args(arguments);
        without_perf(number, &doctor).output().unwrap()
    };
    for (number, name, does) in NUMBERS {
        let output = doctor(number, &["--format", "json", "-e", EVENTS]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let finding = |key: &str| {
            let all = found["findings"].as_array().unwrap();
            all.iter().find(|f| f["name"] == key).unwrap().clone()
        };
        let seccomp = finding("seccomp");
        assert_eq!(seccomp["level"], "problem", "{seccomp}");
        assert_eq!(seccomp["state"], "a filter is active");
        let prevents = format!("perf_event_open ({name}): every counter");
        assert_eq!(seccomp["prevents"], *prevents, "{seccomp}");
        let remedy = seccomp["remedy"].as_str().unwrap();
        assert!(remedy.contains("--cap-add PERFMON"), "{remedy}");
        assert!(remedy.ends_with("; without counters times are recorded: -e none"), "{remedy}");
        assert_eq!(finding("counting")["level"], "problem");
        let state =
            format!("open task-clock:u on this thread: {name} (a seccomp filter {does} perf)");
        assert_eq!(found["counters"][1]["state"], *state, "{found}");
    }
    let output = doctor(-1, &["--format", "json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = found["findings"].as_array().unwrap();
    let seccomp = all.iter().find(|f| f["name"] == "seccomp").unwrap();
    assert_eq!(seccomp["level"], "ok", "{seccomp}");
    assert_eq!(seccomp["state"], "a filter is active and lets perf_event_open pass");
}

/// `doctor` and `run` try perf_event_open in a child process, so that the filter kills only the
/// child.
#[test]
fn a_filter_that_kills_is_survived() {
    let Some(program) = program("seccomp kills") else { return };
    let scratch = testkit::Scratch::new();
    let profile = scratch.join("p.cpt");
    let why = "SIGSYS (a seccomp filter kills any process that calls perf_event_open)";
    for number in KILLERS {
        // The signal shows that the filter works.
        let perf = counter_of_its_own(number);
        assert_eq!(perf.status.signal(), Some(libc::SIGSYS), "{number}: {perf:?}");
        let filtered = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command.args(arguments);
            without_perf(number, &command).output().unwrap()
        };
        let output = filtered(&["doctor", "--format", "json", "-e", EVENTS]);
        assert_eq!(output.status.code(), Some(1), "{number}: {output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = found["findings"].as_array().unwrap();
        let seccomp = all.iter().find(|f| f["name"] == "seccomp").unwrap();
        assert_eq!(seccomp["level"], "problem", "{number}: {seccomp}");
        let prevents = "perf_event_open (SIGSYS): every counter";
        assert_eq!(seccomp["prevents"], prevents, "{number}: {seccomp}");
        let state = format!("open task-clock:u on this thread: {why}");
        assert_eq!(found["counters"][1]["state"], *state, "{number}: {found}");

        let directory = profile.to_str().unwrap();
        let run = ["run", "-e", EVENTS, "-o", directory, "--", "true"];
        let refused = filtered(&run);
        assert_eq!(refused.status.code(), Some(2), "{number}: {refused:?}");
        assert!(err(&refused).contains(&format!("open page-faults:u on this thread: {why}")));
        assert!(!profile.exists());

        let listed = filtered(&["list", "page-faults"]);
        assert_eq!(listed.status.code(), Some(0), "{number}: {listed:?}");
        let session = ["session", "prepare", "-e", EVENTS, "-o", directory];
        let refused = filtered(&session);
        assert_eq!(refused.status.code(), Some(2), "{number}: {refused:?}");
        assert!(err(&refused).contains(why), "{number}: {}", err(&refused));

        let mut timed = Command::new(&program);
        timed.args(["run", "-o", directory, "--"]).arg(&Programs::get().host);
        timed.args(host("threads 2 50").get_args());
        let timed = without_perf(number, &timed).output().unwrap();
        assert_eq!(timed.status.code(), Some(0), "{number}: {timed:?}");
        let report = report(&program, profile.as_os_str());
        assert_eq!(report["total"]["calls"], 100, "{number}");
        assert!(report["notes"].to_string().contains(why), "{number}: {report}");
        std::fs::remove_dir_all(&profile).unwrap();
    }
}

/// Under the filter for `number`, runs a Python program that calls perf_event_open.
fn counter_of_its_own(number: i32) -> Output {
    let call = format!(
        "import ctypes; ctypes.CDLL(None).syscall({}, 0, 0, -1, -1, 0)",
        libc::SYS_perf_event_open
    );
    let mut python = Command::new("python3");
    python.args(["-c", &call]);
    without_perf(number, &python).output().unwrap()
}
