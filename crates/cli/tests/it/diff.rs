//! Tests `diff` on scripted profiles whose differences are known, and `run --repeat` with real
//! programs.
//!
//! above 600 lines: the tests of one command, which share one scripted series.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use profile::manifest::{Exit, Manifest, Place, Side};
use profile::series::{SERIES_SCHEMA, Series};
use record::meta::ProcessCost;
use serde_json::Value;
use testkit::{CallScript, Golden, ProfileScript, Scratch};

use crate::support::counterpoint;

fn golden(scratch: &Scratch) -> Golden {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/diff");
    let program = env!("CARGO_BIN_EXE_counterpoint");
    Golden::new(program, root).scrub(scratch.path().display().to_string(), "DIR")
}

/// Returns a profile with 20 iterations. In each, matmul has two workgroups of about `matmul` ns,
/// and softmax takes 3,000 ns. One tick is 1 ns. Each workgroup of matmul has 4 + `more` page
/// faults.
fn script(side: Side, round: u32, matmul: u64, more: u64) -> ProfileScript {
    with_softmax(side, round, matmul, more, 20)
}

/// Does what [`script`] does, but only the first `softmax` iterations have a softmax.
fn with_softmax(side: Side, round: u32, matmul: u64, more: u64, softmax: u64) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    script.manifest.command = vec!["./model".into(), side.name().to_lowercase()];
    script.manifest.labels.insert("commit".into(), format!("c{}", side.name()));
    script.manifest.exit = Some(Exit { code: Some(0), ..Exit::default() });
    script.manifest.series =
        Some(Place { series: "5e".repeat(16), side, round, position: 1, seed: 7 });
    let process = script.process(4711);
    process.library("model_linked", &["matmul_64", "softmax_64"]);
    let main = process.thread("main");
    for i in 0..20u64 {
        let at = 1_000_000 + 100_000 * i;
        // The durations differ by up to 40 ns, in the same way in each run.
        let long = matmul + 10 * (i % 5);
        for workgroup in 0..2 {
            let begin = at + 20_000 * u64::from(workgroup);
            let call = CallScript::new(0, begin, long).workgroup(workgroup, 2);
            main.call(call.group(long, &[4 + more]));
        }
        if i < softmax {
            main.call(CallScript::new(1, at + 50_000, 3_000).group(3_000, &[0]));
        }
    }
    script
}

/// Writes a series in which a workgroup of matmul takes about 10,000 ns in A and about `b` ns in B.
/// Rounds differ by up to ± 1 %, and the two runs of a round additionally by up to 0.16 %.
fn series(at: &Path, rounds: u32, b: u64, more: u64) {
    let plan = Series {
        schema: SERIES_SCHEMA.to_owned(),
        id: "5e".repeat(16),
        rounds,
        seed: 7,
        commands: vec![vec!["./model".into(), "a".into()], vec!["./model".into(), "b".into()]],
        ..Series::default()
    };
    std::fs::create_dir_all(at).unwrap();
    plan.write(at).unwrap();
    for round in 1..=rounds {
        let shared = 990 + u64::from(round) * 7 % 20;
        let own = u64::from(round) * 13 % 5;
        let scaled = |ns: u64, own: u64| ns * (shared * 10 + own * 4) / 10_000;
        script(Side::A, round, scaled(10_000, own), 0).write(&Series::run_at(at, round, Side::A));
        script(Side::B, round, scaled(b, 4 - own), more).write(&Series::run_at(at, round, Side::B));
    }
}

#[test]
fn every_format() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 1);
    let at = at.to_str().unwrap();
    golden.check("text", 0, &["diff", at, "--width", "80"]);
    golden.check("wide", 0, &["diff", at]);
    golden.check("markdown", 0, &["diff", at, "--format", "markdown"]);
    golden.check("csv", 0, &["diff", at, "--format", "csv"]);
    golden.check("json", 0, &["diff", at, "--format", "json"]);
    golden.check("by-site", 0, &["diff", at, "--by", "site", "--width", "80"]);
    golden.check("filter", 0, &["diff", at, "--filter", "soft*", "--width", "80"]);
    golden.check("no-match", 1, &["diff", at, "--filter", "conv*", "--width", "80"]);
    golden.check("no-loops", 2, &["diff", at, "--by", "loop"]);
    golden.check("alone", 2, &["diff", &format!("{at}/001/a")]);
}

