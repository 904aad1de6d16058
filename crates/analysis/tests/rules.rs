//! Tests the rules that find causes of slow programs: on scripted profiles in which a rule fires,
//! and on profiles in which it does not. One tick is 1 ns.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::{Before, Fired, Options, Rule, rules, sites, summarize};
use profile::Role;
use testkit::{CallScript, ProfileScript, Scratch};

fn fired(script: &ProfileScript) -> Vec<Fired> {
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options::default());
    rules(&profile, &summary, sites(&profile, false).as_ref())
}

/// Makes a hundred dispatches of one function, one every `every` ns. `work` contains, for each
/// worker, the durations of its consecutive workgroups in each dispatch.
fn dispatches(every: u64, work: &[&[u64]]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["f"]);
    let all: usize = work.iter().map(|worker| worker.len()).sum();
    let mut id = 0;
    for (number, worker) in work.iter().enumerate() {
        let of = process.thread(&format!("worker-{number}"));
        for dispatch in 0..100u64 {
            let mut at = 1_000 + dispatch * every;
            for (place, duration) in (id..).zip(*worker) {
                let call = CallScript::new(0, at, *duration);
                of.call(call.workgroup(place, all as u32));
                at += duration;
            }
        }
        // The workgroups of the next worker have the next numbers.
        id += worker.len() as u32;
    }
    script
}

/// Returns the only rule that fires, and the part of the wall time at stake.
fn only(script: &ProfileScript) -> (Rule, f64) {
    let all = fired(script);
    let [one] = all.as_slice() else { panic!("{all:?}") };
    (one.rule, one.share)
}

#[test]
fn busy_workers_are_silent() {
    let balanced: &[&[u64]] = &[&[5_000, 5_000], &[5_000, 5_000]];
    assert_eq!(fired(&dispatches(10_100, balanced)), []);
}

/// A dispatch of 10 µs runs every 40 µs, so three quarters of the time are between dispatches.
#[test]
fn most_of_the_time_is_between_dispatches() {
    let balanced: &[&[u64]] = &[&[5_000, 5_000], &[5_000, 5_000]];
    let (rule, share) = only(&dispatches(40_000, balanced));
    let Rule::Between { dispatches: 100, before, mean_ns } = rule else { panic!("{rule:?}") };
    let total = 99.0 * 30_000.0;
    let gaps = Before { times: 99, total, mean: 30_000.0, median: 30_000.0, longest: 30_000.0 };
    assert_eq!((before, mean_ns), (gaps, 10_000.0));
    assert!((share - 2.97 / 3.97).abs() < 1e-9, "{share}");
    assert_eq!(fired(&dispatches(15_000, balanced)), [], "a third is not most");
}

/// Makes a hundred runs of two dispatches of 5 µs, with a gap of `inside` ns between the two.
/// `begins` returns the start of each run.
fn runs(inside: u64, begins: impl Fn(u64) -> u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["f", "g"]);
    for worker in 0..2 {
        let thread = process.thread("worker");
        for run in 0..100 {
            for op in 0..2 {
                let at = begins(run) + (5_000 + inside) * u64::from(op);
                thread.call(CallScript::new(op, at, 5_000).workgroup(worker, 2));
            }
        }
    }
    script
}

/// A run of two dispatches with 1 µs between them starts every 40 µs, and the last run starts 100
/// µs late. The gaps of 1 µs inside of runs do not count as time between runs.
#[test]
fn most_of_the_time_is_between_runs() {
    let late = |run| 40_000 * run + if run == 99 { 100_000 } else { 0 };
    let script = runs(1_000, late);
    let [Fired { rule, share, wall_ns }] = fired(&script)[..] else { panic!() };
    let Rule::BetweenRuns { runs: 100, before, mean_ns } = rule else { panic!("{rule:?}") };
    let total = 98.0 * 29_000.0 + 129_000.0;
    let mean = total / 99.0;
    assert_eq!(before, Before { times: 99, total, mean, median: 29_000.0, longest: 129_000.0 });
    assert_eq!((mean_ns, wall_ns), (11_000.0, 4_071_000.0));
    assert!((share - total / wall_ns).abs() < 1e-9, "{share}");
}

/// A run starts every 27 µs. There are 9 µs before it and 8 µs between its two dispatches. Neither
/// of these gaps alone is most of the time.
#[test]
fn gaps_before_and_inside_of_runs_are_between_dispatches() {
    let (rule, share) = only(&runs(8_000, |run| 27_000 * run));
    assert!(matches!(rule, Rule::Between { dispatches: 200, .. }), "{rule:?}");
    let gaps = 99.0 * 9_000.0 + 100.0 * 8_000.0;
    assert!((share - gaps / (99.0 * 27_000.0 + 18_000.0)).abs() < 1e-9, "{share}");
}

