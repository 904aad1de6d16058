//! Runs a plugin of the SDK in Counterpoint's own host.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use plugin_host::{Counter, Event, Host, Metadata, Plugin, Setup, Sink};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn every_call() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent()
        .and_then(Path::parent)
        .expect("target/debug/deps/…")
        .join("examples/libevery_call.so")
}

#[derive(Default)]
struct Seen {
    events: Vec<u32>,
    counters: usize,
    threads: usize,
}

impl Sink for Seen {
    fn event(&mut self, event: &Event, _name: &[u8], _metadata: &Metadata) {
        self.events.push(event.event_type);
    }
    fn device(&mut self, _: i64, _: i64, _: Option<&[u8]>, _: &[u8]) {}
    fn resource(&mut self, _: i32, _: i32, _: i32, _: Option<&[u8]>) {}
    fn thread_name(&mut self, _: i32, _: i32, _: &[u8]) {
        self.threads += 1;
    }
    fn counter(&mut self, _: &Counter<'_>) {
        self.counters += 1;
    }
}

#[test]
fn panics_and_errors_stay_in_the_call() {
    std::panic::set_hook(Box::new(|_| {}));
    let host = Host::leak(|_, text| SAID.lock().expect("not poisoned").push(text.to_owned()));
    let plugin = Plugin::load(&every_call(), host);
    assert_eq!(plugin.problems.all(), [], "{:?}", plugin.problems);
    assert_eq!(host.types(), [("tile".to_owned(), 6)]);
    let profiler = &plugin.profilers[0];
    assert_eq!(
        (profiler.name.as_str(), &profiler.types[..]),
        ("every call", &[23, 6, 22, 1024][..])
    );
    for (configuration, events, counters, said) in [
        (c"", &[23, 6, 1024][..], 2, None),
        (c"panic=start", &[23, 6, 1024], 2, Some("start: panicked: as the configuration asks")),
        (c"fail=stop", &[23, 6, 1024], 2, Some("stop: as the configuration asks")),
        (c"panic=process", &[23, 6, 1024], 2, Some("process: panicked: as the configuration asks")),
        (c"fail=configure", &[23, 6, 1024], 2, Some("configure: as the configuration asks")),
    ] {
        SAID.lock().expect("not poisoned").clear();
        let before: u64 = plugin.problems.all().iter().map(|(_, count)| count).sum();
        let types = [23, 6, 22, 1024];
        let setup = Setup { types: &types, configuration, ..Setup::default() };
        let mut session = profiler.create(&setup).expect("it supports these");
        let mut seen = Seen::default();
        session.start();
        assert!(session.toggle(false) && session.toggle(true));
        assert!(session.flush(&mut seen));
        assert!(!session.process(&mut seen), "not before it has stopped");
        session.stop();
        session.process(&mut seen);
        drop(session);
        assert_eq!((&seen.events[..], seen.counters, seen.threads), (events, counters, 1));
        let after: u64 = plugin.problems.all().iter().map(|(_, count)| count).sum();
        assert_eq!(after - before, u64::from(said.is_some()), "{configuration:?}");
        assert_eq!(SAID.lock().expect("not poisoned").first().map(String::as_str), said);
    }
    // The plugin does not support type 1.
    assert!(profiler.create(&Setup { types: &[1], ..Setup::default() }).is_none());
}