/// In each pair, the workgroups of matmul take 4,000 ns longer in one of the runs: in A in odd
/// rounds, and in B in even rounds.
#[test]
fn noisy_runs_that_are_short_should_be_longer() {
    let scratch = Scratch::new();
    let at = scratch.join("x.series");
    series(&at, 8, 10_000, 0);
    let golden = golden(&scratch);
    let said = |at: &Path| golden.run(&["diff", at.to_str().unwrap(), "--width", "80"]).stdout;
    assert!(!said(&at).contains("short runs"), "{}", said(&at));
    for round in 1..=8 {
        for (side, disturbed) in [(Side::A, round % 2), (Side::B, (round + 1) % 2)] {
            let run = Series::run_at(&at, round, side);
            std::fs::remove_dir_all(&run).unwrap();
            script(side, round, 10_000 + 4_000 * u64::from(disturbed), 0).write(&run);
        }
    }
    let said = said(&at);
    assert!(
        said.contains("too noisy") && said.contains("short runs: the calls of a run"),
        "{said}"
    );
}

/// B uses a tenth less processor time, although its calls take as long.
#[test]
fn processor_time_is_said_beside_the_whole() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 10_000, 0);
    for round in 1..=8 {
        for (side, used) in [(Side::A, 1_000_000_000), (Side::B, 900_000_000)] {
            let mut script = script(side, round, 10_000, 0);
            // The processor time differs by up to ± 1 % between rounds.
            let process_cpu_ns = used / 100 * (99 + u64::from(round) % 3);
            script.processes[0].cost = Some(ProcessCost { process_cpu_ns, ..Default::default() });
            let run = Series::run_at(&at, round, side);
            std::fs::remove_dir_all(&run).unwrap();
            script.write(&run);
        }
    }
    let at = at.to_str().unwrap();
    let json = golden.run(&["diff", at, "--format", "json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let found = &json["processor"];
    assert_eq!(found["verdict"], "less", "{found}");
    let change = found["change"].as_f64().unwrap();
    assert!((change + 0.1).abs() < 0.005, "{found}");
    assert_eq!(found["statistics"][0]["statistic"], "processor_time", "{found}");
    assert_ne!(json["whole"]["verdict"], "faster");
    for format in ["text", "markdown"] {
        let text = golden.run(&["diff", at, "--format", format, "--width", "200"]).stdout;
        let line = text.lines().find(|line| line.contains("processor time:")).unwrap();
        assert!(line.contains(" of a whole run, start and end included: "), "{line}");
        assert!(line.ends_with(" less"), "{line}");
    }
    let file = scratch.join("x.html");
    golden.run(&["diff", at, "--html", file.to_str().unwrap()]);
    let page = std::fs::read_to_string(&file).unwrap();
    let head: Value = serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap();
    let rows = head["compare"]["whole"]["rows"].as_array().unwrap();
    let is_named = |row: &&Value| row[0].as_str().is_some_and(|name| name.starts_with("processor"));
    let at = rows.iter().position(|row| is_named(&row)).unwrap();
    assert!(rows[at][1].as_str().unwrap().ends_with(" less"), "{}", rows[at]);
    let mark = &head["compare"]["whole"]["plots"][0]["rows"][at];
    assert_eq!(mark["kind"], "less", "{mark}");
}

#[test]
fn the_page_says_what_the_text_says() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 1);
    let (at, file) = (at.to_str().unwrap(), scratch.join("x.html"));
    let made = golden.run(&["diff", at, "--html", file.to_str().unwrap()]);
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{}", made.stderr);
    let page = std::fs::read_to_string(&file).unwrap();
    let head: Value = serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap();
    let compare = &head["compare"];
    let text = golden.run(&["diff", at]).stdout;
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = squeezed(&text);
    let mut texts = vec![compare["answer"].as_str().unwrap().to_owned()];
    let cell = |cell: &Value| match cell {
        Value::Array(both) => Some(both[0].as_str().unwrap().to_owned()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    for table in ["rows", "whole"] {
        let table = &compare[table];
        let rows = table["rows"].as_array().unwrap();
        assert!(rows.len() >= 2, "{table}");
        for row in rows {
            let name = usize::from(table["id"] == "whole");
            texts.extend(row.as_array().unwrap()[name..].iter().filter_map(cell));
        }
        for plot in table["plots"].as_array().unwrap() {
            assert_eq!(plot["rows"].as_array().unwrap().len(), rows.len());
        }
    }
    for lines in ["runs", "notes"] {
        let lines = compare[lines].as_array().unwrap();
        assert!(!lines.is_empty());
        texts.extend(lines.iter().map(|line| line[1].as_str().unwrap().to_owned()));
    }
    let counters = compare["counters"].as_array().unwrap();
    texts.extend(counters[0][1].as_array().unwrap().iter().filter_map(cell));
    for one in texts.iter().filter(|text| !["not tested", "whole"].contains(&text.as_str())) {
        let is_of_whole = one.starts_with("faster") && !printed.contains(one);
        let one = if is_of_whole { one.replace("faster ", "B is faster: ") } else { one.clone() };
        assert!(printed.contains(&squeezed(&one)), "{one:?} is not in\n{text}");
    }
    // matmul is 11.97 % faster, so its mark in the page's plot is left of the middle.
    let mark = &compare["rows"]["plots"][0]["rows"][0];
    assert_eq!(mark["kind"], "faster");
    let place = |value: &Value| value.as_f64().unwrap();
    let [low, high] = [0, 1].map(|end| place(&mark["ends"][end]));
    assert!(low <= place(&mark["at"]) && place(&mark["at"]) <= high && high < 0.5, "{mark}");
    let json = golden.run(&["diff", at, "--format", "json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let log = |key: &str| json["rows"][0][key].as_f64().unwrap().ln_1p();
    let scale = (place(&mark["at"]) - 0.5) / log("change");
    assert!((low - 0.5 - scale * log("change_low")).abs() < 1e-9, "{mark}");
    let text = mark["text"].as_str().unwrap();
    assert!(text.starts_with("−12.0 % [−12.") && text.ends_with(" %]"), "{mark}");
    let refused = golden.run(&["diff", at, "--html", "x.html", "--top", "3"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

/// `run` exits with the status of its program, even if the page cannot be written at the end.
#[test]
fn run_writes_the_page_of_what_it_recorded() {
    let Some(counterpoint) = counterpoint("run_writes_the_page_of_what_it_recorded") else {
        return;
    };
    let scratch = Scratch::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&counterpoint);
        command.current_dir(scratch.path()).args(["run", "-e", "none"]).args(arguments);
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let head = |page: &str| -> Value {
        let page = std::fs::read_to_string(scratch.join(page)).unwrap();
        serde_json::from_slice(&crate::page_data::block(&page, "head")).unwrap()
    };
    let (code, said) = run(&["-o", "a.cpt", "--html", "a.html", "--", "sh", "-c", "exit 3"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("wrote ") && said.contains("a.html ("), "{said}");
    assert_eq!(head("a.html")["program"], "sh");
    // The program removes the directory for the page.
    std::fs::create_dir(scratch.join("out")).unwrap();
    let (code, said) =
        run(&["-o", "b.cpt", "--html", "out/b.html", "--", "sh", "-c", "rmdir out; exit 4"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("out/b.html") && !said.contains("wrote "), "{said}");
    assert!(Manifest::read(&scratch.join("b.cpt")).is_ok());
    for wrong in ["nowhere/c.html", ".", "-", "/dev/stdout", "/dev/fd/2"] {
        let (code, said) = run(&["-o", "c.cpt", "--html", wrong, "--", "touch", "started"]);
        assert_eq!(code, Some(2), "{wrong}: {said}");
        assert!(!scratch.join("started").exists() && !scratch.join("c.cpt").exists());
    }
    // With `--repeat`, the page of one program shows its last run, and the page of two programs
    // compares them.
    let (code, said) = run(&["-o", "d.series", "--repeat", "2", "--html", "d.html", "--", "true"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(head("d.html")["compare"], Value::Null);
    assert!(!said.contains("pairs"), "{said}");
    let two = ["-o", "e.series", "--repeat", "2", "--against", "false", "--html", "e.html"];
    let (code, said) = run(&[two.as_slice(), &["--", "true"]].concat());
    assert!(code == Some(1) && !scratch.join("e.html").exists(), "nothing to compare: {said}");
    assert!(said.contains("e.html: was not written, because no round is complete"), "{said}");
    let two = ["-o", "h.series", "--repeat", "2", "--against", "sleep 0", "--html", "h.html"];
    let (code, said) = run(&[two.as_slice(), &["--", "true"]].concat());
    assert!(code == Some(0) && !scratch.join("h.html").exists(), "{said}");
    assert!(said.contains("no run has ops to compare") && !said.contains("--by op"), "{said}");
    let toy = crate::toy_host::host().get_program().to_str().unwrap().to_owned();
    let against = format!("--against='{toy}'");
    let two = ["-o", "f.series", "--repeat", "2", &against, "--html=-f.html"];
    let (code, said) = run(&[two.as_slice(), &["--", &toy]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("wrote ") && said.contains("-f.html ("), "{said}");
    assert_ne!(head("-f.html")["compare"], Value::Null);
    assert!(said.contains("`diff` tests nothing with fewer than 6 pairs (--repeat 6)"), "{said}");
    // B removes the program of A in the first round.
    let away = "--against=sh -c 'rm -f tool'";
    std::fs::copy("/bin/true", scratch.join("tool")).unwrap();
    let series = ["-o", "g.series", "--repeat", "3", "--warm-up", "0", away, "--html", "g.html"];
    let (code, said) = run(&[series.as_slice(), &["--", "./tool"]].concat());
    assert_eq!(code, Some(127), "{said}");
    assert!(said.contains("g.html: was not written"), "{said}");
}

/// The page's file is a pipe that nobody reads, so without the signal the writing process would
/// wait for ever.
#[test]
fn a_signal_ends_the_writing_of_the_page() {
    let Some(counterpoint) = counterpoint("a_signal_ends_the_writing_of_the_page") else { return };
    let scratch = Scratch::new();
    assert!(Command::new("mkfifo").arg(scratch.join("page")).status().unwrap().success());
    let mut command = Command::new(&counterpoint);
    command.current_dir(scratch.path()).stderr(Stdio::piped());
    command.args(["run", "-e", "none", "-o", "a.cpt", "--html", "page", "--", "true"]);
    let mut run = command.spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("a.cpt: "), "{line}");
    let told = Command::new("kill").arg(run.id().to_string()).status().unwrap();
    assert!(told.success());
    let since = Instant::now();
    let status = loop {
        if let Some(status) = run.try_wait().unwrap() {
            break status;
        }
        if since.elapsed() > Duration::from_secs(60) {
            // Opening and closing the pipe ends the process that writes the page.
            drop(std::fs::File::open(scratch.join("page")));
            run.kill().unwrap();
            panic!("it still waits");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    line.clear();
    said.read_to_string(&mut line).unwrap();
    assert_eq!(status.code(), Some(0), "that of the program: {line}");
    assert!(line.contains("page: the program that writes it ended with signal: 15"), "{line}");
}

#[test]
fn the_numbers_are_those_of_the_script() {
    let scratch = Scratch::new();
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 1);
    let found = golden(&scratch).json(&["diff", at.to_str().unwrap(), "--format", "json"]);
    let row = &found["rows"][0];
    assert_eq!((&row["name"], &row["verdict"]), (&"matmul_64".into(), &"faster".into()));
    // Typical calls take 10,020 ns in A and 8,820 ns in B. The ratio is 0.88024.
    let change = row["change"].as_f64().unwrap();
    assert!((change + 0.1197).abs() < 0.001, "{change}");
    let low = row["change_low"].as_f64().unwrap();
    let high = row["change_high"].as_f64().unwrap();
    assert!(-0.123 < low && low <= change && change <= high && high < -0.117, "{low} {high}");
    // In B, each of the 2 · 20 workgroups of matmul is 1,200 ns shorter, which is 48,000 ns in a
    // run.
    let part = row["part"]["ns"].as_f64().unwrap();
    assert!((part + 48_000.0).abs() < 300.0, "{part}");
    assert_eq!(row["counters"][0]["result"], "fact");
    assert_eq!(row["counters"][0]["sums"], serde_json::json!(["160", "200"]));
    assert_eq!(found["rows"][1]["verdict"], "same");
    assert_eq!(found["rows"][1]["counters"][0]["result"], "equal");
    assert!(found["answer"].as_str().unwrap().ends_with("from matmul_64 alone."));
}

#[test]
fn a_gate_fails_only_if_the_interval_is_above_the_limit() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    // B is about 6 % slower.
    series(&at, 8, 10_600, 1);
    let at = at.to_str().unwrap();
    let failing = |rule: &str| golden.run(&["diff", at, "--fail-if", rule]);
    let code = |rule: &str| failing(rule).code;
    assert_eq!(code("5%"), Some(3));
    assert_eq!(code("*matmul*>5%"), Some(3));
    assert_eq!(code("whole>4%"), Some(3));
    assert_eq!(code("counter:page-faults>20%"), Some(3));
    assert_eq!(code("7%"), Some(0));
    assert_eq!(code("soft*>0%"), Some(0));
    assert_eq!(code("counter:page-faults>25%"), Some(0));
    assert_eq!(code("conv*>1%"), Some(2));
    assert_eq!(code("counter:cycles>1%"), Some(2));
    let said = failing("*matmul*>5%").stderr;
    assert!(said.contains("--fail-if '*matmul*>5%': matmul_64 is slower by at least 5."), "{said}");
}

#[test]
fn a_gate_of_which_nothing_is_known_is_an_error() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 10_600, 1);
    // Round 2 of B has no softmax.
    let without = Series::run_at(&at, 2, Side::B);
    std::fs::remove_dir_all(&without).unwrap();
    with_softmax(Side::B, 2, 10_600, 1, 0).write(&without);
    let run = |rule: &str| golden.run(&["diff", at.to_str().unwrap(), "--fail-if", rule]);
    let refused = run("soft*>5%");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let why = "--fail-if 'soft*>5%': no row that matches is in all runs of both sides";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert_eq!(run("*>5%").code, Some(3));
    assert_eq!(run("whole>50%").code, Some(0));
}

/// Without the pages of two runs of B, a note says which data are missing.
#[test]
fn what_runs_lack_is_said() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 0);
    let said = || golden.run(&["diff", at.to_str().unwrap(), "--width", "200"]).stdout;
    assert!(!said().contains("torn_page"), "{}", said());
    for round in [3, 5] {
        let run = Series::run_at(&at, round, Side::B);
        let part = std::fs::read_dir(run.join("processes")).unwrap().next().unwrap().unwrap();
        let pages = std::fs::File::options().write(true).open(part.path().join("pages.cps"));
        let pages = pages.unwrap();
        pages.set_len(pages.metadata().unwrap().len() / 2).unwrap();
    }
    let said = said();
    let expected = "torn_page in 2 of 16 runs, first in DIR/x.series/003/b: ";
    assert!(said.contains(expected), "{said}");
}

/// In the last rounds, B has softmax half as often. So the runs of B differ in their numbers of
/// calls.
#[test]
fn calls_of_both_sides_are_shown_if_they_differ() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 0);
    for round in 3..=8 {
        let run = Series::run_at(&at, round, Side::B);
        std::fs::remove_dir_all(&run).unwrap();
        with_softmax(Side::B, round, 8_800, 0, 10).write(&run);
    }
    let said = golden.run(&["diff", at.to_str().unwrap(), "--width", "200"]).stdout;
    let softmax = said.lines().find(|line| line.starts_with("softmax")).unwrap_or_default();
    let words: Vec<&str> = softmax.split_whitespace().collect();
    assert!(said.contains("calls A  calls B"), "{said}");
    assert!(words.windows(2).any(|pair| pair == ["20", "10"]), "{said}");
}

/// B calls softmax 10 times instead of 20, and each call takes about 410 instead of 310 ns. So the op
/// takes 2.09 µs less in a run of B.
#[test]
fn a_row_with_fewer_calls_is_judged_by_what_they_take_together() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 10_000, 0);
    for round in 1..=8 {
        for (side, calls) in [(Side::A, 20), (Side::B, 10)] {
            let run = Series::run_at(&at, round, side);
            std::fs::remove_dir_all(&run).unwrap();
            // In each second round, it is B in which matmul takes 4 % more.
            let matmul = 10_000 + 400 * ((u64::from(round) + calls) / 2 % 2);
            let mut script = with_softmax(side, round, matmul, 0, 0);
            let main = &mut script.processes[0].threads[0];
            let long = if side == Side::A { 300 } else { 400 } + 2 * u64::from(round);
            for i in 0..calls {
                let begin = 1_050_000 + 100_000 * i;
                main.call(CallScript::new(1, begin, long).group(long, &[0]));
            }
            script.write(&run);
        }
    }
    let at = at.to_str().unwrap();
    let said = golden.run(&["diff", at, "--width", "80"]).stdout;
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "softmax_64 is faster 33.8 % in a run (10 instead of 20).";
    assert!(words.starts_with("It cannot be told whether B is slower or faster"), "{said}");
    assert!(words.contains(expected), "{said}");
    let in_table = "softmax_64 6.18 µs faster 33.8 % in a run (10 instead of 20) −2.09 µs";
    assert!(words.contains(in_table), "{said}");
    assert!(words.contains("and all calls where their number differs, add −2.09 µs"), "{said}");
    assert!(!said.contains("counters:"), "{said}");
    assert_eq!(golden.run(&["diff", at, "--fail-if", "soft*>5%"]).code, Some(0));
    let json = golden.run(&["diff", at, "--format", "json"]).stdout;
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["factor"], Value::Null);
    let row = found["rows"].as_array().unwrap().iter().find(|row| row["name"] == "softmax_64");
    let row = row.unwrap();
    assert_eq!((&row["verdict"], &row["statistic"]), (&"faster".into(), &"run".into()));
    assert_eq!(row["other_executions"], serde_json::json!([20.0, 10.0]));
    // Each iteration's matmul has the same page faults on both sides, and softmax has none.
    assert_eq!(golden.run(&["diff", at, "--fail-if", "counter:page-faults>0%"]).code, Some(0));
    // In the other direction, all of them take longer, although each takes less time.
    let back: Vec<PathBuf> = [Side::B, Side::A]
        .into_iter()
        .flat_map(|side| (1..=8).map(move |round| (side, round)))
        .map(|(side, round)| Series::run_at(Path::new(at), round, side))
        .collect();
    let back: Vec<&str> = back.iter().map(|path| path.to_str().unwrap()).collect();
    let args =
        [&["diff", "--paired", "--fail-if", "soft*>5%"], &back[..8], &["--against"], &back[8..]]
            .concat();
    let said = golden.run(&args);
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    assert!(said.stderr.contains("softmax_64 is slower by at least 5"), "{}", said.stderr);
    assert!(said.stderr.contains("% in a run"), "{}", said.stderr);
}

