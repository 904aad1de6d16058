//! Tests exported traces by loading them into Perfetto's trace processor. The trace processor must
//! show the same for Chrome JSON and for `.pftrace`. The numbers of calls and the sums must be
//! those of `report --raw`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

use crate::support::trace_processor::{Point, Shown, Timeline, TraceProcessor, assert_same};
use crate::support::{Expected, Iree, Recorded, counterpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const REALTIME: i64 = 1_700_000_000_000_000_000;

pub fn run(args: &[&str], paths: &[&Path]) -> String {
    let output = Command::new(PROGRAM).args(args).args(paths).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?} {paths:?}: {words}");
    words
}

pub fn export(profile: &Path, to: &Path, more: &[&str]) -> String {
    run(&[&["trace", "export"], more, &["-o"]].concat(), &[to, profile])
}

/// Makes a timeline of Chrome JSON comparable with one of Perfetto's format. In Chrome JSON, calls
/// have arguments that only imports need, and three coordinates are written as a list. Perfetto's
/// format leaves out coordinates that are 0, and the trace processor shows each dot of a key as
/// `_`.
fn as_in_perfetto(mut timeline: Timeline) -> Timeline {
    for slice in &mut timeline.slices {
        let raw = ["export", "groups", "workgroups", "values", "process", "thread"];
        let of_import = |key: &str| {
            slice.category != "kernel" && raw.contains(&key.split('[').next().unwrap_or(key))
        };
        let args = std::mem::take(&mut slice.args);
        for (key, value) in args.into_iter().filter(|(key, _)| !of_import(key)) {
            let axis = [("[0]", "_x"), ("[1]", "_y"), ("[2]", "_z")].into_iter();
            let of = ["workgroup", "workgroups"].into_iter();
            let three = of.flat_map(|of| axis.clone().map(move |(from, to)| (of, from, to)));
            let mut found = three.filter(|(of, from, _)| key == format!("{of}{from}"));
            match found.next() {
                Some(_) if value == "0" => {}
                Some((of, _, to)) => drop(slice.args.insert(format!("{of}{to}"), value)),
                None => drop(slice.args.insert(key.replace('.', "_"), value)),
            }
        }
    }
    timeline
}

/// Checks that the trace processor shows the same for Chrome JSON and for Perfetto's format,
/// compressed or not. Returns the timeline of Perfetto's format.
fn both(oracle: &mut TraceProcessor, what: &str, profile: &Path, scratch: &Scratch) -> Timeline {
    both_with(oracle, what, profile, scratch, &[])
}

fn both_with(
    oracle: &mut TraceProcessor,
    what: &str,
    profile: &Path,
    scratch: &Scratch,
    more: &[&str],
) -> Timeline {
    let [json, plain, small] = ["o.json", "o.pftrace", "small.pftrace"].map(|n| scratch.join(n));
    export(profile, &json, more);
    export(profile, &plain, more);
    export(profile, &small, &[more, &["--compress"]].concat());
    run(&["trace", "check"], &[&json, &plain, &small]);
    let chrome = as_in_perfetto(oracle.timeline(&json));
    let compressed = oracle.timeline(&small);
    let perfetto = oracle.timeline(&plain);
    assert_same(what, &chrome, &perfetto);
    assert_same(what, &compressed, &perfetto);
    for ends in &perfetto.flows {
        let of = ends.map(|place| perfetto.slices[place].args.get("correlation"));
        assert!(of[0].is_some() && of[0] == of[1], "{what}: {of:?}");
    }
    perfetto
}

/// Returns those of `slices` that are not inside of another one of them in the same row.
/// [`as_reported`] adds up only these, because a report does not count an op's calls inside of
/// calls of the same op.
pub fn outermost<'a>(slices: &[&'a Shown]) -> Vec<&'a Shown> {
    let around = |s: &Shown, o: &Shown| {
        o.row == s.row && o.depth < s.depth && o.ts <= s.ts && s.ts + s.dur <= o.ts + o.dur
    };
    slices.iter().copied().filter(|s| !slices.iter().any(|o| around(s, o))).collect()
}

