//! Tests that views (commands that only read a profile) write nothing but their output. `strace`
//! lists the system calls of views. Some tests use damaged profiles that try to make a view write
//! outside of the profile.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plugin_host::stream::Writer;
use plugin_host::{Counter, Event, Metadata, Sink};
use profile::pools::{directory_name, owner};
use profile::safe_dir::Dir;
use profile::tracks::{Reading, Readings, Sample, Scope, Series, Times};
use profile::{Manifest, ProfileId, State, TracksWriter};
use record::pool::create;
use testkit::make::pool_path;
use testkit::{CallScript, ProfileScript, Scratch};

use crate::foreign::everything;
use crate::support::counterpoint;

/// Commands that only read a profile. `PROFILE` stands for the path of the profile, `METRICS` for a
/// file of metrics, and `OUT` for the output file.
const VIEWS: [&str; 26] = [
    "report PROFILE",
    "report PROFILE --by thread",
    "report PROFILE --format json",
    "report PROFILE --format csv --metric builtin",
    "report PROFILE --metrics-file METRICS",
    "ops PROFILE",
    "ops PROFILE --format json",
    "ops PROFILE --format csv",
    "stats PROFILE",
    "stats PROFILE --format json",
    "stats PROFILE --format csv",
    "loops report PROFILE --asm --source",
    "loops report PROFILE --format json --asm --source",
    "loops report PROFILE --format csv",
    "loops report PROFILE --format lwp-csv",
    "export PROFILE --format csv",
    "export PROFILE --format csv -o OUT",
    "export PROFILE --format json -o OUT",
    "export PROFILE --format json --what tracks -o OUT",
    "export PROFILE --format parquet -o OUT",
    "export PROFILE --format parquet --what loops -o OUT",
    "trace export PROFILE -o -",
    "trace export PROFILE --format json -o OUT",
    "trace export PROFILE --format json.gz -o OUT",
    "trace export PROFILE --format pftrace -o OUT",
    "trace export PROFILE --format pftrace --compress -o OUT",
];

/// A profile as it remains after the program and `counterpoint run` were killed. A page (a block of
/// calls) is still in the pool, and events of plugins have not been converted.
pub struct Killed {
    pub scratch: Scratch,
    pub dir: PathBuf,
    /// The directory with the profile's pool.
    pub shm: PathBuf,
}

pub const PART: &str = "processes/4000711-1000-0";

impl Killed {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let mut script = ProfileScript::monotonic();
        script.pool = true;
        script.manifest.state = State::Finished;
        let process = script.process(4_000_711);
        process.library("m", &["f"]);
        process.thread("flushed").call(CallScript::new(0, 500, 9));
        let thread = process.thread("main");
        thread.unflushed = true;
        thread.call(CallScript::new(0, 1_000, 500)).call(CallScript::new(0, 2_000, 500));
        script.write(&dir);
        add_track(&dir);
        add_events(&dir, "plugins-0.events");
        let shm = Path::new("/dev/shm").join(directory_name());
        fs::DirBuilder::new().mode(0o700).create(&shm).unwrap();
        let id: ProfileId = Manifest::read(&dir).unwrap().id.parse().unwrap();
        create(&scratch.join("fresh"), &owner(&dir, id).unwrap()).unwrap();
        let head = fs::read(scratch.join("fresh")).unwrap();
        let mut pool = fs::read(pool_path(&dir)).unwrap();
        pool[64..1024].copy_from_slice(&head[64..1024]);
        fs::write(shm.join("pool"), pool).unwrap();
        fs::remove_dir_all(dir.join("pool")).unwrap();
        change(&dir, |manifest| manifest.pool = Some(shm.join("pool")));
        Self { scratch, dir, shm }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.shm);
    }
}

pub fn change(dir: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(dir).unwrap();
    change(&mut manifest);
    manifest.write(dir).unwrap();
}

fn add_track(dir: &Path) {
    let root = Dir::open(dir).unwrap();
    let mut tracks = TracksWriter::create(&root, "run", Readings::Values).unwrap();
    let series = tracks.describe(Series {
        track: "power".to_owned(),
        name: String::new(),
        unit: "Joules".to_owned(),
        scale: 1.0,
        scope: Scope::Machine,
        times: Times::Monotonic,
        cumulative: false,
        interval_ns: 0,
        source: "test".to_owned(),
    });
    let reading = Some(Reading::Value(1.0));
    tracks.push(Sample { series, time: 1_500, reading }).unwrap();
    tracks.finish().unwrap();
}

