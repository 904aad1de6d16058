//! Injects a panic or a signal at the injection points of the agent (the recording library). After
//! a panic, the agent must turn itself off and report this, and the host (the recorded program)
//! must continue.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Programs, Recorded, injecting};
use crate::torch_ops;

const VARIABLE: &str = "COUNTERPOINT_INJECT";
const LOG: &str = "COUNTERPOINT_INJECT_LOG";

fn library_of(program: &Path) -> std::path::PathBuf {
    program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
}

/// Returns the names of the injection points, which the library itself lists.
fn points(program: &Path) -> Vec<String> {
    let path = std::ffi::CString::new(library_of(program).as_os_str().as_bytes()).unwrap();
    // SAFETY: `path` is a C string, and the library can be loaded into any process.
    // `counterpoint_injection_points` has this type. The function returns a C string that belongs
    // to the library, which is never unloaded.
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

/// `mode` is a compiler flag that selects how the executions of loops are recorded.
fn loops_host(mode: &str) -> Command {
    let host = Programs::get().loops(&format!("loops_host{mode}"), &[mode]);
    let mut command = Command::new(host);
    command.args(["threads", "2", "2"]);
    command
}

/// Returns a host that stands in for PyTorch, and records with the plugins in the directory
/// `plugins`.
fn torch_host(plugins: &Path) -> Command {
    let mut command = Command::new(Programs::get().other("torch_host"));
    command.arg(plugins);
    command
}

/// Returns a host that stands in for PyTorch, and hands recordings of PyTorch's profiler over to
/// the agent.
fn log_host() -> Command {
    Command::new(Programs::get().other("log_host"))
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

struct Host<'a> {
    what: &'a str,
    command: Command,
    events: &'a str,
    options: Vec<&'a str>,
}

impl Host<'_> {
    fn new<'a>(what: &'a str, command: Command) -> Host<'a> {
        Host { what, command, events: "page-faults:u", options: vec!["--loops"] }
    }

    /// Returns the points that the agent reaches while it records the host.
    fn reached(&mut self, program: &Path, scratch: &testkit::Scratch) -> Vec<String> {
        let log = scratch.join("log");
        std::fs::write(&log, "").unwrap();
        self.command.env(LOG, &log);
        Recorded::run_with(program, self.events, &self.options, &mut self.command);
        self.command.env_remove(LOG);
        read_log(&log)
    }

    /// Causes a panic at `point`. Returns whether the agent turned itself off.
    fn panics_at(&mut self, program: &Path, point: &str, bare: &(Option<i32>, String)) -> bool {
        let what = self.what;
        self.command.env(VARIABLE, format!("{point}:panic"));
        let recorded = Recorded::run_with(program, self.events, &self.options, &mut self.command);
        self.command.env_remove(VARIABLE);
        assert_eq!(outcome(&recorded.output), *bare, "{what}, {point}: {}", recorded.stderr());
        // Apart from lines about recordings of PyTorch's profiler in `log_host`, stderr must have
        // one line. This is not checked for a host with a plugin.
        let said = recorded.stderr();
        let lines = said.lines().filter(|line| !line.contains("torch.profiler in log_host"));
        assert!(self.options[0] != "--loops" || lines.count() == 1, "{what}, {point}: {said}");
        recorded.losses().contains_key("agent_disabled")
    }
}

/// Returns the names of the points without duplicates.
fn read_log(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_panic_anywhere_leaves_the_host_alone() {
    let Some(program) = injecting("inject") else { return };
    let points = points(&program);
    assert!(points.len() > 20, "{points:?}");
    let scratch = testkit::Scratch::new();
    let plugin = &scratch.join("timed.so");
    testkit::c::shared("cc", "plugins/timed.c", plugin, &["-std=gnu11"]).unwrap();
    let plugins = testkit::Scratch::new();
    testkit::c::shared("cc", "plugins/plugin.c", &plugins.join("p.so"), &[]).unwrap();
    let mut invalid = log_host();
    invalid.arg("invalid");
    let mut hosts = vec![
        Host::new("entries", entries()),
        Host::new("hook_host", hook_host()),
        Host::new("tvm_host", tvm_host()),
        Host::new("loops_host", loops_host("-DMODE=0")),
        Host::new("loops_host, log", loops_host("-DMODE=3")),
        Host::new("torch_host", torch_host(plugins.path())),
        Host::new("toy_host", crate::toy_host::host()),
        Host::new("log_host", log_host()),
        Host::new("log_host, invalid", invalid),
        with_plugin(plugin.to_str().unwrap()),
    ];
    hosts.extend(torch_ops::host("inject").map(|host| Host::new("torch_ops_host", host)));
    let mut disabled = std::collections::BTreeSet::new();
    for host in &mut hosts {
        let bare = outcome(&host.command.output().unwrap());
        assert!(!host.panics_at(&program, "Nowhere", &bare), "{}: not a point", host.what);
        for point in host.reached(&program, &scratch) {
            if host.panics_at(&program, &point, &bare) {
                disabled.insert(point);
            }
        }
    }
    for point in dropped_in_reaches(&program, &scratch) {
        if drop_in_panics_at(&program, &point) {
            disabled.insert(point);
        }
    }
    let never: Vec<_> = points.iter().filter(|point| !disabled.contains(*point)).collect();
    assert!(never.is_empty(), "nothing reaches {never:?}");
}

/// Returns a host with a plugin, which the agent asks for its events while the program runs.
fn with_plugin(plugin: &str) -> Host<'_> {
    let mut command = Command::new(Programs::get().other("plugged"));
    command.arg("threads");
    let options = vec!["--plugin", plugin, "--plugin-flush", "1ms", "--plugin-timeout", "1s"];
    Host { what: "plugin", command, events: "none", options }
}

