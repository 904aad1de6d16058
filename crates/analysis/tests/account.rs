//! Checks what must be true of every table of a profile, for random profiles. The profiles have
//! nested and recursive calls, several threads, and two classes of brackets (the recorder's work
//! around a call): with and without reading counters. The expected sums over outermost calls are
//! found by comparing all pairs of calls.

use std::collections::BTreeMap;

use analysis::{
    By, Contradiction, Counts, Key, Options, Row, Summary, Violation, stats, summarize,
};
use model::Loss;
use profile::{Calibration, Profile};
use record::meta::FIRST_PLUGIN_GENERATION;
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

/// A call: op, begin, end, and the value of its counter, if the counter was read.
type Call = (u32, u64, u64, Option<u64>);

/// The recorded duration of an empty call, and the whole time by which its bracket lengthens the
/// call around it. `READ` is for calls whose counter was read, and `TIMED` is for calls that were
/// only timed.
const READ: (u64, u64) = (40, 300);
const TIMED: (u64, u64) = (20, 60);

/// Adds random calls between `begin` and `end`. Each call is at least as long as all brackets
/// inside of it. Returns the sum of the counter over the outermost added calls.
fn nest(r: &mut Random, begin: u64, end: u64, depth: u32, into: &mut Vec<Call>) -> u64 {
    let (mut at, mut inside) = (begin, 0);
    while at + 1_000 < end && r.below(5) > 0 {
        let from = at + 200 + r.below(100);
        let to = from + 400 + r.below(end.saturating_sub(from).max(1));
        if to > end {
            break;
        }
        let faults = if depth < 4 { nest(r, from, to - 200, depth + 1, into) } else { 0 };
        let own = faults + r.below(5);
        let read = r.below(3) > 0;
        into.push((r.below(4) as u32, from, to, read.then_some(own)));
        inside += own;
        at = to;
    }
    inside
}

fn script(threads: &[Vec<Call>], r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(7);
    process.library("m", &["a", "b", "c", "d"]);
    for (mask, (inside, whole)) in [(1, READ), (0, TIMED)] {
        process.calibrations.push(Calibration {
            calls: 9,
            counters: mask,
            inside_ticks: inside,
            total_ticks: whole,
            inside_values: vec![0; mask as usize],
            ..Calibration::default()
        });
    }
    for (i, calls) in threads.iter().enumerate() {
        let thread = process.thread(&format!("t{i}"));
        for (op, begin, end, faults) in calls {
            let call = CallScript::new(*op, *begin, end - begin).on(op % 2, 0);
            thread.call(match faults {
                Some(faults) => call.group(end - begin, &[*faults]),
                None => call.unread(),
            });
            if r.below(6) == 0 {
                thread.then(Item::NextPage(*end, 0, *end));
            }
        }
    }
    script
}

fn is_inside(inner: &Call, outer: &Call) -> bool {
    outer.1 <= inner.1 && inner.2 <= outer.2 && inner != outer
}

/// Returns the time that must be subtracted from a call: half of the duration of an empty call for
/// its own bracket, plus the whole brackets of all calls inside.
fn taken(calls: &[Call], call: &Call) -> u64 {
    let price = |call: &Call| if call.3.is_some() { READ } else { TIMED };
    let inside = calls.iter().filter(|inner| is_inside(inner, call));
    price(call).0 / 2 + inside.map(|inner| price(inner).1).sum::<u64>()
}

/// What a row should contain for its outermost calls: their number, the sum, the minimum and the
/// maximum of their durations, and the sum of the counter.
type Expected = (u64, u64, u64, u64, u64);

fn expected(threads: &[Vec<Call>], key: impl Fn(usize, &Call) -> Key) -> BTreeMap<Key, Expected> {
    let mut rows = BTreeMap::new();
    for (at, calls) in threads.iter().enumerate() {
        for call in calls {
            let of = key(at, call);
            if calls.iter().any(|outer| is_inside(call, outer) && key(at, outer) == of) {
                continue;
            }
            let time = call.2 - call.1 - taken(calls, call);
            let row = rows.entry(of).or_insert((0, 0, u64::MAX, 0, 0));
            let faults = call.3.unwrap_or(0);
            *row = (row.0 + 1, row.1 + time, row.2.min(time), row.3.max(time), row.4 + faults);
        }
    }
    rows
}

fn found(row: &Row) -> Expected {
    let faults = row.counters[0].map_or(0, |counter| counter.value.value as u64);
    (row.calls, row.total.value as u64, row.min as u64, row.max as u64, faults)
}

