//! A profiler plugin in Rust that hands over one kernel for each recording.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use plugin::{Error, Event, Kind, Profiler, Session, Trace};

/// The plugin that the shared object offers to hosts.
struct Example;

/// One recording: the times at which it started and stopped, in ns since 1970.
#[derive(Default)]
struct Recording {
    window: Mutex<(i64, i64)>,
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Recording {
    fn note(&self, change: impl FnOnce(&mut (i64, i64))) -> Result<(), Error> {
        let mut window = self.window.lock().map_err(|e| Error(e.to_string()))?;
        change(&mut window);
        Ok(())
    }
}

impl Profiler for Example {
    const NAME: &'static str = "example";
    const KINDS: &'static [Kind] = &[Kind::PRIVATEUSE1_RUNTIME, Kind::KERNEL];
    type Session = Recording;

    fn create(_requested: &[Kind]) -> Result<Recording, Error> {
        Ok(Recording::default())
    }
}

impl Session for Recording {
    fn start(&self) -> Result<(), Error> {
        self.note(|window| window.0 = now())
    }

    fn stop(&self) -> Result<(), Error> {
        self.note(|window| window.1 = now())
    }

    fn process(&self, trace: &mut Trace<'_>) -> Result<(), Error> {
        let (begin, end) = *self.window.lock().map_err(|e| Error(e.to_string()))?;
        trace.device(0, "accelerator 0", "");
        trace.event(&Event::new(Kind::KERNEL, begin, end.max(begin)).device(0)).name("a kernel");
        Ok(())
    }
}

plugin::export_plugin!(Example);
