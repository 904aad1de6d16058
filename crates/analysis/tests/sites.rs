//! Tests dispatches and their sites (the places in the program that launch them), threads without
//! calls, and the gaps between calls. The expected numbers for the scripted profiles were computed
//! on paper.

use analysis::{Before, DispatchTimes, ModelRun, Options, Room, Site, call_tree, sites, summarize};
use record::meta::ProcessCost;
use record::thread_times::ThreadCpu;
use testkit::{CallScript, Item, ProfileScript};

/// A workgroup, as (thread, function number, workgroup id, how many workgroups its dispatch has,
/// begin, duration).
type Workgroup = (usize, u32, u32, u32, u64, u64);

fn program(workgroups: &[Workgroup]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b"]);
    for thread in 0..2 {
        let of = process.thread(&format!("worker-{thread}"));
        for (_, export, id, number, begin, duration) in
            workgroups.iter().filter(|(on, ..)| *on == thread)
        {
            of.call(CallScript::new(*export, *begin, *duration).workgroup(*id, *number));
        }
    }
    script
}

/// Returns one iteration of 1,000 ticks: a dispatch of *a* with 4 workgroups, one of *b* with 1,
/// and one of *a* with 2.
///
/// ```text
///  worker 0   a ├0 ┤├2 ┤├3 ┤            b ├0 ────┤              a ├0 ─────┤
///             0    100  200 300         350      450            500      700
///  worker 1   a ├── 1 ────┤                                     a   ├1┤
///             0          200                                       550 600
/// ```
fn iteration(at: u64) -> Vec<Workgroup> {
    vec![
        (0, 0, 0, 4, at, 100),
        (1, 0, 1, 4, at, 200),
        (0, 0, 2, 4, at + 100, 100),
        (0, 0, 3, 4, at + 200, 100),
        (0, 1, 0, 1, at + 350, 100),
        (0, 0, 0, 2, at + 500, 200),
        (1, 0, 1, 2, at + 550, 50),
    ]
}

#[test]
fn each_place_of_the_program_has_a_row() {
    let workgroups: Vec<Workgroup> = (0..3).flat_map(|n| iteration(1_000 * n)).collect();
    let (_scratch, profile) = program(&workgroups).opened();
    let found = sites(&profile, false).unwrap();
    assert_eq!(found.dispatches, 9);
    // The dispatches of each of the three iterations take 300 + 100 + 200 ticks.
    assert_eq!(found.busy, 1_800.0);
    let gaps_of = |total: f64, times| {
        let each = total / times as f64;
        Before { times, total, mean: each, median: each, longest: each }
    };
    let site = |op, position, workgroups, wall: f64, sum, busiest: f64, gap: f64, gaps| Site {
        op,
        position: Some(position),
        of: Some(3),
        dispatches: 3,
        workgroups,
        workers: 2,
        incomplete: 0,
        wall: 3.0 * wall,
        mean: wall,
        range: [wall, wall],
        dispatch: DispatchTimes { min: sum, p10: sum, p50: sum },
        sum: 3.0 * sum,
        efficiency: sum / (2.0 * wall),
        imbalance: busiest / (sum / if workgroups == 3 { 1.0 } else { 2.0 }),
        before: gaps_of(gap, gaps),
    };
    let expected = [
        // The gap before the first site is from the end of an iteration's last dispatch, at 700, to
        // the next iteration, at 1,000.
        site(0, 0, 12, 300.0, 500.0, 300.0, 600.0, 2),
        site(1, 1, 3, 100.0, 100.0, 100.0, 150.0, 3),
        site(0, 2, 6, 200.0, 250.0, 200.0, 150.0, 3),
    ];
    for (site, expected) in found.rows.iter().zip(&expected) {
        assert_eq!(site, expected);
    }
    assert_eq!(found.rows.len(), 3);
    // Each iteration spends 300 ticks in *a* with four workgroups, 100 in *b* with one workgroup,
    // and 200 in *a* with as many workgroups as workers. The workgroups of an iteration take 500 +
    // 100 + 250 ticks.
    let room = Room {
        span: 2_700.0,
        outside: 900.0,
        alone: 300.0,
        few: 600.0,
        many: 900.0,
        workers: 2,
        efficiency: 2_550.0 / (2.0 * 1_800.0),
    };
    assert_eq!(found.room, room);
    let before = gaps_of(600.0, 2);
    let run = ModelRun { runs: 3, dispatches: 3, busy: 600.0, between: 100.0, before };
    assert_eq!(found.run(), Some(run));
    // Six of the 8 gaps take 50 ticks, and two take 300.
    let all = Before { times: 8, total: 900.0, mean: 112.5, median: 50.0, longest: 300.0 };
    assert_eq!(found.before, all);
    let all = summarize(&profile, &Options::default());
    for row in &all.rows {
        let sums = found.rows.iter().filter(|site| analysis::Key::Op(site.op) == row.key);
        assert_eq!(sums.map(|site| site.sum).sum::<f64>(), row.total.value);
    }
}

