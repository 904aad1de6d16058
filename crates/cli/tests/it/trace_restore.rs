//! import(export(p)) = p: after a round trip through Chrome JSON, every view of a profile prints
//! the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{Expected, Iree, Programs, counterpoint};
use model::Loss;
use profile::beneath::Dir;
use profile::tracks::{Reading, Readings, Sample, Scope, Series, Times};
use profile::{Calibration, Clock, Manifest, TracksWriter};
use record::meta::{OpExport, Role};
use record::{ClockKind, Snapshot};
use serde_json::{Value, json};
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// What a command prints for a profile, without the profile's name.
fn say(args: &[&str], profile: &Path) -> (String, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.arg(args[0]).arg(profile).args(&args[1..]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).replace(&profile.display().to_string(), "PROFILE")
    };
    (text(&output.stdout), text(&output.stderr))
}

fn export(profile: &Path, to: &Path, more: &[&str]) {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["trace", "export"]).args(more).arg("-o").args([to, profile]);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Imports a trace. Returns whether the import recognised it as our export.
fn import(trace: &Path, to: &Path) -> bool {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["trace", "import", "-o"]).args([to, trace]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).contains("the profile that was exported")
}

const VIEWS: [&[&str]; 9] = [
    &["report", "--format", "json"],
    &["report", "--format", "csv"],
    &["report", "--by", "thread"],
    &["report", "--by", "process", "--format", "json"],
    &["report", "--by", "cpu", "--format", "json"],
    &["stats", "--format", "json"],
    &["export", "--format", "csv"],
    &["export", "--format", "json"],
    &["export", "--what", "tracks", "--format", "csv"],
];

/// Checks that each view prints the same for both.
fn same(p: &Path, q: &Path, what: &str) {
    for view in VIEWS {
        let (of_p, of_q) = (say(view, p), say(view, q));
        if of_p == of_q {
            continue;
        }
        let texts = [(&of_p.0, &of_q.0), (&of_p.1, &of_q.1)];
        let different = texts.iter().flat_map(|(a, b)| a.lines().zip(b.lines()));
        let first: Vec<_> = different.filter(|(a, b)| a != b).take(3).collect();
        panic!("{what}: {view:?}: {first:#?}");
    }
}

/// Exports, imports and compares; the export of the import must equal the first export.
fn goes_round(p: &Path, scratch: &Scratch, ending: &str, what: &str) {
    let at = |name: &str| scratch.join(&format!("round-{name}"));
    let (trace, q) = (at(&format!("a.{ending}")), at("q.cpt"));
    let again = at(&format!("b.{ending}"));
    for old in [&trace, &again] {
        let _ = std::fs::remove_file(old);
    }
    export(p, &trace, &[]);
    let _ = std::fs::remove_dir_all(&q);
    assert!(import(&trace, &q), "{what}");
    same(p, &q, what);
    export(&q, &again, &[]);
    if ending == "json" {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        // Only the trace's name contains the file's name.
        let named = text(&again).replace("round-b.json", "round-a.json");
        assert!(named == text(&trace), "{what}: the export of the import is another one");
    }
}

const NAMES: [&str; 8] =
    ["f", "g", "f \"x\"\n\u{1}", "", "matmul_é\u{1f600}", "</script>", "\\", "op#1"];
/// The roles of recorded calls. Calls that are apart only come from imports of other traces.
const ROLES: [Role; 5] = [Role::Workgroup, Role::Op, Role::Run, Role::Region, Role::Task];
/// Some of these names are also arguments of calls.
const COUNTERS: [&str; 8] =
    ["page-faults", "cpu", "worker", "task-clock", "page-faults", "groups", "a\"b", "export"];

