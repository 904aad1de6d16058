//! Tests the replacement for IREE's original call hook: the preloaded `libcounterpoint.so` and the
//! variables `IREE_HOOK_…`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Expected, Iree, Programs, counterpoint};

struct Dropped {
    scratch: testkit::Scratch,
    program: PathBuf,
}

impl Dropped {
    fn new(test: &str) -> Option<Self> {
        Some(Self { program: counterpoint(test)?, scratch: testkit::Scratch::new() })
    }

    fn library(&self) -> PathBuf {
        self.program.parent().unwrap().parent().unwrap().join("lib/libcounterpoint.so")
    }

    fn run(&self, command: &mut Command, variables: &[(&str, &str)]) -> Output {
        command.env("LD_PRELOAD", self.library()).env("TMPDIR", self.scratch.path());
        for (name, value) in variables {
            command.env(format!("IREE_HOOK_{name}"), value);
        }
        command.output().unwrap()
    }

    /// Returns the paths of the profiles that the hook has not removed from the directory for
    /// temporary files.
    fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.scratch.path()).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        paths.retain(|path| path.file_name().unwrap().to_string_lossy().contains("iree_hook"));
        paths.sort();
        paths
    }
}

fn host(mode: &str) -> Command {
    let programs = Programs::get();
    let mut command = Command::new(&programs.host);
    command.arg(&programs.library).args(mode.split(' '));
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[derive(Debug)]
struct Part {
    thread: String,
    op: Option<String>,
    calls: u64,
    lines: Vec<String>,
}

/// Splits what a program printed into the text before the hook's report and the parts of this
/// report.
fn parts(text: &str) -> (String, Vec<Part>) {
    let mut before = String::new();
    let mut parts: Vec<Part> = Vec::new();
    // The report can begin in the middle of a line, because the program's own output need not end
    // with a line feed.
    for line in text.replace("Statistics for", "\nStatistics for").lines() {
        if let Some(rest) = line.strip_prefix("Statistics for ") {
            let rest = rest.strip_suffix(':').unwrap();
            let (who, op) = match rest.split_once(", op ") {
                Some((who, op)) => (who, Some(op.to_owned())),
                None => (rest, None),
            };
            let thread = who.strip_prefix("thread ").unwrap_or(who).to_owned();
            parts.push(Part { thread, op, calls: 0, lines: vec![] });
            continue;
        }
        let Some(part) = parts.last_mut() else {
            before.push_str(line);
            continue;
        };
        if let Some((calls, "matching call, of which:" | "matching calls, of which:")) =
            line.trim().split_once(' ')
        {
            part.calls = calls.parse().unwrap();
        }
        part.lines.push(line.to_owned());
    }
    (before, parts)
}

impl Part {
    fn number(&self, variable: &str, label: &str) -> Option<f64> {
        let is_it = |line: &&String| line.starts_with(&format!("  {variable}"));
        let from = self.lines.iter().position(|l| is_it(&l) && l.ends_with(':'))?;
        let lines = self.lines[from + 1..].iter().take_while(|l| l.starts_with("    "));
        lines.filter_map(|l| l.trim().strip_prefix(label)).next()?.trim().parse().ok()
    }
}

/// Returns the rows of a CSV file. The header comes first.
fn csv(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_report_per_thread_follows_the_output_and_nothing_is_left() {
    let Some(dropped) = Dropped::new("hook report") else { return };
    let output = dropped.run(&mut host("threads 4 500"), &[("BUCKET_COUNT", "4")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "");
    let (before, parts) = parts(&out(&output));
    assert_eq!(before, "threads 4 500 done");
    let (all, threads): (Vec<_>, Vec<_>) = parts.iter().partition(|p| p.thread.starts_with("all "));
    assert_eq!(all.iter().map(|p| p.calls).collect::<Vec<_>>(), [2000]);
    // The total of all threads comes after the statistics of each thread.
    assert!(parts[4].thread.starts_with("all "), "{parts:?}");
    assert_eq!(threads.iter().map(|p| p.calls).collect::<Vec<_>>(), [500; 4]);
    // The report gives different labels to threads that have the same name.
    let names: BTreeSet<_> = threads.iter().map(|p| &p.thread).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for part in &parts {
        assert_eq!(part.op.as_deref(), Some("nothing"));
        let (min, mean) = (part.number("duration_us", "min:"), part.number("duration_us", "mean:"));
        assert!(min.unwrap() <= mean.unwrap() && mean.unwrap() < 1e6, "{part:?}");
        let buckets = part.lines.iter().find(|l| l.starts_with("    4-ile means:")).unwrap();
        assert_eq!(buckets.split_whitespace().count(), 2 + 4);
    }
    assert!(dropped.left().is_empty(), "{:?}", dropped.left());
}

#[test]
fn several_counters() {
    let Some(dropped) = Dropped::new("hook counters") else { return };
    let directory = dropped.scratch.join("csv");
    std::fs::create_dir(&directory).unwrap();
    let variables = [
        ("PERF_EVENT_TYPES", "page-faults,task-clock,sim/a,readings=0:7/"),
        ("OUTPUT_CSV", directory.to_str().unwrap()),
        ("BUCKET_COUNT", "2"),
    ];
    let output = dropped.run(&mut host("touch 10 50"), &variables);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let (_, parts) = parts(&out(&output));
    let [part] = parts.as_slice() else { panic!("{}", out(&output)) };
    assert_eq!((part.thread.as_str(), part.op.as_deref(), part.calls), ("host", Some("touch"), 50));
    assert_eq!(part.number("page-faults", "mean:"), Some(10.0));
    assert_eq!(part.number("page-faults", "min:"), Some(10.0));
    assert!(part.number("task-clock", "mean:").unwrap() > 0.0);
    let lines = part.lines.join("\n");
    assert!(
        lines.contains(
            "conditional probability of duration_us 2-ile (↓) given page-faults 2-ile (→):"
        )
    );
    assert!(lines.contains("correlation of page-faults vs. task-clock"), "{lines}");
    // Each call has 10 page faults, and a constant is not correlated with anything.
    let constant =
        part.lines.iter().find(|l| l.contains("correlation of duration_us vs. page-faults"));
    assert!(constant.unwrap().contains(": –"), "{lines}");
    assert!(!lines.contains("NaN") && !lines.contains("nan"), "{lines}");

    let rows = csv(&directory.join("iree_hook_host.csv"));
    let header = "thread,cpu,node,duration_us,page-faults,task-clock,\"sim/a,readings=0:7/\",op";
    assert_eq!(rows[0].join(","), header);
    assert_eq!(rows.len(), 1 + 50);
    for row in &rows[1..] {
        assert_eq!((row[0].as_str(), row[4].as_str(), row[6].as_str()), ("host", "10", "7"));
        assert!(row[7].contains("touch"), "{row:?}");
        assert!(row[1].parse::<u32>().is_ok() && row[2].parse::<u32>().is_ok());
        let (us, on_cpu): (f64, u64) = (row[3].parse().unwrap(), row[5].parse().unwrap());
        assert!(us > 0.0 && on_cpu > 0, "{row:?}");
    }

    let quiet = [variables[0], ("NO_PROBABILITY_TABLE", "")];
    let output = dropped.run(&mut host("touch 10 50"), &quiet);
    assert!(!out(&output).contains("conditional probability"));
}

/// `IREE_HOOK_FILTER_NAME` is the exact name of an op: `*` and a prefix of a name match no op.
#[test]
fn the_filter_is_an_exact_name() {
    let Some(dropped) = Dropped::new("hook filter") else { return };
    let calls = |filter: &str| {
        let output = dropped.run(&mut host("grid"), &[("FILTER_NAME", filter)]);
        assert_eq!(output.status.code(), Some(0));
        let (_, parts) = parts(&out(&output));
        parts.iter().map(|p| (p.op.clone(), p.calls)).collect::<Vec<_>>()
    };
    assert_eq!(calls("spin"), [(None, 2)]);
    assert_eq!(calls("*"), []);
    assert_eq!(calls("sp"), []);
    let both = BTreeMap::from_iter(calls(""));
    let expected = BTreeMap::from([(Some("nothing".to_owned()), 12), (Some("spin".to_owned()), 2)]);
    assert_eq!(both, expected);
}

#[test]
fn calls_of_the_first_milliseconds_are_left_out() {
    let Some(dropped) = Dropped::new("hook skip") else { return };
    let calls = |ms: &str| {
        let output = dropped.run(&mut host("calls 200000"), &[("SKIP_START_MS", ms)]);
        let (_, parts) = parts(&out(&output));
        parts.iter().map(|p| p.calls).sum::<u64>()
    };
    assert_eq!(calls("0"), 200_000);
    assert!((1..200_000).contains(&calls("0.5")));
    assert_eq!(calls("3600000"), 0);
}

/// The hook prints one line about each counter that does not work.
#[test]
fn counters_that_do_not_work_are_left_out() {
    let Some(dropped) = Dropped::new("hook open") else { return };
    let types = "nonsense,page-faults,iTLB-stores,r10000000000000000,ex_ret_instr.x,mem:0x0/3";
    let variables = [("PERF_EVENT_TYPES", types), ("BUCKET_COUNT", "many")];
    let output = dropped.run(&mut host("touch 3 20"), &variables);
    assert_eq!(output.status.code(), Some(0));
    let (before, parts) = parts(&out(&output));
    assert_eq!(before, "touch 3 20 done");
    assert_eq!(parts[0].number("page-faults", "mean:"), Some(3.0));
    let words = err(&output);
    for name in ["nonsense", "iTLB-stores", "r10000000000000000", "ex_ret_instr.x", "mem:0x0/3"] {
        let line = words.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{words}"));
        assert!(line.starts_with("counterpoint: ") && line.contains("left out"), "{line}");
    }
    assert!(words.contains("IREE_HOOK_BUCKET_COUNT=many"), "{words}");
    assert_eq!(words.lines().count(), 6, "{words}");
}

/// When the program loads its first IREE executable, the hook prints the list of counters and ends
/// the program.
#[test]
fn the_list_ends_the_program() {
    let Some(dropped) = Dropped::new("hook list") else { return };
    let output = dropped.run(&mut host("calls 5"), &[("LIST_EVENT_TYPES", "1")]);
    assert_eq!(output.status.code(), Some(0));
    let text = out(&output);
    assert!(!text.contains("done"), "the program went on");
    let line = |name: &str| {
        let found = text.lines().find(|l| l.split(' ').next() == Some(name));
        found.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
    };
    for name in ["cpu-cycles", "task-clock", "LLC-load-misses", "dTLB-store-misses"] {
        assert_eq!(line(name)[40..44], *" [] ");
    }
    let amd = line("ls_any_fills_from_sys.all_dram_io");
    assert_eq!(amd[40..47], *" [AMD] ");
    assert!(amd.len() > 50);
    assert!(dropped.left().is_empty(), "{:?}", dropped.left());
    let output = dropped.run(Command::new("echo").arg("fine"), &[("LIST_EVENT_TYPES", "1")]);
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("fine\n", ""));
}

#[test]
fn a_program_without_executables_is_left_alone() {
    let Some(dropped) = Dropped::new("hook bystander") else { return };
    for mut command in [Command::new("true"), host("idle")] {
        let output = dropped.run(&mut command, &[("PERF_EVENT_TYPES", "nonsense")]);
        let alone = host("idle").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_empty() || output.stdout == alone.stdout);
        assert_eq!(err(&output), "");
    }
    let output = dropped.run(&mut host("calls 5"), &[]);
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("calls 5 0 done\n", ""));
    assert!(dropped.left().is_empty(), "{:?}", dropped.left());
}

