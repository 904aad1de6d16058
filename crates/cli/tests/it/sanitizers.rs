//! Tests programs that are built with a sanitizer. The sanitizer must report the same faults as
//! without Counterpoint. Some programs cannot run with Counterpoint's library. They run without it,
//! and the profile reports the loss `child_sanitized`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{Programs, Recorded, counterpoint, plain, skip};

/// A way to build a program with a sanitizer. `finds` lists the faults in `sanitized.c` that the
/// sanitizer finds: the argument that causes a fault, a part of the sanitizer's report, and the
/// exit status.
struct Build {
    name: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    finds: &'static [(&'static str, &'static str, i32)],
    /// Whether the program's library must be built with the sanitizer, too.
    whole: bool,
}

const ADDRESS: &[(&str, &str, i32)] = &[
    ("overflow", "heap-buffer-overflow", 1),
    ("leak", "77 byte(s) leaked in 1 allocation(s)", LEAK),
];
/// The exit status after a leak, with AddressSanitizer. With LeakSanitizer alone, the status is 23.
const LEAK: i32 = 1;

const BUILDS: &[Build] = &[
    Build {
        name: "gcc, AddressSanitizer, shared",
        compiler: "gcc",
        flags: &["-fsanitize=address"],
        finds: ADDRESS,
        whole: false,
    },
    Build {
        name: "gcc, AddressSanitizer, static",
        compiler: "gcc",
        flags: &["-fsanitize=address", "-static-libasan"],
        finds: ADDRESS,
        whole: false,
    },
    Build {
        name: "clang, AddressSanitizer, shared",
        compiler: "clang",
        flags: &["-fsanitize=address", "-shared-libasan"],
        finds: ADDRESS,
        whole: false,
    },
    Build {
        name: "clang, AddressSanitizer, static",
        compiler: "clang",
        flags: &["-fsanitize=address"],
        finds: ADDRESS,
        whole: false,
    },
    Build {
        name: "gcc, LeakSanitizer",
        compiler: "gcc",
        flags: &["-fsanitize=leak"],
        finds: &[("leak", "77 byte(s) leaked in 1 allocation(s)", 23)],
        whole: false,
    },
    Build {
        name: "gcc, ThreadSanitizer",
        compiler: "gcc",
        flags: &["-fsanitize=thread"],
        finds: &[("race", "data race", 66)],
        whole: false,
    },
    Build {
        name: "clang, ThreadSanitizer",
        compiler: "clang",
        flags: &["-fsanitize=thread"],
        finds: &[("race", "data race", 66)],
        whole: false,
    },
    Build {
        name: "clang, MemorySanitizer",
        compiler: "clang",
        flags: &["-fsanitize=memory"],
        finds: &[("uninitialised", "use-of-uninitialized-value", 1)],
        whole: true,
    },
    Build {
        name: "gcc, UndefinedBehaviorSanitizer",
        compiler: "gcc",
        flags: &["-fsanitize=undefined"],
        finds: &[("overflow-int", "signed integer overflow", 0)],
        whole: false,
    },
    Build {
        name: "clang, UndefinedBehaviorSanitizer",
        compiler: "clang",
        flags: &["-fsanitize=undefined"],
        finds: &[("overflow-int", "signed integer overflow", 0)],
        whole: false,
    },
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs").join(name)
}

fn directory() -> &'static testkit::Scratch {
    static DIRECTORY: OnceLock<testkit::Scratch> = OnceLock::new();
    DIRECTORY.get_or_init(|| testkit::Scratch::new().until_exit())
}

/// Compiles `from`, and returns the path of the result. An error says why this machine cannot
/// compile `from`.
fn compile(build: &Build, from: &str, more: &[&str]) -> Result<PathBuf, String> {
    let letters = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let to = directory().join(&letters(&format!("{}-{from}{}", build.name, more.concat())));
    let compiler = testkit::c::compiler(build.compiler);
    let compiler = compiler.ok_or_else(|| format!("{} is not installed", build.compiler))?;
    let mut cc = Command::new(&compiler);
    cc.args(["-g", "-O1", "-std=gnu11", "-o"]).arg(&to).arg(source(from)).args(build.flags);
    if build.flags.contains(&"-shared-libasan") {
        // The dynamic linker does not search the directory of the sanitizer's runtime by default,
        // so the directory is added with `-rpath`.
        let ask =
            Command::new(&compiler).arg("-print-file-name=libclang_rt.asan-x86_64.so").output();
        let file =
            ask.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).into_owned());
        let at = Path::new(file.trim()).parent().unwrap_or(Path::new("/"));
        cc.arg(format!("-Wl,-rpath,{}", at.display()));
    }
    let output = cc.args(more).args(["-ldl", "-lpthread", "-lrt"]).output();
    let output = output.map_err(|e| format!("{}: {e}", build.compiler))?;
    match output.status.success() {
        true => Ok(to),
        false => {
            Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("").to_owned())
        }
    }
}

