//! Compares the self time of nested calls with the result of a slow program, which finds the
//! innermost call at each single tick.

use std::collections::BTreeMap;

use analysis::{By, CallTree, Key, Options, Summary, call_tree, summarize};
use profile::Origin;
use testkit::{CallScript, Item, ProfileScript, Random};

/// A call: its op, its begin and its end.
type Call = (u32, u64, u64);

/// The calls of one thread in the order in which they are recorded.
struct Thread(Vec<Call>);

/// Computes, tick by tick, the self time of each call and the time in which any call was running.
/// Also returns the number of calls that begin inside of another call and end after it.
fn by_ticks(calls: &[Call], first_is_outer: bool) -> (Vec<u64>, u64, u64) {
    // The innermost call is the one that began last. Of several calls that began together, it is
    // the shortest. Between equal calls, the recorded order decides.
    let inside = |i: usize| {
        let (_, begin, end) = calls[i];
        let place = if first_is_outer { i as i64 } else { -(i as i64) };
        (begin, std::cmp::Reverse(end), place)
    };
    let mut own = vec![0; calls.len()];
    let mut busy = 0;
    for tick in 0..calls.iter().map(|c| c.2).max().unwrap_or(0) {
        let open = (0..calls.len()).filter(|i| calls[*i].1 <= tick && tick < calls[*i].2);
        if let Some(owner) = open.max_by_key(|i| inside(*i)) {
            own[owner] += 1;
            busy += 1;
        }
    }
    let overlaps = |(_, b, e): &Call| calls.iter().any(|(_, x, y)| x < b && b < y && y < e);
    (own, busy, calls.iter().filter(|call| overlaps(call)).count() as u64)
}

/// Adds nested calls by dividing the interval again and again.
fn nest(r: &mut Random, begin: u64, end: u64, into: &mut Vec<Call>) {
    let mut at = begin;
    while at < end && r.below(4) > 0 {
        let from = at + r.below(end - at + 1);
        let to = from + r.below(end - from + 1);
        if into.len() < 40 && (from, to) != (begin, end) {
            nest(r, from, to, into);
        }
        into.push((r.below(4) as u32, from, to));
        at = to;
    }
}

fn thread(r: &mut Random) -> Thread {
    let mut calls = Vec::new();
    match r.below(3) {
        // These nested calls are in the order in which the recorder records calls: sorted by their
        // ends.
        0 => nest(r, 0, 300, &mut calls),
        // In the other cases, the order is random, as in an imported trace: nested calls here, and
        // calls that may overlap in the last case.
        1 => {
            nest(r, 0, 300, &mut calls);
            for i in (1..calls.len()).rev() {
                calls.swap(i, r.below(i as u64 + 1) as usize);
            }
        }
        _ => {
            for _ in 0..r.below(40) {
                let begin = r.below(250);
                calls.push((r.below(4) as u32, begin, begin + r.below(50)));
            }
        }
    }
    Thread(calls)
}

fn script(r: &mut Random, threads: &[Thread], origin: Origin) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.origin = origin;
    let process = script.process(7);
    process.library("m", &["a", "b", "c", "d"]);
    process.empty_calls(9, 3, 5, &[]);
    for (i, Thread(calls)) in threads.iter().enumerate() {
        let thread = process.thread(&format!("t{i}"));
        for (op, begin, end) in calls {
            thread.call(CallScript::new(*op, *begin, end - begin).on(op % 2, 0));
            if r.below(6) == 0 {
                thread.then(Item::NextPage(*end, 0, *end));
            }
        }
    }
    script
}

/// The functions of the calls around a call, from the outermost one, and then its own function.
type Path = Vec<u32>;