/// A run that is named twice is an error, even if the two paths are written differently.
#[test]
fn a_run_counts_once() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 2, 8_800, 0);
    let run = |round, side| Series::run_at(&at, round, side).display().to_string();
    let (a, b) = (run(1, Side::A), run(1, Side::B));
    let again = format!("{}/../a", Series::run_at(&at, 1, Side::A).display());
    for again in [&a, &again] {
        let output = golden.run(&["diff", &a, again, "--against", &b, &run(2, Side::B)]);
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(output.stderr.contains("the same run twice"), "{}", output.stderr);
    }
}

/// While a command records a series, it has a lock on `series.json`.
#[test]
fn a_series_is_not_moved_while_it_is_recorded() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 1, 8_800, 0);
    let file = std::fs::File::open(at.join("series.json")).unwrap();
    file.lock().unwrap();
    let arguments =
        ["run", "-e", "none", "--repeat", "1", "-o", at.to_str().unwrap(), "--", "true"];
    let output = golden.run(&arguments);
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    let why = "a series is still being recorded into it";
    assert!(output.stderr.contains(why), "{}", output.stderr);
    assert!(Series::is_at(&at) && !scratch.join("x.series.old").exists());
}

#[test]
fn without_pairs_nothing_is_tested() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 0);
    let run = |round, side| Series::run_at(&at, round, side).display().to_string();
    let (a, b) = (run(1, Side::A), run(2, Side::B));
    golden.check("unpaired", 0, &["diff", &a, "--against", &b, "--width", "80"]);
    golden.check("unpaired-gate", 2, &["diff", &a, "--against", &b, "--fail-if", "5%"]);
    let few: Vec<String> = (1..=5).map(|round| run(round, Side::A)).collect();
    let other: Vec<String> = (1..=5).map(|round| run(round, Side::B)).collect();
    let words = |few: &[String], other: &[String], more: &[&str]| {
        let mut all = vec!["diff".to_owned()];
        all.extend(few.iter().cloned());
        all.push("--against".to_owned());
        all.extend(other.iter().cloned());
        all.extend(more.iter().map(|word| (*word).to_owned()));
        all.extend(["--format", "json"].map(str::to_owned));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let output = golden.run(&all);
        serde_json::from_str::<Value>(&output.stdout).unwrap()
    };
    // The profiles say that the runs are pairs.
    let found = words(&few, &other, &[]);
    assert_eq!((&found["untested"], &found["pairs"]), (&"too_few_pairs".into(), &5.into()));
    // A run of A has no partner, or the sides are exchanged.
    assert_eq!(words(&few, &other[1..], &[])["untested"], "not_paired");
    assert_eq!(words(&other, &few, &[])["untested"], "not_paired");
    assert_eq!(words(&other, &few, &["--paired"])["pairs"], 5);
}

