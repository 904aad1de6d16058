//! Runs a plugin of the SDK in a host that is written in C and shares no code with Counterpoint
//! (`tests/programs/plugins/host.c`). The host is built with and without Counterpoint's extension
//! of the plugin interface.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Scratch, c};

/// Returns the file of the example `every_call`, which Cargo builds with the tests.
fn every_call() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let profile = test.parent().and_then(Path::parent).expect("target/debug/deps/…");
    let file = profile.join("examples/libevery_call.so");
    assert!(file.exists(), "{} is built with the tests", file.display());
    file
}

fn drive(flags: &[&str], arguments: &[&str]) -> Option<String> {
    let scratch = Scratch::new();
    let host = scratch.join("host");
    let mut all = vec!["-std=gnu11", "-ldl", "-lpthread"];
    all.extend(flags);
    c::compile("cc", "plugins/host.c", &host, &all)?;
    let output =
        Command::new(&host).arg(every_call()).args(arguments).output().expect("the host runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "panics are silent");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn a_plain_host_gets_everything_that_it_can_hold() {
    let Some(printed) = drive(&[], &[]) else { return testkit::skip("plugin_sdk", "no cc") };
    let recording = include_str!("foreign_host.txt");
    let head = "null registry -1\nregistered 88 bytes\nregister 0\nprofilerQuery 0\n\
                name every call\ntypes 23 6 22\n";
    // Without the extension, the host gets the plugin's own kind `tile` as type 6 (compute
    // kernels).
    assert_eq!(printed, format!("{head}{recording}{recording}"));
}

#[test]
fn a_host_with_the_extension_gets_more() {
    let Some(printed) = drive(&["-DEXTENDED"], &["6", "1024"]) else {
        return testkit::skip("plugin_sdk", "no cc");
    };
    for line in [
        "declares tile like 6: 1024",
        "types 23 6 22 1024",
        "configure 0",
        "toggle 0",
        "counter 2500 on -1 power/package [W] 12",
        "flush 0",
        "thread 500/501 launcher",
        "event type 1024 1600..1700 id 0 on 3/7",
        "counter 3000 on 3 bandwidth/read [GB/s] 10.5",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line} is not in\n{printed}");
    }
    assert!(!printed.contains("name launch"), "the runtime was not asked for:\n{printed}");
}
