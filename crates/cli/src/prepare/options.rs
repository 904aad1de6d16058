//! What was asked: the options of commands that record.

use std::path::PathBuf;
use std::time::Duration;

use crate::metrics::MetricArgs;
use crate::naming::Naming;

/// What to record and where to.
#[derive(clap::Args)]
pub struct Recording {
    /// Counters, comma separated (`page-faults,task-clock:u`); `none` for timing only.
    /// Without it: what the variables COUNTERPOINT_CPU_METRICS, COUNTERPOINT_CUDA_METRICS, … say;
    /// else cycles, stalls, instructions and cache misses where a program can read them without
    /// the kernel, and timing only where it cannot
    #[arg(short = 'e', long = "events", value_name = "LIST", allow_hyphen_values = true)]
    pub events: Vec<String>,
    #[command(flatten)]
    pub naming: Naming,
    /// Allow more counters than the machine can count at once: they take turns, and values are
    /// estimates, marked as such
    #[arg(long)]
    pub multiplex: bool,
    /// Profile directory to make; an existing profile moves to `DIR.old`
    #[arg(short, long, value_name = "DIR", default_value = "counterpoint.cpt",
          value_parser = crate::input::profile())]
    pub output: PathBuf,
    /// Record only functions whose name matches; `*` and `?` stand for anything. Repeatable
    #[arg(long, value_name = "GLOB")]
    pub filter: Vec<String>,
    /// Also read counters around the book-keeping ops of TVM's virtual machine (`vm.builtin.…`).
    /// Without it they are timed only, and what they count is part of what called them
    #[arg(long)]
    pub bookkeeping: bool,
    #[command(flatten)]
    pub metrics: MetricArgs,
}

/// What is counted beside the program, by whoever stays with it.
#[derive(clap::Args)]
pub struct Beside {
    /// Counters to sample on every CPU, whatever runs there, as tracks; as -e. What counts whole
    /// packages only (power/energy-pkg/) is sampled also if -e names it
    #[arg(short = 'a', long = "system", value_name = "LIST", allow_hyphen_values = true)]
    pub system: Vec<String>,
    /// From sample to sample: 100ms, 1s, 2500us
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub sample_interval: Duration,
}

/// From 1 ms to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return Err("a whole number and us, ms or s".to_owned()),
    };
    let number: u32 = number.parse().map_err(|_| "not a whole number".to_owned())?;
    let time = unit.checked_mul(number).unwrap_or(Duration::MAX);
    let allowed = Duration::from_millis(1)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("not from 1ms to 3600s".to_owned()) }
}