fn holds(row: &Row) {
    let (least, most) = (row.min - 1e-9, row.max + 1e-9);
    assert!(row.min >= 0.0 && row.own.value >= 0.0 && row.total.value >= row.own.value, "{row:?}");
    assert!(least <= row.p50 && row.p50 <= row.p99 && row.p99 <= most, "{row:?}");
    assert!(least <= row.mean().value && row.mean().value <= most, "{row:?}");
    for of in [row.total, row.own, row.mean(), row.call(row.p50)] {
        assert!(of.low <= of.value && of.value <= of.high, "{row:?}");
    }
}

fn own(summary: &Summary) -> f64 {
    summary.rows.iter().map(|row| row.own.value).sum()
}

#[test]
fn random_profiles() {
    let mut r = Random(0x1234_5678_9abc_def1);
    let mut recursive = 0;
    for round in 0..60 {
        let mut threads = Vec::new();
        for _ in 0..1 + r.below(3) {
            let mut calls = Vec::new();
            nest(&mut r, 1_000, 40_000, 0, &mut calls);
            threads.push(calls);
        }
        let (_scratch, profile) = script(&threads, &mut r).opened();
        let mut wholes = Vec::new();
        for by in [By::Op, By::Thread, By::Cpu, By::Process] {
            let options = Options { by, round: Some(5), workers: 2, ..Options::default() };
            let summary = summarize(&profile, &options);
            let key = |thread: usize, call: &Call| match by {
                By::Op => Key::Op(call.0),
                By::Thread => Key::Thread(0, thread),
                By::Cpu => Key::Cpu(call.0 % 2, 0),
                _ => Key::Process(0),
            };
            let rows: BTreeMap<Key, Expected> =
                summary.rows.iter().map(|row| (row.key, found(row))).collect();
            assert_eq!(rows, expected(&threads, key), "round {round} by {by:?}");
            summary.rows.iter().for_each(holds);
            assert_eq!(summary.violations, []);
            recursive += summary.rows.iter().map(|row| row.inner).sum::<u64>();
            let calls = summary.rows.iter().map(|row| row.calls + row.inner).sum::<u64>();
            assert_eq!(calls, summary.calls);
            // Whatever the rows are, their self times must add up to the time in recorded calls.
            let whole = summary.total.expect("without a budget").value;
            assert!((own(&summary) - whole).abs() < 1e-6, "round {round} by {by:?}");
            wholes.push(whole);
        }
        assert!(wholes.windows(2).all(|pair| pair[0] == pair[1]));
        let raw = summarize(&profile, &Options { raw: true, ..Options::default() });
        raw.rows.iter().for_each(holds);
        assert!(
            raw.total.unwrap().value >= wholes[0] && raw.rows.iter().all(|r| r.taken.is_none())
        );
    }
    assert!(recursive > 1_000, "{recursive}");
}

/// In the calibration, a bracket took 500 ticks, which is longer than the outer call of this test.
/// No more is subtracted than the time of a call, so no value becomes negative.
#[test]
fn no_more_is_taken_than_there_is() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b"]);
    process.empty_calls(9, 20, 500, &[]);
    let thread = process.thread("t");
    for (op, begin, end) in [(1, 110, 190), (0, 100, 200), (1, 300, 304)] {
        thread.call(CallScript::new(op, begin, end - begin));
    }
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options::default());
    for (op, total, own, min) in [(0, 70.0, 0.0, 70.0), (1, 70.0, 70.0, 0.0)] {
        let row = summary.rows.iter().find(|row| row.key == Key::Op(op)).unwrap();
        assert_eq!((row.total.value, row.own.value, row.min), (total, own, min), "{op}");
        holds(row);
    }
    assert_eq!(summary.total.unwrap().value, 70.0);
}

/// If most calls of an op have no self time left, the calibrated bracket is too long for this
/// program, so no brackets are subtracted.
#[test]
fn a_correction_that_contradicts_the_recording_is_not_used() {
    let (_scratch, profile) = contradicted().opened();
    let summary = summarize(&profile, &Options::default());
    let violation = Violation { row: Some(Key::Op(0)), what: Contradiction::NothingLeft };
    assert_eq!(summary.violations, [violation]);
    assert!(summary.raw);
    let losses: Vec<_> = summary.losses.iter().map(|l| (l.loss(), l.count)).collect();
    assert_eq!(losses, [(Some(Loss::Inconsistent), 1)]);
    for (op, total, own) in [(0, 4_000.0, 800.0), (1, 3_200.0, 3_200.0), (2, 24_000.0, 24_000.0)] {
        let row = summary.rows.iter().find(|row| row.key == Key::Op(op)).unwrap();
        assert_eq!((row.total.value, row.own.value, row.taken), (total, own, None), "{op}");
    }
}

