//! Tests that no call that returned is lost when programs are killed with SIGKILL at random
//! moments, or exit while their threads make calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Programs, counterpoint, environment};
use profile::{Columns, Profile};

/// The number of programs that are killed by the test with counters and the test without counters
/// together.
fn kills() -> usize {
    std::env::var("COUNTERPOINT_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(1_000)
}

/// What `tests/programs/killer.c` writes about one process. `returned` has the number of returned
/// calls of each thread.
struct Slot {
    pid: u32,
    returned: [u64; 2],
    waited_us: u64,
}

fn slots(path: &Path) -> Vec<Slot> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: &[u8]| u64::from_le_bytes(*at.first_chunk().unwrap());
    let slot = |s: &[u8]| Slot {
        pid: word(s) as u32,
        returned: [word(&s[8..]), word(&s[16..])],
        waited_us: word(&s[24..]),
    };
    bytes.chunks_exact(32).map(slot).collect()
}

/// The count, sum and maximum of the numbers of one thread's calls, and the lowest and the highest
/// worker of these calls. The program numbers the calls of each thread from 0.
#[derive(Default)]
struct Numbers {
    calls: u64,
    sum: u128,
    highest: u64,
    workers: Option<(u32, u32)>,
}

impl Numbers {
    fn add(&mut self, columns: &Columns) {
        for (number, worker) in columns.workgroup[0].iter().zip(&columns.worker) {
            self.calls += 1;
            self.sum += u128::from(*number);
            self.highest = self.highest.max((*number).into());
            let (low, high) = self.workers.unwrap_or((*worker, *worker));
            self.workers = Some((low.min(*worker), high.max(*worker)));
        }
    }

    fn join(&mut self, other: &Self) {
        self.calls += other.calls;
        self.sum += other.sum;
        self.highest = self.highest.max(other.highest);
        self.workers = match (self.workers, other.workers) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// Returns whether the count and the sum of the numbers are those of 0, 1, …, `highest`.
    fn are_complete(&self) -> bool {
        let n = u128::from(self.calls);
        n == 0 || (self.highest + 1 == self.calls && self.sum == n * (n - 1) / 2)
    }
}

/// Checks that each call that returned was recorded, and returns how many processes had such a call
/// on their first thread. For each thread, the profile may have one more call, which the program
/// had not yet counted.
fn verify(dir: &Path, slots: &[Slot], when: &str) -> usize {
    let profile = Profile::open(dir).unwrap();
    let (states, damage) =
        profile.visit(2, BTreeMap::<(usize, usize), Numbers>::new, |threads, columns| {
            // A page (a block of recorded data) can have no calls, and only show that a call was
            // cut short.
            if !columns.is_empty() {
                threads.entry((columns.process, columns.thread)).or_default().add(columns);
            }
        });
    let mut found: BTreeMap<(u32, u32), Numbers> = BTreeMap::new();
    for ((process, _), numbers) in states.iter().flatten() {
        let process = &profile.processes[*process];
        assert_eq!(process.libraries.len(), 1, "{when}: {:?} has the names", process.id);
        // The number of the worker identifies the thread.
        let (worker, other) = numbers.workers.unwrap_or_default();
        assert_eq!(worker, other, "{when}: the calls of two threads in one");
        found.entry((process.id.pid, worker)).or_default().join(numbers);
    }
    for (id, damage) in profile.processes.iter().map(|p| p.id).zip(&damage) {
        assert!(damage.is_empty(), "{when}: {id:?}: {damage:?}");
    }
    for loss in profile.all_losses() {
        assert_eq!(loss.name, "call_cut_short", "{when}: {loss:?}");
    }
    let mut alive = 0;
    for slot in slots {
        alive += usize::from(slot.returned[0] > 0);
        for (worker, returned) in slot.returned.into_iter().enumerate() {
            let numbers = found.remove(&(slot.pid, worker as u32)).unwrap_or_default();
            assert!(numbers.are_complete(), "{when}: {} has gaps", slot.pid);
            assert!(
                (returned..=returned + 1).contains(&numbers.calls),
                "{when}: killed after {} µs: {returned} calls returned, {} recorded",
                slot.waited_us,
                numbers.calls
            );
        }
    }
    assert!(found.is_empty(), "{when}: invented calls: {:?}", found.keys());
    alive
}

fn kill(test: &str, events: &str, all: usize, longest_us: u64, ending: &str) {
    let Some(program) = counterpoint(test) else { return };
    let programs = Programs::get();
    let executable = programs.other("killer");
    let (mut killed, mut met) = (0, 0);
    while killed < all {
        // The victims are killed in batches, because the data of all of them would fill a small
        // /dev/shm.
        let batch = (all - killed).min(250);
        killed += batch;
        let scratch = testkit::Scratch::new();
        let (path, file) = (scratch.join("p.cpt"), scratch.join("slots"));
        let variables = environment(&program, events, &path);
        let seed = u64::from(std::process::id()) << 20 | killed as u64;
        let mut killer = Command::new(&executable);
        killer.arg(&programs.library).arg(&file);
        killer.args([batch as u64, seed, longest_us].map(|n| n.to_string()));
        killer.arg(ending).envs(variables);
        let output = killer.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{ending} {batch}\n"));
        let slots = slots(&file);
        assert_eq!(slots.len(), batch + 1);
        met += verify(&path, &slots, "in the pool");
        let mut recover = Command::new(&program);
        recover.args(["recover", "--close"]).arg(&path);
        // The first four attempts to recover the profile are killed, too, unless they end before.
        for attempt in 0..4 {
            let mut child = recover.stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(seed * 7_919 % 40_000 + attempt * 10_000));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let output = recover.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(profile::Manifest::read(&path).unwrap().pool, None::<PathBuf>);
        verify(&path, &slots, "in the file");
    }
    // If this fails, most victims were killed before their first call.
    assert!(met > all / 3, "{met} of {all} victims had a call that returned");
}

#[test]
fn kills_of_programs_that_are_only_timed() {
    kill("kills", "none", kills().div_ceil(2), 1_500, "kill");
}

#[test]
fn kills_of_programs_with_counters() {
    kill("kills with counters", "page-faults:u,task-clock:u", kills().div_ceil(2), 3_000, "kill");
}

/// While a process ends by `exit`, its detached threads continue to make calls.
#[test]
fn threads_that_call_during_exit() {
    kill("exits", "page-faults:u", 200, 3_000, "exit");
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Target,
    Run,
    Both,
}

/// The program counts the returned calls in shared memory. The profile may have one call more than
/// this count.
#[test]
fn kills_of_run_too() {
    let Some(program) = counterpoint("kill run") else { return };
    let mut random = 0x9E37_79B9_7F4A_7C15u64 ^ u64::from(std::process::id());
    for round in 0..24 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let victim = [Victim::Target, Victim::Run, Victim::Both][(random >> 8) as usize % 3];
        kill_once(&program, victim, Duration::from_micros(500 + random % 40_000), round);
    }
}

