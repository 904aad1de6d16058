//! Tests random calls through the plugin interface, with a hostile plugin and with a hostile host.
//! A million rounds of each test: `COUNTERPOINT_MUTANTS=1000000 cargo test
//! --release -p counterpoint-plugin --test fuzzed`. `COUNTERPOINT_SEED` is the number of the first
//! round. `fuzz/fuzz_targets/plugin_calls.rs` does the same with a fuzzer.

#[path = "support/calls.rs"]
mod calls;

use calls::{Choose, hostile_host, hostile_plugin};
use plugin_host::Host;
use testkit::Random;

struct Generated(Random);

impl Choose for Generated {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `round` for consecutive seeds. The seed of a round that fails is printed, so that it can be
/// repeated.
fn rounds(round: impl Fn(Box<dyn Choose>)) {
    let (count, first) = (
        variable("COUNTERPOINT_MUTANTS").unwrap_or(3_000),
        variable("COUNTERPOINT_SEED").unwrap_or(1),
    );
    for seed in first..first + count {
        let run = || round(Box::new(Generated(Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))));
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            eprintln!("repeat it with COUNTERPOINT_SEED={seed} COUNTERPOINT_MUTANTS=1");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn our_host_keeps_what_a_hostile_plugin_gives() {
    let host = Host::leak(|_, _| {});
    rounds(|choose| hostile_plugin(host, choose));
}

#[test]
fn a_plugin_of_the_sdk_survives_a_hostile_host() {
    // Messages of the panics that the plugin makes on purpose are not shown.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_ours =
            info.payload().downcast_ref::<&str>() == Some(&"the host declines everything");
        if !is_ours {
            usual(info);
        }
    }));
    rounds(hostile_host);
}
