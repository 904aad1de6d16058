//! Tests the words around numbers in the first lines and notes of a report. Without these words,
//! readers had mistaken one number for another.

use std::path::Path;
use std::process::Command;

use profile::{Role, Usage};
use testkit::{CallScript, ProfileScript};

const MS: u64 = 1_000_000;

fn run(words: &[&str], profile: &Path) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    let (command_name, options) = words.split_first().unwrap();
    let out = command.arg(command_name).arg(profile).args(options).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(out.status.success(), "{words:?}: {}", text(out.stderr));
    // The report breaks lines.
    let printed = text(out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    (printed, text(out.stderr))
}

fn report(script: &ProfileScript) -> String {
    let (_scratch, profile) = script.written();
    run(&["report", "--width", "200"], &profile).0
}

/// Returns a profile of two threads. The main thread has a call of 1 ms every 9 ms. The other
/// thread waits between two calls.
fn one_waits(names: [&str; 2]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["f", "wait"]);
    let main = process.thread(names[0]);
    for n in 0..11 {
        main.call(CallScript::new(0, n * 9 * MS, MS));
    }
    let other = process.thread(names[1]);
    other.call(CallScript::new(1, 0, MS)).call(CallScript::new(1, 400 * MS, MS));
    script
}

/// A sum over both threads would say 479 of 492 ms, which is misleading.
#[test]
fn the_head_speaks_of_the_thread_with_most_time_in_calls() {
    let said = report(&one_waits(["main", "waiter"]));
    let expected = "main (4711), with the most time in calls of 2 threads, spent 87.9 % of the 91.0 ms since its first call outside of calls";
    assert!(said.contains(expected), "{said}");
    let mut alone = one_waits(["main", "waiter"]);
    alone.processes[0].threads.pop();
    let said = report(&alone);
    assert!(
        said.contains(
            "the thread spent 87.9 % of the 91.0 ms since its first call outside of calls"
        ),
        "{said}"
    );
}

/// Returns a profile with ten calls of 10 ms. Each call is on a CPU for `on` ms, and `gap` ms pass
/// after each call.
fn calls_that_wait(on: u64, gap: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let _ = script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("m", &["f"]);
    let thread = process.thread("main");
    for n in 0..10 {
        thread.call(CallScript::new(0, n * (10 + gap) * MS, 10 * MS).group(on * MS, &[0]));
    }
    script
}

#[test]
fn the_head_says_if_calls_were_mostly_off_a_cpu() {
    let said = report(&calls_that_wait(3, 0));
    assert!(said.contains("the thread was off a CPU for 70.0 % of 100 ms in calls"), "{said}");
    let script = calls_that_wait(3, 10);
    let said = report(&script);
    let expected = "outside of calls; in calls, it was off a CPU for 70.0 % of 100 ms";
    assert!(said.contains(expected), "{said}");
    let (_scratch, profile) = script.written();
    let json = run(&["report", "--format", "json"], &profile).0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["threads"][0]["off_cpu_in_calls_ns"], 70e6);
    assert!(!report(&calls_that_wait(6, 0)).contains("off a CPU"), "most of it was work");
    let mut unknown = calls_that_wait(3, 0);
    for item in &mut unknown.processes[0].threads[0].items {
        if let testkit::Item::Call(call) = item {
            call.groups.clear();
        }
    }
    unknown.manifest.counters.clear();
    assert!(!report(&unknown).contains("off a CPU"));
}

/// The snapshots of the clocks in the scripted profile are 1 s apart, so its run took 1 s.
#[test]
fn the_first_line_has_the_time_of_the_run() {
    let script = one_waits(["main", "waiter"]);
    let said = report(&script);
    let first = said.split("main (4711)").next().unwrap();
    assert!(first.contains("; the run took 1.00 s"), "{said}");
    let mut imported = script;
    imported.manifest.origin = profile::Origin::Import;
    assert!(!report(&imported).contains("the run took"));
}

/// On Linux, a new thread has the name of the thread that created it, until it is renamed.
#[test]
fn the_main_thread_is_named_where_its_name_does_not_say_it() {
    let said = report(&one_waits(["python3", "python3"]));
    assert!(
        said.contains("main, python3 (4711), with the most time in calls of 2 threads"),
        "{said}"
    );
    let (_scratch, profile) = one_waits(["python3", "python3"]).written();
    let threads = run(&["report", "--by", "thread"], &profile).0;
    assert!(
        threads.contains("main, python3 (4711)") && threads.contains(" python3 (4712)"),
        "{threads}"
    );
    assert!(!threads.contains("main, python3 (4712)"), "{threads}");
    let said = report(&one_waits(["python3", "loader"]));
    assert!(
        said.contains(" python3 (4711), with the most time") && !said.contains("main, python3"),
        "{said}"
    );
}

