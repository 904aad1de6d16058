//! Checks the cost of recording PyTorch against numbers that were computed on paper. Much of this
//! cost is the time in which PyTorch announces ops to the recorder. Meanwhile, other threads wait
//! for their next task, which is also a cost. One tick is 1 ns.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::{Estimate, Options, ProbeCost, summarize};
use profile::{Role, Usage};
use record::brackets::{Brackets, Histogram, bucket_of};
use record::counts::steps::{Steps, ThreadSteps};
use testkit::{CallScript, Item, ProfileScript};

fn cost(script: &ProfileScript) -> ProbeCost {
    let (_scratch, profile) = script.opened();
    summarize(&profile, &Options::default()).probes.remove(0)
}

fn used(ticks: u64, cpu_ns: u64) -> Usage {
    Usage { ticks, cpu_ns, ..Usage::default() }
}

/// Makes the times of `n` announcements: each took `before` ticks before the op and `after` ticks
/// after it. Below 32 ticks, each time has its own bucket of the histogram.
fn announced(thread_uid: u32, before: u64, after: u64, n: u32) -> Brackets {
    let times = |ticks| Histogram(vec![(bucket_of(ticks) as u16, n)]);
    Brackets { thread_uid, before: times(before), after: times(after), ..Brackets::default() }
}

/// Makes 100 calls of an op, of 300 ticks each, within 100,000 ticks, on one thread. In the
/// calibration, the bracket of an empty call (the recorder's work around it) takes 50 ticks.
fn ops() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    let torch = process.machine("torch");
    process.libraries[0].host = testkit::hosts::TORCH;
    let op = process.op(torch, Role::Op, "aten::mm", "");
    process.op(torch, Role::Region, "parallel", "");
    process.op(torch, Role::Task, "task", "");
    process.empty_calls(200, 20, 50, &[]);
    let thread = process.thread("main");
    thread.usages = vec![(Some(used(0, 0)), Some(used(100_000, 90_000)))];
    for i in 0..100 {
        thread.call(CallScript::op(op, 1_000 * i, 300));
    }
    script
}

/// Adds a parallel region to the thread of the ops (the launching thread). Adds a worker thread
/// with the region's task, which takes 10,000 ticks. Until tick 100,000, the worker used `cpu_ns`
/// of processor time.
fn with_worker(script: &mut ProfileScript, cpu_ns: u64) {
    let process = &mut script.processes[0];
    let [region, task] = [1, 2].map(|at| process.op_exports[at].id);
    process.threads[0].call(CallScript::op(region, 99_500, 100));
    let worker = process.thread("worker");
    worker.usages = vec![(Some(used(0, 0)), Some(used(100_000, cpu_ns)))];
    worker.call(CallScript::op(task, 0, 10_000));
    worker.then(Item::Clock(100_000, cpu_ns, 100_000));
}

#[test]
fn announcing_ops_is_a_part_of_the_cost() {
    let mut script = ops();
    assert_eq!((cost(&script).way, cost(&script).waiting), (None, None), "an earlier version");
    let process = &mut script.processes[0];
    process.announced = vec![
        // The next entry of the same thread replaces this one.
        announced(0, 31, 31, 500),
        announced(0, 20, 10, 40),
        // Times above 20 µs are ignored, because the thread was probably interrupted.
        Brackets {
            thread_uid: 1,
            before: announced(1, 30_000, 0, 9).before,
            ..Brackets::default()
        },
    ];
    let found = cost(&script);
    // Announcing 100 ops took 30 ticks each. The estimate is 1.1 times these 3,000 ticks, and its
    // interval reaches from 0.8 to 1.5 times the 3,000 ticks.
    let way = found.way.unwrap();
    let expected = [3_300.0, 2_400.0, 4_500.0];
    for (found, expected) in [way.value, way.low, way.high].into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{way:?}");
    }
    assert_eq!(found.probes.value, 5_000.0);
    assert!((found.of_calls().value - 8_300.0).abs() < 1e-6);
    assert_eq!(found.waiting, None, "no thread works for others");
    // 29 recorded times are too few.
    script.processes[0].announced[1] = announced(0, 20, 10, 29);
    assert_eq!(cost(&script).way, None);
}

