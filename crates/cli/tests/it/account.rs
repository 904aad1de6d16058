//! Tests docs/account.md: compares the numbers of reports with those that a slow program in Python
//! computes from exports.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use profile::Calibration;
use profile::passes::pass_dir;
use record::meta::FIRST_PLUGIN_GENERATION;
use serde_json::{Value, json};
use testkit::{CallScript, Item, ProfileScript, Random, Scratch, python};

use crate::support::OFTEN_STARTED;

/// Adds nested and recursive calls, some of which are shorter than the cost of recording the calls
/// in them.
fn nest(r: &mut Random, begin: u64, end: u64, depth: u32, into: &mut Vec<CallScript>) {
    let mut at = begin;
    while at < end && r.below(6) > 0 {
        let from = at + r.below((end - at).min(300));
        let to = from + 1 + r.below(end - from);
        if depth < 5 {
            nest(r, from, to, depth + 1, into);
        }
        let call = CallScript::new(r.below(4) as u32, from, to - from).on(r.below(2) as u32, 0);
        into.push(match r.below(3) {
            0 => call.unread(),
            _ => call.group(to - from, &[r.below(9)]),
        });
        at = to + r.below(50);
    }
}

pub fn script(r: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    for pid in 0..1 + r.below(2) as u32 {
        let process = script.process(100 + pid);
        process.library("m", &["a", "b", "c", "d"]);
        for (mask, whole) in [(1, 90 + r.below(50)), (0, 31)] {
            process.calibrations.push(Calibration {
                calls: 9,
                counters: mask,
                inside_ticks: 17 + u64::from(mask),
                total_ticks: whole,
                inside_values: vec![0; mask as usize],
                ..Calibration::default()
            });
        }
        for number in 0..1 + r.below(3) as u32 {
            let thread = process.thread(&format!("t{number}"));
            thread.tid = 1_000 * pid + number + 1;
            let mut calls = Vec::new();
            nest(r, 1_000, 9_000, 0, &mut calls);
            for call in calls {
                let end = call.call.end;
                thread.call(call);
                match r.below(18) {
                    0 | 1 => _ = thread.then(Item::NextPage(end, 0, end)),
                    // A lost page of records causes a gap between calls.
                    2 => _ = thread.then(Item::LostPage(end, 0, end)),
                    _ => (),
                }
            }
        }
    }
    other_source(r, &mut script);
    // On average, one profile in four is unfinished.
    if r.below(4) == 0 {
        script.manifest.state = profile::State::Recording;
    }
    script
}

/// For some processes, adds calls of Python functions around the existing calls, as a profiler
/// plugin might.
fn other_source(r: &mut Random, script: &mut ProfileScript) {
    for index in 0..script.processes.len() {
        if r.below(3) > 0 {
            continue;
        }
        let live = &script.processes[index];
        let (pid, start_time) = (live.pid, live.start_time);
        let threads: Vec<(u32, Vec<(u64, u64)>)> = live
            .threads
            .iter()
            .map(|thread| {
                // The call of `f` is around all calls. That of `g`, if any, ends while no call of
                // the library `m` runs.
                let middle = 1_000 + r.below(7_000);
                let around = vec![(900 - r.below(100), 9_100 + r.below(100))];
                let inside = |end: u64| calls_before(thread, end);
                let end = inside(middle);
                (thread.tid, around.into_iter().chain(end.map(|end| (950, end))).collect())
            })
            .collect();
        let events = script.process(pid);
        (events.start_time, events.generation) = (start_time, FIRST_PLUGIN_GENERATION);
        events.library("python", &["f", "g"]);
        for (tid, calls) in threads {
            let thread = events.thread("t");
            thread.tid = tid;
            for (op, (begin, end)) in calls.into_iter().enumerate() {
                thread.call(CallScript::new(op as u32, begin, end - begin));
            }
        }
    }
}

/// Returns a time before `end` at which some calls have ended and none is running.
fn calls_before(thread: &testkit::ThreadScript, end: u64) -> Option<u64> {
    let calls = || {
        thread.items.iter().filter_map(|item| match item {
            Item::Call(call) => Some((call.call.start, call.call.end)),
            _ => None,
        })
    };
    let is_free = |at: u64| calls().all(|(from, to)| at < from || to < at);
    (1_001..end).rev().find(|at| is_free(*at) && calls().any(|(_, to)| to < *at))
}

