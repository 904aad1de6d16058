//! Tests how a report shows its rows, and how `stats` shows values that do not vary.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// Two of the three lists contain names as IREE's compiler makes them. A report shows source
/// locations only if all names fit in full.
#[test]
fn ops_are_told_apart_at_every_width() {
    let tiny: Vec<String> =
        (0..7).map(|i| format!("tinyloop_dispatch_{i}_elementwise_16_f32")).collect();
    let transformer = [
        "tblock$async_dispatch_10_softmax_4x128x128xf32_dispatch_tensor_store",
        "tblock$async_dispatch_9_batch_matmul_4x128x128x16_f32",
        "tblock$async_dispatch_11_batch_matmul_4x128x16x128_f32",
        "tblock$async_dispatch_3_slow_memcpy",
        "tblock$async_dispatch_4_slow_memcpy",
        "tblock$async_dispatch_5_slow_memcpy",
    ];
    let transformer: Vec<String> = transformer.map(str::to_owned).into();
    let alike: Vec<String> =
        (0..9).map(|i| format!("{}{i}{}", "same".repeat(20), "alike".repeat(20))).collect();
    for (names, beginning) in [
        (&tiny, Some("tinyloop_dispatch_")),
        (&transformer, Some("tblock$async_dispatch_")),
        (&alike, None),
    ] {
        let scratch = Scratch::new();
        let mut script = ProfileScript::monotonic();
        for name in ["page-faults", "task-clock"] {
            script.counter(name, 0);
        }
        let process = script.process(1);
        let exports: Vec<&str> = names.iter().map(String::as_str).collect();
        let library = process.library("module", &exports);
        for (line, export) in (1..).zip(&mut library.exports) {
            export.source_path = "a/long/way/to/the/source/of/the/model/called/model.mlir".into();
            export.source_line = line;
        }
        let thread = process.thread("main");
        for i in 0..names.len() as u32 {
            thread.call(CallScript::new(i, u64::from(i) * 1_000, 100).group(100, &[1, 2]));
        }
        let at = scratch.join("x.cpt");
        script.write(&at);
        for width in [40, 60, 80, 100, 120, 160, 200, 250] {
            let mut command = Command::new(PROGRAM);
            let output = command.arg("report").arg(&at).args(["--width", &width.to_string()]);
            let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
            let rows = text.lines().skip_while(|line| !line.starts_with("op ")).skip(1);
            let ops: Vec<&str> =
                rows.take(names.len()).map(|r| r.split(' ').next().unwrap()).collect();
            let different: BTreeSet<&&str> = ops.iter().collect();
            assert_eq!(different.len(), names.len(), "{width}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            let cut = ops.iter().any(|op| op.starts_with('…'));
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let told = |beginning| words.contains(&format!("stands for {beginning}"));
            assert_eq!(cut, beginning.is_some_and(told), "{width}: {text}");
            let whole = ops.iter().all(|op| names.iter().any(|name| name == op));
            assert!(whole || !text.contains("a/long/way"), "{width}: {text}");
        }
    }
}

/// Overloaded functions are shown with their parameters. In JSON, the names are mangled, as they
/// were recorded. A filter accepts both the readable and the mangled names.
#[test]
fn mangled_names_are_readable() {
    let scratch = Scratch::new();
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    let names = ["_Z5scalePfi", "_Z3addIfEvPT_i", "_Z3addIfEvPT_l", "matmul"];
    process.library("module", &names);
    let thread = process.thread("main");
    for i in 0..names.len() as u32 {
        thread.call(CallScript::new(i, u64::from(i) * 1_000, 100));
    }
    let at = scratch.join("x.cpt");
    script.write(&at);
    let report = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("report").arg(&at).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = report(&["--width", "200"]);
    // `c++filt` and `c++filt -p` print these names.
    let shown = ["scale ", "void add<float>(float*, int) ", "void add<float>(float*, long) "];
    for name in shown.iter().chain(&["matmul "]) {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    assert!(!text.contains("_Z"), "{text}");
    let kept = |filter: &str| {
        let json = report(&["--format", "json", "--filter", filter]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let rows = json["rows"].as_array().unwrap().iter();
        rows.map(|row| row["op"].as_str().unwrap().to_owned()).collect::<BTreeSet<String>>()
    };
    let both: BTreeSet<String> = names[1..3].iter().map(|name| name.to_string()).collect();
    assert_eq!(kept("add<float>"), both);
    assert_eq!(kept("_Z3add*"), both);
}

/// If all ops have the same source location, the report for people states it once, and not in each
/// row.
#[test]
fn one_source_location_for_all_ops() {
    let scratch = Scratch::new();
    for (lines, expected) in [
        (
            [1, 1, 1],
            "source: m.mlir:1 is the only source location that the compiler kept for 3 ops;",
        ),
        ([1, 2, 2], "m.mlir:2"),
    ] {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        let library = process.library("module", &["a", "b", "c"]);
        for (line, export) in lines.into_iter().zip(&mut library.exports) {
            export.source_path = "m.mlir".into();
            export.source_line = line;
        }
        let thread = process.thread("main");
        (0..3u32).for_each(|i| {
            thread.call(CallScript::new(i, u64::from(i) * 1_000, 100));
        });
        let at = scratch.join(&format!("{}.cpt", lines[1]));
        script.write(&at);
        let run = |more: &[&str]| {
            let mut command = Command::new(PROGRAM);
            let output = command.arg("report").arg(&at).args(more).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let text = run(&["--width", "200"]);
        assert!(text.contains(expected), "{text}");
        let head = text.lines().find(|line| line.starts_with("op ")).unwrap();
        let alone = lines == [1; 3];
        assert_eq!(head.contains("source"), !alone, "{text}");
        assert_eq!(text.contains("--iree-hal-dump-executable-sources-to=DIR"), alone, "{text}");
        assert!(run(&["--format", "csv"]).contains(",m.mlir:1,"));
    }
}

/// One tick is 1 ns. The first calls of `slow` take 50,000 ns on one thread and 40,000 ns on the
/// other. Eleven more calls of `slow` on each thread take 100 ns each. So the first calls take
/// 90,000 ns of a total of 92,200 ns. `few` has too few calls to judge its first calls.
fn warming_up() -> (Scratch, std::path::PathBuf) {
    let scratch = Scratch::new();
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(9);
    process.library("m", &["slow", "even", "few"]);
    for (name, first, begin) in [("a", 50_000, 1_000_000), ("b", 40_000, 3_000_000)] {
        let thread = process.thread(name);
        let mut at: u64 = begin;
        let mut call = |export, duration, faults| {
            thread.call(CallScript::new(export, at, duration).group(duration, &[faults]));
            at += 100_000;
        };
        call(0, first, 7);
        call(2, 30_000, 0);
        // The first of these calls begins 200,000 ns after the thread's first call.
        (0..21).for_each(|i| call(i % 2, 100, 1));
        call(2, 100, 0);
    }
    let at = scratch.join("w.cpt");
    script.write(&at);
    (scratch, at)
}

fn run(at: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM).arg(words[0]).arg(at).args(&words[1..]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn first_calls_are_pointed_out_and_can_be_left_out() {
    let (_scratch, at) = warming_up();
    let (code, text, _) = run(&at, &["report", "--width", "400"]);
    assert_eq!(code, Some(0));
    let note = "note: the first call of a thread took much longer than the others (--skip-ms MS leaves out \
                the calls of each thread's first milliseconds): slow (2 first calls, up to 50.0 µs, 97.6 % of \
                its total; median 100 ns)";
    assert!(text.contains(note), "{text}");

    // On each thread, the first call of `slow` and the first call of `few` are left out.
    let (_, json, _) = run(&at, &["report", "--format", "json", "--skip-ms", "0.15"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["skip_ms"], 0.15);
    // 22 of the 24 calls of each thread are left.
    assert_eq!(json["total"]["calls"], 44);
    assert_eq!(json["total"]["duration_ns"], 4_400.0);
    let row = |name: &str| {
        let rows = json["rows"].as_array().unwrap();
        rows.iter().find(|row| row["op"] == name).unwrap().clone()
    };
    assert_eq!(
        (row("slow")["calls"].as_u64(), row("slow")["max_ns"].as_f64()),
        (Some(22), Some(100.0))
    );
    assert_eq!(row("slow")["counters"][0]["total"], 22);
    assert_eq!(row("even")["counters"][0]["total"], 20);
    assert_eq!(row("few")["total_ns"], 200.0);
    // The wall time consists of 21 intervals of 100,000 ns between the beginnings of the 22 calls,
    // and the last call of 100 ns.
    assert_eq!(json["threads"][0]["wall_ns"], 2_100_100.0);
    assert_eq!(json["threads"][0]["dispatch_ns"], 2_200.0);
    let (_, text, _) = run(&at, &["report", "--skip-ms", "0.15"]);
    assert!(!text.contains("much longer"), "{text}");
    assert!(text.contains("left out  the calls in the first 0.15 ms of each thread"), "{text}");
    let (_, csv, _) = run(&at, &["stats", "--format", "csv", "--op", "slow", "--skip-ms", "0.15"]);
    let all = csv.lines().nth(1).unwrap();
    assert!(all.starts_with("slow,m,,,,,,22,duration_ns,ns,22,100,0,100,100,"), "{all}");
    let (code, text, _) = run(&at, &["report", "--skip-ms", "1e9"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("no calls are left"), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("calls recorded, all of them in the first 1000000000 ms"), "{text}");
    assert!(!text.contains("none of its functions was called"), "{text}");
}

#[test]
fn a_filter_that_matches_nothing_is_a_finding() {
    let (_scratch, at) = warming_up();
    for words in [
        ["report", "--filter", "slwo"].as_slice(),
        &["report", "--filter", "slwo", "--format", "json"],
        &["report", "--filter", "slwo", "--format", "csv"],
        &["stats", "--op", "slwo"],
        &["stats", "--op", "slwo", "--format", "json"],
        &["stats", "--op", "slwo", "--format", "csv"],
        &["export", "--filter", "slwo", "--format", "csv"],
        &["export", "--filter", "slwo", "--format", "json"],
    ] {
        let (code, _, said) = run(&at, words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(said.contains(" slwo: no op of this profile matches\n"), "{words:?}: {said}");
        assert!(said.contains("counterpoint: hint: did you mean slow?"), "{words:?}: {said}");
        let right: Vec<&str> =
            words.iter().map(|w| if *w == "slwo" { "s*w" } else { *w }).collect();
        let (code, _, said) = run(&at, &right);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{right:?}");
    }
    let (code, _, said) = run(&at, &["stats", "--thread", "nobody"]);
    assert_eq!(code, Some(1), "{said}");
    let (code, _, said) =
        run(&at, &["export", "--what", "tracks", "--filter", "x", "--format", "csv"]);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn statistics_of_a_constant_are_one_line() {
    let (_scratch, at) = warming_up();
    let (_, text, _) = run(&at, &["stats", "--op", "even", "--thread", "a", "--width", "80"]);
    let expected = "\
Statistics for thread a (9), op even:
  10 matching calls, of which:
    10 calls on cpu 0
  duration: 100 ns in each of 10 calls
  page-faults: 1 in each of 10 calls
";
    assert_eq!(text, expected);
    // On this thread, `few` has one call of 30 µs and one of 100 ns.
    let one = ["stats", "--op", "few", "--thread", "a", "--width", "80"];
    let (_, text, _) = run(&at, &one);
    assert!(text.contains("  page-faults: 0 in each of 2 calls\n"), "{text}");
    assert!(text.contains("    mean: 15.1 µs") && !text.contains("correlation"), "{text}");
    let (_, text, _) = run(&at, &[&one[..], &["--skip-ms", "0.15"]].concat());
    let expected = "\
Statistics for thread a (9), op few:
  1 matching call, of which:
    1 call on cpu 0
  duration: 100 ns in one call
  page-faults: 0 in one call
";
    assert_eq!(text, expected);
    // A table that does not fit into 80 columns is left out.
    for (buckets, table) in [("16", true), ("24", true), ("25", false), ("256", false)] {
        let (_, text, _) =
            run(&at, &["stats", "--op", "slow", "--width", "80", "--buckets", buckets]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.contains("██") || text.contains("▇"), table, "{buckets}: {text}");
        assert_eq!(text.contains("columns (use a wider terminal,"), !table, "{buckets}: {text}");
    }
}

/// The second process was killed before it recorded its thread's usage.
#[test]
fn what_a_process_used_is_not_zero_if_it_is_not_known() {
    let mut script = ProfileScript::monotonic();
    for pid in [11, 12] {
        let process = script.process(pid);
        process.library("m", &["f"]);
        let thread = process.thread("t");
        thread.call(CallScript::new(0, 1_000, 500));
        if pid == 11 {
            let used = |cpu_ns| record::Usage { cpu_ns, ..record::Usage::default() };
            thread.usages = vec![(Some(used(0)), Some(used(7_000)))];
        }
    }
    let (_scratch, dir) = script.written();
    let output = Command::new(PROGRAM).args(["report", "--verbose"]).arg(&dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().skip_while(|line| !line.starts_with("threads "));
    let words: Vec<&str> = line.take(4).flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    assert!(line.contains("7.00 µs on a CPU") && line.contains("not known"), "{text}");
    assert!(!line.contains(" 0 ns on a CPU"), "{text}");
}