/// Adds events like those that a plugin hands over.
fn add_events(dir: &Path, name: &str) {
    let file = File::create(dir.join(PART).join(name)).unwrap();
    let mut stream = Writer::new(file, None);
    stream.plugin(b"test");
    for start_ns in [1_000, 2_000, 3_000] {
        let event = Event { start_ns, end_ns: start_ns + 400, ..Event::default() };
        stream.event(&event, b"timed kernel", &Metadata::default());
    }
    stream.finish().unwrap();
}

fn words(view: &str, dir: &Path, out: &Path) -> Vec<String> {
    let metrics = out.with_file_name("metrics");
    fs::write(&metrics, "# none\n").unwrap();
    let word = |word: &str| match word {
        "PROFILE" => dir.display().to_string(),
        "OUT" => out.display().to_string(),
        "METRICS" => metrics.display().to_string(),
        other => other.to_owned(),
    };
    view.split(' ').map(word).collect()
}

/// Runs a command under `strace`. Returns the command's output, and its system calls.
pub fn traced(options: &[&str], words: &[String]) -> (Output, String) {
    let scratch = Scratch::new();
    let log = scratch.join("log");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-s", "4096", "-o"])
        .arg(&log)
        .args(options)
        .arg(env!("CARGO_BIN_EXE_counterpoint"))
        .args(words)
        .output()
        .expect("strace, which `cargo xtask setup` installs");
    (output, fs::read_to_string(&log).unwrap())
}

/// These system calls can change files or their names, connect to a socket, start a program, or
/// give up rights with Landlock.
pub const CHANGES: &str = "trace=open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,\
                       mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,mknod,mknodat,truncate,\
                       ftruncate,chmod,fchmodat,chown,fchownat,lchown,utimensat,setxattr,execve,\
                       connect,bind,landlock_create_ruleset,landlock_restrict_self";

/// Returns whether a line of strace's output shows a system call that changes something outside of
/// this process.
pub fn is_change(line: &str) -> bool {
    let call = line.split_once(' ').map_or(line, |(_, call)| call.trim_start());
    let name = call.split('(').next().unwrap_or_default();
    match name {
        "open" | "openat" | "openat2" => {
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag))
        }
        // The start of the command itself is no change.
        "execve" => !call.contains(env!("CARGO_BIN_EXE_counterpoint")),
        "landlock_create_ruleset" | "landlock_restrict_self" | "ftruncate" => false,
        // A line without a system call shows a signal, the end of a process, or the rest of a call.
        _ => !name.is_empty() && !name.starts_with(['+', '-', '<']),
    }
}

/// Returns whether the command gave up rights with Landlock. Also returns true if the kernel
/// reports that it has no Landlock.
pub fn is_confined(log: &str) -> bool {
    let mut lines = log.lines();
    lines.any(|line| {
        let is_unknown = line.contains("ENOSYS") || line.contains("EOPNOTSUPP");
        (line.contains("landlock_restrict_self") && line.ends_with("= 0"))
            || (line.contains("landlock_create_ruleset") && is_unknown)
    })
}

#[test]
fn no_view_writes_anything_but_its_output() {
    let killed = Killed::new();
    let out = killed.scratch.join("out");
    let before = [everything(&killed.dir), everything(&killed.shm)];
    for view in VIEWS {
        let words = words(view, &killed.dir, &out);
        let _ = fs::remove_file(&out);
        let (output, log) = traced(&["-e", CHANGES], &words);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{view}: {output:?}");
        let changes: Vec<&str> = log.lines().filter(|line| is_change(line)).collect();
        // The command writes its output into an unnamed file (`O_TMPFILE`), which gets its name at
        // the end (`linkat`).
        let around = format!("\"{}\"", killed.scratch.path().display());
        let named = format!("\"{}\"", out.display());
        let is_of_output = |line: &&&str| {
            (line.contains("O_TMPFILE") && line.contains(&around))
                || (line.contains("linkat(") && line.contains(&named))
        };
        let others: Vec<_> = changes.iter().filter(|line| !is_of_output(line)).collect();
        assert!(others.is_empty(), "{view}: {others:#?}");
        assert_eq!(changes.len(), if view.contains("OUT") { 2 } else { 0 }, "{view}: {changes:#?}");
        assert!(is_confined(&log), "{view}: {log}");
        let after = [everything(&killed.dir), everything(&killed.shm)];
        assert!(before == after, "{view} changed the profile or the pool");
    }
}

