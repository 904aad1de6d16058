//! Tests profiler plugins in recorded programs and in sessions. The plugin is
//! `tests/programs/plugins/timed.c`, and most programs are `tests/programs/plugged.c`,
//! `plugged_session.c` and stock IREE.
//!
//! above 600 lines: all of these tests use the same plugin and the same helpers.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Scratch, c};

use crate::support::trace_processor::{Timeline, TraceProcessor};
use crate::support::{Expected, Iree, Programs, Recorded, counterpoint};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn timed(to: &Path, flags: &[&str]) {
    let flags = [&["-std=gnu11"], flags].concat();
    c::shared("cc", "plugins/timed.c", to, &flags).expect("a C compiler: Rust links with it");
}

/// A compiled plugin. `shown` returns the plugin's path for the option `--plugin`.
struct Plugin {
    scratch: Scratch,
    file: PathBuf,
}

impl Plugin {
    fn new() -> Self {
        let scratch = Scratch::new();
        let file = scratch.join("timed.so");
        timed(&file, &[]);
        Self { scratch, file }
    }

    fn shown(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// Records the program `plugged` with this plugin. `mode` contains the arguments of the
    /// program.
    fn run(&self, program: &Path, options: &[&str], mode: &[&str]) -> Recorded {
        let options = [&["--plugin", self.shown()], options].concat();
        Recorded::run_with(program, "none", &options, &mut plugged(mode))
    }
}

fn plugged(mode: &[&str]) -> Command {
    let mut command = Command::new(Programs::get().other("plugged"));
    command.args(mode);
    command
}

fn ops(recorded: &Recorded) -> Vec<(String, u64)> {
    let report = recorded.report(&[]);
    let rows = report["rows"].as_array().unwrap();
    let mut ops: Vec<(String, u64)> = rows
        .iter()
        .map(|row| (row["op"].as_str().unwrap().to_owned(), row["calls"].as_u64().unwrap()))
        .collect();
    ops.sort();
    ops
}

/// Returns the ops and calls that are expected if `timed.c` records in this many programs.
fn of_processes(count: u64) -> Vec<(String, u64)> {
    vec![("launch it".to_owned(), count), ("timed kernel".to_owned(), count)]
}

fn view(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("COLUMNS", "160").output().unwrap()
}

/// Exports a recording to a trace in Chrome's format.
fn trace(program: &Path, recorded: &Recorded, to: &Path) -> Value {
    let (profile, file) = (recorded.path(), to.to_str().unwrap());
    let done = view(program, &["trace", "export", profile.to_str().unwrap(), "-o", file]);
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&fs::read(to).unwrap()).unwrap()
}

