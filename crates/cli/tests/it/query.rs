//! Tests `counterpoint query` with the kept queries (those that Counterpoint contains). The results
//! must agree with those of DuckDB.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use dataset::{Dataset, Options, export};
use profile::Profile;
use testkit::{CallScript, ProfileScript, Random, Scratch, python};

use crate::pty;
use crate::support::query_engine;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
pub const KEPT: [&str; 12] = [
    "totals",
    "imbalance",
    "stragglers",
    "slow-ops",
    "correlation",
    "quantiles",
    "rank-quantiles",
    "losses",
    "coverage",
    "counters",
    "first-calls",
    "hosts",
];

pub fn ask(engine: &Path, dataset: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["query", "--dataset"]).arg(dataset).args(args);
    command.env("COUNTERPOINT_QUERY", engine).output().unwrap()
}

/// Returns the rows of an output in CSV, without the header.
pub fn rows(output: &Output) -> Vec<Vec<String>> {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().skip(1).map(line).collect()
}

/// Adds the profile of a rank to the dataset. `size` is the number of ranks of the run.
pub fn add(dataset: &Path, script: &ProfileScript, run: &str, rank: u32, size: u32) {
    let (_scratch, path) = script.written();
    let options = Options {
        run: run.to_owned(),
        rank,
        part: format!("{rank:032x}"),
        world_size: Some(size),
        calls: true,
        redacted: false,
        unfinished: false,
    };
    export(&Profile::open(&path).unwrap(), dataset, &options).unwrap();
}

/// Returns the profile of a rank. Its second counter differs between even and odd ranks.
pub fn rank(rank: u32, random: &mut Random) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.manifest.host = format!("node{}", rank / 4);
    script.counter("instructions:u", 0);
    script.counter(if rank.is_multiple_of(2) { "cycles:u" } else { "cache-misses:u" }, 0);
    let process = script.process(100 + rank);
    process.library("mlp", &["matmul", "softmax", "add", "all, reduce", "\"norm\""]);
    let thread = process.thread("main");
    for i in 0..200u64 {
        let bits = random.below(16);
        let duration = 500 + random.below(1 << bits);
        let values = [duration * 3 + random.below(100), random.below(1 << 20)];
        let call = CallScript::new((i % 5) as u32, 1_000_000 * (i + 1), duration);
        thread.call(call.group(duration, &values));
    }
    script
}

/// A Python script that runs the kept queries in DuckDB, with the views and macros that
/// docs/datasets.md recommends. Their results must equal those of Counterpoint; only the last
/// digits of floats may differ.
const JUDGE: &str = r#"
import csv, duckdb, glob, math, sys
dataset, queries, *answers = sys.argv[1:]
db = duckdb.connect()
for table in ("stats", "counters", "hist", "ops", "processes", "losses", "calls"):
    files = glob.glob(f"{dataset}/{table}/**/*.parquet", recursive=True)
    if files:
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files}, union_by_name=true, hive_partitioning=false)")
    else:
        db.execute(f"CREATE TABLE {table} (run VARCHAR, rank INT, part VARCHAR, process INT, loss VARCHAR, severity VARCHAR, count BIGINT)")