/// Commands for traces. `OURS` is a trace that Counterpoint exported, `OTHER` is a trace of another
/// program, and `OUT` is the output.
const OF_TRACES: [&str; 7] = [
    "trace check OURS OTHER",
    "trace check OTHER --format json",
    "trace merge OURS OTHER -o -",
    "trace merge OURS OTHER --format json -o OUT",
    "trace merge OURS OTHER --format json.gz -o OUT",
    "trace merge OURS OTHER --format pftrace -o OUT",
    "trace import OTHER -o OUT",
];

/// The commands print and write the same with and without Landlock.
#[test]
fn commands_for_traces_write_only_their_output() {
    let killed = Killed::new();
    let place = killed.scratch.join("place");
    let traces = ["ours.json", "other.json"].map(|name| killed.scratch.join(name));
    let export = "trace export PROFILE --format json -o OUT";
    let (output, _) = traced(&["-e", "trace=none"], &words(export, &killed.dir, &traces[0]));
    assert!(output.status.success(), "{output:?}");
    let event = r#"[{"name":"f","ph":"X","ts":1,"dur":2,"pid":1,"tid":1}]"#;
    fs::write(&traces[1], event).unwrap();
    for command in OF_TRACES {
        let words: Vec<String> = command
            .split(' ')
            .map(|word| match word {
                "OURS" => traces[0].display().to_string(),
                "OTHER" => traces[1].display().to_string(),
                "OUT" => place.join("out").display().to_string(),
                other => other.to_owned(),
            })
            .collect();
        let run = |options: &[&str]| {
            let _ = fs::remove_dir_all(&place);
            fs::create_dir(&place).unwrap();
            let (output, log) = traced(options, &words);
            assert!(output.status.success(), "{command}: {output:?}");
            let written = fs::read(place.join("out")).unwrap_or_default();
            let names: Vec<PathBuf> = everything(&place).into_keys().collect();
            ((output.stdout, written, names.len()), log)
        };
        let (confined, log) = run(&["-y", "-e", CHANGES]);
        assert!(is_confined(&log), "{command}: {log}");
        let after = log.lines().skip_while(|line| !line.contains("landlock_restrict_self"));
        let within = place.to_str().unwrap();
        let outside: Vec<_> =
            after.filter(|line| is_change(line) && !line.contains(within)).collect();
        assert!(outside.is_empty(), "{command}: {outside:#?}");
        let (free, _) = run(&["-e", "inject=landlock_create_ruleset:error=ENOSYS"]);
        assert!(confined == free, "{command}");
        assert_eq!(confined.2 > 1, command.contains("OUT"), "{command}");
    }
}

/// A user who only reads an unfinished profile must see all of its data.
#[test]
fn views_show_what_was_not_finished() {
    let killed = Killed::new();
    let out = killed.scratch.join("out");
    let print = |options: &[&str], view: &str| {
        let _ = fs::remove_file(&out);
        let (output, log) = traced(options, &words(view, &killed.dir, &out));
        let written = fs::read(&out).unwrap_or_default();
        (String::from_utf8(output.stdout).unwrap(), written, log)
    };
    let without = ["-e", "inject=landlock_create_ruleset:error=ENOSYS"];
    let mut seen = Vec::new();
    for view in VIEWS {
        let (confined, free) = (print(&["-e", "trace=none"], view), print(&without, view));
        assert!((&confined.0, &confined.1) == (&free.0, &free.1), "{view}");
        seen.push((view, confined.0, confined.1));
    }
    let report = &seen[0].1;
    assert!(report.contains("timed kernel") && !report.contains("plugin_events_left"), "{report}");
    let recovered = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .arg("recover")
        .arg(&killed.dir)
        .output()
        .unwrap();
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(!killed.shm.exists() && !killed.dir.join(PART).join("plugins-0.events").exists());
    for (view, printed, written) in seen {
        let after = print(&["-e", "trace=none"], view);
        assert_eq!(after.0, printed, "{view}");
        assert!(after.1 == written, "{view}");
    }
}

