//! Measures how long a pair of readings (begin and end) of N software counters takes with
//! Counterpoint's crate `measure`, PAPI and perf-event2. The libraries take turns in one process,
//! with a batch of pairs each. Prints lines `NAME.N VALUE ns` with the medians of the batches.
//!
//! Usage: `counterpoint-peers N [PAPI-LIBRARY]`. A contender makes a pair of readings with one of
//! the libraries, and returns the sum of the counters' differences. Before a contender is timed,
//! the program checks that the contender really counts.

mod papi;

use std::time::Instant;

use counters::{Plan, Target};
use measure::Counters;
use model::{Counter, PerfAttr, Source, Unit};
use papi::Papi;
use perf_event::events::Software;

const BATCHES: usize = 301;
const PAIRS: u32 = 200;

/// For each counter: For each software event: its number in Linux, its name in PAPI and its name in
/// perf-event2. The first event advances between any two readings, so a contender whose counters do
/// not advance is detected.
const EVENTS: [(u64, &str, Software); 5] = [
    (1, "perf::TASK-CLOCK", Software::TASK_CLOCK),
    (2, "perf::PAGE-FAULTS", Software::PAGE_FAULTS),
    (5, "perf::MINOR-FAULTS", Software::PAGE_FAULTS_MIN),
    (6, "perf::MAJOR-FAULTS", Software::PAGE_FAULTS_MAJ),
    (3, "perf::CONTEXT-SWITCHES", Software::CONTEXT_SWITCHES),
];

fn ours(n: usize) -> Result<impl FnMut() -> u64, String> {
    let counter = |(config, name, _): &(u64, &str, Software)| {
        let attr = PerfAttr {
            kind: 1,
            config: *config,
            exclude_kernel: true,
            exclude_hv: true,
            ..Default::default()
        };
        Counter::new(*name, Unit::Count, 0, Source::Perf(attr))
    };
    let plan = Plan::new(EVENTS[..n].iter().map(counter).collect()).map_err(|e| e.to_string())?;
    let mut counters =
        Counters::from_plan(plan, Target::CALLING_THREAD).map_err(|e| e.to_string())?;
    let mut m = counters.measurement();
    Ok(move || {
        if counters.begin(&mut m).and(counters.end(&mut m)).is_err() {
            return 0;
        }
        m.counts().filter_map(|count| count.exact()).sum()
    })
}

fn papi(n: usize, library: &str) -> Result<impl FnMut() -> u64 + use<>, String> {
    let names: Vec<&str> = EVENTS[..n].iter().map(|(_, name, _)| *name).collect();
    let papi = Papi::start(library, &names)?;
    let (mut begin, mut end) = ([0; 8], [0; 8]);
    Ok(move || {
        if !(papi.read(&mut begin) && papi.read(&mut end)) {
            return 0;
        }
        (0..n).map(|i| (end[i] - begin[i]) as u64).sum()
    })
}

fn perf_event2(n: usize) -> Result<impl FnMut() -> u64, String> {
    let mut group = perf_event::Group::new().map_err(|e| e.to_string())?;
    let counters: Vec<_> = EVENTS[..n]
        .iter()
        .map(|(_, _, event)| perf_event::Builder::new(*event).build_with_group(&mut group))
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    group.enable().map_err(|e| e.to_string())?;
    Ok(move || {
        let (Ok(begin), Ok(end)) = (group.read(), group.read()) else { return 0 };
        counters.iter().map(|counter| end[counter] - begin[counter]).sum()
    })
}

fn batch(pair: &mut dyn FnMut() -> u64) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        std::hint::black_box(pair());
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let n: usize = args
        .next()
        .and_then(|n| n.parse().ok())
        .filter(|n| (1..=5).contains(n))
        .ok_or("usage: counterpoint-peers N [PAPI-LIBRARY], N from 1 to 5")?;
    let mut contenders: Vec<(&str, Box<dyn FnMut() -> u64>)> =
        vec![("ours", Box::new(ours(n)?)), ("perf-event2", Box::new(perf_event2(n)?))];
    if let Some(library) = args.next() {
        contenders.push(("papi", Box::new(papi(n, &library)?)));
    }
    let mut times = vec![Vec::with_capacity(BATCHES); contenders.len()];
    for (name, pair) in &mut contenders {
        // The first counter is the thread's processor time, which advances between two readings.
        if (0..1_000).all(|_| pair() == 0) {
            return Err(format!("{name} does not count"));
        }
    }
    for round in 0..BATCHES {
        // Each round begins with another contender.
        for at in 0..contenders.len() {
            let at = (round + at) % contenders.len();
            times[at].push(batch(&mut *contenders[at].1));
        }
    }
    for ((name, _), times) in contenders.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name}.{n} {:.1} ns", times[times.len() / 2]);
    }
    Ok(())
}