/// Makes a profile in which the calibrated bracket takes more time (500 ticks) than any call of
/// `a`.
fn contradicted() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b", "c"]);
    process.empty_calls(9, 20, 500, &[]);
    let thread = process.thread("t");
    for call in 0..40 {
        let begin = 1_000 * call;
        thread.call(CallScript::new(1, begin + 110, 80)).call(CallScript::new(0, begin + 100, 100));
        thread.call(CallScript::new(2, begin + 300, 600));
    }
    script
}

/// Contradictions are looked for in all ops of the profile, even if a table has only some ops, or
/// rows of threads.
#[test]
fn a_filter_does_not_change_what_is_subtracted() {
    let (_scratch, profile) = contradicted().opened();
    let violation = Violation { row: Some(Key::Op(0)), what: Contradiction::NothingLeft };
    for options in [
        Options { filter: Some("c".into()), ..Options::default() },
        Options { by: By::Thread, ..Options::default() },
        Options { by: By::Thread, filter: Some("c".into()), ..Options::default() },
    ] {
        let summary = summarize(&profile, &options);
        assert!(summary.raw, "{options:?}");
        assert_eq!(summary.violations, [violation], "{options:?}");
    }
    let all = stats(&profile, &Default::default()).unwrap();
    let only = analysis::stats::Options { op: Some("c".into()), ..Default::default() };
    let only = stats(&profile, &only).unwrap();
    assert!(all.raw && only.raw);
    assert_eq!(only.losses, all.losses);
    let of_c = |stats: &analysis::Stats| {
        let op = stats.ops.iter().find(|op| op.key == Key::Op(2)).unwrap();
        (op.total_ticks, op.all.clone())
    };
    assert_eq!(of_c(&only), of_c(&all));
}

/// The program ran in two passes with different counters, and each call of one op contains a call
/// of another op. In each pass, each call of the outer op has 50 faults of the kind that the pass
/// counted. Of these, 2 happened in the outer call's own bracket, and 4 (twice as many) in the
/// whole bracket of the inner call, so 44 are left. For this kind of faults, the calls of the other
/// pass have no value, so nothing must be subtracted for the brackets inside of them.
#[test]
fn brackets_inside_of_calls_without_a_value_take_nothing_of_the_others() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("minor-faults", 1);
    for (pid, calls) in [(7, 10), (8, 30)] {
        let process = script.process(pid);
        process.library("m", &["outer", "inner"]);
        let mask = if pid == 7 { 1 } else { 2 };
        process.calibrations.push(Calibration {
            calls: 9,
            counters: mask,
            inside_ticks: 20,
            total_ticks: 100,
            inside_values: vec![2, 2],
            ..Calibration::default()
        });
        let thread = process.thread("t");
        thread.mask = mask;
        for call in 0..calls {
            let begin = 10_000 * (call + 1);
            thread.call(CallScript::new(1, begin + 1_000, 1_000).group(1_000, &[5]));
            thread.call(CallScript::new(0, begin, 5_000).group(5_000, &[50]));
        }
    }
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options::default());
    let outer = summary.rows.iter().find(|row| row.key == Key::Op(0)).unwrap();
    for (counter, calls) in [(0, 10), (1, 30)] {
        let of = outer.counters[counter].unwrap();
        assert_eq!((of.calls, of.total), (calls, 50 * u128::from(calls)));
        assert!((of.value.value - 44.0 * calls as f64).abs() < 1e-6, "{of:?}");
    }
}

/// The recorder's pages of a thread contain no calls, but the host's own profiler recorded calls on
/// this thread.
#[test]
fn a_thread_that_only_another_source_saw_is_in_the_table() {
    let mut script = two_sources(false);
    script.processes[0].threads[0].items.clear();
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options::default());
    let threads: Vec<_> = summary
        .threads
        .iter()
        .map(|t| (t.process, t.thread, t.calls, t.dispatch_ns, t.wall_ns))
        .collect();
    assert_eq!(threads, [(0, 0, 2, 900.0, 900.0), (1, 1, 1, 50.0, 50.0)]);
}

/// In a run with a budget, all calls of `outer` were timed, but of five calls of `inner` only one.
/// The others may be inside of `outer`, whose self time is therefore not known.
#[test]
fn a_self_time_is_known_only_if_all_calls_inside_were_timed() {
    for (inner, known) in [(5, false), (1, true)] {
        let mut script = ProfileScript::monotonic();
        script.budget(0.02);
        let process = script.process(7);
        process.library("m", &["outer", "inner"]);
        let thread = process.thread("t");
        for (op, begin, end) in [(1, 100, 300), (0, 0, 1_000), (0, 2_000, 3_000)] {
            thread.call(CallScript::new(op, begin, end - begin));
        }
        thread.counted(0, 2, 2, 0).counted(1, inner, 1, 0);
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options { raw: true, ..Options::default() });
        let mut rows = summary.rows.iter().filter_map(|row| row.sampled.as_ref());
        let outer = rows.find(|row| row.timed == 2).expect("the row of `outer`");
        assert_eq!(outer.self_known, known, "{outer:?}");
        assert!(outer.total.is_some(), "{outer:?}");
    }
}

