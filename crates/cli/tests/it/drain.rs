//! Tests draining: while the program runs, `run` moves full pages of calls out of the pool (the
//! shared memory) to files.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Programs, counterpoint};

/// A recording of a program that makes calls for ever. The program writes to a file how many calls
/// have returned.
struct Recording {
    program: PathBuf,
    scratch: testkit::Scratch,
    run: Child,
}

impl Recording {
    fn begin(program: PathBuf) -> Self {
        let scratch = testkit::Scratch::new();
        let programs = Programs::get();
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(scratch.join("p.cpt")).arg("--");
        run.arg(&programs.host).arg(&programs.library).arg("count-for-ever");
        run.arg(scratch.join("counted")).stderr(Stdio::null());
        let run = run.spawn().unwrap();
        let it = Self { program, scratch, run };
        it.wait_for("calls", || it.returned() > 0);
        it
    }

    fn profile(&self) -> PathBuf {
        self.scratch.join("p.cpt")
    }

    fn returned(&self) -> u64 {
        let bytes = std::fs::read(self.scratch.join("counted")).unwrap_or_default();
        bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
    }

    fn wait_for(&self, what: &str, mut is_there: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for_calls(&self, more: u64) {
        let before = self.returned();
        self.wait_for("more calls", || self.returned() >= before + more);
    }

    /// Returns the beginning of the pool: the header, and the table of claimed pages. The offsets
    /// come from docs/file-format.md.
    fn pool(&self) -> Vec<u8> {
        let pool = profile::Manifest::read(&self.profile()).unwrap().pool.unwrap();
        let mut start = vec![0; 4096 + 4 * record::pool::PAGES];
        std::io::Read::read_exact(&mut std::fs::File::open(pool).unwrap(), &mut start).unwrap();
        start
    }

    fn offers(&self) -> u32 {
        u32::from_le_bytes(*self.pool()[28..].first_chunk().unwrap())
    }

    fn claims(&self) -> usize {
        self.pool()[4096..].chunks_exact(4).filter(|claim| **claim != [0; 4]).count()
    }

    fn signal_run(&self, signal: i32) {
        // SAFETY: `kill` takes numbers only. Our child has not been waited for, so the process id
        // still belongs to it.
        assert_eq!(unsafe { libc::kill(self.run.id() as i32, signal) }, 0);
    }

    fn kill_program(&self) {
        let pid = profile::Profile::open(&self.profile()).unwrap().processes[0].id.pid;
        let identity = profile::ProcessId::of(pid).unwrap();
        // SAFETY: `kill` takes numbers only. The process is still alive, because nothing else ends
        // it.
        assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGKILL) }, 0);
        self.wait_for("end of the program", || !identity.is_alive());
    }

    /// Checks that the profile has the calls that returned. The profile may have one more call,
    /// which had not returned yet.
    fn check(mut self) {
        self.run.wait().unwrap();
        let returned = self.returned();
        let report = report(&self.program, &self.profile());
        let recorded = report["total"]["calls"].as_u64().unwrap();
        assert!(
            (returned..=returned + 1).contains(&recorded),
            "{returned} calls returned, {recorded} recorded; {}",
            report["losses"]
        );
        for loss in report["losses"].as_array().unwrap() {
            assert_eq!(loss["name"], "call_cut_short", "{loss}");
        }
        // `report` only reads, so the remaining pages may still be in the pool. `recover` moves
        // them to the profile.
        recover(&self.program, &self.profile());
        assert_eq!(profile::Manifest::read(&self.profile()).unwrap().pool, None);
        let after = self::report(&self.program, &self.profile());
        assert_eq!(after["total"]["calls"].as_u64(), Some(recorded));
    }
}

