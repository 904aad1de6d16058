//! Tests the words beside numbers in the page and the report. Before the page had these words,
//! readers who knew nothing else of the profile misunderstood numbers.

use std::path::Path;
use std::process::Command;

use profile::Role;
use record::page::KEY_CORRELATION;
use serde_json::{Value, json};
use testkit::{CallScript, ProfileScript};

const MS: u64 = 1_000_000;

fn run(words: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_counterpoint")).args(words).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the data of the page, and the text that `report` prints with these options.
fn shown(script: &ProfileScript, options: &[&str]) -> (Value, String) {
    let (scratch, profile) = script.written();
    let page = scratch.join("x.html");
    let [profile, file] = [&profile, &page].map(|path: &std::path::PathBuf| path.to_str().unwrap());
    run(&["report", profile, "--html", file]);
    let head = head_of(&page);
    let words = [&["report", profile, "--width", "400"], options].concat();
    (head, run(&words))
}

fn head_of(page: &Path) -> Value {
    let text = std::fs::read_to_string(page).unwrap();
    serde_json::from_slice(&crate::page_data::block(&text, "head")).unwrap()
}

fn table<'a>(head: &'a Value, id: &str) -> &'a Value {
    let tables = head["tables"].as_array().unwrap();
    let found = tables.iter().find(|table| table["id"] == id);
    found.unwrap_or_else(|| panic!("no table {id}: {head:#}"))
}

/// Returns the cells of the column from top to bottom.
fn column(table: &Value, name: &str) -> Vec<Value> {
    let columns = table["columns"].as_array().unwrap();
    let at = columns.iter().position(|column| column["name"] == name);
    let at = at.unwrap_or_else(|| panic!("no column {name}: {columns:#?}"));
    table["rows"].as_array().unwrap().iter().map(|row| row[at].clone()).collect()
}

fn says(table: &Value, wanted: &str) -> bool {
    let lines = table["explained"].as_array().unwrap();
    lines.iter().any(|line| line.as_str().unwrap().contains(wanted))
}

/// Three of the four calls of `f` have a value of the counter.
#[test]
fn a_starred_value_says_of_how_many_calls_it_is() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    process.library("m", &["f", "g"]);
    let thread = process.thread("main");
    for n in 0..4 {
        let call = CallScript::new(0, n * 10 * MS, 5 * MS);
        thread.call(if n == 1 { call.unread() } else { call.group(5 * MS, &[7]) });
        thread.call(CallScript::new(1, n * 10 * MS + 6 * MS, MS).group(MS, &[1]));
    }
    let (head, printed) = shown(&script, &[]);
    let ops = table(&head, "op");
    assert_eq!(column(ops, "page-faults")[0], json!(["21*", 21.0, "in 3 of 4 calls"]));
    assert_eq!(column(ops, "page-faults")[1], json!(["4", 4.0]));
    let expected = "counted in only some of the calls in the marked rows: page-faults";
    assert!(says(ops, expected), "{ops:#}");
    assert!(printed.contains(expected), "{printed}");
    // The value of a metric also says in how many of the calls its counter was read.
    assert_eq!(column(ops, "fault-rate")[0][2], "in 3 of 4 calls");
    let of_all = "page-faults and fault-rate in 3 of 4 calls; calls and times are of all of them";
    assert!(says(ops, of_all), "{ops:#}");
    let facts = head["ops"][0]["facts"].as_array().unwrap();
    assert!(facts.contains(&json!(["page-faults", "21* (in 3 of 4 calls)"])), "{facts:?}");
}

#[test]
fn rows_of_an_op_have_the_sum_over_its_arguments() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let torch = process.machine("torch");
    let [wide, narrow] =
        ["f32[8, 8]", "f32[2, 2]"].map(|shape| process.op(torch, Role::Op, "mm", shape));
    let add = process.op(torch, Role::Op, "add", "f32[2, 2]");
    let thread = process.thread("main");
    for (op, begin, time) in [(wide, 0, 5), (narrow, 6, 2), (add, 9, 1)] {
        thread.call(CallScript::op(op, begin * MS, time * MS));
    }
    let (head, printed) = shown(&script, &[]);
    let ops = table(&head, "op");
    let sums = column(ops, "self_all_arguments_ns");
    assert_eq!(sums, [json!(["7.00 ms", 7e6]), json!(["7.00 ms", 7e6]), Value::Null]);
    assert!(says(ops, "total, all arguments: of all rows of the same op together"), "{ops:#}");
    assert!(printed.contains("total, all arguments"), "{printed}");
    for (op, expected) in [(0, true), (1, true), (2, false)] {
        let facts = head["ops"][op]["facts"].as_array().unwrap();
        let has = facts.contains(&json!(["total, all arguments", "7.00 ms"]));
        assert_eq!(has, expected, "{facts:?}");
    }
    // If each op has only one row, the report has no sums over arguments.
    script.processes[0].threads[0].items.remove(1);
    assert!(!shown(&script, &[]).1.contains("all arguments"));
}

