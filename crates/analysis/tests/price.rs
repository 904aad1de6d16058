//! Compares the cost of recording, and the values that are hidden because of it, with numbers that
//! were computed on paper. One tick is 1 ns.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::stats::Options as StatsOptions;
use analysis::{Estimate, Hidden, MetricValue, Options, ProbeCost, Summary, stats, summarize};
use model::Metric;
use profile::{Calibration, Role, SwitchCost, Usage};
use record::brackets::{Brackets, Histogram, bucket_of};
use record::counts::CountsRow;
use record::meta::{Leaving, ProcessCost, Spread};
use testkit::{CallScript, Item, ProfileScript, hosts};

fn summary(script: &ProfileScript, options: &Options) -> Summary {
    let (_scratch, profile) = script.opened();
    summarize(&profile, options)
}

fn used(ticks: u64, cpu_ns: u64, faults: u64, voluntary: u64, involuntary: u64) -> Usage {
    Usage {
        ticks,
        cpu_ns,
        minor_faults: faults,
        major_faults: faults / 10,
        voluntary_switches: voluntary,
        involuntary_switches: involuntary,
    }
}

/// Makes one thread with the counter `task-clock`, and forty calls on two pages (blocks of recorded
/// calls). In the calibration, an empty call takes 40 ns. For this call, the clock counts 400 ns
/// and is enabled for 400 ns. The whole bracket (the recorder's work around the call) takes 900 ns.
/// In the program, each of the forty calls takes 1,000 ns, but its clock counts 1,720 ns. So a
/// reading takes 1,720 − 1,000 = 720 ns in the program instead of 400 − 40 = 360 ns, and the
/// bracket takes twice as long: 1,800 ns.
fn counted() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("task-clock", 0).unit = "ns".into();
    script.manifest.switch_cost = Some(SwitchCost {
        switches: 1_000,
        bare_ns: 2_000.0,
        added_ns: 1_200.0,
        added_range_ns: [1_100.0, 1_400.0],
    });
    let process = script.process(1);
    process.library("m", &["f"]);
    process.calibrations.push(Calibration {
        calls: 200,
        counters: 1,
        inside_ticks: 40,
        total_ticks: 900,
        inside_values: vec![400],
        spread: Some(Spread {
            inside_ticks: [38, 44],
            total_ticks: [880, 1_000],
            inside_values: vec![[390, 450]],
            enabled_ns: vec![400],
        }),
        sums: None,
    });
    process.leaving = Some(Leaving { pages: 1, cpu_ns: 7_000 });
    let thread = process.thread("t");
    thread.attach_ns = 300_000;
    thread.flush_ticks = 50_000;
    thread.usages = vec![
        (Some(used(0, 10_000, 100, 5, 1)), Some(used(90_000, 90_000, 130, 9, 2))),
        (Some(used(200_000, 110_000, 500, 20, 3)), Some(used(300_000, 220_000, 501, 23, 5))),
    ];
    for i in 0..40u64 {
        if i == 20 {
            thread.then(Item::NextPage(200_000, 110_000, 200_000));
        }
        let start = if i < 20 { 1_000 + 4_000 * i } else { 201_000 + 4_000 * (i - 20) };
        thread.call(CallScript::new(0, start, 1_000).group(1_720, &[1_720]));
    }
    script
}

fn cost(script: &ProfileScript) -> ProbeCost {
    summary(script, &Options::default()).probes.remove(0)
}

#[test]
fn every_part_of_the_cost() {
    let cost = cost(&counted());
    assert_eq!((cost.calls, cost.of_calls), (40, 40));
    assert_eq!((cost.calibrated_per_call_ns, cost.per_call_ns), (900.0, 1_800.0));
    assert_eq!(cost.probes, Estimate { value: 72_000.0, low: 36_000.0, high: 72_000.0 });
    // There were (9 − 5) + (2 − 1) switches in the first page, and (23 − 20) + (5 − 3) in the
    // second.
    let switched = Estimate { value: 12_000.0, low: 11_000.0, high: 14_000.0 };
    assert_eq!((cost.switches, cost.switched), (10, Some(switched)));
    // Flushing took 110,000 − 90,000 ns between the pages, and 7,000 ns at the end. The wall time
    // for flushing is not used, because processor times are known.
    assert_eq!((cost.flush_ns, cost.attach_ns), (27_000.0, 300_000.0));
    assert_eq!((cost.way, cost.start, cost.process_ns), (None, None, None));
    let rest = 27_000.0 + 300_000.0;
    let total = Estimate {
        value: 72_000.0 + 12_000.0 + rest,
        low: 36_000.0 + 11_000.0 + rest,
        high: 72_000.0 + 14_000.0 + rest,
    };
    assert_eq!(cost.total(), total);
    // The processor times of the two pages are 80,000 and 110,000 ns. The time between the pages
    // belongs to the flush.
    assert_eq!(cost.cpu_ns, Some(190_000.0));
    assert_eq!(cost.alone_ns(), Some(190_000.0 - 84_000.0));
    assert_eq!(cost.dispatch_ns, Some(40_000.0));
}

