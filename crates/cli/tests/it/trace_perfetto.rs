//! Tests `counterpoint trace export -o x.pftrace`. The exported files are read with classes that
//! were generated from Perfetto's published definitions.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use testkit::{CallScript, ProfileScript, Random, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const REALTIME: i64 = 1_700_000_000_000_000_000;

fn python(test: &str) -> Option<PathBuf> {
    testkit::python::with(test, "perfetto.protos.perfetto.trace.perfetto_trace_pb2")
}

fn export(dir: &Path, output: &Path, more: &[&str]) {
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "export"]).arg(dir).arg("-o").arg(output).args(more);
    assert!(command.status().unwrap().success());
}

fn decode(python: &Path, trace: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/decode_pftrace.py");
    let output = Command::new(python).arg(script).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sorts values by their first two elements, and returns them as texts.
fn sorted(mut all: Vec<Value>) -> Vec<String> {
    all.sort_by_key(|one| (one[0].as_i64(), one[1].as_i64(), one.to_string()));
    all.iter().map(Value::to_string).collect()
}

fn of_perfetto(trace: &Value) -> Vec<String> {
    let slices = trace["slices"].as_array().unwrap().iter().map(|s| {
        let category = &s["category"][0];
        json!([s["start"], s["duration"], s["name"], category, sort(&s["args"])])
    });
    sorted(slices.collect())
}

fn sort(args: &Value) -> Value {
    let mut pairs: Vec<_> = args.as_object().unwrap().iter().collect();
    pairs.sort_by_key(|(key, _)| *key);
    json!(pairs)
}

/// Returns the slices of Chrome's format, with arguments as in Perfetto's format: a list of three
/// numbers becomes keys with x, y and z, and zeros of such a list and nulls are left out.
fn of_chrome(trace: &Value) -> Vec<String> {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = events.iter().filter(|e| e["ph"] == "X").map(|e| {
        let ns = |key: &str| (e[key].as_f64().unwrap() * 1_000.0).round() as i64;
        let mut args = Map::new();
        // Perfetto's format does not have the arguments that only imports need.
        let raw = ["export", "groups", "workgroups", "values", "process", "thread"];
        let of_imports = |key: &str| e["cat"] != "kernel" && raw.contains(&key);
        for (key, value) in e["args"].as_object().unwrap() {
            match value {
                _ if of_imports(key) => {}
                Value::Null => {}
                Value::Array(three) => {
                    for (axis, n) in ["x", "y", "z"].iter().zip(three).filter(|(_, n)| **n != 0) {
                        args.insert(format!("{key}.{axis}"), n.clone());
                    }
                }
                other => {
                    args.insert(key.clone(), other.clone());
                }
            }
        }
        json!([base + ns("ts"), ns("dur"), e["name"], e["cat"], sort(&args.into())])
    });
    sorted(slices.collect())
}

/// Returns time, name and value of each point.
fn points_of_perfetto(trace: &Value) -> Vec<String> {
    let points = trace["counters"].as_array().unwrap().iter();
    sorted(points.map(|p| json!([p["at"], 0, p["name"], p["value"].as_f64()])).collect())
}

fn points_of_chrome(trace: &Value) -> Vec<String> {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let points = events.iter().filter(|e| e["ph"] == "C").flat_map(|e| {
        let at = base + (e["ts"].as_f64().unwrap() * 1_000.0).round() as i64;
        let name = e["name"].as_str().unwrap();
        let series = e["args"].as_object().unwrap().iter();
        // A value of 2^63 or more is a double in Perfetto's format, and an integer in Chrome's.
        series.map(move |(key, value)| json!([at, 0, format!("{name} {key}"), value.as_f64()]))
    });
    sorted(points.collect())
}

/// Returns the ends of arrows in two lists: those at which arrows begin, and the others.
fn arrows_of_perfetto(trace: &Value) -> [Vec<String>; 2] {
    ["from", "to"].map(|end| {
        let slices = trace["slices"].as_array().unwrap().iter();
        let ends = slices.flat_map(|s| {
            s[end].as_array().unwrap().iter().map(|id| json!([s["start"], id, s["name"]]))
        });
        sorted(ends.collect())
    })
}

fn arrows_of_chrome(trace: &Value) -> [Vec<String>; 2] {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    ["s", "f"].map(|end| {
        // The event for an end of an arrow follows the slice to which it belongs.
        let ends = events.windows(2).filter(|two| two[1]["ph"] == end).map(|two| {
            let at = base + (two[1]["ts"].as_f64().unwrap() * 1_000.0).round() as i64;
            json!([at, two[1]["id"], two[0]["name"]])
        });
        sorted(ends.collect())
    })
}

/// Compares Perfetto's format with Chrome's, and with its own compressed form. Returns the decoded
/// trace.
fn compare(python: &Path, script: &ProfileScript) -> Value {
    let (scratch, dir) = script.written();
    let (json, plain) = (scratch.join("x.json"), scratch.join("x.pftrace"));
    let small = scratch.join("y.pftrace");
    export(&dir, &json, &[]);
    export(&dir, &plain, &[]);
    export(&dir, &small, &["--compress"]);
    let chrome: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let perfetto = decode(python, &plain);
    assert_eq!(of_perfetto(&perfetto), of_chrome(&chrome));
    assert_eq!(points_of_perfetto(&perfetto), points_of_chrome(&chrome));
    assert_eq!(arrows_of_perfetto(&perfetto), arrows_of_chrome(&chrome));
    assert_eq!(decode(python, &small), perfetto);
    let mut facts = chrome["counterpoint"].clone();
    facts["page"] = chrome["counterpoint_end"]["page"].clone();
    assert!(facts["page"]["fragment"].as_str().unwrap().starts_with("#timeline?since="));
    facts["losses"] = chrome["counterpoint_end"]["losses"].clone();
    assert_eq!(perfetto["metadata"]["counterpoint"], facts);
    perfetto
}

#[test]
fn rows_counters_and_arrows_equal_those_on_paper() {
    let Some(python) = python("perfetto") else { return };
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("traffic", 1).unit = "bytes".to_owned();
    script.counter("work", 2).unit = "cycles".to_owned();
    let process = script.process(100);
    process.library("mlp", &["é \"x\"\n", "inner"]);
    let main = process.thread("main");
    // A call is recorded when it ends, so the inner call comes first. In the third call, only one
    // group of counters was read.
    let call = |call: CallScript| call.group(5, &[3]).group(5, &[u64::MAX]).group(5, &[9]);
    main.call(call(CallScript::new(1, 1_100, 300)));
    main.call(call(CallScript::new(0, 1_000, 500)));
    main.call(CallScript::new(0, 2_000, 0).group(5, &[0]).unread().unread());
    let trace = compare(&python, &script);
    let slices = trace["slices"].as_array().unwrap();
    let find = |name: &str, category: &str, start: i64| {
        let found = slices.iter().filter(|s| {
            s["name"] == name && s["category"] == json!([category]) && s["start"] == start
        });
        found.collect::<Vec<_>>()
    };
    let outer = find("é \"x\"\n", "cpu_op", REALTIME + 1_000)[0];
    assert_eq!(outer["row"], json!(["model", "thread 100 (main)", 0, 100]));
    assert_eq!((&outer["duration"], &outer["from"]), (&json!(500), &json!([1])));
    assert_eq!(outer["args"]["traffic"], u64::MAX);
    let dispatch = find("inner", "kernel", REALTIME + 1_100)[0];
    assert_eq!(dispatch["to"], json!([2]));
    assert_eq!(dispatch["row"], json!(["dispatches of model 100", "stream 1", 0, 0]));
    assert_eq!(find("é \"x\"\n", "cpu_op", REALTIME + 2_000)[0]["duration"], 0);
    let points: Vec<_> = trace["counters"].as_array().unwrap().iter().collect();
    assert_eq!(points.len(), 3 + 2 + 2, "calls without a reading have no point");
    let of = |name: &str| points.iter().find(|p| p["name"] == name).unwrap();
    assert_eq!(of("main 100 counters of group 0 page-faults")["unit"], "UNIT_COUNT");
    assert_eq!(of("main 100 counters of group 1 traffic")["unit"], "UNIT_SIZE_BYTES");
    let work = of("main 100 counters of group 2 work");
    assert_eq!((&work["unit"], &work["value"]), (&json!("cycles"), &json!(9)));
    assert_eq!(
        trace["clocks"],
        json!([{"1": REALTIME, "3": 0}, {"1": REALTIME + 1_000_000_000, "3": 1_000_000_000}])
    );
}

/// Most calls have more counters (11) than the packet of a slice can have. Some values are 2⁶³ or
/// more, for which this packet has no field.
#[test]
fn many_series_and_large_values_arrive() {
    let Some(python) = python("perfetto_series") else { return };
    let mut script = ProfileScript::monotonic();
    for i in 0..11 {
        script.counter(&format!("c{i}"), i / 6);
    }
    let process = script.process(100);
    process.library("m", &["f"]);
    let thread = process.thread("t");
    for i in 0..40u64 {
        let value = |series: u64| if i == series { u64::MAX / 2 + 1 + i } else { 100 * series + i };
        let [a, b] = [(0..6).map(value), (6..11).map(value)].map(Iterator::collect::<Vec<_>>);
        let call = CallScript::new(0, 1_000 + 100 * i, 50);
        // The first call has fewer values than most others.
        thread.call(match i % 5 {
            0 => call.group(5, &a).unread(),
            1 => call.unread().group(5, &b),
            _ => call.group(5, &a).group(5, &b),
        });
    }
    let trace = compare(&python, &script);
    let points = trace["counters"].as_array().unwrap();
    assert_eq!(points.len(), 8 * 6 + 8 * 5 + 24 * 11);
    let large = points.iter().filter(|p| p["value"].as_f64().unwrap() > 9.2e18);
    assert_eq!(
        large.count(),
        (0..11)
            .filter(|i| match i % 5 {
                0 => *i < 6,
                1 => *i >= 6,
                _ => true,
            })
            .count()
    );
}

/// The calls are random, and overlap in ways in which real calls of a thread cannot.
#[test]
fn both_formats_agree_for_any_calls() {
    let Some(python) = python("perfetto_random") else { return };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut next = move |below: u64| {
        let random = random.next();
        random % below
    };
    for width in [3, 40, 5_000] {
        let mut script = ProfileScript::monotonic();
        script.counter("a", 0);
        let process = script.process(100);
        process.library("m", &["f", "g", "h"]);
        for thread in 0..3 {
            let thread = process.thread(&format!("worker {thread}"));
            for i in 0..400u64 {
                let start = 1_000 + i * 20 + next(20);
                let tile = next(4) as u32;
                let call = CallScript::new(next(3) as u32, start, next(width)).workgroup(tile, 4);
                let call = call.on(next(4) as u32, next(2) as u32);
                thread.call(if next(8) == 0 {
                    call.unread()
                } else {
                    call.group(9, &[next(1000)])
                });
            }
        }
        let trace = compare(&python, &script);
        assert!(trace["slices"].as_array().unwrap().len() > 1_200);
    }
}

/// The contents that a trace must still have after its import and export, computed from the
/// original file. The ends of arrows are identified by id and row.
struct Expected {
    slices: Vec<String>,
    instants: Vec<String>,
    points: Vec<String>,
    arrows: Vec<String>,
}

fn expected(trace: &Value) -> Expected {
    let base = trace["baseTimeNanoseconds"].as_i64().unwrap_or(0);
    let events = trace["traceEvents"].as_array().unwrap();
    let name_of = |what: &str, e: &Value| {
        let same = |m: &&Value| {
            m["ph"] == "M"
                && m["name"] == what
                && m["pid"] == e["pid"]
                && (what == "process_name" || m["tid"] == e["tid"])
        };
        let given = events.iter().rfind(same);
        let id = &e[if what == "process_name" { "pid" } else { "tid" }];
        let fallback = id
            .as_str()
            .map_or_else(|| format!("{} {id}", what.strip_suffix("_name").unwrap()), str::to_owned);
        given.and_then(|m| m["args"]["name"].as_str()).map_or(fallback, str::to_owned)
    };
    let row = |e: &Value| json!([name_of("process_name", e), name_of("thread_name", e)]);
    let at = |e: &Value| base + (e["ts"].as_f64().unwrap() * 1_000.0).round() as i64;
    let args = |e: &Value| {
        let all = e["args"].as_object().cloned().unwrap_or_default();
        sort(&all.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into())
    };
    let category = |e: &Value| json!(e["cat"].as_str().into_iter().collect::<Vec<_>>());
    let mut out = Expected { slices: vec![], instants: vec![], points: vec![], arrows: vec![] };
    let (mut kinds, mut open) = (Vec::new(), Vec::<&Value>::new());
    for e in events {
        let slice = |b: &Value, ns: i64| {
            json!([at(b), ns, b["name"], category(b), args(b), row(b)]).to_string()
        };
        match e["ph"].as_str().unwrap() {
            "X" => {
                out.slices.push(slice(e, (e["dur"].as_f64().unwrap() * 1_000.0).round() as i64));
            }
            "B" => open.push(e),
            "E" => {
                let same = |b: &&Value| b["pid"] == e["pid"] && b["tid"] == e["tid"];
                let begin = open.remove(open.iter().rposition(same).unwrap());
                out.slices.push(slice(begin, at(e) - at(begin)));
            }
            "i" => {
                out.instants
                    .push(json!([at(e), e["name"], category(e), args(e), row(e)]).to_string());
            }
            "C" => {
                for (key, value) in e["args"].as_object().unwrap() {
                    let name = format!("{} {key}", e["name"].as_str().unwrap());
                    let value = value.as_f64().unwrap();
                    out.points.push(json!([at(e), name.trim_end(), value]).to_string());
                }
            }
            end @ ("s" | "t" | "f") => {
                let kind = (e["cat"].clone(), e["name"].clone());
                let place = kinds.iter().position(|known| *known == kind);
                let place = place.unwrap_or_else(|| {
                    kinds.push(kind);
                    kinds.len() - 1
                });
                let id = (place as u64) << 48 | e["id"].as_u64().unwrap();
                out.arrows.push(json!([end == "f", id, row(e)]).to_string());
            }
            _ => {}
        }
    }
    for all in [&mut out.slices, &mut out.instants, &mut out.points, &mut out.arrows] {
        all.sort();
    }
    out
}

fn found(trace: &Value) -> Expected {
    let all = |key: &str| trace[key].as_array().unwrap().iter();
    let row = |e: &Value| json!([e["row"][0], e["row"][1]]);
    let slice = |s: &Value| {
        let args = sort(&s["args"]);
        json!([s["start"], s["duration"], s["name"], s["category"], args, row(s)]).to_string()
    };
    // Instants with an end of an arrow are not from the original trace: the export adds one for
    // each end that belongs to no slice.
    let instants = all("instants").filter(|i| i["from"] == json!([]) && i["to"] == json!([]));
    let instant = |i: &Value| {
        json!([i["at"], i["name"], i["category"], sort(&i["args"]), row(i)]).to_string()
    };
    let point = |p: &Value| json!([p["at"], p["name"], p["value"].as_f64().unwrap()]).to_string();
    let arrows = all("slices").chain(all("instants")).flat_map(|e| {
        [("from", false), ("to", true)].into_iter().flat_map(move |(end, last)| {
            let ids = e[end].as_array().unwrap().iter();
            ids.map(move |id| json!([last, id, row(e)]).to_string())
        })
    });
    let mut out = Expected {
        slices: all("slices").map(slice).collect(),
        instants: instants.map(instant).collect(),
        points: all("counters").map(point).collect(),
        arrows: arrows.collect(),
    };
    for all in [&mut out.slices, &mut out.instants, &mut out.points, &mut out.arrows] {
        all.sort();
    }
    out
}

fn import_and_compare(python: &Path, scratch: &Scratch, name: &str, file: &Path, trace: &Value) {
    let at = |end: &str| scratch.join(&format!("{name}.{end}"));
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "import"]).arg(file).arg("-o").arg(at("cpt"));
    assert!(command.status().unwrap().success());
    export(&at("cpt"), &at("pftrace"), &[]);
    export(&at("cpt"), &at("small.pftrace"), &["--compress"]);
    let decoded = decode(python, &at("pftrace"));
    assert_eq!(decode(python, &at("small.pftrace")), decoded);
    let (found, expected) = (found(&decoded), expected(trace));
    assert!(!expected.slices.is_empty(), "{name}");
    assert_eq!(found.slices, expected.slices, "{name}");
    assert_eq!(found.instants, expected.instants, "{name}");
    assert_eq!(found.points, expected.points, "{name}");
    assert_eq!(found.arrows, expected.arrows, "{name}");
    for (key, value) in trace.as_object().unwrap() {
        if key != "traceEvents" {
            assert_eq!(decoded["metadata"][key], *value, "{name}: {key}");
        }
    }
    let mut check = Command::new(PROGRAM);
    assert!(check.args(["trace", "check"]).arg(at("pftrace")).status().unwrap().success());
}

