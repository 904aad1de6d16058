//! Gives random texts of LLVM IR to the instrumenter, which must not panic, and whose output may
//! grow only in proportion to the text. For more texts: `COUNTERPOINT_MUTANTS=1000000 cargo test
//! --release -p counterpoint-ir --test fuzzed`. `COUNTERPOINT_SEED` is their seed.
//! `fuzz/fuzz_targets/loops.rs` does the same with a fuzzer.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/mutate.rs"]
mod mutate;
#[path = "support/rounds.rs"]
mod rounds;

use mutate::{SEEDS, check};
use rounds::{damaged, rounds};
use testkit::Random;

/// Pieces of text that have a meaning in LLVM IR.
const PIECES: [&str; 34] = [
    "\"",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "%",
    "@",
    "!",
    "#",
    ";",
    "/*",
    "*/",
    "\n",
    ":",
    " = ",
    "label %h",
    "phi i32 [ 0, %h ]",
    "br label %h\n",
    "h:\n",
    "define void @f() {\n",
    "}\n",
    "ret void\n",
    "indirectbr ptr %p, [label %h]\n",
    "unreachable\n",
    "switch i32 0, label %h [\n",
    "musttail call",
    "landingpad",
    "alloca i32, i64 %n",
    "uselistorder",
    "attributes #0 = {",
];

/// Makes a function whose blocks jump to random blocks.
fn tangled(random: &mut Random) -> Vec<u8> {
    use std::fmt::Write;
    let n = 1 + random.place(14);
    let mut text = String::from(
        "target triple = \"aarch64-linux-gnu\"\ndefine i32 @f(i1 %c, i32 %x, ptr %p) {\nentry:\n",
    );
    let _ = writeln!(text, "  br label %b{}", random.place(n));
    for block in 0..n {
        let mut target = || random.place(n);
        let (a, b, c) = (target(), target(), target());
        let _ = writeln!(text, "b{block}:");
        let _ = match random.place(5) {
            0 => writeln!(text, "  ret i32 %x"),
            1 => writeln!(text, "  br label %b{a}"),
            2 => writeln!(
                text,
                "  switch i32 %x, label %b{a} [\n    i32 0, label %b{b}\n    i32 1, label %b{b}\n    i32 2, label %b{c}\n  ]"
            ),
            3 => writeln!(text, "  indirectbr ptr %p, [label %b{a}, label %b{b}]"),
            _ => writeln!(text, "  br i1 %c, label %b{a}, label %b{b}"),
        };
    }
    text.push_str("}\n");
    text.into_bytes()
}

#[test]
fn no_text_makes_it_panic() {
    let (inputs, instrumented) = rounds(6000, 0x10095, |i, random| {
        let text = match i % 4 {
            0 => tangled(random),
            _ => damaged(&SEEDS, &PIECES, random),
        };
        check(&text, random.next())
    });
    assert!(instrumented * 4 > inputs, "only {instrumented} of {inputs} were texts");
}

#[test]
fn a_text_may_end_anywhere() {
    for seed in SEEDS {
        for end in 0..seed.len() {
            check(&seed.as_bytes()[..end], end as u64);
        }
    }
}
