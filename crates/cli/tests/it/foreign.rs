//! Tests profiles that somebody made to harm their readers.
//!
//! above 600 lines: the attacks are one list, in which a missing one is noticed.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use profile::pools::{directory_name, owner};
use profile::{Manifest, ProfileId, State};
use record::pool::{Owner, create};
use serde_json::Value;
use testkit::make::pool_path;
use testkit::{CallScript, ProfileScript, Scratch};

use crate::support::memory::Memory;

/// Returns a profile whose process ended long ago, before all calls were in files. One thread has
/// one call in the profile's file, and two threads have 2 calls each in the pool.
fn crashed() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.pool = true;
    script.manifest.state = State::Finished;
    let process = script.process(4_000_711);
    process.library("m", &["f"]);
    process.thread("flushed").call(CallScript::new(0, 500, 9));
    for name in ["main", "worker"] {
        let thread = process.thread(name);
        thread.unflushed = true;
        for i in 0..2 {
            thread.call(CallScript::new(0, 1_000 * i, 500));
        }
    }
    script
}

const PART: &str = "processes/4000711-1000-0";

/// Returns command lines that read a profile. Output files are written to `out`.
fn views(dir: &Path, out: &Path) -> Vec<Vec<OsString>> {
    let (dir, out) = (dir.as_os_str(), out.as_os_str());
    let view = |words: &[&str], with_output: bool| {
        let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
        all.insert(if words[0] == "trace" { 2 } else { 1 }, dir.to_owned());
        if with_output {
            all.extend(["-o".into(), out.to_owned()]);
        }
        all
    };
    vec![
        view(&["report"], false),
        view(&["report", "--format", "json"], false),
        view(&["stats"], false),
        view(&["ops"], false),
        view(&["export", "--format", "csv"], true),
        view(&["trace", "export"], true),
        view(&["recover"], false),
        view(&["recover", "--close"], false),
        view(&["session", "finish"], false),
        view(&["hook", "report"], false),
    ]
    .into_iter()
    .map(|mut words| {
        if words[0] == "session" || words[0] == "hook" {
            words.swap(1, 2);
        }
        words
    })
    .collect()
}

/// Runs a command, which must end by itself within a minute.
fn run(words: &[OsString]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).map(|_| all)
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout)), read(Box::new(stderr)));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        // The check finds commands that never end. Its limit is large, so that slow commands pass.
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("hangs: {words:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text =
        |thread: std::thread::JoinHandle<std::io::Result<Vec<u8>>>| thread.join().unwrap().unwrap();
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

/// Describes each file and directory below `at`. The descriptions of files of less than 16 MiB
/// contain the time of the last change and the content.
pub fn everything(at: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![at.to_owned()];
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let mut text = format!("{:o} {} {} ", found.mode(), found.nlink(), found.uid());
        if found.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() && found.len() < 1 << 24 {
            text += &format!("{} {:?}", found.mtime_nsec(), fs::read(&path).unwrap());
        } else if found.is_symlink() {
            text += &format!("{:?}", fs::read_link(&path).unwrap());
        }
        all.insert(path, text);
    }
    all
}

/// Runs the commands that read a profile. The commands must not change anything below `watched`.
/// Returns the JSON of `report`, if any.
fn look(dir: &Path, watched: &[&Path], when: &str) -> Option<Value> {
    let out = Scratch::new();
    let before: Vec<_> = watched.iter().map(|path| everything(path)).collect();
    let mut report = None;
    for (number, words) in views(dir, &out.join("out")).iter().enumerate() {
        let output = run(words);
        let code = output.status.code();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(code, Some(0..=2)), "{when}: {words:?}: {:?} {said}", output.status);
        if number == 1 {
            report = serde_json::from_slice(&output.stdout).ok();
        }
        let after: Vec<_> = watched.iter().map(|path| everything(path)).collect();
        for (before, after) in before.iter().zip(&after) {
            let changed: Vec<_> = before
                .iter()
                .filter(|(path, text)| after.get(*path) != Some(text))
                .map(|(path, _)| path)
                .chain(after.keys().filter(|path| !before.contains_key(*path)))
                .collect();
            assert!(changed.is_empty(), "{when}: {words:?} changed {changed:?}: {said}");
        }
    }
    report
}

