//! The child process of the tests. It is a host, which loads the plugin and runs an OpenCL program.

use std::ffi::{CString, c_char, c_int};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use plugin_host::session::Stack;
use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink, platform::Library};

use crate::{COUNTER, KERNEL, MEMCPY, MEMSET, OP, RUNTIME};

#[derive(Default)]
struct Lines(String);

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

impl Sink for Lines {
    fn event(&mut self, event: &Event, name: &[u8], metadata: &Metadata) {
        let Event { event_type, start_ns, end_ns, id, device, resource, flow } = event;
        let flow = flow.map_or(0, |flow| i64::from(flow.id) * if flow.is_start { 1 } else { -1 });
        let name = text(name);
        let _ = write!(
            self.0,
            "event\t{event_type}\t{name}\t{start_ns}\t{end_ns}\t{id}\t{device}\t{resource}\t{flow}"
        );
        for (key, value) in metadata.iter() {
            let _ = write!(self.0, "\t{}={}", text(key), text(value));
        }
        self.0.push('\n');
    }
    fn device(&mut self, device: i64, _order: i64, name: Option<&[u8]>, label: &[u8]) {
        let name = text(name.unwrap_or_default());
        let _ = writeln!(self.0, "device\t{device}\t{name}\t{}", text(label));
    }
    fn resource(&mut self, device: i32, resource: i32, _order: i32, name: Option<&[u8]>) {
        let name = text(name.unwrap_or_default());
        let _ = writeln!(self.0, "resource\t{device}\t{resource}\t{name}");
    }
    fn thread_name(&mut self, process: i32, thread: i32, name: &[u8]) {
        let _ = writeln!(self.0, "thread\t{process}\t{thread}\t{}", text(name));
    }
    fn missing(&mut self, what: u32, count: u64) {
        let _ = writeln!(self.0, "missing\t{what}\t{count}");
    }
    fn counter(&mut self, counter: &Counter<'_>) {
        let Counter { time_ns, device, track, series, unit, value } = counter;
        let (track, series, unit) = (text(track), text(series), text(unit));
        let _ =
            writeln!(self.0, "counter\t{time_ns}\t{device}\t{track}\t{series}\t{unit}\t{value}");
    }
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Without `OPENCL_TEST_OUT`, this is a test that does nothing.
#[test]
fn child() {
    let Ok(out) = std::env::var("OPENCL_TEST_OUT") else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let host = Host::leak(|_, text| SAID.lock().expect("not poisoned").push(text.to_owned()));
    let plugin = Plugin::load(Path::new(&variable("OPENCL_TEST_PLUGIN")), host);
    assert_eq!(plugin.problems.all(), []);
    let program = Library::open(Path::new(&variable("OPENCL_TEST_PROGRAM"))).expect("it loads");
    let main = program.symbol(c"main").expect("it has a main");
    // SAFETY: the program is written in C, in which `main` has this type.
    let main: extern "C" fn(c_int, *const *const c_char) -> c_int =
        unsafe { std::mem::transmute(main.as_ptr()) };
    let texts: Vec<CString> = format!("program {}", variable("OPENCL_TEST_ARGUMENTS"))
        .split(' ')
        .map(|text| CString::new(text).expect("no zero byte"))
        .collect();
    let mut arguments: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    arguments.push(std::ptr::null());

    if variable("OPENCL_TEST_CYCLES") == "1" {
        return cycles(&plugin, || main(texts.len() as c_int, arguments.as_ptr()));
    }
    let mut types = vec![MEMCPY, MEMSET, KERNEL, RUNTIME, COUNTER];
    if let Ok(only) = variable("OPENCL_TEST_TYPES").parse() {
        types = vec![only];
    }
    let max_buffer_bytes = variable("OPENCL_TEST_LIMIT").parse().unwrap_or(0);
    let setup = Setup { types: &types, max_buffer_bytes, ..Setup::default() };
    let mut lines = Lines::default();
    let mut session = plugin.profilers[0].create(&setup).expect("it supports these");
    assert!(plugin.profilers[0].create(&setup).is_none(), "one recording at a time");
    let correlation = session.correlation();
    assert!(session.start());
    correlation.push(Stack::Ops, OP);
    let code = main(texts.len() as c_int, arguments.as_ptr());
    correlation.pop(Stack::Ops);
    assert_eq!(code, 0);
    if variable("OPENCL_TEST_FLUSH") == "1" {
        assert!(session.flush(&mut lines));
        lines.0.push_str("flushed\n");
    }
    assert!(session.stop());
    session.process(&mut lines);
    drop(session);
    for said in SAID.lock().expect("not poisoned").iter().filter(|text| !text.contains("another")) {
        let _ = writeln!(lines.0, "said\t{said}");
    }
    // This problem is expected: the plugin refused the second recording, because the first one was
    // running.
    let refused = "profilerCreate returned -1";
    for (problem, _) in plugin.problems.all().iter().filter(|(p, _)| p.to_string() != refused) {
        let _ = writeln!(lines.0, "problem\t{problem}");
    }
    fs::write(out, lines.0).expect("writes");
}

/// Makes many recordings on a second thread, while the program runs. The program begins during the
/// third one, which ends after an event was recorded or the program has ended. Otherwise the whole
/// program could run between two recordings on a busy machine.
fn cycles(plugin: &Plugin, program: impl FnOnce() -> c_int) {
    let types = [MEMCPY, MEMSET, KERNEL, RUNTIME, COUNTER];
    let done = AtomicBool::new(false);
    let (begin, begun) = mpsc::channel();
    let events = |lines: &Lines| lines.0.lines().filter(|line| line.starts_with("event")).count();
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut recordings = 0_u64;
            let mut recorded = 0;
            while !done.load(Ordering::Acquire) || recordings < 10 {
                let setup = Setup { types: &types, ..Setup::default() };
                let mut session = plugin.profilers[0].create(&setup).expect("one at a time");
                let mut lines = Lines::default();
                session.start();
                session.toggle(false);
                session.toggle(true);
                session.flush(&mut lines);
                if recordings == 2 {
                    begin.send(()).expect("the program waits");
                    while events(&lines) == 0 && !done.load(Ordering::Acquire) {
                        std::thread::yield_now();
                        session.flush(&mut lines);
                    }
                }
                match recordings % 3 {
                    // The recording is destroyed without a stop, or without taking its events, or
                    // as usual.
                    0 => {}
                    1 => drop(session.stop()),
                    _ => {
                        session.stop();
                        session.process(&mut lines);
                    }
                }
                drop(session);
                recorded += events(&lines);
                recordings += 1;
            }
            recorded
        });
        begun.recv().expect("the third recording begins");
        assert_eq!(program(), 0);
        done.store(true, Ordering::Release);
        let events = others.join().expect("it ends");
        let out = std::env::var("OPENCL_TEST_OUT").expect("given");
        fs::write(out, format!("events\t{events}\n")).expect("writes");
    });
}
