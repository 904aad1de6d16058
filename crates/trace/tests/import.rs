//! Imports traces, and compares the profiles with what serde_json reads from the same text.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use profile::activities::{Activities, ActivitiesWriter, Activity, RowId};
use profile::safe_dir::Dir;
use profile::{Manifest, Origin, Profile, State};
use serde_json::{Value, json};
use testkit::{Random, Scratch};
use trace::chrome::read::{ReadSummary, read};
use trace::export::activities::{Options, write_perfetto};
use trace::import::Imported;
use trace::import::trace::Import;

fn import(dir: &Path, texts: &[&[u8]], shifts: &[i64]) -> Imported {
    let mut all = Import::create(dir, Manifest::new()).unwrap();
    for (number, (text, shift)) in texts.iter().zip(shifts).enumerate() {
        let mut one = all.trace(&format!("t{number}"), *shift).unwrap();
        let summary: ReadSummary = read(*text, &mut one).unwrap();
        one.finish("t.json", &summary).unwrap();
    }
    all.finish().unwrap()
}

/// Number and sum of durations of calls, by process, thread, library and name.
fn sums(profile: &Profile) -> BTreeMap<(u32, u32, String, String), (u64, u64)> {
    let add = |sums: &mut BTreeMap<_, (u64, u64)>, columns: &profile::Columns| {
        let process = &profile.processes[columns.process];
        let thread = &process.threads[columns.thread];
        for i in 0..columns.len() {
            let op = profile.ops.of(columns.process, columns.export[i]).unwrap();
            let op = profile.ops.get(op).unwrap();
            let key = (process.id.pid, thread.tid, op.library.to_string(), op.name.clone());
            let sum = sums.entry(key).or_default();
            *sum = (sum.0 + 1, sum.1 + columns.duration(i));
        }
    };
    let (states, _) = profile.visit(1, BTreeMap::new, add);
    states.into_iter().next().unwrap()
}

fn events(activities: &Activities) -> Vec<Value> {
    let mut all = Vec::new();
    let mut stream = activities.events().unwrap();
    let mut each = |a: &Activity<'_>| -> profile::Result<()> {
        let mut map = serde_json::Map::new();
        if let Some(Value::Object(more)) = a.more.map(|t| serde_json::from_str(t).unwrap()) {
            map = more;
        }
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let name = |id| json!(activities.text(id).unwrap());
        let (process, thread) = activities.row(a.row);
        let mut put = |key: &str, value: Option<Value>| {
            value.map(|v| map.insert(key.to_owned(), v));
        };
        put("ph", (a.form != 0).then(|| json!(char::from(a.form).to_string())));
        put("name", a.name.map(name));
        put("cat", a.category.map(name));
        put("pid", process.map(parse));
        put("tid", thread.map(parse));
        put("ts", a.time_ns.map(|ns| json!(ns as f64 / 1e3)));
        put("dur", a.duration_ns.map(|ns| json!(ns as f64 / 1e3)));
        put("id", a.id.map(parse));
        put("args", a.args.map(parse));
        all.push(Value::Object(map));
        Ok(())
    };
    while let Some(batch) = stream.next_batch().unwrap() {
        batch.visit(&mut each).unwrap();
    }
    all
}

fn example() -> Value {
    json!({
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000i64,
        "host_name": "somewhere",
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 8, "ts": 10.5, "dur": 2.25,
             "args": {"External id": 3, "Input Dims": [[1, 2], []]}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 8, "ts": 5.0, "dur": 1.0},
            {"ph": "B", "cat": "step", "name": "outer", "pid": 7, "tid": 9, "ts": 1.0},
            {"ph": "B", "cat": "step", "name": "inner \"q\" \u{e9}\n", "pid": 7, "tid": 9, "ts": 2.0},
            {"ph": "E", "pid": 7, "tid": 9, "ts": 3.0},
            {"ph": "E", "pid": 7, "tid": 9, "ts": 9.0},
            {"ph": "E", "pid": 7, "tid": 9, "ts": 9.5},
            {"ph": "B", "cat": "step", "name": "for ever", "pid": 7, "tid": 9, "ts": 11.0},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": "GPU 1", "tid": "stream 7", "ts": -3.0, "dur": 0.001},
            {"ph": "C", "cat": "counter", "name": "GB/s", "pid": 7, "ts": 3.0, "args": {"read": 1.5, "write": null}},
            {"ph": "s", "id": 18446744073709551615u64, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 8, "ts": 10.5},
            {"ph": "f", "id": "x", "bp": "e", "cat": "ac2g", "name": "ac2g", "pid": "GPU 1", "tid": "stream 7", "ts": 11.0},
            {"ph": "i", "s": "p", "name": "mark", "pid": -1, "tid": 1.5, "ts": 1.0, "unknown": {"kept": [1]}},
            {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python train.py"}},
            {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "a very long thread name"}},
            {"name": "nothing else"},
        ],
        "traceName": "x",
    })
}