#[test]
fn usage_and_processor_time_of_a_thread() {
    let thread = summary(&counted(), &Options::default()).threads[0];
    let expected = Usage {
        ticks: 190_000,
        cpu_ns: 190_000,
        minor_faults: 31,
        // 13 − 10 faults in the first page, and 50 − 50 in the second.
        major_faults: 3,
        voluntary_switches: 7,
        involuntary_switches: 3,
    };
    assert_eq!((thread.usage, thread.cpu_ns), (Some(expected), Some(190_000.0)));
    // The process was killed while it recorded calls on the second page. So the usage at the end of
    // this page is missing. The thread's last known processor time is that of a clock record.
    let mut killed = counted();
    let thread = &mut killed.processes[0].threads[0];
    thread.usages[1].1 = None;
    thread.then(Item::Clock(290_000, 170_000, 290_000));
    let thread = summary(&killed, &Options::default()).threads[0];
    let first = Usage { ticks: 90_000, cpu_ns: 80_000, minor_faults: 30, ..expected };
    let first = Usage { voluntary_switches: 4, involuntary_switches: 1, ..first };
    assert_eq!((thread.usage, thread.cpu_ns), (Some(first), Some(140_000.0)));
    // A profile of an earlier version has no usages in its pages.
    let mut old = counted();
    let thread = &mut old.processes[0].threads[0];
    thread.usages.clear();
    thread.then(Item::Clock(290_000, 170_000, 290_000));
    let thread = summary(&old, &Options::default()).threads[0];
    assert_eq!((thread.usage, thread.cpu_ns), (None, Some(60_000.0)));
}

/// A value that is lower at the end of a page than at its start is damaged. The usage of a page
/// with such a value is ignored, but that of the other pages is used.
#[test]
fn damaged_usages() {
    let mut script = counted();
    script.processes[0].threads[0].usages[0].1 = Some(used(1, 2, 3, 4, 0));
    let thread = summary(&script, &Options::default()).threads[0];
    assert_eq!(thread.usage.map(|used| used.minor_faults), Some(1));
    let mut script = counted();
    let most = used(u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    script.processes[0].threads[0].usages[0] = (Some(Usage::default()), Some(most));
    script.processes[0].leaving = Some(Leaving { pages: u32::MAX, cpu_ns: u64::MAX });
    script.processes[0].threads[0].attach_ns = u64::MAX;
    script.manifest.switch_cost = Some(SwitchCost { added_ns: -1.0, ..SwitchCost::default() });
    let cost = cost(&script);
    assert_eq!((cost.switches, cost.switched.map(|s| s.value)), (u64::MAX, Some(0.0)));
}

#[test]
fn switches_that_were_not_measured() {
    let mut script = counted();
    script.manifest.switch_cost = None;
    assert_eq!((cost(&script).switches, cost(&script).switched), (10, None));
    // Without counters, recording adds nothing to a thread's context switches.
    let mut timing = counted();
    timing.manifest.counters.clear();
    timing.processes[0].calibrations[0] =
        Calibration { calls: 9, total_ticks: 50, ..Calibration::default() };
    let thread = &mut timing.processes[0].threads[0];
    thread.mask = 0;
    thread.items.clear();
    thread.usages.truncate(1);
    thread.call(CallScript::new(0, 1_000, 500));
    let cost = cost(&timing);
    assert_eq!((cost.switches, cost.switched), (0, Some(Estimate::exact(0.0))));
    assert_eq!(cost.per_call_ns, 50.0);
    // The true value may be twice as high, because nothing shows how cold the caches were.
    assert_eq!(cost.probes, Estimate { value: 50.0, low: 50.0, high: 100.0 });
}

/// A virtual machine runs 50 ops, and no code of the program runs between two ops. From the end of
/// an op to the begin of the next one, 700 ticks pass. The bracket takes 300 ticks, of which 20 are
/// inside of the op's recorded duration.
#[test]
fn the_time_in_which_a_machine_calls_the_instrument() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(1);
    let vm = process.machine("vm");
    let ops = ["f", "g"].map(|name| process.op(vm, Role::Op, name, ""));
    process.empty_calls(200, 20, 300, &[]);
    let thread = process.thread("t");
    for i in 0..50 {
        thread.call(CallScript::op(ops[i % 2], 1_000 + 1_000 * i as u64, 300));
    }
    let cost = cost(&script);
    assert_eq!(cost.probes.value, 15_000.0);
    // The other 280 ticks of the bracket leave 420 of the 700. The virtual machine needs an
    // estimated four fifths of these to call the recorder, and at least half of them.
    let gap = 50.0 * 420.0;
    assert_eq!(cost.way, Some(Estimate { value: gap * 0.8, low: gap * 0.5, high: gap }));
}

