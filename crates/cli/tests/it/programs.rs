//! Runs our own test programs with and without Counterpoint.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::support::{Programs, Recorded, counterpoint, same_as_without};

fn host(mode: &str) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(mode.split(' '));
    command
}

/// A mode of a test program, the expected numbers of calls of its processes in ascending order, and
/// the expected losses. If the number of a loss is `None`, any number above 0 is accepted.
type Case = (&'static str, &'static [u64], &'static [(&'static str, Option<u64>)]);

const CASES: &[Case] = &[
    ("idle", &[], &[]),
    ("calls 0", &[0], &[]),
    ("calls 1", &[1], &[]),
    ("calls 100000", &[100_000], &[]),
    ("grid", &[14], &[]),
    ("threads 40 500", &[20_000], &[]),
    ("short-threads 20000", &[20_000], &[]),
    ("fork", &[200, 450], &[]),
    ("fork-inside", &[5, 21], &[]),
    ("fork-exec", &[20, 50], &[]),
    ("vfork-exec", &[10, 40], &[]),
    ("exec", &[10, 20], &[]),
    ("nested 10", &[20], &[]),
    ("longjmp 10", &[10], &[("call_abandoned", Some(10))]),
    ("reload 2000", &[20_001], &[]),
    ("close-all", &[20], &[("counter_read_failed", Some(10)), ("descriptor_lost", Some(1))]),
    ("errno 1000", &[1_000], &[]),
    ("late 4", &[4], &[("thread_gone", Some(1))]),
    ("_exit 10", &[10], &[("call_cut_short", Some(1))]),
    ("abort 10", &[10], &[]),
    ("exit-thread", &[3], &[]),
    ("status", &[1], &[]),
    ("cancel", &[1], &[]),
    ("descriptors 60 100", &[60], &[]),
];

#[test]
fn programs_end_as_without_us_and_every_call_is_recorded() {
    let Some(program) = counterpoint("programs") else { return };
    for (mode, calls, losses) in CASES {
        same_as_without(&program, mode, || host(mode), calls, losses);
    }
}

/// Some exceptions leave a dispatch through the recorder's code.
#[test]
fn exceptions_pass_through() {
    let Some(program) = counterpoint("exceptions") else { return };
    let programs = Programs::get();
    let Some(exceptions) = programs.cpp("exceptions", "exceptions") else { return };
    let cases: [Case; 5] = [
        ("thrown 10", &[10], &[("call_abandoned", Some(10))]),
        ("inner 10", &[10], &[("call_abandoned", Some(10))]),
        ("caught 10", &[10], &[]),
        ("worker 5", &[5], &[("call_abandoned", Some(5))]),
        ("uncaught 4", &[4], &[("call_cut_short", Some(1))]),
    ];
    for (mode, calls, losses) in cases {
        let make = || {
            let mut command = Command::new(&exceptions);
            command.arg(&programs.library).args(mode.split(' '));
            command
        };
        same_as_without(&program, mode, make, calls, losses);
    }
}

/// Some of these threads and processes start by a bare system call. Other threads end inside a call
/// or after the main thread.
#[test]
fn threads_and_processes_that_glibc_did_not_make() {
    let Some(program) = counterpoint("lives") else { return };
    let programs = Programs::get();
    let lives = programs.other("lives");
    let cases: [Case; 7] = [
        ("raw-fork", &[15, 20], &[]),
        ("raw-clone3", &[15, 20], &[]),
        ("raw-vfork", &[35], &[]),
        ("raw-thread", &[35], &[]),
        ("exit-inside", &[20], &[("call_abandoned", Some(20))]),
        ("cancel-inside", &[20], &[("call_abandoned", Some(20))]),
        ("main-exits", &[340], &[]),
    ];
    for (mode, calls, losses) in cases {
        let make = || {
            let mut command = Command::new(&lives);
            command.arg(&programs.library).arg(mode);
            command
        };
        same_as_without(&program, mode, make, calls, losses);
    }
}

/// A task (thread or process) that shares its creator's thread-local storage would read its
/// creator's counters, which do not count what the task does. Therefore its counts are missing, and
/// not 0.
#[test]
fn a_task_that_shares_its_creators_storage_has_no_counts() {
    let Some(program) = counterpoint("shared storage") else { return };
    let programs = Programs::get();
    let lives = programs.other("lives");
    for mode in ["raw-vfork", "raw-thread"] {
        let mut command = Command::new(&lives);
        command.arg(&programs.library).arg(mode);
        let recorded = Recorded::run(&program, "page-faults:u,task-clock:u", &mut command);
        let calls = recorded.calls();
        let without = calls.iter().filter(|call| call["task-clock:u"].is_empty()).count();
        assert_eq!((calls.len(), without), (35, 20), "{mode}");
        let both = |call: &BTreeMap<String, String>| {
            call["task-clock:u"].is_empty() == call["page-faults:u"].is_empty()
        };
        assert!(calls.iter().all(both), "{mode}");
    }
}

