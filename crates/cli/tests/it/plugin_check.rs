//! Compares `counterpoint plugin check` with a host (`tests/programs/plugins/kineto_host.cpp`) that
//! was written only from the published description of Kineto's plugin interface.
//!
//! | the check says | what is true |
//! |---|---|
//! | conforms | the host records with the plugin without a complaint, and writes valid JSON |
//! | violates | the host refuses or complains, or the header forbids it |

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Scratch, c};

fn check(file: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.args(["plugin", "check", file.to_str().expect("UTF-8")]).args(options);
    command.env("COLUMNS", "120").output().expect("the program starts")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn findings(document: &Value, level: &str) -> Vec<(String, String)> {
    let all = document["findings"].as_array().expect("findings");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    all.iter()
        .filter(|finding| finding["level"] == level)
        .map(|finding| (text(&finding["clause"]), text(&finding["what"])))
        .collect()
}

fn minimal(to: &Path, mistake: &str) {
    let flags = ["-std=gnu11", &format!("-DMISTAKE={mistake}")];
    c::shared("cc", "plugins/minimal.c", to, &flags).expect("a C compiler: Rust links with it");
}

struct Host {
    scratch: Scratch,
    program: PathBuf,
}

#[derive(Debug, PartialEq)]
enum Made {
    Recorded,
    Refused,
    Broke,
}

impl Host {
    fn new() -> Option<Self> {
        let scratch = Scratch::new();
        let program = scratch.join("host");
        let flags = ["-std=c++17", "-ldl", "-lpthread"];
        c::compile("g++", "plugins/kineto_host.cpp", &program, &flags)?;
        Some(Self { scratch, program })
    }

    fn takes(&self, plugin: &Path) -> Made {
        let directory = self.scratch.join("plugins");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("makes a folder");
        std::fs::copy(plugin, directory.join("one.so")).expect("copies");
        let trace = self.scratch.join("trace.json");
        let mut run = Command::new(&self.program);
        run.arg(&trace).arg("1").env("KINETO_PLUGIN_LIB_DIR_PATH", &directory);
        let done = run.output().expect("the host starts");
        let printed = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() || !done.stderr.is_empty() || !printed.contains(": 1 events") {
            return Made::Refused;
        }
        let bytes = std::fs::read(&trace).expect("written");
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(_) => Made::Recorded,
            Err(_) => Made::Broke,
        }
    }
}

#[test]
fn the_smallest_valid_plugin_conforms() {
    let scratch = Scratch::new();
    let file = scratch.join("minimal.so");
    minimal(&file, "NOTHING");
    let done = check(&file, &["--format", "json"]);
    let document = json(&done);
    assert!(done.status.success(), "{document:#}");
    assert_eq!(document["verdict"], "conforms");
    assert_eq!(findings(&document, "violation"), []);
    // `minimal.c` does not check pointers, so it crashes in calls that no host makes.
    let fragile = findings(&document, "fragile");
    assert!(fragile.iter().any(|(clause, _)| clause == "robust"), "{fragile:?}");
    // The check also calls the plugin with larger structures, as a later version of the interface
    // would. `minimal.c` accepts them, so no finding mentions a later version.
    let style = findings(&document, "style");
    let all: Vec<_> = fragile.iter().chain(&style).collect();
    assert!(all.iter().all(|(_, what)| !what.contains("later version")), "{all:?}");
    // Each finding names a clause that the document lists. The document identifies the plugin's
    // file by its SHA-256 hash.
    let clauses: Vec<&str> = document["clauses"]
        .as_array()
        .expect("clauses")
        .iter()
        .map(|clause| clause["id"].as_str().expect("an id"))
        .collect();
    assert!(all.iter().all(|(clause, _)| clauses.contains(&clause.as_str())), "{all:?}");
    let summed = Command::new("sha256sum").arg(&file).output().expect("sha256sum");
    let summed = String::from_utf8_lossy(&summed.stdout);
    assert!(summed.starts_with(document["sha256"].as_str().expect("a text")), "{summed}");
    assert_eq!(document["profilers"][0]["name"], "minimal");

    let report = check(&file, &["--format", "markdown"]);
    let report = String::from_utf8_lossy(&report.stdout);
    assert!(report.starts_with("# Conformance of minimal.so to Kineto's"), "{report}");
    assert!(report.contains("| result | **conforms**"), "{report}");
    assert!(report.contains("state 92fa2ffc") && report.contains("| fragile |"), "{report}");
    let text = check(&file, &[]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("conforms to Kineto's profiler plugin interface"), "{text}");
    assert!(text.contains("0 violations"), "{text}");
}

