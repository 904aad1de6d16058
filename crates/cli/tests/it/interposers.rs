//! Tests that other preloaded libraries, which replace the same functions as Counterpoint's
//! library, see the same calls as without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Programs, Recorded, counterpoint, plain};

/// Returns the paths of two preloadable libraries, which count the calls that they see. The second
/// library also allocates memory during these calls.
fn interposers() -> [PathBuf; 2] {
    let programs = Programs::get();
    [
        programs.shared("interposer.c", "interposer.so", &[]),
        programs.shared("interposer.c", "allocator.so", &["-DALLOCATOR", "-fno-builtin"]),
    ]
}

fn marked() -> Command {
    let programs = Programs::get();
    let mut command = Command::new(programs.other("marked"));
    command.arg(&programs.library);
    command
}

/// Returns the line that the interposer prints about the calls that it saw.
fn seen(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("mmap ")).collect();
    lines.join("\n")
}

/// `marked` calls `mmap` five times, and the interposer's constructor calls it once.
const ALL: &str = "mmap 6 mmap64 2 mprotect 3 dlsym 4";

#[test]
fn the_next_definition_is_called() {
    let Some(program) = counterpoint("interposers") else { return };
    for library in interposers() {
        let what = library.display().to_string();
        let scratch = testkit::Scratch::new();
        let alone = plain(marked().env("LD_PRELOAD", &library), scratch.path());
        assert_eq!(
            (alone.status.code(), seen(&alone).as_str()),
            (Some(0), ALL),
            "{what}: {alone:?}"
        );

        // `counterpoint run` puts our library before the other library in `LD_PRELOAD`.
        let mut command = marked();
        command.env("LD_PRELOAD", &library);
        let recorded = Recorded::run(&program, "page-faults:u", &mut command);
        assert_eq!(recorded.output.status.code(), Some(0), "{what}: {}", recorded.stderr());
        assert_eq!(recorded.stdout(), "marked\n", "{what}");
        assert!(recorded.stderr().contains(ALL), "{what}: {}", recorded.stderr());
        assert_eq!(recorded.calls_per_process(), [10], "{what}");

        // A user can put the other library first. That library finds glibc's `dlsym` with `dlvsym`,
        // so our `dlsym` is not called, and Counterpoint does not find the library of dispatch
        // functions.
        let ours = library_of(&program);
        let both = format!("{}:{}", library.display(), ours.display());
        let mut command = Command::new("env");
        command.arg(format!("LD_PRELOAD={both}"));
        command.arg(marked().get_program()).args(marked().get_args());
        let recorded = Recorded::run(&program, "page-faults:u", &mut command);
        assert_eq!(recorded.stdout(), "marked\n", "{what}: {}", recorded.stderr());
        assert_eq!(seen(&recorded.output), ALL, "{what}, before ours");
        assert_eq!(recorded.losses(), Default::default(), "{what}, before ours");

        // Without `counterpoint run`, our library has no profile to record into, and must not
        // disturb the program.
        let both = format!("{}:{}", ours.display(), library.display());
        let idle = plain(marked().env("LD_PRELOAD", both), scratch.path());
        assert_eq!((idle.status.code(), seen(&idle).as_str()), (Some(0), ALL), "{what}: {idle:?}");
    }
}

fn library_of(program: &Path) -> PathBuf {
    program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
}
