//! Runs the plugin on a stand-in for CUPTI (`tests/programs/plugins/cupti.c`), which makes the
//! records of an imaginary program. See docs/cuda.md for tests with a device.
//!
//! Each test starts the test program again as a child process, because the plugin loads only one
//! CUPTI in a process. The child is a host of the plugin, and writes the data that it gets into a
//! file.

mod acts;
mod child;
mod collector;
mod counters;
mod ranges;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Scratch, c};

/// Kineto's numbers of the types of events, from include/counterpoint/kineto_plugin.h.
const MEMCPY: u32 = 4;
const MEMSET: u32 = 5;
const KERNEL: u32 = 6;
const RUNTIME: u32 = 8;
const DRIVER: u32 = 9;
const SYNC: u32 = 16;
const ANNOTATION: u32 = 2;
const PROFILER_RANGE: u32 = 18;

/// An event from the child's file.
#[derive(Clone, Debug)]
struct Seen {
    event_type: u32,
    name: String,
    start_ns: i64,
    end_ns: i64,
    id: i64,
    device: i64,
    resource: i64,
    /// The number of the arrow between this event and another one: positive if the arrow begins
    /// here, negative if it ends here, and 0 without an arrow.
    flow: i64,
    arguments: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Recorded {
    events: Vec<Seen>,
    rows: Vec<Vec<String>>,
}

impl Recorded {
    fn of_type(&self, event_type: u32) -> Vec<&Seen> {
        self.events.iter().filter(|event| event.event_type == event_type).collect()
    }

    fn rows(&self, kind: &str) -> Vec<&[String]> {
        self.rows.iter().filter(|row| row[0] == kind).map(|row| &row[1..]).collect()
    }

    fn said(&self) -> String {
        [self.rows("said"), self.rows("problem")].concat().concat().join("\n")
    }
}

fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let file = test.with_file_name("libcounterpoint_cuda.so");
    assert!(file.exists(), "{} is built with the tests", file.display());
    file
}

fn double(scratch: &Scratch, flags: &[&str]) -> Option<PathBuf> {
    double_of(scratch, "plugins/cupti.c", flags)
}

fn double_of(scratch: &Scratch, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let file = scratch.join("libcupti.so.13");
    let compiled = c::shared("cc", source, &file, flags);
    if compiled.is_none() {
        testkit::skip("cuda", "there is no C compiler");
    }
    compiled.map(|()| file)
}

fn run(cupti: &Path, scenario: &str, more: &[(&str, &str)]) -> Recorded {
    let scratch = Scratch::new();
    let lines = scratch.join("lines");
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child
        .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
        .env("CUDA_TEST_PLUGIN", plugin())
        .env("CUDA_TEST_CUPTI", cupti)
        .env("CUDA_TEST_OUT", &lines)
        .env("CUDA_TEST_SCENARIO", scenario)
        .envs(more.iter().copied());
    let output = child.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&lines).expect("the child wrote it");
    let mut recorded = Recorded { events: Vec::new(), rows: Vec::new() };
    for line in text.lines() {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if fields[0] != "event" {
            recorded.rows.push(fields);
            continue;
        }
        let number = |at: usize| fields[at].parse::<i64>().expect("a number");
        let pairs = fields[9..].iter().filter_map(|pair| pair.split_once('='));
        recorded.events.push(Seen {
            event_type: number(1) as u32,
            name: fields[2].clone(),
            start_ns: number(3),
            end_ns: number(4),
            id: number(5),
            device: number(6),
            resource: number(7),
            flow: number(8),
            arguments: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        });
    }
    recorded
}

fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