/// Links in a damaged profile try to redirect the conversion of plugins' events to a place outside
/// of the profile.
#[test]
fn conversions_stay_inside_of_the_profile() {
    type Trap = fn(&Path, &Path);
    // Some traps are relative links, because a link in an archive is relative.
    let traps: [(&str, Trap); 6] = [
        ("a part that is a link", |dir, victim| {
            fs::create_dir_all(dir.join("plugins.tmp")).unwrap();
            symlink(victim, dir.join("processes/1-1-0")).unwrap();
        }),
        ("a part that is a relative link", |dir, _| {
            fs::create_dir_all(dir.join("plugins.tmp")).unwrap();
            symlink("../../home", dir.join("processes/1-1-0")).unwrap();
        }),
        ("linked parts", |dir, _| {
            fs::remove_dir_all(dir.join("processes")).unwrap();
            symlink("..", dir.join("processes")).unwrap();
            fs::create_dir_all(dir.join("plugins.tmp/processes/2-2-0")).unwrap();
        }),
        ("a linked place to move from", |dir, _| {
            fs::create_dir_all(dir.join("plugins.tmp")).unwrap();
            symlink("../../home", dir.join("plugins.tmp/processes")).unwrap();
        }),
        ("a linked place to move to", |dir, _| {
            fs::create_dir_all(dir.join("plugins.tmp/tracks/new")).unwrap();
            symlink("../home", dir.join("tracks")).unwrap();
        }),
        ("a linked stage", |dir, _| symlink("../home", dir.join("plugins.tmp")).unwrap()),
    ];
    for (name, trap) in traps {
        let scratch = Scratch::new();
        let (dir, home) = (scratch.join("x.cpt"), scratch.join("home"));
        let mut script = ProfileScript::monotonic();
        script.process(4_000_711).library("m", &["f"]);
        script.write(&dir);
        fs::create_dir_all(dir.join("processes")).unwrap();
        fs::create_dir_all(home.join("processes")).unwrap();
        for file in ["trace-0.json", "plugins-3.events", "processes/thesis", "done.json"] {
            fs::write(home.join(file), "precious").unwrap();
        }
        let done = r#"{"events":1,"notes":["a note"],"files":["processes/1-1-0/trace-0.json",
                       "processes/1-1-0/plugins-3.events","processes/home/plugins-3.events"]}"#;
        trap(&dir, &home);
        if fs::symlink_metadata(dir.join("plugins.tmp")).unwrap().is_dir() {
            fs::write(dir.join("plugins.tmp/done.json"), done).unwrap();
        } else {
            fs::write(home.join("done.json"), done).unwrap();
        }
        let before = everything(&home);
        let whole = everything(&dir);
        let out = scratch.join("out");
        for view in VIEWS {
            let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            let output = command.args(words(view, &dir, &out)).output().unwrap();
            assert!(matches!(output.status.code(), Some(0..=2)), "{name}: {view}: {output:?}");
            assert!(everything(&home) == before, "{name}: {view} changed something else");
            assert!(everything(&dir) == whole, "{name}: {view} changed the profile");
        }
        for words in [["recover", "--close"], ["session", "summary"], ["session", "finish"]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
            let output = command.args(words).arg(&dir).output().unwrap();
            assert!(matches!(output.status.code(), Some(0..=2)), "{name}: {words:?}: {output:?}");
            assert!(everything(&home) == before, "{name}: {words:?} changed something else");
        }
    }
}

/// `report` must also show plugins' events if it has no right to write to their directory.
#[test]
fn a_read_only_profile_shows_its_events() {
    let Some(program) = counterpoint("read only") else { return };
    let killed = Killed::new();
    let mode = |mode| fs::set_permissions(killed.dir.join(PART), PermissionsExt::from_mode(mode));
    mode(0o500).unwrap();
    let output = Command::new(program).arg("report").arg(&killed.dir).output().unwrap();
    mode(0o700).unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("timed kernel"), "{report}");
}

/// Many events can refer to the same long text, which the exported trace repeats. docs/security.md
/// states the limit for this growth.
#[test]
fn few_bytes_of_events_do_not_become_many() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    let mut script = ProfileScript::monotonic();
    script.process(4_000_711).library("m", &["f"]);
    script.write(&dir);
    let file = dir.join(PART).join("plugins-0.events");
    let mut stream = Writer::new(File::create(&file).unwrap(), None);
    let long = [b'k'; 60_000];
    for time_ns in 0..20_000 {
        let (track, series, unit) = (&b"track"[..], &long[..], &b""[..]);
        stream.counter(&Counter { time_ns, device: -1, track, series, unit, value: 1.0 });
    }
    stream.finish().unwrap();
    let had = fs::metadata(&file).unwrap().len();
    let out = scratch.join("out");
    let words = words("trace export PROFILE --format json -o OUT", &dir, &out);
    let output = Command::new(env!("CARGO_BIN_EXE_counterpoint")).args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("plugin_failed"), "{said}");
    // Each event has about 200 bytes in addition to its arguments.
    let most = (16 << 20) + 129 * had + 200 * 20_000;
    let got = fs::metadata(&out).unwrap().len();
    assert!((1 << 20..most).contains(&got), "{had} bytes became {got}");
}
