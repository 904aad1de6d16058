//! Tests the instrumentation of MLIR's `llvm` dialect. IREE's `iree-opt` must also accept the
//! instrumented texts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/mutate_mlir.rs"]
mod mutate;
#[path = "support/rounds.rs"]
mod rounds;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use abi::loops::Mode;
use ir::choice::{Functions, Options};
use ir::mlir::instrument::{Instrumented, instrument};
use ir::table::{Entry, Kind};
use mutate::{SEED, check, options, taken_out};
use rounds::{rounds, variable};
use testkit::{Random, skip};

fn done(text: &str, options: &Options) -> Instrumented {
    instrument(text.as_bytes(), options).unwrap()
}

fn all() -> Options<'static> {
    Options { min_height: Some(0), max_depth: Some(9), source: "seed.mlir", ..Options::default() }
}

/// The expected values were found by hand in `seed.mlir`.
#[test]
fn loops_of_the_seed() {
    let done = done(SEED, &all());
    let show = |e: &Entry| {
        let place = e.file.as_ref().map(|file| format!("{file}:{}", e.line.unwrap()));
        format!(
            "{} {} {:?} depth {:?} height {} parent {:?} lines {:?} at {} trips {:?}",
            e.id,
            e.function,
            e.label.as_deref().unwrap_or("-"),
            e.depth,
            e.height,
            e.parent,
            e.text,
            place.unwrap_or_default(),
            e.trip_count
        )
    };
    let entries: Vec<Vec<String>> =
        done.tables.iter().map(|table| table.entries.iter().map(show).collect()).collect();
    let expected = vec![
        vec![
            "0 nest \"-\" depth None height 2 parent None lines [7, 42] at a.mlir:1 trips None",
            // Loop 1 has no known number of trips: its counter goes from 0 to 64 in steps of 8 if
            // an iteration ends in ^bb7, but ^bb6 may pass any value.
            "1 nest \"bb1\" depth Some(0) height 1 parent Some(0) lines [16, 39] at a.mlir:2 trips None",
            "2 nest \"bb2\" depth Some(1) height 0 parent Some(1) lines [19, 34] at  trips None",
            "3 two ways \"-\" depth None height 1 parent None lines [43, 64] at  trips None",
            "4 two ways \"bb1\" depth Some(0) height 0 parent Some(3) lines [48, 51] at  trips None",
        ],
        vec![
            "0 arm \"-\" depth None height 1 parent None lines [73, 82] at  trips None",
            "1 arm \"bb1\" depth Some(0) height 0 parent Some(0) lines [76, 79] at  trips None",
        ],
    ];
    assert_eq!(entries, expected);
    let skipped: Vec<(&str, Option<&str>, &str)> = done
        .tables
        .iter()
        .flat_map(|t| &t.skipped)
        .map(|s| (s.function.as_str(), s.label.as_deref(), s.why.as_str()))
        .collect();
    assert_eq!(skipped, [("two ways", Some("bb4"), "a cycle with several entries is not a loop")]);
    assert_eq!(done.counts.functions, 5);
    let targets: Vec<&str> = done.tables.iter().filter_map(|t| t.target.as_deref()).collect();
    assert_eq!(targets, ["x86_64-unknown-unknown-eabi-elf", "aarch64-unknown-unknown-eabi-elf"]);
    assert_ne!(done.tables[0].module, done.tables[1].module);
    assert!(done.text.windows(10).any(|w| w == b"cntvct_el0"));
}

/// A loop as IREE's compiler writes it: `for (i = 0; i < 64; i += 8) for (k = 2; k < 11; k += 4)`.
#[test]
fn iterations_that_the_text_knows() {
    let text = |predicate: &str, inside: &str, outside: &str| {
        format!(
            r#"builtin.module attributes {{llvm.target_triple = "x86_64-none-elf"}} {{
  llvm.func @f(%arg: !llvm.ptr) {{
    %0 = llvm.mlir.constant(2 : i64) : i64
    %1 = llvm.mlir.constant(4 : i64) : i64
    %2 = llvm.mlir.constant(11 : i64) : i64
    llvm.br ^bb1(%0 : i64)
  ^bb1(%3: i64):
    %4 = llvm.icmp "{predicate}" %3, %2 : i64
    llvm.cond_br %4, {inside}, {outside}
  ^bb2:
    %5 = llvm.add %3, %1 : i64
    llvm.br ^bb1(%5 : i64)
  ^bb3:
    llvm.return
  }}
}}
"#
        )
    };
    let trips = |text: String| done(&text, &all()).tables[0].entries[1].trip_count;
    // The inner counter is 2, 6 and 10.
    assert_eq!(trips(text("slt", "^bb2", "^bb3")), Some(3));
    assert_eq!(trips(text("sge", "^bb3", "^bb2")), Some(3));
    assert_eq!(trips(text("ult", "^bb2", "^bb3")), Some(3));
    // The counter is 2, 6, 10, 14, …, and never 11.
    assert_eq!(trips(text("ne", "^bb2", "^bb3")), None);
    // With this comparison, the loop ends at once, or goes on until the counter wraps around.
    assert_eq!(trips(text("sgt", "^bb2", "^bb3")), None);
    // The header block runs four times. Its last run counts as an iteration only if it does work:
    // if it stores, or passes on a sum that is used after the loop.
    let works = |statement: &str, value: &str| {
        let text = text("slt", "^bb2", &format!("^bb3({value} : i64)"));
        let text = text.replace("(%0 : i64)", "(%0, %0 : i64, i64)");
        let text =
            text.replace("^bb1(%3: i64):", &format!("^bb1(%3: i64, %6: i64):\n    {statement}"));
        let text =
            text.replace("(%5 : i64)", "(%5, %7 : i64, i64)").replace("^bb3:", "^bb3(%8: i64):");
        trips(text)
    };
    let sum = "%7 = llvm.add %6, %3 : i64";
    assert_eq!(works(sum, "%7"), Some(4));
    assert_eq!(works(sum, "%6"), Some(3));
    assert_eq!(works("%7 = llvm.add %6, %1 : i64", "%7"), Some(3), "another counter");
    let store = "%7 = llvm.add %6, %3 : i64\n    llvm.store %3, %arg : i64, !llvm.ptr";
    assert_eq!(works(store, "%6"), Some(4));
    // With this step, a 64-bit counter soon wraps around.
    let wide = text("slt", "^bb2", "^bb3").replace("(4 : i64)", "(4611686018427387904 : i64)");
    assert_eq!(trips(wide), None);
}

