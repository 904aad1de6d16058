//! Compares the output of the formats with files in tests/golden/loops or with text in the tests.
//! `crates/analysis/tests/loops.rs` compares the numbers themselves with numbers that were computed
//! by hand. One tick is 1 ns.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

use analysis::loops::identity;
use ir::table::{Entry, Kind, ScheduledLoop, SideTable, Skipped};
use profile::loops::{HitCost, LoopEvent, LoopModule, LoopRow, Loops as Recorded};
use testkit::ProfileScript;

use super::text::Rows;
use super::{Loops, columns, expensive, json, show};
use crate::view::csv;

const TIMED: [u8; 16] = *b"timed\0\0\0\0\0\0\0\0\0\0\0";
const BARE: [u8; 16] = *b"bare\0\0\0\0\0\0\0\0\0\0\0\0";
const LOGGED: [u8; 16] = *b"logged\0\0\0\0\0\0\0\0\0\0";

fn entry(id: u32, function: &str, parent: Option<u32>, depth: Option<u32>, line: u32) -> Entry {
    Entry {
        id,
        kind: if depth.is_some() { Kind::Loop } else { Kind::Function },
        function: function.into(),
        parent,
        depth,
        height: 0,
        siblings: 0,
        label: depth.map(|_| format!("for_body_{id}")),
        variable: depth.map(|depth| ["i", "j", "k"][depth as usize].into()),
        file: Some("/src/matmul.c".into()),
        line: Some(line),
        column: Some(3),
        text: [10 * id + 1, 10 * id + 9],
        trip_count: (id == 3).then_some(8),
        places: Vec::new(),
    }
}

fn table(id: [u8; 16], source: &str, mode: &str, entries: Vec<Entry>) -> Option<String> {
    let table = SideTable {
        counterpoint_loops: ir::table::VERSION,
        module: identity(&id),
        source: source.into(),
        producer: Some("clang version 19.1.7".into()),
        target: Some("x86_64-pc-linux-gnu".into()),
        mode: mode.into(),
        entries,
        texts: Vec::new(),
        schedule: Vec::new(),
        skipped: vec![Skipped {
            function: "main".into(),
            label: Some("bb7".into()),
            why: "it has several entries".into(),
        }],
    };
    Some(table.to_json().unwrap())
}

/// Returns what three modules recorded: one with `matmul` on two threads in mode timed, one without
/// a side table in mode count, and one in mode log.
fn recorded() -> Recorded {
    let module = |id, mode, ids, table| LoopModule {
        id,
        mode,
        ids,
        table,
        ticks_per_second: 1e9,
        ..LoopModule::default()
    };
    let entries = vec![
        entry(0, "matmul", None, None, 3),
        entry(1, "matmul", Some(0), Some(0), 4),
        entry(2, "matmul", Some(1), Some(1), 5),
        Entry { siblings: 1, file: None, ..entry(3, "matmul", Some(1), Some(1), 0) },
        entry(4, "unused", None, None, 30),
    ];
    let cost = Some(HitCost { inside: 1.0, timed: 2.0, counted: 0.5, ..HitCost::default() });
    let modules = vec![
        LoopModule {
            cost,
            object: Some("/opt/matmul".into()),
            ..module(TIMED, 1, 5, table(TIMED, "matmul.ll", "timed", entries))
        },
        module(BARE, 2, 3, None),
        module(
            LOGGED,
            3,
            2,
            table(
                LOGGED,
                "logged.ll",
                "log",
                vec![entry(0, "=f", None, None, 3), entry(1, "=f", Some(0), Some(0), 4)],
            ),
        ),
    ];
    let timed = |tid, id, hits: u64, ticks, child_ticks| LoopRow {
        tid,
        id,
        hits,
        begun: hits,
        ended: hits,
        ticks,
        child_ticks,
        squares: u128::from(ticks) * u128::from(ticks) / u128::from(hits),
        ..LoopRow::default()
    };
    let mut rows = vec![
        timed(4711, 0, 1, 1_000_000, 900_000),
        timed(4711, 1, 10, 900_000, 700_000),
        timed(4711, 2, 100, 500_000, 0),
        timed(4711, 3, 100, 2_000, 0),
        timed(4712, 0, 1, 3_000_000, 2_900_000),
        timed(4712, 1, 10, 2_900_000, 700_000),
        timed(4712, 2, 100, 700_000, 0),
    ];
    rows[2].iterations = 800;
    rows[2].iterated = 100;
    rows[6].iterations = 800;
    rows[6].iterated = 100;
    rows[2].counted = 50;
    rows[2].counters = vec![100];
    rows[5].begun += 1;
    rows[5].hits += 1;
    rows.push(LoopRow { module: 1, tid: 4711, id: 2, hits: 12_345_678, ..LoopRow::default() });
    rows.push(LoopRow { module: 1, tid: 4711, id: 77, hits: 1, ..LoopRow::default() });
    rows.push(LoopRow { module: 2, tid: 4711, id: 0, hits: 1, ..LoopRow::default() });
    rows.push(LoopRow { module: 2, tid: 4711, id: 1, hits: 4, ..LoopRow::default() });
    let event =
        |id, end, ticks, address| LoopEvent { module: 2, tid: 4711, id, end, address, ticks };
    let events = vec![
        event(0, false, 100, 0x1130),
        event(1, false, 110, 0x1144),
        event(1, true, 130, 0x1160),
        event(1, false, 140, 0x1148),
        event(1, true, 160, 0x1164),
        event(0, true, 300, 0x1180),
    ];
    Recorded { modules, rows, events, ..Recorded::default() }
}

