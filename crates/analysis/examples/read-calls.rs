//! Measures how long reading all calls of a profile takes: `cargo run -p counterpoint-analysis
//! --release --example read-calls -- WHAT DIR`. WHAT is `report`, `stats` or `decode`. `decode`
//! only decodes the pages (blocks of recorded calls). Any view that reads all calls takes at least
//! this time. Prints the time in ms and the highest resident memory in KiB.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use profile::Profile;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir] = args.as_slice() else { panic!("usage: read-calls decode|report|stats DIR") };
    let begin = Instant::now();
    let profile = Profile::open(Path::new(dir)).expect("open the profile");
    match what.as_str() {
        "decode" => {
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            let add = |calls: &mut usize, columns: &profile::Columns| *calls += columns.len();
            black_box(profile.visit(workers, || 0, add));
        }
        "report" => _ = black_box(analysis::summarize(&profile, &analysis::Options::default())),
        "stats" => {
            let options = analysis::stats::Options::default();
            _ = black_box(analysis::stats(&profile, &options).expect("statistics"));
        }
        _ => panic!("{what} is not known"),
    }
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    println!("{what} {ms:.0} ms, {} KiB", highest_kib().unwrap_or(0));
}

fn highest_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
