//! Tests `counterpoint query --engine ballista://…` with a scheduler and two executors on this
//! machine. The results must equal those of DataFusion in one process.
//!
//! The tests need a `counterpoint-query` with the feature `ballista`. `cargo xtask test --ballista`
//! builds it, which takes half an hour.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use testkit::{Random, Scratch};

use crate::query::{KEPT, add, add_huge_sums, ask, rank, rows};
use crate::support::{query_engine, skip};

const TEST: &str = "queries on a cluster";
/// Each step of the tests takes less time than this, unless it hangs.
const LONG: Duration = Duration::from_secs(240);

fn engine() -> Option<PathBuf> {
    let found = std::env::var_os("COUNTERPOINT_QUERY_BALLISTA");
    if found.is_none() {
        skip(TEST, "COUNTERPOINT_QUERY_BALLISTA is not set (cargo xtask test --ballista sets it)");
    }
    found.map(PathBuf::from)
}

/// A scheduler or an executor. It is killed when this value is dropped.
struct Server {
    child: Child,
    said: Receiver<String>,
}

impl Server {
    fn start(engine: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(engine);
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, said) = channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|l| sender.send(l)));
        Self { child, said }
    }

    /// Returns the last word of the line that the program prints when it is ready.
    fn ready(&self) -> String {
        let said = self.said.recv_timeout(LONG).expect("it says that it is ready");
        assert!(said.contains(" listens on ") || said.contains(" works for "), "{said}");
        said.rsplit(' ').next().unwrap().to_owned()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: `kill` takes numbers only. Nobody has waited for this child, so no other process
        // can have its process id.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), signal) }, 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scheduler with its executors, whose folders are in `scratch`.
struct Cluster<'a> {
    engine: &'a Path,
    scratch: &'a Scratch,
    scheduler: Server,
    address: String,
    executors: Vec<(Server, PathBuf)>,
}

impl<'a> Cluster<'a> {
    fn new(engine: &'a Path, scratch: &'a Scratch, executors: usize) -> Self {
        let scheduler = Server::start(engine, &["scheduler", "--bind", "127.0.0.1:0"]);
        let address = scheduler.ready();
        let mut cluster = Self { engine, scratch, scheduler, address, executors: Vec::new() };
        (0..executors).for_each(|_| cluster.add_executor());
        cluster
    }

    fn add_executor(&mut self) {
        let free = |n: &u32| fs::create_dir(self.scratch.join(&format!("executor {n}"))).is_ok();
        let dir = self.scratch.join(&format!("executor {}", (0..).find(free).unwrap()));
        let args = ["executor", "--scheduler", &self.address, "--threads", "2", "--work-dir"];
        let args = [&args[..], &[dir.to_str().unwrap()]].concat();
        let executor = Server::start(self.engine, &args);
        executor.ready();
        self.executors.push((executor, dir));
    }

    fn url(&self) -> String {
        format!("ballista://{}", self.address)
    }

    fn ask(&self, dataset: &Path, args: &[&str]) -> Output {
        let url = self.url();
        ask(self.engine, dataset, &[args, &["--format", "csv", "--engine", &url]].concat())
    }
}

fn has_files(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).into_iter().flatten().map_while(Result::ok);
    entries.map(|e| e.path()).any(|path| !path.is_dir() || has_files(&path))
}

/// Makes a dataset of eight ranks. No rank has losses, so the table of losses has no files.
fn ranks(scratch: &Scratch) -> PathBuf {
    let dataset = scratch.join("a dataset");
    let mut random = Random(0x9e37);
    for number in 0..8 {
        add(&dataset, &rank(number, &mut random), "train 7", number, 8);
    }
    dataset
}

#[test]
fn kept_queries_are_the_same_on_two_executors_and_after_one_was_killed() {
    let Some(engine) = engine() else { return };
    let scratch = Scratch::new();
    let dataset = ranks(&scratch);
    let args = |name| ["--kept", name, "--format", "csv"];
    let alone = KEPT.map(|name| ask(&engine, &dataset, &args(name)));
    for (name, done) in KEPT.iter().zip(&alone) {
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
        assert_eq!(rows(done).is_empty(), *name == "losses", "{name}");
    }
    let mut cluster = Cluster::new(&engine, &scratch, 2);
    let same = |cluster: &Cluster, when: &str| {
        for threads in ["1", "3", "16"] {
            for (name, alone) in KEPT.iter().zip(&alone) {
                let done = cluster.ask(&dataset, &["--kept", name, "--threads", threads]);
                assert_eq!(done.status.code(), Some(0), "{name} {when}, {threads}: {done:?}");
                assert!(done.stdout == alone.stdout, "{name} {when}, {threads}: {done:?}");
            }
        }
    };
    same(&cluster, "with two executors");
    assert!(cluster.executors.iter().all(|(_, dir)| has_files(dir)), "both have worked");
    // While each of these queries runs, the test kills an executor whose results or tasks the query
    // needs.
    for name in ["quantiles", "slow-ops"] {
        let (victim, dir) = cluster.executors.pop().unwrap();
        let alone = &alone[KEPT.iter().position(|kept| *kept == name).unwrap()];
        let done = killed_in_the_middle(&cluster, &dataset, name, &victim, &dir);
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
        assert!(done.stdout == alone.stdout, "{name}: {done:?}");
        cluster.add_executor();
    }
    cluster.executors.pop();
    same(&cluster, "with one executor");
}