fn metric(script: &ProfileScript, text: &str) -> MetricValue {
    let operands: Vec<_> = script.manifest.counters.iter().map(|c| c.operand()).collect();
    let metrics = vec![Metric::parse(text).unwrap().bind(&operands).unwrap()];
    let options = Options { metrics, ..Options::default() };
    summary(script, &options).rows[0].metrics.get(0)
}

/// Makes forty calls with this duration and this value of the clock.
fn calls(duration: u64, clock: u64) -> ProfileScript {
    let mut script = counted();
    let thread = &mut script.processes[0].threads[0];
    thread.items.clear();
    thread.usages.clear();
    for i in 0..40 {
        thread.call(CallScript::new(0, 10_000 * i, duration).group(clock, &[clock]));
    }
    script
}

const BUSY: &str = "busy = task-clock / duration in %";

/// Half of an empty call's 40 ns is subtracted from the duration of each call. For each call, the
/// clock counts 320 ns more than the recorded duration. With these 20 ns, the clock's bracket (what
/// the recorder adds to it) is 340 ns. (2,360 − 340) / (2,040 − 20) is 1, so the calls were on a
/// processor all the time.
#[test]
fn the_bracket_is_subtracted_from_metrics() {
    let script = calls(2_040, 2_360);
    let busy = metric(&script, BUSY);
    assert_eq!((busy.value, busy.calls, busy.hidden), (Some(100.0), 40, None));
    let [low, high] = busy.interval.unwrap();
    // The interval of the clock's bracket is from 320 to 450 ns, and that of the duration's bracket
    // is from 0 to 44 ns.
    assert!(low > 100.0 * 1_900.0 / 2_040.0 && low < 97.0, "{low}");
    assert!(high < 100.0 * 2_050.0 / 1_990.0 && high > 101.0, "{high}");
    let plain = summary(&script, &Options::default());
    let row = &plain.rows[0];
    assert_eq!(row.empty_share, Some(20.0 / 2_040.0));
    assert_eq!(row.counters[0].unwrap().empty_share(), Some(340.0 / 2_360.0));
    // In `total`, nothing is subtracted from the clock's sum.
    assert_eq!(row.counters[0].unwrap().total, 40 * 2_360);
    assert_eq!(row.counters[0].unwrap().value.value, 40.0 * 2_020.0);
    assert_eq!(row.total.value, 40.0 * 2_020.0);
}

