//! Opens exports of imported traces and of merged traces in Perfetto's trace processor. From Chrome
//! JSON, the trace processor drops slices that overlap without being nested.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::Scratch;

use crate::support::trace_processor::{Shown, Timeline, TraceProcessor, assert_same, base_ns};
use crate::trace_oracle::{export, outermost, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

struct Foreign {
    _scratch: Scratch,
    profile: PathBuf,
    pftrace: PathBuf,
    again: PathBuf,
    words: String,
}

fn import(files: &[&Path]) -> Foreign {
    let scratch = Scratch::new();
    let [profile, pftrace, again] = ["p.cpt", "p.pftrace", "p.json"].map(|n| scratch.join(n));
    run(&["trace", "import", "-o"], &[&[profile.as_path()], files].concat());
    export(&profile, &again, &[]);
    let words = export(&profile, &pftrace, &[]);
    Foreign { _scratch: scratch, profile, pftrace, again, words }
}

fn import_events(events: &Value) -> Foreign {
    let scratch = Scratch::new();
    let file = scratch.join("t.json");
    std::fs::write(&file, json!({ "traceEvents": events }).to_string()).unwrap();
    import(&[&file])
}

#[test]
fn counters_with_different_ids_are_different_series() {
    let Some(mut oracle) = TraceProcessor::start("oracle_ids") else { return };
    let counter = |id: Value, tid: u32, ts: u32, value: Value| {
        let mut event = json!({"ph": "C", "name": "c", "pid": 1, "tid": tid, "ts": ts,
                               "args": {"v": value, "missing": null}});
        if !id.is_null() {
            event["id"] = id;
        }
        event
    };
    let events = json!([
        counter(Value::Null, 1, 1, json!(1)),
        counter(Value::Null, 2, 2, json!(-2)),
        counter(json!("0x5"), 1, 3, json!(3.5)),
        counter(json!("a b"), 1, 4, json!(1e300)),
        counter(json!("0x5"), 2, 5, json!("7")),
        counter(json!("0x5"), 2, 6, json!("NaN")),
        counter(json!("0x5"), 2, 7, json!("no number")),
    ]);
    let trace = import_events(&events);
    let perfetto = oracle.timeline(&trace.pftrace);
    let mut found: Vec<_> =
        perfetto.points.iter().map(|p| (p.name.as_str(), p.ts, p.value)).collect();
    found.sort_by_key(|(_, ts, _)| *ts);
    let expected = [
        ("c v", 1_000, 1.0),
        ("c v", 2_000, -2.0),
        ("c id: 0x5 v", 3_000, 3.5),
        ("c id: a b v", 4_000, 1e300),
        ("c id: 0x5 v", 5_000, 7.0),
    ];
    assert_eq!(found, expected);
    // There is one track for each of the two ids, and one for the events without an id.
    let tracks = "select count(*) from counter_track";
    assert_eq!(oracle.query(tracks), [[json!(3)]]);
}

#[test]
fn arguments_of_any_size_arrive() {
    let Some(mut oracle) = TraceProcessor::start("oracle_args") else { return };
    let text = r#"[{"ph":"X","name":"a","pid":1,"tid":2,"ts":1,"dur":2,"args":{
        "i":-9223372036854775808,"u":18446744073709551615,"big":18446744073709551616,
        "low":-9223372036854775809,"far":1e999,"x":1.5,"yes":true,"none":null,"s":"é\"\u0007\n",
        "in":{"n":[1,18446744073709551615,{"m":-99999999999999999999}],"f":[1e400,0.5],"z":null},
        "after":7}}]"#;
    let scratch = Scratch::new();
    let file = scratch.join("t.json");
    std::fs::write(&file, text).unwrap();
    let trace = import(&[&file]);
    let perfetto = oracle.timeline(&trace.pftrace);
    let expected = json!({
        "i": i64::MIN.to_string(), "u": u64::MAX.to_string(), "big": "18446744073709551616",
        "low": "-9223372036854775809", "far": "1e999", "x": 1.5, "yes": true, "s": "é\"\u{7}\n",
        "in.n[0]": "1", "in.n[1]": "18446744073709551615", "in.n[2].m": "-99999999999999999999",
        "in.f[0]": "1e400", "in.f[1]": 0.5, "after": "7",
    });
    assert_eq!(json!(perfetto.slices[0].args), expected);
}

