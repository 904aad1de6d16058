//! Tests instrumented loops on AArch64, in `tests/programs/loops_host.c` and in the program `sum`.
//! Each loop has as many hits (entries) as the source says, and the same work has the same count of
//! instructions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use record::loops::{LOOPS_NAME, LoopFrame, Row, Run, read_frames, word};
use record::pool::PoolFile;
use record::run_file::LoopOptions;

use crate::agent::{Left, record};
use crate::report::tests;
use crate::user::user_access;

tests![instrumented: hits_of_threads_are_exact, instructions_of_hits_are_exact,
    a_killed_program_loses_no_hit, the_log_has_places, machine_code_runs_as_often_as_it_says];

/// The rows by the thread's id and the loop's id.
type Threads = BTreeMap<u32, BTreeMap<u32, Row>>;

fn run(name: &str, mode: u32, arguments: &[&str]) -> (Left, Vec<LoopFrame>) {
    let mut command = Command::new(format!("/bin/loops{mode}"));
    let left = record(name, command.args(arguments), Some(LoopOptions::default()));
    let frames = frames_of(&left);
    (left, frames)
}

/// Reads the frames (records about loops) from the files of the profile's parts and from the pool.
fn frames_of(left: &Left) -> Vec<LoopFrame> {
    let mut frames = Vec::new();
    let parts = Path::new(&left.profile).join(record::meta::PARTS_NAME);
    for part in fs::read_dir(parts).expect("read the parts").flatten() {
        let read = read_frames(&fs::read(part.path().join(LOOPS_NAME)).expect("a file of loops"));
        assert_eq!(read.torn, 0);
        frames.extend(read.frames);
    }
    let pool = PoolFile::open(&Path::new(&left.profile).join("pool/pool")).expect("open the pool");
    for (page, _) in pool.claimed() {
        let bytes = pool.page(page).expect("read a page");
        let Ok(run) = Run::parse(&bytes) else { continue };
        for block in run.blocks() {
            let mut written = Vec::new();
            let write = |frame: &[u8]| {
                written.extend_from_slice(frame);
                Ok::<(), ()>(())
            };
            block.expect("whole").write(write).expect("never fails");
            frames.extend(read_frames(&written).frames);
        }
    }
    frames
}

fn threads(frames: &[LoopFrame]) -> Threads {
    let mut all = Threads::new();
    for frame in frames {
        if let LoopFrame::Rows(rows) = frame {
            let thread = all.entry(rows.tid).or_default();
            thread.extend(rows.rows.iter().map(|row| (row.id, row.clone())));
        }
    }
    all
}

/// Returns the loops' ids and hits of each thread, sorted, because the threads have no fixed order.
fn hits(threads: &Threads) -> Vec<Vec<(u32, u64)>> {
    let of = |thread: &BTreeMap<u32, Row>| {
        thread.values().map(|row| (row.id, row.words[word::HITS])).collect()
    };
    let mut all: Vec<Vec<(u32, u64)>> = threads.values().map(of).collect();
    all.sort();
    all
}

/// nest(N, 3) enters its inner loop N times. nest(10, 3) runs in the main thread, and nest(10, 3)
/// and nest(20, 3) run in two other threads.
fn hits_of_threads_are_exact() {
    user_access(false);
    for mode in [0, 1] {
        let (left, frames) = run(&format!("threads{mode}"), mode, &["threads", "10", "3"]);
        assert_eq!(left.output.status.code(), Some(0));
        let threads = threads(&frames);
        let nest = |n: u64| vec![(0, 1), (1, 1), (2, n)];
        assert_eq!(hits(&threads), [nest(10), nest(10), nest(20)]);
        for row in threads.values().flat_map(BTreeMap::values) {
            assert_eq!(row.words[word::BEGUN], row.words[word::ENDED]);
            assert_eq!(row.words[word::BEGUN], row.words[word::HITS]);
        }
        let module = frames.iter().find_map(|frame| match frame {
            LoopFrame::Module(module) => Some(module),
            _ => None,
        });
        let module = module.expect("a module");
        // The ticks are those of Arm's virtual counter (CNTVCT_EL0), which QEMU runs at 62.5 MHz.
        assert_eq!((module.ids, module.ticks_per_second), (8, 62_500_000));
        assert_eq!(module.object, format!("/bin/loops{mode}"));
    }
}

