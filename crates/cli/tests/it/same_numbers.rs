//! Tests that the same quantity has the same value in many views and formats, with random profiles.
//! Also tests that no view shows nonsense ([`crate::strangers_screen`]).
//!
//! `COUNTERPOINT_PROFILES=1000` checks a thousand profiles. A profile depends only on its number,
//! so `COUNTERPOINT_SEED=NUMBER COUNTERPOINT_PROFILES=1` repeats one of them.

mod loops;
mod random_loops;

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use model::Loss;
use profile::columns::KEY_CORRELATION;
use record::counts::steps::{SampledCalls, Steps, ThreadSteps};
use record::meta::Role;
use serde_json::{Value, json};
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

use crate::account::amount;
use crate::strangers_screen::look_at;
use crate::support::OFTEN_STARTED;

/// Returns a profile of dispatches, whose workgroups run on one to four threads.
fn dispatches(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let workers = 1 + r.below(4);
    let process = script.process(100);
    process.library("m", &["a", "b", "c"]);
    let mut of_worker: Vec<(u64, Vec<CallScript>)> =
        (0..workers).map(|_| (1_000, vec![])).collect();
    for _ in 0..20 + r.below(40) {
        let (export, count) = (r.below(3) as u32, 1 + r.below(6) as u32);
        let begin = of_worker.iter().map(|(at, _)| *at).max().unwrap() + r.below(500);
        of_worker.iter_mut().for_each(|(at, _)| *at = begin);
        for id in 0..count {
            // The worker that becomes free first runs the next workgroup.
            let worker = (0..workers as usize).min_by_key(|worker| of_worker[*worker].0).unwrap();
            let (at, calls) = &mut of_worker[worker];
            let duration = 50 + r.below(2_000);
            let call = CallScript::new(export, *at, duration).workgroup(id, count);
            let call = call.on(worker as u32, 0);
            calls.push(match r.below(4) {
                0 => call.unread(),
                _ => call.group(duration, &[r.below(5)]),
            });
            *at += duration + r.below(30);
        }
    }
    for (number, (_, calls)) in of_worker.into_iter().enumerate() {
        let thread = process.thread(&format!("worker {number}"));
        thread.tid = 101 + number as u32;
        calls.into_iter().for_each(|call| _ = thread.call(call));
    }
    script
}

/// Returns a profile of a virtual machine. Some of its ops call other ops, or launch tasks on
/// another thread.
fn machine(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.counter("task-clock", 0).unit = "ns".to_owned();
    let process = script.process(100);
    let vm = process.machine("vm 0");
    let run = process.op(vm, Role::Run, "main", "");
    let ops: Vec<u32> = ["matmul", "add", "softmax"]
        .map(|name| process.op(vm, Role::Op, name, "float32[8, 8]"))
        .to_vec();
    let keep = process.op(vm, Role::Op, "vm.builtin.alloc_storage", "");
    let region = process.op(vm, Role::Region, "matmul", "float32[8, 8]");
    let task = process.op(vm, Role::Task, "matmul", "float32[8, 8]");
    let (mut main, mut other) = (Vec::new(), Vec::new());
    let mut at = 1_000;
    let read = |call: CallScript, r: &mut Random| {
        let time = call.call.end - call.call.start;
        match r.below(6) {
            0 => call.unread(),
            _ => call.group(time, &[r.below(9), time]),
        }
    };
    for number in 0..3 + r.below(6) {
        let begin = at;
        for _ in 0..r.below(8) {
            let (from, time) = (at + 10 + r.below(100), 400 + r.below(3_000));
            if r.odd(3) {
                let inner = CallScript::op(ops[1], from + 50, 100 + r.below(200));
                main.push(read(inner, r));
            } else if r.odd(3) {
                let half = CallScript::op(task, from + 40, time / 2);
                let mut half = half.value(KEY_CORRELATION, number + 1);
                (half.call.workgroup[0], half.call.count[0]) = (0, 1);
                other.push(read(half, r));
                let launch = CallScript::op(region, from + 20, time - 100);
                main.push(read(launch.value(KEY_CORRELATION, number + 1), r));
            }
            let op = if r.odd(6) { keep } else { ops[r.below(3) as usize] };
            main.push(read(CallScript::op(op, from, time), r));
            at = from + time;
        }
        at += 50;
        main.push(read(CallScript::op(run, begin, at - begin), r));
        at += r.below(2_000);
    }
    let thread = process.thread("main");
    thread.tid = 101;
    main.into_iter().for_each(|call| _ = thread.call(call));
    let thread = process.thread("other");
    thread.tid = 102;
    other.into_iter().for_each(|call| _ = thread.call(call));
    script
}

