//! Compares trees of ops with the results of a slow program, which finds the innermost call at each
//! single tick. The calls are random.

use analysis::ops::{OpCall, OpRowKind, OpVisitor, Region, RunCall, Serial};
use analysis::{OpFilter, OpTable, OpTrees};
use profile::Role;
use profile::columns::KEY_CORRELATION;
use testkit::{CallScript, Item, ProfileScript, Random};

#[derive(Clone, Copy, Debug)]
struct Call {
    role: Role,
    begin: u64,
    end: u64,
    faults: Option<u64>,
}

/// Adds consecutive calls between `begin` and `end`, and calls inside of them. Each has a duration
/// above 0, and a kind that may be inside of the call around it (`outer` for the consecutive
/// calls).
fn fill(r: &mut Random, outer: Option<Role>, (begin, end): (u64, u64), into: &mut Vec<Call>) {
    let mut at = begin;
    while at < end && r.below(5) > 0 {
        let from = at + r.below(end - at);
        let to = from + 1 + r.below(end - from);
        let role = match (outer, r.below(4)) {
            (Some(Role::Region), _) => Role::Task,
            (None, 0 | 1) | (Some(Role::Op), 0) => Role::Run,
            (Some(Role::Run | Role::Op), 1) => Role::Region,
            _ => Role::Op,
        };
        if into.len() < 60 {
            fill(r, Some(role), (from, to), into);
        }
        let faults = (r.below(20) > 0).then_some(to - from);
        into.push(Call { role, begin: from, end: to, faults });
        at = to;
    }
}

#[derive(Debug, Default, PartialEq)]
struct RunSeen {
    start: u64,
    duration: u64,
    between: u64,
    own: u64,
    parent: Option<u64>,
    own_faults: Option<u64>,
}

#[derive(Debug, Default, PartialEq)]
struct OpSeen {
    start: u64,
    duration: u64,
    own: u64,
    run: Option<u64>,
    parent: Option<u64>,
    depth: u32,
    own_faults: Option<u64>,
    regions: usize,
}

#[derive(Default)]
struct Seen {
    runs: Vec<RunSeen>,
    ops: Vec<OpSeen>,
    loose: usize,
}

impl OpVisitor for Seen {
    fn run(&mut self, run: &RunCall<'_>) {
        assert_eq!(run.number, self.runs.len() as u64);
        assert_eq!(run.counters.len(), 1);
        self.loose += run.regions.len();
        self.runs.push(RunSeen {
            start: run.start,
            duration: run.duration,
            between: run.between,
            own: run.own,
            parent: run.parent,
            own_faults: run.own_counters[0],
        });
    }

    fn op(&mut self, op: &OpCall<'_>) {
        assert_eq!(op.number, self.ops.len() as u64);
        self.ops.push(OpSeen {
            start: op.start,
            duration: op.duration,
            own: op.self_ticks,
            run: op.run,
            parent: op.parent,
            depth: op.depth,
            own_faults: op.self_counters[0],
            regions: op.regions.len(),
        });
    }

    fn region(&mut self, _: usize, _: usize, _: &Region) {
        self.loose += 1;
    }
}

fn timed(role: Role) -> bool {
    matches!(role, Role::Run | Role::Op)
}

/// Returns the innermost call around call `i` that `wanted` accepts. `calls` is in the order of the
/// calls' ends, so an outer call comes after call `i`.
fn outer(calls: &[Call], i: usize, wanted: impl Fn(Role) -> bool) -> Option<usize> {
    let around = |o: &Call| o.begin <= calls[i].begin && calls[i].end <= o.end;
    (i + 1..calls.len()).find(|o| around(&calls[*o]) && wanted(calls[*o].role))
}