/// Instrumenting adds operations and blocks, and puts the names of new blocks into successors.
#[test]
fn the_rest_of_the_text_stays() {
    for choice in 0..360 {
        let new = instrument(SEED.as_bytes(), &options(choice)).unwrap();
        assert_eq!(taken_out(&new.text), SEED, "{choice}");
    }
    let none = Options { filter: Some(&|_: &str| false), ..all() };
    let new = done(SEED, &none);
    assert_eq!((new.text, new.counts.left_functions), (SEED.as_bytes().to_vec(), 5));
}

#[test]
fn other_texts_are_refused() {
    let module = |inside: &str| format!("builtin.module {{\n{inside}\n}}\n");
    let seed = String::from_utf8(done(SEED, &all()).text).unwrap();
    for (text, why) in [
        (
            "ML\u{ef}R".replace('\u{ef}', "?"),
            "there is no function of the llvm dialect in it (llvm.func in a builtin.module)",
        ),
        (
            "define void @f() { ret void }".to_owned(),
            "there is no function of the llvm dialect in it (llvm.func in a builtin.module)",
        ),
        (module("llvm.func @f() {\n llvm.return\n}"), "the text names no target"),
        (
            module("llvm.func @f() {\n llvm.return\n"),
            "the text ends inside of a region that begins in line 1",
        ),
        (module("llvm.func @f() {\n llvm.return ]\n}"), "line 3: ']' closes nothing"),
        (module("llvm.func f() {\n}"), "line 2: this definition has no name"),
        (module("llvm.func @f {\n}"), "line 2: this definition has no arguments"),
        (module("\"llvm.func\"() ({\n}) : () -> ()"), "line 2: MLIR's generic form cannot be read"),
        (module("x = \"a\n"), "the text ends inside of a string that begins in line 2"),
        ("a\0b".to_owned(), "this is a binary file, not the text of MLIR"),
        (seed, "the text is already instrumented: it defines @"),
    ] {
        let error = instrument(text.as_bytes(), &all()).unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}\n{text}");
    }
    let riscv = SEED.replace("aarch64-unknown", "riscv64-unknown");
    let error = instrument(riscv.as_bytes(), &all()).unwrap_err().to_string();
    assert!(error.starts_with("target riscv64-unknown-unknown-eabi-elf: "), "{error}");
    let bytecode = instrument(b"ML\xefR\x01", &all()).unwrap_err().to_string();
    assert_eq!(bytecode, "this is MLIR bytecode, not the text of MLIR");
}

/// Returns the path of `iree-opt`, IREE's program that verifies MLIR. Without it, reports that
/// `test` is skipped.
fn judge(test: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("COUNTERPOINT_VENV");
    let found = venv.map(|venv| PathBuf::from(venv).join("bin/iree-opt")).filter(|p| p.exists());
    if found.is_none() {
        skip(test, "no iree-opt (COUNTERPOINT_VENV is not set, or has no compiler)");
    }
    found
}

