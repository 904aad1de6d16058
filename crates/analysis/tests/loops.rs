//! Compares trees of loops with numbers that were computed on paper from the rows in this file.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use analysis::loops::{
    Estimate, LoopData, LoopNode, LoopTable, LoopTree, Mode, TableChoice, Times, fits, identity,
    loops,
};
use ir::table::{Entry, Kind, SideTable};
use profile::loops::{HitCost, LoopEvent, LoopModule, LoopRow};

const ID: [u8; 16] = *b"0123456789abcdef";

/// The side table of the function `f`. Its loop contains two other loops.
fn side_table() -> SideTable {
    let entry = |id: u32, parent: Option<u32>| Entry {
        id,
        kind: if id == 0 { Kind::Function } else { Kind::Loop },
        function: "f".into(),
        parent,
        depth: (id > 0).then_some(u32::from(id > 1)),
        height: [2, 1, 0, 0][id as usize],
        siblings: u32::from(id > 1),
        label: Some(format!("block{id}")),
        variable: None,
        file: None,
        line: None,
        column: None,
        text: [1, 2],
        trip_count: None,
        places: Vec::new(),
    };
    SideTable {
        counterpoint_loops: ir::table::VERSION,
        module: identity(&ID),
        source: "kernel.ll".into(),
        mode: "timed".into(),
        entries: [None, Some(0), Some(1), Some(1)]
            .iter()
            .enumerate()
            .map(|(id, parent)| entry(id as u32, *parent))
            .collect(),
        ..SideTable::default()
    }
}

fn module(mode: u32, cost: Option<HitCost>) -> LoopModule {
    LoopModule {
        id: ID,
        mode,
        ids: 4,
        table: Some(side_table().to_json().unwrap()),
        ticks_per_second: 1e9,
        cost,
        ..LoopModule::default()
    }
}

fn timed(module: usize, tid: u32, id: u32, hits: u64, ticks: u64, child_ticks: u64) -> LoopRow {
    LoopRow {
        module,
        tid,
        id,
        hits,
        begun: hits,
        ended: hits,
        ticks,
        child_ticks,
        ..LoopRow::default()
    }
}

fn of(modules: &[LoopModule], rows: &[LoopRow]) -> LoopTable {
    loops(LoopData { modules, rows, ..LoopData::default() }, &[])
}

fn node(tree: &LoopTree, id: u32) -> &LoopNode {
    tree.nodes.iter().find(|node| node.id == id).unwrap()
}

fn raw(tree: &LoopTree, id: u32) -> Times {
    node(tree, id).all.raw.unwrap()
}

fn exact(value: f64) -> Estimate {
    Estimate { value, margin: Some(0.0) }
}

const COST: HitCost = HitCost { inside: 1.0, timed: 2.0, counted: 0.5, reading: 0.0 };