/// The program `watchful` checks that the hook does not change the program's children, SIGCHLD,
/// timers, descriptors, signal mask or errno.
#[test]
fn the_program_does_not_notice() {
    let Some(dropped) = Dropped::new("hook watchful") else { return };
    let programs = Programs::get();
    for mode in ["plain", "ignore", "closed"] {
        let mut command = Command::new(&programs.watchful);
        command.arg(mode).arg(&programs.library);
        let output = dropped.run(&mut command, &[("PERF_EVENT_TYPES", "page-faults")]);
        assert_eq!(output.status.code(), Some(0), "{mode}: {}", err(&output));
        if mode != "closed" {
            let (before, parts) = parts(&out(&output));
            assert_eq!((before.as_str(), parts[0].calls), ("undisturbed", 100), "{mode}");
        }
        assert!(dropped.left().is_empty(), "{mode}: {:?}", dropped.left());
    }
}

#[test]
fn a_profile_left_by_a_crash_can_be_read() {
    let Some(dropped) = Dropped::new("hook crash") else { return };
    for (mode, calls) in [("abort 10", 10), ("_exit 10", 10)] {
        let output = dropped.run(&mut host(mode), &[("PERF_EVENT_TYPES", "page-faults")]);
        let alone = host(mode).output().unwrap();
        assert_eq!(output.status.code(), alone.status.code(), "{mode}");
        assert_eq!(output.status.signal(), alone.status.signal(), "{mode}");
        assert_eq!((&output.stdout, &output.stderr), (&alone.stdout, &alone.stderr), "{mode}");
        let left = dropped.left();
        let [profile] = left.as_slice() else { panic!("{mode}: {left:?}") };
        let report = |options: &[&str]| {
            let mut report = Command::new(&dropped.program);
            let output = report.arg("report").arg(profile).args(options).output().unwrap();
            assert!(output.status.success(), "{}", err(&output));
            output
        };
        let json = report(&["--format", "json"]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["total"]["calls"], calls, "{mode}");
        assert_eq!(json["profile"]["origin"], "hook");
        // `IREE_HOOK_PERF_EVENT_TYPES` names `page-faults` without a mode, and the hook adds `:u`
        // (user space only).
        assert_eq!(json["profile"]["counters"][0]["name"], "page-faults:u");
        assert!(out(&report(&[])).contains("the program crashed or was killed"));
        let mut recover = Command::new(&dropped.program);
        assert!(recover.arg("recover").arg(profile).output().unwrap().status.success());
        assert_eq!(profile::Manifest::read(profile).unwrap().pool, None, "collected");
        std::fs::remove_dir_all(profile).unwrap();
    }
}