#[test]
fn a_metric_that_is_mostly_the_bracket_is_absent() {
    // A call takes 65 ns. Of the 425 ns that its clock counts, 380 come from the bracket.
    let busy = metric(&calls(65, 425), BUSY);
    let Some(Hidden::Counter { counter: 0, empty_share }) = busy.hidden else { panic!("{busy:?}") };
    assert_eq!((busy.value, empty_share), (None, 380.0 / 425.0));
    // From a duration of 30 ns, two thirds (20 ns) are subtracted. From a duration of 44 ns, less
    // than half is subtracted, but the bracket may have taken all of it.
    for duration in [30, 44] {
        let rate = metric(&calls(duration, 900), "x = 1 / duration");
        let empty_share = 20.0 / duration as f64;
        assert_eq!((rate.value, rate.hidden), (None, Some(Hidden::Duration { empty_share })));
    }
    let rate = metric(&calls(80, 900), "x = 1 / duration");
    assert_eq!(rate.hidden, None);
    assert!(rate.value.is_some());
    // Without a calibration, the part of a duration that the recorder added is not known.
    let mut old = calls(65, 425);
    old.processes[0].calibrations.clear();
    assert_eq!(summary(&old, &Options::default()).rows[0].empty_share, None);
}

/// The metric `BUSY` has no value for a single call for which it would be above 100 %. In the first
/// case, the clock of 39 calls counts 260 ns more than they take, and that of one call counts 660
/// ns more. The mean is 270 ns. With half of an empty call's 40 ns, the clock's bracket is 290 ns.
/// So the metric is (1,300 − 290) / (1,040 − 20) for the 39 calls. For the other call, it would be
/// above 1: (1,700 − 290) / (1,040 − 20).
///
/// In the second case, the clock counts less than each call takes, so the calibrated bracket of 400
/// ns is used. It is more than half of 799 ns, so the metric has no value for any call.
#[test]
fn parts_of_the_time_of_single_calls() {
    for (usual, last, of, part) in
        [(1_300, 1_700, 39, Some(100.0 * 1_010.0 / 1_020.0)), (799, 799, 0, None)]
    {
        let mut script = calls(1_040, usual);
        let thread = &mut script.processes[0].threads[0];
        thread.items.pop();
        thread.call(CallScript::new(0, 390_000, 1_040).group(last, &[last]));
        let (_scratch, profile) = script.opened();
        let operands: Vec<_> = script.manifest.counters.iter().map(|c| c.operand()).collect();
        let metrics = vec![Metric::parse(BUSY).unwrap().bind(&operands).unwrap()];
        let found = stats(&profile, &StatsOptions { metrics, ..StatsOptions::default() }).unwrap();
        let busy = found.ops[0].all.variables.last().unwrap();
        assert_eq!(busy.calls, of, "{usual}");
        assert!(busy.mean.zip(part).is_none_or(|(a, b)| (a - b).abs() < 1e-9), "{usual} {busy:?}");
        assert_eq!(busy.mean.is_some(), part.is_some());
    }
}

/// A thread runs on one processor at a time. The clock counts 960 ns more than calls of `g` take,
/// but the mean over all calls is only (400 · 260 + 40 · 960) / 440 = 323.6. With the 20 ns inside
/// of the duration, 343.6 are subtracted, but the result (2,000 − 343.6) / (1,040 − 20) is above 1,
/// which is impossible.
#[test]
fn a_part_of_the_time_above_the_whole_is_hidden() {
    let mut script = calls(1_040, 1_300);
    script.processes[0].libraries.clear();
    script.processes[0].library("m", &["f", "g"]);
    let thread = &mut script.processes[0].threads[0];
    for i in 0..400 {
        let (op, clock) = if i < 40 { (1, 2_000) } else { (0, 1_300) };
        thread.call(CallScript::new(op, 1_000_000 + 10_000 * i, 1_040).group(clock, &[clock]));
    }
    let of_g = |text: &str| {
        let operands: Vec<_> = script.manifest.counters.iter().map(|c| c.operand()).collect();
        let metrics = vec![Metric::parse(text).unwrap().bind(&operands).unwrap()];
        let rows = summary(&script, &Options { metrics, ..Options::default() }).rows;
        rows.iter().find(|row| row.calls == 40).unwrap().metrics.get(0)
    };
    let busy = of_g(BUSY);
    let Some(Hidden::MoreThanAll { part }) = busy.hidden else { panic!("{busy:?}") };
    let reading = (400.0 * 260.0 + 40.0 * 960.0) / 440.0;
    assert!((part - (1_980.0 - reading) / 1_020.0).abs() < 1e-9 && busy.value.is_none(), "{part}");
    // A metric that is not simply a part of the time may be above 1.
    let twice = of_g("x = 2 * task-clock / duration").value.unwrap();
    assert!((twice - 2.0 * part).abs() < 1e-9, "{twice}");
    // The sum of the clock itself is limited to the time of the calls, too.
    let rows = summary(&script, &Options::default()).rows;
    let row = rows.iter().find(|row| row.calls == 40).unwrap();
    let (clock, total) = (row.counters[0].unwrap().value, row.total);
    assert_eq!((clock.value, clock.high), (total.value, total.high));
    let raw = summary(&script, &Options { raw: true, ..Options::default() }).rows;
    let row = raw.iter().find(|row| row.calls == 40).unwrap();
    assert_eq!(row.counters[0].unwrap().value.value, 40.0 * 2_000.0);
}