/// Starts the kept query `name`, and kills the executor `victim` when the executor has begun to
/// write results of this query.
fn killed_in_the_middle(
    cluster: &Cluster,
    dataset: &Path,
    name: &str,
    victim: &Server,
    dir: &Path,
) -> Output {
    let work = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let url = cluster.url();
    for _ in 0..20 {
        for entry in fs::read_dir(&work).unwrap() {
            fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
        let mut command = Command::new(cluster.engine);
        // The query has more tasks than one executor (with 2 threads) can run at the same time.
        command.args(["--kept", name, "--format", "csv", "--threads", "16"]);
        command
            .args(["--engine", &url, "--dataset"])
            .arg(dataset)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut asking = command.spawn().unwrap();
        while !has_files(&work) && asking.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        victim.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(500));
        if asking.try_wait().unwrap().is_none() {
            victim.signal(libc::SIGKILL);
            let begin = Instant::now();
            let done = asking.wait_with_output().unwrap();
            eprintln!("{name}: {:.1} s after the kill", begin.elapsed().as_secs_f64());
            return done;
        }
        victim.signal(libc::SIGCONT);
        let done = asking.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{name}: {done:?}");
    }
    panic!("{name} always ended before the executor could be killed");
}

#[test]
fn a_result_that_is_lost_before_it_is_read_is_made_again() {
    let Some(engine) = engine() else { return };
    let scratch = Scratch::new();
    let dataset = ranks(&scratch);
    let alone = ask(&engine, &dataset, &["--kept", "imbalance", "--format", "csv"]);
    let mut cluster = Cluster::new(&engine, &scratch, 1);
    let url = cluster.url();
    let mut command = Command::new(&engine);
    command.args(["--kept", "imbalance", "--format", "csv", "--engine", &url, "--dataset"]);
    command.arg(&dataset).stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = command.spawn().unwrap();
    let begin = Instant::now();
    while !has_files(&cluster.executors[0].1) {
        assert!(begin.elapsed() < LONG, "the executor does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    let signal = |signal| {
        // SAFETY: `kill` takes numbers only. Nobody has waited for this child, so no other process
        // can have its process id.
        assert_eq!(unsafe { libc::kill(asking.id().cast_signed(), signal) }, 0);
    };
    // The executor that has the result must be gone before the asking process notices the result.
    signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(3));
    drop(cluster.executors.remove(0));
    cluster.add_executor();
    signal(libc::SIGCONT);
    let done = asking.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(done.stdout == alone.stdout, "{done:?}");
}

