//! Tests that plugins do not disturb the program into which they are loaded. The program is
//! `tests/programs/manners.c`. In each of its modes, it does something that plugins could disturb.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::{Scratch, c};

use crate::support::{Programs, Recorded, counterpoint};

fn timed(to: &Path, flags: &[&str]) {
    let flags = [&["-std=gnu11"], flags, &["-lpthread"]].concat();
    c::shared("cc", "plugins/timed.c", to, &flags).expect("a C compiler: Rust links with it");
}

fn manners(mode: &str) -> Command {
    let mut command = Command::new(Programs::get().other("manners"));
    command.arg(mode);
    command
}

fn plugin() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let file = scratch.join("timed.so");
    timed(&file, &[]);
    (scratch, file)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ops(recorded: &Recorded) -> Vec<String> {
    let report = recorded.report(&[]);
    let rows = report["rows"].as_array().unwrap();
    let mut ops: Vec<String> =
        rows.iter().map(|row| row["op"].as_str().unwrap().to_owned()).collect();
    ops.sort();
    ops
}

#[test]
fn a_program_with_plugins_does_what_it_does_without_them() {
    let Some(program) = counterpoint("plugins and one thread") else { return };
    let (_scratch, file) = plugin();
    let file = file.to_str().unwrap();
    for mode in ["ids", "bare", "strict", "unshare", "leave"] {
        let alone: Output = manners(mode).output().unwrap();
        for options in [
            &["--plugin", file][..],
            &["--plugin", file, "--plugin-config", "thread"],
            &["--plugin", "telemetry"],
            &["--plugin", "telemetry", "--plugin", file, "--plugin-flush", "5ms"],
        ] {
            let recorded = Recorded::run_with(&program, "none", options, &mut manners(mode));
            let said = recorded.stderr();
            assert_eq!(recorded.output.status, alone.status, "{mode} {options:?}: {said}");
            assert_eq!(recorded.stdout(), text(&alone.stdout), "{mode} {options:?}: {said}");
            assert!(recorded.losses().is_empty(), "{mode} {options:?}: {:?}", recorded.losses());
            if options.contains(&file) {
                let ops = ops(&recorded);
                let has = ops.contains(&"timed kernel".to_owned());
                assert!(has, "{mode} {options:?}: {ops:?}: {said}");
            }
        }
    }
}

/// The plugin `telemetry` keeps descriptors open while it samples.
#[test]
fn a_program_with_plugins_gets_the_descriptors_that_it_gets_without_them() {
    let Some(program) = counterpoint("plugins and descriptors") else { return };
    let alone = manners("descriptors").output().unwrap();
    let options = ["--plugin", "telemetry", "--plugin-config", "interval=1ms"];
    let recorded = Recorded::run_with(&program, "none", &options, &mut manners("descriptors"));
    let said = recorded.stderr();
    assert_eq!(recorded.output.status, alone.status, "{said}");
    assert_eq!(recorded.stdout(), text(&alone.stdout), "{said}");
    assert!(recorded.losses().is_empty(), "{:?}", recorded.losses());
    let report = recorded.report(&[]).to_string();
    assert!(report.contains("process memory"), "{report}");
}

/// glibc may catch the signals 32 and 33 once a program has a second thread, so the test does not
/// compare these.
#[test]
fn a_program_with_plugins_finds_its_signals_as_they_are() {
    let Some(program) = counterpoint("plugins and signals") else { return };
    let (_scratch, file) = plugin();
    let without_glibcs = |output: &str| -> Vec<u64> {
        let masks = output.lines().map(|line| line.split('\t').nth(1).unwrap());
        masks.map(|mask| u64::from_str_radix(mask, 16).unwrap() & !(3 << 31)).collect()
    };
    let alone = manners("signals").output().unwrap();
    for plugin in [file.to_str().unwrap(), "telemetry"] {
        let options = ["--plugin", plugin];
        let recorded = Recorded::run_with(&program, "none", &options, &mut manners("signals"));
        assert_eq!(without_glibcs(&recorded.stdout()), without_glibcs(&text(&alone.stdout)));
    }
}