/// If a signal handler interrupts the recorder and makes a call, this call is a loss.
#[test]
fn a_signal_handler_may_call() {
    let Some(program) = counterpoint("signal") else { return };
    let recorded = Recorded::run(&program, "page-faults:u", &mut host("signal 200000"));
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    let losses = recorded.losses();
    assert!(losses.keys().all(|name| name == "probe_reentered"), "{losses:?}");
    assert!(recorded.calls_per_process()[0] >= 200_000);
}

#[test]
fn both_versions_of_the_interface_are_read() {
    let Some(program) = counterpoint("versions") else { return };
    let programs = Programs::get();
    for (library, abi, name, size) in [
        (&programs.library, 6, "test_linked", [4, 2, 1]),
        (&programs.library_v5, 5, "five_linked", [0, 0, 0]),
    ] {
        let mut command = Command::new(&programs.host);
        command.arg(library).arg("grid");
        let recorded = Recorded::run(&program, "none", &mut command);
        let profile = recorded.profile();
        let found = &profile.processes[0].libraries[0];
        assert_eq!((found.abi, found.name.as_str()), (abi, name));
        let exports: Vec<_> = found.exports.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(exports, ["nothing", "touch", "spin", "call_out"]);
        assert_eq!(found.exports[0].workgroup_size, size);
        assert_eq!(found.exports[1].bindings, 1);
        assert_eq!(found.exports[1].constants, 1);
        assert_eq!(found.exports[1].tag, "pages");
        assert_eq!(found.exports[3].local_memory_pages, 3);
        // The source path in the first library does not end with a null byte, so the recorder must
        // use its length.
        let sources: Vec<_> =
            found.exports.iter().map(|e| (e.source_path.as_str(), e.source_line)).collect();
        assert_eq!(sources, [10, 20, 30, 40].map(|line| ("test.mlir", line)));
        let expected =
            BTreeMap::from([("nothing".to_owned(), (12, 1)), ("spin".to_owned(), (2, 1))]);
        assert_eq!(recorded.ops(), expected);
    }
}

#[test]
fn each_call_has_its_workgroup_and_its_time() {
    let Some(program) = counterpoint("workgroups") else { return };
    let recorded = Recorded::run(&program, "none", &mut host("grid"));
    let calls = recorded.calls();
    let places: Vec<_> = calls
        .iter()
        .map(|c| {
            ["op", "workgroup_x", "workgroup_y", "workgroup_z", "count_x", "count_y", "count_z"]
                .map(|column| c[column].clone())
                .join(" ")
        })
        .collect();
    let mut expected = Vec::new();
    for z in 0..2 {
        for y in 0..2 {
            for x in 0..3 {
                expected.push(format!("nothing {x} {y} {z} 3 2 2"));
            }
        }
    }
    expected.extend((0..2).map(|x| format!("spin {x} 0 0 2 1 1")));
    assert_eq!(places, expected);
    let mut end = 0u64;
    for call in &calls {
        let start: u64 = call["start_ticks"].parse().unwrap();
        assert!(start >= end, "calls of one thread follow one another");
        end = start + call["duration_ticks"].parse::<u64>().unwrap();
    }
}

/// The recorder's own memory must cause no faults: not on first use, not after a fork has made
/// memory copy-on-write, and not while dirty pages are being written back.
#[test]
fn page_faults_are_the_programs_own() {
    let Some(program) = counterpoint("faults") else { return };
    let touched = Recorded::run(&program, "page-faults:u,task-clock:u", &mut host("touch 100 50"));
    let calls = touched.calls();
    assert_eq!(calls.len(), 50);
    for call in &calls {
        assert_eq!(call["page-faults:u"], "100");
        assert!(call["task-clock:u"].parse::<u64>().unwrap() > 0);
    }
    for mode in ["calls 20000", "threads 8 2000", "fork-no-faults 50", "writeback 500"] {
        let mut command = host(mode);
        // After a fork and a switch of CPUs, the kernel writes into the thread's restartable
        // sequence area, in a page of glibc. The resulting page fault, which was seen in one of
        // some thousand calls, is not the recorder's. So the test switches this area off.
        command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        let recorded = Recorded::run(&program, "page-faults,minor-faults", &mut command);
        let report = recorded.report(&[]);
        for counter in report["rows"][0]["counters"].as_array().unwrap() {
            assert_eq!(counter["total"], 0, "{mode}: {report}");
        }
    }
}