#[test]
fn what_the_check_says_agrees_with_a_host_of_the_published_interface() {
    let Some(host) = Host::new() else { return testkit::skip("plugin check", "no g++") };
    let scratch = Scratch::new();
    let file = scratch.join("plugin.so");
    // The mistake in the plugin, the clause that it violates, if any, and what happens in the host.
    for (mistake, clause, made) in [
        ("NOTHING", None, Made::Recorded),
        ("EVENT_NAMELESS", None, Made::Recorded),
        ("SIZE_EXACT", None, Made::Recorded),
        ("TABLE_LARGER", None, Made::Recorded),
        ("REGISTER_FAILS", Some("entry"), Made::Refused),
        ("TABLE_SMALL", Some("table"), Made::Refused),
        ("STOP_MISSING", Some("table"), Made::Refused),
        ("QUERY_FAILS", Some("query"), Made::Refused),
        ("NO_TYPES", Some("types"), Made::Refused),
        ("CREATE_FAILS", Some("result"), Made::Refused),
        ("START_FAILS", Some("result"), Made::Refused),
        ("DESTROY_CRASHES", Some("result"), Made::Refused),
        ("EVENT_SMALL", Some("builder"), Made::Refused),
        ("METADATA_NOT_JSON", Some("metadata"), Made::Broke),
        // The header forbids these mistakes, although the host records.
        ("CREATE_CRASHES_SECOND", Some("result"), Made::Recorded),
        ("TYPE_UNKNOWN", Some("types"), Made::Recorded),
        ("NAME_ENDLESS", Some("query"), Made::Recorded),
        ("ROOM_IGNORED", Some("query"), Made::Recorded),
        ("EVENT_UNKNOWN", Some("types"), Made::Recorded),
        ("EVENT_BACKWARDS", Some("times"), Made::Recorded),
        ("EVENT_MONOTONIC", Some("times"), Made::Recorded),
        ("FLOW_ZERO", Some("flow"), Made::Recorded),
    ] {
        minimal(&file, mistake);
        let done = check(&file, &["--format", "json"]);
        let document = json(&done);
        let violations = findings(&document, "violation");
        let violated = clause.is_some();
        assert_eq!(done.status.code(), Some(i32::from(violated)), "{mistake}: {document:#}");
        let verdict = if violated { "violates" } else { "conforms" };
        assert_eq!(document["verdict"], verdict, "{mistake}: {violations:?}");
        match clause {
            Some(clause) => {
                assert!(violations.iter().any(|(of, _)| of == clause), "{mistake}: {violations:?}")
            }
            None => assert_eq!(violations, [], "{mistake}"),
        }
        assert_eq!(host.takes(&file), made, "{mistake}");
    }
}

#[test]
fn older_states_of_the_interface_are_refused_by_name() {
    let scratch = Scratch::new();
    for (state, commit) in [("1", "a5ccd64b"), ("2", "30c7bd1c")] {
        let file = scratch.join(&format!("state{state}.so"));
        let flags = ["-std=gnu11", &format!("-DSTATE={state}")];
        c::shared("cc", "plugins/older.c", &file, &flags).expect("a C compiler");
        let done = check(&file, &["--format", "json"]);
        let document = json(&done);
        assert_eq!(document["verdict"], "violates");
        let of_state: Vec<_> = findings(&document, "violation")
            .into_iter()
            .filter(|(clause, what)| clause == "state" && what.contains(commit))
            .collect();
        assert_eq!(of_state.len(), 1, "{document:#}");
        assert!(of_state[0].1.contains("build it for state 92fa2ffc"), "{of_state:?}");
    }
    // `plugin list` detects the older state of the interface, too.
    let mut list = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    let listed = list.args(["plugin", "list", "--format", "json"]).arg(scratch.join("state1.so"));
    let listed = json(&listed.output().expect("the program starts"));
    let problems = listed["plugins"][0]["problems"].to_string();
    assert!(problems.contains("a5ccd64b"), "{listed:#}");
}