#[test]
fn imported_traces_keep_their_contents() {
    let Some(python) = python("perfetto_import") else { return };
    let scratch = Scratch::new();
    let trace = json!({
        "baseTimeNanoseconds": 1_790_857_026_000_000_000i64, "displayTimeUnit": "ms", "x": [1, null],
        "traceEvents": [
            {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 2, "ts": 10.001,
             "dur": 5.0, "args": {"correlation": 7, "é\n": "a\"b", "big": u64::MAX, "neg": -5,
             "x": 1.25, "yes": true, "none": null, "Input Dims": [[], [1, 2]], "o": {"p": "q"}}},
            {"ph": "s", "id": 7, "pid": 1, "tid": 2, "ts": 10.001, "cat": "ac2g", "name": "ac2g"},
            {"ph": "s", "id": 7, "pid": 1, "tid": 2, "ts": 12, "cat": "fwdbwd", "name": "fwdbwd"},
            {"ph": "X", "cat": "cpu_op", "name": "inner", "pid": 1, "tid": 2, "ts": 11, "dur": 1},
            {"ph": "X", "cat": "cpu_op", "name": "overlaps", "pid": 1, "tid": 2, "ts": 14, "dur": 9},
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 20, "dur": 0,
             "args": {"correlation": 7}},
            {"ph": "f", "id": 7, "pid": 0, "tid": "stream 7", "ts": 20, "cat": "ac2g",
             "name": "ac2g", "bp": "e"},
            {"ph": "t", "id": 7, "pid": 1, "tid": 3, "ts": 30, "cat": "fwdbwd", "name": "fwdbwd"},
            {"ph": "f", "id": 7, "pid": 1, "tid": 3, "ts": 31, "cat": "fwdbwd", "name": "fwdbwd"},
            {"ph": "B", "name": "outer", "cat": "user_annotation", "pid": 1, "tid": 2, "ts": 1},
            {"ph": "B", "name": "part", "pid": 1, "tid": 2, "ts": 2, "args": {"n": 1}},
            {"ph": "B", "name": "other row", "pid": "text", "tid": "", "ts": 2.5},
            {"ph": "E", "pid": 1, "tid": 2, "ts": 3},
            {"ph": "E", "pid": 1, "tid": 2, "ts": 50.5},
            {"ph": "E", "pid": "text", "tid": "", "ts": 4},
            {"ph": "C", "cat": "mtia_counters", "name": "bandwidth", "pid": 1, "tid": 0, "ts": 2.5,
             "args": {"read GB/s": 1.25, "write GB/s": 3}},
            {"ph": "C", "name": "bandwidth", "pid": 1, "tid": 0, "ts": 7, "args": {"read GB/s": -2}},
            {"ph": "i", "s": "g", "name": "end", "pid": "text", "tid": "a", "ts": 33.0,
             "args": {"why": "done"}},
            {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "py\"thon"}},
            {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "args": {"labels": "CPU"}},
            {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "args": {"sort_index": 5}},
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main"}},
            {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 2, "args": {"sort_index": -1}}
        ]
    });
    let file = scratch.join("t.json");
    std::fs::write(&file, trace.to_string()).unwrap();
    import_and_compare(&python, &scratch, "made", &file, &trace);
}