db.execute("CREATE MACRO bucket_ns(b) AS CASE WHEN b < 128 THEN b::BIGINT ELSE (((b % 64) + 64)::BIGINT << ((b >> 6) - 1)) + (1::BIGINT << ((b >> 6) - 2)) END")
db.execute("CREATE MACRO pearson(n, x, y, xx, xy, yy) AS {'n': n, 'x': x, 'y': y, 'xx': xx, 'xy': xy, 'yy': yy}")
def whole_r(s):
    n, x, y, xx, xy, yy = (int(s[k]) for k in ("n", "x", "y", "xx", "xy", "yy"))
    square = (n * xx - x * x) * (n * yy - y * y)
    from fractions import Fraction
    # 10^60 times the square of r, as a whole number.
    top = n * xy - x * y
    r = math.isqrt(10**60 * top * top // square)
    return math.copysign(float(Fraction(r, 10**30)), top) if square else None
for answer in answers:
    name = answer.rsplit("/", 1)[1].removesuffix(".csv")
    found = db.sql(open(f"{queries}/{name}.sql").read())
    own = list(csv.reader(open(answer, newline="")))
    assert own[0] == found.columns, (name, own[0], found.columns)
    expected = found.fetchall()
    assert len(own) - 1 == len(expected), (name, len(own) - 1, len(expected))
    assert expected or name == "losses", name
    for a, b in zip(own[1:], expected):
        for cell, value in zip(a, b):
            if isinstance(value, dict):
                value = whole_r(value)
                assert abs(float(cell) - value) <= 1e-15, (name, cell, value)
            elif value is None:
                assert cell == "", (name, cell)
            elif isinstance(value, float):
                assert math.isclose(float(cell), value, rel_tol=1e-14, abs_tol=1e-6), (name, cell, value)
            else:
                assert type(value)(cell) == value, (name, cell, value)
print("judged", len(answers))
"#;

#[test]
fn kept_queries_are_the_same_with_any_number_of_threads_and_in_duckdb() {
    let Some(engine) = query_engine("kept queries") else { return };
    let Some(python) = python::with("kept queries", "duckdb") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("a dataset");
    let mut random = Random(0x9e37);
    for number in 0..8 {
        add(&dataset, &rank(number, &mut random), "train 7", number, 8);
    }
    let mut judge = Command::new(python);
    let queries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../query/queries");
    judge.args(["-c", JUDGE]).arg(&dataset).arg(queries);
    for name in KEPT {
        let answer = |threads: &str| {
            let args = ["--kept", name, "--format", "csv", "--threads", threads];
            let done = ask(&engine, &dataset, &args);
            assert_eq!(
                (done.status.code(), &*done.stderr),
                (Some(0), &b""[..]),
                "{name}: {done:?}"
            );
            done.stdout
        };
        let one = answer("1");
        for threads in ["2", "16"] {
            assert!(answer(threads) == one, "{name} with {threads} threads");
        }
        let file = scratch.join(&format!("{name}.csv"));
        fs::write(&file, one).unwrap();
        judge.arg(file);
    }
    let done = judge.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.stdout, b"judged 12\n");
    // Even ranks have only the counter `cycles:u`, and odd ranks only `cache-misses:u`.
    let sql = "SELECT rank % 2 AS odd, count(*) AS n, count(\"cycles:u\") AS c, \
               count(\"cache-misses:u\") AS m FROM calls GROUP BY rank % 2 ORDER BY odd";
    let found = rows(&ask(&engine, &dataset, &[sql, "--format", "csv"]));
    assert_eq!(found, [["0", "800", "800", "0"], ["1", "800", "0", "800"]]);
}

/// Adds 16 ranks with one value of a counter each. The sum of these values needs more than 64 bits,
/// and the sum of their squares has more than 38 digits.
pub fn add_huge_sums(dataset: &Path) {
    for number in 0..16 {
        let mut script = ProfileScript::monotonic();
        script.counter("bytes", 0);
        let process = script.process(1);
        process.library("m", &["f"]);
        // The durations in the 16 ranks add up to 2⁶³ ns, more than an `i64` can hold.
        let call = CallScript::new(0, 1, 1 << 59).group(1, &[9_000_000_000_000_000_000]);
        process.thread("main").call(call);
        add(dataset, &script, "r", number, 16);
    }
}