/// Makes a thread of a program, and the same thread in the events of its host's own profiler. One
/// tick is 1 ns. From a recording of PyTorch, `counterpoint run` makes a profile of the same form.
///
/// ```text
///  7 program                 thread 70   b 200 – 500      b 600 – 900     c 2,000 – 2,100
///  7 events of its plugins   thread 70   f 100 ──────────────── 1,000
///                                          g 550 – 950
///                            thread 99   f 0 – 50         (of no recorded thread)
/// ```
fn two_sources(sampled: bool) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.budget = sampled.then_some(0.5);
    let process = script.process(7);
    process.library("m", &["b", "c"]);
    let start_time = process.start_time;
    let thread = process.thread("main");
    thread.tid = 70;
    for (op, begin, end) in [(0, 200, 500), (0, 600, 900), (1, 2_000, 2_100)] {
        thread.call(CallScript::new(op, begin, end - begin));
    }
    let events = script.process(7);
    (events.start_time, events.generation) = (start_time, FIRST_PLUGIN_GENERATION);
    events.library("python", &["f", "g"]);
    for (tid, calls) in [(70, vec![(0, 100, 1_000), (1, 550, 950)]), (99, vec![(0, 0, 50)])] {
        let thread = events.thread("t");
        thread.tid = tid;
        for (op, begin, end) in calls {
            thread.call(CallScript::new(op, begin, end - begin));
        }
    }
    script
}

/// The recorder and the host's profiler both recorded calls of one thread, and these calls form one
/// tree. The self time of `f` is 900 − 300 − 400, plus 50 on thread 99. That of `g` is 400 − 300.
#[test]
fn two_sources_of_one_thread() {
    for sampled in [false, true] {
        let (_scratch, profile) = two_sources(sampled).opened();
        let by = |by: By| summarize(&profile, &Options { by, ..Options::default() });
        let summary = by(By::Op);
        let mut own: Vec<(f64, f64)> =
            summary.rows.iter().map(|row| (row.total.value, row.own.value)).collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(own, [(100.0, 100.0), (400.0, 100.0), (600.0, 600.0), (950.0, 250.0)]);
        assert_eq!(summary.total.unwrap().value, 1_050.0);
        assert_eq!(summary.violations, []);
        for (key, calls) in [
            (By::Thread, [(Key::Thread(0, 0), 2, 1_000.0), (Key::Thread(1, 1), 1, 50.0)]),
            (By::Process, [(Key::Process(0), 2, 1_000.0), (Key::Process(1), 1, 50.0)]),
        ] {
            let mut rows: Vec<(Key, u64, f64)> =
                by(key).rows.iter().map(|row| (row.key, row.calls, row.total.value)).collect();
            rows.sort_by_key(|row| row.0);
            assert_eq!(rows, calls);
        }
        let threads: Vec<_> = summary
            .threads
            .iter()
            .map(|t| (t.process, t.thread, t.dispatch_ns, t.wall_ns))
            .collect();
        assert_eq!(threads, [(0, 0, 1_000.0, 2_000.0), (1, 1, 50.0, 50.0)]);
        let counts = Counts { processes: 1, threads: 2, devices: 0 };
        assert_eq!(summary.places(&profile), counts);
    }
}

/// The streams of a device may have the same numbers as threads. `number` is what the plugin gave
/// as the origin of its calls: the process 7, or the device 0.
#[test]
fn streams_of_a_device_are_not_threads() {
    for (number, none) in [("7", false), ("0", true)] {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let mut script = two_sources(false);
        script.manifest.command = ["plugin.so", number].map(str::to_owned).to_vec();
        script.write(&dir);
        assert_eq!(Profile::open(&dir).unwrap().homes().is_empty(), none, "{number}");
    }
}

/// Four ops take 600, 100, 100 and 100 of 1,000 ticks. For 100 ticks, no call runs.
#[test]
fn what_matters_most() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b", "c", "d"]);
    let thread = process.thread("main");
    for (op, begin, end) in [(0, 0, 600), (1, 600, 700), (2, 700, 800), (3, 900, 1_000)] {
        thread.call(CallScript::new(op, 1_000 + begin, end - begin));
    }
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options::default());
    let most = summary.most(&profile).unwrap();
    assert_eq!((most.rows, most.share), (1, 600.0 / 900.0));
    let outside = summary.outside(&profile).unwrap();
    assert_eq!((outside.threads, outside.ns, outside.wall_ns), (1, 100.0, 1_000.0));
}