#[test]
fn slices_become_calls_and_nothing_else_is_lost() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("p.cpt");
    std::fs::create_dir(&dir).unwrap();
    let text = serde_json::to_vec(&example()).unwrap();
    let done = import(&dir, &[&text], &[0]);
    assert_eq!(done, Imported { events: 16, calls: 5, unpaired: 2, samples: 1, spans: 0 });

    let profile = Profile::open(&dir).unwrap();
    assert_eq!(profile.manifest.origin, Origin::Import);
    assert_eq!(profile.manifest.state, State::Finished);
    assert_eq!(profile.manifest.host, "somewhere");
    assert_eq!(profile.manifest.created_unix_ns, 1_700_000_000_000_000_000 - 3_000);
    let notes = &profile.manifest.notes;
    assert_eq!(notes, &["t.json: 2 slices begin without an end or end without a begin"]);
    assert_eq!(profile.all_losses(), []);
    let key = |pid, tid, library: &str, name: &str| (pid, tid, library.into(), name.into());
    let gpu = 1 << 30;
    let expected = BTreeMap::from([
        (key(7, 8, "cpu_op", "aten::mm"), (2, 3_250)),
        (key(7, 9, "step", "inner \"q\" \u{e9}\n"), (1, 1_000)),
        (key(7, 9, "step", "outer"), (1, 8_000)),
        (key(gpu, 0, "kernel", "k"), (1, 1)),
    ]);
    assert_eq!(sums(&profile), expected);
    let names: Vec<_> = profile
        .processes
        .iter()
        .map(|p| (p.id.pid, p.info.as_ref().map_or("", |i| i.program.as_str())))
        .collect();
    assert_eq!(names, [(7, "python train.py"), (gpu, "GPU 1")]);
    let threads: Vec<_> =
        profile.processes.iter().flat_map(|p| &p.threads).map(|t| t.name.as_str()).collect();
    assert_eq!(threads, ["a very long thr", "", "stream 7"]);

    let all = Activities::open_all(&dir).unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(events(&all[0]), *example()["traceEvents"].as_array().unwrap());
    let mut rest = example();
    rest.as_object_mut().unwrap().remove("traceEvents");
    assert_eq!(all[0].document, rest);
}

/// The trace has many threads and names, and more calls than fit in one page (block of calls). The
/// calls are not in the order of their times.
#[test]
fn many_events() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("p.cpt");
    std::fs::create_dir(&dir).unwrap();
    let mut expected: BTreeMap<(u32, u32, String, String), (u64, u64)> = BTreeMap::new();
    let mut list = Vec::new();
    let mut random = Random(88_172_645_463_325_252);
    for i in 0..60_000u64 {
        let state = random.next();
        let (pid, tid) = (1 + state % 3, state >> 8 & 0x7ff);
        let (cat, name) = (format!("c{}", state >> 20 & 1), format!("n{}", state >> 24 & 0xff));
        let (start, duration) = (state >> 34, state >> 40 & 0xffff);
        list.push(json!({"ph": "X", "pid": pid, "tid": tid, "cat": cat, "name": name,
            "ts": start as f64 / 1e3, "dur": duration as f64 / 1e3, "args": {"i": i}}));
        let sum = expected.entry((pid as u32, tid as u32, cat, name)).or_default();
        *sum = (sum.0 + 1, sum.1 + duration);
    }
    let text = serde_json::to_vec(&list).unwrap();
    assert_eq!(import(&dir, &[&text], &[0]).calls, 60_000);
    let profile = Profile::open(&dir).unwrap();
    assert_eq!(profile.all_losses(), []);
    assert_eq!(profile.calls(), 60_000);
    assert!(sums(&profile) == expected);
    let all = Activities::open_all(&dir).unwrap();
    assert!(events(&all[0]) == list);
}

