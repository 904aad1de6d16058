//! Tests several plugins in one recording: three builds of `tests/programs/plugins/two_devices.c`.
//! Like plugins of different vendors, they use the same numbers for their devices, and for the
//! arrows from launches to kernels.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::{Scratch, c};

use crate::support::trace_processor::TraceProcessor;
use crate::support::{Programs, counterpoint};

const VENDORS: [&str; 3] = ["ares", "boreas", "ceto"];
/// The number of kernels on each device. `KERNEL_NS` is the duration of a kernel.
const KERNELS: u64 = 50;
const KERNEL_NS: f64 = 8000.0;

fn plugins(scratch: &Scratch) -> Vec<String> {
    let compile = |vendor: &&str| {
        let file = scratch.join(&format!("{vendor}.so"));
        let flags = ["-std=gnu11".to_owned(), format!("-DVENDOR=\"{vendor}\"")];
        c::shared("cc", "plugins/two_devices.c", &file, &[&flags[0], &flags[1]])
            .expect("a C compiler: Rust links with it");
        file.display().to_string()
    };
    VENDORS.iter().map(compile).collect()
}

/// Runs the program, which must succeed, and returns its standard output.
fn said(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Records the plugins in a program and without a program. Returns the paths of both profiles.
fn profiles(program: &Path, scratch: &Scratch, plugins: &[String]) -> [String; 2] {
    let [inside, alone] = ["in.cpt", "alone.cpt"].map(|name| scratch.join(name));
    let [inside, alone] = [inside, alone].map(|path| path.display().to_string());
    let mut command = Command::new(program);
    command.args(["run", "-e", "none", "-o", &inside]);
    plugins.iter().for_each(|plugin| _ = command.args(["--plugin", plugin]));
    let done = command.arg("--").arg(Programs::get().other("plugged")).arg("return").output();
    assert_eq!(done.as_ref().unwrap().status.code(), Some(3), "{done:?}");
    let mut arguments = vec!["plugin", "run", "--for", "1ms", "-o", &alone];
    arguments.extend(plugins.iter().map(String::as_str));
    said(program, &arguments);
    [inside, alone]
}

fn report(program: &Path, profile: &str, options: &[&str]) -> Value {
    let arguments = [&["report", profile, "--format", "json"], options].concat();
    serde_json::from_str(&said(program, &arguments)).unwrap()
}

#[test]
fn each_plugin_has_its_own_devices() {
    let Some(program) = counterpoint("several plugins") else { return };
    let scratch = Scratch::new();
    let plugins = plugins(&scratch);
    for profile in profiles(&program, &scratch, &plugins) {
        let rows = |options: &[&str]| -> Vec<Value> {
            let options = [&["--by", "device"], options].concat();
            report(&program, &profile, &options)["rows"].as_array().unwrap().clone()
        };
        let all = rows(&[]);
        let on_devices: Vec<&Value> = all.iter().filter(|row| !row["device"].is_null()).collect();
        let mut names = BTreeMap::new();
        for row in &on_devices {
            assert_eq!(row["calls"], KERNELS, "{profile}: {row}");
            // A device runs one kernel at a time, so its total time and self time are the sum of
            // all durations. The profile stores times in ticks of another clock, so each duration
            // may be wrong by up to 2 ns.
            let expected = KERNELS as f64 * KERNEL_NS;
            for time in [&row["total_ns"], &row["self_ns"]] {
                let off = (time.as_f64().unwrap() - expected).abs();
                assert!(off <= KERNELS as f64 * 2.0, "{profile}: {row}");
            }
            let name = row["device_name"].as_str().unwrap();
            let vendor = VENDORS.iter().position(|vendor| name.contains(&format!("{vendor}.so")));
            let given = ["first", "second"].iter().position(|given| name.starts_with(given));
            names.insert((vendor.unwrap(), given.unwrap()), row["device"].as_u64().unwrap());
        }
        assert_eq!(on_devices.len(), 6, "{profile}: {all:#?}");
        let numbers: Vec<_> =
            names.iter().map(|((_, name), number)| (*name as u64, *number)).collect();
        assert_eq!(numbers, [(0, 0), (1, 1)].repeat(3), "as the plugins number them");
        // Without a recorded program, each plugin counts as one process.
        let processes = if profile.ends_with("in.cpt") { 1 } else { 3 };
        let total = report(&program, &profile, &[])["total"].clone();
        let counts = ["processes", "threads", "devices"].map(|key| total[key].as_u64().unwrap());
        assert_eq!(counts, [processes, 3, 6], "{profile}");
        let second = rows(&["--device", "1"]);
        assert_eq!(second.len(), 3, "{profile}: the second device of each: {second:#?}");
        let only = rows(&["--device", "second (boreas.so)*"]);
        assert_eq!(only.len(), 1, "{profile}: {only:#?}");
    }
}

#[test]
fn each_arrow_leads_from_a_launch_to_its_own_kernel() {
    let Some(program) = counterpoint("arrows of several plugins") else { return };
    let Some(mut perfetto) = TraceProcessor::start("arrows of several plugins") else { return };
    let scratch = Scratch::new();
    let plugins = plugins(&scratch);
    let mut expected: Vec<[String; 2]> = Vec::new();
    for vendor in VENDORS {
        expected.push([0, 1].map(|pass| format!("{vendor} pass {pass}")));
        let arrow = |i| ["launch", "kernel"].map(|what| format!("{vendor} {what} {i}"));
        expected.extend((0..2 * KERNELS).map(arrow));
    }
    expected.sort();
    for profile in profiles(&program, &scratch, &plugins) {
        for file in ["t.json", "t.pftrace"] {
            let to = scratch.join(file);
            said(&program, &["trace", "export", &profile, "-o", to.to_str().unwrap()]);
            // `timeline` fails if two arrows have the same number.
            let timeline = perfetto.timeline(&to);
            let ends = |flow: &[usize; 2]| flow.map(|end| timeline.slices[end].name.clone());
            let mut arrows: Vec<[String; 2]> = timeline.flows.iter().map(ends).collect();
            arrows.sort();
            assert_eq!(arrows, expected, "{profile}: {file}");
            let mut kernels: BTreeMap<&[String; 2], u64> = BTreeMap::new();
            for slice in timeline.slices.iter().filter(|slice| slice.name.contains(" kernel ")) {
                assert_eq!((slice.dur, slice.depth), (8000, 0), "{profile}: {file}: {slice:?}");
                *kernels.entry(&slice.row).or_default() += 1;
            }
            assert_eq!(kernels.values().collect::<Vec<_>>(), [&KERNELS; 6], "{profile}: {file}");
            let series = perfetto.query(
                "select min(value), max(value), count(*) from counter group by track_id order by 1",
            );
            let one = |value: u64| vec![json!(value), json!(value), json!(KERNELS)];
            let expected = [10, 10, 10, 20, 20, 20].map(one);
            assert_eq!(series, expected, "{profile}: {file}");
        }
    }
}

#[test]
fn counters_belong_to_their_devices_in_a_program_and_without_one() {
    let Some(program) = counterpoint("counters of devices") else { return };
    let scratch = Scratch::new();
    let plugins = plugins(&scratch);
    for plugins in [&plugins[..1], &plugins] {
        let [inside, alone] = profiles(&program, &scratch, plugins).map(|profile| {
            let report = report(&program, &profile, &[]);
            let keys = ["track", "name", "scope", "scope_number", "samples", "min", "max"];
            let series = |track: &Value| Value::from(keys.map(|key| track[key].clone()).to_vec());
            report["tracks"].as_array().unwrap().iter().map(series).collect::<Vec<_>>()
        });
        let one = |device: u64| {
            let value = 10.0 + 10.0 * device as f64;
            json!(["load", "percent", "device", device, 50, value, value])
        };
        let expected: Vec<Value> = (0..2 * plugins.len() as u64).map(|at| one(at % 2)).collect();
        assert_eq!(alone, expected);
        assert_eq!(inside, expected);
        for profile in ["in.cpt", "alone.cpt"] {
            std::fs::remove_dir_all(scratch.join(profile)).unwrap();
        }
    }
}

#[test]
fn a_recording_of_counters_is_not_called_empty() {
    let Some(program) = counterpoint("a recording of counters") else { return };
    let scratch = Scratch::new();
    let [inside, alone] = ["in.cpt", "alone.cpt"].map(|name| scratch.join(name));
    let [inside, alone] = [inside, alone].map(|path| path.display().to_string());
    let run = ["run", "-e", "none", "--plugin", "telemetry", "-o", &inside, "--", "sleep", "0.1"];
    let done = Command::new(&program).args(run).output().unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(text.contains(" counters of plugins") && !text.contains("no calls"), "{text}");
    said(&program, &["plugin", "run", "telemetry", "--for", "100ms", "-o", &alone]);
    for profile in [inside, alone] {
        let shown = said(&program, &["report", &profile]);
        assert!(shown.contains("no calls were recorded, but counters of plugins were:"), "{shown}");
        assert!(!shown.contains("likely reasons"), "{shown}");
    }
}

#[test]
fn an_overflow_in_telemetry_is_no_failure_of_the_plugin() {
    let Some(program) = counterpoint("an overflow in telemetry") else { return };
    let scratch = Scratch::new();
    let [inside, alone] = ["in.cpt", "alone.cpt"].map(|name| scratch.join(name));
    let [inside, alone] = [inside, alone].map(|path| path.display().to_string());
    // A sample of `telemetry` has more values than fit into the buffer.
    let limit = ["--plugin-buffer", "256", "--plugin-flush", "0s", "--plugin", "telemetry"];
    let run = [&["run", "-e", "none", "-o", &inside], &limit[..], &["--", "sleep", "0.1"]].concat();
    said(&program, &run);
    let options = ["--max-buffer", "256", "-o", &alone];
    said(&program, &[&["plugin", "run", "telemetry", "--for", "100ms"], &options[..]].concat());
    for profile in [inside, alone] {
        let losses = report(&program, &profile, &[])["losses"].to_string();
        assert!(losses.contains("\"plugin_buffer_full\""), "{losses}");
        assert!(!losses.contains("\"plugin_failed\""), "{losses}");
    }
}