#[test]
fn sums_are_right_or_an_error() {
    let Some(engine) = query_engine("sums of datasets") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    add_huge_sums(&dataset);
    let one = |sql: &str| rows(&ask(&engine, &dataset, &[sql, "--format", "csv"]));
    assert_eq!(one("SELECT sum(total_ns) FROM stats"), [["9223372036854775808"]]);
    assert_eq!(one("SELECT sum(sum_value) FROM counters"), [["144000000000000000000"]]);
    let found = one("SELECT avg(total_ns) AS a, sum(1.5) AS b, sum(NULL) AS c FROM stats");
    assert_eq!(found, [["5.764607523034235e17", "24.0", ""]]);
    assert_eq!(one("SELECT sum(DISTINCT rank % 2) AS a FROM stats"), [["1"]]);
    let done = ask(&engine, &dataset, &["SELECT sum(sum_value_value) FROM counters"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert_eq!(
        said,
        "counterpoint: a sum has more than 38 digits: 1296000000000000000000000000000000000000\n"
    );
    // Rows that leave a moving window are subtracted from the sum.
    let window =
        "SELECT sum(rank) OVER (ORDER BY rank ROWS 1 PRECEDING) AS s FROM stats ORDER BY s LIMIT 3";
    assert_eq!(one(window), [["0"], ["1"], ["3"]]);
}

#[test]
fn what_is_incomplete_is_named_in_each_answer() {
    let Some(engine) = query_engine("incomplete datasets") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    let mut random = Random(3);
    for number in [0, 1, 2, 4, 5] {
        add(&dataset, &rank(number, &mut random), "r", number, 8);
    }
    let opened = Dataset::open(&dataset).unwrap();
    let part = opened.parts.iter().find(|part| part.members[0].rank == 4).unwrap();
    let file = dataset.join(&part.files["stats"].path);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let sql = "SELECT rank, sum(calls) FROM stats GROUP BY rank ORDER BY rank";
    let done = ask(&engine, &dataset, &[sql, "--format", "csv"]);
    assert_eq!(rows(&done), [["0", "200"], ["1", "200"], ["2", "200"], ["5", "200"]]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("run r: 3 of 8 ranks are missing: 3, 6 to 7\n"), "{said}");
    assert!(
        said.contains("run r: rank 4 is incomplete and left out: stats/run=r/rank=4/"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
    // A damaged file must lead to an error or a missing rank, and not to a panic.
    let at_end = bytes.len() - 8;
    for place in [4..60, at_end - 300..at_end] {
        let mut other = bytes.clone();
        other[place].fill(0xff);
        fs::write(&file, &other).unwrap();
        let done = ask(&engine, &dataset, &[sql, "--format", "csv"]);
        let said = String::from_utf8(done.stderr).unwrap();
        match done.status.code() {
            Some(0) => assert!(said.contains("rank 4 is incomplete and left out"), "{said}"),
            code => assert!(code == Some(2) && !said.contains("panicked"), "{said}"),
        }
    }
}

#[test]
fn a_rank_that_was_recorded_twice_is_named_and_nothing_hidden_is_printed() {
    let Some(engine) = query_engine("ranks that were recorded twice") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    let mut script = rank(0, &mut Random(4));
    script.processes[0].libraries[0].exports[0].name = "a\u{202e}b\u{1b}c".to_owned();
    script.counter("x\u{202e}y", 0);
    let (_kept, path) = script.written();
    for part in ["1", "2"] {
        let options = Options {
            run: "r".to_owned(),
            part: part.to_owned(),
            world_size: Some(1),
            calls: true,
            ..Options::default()
        };
        export(&Profile::open(&path).unwrap(), &dataset, &options).unwrap();
    }
    let done = ask(&engine, &dataset, &["--kept", "coverage", "--format", "csv"]);
    assert_eq!(rows(&done), [["r", "1", "1", "1", "1", "2", "400"]]);
    let said = String::from_utf8(done.stderr).unwrap();
    let expected = "counterpoint: run r: 1 rank has several recordings, which sums add up: 0\n";
    assert_eq!(said, expected);
    let hidden = |text: &[u8]| String::from_utf8_lossy(text).contains(['\u{202e}', '\u{1b}']);
    let done = ask(&engine, &dataset, &["SELECT DISTINCT op FROM stats ORDER BY op"]);
    assert_eq!(done.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&done.stdout).contains("a\u{fffd}b\u{fffd}c"));
    assert!(!hidden(&done.stdout));
    let done = ask(&engine, &dataset, &["SELECT nothing FROM calls"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("x\u{fffd}y") && !hidden(&done.stderr), "{said}");
}

#[test]
fn the_op_that_makes_a_rank_slow_is_found_among_64() {
    let Some(engine) = query_engine("stragglers") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    let mut random = Random(64);
    for number in 0..64 {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["matmul", "norm", "gather"]);
        let thread = process.thread("main");
        for i in 0..30u64 {
            let slow = if number == 41 && i % 3 == 1 { 4_000 } else { 0 };
            let duration = [20_000, 3_000, 9_000][i as usize % 3] + random.below(300) + slow;
            thread.call(CallScript::new((i % 3) as u32, 100_000 * (i + 1), duration));
        }
        add(&dataset, &script, "r", number, 64);
    }
    let kept = |name: &str| rows(&ask(&engine, &dataset, &["--kept", name, "--format", "csv"]));
    let stragglers = kept("stragglers");
    assert_eq!(stragglers.len(), 64);
    assert_eq!(stragglers[0][1], "41");
    let slow = kept("slow-ops");
    assert_eq!((&*slow[0][1], &*slow[0][3]), ("41", "norm"));
    // Ten calls of rank 41 take 4 µs longer each than those of the other 63 ranks. So the total of
    // this rank is above the mean of all 64 ranks by 40 µs · 63/64.
    let above: f64 = slow[0][6].parse().unwrap();
    assert!((above - 40_000.0 * 63.0 / 64.0).abs() < 3_000.0, "{above}");
    let imbalance = kept("imbalance");
    assert_eq!((&*imbalance[0][2], &*imbalance[0][6]), ("norm", "41"));
}

#[test]
fn a_query_reads_and_has_limits() {
    let Some(engine) = query_engine("limits of queries") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    add(&dataset, &rank(0, &mut Random(1)), "r", 0, 1);
    let refused = |args: &[&str]| {
        let done = ask(&engine, &dataset, args);
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let out = scratch.join("out.parquet");
    let copy = format!("COPY stats TO '{}'", out.display());
    for sql in [&*copy, "CREATE TABLE a AS SELECT 1", "SET datafusion.execution.batch_size = 1"] {
        assert!(refused(&[sql]).starts_with("counterpoint: "), "{sql}");
    }
    assert!(!out.exists());
    let path = format!("SELECT * FROM '{}'", dataset.join("dataset.json").display());
    assert!(refused(&[&path]).contains("not found"));
    let sort = "SELECT * FROM calls ORDER BY duration_ns, start_unix_ns";
    let said = refused(&[sort, "--memory", "1K"]);
    assert!(said.contains("--memory allows (1024 bytes)"), "{said}");
    // 400,000 groups need more memory than 8 MiB, so both threads use temporary files.
    let groups = "SELECT count(*), sum(n), max(value) FROM (SELECT value, count(*) AS n FROM \
                  generate_series(1, 400000) GROUP BY value)";
    let limits = ["--memory", "8M", "--threads", "2", "--format", "csv"];
    let arguments: Vec<&str> = [groups].into_iter().chain(limits).collect();
    assert_eq!(rows(&ask(&engine, &dataset, &arguments)), [["400000", "400000", "400000"]]);
    let said = refused(&["--kept", "nothing"]);
    assert!(said.contains("there is no such query; there are: totals, imbalance"), "{said}");
    let nowhere = ask(&engine, &scratch.join("nowhere"), &["SELECT 1"]);
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert!(said.contains("is not a dataset: it has no dataset.json"), "{said}");
    let json =
        ask(&engine, &dataset, &["SELECT 1 AS a, 'x\"' AS b, NULL AS c", "--format", "json"]);
    assert_eq!(String::from_utf8(json.stdout).unwrap(), "{\"a\":1,\"b\":\"x\\\"\",\"c\":null}\n");
}

/// Runs a query that would take years. Kills it after the time `least`, and returns what its
/// terminal has received.
fn shown_meanwhile(engine: &Path, dataset: &Path, options: &[&str], least: Duration) -> String {
    let (mut ours, theirs) = pty::open(80);
    // SAFETY: fcntl takes numbers only, and `ours` keeps its descriptor open.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    let sql = "SELECT count(*) FROM calls a, calls b, calls c, calls d, calls e, calls f WHERE \
               a.duration_ns + b.duration_ns + c.duration_ns + d.duration_ns + e.duration_ns > f.thread";
    let mut command = Command::new(PROGRAM);
    command.arg("query").args(options).arg("--dataset").arg(dataset).arg(sql);
    command.env("COUNTERPOINT_QUERY", engine).env("TERM", "xterm").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let end = thread::spawn(move || {
        thread::sleep(least);
        child.kill().unwrap();
        child.wait().unwrap();
    });
    let mut bytes = Vec::new();
    let _ = ours.read_to_end(&mut bytes);
    end.join().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_query_that_takes_long_shows_that_it_goes_on() {
    let Some(engine) = query_engine("progress of queries") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("job");
    for number in 0..4 {
        add(&dataset, &rank(number, &mut Random(5)), "r", number, 4);
    }
    let shown = |options: &[&str], seconds| {
        shown_meanwhile(&engine, &dataset, options, Duration::from_secs(seconds))
    };
    let text = shown(&[], 5);
    let lines: Vec<&str> = text.split(pty::ERASE).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 1, "{text:?}");
    for line in lines {
        assert!(line.starts_with("counterpoint: asking ") && line.ends_with(" s"), "{line:?}");
    }
    assert_eq!(shown(&["-q"], 3), "");
    let said = |options: &[&str]| {
        let done =
            ask(&engine, &dataset, &[options, &["SELECT count(*) AS n FROM calls"]].concat());
        assert_eq!(String::from_utf8(done.stdout).unwrap(), "{\"n\":800}\n");
        String::from_utf8(done.stderr).unwrap()
    };
    assert_eq!(said(&["--json"]), "");
    let steps = said(&["--json", "-v"]);
    let begins: Vec<&str> = steps.lines().map(|line| &line[.."counterpoint: ask".len()]).collect();
    assert_eq!(begins, ["counterpoint: ope", "counterpoint: ask"], "{steps}");
}

#[test]
fn without_the_engine_it_says_what_to_install() {
    let done = Command::new(PROGRAM)
        .args(["query", "--dataset", "x", "SELECT 1"])
        .env_remove("COUNTERPOINT_QUERY")
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(said.starts_with("counterpoint: counterpoint-query was not found\n"), "{said}");
    assert!(said.contains("--manifest-path query/Cargo.toml"), "{said}");
}
