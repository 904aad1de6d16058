//! Counts events while a closure runs: `cargo run -p counterpoint-measure --example measure`.
//! Arguments after `--` name other counters.

use std::process::ExitCode;

use measure::Counters;

/// Sums numbers in an order that is good for caches (`step` 1) or bad (`step` 4,097).
fn sum(numbers: &[u64], step: usize) -> u64 {
    let mut at = 0;
    let mut sum = 0u64;
    for _ in 0..numbers.len() {
        sum = sum.wrapping_add(numbers[at]);
        at = (at + step) % numbers.len();
    }
    sum
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Box<dyn std::error::Error>> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = vec!["task-clock:u".into(), "page-faults:u".into()];
    }
    let mut counters = Counters::open(&names)?;

    // Count while a closure runs, and get the closure's result as well.
    let (numbers, m) = counters.measure(|| (0..1_000_000).collect::<Vec<u64>>());
    println!("make a vector of 8 MB\n{m}\n");

    // One measurement can be used again and again. Nothing is allocated between begin and end.
    let mut m = counters.measurement();
    for step in [1, 4_097] {
        counters.begin(&mut m)?;
        let total = sum(&numbers, step);
        counters.end(&mut m)?;
        println!("sum it in steps of {step}: {total}\n{m}\n");
    }

    // The value of a counter that could not be read is `None`.
    if let (Some(cycles), Some(instructions)) = (m.value("cycles"), m.value("instructions")) {
        println!("{:.2} instructions per cycle", instructions as f64 / cycles as f64);
    }
    Ok(())
}
