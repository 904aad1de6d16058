//! A profile with one damaged file, through everything that views do. The bytes choose the damage.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use testkit::Random;

#[path = "../../crates/cli/tests/mutated/victim.rs"]
mod victim;

use victim::{Victim, views};

fuzz_target!(|data: &[u8]| {
    static VICTIMS: OnceLock<Vec<Victim>> = OnceLock::new();
    let victims = VICTIMS.get_or_init(Victim::all);
    let mut seed = [1u8; 8];
    for (to, from) in seed.iter_mut().zip(data) {
        *to = from ^ 0x55;
    }
    let mut random = Random(u64::from_le_bytes(seed).max(1));
    let victim = &victims[random.place(victims.len())];
    let number = victim.damage(&mut random);
    views(victim.dir());
    victim.mend(number);
});
