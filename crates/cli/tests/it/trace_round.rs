//! Tests that a trace still has the same contents after it was imported and exported.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::Scratch;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(args: &[&str], paths: &[&Path]) {
    let output = Command::new(PROGRAM).args(args).args(paths).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn export(profile: &Path, to: &Path, more: &[&str]) {
    run(&[&["trace", "export"], more, &["-o"]].concat(), &[to, profile]);
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn traces_of_other_programs_come_back() {
    let scratch = Scratch::new();
    let documents = [
        json!({
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "totalGlobalMem": 85_899_345_920u64}],
            "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [["a", null]]},
            "trace_id": "AB", "baseTimeNanoseconds": 1_790_857_026_000_000_000i64,
            "traceEvents": [
                {"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "ts": 0.0,
                 "args": {"name": "x"}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2,
                 "ts": 4316864524579.093, "dur": 784.997,
                 "args": {"correlation": 9_007_199_254_740_993i64, "Input Dims": [[], [1, 2]]}},
                {"ph": "X", "cat": "Kernel", "name": "k\"é\u{1}", "pid": 0, "tid": "stream 7",
                 "ts": -1.001, "dur": 0.0, "args": {}, "tts": 7, "bind_id": "0x1"},
                {"ph": "s", "id": 5, "pid": 1, "tid": 2, "ts": 1.0, "cat": "ac2g", "name": "ac2g"},
                {"ph": "f", "id": "x", "pid": 0, "tid": 7, "ts": 1.0, "cat": "ac2g", "bp": "e"},
                {"ph": "C", "cat": "mtia_counters", "name": "c", "pid": 1, "tid": 0, "ts": 2.5,
                 "args": {"read GB/s": 1.25, "": 10.5}},
                {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 3.0},
                {"ph": "B", "name": "b", "pid": 1, "tid": 1, "ts": 1.0},
                {"ph": "E", "pid": 1, "tid": 1, "ts": 2.0}
            ],
            "traceName": "/x.json"
        }),
        json!({ "traceEvents": [] }),
    ];
    for (i, document) in documents.iter().enumerate() {
        let at = |name: &str| scratch.join(&format!("{i}-{name}"));
        std::fs::write(at("t.json"), document.to_string()).unwrap();
        run(&["trace", "import", "-o"], &[&at("p.cpt"), &at("t.json")]);
        export(&at("p.cpt"), &at("u.json"), &[]);
        assert_eq!(read(&at("u.json")), *document);
        export(&at("p.cpt"), &at("g.json"), &["--vocabulary", "generic"]);
        let generic = read(&at("g.json"));
        let categories: Vec<_> = generic["traceEvents"].as_array().unwrap().iter().collect();
        if i == 0 {
            let of = |n: usize| &categories[n]["cat"];
            assert_eq!(
                (of(1), of(2), of(5)),
                (&json!("runtime"), &json!("kernel"), &json!("counter"))
            );
        }
    }
}

/// PyTorch's traces are in `shared/workloads/traces`, next to the checkout. Without this folder,
/// the test is skipped.
#[test]
fn torchs_traces_come_back() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/workloads/traces");
    let Ok(entries) = std::fs::read_dir(&shared) else {
        crate::support::skip("torchs_traces", "no traces beside the checkout");
        return;
    };
    let scratch = Scratch::new();
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for (i, file) in files.iter().enumerate() {
        let at = |name: &str| scratch.join(&format!("{i}-{name}"));
        run(&["trace", "import", "-o"], &[&at("p.cpt"), file]);
        export(&at("p.cpt"), &at("t.json"), &[]);
        let mut text = String::new();
        let file = std::fs::File::open(file).unwrap();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let torch: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read(&at("t.json")), torch);
        run(&["trace", "check"], &[&at("t.json")]);
    }
}