fn losses(report: &Option<Value>) -> Vec<(String, u64)> {
    let report = report.as_ref().expect("a report");
    let losses = report["losses"].as_array().unwrap();
    let one = |loss: &Value| {
        let name = loss["name"].as_str().or(loss["loss"].as_str()).unwrap();
        (name.to_owned(), loss["count"].as_u64().unwrap())
    };
    losses.iter().map(one).collect()
}

fn change(dir: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(dir).unwrap();
    change(&mut manifest);
    manifest.write(dir).unwrap();
}

/// The manifest names something else as the profile's pool, such as a user's text or the pool of
/// another profile.
#[test]
fn a_manifest_that_names_a_victim() {
    for collected in [false, true] {
        let (scratch, dir) = crashed().written();
        let real = fs::read(pool_path(&dir)).unwrap();
        fs::remove_dir_all(pool_path(&dir).parent().unwrap()).unwrap();
        let home = scratch.join("home");
        fs::create_dir(&home).unwrap();
        fs::create_dir(home.join("alone")).unwrap();
        fs::write(home.join("alone/thesis"), "precious").unwrap();
        fs::create_dir(home.join("counterpoint-0-1-2")).unwrap();
        fs::write(home.join("counterpoint-0-1-2/pool"), &real).unwrap();
        let other = home.join("other.cpt");
        crashed().write(&other);
        let shm = PathBuf::from("/dev/shm").join(directory_name());
        let victims = [
            home.join("alone/thesis"),
            home.join("counterpoint-0-1-2/pool"),
            pool_path(&other),
            dir.join("../home/alone/thesis"),
            PathBuf::from("/dev/shm/../..")
                .join(home.join("alone/thesis").strip_prefix("/").unwrap()),
            PathBuf::from("/proc/self/cwd"),
            PathBuf::from("relative/pool"),
            PathBuf::new(),
            shm.join("pool"),
        ];
        // `shm` is a directory in which a pool of this user may be.
        fs::DirBuilder::new().mode(0o700).create(&shm).unwrap();
        for in_shm in [&b"precious"[..], &real] {
            fs::write(shm.join("pool"), in_shm).unwrap();
            for victim in &victims {
                change(&dir, |manifest| {
                    manifest.pool = Some(victim.clone());
                    manifest.pool_collected = collected;
                    // The real pools have the id of the manifest, so `report` must refuse them for
                    // other reasons than their ids. But in `shm`, a pool with this id could be the
                    // profile's own, so for this victim the manifest gets another id.
                    if victim.starts_with(&shm) {
                        manifest.id = ProfileId([9; 16]).to_string();
                    }
                });
                let report = look(&dir, &[scratch.path(), &shm], &format!("{victim:?}"));
                // This victim looks like a pool inside of the profile at a path from which the
                // profile was moved. So the pool counts as missing and not as refused.
                let gone = *victim == pool_path(&other);
                let name = if gone { "pool_vanished" } else { "pool_refused" };
                let expected = if gone && collected { vec![] } else { vec![(name.to_owned(), 1)] };
                assert_eq!(losses(&report), expected, "{victim:?}");
            }
        }
        fs::remove_dir_all(&shm).unwrap();
    }
}

