//! Tests counters of single kernels and of ops, with `tests/programs/plugins/cupti_range.c` in
//! place of CUPTI.

use std::path::Path;
use std::process::Command;

use testkit::{Scratch, c};

use crate::{KERNEL, PROFILER_RANGE, Recorded, Seen, double, double_of, plugin, run};

pub const SOURCE: &str = "plugins/cupti_range.c";
pub const THREADS: [&str; 1] = ["-pthread"];
const THREE: &str =
    "cuda.range-counters=sm__cycles_active.avg+dram__bytes_read.sum.per_second+ratio__without.pct";

/// Returns `None` if there is no C compiler.
fn counted(flags: &[&str], scenario: &str, configuration: &str) -> Option<Recorded> {
    let scratch = Scratch::new();
    let cupti = double_of(&scratch, SOURCE, &[&THREADS, flags].concat())?;
    let recorded = run(&cupti, scenario, &[("CUDA_TEST_CONFIG", configuration)]);
    assert_eq!(recorded.rows("left"), [["0"]], "objects of CUPTI's are given back");
    Some(recorded)
}

fn values(range: &Seen, names: &[&str]) -> Vec<Option<f64>> {
    let value =
        |name: &&str| range.arguments.get(*name).map(|text| text.parse().expect("a number"));
    names.iter().map(value).collect()
}

const NAMES: [&str; 3] =
    ["sm__cycles_active.avg", "dram__bytes_read.sum.per_second", "ratio__without.pct"];

#[test]
fn each_kernel_has_its_own_values() {
    for flags in [&[][..], &["-DCUDA12"]] {
        let Some(recorded) = counted(flags, "launches", THREE) else { return };
        let ranges = recorded.of_type(PROFILER_RANGE);
        // See the table at the top of cupti_range.c. The kernel of launch 5 has two ranges, so its
        // values are not known. Kernel k on device d has the value 1000 d + 10 k + c for counter c.
        let name = |range: &Seen| range.name.clone();
        let expected = [
            (1, 0, "saxpy(float, float const*, float*)", 0.0),
            (2, 1, "double_plus_one", 1010.0),
            (3, 0, "kernel 0 of a graph", 20.0),
            (3, 0, "kernel 1 of a graph", 30.0),
        ];
        assert_eq!(ranges.len(), expected.len(), "{recorded:?}");
        for (range, (launch, device, kernel, value)) in ranges.iter().zip(expected) {
            assert_eq!((range.id, range.device), (launch, device));
            let plain = if launch == 1 { "_Z5saxpyfPKfPf" } else { kernel };
            let names = [kernel, plain].map(|name| format!("{name} (counted)"));
            assert!(names.contains(&name(range)), "{range:?}");
            let ratio = (value == 0.0).then_some(2.0);
            assert_eq!(values(range, &NAMES), [Some(value), Some(value + 1.0), ratio]);
            assert!(range.start_ns <= range.end_ns);
        }
        let of_op = ranges.iter().map(|range| range.arguments.get("External id").map(|id| &**id));
        assert_eq!(of_op.collect::<Vec<_>>(), [Some("4242"), None, None, None]);
        let thread = |range: &Seen| range.arguments["thread"].clone();
        let own = thread(ranges[0]);
        assert!(ranges.iter().all(|range| thread(range) == own), "all of one thread");
        assert!(ranges.iter().all(|range| range.resource == ranges[0].resource), "one row");
        let rows = recorded.rows("resource");
        let named = rows.iter().filter(|row| row[2] == "counted kernels and ops");
        assert_eq!(named.map(|row| &*row[0]).collect::<Vec<_>>(), ["0", "1"]);
        let series = recorded.rows("counter");
        assert_eq!(series.len(), 4 * 2 + 1, "{series:?}");
        let plus = series.iter().filter(|row| row[3] == "double_plus_one");
        let plus: Vec<_> = plus.map(|row| (&*row[1], &*row[2], &*row[4], &*row[5])).collect();
        let (cycles, bytes) = (("1", NAMES[0], "", "1010"), ("1", NAMES[1], "B/s", "1011"));
        assert_eq!(plus, [cycles, bytes]);
        assert_eq!(recorded.rows("missing"), [["3", "1"]], "a loss that views show");
        let said = recorded.said();
        assert!(said.contains("1 launches of kernels have no counters"), "{said}");
    }
}