/// Returns a profile of a thread with 100 calls of 10 ms each. The thread was on a CPU for 600 ms
/// of this second, and was taken off it `involuntary` + `voluntary` times.
fn preempted(involuntary: u64, voluntary: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["f"]);
    let thread = process.thread("main");
    for n in 0..100 {
        thread.call(CallScript::new(0, n * 10 * MS, 10 * MS));
    }
    let begin = Usage {
        ticks: 0,
        cpu_ns: 0,
        minor_faults: 0,
        major_faults: 0,
        voluntary_switches: 0,
        involuntary_switches: 0,
    };
    let end = Usage {
        ticks: 1_000 * MS,
        cpu_ns: 600 * MS,
        voluntary_switches: voluntary,
        involuntary_switches: involuntary,
        ..begin
    };
    thread.usages = vec![(Some(begin), Some(end))];
    script
}

#[test]
fn a_thread_that_lost_its_cpu_is_a_note_and_a_warning_of_the_page() {
    let said = report(&preempted(300, 20));
    // The thread was preempted 300 times in 0.6 s on a CPU.
    let expected = "main (4711) was preempted 300 times (500 times in each second on a CPU), and was off the CPU for \
                    at least 400 ms of its time in calls (40.0 %), which durations include";
    assert!(said.contains(expected), "{said}");
    // Workgroups of IREE never wait voluntarily, so 3,000 voluntary switches do not prevent the
    // note. Ops of PyTorch may wait, so there is no note for them.
    let mut waits = preempted(300, 3_000);
    assert!(report(&waits).contains("preempted 300 times"));
    waits.processes[0].libraries[0].host = testkit::hosts::TORCH;
    assert!(!report(&waits).contains("preempted"), "it waited by itself");
    assert!(!report(&preempted(10, 2)).contains("preempted"), "hardly ever");
    let (scratch, profile) = preempted(300, 20).written();
    let page = scratch.join("x.html");
    run(&["report", "--html", page.to_str().unwrap()], &profile);
    let text = std::fs::read_to_string(&page).unwrap();
    let head: serde_json::Value =
        serde_json::from_slice(&crate::page_data::block(&text, "head")).unwrap();
    let warnings = head["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|warning| warning.as_str().unwrap().contains(expected)),
        "{warnings:?}"
    );
}

#[test]
fn shapes_that_were_not_recorded_are_named() {
    let with = |arguments: &str| {
        let mut script = ProfileScript::monotonic();
        let process = script.process(4711);
        let machine = process.machine("torch");
        process.libraries.last_mut().unwrap().host = testkit::hosts::TORCH;
        let op = process.op(machine, Role::Op, "aten::linear", arguments);
        let thread = process.thread("main");
        for n in 0..200 {
            thread.call(CallScript::op(op, n * 10_000, 5_000 + n % 7 * 100));
        }
        script
    };
    let hint = "the ops of PyTorch are not told apart by the shapes of their arguments: add --shapes to `run`";
    let (_scratch, profile) = with("").written();
    let (said, _) = run(&["report", "--width", "200", "--verbose"], &profile);
    assert!(said.contains(hint), "{said}");
    let (said, _) = run(&["explain", "--op", "aten::linear"], &profile);
    assert!(said.contains("because they were not recorded (`run --shapes`)"), "{said}");
    let (_scratch, profile) = with("float32[8, 8]").written();
    let (said, _) = run(&["report", "--width", "200", "--verbose"], &profile);
    assert!(!said.contains("--shapes"), "{said}");
}

#[test]
fn slow_calls_off_a_cpu_are_said_first() {
    let mut script = ProfileScript::monotonic();
    let _ = script.counter("task-clock", 0);
    let process = script.process(4711);
    process.library("m", &["f"]);
    let thread = process.thread("main");
    for n in 0..2_000u64 {
        let on = 1_000 + n * 7 % 30;
        let off = if n % 10 == 3 { 8_000 } else { 0 };
        thread.call(CallScript::new(0, n * 20_000, on + off).group(on + off, &[on]));
    }
    let (_scratch, profile) = script.written();
    let (said, _) = run(&["explain", "--raw"], &profile);
    assert!(said.contains("were off a CPU for 88."), "{said}");
    let [off, clock] = ["were off a CPU", "task-clock"].map(|words| said.find(words));
    assert!(off.is_some() && clock.is_none_or(|clock| off < Some(clock)), "{said}");
}

#[test]
fn writing_a_page_says_what_it_wrote() {
    let (scratch, profile) = one_waits(["main", "waiter"]).written();
    let page = scratch.join("x.html");
    let to = page.to_str().unwrap();
    let (printed, said) = run(&["report", "--html", to], &profile);
    assert_eq!(printed, "");
    assert!(
        said.starts_with(&format!("counterpoint: wrote {to} ("))
            && said.trim_end().ends_with("kB)"),
        "{said}"
    );
    let (_, said) = run(&["report", "--html", to, "--quiet"], &profile);
    assert_eq!(said, "");
}

