//! Records with plugins that gcc and clang compiled from `plugin.c`: some without a mistake, and
//! some with one.

use std::path::PathBuf;
use std::sync::Mutex;

use plugin_host::platform::Library;
use plugin_host::session::Stack;
use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink};
use testkit::{Scratch, c};

const KERNEL: u32 = 6;
const MEMCPY: u32 = 4;
const COUNTER: u32 = 22;
const PRIVATEUSE1_RUNTIME: u32 = 23;
const EVERYTHING: [u32; 4] = [KERNEL, MEMCPY, COUNTER, PRIVATEUSE1_RUNTIME];

#[derive(Default)]
struct Lines(Vec<String>);

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Sink for Lines {
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let flow = event.flow.map_or(String::new(), |flow| {
            format!(" flow {} {}", flow.id, if flow.is_start { "starts" } else { "ends" })
        });
        let pairs: String = metadata
            .iter()
            .map(|(key, value)| format!(" {}={}", shown(key), shown(value)))
            .collect();
        self.0.push(format!(
            "{} {:?} {}..{} id {} on {}/{}{flow}{pairs}",
            event.event_type,
            shown(name),
            event.start_ns,
            event.end_ns,
            event.id,
            event.device,
            event.resource
        ));
    }
    fn device(&mut self, device: i64, sort_index: i64, name: Option<&[u8]>, label: &[u8]) {
        let name = name.map(shown);
        self.0.push(format!("device {device} sort {sort_index} {name:?} {:?}", shown(label)));
    }
    fn resource(&mut self, device: i32, resource: i32, order: i32, name: Option<&[u8]>) {
        self.0.push(format!("resource {device}/{resource} order {order} {:?}", name.map(shown)));
    }
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        self.0.push(format!("thread {process}/{thread} {:?}", shown(name)));
    }
    fn counter(&mut self, counter: &Counter<'_>) {
        self.0.push(format!("counter {counter:?}"));
    }
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn host() -> &'static Host {
    Host::leak(|level, text| {
        SAID.lock().expect("no test panics while it says something").push(format!("{level} {text}"))
    })
}

struct Done {
    lines: Vec<String>,
    /// The problems, each with how often it occurred.
    problems: Vec<String>,
    calls: String,
    profilers: usize,
}

fn calls(file: &std::path::Path) -> String {
    let library = Library::open(file).expect("it is open already");
    let function = library.symbol(c"plugin_calls").expect("exported");
    // SAFETY: plugin.c defines the function with this type. The function returns a C string that
    // lives for ever.
    unsafe {
        let function: extern "C" fn() -> *const std::ffi::c_char =
            std::mem::transmute(function.as_ptr());
        std::ffi::CStr::from_ptr(function()).to_string_lossy().into_owned()
    }
}

/// Compiles `plugin.c` with this mistake (`NONE` is none) and makes a recording, in which two
/// threads push ids.
fn drive(compiler: &str, mistake: &str, types: &[u32]) -> Option<Done> {
    let scratch = Scratch::new();
    let file = scratch.join("plugin.so");
    let flags = [format!("-DMISTAKE={mistake}"), "-DNAME=\"my kernel\"".to_owned()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    c::shared(compiler, "plugins/plugin.c", &file, &flags)?;
    let plugin = Plugin::load(&file, host());
    let mut lines = Lines::default();
    for profiler in &plugin.profilers {
        let setup = Setup { types, ..Setup::default() };
        let Some(mut session) = profiler.create(&setup) else { continue };
        session.start();
        let correlation = session.correlation();
        let other = correlation.clone();
        std::thread::spawn(move || {
            other.push(Stack::Ops, 42);
            other.pop(Stack::Ops);
        })
        .join()
        .expect("pushes");
        correlation.push(Stack::User, 42);
        correlation.pop(Stack::User);
        session.stop();
        session.process(&mut lines);
        drop(session);
        // After the end of the session, a push must not call the plugin.
        correlation.push(Stack::Ops, 42);
    }
    if mistake == "LATE" {
        let library = Library::open(&file).expect("it is open already");
        let late = library.symbol(c"plugin_late").expect("exported");
        // SAFETY: plugin.c defines the function with this type.
        let code = unsafe {
            let late: extern "C" fn() -> i32 = std::mem::transmute(late.as_ptr());
            late()
        };
        assert_eq!(code, -1);
    }
    let problems = plugin.problems.all();
    Some(Done {
        lines: lines.0,
        problems: problems.iter().map(|(problem, count)| format!("{count}× {problem}")).collect(),
        calls: calls(&file),
        profilers: plugin.profilers.len(),
    })
}

const DEVICES: [&str; 3] = [
    "device 3 sort 1 Some(\"accelerator 3\") \"rev B\"",
    "device 4 sort 1 None \"\"",
    "resource 3/7 order 2 Some(\"stream 7\")",
];
const LAUNCH: &str = "23 \"launch\" 1000..2000 id 11 on 500/501 flow 11 starts correlation=11";
const RUN: &str = "6 \"my kernel\" 1500..9000 id 11 on 3/7 flow 11 ends stream=7";
const COUNTERS: [&str; 2] = [
    "22 \"bandwidth\" 3000..3000 id 0 on 3/0 read GB/s=10.5 write GB/s=1.25",
    "22 \"bandwidth\" 4000..4000 id 0 on 3/0 read GB/s=12.25 write GB/s=1.25",
];

fn all() -> Vec<&'static str> {
    [&DEVICES[..], &[LAUNCH, RUN], &COUNTERS].concat()
}

