//! Runs real OpenCL programs (`tests/programs/opencl`) on PoCL's device, with the plugin and its
//! layer.
//!
//! The test program starts itself again as a child process, with `OPENCL_LAYERS` set. The child
//! loads the program, which was compiled as a shared object, starts a recording, and calls the
//! program's `main`. The child writes a file with everything that the plugin hands over. The
//! expected numbers were counted by hand (see the top of each program's source), or are measured by
//! the programs.

mod child;
mod recorded;

use std::fs;
use std::path::Path;
use std::process::Command;

use recorded::{Seen, alone, build, cache, joined, layer, plugin, run, utc_ns};
use testkit::Scratch;

/// Kineto's numbers of the types of events, from include/counterpoint/kineto_plugin.h.
const MEMCPY: u32 = 4;
const MEMSET: u32 = 5;
const KERNEL: u32 = 6;
const RUNTIME: u32 = 8;
const COUNTER: u32 = 22;

/// The id of the op in which the child runs the program.
const OP: u64 = 4_242;

#[test]
fn every_command_is_found_by_name_with_its_sizes() {
    let scratch = Scratch::new();
    let kernel = format!("kernel_{:016x}", utc_ns() as u64 ^ u64::from(std::process::id()) << 40);
    let flag = format!("-DKERNEL={kernel}");
    let Some((program, object)) = build(&scratch, "vector", &[&flag]) else { return };
    let recorded = run(&scratch, &object, "", &[]);
    assert_eq!(recorded.written, alone(&program, "", false, &scratch).1, "the same result");
    joined(&recorded);
    // The expected numbers are at the top of vector.c.
    let count = |name: &str| recorded.named(name).len();
    assert_eq!(count(&kernel), 3);
    assert_eq!((count("grow"), count("write buffer"), count("copy buffer")), (1, 2, 1));
    assert_eq!((count("fill buffer"), count("map buffer"), count("unmap")), (1, 1, 1));
    assert_eq!(count("read buffer"), 1);
    assert_eq!(recorded.activities().len(), 11);
    let types = |event_type: u32| recorded.of_type(event_type).len();
    assert_eq!((types(KERNEL), types(MEMCPY), types(MEMSET)), (4, 6, 1));
    assert_eq!(
        (count("clEnqueueNDRangeKernel"), count("clBuildProgram"), count("clFinish")),
        (4, 1, 1)
    );
    assert_eq!(
        (count("clCreateContext"), count("clCreateBuffer"), count("clCreateKernel")),
        (1, 3, 2)
    );

    let argument = |event: &Seen, key: &str| event.arguments.get(key).cloned();
    let adds = recorded.named(&kernel);
    let groups: Vec<_> = adds.iter().map(|event| argument(event, "local size")).collect();
    assert_eq!(groups, [Some("[64]".to_owned()), None, None]);
    assert!(adds.iter().all(|event| event.arguments["global size"] == "[4096]"), "{adds:?}");
    let grow = recorded.named("grow")[0];
    assert_eq!(argument(grow, "global size").as_deref(), Some("[64, 32]"));
    assert_eq!(argument(grow, "global offset").as_deref(), Some("[0, 0]"));
    // In vector.c, a whole buffer has 4,096 numbers of 4 bytes.
    for (name, bytes) in [
        ("write buffer", 16_384),
        ("read buffer", 16_384),
        ("copy buffer", 1_024),
        ("fill buffer", 2_048),
        ("map buffer", 512),
    ] {
        assert_eq!(recorded.named(name)[0].arguments["bytes"], bytes.to_string());
    }
    assert_eq!(argument(recorded.named("unmap")[0], "bytes"), None, "missing is not 0");
    let of_op = OP.to_string();
    assert!(recorded.events.iter().all(|event| event.arguments["External id"] == of_op));

    let devices = recorded.rows("device");
    assert_eq!(devices.len(), 1);
    let listed = Command::new("clinfo").arg("--raw").output();
    if let Ok(listed) = listed {
        // `clinfo` is an independent source of the names.
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let of = |key: &str| {
            let line = listed.lines().find(|line| line.contains(key)).expect("clinfo knows");
            line.split_once(key).expect("found").1.trim().to_owned()
        };
        assert_eq!(devices[0][1], of("CL_DEVICE_NAME"));
        let label = format!("{}, driver {}, ", of("CL_DEVICE_VENDOR "), of("CL_DRIVER_VERSION"));
        assert!(devices[0][2].starts_with(&label), "{devices:?} {label}");
    }
    assert_eq!(recorded.rows("resource")[0][1..], ["1", "queue 1"]);
    assert_eq!(recorded.rows("thread").len(), 1);
    assert_eq!(recorded.rows("said"), Vec::<&[String]>::new());
}