#[test]
fn who_is_stopped_stops_the_cluster() {
    let Some(engine) = engine() else { return };
    let scratch = Scratch::new();
    let dataset = ranks(&scratch);
    let mut cluster = Cluster::new(&engine, &scratch, 1);
    let url = cluster.url();
    // The join has 1,600⁴ combinations, so it still runs when the test stops it. The query does not
    // use `CROSS JOIN`, because DataFusion does not notice that such a join is to be stopped.
    let sql = "SELECT count(*) FROM calls a JOIN calls b ON a.process = b.process \
               JOIN calls c ON c.process = b.process JOIN calls d ON d.process = c.process";
    let mut command = Command::new(&engine);
    command.args([sql, "--engine", &url, "--dataset"]).arg(&dataset).stderr(Stdio::piped());
    let mut asking = command.spawn().unwrap();
    let (mut executor, dir) = cluster.executors.pop().unwrap();
    let begin = Instant::now();
    while !has_files(&dir) {
        assert!(begin.elapsed() < LONG, "the executor does nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(asking.try_wait().unwrap().is_none());
    // SAFETY: `kill` takes numbers only. Nobody has waited for this child, so no other process can
    // have its process id.
    assert_eq!(unsafe { libc::kill(asking.id().cast_signed(), libc::SIGINT) }, 0);
    let done = asking.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!((done.status.code(), said), (Some(2), format!("counterpoint: {url}: stopped\n")));
    executor.signal(libc::SIGTERM);
    let begin = Instant::now();
    while executor.child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < LONG, "the executor still works for nobody");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn a_cluster_reads_ranks_with_other_counters_and_says_what_is_wrong() {
    let Some(engine) = engine() else { return };
    let scratch = Scratch::new();
    let dataset = ranks(&scratch);
    let cluster = Cluster::new(&engine, &scratch, 2);
    let sql = "SELECT rank % 2 AS odd, count(*) AS n, count(\"cycles:u\") AS c, \
               count(\"cache-misses:u\") AS m FROM calls GROUP BY rank % 2 ORDER BY odd";
    let found = rows(&cluster.ask(&dataset, &[sql]));
    assert_eq!(found, [["0", "800", "800", "0"], ["1", "800", "0", "800"]]);
    // For some of these queries, the planner knows in advance that a part of the query has no rows.
    let queries = [
        "SELECT run, rank, part, op, known, sum(calls) AS n FROM stats GROUP BY run, rank, part, op, known \
         ORDER BY run, rank, part, op",
        "SELECT s.rank, l.loss FROM stats s LEFT JOIN (SELECT * FROM losses WHERE 1 = 0) l ON l.rank = s.rank \
         ORDER BY s.rank",
        "SELECT count(*) AS n FROM losses",
        "SELECT op FROM stats WHERE 1 = 0",
        "SELECT op FROM stats WHERE rank IN (SELECT max(rank) FROM ops) ORDER BY op",
        "SELECT avg(total_ns) AS a, sum(1.5) AS b, sum(NULL) AS c, mean(calls) AS d FROM stats",
        "SELECT sum(DISTINCT rank % 2) AS a FROM stats",
        "SELECT 1 AS a",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    ];
    for sql in queries {
        let alone = ask(&engine, &dataset, &[sql, "--format", "csv"]);
        let done = cluster.ask(&dataset, &[sql]);
        assert_eq!(
            (alone.status.code(), done.status.code()),
            (Some(0), Some(0)),
            "{sql}: {done:?}"
        );
        assert!(done.stdout == alone.stdout, "{sql}: {done:?} {alone:?}");
    }
    let wide = scratch.join("wide");
    add_huge_sums(&wide);
    let found = rows(&cluster.ask(&wide, &["SELECT sum(total_ns) FROM stats"]));
    assert_eq!(found, [["9223372036854775808"]]);
    let done = cluster.ask(&wide, &["SELECT sum(sum_value_value) FROM counters"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert_eq!(
        said,
        "counterpoint: a sum has more than 38 digits: 1296000000000000000000000000000000000000\n"
    );
    let done = cluster.ask(&dataset, &["CREATE TABLE a AS SELECT 1"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let (mut executor, dir) = { cluster }.executors.pop().unwrap();
    executor.signal(libc::SIGTERM);
    assert!(executor.child.wait().is_ok());
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn without_a_scheduler_or_executors_it_says_so() {
    let Some(engine) = engine() else { return };
    let scratch = Scratch::new();
    let dataset = ranks(&scratch);
    let nobody = ["--kept", "totals", "--engine", "ballista://127.0.0.1:1"];
    let done = ask(&engine, &dataset, &nobody);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.starts_with("counterpoint: ballista://127.0.0.1:1: "), "{said}");
    // Here, no other executor takes the place of the killed one.
    let mut cluster = Cluster::new(&engine, &scratch, 1);
    let (executor, _) = cluster.executors.pop().unwrap();
    executor.signal(libc::SIGKILL);
    let done = cluster.ask(&dataset, &["--kept", "totals"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(matches!(
        cluster.scheduler.said.recv_timeout(Duration::ZERO),
        Err(RecvTimeoutError::Timeout)
    ));
}

#[test]
fn without_the_feature_it_says_how_to_build_it() {
    let Some(engine) = query_engine("queries without a cluster") else { return };
    let scratch = Scratch::new();
    let dataset = scratch.join("dataset");
    add(&dataset, &rank(0, &mut Random(1)), "r", 0, 1);
    let refused = |args: &[&str]| {
        let done = Command::new(&engine).args(args).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{args:?}: {said}");
        said
    };
    let dataset = dataset.to_str().unwrap();
    let query =
        ["--dataset", dataset, "--kept", "totals", "--engine", "ballista://127.0.0.1:50050"];
    for args in [&query[..], &["scheduler"], &["executor"]] {
        let said = refused(args);
        assert!(said.contains("built without Ballista") && said.contains("--features ballista"));
    }
    for url in ["http://127.0.0.1:1", "ballista://", "ballista://a", "ballista://a:0"] {
        let said = refused(&["--dataset", dataset, "SELECT 1", "--engine", url]);
        assert!(said.contains("--engine"), "{said}");
    }
    for bind in ["0.0.0.0:1", "localhost:1"] {
        assert!(refused(&["scheduler", "--bind", bind]).contains("--bind"), "{bind}");
    }
}
