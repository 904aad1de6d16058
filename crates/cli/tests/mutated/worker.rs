//! The worker process, which does a range of cases: it damages files of profiles and runs commands
//! on them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use profile::collect::{Closing, collect};
use testkit::Random;

use super::victim::{Damage, Kind, Victim};
use super::views::Choice;
use super::{commands, held, views};

/// The variable with the range of cases.
pub const RANGE: &str = "COUNTERPOINT_MUTANTS_RANGE";
/// The variable with pairs: the number of a case, and a deliberate fault.
pub const FAULTS: &str = "COUNTERPOINT_MUTANTS_FAULTS";
/// The file with the number of the present case, the damaged file, and the step that the process is
/// doing.
pub const AT: &str = "at";
/// The file with panics, one in each line.
pub const PANICS: &str = "panics";
/// The file with the stderr of the process.
pub const WORDS: &str = "words";
const TALLY: &str = "tally";

/// The limit in bytes of the memory that the cases may allocate, in addition to what was allocated
/// before the first case. Undamaged profiles need less than a tenth of this.
const MOST_HELD: usize = 128 << 20;
/// The limit of the address space, which includes stacks of threads and memory of C libraries.
const MOST_MEMORY: u64 = 3 << 30;

/// The statistics for one kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub cases: u64,
    /// The number of cases whose damaged file belonged to a pass (one of several recordings in a
    /// profile).
    pub in_pass: u64,
    /// The most bytes that a case added to the allocated memory, and the number of that case.
    pub held: (u64, u64),
    /// The longest processor time of a case in ns, and the number of that case.
    pub time: (u64, u64),
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.in_pass += other.in_pass;
        self.held = self.held.max(other.held);
        self.time = self.time.max(other.time);
    }

    fn write(all: &BTreeMap<String, Self>, directory: &Path) {
        let mut text = String::new();
        for (kind, tally) in all {
            let Self { cases, in_pass, held, time } = tally;
            let (held, most, time, slowest) = (held.0, held.1, time.0, time.1);
            writeln!(text, "{kind} {cases} {in_pass} {held} {most} {time} {slowest}").unwrap();
        }
        fs::write(directory.join(TALLY), text).unwrap();
    }

    /// Adds the tallies that a process has written into `directory`.
    pub fn add_all(all: &mut BTreeMap<String, Self>, directory: &Path) {
        let text = fs::read_to_string(directory.join(TALLY)).unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap().to_owned();
            let numbers: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            let [cases, in_pass, held, most, time, slowest] = numbers[..] else { panic!("{line}") };
            let one = Self { cases, in_pass, held: (held, most), time: (time, slowest) };
            all.entry(kind).or_default().add(one);
        }
    }

    /// Returns a table with a row for each kind of file.
    pub fn table(all: &BTreeMap<String, Self>) -> String {
        let mut text = format!(
            "{:<12}{:>9}{:>11}{:>11}{:>12}{:>10}{:>12}\n",
            "file", "cases", "in a pass", "most KiB", "in case", "most ms", "in case"
        );
        for (kind, tally) in all {
            let Self { cases, in_pass, held, time } = tally;
            let (kib, ms) = (held.0 / 1024, time.0 / 1_000_000);
            writeln!(
                text,
                "{kind:<12}{cases:>9}{in_pass:>11}{kib:>11}{:>12}{ms:>10}{:>12}",
                held.1, time.1
            )
            .unwrap();
        }
        text
    }
}

/// Returns random numbers for a case. With SplitMix64's function, neighbouring cases have unrelated
/// numbers.
fn random(case: u64) -> Random {
    let mut z = case.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Random((z ^ (z >> 31)).max(1))
}

fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Limits the memory of this process, and redirects stderr to the returned file.
fn limits(directory: &Path) -> File {
    let limit = libc::rlimit { rlim_cur: MOST_MEMORY, rlim_max: MOST_MEMORY };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let words = File::options().append(true).open(directory.join(WORDS)).unwrap();
    // SAFETY: the limits and the file outlive the calls, which change this process alone.
    // `PR_SET_PDEATHSIG` lets this process end with the process that has started it.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_CORE, &raw const none), 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // The file is opened for appending, so new text begins at the start again after the file
        // was emptied.
        assert!(libc::dup2(words.as_raw_fd(), 2) == 2);
    }
    held::limit(held::now() + MOST_HELD);
    words
}

/// The number of panics, including those that were caught.
static PANICKED: AtomicU64 = AtomicU64::new(0);
static NOW: Mutex<String> = Mutex::new(String::new());

fn now() -> String {
    NOW.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note_panics(directory: &Path) {
    let path = directory.join(PANICS);
    std::panic::set_hook(Box::new(move |panic| {
        PANICKED.fetch_add(1, Ordering::SeqCst);
        let line = format!("{}: {panic}", now()).replace('\n', " ");
        let file = File::options().create(true).append(true).open(&path);
        let _ = file.and_then(|mut file| {
            std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes())
        });
    }));
}

fn step(at: &File, words: &str) {
    let mut now = NOW.lock().unwrap_or_else(PoisonError::into_inner);
    now.clear();
    now.push_str(words);
    let line = format!("{words:<300}\n");
    at.write_all_at(line.as_bytes(), 0).unwrap();
}