/// Computes what a visitor must receive for one thread. The numbers of runs and ops continue after
/// those in `seen`.
fn expected(calls: &[Call], seen: &mut Seen) {
    // Each tick belongs to the innermost op or run at that time.
    let last = calls.iter().map(|call| call.end).max().unwrap_or(0);
    let owner = |tick: u64| {
        let inside = |c: &Call| c.begin <= tick && tick < c.end && timed(c.role);
        (0..calls.len()).find(|i| inside(&calls[*i]))
    };
    let owners: Vec<Option<usize>> = (0..last).map(owner).collect();
    // Outer calls come first. Of calls with equal begins, the one that was recorded last is the
    // outer one.
    let mut order: Vec<usize> = (0..calls.len()).filter(|i| timed(calls[*i].role)).collect();
    order.sort_by_key(|i| (calls[*i].begin, std::cmp::Reverse(*i)));
    let (mut runs, mut ops) = (seen.runs.len() as u64, seen.ops.len() as u64);
    let mut number = vec![0; calls.len()];
    for i in &order {
        let next = if calls[*i].role == Role::Run { &mut runs } else { &mut ops };
        number[*i] = *next;
        *next += 1;
    }
    for i in order {
        let call = calls[i];
        let own: Vec<u64> =
            (call.begin..call.end).filter(|t| owners[*t as usize] == Some(i)).collect();
        let inner: Vec<usize> = (0..i)
            .filter(|c| timed(calls[*c].role) && outer(calls, *c, timed) == Some(i))
            .collect();
        let own_faults = inner.iter().fold(call.faults, |rest, c| {
            rest.zip(calls[*c].faults).map(|(rest, inner)| rest - inner)
        });
        let run = outer(calls, i, |role| role == Role::Run).map(|o| number[o]);
        let op = outer(calls, i, |role| role == Role::Op).map(|o| number[o]);
        let (start, duration) = (call.begin, call.end - call.begin);
        if call.role == Role::Run {
            let first = inner.iter().map(|c| calls[*c].begin).min().unwrap_or(u64::MAX);
            let last = inner.iter().map(|c| calls[*c].end).max().unwrap_or(0);
            let between = own.iter().filter(|tick| (first..last).contains(tick)).count() as u64;
            seen.runs.push(RunSeen {
                start,
                duration,
                between,
                own: own.len() as u64 - between,
                parent: run,
                own_faults,
            });
        } else {
            let depth = (0..calls.len()).filter(|o| {
                *o > i
                    && calls[*o].role == Role::Op
                    && calls[*o].begin <= call.begin
                    && call.end <= calls[*o].end
            });
            let of_op =
                |c: &usize| calls[*c].role == Role::Region && outer(calls, *c, timed) == Some(i);
            seen.ops.push(OpSeen {
                start,
                duration,
                own: own.len() as u64,
                run,
                parent: op,
                depth: depth.count() as u32,
                own_faults,
                regions: (0..i).filter(of_op).count(),
            });
        }
    }
    let no_op = |c: &usize| {
        calls[*c].role == Role::Region
            && outer(calls, *c, timed).is_none_or(|o| calls[o].role == Role::Run)
    };
    seen.loose += (0..calls.len()).filter(no_op).count();
}