/// Returns a profile of a run with a budget. In some of these profiles, the host announced its
/// calls to the recorder only in some of the program's steps (such as iterations of a training
/// loop).
pub fn sampled(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.budget(0.01 * (1 + r.below(10)) as f64);
    script.counter("page-faults", 0);
    let by_steps = r.odd(2);
    for pid in 0..1 + r.below(2) as u32 {
        let process = script.process(100 + pid);
        process.library("m", &["a", "b", "c", "d"]);
        for number in 0..1 + r.below(3) as u32 {
            let thread = process.thread(&format!("t{number}"));
            thread.tid = 1_000 * (pid + 1) + number;
            let (mut clock, mut rows) = (1_000u64, Vec::new());
            for export in 0..4u32 {
                let calls = [3, 40, 900, 6_000][r.below(4) as usize] + r.below(40);
                let period = [1, 1, 4, 20][r.below(4) as usize];
                let (mut skipped, mut timed, mut counted) = (0, 0, 0);
                for call in 0..calls {
                    let time = 100 + r.below(900) * u64::from(export + 1);
                    clock += time + 100;
                    let period = if call < 8 { 1 } else { period };
                    if !r.odd(period) {
                        skipped += 1;
                        continue;
                    }
                    let is_read = r.odd(2);
                    let one = CallScript::new(export, clock - time, time);
                    let one = match is_read {
                        true => one.group(time, &[r.below(3) * u64::from(export)]),
                        false => one.unread(),
                    };
                    thread.call(one.drawn(period as u32, 2, skipped));
                    (timed, counted, skipped) = (timed + 1, counted + u64::from(is_read), 0);
                    if timed % 500 == 0 {
                        thread.then(Item::NextPage(clock, 0, clock));
                    }
                }
                let unseen = if by_steps && export > 1 { 3 * calls } else { 0 };
                thread.counted(export, calls + unseen, timed, counted);
                if unseen > 0 {
                    // The calls were announced in 100 steps, each of weight 3. One of these steps
                    // has `each + 1` calls, and the others have `each` calls.
                    let each = calls / 100 + 1;
                    let (sum, squares) = (300 * each + 3, 300 * each * each + 6 * each + 3);
                    rows.push(SampledCalls { export, sum, squares, unseen, in_cut: 0 });
                }
            }
            if by_steps {
                let steps = Steps {
                    sampled: 100,
                    weight: 300,
                    squared_weight: 900,
                    away: 300,
                    steps: if number == 0 { 404 } else { 0 },
                    is_away: u64::from(number == 0 && r.odd(2)),
                    ..Steps::default()
                };
                thread.steps = Some(ThreadSteps { steps, rows });
            }
            thread.spent = record::counts::Spent {
                cpu_ns: clock,
                price_ns: clock / 100,
                ..Default::default()
            };
        }
    }
    script
}

/// Returns a trace as another program could have written it.
fn trace(r: &mut Random) -> Value {
    let mut events = Vec::new();
    for tid in 0..1 + r.below(3) {
        let mut at = 100;
        for _ in 0..10 + r.below(30) {
            let (dur, cat) = (1 + r.below(400), ["cpu_op", "kernel"][r.below(2) as usize]);
            let name = ["a", "b", "c"][r.below(3) as usize];
            let slice = |ts: u64, dur: u64, name: &str| json!({"ph": "X", "pid": 7, "tid": tid, "ts": ts, "dur": dur, "name": name, "cat": cat});
            events.push(slice(at, dur, name));
            if dur > 20 {
                events.push(slice(at + 5, dur - 10, "inner"));
            }
            at += dur + r.below(100);
        }
        events.push(json!({"ph": "C", "pid": 7, "ts": 150 + tid, "name": "memory", "args": {"bytes": r.below(99)}}));
    }
    json!({ "traceEvents": events })
}

