//! Reads a Chrome trace and reports the speed: `read-chrome FILE`.

use std::time::Instant;

use trace::chrome::event::{Event, Raw, args};
use trace::chrome::read::{EventSink, read};

/// Reads durations and arguments, so that the measured work is like that of converting a trace into
/// a profile.
#[derive(Default)]
struct Sums {
    duration_ns: i64,
    args: u64,
}

impl EventSink for Sums {
    fn event(&mut self, _: u64, event: &Event<'_>) -> Result<(), String> {
        self.duration_ns += event.duration_ns.unwrap_or(0);
        if let Some(raw) = event.args {
            args(raw, |_, _| self.args += 1);
        }
        Ok(())
    }

    fn top(&mut self, _: u64, _: &str, _: Raw<'_>) -> Result<(), String> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read-chrome FILE")?;
    let mut sums = Sums::default();
    let start = Instant::now();
    let summary = read(std::fs::File::open(&path)?, &mut sums)?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = summary.bytes as f64 / 1e6 / seconds;
    println!("{summary:?}: {} ns of slices, {} args", sums.duration_ns, sums.args);
    println!("{seconds:.3} s, {rate:.0} MB/s");
    Ok(())
}