/// Some slices of a row are one event, and others are a begin event and an end event.
#[test]
fn begins_and_ends_nest_with_whole_slices() {
    let Some(mut oracle) = TraceProcessor::start("oracle_nesting") else { return };
    let whole = |name: &str, ts: f64, dur: f64| json!({"ph": "X", "name": name, "pid": 7, "tid": 8, "ts": ts, "dur": dur});
    let half = |ph: &str, name: &str, ts: f64, n: u32| json!({"ph": ph, "name": name, "pid": 7, "tid": 8, "ts": ts, "args": {format!("{ph}{n}"): n}});
    let events = json!([
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "p"}},
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "t"}},
        whole("outer", 10.0, 30.0),
        half("B", "b", 12.0, 1),
        whole("in b", 13.0, 2.0),
        half("B", "in b, too", 15.0, 2),
        whole("innermost", 15.5, 0.25),
        half("E", "", 16.0, 3),
        half("E", "", 20.0, 4),
        half("B", "around", 50.0, 5),
        whole("in around", 51.0, 9.0),
        half("E", "", 60.0, 6),
    ]);
    let trace = import_events(&events);
    let (chrome, perfetto) = (oracle.timeline(&trace.again), oracle.timeline(&trace.pftrace));
    assert_same("begins and ends", &chrome, &perfetto);
    let mut slices: Vec<_> = perfetto.slices.iter().collect();
    slices.sort_by_key(|s| (s.ts, s.depth));
    let found: Vec<_> = slices.iter().map(|s| (s.name.as_str(), s.depth, s.dur)).collect();
    let expected = [
        ("outer", 0, 30_000),
        ("b", 1, 8_000),
        ("in b", 2, 2_000),
        ("in b, too", 2, 1_000),
        ("innermost", 3, 250),
        ("around", 0, 10_000),
        ("in around", 1, 9_000),
    ];
    assert_eq!(found, expected);
    assert_eq!(json!(slices[1].args), json!({"B1": "1", "E4": "4"}));
    assert!(slices.iter().all(|s| s.row == ["p", "t"]));
}

/// In Chrome's format, the thread id 0 also stands for the main thread of a process.
#[test]
fn thread_0_is_the_main_thread() {
    let Some(mut oracle) = TraceProcessor::start("oracle_thread_0") else { return };
    let events = json!([
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "init"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
        {"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 10},
        {"ph": "i", "s": "t", "name": "i", "pid": 1, "tid": 0, "ts": 5},
        {"ph": "X", "name": "y", "pid": 1, "tid": 0, "ts": 6, "dur": 2},
    ]);
    let trace = import_events(&events);
    let (chrome, perfetto) = (oracle.timeline(&trace.again), oracle.timeline(&trace.pftrace));
    assert_same("thread 0", &chrome, &perfetto);
    let threads = "select tid, name from thread where utid in (select utid from thread_track)";
    assert_eq!(oracle.query(threads), [[json!(1), json!("main")]]);
    let mut depths: Vec<_> = perfetto.slices.iter().map(|s| (s.name.as_str(), s.depth)).collect();
    depths.sort_unstable();
    assert_eq!(depths, [("i", 1), ("x", 0), ("y", 1)]);
}

/// Perfetto's format has no times before 1970.
#[test]
fn times_before_1970_keep_their_distances() {
    let Some(mut oracle) = TraceProcessor::start("oracle_before_1970") else { return };
    let events = json!([
        {"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": -10, "dur": 2},
        {"ph": "C", "name": "c", "pid": 1, "tid": 2, "ts": -9, "args": {"v": 4}},
        {"ph": "X", "name": "b", "pid": 1, "tid": 2, "ts": 10, "dur": 5},
        {"ph": "X", "name": "c", "pid": 1, "tid": 3, "ts": 11, "dur": 5},
    ]);
    let trace = import_events(&events);
    assert!(trace.words.contains("10000 ns later"), "{}", trace.words);
    let perfetto = oracle.timeline(&trace.pftrace);
    let mut slices: Vec<_> = perfetto.slices.iter().map(|s| (s.ts, s.dur)).collect();
    slices.sort_unstable();
    assert_eq!(slices, [(0, 2_000), (20_000, 5_000), (21_000, 5_000)]);
    assert_eq!((perfetto.points[0].ts, perfetto.points[0].value), (1_000, 4.0));
}

/// Two of the files have different base times, and the other one has none.
#[test]
fn names_of_rows_survive_a_merge() {
    let Some(mut oracle) = TraceProcessor::start("oracle_merge") else { return };
    let scratch = Scratch::new();
    let base = 1_790_857_026_000_000_000i64;
    let mut files = Vec::new();
    for rank in 0..3i64 {
        // The second file has no base time. The events that only name processes and threads have a
        // time of 0, long before the slices.
        let mut trace = json!({
            "distributedInfo": {"rank": rank, "world_size": 3},
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "python"}},
                {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "ts": 0, "args": {"name": format!("worker {rank}")}},
                {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 7, "tid": 8, "ts": 5_000_000 + rank, "dur": 2},
            ]
        });
        if rank != 1 {
            trace["baseTimeNanoseconds"] = json!(base - rank * 7_000_000_000);
        }
        let file = scratch.join(&format!("{rank}.json"));
        std::fs::write(&file, trace.to_string()).unwrap();
        files.push(file);
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (merged, imported) = (scratch.join("m.json"), import(&files));
    run(&["trace", "merge", "-o"], &[&[merged.as_path()], &files[..]].concat());
    let at_once = scratch.join("m.pftrace");
    run(&["trace", "merge", "-o"], &[&[at_once.as_path()], &files[..]].concat());
    let left = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, files.len() + 2, "nothing else is left beside the output");
    let all = [&merged, &imported.again, &imported.pftrace, &at_once];
    let joined = all.map(|file| oracle.timeline(file));
    for timeline in &joined {
        assert_same("merged", timeline, &joined[0]);
        let mut rows: Vec<_> = timeline.slices.iter().map(|s| s.row.clone()).collect();
        rows.sort();
        let row = |rank: u32| [format!("rank {rank}: python"), format!("worker {rank}")];
        assert_eq!(rows, [row(0), row(1), row(2)]);
    }
}

