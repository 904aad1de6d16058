//! Calls, in the test's process, functions of a plugin that end by an exception or by
//! `pthread_exit`. g++ and clang++ compile the plugin from `throws.cpp`.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use plugin_host::platform::Library;
use plugin_host::session::Stack;
use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink};
use testkit::{Scratch, c};

#[derive(Default)]
struct Names(Vec<String>);

impl Sink for Names {
    fn event(&mut self, _: &Event, name: &[u8], _: &Metadata) {
        self.0.push(String::from_utf8_lossy(name).into_owned());
    }
    fn device(&mut self, _: i64, _: i64, _: Option<&[u8]>, _: &[u8]) {}
    fn resource(&mut self, _: i32, _: i32, _: i32, _: Option<&[u8]>) {}
    fn thread_name(&mut self, _: i32, _: i32, _: &[u8]) {}
    fn counter(&mut self, _: &Counter<'_>) {}
}

type At = extern "C" fn(*const c_char, *const c_char);
type Cleaned = extern "C" fn() -> i32;

struct Told {
    at: At,
    cleaned: Cleaned,
}

impl Told {
    fn of(file: &Path) -> Self {
        let library = Library::open(file).expect("loads");
        let (at, cleaned) = (library.symbol(c"throws_at"), library.symbol(c"throws_cleaned"));
        // SAFETY: throws.cpp defines the functions with these types.
        unsafe {
            Self {
                at: std::mem::transmute::<*mut c_void, At>(at.expect("there").as_ptr()),
                cleaned: std::mem::transmute::<*mut c_void, Cleaned>(
                    cleaned.expect("there").as_ptr(),
                ),
            }
        }
    }

