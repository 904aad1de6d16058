//! Tests `run --dataset` while the program runs.
//!
//! In the program's k-th call, the value of the simulated counter is k. After [`CALLS`] calls, the
//! values begin again at 1. So the tests find lost or duplicate rows without comparing times.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dataset::{Dataset, Gap, Part, Table};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::Value;
use testkit::{Random, Scratch};

use crate::support::{Programs, counterpoint, query_engine};

/// The number of calls for which the simulated counter has values. The option `-e` lists all these
/// values.
const CALLS: u64 = 8_000;
/// The pause in µs after each call keeps the number of calls small.
const PAUSE_US: &str = "20";

struct Job {
    program: PathBuf,
    scratch: Scratch,
    run: Child,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    process: i32,
    start_ns: i64,
    duration_ns: i64,
    number: u64,
}

impl Job {
    fn begin(program: &Path, options: &[&str]) -> Self {
        let (scratch, programs) = (Scratch::new(), Programs::get());
        let readings: Vec<String> = (1..=CALLS).map(|number| format!("0:{number}")).collect();
        let counter = format!("sim/number,readings={}/", readings.join(":"));
        let mut run = Command::new(program);
        run.args(["run", "--rank", "1", "--world-size", "2", "--label", "run=x", "-e"]);
        run.args([&*counter, "--dataset"]).arg(scratch.join("job")).args(options);
        run.arg("-o").arg(scratch.join("p.cpt")).arg("--").arg(&programs.host);
        run.arg(&programs.library).arg("count-for-ever").arg(scratch.join("counted"));
        run.arg(PAUSE_US).stdout(Stdio::null()).stderr(Stdio::piped());
        // `run` and its program are a process group of their own, so the test can kill both at
        // once, as a batch system does. The processes of `export` that `run` starts are in other
        // groups.
        let run = run.process_group(0).spawn().unwrap();
        let program = program.to_owned();
        Self { program, scratch, run }
    }

    fn dataset(&self) -> PathBuf {
        self.scratch.join("job")
    }

