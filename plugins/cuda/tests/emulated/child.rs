//! The child process of the tests: a host of the plugin. It also calls those functions of the
//! plugin that CUDA's driver and NVTX would call.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use plugin_host::session::Stack;
use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink, platform::Library};

use crate::acts::{self, Doubles};
use crate::{ANNOTATION, DRIVER, KERNEL, MEMCPY, MEMSET, PROFILER_RANGE, RUNTIME, SYNC};

#[derive(Default)]
struct Lines {
    text: String,
    /// Set after the flush, so that a line `later` follows each event from then on.
    is_later: bool,
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

impl Sink for Lines {
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let Event { event_type, start_ns, end_ns, id, device, resource, flow } = event;
        let flow = flow.map_or(0, |flow| i64::from(flow.id) * if flow.is_start { 1 } else { -1 });
        let _ = write!(
            self.text,
            "event\t{event_type}\t{}\t{start_ns}\t{end_ns}\t{id}\t{device}\t{resource}\t{flow}",
            text(name)
        );
        for (key, value) in metadata.iter() {
            let _ = write!(self.text, "\t{}={}", text(key), text(value));
        }
        self.text.push('\n');
        if self.is_later {
            self.text.push_str("later\n");
        }
    }
    fn device(&mut self, device: i64, _order: i64, name: Option<&[u8]>, label: &[u8]) {
        let name = text(name.unwrap_or_default());
        let _ = writeln!(self.text, "device\t{device}\t{name}\t{}", text(label));
    }
    fn resource(&mut self, device: i32, resource: i32, _order: i32, name: Option<&[u8]>) {
        let name = text(name.unwrap_or_default());
        let _ = writeln!(self.text, "resource\t{device}\t{resource}\t{name}");
    }
    fn thread_name(&mut self, _process: i32, _thread: i32, _name: &[u8]) {}
    fn missing(&mut self, what: u32, count: u64) {
        let _ = writeln!(self.text, "missing\t{what}\t{count}");
    }
    fn counter(&mut self, counter: &Counter<'_>) {
        let Counter { time_ns, device, track, series, unit, value } = counter;
        let (track, series, unit) = (text(track), text(series), text(unit));
        let _ =
            writeln!(self.text, "counter\t{time_ns}\t{device}\t{track}\t{series}\t{unit}\t{value}");
    }
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn call<F: Copy>(library: &Library, name: &CStr) -> F {
    let found = library.symbol(name).expect("it is exported");
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: as `F`, callers choose the type of the function with this name. The assertion checks
    // that `F` has the size of a pointer.
    unsafe { std::mem::transmute_copy(&found.as_ptr()) }
}

/// Without `CUDA_TEST_OUT`, this is a test that does nothing.
#[test]
fn child() {
    let Ok(out) = std::env::var("CUDA_TEST_OUT") else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let torch = variable("CUDA_TEST_LOAD");
    let _torch = (!torch.is_empty()).then(|| Library::open(Path::new(&torch)).expect("it loads"));
    let (file, cupti) = (variable("CUDA_TEST_PLUGIN"), variable("CUDA_TEST_CUPTI"));
    let host = Host::leak(|_, text| SAID.lock().expect("not poisoned").push(text.to_owned()));
    let plugin = Plugin::load(Path::new(&file), host);
    assert_eq!(plugin.problems.all(), []);
    let own = Library::open(Path::new(&file)).expect("it is loaded");
    let injected: extern "C" fn() -> c_int = call(&own, c"InitializeInjection");
    // If the variable is `early`, the program marks a range with NVTX before it uses CUDA.
    if variable("CUDA_TEST_NVTX") != "early" {
        assert_eq!(injected(), 1, "without a recording, too");
    }
    let ranges: extern "C" fn(*const c_char) -> c_int = call(&own, c"InitializeInjectionNvtx2");
    assert_eq!(ranges(c"table".as_ptr()), 0, "nothing is recorded");

    let configuration = format!("interval=1ms,cuda.cupti={cupti},{}", variable("CUDA_TEST_CONFIG"));
    let configuration = CString::new(configuration.trim_end_matches(',')).expect("no zero byte");
    let mut types = vec![MEMCPY, MEMSET, KERNEL, RUNTIME, DRIVER, SYNC, ANNOTATION, PROFILER_RANGE];
    if let Ok(only) = variable("CUDA_TEST_TYPES").parse() {
        types = vec![only];
    }
    let max_buffer_bytes = variable("CUDA_TEST_LIMIT").parse().unwrap_or(0);
    let setup = Setup {
        types: &types,
        configuration: &configuration,
        max_buffer_bytes,
        ..Setup::default()
    };
    let scenario = CString::new(variable("CUDA_TEST_SCENARIO")).expect("no zero byte");
    let program_of = |scenario: &CStr| {
        let Ok(library) = Library::open(Path::new(&cupti)) else { return };
        let run: extern "C" fn(*const c_char) -> c_int = call(&library, c"double_run");
        run(scenario.as_ptr());
    };
    let program = || program_of(&scenario);
    let mut lines = Lines::default();
    let doubles = Doubles::open(Path::new(&variable("CUDA_TEST_DRIVER")), Path::new(&cupti));
    let ops = variable("CUDA_TEST_OPS");
    if ops == "stale" {
        let session = plugin.profilers[0].create(&setup).expect("one at a time");
        acts::leave_an_op_open(session, doubles.as_ref().expect("a driver"));
    }
    if variable("CUDA_TEST_CYCLES") == "3" {
        for is_processed in [true, false] {
            let mut session = plugin.profilers[0].create(&setup).expect("one at a time");
            assert!(session.start());
            program();
            if is_processed {
                session.stop();
                session.process(&mut Lines::default());
            }
        }
    }
    let mut session = plugin.profilers[0].create(&setup).expect("it supports these");
    assert!(plugin.profilers[0].create(&setup).is_none(), "one recording at a time");
    let correlation = session.correlation();
    assert!(session.start());
    if variable("CUDA_TEST_NVTX") != "late" {
        let _ = writeln!(lines.text, "ranges\t{}", ranges(c"table".as_ptr()));
    }
    assert_eq!(injected(), 1);
    if variable("CUDA_TEST_NVTX") == "late" {
        let _ = writeln!(lines.text, "ranges\t{}", ranges(c"table".as_ptr()));
    }
    if variable("CUDA_TEST_CYCLES") == "3" {
        session.toggle(false);
        program_of(c"flood");
        let mut paused = Lines::default();
        session.flush(&mut paused);
        let _ = writeln!(lines.text, "paused\t{}", paused.text.matches("event").count());
        session.toggle(true);
    }
    correlation.push(Stack::Ops, 4_242);
    let capture = variable("CUDA_TEST_CAPTURE").parse().unwrap_or(0);
    doubles.iter().for_each(|doubles| _ = (doubles.captures)(capture));
    program();
    doubles.iter().for_each(|doubles| _ = (doubles.captures)(0));
    if let Some(doubles) = doubles.as_ref().filter(|_| !ops.is_empty()) {
        correlation.pop(Stack::Ops);
        acts::act(&ops, &mut session, doubles);
        correlation.push(Stack::Ops, 4_242);
        let _ = writeln!(lines.text, "broken\t{}", (doubles.broken)());
    }
    if let Ok(library) = Library::open(Path::new(&cupti)) {
        let collects: extern "C" fn(u32) -> c_int = call(&library, c"double_collects");
        let kinds: Vec<String> =
            (0..64).filter(|kind| collects(*kind) != 0).map(|kind| kind.to_string()).collect();
        let _ = writeln!(lines.text, "collected\t{}", kinds.join(" "));
    }
    correlation.pop(Stack::Ops);
    if variable("CUDA_TEST_FORK") == "1" {
        // SAFETY: the forked child only calls the plugin, and ends without running the parent's
        // destructors.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut seen = Lines::default();
                session.flush(&mut seen);
                session.stop();
                session.process(&mut seen);
                libc::_exit(i32::from(seen.text.contains("event")));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        let _ = writeln!(lines.text, "forked\t{status}");
    }
    if variable("CUDA_TEST_FLUSH") == "1" {
        assert!(session.flush(&mut lines));
        lines.text.push_str("flushed\n");
        lines.is_later = true;
    }
    session.stop();
    session.process(&mut lines);
    drop(session);
    if let Ok(library) = Library::open(Path::new(&cupti))
        && library.symbol(c"double_left").is_some()
    {
        let left: extern "C" fn() -> c_int = call(&library, c"double_left");
        let _ = writeln!(lines.text, "left\t{}", left());
    }
    for said in
        SAID.lock().expect("not poisoned").iter().filter(|text| !text.contains("another recording"))
    {
        let _ = writeln!(lines.text, "said\t{said}");
    }
    // The plugin refuses a second recording while the first one runs.
    let refused = "profilerCreate returned -1";
    for (problem, _) in plugin.problems.all().iter().filter(|(p, _)| p.to_string() != refused) {
        let _ = writeln!(lines.text, "problem\t{problem}");
    }
    std::fs::write(out, lines.text).expect("writes");
}
