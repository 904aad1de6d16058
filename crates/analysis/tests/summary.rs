//! Compares summaries of scripted profiles with numbers that were computed on paper.

use analysis::{By, Estimate, Key, Options, Row, Summary, summarize};
use model::{Loss, Metric};
use profile::{Profile, Role};
use testkit::{CallScript, Item, ProfileScript, Random};

fn summary(script: &ProfileScript, options: &Options) -> Summary {
    summarize(&script.opened().1, options)
}

fn row(summary: &Summary, key: Key) -> &Row {
    summary.rows.iter().find(|row| row.key == key).expect("the summary has this row")
}

/// Makes two processes with the same library and the ops `f` (0) and `g` (1). The workgroups run on
/// two threads and two CPUs.
fn two_processes() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("faults", 0);
    for pid in [10, 20] {
        let process = script.process(pid);
        process.library("m", &["f", "g"]);
        let main = process.thread("main");
        // `f` has one dispatch of two workgroups.
        main.call(CallScript::new(0, 1_000, 100).workgroup(0, 2).on(1, 0).group(100, &[5]))
            .call(CallScript::new(0, 2_000, 300).workgroup(1, 2).on(1, 0).group(300, &[7]));
        // `g` has one dispatch of one workgroup, whose counter was not read.
        let worker = process.thread("worker");
        worker.call(CallScript::new(1, 1_500, 600).on(2, 1).unread());
    }
    script
}

fn ticks(total: Option<Estimate>) -> f64 {
    total.expect("the total is known").value
}

#[test]
fn the_op_table() {
    let summary = summary(&two_processes(), &Options::default());
    assert_eq!((summary.calls, summary.dispatches, ticks(summary.total)), (6, Some(4), 2_000.0));
    assert_eq!(summary.rows.len(), 2);
    let f = row(&summary, Key::Op(0));
    assert_eq!((f.calls, f.dispatches, f.total.value), (4, Some(2), 800.0));
    assert_eq!((f.min, f.max, f.mean().value), (100.0, 300.0, 200.0));
    // The durations are 100, 100, 300 and 300.
    assert_eq!((f.p50, f.p99), (200.0, 300.0));
    let faults = f.counters[0].unwrap();
    assert_eq!((faults.total, faults.calls, faults.mean().value), (24, 4, 6.0));
    assert_eq!(f.threads.iter().copied().collect::<Vec<_>>(), [(0, 0), (1, 0)]);
    assert_eq!(f.cpus.iter().copied().collect::<Vec<_>>(), [1]);
    let g = row(&summary, Key::Op(1));
    assert_eq!((g.calls, g.dispatches, g.total.value, g.p50), (2, Some(2), 1_200.0, 600.0));
    assert_eq!(g.counters, [None], "a counter that was never read is missing, not zero");
    assert!(summary.losses.is_empty());
}

/// In both processes together, two dispatches of `f` have 24 faults in 4 workgroups. Each process
/// has 2 dispatches with 3 workgroups. One of the 3 workgroups has no value of the counter, so it
/// is not known to how many dispatches the other two belong.
#[test]
fn metrics_of_a_dispatch() {
    let script = two_processes();
    let operands: Vec<_> = script.manifest.counters.iter().map(|c| c.operand()).collect();
    let value = |by, key, text: &str| {
        let metrics = vec![Metric::parse(text).unwrap().bind(&operands).unwrap()];
        let summary = summary(&script, &Options { by, metrics, ..Options::default() });
        row(&summary, key).metrics.get(0).value
    };
    let [faults, calls] = ["m = faults / dispatches", "m = calls / dispatches"];
    assert_eq!(value(By::Op, Key::Op(0), faults), Some(12.0));
    assert_eq!(value(By::Op, Key::Op(0), calls), Some(2.0));
    assert_eq!(value(By::Op, Key::Op(1), faults), None, "no call has a value");
    assert_eq!(value(By::Process, Key::Process(0), calls), Some(1.5));
    assert_eq!(value(By::Process, Key::Process(0), faults), None);
}

