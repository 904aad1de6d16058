//! Tests programs into which the recorder's library cannot be preloaded. Each start of such a
//! program counts as a loss, whose name says why the library cannot be preloaded.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::{Programs, Recorded, counterpoint, plain, skip};

/// Programs of each kind, which are compiled once.
struct Kinds {
    starter: PathBuf,
    /// A program for the system's glibc.
    dynamic: PathBuf,
    fixed: PathBuf,
    /// A program whose dynamic linker (`linker.c`) refuses to run with our library.
    other_libc: PathBuf,
    /// A program whose dynamic linker and C library have symbol versions up to `GLIBC_2.12`.
    old_glibc: PathBuf,
    /// A program whose dynamic linker and C library have symbol versions up to `GLIBC_2.17`.
    /// Counterpoint preloads its library into programs for this version. So this program fails to
    /// start, because `linker.c` refuses the library.
    newer_glibc: PathBuf,
    /// A program whose dynamic linker has the version in its file name (`ld-2.12.so`).
    old_by_name: PathBuf,
    /// A 32-bit program. `None` if the compiler or the kernel does not support such programs.
    narrow: Option<PathBuf>,
    /// A program for musl. `None` if musl's compiler is not installed.
    musl: Option<PathBuf>,
    /// A script whose interpreter is another script, and that script's interpreter is `other_libc`.
    script: PathBuf,
    /// A script without `#!`.
    bare_script: PathBuf,
    /// A library that is preloaded together with our library.
    other_library: PathBuf,
    directory: testkit::Scratch,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs").join(name)
}