/// Returns the program and its library. Returns `None` and reports a skipped test if the machine
/// cannot compile them or run the program.
fn built(build: &Build, from: &str) -> Option<(PathBuf, PathBuf)> {
    let test = format!("sanitizers, {}", build.name);
    let library = match build.whole {
        true => compile(build, "library.c", &["-shared", "-fPIC"]),
        false => Ok(Programs::get().library.clone()),
    };
    match library.and_then(|library| Ok((compile(build, from, &[])?, library))) {
        Ok((program, library)) => {
            let runs = Command::new(&program).output().is_ok_and(|o| o.status.code() == Some(2));
            if !runs {
                skip(&test, "its programs do not run here");
            }
            runs.then_some((program, library))
        }
        Err(why) => {
            skip(&test, &why);
            None
        }
    }
}

/// `host.c` makes calls in its threads, in child processes, and in a program that a child process
/// executes.
#[test]
fn sanitized_hosts_are_recorded() {
    let Some(program) = counterpoint("sanitizers") else { return };
    for build in BUILDS {
        let Some((host, library)) = built(build, "host.c") else { continue };
        for (mode, calls) in [
            ("calls 100", &[100][..]),
            ("threads 8 100", &[800]),
            ("nested 10", &[20]),
            ("fork", &[200, 450]),
            ("fork-exec", &[20, 50]),
        ] {
            let what = format!("{} {mode}", build.name);
            let mut command = Command::new(&host);
            command.arg(&library).args(mode.split(' '));
            let recorded = Recorded::run(&program, "page-faults:u", &mut command);
            let bare = plain(&mut command, recorded.directory.path());
            assert_eq!(
                recorded.output.status.code(),
                bare.status.code(),
                "{what}: {}",
                recorded.stderr()
            );
            assert_eq!(recorded.output.stdout, bare.stdout, "{what}");
            assert!(bare.stderr.is_empty(), "{what}: {bare:?}");
            assert_eq!(recorded.stderr().lines().count(), 1, "{what}: {}", recorded.stderr());
            assert_eq!(recorded.calls_per_process(), calls, "{what}");
            assert_eq!(recorded.losses(), BTreeMap::new(), "{what}");
        }
    }
}

#[test]
fn sanitizers_still_find_their_faults() {
    let Some(program) = counterpoint("sanitizers find") else { return };
    for build in BUILDS {
        let Some((faulty, library)) = built(build, "sanitized.c") else { continue };
        for (fault, said, status) in build.finds {
            let what = format!("{} {fault}", build.name);
            let mut command = Command::new(&faulty);
            command.arg(&library).arg(fault);
            let recorded = Recorded::run(&program, "page-faults:u", &mut command);
            let bare = plain(&mut command, recorded.directory.path());
            let words = String::from_utf8_lossy(&bare.stderr).into_owned();
            assert_eq!(bare.status.code(), Some(*status), "{what}: {words}");
            assert!(words.contains(said), "{what}: {words}");
            assert_eq!(
                recorded.output.status.code(),
                Some(*status),
                "{what}: {}",
                recorded.stderr()
            );
            assert!(recorded.stderr().contains(said), "{what}: {}", recorded.stderr());
            assert_eq!(recorded.output.stdout, bare.stdout, "{what}");
            let summary = |text: &str| {
                text.lines().find(|line| line.starts_with("SUMMARY")).map(str::to_owned)
            };
            assert_eq!(summary(&recorded.stderr()), summary(&words), "{what}");
            assert_eq!(recorded.calls_per_process(), [5], "{what}");
        }
    }
}