#[test]
fn every_record_becomes_the_event_that_it_is() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let before_ns = utc_ns();
    let recorded = run(&cupti, "normal", &[]);
    let span = before_ns..=utc_ns();
    // See the table at the top of cupti.c.
    let count = |event_type: u32| recorded.of_type(event_type).len();
    assert_eq!([KERNEL, MEMCPY, MEMSET, SYNC, RUNTIME, DRIVER].map(count), [5, 1, 1, 1, 10, 0]);
    let lengths = |event_type: u32| -> Vec<(&str, i64, i64)> {
        let all = recorded.of_type(event_type).into_iter();
        all.map(|event| (&*event.name, event.resource, event.end_ns - event.start_ns)).collect()
    };
    let kernels = lengths(KERNEL);
    assert!(kernels[..3].iter().all(|one| (one.1, one.2) == (7, 250)), "{kernels:?}");
    assert!(
        kernels[..3]
            .iter()
            .all(|one| ["saxpy(float, float const*, float*)", "_Z5saxpyfPKfPf"].contains(&one.0)),
        "as it is in C++, or as it is if the process has no C++ library: {kernels:?}"
    );
    assert_eq!(kernels[3..], [("double_plus_one", 8, 50); 2]);
    assert_eq!(lengths(MEMCPY), [("Memcpy HtoD (Pinned -> Device)", 7, 300)]);
    assert_eq!(lengths(MEMSET), [("Memset (Device)", 7, 20)]);
    // A wait is on the thread of its call, and inside of the call.
    let waits = recorded.of_type(SYNC);
    let call = recorded.of_type(RUNTIME).into_iter().find(|call| call.id == 6).expect("its call");
    assert_eq!(lengths(SYNC), [("Stream Sync", call.resource, 90)]);
    assert!(call.start_ns <= waits[0].start_ns && waits[0].end_ns <= call.end_ns);
    assert_eq!(waits[0].arguments["of stream"], "7");
    // The stand-in's clock is an hour behind UTC, but the times of the events are in UTC.
    let is_inside = |event: &Seen| span.contains(&event.start_ns);
    assert!(recorded.events.iter().all(is_inside), "{span:?} {:?}", recorded.events);

    let argument = |event: &Seen, key: &str| event.arguments.get(key).cloned().unwrap_or_default();
    let kernel = recorded.of_type(KERNEL)[0];
    let arguments = ["grid", "block", "registers per thread", "shared memory", "context", "stream"];
    let values = arguments.map(|key| argument(kernel, key));
    assert_eq!(values, ["[1024, 1, 1]", "[256, 1, 1]", "32", "48", "1", "7"]);
    assert_eq!(argument(recorded.of_type(MEMCPY)[0], "bytes"), "1048576");
    let nodes: Vec<String> =
        recorded.of_type(KERNEL).iter().map(|one| argument(one, "graph node id")).collect();
    assert_eq!(nodes, ["", "", "", "21", "22"]);

    let mut names: Vec<(&str, i64)> =
        recorded.of_type(RUNTIME).iter().map(|call| (&*call.name, call.id)).collect();
    names.sort_by_key(|(_, id)| *id);
    let expected = [
        ("cudaLaunchKernel", 1),
        ("cudaLaunchKernel", 2),
        ("cudaLaunchKernel", 3),
        ("cudaMemcpyAsync", 4),
        ("cudaMemsetAsync", 5),
        ("cudaStreamSynchronize", 6),
        ("cudaGraphLaunch", 7),
        ("cudaMalloc", 8),
        ("cudaLaunchKernel", 10),
        ("cudaLaunchKernel", 11),
    ];
    assert_eq!(names, expected);
    let failed: Vec<i64> = recorded
        .of_type(RUNTIME)
        .iter()
        .filter(|call| call.arguments.get("error").is_some_and(|code| code == "2"))
        .map(|call| call.id)
        .collect();
    assert_eq!(failed, [8]);
    // Arrows lead from API calls to their work on the device, but only if the times of this work
    // are known.
    let flows = |is_start: bool| -> Vec<i64> {
        let all = recorded.events.iter().filter(|event| (event.flow > 0) == is_start);
        let mut ids: Vec<i64> = all.map(|event| event.flow.abs()).filter(|id| *id != 0).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!((flows(true), flows(false)), (vec![1, 2, 3, 4, 5, 7], vec![1, 2, 3, 4, 5, 7, 7]));
    // In the stand-in, the first three calls are inside of the op.
    let of_op: Vec<i64> = recorded
        .events
        .iter()
        .filter(|event| argument(event, "External id") == "4242")
        .map(|event| event.id)
        .collect();
    assert_eq!((of_op.len(), of_op.iter().max()), (6, Some(&3)), "{of_op:?}");

    let devices = recorded.rows("device");
    assert_eq!(devices.last().expect("one")[..2], ["0", "NVIDIA Double"]);
    let label = "compute capability 9.0, 7 multiprocessors, 1024 MiB, CUPTI 130001, clock ±";
    assert!(devices[0][2].starts_with(label), "{devices:?}");
    let mut streams: Vec<&str> = recorded.rows("resource").iter().map(|row| &*row[2]).collect();
    streams.dedup();
    assert_eq!(streams, ["stream 7", "stream 8"]);
    assert_eq!(recorded.rows("missing"), [["2", "1"]], "the kernel without times");
    assert!(recorded.said().contains("1 kernels, copies or fills have no times"), "{recorded:?}");
    assert_eq!(recorded.rows("problem").len(), 0);
}

