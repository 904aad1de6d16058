//! Tests the files that commands write, and `-` for standard input and output.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

use crate::pty;
use crate::support::skip;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
/// The user id of the user `nobody`.
const OTHER: u32 = 65534;
const THIRD: u32 = 65533;

fn profile(scratch: &Scratch) -> PathBuf {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("mlp", &["matmul"]);
    let thread = process.thread("main");
    (0..50u64).for_each(|i| {
        thread.call(CallScript::new(0, 1_000 * i, 100 + i));
    });
    let dir = scratch.join("p.cpt");
    script.write(&dir);
    dir
}

/// Returns commands that write a file, each with the ending of the file's name. The caller appends
/// `-o` and a name with this ending.
fn writers(scratch: &Scratch, profile: &Path) -> Vec<(&'static str, Vec<String>)> {
    let trace = scratch.join("whole.json");
    let words = |words: &[&str], inputs: &[&Path]| -> Vec<String> {
        let words = words.iter().map(|w| (*w).to_owned());
        words.chain(inputs.iter().map(|p| p.to_str().unwrap().to_owned())).collect()
    };
    let made = run(&words(&["trace", "export", "-o"], &[&trace, profile]));
    assert!(made.status.success(), "{made:?}");
    vec![
        ("json", words(&["trace", "export"], &[profile])),
        ("json.gz", words(&["trace", "export"], &[profile])),
        ("pftrace", words(&["trace", "export"], &[profile])),
        ("json", words(&["trace", "merge"], &[&trace, &trace])),
        ("csv", words(&["export", "--format", "csv"], &[profile])),
        ("json", words(&["export", "--format", "json"], &[profile])),
        ("parquet", words(&["export", "--format", "parquet"], &[profile])),
    ]
}

