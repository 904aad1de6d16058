//! Tests the recorded numbers of iterations of single hits (executions of a whole loop). The
//! expected numbers follow from the source of the program (`tests/programs/loops/trips.c`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

use crate::support::{counterpoint, skip};

const ROUNDS: u64 = 20_000;

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Returns the numbers of iterations of one thread's hits of the loop in `work`, computed as in
/// `trips.c`.
fn planted() -> impl Iterator<Item = u64> {
    (0..ROUNDS).map(|r| if r < 100 { 1000 } else { r * 7919 % 9 })
}

/// Returns the bins of the expected histogram: the first and the last number of iterations in the
/// bin, and its hits.
fn histogram(threads: u64) -> Vec<(u64, u64, u64)> {
    let ranges = [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (512, 1023)];
    let hits = |(from, to)| planted().filter(|n| (from..=to).contains(n)).count() as u64;
    ranges.map(|(from, to)| (from, to, threads * hits((from, to)))).to_vec()
}

struct Planted {
    counterpoint: PathBuf,
    program: PathBuf,
    scratch: Scratch,
}

impl Planted {
    fn new(test: &str, mode: &str) -> Option<Self> {
        let counterpoint = counterpoint(test)?;
        let Some(clang) = testkit::c::clang(15) else {
            skip("loops_trips", &format!("{test} found no clang of LLVM 15 or later"));
            return None;
        };
        let scratch = Scratch::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = source.join("../../tests/programs/loops/trips.c").canonicalize().unwrap();
        let [text, instrumented, program] =
            ["t.ll", "t.lwp.ll", "t"].map(|name| scratch.join(name));
        // These options keep the test of a loop before its first iteration, so a hit can have no
        // iteration.
        let compile = ["-O1", "-fno-unroll-loops", "-mllvm", "-rotation-max-header-size=0"];
        let compile = [&compile[..], &["-g", "-S", "-emit-llvm", "-o"]].concat();
        output(Command::new(&clang).args(compile).arg(&text).arg(&source));
        output(
            Command::new(&counterpoint)
                .args(["loops", "instrument", "--min-height", "0", "--mode", mode])
                .arg(&text)
                .arg("-o")
                .arg(&instrumented),
        );
        let again = ["-O1", "-Xclang", "-disable-llvm-passes", "-pthread", "-o"];
        output(Command::new(&clang).args(again).arg(&program).arg(&instrumented));
        Some(Self { counterpoint, program, scratch })
    }

    /// Returns the profile's path.
    fn record(&self, options: &str, threads: u64) -> PathBuf {
        self.record_rounds(&[&format!("--loops={options}")], ROUNDS, threads)
    }

    fn record_rounds(&self, options: &[&str], rounds: u64, threads: u64) -> PathBuf {
        let profile = self.scratch.join(&format!("p{}.cpt", options.concat().len()));
        output(
            Command::new(&self.counterpoint)
                .arg("run")
                .args(options)
                .args(["-e", "none", "-o"])
                .arg(&profile)
                .arg("--")
                .arg(&self.program)
                .args([rounds.to_string(), threads.to_string()]),
        );
        profile
    }

    fn show(&self, profile: &Path, command: &[&str]) -> String {
        let shown = Command::new(env!("CARGO_BIN_EXE_counterpoint"))
            .args(command)
            .arg(profile)
            .output()
            .unwrap();
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        String::from_utf8(shown.stdout).unwrap()
    }

