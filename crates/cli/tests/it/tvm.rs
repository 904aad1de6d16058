//! Tests the adapter for TVM's virtual machine, and sessions (recordings that the program itself
//! begins and ends). The test program (`tests/programs/tvm_host.c`) imitates TVM. Its ops touch
//! known numbers of new pages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Programs, Recorded, counterpoint, environment};
use profile::{PageDecoder, Profile};
use record::meta::Role;
use record::page::{
    KEY_CORRELATION, KEY_FAILED, KEY_FAILED_OP, KEY_STORAGE_BYTES, KEY_WORKSPACE_BYTES,
};

#[derive(Clone, Debug)]
struct Row {
    role: Role,
    name: String,
    arguments: String,
    device: String,
    asynchronous: bool,
    thread: usize,
    start: u64,
    end: u64,
    count: Option<u64>,
    task: (u32, u32),
    extras: BTreeMap<u32, u64>,
}

fn rows(profile: &Profile) -> Vec<Row> {
    let mut decoder = PageDecoder::new(profile);
    let mut rows = Vec::new();
    for key in profile.pages() {
        let columns = decoder.decode(key);
        for i in 0..columns.len() {
            let op = profile.ops.get(profile.ops.of(key.process, columns.export[i]).unwrap());
            let op = op.unwrap();
            let start = columns.start_ticks[i];
            rows.push(Row {
                role: op.role,
                name: op.name.clone(),
                arguments: op.arguments.clone(),
                device: op.device.clone(),
                asynchronous: op.asynchronous,
                thread: key.thread,
                start,
                end: start + columns.duration_ticks[i],
                count: (!columns.groups.is_empty()).then(|| columns.value(0, 0, i)).flatten(),
                task: (columns.workgroup[0][i], columns.count[0][i]),
                extras: columns.extras_of(i).iter().map(|e| (e.key, e.bits)).collect(),
            });
        }
    }
    rows
}

fn counts(rows: &[Row]) -> BTreeMap<(Role, String), usize> {
    let mut counts = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry((row.role, row.name.clone())).or_default() += 1);
    counts
}

/// Returns the expected numbers of calls, by role and name, for `n` runs of the model.
pub fn model(n: usize) -> BTreeMap<(Role, String), usize> {
    let of = |role, name: &str, count: usize| ((role, name.to_owned()), count * n);
    [
        of(Role::Run, "main", 1),
        of(Role::Run, "throwing", 1),
        of(Role::Op, "matmul", 10),
        of(Role::Op, "softmax", 1),
        of(Role::Op, "add", 1),
        of(Role::Op, "touch", 1),
        of(Role::Op, "vm.builtin.alloc_storage", 1),
        of(Role::Op, "workspace", 1),
        of(Role::Op, "on_gpu", 1),
        of(Role::Op, "subgraph", 9),
        of(Role::Op, "parallel", 1),
        of(Role::Region, "parallel", 1),
        of(Role::Task, "parallel", 4),
        of(Role::Op, "fails_inside", 1),
        of(Role::Region, "fails_inside", 1),
        of(Role::Task, "fails_inside", 3),
        of(Role::Op, "regions", 1),
        of(Role::Region, "regions", 3),
        of(Role::Task, "regions", 6),
    ]
    .into()
}

struct Host {
    program: PathBuf,
    host: PathBuf,
    scratch: testkit::Scratch,
}

impl Host {
    fn new(test: &str) -> Option<Self> {
        let program = counterpoint(test)?;
        let host = Programs::get().other("tvm_host");
        Some(Self { program, host, scratch: testkit::Scratch::new() })
    }