#[test]
fn durations_are_those_that_the_program_measures() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "vector", &[]) else { return };
    let recorded = run(&scratch, &object, "times", &[]);
    joined(&recorded);
    let words = |line: &str| line.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
    let measured: Vec<(String, String)> = recorded
        .written
        .lines()
        .filter(|line| !line.starts_with("sum") && !line.starts_with("mapped"))
        .filter_map(words)
        .collect();
    let ours: Vec<(String, String)> = recorded
        .activities()
        .iter()
        .map(|event| {
            let name = event.name.trim_end_matches(" buffer").to_owned();
            (name, (event.end_ns - event.start_ns).to_string())
        })
        .collect();
    assert_eq!(ours, measured);
    assert_eq!(measured.len(), 11);
}

#[test]
fn counters_follow_the_commands() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "vector", &[]) else { return };
    let recorded = run(&scratch, &object, "", &[]);
    let values = |track: &str| -> Vec<f64> {
        let rows = recorded.rows("counter");
        let found = rows.iter().filter(|row| row[2] == track);
        found.map(|row| row[5].parse().expect("a number")).collect()
    };
    let depth = values("queue depth");
    // The depth changes when a command is enqueued and when it ends. For six of the 11 commands,
    // the number of bytes is known.
    assert_eq!((depth.len(), depth.last()), (22, Some(&0.0)));
    assert!(depth.iter().all(|depth| (0.0..=11.0).contains(depth)), "{depth:?}");
    let bytes = values("bytes in flight");
    assert_eq!((bytes.len(), bytes.last()), (12, Some(&0.0)));
    let most = bytes.iter().copied().fold(0.0, f64::max);
    assert!((16_384.0..=53_000.0).contains(&most), "{bytes:?}");
    let rows = recorded.rows("counter");
    assert!(rows.iter().all(|row| row[1] == "0" && row[3] == "queue 1"));
}

#[test]
fn queues_of_two_threads() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "threads", &[]);
    assert_eq!(recorded.written, "200 200\n");
    joined(&recorded);
    assert_eq!(recorded.named("grow").len(), 400);
    for queue in [1, 2] {
        let kernels: Vec<&Seen> =
            recorded.activities().into_iter().filter(|event| event.resource == queue).collect();
        // In queues.c, each queue has one write before the kernels and one read after them, and the
        // program waits for both.
        let names: Vec<&str> = kernels.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names.len(), 202);
        assert_eq!((names[0], names[1], names[201]), ("write buffer", "grow", "read buffer"));
        assert!(kernels.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns), "in order");
    }
    let calls = recorded.named("clEnqueueNDRangeKernel");
    let mut threads: Vec<i64> = calls.iter().map(|call| call.resource).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 2);
    let noted = recorded.rows("thread");
    assert!(threads.iter().all(|thread| noted.iter().any(|row| row[1] == thread.to_string())));
    assert!(calls.iter().all(|call| !call.arguments.contains_key("External id")), "other threads");
    assert_eq!(recorded.rows("said"), Vec::<&[String]>::new());
}

#[test]
fn commands_that_overtake_each_other() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "order", &[]);
    assert_eq!(recorded.written, "30\n");
    joined(&recorded);
    let kernels: Vec<i64> = recorded
        .activities()
        .iter()
        .filter(|event| event.name == "grow")
        .map(|event| event.id)
        .collect();
    assert_eq!(kernels.len(), 10);
    assert!(kernels.windows(2).all(|pair| pair[0] > pair[1]), "the last was released first");
    assert_eq!(recorded.rows("resource")[0][2], "queue 1 (out of order)");
}

#[test]
fn callbacks_enqueue() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "callback", &[]);
    assert_eq!(recorded.written, "5\n");
    joined(&recorded);
    assert_eq!(recorded.named("grow").len(), 5);
}

#[test]
fn forked_children_end() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "fork", &[]);
    assert_eq!(recorded.written, "400\n");
    joined(&recorded);
    assert_eq!(recorded.named("grow").len(), 400);
}