/// When a program forks, only the parent prints a report, which contains the child's calls, too.
#[test]
fn children_record_and_do_not_print() {
    let Some(dropped) = Dropped::new("hook fork") else { return };
    let output = dropped.run(&mut host("fork"), &[("NO_PROBABILITY_TABLE", "1")]);
    let alone = host("fork").output().unwrap();
    assert_eq!(output.status.code(), alone.status.code());
    let (_, parts) = parts(&out(&output));
    let calls: Vec<u64> =
        parts.iter().filter(|p| !p.thread.starts_with("all ")).map(|p| p.calls).collect();
    // The child makes 200 calls, and the parent 450.
    assert_eq!(BTreeSet::from_iter(calls), BTreeSet::from([200, 450]), "{}", out(&output));
    assert!(dropped.left().is_empty(), "{:?}", dropped.left());
}

/// If `libcounterpoint.so` is installed without the program `counterpoint`, the library prints one
/// line, and the user's program runs as usual.
#[test]
fn the_library_alone_does_no_harm() {
    let Some(dropped) = Dropped::new("hook alone") else { return };
    let alone = dropped.scratch.join("libcounterpoint.so");
    std::fs::copy(dropped.library(), &alone).unwrap();
    let mut command = host("calls 5");
    let output = command.env("LD_PRELOAD", &alone).env("IREE_HOOK_GAMMA", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(out(&output), "calls 5 0 done\n");
    assert_eq!(err(&output), "counterpoint: no program counterpoint beside libcounterpoint.so\n");
}

/// The hook's variables are for programs that are started without `run`.
#[test]
fn under_run_the_hooks_variables_are_ignored() {
    let Some(dropped) = Dropped::new("hook under run") else { return };
    let programs = Programs::get();
    let output = Command::new(&dropped.program)
        .args(["run", "-e", "none", "-o"])
        .arg(dropped.scratch.join("p.cpt"))
        .arg("--")
        .arg(&programs.host)
        .arg(&programs.library)
        .args(["calls", "5"])
        .env("IREE_HOOK_LIST_EVENT_TYPES", "1")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "calls 5 0 done\n"));
    assert_eq!(profile::Profile::open(&dropped.scratch.join("p.cpt")).unwrap().calls(), 5);
}