/// Softmax is new in B and adds the most time.
#[test]
fn rows_of_one_side_come_last_and_the_parts_add_up() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 10_100, 0);
    for round in 1..=8 {
        let place = Series::run_at(&at, round, Side::A);
        std::fs::remove_dir_all(&place).unwrap();
        with_softmax(Side::A, round, 10_000, 0, 0).write(&place);
    }
    let at = at.to_str().unwrap();
    let found: Value =
        serde_json::from_str(&golden.run(&["diff", at, "--format", "json"]).stdout).unwrap();
    let names: Vec<&str> =
        found["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["matmul_64", "softmax_64"]);
    let ns = |part: &str| found["whole"][part]["ns"].as_f64().unwrap();
    assert!((ns("explained") + ns("remainder") - ns("difference")).abs() < 1e-6, "{found}");
    let text = golden.run(&["diff", at, "--width", "200"]).stdout;
    assert!(text.contains("in calls of a run (medians); the differences of pairs have the mean +"));
}

/// Round 8 has no run of B, and Ctrl-C ended A in round 3.
#[test]
fn incomplete_rounds_are_left_out() {
    let scratch = Scratch::new();
    let golden = golden(&scratch);
    let at = scratch.join("x.series");
    series(&at, 8, 8_800, 0);
    std::fs::remove_dir_all(Series::run_at(&at, 8, Side::B)).unwrap();
    let ended = Series::run_at(&at, 3, Side::A);
    let mut manifest = Manifest::read(&ended).unwrap();
    manifest.exit = Some(Exit { signal: Some(2), ..Exit::default() });
    manifest.write(&ended).unwrap();
    let found = golden.json(&["diff", at.to_str().unwrap(), "--format", "json"]);
    assert_eq!(found["pairs"], 6);
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.ends_with("6 of 8 rounds are complete; the others are left out"), "{note}");
    golden.check("report-of-a-series", 2, &["report", at.to_str().unwrap()]);
}