/// Writes a random profile. Some profiles have two passes (two runs of the program) with one
/// counter each.
fn write(r: &mut Random, dir: &Path) {
    let one = script(r);
    if r.below(5) > 0 {
        return one.write(dir);
    }
    let mut whole = ProfileScript::monotonic();
    whole.manifest.passes = 2;
    whole.write(dir);
    let mut other = if r.below(2) == 0 { one.clone() } else { script(r) };
    other.manifest.counters[0].name = "migrations".to_owned();
    one.write(&pass_dir(dir, 1));
    other.write(&pass_dir(dir, 2));
}

fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn same(what: &str, found: &Value, expected: &Value) {
    assert_eq!(found.is_null(), expected.is_null(), "{what}: {found}, numpy {expected}");
    let (a, b) = (found.as_f64().unwrap_or(0.0), expected.as_f64().unwrap_or(0.0));
    assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{what}: {found}, numpy {expected}");
}

/// Whether a view shows raw values, because subtracting the cost of recording made values
/// contradict each other.
fn is_contradicted(view: &Value) -> bool {
    view["losses"].as_array().unwrap().iter().any(|loss| loss["name"] == "inconsistent")
}

struct Judged<'a> {
    number: String,
    dir: &'a Path,
    expected: &'a Value,
    /// If true, neither the views nor the Python program subtract the cost of recording.
    raw: bool,
    /// For each process, the number of its pass. The first pass has the number 1.
    passes: Vec<u32>,
    compared: usize,
}

impl<'a> Judged<'a> {
    fn new(number: String, dir: &'a Path, expected: &'a Value, raw: bool) -> Self {
        let profile = profile::Profile::open(dir).unwrap();
        let passes = profile.processes.iter().map(|process| process.pass + 1).collect();
        Self { number, dir, expected, raw, passes, compared: 0 }
    }

    fn view(&self, words: &[&str]) -> Value {
        let mut view = Command::new(&*OFTEN_STARTED);
        view.arg(words[0]).arg(self.dir).args(&words[1..]).args(["--format", "json"]);
        json(view.args(self.raw.then_some("--raw")))
    }

    fn same(&mut self, what: &str, found: &Value, expected: &Value) {
        same(&format!("profile {}: {what}", self.number), found, expected);
        self.compared += 1;
    }

    /// Returns the name that the Python program uses for the thread.
    fn thread(&self, row: &Value) -> String {
        let pass = self.passes[row["process"].as_u64().unwrap() as usize];
        format!("{pass} {} {}", row["pid"], row["tid"])
    }

    /// Compares the views with the Python program's numbers. From the first view on in which
    /// corrected values contradict each other, no more is compared. Returns whether there is such a
    /// view.
    fn all(&mut self) -> bool {
        let mut contradicted = false;
        for by in ["op", "thread", "cpu", "process"] {
            let report = self.view(&["report", "--by", by]);
            contradicted |= is_contradicted(&report);
            if !contradicted {
                self.rows(by, &report);
            }
        }
        if !contradicted {
            self.stats();
            self.tree();
            self.printed();
        }
        contradicted
    }

    fn rows(&mut self, by: &str, report: &Value) {
        let rows = report["rows"].as_array().unwrap();
        let all = self.expected;
        let expected = all[by].as_object().unwrap();
        let names: Vec<String> = rows.iter().map(|row| self.name(by, row)).collect();
        let found = names.iter().collect::<BTreeSet<_>>();
        assert_eq!(found, expected.keys().collect(), "{} by {by}", self.number);
        assert_eq!(rows.len(), expected.len(), "{} by {by}", self.number);
        for (row, name) in rows.iter().zip(names) {
            let expected = &expected[&name];
            for of in ["threads", "cpus"] {
                let found = row[of].as_array().map_or(0, Vec::len);
                self.same(&format!("by {by}: {name}: {of}"), &found.into(), &expected[of]);
            }
            for value in VALUES {
                let found = match value {
                    "inner_calls" if row[value].is_null() => &json!(0),
                    _ => &row[value],
                };
                self.same(&format!("by {by}: {name}: {value}"), found, &expected[value]);
            }
            for counter in row["counters"].as_array().unwrap() {
                let of = counter["name"].as_str().unwrap();
                // In these profiles, empty calls read 0 of each counter, so nothing is subtracted
                // from counters.
                let faults = &expected["counters"][of];
                self.same(&format!("by {by}: {name}: {of}"), &counter["total"], faults);
                let with = expected["with"][of].as_u64().unwrap_or(0);
                self.same(&format!("by {by}: {name}: with {of}"), &counter["calls"], &with.into());
            }
        }
        for thread in report["threads"].as_array().unwrap() {
            let expected = &all["lives"][self.thread(thread)];
            for value in ["calls", "wall_ns", "dispatch_ns"] {
                self.same(&format!("thread: {value}"), &thread[value], &expected[value]);
            }
        }
        let sum = |value: &str| -> f64 {
            let lives = all["lives"].as_object().unwrap().values();
            lives.map(|life| life[value].as_f64().unwrap()).sum()
        };
        self.same("time in calls", &report["total"]["self_ns"], &sum("dispatch_ns").into());
        self.same("calls", &report["total"]["calls"], &sum("calls").into());
        let between = sum("wall_ns") - sum("dispatch_ns");
        // `between_ns` is null if calls fill the whole life of the threads.
        let found = match &report["total"]["between_ns"] {
            Value::Null => &json!(0),
            found => found,
        };
        self.same("between", found, &between.into());
    }

