//! Runs mutation tests with random texts on up to eight processors.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::Random;

pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Calls `round` on up to eight threads, altogether at least `COUNTERPOINT_MUTANTS` times if this
/// variable is set, or else at least `inputs` times. The seed of the random numbers is
/// `COUNTERPOINT_SEED` if this variable is set, or else `seed`. Returns the required number of
/// calls, and the number of calls that returned true. If a round panics, prints the state of its
/// random numbers before the round, as a value for `COUNTERPOINT_SEED`.
pub fn rounds(
    inputs: u64,
    seed: u64,
    round: impl Fn(u64, &mut Random) -> bool + Sync,
) -> (u64, u64) {
    let inputs = variable("COUNTERPOINT_MUTANTS").unwrap_or(inputs);
    let seed = variable("COUNTERPOINT_SEED").unwrap_or(seed);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    let instrumented = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (instrumented, round) = (&instrumented, &round);
            scope.spawn(move || {
                let mut random = Random((seed ^ worker << 40).max(1));
                for i in 0..inputs.div_ceil(workers) {
                    let state = random.0;
                    match catch_unwind(AssertUnwindSafe(|| round(i, &mut random))) {
                        Ok(done) => {
                            instrumented.fetch_add(u64::from(done), Ordering::Relaxed);
                        }
                        Err(panic) => {
                            eprintln!("COUNTERPOINT_SEED={state} makes this text at once");
                            resume_unwind(panic);
                        }
                    }
                }
            });
        }
    });
    (inputs, instrumented.into_inner())
}

/// Returns one of the texts in `seeds` with damage: changed bytes, missing, inserted or repeated
/// parts, or lines in another order.
pub fn damaged(seeds: &[&str], pieces: &[&str], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.place(seeds.len())].as_bytes().to_vec();
    for _ in 0..=random.place(5) {
        if bytes.is_empty() {
            break;
        }
        let at = random.place(bytes.len());
        match random.place(6) {
            0 => bytes[at] = random.next() as u8,
            1 if random.place(2) == 0 => bytes.truncate(at),
            1 | 2 => {
                let piece = pieces[random.place(pieces.len())];
                bytes.splice(at..at, piece.bytes());
            }
            3 => {
                let end = (at + random.place(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + random.place(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.place(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                // Two lines are exchanged, so that blocks may jump to other blocks, and phi nodes
                // may be in other places.
                let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
                let (a, b) = (random.place(lines.len()), random.place(lines.len()));
                lines.swap(a, b);
                bytes = lines.join(&b'\n');
            }
        }
    }
    bytes
}
