//! Tests pools (the shared memory of recordings) that no profile can use, such as damaged ones.
//! `doctor` shows these pools, and the enum `Fate` says which commands free them.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, FileExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use profile::Manifest;
use profile::pools::directory_name;
use record::pool::{Owner, create};
use serde_json::Value;
use testkit::{ProfileScript, Scratch};

use crate::support::counterpoint;
use crate::support::memory::Memory;

/// A profile, and a directory for pools that no other test uses.
struct Place {
    scratch: Scratch,
    profile: PathBuf,
    memory: Memory,
}

impl Place {
    fn new(test: &str) -> Option<Self> {
        let memory = Memory::new(test)?;
        let scratch = Scratch::new();
        let profile = scratch.join("other.cpt");
        let mut script = ProfileScript::monotonic();
        script.process(4_000_711).library("m", &["f"]);
        script.write(&profile);
        Some(Self { scratch, profile, memory })
    }

    fn path(&self) -> &Path {
        self.memory.path()
    }

    /// Returns the path that commands print for a directory of a pool: they see [`Memory`] as
    /// `/dev/shm`.
    fn named(&self, directory: &Path) -> String {
        Path::new("/dev/shm").join(directory.file_name().unwrap()).display().to_string()
    }

    fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
        command.args(words).env_remove("XDG_RUNTIME_DIR");
        self.memory.make_shared(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Runs `recover`, which frees the same pools as `run`.
    fn recover(&self) -> String {
        self.run(&["recover", self.profile.to_str().unwrap()])
    }

    fn shown(&self, directory: &Path) -> Option<String> {
        let doctor: Value =
            serde_json::from_str(&self.run(&["doctor", "--format", "json"])).unwrap();
        let rows = doctor["findings"].as_array().unwrap().clone();
        let mut rows = rows.iter().filter(|row| row["name"] == "orphaned pool");
        rows.find_map(|row| {
            let state = row["state"].as_str().unwrap();
            state.contains(&self.named(directory)).then(|| state.to_owned())
        })
    }
}

/// Gives the directory and its files a modification time two minutes ago.
fn age(directory: &Path) {
    let then = SystemTime::now() - Duration::from_secs(120);
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            File::open(entry.path()).unwrap().set_modified(then).unwrap();
        }
    }
    File::open(directory).unwrap().set_modified(then).unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The next `recover` or `run` frees the directory, unless it is very new: another `run` may
    /// still be creating files in it.
    Freed(&'static str),
    /// Only `recover --orphans` frees the directory.
    OnRequest(&'static str),
    /// No command frees the directory, because it contains something that `run` does not put there.
    Kept,
}

type Case = (&'static str, fn(&Path), Fate);

fn pool(directory: &Path) {
    create(&directory.join("pool"), &Owner::default()).unwrap();
}

fn changed(directory: &Path, at: u64, bytes: &[u8]) {
    pool(directory);
    let file = File::options().write(true).open(directory.join("pool")).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn cut(directory: &Path, length: u64) {
    pool(directory);
    File::options().write(true).open(directory.join("pool")).unwrap().set_len(length).unwrap();
}

const DAMAGED: Fate = Fate::Freed("a damaged pool");
const OTHER: Fate = Fate::OnRequest("a pool of another version of Counterpoint");

const CASES: [Case; 14] = [
    ("truncated", |at| cut(at, 5000), DAMAGED),
    ("truncated to nothing", |at| cut(at, 0), DAMAGED),
    ("a damaged header", |at| changed(at, 0, &[0xa5; 64]), DAMAGED),
    ("a header that was never written", |at| changed(at, 0, &[0; 24]), DAMAGED),
    ("of no profile", |at| pool(at), DAMAGED),
    (
        "damaged, with what `run` puts next to it",
        |at| {
            cut(at, 0);
            symlink("/nowhere", at.join("libcounterpoint.so")).unwrap();
            symlink("/nowhere", at.join("counterpoint")).unwrap();
        },
        DAMAGED,
    ),
    ("an empty directory", |_| {}, Fate::Freed("whose recording never began")),
    ("another version", |at| changed(at, 8, &3u32.to_le_bytes()), OTHER),
    (
        "another version of another size",
        |at| {
            changed(at, 8, &1u32.to_le_bytes());
            File::options().write(true).open(at.join("pool")).unwrap().set_len(1 << 20).unwrap();
        },
        OTHER,
    ),
    (
        "damaged, with a second name",
        |at| {
            cut(at, 0);
            fs::hard_link(at.join("pool"), at.join("second")).unwrap();
        },
        Fate::Kept,
    ),
    (
        "a link",
        |at| {
            cut(at, 0);
            fs::rename(at.join("pool"), at.join("libcounterpoint.so")).unwrap();
            symlink("libcounterpoint.so", at.join("pool")).unwrap();
        },
        Fate::Kept,
    ),
    (
        "a pipe",
        |at| {
            assert!(Command::new("mkfifo").arg(at.join("pool")).status().unwrap().success());
        },
        Fate::Kept,
    ),
    ("a directory", |at| fs::create_dir(at.join("pool")).unwrap(), Fate::Kept),
    (
        "damaged, with a file of the user's next to it",
        |at| {
            cut(at, 0);
            fs::write(at.join("thesis"), "precious").unwrap();
        },
        Fate::Kept,
    ),
];

#[test]
fn what_is_left_of_pools_is_shown_and_freed() {
    let Some(place) = Place::new("what is left of pools") else { return };
    for (name, make, fate) in CASES {
        let directory = place.path().join(directory_name());
        fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        make(&directory);
        if fate == DAMAGED || name == "an empty directory" {
            assert_eq!(place.shown(&directory), None, "{name}: `run` may be making it");
            place.run(&["recover", "--orphans"]);
            assert!(directory.exists(), "{name}: `run` may be making it");
        }
        age(&directory);
        let shown = place.shown(&directory);
        let says = match fate {
            Fate::Freed(says) | Fate::OnRequest(says) => Some(says),
            Fate::Kept => None,
        };
        assert_eq!(shown.is_some(), says.is_some(), "{name}: {shown:?}");
        assert!(shown.iter().all(|shown| shown.contains(says.unwrap())), "{name}: {shown:?}");
        let said = place.recover();
        assert_eq!(directory.exists(), !matches!(fate, Fate::Freed(_)), "{name}: {said}");
        let said = said + &place.run(&["recover", "--orphans"]);
        assert_eq!(directory.exists(), fate == Fate::Kept, "{name}: {said}");
        let path = place.named(&directory);
        assert_eq!(said.contains(&path), fate != Fate::Kept, "{name}: {said}");
        if fate == Fate::Kept {
            fs::remove_dir_all(&directory).unwrap();
        }
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// No command frees a damaged pool that a process has open: this process may be the recorded
/// program, which is still running.
#[test]
fn a_damaged_pool_in_use_is_kept() {
    let Some(place) = Place::new("a damaged pool in use") else { return };
    let directory = place.path().join(directory_name());
    fs::create_dir(&directory).unwrap();
    cut(&directory, 0);
    let user = File::options().write(true).open(directory.join("pool")).unwrap();
    age(&directory);
    assert_eq!(place.shown(&directory), None);
    place.run(&["recover", "--orphans"]);
    assert!(directory.exists());
    drop(user);
    place.recover();
    assert!(!directory.exists());
}

#[test]
fn pools_that_run_has_not_made_are_kept() {
    let Some(place) = Place::new("pools of others") else { return };
    let user = profile::pools::user();
    let mine = place.path().join(format!("counterpoint-{user}-mine"));
    fs::create_dir(&mine).unwrap();
    cut(&mine, 0);
    let empty = place.path().join(format!("counterpoint-{user}-1-notes"));
    fs::create_dir(&empty).unwrap();
    let mut kept = vec![mine, empty];
    let nobody = Some(65_534);
    let [around, inside] = [(); 2].map(|()| place.path().join(directory_name()));
    for directory in [&around, &inside] {
        fs::create_dir(directory).unwrap();
        cut(directory, 0);
    }
    if chown(&around, nobody, None).is_ok() {
        chown(inside.join("pool"), nobody, None).unwrap();
        kept.extend([around, inside]);
    } else {
        crate::support::skip("pools of others", "only root can give files away");
    }
    for directory in &kept {
        age(directory);
        assert_eq!(place.shown(directory), None, "{directory:?}");
    }
    place.run(&["recover", "--orphans"]);
    assert!(kept.iter().all(|directory| directory.exists()), "{kept:?}");
}

/// Starts `run` again and again, until a `run` gets as far as writing the profile's manifest. Each
/// time, SIGKILL ends `run` at a later system call that creates or writes a file.
#[test]
fn a_run_that_was_killed_while_it_made_its_pool() {
    let Some(program) = counterpoint("killed while making") else { return };
    let Some(place) = Place::new("killed while making") else { return };
    let mut left = Vec::new();
    for number in 1.. {
        let (dir, log) = (place.scratch.join("x.cpt"), place.scratch.join("log"));
        let calls = "?mkdir,mkdirat,ftruncate,pwrite64,write,openat,linkat,renameat2,?rename";
        let mut run = Command::new("strace");
        run.args(["-qq", "-o"]).arg(&log).args(["-e", &format!("trace={calls}")]);
        run.arg("-e").arg(format!("inject={calls}:signal=SIGKILL:when={number}"));
        // Cargo sets `LD_LIBRARY_PATH`, with which the dynamic linker would try to open a hundred
        // files, and the test would kill `run` at each of them.
        run.env_remove("LD_LIBRARY_PATH");
        run.arg(&program).args(["run", "-e", "none", "-o"]).arg(&dir).args(["--", "true"]);
        place.memory.make_shared(&mut run);
        run.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let log = fs::read_to_string(&log).unwrap();
        if Manifest::read(&dir).is_ok() {
            place.run(&["recover", dir.to_str().unwrap()]);
            break;
        }
        let made = log.split('"').find(|text| text.starts_with("/dev/shm/counterpoint-"));
        let made = made.map(|made| place.path().join(Path::new(made).file_name().unwrap()));
        if let Some(directory) = made.filter(|directory| directory.exists()) {
            age(&directory);
            place.recover();
            assert!(!directory.exists(), "call {number}: {log}");
            left.push(number);
        }
        let _ = fs::remove_dir_all(&dir);
    }
    // At least five killed runs must have left something, such as a directory, a pool without a
    // size, or a run file.
    assert!(left.len() >= 5, "{left:?}");
}