#[test]
fn a_kernel_with_a_random_name_is_among_the_dispatches_in_every_output() {
    let Some(program) = counterpoint("plugins and IREE") else { return };
    let Some(iree) = Iree::new("plugins and IREE") else { return };
    let scratch = Scratch::new();
    let name = format!("kernel_{:016x}", u64::from(std::process::id()).wrapping_mul(0x9e37_79b9));
    let file = scratch.join("random.so");
    timed(&file, &[&format!("-DNAME=\"{name}\"")]);
    let expected = Expected::of("mlp");
    let mut command = Command::new(iree.tool("iree-run-module"));
    command.arg(format!("--module={}", iree.module("mlp", false).display()));
    command.arg("--device=local-task").args(expected.arguments());
    // This `iree-run-module` is a Python script that starts the real tool of the same name. With
    // `--plugin-in`, the plugin records only in the tool.
    let options = ["--plugin", file.to_str().unwrap(), "--plugin-in", "iree-run-module"];
    let recorded = Recorded::run_with(&program, "task-clock", &options, &mut command);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    assert!(recorded.losses().is_empty(), "{:?}", recorded.losses());

    let report = recorded.report(&[]);
    for row in report["rows"].as_array().unwrap() {
        let op = row["op"].as_str().unwrap();
        let calls = row["calls"].as_u64().unwrap();
        match expected.ops.get(op) {
            Some((expected, _)) => assert_eq!(calls, *expected, "{op}"),
            None => assert!(calls == 1 && (op == name || op == "launch it"), "{row}"),
        }
    }
    assert_eq!(report["rows"].as_array().unwrap().len(), expected.ops.len() + 2);
    let profile = recorded.path();
    let profile = profile.to_str().unwrap();
    for arguments in
        [&["report", profile][..], &["stats", profile], &["export", profile, "--format", "csv"]]
    {
        let shown = text(&view(&program, arguments).stdout);
        assert!(shown.contains(&name), "{arguments:?}: {shown}");
    }
    let shown = text(&view(&program, &["report", profile]).stdout);
    assert!(shown.contains("power board") && shown.contains("42.5 W"), "{shown}");
    assert!(shown.contains("accelerator 3 of "), "{shown}");

    let file = scratch.join("t.json");
    let trace = trace(&program, &recorded, &file);
    let base_ns = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = || events.iter().filter(|event| event["ph"] == "X");
    let kernel = slices().find(|event| event["name"] == name.as_str()).expect("the kernel");
    // The argument `times` has the UTC times of the plugin's start and stop. The trace has UTC
    // times from the profile's own clock. Both agree, except for adjustments of UTC.
    let ns = |value: &Value| (value.as_f64().unwrap() * 1e3).round() as i64;
    let (begin, end) =
        (ns(&kernel["ts"]) + base_ns, ns(&kernel["ts"]) + ns(&kernel["dur"]) + base_ns);
    let said = &kernel["args"]["times"];
    for (shown, said) in [(begin, &said[0]), (end, &said[1])] {
        let off = shown - said.as_i64().unwrap();
        assert!(off.abs() < 1_000_000, "{off} ns off in {kernel}");
    }
    // The dispatches are between the start and the stop of the plugin.
    let mut dispatches = 0;
    for slice in slices().filter(|slice| expected.ops.contains_key(slice["name"].as_str().unwrap()))
    {
        let at = ns(&slice["ts"]) + base_ns;
        assert!(begin < at && at + ns(&slice["dur"]) < end, "{slice} is not within {kernel}");
        dispatches += 1;
    }
    assert!(dispatches > 0);

    let Some(mut oracle) = TraceProcessor::start("plugins and IREE") else { return };
    let shown = |timeline: &Timeline| {
        let at = |name: &str| timeline.slices.iter().position(|slice| slice.name == name).unwrap();
        let ends = [at("launch it"), at(&name)];
        assert!(timeline.flows.contains(&ends), "{:?}", timeline.flows);
        let point = timeline.points.iter().find(|point| point.value == 42.5).expect("a point");
        (ends.map(|end| timeline.slices[end].clone()), point.ts)
    };
    let ([launch, kernel], power_at) = shown(&oracle.timeline(&file));
    assert!(kernel.row[0].starts_with("accelerator 3 of iree-run-module "), "{kernel:?}");
    assert_eq!((kernel.row[1].as_str(), kernel.category.as_str()), ("stream 7", "kernel"));
    assert!((kernel.ts - begin).abs() <= 1 && (kernel.ts + kernel.dur - end).abs() <= 2);
    assert!((power_at - launch.ts).abs() <= 1, "both when the plugin was started");
    let native = scratch.join("t.pftrace");
    let done = view(&program, &["trace", "export", profile, "-o", native.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    let ([launch_again, kernel_again], _) = shown(&oracle.timeline(&native));
    for (json, native) in [(launch, launch_again), (kernel, kernel_again)] {
        // The trace processor reads times of Chrome's format as doubles, which can be wrong by 1
        // ns.
        assert!((json.ts - native.ts).abs() <= 1 && (json.dur - native.dur).abs() <= 1);
        assert_eq!((json.row, json.category), (native.row, native.category));
    }
    let unit = oracle.query("select unit from counter_track where name like 'power%'");
    assert_eq!(unit, [["W"]], "the track's unit");
}

#[test]
fn however_a_program_ends_in_an_orderly_way_its_plugin_hands_over() {
    let Some(program) = counterpoint("orderly ends") else { return };
    let plugin = Plugin::new();
    let own = Programs::get().other("plugged");
    let own = own.to_str().unwrap();
    let shell = format!("{own} return; test $? = 3");
    // The mode, the exit status, and the number of programs in which the plugin recorded to the
    // end.
    for (mode, status, programs) in [
        (&["return"][..], 3, 1),
        (&["exit"], 3, 1),
        (&["threads"], 4, 1),
        (&["fork"], 7, 1), // a forked child has no plugins
        (&["children", own, "return"], 0, 3),
        (&["exec", own, "exit"], 3, 3), // one exec fails; then the plugin records anew
        (&["system", &shell], 0, 2),    // not the shell
    ] {
        let recorded = plugin.run(&program, &[], mode);
        let said = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(status), "{mode:?}: {said}");
        assert_eq!(ops(&recorded), of_processes(programs), "{mode:?}: {said}");
        assert!(recorded.losses().is_empty(), "{mode:?}: {:?}", recorded.losses());
        assert_eq!(said.lines().count(), 1, "{mode:?}: {said}");
        assert!(!recorded.path().join("plugins.tmp").exists());
    }
}

#[test]
fn a_program_that_is_cut_off_loses_what_was_not_handed_over_by_name() {
    let Some(program) = counterpoint("cut off") else { return };
    let plugin = Plugin::new();
    for (mode, code, signal) in [
        ("_exit", Some(3), None),
        ("kill", None, Some(libc::SIGKILL)),
        ("abort", None, Some(libc::SIGABRT)),
    ] {
        let recorded = plugin.run(&program, &[], &[mode]);
        let ended = recorded.output.status;
        assert_eq!((ended.code(), ended.signal()), (code, signal), "{mode}: {}", recorded.stderr());
        assert_eq!(recorded.losses().get("plugin_failed"), Some(&1), "{mode}");
        let said = recorded.stderr();
        assert!(said.contains("timed.so in plugged"), "{mode}: {said}");
        assert!(said.contains("the process ended while it recorded"), "{mode}: {said}");
        let report = view(&program, &["report", recorded.path().to_str().unwrap()]);
        assert!(text(&report.stdout).contains("1 × plugin_failed"), "{}", text(&report.stdout));
    }
}

#[test]
fn a_failure_of_any_call_is_named_and_counted_and_the_program_goes_on() {
    let Some(program) = counterpoint("failing plugins") else { return };
    let plugin = Plugin::new();
    let function = |call: &str| match call {
        "create" => "profilerCreate".to_owned(),
        "start" => "profilerStart".to_owned(),
        "stop" => "profilerStop".to_owned(),
        "process" => "profilerProcessEvents".to_owned(),
        "destroy" => "profilerDestroy".to_owned(),
        other => other.to_owned(),
    };
    for call in ["create", "start", "stop", "process", "destroy", "toggle"] {
        let mut command = plugged(&["return"]);
        command.env("TIMED_PLUGIN", format!("fail={call}"));
        let options = ["--plugin", plugin.shown(), "--plugin-paused"];
        let recorded = Recorded::run_with(&program, "none", &options, &mut command);
        let said = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(3), "{call}: {said}");
        let expected = format!("timed.so in plugged {}: {} returned 9", pid(&said), function(call));
        assert!(said.contains(&expected), "{call}: {said}");
        assert_eq!(recorded.losses().get("plugin_failed"), Some(&1), "{call}: {said}");
        // The events before the failure are kept.
        let kept = if call == "create" { 0 } else { 1 };
        assert_eq!(ops(&recorded), if kept == 0 { vec![] } else { of_processes(1) }, "{call}");
    }
}

