//! A plugin that calls most functions of the SDK, with invented events:
//!
//! ```text
//! cargo build -p counterpoint-plugin --example every_call
//! counterpoint plugin check target/debug/examples/libevery_call.so
//! ```
//!
//! With the configuration `panic=WHERE`, the plugin panics in `start`, `stop`, `process`,
//! `configure` or `flush`. With `fail=WHERE`, the function of this name returns an error. So you
//! can see how a host reacts.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use plugin::{Configuration, Error, Event, Kind, Profiler, Session, Trace};

struct EveryCall;

#[derive(Default)]
struct Recording {
    kinds: Vec<Kind>,
    pushed: AtomicU64,
    popped: AtomicU64,
    configuration: Mutex<String>,
}

const TILE: Kind = Kind::own(0);

impl Profiler for EveryCall {
    const NAME: &'static str = "every call";
    const KINDS: &'static [Kind] = &[Kind::PRIVATEUSE1_RUNTIME, Kind::KERNEL, Kind::COUNTER];
    const OWN_KINDS: &'static [(&'static str, Kind)] = &[("tile", Kind::KERNEL)];
    type Session = Recording;

    fn create(requested: &[Kind]) -> Result<Recording, Error> {
        if requested.is_empty() {
            return Err("nothing was requested".into());
        }
        Ok(Recording { kinds: requested.to_vec(), ..Recording::default() })
    }
}

impl Recording {
    fn here(&self, place: &str) -> Result<(), Error> {
        let configuration = self.configuration.lock().map_err(|e| Error(e.to_string()))?.clone();
        match configuration.split_once('=') {
            Some(("panic", at)) if at == place => panic!("as the configuration asks"),
            Some(("fail", at)) if at == place => Err("as the configuration asks".into()),
            _ => Ok(()),
        }
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        self.here("start")
    }

    fn stop(&self) -> Result<(), Error> {
        self.here("stop")
    }

    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        trace.device(3, "accelerator 3", "rev \"B\"");
        trace.resource(3, 7, 1, "stream 7");
        trace.thread_name(500, 501, "launcher");
        if self.kinds.contains(&Kind::PRIVATEUSE1_RUNTIME) {
            trace
                .event(
                    &Event::new(Kind::PRIVATEUSE1_RUNTIME, 1000, 2000)
                        .thread(500, 501)
                        .correlation(11),
                )
                .name("launch")
                .launches(11);
        }
        if self.kinds.contains(&Kind::KERNEL) {
            trace
                .event(&Event::new(Kind::KERNEL, 1500, 9000).device(3).stream(7).correlation(11))
                .name("größte \"matmul\"")
                .launched_by(11)
                .arg("shape", &[64_i64, 32][..])
                .arg("note", "a \"quoted\"\nline")
                .arg("pushed", self.pushed.load(Ordering::Relaxed))
                .arg("popped", self.popped.load(Ordering::Relaxed));
        }
        if self.kinds.contains(&TILE) {
            trace.event(&Event::new(TILE, 1600, 1700).device(3).stream(7)).name("tile 0");
        }
        trace.counter(3000, Some(3), "bandwidth", "read", "GB/s", 10.5);
        self.here("process")
    }

    fn push_correlation(&self, _id: u64) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
    }

    fn pop_correlation(&self) {
        self.popped.fetch_add(1, Ordering::Relaxed);
    }

    fn configure(&self, configuration: &Configuration<'_>) -> Result<(), Error> {
        let mut kept = self.configuration.lock().map_err(|e| Error(e.to_string()))?;
        configuration.text.clone_into(&mut kept);
        drop(kept);
        self.here("configure")
    }

    fn flush(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        trace.counter(2500, None, "power", "package", "W", 12.0);
        self.here("flush")
    }
}

plugin::export_plugin!(EveryCall);
