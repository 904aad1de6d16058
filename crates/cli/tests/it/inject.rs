//! Injects a panic at every point of the agent where this is possible: the agent turns itself off,
//! the loss has its name, and the host continues as if nothing had happened.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Programs, Recorded, injecting};
use crate::torch_ops;

const VARIABLE: &str = "COUNTERPOINT_INJECT";

fn library_of(program: &Path) -> std::path::PathBuf {
    program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
}

/// The points, as the library itself lists them.
fn points(program: &Path) -> Vec<String> {
    let path = std::ffi::CString::new(library_of(program).as_os_str().as_bytes()).unwrap();
    // SAFETY: the library can be loaded into any process. The function has this type, and returns a
    // string of the library, which is never unloaded.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "{path:?}");
        let list = libc::dlsym(library, c"counterpoint_injection_points".as_ptr());
        assert!(!list.is_null(), "a library without points");
        let list: extern "C" fn() -> *const libc::c_char = std::mem::transmute(list);
        CStr::from_ptr(list()).to_str().unwrap().lines().map(str::to_owned).collect()
    }
}

fn entries() -> Command {
    let mut command = Command::new(&Programs::get().entries);
    command.arg(&Programs::get().library);
    command
}

fn hook_host() -> Command {
    let mut command = Command::new(&Programs::get().hook_host);
    command.args(["both", "10"]).arg(&Programs::get().library);
    command
}

fn tvm_host() -> Command {
    let mut command = Command::new(Programs::get().other("tvm_host"));
    command.args(["-", "everything"]);
    command
}

/// Instrumented loops whose hits are timed and counted, and ones that are logged.
fn loops_host(mode: &str) -> Command {
    let host = Programs::get().loops(&format!("loops_host{mode}"), &[mode]);
    let mut command = Command::new(host);
    command.args(["threads", "2", "2"]);
    command
}

/// What PyTorch does with a plugin.
fn torch_host(plugins: &Path) -> Command {
    let mut command = Command::new(Programs::get().other("torch_host"));
    command.arg(plugins);
    command
}

