//! Tests the command `counterpoint loops instrument`. The tests in `crates/ir/tests` check the LLVM
//! IR that the command writes.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use testkit::Scratch;

const TEXT: &str = include_str!("loops_instrument.ll");

fn instrument(scratch: &Scratch, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.current_dir(scratch.path()).args(["loops", "instrument"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // If the command fails before it reads its standard input, writing to it fails, too; the test
    // ignores that error.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_file_and_its_table_are_written_beside_the_text() {
    let scratch = Scratch::new();
    fs::write(scratch.join("kernel.ll"), TEXT).unwrap();
    let done = instrument(&scratch, &["kernel.ll", "--functions"], "");
    assert_eq!(
        words(&done),
        "counterpoint: instrumented 1 function and 1 loop (sampled) in kernel.lwp.ll; left out: 1 \
         loop by depth or height; skipped: 1 function (it is naked)\n"
    );
    assert!(done.status.success() && done.stdout.is_empty());
    let text = fs::read_to_string(scratch.join("kernel.lwp.ll")).unwrap();
    assert!(text.starts_with(TEXT.lines().next().unwrap()) && text.contains("CPLOOPS1"));
    let table = fs::read(scratch.join("kernel.lwp.loops.json")).unwrap();
    let table: Value = serde_json::from_slice(&table).unwrap();
    assert_eq!(table["source"], "kernel.ll");
    assert_eq!(table["entries"][1]["label"], "outer");
    assert_eq!(table["skipped"][0]["function"], "bare");
    assert!(
        text.contains(&format!("@counterpoint_loops_attach_{}", table["module"].as_str().unwrap()))
    );
}

#[test]
fn standard_input_and_output_are_dashes() {
    let scratch = Scratch::new();
    let options = ["-", "-o", "-", "--mode", "count", "--table", "t.json", "--filter", "k*"];
    let done = instrument(&scratch, &options, TEXT);
    assert!(done.status.success(), "{}", words(&done));
    assert!(words(&done).contains("(count) in standard output"), "{}", words(&done));
    assert!(words(&done).contains("left out: 1 loop by depth or height, 1 function by name"));
    assert!(String::from_utf8(done.stdout).unwrap().contains("CPLOOPS1"));
    assert!(scratch.join("t.json").exists());
    // Without --table, no table is written.
    let done = instrument(&scratch, &["-"], TEXT);
    assert!(done.status.success() && !done.stdout.is_empty());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn errors_say_what_to_do() {
    let scratch = Scratch::new();
    fs::write(scratch.join("a.ll"), TEXT).unwrap();
    fs::write(scratch.join("a.bc"), b"BC\xC0\xDE").unwrap();
    for (arguments, expected, hint) in [
        (&["a.bc"][..], "a.bc: this is LLVM bitcode, not the text of LLVM IR", "llvm-dis"),
        (&["none.ll"][..], "open none.ll: No such file or directory", ""),
        (&["a.ll", "-o", "a.ll"][..], "write a.ll: it is the same file as a.ll", ""),
        (&["a.ll", "--table", "./a.ll"][..], "write ./a.ll: it is the same file as a.ll", ""),
        (&["a.ll", "-o", "/dev/full"][..], "write /dev/full: No space left on device", ""),
        (&["a.ll", "--mode", "all"][..], "invalid value 'all' for '--mode <MODE>'", ""),
    ] {
        let done = instrument(&scratch, arguments, "");
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", words(&done));
        assert!(words(&done).contains(expected), "{arguments:?}: {}", words(&done));
        assert!(words(&done).contains(hint), "{arguments:?}: {}", words(&done));
    }
    assert_eq!(fs::read_to_string(scratch.join("a.ll")).unwrap(), TEXT);
    let done = instrument(&scratch, &["-"], &TEXT[TEXT.find("define").unwrap()..]);
    assert!(words(&done).contains("standard input: the text names no target"), "{}", words(&done));
    assert!(words(&done).contains("--target x86_64-linux-gnu"), "{}", words(&done));
}
