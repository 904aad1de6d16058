//! Checks how often the intervals in the mode `sampled` contain the true time. Hits are sampled
//! from populations of known times, as `include/counterpoint/loops.h` specifies.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::loops::{Estimate, LoopData, loops};
use ir::table::{Entry, Kind, SideTable};
use profile::loops::{LoopModule, LoopRow};

const FIRST: u64 = 100;
const MASK: u64 = 127;
/// Number of simulated samples for each combination of a population and a number of hits. With
/// 200,000 hits, a fifth of this number is simulated.
const DRAWS: u64 = 100;
/// At least this share of the intervals must contain the true time.
const LEAST: f64 = 0.93;

/// An xorshift64* generator for the populations. Instrumented code has a different generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Makes the row that a thread would record for hits with these times. Instrumented programs use
/// other code for this.
fn sample(id: u32, times: &[u64], seed: u64) -> LoopRow {
    let mut row = LoopRow { id, tid: 1, ..LoopRow::default() };
    let (mut next, mut state) = (1, seed | 1);
    for time in times {
        row.hits += 1;
        if row.hits != next {
            continue;
        }
        if row.begun == FIRST {
            row.first_ended = row.ended;
            row.first_ticks = row.ticks;
            row.first_squares = row.squares;
        }
        row.begun += 1;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        next = row.hits + 1 + if row.hits < FIRST { 0 } else { state & MASK };
        row.ended += 1;
        row.ticks += time;
        row.squares += u128::from(*time).pow(2);
        row.child_ticks = row.child_ticks.max(*time);
    }
    row
}

fn entry(id: u32, parent: Option<u32>) -> Entry {
    Entry {
        id,
        kind: if parent.is_none() { Kind::Function } else { Kind::Loop },
        function: "f".to_owned(),
        parent,
        depth: parent.map(|_| 0),
        height: 1,
        siblings: 0,
        label: None,
        variable: None,
        file: None,
        line: None,
        column: None,
        text: [1, 1],
        trip_count: None,
        places: Vec::new(),
    }
}

/// Estimates the time of a loop and the self time of the function around it. The function was
/// entered once. It took `around` ticks more than all hits of the loop together.
fn inside(times: &[u64], around: u64, seed: u64) -> [Option<Estimate>; 2] {
    let table = SideTable {
        counterpoint_loops: ir::table::VERSION,
        module: "00".repeat(16),
        mode: "sampled".to_owned(),
        entries: vec![entry(0, None), entry(1, Some(0))],
        ..SideTable::default()
    };
    let table = Some(table.to_json().unwrap());
    let modules = [LoopModule { ids: 2, table, ticks_per_second: 1e9, ..LoopModule::default() }];
    let whole = times.iter().sum::<u64>() + around;
    let rows = [sample(0, &[whole], seed), sample(1, times, seed)];
    let data = LoopData { modules: &modules, rows: &rows, events: &[], counters: &[] };
    let table = loops(data, &[]);
    let nodes = &table.modules[0].nodes;
    [Some(nodes[1].all.raw.unwrap().inclusive), nodes[0].all.raw.unwrap().own]
}

/// Estimates the time of a function that is not inside of another instrumented function or loop.
fn alone(times: &[u64], seed: u64) -> Estimate {
    let modules = [LoopModule { ids: 1, ticks_per_second: 1e9, ..LoopModule::default() }];
    let rows = [sample(0, times, seed)];
    let data = LoopData { modules: &modules, rows: &rows, events: &[], counters: &[] };
    loops(data, &[]).modules[0].nodes[0].all.raw.unwrap().inclusive
}

type Population = (&'static str, fn(usize, usize, &mut Random) -> f64);

/// The name of each population, and the time of hit `i` of `n`.
const POPULATIONS: [Population; 9] = [
    ("constant", |_, _, _| 500.0),
    ("normal", |_, _, random| 500.0 + 50.0 * random.normal()),
    ("skewed", |_, _, random| (6.0 + 0.8 * random.normal()).exp()),
    ("two modes", |_, _, random| if random.unit() < 0.2 { 5_000.0 } else { 400.0 }),
    ("rare 1 in 500", |_, _, random| if random.unit() < 0.002 { 100_000.0 } else { 200.0 }),
    ("cold", |i, _, random| (if i < 60 { 9_000.0 } else { 300.0 }) + 20.0 * random.normal()),
    ("drifting", |i, n, random| 300.0 + 900.0 * i as f64 / n as f64 + 20.0 * random.normal()),
    ("periodic", |i, _, _| if i % 64 == 0 { 4_000.0 } else { 250.0 }),
    (
        "preempted",
        |_, _, random| if random.unit() < 0.000_05 { 3e6 } else { 300.0 + random.unit() },
    ),
];

#[test]
fn stated_intervals_hold() {
    let mut failures = Vec::new();
    for (name, time) in POPULATIONS {
        let mut held = [(0, 0); 3];
        for hits in [1_000, 12_000, 200_000] {
            for draw in 0..if hits > 100_000 { DRAWS / 5 } else { DRAWS } {
                let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (draw << 20 | hits as u64));
                let times: Vec<u64> =
                    (0..hits).map(|i| time(i, hits, &mut random).max(1.0) as u64).collect();
                let whole: u64 = times.iter().sum();
                let (around, seed) = (whole / 50, random.next());
                let [within, own] = inside(&times, around, seed);
                let alone = Some(alone(&times, seed));
                let truths = [(within, whole), (own, around), (alone, whole)];
                for ((estimate, truth), held) in truths.iter().zip(&mut held) {
                    if let Some((value, margin)) = estimate.and_then(|e| Some((e.value, e.margin?)))
                    {
                        let rounding = 1e-9 * value;
                        let is_held = (value - *truth as f64).abs() <= margin + rounding;
                        held.0 += u32::from(is_held);
                        held.1 += 1;
                    }
                }
            }
        }
        for (what, (held, stated)) in ["loop", "self time around it", "alone"].iter().zip(held) {
            println!("{name}, {what}: {held} of {stated}");
            if f64::from(held) < LEAST * f64::from(stated) {
                failures.push(format!("{name}, {what}: {held} of {stated}"));
            }
        }
        assert!(held[0].1 > 100, "{name}: intervals of a loop are missing");
        assert_eq!(held[2].1, 0, "{name}: nobody knows what a function did while nobody looked");
    }
    assert_eq!(failures, Vec::<String>::new());
}