/// If several traces are imported into one profile, its export must equal the result of `trace
/// merge` for the same traces.
#[test]
fn several_traces_come_back_merged() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.join(name);
    let trace = |base: i64, rank: Value, pid: Value| {
        json!({
            "baseTimeNanoseconds": base, "distributedInfo": rank, "host_name": "h",
            "traceEvents": [
                {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": pid, "tid": 2, "ts": 1.5,
                 "dur": 2.0, "args": {"correlation": 7}},
                {"ph": "s", "id": 7, "pid": pid, "tid": 2, "ts": 1.5, "cat": "ac2g", "name": "ac2g"},
                {"ph": "f", "id": 7, "pid": pid, "tid": 2, "ts": 2.0, "cat": "ac2g", "bp": "e"},
                {"ph": "s", "id": "x", "pid": pid, "tid": 2, "ts": 2.0, "cat": "a"},
                {"ph": "f", "id": "x", "pid": pid, "tid": 2, "ts": 2.0, "cat": "a", "bp": "e"},
                {"ph": "X", "name": "k", "pid": "GPU \"0\"", "tid": "stream", "ts": 3, "dur": 1},
                {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}},
                {"ph": "M", "name": "thread_name", "pid": pid, "tid": 2, "args": {"name": "main"}},
                {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0,
                 "args": {"sort_index": 5}},
                {"ph": "i", "s": "g", "name": "end", "pid": "", "tid": "", "ts": 3.0}
            ]
        })
    };
    let base = 1_790_857_026_000_000_000i64;
    let traces = [
        trace(base, json!({"rank": 0}), json!(5)),
        trace(base + 1_000_000, json!({"rank": 1}), json!(5)),
        trace(base, json!(null), json!(1.5)),
    ];
    // With more than ten files, their order is not alphabetical: `t2` comes before `t10`.
    let files: Vec<PathBuf> = (0..12).map(|i| at(&format!("t{i}.json"))).collect();
    for (i, file) in files.iter().enumerate() {
        std::fs::write(file, traces[i % 3].to_string()).unwrap();
    }
    let paths = |first: &'static str| {
        std::iter::once(at(first)).chain(files.iter().cloned()).collect::<Vec<_>>()
    };
    let all = |args: &[&str], paths: &[PathBuf]| {
        run(args, &paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    };
    all(&["trace", "import", "-o"], &paths("all.cpt"));
    all(&["trace", "merge", "-o"], &paths("x.json"));
    let merged = read(&at("x.json"));
    export(&at("all.cpt"), &at("x.json"), &[]);
    assert_eq!(read(&at("x.json")), merged);
    run(&["trace", "check"], &[&at("x.json")]);
    export(&at("all.cpt"), &at("x.json"), &["--vocabulary", "generic"]);
    let generic = read(&at("x.json"));
    assert_eq!(generic["traceEvents"].as_array().unwrap().len(), {
        merged["traceEvents"].as_array().unwrap().len()
    });
    assert!(generic.to_string().contains("\"cat\":\"runtime\""));
}

/// Kineto's categories are converted to generic ones, and these are converted back to Kineto's.
#[test]
fn vocabularies_can_be_converted_back() {
    let categories = [
        ("cpu_op", "cpu_op"),
        ("cuda_runtime", "runtime"),
        ("xpu_runtime", "runtime"),
        ("privateuse1_driver", "driver"),
        ("gpu_memcpy", "memcpy"),
        ("kernel", "kernel"),
        ("cuda_sync", "sync"),
        ("mtia_counters", "counter"),
        ("python_function", "python_function"),
        ("something else", "something else"),
    ];
    let events = categories.iter().enumerate().map(|(i, (category, _))| {
        json!({"ph": "X", "cat": category, "name": "a", "pid": 1, "tid": 2, "ts": 10.0 * i as f64, "dur": 5.0,
               "own": [i], "args": {"stream": 7, "correlation": i}})
    });
    let trace = json!({ "traceEvents": events.collect::<Vec<_>>() });
    let scratch = Scratch::new();
    let at = |name: &str| scratch.join(name);
    std::fs::write(at("a.json"), trace.to_string()).unwrap();
    let import = |file: &str, profile: &str| {
        run(&["trace", "import", "-o"], &[&at(profile), &at(file)]);
    };
    let words = |file: &str| {
        let trace = read(&at(file));
        let events = trace["traceEvents"].as_array().unwrap().iter();
        events.map(|e| e["cat"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    import("a.json", "a.cpt");
    export(&at("a.cpt"), &at("same.json"), &[]);
    export(&at("a.cpt"), &at("kineto.json"), &["--vocabulary", "kineto"]);
    export(&at("a.cpt"), &at("generic.json"), &["--vocabulary", "generic"]);
    let generic: Vec<&str> = categories.iter().map(|(_, generic)| *generic).collect();
    assert_eq!(words("generic.json"), generic);
    for same in ["same.json", "kineto.json"] {
        assert_eq!(read(&at(same))["traceEvents"], trace["traceEvents"], "{same}");
    }
    import("generic.json", "g.cpt");
    export(&at("g.cpt"), &at("back.json"), &["--vocabulary", "kineto"]);
    assert_eq!(read(&at("back.json"))["traceEvents"], trace["traceEvents"]);
    // Without the option `--vocabulary`, the export keeps the imported categories.
    export(&at("g.cpt"), &at("still.json"), &[]);
    assert_eq!(read(&at("still.json")), read(&at("generic.json")));
    // These categories are generic from the start. The export converts them to the names that
    // Kineto uses for CUDA.
    let plain = json!([{"ph": "X", "cat": "runtime", "name": "a", "pid": 1, "tid": 2, "ts": 0, "dur": 5},
                       {"ph": "X", "cat": "Memcpy", "name": "a", "pid": 1, "tid": 2, "ts": 9, "dur": 5}]);
    std::fs::write(at("p.json"), plain.to_string()).unwrap();
    import("p.json", "p.cpt");
    export(&at("p.cpt"), &at("k.json"), &["--vocabulary", "kineto"]);
    assert_eq!(words("k.json"), ["cuda_runtime", "gpu_memcpy"]);
}