#[test]
fn commands_that_never_end_are_counted() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "unfinished", &[]);
    assert_eq!(recorded.written, "released\n");
    assert_eq!(recorded.named("grow").len(), 0);
    let calls = recorded.named("clEnqueueNDRangeKernel");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.flow == 0), "no arrow without an end");
    let said: Vec<&String> = recorded.rows("said").iter().map(|row| &row[0]).collect();
    let expected = "3 commands had not ended when the recording did, and have no times";
    assert!(said.iter().any(|said| said.contains(expected)), "{said:?}");
    assert_eq!(recorded.rows("missing"), [["2", "3"]], "a loss of its own");
    assert_eq!(recorded.rows("problem").len(), 0, "the plugin did nothing wrong");
}

#[test]
fn commands_that_fail_are_counted_and_no_failure_of_the_plugin() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let recorded = run(&scratch, &object, "failed", &[]);
    assert_eq!(recorded.written, "failed\n");
    assert_eq!(recorded.named("grow").len(), 0);
    let said = recorded.rows("said").concat().join("\n");
    assert!(said.contains("1 commands ended with an error, and have no times"), "{said}");
    assert_eq!(recorded.rows("missing"), [["2", "1"]]);
    assert_eq!(recorded.rows("problem").len(), 0);
}

#[test]
fn a_flood_is_bounded() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    let only_kernels = ("OPENCL_TEST_TYPES", "6");
    let recorded = run(&scratch, &object, "flood", &[only_kernels]);
    assert_eq!(recorded.written, "70000\n");
    // The plugin keeps at most 65,536 pending commands (docs/plugins.md). The write before the
    // kernels has already ended, so all pending commands are kernels.
    assert_eq!(recorded.named("grow").len(), 65_536);
    assert_eq!(recorded.events.len(), 65_536, "only what was requested");
    assert!(recorded.events.iter().all(|event| event.flow == 0), "no arrow without a begin");
    let said = recorded.rows("said").concat().join("\n");
    let expected = "4464 commands have no times, because too many others had not ended";
    assert!(said.contains(expected), "{said}");
    assert_eq!(recorded.rows("missing"), [["2", "4464"]]);

    // A buffer of one megabyte has room for a few thousand records.
    let limited =
        run(&scratch, &object, "flood", &[only_kernels, ("OPENCL_TEST_LIMIT", "1048576")]);
    assert_eq!(limited.written, "70000\n");
    let kept = limited.of_type(KERNEL).len();
    assert!(kept < 10_000, "{kept}");
    let said = limited.rows("said").concat().join("\n");
    assert!(said.contains("calls did not fit into the buffer"), "{said}");
    assert!(limited.rows("missing").iter().any(|row| row[0] == "1"), "{:?}", limited.rows);
    assert_eq!(limited.rows("problem").len(), 0);
}

#[test]
fn recordings_come_and_go_while_threads_enqueue() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "queues", &[]) else { return };
    for arguments in ["flood", "threads", "callback"] {
        let recorded = run(&scratch, &object, arguments, &[("OPENCL_TEST_CYCLES", "1")]);
        let expected = match arguments {
            "flood" => "70000\n",
            "threads" => "200 200\n",
            _ => "5\n",
        };
        assert_eq!(recorded.written, expected, "the results are the program's own");
        let events: usize = recorded.rows("events")[0][0].parse().expect("a number");
        assert!(events > 0, "{arguments}: some of it was recorded");
    }
}

#[test]
fn a_flush_hands_over_what_is_complete() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "vector", &[]) else { return };
    let recorded = run(&scratch, &object, "", &[("OPENCL_TEST_FLUSH", "1")]);
    joined(&recorded);
    assert_eq!(recorded.activities().len(), 11);
    let place = recorded.rows.iter().position(|row| row[0] == "flushed").expect("flushed");
    let later = recorded.rows[place..].iter().filter(|row| row[0] == "counter").count();
    assert_eq!((recorded.rows("counter").len(), later), (34, 0));
}

