//! Tests programs that lock their memory.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Programs, counterpoint, skip};
use testkit::Scratch;

/// Checks that a program can be recorded if it locks its memory before or after it loads a library.
/// `rights` is the first part of a shell command, and limits the program's permissions.
fn each_way(what: &str, program: &Path, scratch: &Scratch, rights: &str) {
    let programs = Programs::get();
    let locker = programs.other("locker");
    for when in ["before", "after"] {
        for which in ["current", "future", "both"] {
            let what = format!("{what}: {when} {which}");
            let at = scratch.join(&format!("{when}-{which}.cpt"));
            let start = |run: &[&str]| -> Output {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{rights} \"$@\""), "sh"]).args(run).arg(&locker);
                command.arg(&programs.library).args([when, which]).env("TMPDIR", scratch.path());
                command.output().unwrap()
            };
            let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
            let bare = start(&[]);
            let expected = format!("mlockall {which}: locked\n30 calls, little shared\n");
            assert_eq!(text(&bare), expected, "{what}: without Counterpoint");
            let (run, place) = (program.display().to_string(), at.display().to_string());
            let with = start(&[&run, "run", "-e", "task-clock:u", "-o", &place, "--"]);
            assert_eq!(text(&with), expected, "{what}: {with:?}");
            assert!(with.status.success(), "{what}: {with:?}");
            let profile = profile::Profile::open(&at).unwrap();
            assert_eq!(profile.calls(), 30, "{what}: {with:?}");
            assert!(profile.all_losses().is_empty(), "{what}: {:?}", profile.all_losses());
        }
    }
}

/// With CAP_IPC_LOCK, a program may lock any amount of memory.
#[test]
fn a_program_may_lock_its_memory() {
    let Some(program) = counterpoint("locked") else { return };
    let programs = Programs::get();
    let rights = "ulimit -l 0; exec";
    let mut bare = Command::new("sh");
    bare.args(["-c", &format!("{rights} \"$@\""), "sh"]).arg(programs.other("locker"));
    let bare = bare.arg(&programs.library).args(["after", "both"]).output().unwrap();
    if !bare.stdout.starts_with(b"mlockall both: locked") {
        return skip("locked", "no right to lock memory without a limit (CAP_IPC_LOCK)");
    }
    each_way("no limit", &program, &Scratch::new(), rights);
}

/// Linux's default limit on locked memory is 8 MiB.
#[test]
fn a_program_may_lock_what_linux_allows() {
    let Some(program) = counterpoint("locked_nobody") else { return };
    let scratch = Scratch::new();
    let dist = scratch.join("dist");
    let built = program.ancestors().nth(2).unwrap();
    assert!(Command::new("cp").arg("-r").arg(built).arg(&dist).status().unwrap().success());
    assert!(Command::new("chmod").arg("-R").arg("a+rX").arg(&dist).status().unwrap().success());
    let rights = "ulimit -l 8192 && exec setpriv --reuid 65534 --regid 65534 --clear-groups --";
    let program = dist.join("bin/counterpoint");
    let can = Command::new("sh")
        .args(["-c", &format!("{rights} \"$0\" --version")])
        .arg(&program)
        .output()
        .unwrap();
    if !can.status.success() {
        return skip("locked_nobody", "cannot become nobody here (setpriv, directories)");
    }
    std::os::unix::fs::chown(scratch.path(), Some(65534), Some(65534)).unwrap();
    each_way("8 MiB", &program, &scratch, rights);
    // With a limit of 1 MiB, the library fits into locked memory, but the pool (the shared memory
    // for calls) does not. A loss says so.
    let rights = rights.replace("8192", "1024");
    let (programs, at) = (Programs::get(), scratch.join("none.cpt"));
    let mut run = Command::new("sh");
    run.args(["-c", &format!("{rights} \"$@\""), "sh"]).arg(&program).args(["run", "-o"]).arg(&at);
    run.args(["-e", "none", "--"]).arg(programs.other("locker")).arg(&programs.library);
    let output = run.args(["before", "future"]).env("TMPDIR", scratch.path()).output().unwrap();
    assert_eq!(output.stdout, b"mlockall future: locked\n30 calls, little shared\n", "{output:?}");
    let profile = profile::Profile::open(&at).unwrap();
    let losses: Vec<_> =
        profile.all_losses().into_iter().map(|loss| (loss.name, loss.count)).collect();
    assert_eq!((profile.calls(), losses), (0, vec![("pool_too_small".to_owned(), 1)]));
}
