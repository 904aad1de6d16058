//! Runs OpenCL programs, alone or in the child process of the tests, and reads the lines that the
//! child has written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Scratch, c};

use crate::{KERNEL, MEMCPY, MEMSET, RUNTIME};

/// Returns the plugin's shared object, which Cargo builds with the tests.
pub fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let file = test.with_file_name("libcounterpoint_opencl.so");
    assert!(file.exists(), "{} is built with the tests", file.display());
    file
}

/// The directory for PoCL's compiled kernels, which PoCL uses instead of the user's cache.
pub fn cache() -> PathBuf {
    plugin().with_file_name("pocl-cache")
}

#[derive(Clone, Debug)]
pub struct Seen {
    pub event_type: u32,
    pub name: String,
    pub start_ns: i64,
    pub end_ns: i64,
    pub id: i64,
    pub device: i64,
    pub resource: i64,
    /// The number of the event's arrow: positive if the arrow begins at this event, negative if it
    /// ends at this event, and 0 without an arrow.
    pub flow: i64,
    pub arguments: BTreeMap<String, String>,
}

/// The child's file.
#[derive(Debug)]
pub struct Recorded {
    pub events: Vec<Seen>,
    /// Other lines, as fields.
    pub rows: Vec<Vec<String>>,
    /// What the program has written into its file.
    pub written: String,
    /// The times at which the child was started and at which it had ended, in ns of UTC.
    pub span: (i64, i64),
}

impl Recorded {
    pub fn of_type(&self, event_type: u32) -> Vec<&Seen> {
        self.events.iter().filter(|event| event.event_type == event_type).collect()
    }
    pub fn named(&self, name: &str) -> Vec<&Seen> {
        self.events.iter().filter(|event| event.name == name).collect()
    }
    /// Events of commands, sorted by their start.
    pub fn activities(&self) -> Vec<&Seen> {
        let is_device = |event: &&Seen| [MEMCPY, MEMSET, KERNEL].contains(&event.event_type);
        let mut found: Vec<&Seen> = self.events.iter().filter(is_device).collect();
        found.sort_by_key(|event| event.start_ns);
        found
    }
    pub fn rows(&self, kind: &str) -> Vec<&[String]> {
        self.rows.iter().filter(|row| row[0] == kind).map(|row| &row[1..]).collect()
    }
}

pub fn utc_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as i64
}

/// Compiles a C file of `tests/programs/opencl` as a program and as a shared object. Returns `None`
/// if this machine lacks OpenCL or a C compiler.
pub fn build(scratch: &Scratch, name: &str, flags: &[&str]) -> Option<(PathBuf, PathBuf)> {
    let missing = |what: &str| {
        testkit::skip("opencl", what);
        None
    };
    if !Path::new("/usr/include/CL/cl_layer.h").exists() {
        return missing("the headers of OpenCL are not installed");
    }
    let (program, object) = (scratch.join(name), scratch.join(&format!("{name}.so")));
    let source = format!("opencl/{name}.c");
    let all = [&["-std=gnu11"], flags, &["-lOpenCL", "-lpthread"]].concat();
    if c::compile("cc", &source, &program, &all).is_none() {
        return missing("there is no C compiler");
    }
    c::compile("cc", &source, &object, &[&["-fPIC", "-shared"], &all[..]].concat())?;
    let vendors = fs::read_dir("/etc/OpenCL/vendors").map(|all| all.count()).unwrap_or_default();
    if vendors == 0 {
        return missing("no implementation of OpenCL is installed");
    }
    Some((program, object))
}

/// Compiles `timer.c`, a layer that simulates a clock of the device, and returns its path.
pub fn layer(scratch: &Scratch, flag: &str) -> Option<String> {
    let file = scratch.join(&format!("timer{flag}.so"));
    c::shared("cc", "opencl/timer.c", &file, &["-std=gnu11", flag])?;
    Some(file.display().to_string())
}