/// Workgroup 1 of the second dispatch of *a* is lost. The next workgroup with this number belongs
/// to the third dispatch.
#[test]
fn a_dispatch_without_all_workgroups_ends_where_the_next_one_begins() {
    let mut workgroups = Vec::new();
    for n in 0..3u64 {
        workgroups.push((0, 0, 0, 2, 1_000 * n, 100));
        if n != 1 {
            workgroups.push((1, 0, 1, 2, 1_000 * n + 50, 100));
        }
    }
    let mut script = program(&workgroups);
    script.processes[0].losses.push((model::Loss::NoPage, 1, 0));
    let (_scratch, profile) = script.opened();
    let found = sites(&profile, false).unwrap();
    let [row] = found.rows.as_slice() else { panic!("{found:?}") };
    assert_eq!((row.dispatches, row.workgroups, row.incomplete), (3, 5, 1));
    assert_eq!((row.wall, row.range), (150.0 + 100.0 + 150.0, [100.0, 150.0]));
}

/// Each iteration has 20,000 dispatches: *a* 20 times, *b* not at all, *a* 20 times, *b* once, and
/// so on.
#[test]
fn an_iteration_of_many_dispatches() {
    let part = |n| std::iter::repeat_n(0, 20).chain(std::iter::repeat_n(1, n));
    let ops: Vec<u32> = (0..).flat_map(part).take(20_000).collect();
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b"]);
    let thread = process.thread("worker");
    for (op, at) in ops.iter().chain(&ops).zip(0..) {
        if at % 1_000 == 0 {
            thread.then(Item::NextPage(10 * at, 0, 10 * at));
        }
        thread.call(CallScript::new(*op, 10 * at, 5).workgroup(0, 1));
    }
    let (_scratch, profile) = script.opened();
    let found = sites(&profile, false).unwrap();
    assert_eq!((found.rows.len(), found.dispatches), (20_000, 40_000));
    for ((site, op), place) in found.rows.iter().zip(ops).zip(0..) {
        let expected = (op, Some(place), Some(20_000), 2);
        assert_eq!((site.op, site.position, site.of, site.dispatches), expected);
    }
}

/// *a* and *b* begin together, on one thread (*b* inside of *a*) or on two threads. The dispatches
/// must be in the order of their functions' numbers: *a* before *b*.
#[test]
fn workgroups_that_begin_together() {
    let inside = [(0, 1, 0, 1, 0, 10), (0, 0, 0, 1, 0, 100)];
    let beside = [(1, 1, 0, 1, 0, 10), (0, 0, 0, 1, 0, 100)];
    for workgroups in [inside, beside] {
        // This is repeated because an earlier version read the threads in the order of a hash map,
        // which differed from run to run.
        for _ in 0..20 {
            let (_scratch, profile) = program(&workgroups).opened();
            let found = sites(&profile, false).unwrap();
            let ops: Vec<u32> = found.rows.iter().map(|site| site.op).collect();
            assert_eq!(ops, [0, 1], "{workgroups:?}");
        }
    }
}

#[test]
fn a_run_with_a_budget_has_no_sites_and_no_tree() {
    let mut script = program(&iteration(0));
    script.budget(0.02);
    let (_scratch, profile) = script.opened();
    assert_eq!(sites(&profile, false).map(|found| found.rows), None);
    assert_eq!(call_tree(&profile, false, 1), None);
}

/// Two calls of 1,000 ns are on a thread whose recorded time is 5,000 ns. An empty call takes 20
/// ns, and half of this is subtracted from each call.
#[test]
fn a_thread_is_in_calls_and_between_them_and_nowhere_else() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a"]);
    process.empty_calls(9, 20, 50, &[]);
    let thread = process.thread("t");
    thread.call(CallScript::new(0, 1_000, 1_000));
    thread.call(CallScript::new(0, 5_000, 1_000));
    let (_scratch, profile) = script.opened();
    for (raw, inside, recorder) in [(false, 1_980.0, 20.0), (true, 2_000.0, 0.0)] {
        let found = summarize(&profile, &Options { raw, ..Options::default() });
        let [thread] = found.threads.as_slice() else { panic!("{:?}", found.threads) };
        assert_eq!((thread.wall_ns, thread.dispatch_ns), (5_000.0, inside));
        assert_eq!(thread.recorder_ns, recorder);
        assert_eq!(found.total.unwrap().value, inside);
        assert_eq!(found.between(&profile), Some(5_000.0 - inside));
    }
}

/// The process used 90 ms of processor time: 50 ms on the thread with calls, 30 ms on a thread
/// without calls, 2 ms on the main thread, and 8 ms on threads that had ended.
#[test]
fn threads_without_calls_are_listed_with_their_processor_time() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a"]);
    process.thread("caller").call(CallScript::new(0, 0, 1_000));
    let caller = process.threads[0].tid;
    let ms = |ms: u64| ms * 1_000_000;
    let thread = |tid, name: &str, cpu| ThreadCpu { tid, name: name.into(), cpu_ns: ms(cpu) };
    process.thread_times =
        Some(vec![thread(800, "main", 2), thread(caller, "caller", 50), thread(900, "loader", 30)]);
    process.cost = Some(ProcessCost { process_cpu_ns: ms(90), ..ProcessCost::default() });
    let (_scratch, profile) = script.opened();
    let found = summarize(&profile, &Options::default()).silent;
    let found: Vec<(Option<&str>, f64)> =
        found.iter().map(|t| (t.thread.as_ref().map(|(_, name)| &**name), t.cpu_ns)).collect();
    assert_eq!(found, [(Some("loader"), 30e6), (Some("main"), 2e6), (None, 8e6)]);
}