    fn report(&self, profile: &Path) -> Value {
        let text = self.show(profile, &["loops", "report", "--format", "json"]);
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the rows of the loops in `work` and `fixed`.
    fn rows(&self, profile: &Path) -> [Value; 2] {
        let document = self.report(profile);
        let rows = document["modules"][0]["rows"].as_array().unwrap().clone();
        ["work", "fixed"].map(|function| {
            let is_it = |row: &&Value| row["kind"] == "loop" && row["function"] == function;
            rows.iter().find(is_it).unwrap().clone()
        })
    }
}

fn buckets(row: &Value) -> Vec<(u64, u64, u64)> {
    let number = |value: &Value| value.as_u64().unwrap();
    let all = row["trips"]["histogram"].as_array().unwrap();
    all.iter().map(|b| (number(&b["from"]), number(&b["to"]), number(&b["hits"]))).collect()
}

fn every_hit(test: &str, mode: &str) {
    let Some(program) = Planted::new(test, mode) else { return };
    let threads = 3;
    let profile = program.record("trips", threads);
    let [work, fixed] = program.rows(&profile);
    let all: u64 = threads * planted().sum::<u64>();
    assert_eq!((&work["hits"], &work["iterations"]), (&(threads * ROUNDS).into(), &all.into()));
    assert_eq!((&work["trips"]["least"], &work["trips"]["most"]), (&0.into(), &1000.into()));
    assert_eq!(buckets(&work), histogram(threads));
    assert_eq!((&fixed["trips"]["least"], &fixed["trips"]["most"]), (&7.into(), &7.into()));
    assert_eq!(buckets(&fixed), [(4, 7, threads * ROUNDS)]);
    let text = program.show(&profile, &["loops", "report"]);
    assert!(text.contains("0 to 1,000"), "{text}");
    assert!(text.contains("512 to 1,023"), "{text}");
    let rows = program.show(&profile, &["export", "--what", "loops", "--format", "csv"]);
    let own: Vec<String> = histogram(1)
        .iter()
        .map(|(from, to, hits)| match from == to {
            true => format!("{from}:{hits}"),
            false => format!("{from}-{to}:{hits}"),
        })
        .collect();
    assert_eq!(rows.matches(&own.join(" ")).count() as u64, threads, "{rows}");
    let [work, fixed] = program.rows(&program.record("", threads));
    assert_eq!((&work["trips"], &fixed["trips"]), (&Value::Null, &Value::Null));
    assert_eq!(work["iterations"], all);
}

#[test]
fn trips_of_every_hit_when_timed() {
    every_hit("trips_of_every_hit_when_timed", "timed");
}

#[test]
fn trips_of_every_hit_when_counted() {
    every_hit("trips_of_every_hit_when_counted", "count");
}

/// The first 100 hits of the loop in `work` have a thousand iterations each, and the others have
/// four on average. On average, one in 64 of the others is timed, which makes 311 of 19,900. The
/// mean of these 311 hits has a standard error of 2.6 / √311 = 0.15 iterations. If the mean
/// included the first hits, the estimate would be more than twenty times the true number.
#[test]
fn first_hits_do_not_speak_for_the_others() {
    let Some(program) = Planted::new("first_hits_do_not_speak_for_the_others", "sampled") else {
        return;
    };
    let all: u64 = planted().sum();
    let others = (all - 100_000) as f64;
    for options in ["", "trips"] {
        let [work, fixed] = program.rows(&program.record(options, 1));
        assert_eq!((&work["hits"], &work["iterations"]), (&ROUNDS.into(), &Value::Null));
        let estimate = work["estimated_iterations"].as_f64().unwrap();
        assert!((estimate - all as f64).abs() < others / 6.0, "{estimate} of {all}: {work}");
        assert_eq!((&work["trips"]["least"], &work["trips"]["most"]), (&0.into(), &1000.into()));
        let counted = work["iterated_hits"].as_u64().unwrap();
        let buckets = buckets(&work);
        match options {
            "" => assert_eq!(buckets, []),
            _ => {
                assert_eq!(buckets.iter().map(|(.., hits)| hits).sum::<u64>(), counted);
                assert_eq!(buckets.last(), Some(&(512, 1023, 100)), "{work}");
            }
        }
        assert_eq!(fixed["estimated_iterations"].as_f64(), Some(7.0 * ROUNDS as f64));
        assert_eq!((&fixed["trips"]["least"], &fixed["trips"]["most"]), (&7.into(), &7.into()));
    }
}

/// The usual pool (the shared memory for counts) has too few pages for these threads;
/// `--max-threads` makes a larger one.
#[test]
fn more_threads_than_the_usual_pool_has_pages() {
    let Some(program) = Planted::new("more_threads_than_the_usual_pool_has_pages", "count") else {
        return;
    };
    let threads = record::pool::PAGES as u64 + 300;
    let alone = Command::new(&program.program).args(["1".to_owned(), threads.to_string()]).status();
    if alone.unwrap().code() == Some(3) {
        let why = format!("RLIMIT_NPROC or pids.max does not allow {threads} threads");
        return skip("loops_trips", &why);
    }
    let losses = |profile: &Path| {
        let document = program.report(profile);
        let losses = document["losses"].as_array().unwrap().clone();
        let of = |loss: &Value| (loss["name"].as_str().unwrap().to_owned(), loss["count"].as_u64());
        losses.iter().map(of).collect::<Vec<_>>()
    };
    let large = ["--loops", "--max-threads", &threads.to_string()];
    let profile = program.record_rounds(&large, 10, threads);
    assert_eq!(losses(&profile), []);
    let [work, fixed] = program.rows(&profile);
    assert_eq!(
        (&work["hits"], &work["iterations"]),
        (&(threads * 10).into(), &(threads * 10_000).into())
    );
    assert_eq!((&fixed["hits"], &fixed["threads"]), (&(threads * 10).into(), &threads.into()));
    // Each thread without room is one loss, because there is only one module.
    let profile = program.record_rounds(&["--loops"], 10, threads);
    let [work, _] = program.rows(&profile);
    let recorded = work["hits"].as_u64().unwrap() / 10;
    assert!(recorded <= record::pool::PAGES as u64, "{recorded}");
    assert_eq!(losses(&profile), [("loop_no_room".to_owned(), Some(threads - recorded))]);
}