fn recover(program: &Path, profile: &Path) {
    let output = Command::new(program).arg("recover").arg(profile).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn report(program: &Path, profile: &Path) -> Value {
    let mut report = Command::new(program);
    let output = report.args(["report", "--format", "json"]).arg(profile).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Skips the test on machines where `run` does not drain.
fn begin(test: &str) -> Option<Recording> {
    let program = counterpoint(test)?;
    if std::thread::available_parallelism().is_ok_and(|n| n.get() == 1) {
        testkit::skip(test, "there is only one processor");
        return None;
    }
    Some(Recording::begin(program))
}

#[test]
fn pages_that_were_taken_come_back() {
    let Some(it) = begin("pages that were taken") else { return };
    it.wait_for("offers", || it.offers() >= 8);
    // The thread has claimed its current page, and at most two pages that it has offered to `run`.
    assert!(it.claims() <= 3, "{} pages", it.claims());
    let returned = it.returned();
    let seen = report(&it.program, &it.profile())["total"]["calls"].as_u64().unwrap();
    assert!(seen >= returned, "{seen} of {returned} calls");
    it.kill_program();
    it.check();
}

#[test]
fn a_stopped_run_delays_and_loses_nothing() {
    let Some(it) = begin("stopped run") else { return };
    it.wait_for("offers", || it.offers() >= 3);
    it.signal_run(libc::SIGSTOP);
    it.wait_for_calls(150_000);
    assert!(it.claims() <= 3, "{} pages", it.claims());
    let returned = it.returned();
    let seen = report(&it.program, &it.profile())["total"]["calls"].as_u64().unwrap();
    assert!(seen >= returned, "{seen} of {returned} calls");
    let offers = it.offers();
    it.signal_run(libc::SIGCONT);
    it.wait_for("offers after the stop", || it.offers() > offers + 3);
    it.signal_run(libc::SIGSTOP);
    it.wait_for_calls(60_000);
    it.kill_program();
    it.signal_run(libc::SIGCONT);
    it.check();
}

#[test]
fn a_program_goes_on_alone_after_run_was_killed() {
    let Some(it) = begin("killed run") else { return };
    it.wait_for("offers", || it.offers() >= 3);
    it.signal_run(libc::SIGKILL);
    it.wait_for_calls(150_000);
    assert!(it.claims() <= 3, "{} pages", it.claims());
    it.kill_program();
    it.check();
}

/// When a thread ends, `run` may be draining one of its pages.
#[test]
fn threads_that_end_leave_no_page_behind() {
    let Some(program) = counterpoint("threads that end") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    for (threads, stop) in [(6, false), (6, true)] {
        let path = scratch.join(if stop { "stopped.cpt" } else { "taken.cpt" });
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&path).arg("--");
        run.arg(&programs.host).arg(&programs.library).arg("threads");
        run.args([threads, 150_000].map(|n: u32| n.to_string()));
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        if stop {
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(3));
                for signal in [libc::SIGSTOP, libc::SIGCONT] {
                    // SAFETY: `kill` takes numbers only. Our child has not been waited for, so the
                    // process id still belongs to it.
                    unsafe { libc::kill(run.id() as i32, signal) };
                    std::thread::sleep(Duration::from_millis(3));
                }
            }
        }
        assert!(run.wait().unwrap().success());
        let report = report(&program, &path);
        assert_eq!(report["total"]["calls"], u64::from(threads) * 150_000);
        assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{}", report["losses"]);
    }
}

/// While `run` is stopped, the program executes itself anew with `exec`.
#[test]
fn an_exec_while_pages_are_offered_loses_nothing() {
    let Some(mut it) = begin("exec while pages are offered") else { return };
    it.wait_for("offers", || it.offers() >= 3);
    it.signal_run(libc::SIGSTOP);
    // `run` is stopped, so during these calls the thread itself must write full pages to the
    // profile.
    it.wait_for_calls(150_000);
    assert_eq!(it.claims(), 3, "the thread's page and two that were offered");
    let counted = std::fs::OpenOptions::new().write(true).open(it.scratch.join("counted")).unwrap();
    let more = 150_000u64;
    std::os::unix::fs::FileExt::write_all_at(&counted, &more.to_le_bytes(), 8).unwrap();
    // The profile has one directory for each execution of the program.
    let parts = || std::fs::read_dir(it.profile().join("processes")).unwrap().count();
    it.wait_for("part of the new program", || parts() == 2);
    it.signal_run(libc::SIGCONT);
    assert!(it.run.wait().unwrap().success());
    let returned = it.returned();
    let report = report(&it.program, &it.profile());
    assert_eq!(report["total"]["calls"], returned + more, "{}", report["losses"]);
    assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{}", report["losses"]);
    let calls: Vec<u64> = profile::Profile::open(&it.profile())
        .unwrap()
        .processes
        .iter()
        .map(|p| p.threads.iter().flat_map(|t| t.headers()).map(|h| u64::from(h.calls)).sum())
        .collect();
    assert_eq!(calls, [returned, more]);
}

