//! Tests `counterpoint trace merge`. The expected times and rows were computed on paper.

use std::path::Path;

use crate::support::trace_processor::TraceProcessor;
use serde_json::{Value, json};
use testkit::{CallScript, Golden, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
/// The base time that Kineto would use: a whole number of quarters of a year (7,889,238 s) since
/// 1970.
const BASE: i64 = 1_700_000_000_000_000_000 / 7_889_238_000_000_000 * 7_889_238_000_000_000;

fn golden(scratch: &Scratch) -> Golden {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/trace");
    Golden::new(PROGRAM, golden).scrub(scratch.path().display().to_string(), "DIR")
}

/// Exports a trace with one call, at a monotonic time of 1,000 ns, and returns the path of the
/// trace. The clock of real time is ahead by `ahead` ns.
fn profile(scratch: &Scratch, name: &str, ahead: u64, boot: &str) -> String {
    let mut script = ProfileScript::monotonic();
    script.manifest.boot_id = boot.to_owned();
    script.manifest.snapshots.iter_mut().for_each(|s| s.realtime_ns += ahead);
    let process = script.process(100);
    process.library("m", &["f"]);
    process.thread("main").call(CallScript::new(0, 1_000, 500));
    let (dir, json) = (scratch.join(&format!("{name}.cpt")), scratch.join(name));
    script.write(&dir);
    let paths = [dir, json].map(|p| p.display().to_string());
    let golden = golden(scratch);
    let output = golden.run(&["trace", "export", &paths[0], "-o", &paths[1]]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let [_, json] = paths;
    json
}

fn events<'a>(trace: &'a Value, phase: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == phase).collect()
}

/// Returns the time of an event in ns since 1970.
fn at(trace: &Value, event: &Value) -> i64 {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    base + (event["ts"].as_f64().unwrap() * 1_000.0).round() as i64
}

