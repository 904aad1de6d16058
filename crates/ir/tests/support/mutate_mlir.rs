//! Checks the instrumentation of a text of MLIR, for fuzzers and random tests.

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::mlir::instrument::{Instrumented, instrument};
use ir::table::SideTable;

/// A text that contains all syntax that the instrumenter's parser knows.
pub const SEED: &str = include_str!("seed.mlir");

pub fn options(choice: u64) -> Options<'static> {
    Options {
        mode: Mode::ALL[(choice % 4) as usize],
        max_depth: [None, Some(0), Some(9)][(choice / 4 % 3) as usize],
        min_height: [None, Some(0)][(choice / 12 % 2) as usize],
        siblings: (choice / 24).is_multiple_of(5),
        functions: [Functions::WithLoops, Functions::All, Functions::None]
            [(choice / 120 % 3) as usize],
        target: Some("x86_64-linux-gnu"),
        source: "seed.mlir",
        ..Options::default()
    }
}

/// Instruments a text, and checks the result. Returns whether something was instrumented.
pub fn check(text: &[u8], choice: u64) -> bool {
    let Ok(done) = instrument(text, &options(choice)) else { return false };
    assert_eq!(done.json.len(), done.tables.len());
    for (json, table) in done.json.iter().zip(&done.tables) {
        assert_eq!(&SideTable::from_json(json.as_bytes()).unwrap(), table);
        assert!(!table.entries.is_empty());
    }
    unchanged(text, &done);
    // This limit is generous: an inserted hook takes some hundred bytes, each edge between two
    // blocks gets a few hooks, and the definitions for a module take some kilobytes.
    let limit = 100_000 * (1 + done.tables.len()) + 40_000 * text.len();
    assert!(done.text.len() < limit, "{} bytes", done.text.len());
    if done.tables.is_empty() {
        assert_eq!(done.text, text);
        return false;
    }
    // Instrumenting the result again must fail, because it would define the added names twice.
    assert!(instrument(&done.text, &options(choice)).is_err());
    true
}

/// Checks that the result still has the bytes of all lines without `^`, in the same order. A `^`
/// marks the name of a block.
fn unchanged(text: &[u8], done: &Instrumented) {
    let mut new = done.text.iter();
    for line in text.split(|b| *b == b'\n').filter(|line| !line.contains(&b'^')) {
        for byte in line {
            let found = new.any(|other| other == byte);
            assert!(found, "{} is lost", String::from_utf8_lossy(line));
        }
    }
}

/// Removes the inserted text from a text with one operation on each line. The result must be the
/// original.
#[allow(dead_code, reason = "the fuzzer makes other texts")]
pub fn taken_out(new: &[u8]) -> String {
    let new = std::str::from_utf8(new).unwrap();
    let mut out = String::new();
    // For the current function: where its text begins in `out`, and the target of each new block.
    let (mut begin, mut targets) = (0, Vec::<(String, String)>::new());
    let mut block = None;
    let mut own = false;
    for line in new.split_inclusive('\n') {
        let word = line.trim_start();
        if word.starts_with("llvm.mlir.global internal constant @counterpoint_loops_table_") {
            own = true;
        }
        // The definitions that instrumenting inserts end at the closing brace of the module.
        if own && line.starts_with("  }") && word.starts_with('}') && !word.contains("unknown") {
            own = false;
        }
        if own {
            continue;
        }
        if word.starts_with("llvm.func") {
            (begin, targets) = (out.len(), Vec::new());
        }
        if let Some(rest) = word.strip_prefix("^cpt.e") {
            block = rest.strip_suffix(":\n");
            assert!(block.is_some(), "{line}");
        } else if word.starts_with("llvm.br ") && block.is_some() {
            let target = word["llvm.br ".len()..].strip_suffix(" loc(unknown)\n").unwrap();
            targets.push((format!("^cpt.e{}", block.take().unwrap()), target.to_owned()));
        } else if !(word.starts_with("%cpt.") || word.starts_with("llvm.call @counterpoint_loops_"))
        {
            out.push_str(line);
        }
        if word.starts_with('}') {
            // The names are replaced from the last new block to the first, so that ^cpt.e1 is not
            // found in ^cpt.e12.
            for (name, target) in targets.drain(..).rev() {
                let function = out.split_off(begin);
                assert_eq!(function.matches(&name).count(), 1, "{name}");
                out.push_str(&function.replace(&name, &target));
            }
        }
    }
    out
}