#[test]
fn threads_that_wait_pay_as_well() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    // Outside of its task, the worker was on a processor for half of the time.
    let mut half = ops();
    half.processes[0].announced = script.processes[0].announced.clone();
    with_worker(&mut half, 10_000 + 45_000);
    let found = cost(&half);
    // 101 of 102 brackets, and all announcements, are on the launching thread. So they made this
    // thread's time longer by 101 · 50 + 3,300.
    let longer = |probes: f64, way: f64| 101.0 * probes + way;
    let waiting = found.waiting.unwrap();
    assert!((waiting.value - 0.5 * longer(50.0, 3_300.0)).abs() < 1e-6, "{waiting:?}");
    assert!((waiting.high - 0.5 * longer(100.0, 4_500.0)).abs() < 1e-6, "{waiting:?}");
    assert!((waiting.low - 0.25 * longer(50.0, 2_400.0)).abs() < 1e-6, "{waiting:?}");
    assert!((found.of_calls().value - (8_400.0 + waiting.value)).abs() < 1e-6);
    // A worker that slept adds no cost. For a worker that used its processor all the time, the
    // whole time by which the launching thread became slower is added.
    for (cpu_ns, part) in [(10_000, 0.0), (100_000, 1.0), (500_000, 1.0)] {
        let mut script = script.clone();
        with_worker(&mut script, cpu_ns);
        let waiting = cost(&script).waiting.unwrap();
        assert!(
            (waiting.value - part * longer(50.0, 3_300.0)).abs() < 1e-6,
            "{cpu_ns} {waiting:?}"
        );
    }
    // While the launching thread sleeps, no worker waits for the recorder. Here, the launching
    // thread used 45,000 ticks of processor time, as much as the worker outside of its task. So the
    // worker waited during all the time in which the launching thread was awake.
    let mut idle = script.clone();
    idle.processes[0].threads[0].usages = vec![(Some(used(0, 0)), Some(used(100_000, 45_000)))];
    with_worker(&mut idle, 10_000 + 45_000);
    let waiting = cost(&idle).waiting.unwrap();
    assert!((waiting.value - longer(50.0, 3_300.0)).abs() < 1e-6, "{waiting:?}");
    // Without the worker's processor time, the cost of waiting is not known.
    with_worker(&mut script, 0);
    let worker = &mut script.processes[0].threads[1];
    worker.usages.clear();
    worker.items.pop();
    assert_eq!(cost(&script).waiting, None);
}

/// An empty call's bracket takes 50 ticks. Of these, 10 before and 20 after the call are timed. In
/// the program, the timed parts take 24 and 31, so a bracket takes 25 more.
#[test]
fn brackets_cost_more_than_what_is_timed_of_them() {
    let mut script = ops();
    let process = &mut script.processes[0];
    let of = |rehearsed, before, after| Brackets { rehearsed, ..announced(0, before, after, 64) };
    process.brackets = vec![of(true, 10, 20), of(false, 24, 31)];
    let found = cost(&script);
    assert!((found.probes.value - 100.0 * 75.0).abs() < 1e-6, "{found:?}");
    assert!((found.probes.low - 100.0 * 75.0).abs() < 1e-6, "{found:?}");
    // PyTorch's shim (the layer between PyTorch and the recorder) is not timed. Like the timed
    // code, the shim may be slower in the program, because its code is not in the caches. This adds
    // at most 0.8 · 25 ticks. The 20 ticks that are never timed may be slower by the factor 55/30.
    let high = 50.0 + 1.8 * 25.0 + 20.0 * (55.0 / 30.0 - 1.0);
    assert!((found.probes.high - 100.0 * high).abs() < 1e-6, "{found:?}");
    // The cost is lower if the caches are warmer in the program than in the calibration.
    script.processes[0].brackets[1] = of(false, 5, 20);
    assert!((cost(&script).probes.value - 100.0 * 45.0).abs() < 1e-6);
    // TVM calls the recorder without a shim.
    script.processes[0].brackets[1] = of(false, 24, 31);
    script.processes[0].libraries[0].host = testkit::hosts::TVM;
    assert!((cost(&script).probes.value - 100.0 * 75.0).abs() < 1e-6);
}

#[test]
fn ops_that_are_only_counted_are_announced() {
    let mut script = ops();
    script.budget(0.02);
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    let id = script.processes[0].op_exports[0].id;
    script.processes[0].threads[0].counted(id, 1_000, 100, 0);
    let way = cost(&script).way.unwrap();
    assert!((way.value - 33_000.0).abs() < 1e-6, "{way:?}");
    let Estimate { low, high, .. } = way;
    assert!((low - 24_000.0).abs() < 1e-6 && (high - 45_000.0).abs() < 1e-6, "{way:?}");
}