#[test]
fn five_counters_at_once_are_each_right() {
    let Some(program) = counterpoint("five") else { return };
    let events = "page-faults:u,task-clock:u,minor-faults:u,cpu-clock:u,major-faults:u";
    let recorded = Recorded::run(&program, events, &mut host("touch 1000 10"));
    let calls = recorded.calls();
    assert_eq!(calls.len(), 10);
    let number = |call: &BTreeMap<String, String>, name: &str| call[name].parse::<f64>().unwrap();
    for call in &calls {
        assert_eq!(number(call, "page-faults:u"), 1000.0);
        assert_eq!(number(call, "minor-faults:u"), 1000.0);
        assert_eq!(number(call, "major-faults:u"), 0.0);
        assert_eq!(call["group0_enabled_ns"], call["group0_running_ns"]);
    }
    // On a busy machine, `task-clock` and `cpu-clock` count less than the wall time. A virtual
    // machine may lose its processor during a call, so the test uses the median call.
    let middle = |of: &dyn Fn(&BTreeMap<String, String>) -> f64| {
        let mut values: Vec<f64> = calls.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[calls.len() / 2]
    };
    for clock in ["task-clock:u", "cpu-clock:u"] {
        let part = middle(&|call| number(call, clock) / number(call, "group0_enabled_ns"));
        assert!(part > 0.9 && part < 1.1, "{clock}: {part} of enabled: {calls:?}");
        let beyond = middle(&|call| number(call, clock) - 1.5 * number(call, "duration_ns"));
        assert!(beyond < 50_000.0, "{clock}: {beyond} ns beyond the wall: {calls:?}");
    }
}

/// The reading at the start of a call adds 5 to the counter, and the reading at its end adds 7. So
/// the two readings of a call differ by 7.
#[test]
fn simulated_counters_go_all_the_way() {
    let Some(program) = counterpoint("simulated") else { return };
    let recorded = Recorded::run(&program, "sim/steps,readings=5:7/", &mut host("calls 1000"));
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    let report = recorded.report(&[]);
    let counter = &report["rows"][0]["counters"][0];
    assert_eq!(counter["total"], 7000, "{report}");
    assert_eq!(counter["calls"], 1000);
}

#[test]
fn filters_do_not_affect_other_functions() {
    let Some(program) = counterpoint("filter") else { return };
    let scratch = testkit::Scratch::new();
    let programs = Programs::get();
    let status = Command::new(&program)
        .args(["run", "-e", "none", "--filter", "sp?n", "-o"])
        .arg(scratch.join("p.cpt"))
        .arg("--")
        .arg(&programs.host)
        .arg(&programs.library)
        .arg("grid")
        .status()
        .unwrap();
    assert!(status.success());
    let profile = profile::Profile::open(&scratch.join("p.cpt")).unwrap();
    assert_eq!(profile.calls(), 2);
}

/// The program is started without `run`, with the variables that `counterpoint env` prints.
#[test]
fn variables_set_by_hand_record_too() {
    let Some(program) = counterpoint("env") else { return };
    let scratch = testkit::Scratch::new();
    let path = scratch.join("with space.cpt");
    let output =
        Command::new(&program).args(["env", "-e", "none", "-o"]).arg(&path).output().unwrap();
    assert!(output.status.success());
    let exports = String::from_utf8(output.stdout).unwrap();
    for _ in 0..2 {
        let programs = Programs::get();
        let script = format!("{exports}\nexec \"$0\" \"$1\" calls 25");
        let status = Command::new("sh")
            .arg("-c")
            .arg(script)
            .arg(&programs.host)
            .arg(&programs.library)
            .output()
            .unwrap();
        assert!(status.status.success());
        assert!(status.stderr.is_empty(), "{status:?}");
    }
    let recorded =
        Command::new(&program).args(["report", "--format", "csv"]).arg(&path).output().unwrap();
    let table = String::from_utf8(recorded.stdout).unwrap();
    assert!(
        table.lines().nth(1).unwrap().starts_with("nothing,test_linked,test.mlir:10,50,2"),
        "{table}"
    );
    std::fs::remove_dir_all(
        profile::Manifest::read(&path).unwrap().pool.unwrap().parent().unwrap(),
    )
    .unwrap();
}