fn run(words: &[String]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

fn is_root() -> bool {
    // SAFETY: `geteuid` has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Returns a directory that is owned by root, sticky, and writable by everybody, like `/tmp`.
fn shared(scratch: &Scratch) -> PathBuf {
    let at = scratch.join("shared");
    fs::create_dir(&at).unwrap();
    fs::set_permissions(&at, PermissionsExt::from_mode(0o1777)).unwrap();
    for place in at.ancestors().skip(1).take_while(|p| p.starts_with(scratch.path())) {
        fs::set_permissions(place, PermissionsExt::from_mode(0o755)).unwrap();
    }
    at
}

/// Another user has created a link, a file or a FIFO with the name of the output.
#[test]
fn another_users_file_in_a_shared_directory_is_refused() {
    if !is_root() {
        return skip("output_files shared", "only root can make files of others");
    }
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    let writers = writers(&scratch, &profile);
    let place = shared(&scratch);
    let victim = scratch.join("victim");
    fs::write(&victim, "precious").unwrap();
    for (ending, words) in &writers {
        let file = place.join(format!("x.{ending}"));
        let attacks: [(&str, &dyn Fn()); 4] = [
            ("link", &|| symlink(&victim, &file).unwrap()),
            ("dangling link", &|| symlink(scratch.join("made"), &file).unwrap()),
            ("file", &|| fs::write(&file, "theirs").unwrap()),
            ("FIFO", &|| {
                assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
            }),
        ];
        for (what, attack) in attacks {
            attack();
            std::os::unix::fs::lchown(&file, Some(OTHER), Some(OTHER)).unwrap();
            let words = [words.as_slice(), &["-o".into(), file.to_str().unwrap().into()]].concat();
            let output = run(&words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{what} {words:?}: {said}");
            let kind = what.split(' ').next_back().unwrap();
            let why =
                format!("is a {kind} of user {OTHER} in a directory that everybody can write to");
            assert!(said.contains(&why), "{what}: {said}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            assert!(!scratch.join("made").exists());
            assert_eq!(fs::symlink_metadata(&file).unwrap().uid(), OTHER, "the file is unchanged");
            assert_eq!(names(&place).len(), 1, "nothing else is created");
            fs::remove_file(&file).unwrap();
        }
        // A link of the command's own user is followed.
        let own = scratch.join(&format!("own.{ending}"));
        symlink(&own, &file).unwrap();
        let words = [words.as_slice(), &["-o".into(), file.to_str().unwrap().into()]].concat();
        assert!(run(&words).status.success());
        assert!(fs::metadata(&own).unwrap().len() > 100 && file.is_symlink());
        fs::remove_file(&file).unwrap();
    }
}

/// If root's output replaces another user's file, the new file belongs to root. With the old file's
/// permissions (set-user-id, writable), anybody could replace its contents by a program that would
/// run as root.
#[test]
fn a_replaced_file_of_another_user_gives_no_rights() {
    if !is_root() {
        return skip("output_files rights", "only root can make files of others");
    }
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    let place = scratch.join("theirs");
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(OTHER), Some(OTHER)).unwrap();
    // SAFETY: `umask` takes a number only. The next call restores the mask.
    let mask = unsafe { libc::umask(0o022) };
    // SAFETY: `umask` takes a number only.
    unsafe { libc::umask(mask) };
    let allowed = 0o666 & !mask;
    let cases = [(OTHER, 0o6777), (OTHER, 0o4755), (OTHER, 0o600), (0, 0o6755), (0, 0o640)];
    for (number, (owner, mode)) in cases.into_iter().enumerate() {
        for (ending, words) in writers(&scratch, &profile) {
            let file = place.join(format!("{number}.{ending}"));
            fs::write(&file, "theirs").unwrap();
            std::os::unix::fs::chown(&file, Some(owner), Some(owner)).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let words = [words.as_slice(), &["-o".into(), file.to_str().unwrap().into()]].concat();
            let output = run(&words);
            assert!(output.status.success(), "{output:?}");
            let found = fs::metadata(&file).unwrap();
            assert_eq!(found.uid(), 0);
            let expected = match owner {
                0 => mode & 0o777,
                _ => mode & allowed,
            };
            assert_eq!(found.mode() & 0o7777, expected, "{owner} {mode:o} {words:?}");
        }
    }
}

#[test]
fn links_are_followed_where_the_kernel_would() {
    let protected = fs::read_to_string("/proc/sys/fs/protected_symlinks").unwrap_or_default();
    if !is_root() || protected.trim() != "1" {
        return skip("output_files kernel", "needs root, and fs.protected_symlinks at 1");
    }
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    let place = shared(&scratch);
    let target = scratch.join("target.json");
    let link = place.join("x.json");
    for (mode, directory, owner) in [
        (0o1777, 0, 0),
        (0o1777, 0, OTHER),
        (0o1777, OTHER, OTHER),
        (0o1777, OTHER, THIRD),
        (0o1775, 0, OTHER),
        (0o777, 0, OTHER),
        (0o755, OTHER, OTHER),
    ] {
        std::os::unix::fs::chown(&place, Some(directory), None).unwrap();
        fs::set_permissions(&place, PermissionsExt::from_mode(mode)).unwrap();
        fs::write(&target, "").unwrap();
        let _ = fs::remove_file(&link);
        symlink(&target, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(owner), None).unwrap();
        let kernel = fs::File::options().write(true).open(&link).is_ok();
        let mut command = Command::new(PROGRAM);
        let output = command.args(["trace", "export", "-o"]).args([&link, &profile]).output();
        let case = format!("mode {mode:o}, directory of {directory}, link of {owner}");
        assert_eq!(output.unwrap().status.success(), kernel, "{case}");
        assert_eq!(fs::metadata(&target).unwrap().len() > 0, kernel, "{case}");
    }
}

/// If the output is a FIFO or a device, the command writes into it and does not replace it.
#[test]
fn outputs_that_are_not_regular_files() {
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    let fifo = scratch.join("fifo.json");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let export = |to: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["export", "--format", "json", "-o"]).args([to, &profile]);
        command
    };
    let expected =
        Command::new(PROGRAM).args(["export", "--format", "json"]).arg(&profile).output();
    let expected = expected.unwrap().stdout;
    assert!(expected.len() > 1_000);
    let mut writer = export(&fifo).spawn().unwrap();
    assert_eq!(fs::read(&fifo).unwrap(), expected);
    assert!(writer.wait().unwrap().success());
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());

    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"] {
        let output = export(Path::new(name)).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout), (Some(0), &expected), "{name}");
        // If standard output is a file that already has contents, the output is appended to them.
        let file = scratch.join("appended");
        fs::write(&file, "before\n").unwrap();
        let to = fs::File::options().append(true).open(&file).unwrap();
        assert!(export(Path::new(name)).stdout(to).status().unwrap().success());
        let text = fs::read(&file).unwrap();
        assert_eq!(
            (&text[..7], &text[7..]),
            (b"before\n".as_slice(), expected.as_slice()),
            "{name}"
        );
    }
    assert!(!Path::new("-").exists(), "no file of this name");
    assert!(export(Path::new("/dev/null")).status().unwrap().success());
    let full = export(Path::new("/dev/full")).output().unwrap();
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(said.starts_with("counterpoint: write /dev/full: No space left"), "{said}");
    let output = export(scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is a directory"));
    // It is no error if the reader closes its pipe early.
    let mut command = export(Path::new("-"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn binary_output_does_not_go_to_a_terminal() {
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    for words in [
        ["trace", "export", "-o", "-", "--format", "pftrace"].as_slice(),
        &["trace", "export", "-o", "-", "--format", "json.gz"],
        &["export", "--format", "parquet", "-o", "-"],
        &["export", "--format", "parquet", "-o", "/dev/stdout"],
        &["export", "--format", "parquet", "-o", "/dev/tty"],
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(words).arg(&profile);
        // SAFETY: between fork and exec, the closure only makes async-signal-safe calls.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let (status, text) = pty::shown(&mut command, 200);
        assert_eq!(status.code(), Some(2), "{words:?}");
        assert!(
            text.contains("this format is not text and cannot be written to a terminal"),
            "{text}"
        );
    }
}

/// Makes a profile whose export takes a moment.
fn large(scratch: &Scratch) -> PathBuf {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("mlp", &["matmul"]);
    for _ in 0..12 {
        let thread = process.thread("main");
        (0..2_000u64).for_each(|i| {
            thread.call(CallScript::new(0, 1_000 * i, 100 + i % 977));
        });
    }
    let dir = scratch.join("p.cpt");
    script.write(&dir);
    dir
}

/// Sends each signal while a command writes into `place`. `begun` gets the command's process id,
/// and returns whether the command has begun to write. The command must leave no new file, and a
/// file that was there before must be unchanged.
fn interrupt(
    place: &Path,
    signals: &[i32],
    start: &dyn Fn(&Path) -> Command,
    begun: &dyn Fn(u32) -> bool,
) {
    let file = place.join("x.json");
    let mut interrupted = 0;
    for before in [None, Some("what was there")] {
        for signal in signals {
            let _ = fs::remove_file(&file);
            if let Some(text) = before {
                fs::write(&file, text).unwrap();
            }
            let mut child = start(&file).stderr(Stdio::null()).spawn().unwrap();
            let since = Instant::now();
            while !begun(child.id()) && since.elapsed() < Duration::from_secs(20) {
                if child.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            // SAFETY: `kill` takes numbers only, and the child is our own.
            unsafe { libc::kill(child.id() as i32, *signal) };
            if child.wait().unwrap().signal() == Some(*signal) {
                interrupted += 1;
                assert_eq!(fs::read_to_string(&file).ok().as_deref(), before, "{signal}");
                assert_eq!(names(place).len(), usize::from(before.is_some()), "{signal}");
            }
        }
    }
    assert!(interrupted > 0, "every command ended before its signal");
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let scratch = Scratch::new();
    let profile = large(&scratch);
    let place = scratch.join("place");
    fs::create_dir(&place).unwrap();
    let start = |file: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["trace", "export", "-o"]).args([file, &profile]);
        command
    };
    // The output is an unnamed file (`O_TMPFILE`) until it is complete. `/proc/PID/fd` shows it as
    // a deleted file in its directory.
    let begun = |pid: u32| {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let mut links = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        links.any(|to| to.starts_with(&place))
    };
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL];
    interrupt(&place, &signals, &start, &begun);
}

/// Without `/proc`, or on some file systems, the output file has a random name from the beginning,
/// and the command removes it when a signal ends the command.
#[test]
fn an_interrupted_export_without_unnamed_files() {
    let scratch = Scratch::new();
    let profile = large(&scratch);
    let place = scratch.join("place");
    fs::create_dir(&place).unwrap();
    let start = |file: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount -t tmpfs none /proc && exec \"$@\"").arg("sh").arg(PROGRAM);
        command.args(["trace", "export", "-o"]).args([file, &profile]);
        command
    };
    let file = place.join("x.json");
    let Ok(output) = start(&file).output() else {
        return skip("output_files named", "no unshare(1)");
    };
    if String::from_utf8_lossy(&output.stderr).contains("unshare: ") {
        return skip("output_files named", "mount namespaces are not permitted here");
    }
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(&place), ["x.json"]);
    assert!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).is_ok());
    let begun = |_| names(&place).iter().any(|name| name.starts_with(".counterpoint-"));
    interrupt(&place, &[libc::SIGINT, libc::SIGTERM, libc::SIGHUP], &start, &begun);
}