fn kill_once(program: &Path, victim: Victim, after: Duration, round: u32) {
    let scratch = testkit::Scratch::new();
    let (path, counted) = (scratch.join("p.cpt"), scratch.join("counted"));
    let programs = Programs::get();
    let events = if round.is_multiple_of(2) { "none" } else { "page-faults:u,task-clock:u" };
    let mut run = Command::new(program)
        .args(["run", "-e", events, "-o"])
        .arg(&path)
        .arg("--")
        .arg(&programs.host)
        .arg(&programs.library)
        .arg("count-for-ever")
        .arg(&counted)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The delay `after` begins when the program has counted its first call.
    let read = || {
        let bytes = std::fs::read(&counted).unwrap_or_default();
        bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b))
    };
    let patience = Instant::now();
    while read() == 0 {
        assert!(patience.elapsed() < Duration::from_secs(20), "the program does not start");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(after);
    let target = profile::Profile::open(&path).unwrap().processes[0].id.pid;
    let identity = profile::ProcessId::of(target).unwrap();
    let kill = |pid: u32| {
        // SAFETY: `kill` takes numbers only. The process is our child or grandchild, and nothing
        // else ends it.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    };
    if victim != Victim::Target {
        kill(run.id());
    }
    if victim != Victim::Run {
        kill(target);
    } else {
        std::thread::sleep(Duration::from_millis(2));
        kill(target); // It continues without `run`, so end it.
    }
    run.wait().unwrap();
    let gone = Instant::now();
    while identity.is_alive() {
        assert!(gone.elapsed() < Duration::from_secs(20), "{target} does not die");
        std::thread::sleep(Duration::from_millis(1));
    }
    let returned = read();
    let output =
        Command::new(program).args(["report", "--format", "json"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let recorded = report["total"]["calls"].as_u64().unwrap();
    assert!(
        recorded == returned || recorded == returned + 1,
        "{victim:?} killed after {after:?}: {returned} calls returned, {recorded} recorded; {}",
        report["losses"]
    );
    for loss in report["losses"].as_array().unwrap() {
        assert_eq!(loss["name"], "call_cut_short", "{loss}");
        assert_eq!(loss["count"], 1, "{loss}");
    }
    // `report` leaves the data in the pool, and `recover` moves it into the profile.
    let recovered = Command::new(program).arg("recover").arg(&path).output().unwrap();
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    let pool = profile::Manifest::read(&path).unwrap().pool;
    assert_eq!(pool, None, "the rest was collected");
}