/// Compiles a program. On failure, returns the compiler's message.
fn compile(compiler: &str, flags: &[&str], from: &Path, to: &Path) -> Result<(), String> {
    let mut cc = Command::new(compiler);
    let output = cc.args(["-O1", "-Wall", "-o"]).arg(to).arg(from).args(flags).output();
    let output = output.map_err(|e| format!("{compiler}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Kinds {
    fn get() -> &'static Self {
        static KINDS: OnceLock<Kinds> = OnceLock::new();
        KINDS.get_or_init(Self::make)
    }

    fn make() -> Self {
        let directory = testkit::Scratch::new().until_exit();
        let at = |name: &str| directory.join(name);
        let cc = |flags: &[&str], from: &str, to: &Path| {
            compile("cc", flags, &source(from), to).unwrap_or_else(|e| panic!("{e}"));
        };
        let freestanding = ["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin"];
        cc(&["-ldl"], "starter.c", &at("starter"));
        cc(&[], "show.c", &at("dynamic"));
        cc(&["-static"], "show.c", &at("static"));
        let empty = at("empty.c");
        fs::write(&empty, "int nothing_at_all;\n").unwrap();
        compile("cc", &["-shared", "-fPIC"], &empty, &at("other.so")).unwrap();

        // Counterpoint recognises glibc's dynamic linker by its symbol versions. The dynamic linker
        // that is made here has none.
        let plain = [freestanding.as_slice(), &["-static"]].concat();
        cc(&plain, "linker.c", &at("ld-any.so.1"));
        let with_linker = |linker: &Path, to: &Path| {
            let flag = format!("-Wl,--dynamic-linker={}", linker.display());
            cc(&[&flag], "show.c", to);
        };
        with_linker(&at("ld-any.so.1"), &at("other_libc"));
        let glibc = |place: &str, linker: &str, versions: &[&str]| {
            let directory = at(place);
            fs::create_dir(&directory).unwrap();
            let script = directory.join("versions");
            let nodes: Vec<String> = versions.iter().map(|v| format!("{v} {{}};")).collect();
            fs::write(&script, format!("GLIBC_PRIVATE {{}}; {}", nodes.join(" "))).unwrap();
            let flag = format!("-Wl,--version-script={}", script.display());
            let shared = ["-shared", "-fPIC", "-Wl,-e,_start", &flag];
            cc(&[freestanding.as_slice(), &shared].concat(), "linker.c", &directory.join(linker));
            if !versions.is_empty() {
                let flags = ["-shared", "-fPIC", "-nostdlib", &flag];
                compile("cc", &flags, &empty, &directory.join("libc.so.6")).unwrap();
            }
            // In many Linux distributions, the path of the dynamic linker is a symbolic link, too.
            let link = directory.join("link");
            fs::create_dir(&link).unwrap();
            let link = link.join("ld-linux-x86-64.so.2");
            std::os::unix::fs::symlink(directory.join(linker), &link).unwrap();
            with_linker(&link, &at(&format!("{place}_program")));
        };
        glibc("old", "ld-linux-x86-64.so.2", &["GLIBC_2.2.5", "GLIBC_2.12"]);
        glibc("newer", "ld-linux-x86-64.so.2", &["GLIBC_2.2.5", "GLIBC_2.12", "GLIBC_2.17"]);
        glibc("named", "ld-2.12.so", &[]);

        let script = at("script");
        executable(&at("inner"), &format!("#! {} -x y\n", at("other_libc").display()));
        executable(&script, &format!("#!\t{}  argument of it\nnothing\n", at("inner").display()));
        let bare_script = at("bare_script");
        executable(&bare_script, "echo bare \"$@\"\nexit 23\n");

        let narrow = at("narrow");
        let flags = [plain.as_slice(), &["-m32"]].concat();
        let narrow =
            compile("cc", &flags, &source("linker.c"), &narrow).is_ok().then_some(narrow).filter(
                |program| Command::new(program).output().is_ok_and(|o| o.status.code() == Some(22)),
            );
        let musl = at("musl");
        let musl = compile("musl-gcc", &[], &source("show.c"), &musl).is_ok().then_some(musl);
        Self {
            starter: at("starter"),
            dynamic: at("dynamic"),
            fixed: at("static"),
            other_libc: at("other_libc"),
            old_glibc: at("old_program"),
            newer_glibc: at("newer_program"),
            old_by_name: at("named_program"),
            narrow,
            musl,
            script,
            bare_script,
            other_library: at("other.so"),
            directory,
        }
    }

    fn start(&self, way: &str, program: &Path) -> Command {
        let mut command = Command::new(&self.starter);
        command.arg(way).arg(program);
        command
    }
}

fn text(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command with and without Counterpoint. The exit code and the standard output must be the
/// same.
fn same(program: &Path, command: &mut Command, what: &str) -> Recorded {
    let recorded = Recorded::run(program, "none", command);
    let bare = plain(command, recorded.directory.path());
    assert_eq!(text(&recorded.output), text(&bare), "{what}: {}", recorded.stderr());
    recorded
}

fn lost(name: &str, count: u64) -> BTreeMap<String, u64> {
    if count == 0 { BTreeMap::new() } else { BTreeMap::from([(name.to_owned(), count)]) }
}

const WAYS: &[&str] = &[
    "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
    "spawn", "spawnp",
];

/// A program whose dynamic linker refuses our library starts without it, and counts as one loss.
#[test]
fn every_way_to_start_a_program() {
    let Some(program) = counterpoint("ways") else { return };
    let kinds = Kinds::get();
    for way in WAYS {
        for way in [(*way).to_owned(), format!("fork-{way}"), format!("vfork-{way}")] {
            let recorded = same(&program, &mut kinds.start(&way, &kinds.other_libc), &way);
            assert!(recorded.stdout().contains("started"), "{way}: {}", recorded.stdout());
            assert_eq!(recorded.losses(), lost("child_other_libc", 1), "{way}");
            let recorded = same(&program, &mut kinds.start(&way, &kinds.dynamic), &way);
            assert!(recorded.stdout().contains("one two three four five six seven | "), "{way}");
            assert_eq!(recorded.losses(), lost("", 0), "{way}");
        }
    }
}

#[test]
fn each_kind_has_its_name() {
    let Some(program) = counterpoint("kinds") else { return };
    let kinds = Kinds::get();
    let mut cases = vec![
        (&kinds.dynamic, ""),
        (&kinds.fixed, "child_static"),
        (&kinds.other_libc, "child_other_libc"),
        (&kinds.old_glibc, "child_old_glibc"),
        (&kinds.old_by_name, "child_old_glibc"),
        (&kinds.script, "child_other_libc"),
    ];
    match &kinds.narrow {
        Some(narrow) => cases.push((narrow, "child_other_machine")),
        None => skip("kinds, 32-bit", "cc -m32 makes no program that runs here"),
    }
    match &kinds.musl {
        Some(musl) => cases.push((musl, "child_other_libc")),
        None => skip("kinds, musl", "no musl-gcc"),
    }
    for (kind, loss) in cases {
        let expected = lost(loss, u64::from(!loss.is_empty()));
        let what = kind.display().to_string();
        let recorded = same(&program, &mut kinds.start("vfork-execv", kind), &what);
        assert_eq!(recorded.losses(), expected, "{what}");
        let mut alone = Command::new(kind);
        let recorded = same(&program, alone.args(["a", "b"]), &what);
        assert_eq!(recorded.losses(), expected, "{what} by itself");
    }
    // This shows that the cases above can fail: our library is preloaded into this program, which
    // therefore does not start.
    let recorded = Recorded::run(&program, "none", &mut Command::new(&kinds.newer_glibc));
    assert_eq!(recorded.output.status.code(), Some(127));
    assert_eq!(recorded.losses(), lost("", 0));
}

#[test]
fn a_process_that_records_counts_too() {
    let Some(program) = counterpoint("records") else { return };
    let kinds = Kinds::get();
    for (way, calls) in [("fork-execv", 5), ("vfork-execl", 5), ("spawnp", 5), ("execve", 5)] {
        let mut command = Command::new(&kinds.starter);
        command.arg("-l").arg(&Programs::get().library).arg(way).arg(&kinds.other_libc);
        let recorded = same(&program, &mut command, way);
        assert_eq!(recorded.losses(), lost("child_other_libc", 1), "{way}");
        assert_eq!(recorded.calls_per_process(), [calls], "{way}");
    }
}

/// If a program cannot be started, this is not a loss.
#[test]
fn failures_are_the_same() {
    let Some(program) = counterpoint("failures") else { return };
    let kinds = Kinds::get();
    let nowhere = kinds.directory.join("nowhere");
    let no_program = kinds.directory.join("no_program");
    fs::write(&no_program, "text\n").unwrap();
    let no_linker = kinds.directory.join("no_linker");
    let flag = "-Wl,--dynamic-linker=/nowhere/ld.so.1";
    compile("cc", &[flag], &source("show.c"), &no_linker).unwrap();
    for way in WAYS.iter().chain(&["cleared"]) {
        for way in [(*way).to_owned(), format!("vfork-{way}")] {
            for path in [&nowhere, &no_program, &no_linker, &kinds.bare_script] {
                let what = format!("{way} {}", path.display());
                let recorded = same(&program, &mut kinds.start(&way, path), &what);
                assert_eq!(recorded.losses(), lost("", 0), "{what}");
            }
        }
    }
    // With these functions, the C library searches for the program in PATH.
    let path = format!("/nowhere:{}:/usr/bin:/bin", kinds.directory.path().display());
    for (way, name) in
        [("execvp", "other_libc"), ("spawnp", "other_libc"), ("execlp", "no_program")]
    {
        let mut command = kinds.start(way, Path::new(name));
        let recorded = same(&program, command.env("PATH", &path), name);
        let count = u64::from(name == "other_libc");
        assert_eq!(recorded.losses(), lost("child_other_libc", count), "{way} {name}");
    }
}

#[test]
fn the_rest_of_the_environment_stays() {
    let Some(program) = counterpoint("environment") else { return };
    let kinds = Kinds::get();
    let other = kinds.other_library.display().to_string();
    let mut command = kinds.start("vfork-execve", &kinds.other_libc);
    let recorded = same(&program, command.env("LD_PRELOAD", &other), "beside ours");
    assert!(recorded.stdout().contains(&format!("{other} started")), "{}", recorded.stdout());
    let mut command = Command::new(&kinds.other_libc);
    same(&program, command.env("LD_PRELOAD", &other), "beside ours, by run");

    let mut command = kinds.start("vfork-execve", &kinds.other_libc);
    command.envs((0..30_000).map(|i| (format!("V{i}"), "x".repeat(20))));
    let recorded = same(&program, &mut command, "30,000 strings");
    assert_eq!(recorded.losses(), lost("child_other_libc", 1));
}

#[test]
fn a_cleared_environment_is_only_counted() {
    let Some(program) = counterpoint("cleared") else { return };
    let kinds = Kinds::get();
    let mut command = Command::new("env");
    command.arg("-i").arg(&kinds.dynamic);
    let recorded = same(&program, &mut command, "env -i");
    assert_eq!(recorded.losses(), lost("child_without_variables", 1));
    for way in ["cleared", "vfork-cleared"] {
        let recorded = same(&program, &mut kinds.start(way, &kinds.dynamic), way);
        assert_eq!(recorded.losses(), lost("child_without_variables", 1), "{way}");
    }
    let mut command = Command::new("env");
    command.args(["-u", "COUNTERPOINT_RUN_FILE"]).arg(&kinds.dynamic);
    let recorded = same(&program, &mut command, "without the run file");
    assert_eq!(recorded.losses(), lost("child_without_variables", 1));
}

#[test]
fn more_rights_than_the_user() {
    let Some(program) = counterpoint("rights") else { return };
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return skip("rights", "only root can make a set-user-id program of another user");
    }
    let kinds = Kinds::get();
    // The copies of the program must be on a file system that allows set-user-id programs.
    let scratch = testkit::Scratch::new();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(scratch.path(), 0o777);
    open(kinds.directory.path(), 0o755);
    let mut cases = vec![];
    for (name, mode) in
        [("user", 0o4755), ("group", 0o2755), ("unreadable", 0o4711), ("plain", 0o755)]
    {
        let copy = scratch.join(name);
        fs::copy(&kinds.dynamic, &copy).unwrap();
        open(&copy, mode);
        cases.push((copy, u64::from(name != "plain")));
    }
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let can = Command::new("setpriv").args(as_nobody).arg(&program).arg("--version").output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("rights", "nobody cannot run counterpoint here (setpriv, directories)");
    }
    for (copy, count) in cases {
        let run = |extra: &[&str]| {
            let mut command = Command::new("setpriv");
            command.args(as_nobody).args(extra).arg(&program).args(["run", "-e", "none", "-o"]);
            command.arg(scratch.join("p.cpt")).arg("--").arg(&kinds.starter).arg("vfork-execv");
            let output = command.arg(&copy).output().unwrap();
            let profile = profile::Profile::open(&scratch.join("p.cpt"))
                .unwrap_or_else(|e| panic!("{e}: {output:?}"));
            let losses: BTreeMap<_, _> =
                profile.all_losses().into_iter().map(|l| (l.name, l.count)).collect();
            (text(&output), losses)
        };
        let bare = Command::new(&kinds.starter).arg("vfork-execv").arg(&copy).output().unwrap();
        let what = copy.display().to_string();
        assert_eq!(run(&[]), (text(&bare), lost("child_privileged", count)), "{what}");
        // `--no-new-privs` makes set-user-id ineffective.
        assert_eq!(run(&["--no-new-privs"]), (text(&bare), lost("", 0)), "{what}");
    }
}