/// Returns a command that preloads the agent without `counterpoint run`, and sets a variable of
/// IREE's original hook.
fn dropped_in(program: &Path, scratch: &testkit::Scratch) -> Command {
    let mut command = entries();
    command
        .env("LD_PRELOAD", library_of(program))
        .env("TMPDIR", scratch.path())
        .env("IREE_HOOK_BUCKET_COUNT", "4");
    command
}

fn dropped_in_reaches(program: &Path, scratch: &testkit::Scratch) -> Vec<String> {
    let log = scratch.join("log");
    std::fs::write(&log, "").unwrap();
    dropped_in(program, &testkit::Scratch::new()).env(LOG, &log).output().unwrap();
    read_log(&log)
}

fn drop_in_panics_at(program: &Path, point: &str) -> bool {
    let bare = outcome(&entries().output().unwrap());
    let scratch = testkit::Scratch::new();
    let output =
        dropped_in(program, &scratch).env(VARIABLE, format!("{point}:panic")).output().unwrap();
    let (code, stdout) = outcome(&output);
    assert_eq!(code, bare.0, "{point}: {output:?}");
    assert!(stdout.starts_with(&bare.1), "{point}: {stdout}");
    // A profile that was written, the report, or stderr must say that the agent turned itself
    // off.
    let said = |text: &str| text.contains("turned itself off") || text.contains("agent_disabled");
    let left = std::fs::read_dir(scratch.path()).unwrap().any(|entry| {
        profile::Profile::open(&entry.unwrap().path())
            .is_ok_and(|p| p.all_losses().iter().any(|loss| loss.name == "agent_disabled"))
    });
    left || said(&String::from_utf8_lossy(&output.stderr)) || said(&stdout)
}

/// A signal handler of the program forks, and the child returns from the handler and continues.
/// Both processes succeed, and no data of the parent is lost.
#[test]
fn a_handler_may_fork_anywhere() {
    let Some(program) = injecting("fork in a handler") else { return };
    let mut reached = 0;
    let clean = Recorded::run(&program, "page-faults:u", &mut entries());
    let all = *clean.calls_per_process().last().unwrap();
    let (_, words) = outcome(&clean.output);
    let reachable = Host::new("entries", entries()).reached(&program, &testkit::Scratch::new());
    for point in reachable {
        let mut command = entries();
        command.env(VARIABLE, format!("{point}:signal"));
        let recorded = Recorded::run(&program, "page-faults:u", &mut command);
        let (code, stdout) = outcome(&recorded.output);
        assert_eq!(code, Some(17), "{point}: {stdout} {}", recorded.stderr());
        // If the handler forked, the parent prints one more line about the child.
        let forked = words.replace("done\n", "child came through\ndone\n");
        assert!(stdout == words || stdout == forked, "{point}: {stdout}");
        reached += u32::from(stdout == forked);
        assert!(
            recorded.calls_per_process().contains(&all),
            "{point}: {all}, {:?}",
            recorded.calls_per_process()
        );
        let mut losses = recorded.losses();
        // The host starts `sh` with an empty environment.
        losses.remove("child_without_variables");
        // A call may begin in the parent and end in the child.
        losses.remove("call_cut_short");
        assert!(losses.is_empty(), "{point}: {losses:?}");
    }
    assert!(reached >= 15, "only {reached} points had a handler to interrupt");
}