/// If a program sets AddressSanitizer's options itself, Counterpoint cannot set the option that
/// allows its library to be loaded first. A program that is linked statically with the runtime does
/// not need the option, so it is recorded.
#[test]
fn a_program_with_its_own_options_runs_without_us() {
    let Some(program) = counterpoint("sanitizers, options") else { return };
    for build in BUILDS.iter().filter(|build| build.name.contains("AddressSanitizer")) {
        let Ok(own) = compile(build, "sanitized.c", &["-DOWN_OPTIONS"]) else {
            skip("sanitizers, options", &format!("{} is not there", build.name));
            continue;
        };
        let shared = build.name.ends_with("shared");
        for (fault, status) in [("nothing", 0), ("overflow", 42)] {
            let what = format!("{} {fault}", build.name);
            let mut direct = Command::new(&own);
            direct.arg(&Programs::get().library).arg(fault);
            let mut started = Command::new("env");
            started.arg("--").arg(&own).args(direct.get_args());
            for command in [&mut direct, &mut started] {
                let recorded = Recorded::run(&program, "none", command);
                assert_eq!(
                    recorded.output.status.code(),
                    Some(status),
                    "{what}: {}",
                    recorded.stderr()
                );
                assert_eq!(recorded.stdout(), format!("{fault}\n"), "{what}");
                let (losses, calls) = match shared {
                    true => (BTreeMap::from([("child_sanitized".to_owned(), 1)]), vec![]),
                    false => (BTreeMap::new(), vec![5]),
                };
                assert_eq!(recorded.losses(), losses, "{what}");
                assert_eq!(recorded.calls_per_process(), calls, "{what}");
            }
        }
    }
}

#[test]
fn under_valgrind_and_gdb() {
    let Some(program) = counterpoint("valgrind") else { return };
    let programs = Programs::get();
    let host = |command: &mut Command, mode: &str| {
        command.arg(&programs.host).arg(&programs.library).args(mode.split(' '));
    };
    let valgrind = |tool: &str| {
        let mut command = Command::new("valgrind");
        command
            .args(["-q", "--error-exitcode=99", "--log-file=/dev/null"])
            .arg(format!("--tool={tool}"));
        if tool == "callgrind" {
            command.arg("--callgrind-out-file=/dev/null");
        }
        if tool == "memcheck" {
            command.args(["--leak-check=full", "--errors-for-leak-kinds=definite,possible"]);
        }
        host(&mut command, "threads 3 100");
        command
    };
    if Command::new("valgrind").arg("--version").output().is_ok_and(|o| o.status.success()) {
        // `valgrind`, which starts the tool, is linked statically, so Counterpoint's library is not
        // loaded into it. The profile reports this as the loss `child_static`.
        let launcher = ("child_static".to_owned(), 1);
        for tool in ["memcheck", "callgrind", "helgrind", "drd"] {
            let mut command = valgrind(tool);
            let recorded = Recorded::run(&program, "page-faults:u", &mut command);
            let bare = plain(&mut command, recorded.directory.path());
            assert_eq!(bare.status.code(), Some(0), "{tool}: {bare:?}");
            assert_eq!(recorded.output.status.code(), Some(0), "{tool}: {}", recorded.stderr());
            assert_eq!(recorded.output.stdout, bare.stdout, "{tool}");
            let mut losses = recorded.losses();
            assert_eq!(losses.remove_entry("child_static"), Some(launcher.clone()), "{tool}");
            let (calls, lost) = match tool {
                "helgrind" | "drd" => (vec![], BTreeMap::from([("child_sanitized".to_owned(), 1)])),
                _ => (vec![300], BTreeMap::new()),
            };
            assert_eq!(recorded.calls_per_process(), calls, "{tool}");
            assert_eq!(losses, lost, "{tool}");
        }
    } else {
        skip("valgrind", "it is not installed");
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "run", "-ex", "quit $_exitcode", "--args"]);
    host(&mut gdb, "threads 3 100");
    if gdb.output().is_ok_and(|o| o.status.success()) {
        let recorded = Recorded::run(&program, "page-faults:u", &mut gdb);
        assert_eq!(recorded.output.status.code(), Some(0), "gdb: {}", recorded.stderr());
        assert!(recorded.stdout().contains("threads 3 100 done"), "gdb: {}", recorded.stdout());
        assert_eq!(recorded.calls_per_process(), [300], "gdb");
        assert_eq!(recorded.losses(), BTreeMap::new(), "gdb");
    } else {
        skip("gdb", "it is not installed, or may not trace here");
    }
}
