//! Tests what `run` and `list` answer if somebody mistypes the name of a counter. `run` reports
//! such an error before it looks for the library that it preloads into programs, so these tests do
//! not need the library.

use std::process::Command;

use crate::support::skip;

/// Calls `run` with these options, which must fail with status 2, and returns the error message.
fn refused(options: &[&str]) -> String {
    let scratch = testkit::Scratch::new();
    let output = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .arg("run")
        .args(options)
        .arg("-o")
        .arg(scratch.join("p.cpt"))
        .args(["--", "true"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {text}");
    assert!(!scratch.join("p.cpt").exists(), "{options:?}");
    text
}

#[test]
fn a_program_without_dashes_before_it() {
    let refused = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .arg("run")
            .args(words)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let hint = "counterpoint: hint: `--` goes before the program: counterpoint run -- PROGRAM …\n";
    for words in [&["python", "train.py"][..], &["-o", "x.cpt", "python"], &["true"]] {
        let said = refused(words);
        assert!(said.ends_with(hint), "{words:?}: {said}");
    }
    assert!(!refused(&["--outptu", "x.cpt", "--", "true"]).contains("hint"));
}

#[test]
fn every_mistake_gets_a_helpful_answer() {
    for (typed, expected) in [
        // These are typing errors and abbreviated names.
        ("cycels", "did you mean cycles"),
        ("page_faults", "did you mean page-faults"),
        ("pagefaults", "did you mean page-faults"),
        ("cache_misses", "did you mean cache-misses"),
        ("ctx-switches", "did you mean context-switches"),
        ("pf", "did you mean page-faults"),
        ("tc", "did you mean task-clock"),
        ("cyc", "did you mean cycles"),
        ("page", "did you mean page-faults"),
        ("minor", "did you mean minor-faults"),
        ("L1", "did you mean L1-"),
        ("PAPI_TOT_ISN", "did you mean PAPI_TOT_INS"),
        ("perf::CYCELS", "did you mean perf::CYCLES?"),
        // These are not counters but, for example, metrics, incomplete raw events, and common words
        // for a measurement.
        ("r", "as in r01c2"),
        ("0x1c2", "r1c2"),
        ("ipc", "--metric ipc"),
        ("ipc:u", "--metric ipc"),
        ("branch-miss-rate", "--metric branch-miss-rate"),
        ("duration", "the duration of each call is always recorded"),
        ("wall-clock", "the duration of each call is always recorded"),
        ("cpu-time", "task-clock is the time on a processor"),
        ("rss", "page-faults counts the first touches"),
        ("energy", "power/energy-pkg/"),
        ("flops", "PAPI_FP_OPS"),
        ("none,page-faults", "none records only times and cannot be combined with counters"),
        // These lists cannot be parsed.
        ("page-faults;task-clock", "commas separate counters: -e page-faults,task-clock"),
        ("page-faults task-clock", "expected \",\" between counters"),
        ("faults:u:k", "modifiers are written together"),
        ("page-faults:z", "u user, k kernel"),
        ("{page-faults", "expected \",\" or \"}\""),
        ("cpu/cycles", "expected a second \"/\""),
        ("", "expected a counter name"),
        // These look like counters of other tools, or have another mistake.
        ("kprobe:do_exit", "perf probe --add 'do_exit'; -e probe:do_exit"),
        ("mem:main:x", "to count calls of a function: uprobe:PATH:FUNCTION"),
        ("mem:0x1/3:w", "a breakpoint watches 1, 2, 4 or 8 bytes"),
        ("uprobe:libm:expf", "a library needs its whole path"),
        ("uprobe:/etc/passwd:x", "not an ELF program or library"),
        ("sim/a/", "a simulated counter needs readings="),
        ("spr::INST_RETIRED:ANY", "perf's spelling of a vendor's name"),
        ("inst_retired.anyy", "--events-dir DIR"),
        ("page-faults,page-faults", "is listed twice"),
    ] {
        let text = refused(&["-e", typed]);
        assert!(text.contains(expected), "{typed}: {text}");
    }
}

/// x86-64 has four breakpoints. If a list needs more breakpoints than there are, the message must
/// not say that a debugger uses them.
#[test]
fn breakpoints_cannot_take_turns() {
    if !cfg!(target_arch = "x86_64") {
        return skip("breakpoints", "only x86-64 has exactly four breakpoints");
    }
    let five: Vec<String> = (1..=5).map(|n| format!("mem:{:#x}/4:w:u", 0x10000 * n)).collect();
    let list = five.join(",");
    for options in [vec!["-e", &list], vec!["--multiplex", "-e", &list]] {
        let text = refused(&options);
        if text.contains("EACCES") || text.contains("EPERM") {
            return skip("breakpoints", &text);
        }
        assert!(text.contains("ENOSPC") && text.contains("run --passes"), "{text}");
        assert!(!text.contains("debugger"), "{text}");
        assert!(text.contains(&format!("count {} in another run", five[4])), "{text}");
        assert!(!text.contains("estimate"), "{text}");
    }
}

/// If no counter matches the argument of `counterpoint list`, the command gives the same reason as
/// `run -e` with that argument.
#[test]
fn list_says_why_it_is_empty() {
    for (typed, expected) in [
        (
            "cycels",
            "counterpoint: no counter matches \"cycels\"\ncounterpoint: hint: did you mean cycles",
        ),
        ("ipc", "--metric ipc"),
        (
            "PAPI_FP_INS",
            "counterpoint: \"PAPI_FP_INS\": the PAPI preset has no single generic counter",
        ),
        ("uprobe:/etc/passwd:x", "not an ELF program or library"),
        ("qqqqqqqq*", "no counter matches \"qqqqqqqq*\"\n"),
    ] {
        let mut list = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        let output = list.args(["list", typed]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{typed}: {text}");
        assert!(text.contains(expected), "{typed}: {text}");
        assert!(!text.contains("counterpoint list"), "{typed}: {text}");
    }
}