/// The bad plugin misbehaves in one of its functions: it hangs, ends the calling thread, keeps this
/// thread from ending, or crashes. The events of the good plugin must be kept.
#[test]
fn a_plugin_that_misbehaves_costs_its_own_events_only() {
    let Some(program) = counterpoint("misbehaving plugins") else { return };
    let scratch = Scratch::new();
    let (bad, good) = (scratch.join("a-bad.so"), scratch.join("b-good.so"));
    timed(&bad, &["-DNAME=\"bad kernel\"", "-DVARIABLE=\"BAD_PLUGIN\""]);
    timed(&good, &["-DNAME=\"good kernel\"", "-DVARIABLE=\"GOOD_PLUGIN\""]);
    let good_ones = ["good kernel", "launch it"];
    for (what, call) in [
        ("hang", "profilerCreate"),
        ("hang", "profilerStart"),
        ("hang", "profilerStop"),
        ("hang", "profilerProcessEvents"),
        ("hang", "flush"),
        ("linger", "profilerStart"),
        ("linger", "profilerStop"),
        ("linger", "profilerProcessEvents"),
        ("leave", "profilerStart"),
        ("leave", "profilerStop"),
        ("leave", "profilerProcessEvents"),
        ("crash", "profilerStop"),
        ("wild", "profilerStop"),
        ("wild", "profilerProcessEvents"),
        ("deep", "profilerProcessEvents"),
        ("abort", "profilerProcessEvents"),
        ("abort", "profilerDestroy"),
    ] {
        let place = match call {
            "profilerProcessEvents" => "process".to_owned(),
            _ => call.trim_start_matches("profiler").to_lowercase(),
        };
        let mut command = manners("done");
        let asked = format!("{what}={place}");
        command.env("BAD_PLUGIN", &asked).env("GOOD_PLUGIN", "thread");
        let (bad, good) = (bad.to_str().unwrap(), good.to_str().unwrap());
        // A bad plugin that hangs uses up the whole timeout, so this timeout is short. The other
        // timeout, 60 s, is long enough for the good plugin on a busy machine.
        let timeout = if matches!(what, "hang" | "linger") { "2s" } else { "60s" };
        let options = ["--plugin", bad, "--plugin", good, "--plugin-timeout", timeout];
        let options = match call {
            "flush" => [&options[..], &["--plugin-flush", "1ms"]].concat(),
            _ => options.to_vec(),
        };
        let recorded = Recorded::run_with(&program, "none", &options, &mut command);
        let said = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(3), "{asked}: {said}");
        assert_eq!(recorded.stdout(), "done: done\n", "{asked}: {said}");
        let ops = ops(&recorded);
        for name in good_ones {
            assert!(ops.contains(&name.to_owned()), "{asked}: {ops:?}: {said}");
        }
        if call == "flush" || asked == "linger=process" {
            // A loss is not certain: the program may end before the first flush, or the plugin may
            // hand over its events before it misbehaves.
            continue;
        }
        assert_eq!(recorded.losses().get("plugin_failed"), Some(&1), "{asked}: {said}");
        let expected = match what {
            "hang" => format!("the process ended in {call}, or the plugin did not return"),
            "linger" => "or the plugin did not return".to_owned(),
            "leave" => format!("{call} called pthread_exit"),
            "abort" => format!("{call} crashed with signal 6"),
            _ => format!("{call} crashed with signal 11"),
        };
        assert!(said.contains("a-bad.so in manners") && said.contains(&expected), "{said}");
    }
}

/// Waits until `is` returns true because of what another process does. Fails after a minute.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the only child of a process; `None` if there is not exactly one.
fn child_of(pid: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.trim().parse().ok()
}

#[test]
fn a_plugin_that_hangs_in_start_does_not_take_the_signals() {
    let Some(program) = counterpoint("hang in start") else { return };
    let (scratch, file) = plugin();
    let profile = scratch.join("p.cpt");
    let manners = Programs::get().other("manners");
    let mut run = Command::new(&program)
        .args([
            "run",
            "-e",
            "none",
            "--plugin",
            file.to_str().unwrap(),
            "--plugin-timeout",
            "3600s",
        ])
        .arg("-o")
        .arg(&profile)
        .arg("--")
        .arg(&manners)
        .arg("done")
        .env("TIMED_PLUGIN", "hang=start")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let in_start = || {
        let parts = fs::read_dir(profile.join("processes")).into_iter().flatten().flatten();
        let mut files = parts.map(|part| part.path().join("plugins-0.events"));
        files.any(|file| {
            let bytes = fs::read(file).unwrap_or_default();
            bytes.windows(16).any(|word| word == b"in profilerStart")
        })
    };
    wait_until("the plugin is started", in_start);
    let child = child_of(run.id()).expect("one child");
    // SAFETY: `kill` takes numbers only. The program still hangs in its plugin, so `child` is its
    // process id.
    assert_eq!(unsafe { libc::kill(child, libc::SIGTERM) }, 0);
    run.wait().unwrap();
}