    fn name(&self, by: &str, row: &Value) -> String {
        match by {
            "thread" => self.thread(row),
            "process" => {
                let pass = self.passes[row["process"].as_u64().unwrap() as usize];
                format!("{pass} {}", row["pid"])
            }
            "op" => row["op"].as_str().unwrap().to_owned(),
            _ => row[by].to_string(),
        }
    }

    fn stats(&mut self) {
        let stats = self.view(&["stats", "--buckets", "4"]);
        for op in stats["ops"].as_array().unwrap() {
            let name = op["op"].as_str().unwrap();
            let expected = &self.expected["op"][name]["stats"];
            for variable in op["all"]["variables"].as_array().unwrap() {
                let of = variable["name"].as_str().unwrap();
                let (what, expected) = (format!("stats of {name}: {of}"), &expected[of]);
                self.same(&what, &variable["standard_deviation"], &expected["deviation"]);
                if of != "duration_ns" {
                    self.same(&what, &variable["calls"], &expected["calls"]);
                    continue;
                }
                let buckets = variable["bucket_means"].as_array().unwrap().iter();
                for (found, expected) in buckets.zip(expected["buckets"].as_array().unwrap()) {
                    self.same(&what, found, expected);
                }
            }
            for pair in op["all"]["pairs"].as_array().unwrap() {
                if pair["of"] != "duration_ns" {
                    continue;
                }
                let of = pair["given"].as_str().unwrap();
                for (place, value) in ["pearson", "spearman"].into_iter().enumerate() {
                    let expected = &expected[of]["correlations"][place];
                    self.same(&format!("stats of {name}: {of}: {value}"), &pair[value], expected);
                }
            }
        }
    }

    fn tree(&mut self) {
        let tree = self.view(&["report", "--tree"]);
        let rows = tree["rows"].as_array().unwrap();
        let mut paths: Vec<String> = Vec::new();
        for row in rows {
            let name = row["name"].as_str().unwrap();
            let above = row["parent"].as_u64().map(|parent| &paths[parent as usize]);
            paths.push(above.map_or(name.to_owned(), |above| format!("{above}/{name}")));
        }
        let expected = self.expected["tree"].as_object().unwrap();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>(), expected.keys().collect());
        let passes = self.passes.iter().max().copied().unwrap_or(1);
        for (row, path) in rows.iter().zip(&paths) {
            for value in ["total_ns", "self_ns"] {
                self.same(&format!("tree: {path}: {value}"), &row[value], &expected[path][value]);
            }
            let calls = expected[path]["calls"].as_u64().unwrap();
            let of_pass = calls.is_multiple_of(passes.into()).then(|| calls / u64::from(passes));
            self.same(&format!("tree: {path}: calls"), &row["calls"], &of_pass.into());
        }
    }

    /// Checks that the tables of the report are correct to the last printed digit.
    fn printed(&mut self) {
        for by in ["op", "thread", "cpu", "process"] {
            let mut report = Command::new(&*OFTEN_STARTED);
            report.arg("report").arg(self.dir).args(["--by", by, "--width", "1000", "--top", "0"]);
            let output = report.args(self.raw.then_some("--raw")).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let report = self.view(&["report", "--by", by]);
            let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{by}  ")));
            // The table is missing if nothing was recorded.
            let Some(head) = lines.next().map(cells) else { continue };
            for (line, row) in lines.zip(report["rows"].as_array().unwrap()) {
                let expected = &self.expected[by][self.name(by, row)];
                let cells = cells(line);
                assert_eq!(cells.len(), head.len(), "{line}");
                for (name, cell) in head.iter().zip(cells) {
                    let value = match *name {
                        "total" | "self" | "mean" | "p50" | "p99" | "min" | "max" => {
                            &expected[format!("{name}_ns")]
                        }
                        "share" | "calls" => &expected[*name],
                        _ => continue,
                    };
                    let value = value.as_f64().unwrap_or(f64::NAN);
                    if let Some((shown, unit)) = amount(cell) {
                        let off = (shown - value).abs();
                        let what = format!("profile {} by {by}: {name} of {line}", self.number);
                        assert!(off <= unit / 2.0 + 1e-6 * unit, "{what}: {cell}, numpy {value}");
                        self.compared += 1;
                    }
                }
            }
        }
    }
}