fn lose(r: &mut Random, script: &mut ProfileScript) {
    let losses = [Loss::CounterOpenFailed, Loss::SlotsExhausted, Loss::TornPage];
    let process = script.processes.first_mut().unwrap();
    process.losses.push((losses[r.below(3) as usize], 1 + r.below(9), 0));
}

const KINDS: u64 = 6;

/// Writes the random profile with this number. Returns the name of its kind.
fn write(number: u64, scratch: &Scratch, dir: &Path) -> &'static str {
    let mut r = Random(0x5a3e_0f26 + 0x9e37_79b9 * (number + 1));
    let (name, mut script) = match number % KINDS {
        0 => ("nested", crate::account::script(&mut r)),
        1 => ("dispatches", dispatches(&mut r)),
        2 => ("machine", machine(&mut r)),
        3 => ("sampled", sampled(&mut r)),
        4 => {
            random_loops::write(&mut r, dir);
            return "loops";
        }
        _ => {
            let file = scratch.join("trace.json");
            std::fs::write(&file, trace(&mut r).to_string()).unwrap();
            let mut import = Command::new(&*OFTEN_STARTED);
            import.args(["trace", "import", "-o"]).arg(dir).arg(&file);
            let output = import.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return "imported";
        }
    };
    if r.odd(4) {
        lose(&mut r, &mut script);
    }
    script.write(dir);
    name
}

struct Look<'a> {
    what: String,
    dir: &'a Path,
    compared: usize,
    wrong: Vec<String>,
    documents: HashMap<String, Value>,
}

/// The columns of a table: the name or title of each column, and its cells.
type Columns = Vec<(String, Vec<String>)>;