/// A plugin hands over its events through the trace builder. The trace builder is valid only during
/// the call that passes it to the plugin.
#[test]
fn a_builder_after_its_call_is_refused() {
    let Some(program) = counterpoint("late builder") else { return };
    let (_scratch, file) = plugin();
    let options = ["--plugin", file.to_str().unwrap(), "--plugin-config", "late"];
    let recorded = Recorded::run_with(&program, "none", &options, &mut manners("done"));
    let said = recorded.stderr();
    assert_eq!(recorded.output.status.code(), Some(3), "{said}");
    assert_eq!(ops(&recorded), ["launch it", "timed kernel"], "{said}");
    assert!(said.contains("addEvent"), "{said}");
}

/// `telemetry` hands over its events while the program runs, even without `--plugin-flush`.
#[test]
fn a_signal_that_ends_the_program_loses_no_counters() {
    let Some(program) = counterpoint("plugins and SIGTERM") else { return };
    let scratch = Scratch::new();
    let profile = scratch.join("p.cpt");
    let mut run = Command::new(&program)
        .args(["run", "-e", "none", "--plugin", "telemetry", "--plugin-config", "interval=1ms"])
        .arg("-o")
        .arg(&profile)
        .arg("--")
        .arg(Programs::get().other("manners"))
        .arg("wait")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let bytes = || {
        let parts = fs::read_dir(profile.join("processes")).into_iter().flatten().flatten();
        let files = parts.map(|part| part.path().join("plugins-0.events"));
        files.filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum::<u64>()
    };
    // When the file of the plugin's events has more than 200 bytes, it contains the first sample.
    wait_until("the first sample is handed over", || bytes() > 200);
    let child = child_of(run.id()).expect("one child");
    // SAFETY: `kill` takes numbers only. The program runs until it is killed, so `child` is its
    // process id.
    assert_eq!(unsafe { libc::kill(child, libc::SIGTERM) }, 0);
    run.wait().unwrap();
    let report = Command::new(&program).arg("report").arg(&profile).output().unwrap();
    assert!(text(&report.stdout).contains("process memory"), "{report:?}");
}

#[test]
fn what_is_not_a_plain_file_is_refused_at_once() {
    let Some(program) = counterpoint("plugins that are FIFOs") else { return };
    let scratch = Scratch::new();
    let fifo = scratch.join("fifo.so");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: `name` is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let fifo = fifo.to_str().unwrap();
    let out = scratch.join("p.cpt");
    let out = out.to_str().unwrap();
    for arguments in [
        &["run", "-e", "none", "--plugin", fifo, "-o", out, "--", "/bin/true"][..],
        &["env", "-e", "none", "--plugin", fifo, "-o", out],
        &["plugin", "run", fifo, "--for", "1ms", "-o", out],
        &["plugin", "check", fifo],
        &["plugin", "list", fifo],
    ] {
        let done = Command::new(&program).args(arguments).output().unwrap();
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("fifo.so: is a FIFO, not a plain file"), "{arguments:?}: {said}");
    }
}

#[test]
fn root_is_told_about_plugins_that_others_can_change() {
    use std::os::unix::fs::{PermissionsExt, chown};

    let Some(program) = counterpoint("plugins that others can change") else { return };
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return testkit::skip("root and plugins", "only root refuses");
    }
    let (scratch, file) = plugin();
    let directory = scratch.join("open");
    fs::create_dir(&directory).unwrap();
    let inside = directory.join("timed.so");
    fs::copy(&file, &inside).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let run = |plugin: &Path| {
        let options = ["--plugin", plugin.to_str().unwrap()];
        Recorded::run_with(&program, "none", &options, &mut manners("done"))
    };
    for plugin in [&inside, &directory] {
        let recorded = run(plugin);
        assert_eq!(recorded.output.status.code(), Some(2), "{}", recorded.stderr());
        let said = recorded.stderr();
        assert!(said.contains("root does not load it") && said.contains("mode 777"), "{said}");
    }
    // Now, apart from root, only user 65534 can change the plugin's file. Counterpoint loads it,
    // because root may have chosen it on purpose.
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&inside, Some(65_534), None).unwrap();
    let recorded = run(&inside);
    assert_eq!(recorded.output.status.code(), Some(3), "{}", recorded.stderr());
    assert!(recorded.stderr().contains("belongs to user 65534"), "{}", recorded.stderr());
    assert_eq!(ops(&recorded), ["launch it", "timed kernel"]);
}