/// Checks that the timeline's calls, times and counters are those of the report with `--raw`.
fn as_reported(what: &str, timeline: &Timeline, profile: &Path) {
    let mut report = Command::new(PROGRAM);
    let report =
        report.arg("report").arg(profile).args(["--raw", "--format", "json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let mut calls = BTreeMap::<&str, (u64, i64, BTreeMap<String, u64>)>::new();
    let mut by_name = BTreeMap::<&str, Vec<&Shown>>::new();
    for slice in timeline.slices.iter().filter(|slice| slice.category == "cpu_op") {
        by_name.entry(&slice.name).or_default().push(slice);
    }
    for slice in by_name.values().flat_map(|slices| outermost(slices)) {
        let of = calls.entry(&slice.name).or_default();
        (of.0, of.1) = (of.0 + 1, of.1 + slice.dur);
        for (key, value) in &slice.args {
            let value = value.as_str().and_then(|text| text.parse::<u64>().ok());
            *of.2.entry(key.clone()).or_insert(0) += value.unwrap_or(0);
        }
    }
    let mut reported = BTreeMap::<&str, (u64, f64, BTreeMap<&str, u64>)>::new();
    for row in report["rows"].as_array().unwrap() {
        let of = reported.entry(row["op"].as_str().unwrap()).or_default();
        of.0 += row["calls"].as_u64().unwrap();
        of.1 += row["total_ns"].as_f64().unwrap();
        for counter in row["counters"].as_array().into_iter().flatten() {
            let total = counter["total"].as_u64().unwrap_or(0);
            *of.2.entry(counter["name"].as_str().unwrap()).or_insert(0) += total;
        }
    }
    assert_eq!(calls.keys().collect::<Vec<_>>(), reported.keys().collect::<Vec<_>>(), "{what}");
    for (op, (count, ns, counters)) in &reported {
        let (shown, shown_ns, args) = &calls[op];
        assert_eq!(shown, count, "{what}: calls of {op}");
        // Begins and ends are rounded to whole nanoseconds.
        let off = (*shown_ns as f64 - ns).abs();
        assert!(off <= *count as f64, "{what}: {op} took {ns} ns, shown as {shown_ns}");
        for (counter, total) in counters {
            assert_eq!(args.get(*counter).unwrap_or(&0), total, "{what}: {counter} of {op}");
        }
    }
    let mut series = BTreeMap::<String, f64>::new();
    for Point { name, value, .. } in &timeline.points {
        if let Some((_, counter)) = name.split_once(" counters ") {
            let counter = counter
                .strip_prefix("of group ")
                .map_or(counter, |rest| rest.split_once(' ').map_or(rest, |(_, counter)| counter));
            *series.entry(counter.to_owned()).or_insert(0.0) += value;
        }
    }
    for counter in report["total"]["counters"].as_array().into_iter().flatten() {
        let name = counter["name"].as_str().unwrap();
        let total = counter["total"].as_u64().unwrap_or(0) as f64;
        assert_eq!(series.get(name).copied().unwrap_or(0.0), total, "{what}: series of {name}");
    }
}

#[test]
fn the_kept_profile_is_shown_correctly() {
    let Some(mut oracle) = TraceProcessor::start("oracle_kept") else { return };
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/profiles");
    let mut seen = 0;
    for entry in std::fs::read_dir(profiles).unwrap() {
        let path = entry.unwrap().path();
        if path.join("manifest.json").exists() {
            let timeline = both(&mut oracle, "kept", &path, &Scratch::new());
            as_reported("kept", &timeline, &path);
            let window = ["--from", "10ms", "--to", "500ms"];
            let kinds = ["--category", "cpu_op", "--category", "kernel"];
            let more = [&window[..], &kinds[..]].concat();
            let part = both_with(&mut oracle, "part", &path, &Scratch::new(), &more);
            let whole: std::collections::BTreeSet<_> =
                timeline.slices.iter().map(|s| (&s.name, s.ts, s.dur, &s.row)).collect();
            assert!(part.slices.iter().all(|s| whole.contains(&(&s.name, s.ts, s.dur, &s.row))));
            assert!(!part.slices.is_empty() && part.slices.len() < timeline.slices.len());
            assert_eq!(part.points, []);
            assert!(!timeline.slices.is_empty() && !timeline.points.is_empty());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// Every second counter is 0 in most calls, and in some calls a group of counters is not read.
#[test]
fn counters_are_read_as_they_were_counted() {
    let Some(mut oracle) = TraceProcessor::start("oracle_counters") else { return };
    let mut script = ProfileScript::monotonic();
    for i in 0..11 {
        script.counter(&format!("c{i}"), i / 6);
    }
    let process = script.process(100);
    process.library("m", &["f"]);
    let thread = process.thread("t");
    let mut sums = [0u64; 11];
    let mut points = 0;
    for i in 0..600u64 {
        // The set of counters that are 0 often changes from one call to the next.
        let value = |c: u64| match (c % 2, (i / (c + 1)) % 5) {
            (0, 0) | (1, 1..) => 1 + 1_000 * c + i,
            _ => 0,
        };
        let call = CallScript::new(0, 1_000 + 100 * i, 50);
        let groups = [0..6, 6..11].map(|group| group.map(value).collect::<Vec<_>>());
        let read = [i % 7 != 3, i % 11 != 5];
        let call = groups.iter().zip(read).fold(call, |call, (values, read)| {
            if read { call.group(5, values) } else { call.unread() }
        });
        for (c, sum) in sums.iter_mut().enumerate().filter(|(c, _)| read[c / 6]) {
            *sum += value(c as u64);
            points += 1;
        }
        thread.call(call);
    }
    let (scratch, dir) = script.written();
    let timeline = both(&mut oracle, "counters", &dir, &scratch);
    as_reported("counters", &timeline, &dir);
    assert_eq!(timeline.points.len(), points);
    for (c, sum) in sums.iter().enumerate() {
        let name = format!("t 100 counters of group {} c{c}", c / 6);
        let of = timeline.points.iter().filter(|point| point.name == name);
        assert_eq!(of.map(|point| point.value).sum::<f64>(), *sum as f64, "{name}");
    }
}

/// The profile has names with special characters, calls of length 0, calls that begin and end
/// together, a process with several programs, and many threads.
#[test]
fn hostile_profiles_are_shown_correctly() {
    let Some(mut oracle) = TraceProcessor::start("oracle_hostile") else { return };
    let mut script = ProfileScript::monotonic();
    script.counter("a\"b\\c,\u{7}é", 0);
    script.counter("-05e9 \u{2028}", 0);
    let names = [
        "",
        " ",
        "\"\\/\u{8}\n\r\t\u{1f}\u{7f}",
        "é\u{2028}\u{feff}😀",
        "{\"ph\":\"E\"}",
        "a\u{1}b",
    ];
    for generation in 0..3 {
        // The process executes one program after another.
        let process = script.process(100);
        process.generation = generation;
        process.library("lib \"x\"\\", &names);
        let thread = process.thread("main \"\\\n\u{1b}[31m");
        let base = 10_000 + 10_000 * u64::from(generation);
        let call = |export: u32, start: u64, duration: u64| {
            CallScript::new(export, base + start, duration).group(5, &[start, 0])
        };
        // A call is recorded when it ends, so inner calls come first.
        for one in [
            call(0, 0, 0),
            call(1, 0, 0),
            call(2, 100, 0),
            call(3, 100, 100),
            call(4, 200, 50),
            call(5, 250, 0),
            call(0, 250, 50),
            call(1, 100, 200),
            call(2, 100, 200),
        ] {
            thread.call(one);
        }
    }
    let process = script.process(2_000);
    process.library("many", &["f"]);
    for i in 0..300u64 {
        let thread = process.thread("worker");
        for call in 0..5 {
            thread.call(CallScript::new(0, 100_000 + 7 * i + 1_000 * call, 500).group(5, &[0, i]));
        }
    }
    let (scratch, dir) = script.written();
    let timeline = both(&mut oracle, "hostile", &dir, &scratch);
    as_reported("hostile", &timeline, &dir);
    let all = timeline.slices.iter().filter(|s| s.category == "cpu_op");
    let calls = |name: &'static str| all.clone().filter(move |s| s.name == name);
    let depth = |s: &Shown| s.depth;
    // Of calls that begin together, the one that was recorded last contains the others.
    let mut depths: Vec<_> =
        calls(names[2]).filter(|s| s.ts == REALTIME + 10_100).map(depth).collect();
    depths.sort_unstable();
    assert_eq!(depths, [0, 3]);
    assert_eq!(calls("f").count(), 1_500);
    let rows: std::collections::BTreeSet<_> = calls("f").map(|s| s.row.clone()).collect();
    assert_eq!(rows.len(), 300);
}

/// The clock of real time was set back by 5 s between the snapshots of the first process and that
/// of the second.
#[test]
fn snapshots_of_clocks_are_in_order() {
    let Some(mut oracle) = TraceProcessor::start("oracle_clocks") else { return };
    let mut script = ProfileScript::monotonic();
    let at = |ns: u64, set: i64| record::Snapshot {
        ticks: ns,
        monotonic_ns: ns,
        realtime_ns: (REALTIME + ns as i64 + set) as u64,
        uncertainty_ticks: 10,
    };
    let process = script.process(100);
    process.library("m", &["f"]);
    process.snapshots = vec![at(500_000, 0), at(300_000, 0)];
    process.thread("t").call(CallScript::new(0, 400_000, 50));
    let process = script.process(101);
    process.library("m", &["f"]);
    process.snapshots = vec![at(700_000, -5_000_000_000)];
    process.thread("t").call(CallScript::new(0, 200_000, 50));
    let (scratch, dir) = script.written();
    let timeline = both(&mut oracle, "clocks", &dir, &scratch);
    let mut begins: Vec<_> = timeline.slices.iter().map(|s| s.ts - REALTIME).collect();
    begins.sort_unstable();
    assert_eq!(begins, [200_000, 200_000, 400_000, 400_000]);
}

/// Records `iree-run-module` without worker threads, with worker threads, and in several processes.
#[test]
fn fresh_recordings_are_shown_correctly() {
    let Some(mut oracle) = TraceProcessor::start("oracle_fresh") else { return };
    let Some(program) = counterpoint("oracle_fresh") else { return };
    let Some(iree) = Iree::new("oracle_fresh") else { return };
    let expected = Expected::of("mlp");
    let run_module = |devices: &[&str]| {
        let mut command = Command::new(iree.tool("iree-run-module"));
        command.args(devices).arg(format!("--module={}", iree.module("mlp", false).display()));
        command.args(expected.arguments());
        command
    };
    let task = ["--device=local-task", "--task_topology_max_group_count=2"];
    let one = run_module(&task);
    let mut line = vec![one.get_program().to_string_lossy().into_owned()];
    line.extend(one.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    let mut several = Command::new("/bin/sh");
    several.args(["-c", "\"$@\" & \"$@\"; wait; exec \"$@\"", "sh"]).args(&line);
    let calls: u64 = expected.ops.values().map(|(calls, _)| calls).sum();
    for (what, processes, mut command) in [
        ("local-sync", 1, run_module(&["--device=local-sync"])),
        ("local-task", 1, one),
        ("several processes", 3, several),
    ] {
        let recorded = Recorded::run(&program, "page-faults,task-clock", &mut command);
        assert!(recorded.output.status.success(), "{what}: {}", recorded.stderr());
        let timeline = both(&mut oracle, what, &recorded.path(), &Scratch::new());
        as_reported(what, &timeline, &recorded.path());
        let shown = timeline.slices.iter().filter(|s| s.category == "cpu_op").count();
        assert_eq!(shown as u64, processes * calls, "{what}");
    }
}

#[test]
fn forks_are_shown_correctly() {
    let Some(mut oracle) = TraceProcessor::start("oracle_fork") else { return };
    let Some(program) = counterpoint("oracle_fork") else { return };
    let programs = crate::support::Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).arg("fork");
    let recorded = Recorded::run(&program, "page-faults:u,task-clock:u", &mut command);
    assert!(recorded.output.status.success(), "{}", recorded.stderr());
    let timeline = both(&mut oracle, "fork", &recorded.path(), &Scratch::new());
    as_reported("fork", &timeline, &recorded.path());
    assert!(recorded.calls_per_process().len() > 1);
}

/// A sample that is missing, infinite or NaN has no point in the timeline.
#[test]
fn tracks_of_any_value_are_shown() {
    use profile::TracksWriter;
    use profile::safe_dir::Dir;
    use profile::tracks::{Reading, Readings, Sample, Scope, Series, Times};
    let Some(mut oracle) = TraceProcessor::start("oracle_tracks") else { return };
    let mut script = ProfileScript::monotonic();
    let process = script.process(100);
    process.library("m", &["f"]);
    process.thread("t").call(CallScript::new(0, 1_000, 50));
    let (scratch, dir) = script.written();
    let mut tracks =
        TracksWriter::create(&Dir::open(&dir).unwrap(), "run", Readings::Values).unwrap();
    let values = [Some(-1.5), None, Some(f64::NAN), Some(1e300), Some(f64::INFINITY), Some(0.0)];
    let mut expected = Vec::new();
    for (name, scope) in [("a \"b\"", Scope::Machine), ("", Scope::Process(100))] {
        let series = tracks.describe(Series {
            track: "temperature".into(),
            name: name.into(),
            unit: "°C".into(),
            scale: 1.0,
            scope,
            times: Times::Ticks,
            cumulative: false,
            interval_ns: 1_000,
            source: "test".into(),
        });
        for (i, value) in values.iter().enumerate() {
            let time = 1_000 + 1_000 * i as i64;
            let reading = value.map(Reading::Value);
            tracks.push(Sample { series, time, reading }).unwrap();
            expected.extend(value.filter(|n| n.is_finite()).map(|n| (name.is_empty(), time, n)));
        }
    }
    tracks.finish().unwrap();
    let timeline = both(&mut oracle, "tracks", &dir, &scratch);
    let mut found: Vec<_> = timeline
        .points
        .iter()
        .map(|point| (point.process == "model", point.ts - REALTIME, point.value))
        .collect();
    found.sort_by_key(|(of_process, ts, _)| (*of_process, *ts));
    assert_eq!(found, expected);
}