#[test]
fn rows_by_thread_cpu_and_process() {
    let script = two_processes();
    let by = |by| summary(&script, &Options { by, ..Options::default() });
    let threads = by(By::Thread);
    assert_eq!(threads.rows.len(), 4);
    assert_eq!(row(&threads, Key::Thread(1, 1)).total.value, 600.0);
    let cpus = by(By::Cpu);
    assert_eq!(cpus.rows.len(), 2);
    assert_eq!(row(&cpus, Key::Cpu(1, 0)).calls, 4);
    assert_eq!(row(&cpus, Key::Cpu(2, 1)).threads.len(), 2);
    let processes = by(By::Process);
    assert_eq!(processes.rows.len(), 2);
    assert_eq!(row(&processes, Key::Process(1)).total.value, 1_000.0);
    for by in [By::Op, By::Thread, By::Cpu, By::Process] {
        let filter = Some("g*".to_owned());
        let options = Options { by, filter, ..Options::default() };
        let some = summary(&script, &options);
        let total: f64 = some.rows.iter().map(|row| row.total.value).sum();
        assert_eq!(total, 1_200.0, "{by:?}");
        assert_eq!((some.calls, ticks(some.total)), (6, 2_000.0), "percentages refer to all calls");
    }
}

#[test]
fn no_calls_and_one_call() {
    let mut script = ProfileScript::monotonic();
    let nothing = summary(&script, &Options::default());
    assert!(nothing.rows.is_empty() && nothing.threads.is_empty() && nothing.probes.is_empty());
    script.process(1).thread("t");
    let thread = summary(&script, &Options::default());
    assert!(thread.rows.is_empty() && thread.threads.is_empty());
    script.processes[0].threads[0].call(CallScript::new(3, 5, 11));
    let one = summary(&script, &Options::default());
    let row = row(&one, Key::Unknown(0, 3));
    assert_eq!((row.calls, row.p50, row.p99, row.min), (1, 11.0, 11.0, 11.0));
    assert_eq!(one.threads[0].off_cpu, None, "off-CPU time needs two readings of the CPU clock");
}

#[test]
fn multiplexed_calls_are_left_out_of_totals() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    let process = script.process(1);
    process.library("m", &["f"]);
    process
        .thread("t")
        .call(CallScript::new(0, 10, 5).group(5, &[100]))
        .call(CallScript::new(0, 20, 5).scaled(5, 2, &[30]))
        .call(CallScript::new(0, 30, 5).scaled(5, 0, &[0]));
    let summary = summary(&script, &Options::default());
    let total = summary.rows[0].counters[0].unwrap();
    assert_eq!((total.total, total.calls, total.mean().value), (100, 1, 100.0));
    assert_eq!(summary.losses.len(), 1);
    assert_eq!(summary.losses[0].loss(), Some(Loss::MultiplexedCall));
    assert_eq!(summary.losses[0].count, 2);
}

#[test]
fn counts_beyond_64_bits_and_clocks_that_go_back() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    let process = script.process(1);
    process.library("m", &["f"]);
    process
        .thread("t")
        .call(CallScript::new(0, 1_000, 5_000_000_000).group(5, &[u64::MAX]))
        .call(CallScript::new(0, 6_000_000_000, 0u64.wrapping_sub(3)).group(5, &[u64::MAX]));
    let summary = summary(&script, &Options::default());
    let row = &summary.rows[0];
    assert_eq!(row.counters[0].unwrap().total, 36_893_488_147_419_103_230);
    assert_eq!((row.total.value, row.min, row.max), (5e9, 0.0, 5e9));
}