/// Returns what `judge` (iree-opt) objects to in a text; `None` if it accepts the text.
fn refused(judge: &PathBuf, text: &[u8]) -> Option<String> {
    let mut child = Command::new(judge)
        .args(["--split-input-file", "-o", "/dev/null", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

#[test]
fn the_compilers_verifier_accepts_it() {
    let Some(judge) = judge("mlir-verifier") else { return };
    assert_eq!(refused(&judge, SEED.as_bytes()), None);
    // The seed's resources are cut off, because the texts are joined: resources must be at the end
    // of a file, and the name of a location may be defined only once.
    let seed = SEED.split("{-# dialect_resources").next().unwrap();
    let mut texts = Vec::new();
    for mode in Mode::ALL {
        for functions in [Functions::WithLoops, Functions::All, Functions::None] {
            let options = Options { mode, functions, ..self::all() };
            texts.push(String::from_utf8(done(seed, &options).text).unwrap());
        }
    }
    assert_eq!(refused(&judge, texts.join("\n// -----\n").as_bytes()), None);
}

#[test]
fn functions_come_before_their_loops() {
    for table in done(SEED, &all()).tables {
        let mut function = None;
        for entry in &table.entries {
            match entry.kind {
                Kind::Function => function = Some(&entry.function),
                Kind::Loop => assert_eq!(function, Some(&entry.function)),
            }
        }
    }
}

/// Pieces of text that have a meaning in MLIR.
const PIECES: [&str; 30] = [
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
    "^",
    "^bb1",
    "^bb2(%9 : i64)",
    ":",
    "//",
    "\n",
    " = ",
    "\\",
    "attributes {",
    "builtin.module {\n",
    "llvm.func @f() {\n",
    "llvm.return\n",
    "llvm.br ^bb1\n",
    "llvm.cond_br %8, ^bb1(%7 : i64), ^bb2\n",
    "llvm.unreachable\n",
    "^bb1(%7: i64):\n",
    "%cpt.x = ",
    "loc(",
    "\"llvm.br\"()[^bb1] : () -> ()\n",
];

/// Makes a damaged text of MLIR, in which one mention of a block's name may be changed.
fn damaged(random: &mut Random) -> Vec<u8> {
    let mut bytes = rounds::damaged(&[SEED], &PIECES, random);
    let names = |i: &usize| bytes[*i..].starts_with(b"^bb");
    let names: Vec<usize> = (0..bytes.len().saturating_sub(3)).filter(names).collect();
    if !names.is_empty() && random.place(3) == 0 {
        bytes[names[random.place(names.len())] + 3] = b'1' + random.place(7) as u8;
    }
    bytes
}

fn tangled(random: &mut Random) -> Vec<u8> {
    use std::fmt::Write;
    let n = 1 + random.place(14);
    let mut text = String::from(
        "builtin.module attributes {llvm.target_triple = \"x86_64-none-elf\"} {\n  llvm.func @f(%c: i1, %x: i32) -> i32 {\n",
    );
    let _ = writeln!(text, "    llvm.br ^b{}", random.place(n));
    for block in 0..n {
        let mut target = || random.place(n);
        let (a, b, c) = (target(), target(), target());
        let _ = writeln!(text, "  ^b{block}:");
        let _ = match random.place(4) {
            0 => writeln!(text, "    llvm.return %x : i32"),
            1 => writeln!(text, "    llvm.br ^b{a}"),
            2 => writeln!(
                text,
                "    llvm.switch %x : i32, ^b{a} [\n      0: ^b{b},\n      1: ^b{b},\n      2: ^b{c}\n    ]"
            ),
            _ => writeln!(text, "    llvm.cond_br %c, ^b{a}, ^b{b}"),
        };
    }
    text.push_str("  }\n}\n");
    text.into_bytes()
}

/// For more texts: `COUNTERPOINT_MUTANTS=1000000 cargo test --release -p counterpoint-ir --test
/// mlir mutants`. `COUNTERPOINT_SEED` is their seed.
#[test]
fn no_mutants_make_it_panic() {
    let (inputs, instrumented) = rounds(4000, 0x31415, |i, random| {
        let text = match i % 4 {
            0 => tangled(random),
            _ => damaged(random),
        };
        check(&text, random.next())
    });
    assert!(instrumented * 5 > inputs, "only {instrumented} of {inputs} were instrumented");
}

#[test]
fn what_was_valid_stays_valid() {
    let Some(judge) = judge("mlir-mutants") else { return };
    let rounds = variable("COUNTERPOINT_JUDGED").unwrap_or(16);
    let mut random = Random(variable("COUNTERPOINT_SEED").unwrap_or(0x2718));
    let mut judged = Vec::new();
    for round in 0..rounds {
        let mut text = if round % 2 == 0 { tangled(&mut random) } else { damaged(&mut random) };
        if let Some(end) = text.windows(3).position(|window| window == b"{-#") {
            text.truncate(end);
        }
        let options = options(random.next());
        let Ok(done) = instrument(&text, &options) else { continue };
        if done.tables.is_empty() || refused(&judge, &text).is_some() {
            continue;
        }
        judged.push(String::from_utf8(done.text).unwrap());
    }
    assert!(judged.len() as u64 * 8 > rounds, "only {} of {rounds} texts were valid", judged.len());
    if let Some(said) = refused(&judge, judged.join("\n// -----\n").as_bytes()) {
        panic!("{said}\n{}", judged.join("\n// -----\n"));
    }
}

#[test]
fn a_text_may_end_anywhere() {
    for end in 0..SEED.len() {
        check(&SEED.as_bytes()[..end], end as u64);
    }
}