fn pid(said: &str) -> &str {
    let rest = said.split("in plugged ").nth(1).unwrap_or_else(|| panic!("{said}"));
    rest.split(':').next().unwrap()
}

#[test]
fn a_plugin_that_hangs_or_crashes_costs_its_own_events() {
    let Some(program) = counterpoint("hanging plugins") else { return };
    let plugin = Plugin::new();
    for (call, doing) in [("stop", "in profilerStop"), ("process", "in profilerProcessEvents")] {
        let hang = format!("hang={call}");
        let options = ["--plugin-config", &hang, "--plugin-timeout", "200ms"];
        let recorded = plugin.run(&program, &options, &["return"]);
        let said = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("the process ended {doing}, or")), "{said}");
        assert_eq!(recorded.losses().get("plugin_failed"), Some(&1), "{said}");
    }
    // A crash at the end of the program loses the plugin's events. An earlier crash ends the
    // program.
    let recorded = plugin.run(&program, &["--plugin-config", "crash=process"], &["return"]);
    assert_eq!(recorded.output.status.code(), Some(3), "{}", recorded.stderr());
    assert!(recorded.stderr().contains("profilerProcessEvents crashed with signal 11"));
    let mut command = plugged(&["return"]);
    command.env("TIMED_PLUGIN", "crash=start");
    let options = ["--plugin", plugin.shown()];
    let recorded = Recorded::run_with(&program, "none", &options, &mut command);
    assert_eq!(recorded.output.status.signal(), Some(libc::SIGSEGV));
    assert!(recorded.stderr().contains("the process ended in profilerStart"));
}