#[test]
fn a_timed_tree_on_paper() {
    let rows = [
        timed(0, 1, 0, 1, 1_000, 900),
        timed(0, 1, 1, 10, 900, 700),
        timed(0, 1, 2, 100, 500, 0),
        timed(0, 1, 3, 100, 200, 0),
    ];
    // With `COST`, the self time of loop 1 would be 200 − 10 + 200 − 400 = −10 ticks. (The terms
    // are explained below, for a lower cost.) No time can be below zero, so nothing is subtracted
    // in the whole tree.
    let refused = of(&[module(1, Some(COST))], &rows);
    assert!((0..4).all(|id| node(&refused.modules[0], id).all.refused));
    assert!((0..4).all(|id| node(&refused.modules[0], id).all.compensated.is_none()));
    let table = of(&[module(1, Some(HitCost { timed: 1.5, ..COST }))], &rows);
    let tree = &table.modules[0];
    assert_eq!(
        (tree.mode, tree.identity()),
        (Mode::Timed, "30313233343536373839616263646566".into())
    );
    assert_eq!(tree.choice, TableChoice::Embedded);
    let order: Vec<_> = tree.nodes.iter().map(|n| (n.id, n.level, n.parent)).collect();
    assert_eq!(order, [(0, 0, None), (1, 1, Some(0)), (2, 2, Some(1)), (3, 2, Some(1))]);
    for (id, inclusive, own) in [(0, 1_000, 100), (1, 900, 200), (2, 500, 500), (3, 200, 200)] {
        let times = raw(tree, id);
        assert_eq!(
            (times.inclusive, times.own),
            (exact(inclusive.into()), Some(exact(own.into())))
        );
    }
    assert_eq!(raw(tree, 2).share, Some(exact(500.0 / 900.0)));
    assert_eq!(raw(tree, 1).mean, Some(exact(90.0)));
    assert_eq!(raw(tree, 0).share, None);
    // A timed hit measures 1 tick of its own cost, and adds 1.5 ticks to the loop around it. Loop 1
    // has 10 hits, and the two loops inside of it have 200 hits together. So the self time of loop
    // 1 is 200 (raw) − 10 (measured in its own hits) + 200 (measured in the hits inside) − 300
    // (added by the hits inside) = 90 ticks.
    let compensated = |id: u32| node(tree, id).all.compensated.unwrap();
    for (id, inclusive, own) in
        [(0, 684.0, 94.0), (1, 590.0, 90.0), (2, 400.0, 400.0), (3, 100.0, 100.0)]
    {
        let times = compensated(id);
        assert_eq!((times.inclusive.value, times.own.unwrap().value), (inclusive, own), "{id}");
    }
    // The processor overlaps the measuring code with other code. So in fact, the subtracted 110
    // ticks may have taken no time. The two parts of the cost (200 − 10 measured ticks, and 300
    // added ticks) may also be wrong by 35 %.
    let doubt = compensated(1).own.unwrap().margin.unwrap();
    assert!((doubt - 110f64.hypot(0.35 * 190f64.hypot(300.0))).abs() < 1e-9, "{doubt}");
    // The interval of each compensated time contains the raw time.
    for id in 0..4 {
        let (raw, found) = (raw(tree, id), compensated(id));
        let pairs = [(raw.inclusive, found.inclusive), (raw.own.unwrap(), found.own.unwrap())];
        for (raw, found) in pairs {
            assert!((raw.value - found.value).abs() <= found.margin.unwrap(), "{id}: {found:?}");
        }
    }
    // The mean hit of loop 2 takes 5 ticks: less than ten times the 1.5 ticks that timing a hit
    // costs. The mean hit of loop 1 takes 90 ticks, which is more.
    assert!(node(tree, 2).all.sampled_only && !node(tree, 1).all.sampled_only);
}

#[test]
fn children_and_self_add_up_exactly_for_each_thread() {
    // On thread 1, one of the function's three hits does not end. The times of the other two still
    // add up, because neither `ticks` nor `child_ticks` includes a hit that did not end.
    let mut rows = vec![
        timed(0, 1, 0, 3, 1_000, 900),
        timed(0, 1, 1, 9, 901, 7),
        timed(0, 2, 0, 1, 1 << 52, (1 << 52) - 1),
    ];
    rows[0].ended = 2;
    let tree = &of(&[module(1, Some(COST))], &rows).modules[0];
    assert_eq!(node(tree, 0).all.unended(), 1);
    for (_, numbers) in &node(tree, 0).threads {
        let own = numbers.raw.unwrap().own.unwrap();
        assert_eq!(own.margin, Some(0.0));
        assert_eq!(numbers.child_ticks.unwrap() as f64 + own.value, numbers.ticks as f64);
    }
    assert_eq!(node(tree, 0).threads[0].1.raw.unwrap().own, Some(exact(100.0)));
}

