//! Compares the iterations that instrumented programs count with those that the same programs print
//! when they are compiled with `-DPLANT`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;

use abi::loops::Mode;
use support::bench::{Bench, all};
use support::ran::{instrumented, runtime, watched};
use support::{Llvm, programs, run, without_llvm};

const ROUNDS: &str = "40";

/// By default, the optimiser copies the first block of a loop to a place directly before the loop.
/// The copy does the block's work once outside of the loop, so the number of this loop's iterations
/// may differ.
const COPIED: [&str; 1] = ["first_block_sum"];

#[test]
fn planted_iterations_are_those_that_are_counted() {
    let Some(bench) = Bench::new() else { return };
    for (level, copies) in [("-O1", false), ("-O2", true), ("-O3", false), ("-Os", true)] {
        let mut plain = vec![level, "-fno-unroll-loops", "-fno-vectorize", "-fno-slp-vectorize"];
        if !copies {
            plain.extend(["-mllvm", "-rotation-max-header-size=0"]);
        }
        let planted = [&plain[..], &["-DPLANT"]].concat();
        let planted = bench.link(&bench.text("planted.cpp", &planted), &["-O1"]);
        let truth = run(Command::new(planted).arg(ROUNDS)).stdout;
        let truth = String::from_utf8(truth).unwrap();
        let text = bench.text("planted.cpp", &plain);
        for mode in if level == "-O2" { &[Mode::Count, Mode::Timed][..] } else { &[Mode::Count] } {
            let ran = bench.watch(&text, &all(*mode), &["-O1"], &[ROUNDS]);
            assert_eq!(bench.llvm.verify(&text.with_extension("lwp.ll")), Ok(()));
            assert_eq!(ran.output.lines().next(), truth.lines().next());
            for line in truth.lines().skip(1) {
                let [name, hits, iterations] = line.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                let [entered, iterated, found] = [
                    ran.sum(name, Some((0, 0)), |row| row.hits),
                    ran.sum(name, Some((0, 0)), |row| row.iterated),
                    ran.sum(name, Some((0, 0)), |row| row.iterations),
                ];
                let what = format!("{name} {level} {mode:?} {copies}");
                // If the compiler tests before a loop whether to enter it, the instrumented loop
                // may have fewer hits than the program prints.
                let hits: u64 = hits.parse().unwrap();
                assert!(entered == hits || copies && entered < hits, "{what}");
                assert_eq!(iterated, entered, "{what}");
                if !(copies && COPIED.contains(&name)) {
                    assert_eq!(found.to_string(), iterations, "{what}");
                }
            }
        }
    }
}

#[test]
fn iterators_over_slices_of_rust_are_counted() {
    let rustc = || {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-Ccodegen-units=1", "-Cpanic=abort", "--emit=llvm-ir"]);
        rustc.args(["-Cno-vectorize-loops", "-Cllvm-args=-unroll-runtime=false", "-o"]);
        rustc
    };
    let version = Command::new("rustc").arg("-vV").output().ok();
    let version = version.and_then(|said| {
        let said = String::from_utf8(said.stdout).ok()?;
        let llvm = said.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
        llvm.split('.').next()?.parse().ok()
    });
    let Some(llvm) = version.and_then(|version| Llvm::at_least(version, &["clang", "opt"])) else {
        return without_llvm("clang of the LLVM of rustc");
    };
    let scratch = testkit::Scratch::new();
    let runtime = runtime(llvm, scratch.path());
    for level in ["1", "2", "3", "s"] {
        let text = scratch.join("planted.ll");
        let source = programs().join("planted.rs");
        run(rustc().arg(&text).arg(format!("-Copt-level={level}")).arg(source));
        let (path, table) = instrumented(&text, &all(Mode::Count));
        let program = scratch.join("planted");
        let mut clang = llvm.command("clang");
        clang.args(["-O2", "-Wno-override-module", "-o"]).arg(&program).arg(&path);
        run(clang.arg(programs().join("planted_slices.c")));
        let ran = watched(table, &runtime, &mut Command::new(&program));
        // One of the 20 slices that `slice` gets is empty, and its loop is not entered for that
        // slice.
        for (name, hits, iterations) in [("slice", 19, 190), ("reversed", 20, 60), ("find", 20, 60)]
        {
            let found = [
                ran.sum(name, Some((0, 0)), |row| row.hits),
                ran.sum(name, Some((0, 0)), |row| row.iterated),
                ran.sum(name, Some((0, 0)), |row| row.iterations),
            ];
            assert_eq!(found, [hits, hits, iterations], "{name} {level}");
        }
    }
}

/// The values that inserted code keeps in registers are lost when `setjmp` returns for the second
/// time. The program leaves loops by `longjmp`.
#[test]
fn functions_that_call_setjmp_are_left_out() {
    let Some(bench) = Bench::new() else { return };
    let source = bench.scratch.join("jumps.c");
    let program = "#include <setjmp.h>
        #include <stdio.h>
        #include <stdlib.h>
        static jmp_buf place;
        static sigjmp_buf other;
        __attribute__((noinline)) void leave(long i, long last) { if (i == last) longjmp(place, 1); }
        __attribute__((noinline)) void inside(long n, long last) { for (long i = 0; i < n; i++) leave(i, last); }
        __attribute__((noinline)) long caught(long n) {
          volatile long bad = 0;
          for (volatile long r = 0; r < n; r++) if (!setjmp(place)) inside(9, r); else bad++;
          return bad;
        }
        __attribute__((noinline)) long signals(long n) {
          volatile long sum = 0;
          for (volatile long r = 0; r < n; r++) if (!sigsetjmp(other, 1)) sum++;
          return sum;
        }
        int main(int c, char **v) { printf(\"%ld\\n\", caught(atol(v[1])) + signals(3)); }\n";
    std::fs::write(&source, program).unwrap();
    for level in ["-O0", "-O2"] {
        let text = bench.scratch.join("jumps.ll");
        let mut clang = bench.llvm.command("clang");
        run(clang.args(["-S", "-emit-llvm", level, "-o"]).arg(&text).arg(&source));
        let ran = bench.watch(&text, &all(Mode::Timed), &["-O1"], &["12"]);
        assert_eq!(ran.output, "12\n");
        let skipped: Vec<&str> = ran.table.skipped.iter().map(|s| s.function.as_str()).collect();
        assert_eq!(skipped, ["caught", "signals"], "{level}");
        assert!(ran.table.skipped.iter().all(|s| s.why == ir::twice::WHY));
        let inside = ran.rows_of(|e| e.function == "inside" && e.depth.is_some())[0];
        assert_eq!((inside.hits, inside.ended), (12, 3), "{level}");
    }
}