/// Makes a thread that begins at 1000. Its calls run from 1000 to 1400 and from 2000 to 2500, and
/// are on a CPU for 300 and 500 of these ticks. The thread's CPU clock is read at 1000 and 3000,
/// and shows 1300 ticks of processor time between these readings. The wall time is 2000 ticks: 900
/// in dispatches (calls) and 1100 outside. Outside of dispatches, the thread is on a CPU for 1300 −
/// 800 = 500, so it is off the CPU for 600.
fn on_and_off() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    let process = script.process(1);
    process.library("m", &["f"]);
    let thread = process.thread("t");
    thread.base = (1_000, 500, 1_000);
    thread
        .call(CallScript::new(0, 1_000, 400).group(300, &[1]))
        .call(CallScript::new(0, 2_000, 500).group(500, &[1]))
        .then(Item::Clock(3_000, 1_800, 3_000));
    script
}

#[test]
fn time_in_no_dispatch_and_off_the_cpu() {
    let script = on_and_off();
    let time = summary(&script, &Options::default()).threads[0];
    assert_eq!((time.wall_ns, time.dispatch_ns, time.no_dispatch_ns()), (2_000.0, 900.0, 1_100.0));
    let off = time.off_cpu.unwrap();
    assert_eq!((off.ns, off.of_ns, off.assumed), (600.0, 1_100.0, false));

    // Without a real counter, calls are assumed to be on a CPU all the time. So outside of calls,
    // the thread is off the CPU for 1100 − (1300 − 900).
    for simulated in [true, false] {
        let mut script = script.clone();
        if simulated {
            script.manifest.counters[0].simulated = true;
        } else {
            script.processes[0].threads[0].mask = 0;
            for item in &mut script.processes[0].threads[0].items {
                if let Item::Call(call) = item {
                    call.groups.clear();
                }
            }
        }
        let off = summary(&script, &Options::default()).threads[0].off_cpu.unwrap();
        assert_eq!((off.ns, off.assumed), (700.0, true));
    }
}

/// The thread's first page (block of records) begins 9 ms before the first call, because the
/// recorder starts in between. The thread sleeps for 8 of the 9 ms. The recorder is ready at the
/// first clock record, so the measured off-CPU time begins there. The wall time is always from
/// 10,000,000 to 10,002,000.
#[test]
fn the_recorders_own_start_is_not_off_the_cpu() {
    let with = |first: Option<Item>| {
        let mut script = ProfileScript::monotonic();
        script.counter("a", 0);
        let thread = script.process(1).thread("t");
        thread.base = (1_000_000, 0, 1_000_000);
        thread.items.extend(first);
        thread
            .call(CallScript::new(0, 10_000_000, 500).group(500, &[1]))
            .then(Item::Clock(10_000_600, 1_000_600, 10_000_600))
            .call(CallScript::new(0, 10_001_000, 500).group(500, &[1]))
            .then(Item::Clock(10_002_000, 1_001_600, 10_002_000));
        let time = summary(&script, &Options::default()).threads[0];
        assert_eq!((time.wall_ns, time.no_dispatch_ns()), (2_000.0, 1_000.0));
        time.off_cpu.unwrap()
    };
    // The thread is on a CPU for 1600 of 2000, and in dispatches for 1000 of these 1600.
    let off = with(Some(Item::Clock(10_000_000, 1_000_000, 10_000_000)));
    assert_eq!((off.ns, off.of_ns), (400.0, 1_000.0));
    // In the next two cases, the first clock record is 300 or 1,000,000 ticks before the first
    // call, and the thread was off the CPU in between. The time off the CPU is limited to the 1000
    // ticks in no dispatch.
    let off = with(Some(Item::Clock(9_999_700, 1_000_000, 9_999_700)));
    assert_eq!((off.ns, off.of_ns), (700.0, 1_000.0));
    let off = with(Some(Item::Clock(9_000_000, 1_000_000, 9_000_000)));
    assert_eq!((off.ns, off.of_ns), (1_000.0, 1_000.0));
    // Without a clock record before the first call, the first record after it is used. The thread
    // is on a CPU for 1000 of 1400, and in dispatches for 500 of these 1000.
    let off = with(None);
    assert_eq!((off.ns, off.of_ns), (400.0, 900.0));
}

