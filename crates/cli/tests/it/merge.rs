//! Tests `counterpoint merge`. The expected numbers were computed on paper.

use std::collections::BTreeMap;
use std::path::Path;

use profile::Job;
use profile::activities::{ActivitiesWriter, Activity};
use profile::launches::{PLUGIN_ROWS, PROCESSES_KEY};
use serde_json::{Value, json};
use testkit::{CallScript, Golden, Output, ProfileScript, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn golden(scratch: &Scratch) -> Golden {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/merge");
    Golden::new(PROGRAM, golden).scrub(scratch.path().display().to_string(), "DIR")
}

/// Rank *n* of two has 2 + n calls of `f`, one every 1,000 ns, and each call takes 100 + n ns. In
/// each call, the first counter counts 3 + n.
fn rank(n: u32, counters: &[&str]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.id = format!("{n:032x}");
    script.manifest.boot_id = "one boot".into();
    script.manifest.notes = vec![format!("note {n}")];
    for (group, counter) in (0..).zip(counters) {
        script.counter(counter, group);
    }
    let process = script.process(100 + n);
    process.job = Some(Job { rank: n, size: Some(2) });
    process.losses.push((model::Loss::NameTruncated, 1 + u64::from(n), 0));
    process.library("m", &["f"]);
    let thread = process.thread("worker");
    for call in 0..2 + u64::from(n) {
        let mut one = CallScript::new(0, 1_000 * (call + 1), 100 + u64::from(n)).workgroup(0, 1);
        for at in 0..counters.len() as u64 {
            one = one.group(100, &[3 + u64::from(n) + 10 * at]);
        }
        thread.call(one);
    }
    script
}

struct Made {
    scratch: Scratch,
    golden: Golden,
}

impl Made {
    fn new(profiles: &[(&str, &ProfileScript)]) -> Self {
        let scratch = Scratch::new();
        for (name, script) in profiles {
            script.write(&scratch.join(name));
        }
        let golden = golden(&scratch);
        Self { scratch, golden }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    fn run(&self, words: &[&str]) -> Output {
        let is_place =
            |word: &&str| [".cpt", ".old", ".json"].iter().any(|ending| word.ends_with(ending));
        let words: Vec<String> = words
            .iter()
            .map(|word| if is_place(word) { self.path(word) } else { (*word).to_owned() })
            .collect();
        self.golden.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.code, Some(0), "{words:?}: {output:?}");
        output.stdout
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[words, &["--format", "json"]].concat())).unwrap()
    }

    fn csv(&self, words: &[&str]) -> Vec<BTreeMap<String, String>> {
        let text = self.done(&[words, &["--format", "csv"]].concat());
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned));
        let head: Vec<String> = lines.next().unwrap().collect();
        lines.map(|line| head.iter().cloned().zip(line).collect()).collect()
    }

    /// Returns the names of everything in the test's directory, sorted.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.scratch.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn pick<'a>(rows: &'a Value, fields: &[&str]) -> Vec<Vec<&'a Value>> {
    let rows = rows["rows"].as_array().unwrap().iter();
    rows.map(|row| fields.iter().map(|field| &row[*field]).collect()).collect()
}