/// One module is registered in two processes and runs on several threads.
#[test]
fn threads_and_registrations_add_up() {
    let other = LoopModule { process: 1, ..module(1, Some(COST)) };
    let another = LoopModule { id: [7; 16], ids: 1, table: None, ..module(1, None) };
    let modules = [module(1, Some(COST)), another, other, module(1, Some(COST))];
    let rows = [
        timed(0, 1, 1, 1, 100, 0),
        timed(0, 2, 1, 1, 500, 0),
        timed(2, 1, 1, 1, 300, 0),
        // Process 0 loaded the same module again. Its thread 2 also runs this copy.
        timed(3, 2, 1, 2, 100, 0),
        timed(1, 1, 0, 5, 5, 0),
        timed(9, 1, 0, 5, 5, 0),
        timed(0, 1, 4, 5, 5, 0),
    ];
    let table = of(&modules, &rows);
    assert_eq!((table.modules.len(), table.strays), (2, 1));
    let tree = &table.modules[0];
    assert_eq!((tree.registrations.as_slice(), tree.beyond), ([0, 2, 3].as_slice(), 1));
    let threads: Vec<_> = tree.threads.iter().map(|t| (t.process, t.tid)).collect();
    assert_eq!(threads, [(0, 1), (0, 2), (1, 1)]);
    let loop1 = node(tree, 1);
    assert_eq!((loop1.all.hits, loop1.all.raw.unwrap().inclusive), (5, exact(1_000.0)));
    let each: Vec<_> = loop1.threads.iter().map(|(t, n)| (*t, n.hits, n.ticks)).collect();
    assert_eq!(each, [(0, 1, 100), (1, 3, 600), (2, 1, 300)]);
    // Each hit measures 1 tick of its own cost, so 99, 597 and 299 ticks are left for the three
    // threads. Their mean is 995/3.
    assert!((loop1.imbalance.unwrap() - 597.0 * 3.0 / 995.0).abs() < 1e-12);
    assert!((loop1.hit_imbalance.unwrap() - 3.0 / (5.0 / 3.0)).abs() < 1e-12);
    // Without a side table, all numbers that depend on the nesting are missing.
    let other = &table.modules[1];
    assert_eq!((other.choice.clone(), other.nodes.len()), (TableChoice::Missing, 1));
    let times = raw(other, 0);
    assert_eq!((times.inclusive, times.own, times.share), (exact(5.0), None, None));
    assert_eq!((node(other, 0).all.compensated, other.uncalibrated), (None, 1));
}

#[test]
fn what_is_missing_is_not_zero() {
    let counted = LoopRow { id: 1, hits: 7, ..LoopRow::default() };
    let tree = &of(&[module(2, Some(COST))], &[counted]).modules[0];
    let loop1 = &node(tree, 1).all;
    assert_eq!((loop1.hits, loop1.raw, loop1.compensated, loop1.iterations), (7, None, None, None));
    assert_eq!(node(tree, 1).imbalance, None);
    // Loop 3 was never entered: its hits are known to be 0, but it has no time.
    assert_eq!((node(tree, 3).all.hits, node(tree, 3).all.raw), (0, None));
    let hits = |id, hits, begun| LoopRow {
        id,
        hits,
        begun,
        ended: begun,
        ticks: 10 * begun,
        squares: 100 * u128::from(begun),
        ..LoopRow::default()
    };
    let tree = &of(&[module(0, None)], &[hits(0, 3, 3), hits(1, 9, 0)]).modules[0];
    assert_eq!((raw(tree, 0).inclusive, raw(tree, 0).own), (exact(30.0), None));
    assert_eq!(node(tree, 1).all.raw, None);
    // In a damaged row, numbers contradict each other (`first_ended` is above `ended`). Its hits
    // are counted, but it has no times.
    let bad = LoopRow { first_ended: 5, ..hits(1, 9, 3) };
    let tree = &of(&[module(0, None)], &[bad]).modules[0];
    assert_eq!((tree.damaged, node(tree, 1).all.hits, node(tree, 1).all.raw), (1, 9, None));
}