#[test]
fn random_trees() {
    let mut r = Random(0x2545_f491_4f6c_dd1d);
    let (mut runs_in_ops, mut deep, mut outside) = (0, 0, 0);
    for round in 0..60 {
        let mut script = ProfileScript::monotonic();
        script.counter("page-faults", 0);
        let process = script.process(7);
        let vm = process.machine("vm 0");
        let of = |role: Role| role as u32 - Role::Op as u32;
        for role in [Role::Op, Role::Run, Role::Region, Role::Task] {
            assert_eq!(process.op(vm, role, role.name(), ""), of(role));
        }
        let mut wanted = Seen::default();
        for t in 0..1 + r.below(3) {
            let mut calls = Vec::new();
            fill(&mut r, None, (5, 200), &mut calls);
            let thread = process.thread(&format!("t{t}"));
            for call in &calls {
                let script = CallScript::op(of(call.role), call.begin, call.end - call.begin);
                thread.call(match call.faults {
                    Some(faults) => script.group(1, &[faults]),
                    None => script.unread(),
                });
                if r.below(6) == 0 {
                    thread.then(Item::NextPage(call.end, 0, call.end));
                }
            }
            expected(&calls, &mut wanted);
        }
        let (_scratch, profile) = script.opened();
        let trees = OpTrees::new(&profile, false);
        let mut seen = Seen::default();
        trees.visit(&OpFilter::default(), &mut seen);
        assert_eq!(seen.runs, wanted.runs, "round {round}");
        assert_eq!(seen.ops, wanted.ops, "round {round}");
        assert_eq!(seen.loose, wanted.loose);

        // Book-keeping ops are in one row (with `fold`) or in rows of their own. In both cases, the
        // self times of all rows inside of runs add up to the wall time of the runs.
        for fold in [true, false] {
            let table = OpTable::new(&trees, &OpFilter::default(), fold, false);
            let rows = || table.rows.iter().filter(|row| !row.outside);
            assert_eq!(rows().map(|row| row.own.value).sum::<f64>(), table.wall.value);
            let outermost = wanted.runs.iter().filter(|run| run.parent.is_none());
            // A run inside of an op that is outside of all runs counts as outermost, too.
            assert_eq!(table.wall.value, outermost.map(|run| run.duration as f64).sum::<f64>());
            let of_ops: u64 =
                wanted.ops.iter().filter(|op| op.run.is_none()).map(|op| op.own).sum();
            assert_eq!(table.outside.value, of_ops as f64);
        }
        runs_in_ops += wanted.runs.iter().filter(|run| run.parent.is_some()).count();
        deep += wanted.ops.iter().filter(|op| op.depth > 2).count();
        outside += wanted.ops.iter().filter(|op| op.run.is_none()).count();
    }
    assert!(runs_in_ops > 20 && deep > 20 && outside > 20, "{runs_in_ops} {deep} {outside}");
}

#[derive(Default)]
struct Regions(Vec<(Region, Vec<Option<u64>>)>);