fn places(series: &Path, rounds: u32, side: Side) -> Vec<Place> {
    let at = |round| Series::run_at(series, round, side);
    (1..=rounds).map(|round| Manifest::read(&at(round)).unwrap().series.unwrap()).collect()
}

#[test]
fn pairs_run_in_the_order_that_the_seed_says() {
    let Some(program) = counterpoint("diff: pairs in order") else { return };
    let scratch = Scratch::new();
    let out = scratch.join("log");
    let record = |name: &str, seed: &str| -> (PathBuf, String) {
        let at = scratch.join(name);
        let _ = std::fs::remove_file(&out);
        let output = Command::new(&program)
            .args(["run", "-e", "none", "--repeat", "6", "--seed", seed, "--label", "commit=1a2b"])
            .args(["--against", &format!("sh -c 'echo B >> {}'", out.display()), "-o"])
            .arg(&at)
            .args(["--", "sh", "-c", &format!("echo A >> {}", out.display())])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (at, std::fs::read_to_string(&out).unwrap().replace('\n', ""))
    };
    let (first, order) = record("first", "5");
    let (_, again) = record("again", "5");
    assert_eq!(order, again);
    // The warm-up and each of the six rounds have one run of each program.
    assert_eq!((&order[..2], order.len()), ("AB", 14));
    let rounds: Vec<&str> = (1..7).map(|round| &order[2 * round..2 * round + 2]).collect();
    assert!(rounds.contains(&"AB") && rounds.contains(&"BA"), "{rounds:?}");
    let (a, b) = (places(&first, 6, Side::A), places(&first, 6, Side::B));
    for (round, (a, b)) in a.iter().zip(&b).enumerate() {
        assert_eq!((a.round, b.round, a.seed), (round as u32 + 1, round as u32 + 1, 5));
        assert_eq!(a.series, b.series);
        let expected = if rounds[round] == "AB" { (1, 2) } else { (2, 1) };
        assert_eq!((a.position, b.position), expected);
    }
    let manifest = Manifest::read(&Series::run_at(&first, 1, Side::B)).unwrap();
    assert_eq!(manifest.labels["commit"], "1a2b");
    assert!(!first.join("warm-up").exists());
    record("first", "6");
    assert!(Series::is_at(&scratch.join("first.old")));
}