/// A group of counters is enabled before the clock is read at the start of the call. It is disabled
/// after the clock is read at the end. So a group can be enabled for longer than the recorded
/// duration of a call: here for 70 ticks instead of 20.
#[test]
fn a_group_that_was_enabled_for_longer_than_the_call() {
    let mut script = ProfileScript::monotonic();
    script.counter("a", 0);
    let thread = script.process(1).thread("t");
    thread.base = (1_000, 0, 1_000);
    for i in 0..10 {
        thread.call(CallScript::new(0, 1_000 + 100 * i, 20).group(70, &[1]));
    }
    // The thread is on a CPU all the time. It is in no dispatch for 800 ticks.
    thread.then(Item::Clock(2_000, 1_000, 2_000));
    let off = summary(&script, &Options::default()).threads[0].off_cpu.unwrap();
    assert_eq!((off.ns, off.of_ns, off.assumed), (0.0, 800.0, false));
}

/// The thread's CPU clock is read for the last time when its second page (block of records) begins.
/// The process died before the next reading, so the time off the CPU after the last one is not
/// known.
#[test]
fn off_cpu_time_ends_at_the_last_clock_reading() {
    let mut script = on_and_off();
    script.processes[0].threads[0]
        .then(Item::NextPage(4_000, 2_000, 4_000))
        .call(CallScript::new(0, 5_000, 1_000).group(1_000, &[1]));
    let time = summary(&script, &Options::default()).threads[0];
    assert_eq!((time.wall_ns, time.dispatch_ns), (5_000.0, 1_900.0));
    // From 1000 to 4000, the thread is in no dispatch for 3000 − 900. It is on a CPU for 1500 − 800
    // of this time.
    let off = time.off_cpu.unwrap();
    assert_eq!((off.ns, off.of_ns), (1_400.0, 2_100.0));
}

#[test]
fn probes_and_empty_calls() {
    let mut script = on_and_off();
    let process = &mut script.processes[0];
    process.empty_calls(100, 450, 90, &[3]);
    process.threads[0].call(CallScript::new(0, 3_500, 500).group(500, &[7]));
    process.threads[0].then(Item::NextPage(4_000, 0, 4_000));
    process.threads[0].flush_ticks = 30;
    let summary_plain = summary(&script, &Options::default());
    let probe = &summary_plain.probes[0];
    assert_eq!((probe.calls, probe.per_call_ns, probe.probes.value), (3, 90.0, 270.0));
    assert_eq!((probe.flush_ns, probe.total().value), (30.0, 300.0));
    assert_eq!((probe.empty_call.ticks, &*probe.empty_call.values), (450, &[Some(3)][..]));
    // An empty call takes 450 and counts 3. From each of the durations 400, 500 and 500, half of
    // 450 is subtracted. The counts are 1, 1 and 7, and 3 per call is subtracted from their sum.
    let recorded = summary(&script, &Options { raw: true, ..Options::default() });
    assert_eq!((ticks(recorded.total), ticks(summary_plain.total)), (1_400.0, 725.0));
    let row = &summary_plain.rows[0];
    assert_eq!((recorded.rows[0].total.value, row.total.value), (1_400.0, 725.0));
    assert_eq!((recorded.rows[0].min, row.min, row.call(row.min).value), (400.0, 175.0, 175.0));
    let counter = row.counters[0].unwrap();
    assert_eq!((counter.total, counter.value.value), (9, 0.0));
    // Like profiles of earlier versions of the recorder, this profile lacks the scatter of empty
    // calls. So the time that the recorder added to a call may be anything from 0 to twice the
    // median duration of an empty call.
    let taken = row.taken.unwrap();
    assert!(taken.total.low <= 0.0 && taken.total.high >= 3.0 * 900.0, "{taken:?}");
    assert_eq!(summary_plain.taken, Some(taken.total));
    assert!(!summary_plain.uncalibrated_probes);
}