/// In the place of a file, there is a link that leads out of the profile, a pipe, or a file without
/// an end.
#[test]
fn files_that_lead_out_of_the_profile() {
    type Trap = (&'static str, fn(&Path, &Path));
    let traps: [Trap; 8] = [
        ("pages, a link", |dir, victim| {
            fs::remove_file(dir.join(PART).join("pages.cps")).unwrap();
            symlink(victim, dir.join(PART).join("pages.cps")).unwrap();
        }),
        ("pages, a second name", |dir, victim| {
            fs::remove_file(dir.join(PART).join("pages.cps")).unwrap();
            fs::hard_link(victim, dir.join(PART).join("pages.cps")).unwrap();
        }),
        ("a linked part", |dir, victim| {
            fs::remove_dir_all(dir.join(PART)).unwrap();
            symlink(victim.parent().unwrap(), dir.join(PART)).unwrap();
        }),
        ("linked parts", |dir, victim| {
            fs::remove_dir_all(dir.join("processes")).unwrap();
            symlink(victim.parent().unwrap(), dir.join("processes")).unwrap();
        }),
        ("a linked ledger", |dir, victim| {
            symlink(victim, dir.join(PART).join("ledger.json")).unwrap();
        }),
        ("a pipe", |dir, _| {
            fs::remove_file(dir.join(PART).join("meta.cps")).unwrap();
            let made = Command::new("mkfifo").arg(dir.join(PART).join("meta.cps")).status();
            assert!(made.unwrap().success());
        }),
        ("without an end", |dir, _| {
            fs::remove_file(dir.join(PART).join("pages.cps")).unwrap();
            symlink("/dev/zero", dir.join(PART).join("pages.cps")).unwrap();
        }),
        ("every temporary name", |dir, victim| {
            for pid in 2..400 {
                symlink(victim, dir.join(format!("manifest.json.{pid}.tmp"))).unwrap();
            }
        }),
    ];
    for (name, trap) in traps {
        let (scratch, dir) = crashed().written();
        let home = scratch.join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("victim"), "precious").unwrap();
        trap(&dir, &home.join("victim"));
        let report = look(&dir, &[&home], name);
        assert!(report.is_some(), "{name}: the rest of the profile is read");
    }
}