#[test]
fn a_signal_in_the_warm_up_is_called_one_and_leaves_nothing() {
    let Some(counterpoint) = counterpoint("diff: signal in the warm-up") else { return };
    let scratch = Scratch::new();
    // The program sends the signal to `run`, ignores it itself, and succeeds.
    let output = Command::new(&counterpoint)
        .args(["run", "-e", "none", "--repeat", "2", "-o", "x.series", "--"])
        .args(["sh", "-c", "trap '' INT; kill -INT $PPID; exit 0"])
        .current_dir(scratch.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("the warm-up of A: signal 2; the series ends here"), "{said}");
    assert!(!scratch.join("x.series").exists());
}

#[test]
fn a_series_goes_where_it_is_told() {
    let Some(counterpoint) = counterpoint("diff: place of a series") else { return };
    let scratch = Scratch::new();
    for (at, options) in
        [("counterpoint.series", &[] as &[&str]), ("counterpoint.cpt", &["-o", "counterpoint.cpt"])]
    {
        let output = Command::new(&counterpoint)
            .args(["run", "-e", "none", "--repeat", "1", "--warm-up", "0"])
            .args(options)
            .args(["--", "true"])
            .current_dir(scratch.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(Series::is_at(&scratch.join(at)), "{at}");
    }
}

#[test]
fn a_series_ends_with_the_program_that_fails() {
    let Some(counterpoint) = counterpoint("diff: failing program") else { return };
    let scratch = Scratch::new();
    let (at, count) = (scratch.join("x.series"), scratch.join("count"));
    let program = format!("echo >> {0}; [ $(wc -l < {0}) -lt 4 ]", count.display());
    let output = Command::new(counterpoint)
        .args(["run", "-e", "none", "--repeat", "9", "-o"])
        .arg(&at)
        .args(["--", "sh", "-c", &program])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("round 3 of 9, A: exit status: 1; the series ends here"), "{said}");
    assert!(said.contains("x.series: 2 runs of 9"), "{said}");
}