#[test]
fn the_program_cannot_see_the_layer() {
    let scratch = Scratch::new();
    let Some((program, object)) = build(&scratch, "visible", &[]) else { return };
    let (_, without) = alone(&program, "", false, &scratch);
    assert!(without.lines().count() > 20, "{without}");
    let (idle, seen) = alone(&program, "", true, &scratch);
    assert_eq!(seen, without, "while nothing is recorded");
    assert_eq!((idle.stdout.len(), idle.stderr.len()), (0, 0), "the layer prints nothing");
    let recorded = run(&scratch, &object, "", &[]);
    assert_eq!(recorded.written, without, "while it is recorded");
    joined(&recorded);
    // -30 is CL_INVALID_VALUE, and -36 is CL_INVALID_COMMAND_QUEUE.
    let code = |name: &str| -> Vec<String> {
        let calls = recorded.named(name);
        calls.iter().filter_map(|call| call.arguments.get("error").cloned()).collect()
    };
    assert_eq!(code("clEnqueueReadBuffer"), ["-30"]);
    assert_eq!(code("clEnqueueMapBuffer"), ["-30", "-30"]);
    assert_eq!(code("clFlush"), ["-36"]);
}

#[test]
fn clinfo_prints_the_same() {
    let clinfo = |layer: bool| {
        let mut command = Command::new("clinfo");
        command.env_remove("OPENCL_LAYERS");
        if layer {
            command.env("OPENCL_LAYERS", plugin());
        }
        command.output().ok()
    };
    let Some(without) = clinfo(false) else { return testkit::skip("opencl", "no clinfo") };
    let with = clinfo(true).expect("it is there");
    assert_eq!(String::from_utf8_lossy(&with.stdout), String::from_utf8_lossy(&without.stdout));
    assert_eq!((with.stderr, with.status), (without.stderr, without.status));
}

#[test]
fn the_clock_of_the_device_is_used_if_it_has_one() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "vector", &[]) else { return };
    const HOUR_NS: i64 = 3_600_000_000_000;
    for shift_ns in [0, HOUR_NS] {
        let Some(timer) = layer(&scratch, &format!("-DSHIFT={shift_ns}ull")) else { return };
        // The loader calls the last layer in `OPENCL_LAYERS` first, so the plugin's layer calls the
        // layer `timer`.
        let layers = format!("{timer}:{}", plugin().display());
        let mut recorded = run(&scratch, &object, "", &[("OPENCL_LAYERS", &layers)]);
        // The simulated clock is `shift_ns` ahead of the clock of PoCL's events, so the plugin
        // places the device's work too early by this time.
        for event in &mut recorded.events {
            if [MEMCPY, MEMSET, KERNEL].contains(&event.event_type) {
                event.start_ns += shift_ns;
                event.end_ns += shift_ns;
            }
        }
        joined(&recorded);
        assert_eq!(recorded.activities().len(), 11);
    }
}

#[test]
fn run_brings_the_layer_into_the_program() {
    let Some(dist) = std::env::var_os("COUNTERPOINT_DIST") else {
        return testkit::skip("opencl", "COUNTERPOINT_DIST is not set");
    };
    let scratch = Scratch::new();
    let name = format!("kernel_{:016x}", utc_ns());
    let Some((program, _)) = build(&scratch, "vector", &[&format!("-DKERNEL={name}")]) else {
        return;
    };
    let (profile, trace) = (scratch.join("p.cpt"), scratch.join("t.json"));
    let counterpoint = || {
        let mut command = Command::new(Path::new(&dist).join("bin/counterpoint"));
        command.env_remove("OPENCL_LAYERS").env("POCL_CACHE_DIR", cache());
        command
    };
    let mut run = counterpoint();
    run.args(["run", "-e", "none", "--plugin"]).arg(plugin()).arg("-o").arg(&profile).arg("--");
    let ran = run.arg(&program).arg(scratch.join("written")).output().expect("starts");
    assert!(ran.status.success(), "{ran:?}");
    let mut export = counterpoint();
    export.args(["trace", "export"]).arg(&profile).arg("-o").arg(&trace);
    let exported = export.output().expect("starts");
    assert!(exported.status.success(), "{exported:?}");
    let trace = fs::read_to_string(&trace).expect("written");
    // vector.c has 11 commands with one arrow each, and each arrow has two ends.
    let slices =
        |line: &&str| line.contains(&format!("\"name\":\"{name}\"")) && line.contains("\"X\"");
    assert_eq!(trace.lines().filter(slices).count(), 3, "{trace}");
    let arrows = trace.lines().filter(|line| line.contains("\"cat\":\"ac2g\""));
    assert_eq!(arrows.count(), 22, "{trace}");
}

#[test]
fn the_host_knows_that_the_plugin_is_a_layer() {
    let file = plugin();
    let layers = plugin_host::layers::opencl_layers([&*file], None);
    assert_eq!(layers.as_deref(), Some(file.as_os_str()));
}