/// Rank 1 did not record `page-faults`, so its values of this counter are missing and not 0.
#[test]
fn ranks_are_rows_with_the_sums_of_their_own_profiles() {
    let (a, b) = (rank(0, &["page-faults", "migrations"]), rank(1, &["migrations"]));
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b)]);
    let said = made.run(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        said.stdout,
        "a.cpt: rank 0 on paper; the others are aligned to it\n\
         b.cpt: rank 1 on paper; on the same clock\n"
    );
    assert_eq!(
        said.stderr,
        "counterpoint: 2 profiles: 5 calls in 2 processes, 2 threads in DIR/all.cpt\n"
    );
    assert_eq!(made.names(), ["a.cpt", "all.cpt", "b.cpt"]);

    let report = made.json(&["report", "all.cpt", "--by", "rank", "--raw"]);
    let fields = ["rank", "world_size", "host", "profile", "calls", "total_ns"];
    assert_eq!(
        json!(pick(&report, &fields)),
        json!([[1, 2, "paper", "b.cpt", 3, 303.0], [0, 2, "paper", "a.cpt", 2, 200.0]])
    );
    let rows = made.csv(&["report", "all.cpt", "--by", "rank", "--raw"]);
    let counters = |row: usize| ["page-faults", "migrations"].map(|name| rows[row][name].as_str());
    assert_eq!([counters(1), counters(0)], [["6", "26"], ["", "12"]]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("rank 0: note 0") && notes.contains("rank 1: note 1"), "{notes}");
    let lost = report["losses"].as_array().unwrap();
    let truncated: Vec<&Value> = lost.iter().filter(|l| l["name"] == "name_truncated").collect();
    assert_eq!(truncated[0]["count"], 3, "1 of rank 0 and 2 of rank 1");

    let all = made.json(&["report", "all.cpt", "--raw"]);
    assert_eq!(json!(pick(&all, &["op", "calls"])), json!([["f", 5]]));
    let one = made.json(&["report", "all.cpt", "--raw", "--rank", "1"]);
    assert_eq!(json!(pick(&one, &["op", "calls"])), json!([["f", 3]]));
    let stats = made.json(&["stats", "all.cpt", "--rank", "0"]);
    assert_eq!(stats["ops"][0]["all"]["calls"], 2, "{stats:#}");

    let calls = made.csv(&["export", "all.cpt"]);
    let cells = |column: &str| calls.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
    assert_eq!(cells("rank"), ["0", "0", "1", "1", "1"]);
    assert_eq!(cells("host"), ["paper"; 5]);
    assert_eq!(cells("dispatch"), ["1", "2", "3", "4", "5"]);
    assert_eq!(cells("page-faults"), ["3", "3", "", "", ""]);
    assert_eq!(cells("migrations"), ["13", "13", "4", "4", "4"]);
    assert_eq!(cells("start_ns"), ["1000", "2000", "1000", "2000", "3000"]);
    assert_eq!(cells("thread_name"), ["worker"; 5]);

    let dir = made.path("all.cpt");
    made.golden.check_stdout("report", 0, &["report", &dir, "--by", "rank", "--verbose"]);
}

#[test]
fn what_was_merged_can_be_merged_again() {
    let [a, b] = [0, 1].map(|n| rank(n, &["page-faults"]));
    let mut c = rank(2, &["page-faults"]);
    c.processes[0].job = None;
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b), ("c.cpt", &c)]);
    made.done(&["merge", "a.cpt", "b.cpt", "c.cpt", "-o", "at-once.cpt"]);
    made.done(&["merge", "a.cpt", "b.cpt", "-o", "two.cpt"]);
    made.done(&["merge", "two.cpt", "c.cpt", "-o", "again.cpt"]);
    let twice = made.run(&["merge", "two.cpt", "b.cpt", "c.cpt", "c.cpt", "-o", "twice.cpt"]);
    assert_eq!(twice.code, Some(0));
    assert!(twice.stderr.contains("b.cpt: DIR/two.cpt is the same profile, which is used once"));
    let export = |name: &str| made.done(&["export", name, "--format", "csv"]);
    let expected = export("at-once.cpt");
    assert_eq!(expected.lines().count(), 1 + 2 + 3 + 4);
    for again in ["again.cpt", "twice.cpt"] {
        assert_eq!(export(again), expected, "{again}");
    }
    made.done(&["merge", "again.cpt", "-o", "alone.cpt"]);
    assert_eq!(export("alone.cpt"), expected);
    // The rank of `c.cpt` is not known, so its row has the profile's name.
    let report = made.csv(&["report", "again.cpt", "--by", "rank"]);
    let mut rows: Vec<&str> = report.iter().map(|row| row["rank"].as_str()).collect();
    rows.sort_unstable();
    assert_eq!(rows, ["c.cpt", "rank 0", "rank 1"]);
}