/// A random profile with everything that a profile can have.
fn script(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let manifest = &mut script.manifest;
    manifest.notes.push("a \"note\"\n".to_owned());
    manifest.multiplex = r.odd(3);
    manifest.created_unix_ns += r.number() % (1 << 50);
    let tsc = r.odd(2);
    if tsc {
        manifest.clock = Clock::Tsc;
        // About 2.1 GHz, and times that are not whole nanoseconds.
        for moment in &mut manifest.snapshots {
            moment.ticks = moment.ticks * 2_100_000_019 / 1_000_000_000 + 12_345;
        }
    }
    let groups = r.below(4) as u16;
    for group in 0..groups {
        let simulated = r.odd(3);
        for _ in 0..=r.below(2) {
            let counter = script.counter(r.of(&COUNTERS), group);
            counter.simulated = simulated;
            counter.unit = r.of(&["count", "ns", "bytes"]).to_owned();
        }
    }
    let layout: Vec<usize> = (0..groups)
        .map(|g| script.manifest.counters.iter().filter(|c| c.group == g).count())
        .collect();
    for number in 0..=r.below(3) {
        // An `exec` keeps the id.
        let pid = 100 + number as u32 / 2;
        let process = script.process(pid);
        process.generation = number as u32 % 2;
        process.without_metadata = r.odd(6);
        for _ in 0..=r.below(2) {
            let names: Vec<&str> = (0..=r.below(3)).map(|_| r.of(&NAMES)).collect();
            let library = process.library(r.of(&["m", "n", ""]), &names);
            library.exports[0].source_path = r.of(&["", "a.mlir"]).to_owned();
            library.exports[0].source_line = r.below(3) as u32;
            library.exports[0].tag = r.of(&["", "tag"]).to_owned();
            library.exports[0].workgroup_size = [1, 2, r.below(4) as u32];
            library.exports[0].recorded = !r.odd(4);
        }
        if r.odd(2) {
            process.op_exports.push(OpExport {
                id: 40,
                library: 0,
                role: r.of(&ROLES),
                name: "call".to_owned(),
                arguments: "float32[1]".to_owned(),
                device: "cpu0".to_owned(),
                asynchronous: r.odd(2),
            });
        }
        if r.odd(2) {
            process.calibrations.push(Calibration {
                calls: 9,
                counters: (1 << layout.iter().sum::<usize>()) - 1,
                inside_ticks: r.below(5),
                total_ticks: 9,
                inside_values: layout.iter().flat_map(|n| vec![1; *n]).collect(),
                ..Calibration::default()
            });
            process.snapshots.push(Snapshot {
                ticks: 2_000,
                monotonic_ns: 1_000,
                realtime_ns: 1_700_000_000_000_001_000,
                uncertainty_ticks: 3,
            });
        }
        if r.odd(3) {
            process.losses.push((Loss::CounterOpenFailed, 1 + r.below(9), 24));
            process.losses.push((Loss::NameTruncated, 2, 0));
        }
        for place in 0..r.below(4) {
            let all = (1u64 << layout.iter().sum::<usize>()) - 1;
            let mut mask = 0u32;
            let mut held = Vec::new();
            let mut first = 0;
            for counters in &layout {
                if !r.odd(5) {
                    mask |= ((1u32 << counters) - 1) << first;
                    held.push(*counters);
                }
                first += counters;
            }
            assert!(u64::from(mask) <= all);
            let thread = process.thread(r.of(&["main", "worker,\"0\"", ""]));
            thread.mask = mask;
            if r.odd(4) {
                thread.name = vec![0xff, b'x', 0xc3];
            }
            // The kernel reuses thread ids.
            if r.odd(3) && place > 0 {
                thread.tid -= 1;
            }
            thread.flush_ticks = r.below(50);
            thread.base = (1_000, r.below(100), 1_000);
            let mut now = 2_000;
            for _ in 0..r.below(60) {
                item(r, thread, &held, &mut now);
            }
            if r.odd(5) {
                thread.open = (1 + r.below(2) as u32, 0);
            }
        }
    }
    script
}

fn item(r: &mut Random, thread: &mut testkit::ThreadScript, held: &[usize], now: &mut u64) {
    let (begin, length) = (*now + r.below(30), r.below(200));
    match r.below(14) {
        0 => {
            thread.then(Item::Clock(begin, r.below(5_000), begin));
        }
        1 => {
            thread.then(Item::NextPage(begin, r.below(5_000), begin));
        }
        2 => {
            thread.then(Item::LostPage(begin, 7, begin));
        }
        kind => {
            let mut call = CallScript::new(r.of(&[0, 1, 2, 40, 99]), begin, length);
            *now = begin + length;
            match kind {
                // Calls inside this one were recorded before it.
                3 => {
                    let back = r.below(*now - 1_000);
                    call.call.start = *now - back;
                    call.call.end = *now + r.below(3);
                }
                // Its end was read before its begin.
                4 => call.call.end = call.call.start.wrapping_sub(1 + r.below(9)),
                5 => call.call.end = call.call.start,
                _ => {}
            }
            if r.odd(3) {
                call.call.count = [0; 3];
            } else {
                call.call.count = [1 + r.below(4) as u32, 1 + r.below(2) as u32, 1];
                call.call.workgroup[0] = r.below(u64::from(call.call.count[0])) as u32;
                call.call.worker = r.of(&[0, 1, u32::MAX]);
            }
            call = call.on(r.below(4096) as u32, r.below(3) as u32);
            for counters in held {
                let values: Vec<u64> = (0..*counters).map(|_| r.number()).collect();
                let time = r.below(1_000);
                call = match r.below(5) {
                    0 => call.unread(),
                    1 => call.scaled(time + 5, time / 2, &values),
                    2 => call.scaled(time, 0, &values),
                    _ => call.group(time, &values),
                };
            }
            for key in 0..r.below(3) * r.below(2) {
                call = call.value(key as u32 + 16 * r.below(2) as u32, r.number());
            }
            thread.call(call);
        }
    }
}