impl Look<'_> {
    fn run(&self, words: &[&str]) -> String {
        let output =
            Command::new(&*OFTEN_STARTED).arg(words[0]).arg(self.dir).args(&words[1..]).output();
        let output = output.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {words:?}: {error}", self.what);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the JSON that a view prints. Each document is kept, so that its view runs only once.
    fn json(&mut self, words: &[&str]) -> Value {
        if let Some(known) = self.documents.get(&words.join(" ")) {
            return known.clone();
        }
        let text = self.run(&[words, &["--format", "json"]].concat());
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {words:?}: {e}", self.what));
        self.documents.insert(words.join(" "), document.clone());
        document
    }

    fn csv(&self, words: &[&str]) -> Columns {
        let text = self.run(&[words, &["--format", "csv"]].concat());
        let mut lines = text.lines().map(fields);
        let names = lines.next().unwrap_or_default();
        let rows: Vec<Vec<String>> = lines.collect();
        let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
        names.into_iter().enumerate().map(|(at, name)| (name, column(at))).collect()
    }

    fn table(&self, words: &[&str], first: &str) -> Columns {
        let text = self.run(&[words, &["--width", "1000"]].concat());
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{first}  ")));
        let Some(head) = lines.next().map(cells) else { return Vec::new() };
        let rows: Vec<Vec<&str>> =
            lines.map(cells).take_while(|row| row.len() == head.len()).collect();
        let column = |at: usize| rows.iter().map(|row| row[at].to_owned()).collect();
        head.iter().enumerate().map(|(at, name)| ((*name).to_owned(), column(at))).collect()
    }

    /// Returns the tables of the page (`report --html`) by name. Each column of a table has a name,
    /// a title and cells.
    fn page(&self, scratch: &Scratch) -> HashMap<String, Vec<(String, String, Vec<String>)>> {
        let file = scratch.join("page.html");
        self.run(&["report", "--html", file.to_str().unwrap()]);
        let text = std::fs::read_to_string(&file).unwrap();
        let head = crate::page_data::block(&text, "head");
        let head: Value = serde_json::from_slice(&head).unwrap();
        let cell = |cell: &Value| match cell {
            Value::Null => "–".to_owned(),
            Value::Array(both) => both[0].as_str().unwrap().to_owned(),
            text => text.as_str().unwrap().to_owned(),
        };
        let table = |table: &Value| {
            let rows = table["rows"].as_array().unwrap();
            let columns =
                table["columns"].as_array().unwrap().iter().enumerate().map(|(at, of)| {
                    let text = |key: &str| of[key].as_str().unwrap().to_owned();
                    (text("name"), text("title"), rows.iter().map(|row| cell(&row[at])).collect())
                });
            (table["id"].as_str().unwrap().to_owned(), columns.collect())
        };
        head["tables"].as_array().unwrap().iter().map(table).collect()
    }

    fn check(&mut self, is_same: bool, what: impl FnOnce() -> String) {
        self.compared += 1;
        if !is_same {
            self.wrong.push(format!("{}: {}", self.what, what()));
        }
    }

    /// Checks that a printed cell equals `value` up to the last printed digit, or is an upper bound
    /// of it (`<12 ns`). If `value` is not a number, the cell must be `–`.
    fn printed(&mut self, cell: &str, value: &Value, what: &str) {
        let text = cell.trim_start_matches(['~', '≈']);
        let is_same = match (value.as_f64(), text.strip_prefix('<')) {
            (None, _) => cell == "–",
            (Some(number), Some(bound)) => {
                amount(bound).is_some_and(|(bound, unit)| number <= bound + unit)
            }
            (Some(number), None) => amount(text)
                .is_some_and(|(shown, unit)| (shown - number).abs() <= unit * (0.5 + 1e-6)),
        };
        self.check(is_same, || format!("{what}: {cell:?} is printed for {value}"));
    }

    /// Compares a report in JSON with the same report in CSV and, if its rows are ops, in text and
    /// as an HTML page.
    fn report(&mut self, scratch: &Scratch, by: &str) {
        let words = ["report", "--by", by, "--top", "0"];
        let document = self.json(&words);
        let rows = document["rows"].as_array().unwrap();
        let csv = self.csv(&words);
        let names: HashMap<&str, &Vec<String>> =
            csv.iter().map(|(name, cells)| (name.as_str(), cells)).collect();
        if !rows.is_empty() {
            assert_eq!(csv[0].1.len(), rows.len(), "{} by {by}", self.what);
        }
        for (at, row) in rows.iter().enumerate() {
            for (name, cells) in &names {
                let Some(value) = number_of(row, name) else { continue };
                let cell = &cells[at];
                let is_same = match value.as_f64() {
                    None => cell.is_empty(),
                    Some(number) => cell.parse().is_ok_and(|cell: f64| near(cell, number)),
                };
                self.check(is_same, || {
                    format!("by {by}: {name} is {cell:?} in CSV, {value} in JSON")
                });
            }
        }
        if by != "op" {
            return;
        }
        let (text, pages) = (self.table(&words, by), self.page(scratch));
        let Some(page) = pages.get("op").filter(|_| !rows.is_empty()) else { return };
        for (name, title, cells) in page {
            for (at, row) in rows.iter().enumerate() {
                if let Some(value) = number_of(row, name) {
                    let what = format!("{name} of row {at}");
                    self.printed(&cells[at], &value.clone(), &what);
                }
            }
            // If a column has another title in the text than on the page (such as `/call`, which is
            // longer on the page), the text is not compared.
            let Some((_, printed)) = text.iter().find(|(of_text, _)| of_text == title) else {
                continue;
            };
            if name != by {
                let shown = &printed[..rows.len().min(printed.len())];
                self.check(shown == cells, || {
                    format!("{title}: {shown:?} in text, {cells:?} in page")
                });
            }
        }
    }

    fn lives(&mut self) {
        let document = self.json(&["report", "--by", "thread", "--top", "0"]);
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let threads = document["threads"].as_array().unwrap();
        for thread in threads.iter().filter(|thread| !thread["dispatch_ns"].is_null()) {
            let [inside, outside, wall] =
                ["dispatch_ns", "no_dispatch_ns", "wall_ns"].map(|name| number(&thread[name]));
            self.check(near(inside + outside, wall), || format!("not its wall time: {thread}"));
        }
        let total = &document["total"];
        if document["profile"]["budget"].is_null() && !total["between_ns"].is_null() {
            let wall: f64 = threads.iter().map(|thread| number(&thread["wall_ns"])).sum();
            let sum = number(&total["self_ns"]) + number(&total["between_ns"]);
            self.check(near(sum, wall), || format!("{sum} of {wall}: {total}"));
        }
    }

    fn other_views(&mut self) {
        let report = self.json(&["report", "--by", "op", "--top", "0"]);
        let rows = report["rows"].as_array().unwrap();
        let stats = self.json(&["stats", "--no-table"]);
        for op in stats["ops"].as_array().unwrap() {
            let row = rows.iter().find(|row| row["op_id"] == op["op_id"]);
            let Some(row) = row.filter(|_| !op["op_id"].is_null()) else { continue };
            let is_same = op["all"]["calls"] == row["calls"];
            self.check(is_same, || format!("{} calls in stats: {row}", op["all"]["calls"]));
            let sampled = row.get("sampled").filter(|sampled| !sampled.is_null());
            if let Some(sampled) = sampled {
                let of_stats = &op["all"]["sampled"];
                // In the report, `sampled` has a share, which `stats` does not have.
                let mut sampled = sampled.clone();
                sampled.as_object_mut().unwrap().remove("share");
                self.check(*of_stats == sampled, || format!("{of_stats} in stats, {sampled}"));
            }
            let duration = &op["all"]["variables"][0];
            for name in ["mean", "min", "max"] {
                let (a, b) = (&duration[name], &row[format!("{name}_ns")]);
                let is_same = match (a.as_f64(), b.as_f64()) {
                    (Some(a), Some(b)) => near(a, b),
                    (a, b) => a == b,
                };
                self.check(is_same, || format!("{name}: {a} in stats, {b} in report: {row}"));
            }
        }
        let ops = self.csv(&["ops", "--top", "0"]);
        let of_ops = |name: &str| ops.iter().find(|(of, _)| of == name).map(|(_, cells)| cells);
        let Some(names) = of_ops("op") else { return };
        for (at, name) in names.iter().enumerate() {
            let mut found = rows.iter().filter(|row| row["op"] == name.as_str());
            let (Some(row), None) = (found.next(), found.next()) else { continue };
            if names.iter().filter(|other| *other == name).count() > 1 {
                continue;
            }
            for column in ["calls", "total_ns"] {
                let Some(cells) = of_ops(column) else { continue };
                let Some(value) = row[column].as_f64() else { continue };
                let shown: f64 = cells[at].parse().unwrap();
                self.check(near(shown, value), || {
                    format!("{name}: {column}: {shown} in ops: {row}")
                });
            }
        }
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

/// Splits a printed row into cells, which two or more spaces separate.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn fields(line: &str) -> Vec<String> {
    let (mut all, mut is_quoted) = (vec![String::new()], false);
    for c in line.trim_end().chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            c => all.last_mut().unwrap().push(c),
        }
    }
    all
}