#[test]
fn one_bad_plugin_never_stops_the_others() {
    let Some(program) = counterpoint("bad plugins") else { return };
    let scratch = Scratch::new();
    let directory = scratch.join("plugins");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a-text.so"), "no shared object").unwrap();
    timed(&directory.join("b-good.so"), &["-DNAME=\"good kernel\""]);
    let flags = ["-DMISTAKE=REGISTER_FAILS_LATE"];
    c::shared("cc", "plugins/plugin.c", &directory.join("c-register.so"), &flags).unwrap();
    timed(&directory.join("d-good.so"), &["-DNAME=\"second kernel\""]);
    let options = ["--plugin", directory.to_str().unwrap()];
    let recorded = Recorded::run_with(&program, "none", &options, &mut plugged(&["return"]));
    let said = recorded.stderr();
    assert_eq!(recorded.output.status.code(), Some(3), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("plugins/")).collect();
    let expected = [
        ("a-text.so", "cannot be loaded: "),
        ("c-register.so", "returned 6 after it had registered 1 profilers"),
    ];
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, (file, what)) in lines.iter().zip(expected) {
        assert!(line.contains(file) && line.contains(what), "{line}");
    }
    assert_eq!(recorded.losses().get("plugin_failed"), Some(&2), "{said}");
    let one = |name: &str, calls| (name.to_owned(), calls);
    let expected = [one("good kernel", 1), one("launch it", 2), one("second kernel", 1)];
    assert_eq!(ops(&recorded), expected);

    // The option `--plugin` takes precedence over the variable that names the plugins for Kineto's
    // hosts.
    let mut command = plugged(&["return"]);
    command.env("KINETO_PLUGIN_LIB_DIR_PATH", &directory);
    let recorded = Recorded::run(&program, "none", &mut command);
    assert_eq!(ops(&recorded), expected, "{}", recorded.stderr());
    let only = directory.join("b-good.so");
    let options = ["--plugin", only.to_str().unwrap()];
    let recorded = Recorded::run_with(&program, "none", &options, &mut command);
    assert_eq!(ops(&recorded), [one("good kernel", 1), one("launch it", 1)]);
    // Somebody may have set this variable for another host of plugins. So it is no error if its
    // directory is missing.
    command.env("KINETO_PLUGIN_LIB_DIR_PATH", scratch.join("nowhere"));
    let recorded = Recorded::run(&program, "none", &mut command);
    assert_eq!(recorded.output.status.code(), Some(3));
    assert!(recorded.stderr().contains("no plugins are loaded"), "{}", recorded.stderr());
    let options = ["--plugin", "/nowhere/at all.so"];
    let recorded = Recorded::run_with(&program, "none", &options, &mut plugged(&["return"]));
    assert_eq!(recorded.output.status.code(), Some(2), "{}", recorded.stderr());
}

