//! Tests the recipes of docs/loops.md for clang and rustc. The scripts of the examples build the
//! programs, and the hits of their loops were computed on paper.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Scratch;

use crate::support::{counterpoint, skip};

/// The number of rows and of columns of the matrices.
const N: u64 = 96;

fn ok(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Returns the major version of a compiler that prints a text such as `LLVM version: 22.1.2` or
/// `22.1.8`.
fn major(words: &[&str]) -> Option<u32> {
    let output = Command::new(words[0]).args(&words[1..]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last()?;
    line.trim_start_matches("LLVM version: ").split('.').next()?.trim().parse().ok()
}

fn clang(test: &str, least: u32) -> Option<PathBuf> {
    let found = testkit::c::clang(least);
    if found.is_none() {
        skip(test, &format!("no clang of LLVM {least} or later"));
    }
    found
}

/// The examples print the sum of all elements of the product of two matrices. Element number i is i
/// % 7 in the first matrix, and i % 5 in the second one.
fn sum() -> String {
    let of = |modulus: u64, row: u64, column: u64| (row * N + column) % modulus;
    let product = |i: u64, j: u64| (0..N).map(|k| of(7, i, k) * of(5, k, j)).sum::<u64>();
    let all: u64 =
        (0..N).flat_map(|i| (0..N).map(move |j| (i, j))).map(|(i, j)| product(i, j)).sum();
    format!("{all}\n")
}

fn recipe(test: &str, folder: &str, clang: PathBuf) {
    let Some(counterpoint) = counterpoint(test) else { return };
    let scratch = Scratch::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(folder);
    ok(Command::new(examples.join("build.sh"))
        .arg(scratch.path())
        .env("CLANG", clang)
        .env("COUNTERPOINT", &counterpoint));
    let (program, profile) = (scratch.join("matmul"), scratch.join("p.cpt"));
    let alone = ok(Command::new(&program).arg(N.to_string()));
    assert_eq!(String::from_utf8_lossy(&alone.stdout), sum());
    let recorded = ok(Command::new(&counterpoint)
        .args(["run", "--loops", "-e", "none", "-o"])
        .arg(&profile)
        .arg("--")
        .arg(&program)
        .arg(N.to_string()));
    assert_eq!(recorded.stdout, alone.stdout);
    let report = ok(Command::new(env!("CARGO_BIN_EXE_counterpoint"))
        .args(["loops", "report", "--format", "json"])
        .arg(&profile));
    let document: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = document["modules"][0]["rows"].as_array().unwrap();
    // By default, `loops instrument` leaves out the innermost loop, so only two of the three loops
    // have rows.
    let nest = |depth: u64| {
        let is = |row: &&Value| row["depth"] == depth && row["height"] == 2 - depth;
        let found: Vec<&Value> = rows.iter().filter(is).collect();
        assert_eq!(found.len(), 1, "depth {depth}: {rows:?}");
        found[0]["hits"].as_u64().unwrap()
    };
    assert_eq!([nest(0), nest(1)], [1, N]);
}

#[test]
fn the_recipe_for_clang() {
    let test = "loops_recipes clang";
    let Some(clang) = clang(test, 15) else { return };
    recipe(test, "loops-clang", clang);
}

#[test]
fn the_recipe_for_rustc() {
    let test = "loops_recipes rustc";
    let Some(rustc) = major(&["rustc", "-vV"]) else {
        skip(test, "no rustc");
        return;
    };
    let Some(clang) = clang(test, rustc) else { return };
    recipe(test, "loops-rust", clang);
}