fn number_of<'a>(row: &'a Value, column: &str) -> Option<&'a Value> {
    const NAMES: [&str; 9] = [
        "calls", "share", "total_ns", "self_ns", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns",
    ];
    if NAMES.contains(&column) {
        return Some(&row[column]);
    }
    let (name, member) = match column.strip_suffix("_per_call") {
        Some(name) => (name, "per_call"),
        None => (column, "total"),
    };
    let mut counters = row["counters"].as_array()?.iter();
    Some(&counters.find(|counter| counter["name"] == name)?[member])
}

#[test]
fn every_view_and_format_has_the_same_numbers() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let profiles: u64 = number("COUNTERPOINT_PROFILES").unwrap_or(30);
    let first: u64 = number("COUNTERPOINT_SEED").unwrap_or(0);
    let (mut compared, mut wrong) = (0, Vec::new());
    for number in first..first + profiles {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let kind = write(number, &scratch, &dir);
        let what = format!("profile {number} ({kind})");
        let mut look = Look {
            what: what.clone(),
            dir: &dir,
            compared: 0,
            wrong: Vec::new(),
            documents: HashMap::new(),
        };
        for by in ["op", "thread", "process"] {
            look.report(&scratch, by);
        }
        look.lives();
        look.other_views();
        if kind == "loops" {
            look.loops(&scratch);
        }
        if (number / KINDS).is_multiple_of(5) {
            look_at(&dir, &what);
        }
        compared += look.compared;
        wrong.append(&mut look.wrong);
    }
    println!("{compared} values of {profiles} profiles");
    let some = wrong.iter().take(60).map(|one| format!("{one:.400}\n")).collect::<String>();
    assert!(wrong.is_empty(), "{} differences:\n{some}", wrong.len());
    assert!(compared as u64 > 50 * profiles, "{compared}");
}