#[test]
fn counters_that_need_several_runs_of_a_kernel_are_read() {
    let twice = "cuda.range-counters=needs__two_passes.sum";
    let Some(recorded) = counted(&[], "launches", twice) else { return };
    let ranges = recorded.of_type(PROFILER_RANGE);
    let read: Vec<_> =
        ranges.iter().map(|one| values(one, &["needs__two_passes.sum"])[0]).collect();
    assert_eq!(read, [Some(3.0), Some(1013.0), Some(23.0), Some(33.0)]);
}

#[test]
fn ranges_alone_can_be_asked_for_and_left_out() {
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, SOURCE, &THREADS) else { return };
    for (only, ranges) in [(PROFILER_RANGE, 4), (KERNEL, 0)] {
        let only = only.to_string();
        let more = [("CUDA_TEST_CONFIG", THREE), ("CUDA_TEST_TYPES", &*only)];
        let recorded = run(&cupti, "launches", &more);
        assert_eq!(recorded.of_type(PROFILER_RANGE).len(), ranges, "{recorded:?}");
        assert_eq!(
            (recorded.rows("left"), recorded.events.len()),
            (vec![&["0".to_owned()][..]], ranges)
        );
    }
}

#[test]
fn threads_wait_for_each_other() {
    let Some(recorded) = counted(&[], "crowd", THREE) else { return };
    let ranges = recorded.of_type(PROFILER_RANGE);
    assert_eq!(ranges.len(), 40, "each launch of both threads: {}", recorded.said());
    let mut read: Vec<f64> = ranges.iter().filter_map(|one| values(one, &NAMES)[0]).collect();
    read.sort_by(f64::total_cmp);
    let expected: Vec<f64> = (0..40).map(|kernel| 10.0 * f64::from(kernel)).collect();
    assert_eq!(read, expected, "each kernel once");
    assert_eq!(recorded.rows("said").len(), 0, "{recorded:?}");
}

#[test]
fn a_kernel_that_waits_for_another_ends_and_has_no_values() {
    let Some(recorded) = counted(&[], "stuck", THREE) else { return };
    let ranges = recorded.of_type(PROFILER_RANGE);
    let names: Vec<&str> = ranges.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["later (counted)"], "counting goes on");
    assert!(recorded.said().contains("2 launches of kernels have no"), "{}", recorded.said());
}

#[test]
fn a_launch_whose_end_waits_for_another_thread_does_not_keep_it_from_launching() {
    let Some(recorded) = counted(&[], "late", THREE) else { return };
    let ranges = recorded.of_type(PROFILER_RANGE);
    let names: Vec<&str> = ranges.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["later (counted)"], "counting goes on");
    assert_eq!(recorded.rows("missing"), [["3", "2"]], "{}", recorded.said());
}

#[test]
fn nothing_is_counted_during_a_capture() {
    let Some(recorded) = counted(&[], "captures", THREE) else { return };
    let names: Vec<&str> = recorded.of_type(PROFILER_RANGE).iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["before (counted)", "after (counted)"], "{}", recorded.said());
    assert_eq!(recorded.rows("missing"), [["3", "2"]], "{}", recorded.said());
    // In the scenario `streams`, CUPTI does not report that a capture begins, so the plugin has to
    // ask the driver. `CUDA_TEST_CAPTURE` is 2 to capture the stream 0x77, and 1 to capture a
    // blocking stream.
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, SOURCE, &THREADS) else { return };
    let driver = driver_of(&scratch);
    for (how, counted) in [("2", &["other (counted)"][..]), ("1", &[])] {
        let more = [
            ("CUDA_TEST_CONFIG", THREE),
            ("CUDA_TEST_DRIVER", &*driver),
            ("CUDA_TEST_CAPTURE", how),
        ];
        let recorded = run(&cupti, "streams", &more);
        let names: Vec<&str> =
            recorded.of_type(PROFILER_RANGE).iter().map(|one| &*one.name).collect();
        assert_eq!(names, counted, "{}", recorded.said());
        let missing = (4 - counted.len()).to_string();
        assert_eq!(recorded.rows("missing"), [["3", &*missing]], "{}", recorded.said());
        assert_eq!(recorded.rows("left"), [["0"]]);
    }
}

#[test]
fn a_context_that_is_destroyed_is_forgotten() {
    let Some(recorded) = counted(&[], "gone", THREE) else { return };
    let ranges = recorded.of_type(PROFILER_RANGE);
    let names: Vec<&str> = ranges.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["before (counted)", "after (counted)"], "{}", recorded.said());
    // In the scenario `untold`, nobody tells the plugin that the context is destroyed and that
    // another one gets its address.
    let Some(recorded) = counted(&[], "untold", THREE) else { return };
    let names: Vec<&str> = recorded.of_type(PROFILER_RANGE).iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["before (counted)", "after (counted)"], "{}", recorded.said());
}

