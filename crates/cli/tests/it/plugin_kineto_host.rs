//! Tests plugins that were made with our SDK (`crates/plugin`). Their host
//! (`tests/programs/plugins/kineto_host.cpp`) was written only from the published description of
//! Kineto's plugin interface. `crates/plugin-host/tests/host.rs` tests our host with plugins that
//! were made without the SDK.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testkit::{Scratch, c};

use crate::support::trace_processor::TraceProcessor;

/// Returns the files of two plugins: the example `crates/plugin/examples/every_call.rs`, and
/// `telemetry` from the built distribution or from Cargo's output folder. Returns `None` if one of
/// them is not built.
fn plugins() -> Option<[PathBuf; 2]> {
    let test = std::env::current_exe().expect("a path");
    let built = test.parent()?.parent()?;
    let dist = std::env::var_os("COUNTERPOINT_DIST").map(PathBuf::from).unwrap_or_default();
    let shipped = dist.join("lib/counterpoint/plugins/telemetry.so");
    let telemetry = [shipped, built.join("libcounterpoint_telemetry.so")];
    let telemetry = telemetry.into_iter().find(|file| file.is_file())?;
    let example = built.join("examples/libevery_call.so");
    example.is_file().then_some([example, telemetry])
}

#[test]
fn a_kineto_host_loads_and_records_our_plugins() {
    let test = "a_kineto_host_loads_and_records_our_plugins";
    let Some(plugins) = plugins() else {
        return testkit::skip(
            test,
            "the plugins are not built (cargo build --workspace --examples)",
        );
    };
    let scratch = Scratch::new();
    let directory = scratch.join("plugins");
    std::fs::create_dir(&directory).expect("makes a folder");
    for file in &plugins {
        let name = file.file_name().expect("a name");
        std::fs::copy(file, directory.join(name)).expect("copies");
    }
    std::fs::write(directory.join("readme.txt"), "not a plugin").expect("writes");
    for compiler in ["g++", "clang++"] {
        let host = scratch.join(compiler);
        let flags = ["-std=c++17", "-ldl", "-lpthread"];
        let Some(()) = c::compile(compiler, "plugins/kineto_host.cpp", &host, &flags) else {
            testkit::skip("plugin_host", &format!("no {compiler}"));
            continue;
        };
        let trace = scratch.join(&format!("{compiler}.json"));
        let mut run = Command::new(&host);
        run.arg(&trace).arg("100").env("KINETO_PLUGIN_LIB_DIR_PATH", &directory);
        let done = run.output().expect("the host starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.is_empty(), "{compiler}: {done:?}");
        let printed = String::from_utf8_lossy(&done.stdout);
        assert!(printed.contains("every call: 3 events\n"), "{compiler}: {printed}");
        assert!(printed.contains("counterpoint telemetry: "), "{compiler}: {printed}");

        let bytes = std::fs::read(&trace).expect("written");
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let events = document["traceEvents"].as_array().expect("events");
        let find = |what: &str, is: &dyn Fn(&Value) -> bool| -> Value {
            let found = events.iter().find(|event| is(event));
            found.unwrap_or_else(|| panic!("{compiler}: no {what}")).clone()
        };
        // The values come from every_call.rs. This host does not have Counterpoint's extension,
        // which has a field for units. So the SDK adds the unit to the name of the series.
        let kernel = find("kernel", &|event| event["cat"] == "kernel");
        assert_eq!(kernel["name"], "größte \"matmul\"");
        assert_eq!(
            (&kernel["pid"], &kernel["tid"], &kernel["dur"]),
            (&3.into(), &7.into(), &7.5.into())
        );
        let args = &kernel["args"];
        for (key, value) in [("stream", 7), ("device", 3), ("correlation", 11), ("External id", 11)]
        {
            assert_eq!(args[key], value, "{key}");
        }
        assert_eq!(args["note"], "a \"quoted\"\nline");
        assert_eq!((&args["pushed"], &args["popped"]), (&2000.into(), &2000.into()), "two threads");
        let counter = find("counter", &|event| event["name"] == "bandwidth");
        assert_eq!((&counter["ph"], &counter["args"]["read GB/s"]), (&"C".into(), &10.5.into()));
        let memory = |event: &Value| {
            event["ph"] == "C" && event["name"].as_str().is_some_and(|name| name.contains("memory"))
        };
        assert!(find("memory", &memory)["args"].as_object().is_some_and(|args| !args.is_empty()));
        let ends: Vec<&str> = events
            .iter()
            .filter(|event| event["cat"] == "ac2g")
            .filter_map(|event| event["ph"].as_str())
            .collect();
        assert_eq!(ends, ["s", "f"], "{compiler}");
    }
    let Some(mut perfetto) = TraceProcessor::start(test) else { return };
    for compiler in ["g++", "clang++"] {
        let trace = scratch.join(&format!("{compiler}.json"));
        if !trace.exists() {
            continue;
        }
        let timeline = perfetto.timeline(&trace);
        let find = |name: &str| timeline.slices.iter().position(|slice| slice.name == name);
        let (launch, kernel) =
            (find("launch").expect("there"), find("größte \"matmul\"").expect("there"));
        assert_eq!(timeline.slices[kernel].dur, 7500, "{compiler}");
        assert_eq!(timeline.slices[kernel].row, ["accelerator 3", "stream 7"], "{compiler}");
        assert_eq!(timeline.flows, [[launch, kernel]], "{compiler}");
        let point = timeline.points.iter().find(|point| point.value == 10.5);
        assert!(point.is_some_and(|point| point.name.contains("bandwidth")), "{compiler}");
    }
}
