//! Contains the Rust examples of docs/measure.md, so that they are compiled and run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use measure::Error;

fn work() -> u64 {
    (0..1000).map(std::hint::black_box).sum()
}

/// Runs the first example of docs/measure.md. Without a PMU, opening the counters fails.
#[allow(clippy::redundant_closure, reason = "it shows where work goes")]
#[rustfmt::skip]
fn one_region() -> Result<u64, Error> {
    // page
use measure::Counters;

let mut counters = Counters::open(["cycles", "instructions"])?;
let (result, m) = counters.measure(|| work());
println!("{m}");
if let (Some(cycles), Some(instructions)) = (m.value("cycles"), m.value("instructions")) {
    println!("{:.2} instructions per cycle", instructions as f64 / cycles as f64);
}
    // end
    Ok(result)
}

/// The values that the second example reads, one for each request.
#[derive(Default)]
struct Histogram(Vec<Option<u64>>);

impl Histogram {
    fn add(&mut self, value: Option<u64>) {
        self.0.push(value);
    }
}

#[rustfmt::skip]
fn hot_loop(counters: &mut measure::Counters) -> Result<Histogram, Box<dyn std::error::Error>> {
    let (requests, handle) = (0..7u64, std::hint::black_box);
    let mut histogram = Histogram::default();
    // page
let mut m = counters.measurement();       // the only allocation
for request in requests {
    counters.begin(&mut m)?;
    handle(request);
    counters.end(&mut m)?;
    histogram.add(m.value("instructions"));
}
    // end
    Ok(histogram)
}

#[test]
fn the_examples_run() {
    match one_region() {
        Ok(sum) => assert_eq!(sum, 499_500),
        // There is no PMU, or this user may not use it.
        Err(error) => assert!(
            matches!(error.kind(), measure::ErrorKind::Open(_) | measure::ErrorKind::DoesNotCount),
            "{error}"
        ),
    }
    let Ok(mut counters) = measure::Counters::open(["page-faults:u"]) else {
        return eprintln!("SKIPPED: page-faults:u does not open here");
    };
    let histogram = hot_loop(&mut counters).unwrap();
    assert_eq!(histogram.0, [None; 7]);
}

#[test]
fn the_page_shows_what_runs() {
    let page = include_str!("../../../docs/measure.md");
    let here = include_str!("documented.rs");
    let between = |text: &str, open: &str, close: &str| -> Vec<String> {
        let parts = text.split(open).skip(1);
        parts.map(|part| part.split(close).next().unwrap().trim().to_owned()).collect()
    };
    let shown = between(page, "```rust\n", "```");
    assert_eq!(shown, between(here, "    // page\n", "    // end\n"));
    assert_eq!(shown.len(), 2);
}
