//! Measures the resolution of measurements on this machine: the steps of the clock, and the
//! duration and counter values that the recorder would measure for an empty call.
//!
//! The clock and the counters are read by the code that reads them in profiled programs, in the
//! same order. A profiled program also finds the calling thread and writes a record, which the code
//! here does not do.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use counters::{Plan, Readings, ThreadCounters};
use machine::Machine;
use machine::doctor::Level;
use model::Counter;
use record::{ClockKind, Snapshot, Timeline};
use serde::Serialize;

use super::Row;
use crate::view::units::{number, time};

/// Number of empty brackets that are measured. A bracket reads the counters and the clock before
/// and after a call; an empty bracket has no call.
const CALLS: usize = 1_000;
/// Number of brackets that are left out at the beginning, before the caches are warm.
const COLD: usize = 100;
/// The clock is compared with `CLOCK_MONOTONIC` for this long.
const COMPARED: Duration = Duration::from_millis(5);

/// The member `resolution` of the JSON document that `doctor` writes.
#[derive(Serialize)]
pub struct Resolution {
    clock: &'static str,
    clock_step_ns: Steps,
    empty_call: Empty,
}

/// The steps of the clock, in ns. Both fields are null if the clock did not advance while its steps
/// were measured.
#[derive(Serialize)]
struct Steps {
    smallest: Option<f64>,
    typical: Option<f64>,
}

#[derive(Serialize)]
struct Empty {
    calls: usize,
    duration_ns: Quantiles,
    counters: Vec<OfCounter>,
}

#[derive(Serialize)]
struct OfCounter {
    name: String,
    unit: String,
    #[serde(flatten)]
    values: Quantiles,
}

/// Statistics of one quantity (the duration or a counter) over the empty brackets, without failed
/// readings.
#[derive(Clone, Copy, Serialize)]
struct Quantiles {
    p10: f64,
    p50: f64,
    p90: f64,
    mean: f64,
    standard_error: f64,
}

impl Quantiles {
    /// Returns `None` for fewer than two values.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        let n = values.len() as f64;
        if values.len() < 2 {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        let at = |tenths: usize| values.get(values.len() * tenths / 10).copied();
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_error = (squares / (n - 1.0) / n).sqrt();
        Some(Self { p10: at(1)?, p50: at(5)?, p90: at(9)?, mean, standard_error })
    }

    fn text(&self, print: impl Fn(f64) -> String) -> String {
        let [p10, p50, p90, mean, error] =
            [self.p10, self.p50, self.p90, self.mean, self.standard_error].map(print);
        format!("{p50} (10 %: {p10}, 90 %: {p90}, mean {mean} ± {error})")
    }
}

/// Measures the clock and those of `counters` that count the events of a thread. If the counters
/// cannot be opened together, they are left out. Returns `None` if fewer than two durations were
/// measured.
pub fn measure(counters: &[Counter], machine: &Machine) -> Option<Resolution> {
    let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let kind = ClockKind::choose(&machine.read_trimmed(source).unwrap_or_default());
    let begin = Snapshot::take(kind);
    thread::sleep(COMPARED);
    let line = Timeline::fit(kind, &[begin, Snapshot::take(kind)]);
    let steps = kind.granularity();
    let ns = |ticks: u64| Some(line.duration_ns(ticks)).filter(|_| ticks > 0);
    let clock_step_ns =
        Steps { smallest: ns(steps.smallest_ticks), typical: ns(steps.typical_ticks) };
    let of_threads = counters.iter().filter(|counter| counter.scope.is_thread());
    let plan = Plan::new(of_threads.cloned().collect()).unwrap_or_default();
    let mut opened = ThreadCounters::closed();
    let counting = !plan.counters().is_empty() && opened.open(&plan).is_ok();
    let (mut before, mut after) = (Readings::new(), Readings::new());
    let mut durations = Vec::with_capacity(CALLS);
    let mut values = vec![Vec::with_capacity(CALLS); plan.counters().len()];
    for call in 0..CALLS + COLD {
        if counting {
            // The result is ignored, because `read` marks readings that failed.
            let _ = opened.read(&mut before);
        }
        let start = kind.begin();
        black_box(());
        let (end, _) = kind.end();
        if counting {
            let _ = opened.read(&mut after);
        }
        if call < COLD {
            continue;
        }
        durations.push(line.duration_ns(end.saturating_sub(start)));
        for (i, values) in values.iter_mut().enumerate().filter(|_| counting) {
            values.extend(after.since(&before, i).map(|value| value as f64));
        }
    }
    opened.close();
    let of_counter = |(counter, values): (&Counter, Vec<f64>)| {
        let (name, unit) = (counter.name.clone(), counter.unit.name().to_owned());
        Some(OfCounter { name, unit, values: Quantiles::of(values)? })
    };
    let counters = plan.counters().iter().zip(values).filter_map(of_counter).collect();
    let duration_ns = Quantiles::of(durations)?;
    let empty_call = Empty { calls: CALLS, duration_ns, counters };
    Some(Resolution { clock: kind.name(), clock_step_ns, empty_call })
}

impl Resolution {
    pub fn rows(&self) -> Vec<Row> {
        let row = |name: String, state: String| Row {
            name,
            level: Level::Ok.name(),
            state,
            prevents: None,
            remedy: None,
        };
        let step = |ns: Option<f64>| ns.map_or_else(|| "unknown".to_owned(), time);
        let Steps { smallest, typical } = &self.clock_step_ns;
        let steps = format!("typically {}, at least {}", step(*typical), step(*smallest));
        let empty = &self.empty_call;
        let mut rows = vec![
            row("clock step".to_owned(), steps),
            row("empty call".to_owned(), empty.duration_ns.text(time)),
        ];
        rows.extend(empty.counters.iter().map(|counter| {
            let print = |value| match counter.unit.as_str() {
                "ns" => time(value),
                _ => number(value),
            };
            row(format!("empty call, {}", counter.name), counter.values.text(print))
        }));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are 1 to 10. Their mean is 5.5, and the squares of their differences from the
    /// mean add up to 82.5.
    #[test]
    fn quantiles_of_ten_values() {
        let found = Quantiles::of((1..=10).rev().map(f64::from).collect()).unwrap();
        assert_eq!((found.p10, found.p50, found.p90, found.mean), (2.0, 6.0, 10.0, 5.5));
        assert!((found.standard_error - (82.5f64 / 9.0 / 10.0).sqrt()).abs() < 1e-12);
        assert!(Quantiles::of(vec![1.0]).is_none());
    }

    /// Page faults are counted exactly, and nothing that the bracket does causes a page fault.
    #[test]
    fn an_empty_bracket_has_no_page_fault() {
        let machine = Machine::here();
        let Ok(counters) = names::Resolver::new(&machine).resolve("page-faults:u") else { return };
        let found = measure(&counters, &machine).unwrap();
        assert_eq!(found.empty_call.calls, CALLS);
        assert!(found.empty_call.duration_ns.p50 >= 0.0);
        for counter in &found.empty_call.counters {
            assert_eq!((counter.values.p10, counter.values.p90), (0.0, 0.0));
        }
        assert_eq!(found.rows().len(), 2 + found.empty_call.counters.len());
    }
}