/// As an input, `-` means standard input, which can be a pipe or a file.
#[test]
fn standard_input() {
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    let (json, gz) = (scratch.join("t.json"), scratch.join("t.json.gz"));
    for file in [&json, &gz] {
        let mut export = Command::new(PROGRAM);
        assert!(
            export
                .args(["trace", "export", "-o"])
                .args([file, &profile])
                .status()
                .unwrap()
                .success()
        );
    }
    // Counterpoint does not import its own traces.
    let foreign = scratch.join("f.json");
    fs::write(&foreign, r#"[{"ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"name":"a"}]"#).unwrap();
    let out = scratch.join("i.cpt");
    let calls = || {
        let output =
            Command::new(PROGRAM).args(["report", "--format", "json"]).arg(&out).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["total"]["calls"].as_u64().unwrap()
    };
    let text = fs::read(&foreign).unwrap();
    let import = ["trace", "import", "-o", out.to_str().unwrap()];
    let output = piped(&[&import[..], &["-"]].concat(), &text);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls(), 1);
    // First, standard input is a file. After this loop, it is a pipe that is given by a name in
    // `/dev`, as a shell does for `<(…)`.
    for name in ["-", "/dev/stdin"] {
        let mut command = Command::new(PROGRAM);
        command.args(import).arg(name).stdin(fs::File::open(&foreign).unwrap());
        assert!(command.output().unwrap().status.success());
        assert_eq!(calls(), 1);
    }
    let output = piped(&[&import[..], &["/dev/stdin"]].concat(), &text);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls(), 1);
    for file in [&json, &gz, &foreign] {
        let text = fs::read(file).unwrap();
        let output = piped(&["trace", "check", "-"], &text);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with("standard input: "), "{said}");
        let merged = piped(&["trace", "merge", "-o", "-", "-", json.to_str().unwrap()], &text);
        assert!(merged.status.success(), "{merged:?}");
        assert!(serde_json::from_slice::<Value>(&merged.stdout).is_ok());
        let said = String::from_utf8(merged.stderr).unwrap();
        assert!(said.contains("counterpoint: standard input:"), "{said}");
    }
    let metrics = ["report", profile.to_str().unwrap(), "--format", "csv", "--metrics-file", "-"];
    let output = piped(&metrics, b"doubled=2*2\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("standard input line 1") || output.status.success(), "{said}");

    let twice = piped(&["trace", "merge", "-o", "-", "-", "-"], b"[]");
    assert_eq!(twice.status.code(), Some(2));
    let said = String::from_utf8(twice.stderr).unwrap();
    assert!(said.contains("standard input (-) can be read only once, not 2 times"), "{said}");
}