/// Makes a histogram with `n` times of the same length. Below 32 ticks, each length has its own
/// bucket.
fn times(ticks: u16, n: u32) -> Histogram {
    Histogram(vec![(ticks, n)])
}

fn brackets(thread_uid: u32, rehearsed: bool, before: Histogram, after: Histogram) -> Brackets {
    Brackets { thread_uid, counters: 1, rehearsed, before, after }
}

/// An empty call's bracket takes 900 ns. Of these, 10 before and 12 after the call are timed. In
/// the program, the timed parts take 14 and 30 ns, so a bracket takes 922 ns there. The 878 ns that
/// are not timed may take twice as long, because the timed parts do (44 instead of 22).
#[test]
fn brackets_that_were_timed_in_the_program() {
    let mut script = counted();
    let process = &mut script.processes[0];
    process.brackets = vec![
        brackets(0, true, times(10, 64), times(12, 64)),
        // The next entry of the same thread replaces this one.
        brackets(0, false, times(31, 500), times(31, 500)),
        brackets(0, false, times(14, 300), times(30, 300)),
        // This entry is about another set of counters.
        Brackets { counters: 2, ..brackets(0, false, times(1, 900), times(1, 900)) },
    ];
    let found = cost(&script);
    assert_eq!((found.calibrated_per_call_ns, found.per_call_ns), (900.0, 922.0));
    let expected = Estimate { value: 36_880.0, low: 36_880.0, high: 40.0 * (922.0 + 878.0) };
    assert_eq!(found.probes, expected);
    // 29 recorded times are too few, so the cost must be computed from the readings of counters.
    let process = &mut script.processes[0];
    process.brackets[2].after = times(30, 29);
    process.brackets.remove(1);
    assert_eq!(cost(&script).per_call_ns, 1_800.0);
}

/// The times of two threads form one sample: 100 × 20 and 300 × 28 have a mean of 26. Bucket 48
/// contains the times from 64 to 67. Brackets of more than 20 µs are left out, because they were
/// probably interrupted.
#[test]
fn times_of_several_threads_and_interrupted_ones() {
    let mut script = counted();
    let far = bucket_of(30_000) as u16;
    script.processes[0].brackets = vec![
        brackets(0, true, times(26, 64), times(48, 64)),
        brackets(0, false, times(20, 100), times(48, 100)),
        brackets(1, false, Histogram(vec![(28, 300), (far, 50)]), times(48, 300)),
    ];
    let found = cost(&script);
    assert_eq!(found.per_call_ns, 900.0);
    // The variance of 100 values of 20 and 300 values of 28 is 4,800 / 399.
    let half = 1.96 * (4_800.0f64 / 399.0 / 400.0).sqrt();
    assert!((found.probes.low - 40.0 * (900.0 - half)).abs() < 1e-6, "{:?}", found.probes);
    assert!((found.probes.high - 40.0 * (900.0 + half)).abs() < 1e-6, "{:?}", found.probes);
}

/// Forty calls have two readings each, and the program loses 50 ticks after each reading. The
/// constructor and loading took 400,000 ns. The time of the dynamic linker, which is not measured,
/// must be added. The process used 10 ms of processor time in all.
#[test]
fn what_lies_outside_of_brackets() {
    let mut script = counted();
    let before = cost(&script);
    script.processes[0].cost = Some(ProcessCost {
        constructor_ns: 100_000,
        loading_ns: 300_000,
        after_reading_ticks: 50,
        process_cpu_ns: 10_000_000,
    });
    let found = cost(&script);
    assert_eq!(found.after, Estimate { value: 4_000.0, low: 0.0, high: 8_000.0 });
    let start = found.start.unwrap();
    assert!(start.low > 400_000.0 && start.low < start.value && start.value < start.high);
    assert_eq!(found.total().value, before.total().value + 4_000.0 + start.value);
    assert_eq!(found.program_ns(), Some(10_000_000.0 - found.total().value));
    // The cost of the calls includes switches and flushing, but not starting and attaching.
    assert_eq!(found.of_calls().value, 72_000.0 + 4_000.0 + 12_000.0 + 27_000.0);
    // If the processor time of the process is not known, that of its threads is used, without the
    // cost of recording. The threads' time does not include the start.
    assert_eq!(before.program_ns(), before.alone_ns());
}