/// The hook's report also covers stock IREE, which is built without IREE's original call hook.
#[test]
fn stock_iree_on_local_task() {
    let Some(dropped) = Dropped::new("hook iree") else { return };
    let Some(iree) = Iree::new("hook iree") else { return };
    let expected = Expected::of("mlp");
    let directory = dropped.scratch.join("csv");
    std::fs::create_dir(&directory).unwrap();
    let command = |name: &str| {
        let mut command = Command::new(iree.tool("iree-run-module"));
        command.arg(format!("--module={}", iree.module(name, false).display()));
        command.arg("--device=local-task").args(expected.arguments());
        command
    };
    let variables = [
        ("PERF_EVENT_TYPES", "page-faults,task-clock,context-switches"),
        ("OUTPUT_CSV", directory.to_str().unwrap()),
        ("BUCKET_COUNT", "4"),
    ];
    let output = dropped.run(&mut command("mlp"), &variables);
    let alone = command("mlp").env("TMPDIR", dropped.scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    assert!(text.starts_with(&out(&alone)), "{text}");
    let (_, parts) = parts(&text);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for part in parts.iter().filter(|p| !p.thread.starts_with("all ")) {
        assert!(part.thread.starts_with("iree-worker"), "{}", part.thread);
        *calls.entry(part.op.clone().unwrap()).or_default() += part.calls;
        assert!(part.number("task-clock", "mean:").unwrap() > 0.0, "{part:?}");
    }
    let ops: BTreeMap<String, u64> =
        expected.ops.iter().map(|(op, (calls, _))| (op.clone(), *calls)).collect();
    assert_eq!(calls, ops);
    let mut rows: BTreeMap<String, u64> = BTreeMap::new();
    for file in std::fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("iree_hook_iree-worker"), "{name}");
        let table = csv(&path);
        let header = "thread,cpu,node,duration_us,page-faults,task-clock,context-switches,op";
        assert_eq!(table[0].join(","), header);
        for row in &table[1..] {
            *rows.entry(row[7].clone()).or_default() += 1;
        }
    }
    assert_eq!(rows, ops);
    assert!(dropped.left().is_empty(), "{:?}", dropped.left());
}