/// Returns a profile in which the range `loop` has ten calls of 1 ms. Each of these calls contains
/// a call of the range `step` of 0.4 ms, which contains a call of the op `mul`.
fn steps(host: u8) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let machine = process.machine("m");
    process.libraries.last_mut().unwrap().host = host;
    let ops = [(Role::Range, "loop"), (Role::Range, "step"), (Role::Op, "mul")];
    let [all, step, mul] = ops.map(|(role, name)| process.op(machine, role, name, ""));
    let thread = process.thread("main");
    for n in 0..10 {
        let at = n * MS;
        thread.call(CallScript::op(all, at, MS)).call(CallScript::op(step, at + 100, 4 * MS / 10));
        thread.call(CallScript::op(mul, at + 200, 3 * MS / 10));
    }
    script
}

#[test]
fn the_range_with_the_most_time_inside_is_named() {
    let expected = "step (range) takes 4.00 ms with the calls inside of it, 40.0 % of its thread's time in calls";
    let script = steps(testkit::hosts::TORCH);
    assert!(report(&script).contains(expected), "{}", report(&script));
    let (scratch, profile) = script.written();
    let json = |options: &[&str]| -> serde_json::Value {
        let words = [&["report", "--format", "json"], options].concat();
        serde_json::from_str(&run(&words, &profile).0).unwrap()
    };
    let around = &json(&[])["around"];
    assert_eq!((&around["op"], &around["threads"]), (&"step".into(), &1.into()));
    assert_eq!((around["total_ns"].as_f64(), around["share"].as_f64()), (Some(4e6), Some(0.4)));
    assert!(json(&["--filter", "mul"])["around"].is_null(), "not of everything");
    let page = scratch.join("x.html");
    run(&["report", "--html", page.to_str().unwrap()], &profile);
    let text = std::fs::read_to_string(&page).unwrap();
    let head: serde_json::Value =
        serde_json::from_slice(&crate::page_data::block(&text, "head")).unwrap();
    let sentences = head["sentences"].as_array().unwrap();
    assert!(sentences.iter().any(|one| one.as_str().unwrap() == expected), "{sentences:?}");
}

/// A program calls two compute kernels. `prefix` takes 80 % of the time in calls, but at the end of
/// the test, `dense` takes 51 %.
#[test]
fn a_report_says_how_to_look_inside_of_a_kernel() {
    let printed = |command: &str, host: u8, long: u64| {
        let mut script = ProfileScript::monotonic();
        let process = script.process(4711);
        let machine = process.machine("m");
        process.libraries.last_mut().unwrap().host = host;
        let [prefix, dense] =
            ["prefix", "dense"].map(|name| process.op(machine, Role::Op, name, ""));
        let thread = process.thread("main");
        for n in 0..10 {
            thread.call(CallScript::op(prefix, n * 20_000, long));
            thread.call(CallScript::op(dense, n * 20_000 + 10_000, 2_000));
        }
        let (_scratch, profile) = script.written();
        run(&[command, "--width", "200"], &profile).0
    };
    use testkit::hosts::{TORCH, TVM};
    for command in ["report", "ops"] {
        let said = printed(command, TVM, 8_000);
        let expected = "inside: prefix takes 80.0 % of the time in calls; to see which of its loops do, compile the \
                        model inside of `with cp.loops(mode=\"timed\", min_height=0):`";
        assert!(said.contains(expected), "{said}");
        assert!(said.ends_with("and look at `counterpoint loops report`"), "{said}");
        assert!(!printed(command, TORCH, 8_000).contains("inside: "), "it has no loops to show");
    }
    let even = printed("report", TVM, 1_900);
    assert!(even.contains("inside: dense takes 51.3 %"), "{even}");
}

#[test]
fn words_after_names_are_explained_on_the_page() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let machine = process.machine("torch");
    let region = process.op(machine, Role::Region, "aten::mm", "");
    let thread = process.thread("main");
    thread.call(CallScript::op(region, 0, 5_000));
    let (scratch, profile) = script.written();
    let page = scratch.join("x.html");
    run(&["report", "--html", page.to_str().unwrap()], &profile);
    let text = std::fs::read_to_string(&page).unwrap();
    let head: serde_json::Value =
        serde_json::from_slice(&crate::page_data::block(&text, "head")).unwrap();
    let explained = head["tables"][0]["explained"].as_array().unwrap();
    let has = |word: &str| explained.iter().any(|line| line.as_str().unwrap().starts_with(word));
    assert!(has("(region): ") && !has("(task): "), "{explained:?}");
}