#[test]
fn an_interrupted_series_keeps_its_complete_pairs() {
    let Some(counterpoint) = counterpoint("diff: interrupted") else { return };
    let scratch = Scratch::new();
    let (at, count) = (scratch.join("x.series"), scratch.join("count"));
    // The warm-up consists of the first two runs, so the seventh run is in the third round.
    let program =
        format!("echo >> {0}; [ $(wc -l < {0}) -lt 7 ] || exec sleep 60", count.display());
    let mut run = Command::new(counterpoint);
    run.args(["run", "-e", "none", "--repeat", "9", "-o"]).arg(&at);
    run.args(["--against", &format!("sh -c '{program}'"), "--", "sh", "-c", &program]);
    run.stderr(std::process::Stdio::piped()).process_group(0);
    let child = run.spawn().unwrap();
    let lines = || std::fs::read_to_string(&count).map_or(0, |text| text.lines().count());
    for _ in 0..600 {
        if lines() == 7 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(lines(), 7);
    std::thread::sleep(std::time::Duration::from_millis(200));
    // The test sends the signal to the whole process group, as a terminal does.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("x.series: 2 pairs of 9"), "{said}");
    let series = Series::read_in(&profile::safe_dir::Dir::open(&at).unwrap()).unwrap();
    assert_eq!(series.complete(&at).len(), 2);
}