#[test]
fn what_prevents_counting_is_named_and_everything_else_is_recorded() {
    let wrong = "cuda.range-counters=sm__cycles_active.avg+no__such.sum";
    for (flags, configuration, expected) in [
        (&[][..], wrong, "cuptiProfilerHostConfigAddMetrics: error 17; `ncu"),
        (
            &["-DRANGES_FORBIDDEN"],
            THREE,
            "cuptiProfilerGetCounterAvailability: error 35; root may read counters",
        ),
        (&["-DNO_START"], THREE, "cuptiRangeProfilerStart: error 27"),
    ] {
        let Some(recorded) = counted(flags, "launches", configuration) else { return };
        assert_eq!(recorded.of_type(PROFILER_RANGE).len(), 0, "{expected}");
        let said = recorded.said();
        let whole = format!("kernels were not counted: device 0: {expected}");
        assert!(said.contains(&whole), "{expected}: {said}");
        assert!(recorded.rows("device").len() == 1, "{recorded:?}");
    }
    // cupti.c is like a CUPTI before update 2 of CUDA 12.6.
    let scratch = Scratch::new();
    let Some(cupti) = double(&scratch, &[]) else { return };
    let recorded = run(&cupti, "normal", &[("CUDA_TEST_CONFIG", THREE)]);
    let said = recorded.said();
    assert!(
        said.contains("kernels were not counted") && said.contains("has no function"),
        "{said}"
    );
    assert_eq!(recorded.of_type(KERNEL).len(), 5);
}

#[test]
fn nothing_is_counted_in_a_pause_and_each_recording_begins_anew() {
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, SOURCE, &THREADS) else { return };
    let more = [("CUDA_TEST_CONFIG", THREE), ("CUDA_TEST_CYCLES", "3")];
    let recorded = run(&cupti, "launches", &more);
    assert_eq!(recorded.of_type(PROFILER_RANGE).len(), 4, "{recorded:?}");
    assert_eq!(recorded.rows("left"), [["0"]]);
}

/// Compiles the stand-in for CUDA's driver, and returns the path of the library.
fn driver_of(scratch: &Scratch) -> String {
    let driver = scratch.join("libcuda.so.1");
    let soname = "-Wl,-soname,libcuda.so.1";
    c::shared("cc", "plugins/cuda_driver.c", &driver, &[soname]).expect("there is a cc");
    driver.to_str().expect("UTF-8").to_owned()
}

const TWO: &str =
    "cuda.range-counters=sm__cycles_active.avg+dram__bytes_read.sum.per_second,cuda.ranges=op";

/// The number, the device and the values of an op.
type Op = (String, i64, Vec<Option<f64>>);

/// Returns what the child has written, and the ops that have values.
fn ops_of(act: &str, configuration: &str) -> Option<(Recorded, Vec<Op>)> {
    let scratch = Scratch::new();
    let cupti = double_of(&scratch, SOURCE, &THREADS)?;
    let driver = driver_of(&scratch);
    let more = [
        ("CUDA_TEST_CONFIG", configuration),
        ("CUDA_TEST_DRIVER", &*driver),
        ("CUDA_TEST_OPS", act),
    ];
    let recorded = run(&cupti, "nothing", &more);
    assert_eq!(recorded.rows("left"), [["0"]], "objects of CUPTI's are given back");
    assert_eq!(recorded.rows("broken"), [["0"]], "captures");
    let found = recorded
        .of_type(PROFILER_RANGE)
        .into_iter()
        .map(|one| (one.arguments["External id"].clone(), one.device, values(one, &NAMES[..2])));
    let found = found.collect();
    Some((recorded, found))
}

fn op(number: u64, device: i64, kernels: u32) -> Op {
    let values = [5, 6].map(|of_one: u32| Some(f64::from(of_one * kernels)));
    (number.to_string(), device, values.to_vec())
}