    fn library(&self) -> PathBuf {
        self.program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Returns the path of the run file, which tells the recorder what to record.
    fn prepare(&self, name: &str, events: &str) -> String {
        let variables = environment(&self.program, events, &self.path(name));
        variables.into_iter().find(|(name, _)| name == "COUNTERPOINT_RUN_FILE").unwrap().1
    }

    fn command(&self, mode: &str, run_files: &[&str]) -> Command {
        let mut command = Command::new(&self.host);
        command.arg(self.library()).arg(mode).args(run_files);
        command.env("TMPDIR", self.scratch.path());
        command
    }

    fn run(&self, mode: &str, run_files: &[&str]) -> String {
        let output = self.command(mode, run_files).output().unwrap();
        assert!(output.status.success(), "{mode}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{mode}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn profile(&self, name: &str) -> Profile {
        Profile::open(&self.path(name)).unwrap()
    }

    fn recover(&self, name: &str) -> String {
        let mut recover = Command::new(&self.program);
        let output = recover.args(["recover", "--close"]).arg(self.path(name)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn losses(profile: &Profile) -> BTreeMap<String, u64> {
    profile.all_losses().into_iter().map(|l| (l.name, l.count)).collect()
}

fn of<'a>(rows: &'a [Row], role: Role, name: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| row.role == role && row.name == name).collect()
}

fn one<'a>(rows: &'a [Row], role: Role, name: &str) -> &'a Row {
    let all = of(rows, role, name);
    assert_eq!(all.len(), 1, "{name}: {all:?}");
    all[0]
}

/// Checks that the rows are those of one run of the model.
fn check_model(rows: &[Row]) {
    let matmul = of(rows, Role::Op, "matmul")[0];
    assert_eq!(matmul.arguments, "float32[2, 3], float32[2, 3], float32[2, 3]");
    assert_eq!((matmul.device.as_str(), matmul.asynchronous), ("cpu0", false));
    let gpu = one(rows, Role::Op, "on_gpu");
    assert_eq!((gpu.arguments.as_str(), gpu.device.as_str()), ("bfloat16[7]", "cuda3"));
    assert!(gpu.asynchronous);
    let storage = one(rows, Role::Op, "vm.builtin.alloc_storage");
    assert_eq!(storage.extras, [(KEY_STORAGE_BYTES, 2 * 3 * 4)].into());
    assert_eq!((storage.arguments.as_str(), storage.device.as_str()), ("", ""));
    let workspace = one(rows, Role::Op, "workspace");
    assert_eq!(workspace.extras, [(KEY_WORKSPACE_BYTES, 1024)].into());
    let (main, failed) = (one(rows, Role::Run, "main"), one(rows, Role::Run, "throwing"));
    assert_eq!(failed.extras.keys().collect::<Vec<_>>(), [&KEY_FAILED, &KEY_FAILED_OP]);
    assert_eq!(failed.extras[&KEY_FAILED], 1);
    assert_eq!(main.extras, BTreeMap::new());
    for row in rows.iter().filter(|row| row.role == Role::Op) {
        assert!(main.start <= row.start && row.end <= main.end && row.thread == main.thread);
    }
    let mut levels = of(rows, Role::Op, "subgraph");
    levels.sort_by_key(|row| row.start);
    assert!(levels.windows(2).all(|w| w[0].start < w[1].start && w[1].end <= w[0].end));
    // The tasks are inside of the region, and the region is inside of its op.
    let op = one(rows, Role::Op, "parallel");
    let region = one(rows, Role::Region, "parallel");
    assert!(op.start <= region.start && region.end <= op.end);
    let mut tasks = of(rows, Role::Task, "parallel");
    tasks.sort_by_key(|task| task.task);
    assert_eq!(tasks.iter().map(|t| t.task).collect::<Vec<_>>(), [(0, 4), (1, 4), (2, 4), (3, 4)]);
    for task in &tasks {
        assert_eq!(task.extras, region.extras);
        assert!(region.start <= task.start && task.end <= region.end);
        assert_eq!(task.arguments, op.arguments);
        assert_eq!(task.thread == main.thread, task.task.0 == 0);
    }
    let mut numbers: Vec<u64> = rows
        .iter()
        .filter(|row| row.role == Role::Region)
        .map(|row| row.extras[&KEY_CORRELATION])
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 5, "each region has a unique number");
    // A failed task makes its region fail.
    let failed: Vec<(Role, u32)> = rows
        .iter()
        .filter(|row| row.extras.contains_key(&KEY_FAILED) && row.role != Role::Run)
        .map(|row| (row.role, row.task.0))
        .collect();
    assert!(failed.contains(&(Role::Task, 2)) && failed.contains(&(Role::Region, 0)), "{failed:?}");
    assert_eq!(failed.len(), 2);
}

/// Checks the counts of page faults: a call must have as many as the new pages that its own thread
/// touched.
fn check_counts(rows: &[Row]) {
    assert_eq!(one(rows, Role::Op, "touch").count, Some(100));
    let mut tasks = of(rows, Role::Task, "parallel");
    tasks.sort_by_key(|task| task.task);
    let counts: Vec<_> = tasks.iter().map(|task| task.count).collect();
    assert_eq!(counts, [Some(10), Some(20), Some(30), Some(40)]);
    assert_eq!(one(rows, Role::Region, "parallel").count, Some(10));
    for row in of(rows, Role::Op, "matmul") {
        assert_eq!(row.count, Some(0));
    }
}