/// Of 1,000 calls in a run with a budget, 40 were timed.
#[test]
fn calls_that_were_only_counted() {
    let mut script = counted();
    script.manifest.budget = Some(0.02);
    let row = CountsRow { export: 0, calls: 1_000, timed: 40, counted: 40 };
    script.processes[0].threads[0].counted = vec![row];
    let found = cost(&script);
    assert_eq!((found.calls, found.only_counted), (40, 960));
    // The counters were open only around some calls, so between none and all of the 10 switches
    // happened while they were open.
    let switched = Estimate { value: 0.0, low: 0.0, high: 14_000.0 };
    assert_eq!((found.switches, found.switched), (10, Some(switched)));
    let counting = Estimate { value: 4_800.0, low: 1_920.0, high: 11_520.0 };
    assert_eq!((found.probes.value, found.counting), (72_000.0, counting));
}

/// The counters were not read in 10 of 50 timed calls. The brackets of these ten calls took 8 ns
/// before and 12 ns after the call. Another 20 ns of each bracket are never timed.
#[test]
fn calls_without_counters_that_were_not_calibrated() {
    let mut script = counted();
    script.manifest.budget = Some(0.02);
    let process = &mut script.processes[0];
    let timed = |ticks| times(ticks, 50);
    process.brackets = vec![Brackets { counters: 0, ..brackets(0, false, timed(8), timed(12)) }];
    let thread = &mut process.threads[0];
    for i in 0..10 {
        thread.call(CallScript::new(0, 290_000 + 1_000 * i, 500).unread());
    }
    let found = cost(&script);
    assert_eq!((found.calls, found.uncounted), (50, 10));
    assert_eq!(found.uncounted_call_ns, Some(40.0));
    assert_eq!(found.probes.value, 40.0 * 1_800.0 + 10.0 * 40.0);
}

/// Ten calls of 90 ms have gaps of 10 ms between them. Together, calls and gaps take 990 ms, and
/// the thread is on a CPU for 500 ms of them. Of the 490 ms off the CPU, at most 90 ms are between
/// calls.
#[test]
fn a_thread_is_preempted_if_it_lost_the_cpu_often() {
    let preempted_of = |dispatches: bool, voluntary, involuntary, cpu_ms: u64| {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["f"]);
        if !dispatches {
            process.libraries[0].host = hosts::TVM;
        }
        let thread = process.thread("t");
        let end = used(1_000_000_000, cpu_ms * 1_000_000, 0, voluntary, involuntary);
        thread.usages = vec![(Some(used(0, 0, 0, 0, 0)), Some(end))];
        for i in 0..10u64 {
            thread.call(CallScript::new(0, i * 100_000_000, 90_000_000));
        }
        let (_scratch, profile) = script.opened();
        let summary = summarize(&profile, &Options::default());
        summary.preempted(&profile).first().map(|one| (one.times, one.per_second, one.in_calls_ns))
    };
    let preempted = |voluntary, involuntary, ms| preempted_of(false, voluntary, involuntary, ms);
    assert_eq!(preempted(5, 60, 500), Some((60, 120.0, 400e6)));
    assert_eq!(preempted(5, 49, 500), None, "seldom");
    assert_eq!(preempted(60, 60, 500), None, "it waited by itself");
    let waits_between = preempted_of(true, 60, 60, 500);
    assert_eq!(waits_between, Some((60, 120.0, 400e6)), "workgroups do not wait");
    // In calls, the thread was off the CPU for 40 ms, which is less than 5 % of 900 ms.
    assert_eq!(preempted(5, 60, 860), None, "hardly off the CPU");
}