#[test]
fn every_function_for_memory_passes_its_arguments_on() {
    let scratch = Scratch::new();
    let Some((program, object)) = build(&scratch, "memory", &[]) else { return };
    let recorded = run(&scratch, &object, "", &[]);
    assert_eq!(recorded.written, alone(&program, "", false, &scratch).1, "the same results");
    joined(&recorded);
    // The called function, the name of the command in the trace, and the command's bytes, as in
    // memory.c.
    let mut expected: Vec<(&str, &str, Option<&str>)> = vec![
        ("clEnqueueWriteBufferRect", "write buffer", Some("64")),
        ("clEnqueueCopyBufferRect", "copy buffer", Some("32")),
        ("clEnqueueReadBufferRect", "read buffer", Some("16")),
        ("clEnqueueMigrateMemObjects", "migrate", Some("512")),
        ("clEnqueueWriteImage", "write image", Some("1024")),
        ("clEnqueueCopyImage", "copy image", Some("256")),
        ("clEnqueueFillImage", "fill image", Some("64")),
        ("clEnqueueCopyImageToBuffer", "copy image to buffer", Some("128")),
        ("clEnqueueCopyBufferToImage", "copy buffer to image", Some("128")),
        ("clEnqueueMapImage", "map image", Some("1024")),
        ("clEnqueueUnmapMemObject", "unmap", None),
        ("clEnqueueReadImage", "read image", Some("1024")),
        ("clEnqueueSVMMemFill", "fill SVM", Some("256")),
        ("clEnqueueSVMMemcpy", "copy SVM", Some("128")),
        ("clEnqueueSVMMap", "map SVM", Some("256")),
        ("clEnqueueSVMUnmap", "unmap SVM", None),
        ("clEnqueueTask", "one", None),
        ("clEnqueueNativeKernel", "native kernel", None),
    ];
    let mut found: Vec<(&str, &str, Option<&str>)> = Vec::new();
    for activity in recorded.activities() {
        let call = recorded.of_type(RUNTIME).into_iter().find(|call| call.id == activity.id);
        let bytes = activity.arguments.get("bytes").map(String::as_str);
        found.push((&call.expect("joined").name, &activity.name, bytes));
    }
    // A device may lack some of the functions. The program prints the names of the functions that
    // the device lacks.
    let lacks: Vec<&str> =
        recorded.written.lines().filter_map(|line| line.strip_prefix("lacks ")).collect();
    expected.retain(|(call, ..)| !lacks.contains(call));
    assert_eq!(found, expected);
    assert!(lacks.len() <= 2, "{lacks:?}");
    for call in lacks {
        assert!(recorded.named(call)[0].arguments.contains_key("error"), "{call}");
    }
    let task = recorded.named("one")[0];
    assert_eq!((&*task.arguments["global size"], &*task.arguments["local size"]), ("[1]", "[1]"));
}

#[test]
fn a_copy_of_the_file_is_not_the_layer_and_that_is_said() {
    let scratch = Scratch::new();
    let Some((_, object)) = build(&scratch, "vector", &[]) else { return };
    // A symbolic link is the same file for the dynamic linker.
    let link = scratch.join("link.so");
    std::os::unix::fs::symlink(plugin(), &link).expect("links");
    let layer = link.display().to_string();
    let recorded = run(&scratch, &object, "", &[("OPENCL_LAYERS", &layer)]);
    assert_eq!(recorded.activities().len(), 11);
    // The program runs without the layer, and with a copy of the plugin's file as the layer.
    let copy = scratch.join("copy.so");
    fs::copy(plugin(), &copy).expect("copies");
    let copy = copy.display().to_string();
    for layer in ["", &copy] {
        let recorded = run(&scratch, &object, "", &[("OPENCL_LAYERS", layer)]);
        assert_eq!(recorded.events.len(), 0);
        let said = recorded.rows("said").concat().join("\n");
        let expected = "OpenCL was used without the layer: OPENCL_LAYERS must name ";
        assert!(said.contains(expected) && said.contains("libcounterpoint_opencl.so"), "{said}");
    }
    let file = plugin().display().to_string();
    let twice = format!("{file}:{file}");
    let recorded = run(&scratch, &object, "", &[("OPENCL_LAYERS", &twice)]);
    assert_eq!((recorded.activities().len(), recorded.named("clFinish").len()), (11, 1));
}