    fn wait_for(&self, what: &str, mut is_there: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_files(&self, files: usize) -> Part {
        let mut found = None;
        self.wait_for("files of calls", || {
            found = self.part().filter(|part| part.files_of("calls").count() >= files);
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the rank's part as a reader of the dataset sees it.
    fn part(&self) -> Option<Part> {
        let dir = self.dataset();
        if !dir.join("dataset.json").exists() {
            return None;
        }
        let found = Dataset::open(&dir).unwrap();
        assert!(!found.gaps.iter().any(Gap::is_left_out), "{:?}", found.gaps);
        found.parts.into_iter().next()
    }

    fn rows(&self) -> Vec<Row> {
        self.part().map_or_else(Vec::new, |part| rows(&self.dataset(), &part))
    }

    /// Makes the program replace itself by one that makes 3 calls and ends.
    fn stop(&mut self) -> Output {
        let file = File::options().write(true).open(self.scratch.join("counted")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &3u64.to_le_bytes(), 8).unwrap();
        let status = self.run.wait().unwrap();
        let mut said = Vec::new();
        std::io::Read::read_to_end(self.run.stderr.as_mut().unwrap(), &mut said).unwrap();
        Output { status, stdout: Vec::new(), stderr: said }
    }

    fn ask(&self, words: &[&str]) -> Output {
        Command::new(&self.program).args(words).output().unwrap()
    }

    fn exporting(&self, dir: &Path) -> Command {
        let mut export = Command::new(&self.program);
        export
            .arg("export")
            .arg(self.scratch.join("p.cpt"))
            .arg("--dataset")
            .arg(dir)
            .arg("--calls");
        export
    }

    fn export(&self, dir: &Path) {
        let done = self.exporting(dir).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    /// Before the test kills `run` alone, it suspends the export that `run` has started (SIGSTOP).
    /// So the export cannot finish by itself: it ends only if the end of `run` ends it.
    fn kill(&self, victim: Victim) {
        let run = self.run.id().cast_signed();
        let dir = self.dataset();
        if matches!(victim, Victim::Run | Victim::RunBesideAnExport) {
            let own = || exports_to(&dir).into_iter().filter(move |pid| parent(*pid) == Some(run));
            self.wait_for("an export", || {
                own().for_each(|pid| signal(pid, libc::SIGSTOP));
                own().any(|pid| state(pid) == Some('T'))
            });
            signal(run, libc::SIGKILL);
            let late = |pid: &i32| parent(*pid) == Some(std::process::id().cast_signed());
            self.wait_for("the end of the exports", || exports_to(&dir).iter().all(late));
            return;
        }
        let exports = exports_to(&dir);
        if victim == Victim::Everything {
            signal(-run, libc::SIGKILL);
        }
        // One of the exports may have just ended; the signal then has no effect.
        exports.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
    }

    /// Starts another export, and suspends it (SIGSTOP) at a random time.
    fn late_export(&self, random: &mut Random) -> Child {
        let mut export = self.exporting(&self.dataset());
        let late = export.arg("--goes-on").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        signal(late.id().cast_signed(), libc::SIGSTOP);
        late
    }

    /// Starts a new export while `late` is suspended. `late` continues when the new export waits
    /// for it or has ended.
    fn export_beside(&self, mut late: Child) {
        let mut last = self.exporting(&self.dataset()).stdout(Stdio::null()).spawn().unwrap();
        let pid = last.id().cast_signed();
        self.wait_for("an export that has ended or waits for the other one", || {
            last.try_wait().unwrap().is_some() || is_waiting(pid)
        });
        signal(late.id().cast_signed(), libc::SIGCONT);
        assert!(last.wait().unwrap().success());
        // `late` may fail, because data has moved from memory to the profile.
        late.wait().unwrap();
    }

    /// Runs `recover` until it succeeds and the program has ended.
    fn recover(&self) {
        let profile = self.scratch.join("p.cpt");
        self.wait_for("the end of the program", || {
            let done = self.ask(&["recover", profile.to_str().unwrap()]);
            let opened = || profile::Profile::open(&profile).unwrap();
            done.status.success() && !opened().processes.iter().any(|process| process.alive)
        });
    }

    /// Checks that the dataset equals one export of the whole recording.
    fn check_whole(&self) {
        let whole = self.scratch.join("whole");
        self.export(&whole);
        let one = Dataset::open(&whole).unwrap().parts.remove(0);
        let (mut expected, mut found) = (rows(&whole, &one), self.rows());
        // The last calls of the first process may be written after calls of the second one.
        expected.sort_by_key(|row| row.process);
        found.sort_by_key(|row| row.process);
        assert!(expected.len() > 10, "{}", expected.len());
        numbered(&expected);
        numbered(&found);
        assert_eq!(found.len(), expected.len());
        // Each export computes the rate of the time-stamp counter anew, so the times of a call
        // differ between exports. The kernel changes its clock's rate by at most 1 / 2,000.
        let first = expected[0].start_ns;
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.process, found.number), (expected.process, expected.number));
            let near = |a: i64, b: i64, of: i64| (a - b).abs() <= 1_000 + of.abs() / 1_000;
            let (start, duration) = (expected.start_ns, expected.duration_ns);
            assert!(near(found.start_ns, start, start - first), "{found:?} {expected:?}");
            assert!(near(found.duration_ns, duration, duration), "{found:?} {expected:?}");
        }
        let part = self.part().unwrap();
        for table in Table::ALL.into_iter().filter(|table| *table != Table::Calls) {
            let own = |part: &Part| part.files.get(table.name()).cloned();
            // The name of a file contains a hash of its contents, so equal names mean equal
            // contents.
            assert_eq!(own(&part), own(&one), "{table}");
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(None) = self.run.try_wait() {
            // Our child has not been waited for, so no other process group has its id.
            signal(-self.run.id().cast_signed(), libc::SIGKILL);
            let _ = self.run.wait();
        }
    }
}

/// Returns the rows of a part, in the order of its files.
fn rows(dir: &Path, part: &Part) -> Vec<Row> {
    let mut rows = Vec::new();
    for file in part.files_of("calls") {
        let reader = SerializedFileReader::new(File::open(dir.join(&file.path)).unwrap()).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let place =
            |name: &str| schema.columns().iter().position(|column| column.name() == name).unwrap();
        let places = ["process", "start_unix_ns", "duration_ns", "number"].map(place);
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            rows.push(Row {
                process: row.get_int(places[0]).unwrap(),
                start_ns: row.get_long(places[1]).unwrap(),
                duration_ns: row.get_long(places[2]).unwrap(),
                number: row.get_ulong(places[3]).unwrap(),
            });
        }
    }
    rows
}

/// Checks that each call occurs once, and that none before the last one is missing.
fn numbered(rows: &[Row]) {
    for process in [0, 1] {
        let own = rows.iter().filter(|row| row.process == process);
        for (at, row) in (0..).zip(own) {
            assert_eq!(row.number, at % CALLS + 1, "process {process}, row {at}");
        }
    }
}

/// Options with which `run` often adds the newest calls to the dataset.
const OFTEN: [&str; 5] = ["--calls", "--dataset-interval", "100ms", "--dataset-share", "100"];

#[test]
fn parts_are_written_while_the_program_runs() {
    let Some(program) = counterpoint("run --dataset") else { return };
    let mut job = Job::begin(&program, &OFTEN);
    let mut last = Vec::new();
    for files in [1, 3, 5] {
        let part = job.wait_for_files(files);
        assert!(part.members[0].unfinished && part.schema.ends_with("/2"));
        let now = job.rows();
        numbered(&now);
        assert!(now.len() > last.len(), "{} {}", now.len(), last.len());
        assert!(now.starts_with(&last), "no file is written again");
        last = now;
        let dir = job.dataset();
        let said = job.ask(&["report", dir.to_str().unwrap(), "--format", "json"]);
        assert!(said.status.success(), "{said:?}");
        let report: Value = serde_json::from_slice(&said.stdout).unwrap();
        let gaps = report["incomplete"].to_string();
        assert!(gaps.contains("run x: 1 of 2 ranks is missing: 0"), "{gaps}");
        let incomplete = "run x: 1 rank is incomplete, because its recording had not ended: 1";
        assert!(gaps.contains(incomplete), "{gaps}");
        assert!(report["runs"][0]["calls"].as_u64() >= Some(last.len() as u64), "{report}");
        if let Some(engine) = query_engine("a dataset that grows") {
            let sql = "SELECT count(*) AS n FROM calls";
            let done = crate::query::ask(&engine, &dir, &[sql, "--format", "csv"]);
            let found: usize = crate::query::rows(&done)[0][0].parse().unwrap();
            assert!(found >= last.len(), "{found} {}", last.len());
            let said = String::from_utf8(done.stderr).unwrap();
            assert!(said.contains(incomplete), "{said}");
        }
        // If `merge` replaced the dataset now, later calls would be lost.
        let dir = dir.to_str().unwrap();
        let refused = job.ask(&["merge", "-o", dir, dir]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("is not replaced: run x: 1 rank is incomplete"), "{said}");
    }
    let done = job.stop();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && said.contains("job: the recording was added"), "{said}");
    let part = job.part().unwrap();
    assert!(!part.members[0].unfinished && part.files_of("calls").count() >= 5);
    assert!(job.rows().starts_with(&last));
    assert!(Dataset::open(&job.dataset()).unwrap().gaps.len() == 1, "only rank 0 is missing");
    job.check_whole();
}

#[test]
fn a_file_of_calls_is_as_large_as_was_asked_for() {
    let Some(program) = counterpoint("run --dataset") else { return };
    let limit = ["--calls", "--dataset-bytes", "60000", "--dataset-share", "100"];
    let mut job = Job::begin(&program, &limit);
    let part = job.wait_for_files(3);
    // For the first file, `run` does not know yet how many bytes a call takes.
    let later: Vec<u64> = part.files_of("calls").skip(1).map(|file| file.bytes).collect();
    assert!(later.iter().all(|bytes| *bytes >= 50_000), "{later:?}");
    assert!(job.stop().status.success());
    job.check_whole();
}

#[test]
fn a_short_program_has_one_part() {
    let Some(program) = counterpoint("run --dataset") else { return };
    let mut job = Job::begin(&program, &["--calls"]);
    job.wait_for("calls", || job.scratch.join("counted").metadata().is_ok_and(|f| f.len() > 0));
    assert!(!job.dataset().exists());
    assert!(job.stop().status.success());
    let part = job.part().unwrap();
    assert_eq!(
        (part.files_of("calls").count(), part.schema.as_str()),
        (1, "counterpoint.dataset_part/1")
    );
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// A batch system kills all processes.
    Everything,
    /// `run` alone, while an export that it has started runs. The export must end, too.
    Run,
    /// As [`Self::Run`], but there is also a suspended export that the test has started.
    RunBesideAnExport,
    Export,
}

#[test]
fn whatever_is_killed_the_parts_are_whole_and_can_be_completed() {
    const KILLS: usize = 12;
    let Some(program) = counterpoint("run --dataset") else { return };
    let mut random = Random(0x6b11);
    let mut begun = 0;
    let victims =
        [Victim::Everything, Victim::Run, Victim::RunBesideAnExport, Victim::Export].into_iter();
    for (number, victim) in victims.cycle().take(KILLS).enumerate() {
        let mut job = Job::begin(&program, &OFTEN);
        job.wait_for("calls", || job.scratch.join("counted").metadata().is_ok_and(|f| f.len() > 0));
        // A quarter of the kills may happen before the first part exists.
        if number >= KILLS / 4 {
            job.wait_for_files(1);
        }
        std::thread::sleep(Duration::from_micros(random.below(1_500_000)));
        let late = (victim == Victim::RunBesideAnExport).then(|| job.late_export(&mut random));
        job.kill(victim);
        let part = job.part();
        begun += u32::from(part.is_some());
        numbered(&job.rows());
        if victim == Victim::Export {
            // `run` completes the dataset.
            assert!(job.stop().status.success());
        } else {
            if victim != Victim::Everything {
                // The program goes on without `run`, so the test must end it.
                job.stop();
            }
            let _ = job.run.wait();
            job.recover();
            assert!(part.is_none_or(|part| part.members[0].unfinished), "{victim:?}");
            match late {
                Some(late) => job.export_beside(late),
                None => job.export(&job.dataset()),
            }
        }
        assert!(!job.part().unwrap().members[0].unfinished, "{victim:?}");
        job.check_whole();
    }
    assert!(begun >= (KILLS - KILLS / 4) as u32, "{begun}");
}

fn exports_to(dir: &Path) -> Vec<i32> {
    let is_one = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&b"--goes-on".as_slice())
            && words.contains(&dir.as_os_str().as_encoded_bytes())
    };
    let all = Path::new("/proc").read_dir().unwrap();
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(is_one).collect()
}

/// Sends a signal to a process. A negative `pid` stands for a process group.
fn signal(pid: i32, signal: i32) {
    // SAFETY: `kill` takes numbers only.
    unsafe { libc::kill(pid, signal) };
}

/// Returns the fields after the process's name in `/proc/PID/stat`: state, parent, …
fn fields(pid: i32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split(' ').map(str::to_owned).collect()
}

fn state(pid: i32) -> Option<char> {
    fields(pid)[0].chars().next()
}

fn parent(pid: i32) -> Option<i32> {
    fields(pid).get(1)?.parse().ok()
}

fn is_waiting(pid: i32) -> bool {
    let (locks, pid) = (std::fs::read_to_string("/proc/locks").unwrap(), pid.to_string());
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1..3) == Some(&["->", "FLOCK"]) && words.get(5) == Some(&&*pid)
    })
}