#[test]
fn an_op_has_the_values_of_its_kernels() {
    let Some((recorded, found)) = ops_of("plain", TWO) else { return };
    assert_eq!(found, [op(7, 0, 3), op(10, 1, 1)], "{recorded:?}");
    assert_eq!(recorded.rows("missing").len(), 0, "{}", recorded.said());
    // Counters for which the same work must run twice have no values for ops.
    let twice = "cuda.range-counters=needs__two_passes.sum,cuda.ranges=op";
    let Some((recorded, _)) = ops_of("plain", twice) else { return };
    let said = recorded.said();
    assert!(said.contains("ops were not counted: these counters need 2 runs"), "{said}");
    // The ops 7, 8, 9 and 10 are missing. (Op 8 would be a part of op 7 if op 7 was counted.)
    assert_eq!(recorded.rows("missing"), [["3", "4"]], "{said}");
}

#[test]
fn an_op_that_waits_for_another_device_does_not_keep_its_op_from_running() {
    let Some((recorded, found)) = ops_of("collective", TWO) else { return };
    assert_eq!(found, [op(20, 0, 1)], "{recorded:?}");
    assert_eq!(recorded.rows("missing"), [["3", "2"]], "the ops of the other thread");
    assert!(recorded.said().contains("2 ops have no counters"), "{}", recorded.said());
}

#[test]
fn an_op_in_a_capture_is_not_waited_for() {
    let Some((recorded, found)) = ops_of("capture", TWO) else { return };
    assert_eq!(found, [op(9, 0, 1)], "{recorded:?}");
    assert_eq!(recorded.rows("missing"), [["3", "2"]], "{}", recorded.said());
}

#[test]
fn ops_in_a_pause_are_not_counted() {
    let Some((recorded, found)) = ops_of("pause", TWO) else { return };
    assert_eq!(found, [op(7, 0, 1), op(9, 0, 1)], "{recorded:?}");
    assert_eq!(recorded.rows("missing").len(), 0, "{}", recorded.said());
}

#[test]
fn an_op_that_is_open_when_a_recording_ends_is_forgotten() {
    let Some((recorded, found)) = ops_of("stale", TWO) else { return };
    assert_eq!(found, [op(8, 0, 1), op(9, 0, 1)], "{recorded:?}");
}

#[test]
fn counters_of_kernels_are_in_the_profile() {
    let Some(dist) = std::env::var_os("COUNTERPOINT_DIST") else {
        return testkit::skip("cuda", "COUNTERPOINT_DIST is not set");
    };
    let scratch = Scratch::new();
    let Some(cupti) = double_of(&scratch, SOURCE, &THREADS) else { return };
    let (program, profile) = (scratch.join("program"), scratch.join("p.cpt"));
    c::compile("cc", "plugins/cuda_program.c", &program, &["-ldl"]).expect("there is a cc");
    let counterpoint = || Command::new(Path::new(&dist).join("bin/counterpoint"));
    let mut run = counterpoint();
    run.env_remove("CUDA_INJECTION64_PATH").env_remove("NVTX_INJECTION64_PATH");
    run.args(["run", "-e", "none", "--plugin"]).arg(plugin()).arg("--plugin-config");
    run.arg(format!("cuda.cupti={},{THREE}", cupti.display())).arg("-o").arg(&profile);
    let ran = run.arg("--").arg(&program).arg(&cupti).arg("launches").output().expect("starts");
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    let mut report = counterpoint();
    let reported = report.arg("report").arg(&profile).args(["--format", "json"]).output();
    let text = String::from_utf8(reported.expect("starts").stdout).expect("UTF-8");
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    // See the table at the top of cupti_range.c.
    let name = format!("\"track\":\"{}\",\"name\":\"double_plus_one\"", NAMES[0]);
    let track = plain.split("{\"tracks\":").find(|track| track.contains(&name));
    let track = track.unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(track.contains("1010"), "{track}");
    // The launch with two ranges has no counters.
    assert!(text.contains("\"counter_read_failed\""), "{text}");
    assert!(!text.contains("\"plugin_failed\""), "{text}");
    let (trace, mut export) = (scratch.join("t.json"), counterpoint());
    let exported = export.args(["trace", "export"]).arg(&profile).arg("-o").arg(&trace).output();
    assert!(exported.expect("starts").status.success());
    let text = std::fs::read_to_string(&trace).expect("it is written");
    let ranges = text.lines().filter(|line| line.contains("\"cuda_profiler_range\""));
    let ranges: Vec<&str> = ranges.collect();
    assert_eq!(ranges.len(), 4, "{text}");
    let value = format!("\"{}\":1010", NAMES[0]);
    let of_it: Vec<_> = ranges.iter().filter(|range| range.contains("double_plus_one")).collect();
    assert!(of_it.len() == 1 && of_it[0].replace(' ', "").contains(&value), "{ranges:?}");
}