fn piped(words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[test]
fn standard_output() {
    let scratch = Scratch::new();
    let profile = profile(&scratch);
    for (ending, words) in writers(&scratch, &profile) {
        let file = scratch.join(&format!("-.{ending}"));
        let to = |to: &str, more: &[&str]| {
            let mut command = Command::new(PROGRAM);
            let output = command.args(&words).args(["-o", to]).args(more).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            output.stdout
        };
        to(file.to_str().unwrap(), &[]);
        let format: &[&str] = match words[0].as_str() {
            "trace" => &["--format", ending],
            _ => &[],
        };
        let (stdout, file) = (to("-", format), fs::read(&file).unwrap());
        assert!(stdout.len() > 100, "{words:?}");
        // Traces in JSON contain the name of their file.
        if ending != "json.gz" && ending != "json" {
            assert!(stdout == file, "{words:?}");
        }
        if ending == "json" {
            let [stdout, file] = [stdout, file].map(|text| {
                let mut value: Value = serde_json::from_slice(&text).unwrap();
                value.as_object_mut().unwrap().remove("traceName");
                value
            });
            assert!(stdout == file, "{words:?}");
        }
    }
}

#[test]
fn a_profile_is_a_directory() {
    for words in [
        ["report", "-"].as_slice(),
        &["ops", "-"],
        &["stats", "-"],
        &["recover", "-"],
        &["export", "--format", "csv", "-"],
        &["trace", "export", "-o", "x.json", "-"],
        &["trace", "import", "-o", "-", "x.json"],
        &["run", "-o", "-", "--", "true"],
        &["env", "-o", "-"],
    ] {
        let output = Command::new(PROGRAM).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("a profile is a directory"), "{words:?}: {said}");
    }
}

/// If the program cannot be started, the exit status of `run` must be that of env(1).
#[test]
fn a_program_that_cannot_be_started() {
    let scratch = Scratch::new();
    let plain = scratch.join("plain");
    fs::write(&plain, "no program\n").unwrap();
    let script = scratch.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let garbage = scratch.join("garbage");
    fs::write(&garbage, [0x7f, b'E', b'L', b'F', 9, 9, 9]).unwrap();
    fs::set_permissions(&garbage, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", scratch.path().display());
    let there = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let mut tried = 0;
    for program in [
        there("missing"),
        "no-such-program-anywhere".to_owned(),
        there("plain"),
        "plain".to_owned(),
        there(""),
        there("plain/below"),
        there("script"),
        there("garbage"),
    ] {
        let alone = Command::new("env").arg(&program).env("PATH", &path).output().unwrap();
        let mut run = Command::new(PROGRAM);
        run.args(["run", "-o"]).arg(scratch.join("r.cpt")).args(["--", &program]);
        let output = run.env("PATH", &path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if said.contains("libcounterpoint.so") {
            // `run` has not found libcounterpoint.so, and without this library it starts no
            // program.
            continue;
        }
        tried += 1;
        assert_eq!(output.status.code(), alone.status.code(), "{program}: {said}");
        assert!(said.starts_with("counterpoint: start "), "{said}");
        assert!(!scratch.join("r.cpt").exists());
    }
    assert!(tried >= 6, "{tried}");
}