/// Without the folder `shared/workloads/traces` next to the checkout, this test is skipped.
#[test]
fn torchs_traces_keep_their_contents() {
    let Some(python) = python("perfetto_torch") else { return };
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/workloads/traces");
    let Ok(entries) = std::fs::read_dir(&shared) else {
        crate::support::skip("perfetto_torch", "no traces beside the checkout");
        return;
    };
    let scratch = Scratch::new();
    for (i, entry) in entries.enumerate() {
        let file = entry.unwrap().path();
        let mut text = String::new();
        let mut gz = flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap());
        std::io::Read::read_to_string(&mut gz, &mut text).unwrap();
        let trace = serde_json::from_str(&text).unwrap();
        import_and_compare(&python, &scratch, &i.to_string(), &file, &trace);
    }
}

/// The base times of the two files differ, and the export has all times on one clock.
#[test]
fn several_imported_traces_have_separate_rows() {
    let Some(python) = python("perfetto_several") else { return };
    let scratch = Scratch::new();
    let base = 1_790_857_026_000_000_000i64;
    let mut files = Vec::new();
    for rank in 0..2 {
        let trace = json!({
            "baseTimeNanoseconds": base + rank * 500, "distributedInfo": {"rank": rank},
            "traceEvents": [
                {"ph": "X", "cat": "c", "name": "a", "pid": 7, "tid": 8, "ts": 1, "dur": 2},
                {"ph": "s", "id": 3, "pid": 7, "tid": 8, "ts": 1, "cat": "ac2g", "name": "ac2g"},
                {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}}
            ]
        });
        files.push(scratch.join(&format!("{rank}.json")));
        std::fs::write(&files[rank as usize], trace.to_string()).unwrap();
    }
    let (profile, output) = (scratch.join("p.cpt"), scratch.join("p.pftrace"));
    let mut command = Command::new(PROGRAM);
    command.args(["trace", "import"]).args(&files).arg("-o").arg(&profile);
    assert!(command.status().unwrap().success());
    export(&profile, &output, &[]);
    let decoded = decode(&python, &output);
    let slices: Vec<_> = decoded["slices"].as_array().unwrap().iter().collect();
    let of = |i: usize| json!([slices[i]["start"], slices[i]["row"], slices[i]["from"]]);
    assert_eq!(of(0), json!([base + 1_000, ["rank 0: python", "thread 8", 0, 8], [3]]));
    let row = ["rank 1: python", "thread 8"];
    assert_eq!(of(1), json!([base + 1_500, [row[0], row[1], 0, 8], [(1u64 << 48) + 3]]));
    assert_eq!(decoded["metadata"]["counterpoint"]["schema"], "counterpoint.trace-merge/1");
}