/// A worker may also launch regions inside of its tasks, as a library of PyTorch does. It still
/// waits for the thread that launches its tasks.
#[test]
fn a_worker_with_regions_of_its_own_waits() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    with_worker(&mut script, 10_000 + 45_000);
    let [region, task] = [1, 2].map(|at| script.processes[0].op_exports[at].id);
    let threads = &mut script.processes[0].threads;
    let first = |op, start, ticks| Item::Call(CallScript::op(op, start, ticks));
    // The worker launches this region itself, and the region's only task runs on the worker, inside
    // of the worker's first task.
    threads[1].items.splice(0..0, [first(task, 2_000, 100), first(region, 1_900, 300)]);
    let waiting = cost(&script).waiting.unwrap();
    // 101 of 104 brackets are on the launching thread, whose time also contains announcing 100 ops.
    let longer = 101.0 * 50.0 + 3_300.0;
    assert!((waiting.value / longer - 0.5).abs() < 1e-2, "{waiting:?}, {longer}");
}

/// A worker's task may call a library many times, which launches a region each time. Then most
/// tasks on the worker belong to its own regions. The worker still waits for the launching thread.
#[test]
fn a_worker_with_many_regions_of_its_own_waits() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    with_worker(&mut script, 10_000 + 45_000);
    let [region, task] = [1, 2].map(|at| script.processes[0].op_exports[at].id);
    let threads = &mut script.processes[0].threads;
    let call = |op, start, ticks| Item::Call(CallScript::op(op, start, ticks));
    let inside = |start: u64| [call(task, start + 100, 100), call(region, start, 300)];
    let nested = (1..9).flat_map(|i| inside(1_000 * i));
    threads[1].items.splice(0..0, nested.collect::<Vec<_>>());
    // The launching thread's own task, with a region inside of it, takes 20,000 of the thread's
    // 90,000 ticks.
    let own = [call(task, 98_000, 100), call(region, 97_900, 300), call(task, 79_300, 20_000)];
    let end = threads[0].items.len() - 1;
    threads[0].items.splice(end..end, own);
    let Item::Call(around) = &mut threads[0].items[end + 3] else { panic!("the region") };
    *around = CallScript::op(region, 79_200, 20_400);
    let waiting = cost(&script).waiting.unwrap();
    // 104 of 121 brackets are on the launching thread. Outside of tasks, the worker used 45,000
    // ticks of processor time, and the launching thread used 70,000.
    let longer = 104.0 * 50.0 + 3_300.0;
    assert!((waiting.value / longer - 45.0 / 70.0).abs() < 2e-2, "{waiting:?}, {longer}");
}

/// With the budget 0, no call is timed, but announcing ops, counting them, and starting the
/// recorder still cost time. The cost of the worker's waiting is not known.
#[test]
fn a_budget_of_0_has_a_price() {
    let mut script = ops();
    script.budget(0.0);
    let process = &mut script.processes[0];
    process.announced = vec![announced(0, 20, 10, 40)];
    let calibrations = std::mem::take(&mut process.calibrations);
    let [op, region, task] = [0, 1, 2].map(|at| process.op_exports[at].id);
    process.threads[0].items.clear();
    for (op, calls) in [(op, 1_000), (region, 10), (task, 10)] {
        process.threads[0].counted(op, calls, 0, 0);
    }
    process.thread("worker").counted(task, 10, 0, 0);
    let found = cost(&script);
    assert_eq!((found.calls, found.only_counted), (0, 1_030));
    assert_eq!((found.per_call_ns, found.probes), (0.0, Estimate::exact(0.0)));
    // Each counted call costs 5 ns. Announcing an op costs 1.1 times 30 ns.
    assert!((found.counting.value - 5_150.0).abs() < 1e-6, "{found:?}");
    assert!((found.way.unwrap().value - 33_000.0).abs() < 1e-6, "{found:?}");
    assert!(found.total().value >= 38_150.0, "{found:?}");
    assert!(found.waits && found.waiting.is_none());
    // If some calls were timed, the worker's processor time is known, but not its time in tasks. So
    // the worker waited for at most its whole processor time.
    script.budget(0.02);
    script.processes[0].calibrations = calibrations;
    with_worker(&mut script, 50_000);
    script.processes[0].threads[2].counted(task, 10, 1, 0);
    let found = cost(&script);
    let waiting = found.waiting.unwrap();
    assert_eq!(waiting.low, 0.0);
    assert!(waiting.value > 0.0 && waiting.high < found.total().high, "{waiting:?} of {found:?}");
}