#[test]
fn a_flush_keeps_launches_until_their_work_has_come() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "normal", &[("CUDA_TEST_FLUSH", "1")]);
    let place = recorded.rows.iter().position(|row| row[0] == "flushed").expect("flushed");
    // Two launches are handed over after the flush: their kernels were not recorded, or have no
    // times.
    let later = recorded.rows[place..].iter().filter(|row| row[0] == "later").count();
    assert_eq!((later, recorded.of_type(RUNTIME).len()), (2, 10), "{:?}", recorded.rows);
}

#[test]
fn only_what_is_asked_for_is_collected() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    // Devices (8), contexts (9) and ids of ops (39) are also collected. In CUpti_ActivityKind, 10
    // means kernels and 5 means calls of the runtime.
    for (only, collected, events) in [(KERNEL, "8 9 10 39", 5), (RUNTIME, "5 8 9 39", 10)] {
        let recorded = run(&cupti, "normal", &[("CUDA_TEST_TYPES", &only.to_string())]);
        assert_eq!(recorded.rows("collected"), [[collected]]);
        assert_eq!((recorded.of_type(only).len(), recorded.events.len()), (events, events));
        assert!(recorded.events.iter().all(|event| event.flow == 0), "no arrow with one end");
    }
    // Without the record of its API call, the thread of the wait is not known, so the wait is in
    // the row of its stream.
    let waits = run(&cupti, "normal", &[("CUDA_TEST_TYPES", &SYNC.to_string())]);
    assert_eq!(waits.events.len(), 1);
    assert_eq!((waits.events[0].resource, &*waits.events[0].arguments["stream"]), (7, "7"));
    let all = run(&cupti, "normal", &[]);
    assert_eq!(all.rows("collected"), [["1 2 4 5 8 9 10 12 22 38 39"]], "no overhead, as asked");
}

#[test]
fn several_devices_and_a_part_of_one_have_rows_of_their_own() {
    for flags in [&[][..], &["-DCUDA11"]] {
        let scratch = Scratch::new();
        let Some(cupti) = double(&scratch, flags) else { return };
        let recorded = run(&cupti, "two", &[]);
        let kernels = recorded.of_type(KERNEL);
        let places: Vec<(i64, i64, i64)> = kernels
            .iter()
            .map(|one| (one.device, one.resource, one.end_ns - one.start_ns))
            .collect();
        assert_eq!(places, [(0, 7, 100), (1, 7, 100)]);
        let copies = recorded.of_type(MEMCPY);
        assert_eq!((copies.len(), copies[0].device, copies[0].resource), (1, 0, 9));
        assert_eq!(copies[0].name, "Memcpy PtoP (Device -> Device)");
        let argument = |key: &str| copies[0].arguments[key].as_str();
        assert_eq!(["bytes", "from device", "to device"].map(argument), ["512", "0", "1"]);
        let devices = recorded.rows("device");
        assert_eq!([&*devices[0][1], &*devices[1][1]], ["NVIDIA First", "NVIDIA Second"]);
        let part = "MIG instance 3 of the GPU, 1 of it";
        assert_eq!(
            [0, 1].map(|at: usize| devices[at][2].contains(part)),
            [false, true],
            "{devices:?}"
        );
        let mut rows: Vec<(&str, &str)> =
            recorded.rows("resource").iter().map(|row| (&*row[0], &*row[2])).collect();
        rows.sort_unstable();
        assert_eq!(rows, [("0", "stream 7"), ("0", "stream 9"), ("1", "stream 7")]);
        assert_eq!(recorded.rows("problem").len(), 0, "{recorded:?}");
    }
}

#[test]
fn shorter_records_of_cuda_11_say_the_same() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &["-DCUDA11"]) else { return };
    let recorded = run(&cupti, "normal", &[]);
    let count = |event_type: u32| recorded.of_type(event_type).len();
    assert_eq!([KERNEL, MEMCPY, MEMSET, SYNC, RUNTIME, DRIVER].map(count), [5, 1, 1, 1, 10, 0]);
    assert_eq!(recorded.rows("problem").len(), 0, "{recorded:?}");
    assert_eq!(recorded.rows("device")[0][..2], ["0", "NVIDIA Double"]);
}

