//! Tests how reports and exports show the events of plugins. Perfetto's trace processor and pyarrow
//! read the exported files.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::{Value, json};
use testkit::{Scratch, c};

use crate::support::trace_processor::TraceProcessor;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn counterpoint(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env("COLUMNS", "120").output().expect("starts")
}

fn said(arguments: &[&str]) -> String {
    let output = counterpoint(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns a random name, so that an output cannot contain this name by accident.
fn random_name() -> String {
    let mut bytes = [0; 12];
    let mut random = fs::File::open("/dev/urandom").expect("Linux has it");
    std::io::Read::read_exact(&mut random, &mut bytes).expect("it never ends");
    bytes.iter().fold("kernel_".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Records the events of `tests/programs/plugins/plugin.c`, and returns the path of the profile.
/// The plugin hands over a launch of 1 µs (thread 501 of process 500), a kernel of 7.5 µs (stream 7
/// of device 3), and two events of a counter of device 3, with two values each.
fn recorded(scratch: &Scratch, name: &str) -> String {
    let file = scratch.join("plugin.so");
    // Perfetto leaves out events that are earlier than the trace's time zero, so the events get the
    // present time.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let flags = [format!("-DNAME=\"{name}\""), format!("-DBASE={}LL", now.as_nanos())];
    c::shared("cc", "plugins/plugin.c", &file, &[&flags[0], &flags[1]])
        .expect("a C compiler: Rust links with it");
    let profile = shown(&scratch.join("p.cpt"));
    said(&["plugin", "run", &shown(&file), "--for", "1ms", "-o", &profile]);
    profile
}

#[test]
fn a_random_name_is_found_in_every_output() {
    let scratch = Scratch::new();
    let name = random_name();
    let profile = recorded(&scratch, &name);
    for arguments in [
        &["report", &profile][..],
        &["report", &profile, "--format", "json"],
        &["report", &profile, "--format", "csv"],
        &["stats", &profile],
        &["stats", &profile, "--format", "json"],
        &["stats", &profile, "--format", "csv"],
        &["export", &profile, "--format", "csv"],
        &["export", &profile, "--format", "json"],
    ] {
        let text = said(arguments);
        assert!(text.contains(&name), "{arguments:?}: {text}");
        assert!(arguments[0] == "export" || text.contains("launch"), "{arguments:?}: {text}");
    }
    for (file, is_packed) in [("t.json", false), ("t.json.gz", true), ("t.pftrace", false)] {
        let to = shown(&scratch.join(file));
        said(&["trace", "export", &profile, "-o", &to]);
        let bytes = fs::read(&to).expect("written");
        let has = bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert_eq!(has, !is_packed, "{file}");
    }
    let text = said(&["export", &profile, "--what", "tracks", "--format", "csv"]);
    assert!(text.contains("bandwidth") && text.contains("12.25"), "{text}");
}

#[test]
fn perfetto_shows_what_the_plugin_gave() {
    let test = "perfetto_shows_what_the_plugin_gave";
    let Some(mut perfetto) = TraceProcessor::start(test) else { return };
    let scratch = Scratch::new();
    let name = random_name();
    let profile = recorded(&scratch, &name);
    for file in ["t.json", "t.pftrace"] {
        let to = scratch.join(file);
        said(&["trace", "export", &profile, "-o", &shown(&to)]);
        let timeline = perfetto.timeline(&to);
        let find = |name: &str| {
            let found = timeline.slices.iter().position(|slice| slice.name == name);
            found.unwrap_or_else(|| panic!("{file}: no {name} in {timeline:?}"))
        };
        let (kernel, launch) = (find(&name), find("launch"));
        let slice = &timeline.slices[kernel];
        assert_eq!((slice.dur, slice.category.as_str()), (7500, "kernel"), "{file}");
        assert!(slice.row[0].contains("accelerator 3"), "{file}: {slice:?}");
        assert!(slice.row[1].contains("stream 7"), "{file}: {slice:?}");
        assert_eq!(timeline.slices[launch].dur, 1000, "{file}");
        assert_eq!(timeline.flows, [[launch, kernel]], "{file}");
        let mut values: Vec<f64> = timeline.points.iter().map(|point| point.value).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, [1.25, 1.25, 10.5, 12.25], "{file}");
    }
}

#[test]
fn pyarrow_reads_what_the_plugin_gave() {
    const READ: &str = "
import sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1]).to_pydict()
for row in sorted(zip(table['op'], table['library'], table['pid'], table['tid'], table['duration_ns'])):
    print(*row, sep='|')";
    let test = "pyarrow_reads_what_the_plugin_gave";
    let Some(python) = testkit::python::with(test, "pyarrow") else { return };
    let scratch = Scratch::new();
    let name = random_name();
    let profile = recorded(&scratch, &name);
    let to = shown(&scratch.join("calls.parquet"));
    said(&["export", &profile, "--format", "parquet", "-o", &to]);
    let read = Command::new(python).args(["-c", READ, &to]).output().expect("python starts");
    assert!(read.status.success(), "{read:?}");
    assert_eq!(
        String::from_utf8_lossy(&read.stdout),
        format!("{name}|kernel|3|7|7500.0\nlaunch|privateuse1_runtime|500|501|1000.0\n")
    );
}

/// Returns the rows of a report, each with only those of its fields that are in `KEYS`.
fn rows(arguments: &[&str]) -> Vec<Value> {
    const KEYS: [&str; 9] = [
        "op",
        "kind",
        "generic",
        "device",
        "device_name",
        "stream",
        "stream_name",
        "calls",
        "total_ns",
    ];
    let text = said(&[&["report", "--format", "json"], arguments].concat());
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let row = row.as_object().expect("an object");
        let kept = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), row.get(*key)?.clone())));
        Value::Object(kept.collect())
    })
    .collect()
}