/// Returns [`ops`] in a run with a budget, with the times of announcements, and the ids of the op, its
/// region and its task.
fn in_budget() -> (ProfileScript, [u32; 3]) {
    let mut script = ops();
    script.budget(0.02);
    let process = &mut script.processes[0];
    process.announced = vec![announced(0, 20, 10, 40)];
    let ids = [0, 1, 2].map(|at| process.op_exports[at].id);
    (script, ids)
}

/// Returns by how much the launching thread's time is longer, if 120 of 130 calls and all 100
/// announcements are on this thread.
fn lengthened(found: &ProbeCost) -> f64 {
    (found.probes.value + found.counting.value) * 120.0 / 130.0 + 3_300.0
}

/// In a run with a budget, no task of the worker was timed. But its tasks were counted, and a step
/// of the program took twice as much processor time as its launching thread used in the step.
#[test]
fn a_worker_whose_tasks_were_never_timed_waits_in_steps() {
    let (mut script, [op, region, task]) = in_budget();
    let process = &mut script.processes[0];
    let main = &mut process.threads[0];
    main.counted(op, 100, 100, 0).counted(region, 10, 0, 0).counted(task, 10, 0, 0);
    process.thread("worker").counted(task, 10, 0, 0);
    assert_eq!(cost(&script).waiting, None, "nothing is known of the worker");
    let steps = Steps { steps: 50, of_thread: 2_000, ..Steps::default() };
    script.processes[0].threads[0].steps = Some(ThreadSteps { steps, rows: vec![] });
    let found = cost(&script);
    let longer = lengthened(&found);
    let waiting = found.waiting.unwrap();
    assert!((waiting.value / longer - 1.0).abs() < 1e-6, "{waiting:?}, {longer}");
    assert!(waiting.low <= 0.5 * waiting.value && waiting.high > waiting.value, "{waiting:?}");
}

/// In a run with a budget, a timed task represents several tasks, according to its weight. So the
/// launching thread was in its own tasks for ten times as long as in the timed task. Outside of its
/// tasks it used 45,000 ticks of processor time, as much as the worker.
#[test]
fn a_timed_task_stands_for_those_that_are_only_counted() {
    let (mut script, [op, region, task]) = in_budget();
    let process = &mut script.processes[0];
    let drawn = |op, start, ticks| CallScript::op(op, start, ticks).drawn(10, 1, 9);
    let main = &mut process.threads[0];
    main.call(drawn(task, 99_100, 4_500)).call(drawn(region, 99_050, 4_600));
    main.counted(op, 100, 100, 0).counted(region, 10, 1, 0).counted(task, 10, 1, 0);
    let worker = process.thread("worker");
    worker.usages = vec![(Some(used(0, 0)), Some(used(104_000, 55_000)))];
    worker.call(drawn(task, 99_200, 1_000));
    worker.counted(task, 10, 1, 0);
    let found = cost(&script);
    let waiting = found.waiting.unwrap();
    let longer = lengthened(&found);
    assert!((waiting.value / longer - 1.0).abs() < 1e-6, "{waiting:?}, {longer}");
    // A single timed task shows little about the other nine, so the interval is wide.
    assert!(waiting.low < 0.5 * waiting.value, "{waiting:?}, {longer}");
}

/// A worker's task launches so many regions that they fill more than a page (a block of recorded
/// calls). The other tasks are inside of this one, so the time in tasks is the time of this task.
#[test]
fn a_task_that_ends_on_a_later_page_has_the_regions_of_earlier_ones() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    with_worker(&mut script, 10_000 + 45_000);
    let [region, task] = [1, 2].map(|at| script.processes[0].op_exports[at].id);
    let call = |op, start, ticks| Item::Call(CallScript::op(op, start, ticks));
    let inside = |i: u64| [call(task, 1_000 * i + 100, 100), call(region, 1_000 * i, 300)];
    let mut earlier: Vec<Item> = (1..9).flat_map(inside).collect();
    for at in [4, 9] {
        earlier.insert(at, Item::NextPage(1_000 * at as u64, 0, 0));
    }
    let threads = &mut script.processes[0].threads;
    threads[1].items.splice(0..0, earlier);
    threads[1].usages = vec![
        (Some(used(0, 0)), Some(used(4_000, 4_000))),
        (Some(used(4_000, 4_000)), Some(used(9_000, 9_000))),
        (Some(used(9_000, 9_000)), Some(used(100_000, 55_000))),
    ];
    let waiting = cost(&script).waiting.expect("a thread works for others");
    // 101 of 118 brackets are on the launching thread. The launching thread used 90,000 ticks of
    // processor time, and the worker used 45,000 outside of its task.
    let longer = 101.0 * 50.0 + 3_300.0;
    assert!((waiting.value / longer - 0.5).abs() < 1e-2, "{waiting:?}, {longer}");
}

