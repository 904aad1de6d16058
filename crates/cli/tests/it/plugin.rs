//! Tests `counterpoint plugin` with plugins that the tests compile. Some of them crash, hang, write
//! without end, or report wrong sizes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::{Scratch, c};

fn counterpoint(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.args(arguments).env_remove("KINETO_PLUGIN_LIB_DIR_PATH").env("COLUMNS", "120");
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a plugin whose events get the present time.
fn plugin(to: &Path, flags: &[&str]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    let base = format!("-DBASE={now}LL");
    c::shared("cc", "plugins/plugin.c", to, &[flags, &[&base]].concat())
        .expect("a C compiler: Rust links with it");
}

/// Compiles the documentation's example.
fn example(to: &Path) {
    let source = "../../examples/plugin-c/clock.c";
    c::compile("cc", source, to, &["-std=gnu11", "-fPIC", "-shared", "-lpthread"])
        .expect("a C compiler: Rust links with it");
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn a_kernel_with_a_random_name_is_in_every_output() {
    let scratch = Scratch::new();
    let file = scratch.join("random.so");
    let name = format!("kernel_{:016x}", u64::from(std::process::id()).wrapping_mul(0x9e37_79b9));
    plugin(&file, &[&format!("-DNAME=\"{name}\"")]);
    let profile = shown(&scratch.join("p.cpt"));
    let done = counterpoint(&["plugin", "run", &shown(&file), "--for", "1ms", "-o", &profile]);
    assert!(done.status.success(), "{done:?}");
    assert!(text(&done.stderr).contains("4 events of 1 plugin"), "{}", text(&done.stderr));

    let report = counterpoint(&["report", &profile]);
    assert!(text(&report.stdout).contains(&name), "{}", text(&report.stdout));
    assert!(text(&report.stdout).contains("read GB/s"), "{}", text(&report.stdout));
    let stats = counterpoint(&["stats", &profile]);
    assert!(text(&stats.stdout).contains(&name), "{}", text(&stats.stdout));
    let calls = counterpoint(&["export", &profile, "--format", "csv"]);
    assert!(text(&calls.stdout).contains(&name), "{}", text(&calls.stdout));

    let trace = shown(&scratch.join("t.json"));
    assert!(counterpoint(&["trace", "export", &profile, "-o", &trace]).status.success());
    let trace: Value = serde_json::from_slice(&fs::read(trace).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let find = |phase: &str, name: &str| {
        let found = events.iter().find(|event| event["ph"] == phase && event["name"] == name);
        found.unwrap_or_else(|| panic!("no {phase} {name} in {events:#?}"))
    };
    // The expected values are those in tests/programs/plugins/plugin.c.
    let kernel = find("X", &name);
    assert_eq!(
        (&kernel["pid"], &kernel["tid"], &kernel["dur"]),
        (&3.into(), &7.into(), &7.5.into())
    );
    let arguments = &kernel["args"];
    assert_eq!((&arguments["stream"], &arguments["device"]), (&7.into(), &3.into()));
    assert_eq!(arguments["correlation"], 11, "the event's id, by which tools join it");
    let launch = find("X", "launch");
    assert_eq!((&launch["cat"], &launch["pid"]), (&"privateuse1_runtime".into(), &500.into()));
    let arrow = |phase: &str| {
        let found = events.iter().find(|event| event["ph"] == phase && event["cat"] == "ac2g");
        (found.expect("an arrow")["id"].clone(), found.expect("an arrow")["ts"].clone())
    };
    assert_eq!(arrow("s"), (11.into(), launch["ts"].clone()));
    assert_eq!(arrow("f"), (11.into(), kernel["ts"].clone()));
    assert_eq!(find("C", "bandwidth")["args"]["read GB/s"], 10.5);
    let named = events
        .iter()
        .any(|event| event["name"] == "process_name" && event["args"]["name"] == "accelerator 3");
    assert!(named, "{events:#?}");
}

#[test]
fn one_bad_file_never_stops_the_others() {
    let scratch = Scratch::new();
    let directory = scratch.join("plugins");
    fs::create_dir(&directory).expect("makes a folder");
    plugin(&directory.join("b-good.so"), &[]);
    plugin(&directory.join("c-metadata.so"), &["-DMISTAKE=BAD_METADATA"]);
    plugin(&directory.join("d-register.so"), &["-DMISTAKE=REGISTER_FAILS_LATE"]);
    fs::write(directory.join("a-text.so"), "no shared object").expect("writes");
    fs::write(directory.join("readme.txt"), "not looked at").expect("writes");
    for (name, where_to) in [("e-abort.so", "process"), ("f-crash.so", "start")] {
        let flags = [format!("-DABORT_IN_{}=1", where_to.to_uppercase())];
        c::shared("cc", "plugins/odd.c", &directory.join(name), &[&flags[0]]).expect("compiles");
    }
    let profile = shown(&scratch.join("p.cpt"));
    let run = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["plugin", "run", "--for", "1ms", "-o", &profile])
        .env("KINETO_PLUGIN_LIB_DIR_PATH", &directory)
        .output()
        .expect("starts");
    let said = text(&run.stderr);
    assert!(run.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("plugins/")).collect();
    let expected = [
        ("a-text.so", "cannot be loaded: "),
        ("c-metadata.so", "added metadata that is not JSON, kept as text: broken = {\"a\":"),
        ("d-register.so", "returned 6 after it had registered 1 profilers"),
        ("e-abort.so", "died of signal 6 (SIGABRT, it called abort) in profilerProcessEvents"),
        ("f-crash.so", "died of signal 11 (SIGSEGV, a wrong address) in profilerStart"),
    ];
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, (file, what)) in lines.iter().zip(expected) {
        assert!(line.contains(file) && line.contains(what), "{line}");
    }
    // `b` and `c` return four events each.
    assert!(said.contains("8 events of 2 plugins"), "{said}");
    let report = counterpoint(&["report", &profile]);
    let losses = format!("{}{}", text(&report.stdout), text(&report.stderr));
    assert!(losses.contains("5 × plugin_failed"), "{losses}");

    let listed = counterpoint(&["plugin", "list", &shown(&directory), "--format", "json"]);
    assert_eq!(listed.status.code(), Some(1), "some cannot be used");
    let listed = json(&listed);
    let names: Vec<(&str, bool)> = listed["plugins"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            let file = row["file"].as_str().expect("a path").rsplit('/').next().expect("a name");
            (file, row["name"].is_string())
        })
        .collect();
    assert_eq!(
        names,
        [
            ("a-text.so", false),
            ("b-good.so", true),
            ("c-metadata.so", true),
            ("d-register.so", false),
            ("e-abort.so", true),
            ("f-crash.so", true)
        ]
    );
    assert_eq!(listed["plugins"][1]["interface_bytes"], 88);
}