#[test]
fn a_flood_of_events_is_kept_or_counted() {
    let Some(program) = counterpoint("floods") else { return };
    let plugin = Plugin::new();
    let flood = ["--plugin-config", "events=1000000"];
    let recorded = plugin.run(&program, &flood, &["return"]);
    let mut expected = of_processes(1);
    expected.insert(1, ("more".to_owned(), 1_000_000));
    assert_eq!(ops(&recorded), expected, "{}", recorded.stderr());
    assert!(recorded.losses().is_empty());

    let recorded =
        plugin.run(&program, &[&flood[..], &["--plugin-buffer", "64K"]].concat(), &["return"]);
    let kept: u64 = ops(&recorded).iter().map(|(_, calls)| calls).sum();
    let lost = recorded.losses()["plugin_buffer_full"];
    assert_eq!(kept + lost, 1_000_002, "{}", recorded.stderr());
    assert!(kept > 0 && recorded.stderr().contains("did not fit into --plugin-buffer"));
}

/// Waits until `is` returns true because of what another process does. Fails after a minute.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn plugins_pause_continue_and_hand_over_while_the_program_runs() {
    let Some(program) = counterpoint("mid-session") else { return };
    let plugin = Plugin::new();
    let dir = plugin.scratch.join("live.cpt");
    let profile = dir.to_str().unwrap();
    let own = Programs::get().other("plugged");
    let said = plugin.scratch.join("said");
    let mut run = Command::new(&program)
        .args(["run", "-e", "none", "--plugin", plugin.shown(), "-o", profile, "--"])
        .args([own.to_str().unwrap(), "wait"])
        .stdin(Stdio::piped())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let files = || {
        let parts = fs::read_dir(dir.join("processes")).into_iter().flatten().flatten();
        let part = parts.map(|part| part.path()).next()?;
        fs::metadata(part.join("plugins-0.events")).ok().map(|file| file.len())
    };
    wait_until("the plugin starts", || files().is_some_and(|bytes| bytes > 100));
    let control = |what: &str| {
        let done = view(&program, &["plugin", what, profile]);
        assert!(done.status.success(), "{what}: {done:?}");
    };
    let heard = |word: &str| fs::read_to_string(&said).unwrap().contains(word);
    control("pause");
    wait_until("it pauses", || heard("paused"));
    control("resume");
    wait_until("it continues", || heard("continued"));
    let before = files();
    control("flush");
    wait_until("it hands over", || files() > before);
    // SIGKILL ends the program; the events that the plugin had handed over before are kept.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    let child: i32 = children.trim().parse().expect("one child");
    // SAFETY: `kill` takes numbers only. The program still waits for its input, so `child` is its
    // process id.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    run.wait().unwrap();
    let report = view(&program, &["report", profile]);
    let report = text(&report.stdout);
    assert!(report.contains("flushed 1") && !report.contains("timed kernel"), "{report}");
    assert!(report.contains("1 × plugin_failed"), "{report}");
    let late = view(&program, &["plugin", "pause", profile]);
    assert_eq!(late.status.code(), Some(2));
    assert!(text(&late.stderr).contains("the recording is over"), "{}", text(&late.stderr));
}