/// Both `run` and the threads themselves write pages to the profile's file. The id of a call's
/// workgroup is the number of the call in its thread.
#[test]
fn calls_stay_in_order() {
    const CALLS: u32 = 150_000;
    let Some(program) = counterpoint("order of calls") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    let path = scratch.join("p.cpt");
    let mut run = Command::new(&program);
    run.args(["run", "-e", "none", "-o"]).arg(&path).arg("--");
    run.arg(&programs.host).arg(&programs.library).args(["threads", "4"]).arg(CALLS.to_string());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // While `run` is stopped, some pages wait for it, and the threads write newer pages to the
    // file.
    for _ in 0..8 {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            std::thread::sleep(Duration::from_millis(2));
            // SAFETY: `kill` takes numbers only. Our child has not been waited for, so the process
            // id still belongs to it.
            unsafe { libc::kill(run.id() as i32, signal) };
        }
    }
    assert!(run.wait().unwrap().success());
    let profile = profile::Profile::open(&path).unwrap();
    let mut decoder = profile::PageDecoder::new(&profile);
    assert_eq!(profile.processes[0].threads.len(), 4);
    for (thread, found) in profile.processes[0].threads.iter().enumerate() {
        let (mut next, mut end) = (0, 0);
        for page in 0..found.headers().len() {
            let columns = decoder.decode(profile::PageKey { process: 0, thread, page });
            for (i, workgroup) in columns.workgroup[0].iter().enumerate() {
                assert_eq!(*workgroup, next, "thread {thread}, page {page}");
                assert!(columns.start_ticks[i] >= end, "thread {thread}, call {next}");
                (next, end) = (next + 1, columns.start_ticks[i] + columns.duration(i));
            }
        }
        assert_eq!(next, CALLS);
    }
}