const VALUES: [&str; 11] = [
    "calls",
    "inner_calls",
    "dispatches",
    "share",
    "total_ns",
    "self_ns",
    "mean_ns",
    "min_ns",
    "p50_ns",
    "p99_ns",
    "max_ns",
];

/// Splits a printed row into cells, which at least two blanks separate.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Returns a printed number and the value of its last digit. Times are returned in ns, and
/// percentages as fractions. `None` if the cell has no number (`–`, `<12 ns`). Text after the
/// number and its unit (`±3 %`, `*`) is ignored.
pub fn amount(cell: &str) -> Option<(f64, f64)> {
    let mut words = cell.split(' ');
    let digits = words.next()?.trim_end_matches('*');
    let scale = match words.next().map(|unit| unit.trim_end_matches('*')) {
        Some("ns") => 1.0,
        Some("µs") => 1e3,
        Some("ms") => 1e6,
        Some("s") => 1e9,
        Some("%") => 0.01,
        _ => 1.0,
    };
    let plain = digits.replace(',', "");
    let after = plain.split_once('.').map_or(0, |(_, after)| after.len());
    Some((plain.parse::<f64>().ok()? * scale, scale * 0.1f64.powi(after as i32)))
}

/// Returns the number of random profiles, and the number of the first one.
fn random_profiles() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let profiles = number("COUNTERPOINT_PROFILES").unwrap_or(100);
    (profiles, number("COUNTERPOINT_SEED").unwrap_or(0))
}