fn tracks(r: &mut Random, dir: &Path) {
    for (name, kind) in [("run", Readings::Counts), ("other", Readings::Values)] {
        if r.odd(2) {
            continue;
        }
        let mut writer = TracksWriter::create(&Dir::open(dir).unwrap(), name, kind).unwrap();
        for scope in [Scope::Machine, Scope::Cpu(3), Scope::Process(100)] {
            writer.describe(Series {
                track: "power/\"x\"/".to_owned(),
                name: r.of(&["", "a"]).to_owned(),
                unit: r.of(&["", "Joules"]).to_owned(),
                scale: 2.3283064365386963e-10,
                scope,
                times: r.of(&[Times::Ticks, Times::Monotonic]),
                cumulative: r.odd(2),
                interval_ns: r.below(2) * 1_000,
                source: "perf".to_owned(),
            });
        }
        for time in 0..r.below(700) as i64 {
            let reading = match kind {
                _ if r.odd(9) => None,
                Readings::Counts => Some(Reading::Count {
                    raw: r.number() >> 3,
                    enabled_ns: 100 * time as u64,
                    running_ns: 90 * time as u64,
                }),
                Readings::Values => Some(Reading::Value(r.of(&[0.1, -0.0, 1e300, 5e-324, 3.0]))),
            };
            let sample = Sample { series: r.below(3) as u32, time: 1_000 + 10 * time, reading };
            writer.push(sample).unwrap();
        }
        writer.finish().unwrap();
    }
}

fn write(r: &mut Random, dir: &Path) {
    script(r).write(dir);
    tracks(r, dir);
    if r.odd(2) {
        let ledger = json!({"schema": "counterpoint.ledger/1", "losses": [
            {"name": "process_table_full", "count": 3, "errno": null},
            {"name": "pool_full", "count": 1, "errno": 28},
            {"name": "loss_60", "count": 1, "errno": null},
        ]});
        std::fs::write(dir.join("ledger.json"), ledger.to_string()).unwrap();
    }
}

#[test]
fn scripted_profiles() {
    let mut r = Random(0x2545_f491_4f6c_dd1d);
    let scratch = Scratch::new();
    for round in 0..40 {
        let p = scratch.join(&format!("{round}.cpt"));
        write(&mut r, &p);
        let ending = if round % 4 == 3 { "json.gz" } else { "json" };
        goes_round(&p, &scratch, ending, &format!("round {round}"));
        goes_round(&p, &scratch, "pftrace", &format!("round {round}, pftrace"));
    }
}

/// A whole recording of five processes, one of which was killed, written by an early version.
#[test]
fn the_kept_profile() {
    let scratch = Scratch::new();
    let p = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/profiles/v1");
    for ending in ["json", "json.gz", "pftrace"] {
        goes_round(&p, &scratch, ending, ending);
    }
}

/// Several passes are profiles within a profile.
#[test]
fn passes() {
    let mut r = Random(0x1234_5678_9abc_def1);
    let scratch = Scratch::new();
    let p = scratch.join("p.cpt");
    for number in 1..=2 {
        let mut one = ProfileScript::monotonic();
        one.counter("task-clock", 0).unit = "ns".to_owned();
        one.counter(["a", "b"][number - 1], 0);
        one.manifest.metrics.clear();
        let process = one.process(10 * number as u32);
        process.library("m", &["f", "g"]);
        process.calibrations.push(Calibration {
            calls: 9,
            counters: 3,
            inside_ticks: 2,
            total_ticks: 9,
            inside_values: vec![5, 6],
            ..Calibration::default()
        });
        let thread = process.thread("main");
        for i in 0..20 {
            let call = CallScript::new(i % 2, 1_000 + 100 * u64::from(i), 40 + r.below(20));
            thread.call(call.group(r.below(99), &[r.number() >> 4, r.below(10)]));
        }
        one.write(&p.join("passes").join(number.to_string()));
    }
    let whole = ProfileScript::monotonic();
    Manifest { passes: 3, ..whole.manifest }.write(&p).unwrap();
    for ending in ["json", "pftrace"] {
        goes_round(&p, &scratch, ending, ending);
    }
}

