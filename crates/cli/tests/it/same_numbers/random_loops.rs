//! Makes random profiles of instrumented loops in which every hit (an execution of a function or of
//! a whole loop) is known.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ir::schedule::ScheduledLoop;
use ir::table::{Entry, Kind, SideTable};
use record::loops::{
    Costs, ENTRY_WORDS, LOOPS_NAME, LoopFrame, ModuleFrame, Row, RowsFrame, Trips, TripsFrame, word,
};
use record::meta::{PARTS_NAME, part_name};
use testkit::{CallScript, ProfileScript, Random};

const PID: u32 = 100;
const ID: [u8; 16] = *b"random loops !!!";
/// For each id (of a function or loop), the id of the function or loop that directly contains it.
/// The functions have the ids 0 and 5. Function 5 has no loops.
const PARENTS: [Option<u32>; 6] = [None, Some(0), Some(1), Some(1), Some(3), None];
/// In mode sampled, this many hits of each id are timed before hits are chosen at random.
const FIRST: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Sampled = 0,
    Timed = 1,
    Count = 2,
}

/// What a thread has counted for one id.
#[derive(Clone, Default)]
struct Counted {
    words: [u64; ENTRY_WORDS],
    sums: Vec<u64>,
    trips: Trips,
    /// In mode sampled, the next timed hit is this many hits from now (1: the next hit).
    gap: u64,
}

struct Thread<'a> {
    r: &'a mut Random,
    mode: Mode,
    gap_mask: u64,
    has_counter: bool,
    /// The number of iterations of each hit; `None` if it differs between hits.
    iterations: Option<u64>,
    ids: Vec<Counted>,
}

impl Thread<'_> {
    /// Makes a hit and the hits inside of it. Returns the number of ticks that the hit took.
    fn hit(&mut self, id: u32) -> u64 {
        let is_timed = self.begin(id);
        let random = self.r.below(5) + u64::from(id > 3);
        let iterations = self.iterations.unwrap_or(random);
        let mut took = 5 + self.r.below(200);
        let inner: Vec<u32> =
            (0..).zip(PARENTS).filter(|(_, p)| *p == Some(id)).map(|(i, _)| i).collect();
        let rounds = if inner.is_empty() { 0 } else { iterations };
        let mut inside = 0;
        for _ in 0..rounds {
            for id in &inner {
                inside += self.hit(*id);
            }
        }
        took += inside + 30 * iterations;
        let faults = self.r.below(3);
        if is_timed {
            self.end(id, took, inside, iterations, faults);
        }
        took
    }

    fn begin(&mut self, id: u32) -> bool {
        let gap = 1 + (self.r.next() & self.gap_mask);
        let counted = &mut self.ids[id as usize];
        let words = &mut counted.words;
        words[word::HITS] += 1;
        let is_timed = match self.mode {
            Mode::Count => false,
            Mode::Timed => true,
            Mode::Sampled if words[word::HITS] <= FIRST => {
                counted.gap = gap;
                true
            }
            Mode::Sampled => {
                counted.gap -= 1;
                let is_due = counted.gap == 0;
                if is_due {
                    counted.gap = gap;
                    if words[word::BEGUN] == FIRST {
                        words[word::FIRST_ENDED] = words[word::ENDED];
                        words[word::FIRST_TICKS] = words[word::TICKS];
                        words[word::FIRST_SQUARES] = words[word::SQUARES];
                        counted.trips.first = words[word::ITERATIONS];
                    }
                }
                is_due
            }
        };
        words[word::BEGUN] += u64::from(is_timed);
        is_timed
    }

    fn end(&mut self, id: u32, took: u64, inside: u64, iterations: u64, faults: u64) {
        let is_timed_mode = self.mode == Mode::Timed;
        let counted = &mut self.ids[id as usize];
        let words = &mut counted.words;
        words[word::ENDED] += 1;
        words[word::TICKS] += took;
        words[word::SQUARES] += took * took;
        words[word::CHILD_TICKS] = match is_timed_mode {
            true => words[word::CHILD_TICKS] + inside,
            false => words[word::CHILD_TICKS].max(took),
        };
        if PARENTS[id as usize].is_some() {
            words[word::ITERATIONS] += iterations;
            words[word::ITERATED] += 1;
            let trips = &mut counted.trips;
            trips.least =
                if words[word::ITERATED] == 1 { iterations } else { trips.least.min(iterations) };
            trips.most = trips.most.max(iterations);
        }
        if self.has_counter {
            counted.sums.resize(2, 0);
            counted.sums[0] += 1;
            counted.sums[1] += faults;
        }
    }
}

/// Returns four loops of a schedule: one that was unrolled completely, the outer loop of `f`, one
/// that became two loops, and the innermost one.
fn schedule(r: &mut Random, iterations: Option<u64>) -> Vec<ScheduledLoop> {
    let mut all = Vec::new();
    let kinds = ["serial", "parallel", "vectorized"];
    for (at, ids) in [&[][..], &[1], &[2, 3], &[4]].into_iter().enumerate() {
        let each = 1 + r.below(4);
        let extent = each * iterations.unwrap_or(3) + r.below(each);
        all.push(ScheduledLoop {
            function: "main".into(),
            variable: format!("ax{at}"),
            kind: kinds[r.below(3) as usize].into(),
            extent: (!r.odd(4)).then_some(extent),
            parent: (at == 3).then_some(1),
            depth: u32::from(at == 3),
            chosen: true,
            gone: ids.is_empty().then(|| "unrolled".into()),
            source: None,
            lines: r.odd(2).then(|| [at as u32 + 1, at as u32 + 2]),
            ids: ids.to_vec(),
        });
    }
    all
}