#[test]
fn dispositions_and_closed_streams_are_passed_on() {
    let Some(program) = counterpoint("dispositions") else { return };
    let scratch = testkit::Scratch::new();
    for script in [
        "trap '' CHLD; $RUN sh -c 'exit 5'",
        "trap '' PIPE; $RUN sh -c 'kill -PIPE $$; echo survived'",
        "$RUN sh -c 'kill -PIPE $$; echo survived'",
        "exec 1>&-; $RUN sh -c 'echo lost'",
        "ulimit -S -f 100; $RUN sh -c 'ulimit -f'",
        "ulimit -c 0; trap '' XFSZ; $RUN sh -c 'kill -XFSZ $$; echo survived'",
        "ulimit -c 0; $RUN sh -c 'kill -XFSZ $$; echo survived'",
        // The program prints which signals it blocks, ignores and catches.
        "trap '' USR1 TERM; $RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status",
        "env --block-signal=USR2,HUP $RUN grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status",
        // If a script has no interpreter line, `execvp` runs it with a shell.
        "echo 'echo \"plain $1\"' > plain; chmod +x plain; $RUN ./plain word",
    ] {
        let run = format!("'{}' run -e none -o p.cpt --", program.display());
        let shell = |prefix: &str| {
            let mut shell = Command::new("bash");
            shell.args(["-c", &script.replace("$RUN", prefix)]).current_dir(scratch.path());
            shell.output().unwrap()
        };
        let (bare, with) = (shell(""), shell(&run));
        assert_eq!(with.status.code(), bare.status.code(), "{script}: {with:?}");
        assert_eq!(with.stdout, bare.stdout, "{script}");
    }
}

/// The manifest's field `watch` names the processes whose end ends the recording. If `run` is
/// killed, other commands use `watch` to find out whether the recording is over. So `watch` must
/// contain the program before the program's first instruction.
#[test]
fn the_program_finds_itself_in_the_manifest() {
    let Some(program) = counterpoint("watched") else { return };
    let scratch = testkit::Scratch::new();
    let run = Command::new(&program)
        .args(["run", "-e", "none", "-o", "p.cpt", "--"])
        .args(["sh", "-c", "cp p.cpt/manifest.json then.json; ls -a p.cpt; exec cat /proc/$$/stat"])
        .current_dir(scratch.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let run_id = run.id();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains(".tmp"), "{said}");
    // The id and the start time are fields 1 and 22 of proc_pid_stat(5).
    let stat = said.lines().last().unwrap();
    let pid: u32 = stat.split(' ').next().unwrap().parse().unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let start_time: u64 = after_name.split(' ').nth(19).unwrap().parse().unwrap();
    let then: serde_json::Value =
        serde_json::from_slice(&std::fs::read(scratch.join("then.json")).unwrap()).unwrap();
    assert_eq!(then["state"], "recording");
    assert_eq!(then["watch"][0]["pid"], run_id);
    assert_eq!(then["watch"][1], serde_json::json!({ "pid": pid, "start_time": start_time }));
    let last = profile::Manifest::read(&scratch.join("p.cpt")).unwrap();
    assert_eq!(last.watch[1], profile::ProcessId { pid, start_time });
    assert_eq!(last.state, profile::manifest::State::Finished);
}

#[test]
fn the_directory_of_the_parts_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;

    let Some(program) = counterpoint("umask") else { return };
    let programs = Programs::get();
    let scratch = testkit::Scratch::new();
    let run = |out: &str, mask: &str, mode: &str| {
        let status = Command::new(&program)
            .args(["run", "-e", "none", "-o", out, "--", "sh", "-c", "umask $0; exec \"$@\"", mask])
            .arg(&programs.host)
            .arg(&programs.library)
            .args(mode.split(' '))
            .current_dir(scratch.path())
            .status()
            .unwrap();
        assert!(status.success(), "{out}: {status}");
        scratch.join(out).join("processes")
    };
    let parts = run("masked.cpt", "777", "calls 1");
    assert_eq!(parts.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    assert!(!run("idle.cpt", "22", "idle").exists(), "nothing was recorded");
}

#[test]
fn signals_pass_through() {
    let Some(program) = counterpoint("signals") else { return };
    let scratch = testkit::Scratch::new();
    let script = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let start = |script: &str| {
        Command::new(&program)
            .args(["run", "-e", "none", "-o"])
            .arg(scratch.join("p.cpt"))
            .args(["--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut run = start(script);
    let mut out = std::io::BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    // SAFETY: `kill` takes numbers only. Our child has not been waited for, so no other process can
    // have its process id.
    unsafe { libc::kill(run.id() as i32, libc::SIGTERM) };
    std::io::Read::read_to_string(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\ngot it\n");
    assert_eq!(run.wait().unwrap().code(), Some(5));
    assert_eq!(start("kill -USR1 $$").wait().unwrap().signal(), Some(libc::SIGUSR1));
    assert_eq!(start("exit 77").wait().unwrap().code(), Some(77));
}