#[test]
fn several_files_share_one_time() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("p.cpt");
    std::fs::create_dir(&dir).unwrap();
    let file = |ts: f64| {
        let event = json!({"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": ts, "dur": 1.0});
        serde_json::to_vec(&json!({"traceEvents": [event]})).unwrap()
    };
    import(&dir, &[&file(1.0), &file(2.0)], &[0, -5_000]);
    let profile = Profile::open(&dir).unwrap();
    // The same process id in two files means two processes.
    assert_eq!(profile.processes.len(), 2);
    let (starts, _) = profile.visit(1, Vec::new, |starts: &mut Vec<u64>, columns| {
        starts.extend(&columns.start_ticks);
    });
    let ns: Vec<i64> = starts[0]
        .iter()
        .map(|t| t.wrapping_sub(trace::import::trace::EPOCH_TICKS) as i64)
        .collect();
    assert_eq!(ns, [1_000, -3_000]);
}

/// A call that ends later than a profile can express must be a loss, and must not become a shorter
/// call.
#[test]
fn calls_beyond_all_times_are_lost_and_counted() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("p.cpt");
    std::fs::create_dir(&dir).unwrap();
    let slices: Vec<_> = [(1.0, 2.0), (0.0, 9.2e15), (9.0e15, 9.0e15), (-9.0e15, 1.0)]
        .into_iter()
        .map(|(ts, dur)| json!({"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": ts, "dur": dur}))
        .collect();
    let text = serde_json::to_vec(&json!({"traceEvents": slices})).unwrap();
    import(&dir, &[&text], &[0]);
    let profile = Profile::open(&dir).unwrap();
    let (durations, _) = profile.visit(1, Vec::new, |durations: &mut Vec<u64>, columns| {
        durations.extend((0..columns.len()).map(|i| columns.duration(i)));
    });
    assert_eq!(durations[0], [2_000]);
    let lost = profile.losses.iter().find(|loss| loss.name == "trace_value_lost");
    assert_eq!(lost.map(|loss| loss.count), Some(3));
    // The events are kept.
    assert_eq!(events(&Activities::open_all(&dir).unwrap()[0]).len(), 4);
}

/// An import that is killed may leave files that end at any byte.
#[test]
fn activities_can_be_cut_at_any_byte() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("p.cpt");
    std::fs::create_dir(&dir).unwrap();
    let text = serde_json::to_vec(&example()).unwrap();
    import(&dir, &[&text], &[0]);
    let whole = events(&Activities::open_all(&dir).unwrap()[0]);
    for name in ["names.arrows", "rows.arrows", "events.arrows"] {
        let path = dir.join("activities/t0").join(name);
        let bytes = std::fs::read(&path).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        for end in (0..bytes.len()).rev() {
            file.set_len(end as u64).unwrap();
            let Ok(all) = Activities::open_all(&dir) else { continue };
            let mut stream = all[0].events().unwrap();
            let mut count = 0;
            let mut each = |_: &Activity<'_>| -> profile::Result<()> {
                count += 1;
                Ok(())
            };
            while let Some(batch) = stream.next_batch().unwrap() {
                batch.visit(&mut each).unwrap();
            }
            assert!(count == 0 || count == whole.len(), "{name} cut at {end}");
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(events(&Activities::open_all(&dir).unwrap()[0]), whole);
}

/// An event in a damaged profile may contain any row number. A table with a place for every
/// possible row would take 600 GB.
#[test]
fn a_row_that_nobody_described_costs_nothing() {
    let scratch = Scratch::new();
    let mut writer = ActivitiesWriter::create(&Dir::open(scratch.path()).unwrap(), "t").unwrap();
    let name = writer.name("far");
    let row = writer.row(Some("1"), Some("2"));
    for row in [row, RowId(3_000_000_000), RowId(u32::MAX - 1), RowId(u32::MAX)] {
        let event = Activity {
            form: b'X',
            name: Some(name),
            row,
            time_ns: Some(5),
            duration_ns: Some(1),
            ..Activity::default()
        };
        writer.push(&event).unwrap();
    }
    writer.finish(&json!({})).unwrap();
    let traces = Activities::open_all(scratch.path()).unwrap();
    let options = Options::default();
    let mut out = Vec::new();
    let names = ["t".to_owned()];
    write_perfetto(&traces, &names, &options, &mut out, false).unwrap();
    assert!(!out.is_empty() && out.len() < 10_000, "{} bytes", out.len());
}