#[test]
#[ignore = "a part of any_file_of_a_profile_may_be_damaged, which starts it"]
fn cases_of_one_process() {
    let Ok(range) = std::env::var(RANGE) else { return };
    let (from, end) = range.split_once(' ').unwrap();
    let (from, end): (u64, u64) = (from.parse().unwrap(), end.parse().unwrap());
    let directory = std::env::current_dir().unwrap();
    let at = File::create(directory.join(AT)).unwrap();
    let mut victims = Victim::all();
    let words = limits(&directory);
    note_panics(&directory);
    let mut all: BTreeMap<String, Tally> = BTreeMap::new();
    for case in from..end {
        held::most();
        let before = held::now();
        let began = processor_ns();
        let panics = PANICKED.load(Ordering::SeqCst);
        let (damage, done) = one(case, &mut victims, &at);
        if PANICKED.load(Ordering::SeqCst) > panics || !done {
            // After a panic, the state of the profiles is not known.
            victims = Victim::all();
        }
        let tally = Tally {
            cases: 1,
            in_pass: u64::from(damage.in_pass),
            held: (held::most().saturating_sub(before) as u64, case),
            time: (processor_ns() - began, case),
        };
        all.entry(format!("{:?}", damage.kind).to_lowercase()).or_default().add(tally);
        if case.is_multiple_of(64) {
            words.set_len(0).unwrap();
        }
        if case.is_multiple_of(256) {
            Tally::write(&all, &directory);
        }
    }
    Tally::write(&all, &directory);
}

fn fault(case: u64) {
    let faults = std::env::var(FAULTS).unwrap_or_default();
    let words: Vec<&str> = faults.split(' ').collect();
    let number = case.to_string();
    match words.chunks(2).find(|pair| pair[0] == number).map(|pair| pair[1]) {
        None => {}
        Some("panic") => panic!("on purpose"),
        Some("caught") => drop(std::panic::catch_unwind(|| panic!("on purpose"))),
        Some("memory") => drop(std::hint::black_box(vec![0u8; 1 << 30])),
        // SAFETY: `raise` takes a number only; the signal ends this process.
        Some("crash") => drop(unsafe { libc::raise(libc::SIGILL) }),
        Some("hang") => std::thread::sleep(std::time::Duration::from_secs(600)),
        Some(other) => panic!("{other}: an unknown fault"),
    }
}

#[derive(Clone, Copy)]
enum After {
    Nothing,
    Command(usize),
    Collecting(Closing),
}

/// Returns what was damaged, and whether the case ended without a panic.
fn one(case: u64, victims: &mut [Victim], at: &File) -> (Damage, bool) {
    let mut r = random(case);
    let kind = r.of(&Kind::ALL);
    let (victim, damage) = loop {
        let victim = &mut victims[r.place(4)];
        if let Some(damage) = victim.damage(&mut r, kind) {
            break (victim, damage);
        }
    };
    let (name, origin) = (victim.name(damage), victim.origin);
    let say = |what: &str| step(at, &format!("COUNTERPOINT_SEED={case} {name}: {what}"));
    // Half of the cases end after the views. The others also run a command, or collect the data
    // from the pool, as `recover` does.
    let after = match r.place(8) {
        0..=3 => After::Nothing,
        4 => After::Collecting(r.of(&[Closing::Now, Closing::WhenOver])),
        _ => After::Command(r.place(commands::number(origin))),
    };
    let choice = Choice::of(&mut r);
    let dir = victim.dir();
    let looked = std::panic::catch_unwind(|| {
        views::views(dir, choice, &say);
        fault(case);
        match after {
            After::Nothing => {}
            After::Command(number) => {
                say(commands::words(origin, number));
                commands::run(origin, number, dir);
            }
            After::Collecting(closing) => {
                say("collect");
                let _ = collect(dir, closing).map(drop);
                let say = |what: &str| say(&format!("after collecting: {what}"));
                views::views(dir, choice, &say);
            }
        }
    });
    say("mend");
    match after {
        After::Nothing => victim.mend_file(damage),
        _ => victim.mend(damage),
    }
    // Now and then, checks that no file stays damaged, because this would affect all later cases.
    if case.is_multiple_of(101) {
        assert_eq!(victim.differences(), Vec::<String>::new(), "{name}");
    }
    (damage, looked.is_ok())
}

/// No part of an undamaged profile is refused or torn.
#[test]
fn whole_profiles_are_read() {
    let mut kinds: Vec<Kind> = Vec::new();
    for victim in Victim::all() {
        let profile = profile::Profile::open(victim.dir()).unwrap();
        let imported = victim.origin == profile::Origin::Import;
        assert!(profile.calls() > 0, "{:?}", victim.files());
        assert_eq!(profile.activities().unwrap().len(), if imported { 2 } else { 0 });
        let lost = profile.all_losses();
        for torn in [
            "torn_page",
            "torn_record",
            "torn_metadata",
            "torn_track",
            "pool_vanished",
            "file_refused",
            "pool_refused",
            "pool_of_original",
        ] {
            assert!(!lost.iter().any(|loss| loss.name == torn), "{lost:?}");
        }
        views::views(victim.dir(), Choice::of(&mut random(0)), &|_| ());
        kinds.extend(victim.files().iter().map(|(_, kind)| *kind));
    }
    assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}