#[test]
fn under_run_everything_is_recorded() {
    let Some(host) = Host::new("tvm under run") else { return };
    let recorded =
        Recorded::run(&host.program, "page-faults:u", &mut host.command("everything", &[]));
    assert_eq!(recorded.output.status.code(), Some(17), "{}", recorded.stderr());
    assert_eq!(recorded.stdout(), "done\n");
    let profile = recorded.profile();
    assert_eq!(counts(&rows(&profile)), model(3));
    assert_eq!(losses(&profile), [("call_abandoned".to_owned(), 3)].into());
    assert!(recorded.stderr().contains("; next: counterpoint report "));
    let process = &profile.processes[0];
    let hosts: Vec<_> =
        process.libraries.iter().map(|l| (&*process.host_of(l).title, l.name.as_str())).collect();
    assert_eq!(hosts, [("TVM", "machine")]);
    let calibrations = &profile.processes[0].calibrations;
    // Each thread calibrates the cost of recording twice: for calls with the counter, and for
    // book-keeping ops, which are only timed.
    let threads = profile.processes[0].threads.len();
    let with = |counters| calibrations.iter().filter(|c| c.counters == counters).count();
    assert_eq!((with(1), with(0), calibrations.len()), (threads, threads, 2 * threads));
    assert_eq!(calibrations[0].inside_values, [0]);
}