/// Returns, for each path of properly nested calls, the number of calls, and the sums of their
/// durations and self times.
fn paths(calls: &[Call], own: &[u64]) -> BTreeMap<Path, (u64, u64, u64)> {
    let order = |i: usize| (calls[i].1, std::cmp::Reverse(calls[i].2), std::cmp::Reverse(i));
    let mut found: BTreeMap<Path, (u64, u64, u64)> = BTreeMap::new();
    for (i, (op, begin, end)) in calls.iter().enumerate() {
        let holds =
            |j: &usize| calls[*j].1 <= *begin && *end <= calls[*j].2 && *begin < calls[*j].2;
        let mut around: Vec<usize> =
            (0..calls.len()).filter(|j| holds(j) && order(*j) < order(i)).collect();
        around.sort_by_key(|j| order(*j));
        let path = around.iter().map(|j| calls[*j].0).chain([*op]).collect();
        let sum = found.entry(path).or_default();
        *sum = (sum.0 + 1, sum.1 + (end - begin), sum.2 + own[i]);
    }
    found
}

fn paths_of(tree: &CallTree) -> BTreeMap<Path, (u64, u64, u64)> {
    let mut paths: Vec<Path> = Vec::new();
    let mut found = BTreeMap::new();
    for node in &tree.nodes {
        let Key::Op(op) = node.key else { panic!("{node:?}") };
        let mut path = node.parent.map_or(Vec::new(), |parent| paths[parent].clone());
        path.push(op);
        assert_eq!(node.depth as usize + 1, path.len());
        let sums = (node.calls, node.total.value as u64, node.own.value as u64);
        assert_eq!(found.insert(path.clone(), sums), None, "{path:?} has two nodes");
        paths.push(path);
    }
    found
}

/// Calls without a duration are left out. If such a call begins at the end of another call, the
/// times do not show whether it is inside of the other call.
#[test]
fn the_tree_has_a_node_for_each_way_to_call_a_function() {
    let mut r = Random(0x2545_f491_4f6c_dd1d);
    let mut deepest = 0;
    for round in 0..50 {
        let mut threads = Vec::new();
        for _ in 0..1 + r.below(3) {
            let mut calls = Vec::new();
            nest(&mut r, 0, 300, &mut calls);
            calls.retain(|(_, begin, end)| begin < end);
            threads.push(Thread(calls));
        }
        let (_scratch, profile) = script(&mut r, &threads, Origin::Run).opened();
        let mut expected: BTreeMap<Path, (u64, u64, u64)> = BTreeMap::new();
        for Thread(calls) in &threads {
            for (path, (n, total, own)) in paths(calls, &by_ticks(calls, false).0) {
                let sum = expected.entry(path).or_default();
                *sum = (sum.0 + n, sum.1 + total, sum.2 + own);
            }
        }
        let tree = call_tree(&profile, true, 2).unwrap();
        assert_eq!(paths_of(&tree), expected, "round {round}");
        deepest = deepest.max(tree.nodes.iter().map(|node| node.depth).max().unwrap_or(0));
        // Even if the recorder's time is subtracted, the self times of a function's nodes add up to
        // the self time of the function's row.
        let summary = summarize(&profile, &Options::default());
        let tree = call_tree(&profile, false, 2).unwrap();
        for row in &summary.rows {
            let nodes = || tree.nodes.iter().filter(|node| node.key == row.key);
            assert_eq!(nodes().map(|node| node.own.value).sum::<f64>(), row.own.value);
            assert_eq!(nodes().map(|node| node.calls).sum::<u64>(), row.calls + row.inner);
        }
    }
    assert!(deepest >= 4, "{deepest}");
}

fn self_ticks(summary: &Summary) -> BTreeMap<Key, u128> {
    summary.rows.iter().map(|row| (row.key, row.own.value as u128)).collect()
}