#[test]
fn events_are_handed_over_at_an_interval() {
    let Some(program) = counterpoint("periodic flush") else { return };
    let plugin = Plugin::new();
    let dir = plugin.scratch.join("p.cpt");
    let profile = dir.to_str().unwrap();
    let mut run = Command::new(&program)
        .args(["run", "-e", "none", "--plugin", plugin.shown(), "--plugin-flush", "10ms"])
        .args(["-o", profile, "--", Programs::get().other("plugged").to_str().unwrap(), "wait"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let flushed = || {
        let parts = fs::read_dir(dir.join("processes")).into_iter().flatten().flatten();
        let file = parts.map(|part| part.path().join("plugins-0.events")).next()?;
        let bytes = fs::read(file).ok()?;
        bytes.windows(9).any(|word| word == b"flushed 3").then_some(())
    };
    wait_until("the third interval", || flushed().is_some());
    run.stdin.take().unwrap().write_all(b"x").unwrap();
    assert!(run.wait().unwrap().success());
    let report = text(&view(&program, &["report", profile]).stdout);
    for name in ["flushed 1", "flushed 3", "timed kernel"] {
        assert!(report.contains(name), "{name}: {report}");
    }
}

#[test]
fn a_recording_without_a_program_pauses_at_a_signal() {
    let plugin = Plugin::new();
    let said = plugin.scratch.join("said");
    let profile = plugin.scratch.join("p.cpt");
    let mut run = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["plugin", "run", plugin.shown(), "--for", "60s", "--plugin-config", "log", "-o"])
        .arg(&profile)
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let pid = run.id() as libc::pid_t;
    let heard = |word: &str| fs::read_to_string(&said).unwrap().contains(word);
    // SAFETY: `kill` takes numbers only. Our child has not been waited for, so no other process can
    // have its process id.
    let tell = |signal| assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    // `plugin run` blocks these signals before it starts the plugin, so they cannot end `plugin
    // run` from now on.
    wait_until("the plugin starts", || heard("it is warm here"));
    for word in ["paused", "continued"] {
        tell(libc::SIGUSR1);
        wait_until(word, || heard(word));
    }
    tell(libc::SIGINT);
    assert!(run.wait().unwrap().success(), "{}", fs::read_to_string(&said).unwrap());
    assert!(heard("3 events of 1 plugin"), "{}", fs::read_to_string(&said).unwrap());
}

/// A signal that arrives before the recording has started ends it, and leaves a profile that can be
/// read. As soon as the plugin is ready, it has its events, although the recording is short.
#[test]
fn a_signal_ends_a_recording_that_has_not_started() {
    let plugin = Plugin::new();
    let mut all = false;
    for after_ms in [0, 500, 4_000, 30_000] {
        if all {
            break;
        }
        let (said, profile) = (plugin.scratch.join("said"), plugin.scratch.join("p.cpt"));
        let mut run = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .args(["plugin", "run", plugin.shown(), "--warmup", "100s", "--for", "100s", "-o"])
            .arg(&profile)
            .stderr(fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        wait_until("it begins", || profile.exists());
        std::thread::sleep(Duration::from_millis(after_ms));
        // SAFETY: `kill` takes numbers only. Our child has not been waited for, so no other process
        // can have its process id.
        assert_eq!(unsafe { libc::kill(run.id() as libc::pid_t, libc::SIGTERM) }, 0);
        let begun = Instant::now();
        let status = run.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "it slept after the signal");
        let said = fs::read_to_string(&said).unwrap();
        all = (status.code(), said.contains("3 events of 1 plugin")) == (Some(0), true);
        let none = (status.code(), said.contains("0 events of 0 plugins")) == (Some(1), true);
        assert!(all || none, "{status:?} {said}");
        let report = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .args(["report", "--format", "json"])
            .arg(&profile)
            .output()
            .unwrap();
        assert!(report.status.success(), "{report:?}");
        assert!(!text(&report.stdout).contains("plugin_failed"), "{}", text(&report.stdout));
        fs::remove_dir_all(&profile).unwrap();
    }
    assert!(all, "no signal came in the warm-up");
}

#[test]
fn only_the_programs_that_are_meant_load_plugins() {
    let Some(program) = counterpoint("programs with plugins") else { return };
    let plugin = Plugin::new();
    let own = Programs::get().other("plugged");
    let run = |options: &[&str], words: &[&str]| {
        let options = [&["--plugin", plugin.shown()], options].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        let recorded = Recorded::run_with(&program, "none", &options, &mut command);
        let calls = ops(&recorded).first().map_or(0, |(_, calls)| *calls);
        (calls, recorded.losses().get("plugin_failed").copied().unwrap_or(0))
    };
    let shell = format!("{} return; true", own.display());
    let words = ["/bin/sh", "-c", &shell];
    assert_eq!(run(&[], &words), (1, 0), "the shell only starts a program");
    // Some versions of the shell end with `_exit`, and then the events of the shell's plugin are
    // lost.
    let (calls, losses) = run(&["--plugin-in", "*"], &words);
    assert_eq!(calls + losses, 2, "the shell has loaded it, too");
    let script = format!("sed -n p /dev/null; uname >/dev/null; {} return; true", own.display());
    assert_eq!(
        run(&[], &["/bin/sh", "-c", &script]),
        (1, 0),
        "nor do the small programs of scripts"
    );
    assert_eq!(run(&[], &["sed", "-n", "p", "/dev/null"]), (1, 0), "this is the program itself");
    assert_eq!(run(&["--plugin-in", "nothing"], &words), (0, 0));
    assert_eq!(run(&["--plugin-in", "plug*"], &words), (1, 0));
}

#[test]
fn what_a_plugin_logs_is_said_at_the_end() {
    let Some(program) = counterpoint("logging plugins") else { return };
    let plugin = Plugin::new();
    for (level, is_said) in [("2", true), ("3", false)] {
        let mut command = plugged(&["return"]);
        command.env("KINETO_LOG_LEVEL", level);
        let options = ["--plugin", plugin.shown(), "--plugin-config", "log"];
        let recorded = Recorded::run_with(&program, "none", &options, &mut command);
        assert_eq!(recorded.stderr().contains("it is warm here"), is_said, "{}", recorded.stderr());
        assert!(recorded.losses().is_empty(), "a line is not a loss: {:?}", recorded.losses());
    }
}

#[test]
fn a_conversion_that_was_interrupted_is_repeated_or_finished() {
    let Some(program) = counterpoint("conversions") else { return };
    let plugin = Plugin::new();
    // With `counterpoint env`, there is no `counterpoint run` that converts the plugin's events at
    // the end.
    let dir = plugin.scratch.join("p.cpt");
    let profile = dir.to_str().unwrap();
    let arguments = ["env", "-e", "none", "--plugin", plugin.shown(), "-o", profile];
    let lines = text(&Command::new(&program).args(arguments).output().unwrap().stdout);
    let variables = lines.lines().map(|line| {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('\'').to_owned())
    });
    let ended = plugged(&["return"]).envs(variables).status().unwrap();
    assert_eq!(ended.code(), Some(3));
    // A conversion that is interrupted before it moves its files leaves `plugins.tmp` without
    // `done.json`.
    fs::create_dir_all(dir.join("plugins.tmp/processes/1-1-1048576")).unwrap();
    fs::write(dir.join("plugins.tmp/processes/1-1-1048576/meta.cps"), "half").unwrap();
    let expected = || {
        let report = text(&view(&program, &["report", profile, "--format", "csv"]).stdout);
        let rows = |name: &str| report.lines().filter(|line| line.contains(name)).count();
        assert_eq!((rows("timed kernel"), rows("launch it")), (1, 1), "{report}");
    };
    let closed = view(&program, &["recover", "--close", profile]);
    assert!(closed.status.success(), "{closed:?}");
    expected();
    assert!(!dir.join("plugins.tmp").exists() && !dir.join("processes/1-1-1048576").exists());
    expected();

    // A conversion that is interrupted while it moves its files leaves `done.json` and the files
    // not yet moved in `plugins.tmp`.
    let part = fs::read_dir(dir.join("processes")).unwrap().flatten();
    let part = part
        .map(|part| part.file_name())
        .find(|name| name.to_str().is_some_and(|name| name.ends_with("-1048576")));
    let part = part.expect("a part of the plugin's events");
    let stage = dir.join("plugins.tmp");
    fs::create_dir_all(stage.join("processes")).unwrap();
    fs::rename(dir.join("processes").join(&part), stage.join("processes").join(&part)).unwrap();
    fs::write(stage.join("done.json"), r#"{"events":3,"notes":[],"files":["manifest.json"]}"#)
        .unwrap();
    expected();
    assert!(stage.join("done.json").exists(), "a view shows what was not moved, and moves nothing");
    assert!(view(&program, &["recover", profile]).status.success());
    assert!(!stage.exists() && dir.join("manifest.json").exists(), "only events are removed");
    expected();
}

/// Returns the command `plugged_session` with the path of the built `libcounterpoint.so`.
fn sessions(program: &Path) -> Command {
    let mut command = Command::new(Programs::get().other("plugged_session"));
    command.arg(program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so"));
    command
}

/// Prepares a session. Returns the path of its run file, with which a program begins the session.
fn prepare(program: &Path, plugin: &Plugin, dir: &Path) -> String {
    let arguments = ["session", "prepare", "-e", "none", "--plugin", plugin.shown(), "-o"];
    let out = Command::new(program).args(arguments).arg(dir).output().unwrap();
    let out: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    out["run_file"].as_str().unwrap().to_owned()
}

/// A forked child does not have the threads of its parent's plugins.
#[test]
fn a_forked_child_uses_no_plugin_of_its_parent() {
    let Some(program) = counterpoint("forked sessions") else { return };
    let plugin = Plugin::new();
    let dirs = [plugin.scratch.join("parent.cpt"), plugin.scratch.join("child.cpt")];
    let mut command = sessions(&program);
    command.arg("fork").args(dirs.iter().map(|dir| prepare(&program, &plugin, dir)));
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let [parent, child] = dirs.map(|dir| {
        let profile = dir.to_str().unwrap();
        let finished = view(&program, &["session", "finish", profile]);
        assert!(finished.status.success(), "{finished:?}");
        text(&view(&program, &["report", profile]).stdout)
    });
    assert!(parent.contains("timed kernel") && !parent.contains("plugin_failed"), "{parent}");
    assert!(!child.contains("timed kernel") && child.contains("1 × plugin_failed"), "{child}");
    assert!(child.contains("cannot be used in a forked child"), "{child}");
}

#[test]
fn a_session_in_c_has_plugins() {
    let Some(program) = counterpoint("sessions with plugins") else { return };
    let plugin = Plugin::new();
    let mut profiles = Vec::new();
    let mut command = sessions(&program);
    // The program itself ends two of the three sessions.
    for number in 0..3 {
        let dir = plugin.scratch.join(&format!("{number}.cpt"));
        command.arg(prepare(&program, &plugin, &dir));
        profiles.push(dir);
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    for dir in profiles {
        let profile = dir.to_str().unwrap();
        let finished = view(&program, &["session", "finish", profile]);
        assert!(finished.status.success(), "{finished:?}");
        let report = text(&view(&program, &["report", profile, "--format", "csv"]).stdout);
        let rows = |name: &str| report.lines().filter(|line| line.contains(name)).count();
        assert_eq!((rows("timed kernel"), rows("launch it")), (1, 1), "{profile}: {report}");
    }
}