/// The sessions have different counters. Calls between the sessions are in none of them.
#[test]
fn sessions_follow_one_another() {
    let Some(host) = Host::new("sessions") else { return };
    let files = [
        host.prepare("a.cpt", "page-faults:u"),
        host.prepare("b.cpt", "none"),
        host.prepare("c.cpt", "page-faults:u,task-clock:u"),
    ];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut command = host.command("sessions", &files);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut words = String::new();
    while !words.contains("nonsense") {
        assert_ne!(out.read_line(&mut words).unwrap(), 0, "{words}");
    }
    let calls = |n: usize| 29 * n;
    let expected: String = (1..=3)
        .map(|n| format!("begin 0 2\nlose 0 -1 end 0 1 calls {}\n", calls(n)))
        .chain(["nonsense -1 -1\n".to_owned()])
        .collect();
    assert_eq!(words, expected);
    for (n, name) in (1..).zip(["a.cpt", "b.cpt", "c.cpt"]) {
        // The process is still alive, but its sessions have ended.
        host.recover(name);
        let profile = host.profile(name);
        assert_eq!(profile.manifest.pool, None, "{name}");
        let rows = rows(&profile);
        assert_eq!(counts(&rows), model(n), "{name}");
        let expected = [("call_abandoned".to_owned(), n as u64), ("parallel_unseen".to_owned(), 2)];
        assert_eq!(losses(&profile), expected.into(), "{name}");
        if name == "a.cpt" {
            check_model(&rows);
            check_counts(&rows);
            let export = one(&rows, Role::Run, "throwing").extras[&KEY_FAILED_OP] as u32;
            let op = profile.ops.of(0, export).and_then(|op| profile.ops.get(op)).unwrap();
            assert_eq!((op.name.as_str(), op.role), ("throws", Role::Op));
            assert_eq!(one(&rows, Role::Op, "vm.builtin.alloc_storage").count, None);
        }
        assert_eq!(profile.processes.len(), 1);
        assert!(!profile.processes[0].alive);
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

/// The session begins while the recording of `run` is in progress.
#[test]
fn a_session_joins_a_run() {
    let Some(host) = Host::new("session in a run") else { return };
    let file = host.prepare("unused.cpt", "none");
    let mut command = host.command("chain", &[&file]);
    let recorded = Recorded::run(&host.program, "none", &mut command);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    assert_eq!(recorded.profile().calls(), 3);
    assert_eq!(host.profile("unused.cpt").calls(), 0);
}

/// The user's own instrument (a function that TVM calls before and after each op) is called before
/// Counterpoint's at the start of an op, and after it at the end. It may skip ops, and it may fail.
#[test]
fn a_users_instrument_is_chained() {
    let Some(host) = Host::new("chained instrument") else { return };
    let file = host.prepare("p.cpt", "none");
    // The instrument is called twice for an op that ran, and once for an op that it skipped or
    // refused.
    assert_eq!(host.run("chain", &[&file]), "user 8 passed 1 held 1 freed 1\n");
    let profile = host.profile("p.cpt");
    let names: Vec<String> = rows(&profile).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["run", "odd_result", "again"]);
    assert_eq!(losses(&profile), BTreeMap::new());
}

#[test]
fn odd_arguments_do_no_harm() {
    let Some(host) = Host::new("odd arguments") else { return };
    let file = host.prepare("p.cpt", "page-faults:u");
    assert_eq!(host.run("odd", &[&file]), "begin 0\nerrors 5 end 0\n");
    let profile = host.profile("p.cpt");
    let rows = rows(&profile);
    let seen: Vec<(&str, &str, &str)> = rows
        .iter()
        .filter(|row| row.name.len() < 100 && row.name != "forty")
        .map(|row| (row.name.as_str(), row.arguments.as_str(), row.device.as_str()))
        .collect();
    let expected = [
        ("odd", "float32[?]", "cpu0"),
        ("odd", "float32[?]", "cpu0"),
        ("odd", "float32[?]", "cpu0"),
        ("scalar", "float32[]", "cpu0"),
        ("custom", "custom[200]3x9[]", "cpu0"),
        ("device", "custom[200]3x9[]", "device99:-1"),
        ("null", "", ""),
        ("unknown", "", ""),
        ("AAAAAAA", "", ""),
        ("too_many", "", ""),
    ];
    assert_eq!(seen, expected);
    let wide = one(&rows, Role::Op, "forty");
    assert_eq!(wide.arguments.matches("float32[2, 3]").count(), 40);
    let long = rows.iter().find(|row| row.name.len() > 100).unwrap();
    assert_eq!(long.name, "x".repeat(1000));
    let named = losses(&profile);
    assert_eq!(named["op_shapes_left_out"], 1);
    assert_eq!(named["name_truncated"], 1);
}

/// After too many different shapes, calls with new ones are recorded without shapes.
#[test]
fn shapes_are_bounded() {
    let Some(host) = Host::new("many shapes") else { return };
    let file = host.prepare("p.cpt", "none");
    assert_eq!(host.run("many", &[&file]), "end 0\n");
    let profile = host.profile("p.cpt");
    let rows = rows(&profile);
    assert_eq!(rows.len(), 70_000);
    let bare = rows.iter().filter(|row| row.arguments.is_empty()).count() as u64;
    assert_eq!(losses(&profile), [("op_shapes_left_out".to_owned(), bare)].into());
    // The recorder keeps 65,536 signatures (an op with its shapes). The program's two entry
    // functions and the calibration use three.
    assert_eq!(70_000 - bare, 65_536 - 3);
}

#[test]
fn users_collectors_give_values() {
    let Some(host) = Host::new("collectors") else { return };
    let file = host.prepare("p.cpt", "page-faults:u");
    let expected = "same name -3 short -1 slots -2\ncolumn -4 counter -4\nremoved 0 0 0 -1\n\
                    end 0 failures 0 starts 11\n";
    assert_eq!(host.run("collectors", &[&file]), expected);
    let profile = host.profile("p.cpt");
    let process = &profile.processes[0];
    let key = |name: &str| process.value_keys.iter().find(|k| k.name == name).unwrap().id;
    let rows = rows(&profile);
    for row in rows.iter().filter(|row| ["good", "all"].contains(&row.name.as_str())) {
        assert_eq!(row.extras[&key("hits")] as i64, -5);
        assert_eq!(f64::from_bits(row.extras[&key("ratio")]), 2.5);
        assert_eq!(process.texts[&(row.extras[&key("state")] as u32)], "warm");
        assert_eq!(row.extras.len(), 3);
    }
    // The collector of the op `early` counts the same event as the session, so the two values need
    // different names.
    assert_eq!(one(&rows, Role::Op, "early").extras[&key("page_faults:u (collector)")], 7);
    assert_eq!(one(&rows, Role::Op, "none").extras, BTreeMap::new());
    assert_eq!(one(&rows, Role::Op, "empty").extras, [(key("seven"), 7)].into());
    assert!(process.value_keys.iter().all(|k| k.name != "other" && k.name != "third"));
    let named: BTreeMap<String, u64> =
        [("call_abandoned".to_owned(), 1), ("collector_failed".to_owned(), 4)].into();
    assert_eq!(losses(&profile), named);
}

/// A call during which a session ends and the next one begins must be in neither session.
#[test]
fn a_session_may_end_inside_a_call_of_another_thread() {
    let Some(host) = Host::new("late thread") else { return };
    let (a, b) = (host.prepare("a.cpt", "page-faults:u"), host.prepare("b.cpt", "task-clock:u"));
    assert_eq!(host.run("late_thread", &[&a, &b]), "end 0 begin 0 end 0\n");
    let names = |name: &str| -> Vec<String> {
        rows(&host.profile(name)).into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names("a.cpt"), ["before"]);
    assert_eq!(names("b.cpt"), ["late"]);
}

/// The forked child is a separate process of the profile. Its calls have the names of ops that the
/// parent process saw before the fork.
#[test]
fn a_forked_child_names_what_it_records() {
    let Some(host) = Host::new("fork in a session") else { return };
    let file = host.prepare("p.cpt", "page-faults:u");
    assert_eq!(host.run("fork", &[&file]), "child 0 end 0\n");
    let profile = host.profile("p.cpt");
    assert_eq!(profile.processes.len(), 2);
    let mut of_child = Vec::new();
    for (process, found) in profile.processes.iter().enumerate() {
        let calls: u64 =
            found.threads.iter().flat_map(|t| t.headers()).map(|h| u64::from(h.calls)).sum();
        if calls < 10 {
            of_child =
                found.op_exports.iter().map(|e| (e.name.clone(), e.arguments.clone())).collect();
            assert_eq!(calls, 5);
            assert!(profile.ops.of(process, found.op_exports[0].id).is_some());
        }
    }
    let matmul = |arguments: &str| ("matmul".to_owned(), arguments.to_owned());
    let three = "float32[2, 3], float32[2, 3], float32[2, 3]";
    assert_eq!(of_child, [matmul("float32[2, 3]"), matmul(three)]);
    assert_eq!(of(&rows(&profile), Role::Op, "parent").len(), 1);
}

/// Three threads make calls all the time.
#[test]
fn sessions_come_and_go_while_threads_call() {
    let Some(host) = Host::new("busy threads") else { return };
    let names: Vec<String> = (0..20).map(|i| format!("{i}.cpt")).collect();
    let files: Vec<String> = names
        .iter()
        .zip(["none", "page-faults:u", "page-faults:u,task-clock:u"].iter().cycle())
        .map(|(name, events)| host.prepare(name, events))
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    assert_eq!(host.run("busy", &files), "came through\n");
    let mut calls = 0;
    for name in &names {
        host.recover(name);
        let profile = host.profile(name);
        let rows = rows(&profile);
        calls += rows.len();
        assert!(rows.iter().all(|row| ["matmul", "subgraph"].contains(&row.name.as_str())));
        assert!(rows.iter().all(|row| row.count.is_none_or(|count| count < 1000)));
        // At the end of a session, two threads may be inside of a call, and the third one inside of
        // three nested calls.
        let mut losses = losses(&profile);
        let cut = losses.remove("call_cut_short").unwrap_or(0);
        let open = |t: &profile::Thread| -> Vec<u32> {
            t.headers().map(|header| header.open_calls).collect()
        };
        let open: Vec<_> = profile.processes[0].threads.iter().map(open).collect();
        assert!(cut <= 5, "{name}: {cut}: {open:?}");
        assert_eq!(losses, BTreeMap::new(), "{name}");
    }
    assert!(calls > 1000, "{calls}");
}

/// Calls at a nesting depth above thirty-two are losses.
#[test]
fn recursion_is_bounded() {
    let Some(host) = Host::new("recursion") else { return };
    let file = host.prepare("p.cpt", "page-faults:u");
    assert_eq!(host.run("deep", &[&file]), "end 0\n");
    let profile = host.profile("p.cpt");
    let expected =
        [((Role::Op, "subgraph".to_owned()), 32 + 2), ((Role::Op, "deeper".to_owned()), 1)];
    assert_eq!(counts(&rows(&profile)), expected.into());
    let named = [("probe_reentered".to_owned(), 40 - 32), ("call_abandoned".to_owned(), 1)];
    assert_eq!(losses(&profile), named.into());
}

#[test]
fn without_a_session_everything_passes_through() {
    let Some(host) = Host::new("no session") else { return };
    let with = host.command("everything", &[]).output().unwrap();
    let mut command = Command::new(&host.host);
    let without = command.args([Path::new("-"), Path::new("everything")]).output().unwrap();
    assert_eq!(with.status.code(), Some(17), "{with:?}");
    assert_eq!((with.status, &with.stdout), (without.status, &without.stdout));
    assert_eq!(String::from_utf8_lossy(&with.stderr), "");
}