#[test]
fn random_calls() {
    let mut r = Random(0x9e37_79b9_7f4a_7c15);
    let (mut nested, mut overlapped) = (0, 0);
    for round in 0..50 {
        let threads: Vec<Thread> = (0..1 + r.below(3)).map(|_| thread(&mut r)).collect();
        let origin = if r.below(2) == 0 { Origin::Run } else { Origin::Import };
        let (_scratch, profile) = script(&mut r, &threads, origin).opened();

        let expected: Vec<_> =
            threads.iter().map(|t| by_ticks(&t.0, origin == Origin::Import)).collect();
        let (mut ops, mut of_threads, mut cpus) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (i, (Thread(calls), (own, busy, _))) in threads.iter().zip(&expected).enumerate() {
            for ((op, ..), own) in calls.iter().zip(own) {
                *ops.entry(Key::Op(*op)).or_default() += u128::from(*own);
                *of_threads.entry(Key::Thread(0, i)).or_default() += u128::from(*own);
                *cpus.entry(Key::Cpu(op % 2, 0)).or_default() += u128::from(*own);
            }
            assert_eq!(own.iter().sum::<u64>(), *busy);
        }
        let busy: u64 = expected.iter().map(|e| e.1).sum();
        let overlapping: u64 = expected.iter().map(|e| e.2).sum();
        // `calls` is the number of nested calls that a worker sorts at a time. The results must not
        // depend on it.
        for calls in [None, Some(1), Some(2), Some(7)] {
            let with =
                |by| Options { by, raw: true, round: calls, workers: 2, ..Options::default() };
            let of = summarize(&profile, &with(By::Op));
            assert_eq!(self_ticks(&of), ops, "round {round}");
            assert_eq!(of.total.unwrap().value, busy as f64);
            // Once a call has outlived the call around it, the summary need not count further calls
            // that outlive the same call.
            assert!(of.overlapping <= overlapping);
            assert_eq!(of.overlapping > 0, overlapping > 0);
            assert_eq!(self_ticks(&summarize(&profile, &with(By::Thread))), of_threads);
            assert_eq!(self_ticks(&summarize(&profile, &with(By::Cpu))), cpus);
            for thread in &of.threads {
                assert_eq!(thread.dispatch_ns, expected[thread.thread].1 as f64, "round {round}");
            }
            let filter = Some("a".to_owned());
            let some = summarize(&profile, &Options { filter, ..with(By::Op) });
            assert_eq!(some.total.unwrap().value, busy as f64, "percentages refer to all calls");
            assert_eq!(self_ticks(&some).get(&Key::Op(0)), ops.get(&Key::Op(0)));
        }
        let all = summarize(&profile, &Options::default());
        nested += u32::from(all.nested);
        overlapped += u32::from(overlapping > 0);
    }
    assert!(nested > 30 && overlapped > 10, "{nested} {overlapped}");
}

/// A call lengthens the call around it by its whole bracket (the recorder's work around a call),
/// which takes 50 ticks. An empty call has a duration of 20 ticks. Half of these, 10 ticks, are
/// inside of a call's own duration. The other 40 ticks of the bracket are in the self time of the
/// outer call.
///
/// ```text
///  a  0 ─────────────────────────── 1,000    total 1,000 − 10 − 3 · 50    self 400 − 10 − 2 · 40
///  b    100 ────────── 600                   total   500 − 10 −     50    self 400 − 10 −     40
///  c        200 ─ 300        700 ─ 800       total   200 − 2 · 10         self = total
/// ```
#[test]
fn brackets_of_calls_inside() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    process.library("m", &["a", "b", "c"]);
    process.empty_calls(9, 20, 50, &[]);
    let thread = process.thread("t");
    for (op, begin, end) in [(2, 200, 300), (1, 100, 600), (2, 700, 800), (0, 0, 1_000)] {
        thread.call(CallScript::new(op, begin, end - begin));
    }
    let (_scratch, profile) = script.opened();
    let found = summarize(&profile, &Options::default());
    for (op, total, own) in [(0, 840.0, 310.0), (1, 440.0, 350.0), (2, 180.0, 180.0)] {
        let row = found.rows.iter().find(|row| row.key == Key::Op(op)).unwrap();
        assert_eq!((row.total.value, row.own.value), (total, own), "{op}");
    }
    // The total of all rows is the time of the outermost call, without any bracket.
    assert_eq!(found.total.unwrap().value, 840.0);
}