fn lines(trace: &Path) -> (String, Vec<String>, String) {
    let text = std::fs::read_to_string(trace).unwrap();
    let (head, rest) = text.split_once("\"traceEvents\": [").unwrap();
    let (events, end) = rest.split_once("\n],\n").unwrap();
    let events = events.trim().lines().map(|line| line.trim_end_matches(',').to_owned());
    (head.to_owned(), events.collect(), end.to_owned())
}

/// Another tool has changed the order of the document's keys.
#[test]
fn the_object_after_the_events() {
    let mut r = Random(99);
    let scratch = Scratch::new();
    let [p, a, b, q] = ["p.cpt", "a.json", "b.json", "q.cpt"].map(|name| scratch.join(name));
    write(&mut r, &p);
    export(&p, &a, &[]);
    let (head, events, end) = lines(&a);
    let members = head.trim().trim_start_matches('{').trim().trim_end_matches(',');
    let text = format!("{{\"traceEvents\": [{}],\n{members},\n{end}", events.join(","));
    serde_json::from_str::<Value>(&text).unwrap();
    std::fs::write(&b, text).unwrap();
    assert!(import(&b, &q));
    same(&p, &q, "other order");
}

/// From a changed trace, nothing is made up: each restored call equals an original one, or lacks
/// some of its values, and a note says that the trace was changed.
#[test]
fn changed_data_is_missing() {
    let mut r = Random(0xabcd_ef01_2345);
    let scratch = Scratch::new();
    let [p, a, b, q] = ["p.cpt", "a.json", "b.json", "q.cpt"].map(|name| scratch.join(name));
    let mut restored = 0;
    for round in 0..30 {
        let _ = std::fs::remove_dir_all(&p);
        let _ = std::fs::remove_dir_all(&q);
        write(&mut r, &p);
        export(&p, &a, &[]);
        let (head, events, end) = lines(&a);
        let mut events: Vec<Value> =
            events.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let calls = |events: &[Value]| events.iter().filter(|e| e["ph"] == "X").count();
        if calls(&events) < 5 {
            continue;
        }
        match round % 6 {
            0 => events.retain(|_| !r.odd(5)),
            1 => events.retain(|e| e["name"] != "counterpoint_page"),
            2 => events.iter_mut().filter(|e| e["ph"] == "X").for_each(|e| {
                e.as_object_mut().unwrap().remove("args");
            }),
            3 => events.iter_mut().filter(|e| e["ph"] == "X").for_each(|e| {
                let args = e["args"].as_object_mut().unwrap();
                args.retain(|_, _| !r.odd(3));
            }),
            4 => {
                for i in (1..events.len()).rev() {
                    events.swap(i, r.below(i as u64 + 1) as usize);
                }
            }
            _ => {
                events
                    .push(json!({"ph": "X", "name": "x", "pid": 77, "tid": 1, "ts": 1, "dur": 1}));
                events.push(json!({"ph": "i", "name": "x", "pid": 100, "tid": 1, "ts": 1}));
                let mut odd = events.iter().find(|e| e["ph"] == "X").unwrap().clone();
                odd["args"] = json!({"groups": [[], "x", -1], "export": "f", "cpu": 1e30,
                                     "workgroup": [1], "values": 7, "start_ticks": -5});
                events.push(odd);
            }
        }
        let events: Vec<String> = events.iter().map(Value::to_string).collect();
        let text = format!("{head}\"traceEvents\": [\n{}\n],\n{end}", events.join(",\n"));
        std::fs::write(&b, text).unwrap();
        assert!(import(&b, &q));
        restored += 1;
        let notes = say(&["report"], &q).0;
        assert!(notes.contains("the trace was changed after its export"), "{round}: {notes}");
        if round % 6 == 5 {
            continue; // This round added an event on purpose.
        }
        nothing_is_made_up(&p, &q, round % 6 == 4 || round % 6 == 0, &format!("round {round}"));
    }
    assert!(restored > 10, "{restored}");
}

