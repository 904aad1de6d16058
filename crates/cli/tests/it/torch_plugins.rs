//! Tests how plugins are loaded for PyTorch and hand over their events, without PyTorch.
//! `tests/programs/torch_host.c` calls what Counterpoint's shim in PyTorch calls.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use testkit::{Scratch, c};

use crate::support::{Programs, counterpoint};

fn plugin(scratch: &Scratch, name: &str, flags: &[&str]) {
    c::shared("cc", "plugins/plugin.c", &scratch.join(name), flags)
        .expect("a C compiler: Rust links with it");
}

/// Returns a command that starts the host, which loads the plugins in the directory.
fn host(test: &str, scratch: &Scratch) -> Option<Command> {
    let program = counterpoint(test)?;
    let library = program.parent()?.parent()?.join("lib/libcounterpoint.so");
    let mut host = Command::new(Programs::get().other("torch_host"));
    host.arg(scratch.path()).arg("show").env("LD_PRELOAD", library);
    host.env_remove("COUNTERPOINT_RUN_FILE").env_remove("COUNTERPOINT_TORCH_KINDS");
    Some(host)
}

/// Compiles a plugin with these flags, and runs the host with it.
fn show(test: &str, flags: &[&str]) -> Option<(Scratch, Output)> {
    let scratch = Scratch::new();
    let mut host = host(test, &scratch)?;
    plugin(&scratch, "p.so", flags);
    let output = host.output().expect("the host starts");
    assert_eq!(output.status.code(), Some(17), "{output:?}");
    Some((scratch, output))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The events of `plugins/plugin.c`, as the host prints them, with the fields in the order of the
/// header file.
const RECORDING: &str = "\
profiler test plugin stacks 3
device 3 order 1 accelerator 3 (rev B)
device 4 order 1 4 ()
resource 3/7 order 2 stream 7
event 23 1000..2000 id 11 at 500/501 flow 2/own/1 launch [correlation=11]
event 6 1500..9000 id 11 at 3/7 flow 2/own/0 kernel of a test [stream=7] [device=3] [correlation=11]
event 22 3000..3000 id 0 at 3/0 flow 0/none/0 bandwidth {read GB/s=10.5} {write GB/s=1.25}
event 22 4000..4000 id 0 at 3/0 flow 0/none/0 bandwidth {read GB/s=12.25} {write GB/s=1.25}
4 events, results 0
";

#[test]
fn a_plugin_hands_its_events_over_in_each_recording() {
    let Some((_scratch, output)) = show("torch_plugins", &[]) else { return };
    assert_eq!(text(&output.stdout), format!("{RECORDING}{RECORDING}done\n"));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn wide_ids_and_broken_metadata_are_made_safe() {
    let Some((_scratch, output)) = show("torch_plugins", &["-DMISTAKE=WIDE_ID"]) else { return };
    // The event's id 0x123456789ab does not fit into 32 bits, so 2147483647 takes its place.
    let wide = RECORDING.replace(
        "event 6 1500..9000 id 11 at 3/7 flow 2/own/0 kernel of a test [stream=7] [device=3] \
         [correlation=11]",
        "event 6 1500..9000 id 2147483647 at 3/7 flow 2/own/0 kernel of a test [stream=7] [device=3] \
         [correlation=1250999896491]",
    );
    assert!(wide.contains("2147483647"));
    assert_eq!(text(&output.stdout), format!("{wide}{wide}done\n"));

    let Some((_scratch, output)) = show("torch_plugins", &["-DMISTAKE=BAD_METADATA"]) else {
        return;
    };
    assert!(text(&output.stdout).contains("[broken=\"{'a':\"]"), "{output:?}");
    let said = text(&output.stderr);
    // The host made two recordings, but the problem is printed only once.
    assert_eq!(said.matches("1 metadata values that are not JSON").count(), 1, "{said}");
}

#[test]
fn a_problem_is_said_once_and_the_events_before_it_are_kept() {
    let Some((_scratch, output)) = show("torch_plugins", &["-DMISTAKE=PROCESS_FAILS"]) else {
        return;
    };
    let failed = RECORDING.replace("results 0", "results -1");
    assert_eq!(text(&output.stdout), format!("{failed}{failed}done\n"));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("counterpoint: "), "{said}");
    assert!(said.ends_with("p.so: profilerProcessEvents returned 5\n"), "{said}");
}

/// The plugin's registration function does not return, or a thread-local destructor that it has set
/// does not.
#[test]
fn a_plugin_that_hangs_while_it_is_loaded_is_left_out() {
    for (mistake, lines) in [("REGISTER_HANGS", 2), ("REGISTER_LINGERS", 1)] {
        let scratch = Scratch::new();
        let Some(mut host) = host("torch_plugins, hang", &scratch) else { return };
        plugin(&scratch, "a-hangs.so", &[&format!("-DMISTAKE={mistake}")]);
        plugin(&scratch, "p.so", &[]);
        let output =
            host.env("COUNTERPOINT_PLUGIN_TIMEOUT", "1").output().expect("the host starts");
        assert_eq!(output.status.code(), Some(17), "{mistake}: {output:?}");
        assert_eq!(text(&output.stdout), format!("{RECORDING}{RECORDING}done\n"), "{mistake}");
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), lines, "{mistake}: {said}");
        assert!(said.ends_with("a-hangs.so: loading it took longer than 1 s\n"), "{said}");
    }
}

#[test]
fn a_signal_ends_a_program_whose_plugin_hangs_while_it_is_loaded() {
    let scratch = Scratch::new();
    let Some(mut host) = host("torch_plugins, hang and signal", &scratch) else { return };
    plugin(&scratch, "p.so", &["-DMISTAKE=REGISTER_HANGS"]);
    host.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut host = host.spawn().expect("the host starts");
    let mut said = [0; 6];
    host.stderr.as_mut().expect("a pipe").read_exact(&mut said).expect("the plugin says it");
    assert_eq!(&said, b"hangs\n");
    // SAFETY: `kill` takes numbers only. The child has not been waited for, so no other process can
    // have its process id.
    assert_eq!(unsafe { libc::kill(host.id() as i32, libc::SIGTERM) }, 0);
    assert_eq!(host.wait().expect("a child").signal(), Some(libc::SIGTERM));
}
