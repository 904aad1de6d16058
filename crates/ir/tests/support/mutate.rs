//! Checks the instrumentation of a text of LLVM IR, for fuzzers and random tests.

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::instrument::instrument;
use ir::table::SideTable;

/// Texts that contain all syntax that the instrumenter's parser knows.
pub const SEEDS: [&str; 2] = [include_str!("seed_x86.ll"), include_str!("seed_aarch64.ll")];

/// Instruments a text, and checks the result. Returns whether it could be instrumented.
pub fn check(text: &[u8], choice: u64) -> bool {
    let options = Options {
        mode: Mode::ALL[(choice % 4) as usize],
        max_depth: [None, Some(0), Some(9)][(choice / 4 % 3) as usize],
        min_height: [None, Some(0)][(choice / 12 % 2) as usize],
        siblings: (choice / 24).is_multiple_of(5),
        functions: [Functions::WithLoops, Functions::All, Functions::None]
            [(choice / 120 % 3) as usize],
        target: Some("x86_64-linux-gnu"),
        ..Options::default()
    };
    let Ok(done) = instrument(text, &options) else { return false };
    assert_eq!(SideTable::from_json(done.json.as_bytes()).unwrap(), done.table);
    // Instrumenting the result again must fail, because it would define the added names twice.
    assert!(instrument(&done.text, &options).is_err());
    // This limit is generous: an inserted hook takes some thousand bytes, and each edge between two
    // blocks gets a few hooks.
    assert!(done.text.len() < 200_000 + 40_000 * text.len(), "{} bytes", done.text.len());
    true
}
