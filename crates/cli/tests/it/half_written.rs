//! Tests that an output file which cannot be written completely does not replace an earlier file of
//! the same name, and that no other file is left. A complete file replaces the earlier one, but
//! keeps its permissions.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Runs a command in a shell that limits files to 4 or 8 KiB: the unit of `ulimit -f` depends on
/// the shell.
fn limited(args: &[&str], paths: &[&Path]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh", PROGRAM]);
    shell.args(args).args(paths).output().unwrap()
}

fn profile(scratch: &Scratch) -> std::path::PathBuf {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("mlp", &["matmul"]);
    let thread = process.thread("main");
    // These times do not compress well, so that compressed outputs exceed the limit, too.
    let mut at = 0;
    for i in 0..2_000u64 {
        at += 1_000 + i * 7_919 % 997 * (i % 13);
        thread.call(CallScript::new(0, at, i * 104_729 % 991));
    }
    let dir = scratch.join("p.cpt");
    script.write(&dir);
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_earlier_file_is_kept() {
    let scratch = Scratch::new();
    let dir = profile(&scratch);
    let whole = scratch.join("whole.json");
    let made = Command::new(PROGRAM).args(["trace", "export", "-o"]).args([&whole, &dir]).status();
    assert!(made.unwrap().success());
    let place = scratch.join("place");
    std::fs::create_dir(&place).unwrap();
    let cases: [(&str, &[&str], &[&Path]); 8] = [
        ("x.json", &["trace", "export", "-o"], &[&dir]),
        ("x.json.gz", &["trace", "export", "-o"], &[&dir]),
        ("x.pftrace", &["trace", "export", "-o"], &[&dir]),
        ("m.json", &["trace", "merge", "-o"], &[&whole, &whole]),
        ("m.json.gz", &["trace", "merge", "-o"], &[&whole, &whole]),
        ("x.csv", &["export", "--format", "csv", "-o"], &[&dir]),
        ("y.json", &["export", "--format", "json", "-o"], &[&dir]),
        ("x.parquet", &["export", "--format", "parquet", "-o"], &[&dir]),
    ];
    for (name, args, inputs) in cases {
        let file = place.join(name);
        for before in [None, Some("what was there")] {
            if let Some(text) = before {
                std::fs::write(&file, text).unwrap();
            }
            let output = limited(args, &[&[file.as_path()], inputs].concat());
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            let expected = format!("counterpoint: write {}: File too large", file.display());
            assert!(said.contains(&expected), "{name}: {said}");
            assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), before, "{name}");
            assert_eq!(names(&place).len(), usize::from(before.is_some()), "{name}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_complete_file_gets_the_name_and_the_mode_of_the_earlier_one() {
    let scratch = Scratch::new();
    let dir = profile(&scratch);
    let (file, link) = (scratch.join("file.json"), scratch.join("link.json"));
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("file.json", &link).unwrap();
    let made = Command::new(PROGRAM).args(["trace", "export", "-o"]).args([&link, &dir]).status();
    assert!(made.unwrap().success());
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&file).unwrap().contains("traceEvents"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);

    // The outputs are a link to a device, and a file with a name of the greatest possible length.
    let device = scratch.join("null.json");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    let long = scratch.join(&format!("{}.json", "n".repeat(250)));
    for file in [&device, &long] {
        let made =
            Command::new(PROGRAM).args(["trace", "export", "-o"]).args([file, &dir]).status();
        assert!(made.unwrap().success(), "{}", file.display());
    }
    assert!(device.is_symlink());
    assert!(std::fs::metadata(&long).unwrap().len() > 1_000);
}