#[test]
fn a_report_groups_by_kind_device_and_stream() {
    let scratch = Scratch::new();
    let profile = recorded(&scratch, "gemm");
    let by = |what: &str| rows(&[&profile, "--by", what]);
    assert_eq!(
        by("kind"),
        [
            json!({"kind": "kernel", "generic": "kernel", "calls": 1, "total_ns": 7500.0}),
            json!({"kind": "privateuse1_runtime", "generic": "runtime", "calls": 1, "total_ns": 1000.0}),
        ]
    );
    assert_eq!(
        by("device"),
        [
            json!({"device": 3, "device_name": "accelerator 3", "calls": 1, "total_ns": 7500.0}),
            json!({"device": null, "device_name": null, "calls": 1, "total_ns": 1000.0}),
        ]
    );
    assert_eq!(
        by("stream"),
        [
            json!({
                "device": 3, "device_name": "accelerator 3", "stream": 7, "stream_name": "stream 7",
                "calls": 1, "total_ns": 7500.0
            }),
            json!({
                "device": null, "device_name": null, "stream": null, "stream_name": null,
                "calls": 1, "total_ns": 1000.0
            }),
        ]
    );
    let table = |what: &str| said(&["report", &profile, "--by", what]);
    assert!(table("kind").contains("privateuse1_runtime  runtime"), "{}", table("kind"));
    assert!(table("device").contains("\nnot on a device "), "{}", table("device"));
    assert!(table("stream").contains("\nstream 7 (7) of 3 accelerator 3 "), "{}", table("stream"));
    let csv = said(&["report", &profile, "--by", "kind", "--format", "csv"]);
    assert!(csv.starts_with("kind,generic,calls,"), "{csv}");
    assert!(csv.contains("\nprivateuse1_runtime,runtime,1,"), "{csv}");
}

#[test]
fn a_report_filters_by_kind_device_and_stream() {
    let scratch = Scratch::new();
    let profile = recorded(&scratch, "gemm");
    let ops = |filters: &[&str]| -> Vec<String> {
        let rows = rows(&[&[profile.as_str()][..], filters].concat());
        rows.iter().map(|row| row["op"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(ops(&["--kind", "kernel"]), ["gemm"]);
    assert_eq!(ops(&["--kind", "runtime"]), ["launch"], "the generic name");
    assert_eq!(ops(&["--kind", "privateuse1_*"]), ["launch"], "the name in the trace");
    assert_eq!(ops(&["--device", "3"]), ["gemm"]);
    assert_eq!(ops(&["--device", "accelerator*"]), ["gemm"]);
    assert_eq!(ops(&["--stream", "7"]), ["gemm"]);
    assert_eq!(ops(&["--device", "3", "--stream", "stream ?", "--kind", "k*"]), ["gemm"]);
    // No activity matches these filters. For example, 500 is the process that launched the kernel,
    // and not a device.
    for filters in [
        &["--device", "500"][..],
        &["--stream", "501"],
        &["--kind", "memcpy"],
        &["--kind", "runtime", "--device", "3"],
    ] {
        let none = counterpoint(&[&["report", &profile], filters].concat());
        assert_eq!(none.status.code(), Some(1), "{filters:?}: {none:?}");
        let text = String::from_utf8_lossy(&none.stderr).into_owned();
        assert!(text.contains(&format!("no activity matches {}", filters.join(" "))), "{text}");
    }
}

#[test]
fn a_full_disk_leaves_no_profile() {
    let scratch = Scratch::new();
    let file = scratch.join("flood.so");
    c::shared("cc", "plugins/odd.c", &file, &["-DEVENTS=100000"]).expect("compiles");
    let profile = scratch.join("p.cpt");
    let done = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh", PROGRAM])
        .args(["plugin", "run", &shown(&file), "--for", "1ms", "-o", &shown(&profile)])
        .output()
        .expect("starts");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{text}");
    assert!(text.contains("File too large"), "{text}");
    assert!(!profile.exists(), "{text}");
}

/// The test makes the same directories for the program and its plugins as `cargo xtask dist`.
#[test]
fn a_plugin_that_comes_with_counterpoint_has_a_name() {
    let scratch = Scratch::new();
    let plugins = scratch.join("lib/counterpoint/plugins");
    fs::create_dir_all(&plugins).expect("makes a folder");
    fs::create_dir(scratch.join("bin")).expect("makes a folder");
    let program = scratch.join("bin/counterpoint");
    if fs::hard_link(PROGRAM, &program).is_err() {
        fs::copy(PROGRAM, &program).expect("copies");
    }
    let file = plugins.join("example.so");
    c::shared("cc", "plugins/plugin.c", &file, &[]).expect("compiles");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(scratch.path());
        let output = command.env_remove("KINETO_PLUGIN_LIB_DIR_PATH").output().expect("starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, listed, _) = run(&["plugin", "list", "--format", "csv"]);
    assert_eq!((code, listed.lines().count()), (Some(0), 2), "{listed}");
    assert!(listed.contains("plugins/example.so,test plugin,"), "{listed}");
    let (code, _, words) = run(&["plugin", "run", "example", "--for", "1ms", "-o", "p.cpt"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("4 events of 1 plugin"), "{words}");
    let (code, _, words) = run(&["plugin", "run", "exmple", "--for", "1ms", "-o", "q.cpt"]);
    assert_eq!(code, Some(2), "{words}");
    assert!(words.contains("No such file") && words.contains("example"), "{words}");
    let (_, _, words) = run(&["plugin", "run", "--for", "1ms", "-o", "q.cpt"]);
    assert!(words.contains("a plugin that comes with Counterpoint (example)"), "{words}");
}