/// The cost of a probe (the recorder's work around a call) with counters does not show the cost of
/// a probe without counters.
#[test]
fn probes_of_a_set_of_counters_that_was_not_calibrated() {
    let mut script = on_and_off();
    let process = &mut script.processes[0];
    process.empty_calls(100, 100, 90, &[0]);
    let thread = process.thread("timing");
    thread.mask = 0;
    for i in 0..5 {
        thread.call(CallScript::new(0, 1_000 + 100 * i, 20));
    }
    let options = Options::default();
    let found = summary(&script, &options);
    let probe = &found.probes[0];
    assert_eq!((probe.calls, probe.of_calls, probe.probes.value), (2, 7, 180.0));
    assert_eq!(probe.empty_call.values, [Some(0)]);
    assert!(found.uncalibrated_probes);
    // The recorder's time is not subtracted from the sum, because the probes of the thread `timing`
    // were not calibrated.
    assert_eq!((ticks(found.total), found.taken), (1_000.0, None));

    script.processes[0].threads.remove(0);
    let found = summary(&script, &options);
    assert!(found.probes.is_empty() && found.uncalibrated_probes);
    assert_eq!((ticks(found.total), found.taken), (100.0, None));
}

/// In each round, makes random nested calls, recorded in several pages (blocks of records) of the
/// profile. The ticks in which a call runs are marked in `busy`.
#[test]
fn nested_calls_are_not_counted_twice() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut next = move |n: u64| {
        let random = random.next();
        random % n
    };
    for round in 0..60 {
        let mut script = ProfileScript::monotonic();
        script.process(1).library("m", &["f"]);
        let thread = script.processes[0].thread("t");
        let mut busy = vec![false; 20_000];
        let mut open: Vec<u64> = Vec::new();
        let mut now = 0;
        for _ in 0..200 {
            now += 1 + next(20);
            if open.len() < 4 && next(2) == 0 {
                open.push(now);
            } else if let Some(begin) = open.pop() {
                thread.call(CallScript::new(0, begin, now - begin));
                busy[begin as usize..now as usize].fill(true);
            }
            if next(8) == 0 {
                thread.then(Item::NextPage(now, 0, now));
            }
        }
        let script_summary = |workers| summary(&script, &Options { workers, ..Options::default() });
        let one = script_summary(1);
        let expected = busy.iter().filter(|busy| **busy).count() as f64;
        assert_eq!(one.threads[0].dispatch_ns, expected, "round {round}");
        let four = script_summary(4);
        assert_eq!((one.threads, one.rows), (four.threads, four.rows));
    }
}

/// Damaged headers can contain any number. Sums must saturate, and nothing may panic.
#[test]
fn damage_never_panics() {
    let (_scratch, profile) = on_and_off().opened();
    let path = profile.dir.join("processes/1-1000-0/pages.cps");
    let bytes = std::fs::read(&path).unwrap();
    for at in 8..256 {
        for value in [0, 0x7F, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            std::fs::write(&path, damaged).unwrap();
            let profile = Profile::open(&profile.dir).unwrap();
            for by in [By::Op, By::Cpu] {
                summarize(&profile, &Options { by, ..Options::default() });
            }
            profile.batches(None).for_each(|batch| assert!(batch.is_ok()));
        }
    }
}