/// Worker 0 takes 16 µs and worker 1 takes 4 µs. With equal work, both would take 10 µs.
#[test]
fn one_worker_does_the_most() {
    let (rule, share) = only(&dispatches(16_000, &[&[8_000, 8_000], &[4_000]]));
    assert!(matches!(rule, Rule::Imbalance { imbalance, .. } if (imbalance - 1.6).abs() < 1e-9));
    assert!((share - 0.375).abs() < 1e-3, "{share}");
    assert_eq!(fired(&dispatches(11_000, &[&[5_500, 5_500], &[4_500, 4_500]])), []);
}

/// Each dispatch has one workgroup, and there are two workers. The second worker ran a workgroup
/// only once.
#[test]
fn the_workers_wait_for_workgroups() {
    let mut script = dispatches(10_000, &[&[9_900]]);
    let other = script.processes[0].thread("worker-1");
    other.call(CallScript::new(0, 1_001_000, 9_900));
    let (rule, share) = only(&script);
    assert!(matches!(rule, Rule::FewWorkgroups { workgroups: 1.0, workers: 2, .. }), "{rule:?}");
    assert!((share - 0.495).abs() < 0.01, "{share}");
    // With one worker, no worker waits for another.
    assert_eq!(fired(&dispatches(10_000, &[&[9_900]])), []);
}

/// The second worker gets one of the four workgroups of 200 ns, because it wakes up when the first
/// worker is nearly done.
#[test]
fn workgroups_are_too_small() {
    let mut script = dispatches(700, &[&[200, 200, 200]]);
    for call in &mut script.processes[0].threads[0].items {
        if let testkit::Item::Call(call) = call {
            call.call.count[0] = 4;
        }
    }
    let late = script.processes[0].thread("worker-1");
    for dispatch in 0..100u64 {
        late.call(CallScript::new(0, 1_450 + dispatch * 700, 200).workgroup(3, 4));
    }
    let all = fired(&script);
    let small = all.iter().find(|one| matches!(one.rule, Rule::SmallWorkgroups { .. }));
    let Some(Fired { rule: Rule::SmallWorkgroups { mean_ns, .. }, share, .. }) = small else {
        panic!("{all:?}")
    };
    assert_eq!(*mean_ns, 200.0);
    // Two workers could do the work of 800 ns in 400 ns, but the dispatches last 650 ns.
    assert!((share - 250.0 / 700.0).abs() < 0.01, "{share}");
}

/// Both workers have the same work, but the second worker begins late.
#[test]
fn workers_wait_inside_of_dispatches() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["f"]);
    for worker in 0..2u32 {
        let of = process.thread(&format!("worker-{worker}"));
        for dispatch in 0..100u64 {
            for place in 0..2u64 {
                let late = 20_000 * u64::from(worker);
                let at = 1_000 + dispatch * 50_000 + late + place * 15_000;
                let id = 2 * worker + place as u32;
                of.call(CallScript::new(0, at, 10_000).workgroup(id, 4));
            }
        }
    }
    let (rule, share) = only(&script);
    let Rule::WorkersWait { efficiency, .. } = rule else { panic!("{rule:?}") };
    // In each dispatch, the two workers worked for 40 µs together. The dispatch took 45 µs, so both
    // together had 90 µs.
    assert!((efficiency - 40.0 / 90.0).abs() < 1e-9, "{efficiency}");
    assert!((share - 25.0 / 50.0).abs() < 0.01, "{share}");
}

fn counted(names: &[&str], calls: impl Iterator<Item = (u64, Vec<u64>)>) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    for name in names {
        script.counter(name, 0);
    }
    let process = script.process(7);
    process.library("m", &["f"]);
    let of = process.thread("main");
    let mut at = 1_000;
    for (duration, values) in calls {
        of.call(CallScript::new(0, at, duration).group(duration, &values));
        at += duration + 10;
    }
    script
}

#[test]
fn memory_bound() {
    let names = ["cycles:u", "cycle_activity.stalls_l3_miss:u"];
    let script = counted(&names, (0..100).map(|_| (1_000, vec![3_000, 2_400])));
    let (rule, share) = only(&script);
    assert!(matches!(rule, Rule::MemoryBound { counter: 1, stalled, .. } if stalled == 0.8));
    assert!((share - 0.8).abs() < 0.02, "{share}");
    assert_eq!(fired(&counted(&names, (0..100).map(|_| (1_000, vec![3_000, 600])))), []);
    let others = ["cycles:u", "instructions:u"];
    assert_eq!(fired(&counted(&others, (0..100).map(|_| (1_000, vec![3_000, 2_900])))), []);
}

/// 8 faults in each call of 10 µs take at least 2 µs. If only the first call has faults, memory is
/// reused.
#[test]
fn fresh_memory_in_each_call() {
    let script = counted(&["page-faults"], (0..100).map(|_| (10_000, vec![8])));
    let (rule, share) = only(&script);
    let Rule::FreshMemory { counter: 0, mean: 8.0, calls: 1.0, part: 0.2, of_cpu: false, .. } =
        rule
    else {
        panic!("{rule:?}")
    };
    assert!((share - 0.2).abs() < 0.01, "{share}");
    let kept = (0..100).map(|call| (10_000, vec![if call == 0 { 800 } else { 0 }]));
    assert_eq!(fired(&counted(&["page-faults"], kept)), []);
}