#[test]
fn the_time_of_all_questions_is_limited() {
    let scratch = Scratch::new();
    let file = scratch.join("hangs.so");
    minimal(&file, "HANGS_LATE");
    let begun = Instant::now();
    let done = check(&file, &["--timeout", "3s", "--format", "json"]);
    // `--timeout` limits the time of all questions (the check's calls of the plugin) together.
    // Without it, a single question may take half a minute.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!(done.status.code(), Some(1));
    let document = json(&done);
    assert_eq!(document["verdict"], "unknown", "{document:#}");
    let outcomes: Vec<&str> = document["probes"]
        .as_array()
        .expect("probes")
        .iter()
        .filter_map(|probe| probe["outcome"].as_str())
        .collect();
    assert_eq!(outcomes.first(), Some(&"passed"));
    assert_eq!(outcomes.last(), Some(&"not asked: no time was left"));
    let text = check(&file, &["--timeout", "3s"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("is not certified") && text.contains("not asked"), "{text}");
}

#[test]
fn a_plugin_cannot_harm_who_asks_about_it() {
    let scratch = Scratch::new();
    let late = "took longer than 2 seconds and was given up";
    for (harm, said) in [
        ("CLOSES_AND_HANGS", late),
        ("FLOODS", "answered with more than 1048576 bytes"),
        ("DRIPS", late),
        ("STOPS", late),
        ("EXITS", "ended its process with status 0"),
        ("RAISES", "died of signal 15"),
        ("JUMPS", "died of signal"),
    ] {
        let file = scratch.join(&format!("{harm}.so"));
        let flags = ["-std=gnu11", "-w", &format!("-DHARM={harm}")];
        c::shared("cc", "plugins/hostile.c", &file, &flags).expect("a C compiler");
        let begun = Instant::now();
        let document = json(&check(&file, &["--timeout", "2s", "--format", "json"]));
        assert!(begun.elapsed() < Duration::from_secs(25), "{harm}: {:?}", begun.elapsed());
        // If the 2 seconds are over before the plugin has answered, there may be no finding,
        // because it is not known whether the plugin hangs. A flood of answers may end in this way,
        // too, because reading a mebibyte takes long on a busy machine.
        let what = document["findings"][0]["what"].as_str();
        let outcome = document["probes"][0]["outcome"].as_str().unwrap_or_default();
        let is_told = what.is_some_and(|what| what.starts_with(said));
        let takes_long = said == late || harm == "FLOODS";
        let no_time = takes_long && outcome == "not asked: no time was left";
        assert!(is_told || no_time, "{harm}: {document:#}");
        assert_ne!(document["verdict"], "conforms", "{harm}");
        let list = ["plugin", "list", "--format", "json"];
        if said != late {
            let mut listed = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            let listed = json(&listed.args(list).arg(&file).output().expect("starts"));
            let problems = listed["plugins"][0]["problems"].to_string();
            assert!(problems.contains(said), "{harm}: {listed:#}");
        }
    }
}

/// Returns the number of processes that have the file in their command line.
fn running_with(file: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let words = |process: std::fs::DirEntry| std::fs::read(process.path().join("cmdline"));
    let name = file.to_str().expect("UTF-8").as_bytes();
    processes
        .filter_map(|process| words(process).ok())
        .filter(|words| words.split(|byte| *byte == 0).any(|word| word == name))
        .count()
}

fn wait_for(processes: usize, file: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while running_with(file) != processes {
        assert!(Instant::now() < end, "{} run", running_with(file));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_a_plugin_has_forked_ends_with_the_question() {
    let scratch = Scratch::new();
    let file = scratch.join("forks.so");
    c::shared("cc", "plugins/hostile.c", &file, &["-std=gnu11", "-w", "-DHARM=FORKS"]).expect("cc");
    // The process that the plugin forked also has the pipe for answers open, so the check must not
    // wait for the pipe's end.
    let begun = Instant::now();
    let document = json(&check(&file, &["--timeout", "120s", "--format", "json"]));
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    assert_eq!(document["probes"][0]["outcome"], "passed", "{document:#}");
    // It takes a moment until the killed process has disappeared.
    wait_for(0, &file);
}

#[test]
fn what_a_plugin_has_forked_ends_with_an_interrupted_command() {
    let scratch = Scratch::new();
    let file = scratch.join("hangs.so");
    let flags = ["-std=gnu11", "-w", "-DHARM=FORKS_AND_HANGS"];
    c::shared("cc", "plugins/hostile.c", &file, &flags).expect("cc");
    for signal in [libc::SIGINT, libc::SIGTERM] {
        for what in ["check", "list"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            command.args(["plugin", what]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("starts");
            // The three processes are the command, its child that calls the plugin, and the process
            // that the plugin forked.
            wait_for(3, &file);
            // SAFETY: `kill` takes numbers only. Our child has not been waited for, so no other
            // process can have its process id.
            unsafe { libc::kill(child.id() as i32, signal) };
            let status = child.wait().expect("waits");
            assert_eq!(status.signal(), Some(signal), "{what}: {status}");
            wait_for(0, &file);
        }
    }
}