#[test]
fn a_good_plugin_is_driven_in_the_published_order() {
    for compiler in ["gcc", "clang"] {
        let Some(done) = drive(compiler, "NONE", &EVERYTHING) else {
            testkit::skip("plugin_host", &format!("no {compiler}"));
            continue;
        };
        assert_eq!(done.lines, all(), "{compiler}");
        assert!(done.problems.is_empty(), "{:?}", done.problems);
        // The letters and signs stand for register, query, create, start, the pushes and pops of
        // ids, stop, process and destroy. The digits are the last digits of the types in the
        // plugin's order: kernel (6), runtime (23) and counters (22).
        assert_eq!(done.calls, "rqc632s+-*/tpd", "{compiler}");
    }
}

#[test]
fn only_what_was_asked_for_is_recorded() {
    let Some(done) = drive("cc", "NONE", &[KERNEL]) else {
        return testkit::skip("plugin_host", "no cc");
    };
    assert_eq!(done.lines, [&DEVICES[..], &[RUN]].concat());
    assert_eq!(
        done.problems,
        [
            "1× added a privateuse1_runtime event, which was not requested",
            "2× added a gpu_pm_counter event, which was not requested"
        ]
    );
    let Some(none) = drive("cc", "NONE", &[MEMCPY]) else { return };
    assert_eq!(none.calls, "rq", "a plugin that supports nothing of it is not started");
}