/// A pipe or a link to a device is in the place of a file or directory. No view may open it.
#[test]
fn pipes_in_every_place() {
    for place in [
        "manifest.json",
        "ledger.json",
        "processes",
        PART,
        "processes/4000711-1000-0/meta.cps",
        "processes/4000711-1000-0/pages.cps",
        "processes/4000711-1000-0/ledger.json",
        "pool",
        "pool/pool",
        "tracks",
        "tracks/run",
        "tracks/run/series.arrows",
        "tracks/run/samples.arrows",
        "activities",
        "activities/chrome-0",
        "activities/chrome-0/events.arrows",
        "activities/chrome-0/document.json",
        "passes",
        "passes/1",
        "hook.json",
    ] {
        for device in [None, Some("/dev/zero"), Some("/dev/full"), Some("/proc/self/fd/0")] {
            let (_scratch, dir) = crashed().written();
            let at = dir.join(place);
            if fs::symlink_metadata(&at).is_ok_and(|found| found.is_dir()) {
                fs::remove_dir_all(&at).unwrap();
            }
            let _ = fs::remove_file(&at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            if place.starts_with("passes") {
                change(&dir, |manifest| manifest.passes = 2);
            }
            match device {
                Some(device) => symlink(device, &at).unwrap(),
                None => assert!(Command::new("mkfifo").arg(&at).status().unwrap().success()),
            }
            let report = look(&dir, &[], place);
            let is_read = !matches!(place, "manifest.json");
            assert_eq!(report.is_some(), is_read, "{place}");
            // `report` does not read these files, or does not need them because the pool has newer
            // data.
            let unread = place.starts_with("activities")
                || place.ends_with(".json")
                || place.ends_with("series.arrows");
            if is_read && !unread {
                let lost = losses(&report);
                let named = |(name, _): &(String, u64)| name.ends_with("_refused");
                assert!(lost.iter().any(named), "{place} {device:?}: {lost:?}");
            }
        }
    }
}

/// Makes a profile whose pool is where `run` creates pools.
fn in_memory(scratch: &Scratch, name: &str) -> (PathBuf, PathBuf) {
    pooled(scratch, name, Path::new("/dev/shm"))
}

fn pooled(scratch: &Scratch, name: &str, place: &Path) -> (PathBuf, PathBuf) {
    let dir = scratch.join(name);
    crashed().write(&dir);
    let shm = place.join(directory_name());
    fs::DirBuilder::new().mode(0o700).create(&shm).unwrap();
    let id: ProfileId = Manifest::read(&dir).unwrap().id.parse().unwrap();
    let fresh = scratch.join("fresh");
    let owner: Owner = owner(&dir, id).unwrap();
    create(&fresh, &owner).unwrap();
    let head = fs::read(&fresh).unwrap();
    let mut pool = fs::read(pool_path(&dir)).unwrap();
    pool[64..1024].copy_from_slice(&head[64..1024]);
    fs::write(shm.join("pool"), pool).unwrap();
    fs::remove_file(fresh).unwrap();
    fs::remove_dir_all(dir.join("pool")).unwrap();
    change(&dir, |manifest| manifest.pool = Some(shm.join("pool")));
    (dir, shm)
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn calls(report: &Option<Value>) -> u64 {
    let ops = report.as_ref().expect("a report")["ops"].as_array();
    let rows = ops
        .cloned()
        .unwrap_or_else(|| report.as_ref().unwrap()["rows"].as_array().expect("rows").clone());
    rows.iter().map(|row| row["calls"].as_u64().unwrap()).sum()
}

/// Views of a copied profile (`cp -a`) show the calls in the original's pool, and leave them there.
/// A moved profile is still the original.
#[test]
fn a_copy_is_read_and_the_original_collects() {
    let scratch = Scratch::new();
    let (dir, shm) = in_memory(&scratch, "x.cpt");
    let copied = scratch.join("copy.cpt");
    copy(&dir, &copied);
    let report = look(&copied, &[scratch.path(), &shm], "a copy");
    assert_eq!(losses(&report), [("pool_of_original".to_owned(), 1)]);
    assert_eq!(calls(&report), 5);

    let moved = scratch.join("moved.cpt");
    fs::rename(&dir, &moved).unwrap();
    // The pool contains the path of its profile, but a copy at this path is not the original.
    copy(&copied, &dir);
    let report = look(&dir, &[scratch.path(), &shm], "a copy under the old name");
    assert_eq!(losses(&report), [("pool_of_original".to_owned(), 1)]);

    let recovered = run(&["recover".into(), moved.clone().into()]);
    assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
    assert!(!shm.exists());
    let report = look(&moved, &[scratch.path()], "the original");
    assert_eq!((losses(&report), calls(&report)), (vec![], 5));
    let report = look(&copied, &[scratch.path()], "the copy afterwards");
    assert_eq!((losses(&report), calls(&report)), (vec![("pool_vanished".to_owned(), 1)], 1));
}

/// A user who unpacks an archive owns the profile and the pool that were in it. But the profile
/// must not decide where `hook report` writes.
#[test]
fn an_unpacked_profile_with_its_pool_is_not_a_hooks_profile() {
    let scratch = Scratch::new();
    let made = scratch.join("made.cpt");
    crashed().write(&made);
    change(&made, |manifest| manifest.origin = profile::Origin::Hook);
    let victim = scratch.join("victim");
    fs::create_dir(&victim).unwrap();
    let settings = serde_json::json!({"filter": null, "skip_ms": 0.0, "events": "", "list": false,
        "csv": victim, "buckets": 4, "tables": false, "gamma": 0.5, "process": 0, "labels": []});
    fs::write(made.join("hook.json"), settings.to_string()).unwrap();
    let unpacked = scratch.join("unpacked.cpt");
    copy(&made, &unpacked);
    let before = everything(scratch.path());
    let output = run(&["hook".into(), "report".into(), unpacked.clone().into()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is not a profile that a hook of this user has just recorded"), "{said}");
    assert_eq!(everything(scratch.path()), before);
    // The pool of `made.cpt` contains the path of this profile, as after a recording on this
    // machine, so `hook report` accepts the profile.
    let output = run(&["hook".into(), "report".into(), made.clone().into()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!made.exists() && fs::read_dir(&victim).unwrap().count() > 0);
}

/// Returns the contents of the files below `at`. Links to directories must not be there.
fn contents(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![at.to_owned()];
    while let Some(path) = todo.pop() {
        match fs::symlink_metadata(&path).unwrap().is_dir() {
            true => todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    all
}

/// The exchange is atomic. The directory is already open, because its path could lead through a
/// link that the other thread has put there.
fn exchange((directory, name): &(fs::File, CString), other: &CString) {
    const RENAME_EXCHANGE: libc::c_uint = 2;
    // The exchange fails if another thread has moved one of the files away, which does no harm.
    // SAFETY: the names are C strings that outlive the call.
    unsafe {
        let (from, to) = (directory.as_raw_fd(), libc::AT_FDCWD);
        let (name, other) = (name.as_ptr(), other.as_ptr());
        libc::syscall(libc::SYS_renameat2, from, name, to, other, RENAME_EXCHANGE);
    }
}

/// While commands view and recover a profile, two threads exchange its files and directories for
/// pipes, or for symbolic and hard links to a victim's profile. The victim's files must stay
/// unchanged. `COUNTERPOINT_RACE_S` is the shortest duration of the test in seconds.
#[test]
fn exchanging_files_during_a_view_does_no_harm() {
    let seconds = std::env::var("COUNTERPOINT_RACE_S").ok().and_then(|n| n.parse().ok());
    let patience = Duration::from_secs(seconds.unwrap_or(2));
    let scratch = Scratch::new();
    let made = scratch.join("made.cpt");
    crashed().write(&made);
    let victim = scratch.join("victim");
    copy(&made, &victim);
    fs::remove_dir_all(victim.join("pool")).unwrap();
    fs::create_dir(victim.join("pool")).unwrap();
    fs::write(victim.join("pool/pool"), "precious").unwrap();
    // A command that repaired these damaged files would change the victim, which the test would
    // notice.
    for name in ["manifest.json", &format!("{PART}/pages.cps")] {
        let mut bytes = fs::read(victim.join(name)).unwrap();
        bytes.truncate(bytes.len() / 2);
        fs::write(victim.join(name), bytes).unwrap();
    }
    let names: Vec<String> = ["manifest.json", "processes", "pool", "pool/pool", PART]
        .into_iter()
        .map(str::to_owned)
        .chain([format!("{PART}/pages.cps"), format!("{PART}/meta.cps")])
        .collect();
    let (dir, out) = (scratch.join("x.cpt"), scratch.join("out"));
    let begun = Instant::now();
    let (mut rounds, mut collected) = (0, 0);
    while rounds < 3 || begun.elapsed() < patience {
        let round = scratch.join("round");
        fs::create_dir(&round).unwrap();
        copy(&made, &dir);
        let mut twins = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let twin = round.join(format!("{n}"));
            match (rounds + n) % 3 {
                0 if victim.join(name).is_file() => {
                    fs::hard_link(victim.join(name), &twin).unwrap();
                }
                1 => assert!(Command::new("mkfifo").arg(&twin).status().unwrap().success()),
                _ => symlink(victim.join(name), &twin).unwrap(),
            }
            let real = dir.join(name);
            let around = fs::File::open(real.parent().unwrap()).unwrap();
            let [real, twin] = [Path::new(real.file_name().unwrap()), &twin]
                .map(|path| CString::new(path.as_os_str().as_encoded_bytes()).unwrap());
            twins.push(((around, real), twin));
        }
        let before = contents(&victim);
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for part in 0..2 {
                let (twins, over) = (&twins, &over);
                scope.spawn(move || {
                    let mut n = part;
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        let (real, twin) = &twins[n % twins.len()];
                        exchange(real, twin);
                        std::thread::sleep(Duration::from_micros(30 * (n as u64 % 7)));
                        exchange(real, twin);
                        n += 1 + part;
                    }
                });
            }
            let looked = std::panic::catch_unwind(|| {
                let commands = views(&dir, &out);
                let words = &commands[rounds % commands.len()];
                let recover = &views(&dir, &out)[7];
                [run(words), run(recover)]
            });
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            for output in looked.expect("every command ends") {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.code().is_some_and(|code| code <= 2), "{said}");
                collected += u32::from(said.contains("recovered"));
            }
        });
        assert_eq!(contents(&victim), before, "round {rounds}");
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_dir_all(&round).unwrap();
        rounds += 1;
    }
    eprintln!("{rounds} rounds, {collected} of them recovered something");
}

/// The pool's file first has a second name (a hard link), and then a symbolic link replaces the
/// pool's directory.
#[test]
fn pools_that_are_not_what_they_were() {
    let scratch = Scratch::new();
    let (dir, shm) = in_memory(&scratch, "x.cpt");
    let second = PathBuf::from(format!("{}-second", shm.display()));
    fs::hard_link(shm.join("pool"), &second).unwrap();
    look(&dir, &[scratch.path(), &shm], "two names");
    fs::remove_file(&second).unwrap();
    fs::rename(&shm, &second).unwrap();
    symlink(&second, &shm).unwrap();
    let report = look(&dir, &[scratch.path(), &second], "a linked directory");
    assert_eq!(losses(&report), [("pool_refused".to_owned(), 1)]);
    fs::remove_file(&shm).unwrap();
    fs::rename(&second, &shm).unwrap();
    assert_eq!(run(&["recover".into(), dir.into()]).status.code(), Some(0));
    assert!(!shm.exists());
}

#[test]
fn another_users_profile_is_left_as_it_is() {
    let scratch = Scratch::new();
    let (dir, shm) = in_memory(&scratch, "x.cpt");
    if std::os::unix::fs::chown(&dir, Some(65_534), None).is_err() {
        fs::remove_dir_all(&shm).unwrap();
        return crate::support::skip("another_users_profile", "only root can give files away");
    }
    look(&dir, &[scratch.path(), &shm], "root opens another user's profile");
    fs::remove_dir_all(&shm).unwrap();
}

/// The profile of a killed recording is deleted. `doctor` shows the memory of the recording's pool,
/// and `recover` frees this memory, unless the profile may have been moved or another process has
/// the pool open. The test has its own directory for pools, so that `recover` in other tests does
/// not find them.
#[test]
fn memory_of_deleted_profiles_is_freed() {
    let Some(memory) = Memory::new("memory of deleted profiles") else { return };
    let scratch = Scratch::new();
    let place = scratch.join("memory");
    fs::create_dir(&place).unwrap();
    let run = |words: &[&str], wrapper: &[&str]| {
        let words = wrapper.iter().chain(&[env!("CARGO_BIN_EXE_counterpoint")]).chain(words);
        let words: Vec<&str> = words.copied().collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("XDG_RUNTIME_DIR", &place);
        memory.make_shared(&mut command);
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let shown = |shm: &Path| {
        let doctor = run(&["doctor", "--format", "json"], &[]);
        let doctor: Value = serde_json::from_str(&doctor).unwrap();
        let findings = doctor["findings"].as_array().unwrap().clone();
        let of = |row: &Value| row["state"].as_str().unwrap().contains(shm.to_str().unwrap());
        findings.iter().any(|row| row["name"] == "orphaned pool" && of(row))
    };
    let all = || run(&["recover", "--orphans"], &[]);

    let (dir, shm) = pooled(&scratch, "x.cpt", &place);
    assert!(!shown(&shm), "its profile exists");
    let moved = scratch.join("moved.cpt");
    fs::rename(&dir, &moved).unwrap();
    assert!(!shown(&shm), "its profile was moved");
    assert!(all().is_empty() && shm.exists(), "its profile was moved");
    let writer = fs::File::options().write(true).open(shm.join("pool")).unwrap();
    fs::remove_dir_all(&moved).unwrap();
    assert!(all().is_empty() && shm.exists(), "another process uses it");
    drop(writer);
    assert!(shown(&shm));
    // Without the right to look up a file by its handle, a process cannot distinguish a moved
    // profile from a deleted one.
    let unable = ["setpriv", "--bounding-set=-dac_read_search", "--inh-caps=-dac_read_search"];
    let other = scratch.join("other.cpt");
    crashed().write(&other);
    if Command::new(unable[0]).args(&unable[1..]).arg("true").status().is_ok_and(|s| s.success()) {
        run(&["recover", other.to_str().unwrap()], &unable);
        assert!(shm.exists(), "it may have been moved");
    }
    let said = run(&["recover", other.to_str().unwrap()], &[]);
    if said.contains(shm.to_str().unwrap()) {
        assert!(!shm.exists(), "{said}");
    } else {
        let said = all();
        assert!(!shm.exists() && said.contains(shm.to_str().unwrap()), "{said}");
    }
}

/// `run` and its program are killed, and the profile is deleted: the next `run` must free the
/// memory of the pool. The memory must not be freed if the profile was only moved, or if `run` is
/// still alive.
#[test]
fn the_next_run_frees_what_a_kill_left() {
    let test = "the_next_run_frees_what_a_kill_left";
    let Some(program) = crate::support::counterpoint(test) else { return };
    let scratch = Scratch::new();
    let begin = |name: &str| {
        let dir = scratch.join(name);
        let mut run = Command::new(&program)
            .args(["run", "-e", "none", "-o"])
            .arg(&dir)
            .args(["--", "sleep", "1000"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let watched = loop {
            // `watch` lists two processes: `run` itself and its program.
            match Manifest::read(&dir) {
                Ok(manifest) if manifest.watch.len() == 2 => break manifest,
                _ => assert!(run.try_wait().unwrap().is_none(), "ended"),
            }
        };
        (dir, run, watched)
    };
    let kill = |mut run: std::process::Child, manifest: &Manifest| {
        let pid = manifest.watch[1].pid.to_string();
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        while manifest.watch[1].is_alive() {}
    };
    let next = || {
        let out = scratch.join("next.cpt");
        let output = Command::new(&program)
            .args(["run", "-e", "none", "-o"])
            .arg(&out)
            .args(["--", "true"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let (dir, run_of_first, first) = begin("x.cpt");
    let (live, run_of_second, second) = begin("live.cpt");
    let pool = |manifest: &Manifest| manifest.pool.clone().unwrap();
    assert_eq!(first.id.len(), 32);
    kill(run_of_first, &first);
    let moved = scratch.join("moved.cpt");
    fs::rename(&dir, &moved).unwrap();
    fs::remove_dir_all(&live).unwrap();
    next();
    assert!(pool(&first).exists(), "its profile was only moved");
    assert!(pool(&second).exists(), "its profile is gone, but `run` lives and may come to use it");
    kill(run_of_second, &second);
    fs::remove_dir_all(&moved).unwrap();
    next();
    // Usually, only root has the right to look up files by their handles. For other users, the
    // memory is freed after a day.
    if profile::pools::user() == 0 {
        assert!(!pool(&first).exists() && !pool(&second).exists());
        assert!(!pool(&first).parent().unwrap().exists(), "its directory is removed, too");
    }
    for pool in [pool(&first), pool(&second)] {
        let _ = fs::remove_dir_all(pool.parent().unwrap());
    }
}