/// Each profile has two passes (runs of the same program with different counters), and its numbers
/// are means over both passes.
#[test]
fn passes_stay_passes() {
    let made = Made::new(&[]);
    for (n, name) in [(0, "a.cpt"), (1, "b.cpt")] {
        let mut whole = rank(n, &[]);
        whole.processes.clear();
        whole.manifest.passes = 2;
        let dir = made.scratch.join(name);
        whole.write(&dir);
        for (pass, counter) in [(1, "page-faults"), (2, "migrations")] {
            rank(n, &[counter]).write(&profile::passes::pass_dir(&dir, pass));
        }
    }
    made.done(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    let fields = ["op", "calls", "total_ns"];
    let all = made.json(&["report", "all.cpt", "--raw"]);
    assert_eq!(json!(pick(&all, &fields)), json!([["f", 5, 503.0]]));
    let calls: Vec<&Value> = all["rows"][0]["passes"].as_array().unwrap().iter().collect();
    assert_eq!(json!(calls.iter().map(|pass| &pass["calls"]).collect::<Vec<_>>()), json!([5, 5]));
    let alone = |name: &str| {
        let report = made.json(&["report", name, "--raw"]);
        json!(pick(&report, &fields))
    };
    made.done(&["merge", "b.cpt", "-o", "alone.cpt"]);
    assert_eq!(alone("alone.cpt"), alone("b.cpt"));
    let one = made.json(&["report", "all.cpt", "--raw", "--rank", "1"]);
    assert_eq!(json!(pick(&one, &fields)), alone("b.cpt"));
    let exported = made.csv(&["export", "all.cpt"]);
    let passes: Vec<&str> = exported.iter().map(|row| row["pass"].as_str()).collect();
    assert_eq!(passes.iter().filter(|pass| **pass == "1").count(), 5, "{passes:?}");
    assert_eq!(passes.len(), 10);
}

/// The three profiles have no ranks, and they have the same file name, process id and thread id.
#[test]
fn profiles_of_one_name_are_told_apart() {
    let places = ["x/p.cpt", "y/p.cpt", "z/p.cpt"];
    let mut scripts = [0, 1, 2].map(|n| rank(n, &[]));
    for script in &mut scripts {
        let process = &mut script.processes[0];
        process.job = None;
        (process.pid, process.threads[0].tid) = (100, 100);
        script.manifest.notes = vec!["the same note".into()];
    }
    scripts[1].manifest.notes.push("another note".into());
    let scratch = Scratch::new();
    for folder in ["x", "y", "z"] {
        std::fs::create_dir(scratch.join(folder)).unwrap();
    }
    for (place, script) in places.iter().zip(&scripts) {
        script.write(&scratch.join(place));
    }
    let golden = golden(&scratch);
    let made = Made { scratch, golden };
    let said = made.done(&[&["merge"], &places[..], &["-o", "all.cpt"]].concat());
    let names: Vec<&str> =
        said.lines().filter_map(|line| line.split_once(':')).map(|s| s.0).collect();
    assert_eq!(names, ["p.cpt", "p.cpt (2)", "p.cpt (3)"]);
    let report = made.json(&["report", "all.cpt"]);
    let notes: Vec<&str> =
        report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let of_profiles: Vec<&&str> = notes.iter().filter(|note| note.contains("note")).collect();
    assert_eq!(of_profiles, [&"the same note", &"p.cpt (2): another note"], "{notes:?}");
    made.done(&["merge", "x/p.cpt", "y/p.cpt", "-o", "two.cpt"]);
    let again = made.done(&["merge", "two.cpt", "z/p.cpt", "-o", "again.cpt"]);
    assert!(again.contains("p.cpt (3)"), "{again}");
    let threads = made.done(&["report", "all.cpt", "--by", "thread", "--width", "200"]);
    let rows = made.csv(&["report", "all.cpt", "--by", "thread"]);
    let labels: Vec<&str> = rows.iter().map(|row| row["thread"].as_str()).collect();
    for name in names {
        let label = format!("worker (100) of 100 model ({name})");
        assert!(labels.contains(&label.as_str()), "{label}: {labels:?}");
        assert!(threads.contains(&label), "{label}: {threads}");
    }
}

/// Adds a compute kernel that the call with the plugin id 7 launched.
fn kernel(made: &Made, name: &str, lasts: i64) {
    let dir = made.scratch.join(name);
    let of = profile::Profile::open(&dir).unwrap().processes[0].id.name();
    let root = profile::safe_dir::Dir::open(&dir).unwrap();
    let mut writer = ActivitiesWriter::create(&root, "plugin").unwrap();
    let row = writer.row(Some(&PLUGIN_ROWS.to_string()), None);
    let (kernel, category) = (writer.name(&format!("kernel of {name}")), writer.name("kernel"));
    let event = Activity {
        form: b'X',
        name: Some(kernel),
        category: Some(category),
        row,
        time_ns: Some(1_000),
        duration_ns: Some(lasts),
        args: Some(r#"{"External id":7}"#),
        ..Activity::default()
    };
    writer.push(&event).unwrap();
    writer.finish(&json!({ PROCESSES_KEY: [of] })).unwrap();
}

/// Two ranks have the same process id and the same id of a call. A thread of rank 1 without calls
/// has the id of a thread of rank 0.
#[test]
fn equal_ids_of_several_profiles_are_not_confused() {
    let mut scripts = [rank(0, &[]), rank(1, &[])];
    for (n, script) in scripts.iter_mut().enumerate() {
        let process = &mut script.processes[0];
        (process.pid, process.threads[0].tid) = (100, 100 + n as u32);
        let call = CallScript::new(0, 50_000, 100).value(record::page::KEY_PLUGIN_ID, 7);
        process.threads[0].call(call);
        let thread = |tid: u32, name: &str, cpu_ns: u64| record::thread_times::ThreadCpu {
            tid,
            name: name.into(),
            cpu_ns,
        };
        process.thread_times =
            (n == 1).then(|| vec![thread(100, "silent", 5_000_000), thread(101, "worker", 1_000)]);
    }
    let made = Made::new(&[("a.cpt", &scripts[0]), ("b.cpt", &scripts[1])]);
    for (name, lasts) in [("a.cpt", 1_000), ("b.cpt", 30)] {
        kernel(&made, name, lasts);
    }
    made.done(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    let fields = ["activity", "op", "calls", "total_ns"];
    let launched = |options: &[&str]| {
        let report = made.json(&[&["report", "all.cpt", "--by", "launch"], options].concat());
        json!(pick(&report, &fields))
    };
    let (a, b) =
        (json!(["kernel of a.cpt", "f", 1, 1_000]), json!(["kernel of b.cpt", "f", 1, 30]));
    assert_eq!(launched(&[]), json!([a, b]));
    assert_eq!(launched(&["--rank", "0"]), json!([a]));
    assert_eq!(launched(&["--rank", "1"]), json!([b]));
    let text = made.done(&["report", "all.cpt", "--by", "launch", "--rank", "1"]);
    assert!(!text.contains("of no op") && !text.contains("a.cpt"), "{text}");

    let report = made.json(&["report", "all.cpt"]);
    let silent = &report["silent_threads"];
    assert_eq!(json!([silent[0]["name"], silent[0]["process"]]), json!(["silent", 1]), "{silent}");
    // In the report by threads, threads without calls come last.
    let text = made.done(&["report", "all.cpt", "--by", "thread", "--width", "200"]);
    let names: Vec<&str> = text.lines().skip(2).filter(|line| line.contains(" (10")).collect();
    assert_eq!(names.len(), 3, "{text}");
    assert!(names[2].starts_with("silent (100) of 100 "), "{text}");
    let cells: Vec<&str> = names[2].split("  ").filter(|cell| !cell.is_empty()).collect();
    assert!(cells.iter().any(|cell| cell.trim() == "5.00 ms"), "{text}");
    assert_eq!(text.matches("  between  ").count(), 1, "{text}");
}

/// This recording has two ranks, and it is not known to which of them a plugin's events belong.
#[test]
fn events_of_one_rank_of_a_recording_are_not_known() {
    let mut script = rank(0, &[]);
    let other = rank(1, &[]).processes.remove(0);
    script.processes.push(other);
    let made = Made::new(&[("a.cpt", &script)]);
    for by in ["launch", "module", "line", "shape"] {
        let output = made.run(&["report", "a.cpt", "--by", by, "--rank", "1"]);
        assert_eq!(output.code, Some(2), "{by}: {output:?}");
        let why = "--rank 1: its recording is also of other ranks";
        assert!(output.stderr.contains(why), "{by}: {}", output.stderr);
    }
    let ops = made.json(&["report", "a.cpt", "--rank", "1", "--raw"]);
    assert_eq!(json!(pick(&ops, &["op", "calls"])), json!([["f", 3]]));
    kernel(&made, "a.cpt", 30);
    let names = |options: &[&str]| {
        let output = made.run(&[&["trace", "export", "a.cpt", "-o", "-"], options].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        let timeline: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let events = timeline["traceEvents"].as_array().unwrap().iter();
        let slices = events.filter(|event| event["ph"] == "X");
        let names: Vec<String> = slices.map(|s| s["name"].as_str().unwrap().to_owned()).collect();
        let count = |name: &str| names.iter().filter(|other| *other == name).count();
        (count("f"), count("kernel of a.cpt"), output.stderr)
    };
    assert_eq!(names(&[]).1, 1);
    let (calls, kernels, said) = names(&["--rank", "1"]);
    assert!(calls > 0 && kernels == 0, "{calls} and {kernels}");
    assert!(
        said.contains("--rank 1: events of plugins and of other profilers are left out"),
        "{said}"
    );
}

/// Machine B was started 5 s after machine A, and its clock has 2 ticks per ns.
#[test]
fn times_of_two_machines_are_on_one_clock() {
    let a = rank(0, &[]);
    let mut b = rank(1, &[]);
    (b.manifest.boot_id, b.manifest.host) = ("another boot".into(), "other".into());
    b.manifest.clock = profile::Clock::Tsc;
    for moment in &mut b.manifest.snapshots {
        moment.ticks *= 2;
        moment.realtime_ns += 5_000_000_000;
    }
    let thread = &mut b.processes[0].threads[0];
    thread.items.clear();
    thread.call(CallScript::new(0, 14_000, 600));
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b)]);
    // The profile of the machine that was started later may come first on the command line.
    for order in [["a.cpt", "b.cpt"], ["b.cpt", "a.cpt"]] {
        let said = made.done(&["merge", order[0], order[1], "-o", "all.cpt"]);
        let lines: Vec<&str> = said.lines().collect();
        let of = |name: &str| lines.iter().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert_eq!(of("a.cpt"), "a.cpt: rank 0 on paper; the others are aligned to it");
        assert_eq!(
            of("b.cpt"),
            "b.cpt: rank 1 on other; aligned by time of day; it is not known how well the machines' \
             clocks agree"
        );
        let calls = made.csv(&["export", "all.cpt", "--rank", "1"]);
        let cells = ["host", "start_ns", "duration_ns"].map(|column| calls[0][column].as_str());
        assert_eq!(cells, ["other", "5000007000", "300.0"]);
        let utc = made.csv(&["export", "all.cpt", "--rank", "1", "--clock", "utc"]);
        assert_eq!(utc[0]["start_unix_ns"], "1700000005000007000");
    }
    let verbose = made.done(&["report", "all.cpt", "--by", "rank", "--verbose"]);
    assert!(
        verbose.contains("rank 0 on paper") && verbose.contains("rank 1 on other"),
        "{verbose}"
    );
    assert!(verbose.contains("CLOCK_REALTIME"), "{verbose}");
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_leaves_nothing() {
    let a = rank(0, &["x", "y"]);
    let mut other_id = rank(0, &["x", "y"]);
    other_id.manifest.id = "f".repeat(32);
    let mut budget = rank(1, &["x", "y"]);
    budget.budget(0.5);
    let mut turns = rank(1, &["x", "y"]);
    turns.manifest.multiplex = true;
    let order = rank(1, &["y", "x"]);
    let mut imported = rank(1, &[]);
    imported.manifest.origin = profile::Origin::Import;
    let mut open = rank(1, &[]);
    open.pool = true;
    let all = [
        ("same.cpt", &other_id, "a.cpt and same.cpt both have rank 0"),
        ("budget.cpt", &budget, "budget.cpt is a sample of calls (--budget), and a.cpt has all"),
        ("turns.cpt", &turns, "counters of turns.cpt took turns (--multiplex), and those of a.cpt"),
        ("order.cpt", &order, "the same counters in groups that contradict each other"),
        ("imported.cpt", &imported, "imported.cpt was imported from a trace of another program"),
        ("open.cpt", &open, "its recording is not over, or a part of it is still in memory"),
    ];
    let mut profiles = vec![("a.cpt", &a)];
    profiles.extend(all.iter().map(|(name, script, _)| (*name, *script)));
    let made = Made::new(&profiles);
    let before = made.names();
    for (name, _, why) in all {
        let output = made.run(&["merge", "a.cpt", name, "-o", "all.cpt"]);
        assert_eq!(output.code, Some(2), "{name}: {output:?}");
        assert!(output.stderr.contains(why), "{name}: {}", output.stderr);
        assert_eq!(made.names(), before, "{name}");
    }
    let missing = made.run(&["merge", "a.cpt", "nothing.cpt", "-o", "all.cpt"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("nothing.cpt"), "{}", missing.stderr);
    let onto = made.run(&["merge", "a.cpt", "-o", "a.cpt"]);
    assert!(onto.stderr.contains("it is also one of the inputs"), "{}", onto.stderr);
    assert_eq!(made.names(), before);
}

/// A link in a profile could lead to any file, so `merge` refuses the profile.
#[test]
fn only_plain_files_are_copied() {
    let (a, b) = (rank(0, &[]), rank(1, &[]));
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b)]);
    std::os::unix::fs::symlink("/etc/passwd", made.scratch.join("b.cpt/extra")).unwrap();
    let output = made.run(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("b.cpt/extra"), "{}", output.stderr);
    assert_eq!(made.names(), ["a.cpt", "b.cpt"]);
}