#[test]
fn a_mistake_costs_what_it_touches_and_is_named() {
    let without = |gone: &[&str]| -> Vec<&str> {
        all().into_iter().filter(|line| !gone.contains(line)).collect()
    };
    let nothing = Vec::new;
    const LATE_FAILURE: &str = "1× KinetoPlugin_register returned 6 after it had registered 1 profilers, which \
                are not used";
    const SMALL: &str = "1× registered an interface of 80 bytes, the published one has 88";
    let backwards = RUN.replace("1500..9000", "1500..1500");
    let nameless = RUN.replace("my kernel", "");
    let launch_only = LAUNCH.replace(" flow 11 starts", "");
    let no_flow = RUN.replace(" flow 11 ends", "");
    let replaced = |old: &'static str, new: &str| -> Vec<String> {
        all().iter().map(|line| line.replace(old, new)).collect()
    };
    let cases: Vec<(&str, Vec<String>, &[&str])> = vec![
        ("REGISTER_FAILS", nothing(), &["1× KinetoPlugin_register returned 2"]),
        ("REGISTER_FAILS_LATE", nothing(), &[LATE_FAILURE]),
        ("REGISTERS_NOTHING", nothing(), &["1× registered no profiler"]),
        (
            "REGISTERS_NULL",
            nothing(),
            &["1× registered a null interface", "1× KinetoPlugin_register returned -1"],
        ),
        ("SMALL_INTERFACE", nothing(), &[SMALL, "1× KinetoPlugin_register returned -1"]),
        ("NO_STOP", nothing(), &["1× its interface has no profilerStop"]),
        (
            "QUERY_FAILS",
            nothing(),
            &["1× profilerQuery returned 3", "1× supports no type of events"],
        ),
        ("QUERY_NAMELESS", replaced("", ""), &["1× profilerQuery gave no name"]),
        ("QUERY_LONG", replaced("", ""), &["1× profilerQuery wrote a name of more than 31 bytes"]),
        (
            "QUERY_UNKNOWN",
            replaced("", ""),
            &["1× profilerQuery listed event type 99, which does not exist"],
        ),
        ("CREATE_FAILS", nothing(), &["1× profilerCreate returned 7"]),
        ("START_FAILS", replaced("", ""), &["1× profilerStart returned 4"]),
        ("PROCESS_FAILS", replaced("", ""), &["1× profilerProcessEvents returned 5"]),
        (
            "SMALL_EVENT",
            without(&[RUN]).iter().map(|line| (*line).to_owned()).collect(),
            &["1× passed a struct of 24 bytes to addEvent, which needs 48"],
        ),
        (
            "NULL_EVENT",
            without(&[RUN]).iter().map(|line| (*line).to_owned()).collect(),
            &["1× passed a null pointer to addEvent"],
        ),
        ("NAME_FIRST", replaced("", ""), &["1× called setLastEventName before any addEvent"]),
        (
            "NULL_NAME",
            replaced(RUN, &nameless),
            &["1× passed a null pointer to setLastEventName", "1× added an event without a name"],
        ),
        (
            "UNKNOWN_EVENT",
            replaced("6 \"my", "77 \"my"),
            &["1× added an event of type 77, which does not exist"],
        ),
        (
            "NOT_ASKED",
            without(&[RUN]).iter().map(|line| (*line).to_owned()).collect(),
            &["1× added a gpu_memcpy event, which was not requested"],
        ),
        (
            "UNKNOWN_FLOW",
            replaced(LAUNCH, &launch_only).iter().map(|line| line.replace(RUN, &no_flow)).collect(),
            &["2× set a flow of type 9, which does not exist"],
        ),
        (
            "ZERO_FLOW",
            replaced(LAUNCH, &launch_only).iter().map(|line| line.replace(RUN, &no_flow)).collect(),
            &["2× set a flow with the id 0"],
        ),
        ("BACKWARDS", replaced(RUN, &backwards), &["1× added an event that ends before it begins"]),
        ("NAMELESS", replaced(RUN, &nameless), &["1× added an event without a name"]),
        (
            "LATE",
            replaced("", ""),
            &["1× called setLastEventName after the call that the trace builder was valid for"],
        ),
        ("WIDE_ID", replaced("id 11 on 3/7", &format!("id {} on 3/7", 0x0123_4567_89ab_i64)), &[]),
        ("NO_PUSH", replaced("", ""), &[]),
        ("LARGE_INTERFACE", replaced("", ""), &[]),
        ("BAD_METADATA", replaced("stream=7", "stream=7 broken={\"a\":"), &[]),
    ];
    for (mistake, lines, problems) in cases {
        let Some(done) = drive("cc", mistake, &EVERYTHING) else {
            return testkit::skip("plugin_host", "no cc");
        };
        assert_eq!(done.lines, lines, "{mistake}");
        assert_eq!(done.problems, problems, "{mistake}");
        let usable = !matches!(
            mistake,
            "REGISTER_FAILS"
                | "REGISTER_FAILS_LATE"
                | "REGISTERS_NOTHING"
                | "REGISTERS_NULL"
                | "SMALL_INTERFACE"
                | "NO_STOP"
        );
        assert_eq!(done.profilers, usize::from(usable), "{mistake}");
    }
}

#[test]
fn files_that_are_no_plugins_are_named() {
    let scratch = Scratch::new();
    let text = scratch.join("text.so");
    std::fs::write(&text, "not a shared object").expect("writes");
    let missing = scratch.join("missing.so");
    let empty = scratch.join("empty.so");
    let Some(()) = c::shared("cc", "plugins/empty.c", &empty, &[]) else {
        return testkit::skip("plugin_host", "no cc");
    };
    std::fs::create_dir(scratch.join("folder.so")).expect("makes a folder");
    let found = plugin_host::discover(scratch.path()).expect("reads");
    assert_eq!(found, [empty.clone(), text.clone()], "sorted, and no folders");
    let problem = |file: &PathBuf| {
        let plugin = Plugin::load(file, host());
        assert!(plugin.profilers.is_empty());
        plugin.problems.all()[0].0.to_string()
    };
    assert!(problem(&text).starts_with("cannot be loaded: "), "{}", problem(&text));
    assert!(problem(&missing).contains("No such file or directory"), "{}", problem(&missing));
    assert_eq!(problem(&empty), "does not export KinetoPlugin_register");
    assert!(plugin_host::discover(&scratch.join("nowhere")).is_err());
}