/// Twenty hits of the inner loop have twice as many instructions as ten.
fn instructions_of_hits_are_exact() {
    user_access(false);
    let (_, frames) = run("instructions", 1, &["threads", "10", "3"]);
    let mut sums: Vec<Vec<u64>> =
        threads(&frames).values().map(|thread| thread[&2].sums.clone()).collect();
    sums.sort();
    println!("hits and instructions: {sums:?}");
    assert_eq!([sums[0][0], sums[1][0], sums[2][0]], [10, 10, 20]);
    assert!(sums[0][1] > 0);
    assert_eq!(sums[0][1], sums[1][1]);
    assert_eq!(2 * sums[0][1], sums[2][1]);
}

fn a_killed_program_loses_no_hit() {
    user_access(false);
    let (_, frames) = run("loops-killed", 0, &["kill", "1000"]);
    let threads = threads(&frames);
    assert_eq!(hits(&threads), [[(0, 1), (1, 1), (2, 999)]]);
}

/// The host has counted the instructions of one iteration in the machine code of an instrumented
/// loop. 150 more iterations execute 150 times this number.
fn machine_code_runs_as_often_as_it_says() {
    user_access(false);
    let body = fs::read_to_string("/etc/sum.instructions").expect("what the host counted");
    let body: u64 = body.trim().parse().expect("a number");
    let mut sums = Vec::new();
    for [first, second] in [[100, 200], [250, 200], [500, 200]] {
        let name = format!("sum{first}");
        let arguments = [first.to_string(), second.to_string()];
        let mut command = Command::new("/bin/sum");
        let left = record(&name, command.args(arguments), Some(LoopOptions::default()));
        assert_eq!(String::from_utf8_lossy(&left.output.stdout), format!("{first}\n{second}\n"));
        let frames = frames_of(&left);
        let threads = threads(&frames);
        let [thread] = threads.values().collect::<Vec<_>>()[..] else { panic!("{threads:?}") };
        let row = &thread[&0];
        assert_eq!((thread.len(), row.words[word::HITS], row.sums[0]), (1, 2, 2));
        assert_eq!(row.words[word::ITERATIONS], first + second);
        sums.push(row.sums[1]);
    }
    println!("{body} instructions in each iteration: {sums:?}");
    assert_eq!(sums[1] - sums[0], 150 * body);
    assert_eq!(sums[2] - sums[1], 250 * body);
}

/// The log has an address for each event. All addresses are in the program's code, and both begins
/// of the inner loop have the same address.
fn the_log_has_places() {
    user_access(false);
    let (_, frames) = run("loops-log", 3, &["nest", "2", "1"]);
    let events: Vec<_> = frames
        .iter()
        .filter_map(|frame| match frame {
            LoopFrame::Events(events) => Some(events.events.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    let seen: Vec<_> = events.iter().map(|event| (event.id, event.end)).collect();
    let inner = [(2, false), (2, true), (2, false), (2, true)];
    assert_eq!(seen, [&[(0, false), (1, false)][..], &inner, &[(1, true), (0, true)]].concat());
    assert_eq!(events[2].address, events[4].address);
    let text = text_of(&fs::read("/bin/loops3").expect("the program"));
    assert!(events.iter().all(|event| text.contains(&event.address)), "{text:x?} {events:x?}");
}

/// The virtual addresses of an ELF file's executable segment (elf(5)).
fn text_of(elf: &[u8]) -> std::ops::Range<u64> {
    let word = |at: usize| u64::from_le_bytes(*elf[at..].first_chunk().expect("in the file"));
    let (headers, count) = (word(32) as usize, word(56) as u16 as usize);
    let segment = (0..count).map(|i| headers + 56 * i).find(|at| {
        let (kind, flags) = (word(*at) as u32, (word(*at) >> 32) as u32);
        kind == 1 && flags & 1 != 0
    });
    let at = segment.expect("an executable segment");
    word(at + 16)..word(at + 16) + word(at + 40)
}