    fn at(&self, place: &str, how: &str) {
        let [place, how] = [place, how].map(|text| CString::new(text).expect("no zero byte"));
        (self.at)(place.as_ptr(), how.as_ptr());
    }
}

/// Loads the plugin from `file` and makes a recording. Returns the names of the events and the
/// plugin's problems.
fn record(file: &Path) -> (Vec<String>, Vec<String>) {
    let plugin = Plugin::load(file, Host::leak(|_, _| {}));
    let mut names = Names::default();
    for profiler in &plugin.profilers {
        let Some(mut session) = profiler.create(&Setup { types: &[6], ..Setup::default() }) else {
            continue;
        };
        session.start();
        session.toggle(true);
        let correlation = session.correlation();
        for stack in [Stack::Ops, Stack::User] {
            correlation.push(stack, 1);
            correlation.pop(stack);
        }
        session.flush(&mut names);
        session.stop();
        session.process(&mut names);
    }
    let problems = plugin.problems.all();
    (names.0, problems.iter().map(|(problem, count)| format!("{count}× {problem}")).collect())
}

fn compilers() -> impl Iterator<Item = (&'static str, Scratch)> {
    ["g++", "clang++"].into_iter().filter_map(|compiler| {
        let scratch = Scratch::new();
        let flags = ["-std=c++17", "-fPIC", "-shared"];
        let done = c::compile(compiler, "plugins/throws.cpp", &scratch.join("t.so"), &flags);
        if done.is_none() {
            testkit::skip("plugin_host", &format!("no {compiler}"));
        }
        done.map(|()| (compiler, scratch))
    })
}

#[test]
fn an_exception_ends_its_call_and_nothing_else() {
    const WHOLE: [&str; 2] = ["before", "after"];
    for (compiler, scratch) in compilers() {
        let file = scratch.join("t.so");
        let told = Told::of(&file);
        assert_eq!(record(&file), (WHOLE.map(str::to_owned).into(), Vec::new()), "{compiler}");
        for (place, names) in [
            ("KinetoPlugin_register", &[][..]),
            ("CounterpointPlugin_extend", &WHOLE),
            ("profilerQuery", &[]),
            ("profilerCreate", &[]),
            ("configure", &WHOLE),
            ("profilerStart", &WHOLE),
            ("toggle", &WHOLE),
            ("profilerPushCorrelationId", &WHOLE),
            ("profilerPopCorrelationId", &WHOLE),
            ("profilerPushUserCorrelationId", &WHOLE),
            ("profilerPopUserCorrelationId", &WHOLE),
            ("flush", &WHOLE),
            ("profilerStop", &WHOLE),
            ("profilerProcessEvents", &["before"]),
            ("profilerDestroy", &WHOLE),
        ] {
            (told.cleaned)();
            told.at(place, "runtime_error");
            let (given, said) = record(&file);
            assert_eq!(given, names, "{compiler}, {place}");
            let expected =
                format!("1× {place} threw a C++ exception of type std::runtime_error: no device");
            assert_eq!(said[0], expected, "{compiler}");
            let more = &said[1..];
            assert!(more.is_empty() || place == "profilerQuery", "{compiler}, {place}: {more:?}");
            assert!((told.cleaned)() >= 2, "{compiler}, {place}: destructors ran");
        }
    }
}

#[test]
fn an_exception_is_named_by_its_type() {
    for (compiler, scratch) in compilers() {
        let file = scratch.join("t.so");
        let told = Told::of(&file);
        // The messages must name the types as `c++filt --types` prints them.
        for (how, says) in [
            ("int", "threw a C++ exception of type int"),
            ("text", "threw a C++ exception of type char const*"),
            ("own", "threw a C++ exception of type (anonymous namespace)::Own: no device of mine"),
            ("mixed", "threw a C++ exception of type (anonymous namespace)::Mixed"),
            ("shared", "threw a C++ exception of type std::runtime_error"),
            ("nasty", "threw a C++ exception of type (anonymous namespace)::Nasty"),
            ("thread_exit", "called pthread_exit"),
        ] {
            told.at("profilerStart", how);
            let (given, said) = record(&file);
            assert_eq!(given, ["before", "after"], "{compiler}, {how}");
            assert_eq!(said, [format!("1× profilerStart {says}")], "{compiler}");
            assert!((told.cleaned)() > 0, "{compiler}, {how}: destructors ran");
        }
    }
}

#[test]
fn a_thread_survives_many_of_them_and_ends_as_usual() {
    let Some((_, scratch)) = compilers().next() else { return };
    let file = scratch.join("t.so");
    let told = Told::of(&file);
    let plugin = Plugin::load(&file, Host::leak(|_, _| {}));
    let setup = Setup { types: &[6], ..Setup::default() };
    let mut session = plugin.profilers[0].create(&setup).expect("it supports these");
    session.start();
    for (round, how) in ["int", "thread_exit", "own"].into_iter().enumerate() {
        told.at("profilerPushCorrelationId", how);
        let ended = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let correlation = session.correlation();
                let ended = &ended;
                scope.spawn(move || {
                    for id in 0..500 {
                        correlation.push(Stack::Ops, id);
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(ended.into_inner(), 4, "{how}");
        let problems = plugin.problems.all();
        assert_eq!(problems.len(), round + 1, "{problems:?}");
        assert_eq!(problems[round].1, 2000, "{problems:?}");
    }
}

#[test]
fn a_constructor_may_throw_as_well() {
    let scratch = Scratch::new();
    let file = scratch.join("t.so");
    let flags = ["-std=c++17", "-fPIC", "-shared", "-DIN_CONSTRUCTOR"];
    let Some(()) = c::compile("g++", "plugins/throws.cpp", &file, &flags) else {
        return testkit::skip("plugin_host", "no g++");
    };
    let plugin = Plugin::load(&file, Host::leak(|_, _| {}));
    let problems = plugin.problems.all();
    assert_eq!(
        problems[0].0.to_string(),
        "cannot be loaded: a constructor of it threw a C++ exception of type std::runtime_error: \
         too early"
    );
    // The dynamic linker must still work after a constructor threw, also on another thread.
    let again = scratch.join("u.so");
    let flags = ["-std=c++17", "-fPIC", "-shared"];
    c::compile("g++", "plugins/throws.cpp", &again, &flags).expect("as before");
    assert_eq!(record(&again).0.len(), 2);
    let third = scratch.join("v.so");
    std::fs::copy(&again, &third).expect("copies");
    let other = std::thread::spawn(move || record(&third).0.len());
    for _ in 0..1000 {
        if other.is_finished() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(other.is_finished(), "it waits for the dynamic linker");
    assert_eq!(other.join().expect("ends"), 2);
}