/// Two of three passes count other things, and have fewer and longer calls. What is at stake is the
/// same as in the only pass that counts page faults.
#[test]
fn fresh_memory_in_one_of_three_passes() {
    let scratch = Scratch::new();
    let dir = scratch.join("x.cpt");
    let mut whole = ProfileScript::monotonic();
    whole.manifest.passes = 3;
    whole.write(&dir);
    for (pass, name) in [(1, "page-faults"), (2, "minor-faults"), (3, "context-switches")] {
        let (calls, ns, faults) = if pass == 1 { (100, 10_000, 8) } else { (10, 100_000, 0) };
        let script = counted(&[name], (0..calls).map(|_| (ns, vec![faults])));
        script.write(&profile::passes::pass_dir(&dir, pass));
    }
    let profile = profile::Profile::open(&dir).unwrap();
    let summary = summarize(&profile, &Options::default());
    let all = rules(&profile, &summary, None);
    let [one] = all.as_slice() else { panic!("{all:?}") };
    assert!(matches!(one.rule, Rule::FreshMemory { mean: 8.0, .. }), "{one:?}");
    assert!((one.share - 0.2).abs() < 0.01, "{one:?}");
    assert!((one.wall_ns - 1_001_000.0).abs() < 2_000.0, "{one:?}");
}

/// Of 300 calls, 30 have large tensors: 1,000 faults in 10 ms of wall time, of which 2 ms are on a
/// CPU. The median call has no fault. The faults take 7.5 ms, which is 2.5 % of the wall time and
/// 12 % of the processor time.
#[test]
fn fresh_memory_in_few_large_calls() {
    let mixed = |on_cpu: u64| {
        counted(
            &["page-faults", "task-clock"],
            (0..300).map(move |call| match call % 10 {
                5 => (10_000_000, vec![1_000, on_cpu]),
                _ => (10_000, vec![0, 10_000]),
            }),
        )
    };
    let (rule, share) = only(&mixed(2_000_000));
    let Rule::FreshMemory { counter: 0, mean, calls, part, of_cpu: true, .. } = rule else {
        panic!("{rule:?}")
    };
    // The first call is left out. It has no fault.
    assert_eq!((mean, calls), (30_000.0 / 299.0, 30.0 / 299.0));
    assert!((part - 7.5 / 62.7).abs() < 0.001, "{part}");
    assert!((share - 7.5 / 302.7).abs() < 0.001, "{share}");
    assert_eq!(fired(&mixed(10_000_000)), [], "2.5 % of the processor time");
}

fn torch(name: &str, calls: u64, duration: u64, every: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let machine = process.machine("torch");
    let op = process.op(machine, Role::Op, name, "");
    let of = process.thread("python3");
    for call in 0..calls {
        of.call(CallScript::op(op, 1_000 + call * every, duration));
    }
    script
}

#[test]
fn the_data_loader_is_waited_for() {
    let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    let (rule, share) = only(&torch(name, 100, 3_000, 10_000));
    assert!(matches!(rule, Rule::DataLoader { calls: 100, mean_ns: 3_000.0, .. }));
    assert!((share - 0.3).abs() < 0.01, "{share}");
    assert_eq!(fired(&torch(name, 100, 300, 10_000)), [], "3 % of the time");
    assert_eq!(fired(&torch("aten::linear", 100, 3_000, 10_000)), []);
}

#[test]
fn items() {
    let (rule, share) = only(&torch("aten::item", 5_000, 500, 10_000));
    assert!(matches!(rule, Rule::Items { calls: 5_000, mean_ns: 500.0, .. }));
    assert!((share - 0.05).abs() < 0.01, "{share}");
    assert_eq!(fired(&torch("aten::item", 500, 500, 10_000)), [], "too few");
    assert_eq!(fired(&torch("aten::item", 5_000, 50, 10_000)), [], "0.5 % of the time");
}

/// Python's work for a call is in the gaps before and after the call.
#[test]
fn items_with_the_gaps_around_them() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let machine = process.machine("torch");
    let [item, linear] =
        ["aten::item", "aten::linear"].map(|name| process.op(machine, Role::Op, name, ""));
    let of = process.thread("python3");
    // In every 10 µs, 500 ns are in `.item()`, 1 µs is before it, and 2 µs are after it.
    for step in 0..5_000 {
        let at = 1_000 + step * 10_000;
        of.call(CallScript::op(item, at, 500));
        of.call(CallScript::op(linear, at + 2_500, 6_500));
    }
    let (_scratch, profile) = script.opened();
    let summary = summarize(&profile, &Options { gaps: true, ..Options::default() });
    let all = rules(&profile, &summary, None);
    let [Fired { rule: Rule::Items { calls: 5_000, around_ns, .. }, share, .. }] = all.as_slice()
    else {
        panic!("{all:?}")
    };
    assert_eq!(*around_ns, 5_000.0 * 2_000.0 + 4_999.0 * 1_000.0);
    assert!((share - 0.35).abs() < 0.001, "{share}");
}