/// What PyTorch does with a recording.
fn log_host() -> Command {
    Command::new(Programs::get().other("log_host"))
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` with a panic at `point`. Returns whether the point was reached.
fn panics_at(program: &Path, point: &str, command: &mut Command, what: &str) -> bool {
    let bare = outcome(&command.output().unwrap());
    command.env(VARIABLE, format!("{point}:panic"));
    let recorded = Recorded::run_with(program, "page-faults:u", &["--loops"], command);
    assert_eq!(outcome(&recorded.output), bare, "{what}, {point}: {}", recorded.stderr());
    // What is said about recordings of PyTorch's profiler comes from the command line, not the agent.
    let said = recorded.stderr();
    let lines = said.lines().filter(|line| !line.contains("torch.profiler in log_host"));
    assert_eq!(lines.count(), 1, "{what}, {point}: {said}");
    recorded.losses().contains_key("agent_disabled")
}

#[test]
fn a_panic_anywhere_leaves_the_host_alone() {
    let Some(program) = injecting("inject") else { return };
    let points = points(&program);
    assert!(points.len() > 20, "{points:?}");
    assert!(!panics_at(&program, "Nowhere", &mut entries(), "not a point"));
    let scratch = testkit::Scratch::new();
    let plugin = &scratch.join("timed.so");
    testkit::c::shared("cc", "plugins/timed.c", plugin, &["-std=gnu11"]).unwrap();
    let plugins = testkit::Scratch::new();
    testkit::c::shared("cc", "plugins/plugin.c", &plugins.join("p.so"), &[]).unwrap();
    for point in points {
        let reached = [
            panics_at(&program, &point, &mut entries(), "entries"),
            panics_at(&program, &point, &mut hook_host(), "hook_host"),
            panics_at(&program, &point, &mut tvm_host(), "tvm_host"),
            torch_ops::host("inject")
                .is_some_and(|mut host| panics_at(&program, &point, &mut host, "torch_ops_host")),
            panics_at(&program, &point, &mut loops_host("-DMODE=0"), "loops_host"),
            panics_at(&program, &point, &mut loops_host("-DMODE=3"), "loops_host, log"),
            panics_at(&program, &point, &mut torch_host(plugins.path()), "torch_host"),
            panics_at(&program, &point, &mut log_host(), "log_host"),
            panics_at(&program, &point, log_host().arg("invalid"), "log_host, invalid"),
            drop_in_panics_at(&program, &point),
            plugin_panics_at(&program, &point, plugin),
        ];
        assert!(reached.contains(&true), "nothing reaches {point}");
    }
}

/// The same with a profiler plugin, whose events are asked for while the program runs.
fn plugin_panics_at(program: &Path, point: &str, plugin: &Path) -> bool {
    let mut command = Command::new(Programs::get().other("plugged"));
    command.arg("threads");
    let bare = outcome(&command.output().unwrap());
    command.env(VARIABLE, format!("{point}:panic"));
    let plugin = plugin.to_str().unwrap();
    let options = ["--plugin", plugin, "--plugin-flush", "1ms", "--plugin-timeout", "1s"];
    let recorded = Recorded::run_with(program, "none", &options, &mut command);
    assert_eq!(outcome(&recorded.output), bare, "plugin, {point}: {}", recorded.stderr());
    recorded.losses().contains_key("agent_disabled")
}

/// The same with the variables of IREE's original hook, which ask for a report at the end.
fn drop_in_panics_at(program: &Path, point: &str) -> bool {
    let bare = outcome(&entries().output().unwrap());
    let scratch = testkit::Scratch::new();
    let output = entries()
        .env("LD_PRELOAD", library_of(program))
        .env("TMPDIR", scratch.path())
        .env("IREE_HOOK_BUCKET_COUNT", "4")
        .env(VARIABLE, format!("{point}:panic"))
        .output()
        .unwrap();
    let (code, stdout) = outcome(&output);
    assert_eq!(code, bare.0, "{point}: {output:?}");
    // The host's output comes first, then the report, if there is one.
    assert!(stdout.starts_with(&bare.1), "{point}: {stdout}");
    // The message comes from the agent if there is no profile, from the report, or from a profile
    // that was left behind.
    let said = |text: &str| text.contains("turned itself off") || text.contains("agent_disabled");
    let left = std::fs::read_dir(scratch.path()).unwrap().any(|entry| {
        profile::Profile::open(&entry.unwrap().path())
            .is_ok_and(|p| p.all_losses().iter().any(|loss| loss.name == "agent_disabled"))
    });
    left || said(&String::from_utf8_lossy(&output.stderr)) || said(&stdout)
}

/// At each point, a signal handler forks, and its child returns from the handler and continues.
/// Both processes succeed, and the parent loses nothing.
#[test]
fn a_handler_may_fork_anywhere() {
    let Some(program) = injecting("fork in a handler") else { return };
    let mut reached = 0;
    let clean = Recorded::run(&program, "page-faults:u", &mut entries());
    let all = *clean.calls_per_process().last().unwrap();
    let (_, words) = outcome(&clean.output);
    for point in points(&program) {
        let mut command = entries();
        command.env(VARIABLE, format!("{point}:signal"));
        let recorded = Recorded::run(&program, "page-faults:u", &mut command);
        let (code, stdout) = outcome(&recorded.output);
        assert_eq!(code, Some(17), "{point}: {stdout} {}", recorded.stderr());
        // One child more than without the signal, if the signal came.
        let forked = words.replace("done\n", "child came through\ndone\n");
        assert!(stdout == words || stdout == forked, "{point}: {stdout}");
        reached += u32::from(stdout == forked);
        assert!(
            recorded.calls_per_process().contains(&all),
            "{point}: {all}, {:?}",
            recorded.calls_per_process()
        );
        let mut losses = recorded.losses();
        // The handler's child also clears the environment of its own child.
        losses.remove("child_without_variables");
        // A call that the child ends for its parent is in no process's records.
        losses.remove("call_cut_short");
        assert!(losses.is_empty(), "{point}: {losses:?}");
    }
    assert!(reached >= 15, "only {reached} points had a handler to interrupt");
}