/// With `--passes`, `run` runs the program several times, each time with a new pool.
#[test]
fn every_pass_is_drained() {
    let Some(program) = counterpoint("drained passes") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    for budget in [None, Some("--budget=50%")] {
        let path = scratch.join(if budget.is_some() { "budget.cpt" } else { "p.cpt" });
        let mut run = Command::new(&program);
        run.args(["run", "--passes", "-e", "{page-faults:u},{minor-faults:u}", "-o"]).arg(&path);
        run.args(budget).arg("--").arg(&programs.host).arg(&programs.library);
        let output = run.args(["calls", "200000"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = report(&program, &path);
        assert_eq!(report["total"]["calls"], 400_000, "two passes");
        let row = &report["rows"][0];
        assert_eq!(row["calls"], 200_000, "{row}");
        let of_pass = |pass: &Value| pass["calls"].as_u64();
        let calls: Vec<_> = row["passes"].as_array().unwrap().iter().map(of_pass).collect();
        assert_eq!(calls, [Some(200_000); 2]);
        assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{}", report["losses"]);
        assert_eq!(profile::Manifest::read(&path).unwrap().pool, None);
    }
}

/// The limit on file sizes is 256 KiB. Pages that the program cannot write stay in memory until the
/// end.
#[test]
fn a_limit_of_file_sizes_loses_nothing() {
    let Some(program) = counterpoint("limited files") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    for threads in [1u64, 3] {
        let path = scratch.join(&format!("{threads}.cpt"));
        let mut run = Command::new("sh");
        // `ulimit -f` counts blocks of 512 bytes.
        run.args(["-c", r#"ulimit -S -f 512; exec "$@""#, "sh"]).arg(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&path).arg("--");
        run.arg(&programs.host).arg(&programs.library).arg("threads");
        let output = run.args([threads, 300_000].map(|n| n.to_string())).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = report(&program, &path);
        assert_eq!(report["total"]["calls"], threads * 300_000, "{}", report["losses"]);
        assert_eq!(report["losses"].as_array().unwrap().len(), 0, "{}", report["losses"]);
    }
}

/// On a single processor, `run` could drain only while the program does not run.
#[test]
fn nothing_is_offered_on_a_single_processor() {
    let Some(program) = counterpoint("a single processor") else { return };
    let (scratch, programs) = (testkit::Scratch::new(), Programs::get());
    let path = scratch.join("p.cpt");
    let mut run = Command::new("taskset");
    run.args(["-c", "0"]).arg(&program).args(["run", "-e", "none", "-o"]).arg(&path);
    run.arg("--").arg(&programs.host).arg(&programs.library).args(["calls", "200000"]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&program, &path)["total"]["calls"], 200_000);
}

/// A script truncates the pool after the calls. All calls are kept. `run` refuses to read the
/// truncated pool, which the profile states as a loss.
#[test]
fn a_program_that_truncates_its_pool_ends_as_without_us() {
    let Some(program) = counterpoint("truncated pool") else { return };
    let programs = Programs::get();
    for change in ["-s 0", "-s 0 $pool; truncate -s 135331840", "-s 4096", "-s 8192", "-s 1114112"]
    {
        let scratch = testkit::Scratch::new();
        let profile = scratch.join("p.cpt");
        let script = format!(
            "pool=$(sed -n 's/.*\"pool\": \"\\(.*\\)\",.*/\\1/p' \"$P/manifest.json\")\n\
             \"$0\" \"$1\" calls 200000\n\
             truncate {change} $pool || exit 9\n\
             exit 3"
        );
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&profile).args(["--", "sh", "-c", &script]);
        run.arg(&programs.host).arg(&programs.library).env("P", &profile);
        let output = run.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{change}: {:?}, {said}", output.status);
        let manifest = profile::Manifest::read(&profile).unwrap();
        assert_eq!(manifest.exit.and_then(|exit| exit.code), Some(3), "{change}");
        let pool = manifest.pool.expect("it is left alone");
        assert!(said.contains(pool.to_str().unwrap()), "{change}: {said}");
        let report = report(&program, &profile);
        assert_eq!(report["total"]["calls"], 200_000, "{change}: {report}");
        let losses = report["losses"].as_array().unwrap();
        assert!(losses.iter().any(|loss| loss["name"] == "pool_refused"), "{change}: {report}");
        std::fs::remove_dir_all(pool.parent().unwrap()).unwrap();
    }
}

/// After the program has truncated its pool, another recorded call kills it with SIGBUS, because
/// the recorder accesses memory that the pool's file no longer has. The recorder must not install a
/// handler of SIGBUS. `run` keeps the pages that it has drained before.
#[test]
fn a_program_that_truncates_its_own_pool() {
    let Some(program) = counterpoint("own pool truncated") else { return };
    let programs = Programs::get();
    for (more, code, signal) in [("0", Some(5), None), ("1", None, Some(libc::SIGBUS))] {
        let scratch = testkit::Scratch::new();
        let profile = scratch.join("p.cpt");
        let mut run = Command::new(&program);
        run.args(["run", "-e", "none", "-o"]).arg(&profile).arg("--");
        run.arg(&programs.host).arg(&programs.library).args(["truncate", "200000", more]);
        let output = run.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.status.signal()), (code, signal), "{said}");
        let manifest = profile::Manifest::read(&profile).unwrap();
        let exit = manifest.exit.expect("`run` has waited for it");
        assert_eq!((exit.code, exit.signal), (code, signal));
        let pool = manifest.pool.expect("it is left alone");
        assert!(said.contains(pool.to_str().unwrap()), "{said}");
        let report = report(&program, &profile);
        let calls = report["total"]["calls"].as_u64().unwrap();
        // At most the thread's current page and two pages that wait for `run` are lost. A call
        // takes 3 to 5 bytes of a page, so these are fewer than 100,000 calls.
        assert!((100_000..=200_000).contains(&calls), "{report}");
        let losses = report["losses"].as_array().unwrap();
        assert!(losses.iter().any(|loss| loss["name"] == "pool_refused"), "{report}");
        std::fs::remove_dir_all(pool.parent().unwrap()).unwrap();
    }
}