#[test]
fn files_are_aligned_to_one_clock_and_keep_their_rows() {
    let scratch = Scratch::new();
    let write = |name: &str, text: String| {
        let path = scratch.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let a = profile(&scratch, "a.json", 0, "boot-1");
    let b = profile(&scratch, "b.json", 7_000, "boot-1");
    // This trace looks as if PyTorch had written it on another machine. In the file, its base time
    // stands after the events.
    let c = write(
        "c.json",
        format!(
            r#"{{"schemaVersion": 1, "distributedInfo": {{"rank": 3, "world_size": 8}},
            "host_name": "other", "traceEvents": [
            {{"ph":"M","name":"process_name","pid":100,"tid":0,"ts":0,"args":{{"name":"python"}}}},
            {{"ph":"M","name":"process_sort_index","pid":100,"tid":0,"ts":0,
              "args":{{"sort_index":5}}}},
            {{"ph":"X","cat":"cpu_op","name":"aten::\"mm\"","pid":100,"tid":"t","ts":5.001,"dur":2,
              "args":{{"External id":1,"x":[1.50, "é"]}},"tts":7}},
            {{"ph":"s","id":1,"pid":100,"tid":"t","ts":6,"cat":"ac2g","name":"ac2g"}},
            {{"ph":"f","id":1,"pid":"Spans","tid":"t","ts":7,"cat":"ac2g","name":"ac2g",
              "bp":"e"}}],
            "baseTimeNanoseconds": {}}}"#,
            BASE + 100_000
        ),
    );
    let d = write(
        "d.json",
        r#"[{"ph":"B","name":"x","pid":100,"tid":1,"ts":50},
        {"ph":"E","pid":100,"tid":1,"ts":60}"#
            .to_owned(),
    );
    let merged = scratch.join("merged.json").display().to_string();
    let golden = golden(&scratch);
    golden.check("merge", 0, &["trace", "merge", &a, &b, &c, &d, "-o", &merged]);
    let trace: Value = serde_json::from_slice(&std::fs::read(&merged).unwrap()).unwrap();

    let slices: Vec<_> = events(&trace, "X")
        .iter()
        .map(|e| (e["pid"].clone(), e["name"].as_str().unwrap(), at(&trace, e)))
        .collect();
    let first = 1_700_000_000_000_001_000;
    let expected = [
        (json!(100), "f", first),
        (json!(5_000_000), "f", first),
        // In b.json, the clock of real time is ahead by 7 µs, but the two files have the same
        // monotonic clock.
        (json!(100_000_100), "f", first),
        (json!(105_000_000), "f", first),
        (json!(200_000_100), "aten::\"mm\"", BASE + 100_000 + 5_001),
    ];
    assert_eq!(slices, expected);
    let torch = events(&trace, "X")[4];
    assert_eq!(torch["args"], json!({"External id": 1, "x": [1.5, "é"]}));
    assert_eq!(
        (&torch["tts"], &torch["dur"], &torch["tid"]),
        (&json!(7), &json!(2.0), &json!("t"))
    );
    // The last file, d.json, has no base time, so its first event is aligned with the first event
    // of a.json.
    assert_eq!(at(&trace, events(&trace, "B")[0]), first);
    assert_eq!(at(&trace, events(&trace, "E")[0]), first + 10_000);

    let ids: Vec<_> = events(&trace, "s").iter().map(|e| e["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [1, 1 + (1 << 40), 1 + (2 << 40)]);
    let spans = events(&trace, "f")[2];
    assert_eq!((&spans["pid"], &spans["bp"]), (&json!("Spans (rank 3 on other)"), &json!("e")));
    assert_eq!(spans["id"], 1i64 + (2 << 40));

    let of = |what: &str, arg: &str| -> Vec<(Value, Value)> {
        let rows = events(&trace, "M").into_iter().filter(|e| e["name"] == what);
        rows.map(|e| (e["pid"].clone(), e["args"][arg].clone())).collect()
    };
    let d_name = format!("{}/d.json", scratch.path().display());
    assert_eq!(
        of("process_name", "name"),
        [
            (json!(100), json!("paper, file 1: model")),
            (json!(5_000_000), json!("paper, file 1: dispatches of model 100")),
            (json!(100_000_100), json!("paper, file 2: model")),
            (json!(105_000_000), json!("paper, file 2: dispatches of model 100")),
            (json!(200_000_100), json!("rank 3 on other: python")),
            (json!("Spans (rank 3 on other)"), json!("rank 3 on other: Spans")),
            (json!(300_000_100), json!(format!("{d_name}: 100"))),
        ]
    );
    let sorts = of("process_sort_index", "sort_index");
    assert_eq!(sorts.len(), 7);
    assert!(sorts.windows(2).all(|w| w[0].1.as_i64() <= w[1].1.as_i64() || w[1].0.is_string()));
    assert_eq!(sorts[4].1, (2i64 << 30) + 5);

    let facts = &trace["counterpoint"];
    assert_eq!(facts["schema"], "counterpoint.trace-merge/1");
    let alignment = |i: usize| &facts["files"][i]["alignment"];
    assert_eq!(alignment(1)["by"], "monotonic");
    // The alignment uses one snapshot of the clocks from each file. The two clocks of a snapshot
    // were read within twice its uncertainty of 10 ns. So the sum for two files is 2 · 2 · 10 ns.
    assert_eq!(alignment(1)["shift_ns"], -7_000);
    assert_eq!(alignment(1)["uncertainty_ns"], 40.0);
    assert_eq!(
        (&alignment(2)["by"], &alignment(2)["uncertainty_ns"], &alignment(2)["rank"]),
        (&json!("base_time"), &Value::Null, &json!(3))
    );
    assert_eq!(alignment(3)["by"], "first_event");
    assert_eq!(facts["files"][2]["document"]["host_name"], "other");
    assert_eq!(golden.run(&["trace", "check", &merged]).code, Some(0));
}

#[test]
fn another_boot_is_another_clock() {
    let scratch = Scratch::new();
    let a = profile(&scratch, "a.json", 0, "boot-1");
    let b = profile(&scratch, "b.json", 7_000, "boot-2");
    let merged = scratch.join("m.json.gz").display().to_string();
    let golden = golden(&scratch);
    golden.check("merge-boots", 0, &["trace", "merge", &a, &b, "-o", &merged]);
    assert_eq!(golden.run(&["trace", "check", &merged]).code, Some(0));
    golden.check("merge-onto", 2, &["trace", "merge", &a, &b, "-o", &a]);
    golden.check("merge-missing", 2, &["trace", "merge", &a, "nothing.json", "-o", &merged]);
}

/// The ranks have equal process and thread ids.
#[test]
fn every_rank_is_a_process_in_perfetto() {
    let Some(mut perfetto) = TraceProcessor::start("trace_merge ranks") else { return };
    let scratch = Scratch::new();
    let ranks = [0, 1, 2].map(|rank| {
        let path = scratch.join(&format!("rank{rank}.json"));
        let text = format!(
            r#"{{"distributedInfo": {{"rank": {rank}}}, "baseTimeNanoseconds": {BASE}, "traceEvents": [
            {{"ph":"M","name":"process_name","pid":100,"tid":0,"ts":0,"args":{{"name":"python"}}}},
            {{"ph":"M","name":"thread_name","pid":100,"tid":101,"ts":0,"args":{{"name":"loader"}}}},
            {{"ph":"X","cat":"cpu_op","name":"step","pid":100,"tid":100,"ts":1,"dur":5}},
            {{"ph":"X","cat":"cpu_op","name":"mm {rank}","pid":100,"tid":100,"ts":2,"dur":2}},
            {{"ph":"X","cat":"cpu_op","name":"load","pid":100,"tid":101,"ts":2,"dur":{}}},
            {{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":3,"dur":1}}]}}"#,
            rank + 1
        );
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    let merged = scratch.join("merged.pftrace");
    let output = std::process::Command::new(PROGRAM)
        .args(["trace", "merge"])
        .args(&ranks)
        .arg("-o")
        .arg(&merged)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(perfetto.faults(&merged), Vec::<Vec<Value>>::new());
    let processes = "select name from process where name like 'rank%' order by name";
    let names = perfetto.query(processes);
    let named = |rank: i32| vec![json!(format!("rank {rank}: python"))];
    assert_eq!(names, [named(0), named(1), named(2)]);
    let slices = "select p.name, t.name, s.name, s.depth, s.dur from slice s \
         join thread_track tt on tt.id = s.track_id join thread t using (utid) \
         join process p using (upid) order by p.name, s.ts, s.name";
    let mut expected = Vec::new();
    for rank in 0..3 {
        let process = format!("rank {rank}: python");
        expected.push(vec![
            json!(process),
            json!("thread 100"),
            json!("step"),
            json!(0),
            json!(5_000),
        ]);
        let load = [json!("loader"), json!("load"), json!(0), json!((rank + 1) * 1_000)];
        expected.push([vec![json!(process)], load.to_vec()].concat());
        let mm = format!("mm {rank}");
        expected.push(vec![json!(process), json!("thread 100"), json!(mm), json!(1), json!(2_000)]);
    }
    assert_eq!(perfetto.query(slices), expected);
}