pub fn run(scratch: &Scratch, object: &Path, arguments: &str, more: &[(&str, &str)]) -> Recorded {
    let (lines, written) = (scratch.join("lines"), scratch.join("written"));
    let before_ns = utc_ns();
    let mut child = Command::new(std::env::current_exe().expect("a path"));
    child
        .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
        .env("OPENCL_LAYERS", plugin())
        .env("POCL_CACHE_DIR", cache())
        .env("OPENCL_TEST_PLUGIN", plugin())
        .env("OPENCL_TEST_PROGRAM", object)
        .env("OPENCL_TEST_OUT", &lines)
        .env("OPENCL_TEST_ARGUMENTS", format!("{} {arguments}", written.display()))
        .envs(more.iter().copied());
    let output = child.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let span = (before_ns, utc_ns());
    let mut recorded = Recorded {
        events: Vec::new(),
        rows: Vec::new(),
        written: fs::read_to_string(&written).expect("the program wrote"),
        span,
    };
    for line in fs::read_to_string(&lines).expect("the child wrote").lines() {
        let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if fields[0] != "event" {
            recorded.rows.push(fields);
            continue;
        }
        let number = |index: usize| fields[index].parse::<i64>().expect("a number");
        recorded.events.push(Seen {
            event_type: number(1) as u32,
            name: fields[2].clone(),
            start_ns: number(3),
            end_ns: number(4),
            id: number(5),
            device: number(6),
            resource: number(7),
            flow: number(8),
            arguments: fields[9..]
                .iter()
                .map(|field| field.split_once('=').expect("key=value"))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        });
    }
    recorded
}

/// Runs a program without a recording. With `layer`, the program's calls pass through the plugin's
/// layer, which records nothing. Returns the program's output and the content of its file.
pub fn alone(program: &Path, arguments: &str, layer: bool, scratch: &Scratch) -> (Output, String) {
    let written = scratch.join("alone");
    let mut command = Command::new(program);
    command.arg(&written).args(arguments.split_whitespace()).env_remove("OPENCL_LAYERS");
    command.env("POCL_CACHE_DIR", cache());
    if layer {
        command.env("OPENCL_LAYERS", plugin());
    }
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    (output, fs::read_to_string(&written).expect("the program wrote"))
}

/// Checks that each device activity has a call with the same id, and an arrow from this call. The
/// activity must not begin before the call, within the accuracy of the device's clock.
pub fn joined(recorded: &Recorded) {
    let calls: BTreeMap<i64, &Seen> =
        recorded.of_type(RUNTIME).iter().filter(|call| call.id != 0).map(|c| (c.id, *c)).collect();
    let accuracy = recorded.rows("device").iter().map(|row| accuracy_ns(&row[2])).max();
    let accuracy = accuracy.expect("a device").expect("its clock is known");
    for activity in recorded.activities() {
        let call = calls.get(&activity.id).unwrap_or_else(|| panic!("no call of {activity:?}"));
        assert!(call.name.starts_with("clEnqueue"), "{call:?}");
        assert_eq!((call.flow, activity.flow), (activity.id, -activity.id));
        assert_eq!(call.arguments["correlation"], activity.arguments["correlation"]);
        assert_eq!(call.arguments["queue"], activity.arguments["stream"]);
        assert!(activity.start_ns >= call.start_ns - accuracy, "{call:?} {activity:?}");
        assert!(activity.end_ns >= activity.start_ns && activity.device == 0);
        if call.name == "clEnqueueReadBuffer" {
            // In the tests' programs, each `clEnqueueReadBuffer` waits for its command.
            assert!(activity.end_ns <= call.end_ns + accuracy, "{call:?} {activity:?}");
        }
        assert!(activity.start_ns >= recorded.span.0 && activity.end_ns <= recorded.span.1);
    }
}

/// Returns the accuracy in a device's label, such as `…, clock ±120 ns`.
fn accuracy_ns(label: &str) -> Option<i64> {
    label.split_once("clock ±")?.1.strip_suffix(" ns")?.parse().ok()
}
