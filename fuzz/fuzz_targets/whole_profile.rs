//! Damages one file of a profile, and does everything with the profile that views do. The fuzzer's
//! bytes select the damage.
#![no_main]
#![allow(dead_code, reason = "the test of the command line uses more of its modules")]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use testkit::Random;

#[path = "../../crates/cli/tests/mutated/change.rs"]
mod change;
#[path = "../../crates/cli/tests/mutated/victim.rs"]
mod victim;
#[path = "../../crates/cli/tests/mutated/views.rs"]
mod views;

use victim::{Kind, Victim};
use views::{Choice, views};

thread_local! {
    static VICTIMS: RefCell<Vec<Victim>> = RefCell::new(Victim::all());
}

fuzz_target!(|data: &[u8]| {
    let mut seed = [1u8; 8];
    for (to, from) in seed.iter_mut().zip(data) {
        *to = from ^ 0x55;
    }
    let mut random = Random(u64::from_le_bytes(seed).max(1));
    VICTIMS.with_borrow_mut(|victims| {
        let at = random.place(victims.len());
        let kind = random.of(&Kind::ALL);
        let Some(damage) = victims[at].damage(&mut random, kind) else { return };
        views(victims[at].dir(), Choice::of(&mut random), &|_| ());
        victims[at].mend(damage);
    });
});