impl OpVisitor for Regions {
    fn run(&mut self, _: &RunCall<'_>) {}
    fn op(&mut self, op: &OpCall<'_>) {
        self.0.extend(op.regions.iter().map(|region| (region.clone(), op.workers.to_vec())));
    }
    fn region(&mut self, _: usize, _: usize, _: &Region) {}
}

/// Makes one region on a machine with `cpus` processors. A task is given as (thread, CPU, begin,
/// end).
fn region(cpus: u32, of: u32, tasks: &[(usize, u32, u64, u64)]) -> (Region, Vec<Option<u64>>) {
    let mut script = ProfileScript::monotonic();
    script.manifest.logical_cpus = cpus;
    script.counter("page-faults", 0);
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let op = process.op(vm, Role::Op, "f", "");
    let region = process.op(vm, Role::Region, "f", "");
    let task = process.op(vm, Role::Task, "f", "");
    for thread in 0..4 {
        let script = process.thread(&format!("t{thread}"));
        for (i, (_, cpu, begin, end)) in
            tasks.iter().enumerate().filter(|(_, task)| task.0 == thread)
        {
            let call = CallScript::new(task, *begin, end - begin).workgroup(i as u32, of);
            script.call(call.on(*cpu, 0).group(1, &[end - begin]).value(KEY_CORRELATION, 5));
        }
        if thread == 0 {
            script.call(CallScript::op(region, 10, 90).group(1, &[1]).value(KEY_CORRELATION, 5));
            script.call(CallScript::op(op, 5, 100).group(1, &[2]));
        }
    }
    let (_scratch, profile) = script.opened();
    let mut regions = Regions::default();
    OpTrees::new(&profile, false).visit(&OpFilter::default(), &mut regions);
    regions.0.pop().expect("the script has one region")
}

#[test]
fn tasks_that_ran_one_after_the_other_are_found() {
    let serial = |cpus, tasks: &[_]| region(cpus, tasks.len() as u32, tasks).0.serial;
    // In these three cases, the tasks run at the same time on two processors, one after the other
    // on two processors, and one after the other on one processor.
    assert_eq!(serial(2, &[(0, 0, 10, 50), (1, 1, 20, 60)]), None);
    assert_eq!(serial(2, &[(0, 0, 10, 50), (1, 1, 50, 60)]), None);
    assert_eq!(serial(2, &[(0, 1, 10, 50), (1, 1, 50, 60)]), Some(Serial::Cpu(1)));
    // The two tasks overlap in time on one CPU, so they did not run one after the other.
    assert_eq!(serial(2, &[(0, 1, 10, 50), (1, 1, 49, 60)]), None);
    assert_eq!(serial(2, &[(0, 0, 10, 50), (0, 0, 50, 60)]), Some(Serial::Thread));
    // Tasks that used as many processors as the machine has could not do better. With a third
    // processor, the four tasks could have run on three threads.
    assert_eq!(serial(1, &[(0, 0, 10, 50), (1, 0, 50, 60)]), None);
    assert_eq!(serial(1, &[(0, 0, 10, 50), (0, 0, 50, 60)]), None);
    let four = [(0, 0, 10, 30), (0, 0, 30, 50), (1, 1, 10, 30), (1, 1, 30, 50)];
    assert_eq!(serial(2, &four), None);
    assert_eq!(serial(3, &four), Some(Serial::Thread));
    // The two tasks that ran one after the other are the first and the last one, sorted by begin.
    let three = [(0, 2, 10, 20), (1, 2, 12, 40), (2, 2, 30, 40)];
    assert_eq!(serial(4, &three), Some(Serial::Cpu(2)));
}

#[test]
fn imbalance_and_workers() {
    let (whole, workers) = region(4, 3, &[(0, 0, 10, 40), (1, 1, 10, 70), (2, 2, 20, 50)]);
    assert_eq!(whole.imbalance, Some(60.0 / 40.0));
    assert_eq!(workers, [Some(60 + 30)], "without the caller's task");
    let (part, workers) = region(4, 3, &[(0, 0, 10, 40), (1, 1, 10, 70)]);
    assert_eq!((part.of, part.tasks.len(), part.imbalance), (Some(3), 2, None));
    assert_eq!(workers, [None]);
    let (none, workers) = region(4, 3, &[]);
    assert_eq!((none.of, none.imbalance, none.serial), (None, None, None));
    assert_eq!(workers, [None]);
}

/// Book-keeping calls, with and without tensors, make one row of 2 + 3 ticks.
#[test]
fn book_keeping_is_one_row() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(7);
    let vm = process.machine("vm 0");
    let storage = process.op(vm, Role::Op, "vm.builtin.alloc_storage", "");
    let reshape = process.op(vm, Role::Op, "vm.builtin.reshape", "float32[1]");
    let matmul = process.op(vm, Role::Op, "matmul", "float32[1]");
    let thread = process.thread("t");
    for (export, begin, ticks) in [(storage, 10, 2), (reshape, 20, 3), (matmul, 30, 7)] {
        thread.call(CallScript::op(export, begin, ticks));
    }
    let (_scratch, profile) = script.opened();
    let table = OpTable::new(&OpTrees::new(&profile, false), &OpFilter::default(), true, false);
    let rows = table.rows.iter().map(|row| (row.kind.clone(), row.calls, row.own.value as u128));
    let rows: Vec<(OpRowKind, u64, u128)> = rows.collect();
    let bookkeeping =
        OpRowKind::Bookkeeping { names: "vm.builtin.*".to_owned(), device: "cpu0".to_owned() };
    assert_eq!(rows.len(), 2);
    assert!(rows.contains(&(bookkeeping, 2, 5)), "{rows:?}");
}