/// Without the folder `shared/workloads/traces` next to the checkout, this test is skipped.
#[test]
fn torchs_traces_are_shown_correctly() {
    let Some(mut oracle) = TraceProcessor::start("oracle_torch") else { return };
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/workloads/traces");
    let Ok(entries) = std::fs::read_dir(&shared) else {
        crate::support::skip("oracle_torch", "no traces beside the checkout");
        return;
    };
    for entry in entries {
        let file = entry.unwrap().path();
        let what = file.display().to_string();
        let trace = import(&[&file]);
        // Some slices of a row overlap without being nested. The trace processor drops them from
        // Chrome's format, and shows them from Perfetto's format in additional rows.
        let dropped = oracle.faults(&trace.again);
        let chrome = oracle.loaded(0);
        assert_eq!(oracle.faults(&file), dropped, "{what}");
        assert_same(&what, &oracle.loaded(0), &chrome);
        let perfetto = oracle.timeline(&trace.pftrace);
        let dropped = match &dropped[..] {
            [] => 0,
            [only] => {
                assert_eq!(only[0], "slice_drop_overlapping_complete_event", "{what}");
                only[2].as_u64().unwrap()
            }
            more => panic!("{what}: {more:?}"),
        };
        assert_includes(&what, &perfetto, &chrome, base_ns(&file), dropped);
        as_reported_foreign(&what, &perfetto, &trace.profile);
        assert!(!perfetto.slices.is_empty());
    }
}

/// Checks that `all`, from Perfetto's format, contains the slices of `part`, from Chrome's format,
/// perhaps in other rows. `all` must have `more` further slices: those that the trace processor
/// drops from Chrome's format.
fn assert_includes(what: &str, all: &Timeline, part: &Timeline, base_ns: i64, more: u64) {
    let key = |s: &Shown, base_ns: i64| {
        let times = [s.ts + base_ns, s.dur];
        (s.name.clone(), s.category.clone(), json!(s.args).to_string(), times)
    };
    let mut of_all: Vec<_> = all.slices.iter().map(|s| key(s, 0)).collect();
    of_all.sort();
    for slice in &part.slices {
        let (name, category, args, [ts, dur]) = key(slice, base_ns);
        let near = (-1..=1).flat_map(|a| (-1..=1).map(move |b| [ts + a, dur + b]));
        let found = near.into_iter().find_map(|times| {
            of_all.binary_search(&(name.clone(), category.clone(), args.clone(), times)).ok()
        });
        match found {
            Some(place) => drop(of_all.remove(place)),
            None => {
                let like = of_all.iter().find(|one| one.0 == name);
                panic!("{what}: not in Perfetto's format: {slice:?}, but {like:?}")
            }
        }
    }
    assert_eq!(of_all.len() as u64, more, "{what}: {of_all:?}");
    let (all, part) = [all, part].map(|t| (t.flows.len(), t.points.len())).into();
    assert_eq!(all, part, "{what}: arrows and points");
}

fn as_reported_foreign(what: &str, timeline: &Timeline, profile: &Path) {
    let mut report = Command::new(PROGRAM);
    let report = report.arg("report").arg(profile).args(["--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let mut reported = BTreeMap::<(&str, &str), (u64, u64, f64)>::new();
    for row in report["rows"].as_array().unwrap() {
        let key = (row["library"].as_str().unwrap(), row["op"].as_str().unwrap());
        let of = reported.entry(key).or_default();
        of.0 += row["calls"].as_u64().unwrap();
        of.1 += row["inner_calls"].as_u64().unwrap_or(0);
        of.2 += row["total_ns"].as_f64().unwrap();
    }
    for ((category, name), (calls, inner, ns)) in reported {
        // All steps of PyTorch's profiler together are one row in a report. In a timeline, their
        // names contain their numbers.
        let is_it = |shown: &str| match name {
            "ProfilerStep*" => shown.starts_with("ProfilerStep#"),
            _ => shown == name,
        };
        let all = timeline.slices.iter().filter(|s| s.category == category && is_it(&s.name));
        let of: Vec<&Shown> = all.collect();
        assert_eq!(of.len() as u64, calls + inner, "{what}: {category} {name}");
        let outermost = outermost(&of);
        let (count, sum) = outermost.iter().fold((0, 0), |(n, sum), s| (n + 1, sum + s.dur));
        assert_eq!(count, calls, "{what}: {category} {name}");
        assert!((sum as f64 - ns).abs() <= 1.0, "{what}: {name}: {sum} against {ns}");
    }
}