fn text(loops: &mut Loops<'_>, rows: Rows, width: Option<usize>) -> String {
    loops.choose(None, None, None, rows.all).unwrap();
    let mut out = Vec::new();
    show::text(&mut out, loops, &[], rows, width).unwrap();
    String::from_utf8(out).unwrap()
}

/// Like [`testkit::Golden`], for data that does not come from a recorded profile.
fn compare(name: &str, actual: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/loops");
    let path = dir.join(name);
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected != actual && std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&path, actual).unwrap();
        return;
    }
    assert!(expected == actual, "{name} differs (UPDATE_GOLDEN=1 rewrites it)\n{actual}");
}

fn with_loops(raw: bool, then: impl Fn(&mut Loops<'_>)) {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.thread("main");
    process.thread("worker-0");
    let (_scratch, dir) = script.written();
    let profile = profile::Profile::open(&dir).unwrap();
    let recorded = recorded();
    then(&mut Loops::new(&profile, &recorded, &[], raw));
}

#[test]
fn tables_for_people() {
    with_loops(false, |loops| {
        let rows = Rows::default();
        for (name, width) in [("table-80.out", 80), ("table-120.out", 120)] {
            let text = text(loops, rows, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            compare(name, &text);
        }
        compare("table.out", &text(loops, rows, None));
        compare(
            "threads.out",
            &text(loops, Rows { threads: true, all: true, verbose: true }, Some(120)),
        );
    });
    with_loops(true, |loops| compare("raw.out", &text(loops, Rows::default(), Some(120))));
}

/// A loop of the schedule has 25 iterations. LLVM moved the first iteration out of the loop and
/// unrolled the others by three, so the loop in the machine code has 8 iterations.
#[test]
fn iterations_are_those_of_the_machine_code() {
    let (_scratch, dir) = ProfileScript::monotonic().written();
    let profile = profile::Profile::open(&dir).unwrap();
    let with_schedule = |ids: Vec<u32>| {
        let mut recorded = recorded();
        let known = recorded.modules[0].table.as_ref().unwrap();
        let mut table = SideTable::from_json(known.as_bytes()).unwrap();
        table.schedule.push(ScheduledLoop {
            function: "matmul".into(),
            variable: "k".into(),
            kind: "serial".into(),
            extent: Some(25),
            parent: None,
            depth: 0,
            chosen: true,
            gone: None,
            source: None,
            lines: None,
            ids,
        });
        recorded.modules[0].table = Some(table.to_json().unwrap());
        text(&mut Loops::new(&profile, &recorded, &[], false), Rows::default(), None)
    };
    let of_one = with_schedule(vec![2]);
    let line = of_one.lines().find(|line| line.contains("serial 25")).unwrap();
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(line.contains("1,600 3 each, 1 apart"), "{of_one}");
    let said = of_one.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("iterations: of the loop in the machine code."), "{said}");
    assert!(
        said.contains("schedule iterations: how many iterations of the loop in the schedule"),
        "{said}"
    );
    // If two loops of the machine code come from one loop of the schedule, it is not known how many
    // of its iterations each of the two does.
    let of_two = with_schedule(vec![2, 3]);
    assert!(of_two.contains("serial 25") && !of_two.contains("each, 1 apart"), "{of_two}");
    assert!(!of_two.contains("schedule iterations"), "{of_two}");
}

#[test]
fn tables_for_programs() {
    for (raw, name) in [(false, "full-csv.out"), (true, "raw-csv.out")] {
        with_loops(raw, |loops| {
            let mut out = Vec::new();
            csv::print(&mut out, &columns::full(loops, !raw)).unwrap();
            compare(name, &String::from_utf8(out).unwrap());
        });
    }
    with_loops(false, |loops| {
        let mut out = Vec::new();
        json::print(&mut out, loops, &[], true).unwrap();
        compare("json.out", &String::from_utf8(out).unwrap());
    });
}

/// The name of every field of the JSON document is in backquotes in docs/loops.md or
/// docs/schema.md.
#[test]
fn every_field_is_explained() {
    fn keys(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(members) => {
                found.extend(members.keys().cloned());
                members.values().for_each(|value| keys(value, found));
            }
            serde_json::Value::Array(all) => all.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let page = |name: &str| {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        std::fs::read_to_string(docs.join(name)).unwrap()
    };
    let pages = page("loops.md") + &page("schema.md");
    let code = pages.split('`').skip(1).step_by(2);
    let words: BTreeSet<&str> = code.flat_map(|code| code.split([' ', ',', '\n', ':'])).collect();
    with_loops(false, |loops| {
        let mut out = Vec::new();
        json::print(&mut out, loops, &[], true).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert!(words.contains(document["schema"].as_str().unwrap()));
        let mut found = BTreeSet::new();
        keys(&document, &mut found);
        assert!(found.len() > 60, "{found:?}");
        let unknown: Vec<_> = found.iter().filter(|key| !words.contains(key.as_str())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    });
}

/// A filter keeps the matching nodes, and the nodes around and inside of them. `--top` keeps the
/// rows with the most time. A sorted table is still a tree.
#[test]
fn rows_are_chosen_in_every_format() {
    let names = |filter: Option<&str>, sort: Option<&str>, top: Option<usize>| {
        let mut found = (Vec::new(), 0);
        with_loops(false, |loops| {
            loops.choose(filter, sort, top, false).unwrap();
            let mut out = Vec::new();
            json::print(&mut out, loops, &[], false).unwrap();
            let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let modules = document["modules"].as_array().unwrap();
            let rows = modules.iter().flat_map(|module| module["rows"].as_array().unwrap());
            let ids: Vec<u64> = rows.map(|row| row["id"].as_u64().unwrap()).collect();
            let csv = columns::full(loops, false).order.len();
            assert_eq!(csv, ids.len());
            FOUND.with_borrow_mut(|of| *of = (ids, loops.left_out.iter().sum()));
        });
        FOUND.with_borrow_mut(|of| std::mem::swap(of, &mut found));
        found
    };
    thread_local! {
        static FOUND: std::cell::RefCell<(Vec<u64>, usize)> = Default::default();
    }
    assert_eq!(names(None, None, None), (vec![0, 1, 2, 3, 2, 0, 1], 0));
    assert_eq!(names(Some("matmul:j"), None, None), (vec![0, 1, 2, 3], 0));
    assert_eq!(names(Some("matmul:j"), Some("hits"), None).0, [0, 1, 2, 3]);
    assert_eq!(names(Some("matmul"), None, Some(2)), (vec![0, 1], 2));
    // Ids are sorted like all numbers: the largest one comes first.
    assert_eq!(names(Some("matmul"), Some("id"), None).0, [0, 1, 3, 2]);
    assert_eq!(names(Some("matmul"), Some("self"), None).0, [0, 1, 2, 3]);
    with_loops(false, |loops| assert!(loops.choose(None, Some("speed"), None, false).is_err()));
    // A module whose rows are all left out has no heading.
    with_loops(false, |loops| {
        loops.choose(None, None, Some(2), false).unwrap();
        let mut out = Vec::new();
        show::text(&mut out, loops, &[], Rows::default(), Some(120)).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.contains("\n… and 2 modules with 3 rows (--top 0 shows all)\n"), "{shown}");
        let heads = shown.lines().filter(|line| line.contains(" functions and loops"));
        assert_eq!(heads.count(), 1, "{shown}");
    });
}

/// The columns and their order are those of TVM's original lightweight profiling. Machine code is
/// not read here, so only mode log has offsets.
#[test]
fn the_original_table() {
    with_loops(true, |loops| {
        let mut out = Vec::new();
        columns::original(&mut out, loops).unwrap();
        let expected = "\
            Function Name,Loop/Function ID,Loop Depth,Start Offset,End Offset,Processor Cycles\r\n\
            matmul,0,-,,,4000000\r\n\
            matmul,1,0,,,3800000\r\n\
            matmul,2,1,,,1200000\r\n\
            matmul,3,1,,,2000\r\n\
            62617265000000000000000000000000,2,,,,\r\n\
            '=f,0,-,0x1130,0x1180,200\r\n\
            '=f,1,0,0x1144,0x1164,80\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    });
}

#[test]
fn the_most_expensive_first() {
    with_loops(false, |loops| {
        let mut out = Vec::new();
        expensive::print(&mut out, loops, Some(100)).unwrap();
        compare("expensive.out", &String::from_utf8(out).unwrap());
        let json = serde_json::to_value(expensive::json(loops)).unwrap();
        assert_eq!(json["hits"], 323 + 12_345_678 + 5);
        assert_eq!(json["most_expensive"][0]["name"], "matmul:i");
    });
}