#[test]
fn ranges_of_nvtx_are_on_their_threads() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    // A program may mark its first range before it uses CUDA, or after.
    for when in ["early", "late"] {
        let recorded = run(&cupti, "ranges", &[("CUDA_TEST_NVTX", when)]);
        assert_eq!(recorded.rows("ranges"), [["1"]], "CUPTI's answer");
        let ranges = recorded.of_type(ANNOTATION);
        let named: Vec<(&str, i64)> =
            ranges.iter().map(|one| (&*one.name, one.end_ns - one.start_ns)).collect();
        // See the table at the top of cupti.c. The last range ends with the recording.
        assert_eq!(named[..3], [("CCCL: inner", 300), ("now", 0), ("step", 1_000)]);
        assert_eq!((named.len(), named[3].0), (4, "open"), "{named:?}");
        let (step, inner) = (ranges[2], ranges[0]);
        assert!(step.start_ns <= inner.start_ns && inner.end_ns <= step.end_ns);
        assert!(ranges[3].end_ns >= ranges[3].start_ns, "{ranges:?}");
        assert!(ranges.iter().all(|one| one.resource == step.resource), "one thread");
    }
    let torch = scratch.join("libtorch_cpu.so");
    c::shared("cc", "plugins/empty.c", &torch, &[]).expect("there is a cc");
    let load = ("CUDA_TEST_LOAD", torch.to_str().expect("UTF-8"));
    let left = run(&cupti, "ranges", &[load]);
    assert_eq!(left.rows("ranges"), [["0"]], "CUPTI is not even loaded");
    let only = ("CUDA_TEST_TYPES", &*KERNEL.to_string());
    assert_eq!(run(&cupti, "ranges", &[only]).rows("ranges"), [["0"]], "nobody asked for ranges");
}

#[test]
fn what_does_not_fit_is_counted() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let all = run(&cupti, "flood", &[]);
    assert_eq!((all.events.len(), all.rows("missing").len()), (20_000, 0), "{}", all.said());
    let limited = run(&cupti, "flood", &[("CUDA_TEST_LIMIT", "500000")]);
    let missing: usize = limited.rows("missing")[0][1].parse().expect("a number");
    assert_eq!(limited.events.len() + missing, 20_000);
    assert!(limited.events.len() > 1_000 && missing > 1_000, "{missing}");
    assert_eq!(limited.rows("missing")[0][0], "1", "an overflow");
    assert_eq!(limited.rows("problem").len(), 0, "the plugin did nothing wrong");
}

#[test]
fn garbage_is_counted_and_harms_nothing() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "garbage", &[]);
    // In each of two buffers, at most the first call can be read.
    assert!(recorded.events.len() <= 2, "{recorded:?}");
    let said = recorded.said();
    assert!(said.contains("6 records or buffers of CUPTI are damaged"), "{said}");
    assert!(said.contains("1 records of CUPTI are of a kind that is not known"), "{said}");
}

#[test]
fn a_cupti_that_cannot_be_used_is_named_and_nothing_else_happens() {
    for (flags, expected) in [
        (&["-DBUSY"][..], "another profiler uses CUPTI in this process"),
        (&["-DLOST"], "cuptiActivityEnable of"),
        (&["-DOLD"], "has no function cuptiActivityEnable"),
        (&["-DREFUSED"], "cuptiGetVersion: error 999"),
    ] {
        let scratch = Scratch::new();
        let Some(cupti) = double(&scratch, flags) else { return };
        let recorded = run(&cupti, "nothing", &[]);
        assert_eq!(recorded.events.len(), 0);
        let said = recorded.said();
        assert!(said.contains("CUDA was not recorded") && said.contains(expected), "{said}");
    }
    let absent = run(Path::new("/nonexistent/libcupti.so.13"), "nothing", &[]);
    assert!(absent.said().contains("cannot open shared object file"), "{}", absent.said());
}

#[test]
fn pytorch_keeps_cupti_unless_the_user_says_otherwise() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let torch = scratch.join("libtorch_cpu.so");
    c::shared("cc", "plugins/empty.c", &torch, &[]).expect("there is a cc");
    let torch = torch.to_str().expect("UTF-8");
    let left = run(&cupti, "nothing", &[("CUDA_TEST_LOAD", torch)]);
    assert_eq!(left.events.len(), 0);
    assert!(left.said().contains("CUPTI is left to torch.profiler"), "{}", left.said());
    let taken =
        run(&cupti, "normal", &[("CUDA_TEST_LOAD", torch), ("CUDA_TEST_CONFIG", "cuda.torch=on")]);
    assert_eq!(taken.of_type(KERNEL).len(), 5);
}

#[test]
fn recordings_come_one_after_the_other_and_pause() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "normal", &[("CUDA_TEST_CYCLES", "3")]);
    // Nothing may be left of the two earlier recordings. The third one had a pause.
    assert_eq!(recorded.of_type(KERNEL).len(), 5);
    assert_eq!(recorded.rows("paused"), [["0"]], "nothing is recorded meanwhile");
}

