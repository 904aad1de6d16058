//! Tests the times of a plugin's events: in UTC, as the plugin interface requires, and from other
//! clocks. The plugin is `tests/programs/plugins/two_devices.c`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Scratch, c};

use crate::support::{Programs, counterpoint};

/// Returns the time on `CLOCK_MONOTONIC` and in UTC.
fn now() -> [i64; 2] {
    let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    [record::clock::monotonic_ns() as i64, utc]
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn moments(program: &Path, profile: &str, options: &[&str], column: &str) -> Vec<i64> {
    let arguments = [&["export", profile, "--format", "csv"], options].concat();
    let output = run(program, &arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|name| *name == column).expect(column);
    lines.map(|line| line[at].parse().unwrap()).collect()
}

/// Records a plugin that uses `clock`, first in a program (`counterpoint run`) and then without a
/// program (`counterpoint plugin run`). Returns the path of each profile, with the messages of its
/// recording.
fn recorded(program: &Path, scratch: &Scratch, clock: &str) -> [(String, String); 2] {
    let file = scratch.join(&format!("{clock}.so"));
    let flags = ["-std=gnu11".to_owned(), format!("-DCLOCK={clock}")];
    c::shared("cc", "plugins/two_devices.c", &file, &[&flags[0], &flags[1]])
        .expect("a C compiler: Rust links with it");
    let plugin = file.display().to_string();
    let plugged = Programs::get().other("plugged").display().to_string();
    let profile = |name| scratch.join(&format!("{clock}-{name}.cpt")).display().to_string();
    let [inside, alone] = ["inside", "alone"].map(profile);
    let inside_arguments =
        ["run", "-e", "none", "--plugin", &plugin, "-o", &inside, "--", &plugged, "return"];
    let done = run(program, &inside_arguments);
    assert_eq!(done.status.code(), Some(3), "{done:?}");
    let said = |done: Output| String::from_utf8(done.stderr).unwrap();
    let inside = (inside.clone(), said(done));
    let done = run(program, &["plugin", "run", &plugin, "--for", "1ms", "-o", &alone]);
    assert!(done.status.success(), "{done:?}");
    [inside, (alone.clone(), said(done))]
}

#[test]
fn every_export_is_on_the_monotonic_clock_or_in_utc() {
    let Some(program) = counterpoint("clocks of exports") else { return };
    let scratch = Scratch::new();
    let before = now();
    let profiles = recorded(&program, &scratch, "CLOCK_REALTIME");
    // The times of the plugin's last events are 2 ms after its start. They may be later than the
    // end of the recording.
    let after = now().map(|ns| ns + 10_000_000);
    for (profile, said) in profiles {
        assert!(!said.contains("gave"), "{said}");
        for (what, column, count) in [("calls", "start", 2 * 100 + 2), ("tracks", "time", 2 * 50)] {
            let monotonic = moments(&program, &profile, &["--what", what], &format!("{column}_ns"));
            let utc = ["--what", what, "--clock", "utc"];
            let utc = moments(&program, &profile, &utc, &format!("{column}_unix_ns"));
            assert_eq!((monotonic.len(), utc.len()), (count, count), "{profile}: {what}");
            for (monotonic, utc) in monotonic.into_iter().zip(utc) {
                // While the test runs, UTC drifts from CLOCK_MONOTONIC by far less than a
                // millisecond.
                let within = |at: usize, ns: i64| before[at] - 1_000_000 <= ns && ns <= after[at];
                assert!(
                    within(0, monotonic),
                    "{profile}: {what}: {monotonic}: {before:?} {after:?}"
                );
                assert!(within(1, utc), "{profile}: {what}: {utc}: {before:?} {after:?}");
            }
        }
    }
}

#[test]
fn times_of_the_monotonic_clock_are_recognised() {
    let Some(program) = counterpoint("a plugin with another clock") else { return };
    let scratch = Scratch::new();
    let before = now();
    let profiles = recorded(&program, &scratch, "CLOCK_MONOTONIC");
    let after = now().map(|ns| ns + 10_000_000);
    for (profile, said) in profiles {
        // The times are those of 202 slices and of 100 values of counters.
        assert!(said.contains("gave 302 times of CLOCK_MONOTONIC instead of UTC"), "{said}");
        for ns in moments(&program, &profile, &[], "start_ns") {
            assert!(before[0] <= ns && ns <= after[0], "{profile}: {ns}: {before:?} {after:?}");
        }
    }
}

#[test]
fn times_of_an_unknown_clock_are_placed_in_the_recording_and_named() {
    let Some(program) = counterpoint("a plugin with an unknown clock") else { return };
    let scratch = Scratch::new();
    let before = now();
    // The plugin gives times of a clock that Counterpoint does not know: the processor time of its
    // process. In the first minutes after the machine was started, Counterpoint would take them for
    // times of CLOCK_MONOTONIC.
    if before[0] < 300_000_000_000 {
        return testkit::skip("an unknown clock", "the machine was started just now");
    }
    let profiles = recorded(&program, &scratch, "CLOCK_PROCESS_CPUTIME_ID");
    let after = now();
    for (profile, said) in profiles {
        let expected = "gave 302 times outside of the recording, the first one 1970-01-01 00:00:00";
        assert!(said.contains(expected), "{said}");
        let mut starts = moments(&program, &profile, &[], "start_ns");
        starts.sort_unstable();
        assert!(before[0] <= starts[0] && starts[0] <= after[0], "{profile}: {starts:?}");
        let spread = starts.last().unwrap() - starts[0];
        assert!(spread.abs_diff(2_002_000) < 1000, "as the plugin has it: {spread}");
    }
}