#[test]
fn the_example_and_the_sdk_pass_every_probe() {
    let scratch = Scratch::new();
    let clock = scratch.join("clock.so");
    example(&clock);
    let checked = counterpoint(&["plugin", "check", &shown(&clock), "--format", "json"]);
    let document = json(&checked);
    assert_eq!(document["findings"], serde_json::json!([]), "{document}");
    let probes = document["probes"].as_array().expect("a list").len();
    assert!(checked.status.success() && probes > 20, "{document}");
    // The example plugin does work in bursts that take a millisecond each.
    let profile = shown(&scratch.join("p.cpt"));
    let done = counterpoint(&["plugin", "run", &shown(&clock), "--for", "100ms", "-o", &profile]);
    assert!(done.status.success(), "{done:?}");
    let report = json(&counterpoint(&["report", &profile, "--format", "json"]));
    let ops = report["rows"].as_array().expect("ops");
    let calls = |name: &str| {
        ops.iter().find(|op| op["op"] == name).and_then(|op| op["calls"].as_u64()).expect("an op")
    };
    assert_eq!(calls("launch"), calls("add 20000"));
    assert!((1..=100).contains(&calls("launch")), "{ops:?}");
}

#[test]
fn a_plugin_without_checks_is_told_each_of_them() {
    let scratch = Scratch::new();
    let file = scratch.join("plain.so");
    plugin(&file, &[]);
    let checked = counterpoint(&["plugin", "check", &shown(&file), "--format", "json"]);
    assert_eq!(checked.status.code(), Some(1));
    let document = json(&checked);
    let found = |probe: &str, level: &str| {
        document["findings"].as_array().expect("a list").iter().any(|finding| {
            finding["probes"].to_string().contains(probe) && finding["level"] == level
        })
    };
    // The functions of this plugin do not check their arguments.
    assert!(found("null registry", "fragile"), "{document:#}");
    assert!(found("little room", "violation"), "{document:#}");
    assert!(found("too small", "style"), "{document:#}");
    assert!(!found("it records once", "violation"), "{document:#}");
    let missing = counterpoint(&["plugin", "check", &shown(&scratch.join("nowhere.so"))]);
    assert_eq!(missing.status.code(), Some(2));
}