#[test]
fn an_earlier_profile_keeps_a_place() {
    let (a, b) = (rank(0, &[]), rank(1, &[]));
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b)]);
    made.done(&["merge", "a.cpt", "-o", "all.cpt"]);
    made.done(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    assert_eq!(made.names(), ["a.cpt", "all.cpt", "all.cpt.old", "b.cpt"]);
    assert_eq!(made.csv(&["export", "all.cpt"]).len(), 5);
    assert_eq!(made.csv(&["export", "all.cpt.old"]).len(), 2);
}

/// As can happen in two containers, both ranks have a thread 100 in a process 100.
#[test]
fn each_rank_has_rows_of_its_own_in_a_timeline() {
    let a = rank(0, &["x"]);
    let mut b = rank(1, &["x"]);
    b.processes[0].pid = 100;
    b.processes[0].threads[0].tid = 100;
    let made = Made::new(&[("a.cpt", &a), ("b.cpt", &b)]);
    made.done(&["merge", "a.cpt", "b.cpt", "-o", "all.cpt"]);
    made.done(&["trace", "export", "all.cpt", "-o", "all.json"]);
    let text = std::fs::read(made.scratch.join("all.json")).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names: BTreeMap<i64, &str> = events
        .iter()
        .filter(|e| e["name"] == "process_name")
        .map(|e| (e["pid"].as_i64().unwrap(), e["args"]["name"].as_str().unwrap()))
        .collect();
    let mut slices: BTreeMap<&str, usize> = BTreeMap::new();
    for slice in events.iter().filter(|e| e["ph"] == "X") {
        *slices.entry(names[&slice["pid"].as_i64().unwrap()]).or_default() += 1;
    }
    let expected = [
        ("rank 0: dispatches of model 100", 2),
        ("rank 0: model", 2),
        ("rank 1: dispatches of model 100", 3),
        ("rank 1: model", 3),
    ];
    assert_eq!(slices, expected.into_iter().collect());
    let ids = |phase: &str| -> Vec<u64> {
        events.iter().filter(|e| e["ph"] == phase).map(|e| e["id"].as_u64().unwrap()).collect()
    };
    let (mut starts, mut ends) = (ids("s"), ids("f"));
    starts.sort_unstable();
    ends.sort_unstable();
    assert_eq!(starts, ends);
    starts.dedup();
    assert_eq!(starts.len(), 5, "each arrow has an id of its own");
    assert_eq!(made.run(&["trace", "check", "all.json"]).code, Some(0));
    made.done(&["trace", "export", "all.cpt", "--rank", "1", "-o", "one.json"]);
    let text = std::fs::read(made.scratch.join("one.json")).unwrap();
    let trace: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(trace["distributedInfo"], json!({"rank": 1, "world_size": 2}));
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X");
    assert_eq!(slices.count(), 6);
}