/// `COUNTERPOINT_PROFILES=1000` compares a thousand profiles. A profile depends only on its number,
/// so `COUNTERPOINT_SEED=NUMBER COUNTERPOINT_PROFILES=1` repeats the comparison of one profile.
#[test]
fn a_slow_program_computes_the_same_numbers() {
    let Some(python) = python::with("account", "numpy, scipy.stats") else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/account.py");
    let (profiles, first) = random_profiles();
    let scratch = Scratch::new();
    let (mut compared, mut contradicted, mut numbers) = (0, 0, first..first + profiles);
    loop {
        // One Python process computes the numbers of many profiles.
        let some: Vec<u64> = numbers.by_ref().take(50).collect();
        if some.is_empty() {
            break;
        }
        let mut slow = Command::new(&python);
        slow.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut arguments = String::new();
        for number in &some {
            let dir = scratch.join(&format!("{number}.cpt"));
            write(&mut Random(0x5eed_0f26 + 0x9e37_79b9 * (number + 1)), &dir);
            let calls = scratch.join(&format!("{number}.json"));
            let mut export = Command::new(&*OFTEN_STARTED);
            export.arg("export").arg(&dir).args(["--format", "json", "-o"]).arg(&calls);
            assert!(export.output().unwrap().status.success(), "{number}");
            slow.arg(&calls);
            arguments.push_str(if number % 4 == 3 { "raw\n" } else { "\n" });
        }
        let mut slow = slow.spawn().unwrap();
        slow.stdin.take().unwrap().write_all(arguments.as_bytes()).unwrap();
        let output = slow.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        assert_eq!(lines.lines().count(), some.len());
        for (number, line) in some.iter().zip(lines.lines()) {
            let dir = scratch.join(&format!("{number}.cpt"));
            let expected = serde_json::from_str(line).unwrap();
            let mut judged = Judged::new(number.to_string(), &dir, &expected, number % 4 == 3);
            contradicted += u64::from(judged.all());
            compared += judged.compared;
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{compared} values of {profiles} profiles, of which {contradicted} are contradicted");
    assert!(compared as u64 > 100 * profiles, "{compared}");
    assert!(contradicted < profiles.max(2) / 2, "{contradicted}");
}

fn view(args: &[&str], dir: &Path) -> String {
    let output = Command::new(&*OFTEN_STARTED).args(args).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json_view(args: &[&str], dir: &Path) -> Value {
    serde_json::from_str(&view(&[args, &["--format", "json"]].concat(), dir)).unwrap()
}

/// Compares `report` with `stats`. Returns the number of calls that are inside of other calls of
/// the same op.
fn compare_stats(dir: &Path, more: &[&str]) -> u64 {
    let report = json_view(&[&["report"], more].concat(), dir);
    let stats = json_view(&[&["stats", "--no-table"], more].concat(), dir);
    let losses = |view: &Value| view["losses"].to_string();
    assert_eq!(losses(&report).contains("inconsistent"), losses(&stats).contains("inconsistent"));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), stats["ops"].as_array().unwrap().len());
    for row in rows {
        let ops = stats["ops"].as_array().unwrap();
        let op = ops.iter().find(|op| op["op_id"] == row["op_id"]).unwrap();
        let name = row["op"].as_str().unwrap();
        let all = &op["all"];
        same(&format!("{name}: total"), &op["total_ns"], &row["total_ns"]);
        for count in ["calls", "inner_calls"] {
            assert_eq!(all[count], row[count], "{name}: {count}");
        }
        let duration = &all["variables"][0];
        for value in ["mean", "min", "max"] {
            same(&format!("{name}: {value}"), &duration[value], &row[format!("{value}_ns")]);
        }
        let counters = row["counters"].as_array().unwrap().iter();
        for (counter, variable) in counters.zip(&all["variables"].as_array().unwrap()[1..]) {
            assert_eq!(counter["calls"], variable["calls"], "{name}");
            same(&format!("{name}: a counter"), &variable["mean"], &counter["per_call"]);
        }
        // The first of 16 buckets has the fastest sixteenth of the calls, so its mean is not above
        // the median.
        let low = all["variables"][0]["bucket_means"][0].as_f64();
        assert!(low.is_none_or(|low| low <= row["p50_ns"].as_f64().unwrap() + 1e-6), "{name}");
    }
    rows.iter().map(|row| row["inner_calls"].as_u64().unwrap_or(0)).sum()
}

#[test]
fn stats_has_the_numbers_of_report() {
    let mut r = Random(0x5eed_57a7);
    let (mut inner, mut contradicted) = (0, 0);
    for round in 0..12 {
        let (_scratch, dir) = script(&mut r).written();
        let more: &[&str] = if round % 4 == 3 { &["--raw"] } else { &[] };
        inner += compare_stats(&dir, more);
        contradicted +=
            usize::from(view(&["report", "--format", "json"], &dir).contains("inconsis"));
    }
    assert!(inner > 50 && contradicted > 0 && contradicted < 12, "{inner} {contradicted}");
}

fn printed<'a>(text: &'a str, label: &str) -> &'a str {
    let from = text.find(label).unwrap_or_else(|| panic!("{label} in {text}")) + label.len();
    text[from..].split_whitespace().next().unwrap()
}

/// Compares `report`, `ops` and `stats` for a profile in which some ops are inside of other ops.
/// The views are read as text, CSV or JSON.
#[test]
fn three_views_of_the_same_ops() {
    let (_scratch, dir) = crate::ops::nested().written();
    assert!(compare_stats(&dir, &[]) > 0);
    let table = |command: &str| {
        let text = view(&[command, "--format", "csv"], &dir);
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
        let head: Vec<String> = lines.next().unwrap();
        let rows: Vec<Vec<String>> = lines.collect();
        move |op: &str, column: &str| {
            // Cells with shapes contain commas, so columns are counted from the end of the line.
            let back = head.len() - head.iter().position(|name| name == column).unwrap();
            let row = rows.iter().find(|row| row[0] == op).unwrap();
            row[row.len() - back].clone()
        }
    };
    let (report, ops) = (table("report"), table("ops"));
    for op in ["add", "sub"] {
        for column in ["calls", "inner_calls", "total_ns", "self_ns"] {
            assert_eq!(report(op, column), ops(op, column), "{op}: {column}");
        }
    }
    // In `ops`, the counter values of `sub` do not include those of the ops inside of it, so only
    // those of `add` are compared.
    assert_eq!(report("add", "page-faults"), ops("add", "page-faults"));
    assert_eq!((report("sub", "calls"), report("sub", "inner_calls")), ("1".into(), "1".into()));
    let stats = view(&["stats", "--no-table", "--op", "add"], &dir);
    let mean = printed(&stats, "    mean: ").to_owned();
    let text = view(&["report", "--width", "200", "--filter", "add"], &dir);
    let row = text.lines().find(|line| line.starts_with("add ")).unwrap();
    assert!(row.contains(&format!(" {mean} ns")), "{mean} in {row}");
}