/// The environment variable `THROWS_AT` names a function of the plugin, and what the function does
/// instead of returning (`tests/programs/plugins/throws.cpp`).
#[test]
fn what_does_not_return_is_named_and_counted() {
    let scratch = Scratch::new();
    let file = scratch.join("throws.so");
    let flags = ["-std=c++17", "-fPIC", "-shared"];
    let Some(()) = c::compile("g++", "plugins/throws.cpp", &file, &flags) else {
        return testkit::skip("plugin", "no g++");
    };
    let file = shown(&file);
    let profile = shown(&scratch.join("p.cpt"));
    let with = |at: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        command.args(arguments).env("THROWS_AT", at).env("COLUMNS", "120");
        command.output().expect("the program starts")
    };
    let run = ["plugin", "run", &file, "--for", "1ms", "-o", &profile];
    for (at, events, says) in [
        (
            "profilerStart:runtime_error",
            2,
            "profilerStart threw a C++ exception of type std::runtime_error: no device",
        ),
        ("profilerProcessEvents:int", 1, "profilerProcessEvents threw a C++ exception of type int"),
        ("profilerProcessEvents:thread_exit", 1, "profilerProcessEvents called pthread_exit"),
        (
            "profilerCreate:own",
            0,
            "profilerCreate threw a C++ exception of type (anonymous namespace)::Own",
        ),
        ("profilerStart:exit", 0, "ended its process with status 3 in profilerStart"),
        (
            "profilerProcessEvents:exit0",
            0,
            "ended its process with status 0 in profilerProcessEvents",
        ),
    ] {
        let done = with(at, &run);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(i32::from(events == 0)), "{at}: {said}");
        let line = said.lines().find(|line| line.contains("throws.so: ")).expect("named");
        assert!(line.contains(says), "{at}: {said}");
        let report = counterpoint(&["report", &profile, "--format", "json"]);
        let report = json(&report);
        let calls: u64 = report["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|row| row["calls"].as_u64())
            .sum();
        assert_eq!(calls, events, "{at}");
        let losses = report["losses"].to_string();
        assert!(losses.contains("\"plugin_failed\"") && losses.contains(":1"), "{at}: {losses}");
    }
    let checked = with("profilerStop:own", &["plugin", "check", &file, "--format", "json"]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    let document = json(&checked);
    let findings = document["findings"].as_array().expect("a list");
    let threw = |finding: &&Value| {
        finding["level"] == "violation"
            && finding["clause"] == "returns"
            && finding["what"].as_str().is_some_and(|what| what.contains("Own: no device of mine"))
    };
    let probes = findings.iter().find(threw).and_then(|finding| finding["probes"].as_array());
    assert!(probes.is_some_and(|probes| probes.len() > 3), "{document:#}");
    let listed = with("profilerQuery:int", &["plugin", "list", &file, "--format", "json"]);
    let listed = json(&listed);
    let problems = listed["plugins"][0]["problems"].to_string();
    assert!(problems.contains("threw a C++ exception of type int"), "{listed:#}");
}