/// The summary would take minutes if it searched for the time of each thread again for each row.
#[test]
fn many_ops() {
    const OPS: u32 = 60_000;
    let mut script = ProfileScript::monotonic();
    let process = script.process(10);
    let names: Vec<String> = (0..OPS).map(|i| format!("f{i}")).collect();
    process.library("m", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let main = process.thread("main");
    for op in 0..OPS {
        main.call(CallScript::new(op, 100 * u64::from(op), 50));
        if op % 1_000 == 999 {
            main.then(Item::NextPage(100 * u64::from(op) + 50, 0, 0));
        }
    }
    assert_eq!(summary(&script, &Options::default()).rows.len(), OPS as usize);
}

/// Makes three iterations of 1,000 ns, each in a range `loop`. In each iteration, `step` takes 400
/// ns and `forward` takes 300 ns, and each of them calls `mul`.
fn steps(roles: [Role; 2]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let machine = process.machine("m");
    let names =
        [(Role::Range, "loop"), (roles[0], "step"), (roles[1], "forward"), (Role::Op, "mul")];
    let [all, step, forward, mul] = names.map(|(role, name)| process.op(machine, role, name, ""));
    let of = process.thread("main");
    for at in (0..3_000).step_by(1_000) {
        of.call(CallScript::op(all, 1_000 + at, 1_000));
        of.call(CallScript::op(step, 1_100 + at, 400)).call(CallScript::op(mul, 1_150 + at, 300));
        of.call(CallScript::op(forward, 1_600 + at, 300)).call(CallScript::op(mul, 1_650 + at, 90));
    }
    script
}

#[test]
fn what_is_around_most_of_the_time() {
    let found = |roles| {
        let (_scratch, profile) = steps(roles).opened();
        let around = summarize(&profile, &Options::default()).around(&profile)?;
        let Key::Op(op) = around.key else { return None };
        let name = profile.ops.get(op)?.name.clone();
        Some((name, around.total_ns, around.threads, around.share))
    };
    // `loop` takes all of the time, so `around` leaves it out. `mul` takes 390 ns in each
    // iteration.
    let step = Some(("step".to_owned(), 1_200.0, 1, 0.4));
    assert_eq!(found([Role::Range, Role::Range]), step);
    assert_eq!(found([Role::Op, Role::Range]), step);
    // `step` and `forward` are now runs of a model. `around` finds only ops and ranges, so it finds
    // `mul`.
    let mul = Some(("mul".to_owned(), 1_170.0, 1, 0.39));
    assert_eq!(found([Role::Run, Role::Run]), mul);
    let (_scratch, profile) = two_processes().opened();
    let flat = summarize(&profile, &Options::default()).around(&profile);
    assert_eq!(flat, None, "no call is inside of another one");
}

/// The function `name` takes `most` of 1,000 ns, including the tasks of its parallel region. It is
/// called with two shapes.
#[test]
fn a_function_takes_most_of_the_time() {
    let found = |most: u64, name: &str, host: u8| {
        let mut script = ProfileScript::monotonic();
        let process = script.process(7);
        let machine = process.machine("m");
        process.libraries[0].host = host;
        let ops = [(Role::Op, "16"), (Role::Op, "32"), (Role::Task, "")];
        let [small, large, task] = ops.map(|(role, of)| process.op(machine, role, name, of));
        let other = process.op(machine, Role::Op, "other", "");
        let of = process.thread("main");
        of.call(CallScript::op(small, 1_000, 100)).call(CallScript::op(other, 3_000, 1_000 - most));
        of.call(CallScript::op(large, 2_000, most - 300)).call(CallScript::op(
            task,
            2_010,
            most - 400,
        ));
        process.thread("worker").call(CallScript::op(task, 2_000, 200));
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options::default());
        let most = summary.dominant(&profile)?;
        Some((profile.ops.get(most.op)?.name.clone(), (most.share * 1_000.0).round()))
    };
    use testkit::hosts::{TORCH, TVM};
    assert_eq!(found(600, "prefix", TVM), Some(("prefix".to_owned(), 600.0)));
    assert_eq!(found(450, "prefix", TVM).map(|of| of.0), Some("other".to_owned()));
    assert_eq!(found(600, "vm.builtin.copy", TVM), None, "not a function that is compiled");
    assert_eq!(found(600, "prefix", TORCH), None, "its functions cannot be instrumented");
}