/// Returns a profile of two steps, each with a parallel region. In each region, one task runs on a
/// worker and begins 10 ms after the region.
fn with_a_region() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let vm = process.machine("vm 0");
    let step = process.op(vm, Role::Range, "step", "");
    let conv = process.op(vm, Role::Op, "conv", "");
    let region = process.op(vm, Role::Region, "parallel", "");
    let task = process.op(vm, Role::Task, "parallel", "");
    let at = |op, begin: u64, end: u64| CallScript::op(op, begin * MS, (end - begin) * MS);
    let main = process.thread("main");
    for begin in [0, 150] {
        let number = 1 + begin;
        main.call(at(region, begin + 20, begin + 80).value(KEY_CORRELATION, number))
            .call(at(conv, begin + 10, begin + 90))
            .call(at(step, begin, begin + 100));
    }
    let worker = process.thread("worker");
    for begin in [0, 150] {
        let of = at(task, begin + 30, begin + 75).workgroup(1, 2);
        worker.call(of.value(KEY_CORRELATION, 1 + begin));
    }
    script
}

/// The worker is in no call for 105 ms of its 195 ms. The critical path is in no call for the 50 ms
/// between the steps and for the 10 ms before each task.
#[test]
fn what_is_between_is_not_the_same_on_a_thread_and_on_the_path() {
    let (head, _) = shown(&with_a_region(), &[]);
    let path = table(&head, "path");
    assert_eq!(path["rest"][0][0], "(in no call)");
    let at = path["columns"].as_array().unwrap().iter().position(|c| c["name"] == "on_path_ns");
    assert_eq!(path["rest"][0][at.unwrap()], json!(["70.0 ms", 70e6]));
    assert!(says(path, "between in a report is another time"), "{path:#}");
    let threads = table(&head, "thread");
    let between = column(threads, "between_ns");
    assert!(between.contains(&json!(["105 ms", 105e6])), "{between:?}");
    assert!(says(
        threads,
        "between: the part of the wall time in which this thread was in no call"
    ));
    assert!(says(table(&head, "op"), "(between): the time in which the threads were in no call"));
    // The own time of `conv` is 2 · (10 + 45 + 5 + 10) ms and includes its region and task. Its
    // self time is 2 · 20 ms.
    let names = column(path, "op");
    let conv = names.iter().position(|name| name == "conv").unwrap();
    assert_eq!(column(path, "own_ns")[conv], json!(["140 ms", 140e6]));
    let ops = table(&head, "op");
    let conv = column(ops, "op").iter().position(|name| name == "conv").unwrap();
    assert_eq!(column(ops, "self_ns")[conv], json!(["40.0 ms", 40e6]));
    assert!(says(
        path,
        "own time: in all calls of the op, on the path or not. It differs from self"
    ));
    // If the range took no time, the calls inside of it would take none either.
    let step = names.iter().position(|name| name == "step (range)").unwrap();
    assert_eq!(column(path, "gain_ns")[step], json!(["180 ms", 180e6]));
    assert!(says(path, "of a range, if nothing inside of it took any"), "{path:#}");
    let tree = table(&head, "tree");
    assert!(says(tree, "self: without the calls inside, as in a report by op"), "{tree:#}");
    let conv = column(tree, "name").iter().position(|name| name == "conv").unwrap();
    assert_eq!(column(tree, "self_ns")[conv], json!(["40.0 ms", 40e6]));
}

#[test]
fn each_length_says_from_and_to_when() {
    let (head, printed) = shown(&with_a_region(), &["--verbose"]);
    let lengths = head["lengths"].as_array().unwrap();
    // `in calls` is the sum of 200 ms on main and 90 ms on the worker.
    for [name, time, meaning] in [
        ["the run", "1.00 s", "to after its end, as `counterpoint run` saw it"],
        ["all calls", "250 ms", "from the start of the first call to the end of the last one"],
        ["main (4711)", "250 ms", "from the start of the first call of this thread"],
        ["2 threads", "445 ms", "added up"],
        ["in calls", "290 ms", "shares are parts of this time"],
    ] {
        let row = lengths.iter().find(|row| row[0] == name);
        let row = row.unwrap_or_else(|| panic!("{name}: {lengths:#?}"));
        assert_eq!(row[1], time, "{name}");
        assert!(row[2].as_str().unwrap().contains(meaning), "{row}");
        assert!(
            printed.contains(&format!("{name} {time} {}", row[2].as_str().unwrap())),
            "{printed}"
        );
    }
}

/// Between the steps are 50 ms. In each step and in each `conv`, 10 ms are before the inner call
/// and 10 ms after it.
#[test]
fn gaps_have_levels() {
    let (head, printed) = shown(&with_a_region(), &["--by", "between"]);
    let levels = table(&head, "level");
    let numbers = |name| -> Vec<f64> {
        column(levels, name).iter().map(|cell| cell[1].as_f64().unwrap() / 1e6).collect()
    };
    assert_eq!(numbers("in_calls_ns"), [200.0, 160.0, 120.0]);
    assert_eq!(numbers("between_ns"), [50.0, 40.0, 40.0]);
    assert_eq!(column(levels, "most")[1], "conv");
    assert!(printed.contains("level: how many calls are around a call."), "{printed}");
    assert!(printed.contains("main (4711) 1 2 160 ms 40.0 ms 20.0 % conv"), "{printed}");
}