/// Each call of `q` is a call of `p` at the same time, and each of its values is equal or missing.
fn nothing_is_made_up(p: &Path, q: &Path, whole: bool, what: &str) {
    let read = |profile: &Path| -> Vec<BTreeMap<String, String>> {
        let text = say(&["export", "--format", "json"], profile).0;
        let all: Value = serde_json::from_str(&text).unwrap();
        let rows = all["calls"].as_array().unwrap().iter();
        rows.map(|row| {
            let fields = row.as_object().unwrap().iter();
            fields.map(|(key, value)| (key.clone(), value.to_string())).collect()
        })
        .collect()
    };
    let (before, after) = (read(p), read(q));
    assert!(after.len() <= before.len(), "{what}");
    // Values that a record must have, or that depend on indices in the profile.
    let free = [
        "cpu",
        "node",
        "thread",
        "thread_name",
        "tid",
        "op_id",
        "op",
        "library",
        "export",
        "dispatch",
    ];
    let counts = |key: &str| key.ends_with("_ns") && key.starts_with("group");
    let is_counter = |key: &str| counts(key) || COUNTERS.contains(&key);
    for call in &after {
        let fits = |known: &&BTreeMap<String, String>| {
            known["pid"] == call["pid"]
                && known.iter().all(|(key, value)| {
                    let now = &call[key.as_str()];
                    let time = key.contains("start") || key.contains("duration");
                    now == value
                        || now == "null"
                        || free.contains(&key.as_str())
                        || (time && !whole)
                        // The index of a process or an export identifies it, except for lost names.
                        || key == "process" && !is_counter(key)
                })
        };
        assert!(before.iter().any(|known| fits(&known)), "{what}: {call:#?}");
    }
}

/// Recordings of real programs.
#[test]
fn real_recordings() {
    let Some(program) = counterpoint("real_recordings") else { return };
    let scratch = Scratch::new();
    let mut round = 0;
    let mut record = |options: &[&str], command: &mut Command, what: &str| {
        let p = scratch.join(&format!("{round}.cpt"));
        round += 1;
        let mut run = Command::new(&program);
        run.args(["run", "-o"]).arg(&p).args(options).arg("--");
        run.arg(command.get_program()).args(command.get_args());
        run.env("TMPDIR", scratch.path()).output().unwrap();
        let ending = if round % 2 == 0 { "json.gz" } else { "json" };
        goes_round(&p, &scratch, ending, what);
    };
    let programs = Programs::get();
    let host = |words: &[&str]| {
        let mut command = Command::new(&programs.host);
        command.arg(&programs.library).args(words);
        command
    };
    let events = ["-e", "page-faults,task-clock"];
    record(&events, &mut host(&["calls", "5000"]), "host");
    record(&["-e", "none"], &mut host(&["calls", "50"]), "timing only");
    let sim = "{sim/a,readings=5:7/,sim/b,readings=0:2/},{sim/c,readings=0:1/}";
    record(&["--passes", "-e", sim], &mut host(&["calls", "100"]), "passes");
    let turns = "sim/a,readings=0:9@400/";
    record(&["--multiplex", "-e", turns], &mut host(&["calls", "100"]), "turns");
    for mode in [&["fork-exec", "3"][..], &["nested"], &["threads", "4", "50"]] {
        record(&events, &mut host(mode), mode[0]);
    }
    let mut killed = Command::new("sh");
    let script = "\"$0\" \"$1\" calls 300 & wait; \"$0\" \"$1\" calls 20; kill -9 $$";
    killed.arg("-c").arg(script).args([&programs.host, &programs.library]);
    record(&events, &mut killed, "processes, and a kill");
    let Some(iree) = Iree::new("real_recordings") else { return };
    for fixture in ["tinyloop", "mlp"] {
        for (options, device) in [(&["-e", "none"], "local-sync"), (&events, "local-task")] {
            let mut command = Command::new(iree.tool("iree-run-module"));
            command.arg(format!("--module={}", iree.module(fixture, false).display()));
            command.arg(format!("--device={device}")).args(Expected::of(fixture).arguments());
            record(options, &mut command, &format!("{fixture} {device}"));
        }
    }
}

#[test]
fn both_kinds_of_clocks_are_tested() {
    // Makes sure that the scripts above use both kinds.
    let mut r = Random(0x2545_f491_4f6c_dd1d);
    let kinds: Vec<ClockKind> = (0..10).map(|_| script(&mut r).clock()).collect();
    assert!(kinds.contains(&ClockKind::Tsc) && kinds.contains(&ClockKind::Monotonic));
}
