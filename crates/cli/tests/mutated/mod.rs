//! Damaged profiles through everything that views do: nothing panics, hangs, or asks for memory that
//! the files do not justify.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::Random;

mod victim;
use victim::{Victim, collected, views};

/// How many; `COUNTERPOINT_MUTANTS` says another number.
fn mutants() -> u64 {
    std::env::var("COUNTERPOINT_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(500)
}

/// Address space that all of it may take: threads have stacks and arenas, files are some KiB.
const MOST_MEMORY: u64 = 3 << 30;

#[test]
fn any_file_of_a_profile_may_be_damaged() {
    let limit = libc::rlimit { rlim_cur: MOST_MEMORY, rlim_max: MOST_MEMORY };
    // SAFETY: a limit of this process, which runs this test alone.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    static CASE: AtomicU64 = AtomicU64::new(0);
    std::thread::spawn(|| {
        loop {
            // Not a matter of speed: any of them takes milliseconds.
            let before = CASE.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(60));
            if CASE.load(Ordering::Relaxed) == before {
                eprintln!("case {before} hangs");
                std::process::abort();
            }
        }
    });
    let seed = std::env::var("COUNTERPOINT_SEED").ok().and_then(|n| n.parse().ok());
    let mut random = Random(seed.unwrap_or(0x5EED_0FF0_12E5));
    let victims = Victim::all();
    victims.iter().for_each(|victim| views(victim.dir()));
    for case in 0..mutants() {
        CASE.store(case + 1, Ordering::Relaxed);
        let at = random.place(victims.len());
        let state = random.0;
        let number = victims[at].damage(&mut random);
        let name = victims[at].name(number);
        let collects = case % 16 == 0;
        let looked = std::panic::catch_unwind(|| {
            views(victims[at].dir());
            if collects {
                collected(victims[at].dir());
                views(victims[at].dir());
            }
        });
        assert!(looked.is_ok(), "case {case}, {name}, COUNTERPOINT_SEED={state}");
        match collects {
            true => victims[at].restore(),
            false => victims[at].mend(number),
        }
    }
}