/// 2 of 4 hits were recorded, and took 30 and 10 ticks. In mode `log`, only the first hits are
/// recorded. The other hits may not be like them, so the estimated total of 80 ticks has no
/// interval.
#[test]
fn mode_log_takes_its_times_from_events() {
    let modules = [module(3, None)];
    let event = |id, end, ticks| LoopEvent { tid: 5, id, end, ticks, ..LoopEvent::default() };
    let events =
        [event(1, false, 100), event(1, true, 130), event(1, false, 140), event(1, true, 150)];
    let rows = [LoopRow { tid: 5, id: 1, hits: 4, ..LoopRow::default() }];
    let data = LoopData { modules: &modules, rows: &rows, events: &events, counters: &[] };
    let table = loops(data, &[]);
    let loop1 = node(&table.modules[0], 1);
    assert_eq!((loop1.all.begun, loop1.all.ticks), (2, 40));
    assert_eq!(loop1.all.raw.unwrap().inclusive.value, 80.0);
    assert_eq!(loop1.all.raw.unwrap().inclusive.margin, None);
}

/// A program ran twice, each time with a different counter, and a third process has no counter.
#[test]
fn counters_of_passes_stay_apart() {
    let module = |process| LoopModule { process, ..module(1, None) };
    let modules = [module(0), module(1), module(2)];
    let row = |module, counted, value: u64| LoopRow {
        counted,
        counters: vec![value],
        ..timed(module, 1, 1, 10, 100, 0)
    };
    let rows = [row(0, 4, 40), row(1, 5, 500), LoopRow { counters: vec![], ..row(2, 0, 0) }];
    let counters = [vec![0], vec![1]];
    let data = LoopData { modules: &modules, rows: &rows, events: &[], counters: &counters };
    let numbers = &node(&loops(data, &[]).modules[0], 1).all.clone();
    let sum = |index| numbers.counter(index).map(|sum| (sum.total, sum.hits, sum.per_hit()));
    assert_eq!((sum(0), sum(1), sum(2)), (Some((40, 4, 10.0)), Some((500, 5, 100.0)), None));
}

#[test]
fn side_tables_from_files() {
    let modules = [module(1, None)];
    let file = SideTable { source: "from a file".into(), ..side_table() };
    let rows = [timed(0, 1, 1, 1, 1, 0)];
    let found = |modules: &[LoopModule], tables: &[SideTable]| {
        let table = loops(LoopData { modules, rows: &rows, ..LoopData::default() }, tables);
        let tree = table.modules.into_iter().next().unwrap();
        (tree.choice, tree.table.map(|table| table.source))
    };
    let from_a_file = (TableChoice::File, Some("from a file".to_owned()));
    assert_eq!(fits(&file, &modules), Ok(()));
    assert_eq!(found(&modules, std::slice::from_ref(&file)), from_a_file);
    for (embedded, why) in [
        ("{", "not a side table of loops: EOF"),
        (
            &SideTable { module: "77".into(), ..side_table() }.to_json().unwrap(),
            "it is of module 77",
        ),
        (
            &SideTable { entries: vec![], ..side_table() }.to_json().unwrap(),
            "has 0 entries, and the module has 4 ids",
        ),
    ] {
        let modules = [LoopModule { table: Some(embedded.to_owned()), ..module(1, None) }];
        let (TableChoice::Unusable(said), None) = found(&modules, &[]) else { panic!("{why}") };
        assert!(said.contains(why), "{said}");
        assert_eq!(found(&modules, std::slice::from_ref(&file)), from_a_file);
    }
    let other = SideTable { module: "ab".into(), ..side_table() };
    assert_eq!(
        fits(&other, &modules).unwrap_err().to_string(),
        "the side table is of module ab, and the profile has 30313233343536373839616263646566"
    );
    let few = SideTable { entries: vec![], ..side_table() };
    assert!(fits(&few, &modules).unwrap_err().to_string().contains("has 0 entries"));
    assert!(fits(&few, &[]).unwrap_err().to_string().contains("the profile has no module"));
}