fn side_table(mode: Mode, schedule: Vec<ScheduledLoop>) -> SideTable {
    let height = [3, 2, 0, 1, 0, 0];
    let entry = |(id, parent): (u32, Option<u32>)| {
        let is_loop = parent.is_some();
        Entry {
            id,
            kind: if is_loop { Kind::Loop } else { Kind::Function },
            function: if id == 5 { "g" } else { "f" }.into(),
            parent,
            depth: is_loop.then(|| [0, 0, 1, 1, 2, 0][id as usize]),
            height: height[id as usize],
            siblings: u32::from(parent == Some(1)),
            label: is_loop.then(|| format!("block{id}")),
            variable: is_loop.then(|| ["", "i", "j", "k", "l", ""][id as usize].to_owned()),
            file: Some("mm.c".into()),
            line: Some(10 + id),
            column: Some(1),
            text: [10 * id + 1, 10 * id + 9],
            trip_count: None,
            places: Vec::new(),
        }
    };
    SideTable {
        counterpoint_loops: ir::table::VERSION,
        module: analysis::loops::identity(&ID),
        source: "mm.ll".into(),
        mode: ["sampled", "timed", "count"][mode as usize].into(),
        entries: (0..).zip(PARENTS).map(entry).collect(),
        schedule,
        ..SideTable::default()
    }
}

/// Writes a random profile. Each thread has one recorded call, and 1 to 30 complete outermost hits
/// of the two functions.
pub fn write(r: &mut Random, dir: &Path) {
    let mode = [Mode::Sampled, Mode::Timed, Mode::Count][r.below(3) as usize];
    let has_counter = mode != Mode::Count && r.odd(2);
    let gap_mask = [0, 3, 15][r.below(3) as usize];
    let iterations = r.odd(2).then(|| 1 + r.below(3));
    let schedule = if r.odd(2) { schedule(r, iterations) } else { Vec::new() };
    let mut script = ProfileScript::monotonic();
    if has_counter {
        script.counter("page-faults", 0);
    }
    let process = script.process(PID);
    process.library("m", &["a"]);
    let threads = 1 + r.below(3) as u32;
    for number in 0..threads {
        let thread = process.thread(&format!("t{number}"));
        thread.tid = PID + number;
        let call = CallScript::new(0, 1_000, 100 + r.below(900));
        thread.call(if has_counter { call.group(100, &[r.below(3)]) } else { call });
    }
    let start_time = process.start_time;
    script.write(dir);

    let costs = [4.0, 5.0, 6.0];
    let mut frames = vec![LoopFrame::Module(ModuleFrame {
        number: 0,
        id: ID,
        mode: mode as u32,
        ids: PARENTS.len() as u32,
        ticks_per_second: 1_000_000_000,
        first: FIRST as u32,
        gap_mask: gap_mask as u32,
        object: "/opt/model/m.so".into(),
        table: side_table(mode, schedule).to_json().unwrap().into_bytes(),
        costs: r.odd(2).then(|| Costs {
            inside: (mode != Mode::Count).then_some(costs),
            timed: (mode != Mode::Count).then_some(costs.map(|ticks| 2.0 * ticks)),
            counted: (mode != Mode::Timed).then_some(costs.map(|ticks| ticks / 4.0)),
        }),
        export: None,
    })];
    for number in 0..threads {
        let ids = vec![Counted::default(); PARENTS.len()];
        let mut thread = Thread { r: &mut *r, mode, gap_mask, has_counter, iterations, ids };
        for _ in 0..1 + thread.r.below(30) {
            let function = if thread.r.odd(4) { 5 } else { 0 };
            thread.hit(function);
        }
        // Sometimes, the recording ends while the thread is in function 5.
        if thread.r.odd(5) {
            thread.begin(5);
        }
        let ids = thread.ids;
        let known = || (0u32..).zip(&ids).filter(|(_, of)| of.words[word::HITS] > 0);
        let rows = known().map(|(id, of)| Row { id, words: of.words, sums: of.sums.clone() });
        let mut thread_name = [0; 16];
        thread_name[..2].copy_from_slice(format!("t{number}").as_bytes());
        frames.push(LoopFrame::Rows(RowsFrame {
            serial: number,
            block: 0,
            module: 0,
            tid: PID + number,
            thread_name,
            counters: u32::from(has_counter),
            rows: rows.collect(),
        }));
        let trips = known().filter(|(_, of)| of.words[word::ITERATED] > 0);
        let rows = trips.map(|(id, of)| (id, of.trips.clone())).collect();
        frames.push(LoopFrame::Trips(TripsFrame { serial: number, block: 0, rows }));
    }
    let part = dir.join(PARTS_NAME).join(part_name(PID, start_time, 0));
    let mut file = File::create(part.join(LOOPS_NAME)).unwrap();
    frames.iter().for_each(|frame| file.write_all(&frame.to_bytes()).unwrap());
}