/// Chromium's zygote process terminates itself if it finds a second thread.
#[test]
fn a_zygote_of_chromium_has_no_plugins() {
    let Some(program) = counterpoint("plugins and zygotes") else { return };
    let (_scratch, file) = plugin();
    let options = ["--plugin", file.to_str().unwrap()];
    for (word, expected) in [("--type=zygote", &[][..]), ("zygote", &["launch it", "timed kernel"])]
    {
        let recorded = Recorded::run_with(&program, "none", &options, manners("done").arg(word));
        assert_eq!(recorded.output.status.code(), Some(3), "{}", recorded.stderr());
        assert_eq!(ops(&recorded), expected, "{word}: {}", recorded.stderr());
    }
}

/// Compiles `manners.c` with a flag. Returns `None` if the compiler fails or is missing, or if the
/// compiled program does not work on this machine.
fn checked(to: &Path, compiler: &str, flag: &str) -> Option<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/manners.c");
    let mut compiler = Command::new(c::compiler(compiler)?);
    compiler.args(["-std=gnu11", "-g", flag, "-o"]).arg(to).arg(source).arg("-lpthread");
    let compiled = compiler.output().ok()?;
    let runs = || Command::new(to).arg("done").output().is_ok_and(|o| o.status.code() == Some(3));
    (compiled.status.success() && runs()).then_some(())
}

/// A sanitizer or valgrind would also report errors of plugins, so a program with such a checker
/// gets no plugins.
#[test]
fn a_program_with_a_checker_has_no_plugins() {
    let Some(program) = counterpoint("plugins and checkers") else { return };
    let scratch = Scratch::new();
    let (_plugin, file) = plugin();
    for (compiler, flag, name) in [
        ("cc", "-fsanitize=thread", "ThreadSanitizer"),
        ("clang", "-fsanitize=memory", "MemorySanitizer"),
        ("cc", "-fsanitize=address", "AddressSanitizer or LeakSanitizer"),
        ("clang", "-fsanitize=address", "AddressSanitizer or LeakSanitizer"),
        ("cc", "-fsanitize=leak", "AddressSanitizer or LeakSanitizer"),
        ("cc", "-g", "valgrind"),
    ] {
        let manners = scratch.join("manners");
        let valgrind = (name == "valgrind").then_some("valgrind");
        let is_there = valgrind.is_none_or(|it| Command::new(it).arg("--version").output().is_ok());
        if !is_there || checked(&manners, compiler, flag).is_none() {
            let what = format!("plugins in a program with {name} ({compiler})");
            testkit::skip(&what, "it does not work here");
            continue;
        }
        for mode in ["done", "ids", "descriptors"] {
            let mut command = Command::new(valgrind.map_or(&*manners, Path::new));
            if valgrind.is_some() {
                command.args(["-q", "--error-exitcode=99", "--leak-check=full"]).arg(&manners);
            }
            let alone = command.arg(mode).output().unwrap();
            for plugin in ["telemetry", file.to_str().unwrap()] {
                let options = ["--plugin", plugin];
                let recorded = Recorded::run_with(&program, "none", &options, &mut command);
                let said = recorded.stderr();
                assert_eq!(recorded.output.status, alone.status, "{mode} {plugin}: {said}");
                assert_eq!(recorded.stdout(), text(&alone.stdout), "{mode} {plugin}: {said}");
                assert!(!said.contains("WARNING: "), "{mode} {plugin}: {said}");
                assert!(said.contains(&format!("is not used in a program with {name}")), "{said}");
                assert_eq!(recorded.losses().get("plugin_failed"), Some(&1), "{said}");
            }
        }
    }
}