#[test]
fn a_flood_is_kept_up_to_the_limit() {
    let scratch = Scratch::new();
    let file = scratch.join("flood.so");
    c::shared("cc", "plugins/odd.c", &file, &["-DEVENTS=200000"]).expect("compiles");
    let file = shown(&file);
    let run = |limit: &[&str]| {
        let profile = shown(&scratch.join("p.cpt"));
        let all = [&["plugin", "run", &file, "--for", "1ms", "-o", &profile], limit].concat();
        let done = counterpoint(&all);
        assert!(done.status.success(), "{done:?}");
        (text(&done.stderr), text(&counterpoint(&["report", &profile]).stdout))
    };
    let (said, report) = run(&[]);
    assert!(said.contains("200000 events") || said.contains("200,000 events"), "{said}");
    assert!(report.contains("200,000"), "{report}");
    let (said, report) = run(&["--max-buffer", "1M"]);
    assert!(said.contains("did not fit into --max-buffer"), "{said}");
    assert!(report.contains("plugin_buffer_full"), "{report}");
}

#[test]
fn ctrl_c_ends_a_recording_and_keeps_it() {
    let scratch = Scratch::new();
    let clock = scratch.join("clock.so");
    example(&clock);
    let profile = shown(&scratch.join("p.cpt"));
    let child = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["plugin", "run", &shown(&clock), "--for", "600s", "-o", &profile])
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let begun = Instant::now();
    // `plugin run` loads the plugin in a child process. There, the plugin starts a thread when the
    // recording begins.
    while !has_thread(child.id()) && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: `kill` takes numbers only. Our child has not been waited for, so no other process can
    // have its process id.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("events of 1 plugin"), "{}", text(&output.stderr));
}

fn has_thread(parent: u32) -> bool {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    children.split_ascii_whitespace().any(|child| {
        fs::read_dir(format!("/proc/{child}/task")).is_ok_and(|tasks| tasks.count() > 1)
    })
}

#[test]
fn wrong_arguments_are_named() {
    let scratch = Scratch::new();
    let empty = scratch.join("empty");
    fs::create_dir(&empty).expect("makes a folder");
    let plugin_file: PathBuf = scratch.join("x.so");
    plugin(&plugin_file, &[]);
    let file = shown(&plugin_file);
    let profile = shown(&scratch.join("p.cpt"));
    for (arguments, what) in [
        (&["plugin", "list"][..], "no plugin was named"),
        (&["plugin", "list", &shown(&empty)], "has no plugins"),
        (&["plugin", "list", &shown(&scratch.join("none"))], "No such file or directory"),
        (&["plugin", "run", &file], "--for <TIME>"),
        (&["plugin", "run", &file, "--for", "5", "-o", &profile], "add a unit to the time"),
        (
            &["plugin", "run", &file, "--for", "1ms", "--kinds", "kernels", "-o", &profile],
            "\"kernels\" is not a kind of events",
        ),
        (
            &["plugin", "run", &file, "--for", "1ms", "--max-buffer", "0", "-o", &profile],
            "not a number of bytes",
        ),
    ] {
        let output = counterpoint(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(what), "{arguments:?}: {}", text(&output.stderr));
        assert!(!Path::new(&profile).exists(), "{arguments:?}");
    }
    // The plugin supports none of the requested kinds.
    let none = counterpoint(&[
        "plugin", "run", &file, "--for", "1ms", "--kinds", "memset", "-o", &profile,
    ]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let report = json(&counterpoint(&["report", &profile, "--format", "json"]));
    let created = report["profile"]["created_unix_ns"].as_u64().expect("a number");
    assert!(created > 1_700_000_000_000_000_000, "when it was recorded is known: {created}");
}