/// The launching thread's own task extends over two pages. The time in tasks is the time of this
/// task: the tasks inside of it add nothing.
#[test]
fn time_in_tasks_is_not_counted_twice_where_a_page_ends() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    with_worker(&mut script, 10_000 + 45_000);
    let [region, task] = [1, 2].map(|at| script.processes[0].op_exports[at].id);
    let call = |op, start, ticks| Item::Call(CallScript::op(op, start, ticks));
    let main = &mut script.processes[0].threads[0];
    main.items.pop();
    main.items.extend([
        call(task, 81_000, 9_000),
        call(region, 80_500, 9_600),
        Item::NextPage(91_000, 0, 0),
        call(task, 80_000, 18_000),
        call(region, 79_900, 18_200),
    ]);
    main.usages = vec![
        (Some(used(0, 0)), Some(used(91_000, 81_000))),
        (Some(used(91_000, 81_000)), Some(used(100_000, 90_000))),
    ];
    let waiting = cost(&script).waiting.unwrap();
    // 104 of 105 brackets are on the launching thread. Outside of its tasks, the launching thread
    // used 90,000 − 18,000 ticks of processor time, all of it during the first page. This page has
    // 102 of the thread's 104 calls.
    let longer = 104.0 * 50.0 + 3_300.0;
    let part = 45.0 / 72.0 * 102.0 / 104.0;
    assert!((waiting.value / longer - part).abs() < 1e-2, "{waiting:?}, {longer}");
}

/// After the ops, the launching thread imports a module, which takes 900,000 ticks of processor
/// time. Meanwhile its worker sleeps. Outside of its task, the worker used 85,000 ticks of
/// processor time, nearly as much as the launching thread with its ops. So the worker waited for
/// nearly all of what the recorder did.
#[test]
fn time_with_few_calls_does_not_count() {
    let mut script = ops();
    script.processes[0].announced = vec![announced(0, 20, 10, 40)];
    with_worker(&mut script, 10_000 + 85_000);
    let [op, region] = [0, 1].map(|at| script.processes[0].op_exports[at].id);
    let main = &mut script.processes[0].threads[0];
    // Together with the region of `with_worker`, there are 100 regions, one after each op.
    for i in (0..99).rev() {
        let region = CallScript::op(region, 1_000 * i + 400, 100);
        main.items.insert(i as usize + 1, Item::Call(region));
    }
    main.items.push(Item::NextPage(100_000, 0, 0));
    main.call(CallScript::op(op, 999_000, 300)).call(CallScript::op(region, 999_500, 100));
    main.usages.push((Some(used(100_000, 90_000)), Some(used(1_000_000, 990_000))));
    let waiting = cost(&script).waiting.unwrap();
    // The worker waited equally long after each of the 101 regions: on the first page during 84,158
    // of 90,000 ticks, and on the other page during 842 of 900,000 ticks.
    let longer = 202.0 * 50.0 + 101.0 * 33.0;
    let each = 85_000.0 / 101.0;
    let part = (200.0 * 100.0 * each / 90_000.0 + 2.0 * each / 900_000.0) / 202.0;
    assert!((waiting.value / longer - part).abs() < 1e-6, "{waiting:?}, {longer}, {part}");
    // If the program was killed, the processor time of the last page is not known. The page is left
    // out, so the worker waited during 85,000 of 90,000 ticks.
    script.processes[0].threads[0].usages[1].1 = None;
    let waiting = cost(&script).waiting.unwrap();
    assert!((waiting.value / longer - 85.0 / 90.0).abs() < 1e-6, "{waiting:?}, {longer}");
}