#[test]
fn a_forked_child_hands_over_nothing_and_takes_nothing_away() {
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "normal", &[("CUDA_TEST_FORK", "1")]);
    assert_eq!(recorded.rows("forked"), [["0"]]);
    assert_eq!((recorded.of_type(KERNEL).len(), recorded.of_type(RUNTIME).len()), (5, 10));
}

#[test]
fn counters_and_ranges_are_in_the_profile() {
    let Some(dist) = std::env::var_os("COUNTERPOINT_DIST") else {
        return testkit::skip("cuda", "COUNTERPOINT_DIST is not set");
    };
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, "plugins/cupti_pm.c", &[]) else { return };
    let (program, profile) = (scratch.join("program"), scratch.join("p.cpt"));
    c::compile("cc", "plugins/cuda_program.c", &program, &["-ldl"]).expect("there is a cc");
    let counterpoint = || Command::new(Path::new(&dist).join("bin/counterpoint"));
    let mut run = counterpoint();
    run.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH");
    run.args(["run", "-e", "none", "--plugin"]).arg(plugin()).arg("--plugin-config");
    run.arg(format!("cuda.cupti={},cuda.counters=sm__cycles_active.avg", cupti.display()));
    run.arg("-o").arg(&profile).arg("--").arg(&program).arg(&cupti).args(["counters", "ranges"]);
    let ran = run.output().expect("starts");
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    let mut report = counterpoint();
    let reported = report.arg("report").arg(&profile).args(["--format", "json"]).output();
    let text = String::from_utf8(reported.expect("starts").stdout).expect("UTF-8");
    // See the comment at the top of cupti_pm.c: device 0 has the samples 0, 10 … 50, and device 1
    // has 1000, 1010 … 1050. For the mean over the time, each value is valid until the next sample,
    // so the last value does not count.
    for (device, mean) in [(0, 20.0), (1, 1020.0)] {
        let name = format!("\"track\":\"sm__cycles_active.avg\",\"name\":\"gpu{device}\"");
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let track = plain.split("{\"tracks\":").find(|track| track.contains(&name));
        let track = track.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(track.contains("\"samples\":6,"), "{track}");
        let found = track.split("\"mean\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
        let found: f64 =
            found.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{track}"));
        // The samples' times are rounded when they are converted to another clock, so the mean is
        // not exact.
        assert!((found / mean - 1.0).abs() < 1e-4, "{track}");
    }
    let mut export = counterpoint();
    export.args(["export", "--format", "csv"]).arg(&profile);
    let exported = export.output().expect("starts");
    let text = String::from_utf8_lossy(&exported.stdout);
    for name in ["step", "CCCL: inner", "open"] {
        assert_eq!(text.matches(&format!(",{name},")).count(), 1, "{name}: {text}");
    }
}

#[test]
fn run_brings_the_plugin_into_the_program() {
    let Some(dist) = std::env::var_os("COUNTERPOINT_DIST") else {
        return testkit::skip("cuda", "COUNTERPOINT_DIST is not set");
    };
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let (program, profile) = (scratch.join("program"), scratch.join("p.cpt"));
    c::compile("cc", "plugins/cuda_program.c", &program, &["-ldl"]).expect("there is a cc");
    let alone = Command::new(&program).arg(&cupti).output().expect("starts");
    assert_eq!((alone.status.code(), &*alone.stdout), (Some(6), &b"done\n"[..]));
    let counterpoint = || Command::new(Path::new(&dist).join("bin/counterpoint"));
    let mut run = counterpoint();
    run.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH");
    run.args(["run", "-e", "none", "--plugin"]).arg(plugin());
    run.arg("--plugin-config").arg(format!("cuda.cupti={}", cupti.display()));
    let ran = run.arg("-o").arg(&profile).arg("--").arg(&program).arg(&cupti).output();
    let ran = ran.expect("starts");
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(5), &b"done\n"[..]), "{ran:?}");
    let mut export = counterpoint();
    export.args(["export", "--format", "csv"]).arg(&profile);
    let exported = export.output().expect("starts");
    let text = String::from_utf8_lossy(&exported.stdout);
    // See the table at the top of cupti.c. The third kernel `double_plus_one` has no times, so it
    // is not in the profile.
    assert_eq!(text.matches(",double_plus_one,").count(), 2, "{text}");
    assert_eq!(text.matches(",cudaLaunchKernel,").count(), 5, "{text}");
}
